-- budget: 300
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
-- An error handler runs too, and a loop that catches the error meets it again.
local caught = 0
local looping = fiber.new(function()
    while caught < 2 do
        pcall(function() while true do end end)
        caught = caught + 1
    end
end)
looping:set_joinable(true)
assert(looping:join())
fiber.sleep(0.05)
assert(ticks > 5, ticks)
