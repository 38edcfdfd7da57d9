-- Random calls of modules that reach the operating system: `calls.lua MODULE SEED COUNT`, where MODULE is `fio`, `socket` or `popen`.
-- Each call is printed with what became of it; both servers have to print the same. The numbers are the program's own. No call
-- depends on the speed of the machine: a read waits for bytes that are certain to come, or hardly at all.
local module, seed, count = arg[1], tonumber(arg[2]), tonumber(arg[3])
local errno, ffi, fiber, fio = require('errno'), require('ffi'), require('fiber'), require('fio')
local popen, socket = require('popen'), require('socket')
io.stdout:setvbuf('line')
pcall(fio.umask, 18)

local random, pick, maybe = dofile(arg[0]:match('^.*/') .. 'chance.lua')(seed)

-- Results as text. Numbers of descriptors, processes and ports, and places in a program, are each run's own.

local home = fio.cwd()
local masked
function masked(text)
    local from, to = text:find(home, 1, true)
    if from then return masked(text:sub(1, from - 1) .. 'HOME' .. text:sub(to + 1)) end
    return (text:gsub('^call:%d+: ', ''):gsub('^%S*%.lua:%d+: ', ''):gsub('^%[string "[^"]*"%]:%d+: ', ''):gsub('^builtin/%S*:%d+: ', ''):gsub('0x%x+', '0x')
        :gsub('fd %d+', 'fd N'):gsub('(kill%a*) %d+ ', '%1 N '):gsub('%f[%d]%d%d%d%d%d%f[%D]', 'PORT'))
end
local function shown(value, depth)
    local kind = type(value)
    if kind == 'string' then return (('%q'):format(#value > 300 and #value .. ' bytes' or masked(value)):gsub('\n', 'n')) end
    if kind == 'number' then return masked(('%.14g'):format(value)) end
    if kind == 'cdata' then
        if tostring(ffi.typeof(value)):match('struct error') then return value.type .. ' ' .. masked(value.message) end
        return tostring(value == nil and 'NULL' or ffi.typeof(value))
    end
    if kind ~= 'table' then return kind == 'function' and kind or masked(tostring(value)) end
    local meta = getmetatable(value)
    if meta and meta.__tostring then return masked(tostring(value)) end
    if depth > 3 then return '{...}' end
    local names = {}
    for name in pairs(value) do names[#names + 1] = name end
    table.sort(names, function(one, other) return tostring(one) < tostring(other) end)
    for place, name in ipairs(names) do
        names[place] = (name == place and '' or tostring(name) .. '=') .. shown(value[name], depth + 1)
    end
    return '{' .. table.concat(names, ', ') .. '}'
end
local function outcome(done, ...)
    local texts = {}
    for place = 1, select('#', ...) do texts[place] = shown((select(place, ...)), 0) end
    local text = table.concat(texts, ' | ')
    if done then return text end
    -- The names of a module's own variables are not compared.
    text = text:gsub("attempt to (%a+) %a+ '[^']*' %(", 'attempt to %1 (')
    return 'raises ' .. text
end

-- What the texts of calls name.
local env = setmetatable({ errno = errno, ffi = ffi, fiber = fiber, fio = fio, popen = popen, socket = socket, home = home },
    { __index = _G })
-- The error of a socket's call, if its result is none, and that of the last call.
function env.with_own_errno(object, first, ...)
    if first == nil or first == false then return first, errno.strerror(object:errno()), ... end
    return first, ...
end
function env.with_errno(first, ...)
    if first == nil or first == false then return first, errno.strerror(), ... end
    return first, ...
end
function env.sorted(list, ...)
    if type(list) == 'table' then table.sort(list) end
    return list, ...
end

local kinds = {}
local function kind(weight, make) for _ = 1, weight do kinds[#kinds + 1] = make end end
-- A slot of those that hold something.
local function held(prefix, slots, is_wanted)
    local names = {}
    for number = 1, slots do
        local name = prefix .. number
        if env[name] ~= nil and (is_wanted == nil or is_wanted(env[name], name)) then names[#names + 1] = name end
    end
    return #names > 0 and pick(names) or nil
end
local ODD = { 'nil', 'true', '-1', '1.5', "'x'", '7LL', '{}', '{1}', 'print', 'box.NULL', "''" }
-- Mostly the argument, else one that no program means to pass: what the error says of it is not compared.
local is_odd = false
local function mostly(text, percent)
    if maybe(percent or 95) then return text end
    is_odd = true
    return pick(ODD)
end

if module == 'fio' then
    local NAMES = { 'a', 'b', 'c', 'a/b', 'a/c', 'b/c', 'a/b/c', 'link', 'a/link', 'no/such/folder', './a', 'a/', 'a//b', '', 'ü', 'x y', '.' }
    local BYTES = { "''", "'abc'", "'line\\nline\\n'", "('0123456789'):rep(20)", "'\\0\\xff'", "('z'):rep(9000)" }
    local MODES = { '', ", tonumber('755', 8)", ", tonumber('700', 8)", ", tonumber('444', 8)", ', 0' }
    local function name() return ('%q'):format(pick(NAMES)) end
    local function real() return ('%q'):format(pick({ 'a', 'b', 'c', 'a/b', 'a/c', 'b/c', 'a/b/c', 'link' })) end
    local function flags()
        return pick({ "'O_RDONLY'", "{'O_RDWR', 'O_CREAT'}", "{'O_RDWR', 'O_CREAT', 'O_TRUNC'}", "{'O_WRONLY', 'O_CREAT', 'O_APPEND'}",
            "{'O_RDWR', 'O_CREAT', 'O_EXCL'}", "{'O_RDONLY', 'O_DIRECTORY'}", "{'O_RDWR'}", '', 'fio.c.flag.O_RDONLY', "'O_NONE'",
            "{'O_RDWR', 'NOTHING'}", '0' })
    end
    function env.status(status, ...)
        if status == nil then return status, ... end
        local folder = status:is_dir()
        return ('%o'):format(status.mode), status.uid, status.gid, not folder and status.size or nil, not folder and status.nlink or nil,
            status:is_reg(), folder, status:is_link(), status:is_fifo(), status:is_sock(), status:is_chr(), status:is_blk(), status.mtime > 0
    end
    -- What a read of a folder returns depends on the file system.
    local function regular_file() return held('F', 4, function(file) return file:stat():is_reg() end) end
    local function number() return pick({ '0', '1', '3', '10', '100', '9000' }) end

    kind(12, function()
        local flag = flags()
        return ('local f, e = fio.open(%s%s%s) if f then if F%d then F%d:close() end F%d = f end return f ~= nil, e'):format(
            maybe(80) and real() or name(), flag ~= '' and ', ' .. flag or '', flag ~= '' and pick({ ", tonumber('644', 8)", ", tonumber('600', 8)" }) or '',
            random(4), random(4), random(4)):gsub('F%d', 'F' .. random(4)) .. ''
    end)
    kind(30, function()
        local file = regular_file()
        if not file then return end
        return ('return %s:%s'):format(file, pick({
            'read()', ('read(%s)'):format(number()), ('pread(%s, %s)'):format(number(), number()), ('write(%s)'):format(pick(BYTES)),
            ('write(%s)'):format(pick(BYTES)), ('pwrite(%s, %s)'):format(pick(BYTES), number()), ('truncate(%s)'):format(number()), 'truncate()',
            ('seek(%s)'):format(number()), ("seek(%s, '%s')"):format(number(), pick({ 'SEEK_SET', 'SEEK_CUR', 'SEEK_END' })), "seek(-1, 'SEEK_SET')",
            'fsync()', 'fdatasync()', 'seek(0)', ('read(%s)'):format(number()), "seek(0, 'SEEK_END')",
        }))
    end)
    kind(4, function()
        local file = regular_file()
        return file and ('return status(%s:stat())'):format(file)
    end)
    kind(3, function()
        local file = regular_file()
        return file and ("local buffer = require('buffer').ibuf() local count, e = %s:read(buffer:reserve(64), %d) return count, e, count and ffi.string(buffer.rpos, count)")
            :format(file, random(64))
    end)
    kind(2, function()
        local file = regular_file()
        return file and ("local bytes = ffi.new('char[8]') ffi.copy(bytes, 'bytes') return %s:write(ffi.cast('const char *', bytes), %d)"):format(file, random(8))
    end)
    kind(4, function()
        local file = regular_file()
        return file and ('local f = %s %s = nil return f:close(), f:close()'):format(file, file)
    end)
    kind(12, function() return ('return fio.%s(%s%s)'):format(pick({ 'mkdir', 'mktree' }), name(), pick(MODES)) end)
    kind(3, function() return ('return fio.rmdir(%s)'):format(name()) end)
    kind(6, function() return ('return fio.unlink(%s)'):format(name()) end)
    kind(2, function() return ('return fio.rmtree(%s)'):format(real()) end)
    kind(4, function() return ('return fio.rename(%s, %s)'):format(name(), name()) end)
    kind(4, function() return ('return fio.%s(%s, %s)'):format(pick({ 'symlink', 'link' }), name(), name()) end)
    kind(3, function() return ('return fio.readlink(%s)'):format(name()) end)
    kind(8, function() return ('return status(fio.%s(%s))'):format(pick({ 'stat', 'lstat' }), name()) end)
    kind(6, function() return ('return sorted(fio.listdir(%s))'):format(name()) end)
    kind(4, function() return ('return sorted(fio.glob(%q))'):format(pick({ '*', 'a/*', '[ab]', '?', 'no*', '*/*', '{a,b}', '', '*/', '\\*' })) end)
    kind(8, function() return ('return fio.path.%s(%s)'):format(pick({ 'exists', 'is_dir', 'is_file', 'is_link', 'lexists' }), name()) end)
    kind(4, function() return ('return fio.truncate(%s%s)'):format(real(), maybe(80) and ', ' .. number() or '') end)
    kind(3, function() return ('return fio.copyfile(%s, %s)'):format(real(), name()) end)
    kind(2, function()
        local from = pick({ 'a', 'b', 'a/b', 'c' })
        return ('return fio.copytree(%q, %q)'):format(from, pick({ 'to', 'to/deep', 'c' }))
    end)
    kind(1, function() return "return fio.rmtree('to')" end)
    kind(3, function() return ('return fio.chmod(%s, tonumber("%s", 8))'):format(name(), pick({ '600', '755', '0', '777', '4711' })) end)
    kind(1, function() return ('return fio.chown(%s, %s, %s)'):format(name(), pick({ '0', "'root'", '1' }), pick({ '0', "'root'", '1' })) end)
    kind(3, function()
        return ('local done, e = fio.utime(%s, %s) local s = fio.stat("a") return done, e, s and s.mtime < 2000 and s.mtime'):format(name(), pick({ '1000, 1001', '1000', '5.5, 7', '0, 0' }))
    end)
    kind(3, function() return ('local done, e = fio.chdir(%s) local here = fio.cwd() fio.chdir(home) return done, e, here:sub(#home + 1)'):format(name()) end)
    kind(2, function() return ('local old = fio.umask(tonumber("%s", 8)) local new = fio.umask() fio.umask(18) return old, new'):format(pick({ '22', '77', '0', '777' })) end)
    kind(6, function()
        local texts = { '""', '"/"', '"a"', '"a/b"', '"a/b/"', '"/a"', '"//"', '"a.lua"', '"a/b.lua"', '"."', '".."', '"a//b"', '"a/./b"', '"a/../b"', '"../x"', '"/../x"' }
        return 'return ' .. pick({
            ('fio.basename(%s)'):format(pick(texts)), ('fio.basename(%s, %s)'):format(pick(texts), pick({ '".lua"', '""', '"a.lua"' })),
            ('fio.dirname(%s)'):format(pick(texts)), ('fio.pathjoin(%s, %s)'):format(pick(texts), pick(texts)),
            ('fio.pathjoin(%s, %s, %s)'):format(pick(texts), pick(texts), pick(texts)), ('(fio.abspath(%s):gsub(home, "HOME", 1))'):format(pick(texts)),
        })
    end)
    kind(1, function() return 'local made, e = fio.tempdir() return made and #made > 4, e, made and fio.rmdir(made)' end)
end

if module == 'socket' then
    local is_socket = function(object) return type(object.sysread) == 'function' end
    local function closed(name) return ('if %s then %s:close() end'):format(name, name) end
    local function slot() return 'S' .. random(6) end
    local DATA = { "''", "'a'", "'abc'", "'one\\ntwo\\nthree'", "'\\n'", "('0123456789'):rep(40)", "'end\\r\\n'", "'\\0\\1'" }
    local function text() return pick(DATA) end
    local function timeout() return pick({ '0', '0.1', '0.2', "'0.1'" }) end
    local function size() return pick({ '1', '2', '3', '10', '100', '1000', '0' }) end
    local paths = 0
    local OPTIONS = { 'SO_REUSEADDR', 'SO_TYPE', 'SO_ERROR', 'SO_KEEPALIVE', 'SO_LINGER', 'SO_DEBUG', 'SO_RCVBUF', 'SO_SNDBUF', 'SO_BROADCAST',
        'SO_ACCEPTCONN', 'SO_RCVLOWAT', 'SO_PRIORITY', 'SO_NOTHING', 'SO_OOBINLINE', 'SO_PROTOCOL', 'SO_DOMAIN', 'SO_DONTROUTE' }
    local TCP_OPTIONS = { 'TCP_NODELAY', 'TCP_CORK', 'TCP_KEEPIDLE', 'TCP_KEEPCNT', 'TCP_KEEPINTVL', 'TCP_DEFER_ACCEPT', 'TCP_NOTHING' }

    kind(4, function()
        local name = slot()
        return ('%s %s = socket(%s, %s, %s) return with_errno(%s)'):format(closed(name), name,
            mostly(pick({ "'AF_INET'", "'AF_INET'", "'AF_UNIX'", "'PF_INET'", '2', "'AF_NONE'" }), 96),
            pick({ "'SOCK_STREAM'", "'SOCK_STREAM'", "'SOCK_DGRAM'", '1', "'SOCK_NONE'" }), mostly(pick({ "'tcp'", "'tcp'", "'udp'", '0', "'nothing'", '6' }), 96), name)
    end)
    -- Two ends of a connection, over a path or over the loopback address. The program holds both ends: a collection would close
    -- one at a moment of its own.
    kind(8, function()
        local one, other = random(3), random(3) + 3
        paths = paths + 1
        -- Over a path, where the end of a connection is there at once.
        return (([[if S1 then S1:close() end if S2 then S2:close() end
            local l = socket('AF_UNIX', 'SOCK_STREAM', 0) assert(l:bind('unix/', 'PATH') and l:listen(1))
            S1 = socket.tcp_connect('unix/', 'PATH', 5) l:readable(5) S2 = l:accept() l:close() return S1, S2]])
            :gsub('S[12]', { S1 = 'S' .. one, S2 = 'S' .. other }):gsub('PATH', 'p' .. paths):gsub('%s+', ' '))
    end)
    kind(3, function()
        return ([[local l = socket('AF_INET', 'SOCK_STREAM', 'tcp') assert(l:bind('127.0.0.1', 0) and l:listen(1))
            local c = assert(socket.tcp_connect('127.0.0.1', l:name().port, 5)) l:readable(5) local s, from = l:accept()
            local sent = c:write(DATA .. '.') local got = s:read('.', 5) c:shutdown('W') local rest = s:read(10, 5)
            local all = {sent, got, rest, from, c:peer(), s:peer(), s:name(), c:getsockopt('tcp', 'TCP_NODELAY')} c:close() s:close() l:close() return all]])
            :gsub('DATA', (pick(DATA):gsub('%%', '%%%%'))):gsub('%s+', ' ') .. ''
    end)
    -- Two sockets of datagrams.
    kind(3, function()
        local one, other = random(3), random(3) + 3
        return (("if S1 then S1:close() end if S2 then S2:close() end S1, S2 = socket('AF_INET', 'SOCK_DGRAM', 'udp'), socket('AF_INET', 'SOCK_DGRAM', 'udp') "
            .. "return S1:bind('127.0.0.1', 0), S2:bind('127.0.0.1'), S1:sendto('127.0.0.1', S2:name().port, 'hello'), S2:recvfrom(2)")
            :gsub('S[12]', { S1 = 'S' .. one, S2 = 'S' .. other }))
    end)
    kind(4, function()
        local function is_of_datagrams(object) return is_socket(object) and object.itype == 2 end
        local name, other = held('S', 6, is_of_datagrams), held('S', 6, is_of_datagrams)
        if not name then return end
        return ("local there = %s:name() return with_own_errno(%s, %s:sendto('127.0.0.1', there and there.port or 1, %s%s))"):format(other, name, name, text(),
            maybe(20) and ', ' .. mostly("'MSG_DONTWAIT'", 70) or '')
    end)
    local function on_socket(weight, make)
        kind(weight, function()
            local name = held('S', 6, is_socket)
            if not name then return end
            local call = make(name)
            return call and ('return with_own_errno(%s, %s:%s)'):format(name, name, call)
        end)
    end
    on_socket(10, function() return ('write(%s%s)'):format(text(), maybe(40) and ', ' .. timeout() or '') end)
    on_socket(8, function() return ('%s(%s)'):format(pick({ 'send', 'syswrite' }), pick(DATA)) end)
    on_socket(14, function()
        return ('read(%s, %s)'):format(pick({ size(), size(), '"\\n"', '{"\\n", "e"}', '{chunk = 3}', '{size = 4}', '{delimiter = "\\n"}', '{line = "\\n"}',
            '{delimiter = {"o", "3"}, chunk = 5}', '{size = 3, delimiter = "\\n"}', '{}', '{delimiter = "\\n", size = 100}', '{limit = 4}' }), timeout())
    end)
    on_socket(6, function() return ('recv(%s%s)'):format(size(), maybe(30) and ', ' .. pick({ "'MSG_PEEK'", "{'MSG_PEEK'}", "'MSG_NONE'" }) or '') end)
    on_socket(4, function() return ('recvfrom(%s)'):format(pick({ size(), '' })) end)
    on_socket(4, function() return ('sysread(%s)'):format(pick({ size(), '' })) end)
    on_socket(6, function() return ('%s(%s)'):format(pick({ 'readable', 'writable', 'wait' }), timeout()) end)
    on_socket(5, function() return pick({ 'name()', 'peer()' }) end)
    on_socket(6, function() return ("getsockopt(%s, %s)"):format(mostly(pick({ "'SOL_SOCKET'", "'socket'", '1' }), 95), mostly(("'%s'"):format(pick(OPTIONS)), 96)) end)
    on_socket(3, function() return ("getsockopt(%s, '%s')"):format(mostly(pick({ "'tcp'", '6', "'IPPROTO_TCP'", "'SOL_TCP'" }), 95), pick(TCP_OPTIONS)) end)
    on_socket(6, function()
        return ("setsockopt(%s, '%s', %s)"):format(pick({ "'SOL_SOCKET'", '1' }), pick(OPTIONS), mostly(pick({ '1', '0', 'true', 'false', '100' }), 92))
    end)
    on_socket(3, function() return ("setsockopt('tcp', '%s', %s)"):format(pick(TCP_OPTIONS), mostly(pick({ '1', '0', 'true', '100' }), 92)) end)
    on_socket(3, function() return ('linger(%s)'):format(pick({ '', 'true', 'false', '1', '0', 'true, 5', 'false, 5' })) end)
    on_socket(2, function() return ('nonblock(%s)'):format(pick({ '', 'true' })) end)
    -- A read of datagrams behind a refused shutdown turns without end, in the system's own calls.
    on_socket(3, function(name) return env[name].itype == 1 and ('shutdown(%s)'):format(mostly(pick({ "'R'", "'W'", "'RW'", "'READ'", "'SEND'", "'RECEIVE'", '0', '1', '2', "'SHUT_RDWR'", "'rd'" }), 92)) end)
    on_socket(3, function() return ("bind(%s, %s)"):format(mostly("'127.0.0.1'", 92), pick({ '0', "'0'", '' })):gsub(', %)', ')') .. '' end)
    on_socket(2, function() return ('listen(%s)'):format(pick({ '', '1', '10', '0' })) end)
    on_socket(3, function() return 'accept()' end)
    on_socket(2, function() return pick({ "sysconnect('127.0.0.1', 1)", "sysconnect('nowhere', 1)" }) end)
    on_socket(1, function() return ('%s()'):format(pick({ 'sendto', 'getsockopt', 'setsockopt', 'fd' })):gsub('fd%(%)', 'fd() > 0') .. '' end)
    kind(3, function()
        local name = held('S', 6, is_socket)
        return name and ('local s = %s %s = nil return s:close(), pcall(s.%s, s)'):format(name, name,
            pick({ 'close', 'read', 'name', 'fd', 'errno', 'error', 'listen', 'peer', 'nonblock' }))
    end)
    -- The text of a socket.
    kind(2, function()
        local name = held('S', 6, is_socket)
        return name and pick({ 'return tostring(%s)', 'return %s.itype', 'return type(%s)' }):format(name)
    end)
    kind(2, function()
        return ('return with_errno(socket.tcp_connect(%s))'):format(pick({ "'unix/', 'nothing', 0.1", "'127.0.0.1', 1, 0.1", "'unix/:nothing'", "'127.0.0.1'", "'unix/', ''", "'127.0.0.1', 'a', 0.1" }))
    end)
    kind(3, function()
        return ('local found, e = socket.getaddrinfo(%s) return found, e'):format(pick({ "'127.0.0.1', 80", "'127.0.0.1', '80'", "'::1', 80", "'127.0.0.1', 0",
            "'127.0.0.1', 80, {type = 'SOCK_STREAM'}", "'127.0.0.1', 80, {type = 'SOCK_DGRAM', family = 'AF_INET'}", "'127.0.0.1', 80, {protocol = 'udp'}",
            "'::1', 80, {family = 'AF_INET'}", "'127.0.0.1', 80, {flags = {'AI_PASSIVE', 'AI_NUMERICHOST'}}", "'127.0.0.1', 80, {flags = 'AI_NONE'}",
            "'127.0.0.1', 80, {type = 'SOCK_NONE'}", "'127.0.0.1', 80, {family = 'AF_NONE'}", "'127.0.0.1', 80, 1, {type = 'SOCK_STREAM'}" }))
    end)
    -- Servers that answer each line.
    kind(3, function()
        paths = paths + 1
        local path = 's' .. paths
        return ([[local server = socket.tcp_server('unix/', 'PATH', HANDLER) local c = socket.tcp_connect('unix/', 'PATH', 5)
            if not c then return server, errno.strerror() end local done = {c:write('ping\n')} local got = c:read(UNTIL, 5) local rest = c:read(10, 0)
            c:close() server:close() return done, got, rest]]):gsub('PATH', path):gsub('HANDLER', (pick({
                "function(s, peer) while true do local line = s:read('\\n') if line == '' or line == nil then return end s:write(line) end end",
                "{name = 'echo', handler = function(s) s:write(s:read('\\n')) end}",
                "{handler = function(s, from) s:write(require('fiber').name() .. (from.host or 'none') .. from.family .. '\\n') end}",
                "{prepare = function(s) s:setsockopt('SOL_SOCKET', 'SO_REUSEADDR', true) return 5 end, handler = function(s) s:write('x\\n') s:shutdown('W') end}",
                "function(s) error('refused') end", "function(s) s:write('a') s:write('b\\nmore') end",
            }):gsub('%%', '%%%%'))):gsub('UNTIL', pick({ "'\\n'", "{delimiter = '\\n'}", '{size = 2}', '1' })):gsub('%s+', ' ') .. ''
    end)
    kind(1, function()
        return ('return with_errno(socket.tcp_server(%s))'):format(pick({ "'unix/', 'no/such/folder/s', print", "'unix/', 's', {}", "'127.0.0.1', 'a', print", "'nowhere.invalid'",
            "'unix/', 's', nil", "'unix/'" }))
    end)
    -- As LuaSocket has them.
    kind(3, function()
        paths = paths + 1
        return ([[local l = assert(socket.bind('unix/', 'lPATH')) local c = assert(socket.connect('unix/', 'lPATH')) l:settimeout(5) local s = assert(l:accept())
            c:settimeout(0.001) s:settimeout(5) local sent = {c:send(DATA)} local got = {RECEIVE} local none = {c:receive(3)}
            local ends = {s:close(), c:receive(), c:close(), l:close()} return sent, got, none, ends]]):gsub('PATH', paths):gsub('DATA', (pick({ "'one\\ntwo\\n'", "'one\\ntwo\\n', 2",
            "'one\\ntwo\\n', 2, 6", "'abc\\n'" }))):gsub('RECEIVE', pick({ 's:receive()', "s:receive('*l')", 's:receive(3)', "s:receive(2, 'before ')", "s:receive('*x')",
            's:receive(), s:receive(0)', 's:receive(0)' })):gsub('%s+', ' ') .. ''
    end)
    kind(1, function()
        return 'return ' .. pick({ "socket.connect('unix/', 'nothing')", "socket.bind('unix/', 'no/such/folder/l')", "socket.connect('127.0.0.1', 1)", 'tostring(socket.tcp()):match("^%a+")',
            "socket.tcp():connect('unix/', 'nothing')", 'socket.tcp():getsockname()', "socket.tcp():setoption('keepalive', true)", "socket.tcp():setoption('nothing', true)",
            "socket.tcp():setoption('reuseaddr', true)", "socket.tcp():setoption('linger', {on = true, timeout = 1})", "socket.tcp():setoption('tcp-nodelay', true)",
            "socket.tcp():bind('127.0.0.1', 0)", 'socket.tcp():getpeername()', 'socket.tcp():settimeout(1)' })
    end)
    kind(2, function() return ('return socket.iowait(%s)'):format(pick({ '-1, nil, 0.001', "0, 'x', 0", '-1, 1, 0', '0, 4, 0', '' })) end)
end

if module == 'popen' then
    -- What each child is doing, by slot: which of its streams are pipes, the bytes that are on their way, whether it ends by itself.
    local children = {}
    local function kept(name, child, text)
        children[name] = child
        return text
    end
    kind(10, function()
        local name = 'P' .. random(3)
        local script, child = unpack(pick({
            { "{'/bin/cat'}", { echoes = true } }, { "{'/bin/cat'}", { echoes = true } }, { "{'/bin/true'}", { ends = true } }, { "{'/bin/sh', '-c', 'exit 7'}", { ends = true } },
            { "{'/usr/bin/printf', 'some text'}", { ends = true, waiting = 'stdout' } }, { "{'/bin/sh', '-c', 'echo out; echo err >&2; exit 3'}", { ends = true, waiting = 'both' } },
            { "{'/bin/sleep', '1000'}", {} }, { "{'/bin/sh', '-c', 'kill -9 $$'}", { ends = true } },
        }))
        child = table.copy(child)
        local function stream(percent) return maybe(percent) and 'popen.opts.PIPE' or pick({ 'popen.opts.DEVNULL', 'popen.opts.CLOSE', "'devnull'" }) end
        local streams = { stdin = stream(80), stdout = stream(80), stderr = stream(50) }
        -- A child that writes into a closed descriptor ends otherwise on each system.
        for stream_name, text in pairs(streams) do if text:find('CLOSE') then streams[stream_name] = "'devnull'" end end
        child.stdin, child.stdout, child.stderr = streams.stdin:find('PIPE') ~= nil, streams.stdout:find('PIPE') ~= nil, streams.stderr:find('PIPE') ~= nil
        if child.echoes and not child.stdin then child.ends = true end
        local flags = ''
        if maybe(15) then flags = ', setsid = true' end
        if flags ~= '' and maybe(50) then flags = flags .. ', group_signal = true' end
        if maybe(10) then flags = flags .. ', restore_signals = true, close_fds = true' end
        if maybe(10) then flags = flags .. ", env = {PATH = '/usr/bin:/bin', A = 'b'}" end
        return kept(name, child, ('if %s then %s:close() end %s = assert(popen.new(%s, {stdin = %s, stdout = %s, stderr = %s%s})) return %s.command'):format(name, name, name, script,
            streams.stdin, streams.stdout, streams.stderr, flags, name))
    end)
    kind(3, function()
        local name = 'P' .. random(3)
        local mode = pick({ 'r', 'rR', 'rw', 'w', 'rwR' })
        -- What goes to an inherited stream is not this program's.
        if not mode:find('r') then mode = mode .. 'r' end
        local script, child = unpack(pick({ { 'echo shell', { ends = true, waiting = 'stdout' } }, { 'cat', { echoes = true } }, { 'exit 2', { ends = true } } }))
        child = table.copy(child)
        child.stdin, child.stdout, child.stderr = mode:find('w') ~= nil, mode:find('r') ~= nil, mode:find('R') ~= nil
        if not child.stdin then child.ends = true end
        return kept(name, child, ("if %s then %s:close() end %s = assert(popen.shell('%s', '%s')) return %s.command"):format(name, name, name,
            child.stdin and script or script .. ' < /dev/null', mode, name))
    end)
    -- A child that ends by itself is looked at behind its end.
    local function on_child(weight, make)
        kind(weight, function()
            local name = held('P', 3)
            local child = name and children[name]
            if not child then return end
            local is_ending = child.ends and not child.waited
            local call = make(name, child)
            return call and (is_ending and ('%s:wait() return %s:%s'):format(name, name, call) or ('return %s:%s'):format(name, call))
        end)
    end
    local function ended(child) return child.ends or child.waited end
    on_child(10, function(name, child)
        if not ended(child) and child.echoes and not child.is_shut and not child.killed then
            local bytes = pick({ "'abc'", "'line\\n'", "('0123456789'):rep(10)" })
            return ("write(%s), %s"):format(bytes, child.stdout and ('%s:read({timeout = 30})'):format(name) or 'nil')
        end
        if child.killed and not child.waited then return end
        if not child.stdin or ended(child) then return ("write('late'%s)"):format(maybe(50) and ', {timeout = 0.001}' or '') end
    end)
    on_child(10, function(_, child)
        if child.killed and not child.waited then return end
        local stream = pick({ 'stdout', 'stdout', 'stderr' })
        -- What has been read of a child that has ended is its end.
        if ended(child) or not child[stream] then return ('read({%s = true, timeout = %s})'):format(stream, pick({ '0', '0.001', '1' })):gsub('timeout = 0[.%d]*', 'timeout = 1') .. '' end
        return ('read({%s = true, timeout = 0.001})'):format(stream)
    end)
    on_child(3, function(_, child)
        local stream = pick({ 'stdin', 'stdout', 'stderr' })
        if child.killed and not child.waited then return end
        -- A child whose output has nowhere to go ends when it writes, some time later.
        if stream ~= 'stdin' and child.echoes and not ended(child) then return end
        if stream == 'stdin' and child.echoes then child.ends, child.is_shut = true, true end
        return ('shutdown({%s = true})'):format(stream)
    end)
    on_child(6, function(name, child)
        if ended(child) or child.killed then
            child.waited = true
            return 'wait()'
        end
    end)
    on_child(8, function(name, child)
        if child.killed and not child.waited then return end
        local fields = pick({ ':info().status', ':info().opts', '.status', '.stdin', '.stdout', '.stderr', ':info().stdin', '.command', ':info().command', '.opts', '.nothing', '.pid == nil', ':info().pid == nil' })
        return ('info() ~= nil, %s%s'):format(name, fields)
    end)
    on_child(5, function(_, child)
        if ended(child) then child.waited = true return pick({ 'kill()', 'terminate()', 'signal(popen.signal.SIGTERM)', 'signal(popen.signal.SIGUSR1)', 'signal(0)' }) end
        if child.killed then return end
        local call = pick({ 'kill()', 'terminate()', 'signal(popen.signal.SIGKILL)', 'signal(popen.signal.SIGTERM)', 'signal(0)', 'signal(100)', 'signal(popen.signal.SIGCONT)' })
        if not call:find('%(0%)') and not call:find('100') and not call:find('CONT') then child.killed = true end
        return call
    end)
    on_child(3, function(_, child)
        if child.killed and not child.waited then return end
        local odd = pick(ODD)
        -- A read without a timeout waits for bytes that do not come.
        if ({ ['nil'] = true, ['{}'] = true, ['{1}'] = true, ['box.NULL'] = true })[odd] then odd = 'true' end
        -- No pipe is closed, and no child ended, beside this program's own account.
        if odd == 'true' or odd == '1.5' or odd == "''" then odd = '-1' end
        return pick({ 'signal(%s)', 'write(%s, {timeout = 0.001})', "write('x', %s)", 'read(%s)', 'read({timeout = %s})', 'read({stdout = %s, timeout = 0.001})',
            'read({stderr = %s, timeout = 0.001})', 'shutdown(%s)', 'shutdown({stdin = %s})', 'read({stdout = true, stderr = true, timeout = %s})' }):format(odd)
    end)
    kind(3, function()
        local name = held('P', 3)
        if not name then return end
        children[name] = nil
        return ('local p = %s %s = nil return p:close(), p:close(), p.stdin, p.status, pcall(p.%s, p)'):format(name, name, pick({ 'info', 'wait', 'read', 'kill', 'write', 'shutdown' }))
    end)
    kind(2, function()
        local name = held('P', 3)
        return name and pick({ 'return tostring(%s)', 'return type(%s)', "return require('json').encode(%s) ~= nil", 'return %s == %s', "return tostring(%s):match('^%%a+')" })
            :gsub('%%s', name) .. ''
    end)
    kind(3, function()
        return 'return ' .. pick({ 'popen.new()', "popen.new({'/bin/true', 1})",
            "popen.new({'/bin/true'}, {stdin = 'nothing'})", "popen.new({'/bin/true'}, {stdin = 1})", "popen.new({'/bin/true'}, {shell = 1})", "popen.new({'/bin/true'}, {env = 1})",
            "popen.new({'/bin/true'}, {group_signal = true})", "popen.new({'/bin/true'}, 1)", "popen.new('true')", 'popen.shell()', "popen.shell('true', 'x')", "popen.shell('true', '')", 'popen.shell(1)',
            "popen.new({'/bin/true'}, {keep_child = 'x'})", "popen.new({'/bin/true'}, {nothing = 'x'}):wait()", "popen.new({'/bin/true'}, {env = {[1] = 'a'}}):wait()" })
    end)
end

for number = 1, count do
    local text
    repeat
        is_odd = false
        text = pick(kinds)()
    until text
    print(number .. ' ' .. text)
    local chunk, problem = loadstring(text, '=call')
    local result
    if chunk == nil then
        result = 'no program: ' .. problem
    else
        setfenv(chunk, env)
        result = outcome(pcall(chunk))
        if is_odd and result:find('^raises') then result = 'raises' end
    end
    print('    ' .. result)
end
for number = 1, 3 do if env['P' .. number] then env['P' .. number]:close() end end
os.exit(0)
