-- Triggers of sessions: in what order, as whom and with what they run, and what waits for them; the argument is the port.
local fiber = require('fiber')
local msgpack = require('msgpack')
local net_box = require('net.box')
local socket = require('socket')

local address = '127.0.0.1:' .. arg[1]
local list = {}
local function note(...)
    local words = {}
    for i = 1, select('#', ...) do words[i] = tostring((select(i, ...))) end
    list[#list + 1] = table.concat(words, ' ')
end
-- What has happened until the connection's end.
local function shown()
    while not (list[#list] or ''):match('^disconnect') do fiber.sleep(0.01) end
    print(table.concat(list, '; '))
    list = {}
end

-- Before there is an instance they can be set too.
box.session.on_connect(function(...)
    note('connect', box.session.user(), box.session.effective_user(), select('#', ...))
end)
box.cfg{listen = address, log = 'log', log_level = 1}
box.schema.user.create('worker', {password = 'secret'})
box.schema.user.grant('guest', 'super')
box.schema.user.grant('worker', 'super')
box.session.on_auth(function(...)
    note('auth', box.session.user(), box.session.effective_user(), box.session.type(), box.session.peer() ~= nil, ...)
end)
box.session.on_disconnect(function(...)
    note('disconnect', box.session.user(), box.session.effective_user(), select('#', ...))
end)

local function connect(account)
    local connection = net_box.connect(account .. address)
    print(connection.state, connection.error and connection.error:gsub('^.*%.lua:%d+: ', '') or nil)
    connection:close()
    shown()
end
connect('worker:secret@')
connect('worker:wrong@')
connect('')

-- One that fails refuses a log-in, and those that were set before it do not run.
local function refuse(name) if name == 'worker' then error('no log-in') end end
box.session.on_auth(refuse)
connect('worker:secret@')
box.session.on_auth(nil, refuse)

-- One that fails refuses a connection, and says why after the greeting.
local function greeted()
    local client = socket.tcp_connect('127.0.0.1', arg[1])
    local bytes = client:read(128)
    local length = bytes and #bytes == 128 and client:read(5)
    if not length or #length < 5 then return client, nil end
    local reply = client:read((msgpack.decode(length)))
    local header, after = msgpack.decode(reply)
    local body = msgpack.decode(reply, after)
    return client, header[0] % 32768, (body[49]:gsub('^.*%.lua:%d+: ', ''))
end
for _, refusal in ipairs({
    function() error('not you') end,
    function() box.error{code = 77, reason = 'closed today'} end,
}) do
    box.session.on_connect(refusal)
    local client, code, message = greeted()
    print(code, message, client:read(1) == '')
    client:close()
    shown()
    box.session.on_connect(nil, refusal)
end

-- Nothing is served before the triggers have ended.
local function slow()
    fiber.sleep(0.1)
    note('slow')
end
box.session.on_connect(slow)
local connection = net_box.connect(address)
connection:eval('return 1')
note('served')
connection:close()
shown()
box.session.on_connect(nil, slow)
connect('')

-- Each request finds its own session and fiber, whoever runs in between and whatever was compiled.
function _G.stays_itself()
    local session, own, wrong = box.session.id(), fiber.self(), 0
    for i = 1, 300 do
        if i % 3 == 0 then fiber.yield() end
        if box.session.id() ~= session or fiber.id() ~= own:id() then wrong = wrong + 1 end
        if i % 50 == 0 and box.session.su('admin', box.session.id) ~= session then wrong = wrong + 1 end
        if i % 60 == 0 then
            local child = fiber.new(function() return fiber.id() ~= own:id() end)
            child:set_joinable(true)
            local _, is_right = child:join()
            if not is_right then wrong = wrong + 1 end
        end
    end
    return session, wrong
end
local first, second = net_box.connect(address), net_box.connect(address)
local asked = {}
for i = 1, 8 do asked[i] = (i % 2 == 0 and first or second):call('stays_itself', {}, {is_async = true}) end
local ids = {}
for i, future in ipairs(asked) do
    local answer = future:wait_result(100)
    ids[i] = answer[1]
    print('wrong', answer[2], ids[i] == ids[2 - i % 2], ids[i] ~= box.session.id())
end
print(ids[1] ~= ids[2])

-- A push to a client that has gone.
local begun, gone, pushed = fiber.channel(), fiber.channel(), fiber.channel(1)
function _G.pushes_late()
    begun:put(true)
    gone:get()
    pushed:put({ box.session.push(1) })
end
fiber.create(function() first:call('pushes_late') end)
begun:get()
local left = box.session.on_disconnect(function() gone:put(true) end)
first:close()
print(unpack(pushed:get(), 1, 2))
box.session.on_disconnect(nil, left)
os.exit(0)
