-- Handles of children, descriptors and conditions where programs use them oddly. Both servers print the same.
local errno, ffi, fiber, popen, socket = require('errno'), require('ffi'), require('fiber'), require('popen'), require('socket')
local digest, fio = require('digest'), require('fio')

-- The place of an error is not compared, nor a reason behind a refused argument.
local function try(name, f, ...)
    local done, result, more = pcall(f, ...)
    result, more = tostring(result):gsub('^[^ ]*%.lua:%d+: ', ''), more ~= nil and tostring(more) or nil
    print(name, done, result, more)
end

-- Fields of a handle are those of its information.
local child = popen.new({ 'sh', '-c', 'exit 3' }, { stdin = 'pipe' })
print(child.command, child.stdin, child.stdout, child:info().stdin, child:info().stdout, child.opts.stdin)
print(child:shutdown({ stdin = true }), child.stdin, child:info().stdin)
print(child:wait().state, child.status.state, child.pid)
child:close()
print(popen.new({ 'true', 'one', 'two words' }).command)

-- A handle that nothing holds kills its child.
local function is_there(pid) return ffi.C.kill(pid, 0) == 0 end
pcall(ffi.cdef, 'int kill(pid_t pid, int signo);')
local pid
do
    local forgotten = popen.shell('while true; do sleep 10; done', 'r')
    pid = forgotten.pid
    print(is_there(pid))
    forgotten = nil
end
local function reaped()
    collectgarbage()
    popen.new({ 'true' }):close()
    return not is_there(pid)
end
while not reaped() do fiber.sleep(0.01) end
print('the child is gone')

-- What is no handle.
local handle = popen.shell('printf 1', 'r')
for _, method in ipairs({ 'signal', 'terminate', 'kill', 'wait', 'read', 'write', 'info', 'close' }) do
    for _, self in ipairs({ {}, 1, box.NULL }) do
        local done, err = pcall(handle[method], self, 'x')
        print(method, done, tostring(err):match('Bad params, use: ph:' .. method))
    end
end
handle:close()
for _, value in ipairs({ true, 0, '', {}, print, box.NULL }) do
    if type(value) ~= 'table' then
        local done, err = pcall(popen.new, value)
        print(type(value), done, tostring(err):match('wrong parameter "argv": expected table, got %w+'))
    end
    if type(value) ~= 'string' then
        local done, err = pcall(popen.shell, 'true', value)
        print(type(value), done, tostring(err):match('wrong parameter'))
    end
end

-- Conditions, channels, descriptors.
local cond = fiber.cond()
for _, timeout in ipairs({ '0.001', 'x', -1, {}, 0 }) do try('wait', cond.wait, cond, timeout) end
print(socket.iowait(-1, nil, 0.001))
try('iowait', socket.iowait, 0, nil, 0.001)
local datagrams = socket('AF_INET', 'SOCK_DGRAM', 'udp')
print(datagrams:bind('127.0.0.1'), datagrams:name().port > 0)
datagrams:close()
try('a status', fio.stat('.').is_reg)
print(fio.chdir('/no/such/folder'))
for _, arguments in ipairs({ { 'hello', 0 }, { 1, 'x' }, { 1, '5' }, { '7', 5 }, { 1, -5 }, { 1, 0 }, { 1, 5 } }) do
    try('guava', digest.guava, unpack(arguments))
end
for _, size in ipairs({ 0, 1, 53, 54, 55, 107, 108 }) do print((digest.base64_encode(('x'):rep(size)):gsub('\n', '|'))) end
print(ffi.C.getuid() >= 0, ffi.C.getgid() >= 0)

-- Bytes of a file into a buffer.
local buffer = require('buffer').ibuf()
local file = fio.open('bytes', { 'O_RDWR', 'O_CREAT', 'O_TRUNC' }, 420)
file:write('helloworld')
local count = file:pread(buffer:reserve(5), 5)
print(count, ffi.string(buffer:alloc(count), count))
count = file:pread(buffer:reserve(5), 5, 5)
print(count, ffi.string(buffer:alloc(count), count))
os.exit(0)
