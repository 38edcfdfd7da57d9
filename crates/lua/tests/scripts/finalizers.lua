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

-- Collects in a slice of its own. A busy machine may end that slice before its code is through; what it asserts counts.
local function collect()
    local collector = fiber.new(function()
        local before = count()
        collectgarbage()
        collectgarbage()
        assert(count() - before <= 1, count())
    end)
    collector:set_joinable(true)
    local through, reason = collector:join()
    assert(through or tostring(reason):find('time budget'), reason)
end

local slices = 0
repeat
    collect()
    slices = slices + 1
until count() == ENDLESS or slices > 20 * ENDLESS
assert(count() == ENDLESS, count())
