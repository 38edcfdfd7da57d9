-- budget: 150
-- An endless loop ends with an error, whether it is compiled or not, and the others go on.
local fiber = require('fiber')
local ticks = 0
fiber.create(function() while true do ticks = ticks + 1 fiber.sleep(0.01) end end)

local function check(name, loop)
    local done, message = pcall(loop)
    assert(not done, name)
    assert(tostring(message):find('without a pause'), message)
    fiber.yield()
end
check('empty', function() while true do end end)
check('counting', function() local i = 0 while true do i = i + 1 end end)
check('numeric', function() for i = 1, math.huge do end end)
check('repeat', function() repeat local x = {} until false end)
check('recursion', function() local function f(n) return f(n + 1) end return f(1) end)
check('interpreted', (function() local function f() while true do end end jit.off(f) return f end)())
check('strings', function() local s = '' while true do s = ('x'):rep(100) end end)
check('iterator', function() for _ in function() return 1 end do end end)
check('goto', function() ::again:: goto again end)
-- Functions in C that run long for a short input.
check('backtracking', function() return ('a'):rep(60):find(('a*'):rep(30) .. 'b') end)
check('many optional', function() return ('a'):rep(30):match(('a?'):rep(30) .. ('a'):rep(30) .. 'b') end)
check('gsub', function() return ('a'):rep(60):gsub(('a-'):rep(30) .. 'b', 'x') end)
check('gmatch', function() for _ in ('a'):rep(60):gmatch(('a*'):rep(30) .. 'b') do end end)
check('captures', function() return ('a'):rep(40):find(('(a*)'):rep(20) .. 'b') end)
check('balanced', function() while true do ('('):rep(1e4):find('%b()') end end)
check('coroutine', coroutine.wrap(function() return ('a'):rep(60):find(('a*'):rep(30) .. 'b') end))
check('far below', function() table.insert({}, -2147483648, 1) end)
check('a killer of sorts', function()
    while true do
        local numbers = {}
        for i = 1, 1e6 do numbers[i] = (i * 7919) % 1000003 end
        table.sort(numbers)
    end
end)
-- A fixed string is found in linear time, compiled or not.
local hay, needle = ('a'):rep(1e5), ('a'):rep(5e4) .. 'b'
for _ = 1, 5 do
    assert(not hay:find(needle, 1, true))
    fiber.yield()
end
for _ = 1, 100 do assert(hay:find('a', 5, true) == 5 and hay:find('', 5, true) == 5) end
fiber.yield()
assert(('xab'):find('ab', 1, true) == 2 and ('ab'):find('abc', 1, true) == nil and (''):find('', 1, true) == 1)
local sparse = {[-3] = 'x', [2.5] = 'y', z = 1}
for i = -3, 300, 7 do sparse[i] = i end
for i = 300, -3, -1 do assert(sparse[i] == ((i + 3) % 7 == 0 and i or nil)) end
table.insert(sparse, -2, 'low')
assert(sparse[-2] == 'low' and sparse[2.5] == 'y' and sparse.z == 1)
local sorted = {'b', 'a', 'c'}
table.sort(sorted)
assert(table.concat(sorted) == 'abc')
local ordered = setmetatable({}, {__lt = function(a, b) return a.n < b.n end})
local objects = {}
for i = 1, 50 do objects[i] = setmetatable({n = (i * 37) % 50}, getmetatable(ordered)) end
table.sort(objects)
for i = 2, 50 do assert(objects[i - 1].n < objects[i].n) end
assert(not pcall(table.sort, {1, 'a'}) and not pcall(table.sort, {1, 2, nil, 4}, false))

-- A finalizer is ended too, one that catches the error and a debug hook as well; what comes after them goes on.
local function finalized(body)
    local reached = false
    local object = newproxy(true)
    getmetatable(object).__gc = function() reached = true body() end
    object = nil
    fiber.yield()
    collectgarbage()
    -- Whoever collected the garbage goes on.
    assert(reached)
    fiber.yield()
end
finalized(function() while true do end end)
finalized(function() while true do pcall(function() while true do end end) end end)
finalized(function() return ('a'):rep(60):find(('a*'):rep(30) .. 'b') end)
local ffi = require('ffi')
do local object = ffi.gc(ffi.new('int[1]'), function() while true do end end) end
fiber.yield()
collectgarbage()
fiber.yield()
local done, message = pcall(function()
    debug.sethook(function() while true do end end, 'l')
    local x = 1
    return x
end)
debug.sethook()
assert(not done and tostring(message):find('without a pause'), message)
assert(ticks > 5, ticks)

-- What handles the error has one more budget; then every instruction raises it until the fiber pauses.
local function ended(body)
    local looping = fiber.new(body)
    looping:set_joinable(true)
    local done, message = looping:join()
    assert(not done and tostring(message):find('without a pause'), message)
end
ended(function() while true do pcall(function() while true do end end) end end)
ended(function() while true do xpcall(function() while true do end end, function() while true do end end) end end)
ended(function() while true do coroutine.resume(coroutine.create(function() while true do end end)) end end)
ended(function() while true do pcall(pcall, pcall, string.find, ('a'):rep(60), ('a*'):rep(30) .. 'b') end end)
local caught = 0
local looping = fiber.new(function()
    while caught < 2 do
        pcall(function() while true do end end)
        caught = caught + 1
        fiber.yield()
    end
end)
looping:set_joinable(true)
assert(looping:join())
assert(caught == 2)
fiber.sleep(0.05)
