-- memory: 32
-- A program that eats memory gets an error; what it has let go can be used again.
for _ = 1, 3 do
    local eaten = {}
    local done, message = pcall(function()
        for i = 1, math.huge do eaten[i] = ('x'):rep(1000) .. i end
    end)
    assert(not done and message == 'not enough memory', message)
    eaten = nil
    collectgarbage()
end
local done, message = pcall(string.rep, 'x', 1e9)
assert(not done and message == 'not enough memory', message)
assert(#('x'):rep(1e6) == 1e6)
-- What holds one table many times is small here, and large when it is encoded.
local nested = { ('x'):rep(1000) }
for _ = 1, 60 do nested = { nested, nested } end
local flat = {}
for i = 1, 100 do flat[i] = ('x'):rep(1e6) end
for _, value in ipairs({ nested, flat }) do
    for _, encode in ipairs({ require('msgpack').encode, require('json').encode }) do
        local done, message = pcall(encode, value)
        assert(not done and tostring(message):find('not enough memory: the value takes more than 32 MiB'), message)
    end
end
-- Beyond all recursion.
local function deep(n) return 1 + deep(n + 1) end
local done, message = pcall(deep, 1)
assert(not done and message:find('stack overflow'), message)
local fiber = require('fiber')
local function nested(n)
    return fiber.create(function() nested(n + 1) end)
end
local object = setmetatable({}, { __tostring = function(self) return require('lycosa.log').say(5, 'x', 1, tostring(self)) end })
local done, message = pcall(tostring, object)
assert(not done, 'endless __tostring')
