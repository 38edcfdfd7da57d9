-- A FIFO without another end keeps its fiber waiting and no other; a device, too.
local errno = require('errno')
local ffi = require('ffi')
local fiber = require('fiber')
local fio = require('fio')
ffi.cdef('int mkfifo(const char *, unsigned);')
local folder = fio.tempdir()
local path = fio.pathjoin(folder, 'fifo')
assert(ffi.C.mkfifo(path, 384) == 0)

local ticks = 0
fiber.create(function() while true do ticks = ticks + 1 fiber.sleep(0.001) end end)
local function joinable(body)
    local made = fiber.new(body)
    made:set_joinable(true)
    return made
end

local reading = joinable(function()
    local file = assert(fio.open(path, { 'O_RDONLY' }))
    local text = file:read()
    file:close()
    return text
end)
-- The open goes on while others run, as long as it takes.
local before = ticks
while ticks < before + 10 do fiber.sleep(0.001) end
assert(reading:status() ~= 'dead')

local sent = ('x'):rep(200000)
local file = assert(fio.open(path, { 'O_WRONLY' }))
-- The reader waits for bytes, the writer for space, and both for each other.
before = ticks
while ticks < before + 10 do fiber.sleep(0.001) end
assert(file:write(sent))
assert(file:close())
local done, text = reading:join()
assert(done and text == sent, text and #text)

-- A fiber that is cancelled meanwhile ends, and a writer finds no reader's end left open by it.
local cancelled = joinable(function() return fio.open(path, { 'O_RDONLY' }) end)
fiber.sleep(0.001)
cancelled:cancel()
assert(not cancelled:join())
-- What the thread opens for it now is closed, so that a read ends at once.
local writer = assert(fio.open(path, { 'O_WRONLY' }))
repeat
    collectgarbage()
    fiber.sleep(0.001)
until writer:write('y') == false
writer:close()

-- With O_NONBLOCK nothing waits, and errors are the system's.
local none, failure = fio.open(path, { 'O_WRONLY', 'O_NONBLOCK' })
assert(none == nil and failure.errno == errno.ENXIO, tostring(failure))
none, failure = fio.open(fio.pathjoin(folder, 'none'))
assert(none == nil and failure.errno == errno.ENOENT)
local device = assert(fio.open('/dev/null', { 'O_RDWR' }))
assert(device:read() == '' and device:write('z') and device:close())
device = assert(fio.open('/dev/zero'))
assert(device:read(3) == '\0\0\0' and device:close())
fio.rmtree(folder)
