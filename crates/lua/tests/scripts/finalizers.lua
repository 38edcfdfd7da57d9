-- budget: 100
-- Finalizers that never end are ended one after the other, in slices of their own, and others run in between.
local fiber = require('fiber')
local ffi = require('ffi')
local ENDLESS = 12
local begun, ended = {}, 0

local function endless(number)
    begun[number] = (begun[number] or 0) + 1
    while true do end
end
-- Half of them are of userdata, half of C data.
for number = 1, ENDLESS do
    if number % 2 == 0 then
        local object = newproxy(true)
        getmetatable(object).__gc = function() endless(number) end
    else
        ffi.gc(ffi.new('int[1]'), function() endless(number) end)
    end
end
local function count()
    local number = 0
    for _, times in pairs(begun) do
        assert(times == 1)
        number = number + 1
    end
    return number
end

fiber.yield()
collectgarbage()
collectgarbage()
-- The first was ended, and the others wait for another slice.
assert(count() == 1, count())
local slices = 1
repeat
    fiber.yield()
    local before = count()
    collectgarbage()
    collectgarbage()
    assert(count() - before <= 1, count())
    slices = slices + 1
until count() == ENDLESS or slices > 20 * ENDLESS
assert(count() == ENDLESS, count())

-- Those that end run, each once, also when they are more than a slice has time for, and with what they have caught.
local finalized, caught, made = 0, 0, 3000
for number = 1, made do
    local function finalizer()
        finalized = finalized + 1
        if not pcall(error, 'x') then caught = caught + 1 end
        for _ = 1, 1000 do assert(pcall(function() return number end)) end
    end
    if number % 2 == 0 then
        local object = newproxy(true)
        getmetatable(object).__gc = finalizer
    else
        ffi.gc(ffi.new('int[1]'), finalizer)
    end
end
slices = 0
repeat
    fiber.yield()
    collectgarbage()
    slices = slices + 1
until finalized == made or slices > 10 * made
assert(finalized == made, finalized)
-- One that was ended in the middle of its work has caught nothing, and there are few of them.
assert(caught > made / 2, caught)

-- The code that collects has its own time, which finalizers do not take.
fiber.yield()
local clock = require('clock')
local object = newproxy(true)
getmetatable(object).__gc = function() ended = ended + 1 while true do end end
object = nil
local begin = clock.time()
while clock.time() - begin < 0.06 do end
collectgarbage()
collectgarbage()
assert(ended == 1)
