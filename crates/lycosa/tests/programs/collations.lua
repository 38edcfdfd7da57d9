-- Collations of a program's own, sequences of indexes that are refused, and a space without an index. Both servers print the same.
box.cfg({ log = 'collations.log', wal_mode = 'none' })

local function try(f, ...)
    local done, result = pcall(f, ...)
    print(done, done and type(result) or tostring(result):gsub('^[^ ]*%.lua:%d+: ', '') .. '')
end

local collation = box.internal.collation
for _, arguments in ipairs({ { 'own' }, { 'own', 'ICU' }, { 42, 'ICU', 'ru' }, { 'own', 'none of these', 'ru' }, { 'own', 'ICU', 'ru', 1 } }) do
    try(collation.create, unpack(arguments))
end
try(collation.create, 'own', 'ICU', 'ru-RU')
try(collation.create, 'own', 'ICU', 'ru-RU')
try(collation.create, 'own', 'ICU', 'ru-RU', { if_not_exists = true })
try(collation.create, 'own-ci', 'ICU', 'ru-RU', { strength = 'secondary' })
print(collation.exists('own'), collation.exists('none'), collation.exists('absent'), collation.id_by_name('own') > 3)

local space = box.schema.space.create('words')
print(#space:pairs():totable())
space:create_index('pk', { parts = { { 1, 'string', collation = 'own' } } })
for _, word in ipairs({ 'еее', 'ЯЯЯ', 'ААА', 'ааа', 'яяя', 'ёёё', 'жжж' }) do space:insert({ word }) end
for _, tuple in space:pairs() do io.write(tuple[1], ' ') end
print()
try(function() space.index.pk:alter({ parts = { { 1, 'string', collation = 'own-ci' } } }) end)
space:drop()
try(collation.drop, 'own-ci')
try(collation.drop, 'absent', { if_exists = true })
print(collation.exists('own-ci'))

-- A refused sequence leaves no index behind.
space = box.schema.space.create('numbered', { format = { { name = 'id', type = 'unsigned' }, { name = 'map', type = 'map' } } })
box.schema.sequence.create('numbers')
for _, options in ipairs({
    { parts = { 1, 'scalar' }, sequence = 'numbers' }, { parts = { 1, 'number' }, sequence = 'numbers' }, { sequence = { field = 2 } },
    { sequence = { id = 'absent' } }, { sequence = { field = 'no.such' } }, { sequence = { field = 'absent' } },
}) do
    try(space.create_index, space, 'pk', options)
    print(space.index.pk)
end
space:create_index('pk', { sequence = { id = 'numbers', field = 'id' } })
print(space.index.pk.sequence_id == box.sequence.numbers.id, space:insert({ box.NULL, { a = 1 } })[1])
-- A sequence over a part of a field, and what an index keeps of it when it is altered.
local inside = box.schema.space.create('inside', { format = { { 'id', 'unsigned' }, { 'data', 'map' } } })
inside:create_index('pk', { parts = { { 'data.x', 'unsigned' } }, sequence = true })
local function row(space_id) return box.space._space_sequence:get(space_id) end
print(inside:insert({ 1, { x = box.NULL } })[2].x, inside:insert({ 1, { x = 10 } })[2].x, inside:insert({ 1, { x = box.NULL } })[2].x)
print(inside.index.pk.sequence_fieldno, inside.index.pk.sequence_path, row(inside.id))
inside:create_index('sk', { parts = { { 1, 'unsigned' } }, unique = false })
for _, wanted in ipairs({
    { field = 'data.y' }, { field = 'nothing' }, { field = 1 }, { id = 'nothing' }, 'inside_seq', 'numbers', true, true, { field = 'data.x' }, {},
}) do
    print(type(wanted) == 'table' and 'table' or wanted, pcall(inside.index.pk.alter, inside.index.pk, { sequence = wanted }))
    print(row(inside.id), box.sequence.inside_seq ~= nil, pcall(inside.index.sk.alter, inside.index.sk, { sequence = wanted }))
end
inside.index.pk:alter({ sequence = false })
print(row(inside.id), box.sequence.inside_seq, inside.index.pk.sequence_id, inside.index.pk.sequence_path)
inside:drop()
print(pcall(inside.rename, inside, 'other'), select(2, pcall(inside.create_index, inside, 'pk')))
os.exit(0)
