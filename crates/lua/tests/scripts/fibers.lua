-- oracle
local fiber = require('fiber')

print(type(fiber.self()), fiber.status(), fiber.self():status())

-- A new fiber runs at once until it first pauses; `new` waits for its turn.
local order = {}
local function note(text) order[#order + 1] = text end
local created = fiber.create(function(a, b)
    note('created ' .. a .. b)
    fiber.sleep(0.005)
    note('created again')
end, 'x', 'y')
note('after create')
local made = fiber.new(function() note('new') end)
note('after new')
fiber.sleep(0.05)
print(table.concat(order, ', '))
print(created:status(), made:status())

-- Joining.
local joined = fiber.new(function(...) return select('#', ...), ... end, 1, nil, 3)
joined:set_joinable(true)
print(joined:join())
local failing = fiber.new(function() error('failed', 0) end)
failing:set_joinable(true)
print(failing:join())

-- Cancelling.
local cancelled = fiber.new(function()
    local done, message = pcall(fiber.sleep, 100)
    return done, tostring(message)
end)
cancelled:set_joinable(true)
fiber.yield()
cancelled:cancel()
print(cancelled:join())

-- Names and storage.
local named = fiber.new(function()
    fiber.name('worker')
    fiber.self().storage.x = 1
    return fiber.self():name(), fiber.self().storage.x
end)
named:set_joinable(true)
print(named:join())
print(fiber.self().storage.x)
print(fiber.find(1000000))

-- Yields inside of what plain C could not leave.
local sorted = { 5, 3, 8, 1, 9, 2 }
table.sort(sorted, function(a, b) fiber.yield() return a < b end)
print(table.concat(sorted, ' '))
print((('abc'):gsub('.', function(c) fiber.sleep(0) return c:upper() end)))
print(pcall(function() fiber.yield() error('in pcall', 0) end))
local iterator = coroutine.wrap(function()
    for i = 1, 3 do fiber.yield() coroutine.yield(i) end
end)
for i in iterator do io.write(i, ' ') end
print()
local object = setmetatable({}, {
    __index = function(_, key) fiber.yield() return key .. '!' end,
    __add = function() fiber.yield() return 'sum' end,
    __tostring = function() fiber.yield() return 'text' end,
})
print(object.key, object + 1, tostring(object))

-- Condition variables.
local cond = fiber.cond()
print(cond:wait(0.001))
local woken = {}
for i = 1, 3 do
    fiber.create(function()
        woken[i] = cond:wait(10)
    end)
end
cond:signal()
fiber.yield()
print(woken[1], woken[2], woken[3])
cond:broadcast()
fiber.yield()
print(woken[1], woken[2], woken[3])

-- Channels.
local channel = fiber.channel(2)
print(channel:put(1), channel:put(2), channel:put(3, 0))
print(channel:count(), channel:size(), channel:is_full(), channel:has_writers())
print(channel:get(), channel:get(), channel:get(0))
local rendezvous = fiber.channel()
print(rendezvous:put(1, 0), rendezvous:has_readers())
local got = {}
for i = 1, 2 do fiber.create(function() got[i] = rendezvous:get() end) end
print(rendezvous:has_readers(), rendezvous:put('a'), rendezvous:put('b'), rendezvous:has_readers())
fiber.yield()
print(got[1], got[2])
fiber.create(function() got[3] = rendezvous:put('c') end)
print(rendezvous:has_writers(), rendezvous:get())
fiber.yield()
print(got[3])
rendezvous:close()
print(rendezvous:is_closed(), rendezvous:get(), rendezvous:put(1))

-- Which fiber runs, in code that was compiled.
local wrong, both = 0, {}
for i = 1, 2 do
    both[i] = fiber.new(function()
        local own = fiber.self()
        for step = 1, 400 do
            if fiber.id() ~= own:id() then wrong = wrong + 1 end
            if step % 4 == 0 then fiber.yield() end
        end
        return coroutine.wrap(function() return fiber.id() end)() == own:id()
    end)
    both[i]:set_joinable(true)
end
print(both[1]:join())
print(both[2]:join())
print(wrong, fiber.id() == fiber.self():id(), pcall(fiber.id, 'x'))

-- Time.
print(math.type and 'x' or type(fiber.time()), type(fiber.time64()), type(fiber.clock()))
-- A sleep begins with the round of the event loop, which is over for some time on a busy machine: one of these begins at once.
local longest = 0
for _ = 1, 20 do
    local before = fiber.clock()
    fiber.sleep(0.02)
    local took = fiber.clock() - before
    if took > longest then longest = took end
end
print(longest >= 0.015)

-- Integers.
print(1ULL, -5LL, tonumber64('18446744073709551615'), tonumber64('12'), tonumber64('zz'), tonumber64('ff', 16))
print(tonumber64('0x1f'), tonumber64('1.5'), tonumber64(5ULL), tonumber64(' 7 '), tonumber64('-3'))
os.exit(0)
