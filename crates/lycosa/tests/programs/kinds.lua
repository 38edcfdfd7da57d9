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
    box.schema.func.create('words_of', { is_deterministic = true, is_sandboxed = true, opts = { is_multikey = true }, body = [[
        function(tuple)
            local words = {}
            for word in string.gmatch(tuple.text, '%S+') do words[#words + 1] = { string.lower(word), #word } end
            return words
        end]] })
    box.schema.func.create('last_digit', { is_deterministic = true, is_sandboxed = true,
        body = 'function(tuple) return { tuple[1] % 10 } end' })
    local words = box.schema.space.create('words', { format = { { 'id', 'unsigned' }, { 'text', 'string' } } })
    words:create_index('pk')
    words:create_index('words', { func = 'words_of', unique = false, parts = { { 1, 'string' }, { 2, 'unsigned' } } })
    for i = 1, 200 do
        words:insert{ i, ('Word%d common tail%d'):format(i, i % 3) }
        if i == 150 then
            words:create_index('digit', { func = 'last_digit', unique = false, parts = { { 1, 'unsigned' } } })
        end
        if i == 100 then box.snapshot() end
        tags:insert{ i, { { name = 'a' .. i % 7, at = i }, { name = 'b', at = i } }, { i % 5, i % 3, i % 3 } }
        bits:insert{ i, i * 37 % 64, string.char(i % 128) }
        places:insert{ i, { i % 20, i % 30 }, { i % 5, i % 6, i % 7, i % 5 + 2, i % 6 + 1, i % 7 } }
    end
    for i = 1, 200, 9 do
        words:delete(i)
        words:update(i + 1, { { '=', 2, 'changed now' } })
        tags:delete(i)
        tags:update(i + 1, { { '!', '[3][1]', 9 } })
        bits:update(i + 1, { { '=', 2, 63 } })
        places:replace{ i + 1, { 100, 100 }, { 1, 2, 3 } }
        places:delete(i)
    end
else
    local tags, bits, places, words = box.space.tags, box.space.bits, box.space.places, box.space.words
    for _, space in ipairs({ tags, bits, places, words }) do
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
    for _, key in ipairs({ 'common', 'changed', 'tail1', 'word7' }) do
        print(key, ids(words.index.words:select{ key }), words.index.words:count{ key })
    end
    print(words.index.words.func.name, words.index.digit.func.name, ids(words.index.digit:select{ 4 }))
    words:replace{ 1000, 'late common' }
    print(ids(words.index.digit:select{ 0 }), words.index.words:count{ 'late' })
    print(pcall(words.replace, words, { 1001, 5 }))
end
os.exit(0)
