-- Objects that a program keeps: indexes in YAML, tuples of a format, changes of ended transactions, dropped spaces, buffers.
box.cfg{log_level = 0}
local buffer, yaml = require('buffer'), require('yaml')
local function try(f, ...)
    local result = { pcall(f, ...) }
    print(result[1], (tostring(result[2]):gsub('^builtin/[%w_./]*:%d+: ', '')))
end
local space = box.schema.space.create('notes', {format = {{'id', 'unsigned'}, {'text', 'string'}}})
space:create_index('primary', {name = 'another'})
space:create_index('text', {parts = {2}})
print(space.index[0].name, space.index.another)
try(space.create_index, space, 'third', {name = 5})
local text = yaml.encode(space.index)
print(select(2, text:gsub('&%d', '')), select(2, text:gsub('%*%d', '')), select(2, text:gsub('space_id', '')))

local tuple = space:insert{1, 'one'}
try(tuple.update, tuple, {{'=', 2, 5}})
try(tuple.update, tuple, {{'#', 2, 1}})
try(tuple.upsert, tuple, {{'=', 2, 5}})
print(tuple:update{{'=', 2, 'uno'}}.text, tuple:update{{'=', 'text', 'eins'}}, tuple:update{{'!', 3, 5}})

local changes
box.begin()
space:insert{2, 'two'}
box.on_commit(function(all)
    changes = all
    for place, old, new in all() do print('committed', place, old, new) end
end)
box.on_commit(function(all) for place, old, new in all() do print('again', place, old, new) end end)
box.commit()
try(changes)
local step, parameter, state
box.begin()
space:insert{3, 'three'}
box.on_rollback(function(all) step, parameter, state = all() end)
box.rollback()
try(step, parameter, state)

space:drop()
print(space:len(), space:count(), #space:pairs():totable(), space.index[0], space.enabled)
try(space.select, space)
box.begin()
box.schema.space.create('kept'):create_index('primary')
box.commit()
box.begin()
box.space.kept:drop()
box.rollback()
print(box.space.kept.index[0].name, box.space.kept:len())

-- An iterator that cannot begin is not made; errors of encoders and wrong calls name the caller's line.
local walked = box.schema.space.create('walked')
walked:create_index('primary')
walked:create_index('hash', {type = 'hash', parts = {1, 'unsigned'}})
try(walked.pairs, walked, 'text')
try(walked.pairs, walked, {1, 2})
try(walked.pairs, walked, 1, {iterator = 'BITS_ALL_SET'})
try(walked.index.hash.pairs, walked.index.hash, 1, {iterator = 'LT'})
print(#walked:pairs(1, {iterator = 'GT'}):totable(), #walked.index.hash:pairs(1):totable())
box.session.su('guest', function()
    try(walked.pairs, walked)
    for _, view in ipairs({'_vspace', '_vindex', '_vuser'}) do try(box.space[view].pairs, box.space[view], {{}}) end
end)
for _, call in ipairs({
    function() return (require('json').encode(print)) end, function() return (require('json').encode({[true] = 1})) end,
    function() return (require('msgpack').encode({print})) end, function() return (yaml.encode({{print}})) end,
    function() local list = {} list[1] = list return (require('json').encode(list)) end,
    function() return (yaml.decode('[1,')) end, function() return (yaml.decode('*x')) end,
    function() walked:update(1) end, function() walked:upsert({1}) end, function() walked:frommap(1) end,
}) do print(select(2, pcall(call))) end

local fiber = require('fiber')
try(fiber.self().join, fiber.self())

local bytes = buffer.ibuf()
bytes:alloc(3)
print(bytes:checksize(2) == bytes.rpos)
try(bytes.checksize, bytes, 9)
try(buffer.ibuf, 'x')
os.exit(0)
