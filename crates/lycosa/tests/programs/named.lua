-- Functions that name their object: sequences, spaces, indexes, tuples; where modules are looked for.
local fio = require('fio')

local function try(body, ...)
    local results = { pcall(body, ...) }
    for place, value in ipairs(results) do results[place] = tostring(value):gsub('^[^ ]*%.lua:%d+: ', '') end
    print(table.concat(results, ' | '))
end

box.cfg({ log = 'log' })
local schema = box.schema
local sequence = schema.sequence.create('q', { start = 5, step = 2, min = 1, max = 20, cycle = true })
sequence:next()
try(sequence.alter, sequence, { step = 3 })
print(sequence:next(), sequence:next(), box.sequence.q.step)
try(schema.sequence.alter, 'q', { max = 9 })
print(box.sequence.q.max)
try(sequence.alter, sequence, { bad = 1 })
try(schema.sequence.drop, 'q')
try(schema.sequence.drop, 'q')
try(schema.sequence.drop, 'q', { if_exists = true })

local space = schema.space.create('s')
space:create_index('p')
space:create_index('x', { parts = { 2, 'string' } })
try(schema.space.rename, space.id, 't')
print(box.space.t ~= nil)
try(schema.index.rename, space.id, 1, 'y')
print(box.space.t.index.y ~= nil)
try(schema.index.drop, space.id, 1)
print(#box.space.t.index)
try(schema.space.drop, space.id)
print(box.space.t)

local tuple = box.tuple.new({ 1, 'a', 2 })
print(box.tuple.unpack(tuple))
print(box.tuple.slice(tuple, 1))
print(box.tuple.find(tuple, 'a'), box.tuple.transform(tuple, 1, 1))

fio.mktree('root/sub')
local file = fio.open('root/sub/modx.lua', { 'O_CREAT', 'O_WRONLY' }, 420)
file:write('return { x = ... }')
file:close()
package.setsearchroot('root/sub')
print(require('modx').x, package.search('modx'):match('root/sub/modx.lua$'), package.search('no-such-module'))
try(package.setsearchroot, 1)
package.setsearchroot(box.NULL)
print(package.searchroot() == fio.cwd())

local pickle = require('pickle')
for _, format in ipairs({ 'bsil', 'nN' }) do
    local packed = pickle.pack(format, unpack({ 1, 2, 3, 4 }, 1, #format))
    print(packed:hex(), pickle.unpack(format, packed))
end
print(pickle.pack('fd', 1.5, 2.25):hex(), pickle.unpack('fd', pickle.pack('fd', 1.5, 2.25)))
print(pickle.unpack('ba', pickle.pack('ba', 7, 'rest')))
try(pickle.unpack, 'i', 'ab')
try(pickle.unpack, 'b', 'ab')
os.exit(0)
