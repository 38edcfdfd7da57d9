-- key_def and merger: keys of tuples, their order, sorted sources as one.
local json = require('json')
local key_def, merger = require('key_def'), require('merger')
local buffer, msgpack = require('buffer'), require('msgpack')

local function try(body, ...)
    local done, result = pcall(body, ...)
    print(done, type(result) == 'table' and json.encode(result) or tostring(result))
end

local function parts(key)
    local shown = {}
    for place, part in ipairs(key:totable()) do
        shown[place] = ('%s %s %s %s %s'):format(part.fieldno, part.type, part.is_nullable, part.path, part.collation)
    end
    print(table.concat(shown, ', '))
end

local key = key_def.new({ { fieldno = 1, type = 'unsigned' }, { fieldno = 3, type = 'string', is_nullable = true } })
parts(key)
print(tostring(key))
local one, two = box.tuple.new({ 1, 5, 'a' }), box.tuple.new({ 1, 6, 'b' })
print(key:extract_key(one), key:extract_key({ 1, 2, 'q' }), box.tuple.is(key:extract_key(one)), key:extract_key({ 1 }))
print(key:compare(one, two), key:compare(two, one), key:compare(one, one), key:compare({ 1, 2, 'a' }, one))
print(key:compare_with_key(one, { 1 }), key:compare_with_key(one, { 1, 'b' }), key:compare_with_key(one, box.tuple.new({ 0 })))
try(key.compare_with_key, key, one, { 'x' })
try(key.compare_with_key, key, one, 1)
try(key.compare, key, one, { 'x' })
try(key.compare, key, one)
try(key.extract_key, key, {})
try(key.extract_key, key, 'x')
try(key.extract_key, key)
try(key_def.compare, key, one, two)
try(key_def.extract_key, one)
parts(key:merge(key_def.new({ { fieldno = 2, type = 'integer' }, { fieldno = 1, type = 'unsigned' } })))
try(key.merge, key, 1)
for _, given in ipairs({
    'x', {}, { {} }, { { fieldno = 1 } }, { { fieldno = 1, type = 'bad' } }, { { type = 'unsigned' } },
    { { field = 1, fieldno = 1, type = 'unsigned' } }, { { fieldno = 1, type = 'any' } }, { { fieldno = 1, type = 'map' } },
    { { fieldno = 1, type = 'string', collation = 'unicode_ci' } },
}) do
    try(key_def.new, given)
end
local by_path = key_def.new({ { fieldno = 1, type = 'unsigned', path = 'a.b' } })
parts(by_path)
print(by_path:extract_key({ { a = { b = 7 } } }))

box.cfg({ log = 'log' })
local without_case = key_def.new({ { fieldno = 1, type = 'string', collation = 'unicode_ci' } })
print(without_case:compare({ 'a' }, { 'A' }))
parts(without_case)
local space = box.schema.space.create('s')
space:create_index('p', { parts = { { 1, 'unsigned' }, { 2, 'string' } } })
parts(key_def.new(space.index.p.parts))

-- Merged sources.
local first = key_def.new({ { fieldno = 1, type = 'unsigned' } })
local function table_source(list) return merger.new_source_fromtable(list) end
local function merged(...) return merger.new(first, { ... }) end
local function show(source, options) print(json.encode(source:select(options))) end

local twice = merged(table_source({ { 1 }, { 3 }, { 5 } }), table_source({ { 2 }, { 3, 'second' }, { 6 } }))
show(twice)
show(twice)
show(merged(table_source({ { 1 }, { 3 }, { 5 } }), table_source({ box.tuple.new({ 2 }), { 4 } })), { limit = 2 })
for _, tuple in merged(table_source({ { 1 }, { 4 } }), table_source({ { 2 } })):pairs() do print(tuple, box.tuple.is(tuple)) end
print(json.encode(merged(table_source({ { 1 }, { 2 } })):pairs():map(function(tuple) return tuple[1] end):totable()))
show(merger.new(first, { table_source({ { 5 }, { 3 } }), table_source({ { 9 }, { 4 } }) }, { reverse = true }))
show(merger.new(first, {}))
local calls = 0
show(merged(merger.new_table_source(function(_, state)
    calls = calls + 1
    if calls > 2 then return nil end
    return state, { { calls * 10 }, { calls * 10 + 1 } }
end, 1, 2)))
show(merged(merger.new_tuple_source(function(_, place)
    place = (place or 0) + 1
    if place <= 3 then return place, box.tuple.new({ place }) end
end, {}, nil)))
space:insert({ 1, 'a' })
space:insert({ 2, 'b' })
show(merged(merger.new_tuple_source(space:pairs()), table_source({ { 1, 'from a table' } })))

local function buffer_of(list)
    local made = buffer.ibuf()
    msgpack.encode(list, made)
    return made
end
show(merged(merger.new_source_frombuffer(buffer_of({ { 1 }, { 4 } })), merger.new_source_frombuffer(buffer_of({ { 2 } }))))
local is_done = false
show(merged(merger.new_buffer_source(function()
    if is_done then return nil end
    is_done = true
    return 1, buffer_of({ { 7 }, { 8 } })
end)))
local output = buffer.ibuf()
merged(table_source({ { 1 }, { 2 } })):select({ buffer = output })
print(json.encode((msgpack.decode(output.rpos, output:size()))))
local many = {}
for source = 1, 20 do
    local list = {}
    for place = 1, 50 do list[place] = { place * 7 + source % 5, source } end
    many[source] = table_source(list)
end
local last, count, sorted = 0, 0, true
for _, tuple in merger.new(first, many):pairs() do
    sorted, last, count = sorted and tuple[1] >= last, tuple[1], count + 1
end
print(count, sorted)
try(merger.new)
try(merger.new, 1, {})
try(merger.new, first, 1)
try(merger.new, first, {}, { reverse = 1 })
for _, options in ipairs({ { limit = 'x' }, { buffer = 1 } }) do
    local source = merged(table_source({ { 1 } }))
    try(source.select, source, options)
end
try(function() return merged(table_source({ 1 })):select() end)
try(merger.new_source_fromtable, 1)
try(merger.new_tuple_source)
try(merger.new_table_source, 1)
try(merger.new_source_frombuffer, 1)
-- Equal tuples of several sources, tuples that a key definition does not fit, failures of generators.
local function of(...) return merger.new_source_fromtable({ ... }) end
local mixed = merger.new(first, { of({ 1, 'a' }, { 2, 'a' }, { 3, 'a' }), of({ 3, 'b' }, { 2, 'b' }), of({ 2, 'c' }) })
for _, tuple in mixed:pairs() do print(tuple) end
for _, tuple in merger.new(first, { of({ 4 }, { 2, 'a' }), of({ 3 }, { 2, 'b' }) }, { reverse = true }):pairs() do print(tuple) end
try(function() return merger.new(first, { of({ 'text' }) }):select() end)
try(function() return merger.new(first, { of({}) }):select() end)
try(function() return merger.new(first, { merger.new_tuple_source(function() error('of the generator') end) }):select() end)
try(function() return merger.new(first, { of({ 1 }, { 2 }) }):select({ limit = -1 }) end)
output:recycle()
merger.new(first, { of({ 1 }, { 2 }) }):select({ buffer = output })
print(output:size(), output.rpos[0], output.rpos[4])
try(function() return key_def.new({ { fieldno = 1, type = 'varbinary' } }) end)
for _, name in ipairs({ 'NUM', 'str', 'Unsigned' }) do print(key_def.new({ { fieldno = 1, type = name } }):totable()[1].type) end
os.exit(0)
