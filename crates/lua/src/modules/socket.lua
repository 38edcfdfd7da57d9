-- socket: sockets that suspend the fiber and not the process; servers with a fiber for each connection.
local errno = require('errno')
local fiber = require('fiber')
local fio = require('fio')
local log = require('log')
local ffi = require('ffi')
local native = require('lycosa.socket')

-- For programs that call the C library by themselves: Tarantool's module declares these functions.
ffi.cdef([[
int lbox_socket_local_resolve(const char *host, const char *port, struct sockaddr *addr, socklen_t *socklen);
int socket(int domain, int type, int protocol);
int connect(int sockfd, const struct sockaddr *addr, socklen_t addrlen);
int bind(int sockfd, const struct sockaddr *addr, socklen_t addrlen);
int listen(int fd, int backlog);
int accept(int s, void *addr, void *addrlen);
int shutdown(int s, int how);
ptrdiff_t write(int fd, const char *octets, size_t len);
ptrdiff_t read(int fd, void *buf, size_t count);
ptrdiff_t send(int sockfd, const void *buf, size_t len, int flags);
ptrdiff_t recv(int s, void *buf, size_t len, int flags);
ptrdiff_t sendto(int sockfd, const void *buf, size_t len, int flags, const struct sockaddr *dest_addr, socklen_t addrlen);
int setsockopt(int s, int level, int iname, const void *opt, size_t optlen);
int getsockopt(int s, int level, int iname, void *ptr, size_t *optlen);
void *memmem(const void *haystack, size_t haystacklen, const void *needle, size_t needlelen);
]])

local FOREVER = 500 * 365 * 86400
local MAX_LIMIT = 2147483647
local READAHEAD = 16320
local READABLE, WRITABLE = 1, 2

local DOMAIN = {
    AF_UNIX = 1, AF_LOCAL = 1, AF_INET = 2, AF_AX25 = 3, AF_IPX = 4, AF_APPLETALK = 5, AF_ATMPVC = 8, AF_X25 = 9,
    AF_INET6 = 10, AF_NETLINK = 16, AF_PACKET = 17,
}
for name, number in pairs({ PF_UNIX = 1, PF_LOCAL = 1, PF_INET = 2, PF_INET6 = 10, PF_NETLINK = 16, PF_PACKET = 17 }) do
    DOMAIN[name] = number
end
local SO_TYPE = { SOCK_STREAM = 1, SOCK_DGRAM = 2, SOCK_RAW = 3, SOCK_RDM = 4, SOCK_SEQPACKET = 5 }
local SEND_FLAGS = {
    MSG_OOB = 1, MSG_PEEK = 2, MSG_DONTROUTE = 4, MSG_TRYHARD = 4, MSG_CTRUNC = 8, MSG_PROXY = 16, MSG_TRUNC = 32,
    MSG_DONTWAIT = 64, MSG_EOR = 128, MSG_WAITALL = 256, MSG_FIN = 512, MSG_SYN = 1024, MSG_CONFIRM = 2048,
    MSG_RST = 4096, MSG_ERRQUEUE = 8192, MSG_NOSIGNAL = 16384, MSG_MORE = 32768, MSG_WAITFORONE = 65536,
    MSG_FASTOPEN = 536870912, MSG_CMSG_CLOEXEC = 1073741824,
}
local AI_FLAGS = {
    AI_PASSIVE = 1, AI_CANONNAME = 2, AI_NUMERICHOST = 4, AI_V4MAPPED = 8, AI_ALL = 16, AI_ADDRCONFIG = 32, AI_IDN = 64,
    AI_CANONIDN = 128, AI_NUMERICSERV = 1024,
}
local SOL_SOCKET, TCP = 1, 6

-- Options: a number is an integer that may be changed; a table says what else it is.
local function read_only(number) return { number = number, read_only = true } end
local SO_OPT = {
    [SOL_SOCKET] = {
        SO_DEBUG = 1, SO_REUSEADDR = 2, SO_TYPE = read_only(3), SO_ERROR = read_only(4), SO_DONTROUTE = 5,
        SO_BROADCAST = 6, SO_SNDBUF = 7, SO_RCVBUF = 8, SO_KEEPALIVE = 9, SO_OOBINLINE = 10, SO_PRIORITY = 12,
        SO_LINGER = { number = 13, linger = true, read_only = true }, SO_REUSEPORT = 15, SO_PASSCRED = 16,
        SO_PEERCRED = read_only(17), SO_RCVLOWAT = 18, SO_SNDLOWAT = 19, SO_RCVTIMEO = 20, SO_SNDTIMEO = 21,
        SO_BINDTODEVICE = { number = 25, text = true }, SO_TIMESTAMP = 29, SO_ACCEPTCONN = read_only(30),
        SO_SNDBUFFORCE = 32, SO_RCVBUFFORCE = 33, SO_MARK = 36, SO_PROTOCOL = read_only(38), SO_DOMAIN = read_only(39),
    },
    [TCP] = {
        TCP_NODELAY = 1, TCP_MAXSEG = 2, TCP_CORK = 3, TCP_KEEPIDLE = 4, TCP_KEEPINTVL = 5, TCP_KEEPCNT = 6,
        TCP_SYNCNT = 7, TCP_LINGER2 = 8, TCP_DEFER_ACCEPT = 9, TCP_WINDOW_CLAMP = 10, TCP_QUICKACK = 12,
        TCP_CONGESTION = { number = 13, text = true }, TCP_MD5SIG = 14, TCP_THIN_LINEAR_TIMEOUTS = 16,
        TCP_THIN_DUPACK = 17, TCP_USER_TIMEOUT = 18, TCP_REPAIR = 19, TCP_REPAIR_QUEUE = 20, TCP_QUEUE_SEQ = 21,
        TCP_REPAIR_OPTIONS = 22, TCP_FASTOPEN = 23, TCP_TIMESTAMP = 24, TCP_NOTSENT_LOWAT = 25,
    },
}
local protocols = { ip = 0, tcp = 6, udp = 17 }

local TRANSIENT = { [errno.EAGAIN] = true, [errno.EWOULDBLOCK] = true, [errno.EINTR] = true }
local FATAL = { [errno.EBADF] = true, [errno.EINVAL] = true, [errno.EOPNOTSUPP] = true, [errno.ENOTSOCK] = true }

local methods = {}
local socket_mt = { __index = methods }

-- The descriptor of an open socket.
local function fd_of(socket)
    local fd = type(socket) == 'table' and rawget(socket, '_fd')
    if fd then return fd end
    if type(socket) == 'table' and rawget(socket, '_handle') then error('attempt to use closed socket', 3) end
    error(socket == nil and 'Usage: socket:method()' or 'Usage: socket:method(), called with non-socket', 3)
end

local function new_object(fd, handle, kind)
    return setmetatable({ _fd = fd, _handle = handle, itype = kind }, socket_mt)
end

-- Keeps the error of a call with the socket and as the last error; passes the results on.
local function keep(socket, failure, result, number, ...)
    if result == nil then
        socket._errno = number
        errno(number)
        return failure
    end
    socket._errno = nil
    if number == nil then return result end
    return result, number, ...
end

local function number_of(names, key)
    -- As a C function takes it.
    if type(key) == 'number' then return tonumber(ffi.cast('int32_t', key)) end
    return names[key]
end

local function flags_of(names, flags)
    if flags == nil then return 0 end
    if type(flags) ~= 'table' then flags = { flags } end
    local sum = 0
    for _, flag in pairs(flags) do
        if names[flag] == nil then return nil end
        sum = bit.bor(sum, names[flag])
    end
    return sum
end

local function protocol_of(name)
    if type(name) == 'number' then return tonumber(ffi.cast('int32_t', name)) end
    if type(name) ~= 'string' then return nil, errno.EINVAL end
    if protocols[name] == nil then protocols[name] = native.protocol(name) end
    if protocols[name] == nil then return nil, errno.EPROTOTYPE end
    return protocols[name]
end

local function new_socket(domain, kind, protocol)
    domain, kind = number_of(DOMAIN, domain), number_of(SO_TYPE, kind)
    if domain == nil or kind == nil then
        errno(errno.EINVAL)
        return nil
    end
    local number, failure = protocol_of(protocol)
    if number == nil then
        errno(failure)
        return nil
    end
    local fd, handle = native.socket(domain, kind, number)
    if fd == nil then
        errno(handle)
        return nil
    end
    return new_object(fd, handle, kind)
end

-- Waiting.

local WHAT = { r = READABLE, w = WRITABLE, rw = 3, wr = 3 }

local function iowait(...)
    local fd, what, timeout = ...
    local wanted = what
    if type(what) == 'string' then wanted = WHAT[what:lower()] end
    local is_sleep = what == nil and (fd == nil or type(fd) == 'number' and fd < 0)
    local is_wait = type(fd) == 'number' and fd >= 0 and type(wanted) == 'number' and wanted >= 1 and wanted <= 3
    if select('#', ...) < 2 or not (is_sleep or is_wait) then
        error("Usage: iowait(fd, 1 | 'r' | 2 | 'w' | 3 | 'rw' [, timeout])", 2)
    end
    if is_sleep then
        fiber.sleep(timeout or FOREVER)
        return
    end
    local happened = native.wait(fd, wanted, timeout or FOREVER)
    if type(what) == 'number' then return happened end
    return (happened % 2 == 1 and 'R' or '') .. (happened >= 2 and 'W' or '')
end

-- The events that happened; 0 when the time is over. The limit counts in the fiber's clock.
local function wait_until(socket, wanted, deadline)
    while true do
        local fd = rawget(socket, '_fd')
        if not fd then return wanted end
        local happened = native.wait(fd, wanted, math.max(deadline - fiber.clock(), 0))
        if happened ~= 0 then
            socket._errno = nil
            return happened
        end
        if fiber.clock() >= deadline then
            socket._errno = errno.ETIMEDOUT
            errno(errno.ETIMEDOUT)
            return 0
        end
    end
end

function methods.readable(socket, timeout)
    fd_of(socket)
    return wait_until(socket, READABLE, fiber.clock() + (timeout or FOREVER)) ~= 0
end

function methods.writable(socket, timeout)
    fd_of(socket)
    return wait_until(socket, WRITABLE, fiber.clock() + (timeout or FOREVER)) ~= 0
end

function methods.wait(socket, timeout)
    fd_of(socket)
    local happened = wait_until(socket, 3, fiber.clock() + (timeout or FOREVER))
    if happened == 0 then return 0 end
    return (happened % 2 == 1 and 'R' or '') .. (happened >= 2 and 'W' or '')
end

-- The life of a socket.

local function close(socket)
    fd_of(socket)
    socket._fd, socket._errno = nil, nil
    return keep(socket, false, native.close(socket._handle))
end
methods.close = close

function methods.fd(socket) return fd_of(socket) end

function methods.errno(socket)
    fd_of(socket)
    return socket._errno or 0
end

function methods.error(socket)
    fd_of(socket)
    return socket._errno and errno.strerror(socket._errno)
end

function methods.sysconnect(socket, host, port)
    return keep(socket, false, native.connect(fd_of(socket), tostring(host), tostring(port)))
end

function methods.bind(socket, host, port)
    return keep(socket, false, native.bind(fd_of(socket), tostring(host), tostring(port or 0)))
end

function methods.listen(socket, backlog)
    return keep(socket, false, native.listen(fd_of(socket), backlog or 256))
end

local DIRECTIONS = {
    R = 0, READ = 0, receive = 0, W = 1, WRITE = 1, send = 1, RW = 2, READ_WRITE = 2, both = 2, [0] = 0, [1] = 1,
}
function methods.shutdown(socket, how)
    return keep(socket, false, native.shutdown(fd_of(socket), DIRECTIONS[how] or 2))
end

function methods.accept(socket)
    local fd, handle, from = native.accept(fd_of(socket))
    if fd == nil then return keep(socket, nil, nil, handle) end
    socket._errno = nil
    return new_object(fd, handle, socket.itype), from
end

function methods.nonblock(socket, yes)
    return (keep(socket, nil, native.nonblock(fd_of(socket), yes)))
end

-- Addresses.

local address_mt = {
    __tostring = function(address)
        if address.host == nil and address.port == nil then return '' end
        return ('%s:%s'):format(address.host or '0', address.port or 0)
    end,
}

local function address_of(socket, read)
    local address, number = read(fd_of(socket))
    if address == nil then return keep(socket, nil, nil, number) end
    socket._errno = nil
    return setmetatable(address, address_mt)
end

function methods.name(socket) return address_of(socket, native.name) end
function methods.peer(socket) return address_of(socket, native.peer) end

function socket_mt.__tostring(socket)
    local text = ('fd %d'):format(fd_of(socket))
    local name, peer = native.name(socket._fd), native.peer(socket._fd)
    if name then text = ('%s, aka %s:%s'):format(text, name.host, name.port) end
    if peer then text = ('%s, peer %s:%s'):format(text, peer.host, peer.port) end
    return text
end

function socket_mt.__serialize(socket)
    return { fd = fd_of(socket), peer = native.peer(socket._fd), name = native.name(socket._fd) }
end

-- Options.

local function level_of(level)
    if type(level) == 'number' then return level end
    if type(level) ~= 'string' then return nil, errno.EINVAL end
    if level == 'SOL_SOCKET' or level == 'socket' then return SOL_SOCKET end
    return protocol_of((level:match('^IPPROTO_(.*)$') or level:match('^SOL_(.*)$') or level):lower())
end

local function option_of(level, name)
    local known = SO_OPT[level] or {}
    local option = known[name]
    if option == nil then error(('Unknown socket option name: %s'):format(tostring(name)), 3) end
    if type(option) == 'number' then return { number = option } end
    return option
end

function methods.setsockopt(socket, level, name, value)
    local fd = fd_of(socket)
    local number, failure = level_of(level)
    if number == nil then return keep(socket, false, nil, failure) end
    local option = option_of(number, name)
    if option.read_only then error(('Socket option %s is read only'):format(name), 2) end
    if type(value) == 'boolean' then value = value and 1 or 0 end
    if option.text then value = tostring(value) else value = tonumber(value) end
    if value == nil then error(('Socket option %s wants a number or a boolean'):format(name), 2) end
    if not option.text then value = tonumber(ffi.cast('int32_t', value)) end
    return keep(socket, false, native.setsockopt(fd, number, option.number, value))
end

function methods.getsockopt(socket, level, name)
    local fd = fd_of(socket)
    local number, failure = level_of(level)
    if number == nil then return keep(socket, false, nil, failure) end
    local option = option_of(number, name)
    if option.linger then error('Use s:linger()', 2) end
    return (keep(socket, nil, native.getsockopt(fd, number, option.number, option.text)))
end

function methods.linger(socket, active, timeout)
    local fd = fd_of(socket)
    if active == nil then return keep(socket, nil, native.linger(fd)) end
    local is_set, seconds = keep(socket, nil, native.linger(fd, active and true or false, timeout or 0))
    -- The number is returned as it was given.
    if is_set ~= nil and type(active) == 'number' then return active, seconds end
    return is_set, seconds
end

-- Bytes.

function methods.syswrite(socket, data, size)
    local fd = fd_of(socket)
    if type(data) == 'cdata' and data ~= nil and size ~= nil then data = ffi.string(data, size) end
    if type(data) ~= 'string' then
        error('Usage: socket:syswrite(data) or socket:syswrite(const char *, size)', 2)
    end
    return (keep(socket, nil, native.write(fd, data, 0)))
end

function methods.sysread(socket, target, size)
    local fd = fd_of(socket)
    if type(target) == 'cdata' and target ~= nil and size ~= nil then
        local bytes = keep(socket, nil, native.read(fd, size))
        if bytes == nil then return nil end
        ffi.copy(target, bytes, #bytes)
        return #bytes
    end
    size = target or READAHEAD
    if size < 0 then error('socket:sysread(): size can not be negative', 2) end
    return (keep(socket, nil, native.read(fd, size)))
end

-- Reads until `check(input)` tells a length; what is left at the end of the stream; nil when the time is over.
local function read_until(socket, limit, timeout, check)
    if limit < 0 then error('socket:read(): limit can not be negative', 3) end
    limit = math.min(limit, MAX_LIMIT)
    local input = socket._input
    if not input then
        input = native.input()
        socket._input = input
    end
    local deadline = fiber.clock() + timeout
    local length = check(input, limit)
    while not length do
        -- What has come is taken at once: the next read may find its bytes here.
        local count, number = native.fill(input, fd_of(socket), READAHEAD)
        if count == 0 then
            length = native.held(input)
        elseif count then
            length = check(input, limit)
        elseif not TRANSIENT[number] then
            return keep(socket, nil, nil, number)
        elseif wait_until(socket, READABLE, deadline) == 0 then
            return nil
        end
    end
    socket._errno = nil
    return native.take(input, length)
end

local function at_limit(input, limit) return native.held(input) >= limit and limit or nil end

-- Behind the first of the texts, or at the limit. What was looked through once is not looked through again.
local function behind(texts)
    local seen = {}
    return function(input, limit)
        if limit == 0 then return 0 end
        local held, shortest = native.held(input), nil
        if held == 0 then return nil end
        for i, text in ipairs(texts) do
            local length = native.find(input, text, math.max((seen[i] or 0) - #text + 1, 0))
            if length and (not shortest or length < shortest) then shortest = length end
            seen[i] = held
        end
        if shortest and shortest <= limit then return shortest end
        return limit <= held and limit or nil
    end
end

function methods.read(socket, what, timeout)
    fd_of(socket)
    timeout = timeout or FOREVER
    if type(what) == 'number' then return read_until(socket, what, timeout, at_limit) end
    if type(what) == 'string' then return read_until(socket, MAX_LIMIT, timeout, behind({ what })) end
    if type(what) == 'table' then
        local limit = what.chunk or what.size or MAX_LIMIT
        local delimiter = what.delimiter or what.line
        if delimiter == nil then return read_until(socket, limit, timeout, at_limit) end
        if type(delimiter) == 'string' then delimiter = { delimiter } end
        if type(delimiter) == 'table' then return read_until(socket, limit, timeout, behind(delimiter)) end
    end
    error('Usage: s:read(delimiter|chunk|{delimiter = x, chunk = x}, timeout)', 2)
end

function methods.write(socket, data, timeout)
    fd_of(socket)
    if type(data) == 'number' then data = tostring(data) end
    if type(data) ~= 'string' then error('Usage: s:write(data, [timeout])', 2) end
    local deadline, written = fiber.clock() + (timeout or FOREVER), 0
    while written < #data do
        local count, number = native.write(fd_of(socket), data, written)
        if count == 0 then return written end
        if count then
            written = written + count
        elseif not TRANSIENT[number] then
            return keep(socket, nil, nil, number)
        elseif wait_until(socket, WRITABLE, deadline) == 0 then
            return nil
        end
    end
    socket._errno = nil
    return written
end

function methods.send(socket, data, flags)
    local fd, number = fd_of(socket), flags_of(SEND_FLAGS, flags)
    if number == nil then error(('Unknown flag of socket:send(): %s'):format(tostring(flags)), 2) end
    return (keep(socket, nil, native.send(fd, data, number)))
end

-- The size that a datagram has is asked for by nil.
local function receive_size(socket, size)
    if size == nil and socket.itype ~= SO_TYPE.SOCK_DGRAM then return 512 end
    return size
end

function methods.recv(socket, size, flags)
    local fd, number = fd_of(socket), flags_of(SEND_FLAGS, flags)
    if number == nil then return keep(socket, nil, nil, errno.EINVAL) end
    return (keep(socket, nil, native.recv(fd, receive_size(socket, size), number)))
end

function methods.recvfrom(socket, size, flags)
    local fd, number = fd_of(socket), flags_of(SEND_FLAGS, flags)
    if number == nil then return keep(socket, nil, nil, errno.EINVAL) end
    local data, from = native.recvfrom(fd, receive_size(socket, size), number)
    if data == nil then return keep(socket, nil, nil, from) end
    return keep(socket, nil, data), from
end

function methods.sendto(socket, host, port, data, flags)
    local fd, number = fd_of(socket), flags_of(SEND_FLAGS, flags)
    if number == nil then return keep(socket, nil, nil, errno.EINVAL) end
    socket._errno = nil
    if data == nil or data == '' then return true end
    return (keep(socket, nil, native.sendto(fd, tostring(host), tostring(port), tostring(data), number)))
end

-- Names of hosts.

local function getaddrinfo(host, port, timeout, options)
    if type(timeout) == 'table' and options == nil then timeout, options = nil, timeout end
    options = options or {}
    local function wrong(number)
        errno(number)
        return nil
    end
    local flags, family, kind, protocol = AI_FLAGS.AI_ADDRCONFIG, 0, 0, 0
    if options.flags ~= nil then
        flags = flags_of(AI_FLAGS, options.flags)
        if flags == nil then return wrong(errno.EINVAL) end
    end
    if options.family ~= nil then
        family = number_of(DOMAIN, options.family)
        if family == nil then return wrong(errno.EINVAL) end
    end
    if options.type ~= nil then
        kind = number_of(SO_TYPE, options.type)
        if kind == nil then return wrong(errno.EINVAL) end
    end
    if options.protocol ~= nil then
        local failure
        protocol, failure = protocol_of(options.protocol)
        if protocol == nil then return wrong(failure) end
    end
    local places, fd = native.lookup(host, tostring(port or 0), flags, family, kind, protocol)
    if places == nil then return wrong(fd) end
    if type(places) == 'table' then return places end
    local deadline = fiber.clock() + (timeout or FOREVER)
    local lookup = places
    repeat
        local happened = native.wait(fd, READABLE, math.max(deadline - fiber.clock(), 0))
    until happened ~= 0 or fiber.clock() >= deadline
    local number
    places, number = native.found(lookup)
    if places == nil then return wrong(number == 0 and errno.ETIMEDOUT or number) end
    return places
end

-- Connecting.

-- Connects a new socket. Whether it is connected.
local function finish_connect(socket, host, port, timeout)
    if methods.sysconnect(socket, host, port) then return true end
    if socket._errno ~= errno.EINPROGRESS then return false end
    if methods.writable(socket, timeout) then
        local number = methods.getsockopt(socket, 'SOL_SOCKET', 'SO_ERROR')
        socket._errno = number ~= 0 and number or nil
    end
    return socket._errno == nil
end

-- The socket, or nil with the reason as the last error.
local function connected(socket, host, port, timeout)
    if finish_connect(socket, host, port, timeout) then
        errno(0)
        return socket
    end
    local number = socket._errno
    close(socket)
    errno(number)
    return nil
end

local function tcp_connect(host, port, timeout)
    timeout = timeout or FOREVER
    if host == 'unix/' then
        local socket = new_socket('AF_UNIX', 'SOCK_STREAM', 0)
        return socket and connected(socket, host, port, timeout)
    end
    local deadline = fiber.clock() + timeout
    local places = getaddrinfo(host, port, timeout, { type = 'SOCK_STREAM', protocol = 'tcp' })
    if places == nil or #places == 0 then
        errno(errno.EINVAL)
        return nil
    end
    for _, place in ipairs(places) do
        local left = deadline - fiber.clock()
        if left <= 0 then
            errno(errno.ETIMEDOUT)
            return nil
        end
        local socket = new_socket(place.family, place.type, place.protocol)
        socket = socket and connected(socket, place.host, place.port, left)
        if socket then return socket end
    end
    return nil
end

-- Serving.

local function serve_one(server, socket, from)
    fiber.name(('%s/%s:%s'):format(server.name, from.host, from.port), { truncate = true })
    local done, message = pcall(server.handler, socket, from)
    if rawget(socket, '_fd') then
        methods.shutdown(socket)
        close(socket)
    end
    if not done then error(message, 0) end
end

local function serve(server, socket, address)
    fiber.name(('%s/%s:%s'):format(server.name, address.host, address.port), { truncate = true })
    log.info('started')
    while rawget(socket, '_fd') and methods.readable(socket) do
        if not rawget(socket, '_fd') then break end
        local client, from = methods.accept(socket)
        if client then
            fiber.create(serve_one, server, client, from)
        elseif FATAL[socket._errno] then
            log.error('accept(%s) failed: %s', tostring(socket), methods.error(socket))
            break
        elseif not TRANSIENT[socket._errno] then
            log.error('accept(%s) failed: %s', tostring(socket), methods.error(socket))
            -- Too many open files, for example: the connection waits until there is room for it.
            fiber.sleep(0.1)
        end
    end
    log.info('stopped')
end

-- A path that a dead server has left behind is taken over.
local function is_dead(path)
    local socket = tcp_connect('unix/', path)
    if socket then
        close(socket)
        return false
    end
    return errno() == errno.ECONNREFUSED
end

local function bind_place(socket, place)
    local bound = methods.bind(socket, place.host, place.port)
    if place.family ~= 'AF_UNIX' then return bound end
    if not bound and socket._errno == errno.EADDRINUSE and is_dead(place.port) then
        log.info('tcp_server: remove dead UNIX socket: %s', place.port)
        if fio.unlink(place.port) then bound = methods.bind(socket, place.host, place.port) end
    end
    if bound then
        function socket.close(self)
            fio.unlink(place.port)
            return close(self)
        end
    end
    return bound
end

local function bind_server(host, port, prepare, timeout)
    local places
    if host == 'unix/' then
        places = { { host = host, port = port, family = 'AF_UNIX', protocol = 0, type = 'SOCK_STREAM' } }
    else
        places = getaddrinfo(host, port, timeout, { type = 'SOCK_STREAM', flags = 'AI_PASSIVE' })
        if places == nil then return nil end
    end
    for _, place in ipairs(places) do
        local socket = new_socket(place.family, place.type, place.protocol)
        if socket then
            local backlog
            if prepare then
                backlog = prepare(socket)
            else
                methods.setsockopt(socket, 'SOL_SOCKET', 'SO_REUSEADDR', 1)
            end
            if not bind_place(socket, place) or not methods.listen(socket, backlog) then
                local number = socket._errno
                close(socket)
                errno(number)
                return nil
            end
            return socket, place
        end
    end
    errno(errno.EAFNOSUPPORT)
    return nil
end

local function tcp_server(host, port, options, timeout)
    local server = {}
    if type(options) == 'function' then
        server.handler = options
    elseif type(options) == 'table' and type(options.handler) == 'function'
        and (options.prepare == nil or type(options.prepare) == 'function') then
        for name, value in pairs(options) do server[name] = value end
    else
        error('Usage: socket.tcp_server(host, port, handler | opts)', 2)
    end
    server.name = server.name or 'server'
    local socket, place = bind_server(host, port, server.prepare, timeout and tonumber(timeout) or FOREVER)
    if not socket then return nil end
    fiber.create(serve, server, socket, place)
    return socket, place
end

-- Objects as the library LuaSocket has them.

local function outcome(socket, done)
    if done then return 1 end
    return nil, methods.error(socket)
end

local function address_parts(socket, address)
    if address == nil then return nil, methods.error(socket) end
    return address.host, tostring(address.port), address.family:match('AF_(.*)'):lower()
end

local LUASOCKET_OPTIONS = {
    reuseaddr = { 'socket', 'SO_REUSEADDR' }, keepalive = { 'socket', 'SO_KEEPALIVE' },
    ['tcp-nodelay'] = { 'tcp', 'TCP_NODELAY' },
}

local common = {
    close = function(socket) return outcome(socket, close(socket)) end,
    getsockname = function(socket) return address_parts(socket, methods.name(socket)) end,
    getpeername = function(socket) return address_parts(socket, methods.peer(socket)) end,
    settimeout = function(socket, timeout)
        fd_of(socket)
        socket.timeout = timeout
        return 1
    end,
    setoption = function(socket, name, value)
        if name == 'linger' then
            if type(value) == 'table' then value = value.on end
            return outcome(socket, methods.linger(socket, value and true or false) ~= nil)
        end
        local option = LUASOCKET_OPTIONS[name]
        if not option then error(('Unknown socket option name: %s'):format(tostring(name)), 2) end
        return outcome(socket, methods.setsockopt(socket, option[1], option[2], value))
    end,
}

local function class(title, own)
    for name, method in pairs(common) do own[name] = method end
    local function show(socket) return ('tcp{%s}: fd=%d'):format(title, fd_of(socket)) end
    return { __index = own, __tostring = show, __serialize = show }
end

local function receive(socket, pattern, prefix)
    fd_of(socket)
    prefix = prefix or ''
    local timeout = socket.timeout or FOREVER
    if type(pattern) == 'number' then
        local data = read_until(socket, pattern, timeout, at_limit)
        if data == nil then return nil, methods.error(socket) end
        if #data < pattern then return nil, 'closed', prefix .. data end
        return prefix .. data
    elseif pattern == nil or pattern == '*l' then
        local data = read_until(socket, MAX_LIMIT, timeout, behind({ '\n' }))
        if data == nil then return nil, methods.error(socket) end
        if data:sub(-1) == '\n' then return prefix .. data:sub(1, -2) end
        return nil, 'closed', prefix .. data
    elseif pattern == '*a' then
        local data = read_until(socket, MAX_LIMIT, timeout, at_limit)
        if data == nil then return nil, methods.error(socket) end
        if data == '' then return nil, 'closed', prefix end
        return prefix .. data
    end
    error('Usage: socket:receive(pattern, [, prefix])', 2)
end

local function send(socket, data, first, last)
    if first ~= nil then data = data:sub(first, last) end
    local sent = methods.write(socket, data, socket.timeout)
    if not sent then return nil, methods.error(socket) end
    return (first or 1) + sent - 1
end

local client_mt = class('client', {
    receive = receive,
    send = send,
    shutdown = function(socket, how) return outcome(socket, methods.shutdown(socket, how)) end,
})

local server_mt = class('server', {
    accept = function(socket)
        local deadline = fiber.clock() + (socket.timeout or FOREVER)
        repeat
            local client = methods.accept(socket)
            if client then return setmetatable(client, client_mt) end
        until not TRANSIENT[socket._errno] or wait_until(socket, READABLE, deadline) == 0
        return nil, methods.error(socket)
    end,
})

local master_mt = class('master', {
    receive = receive,
    send = send,
    bind = function(socket, host, port) return outcome(socket, methods.bind(socket, host, port)) end,
    listen = function(socket, backlog)
        if not methods.listen(socket, backlog) then return nil, methods.error(socket) end
        setmetatable(socket, server_mt)
        return 1
    end,
    connect = function(socket, host, port)
        local deadline = fiber.clock() + (socket.timeout or FOREVER)
        local places = getaddrinfo(host, port, socket.timeout, { family = 'AF_INET', type = 'SOCK_STREAM' })
        if places == nil or #places == 0 then
            socket._errno = errno.EINVAL
            return nil, methods.error(socket)
        end
        for _, place in ipairs(places) do
            if finish_connect(socket, place.host, place.port, deadline - fiber.clock()) then return 1 end
        end
        return nil, methods.error(socket)
    end,
})

local luasocket = {
    tcp = function()
        local socket = new_socket('AF_INET', 'SOCK_STREAM', 'tcp')
        if not socket then return nil, errno.strerror() end
        return setmetatable(socket, master_mt)
    end,
    connect = function(host, port)
        if host == nil or port == nil then error('Usage: luasocket.connect(host, port)', 2) end
        local socket = tcp_connect(host, port)
        if not socket then return nil, errno.strerror() end
        return setmetatable(socket, client_mt)
    end,
    bind = function(host, port, backlog)
        if host == nil or port == nil then error('Usage: luasocket.bind(host, port [, backlog])', 2) end
        local socket = bind_server(host, port, function() return backlog end, FOREVER)
        if not socket then return nil, errno.strerror() end
        return setmetatable(socket, server_mt)
    end,
}

return setmetatable({
    getaddrinfo = getaddrinfo,
    tcp_connect = tcp_connect,
    tcp_server = tcp_server,
    iowait = iowait,
    internal = {
        DOMAIN = DOMAIN, SO_TYPE = SO_TYPE, SEND_FLAGS = SEND_FLAGS, AI_FLAGS = AI_FLAGS, SOL_SOCKET = SOL_SOCKET,
        protocols = protocols,
    },
}, {
    __call = function(_, ...) return new_socket(...) end,
    __index = luasocket,
})
