-- Fibers that are cancelled or woken by hand while they wait in a channel or for a condition no longer count as waiting: what
-- is put then stays in the channel, and a signal goes to the next fiber. Both servers print the same.
local fiber = require('fiber')

local channel = fiber.channel(1)
local function read(name) return fiber.create(function() print(name, pcall(channel.get, channel)) end) end
local reader = read('cancelled reader')
print(channel:has_readers())
fiber.cancel(reader)
print(channel:has_readers(), channel:put('kept'), channel:count())
fiber.yield()
print(channel:count(), channel:get(0), reader:status())

reader = read('woken reader')
fiber.wakeup(reader)
print(channel:has_readers())
fiber.yield()
print(channel:has_readers(), reader:status(), channel:put(1))
fiber.yield()
print(reader:status())

reader = read('woken reader with a value')
fiber.wakeup(reader)
print(channel:put(box.NULL), channel:count())
fiber.yield()
print(reader:status(), channel:count())

local direct = fiber.channel(0)
local writer = fiber.create(function() print('cancelled writer', pcall(direct.put, direct, 'taken back')) end)
print(direct:has_writers())
fiber.cancel(writer)
print(direct:has_writers(), direct:get(0))
fiber.yield()
writer = fiber.create(function() print('woken writer', pcall(direct.put, direct, 'given')) end)
fiber.wakeup(writer)
print(direct:has_writers(), direct:get(0))
fiber.yield()
print(direct:has_writers(), direct:get(0))
fiber.yield()

-- A writer of a full channel goes on when there is place.
channel:put('first')
writer = fiber.create(function() print('writer of a full channel', pcall(channel.put, channel, 'second')) end)
fiber.wakeup(writer)
print(channel:get(), channel:count())
fiber.yield()
print(writer:status(), channel:count(), channel:get(0))

-- After the close.
reader = read('reader of a closed channel')
fiber.wakeup(reader)
channel:close()
fiber.yield()
print(reader:status())

local cond = fiber.cond()
local first = fiber.create(function() pcall(cond.wait, cond) end)
local second = fiber.create(function() print('signalled', cond:wait()) end)
fiber.cancel(first)
cond:signal()
fiber.yield()
print(second:status())
os.exit(0)
