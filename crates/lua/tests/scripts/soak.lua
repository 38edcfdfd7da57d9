-- Switches between fibers while compiled code, errors, the collector, the FFI and sorting go on.
local fiber = require('fiber')
local ffi = require('ffi')

local TARGET = tonumber(os.getenv('LYCOSA_SOAK') or 200000)
local switches = 0
local function pause()
    switches = switches + 1
    fiber.yield()
end

ffi.cdef('typedef struct { int x; double y; } soak_point; int abs(int); void qsort(void *, size_t, size_t, int (*)(const int *, const int *));')

-- Declared once: LuaJIT keeps every function type that it has parsed.
local compare_t = ffi.typeof('int (*)(const int *, const int *)')

local jobs = {}

-- A loop that is compiled, with a pause inside of a trace's stitch.
jobs[#jobs + 1] = function()
    local sum = 0
    for i = 1, 300 do
        for j = 1, 50 do sum = sum + j % 7 end
        if i % 10 == 0 then pause() end
    end
    assert(sum == 300 * (7 * 21 + 1), sum)
end

-- Errors through a pause, on the Lua stack and through a coroutine.
jobs[#jobs + 1] = function()
    for i = 1, 20 do
        local done, message = pcall(function()
            pause()
            if i % 2 == 0 then error({ i }) end
            error('text ' .. i, 0)
        end)
        assert(not done and (i % 2 == 0 and message[1] == i or message == 'text ' .. i))
    end
end

-- The collector, in steps and whole.
jobs[#jobs + 1] = function()
    local kept = {}
    for i = 1, 200 do
        kept[i % 50 + 1] = { tostring(i):rep(20), function() return i end }
        if i % 40 == 0 then
            collectgarbage('step', 100)
            pause()
        end
    end
    for _, entry in pairs(kept) do assert(#entry[1] == #tostring(entry[2]()) * 20) end
end

-- The FFI: structures, calls from compiled code, 64-bit integers.
jobs[#jobs + 1] = function()
    local total, points = 0ULL, ffi.new('soak_point[16]')
    for i = 1, 200 do
        local point = points[i % 16]
        point.x, point.y = -i, i / 2
        total = total + ffi.C.abs(point.x)
        if i % 25 == 0 then pause() end
    end
    assert(total == 20100ULL)
end

-- A callback of the FFI that pauses: C's qsort stands on the fiber's own stack.
jobs[#jobs + 1] = function()
    local numbers = ffi.new('int[8]', { 5, 3, 8, 1, 9, 2, 7, 4 })
    local compare = ffi.cast(compare_t, function(a, b)
        pause()
        return a[0] - b[0]
    end)
    ffi.C.qsort(numbers, 8, 4, compare)
    compare:free()
    for i = 1, 7 do assert(numbers[i - 1] <= numbers[i]) end
end
jit.off(jobs[#jobs], true)

-- Sorting, replacing and iterating with pauses.
jobs[#jobs + 1] = function()
    local list = {}
    for i = 1, 20 do list[i] = (i * 7919) % 101 end
    table.sort(list, function(a, b)
        if (a + b) % 5 == 0 then pause() end
        return a < b
    end)
    for i = 2, 20 do assert(list[i - 1] <= list[i]) end
    local replaced = ('a1b2c3'):gsub('%d', function(d) pause() return d * 2 end)
    assert(replaced == 'a2b4c6')
end

-- Coroutines of the user inside of fibers.
jobs[#jobs + 1] = function()
    local generate = coroutine.wrap(function()
        for i = 1, 20 do
            pause()
            coroutine.yield(i)
        end
    end)
    local sum = 0
    for value in generate do sum = sum + value end
    assert(sum == 210)
end

-- Fibers that start fibers.
jobs[#jobs + 1] = function()
    local child = fiber.create(function()
        fiber.self():set_joinable(true)
        pause()
        fiber.create(pause)
        return 'done'
    end)
    local done, result = child:join()
    assert(done and result == 'done')
end

-- Finalizers, one of which raises.
jobs[#jobs + 1] = function()
    for i = 1, 10 do
        local object = newproxy(true)
        getmetatable(object).__gc = function()
            if i == 3 then error('in a finalizer') end
            assert(not pcall(fiber.yield), 'a finalizer cannot pause')
        end
    end
    collectgarbage()
    pause()
end

local failed
local running = 0
for lane = 1, 50 do
    running = running + 1
    fiber.create(function()
        local done, message = pcall(function()
            local at = lane
            while switches < TARGET and not failed do
                jobs[at % #jobs + 1]()
                at = at + 1
            end
        end)
        if not done then failed = message end
        running = running - 1
    end)
end
while running > 0 do fiber.sleep(0.001) end
assert(not failed, failed)
assert(switches >= TARGET)
