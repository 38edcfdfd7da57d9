-- What a program and its clients see while box.cfg waits for a master: fibers run, clients are told to try again, and their
-- connections live on. The master is this program with the argument `master`, in a folder of its own.
io.stdout:setvbuf('no')
local fiber = require('fiber')
local fio = require('fio')
local msgpack = require('msgpack')
local socket = require('socket')

local port = tonumber(arg[1])
-- The folder of both; box.cfg enters that of the instance.
local folder = arg[3] or fio.cwd()

if arg[2] == 'master' then
    fio.mkdir(folder .. '/master')
    box.cfg{listen = port, work_dir = folder .. '/master', log = 'log', log_level = 3}
    box.schema.user.grant('guest', 'super', nil, nil, {if_not_exists = true})
    box.schema.space.create('notes'):create_index('primary')
    box.space.notes:insert{1, 'of the master'}
    -- The folder is removed when the test is over.
    while not fio.path.exists(folder .. '/stop') and fio.path.exists(folder .. '/replica') do fiber.sleep(0.05) end
    os.exit(0)
end

local function read(client, length)
    local bytes = client:read(length, 60)
    assert(bytes and #bytes == length, 'the connection has ended')
    return bytes
end

local function ask(client, what, kind, body)
    local frame = msgpack.encode({[0] = kind, [1] = 7}) .. msgpack.encode(body)
    client:write(msgpack.encode(#frame) .. frame)
    local reply = read(client, (msgpack.decode(read(client, 5))))
    local header, after = msgpack.decode(reply)
    local answer = msgpack.decode(reply, after)
    local code = header[0] % 32768
    print(what, code, answer[49], answer[48] and #answer[48])
    return answer
end

local client
local asked = fiber.new(function()
    repeat
        fiber.sleep(0.01)
        client = socket.tcp_connect('unix/', folder .. '/listen')
    until client
    print('greeted', read(client, 128):match('^Tarantool %S+ %(Binary%)'))
    ask(client, 'ping', 64, setmetatable({}, {__serialize = 'map'}))
    -- Clients that read the schema when they connect begin with a view.
    ask(client, 'select', 1, {[16] = 281, [17] = 0, [18] = 10, [19] = 0, [20] = 2, [32] = {0}})
    ask(client, 'log in', 7, {[35] = 'guest', [33] = {'chap-sha1', ('x'):rep(20)}})
    local ballot = ask(client, 'vote', 68, setmetatable({}, {__serialize = 'map'}))[41]
    print('ballot', ballot[4], next(ballot[2]))
    ask(client, 'unknown', 99, setmetatable({}, {__serialize = 'map'}))
    print('box.info', box.info.status, box.info.ro, box.info.version:match('^2%.6%.0'), type(box.cfg))
    local command = ("'%s' '%s' %d master '%s' > /dev/null 2>&1 &"):format(arg[-1], arg[0], port, folder)
    os.execute(command)
end)
asked:set_joinable(true)

fio.mkdir('replica')
box.cfg{
    listen = 'unix/:' .. folder .. '/listen', work_dir = 'replica', log = 'log', log_level = 3,
    replication = {'127.0.0.1:' .. port}, replication_connect_timeout = 90, read_only = true,
}
print('configured', box.info.status, box.info.ro, type(box.cfg))
assert(asked:join())
rawset(_G, 'own', function() return box.space.notes:get(1)[2] end)
local answer = ask(client, 'own function', 10, {[34] = 'own', [33] = {}})
print(answer[48][1])
ask(client, 'select', 1, {[16] = 512, [17] = 0, [18] = 10, [19] = 0, [20] = 2, [32] = {0}})
-- A function of the program in the place of box.info is what clients call too.
box.info = function() return 'own box.info' end
print('own box.info', ask(client, 'box.info', 10, {[34] = 'box.info', [33] = {}})[48][1])
client:close()
fio.open(folder .. '/stop', {'O_CREAT', 'O_WRONLY'}):close()
os.exit(0)
