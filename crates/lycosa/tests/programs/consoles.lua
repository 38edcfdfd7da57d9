-- Consoles at a socket: pushes, sessions with their triggers, another server and back. Both servers print the same.
local console, fiber, socket, yaml = require('console'), require('fiber'), require('socket'), require('yaml')
local END = '\n...\n'

local server = console.listen('unix/:./text.sock')
local function connect()
    local client = socket.tcp_connect('unix/', './text.sock')
    print((client:read(128):match('^(Tarantool) .*%(Lua console%)')))
    return client
end
local client = connect()
local function ask(text, ending)
    client:write(text .. '\n')
    return client:read(ending or END)
end

-- An error of a `__serialize`, a cycle, and values that are shown by their names.
print(yaml.decode(ask("setmetatable({}, {__serialize = function() error('no text', 0) end})"))[1].error)
print(yaml.decode(ask("5, setmetatable({}, {__serialize = 'unknown'})"))[1].error)
print(yaml.decode(ask("{a = {print}}, print"))[1].a[1]:match('^function: '), yaml.decode(ask('1, print'))[2]:match('^function: '))

-- Before box.cfg.
for _, value in ipairs({ '200', '"text"', '{1, 2}', 'nil' }) do
    print(ask(('box.session.push(%s)'):format(value)), client:read(END))
end
print(ask('box.session.type()'))
ask('\\set output lua', ';')
print(ask('box.session.push({})', ';'), client:read(';'))
ask('\\set output lua,block', ';')
print(ask('box.session.push({1})', ';'), client:read(';'))
ask('\\set output lua', ';')
-- A push comes before the statement ends.
function waits()
    box.session.push('push')
    fiber.channel(1):get(0.01)
    return 'result'
end
print(ask('waits()', ';'), client:read(';'))
ask('\\set output yaml')

local id = yaml.decode(ask('require("fiber").id()'))[1]
local state = fiber.find(id).storage.console
print(state.client:name().family, state.delimiter == '')
print(ask('require("console").delimiter("#")'), state.delimiter)
print(ask('box.NULL#\r'), ask('1 +\n1#'))
print(ask('\\unknown_command#'))
print(ask('require("console").delimiter("")#'))

box.cfg({ listen = 'unix/:./binary.sock', log = 'consoles.log', wal_mode = 'none' })

-- Another server, refused and allowed, and back.
print(yaml.decode(ask('require("console").connect("/")'))[1].error:match('not established'))
print(yaml.decode(ask('require("console").connect("unix/:./binary.sock")'))[1].error:match('denied'))
box.schema.user.create('operator', { password = 'secret' })
box.schema.user.grant('operator', 'execute', 'universe')
print(ask('require("console").connect("operator:secret@unix/:./binary.sock")'))
print(state.remote.host, state.remote.port, state.prompt)
print(yaml.decode(ask('require("fiber").id()'))[1] ~= id)
client:write('~.\n')
print(yaml.decode(ask('require("fiber").id()'))[1] == id, state.remote)
client:close()

-- A session of its own, with triggers.
local own, told = box.session.id(), {}
local function tell(...)
    local text = { box.session.user(), tostring(box.session.peer()):match('^unix'), tostring(box.session.id() ~= own) }
    for i = 1, select('#', ...) do text[#text + 1] = tostring((select(i, ...))) end
    told[#told + 1] = table.concat(text, ' ')
end
local function on_connect() tell('connect') end
local function on_auth(...) tell('auth', ...) end
local ends = 0
local function on_disconnect() ends = ends + 1 end
box.session.on_connect(on_connect)
box.session.on_auth(on_auth)
box.session.on_disconnect(on_disconnect)
client = connect()
print(ask('box.session.type(), box.session.user()'))
print(ask('box.session.storage.mark = 5'), getmetatable(box.session).aggregate_storage ~= nil)
print(ask('box.session.storage.mark'), box.session.storage.mark)
client:close()
while ends < 1 do fiber.sleep(0.001) end
for _, line in ipairs(told) do print(line) end

-- An error of a trigger closes the connection.
local function refuse() error('not now') end
box.session.on_auth(refuse)
client = connect()
print('closed', client:read(1024) == '')
box.session.on_auth(nil, refuse)
server:close()
os.exit(0)
