-- oracle
local socket = require('socket')
local fiber = require('fiber')
local errno = require('errno')
local fio = require('fio')

local function show(value)
    if type(value) ~= 'table' then return tostring(value) end
    local parts = {}
    for name, part in pairs(value) do
        if name == 'port' and type(part) == 'number' then part = part > 0 and 'some' or part end
        parts[#parts + 1] = name .. '=' .. tostring(part)
    end
    table.sort(parts)
    return table.concat(parts, ',')
end

local quiet, has_come, has_gone

-- What a call raises, without the place.
local function failure(call, ...)
    local done, message = pcall(call, ...)
    return done, (tostring(message):gsub('^[^ ]*%.lua:%d+: ', ''))
end

-- A server with a fiber for each connection.
local server, address = socket.tcp_server('127.0.0.1', 0, function(client, from)
    if not quiet then print('from', show(from), show(client:name())) end
    has_come = true
    while true do
        local line = client:read('\n')
        if line == '' or line == nil then break end
        client:write(line:upper())
    end
    if not quiet then print('the client has gone') end
    has_gone = true
end)
print(show(address), show(server:name()), server:errno(), server:error())
local port = server:name().port
local client = socket.tcp_connect('127.0.0.1', port)
repeat fiber.sleep(0.001) until has_come
print(show(client:peer()), client:nonblock(), client:errno())
print(client:write('one\ntwo\nthr'), client:read('\n'), client:read(4))
print(client:read('\n', 0.01), client:errno() == errno.ETIMEDOUT, client:error())
print(client:write('ee\n'), client:read({ delimiter = { '\n', 'E' } }), client:read({ chunk = 10, line = '\n' }), client:read(0))
print(client:write('abcdef\n'), client:read({ chunk = 3, delimiter = '\n' }), client:read({ size = 4 }))
print(client:readable(0.001), client:writable(0.001), client:wait(0.1))
print(client:shutdown('W'), client:read('\n'), client:read(1))
print(client:close(), pcall(client.fd, client) == false)
repeat fiber.sleep(0.001) until has_gone

-- Many at once.
quiet = true
local done = 0
for i = 1, 50 do
    fiber.create(function()
        local one = socket.tcp_connect('127.0.0.1', port)
        for k = 1, 20 do
            local text = ('%d-%d\n'):format(i, k)
            assert(one:write(text) == #text)
            assert(one:read('\n') == text)
        end
        one:close()
        done = done + 1
    end)
end
while done < 50 do fiber.sleep(0.01) end
print(done)

-- More than the system's buffers hold, both ways at once.
local big = ('x'):rep(3 * 1024 * 1024) .. '\n'
local one = socket.tcp_connect('127.0.0.1', port)
fiber.create(function() one:write(big) end)
print(#one:read('\n'), one:read(1, 0.01))
one:close()
print(server:close())
fiber.sleep(0.01)
print(socket.tcp_connect('127.0.0.1', port), errno() == errno.ECONNREFUSED, errno.strerror())

-- Unix sockets; the path goes with the server.
local path = fio.pathjoin(fio.tempdir(), 'x.sock')
local names = {}
local local_server = socket.tcp_server('unix/', path, {
    name = 'mine',
    prepare = function() return 5 end,
    handler = function(peer, from)
        names[#names + 1] = fiber.name()
        peer:write(show(from))
    end,
})
local unix = socket.tcp_connect('unix/', path)
print(unix:read(100), #names, names[1], unix:peer().port == path, unix:name().host)
unix:close()
print(local_server:close(), fio.path.exists(path))
print(socket.tcp_connect('unix/', path), errno.strerror())

-- Datagrams.
local receiver = socket('AF_INET', 'SOCK_DGRAM', 'udp')
print(receiver:bind('127.0.0.1', 0), receiver:recv(), receiver:error())
local sender = socket('AF_INET', 'SOCK_DGRAM', 'udp')
print(sender:sendto('127.0.0.1', receiver:name().port, 'hello'), receiver:readable(1), receiver:recv())
sender:sendto('127.0.0.1', receiver:name().port, 'again')
receiver:readable(1)
local data, from = receiver:recvfrom(3)
print(data, show(from), from.port == sender:name().port)
print(sender:sysconnect('127.0.0.1', receiver:name().port), sender:send('x'), sender:syswrite('yy'))
receiver:readable(1)
print(receiver:sysread(10), receiver:recv(10), receiver:sysread(10), receiver:errno() == errno.EAGAIN)
print(sender:sendto('nobody', 1, 'x'), sender:error(), sender:sendto('127.0.0.1', 1, ''))
print(receiver:recv(3, 'NONE'), receiver:error(), receiver:recv(3, { 'MSG_DONTWAIT', 'MSG_PEEK' }))

-- Options.
local plain = socket('AF_INET', 'SOCK_STREAM', 'tcp')
print(plain:setsockopt('SOL_SOCKET', 'SO_REUSEADDR', true), plain:getsockopt('SOL_SOCKET', 'SO_REUSEADDR'))
print(plain:setsockopt('tcp', 'TCP_NODELAY', 1), plain:getsockopt('IPPROTO_TCP', 'TCP_NODELAY'))
print(plain:getsockopt('SOL_SOCKET', 'SO_TYPE'), plain:getsockopt('SOL_SOCKET', 'SO_ERROR'))
for _, case in ipairs({ { 'SO_NONE', 1 }, { 'SO_TYPE', 1 } }) do
    print(failure(plain.setsockopt, plain, 'SOL_SOCKET', unpack(case)))
end
print(plain:linger(), plain:linger(true, 3), plain:linger())
print(plain:nonblock(), plain:nonblock(false), plain:nonblock(), plain:nonblock(true))
print(plain:peer(), plain:error(), show(plain:name()))
plain:close()
for _, call in ipairs({ 'read', 'write', 'fd', 'close', 'name', 'errno' }) do
    print(call, failure(plain[call], plain, 1))
end
print(failure(receiver.read), failure(receiver.read, {}, 1))

-- Wrong arguments.
print(socket('AF_NONE', 'SOCK_STREAM', 'tcp'), errno.strerror())
print(socket('AF_INET', 'SOCK_STREAM', 'nosuch'), errno.strerror())
print(failure(socket.tcp_server, '127.0.0.1', 1))
print(socket.tcp_server('127.0.0.1', 0, { handler = print, name = 1, prepare = 5 } and print) ~= nil)

-- Waiting for any descriptor.
print(socket.iowait(receiver:fd(), 'R', 0.01) == '', socket.iowait(receiver:fd(), 'rw', 0.01), socket.iowait(receiver:fd(), 3, 0.1))
print(socket.iowait(receiver:fd(), 1, 0), failure(socket.iowait, 1, 'X', 0))

-- Names.
for _, place in ipairs(socket.getaddrinfo('127.0.0.1', 80, { type = 'SOCK_STREAM' })) do print(show(place)) end
for _, place in ipairs(socket.getaddrinfo('127.0.0.1', 80, 1)) do print(show(place)) end
print(#socket.getaddrinfo('localhost', 'http', { family = 'AF_INET', protocol = 'tcp' }))
print(socket.getaddrinfo('nosuch.invalid', 80, 5), errno() ~= 0)
print(socket.getaddrinfo('127.0.0.1', 80, 1, { type = 'SOCK_NONE' }), errno.strerror())
for _, place in ipairs(socket.getaddrinfo('::1', 80, 1, { type = 'SOCK_STREAM' }) or {}) do print(show(place)) end

-- As LuaSocket.
local listener = socket.bind('127.0.0.1', 0)
local host, number, family = listener:getsockname()
print(host, tonumber(number) > 0, family)
fiber.create(function()
    local accepted = listener:accept()
    accepted:send(accepted:receive() .. '!\n')
    accepted:send('rest')
    accepted:close()
end)
local connection = socket.connect('127.0.0.1', tonumber(number))
print(connection:send('hi\n'), connection:receive('*l'), connection:receive('*a'), connection:receive())
print(connection:settimeout(0.1), connection:close())
local tcp = socket.tcp()
print(tcp:setoption('reuseaddr', true), tcp:bind('127.0.0.1', 0), tcp:listen(5), tcp:close())
print(socket.tcp():connect('127.0.0.1', 1))
os.exit(0)
