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
os.exit(0)
