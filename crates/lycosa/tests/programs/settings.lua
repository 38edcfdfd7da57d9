-- What programs set and build on: the rules of `msgpack.cfg`, how deep triggers nest, key definitions as C data, UUIDs of the
-- instance, flags of sockets, calls of the own instance that fail.
local ffi, msgpack, net_box = require('ffi'), require('msgpack'), require('net.box')
local fiber, json, socket, key_def = require('fiber'), require('json'), require('socket'), require('key_def')

local UUIDS = { 'c49a4964-1bbd-4c5b-8c97-2375e9832d39', 'c49a4964-1bbd-4c5b-8c97-2375e9832d38' }
for _, options in ipairs({ { instance_uuid = 'x' }, { replicaset_uuid = UUIDS[1] .. '0' } }) do print(pcall(box.cfg, options)) end
box.cfg({ log_level = 2, instance_uuid = UUIDS[1], replicaset_uuid = UUIDS[2] })
print(box.info.uuid, box.info.cluster.uuid, box.cfg.instance_uuid)
print(pcall(box.cfg, { instance_uuid = UUIDS[1] }), pcall(box.cfg, { instance_uuid = UUIDS[2] }))

local first, second = box.schema.space.create('first'), box.schema.space.create('second')
first:create_index('pk')
second:create_index('pk')

-- A trigger that changes its own space: the fifth statement inside of another one is refused, and takes all back.
local depth = 0
local trigger = first:on_replace(function(_, new)
    depth = depth + 1
    first:replace({ new[1], depth })
end)
local _, failure = pcall(first.replace, first, { 1 })
print(failure, failure.code == box.error.SUB_STMT_MAX, depth, first:len())
first:on_replace(nil, trigger)
depth = 0
trigger = first:before_replace(function(_, new)
    depth = depth + 1
    second:replace({ depth })
    if depth < 3 then first:replace({ new[1] + 1 }) end
    return new
end)
print(first:replace({ 1 }), depth, first:len(), second:len())
first:before_replace(nil, trigger)
-- Another fiber has a depth of its own.
local seen = fiber.channel(1)
trigger = first:on_replace(function() fiber.new(function() seen:put(second:replace({ 9 })) end) end)
first:replace({ 5 })
print(seen:get(1))
first:on_replace(nil, trigger)

-- Tuples and replies obey the module's settings, which an own serializer does not change.
local function nested(levels)
    local value = {}
    for _ = 2, levels do value = { value } end
    return value
end
local function depth_of(value)
    local levels = 0
    while value ~= nil do levels, value = levels + 1, value[1] end
    return levels
end
print(pcall(box.tuple.new, nested(140)))
msgpack.new().cfg({ encode_max_depth = 200 })
print(pcall(box.tuple.new, nested(140)))
msgpack.cfg({ encode_max_depth = 133 })
print(depth_of(box.tuple.new(nested(130)):totable()))
msgpack.cfg({ encode_deep_as_nil = true, encode_max_depth = 7 })
print(depth_of(box.tuple.new(nested(130)):totable()))
msgpack.cfg({ encode_deep_as_nil = false, encode_max_depth = 128, encode_invalid_as_nil = true })
print(box.tuple.new({ 1, print, 3 }))
msgpack.cfg({ encode_invalid_as_nil = false })
print(pcall(box.tuple.new, { 1, print, 3 }))
msgpack.cfg({ encode_sparse_safe = 50 })
box.schema.user.grant('guest', 'super')
box.cfg({ listen = 'unix/:./settings.sock' })
local connection = net_box.connect('unix/:./settings.sock')
print(json.encode(connection:eval('return { [1] = 1, [14] = 2 }')))
msgpack.cfg({ encode_sparse_safe = 10 })

-- Key definitions.
local parts = { { fieldno = 1, type = 'unsigned' }, { fieldno = 2, type = 'string', path = 'a' } }
local definition = key_def.new(parts)
print(type(definition), ffi.istype('struct key_def', definition), tostring(definition), #definition:totable())
print(definition:extract_key({ 1, { a = 'x' } }), definition:compare({ 1, { a = 'x' } }, { 1, { a = 'y' } }))
print(pcall(definition.extract_key, definition, { 1, {} }))
print(definition:merge(key_def.new({ { fieldno = 3, type = 'number' } })):extract_key({ 1, { a = 'x' }, 2.5 }))
for _ = 1, 1000 do key_def.new(parts) end
collectgarbage()
print(definition:extract_key({ 7, { a = 'z' } }))

-- A failed call of the own instance takes the open transaction back.
for _, name in ipairs({ 'call', 'eval' }) do
    local call = name == 'call' and 'nothing.here' or 'error("on purpose")'
    box.begin()
    first:replace({ 100 })
    print(name, pcall(net_box.self[name], net_box.self, call), box.is_in_txn(), first:get(100))
end
print(net_box.self:eval('1 + 1'), net_box.self:eval('return box.tuple.new(1, 2LL)')[2])

-- Counts over a connection go where the iterator says; a result of one value needs no buffer.
for id = 1, 5 do second:replace({ id }) end
local remote = connection.space.second.index.pk
print(remote:count({ 3 }, { iterator = 'LE' }), remote:count(3), remote:count({ 3 }, { iterator = 'GT' }), remote:count())
for _, name in ipairs({ 'min', 'max', 'count', 'get' }) do
    local done, message = pcall(remote[name], remote, {}, { buffer = require('buffer').ibuf() })
    print(name, done, tostring(message):gsub('^.-%d+: ', ''), nil)
end
print(net_box:timeout(5):connect('unix/:./settings.sock'):ping(), net_box:timeout(5):new('unix/', './settings.sock').state)
connection:close()

-- Flags and options are names; numbers are taken as the C language does.
local own = socket('AF_INET', 'SOCK_DGRAM', 'udp')
own:bind('127.0.0.1', 0)
local port = own:name().port
for _, flags in ipairs({ 'MSG_PEEK', 'x', 1, 1.5 }) do
    print(flags, own:sendto('127.0.0.1', port, 'abc', flags), own:recv(10, flags), pcall(own.getsockopt, own, 'socket', 2) == false)
end
print(own:setsockopt('SOL_SOCKET', 'SO_BROADCAST', 1.5), own:getsockopt('SOL_SOCKET', 'SO_BROADCAST'))
print(own:linger(0))

-- A sequence goes on behind the values that inserts have taken, or given.
local filled = box.schema.space.create('filled')
filled:create_index('pk', { sequence = true, parts = { 2, 'unsigned' } })
local numbers = box.sequence.filled_seq
print(pcall(numbers.current, numbers))
for _, value in ipairs({ box.NULL, 7, box.NULL }) do print(filled:insert({ 'a', value }), numbers:current()) end
print(numbers:next(), filled:insert({ 'c', box.NULL }), numbers:current())
numbers:reset()
print(pcall(numbers.current, numbers))
print(filled:insert({ 'd', 50 }), numbers:current(), numbers:next())
numbers:reset()
print(numbers:next())
print(pcall(function() return require('strict') and not_declared end))

-- A decoded list or map that gets a key is told by its keys from then on.
for _, text in ipairs({ '[]', '[1]', '{}' }) do
    local value = json.decode(text)
    value[text:sub(1, 1) == '[' and 'x' or 1] = 5
    print(text, getmetatable(value), pcall(json.encode, value))
    print(json.encode(setmetatable(value, json.array_mt)) ~= nil)
end
local field = box.tuple.new({ 1, {}, {} })[2]
field.x = 1
print(box.tuple.new({ field }), second:replace({ 50, field }))
print(getmetatable(box.schema.user.info('guest')), second.index.pk:min_luac(), second.index.pk:count_ffi())
print(pcall(function() return require('decimal').new(1) > nil end))
local address, length = ffi.new('char[128]'), ffi.new('socklen_t[1]', 128)
print(ffi.C.lbox_socket_local_resolve('127.0.0.1', '80', ffi.cast('struct sockaddr *', address), length), length[0])
print(ffi.C.lbox_socket_local_resolve('localhost', '80', ffi.cast('struct sockaddr *', address), length))
print(tostring(box.tuple.new({ '\xc2\x80' })))
print(tostring(box.tuple.new({ 1 }):pairs().gen), box.tuple.new({ 1, 2 }):pairs():sum())
-- The largest tuple can be changed both ways; memory has bounds; UUIDs that the instance has already are no change.
local large = box.schema.space.create('large')
large:create_index('pk')
for _, size in ipairs({ 2000, 100000, 3000 }) do
    box.cfg({ memtx_max_tuple_size = size })
    print(size, pcall(large.replace, large, { size, ('x'):rep(50000) }), (pcall(large.replace, large, { size, ('x'):rep(1000) })))
end
box.cfg({ memtx_max_tuple_size = 1048576 })
for _, options in ipairs({
    { memtx_memory = -1 }, { memtx_memory = 5e12 }, { vinyl_memory = -1 }, { instance_uuid = UUIDS[1] }, { instance_uuid = UUIDS[2] },
    { replicaset_uuid = UUIDS[2] },
}) do
    print(pcall(box.cfg, options))
end
-- Settings of a session by the names of its fields.
local session_settings = box.space._session_settings
print(session_settings:update('sql_default_engine', { { '=', 'value', 'vinyl' } }), session_settings:get('sql_default_engine').value)
print(pcall(session_settings.update, session_settings, 'sql_default_engine', { { '=', 'name', 'x' } }))
-- NaN and infinities are decoded unless a setting refuses them.
local strict_msgpack = msgpack.new()
for _, value in ipairs({ 0 / 0, 1 / 0, { { a = -1 / 0 } }, ffi.new('float', 1 / 0), 1.5, { 1 } }) do
    strict_msgpack.cfg({ decode_invalid_numbers = true })
    io.write(tostring(pcall(strict_msgpack.decode, msgpack.encode(value))), ' ')
    strict_msgpack.cfg({ decode_invalid_numbers = false })
    local done, failure = pcall(strict_msgpack.decode, msgpack.encode(value))
    print(done, done or failure)
end
os.exit(0)
