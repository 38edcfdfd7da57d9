-- net.box against the program's own server; the argument is the port.
local fiber = require('fiber')
local net_box = require('net.box')

local port = arg[1]
local address = '127.0.0.1:' .. port
box.cfg({ listen = address, log_level = 1 })
box.schema.user.grant('guest', 'super', nil, nil, { if_not_exists = true })
box.schema.user.create('someone', { password = 'secret' })
box.schema.user.grant('someone', 'execute,read,write', 'universe')
local space = box.schema.space.create('people', { format = { { 'id', 'unsigned' }, { 'name', 'string' } } })
space:create_index('pk')
space:create_index('name', { parts = { 2, 'string' }, unique = false })
space:insert({ 1, 'a' })
space:insert({ 2, 'b' })
space:insert({ 3, 'b' })
function answer(...) return 42, { ... } end
functions = { nested = function() return 'nested' end }

local function show(value)
    if type(value) ~= 'table' then return tostring(value) end
    local parts = {}
    for key, part in pairs(value) do parts[#parts + 1] = tostring(key) .. '=' .. show(part) end
    table.sort(parts)
    return '{' .. table.concat(parts, ' ') .. '}'
end

local function failure(call, ...)
    local done, message = pcall(call, ...)
    local code = type(message) == 'cdata' and message.type == 'ClientError' and message.code or ''
    return done, (tostring(message):gsub('^[^ ]*%.lua:%d+: ', '')), code
end

local c = net_box.connect(address)
print(c.host, c.port == port, c.protocol, c.state, c.error, c.peer_version_id > 0, #c.peer_uuid, c.schema_version > 0)

-- Calls and evaluations.
print(c:call('functions.nested'), show({ c:call('answer', { 1, box.NULL, 'x' }) }))
print(show({ c:eval('return 1, nil, {a = 1}, ...', { 5, 6 }) }))
print(failure(c.call, c, 'nobody'))
print(failure(c.call, c, 'answer', 1))
print(failure(c.eval, c, 'return 1', 2))
print(failure(c.eval, c, 'error("x")'))
print(failure(c.eval, c, 'box.error({code = 5, reason = "own"})'))
print(c:eval('return 9007199254740993ULL'), c:eval('return -5, 1.5, true, ""'))
print(show(c:call_16('box.tuple.new', 1, 2)), show(c:call('box.tuple.new', { { 1, 2 } })))

-- Spaces and indexes.
local people = c.space.people
print(people.id == space.id, people.name, people.engine, people.index.pk.id, people.index[1].name, c.space.nobody)
print(people:select()[3], people:get(1), people:get({ 2 }), people:get(1).name, people:get(9))
print(show(people:select({ 2 }, { iterator = 'GE', limit = 1 })[1]:totable()), #people:select({}, { offset = 1 }))
print(people.index.name:select('b')[2], people.index.name:select({ 'a' }, { iterator = 'GT' })[1])
print(people:insert({ 4, 'd' }), people:replace({ 4, 'e' }), people:update(4, { { '=', 2, 'f' } }))
print(people:upsert({ 4, 'x' }, { { '=', 2, 'g' } }), people:get(4), people:delete(4), people:delete(4))
print(people.index.pk:update(3, { { '=', 'name', 'c' } }), people.index.pk:get(3), people.index.pk:delete({ 3 }))
print(failure(people.insert, people, { 1, 'z' }))
print(failure(people.insert, people, 5))
print(failure(people.get, people, 'text'))
print(failure(people.select, people, 1, { iterator = 'NONE' }) == false)
print(people.index.name:min(), people.index.name:max('b'), people.index.name:count('b'), people.index.name:count())

-- States, pings, timeouts.
print(c:ping(), c:ping({ timeout = 10 }), c:is_connected(), c:wait_connected(), c:wait_state('active', 1), c:wait_state({ active = true }))
print(failure(c.eval, c, 'require("fiber").sleep(0.3)', {}, { timeout = 0.01 }))
print(c:eval('return "after the timeout"'))

-- Futures.
local future = c:eval('return 1, 2', {}, { is_async = true })
print(future:is_ready(), future:result())
print(show(future:wait_result(10)), future:is_ready(), show(future:result()))
future = c:eval('error("q")', {}, { is_async = true })
print(future:wait_result(10))
future = people:select(nil, { is_async = true })
print(future:wait_result(10)[1])
print(people:get(1, { is_async = true }):wait_result(10), people:replace({ 7, 'h' }, { is_async = true }):wait_result(10))
future = c:eval('require("fiber").sleep(0.2)', {}, { is_async = true })
print(future:wait_result(0.01))
future:discard()
print(future:result())
print(failure(future.wait_result, future, -1))
local futures = {}
for i = 1, 100 do futures[i] = c:eval('return ...', { i }, { is_async = true }) end
local sum = 0
for i = 1, 100 do sum = sum + futures[i]:wait_result(10)[1] end
print(sum)

-- Pushes.
local pushed = {}
print(c:eval('box.session.push(1) box.session.push({2}) return 3', {}, { on_push = table.insert, on_push_ctx = pushed }), show(pushed))
future = c:eval('box.session.push(1) box.session.push({2}) return 3', {}, { is_async = true })
for i, value in future:pairs() do print(i, show(value)) end

-- Triggers and the schema.
local events = {}
c:on_disconnect(function(of) events[#events + 1] = 'disconnect ' .. tostring(of == c) end)
c:on_schema_reload(function(of) events[#events + 1] = 'reload ' .. tostring(of == c) end)
box.schema.space.create('new')
c:ping()
for _ = 1, 500 do if c.space.new then break end fiber.sleep(0.01) end
print(c.space.new ~= nil, c.space.people == people)
print(type(c:on_connect()), #c:on_connect(), #c:on_disconnect(), (select(2, failure(c.on_connect, c, 1))))
local called = {}
local function one() called[#called + 1] = 'one' end
local function two() called[#called + 1] = 'two' end
print(c:on_disconnect(one), c:on_disconnect(two), #c:on_disconnect(), c:on_disconnect(nil, c:on_disconnect()[1]) ~= nil)
print((select(2, failure(c.on_disconnect, c, nil, print))), c:on_disconnect(two, one) == one, c:on_disconnect()[1] == two)
c:on_disconnect(one)
c:on_disconnect(function(of) events[#events + 1] = 'disconnect ' .. tostring(of == c) end)
c:close()
fiber.sleep(0.05)
print(show(called))
print(show(events), c.state, c.error, c:is_connected(), c:ping(), c:close())
print(failure(c.call, c, 'answer'))
print(c:wait_connected(0.1), c:wait_state('closed'))

-- Accounts.
local named = net_box.connect('someone:secret@' .. address)
print(named.state, named:eval('return box.session.user()'), show(named.opts))
named:close()
named = net_box.connect('127.0.0.1', port, { user = 'someone', password = 'secret' })
print(named.state, named:eval('return box.session.user()'))
local wrong = net_box.connect('someone:wrong@' .. address)
print(wrong.state, wrong.error, wrong:ping(), failure(wrong.call, wrong, 'x'))
print(failure(net_box.connect, '127.0.0.1', port, { password = 'x' }))

-- Nobody there.
local nobody = net_box.connect('127.0.0.1', 1)
print(nobody.state, nobody.error, failure(nobody.call, nobody, 'x'))
print(failure(net_box.connect), failure(net_box.connect, {}))
local later = net_box.connect('127.0.0.1:1', { reconnect_after = 0.01, wait_connected = false })
fiber.sleep(0.1)
print(later:wait_connected(0.01), later.error)
later:close()
local async = net_box.connect(address, { wait_connected = false })
print(async.state, async:wait_connected(10), async.state)
local early = net_box.connect(address, { wait_connected = false })
print(early.state, early:eval('return 5'), early.state)

-- A call that changes the schema returns when the connection has it. A future that is forgotten is collected.
local reloads = 0
early:on_schema_reload(function() reloads = reloads + 1 end)
early:eval('box.schema.space.create("at_once")')
print(reloads, early.space.at_once.name)
box.schema.space.create('seen_late')
early:ping()
print(reloads, early.space.seen_late.name)
local forgotten = setmetatable({ early:eval('require("fiber").sleep(0.2)', {}, { is_async = true }) }, { __mode = 'v' })
collectgarbage()
collectgarbage()
print(#forgotten, early:ping())

-- Requests by their names.
print(early:_request('ping', nil, nil), show(early:_request('call_17', {}, nil, 'answer', { 1 })))
print(early:_request('select', {}, nil, space.id, 0, box.index.GE, 0, 1, 2)[1], early:_request('get', {}, nil, space.id, 0, box.index.EQ, 0, 2, 1))
print(early:_request('insert', nil, nil, space.id, { 20, 'n' }), early:_request('update', nil, nil, space.id, 0, 20, { { '=', 2, 'm' } }))
print(early:_request('delete', nil, nil, space.id, 0, { 20 }), show(early:_request('eval', nil, nil, 'return ...', { 7 })))
print(show(early._transport.perform_request(nil, nil, false, 'call_17', nil, nil, nil, 'answer', {})))
print(early._transport.perform_request(nil, nil, false, 'call_17', nil, nil, nil, 'nobody', {}))
print(early._transport.perform_request(nil, nil, false, 'inject', nil, nil, nil, '\x80'))
print(early.state, early:ping(), failure(early.call, early, 'answer'))

-- A connection that nobody has any more is closed; whoever has one of its spaces has the connection.
local function current() return box.stat.net().CONNECTIONS.current end
local before = current()
for number = 1, 30 do
    local dropped = net_box.connect(address, { reconnect_after = number % 2 == 0 and 0.1 or nil })
    dropped:call('math.sin', { 1 }, { is_async = true })
end
for _ = 1, 500 do
    collectgarbage()
    fiber.sleep(0.01)
    if current() <= before then break end
end
print(current() <= before)
local people = net_box.connect(address).space.people
collectgarbage()
collectgarbage()
fiber.sleep(0.05)
print(#people:select())

-- The storage of a session lives as long as the requests of the session.
local seen = fiber.channel(1)
rawset(_G, 'late', function()
    local started = fiber.cond()
    rawset(_G, 'goes_on', started)
    box.session.storage.own = 'own'
    started:wait(60)
    fiber.sleep(0.1)
    seen:put({ box.session.storage.own, box.session.storage.closed })
end)
local function mark()
    box.session.storage.closed = 'closed'
    if rawget(_G, 'goes_on') then goes_on:signal() end
end
box.session.on_disconnect(mark)
local leaving = net_box.connect(address)
leaving:call('late', {}, { is_async = true })
while not rawget(_G, 'goes_on') do fiber.sleep(0.01) end
leaving:close()
print(unpack(seen:get(60)))
box.session.on_disconnect(nil, mark)

-- A socket whose greeting has been read, and a connection over it, which reconnects as others.
local client, greeting = net_box.establish_connection('127.0.0.1', port, 5)
print(greeting.protocol, greeting.version_id > 0, #greeting.salt, greeting.uuid == box.info.uuid, client:peer().host)
local wrapped = net_box.wrap(client, greeting, '127.0.0.1', port, { reconnect_after = 0.01 })
print(wrapped:wait_connected(60), wrapped.host, wrapped:eval('return 1, 2'), wrapped.peer_uuid == box.info.uuid, wrapped.space.people.name)
client:shutdown()
wrapped:wait_state('error_reconnect', 60)
print(wrapped:wait_connected(60), wrapped:ping())
wrapped:close()
print(net_box.establish_connection('unix/', 'nothing', 5))
print(failure(net_box.wrap), failure(net_box.wrap, client), failure(net_box.wrap, client, 1))

-- The own instance.
local own = net_box.self
print(own:ping(), own:is_connected(), own:eval('return 1, 2'), own:wait_connected(), own.space.people.name)
print(show(own:call('box.space.people:get', { 1 })), failure(own.call, own, 'nobody'))
os.exit(0)
