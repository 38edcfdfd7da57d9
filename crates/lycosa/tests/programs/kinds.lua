-- Indexes of other kinds than TREE and HASH in a data folder: `write` makes them, `read` shows what they find.
box.cfg{ log = 'log' }

local function ids(tuples)
    local found = {}
    for _, tuple in ipairs(tuples) do found[#found + 1] = tuple[1] end
    table.sort(found)
    return table.concat(found, ' ')
end

if arg[1] == 'write' then
    local tags = box.schema.space.create('tags')
    tags:create_index('pk')
    tags:create_index('unique', { parts = { { 2, 'string', path = '[*].name' }, { 2, 'unsigned', path = '[*].at' } } })
    tags:create_index('all', { unique = false, parts = { { 3, 'unsigned', path = '[*]', is_nullable = true } } })
    local bits = box.schema.space.create('bits')
    bits:create_index('pk')
    bits:create_index('bits', { type = 'bitset' })
    bits:create_index('text', { type = 'bitset', parts = { 3, 'string' } })
    local places = box.schema.space.create('places')
    places:create_index('pk')
    places:create_index('flat', { type = 'rtree' })
    places:create_index('deep', { type = 'rtree', dimension = 3, distance = 'manhattan', parts = { 3, 'array' } })
    for i = 1, 200 do
        if i == 100 then box.snapshot() end
        tags:insert{ i, { { name = 'a' .. i % 7, at = i }, { name = 'b', at = i } }, { i % 5, i % 3, i % 3 } }
        bits:insert{ i, i * 37 % 64, string.char(i % 128) }
        places:insert{ i, { i % 20, i % 30 }, { i % 5, i % 6, i % 7, i % 5 + 2, i % 6 + 1, i % 7 } }
    end
    for i = 1, 200, 9 do
        tags:delete(i)
        tags:update(i + 1, { { '!', '[3][1]', 9 } })
        bits:update(i + 1, { { '=', 2, 63 } })
        places:replace{ i + 1, { 100, 100 }, { 1, 2, 3 } }
        places:delete(i)
    end
else
    local tags, bits, places = box.space.tags, box.space.bits, box.space.places
    for _, space in ipairs({ tags, bits, places }) do
        for i = 0, #space.index do
            local index = space.index[i]
            print(space.name, index.name, index.type, index.unique, index.dimension, index.parts[1].path, index:len())
        end
    end
    print(ids(tags.index.unique:select{ 'a3' }))
    print(ids(tags.index.unique:select({ 'b', 150 }, { iterator = 'GE' })))
    print(pcall(tags.insert, tags, { 900, { { name = 'b', at = 150 } }, {} }))
    for _, key in ipairs({ 0, 2, 4, 9 }) do print(key, ids(tags.index.all:select{ key }), tags.index.all:count(key)) end
    for _, iterator in ipairs({ 'EQ', 'BITS_ALL_SET', 'BITS_ANY_SET', 'BITS_ALL_NOT_SET' }) do
        print(iterator, ids(bits.index.bits:select({ 5 }, { iterator = iterator })))
        print(iterator, ids(bits.index.text:select({ 'A' }, { iterator = iterator })))
    end
    for _, iterator in ipairs({ 'EQ', 'OVERLAPS', 'LE', 'LT', 'GE', 'GT' }) do
        print(iterator, ids(places.index.flat:select({ 3, 3, 9, 9 }, { iterator = iterator })))
        print(iterator, ids(places.index.deep:select({ 1, 1, 1, 4, 4, 6 }, { iterator = iterator })))
    end
    print(ids(places.index.deep:select({ 50, 50, 50 }, { iterator = 'NEIGHBOR' })))
end
os.exit(0)
