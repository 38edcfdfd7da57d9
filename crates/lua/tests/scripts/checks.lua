-- The module is a package of its own for Tarantool, so its rules stand here.
local checks = require('checks')

local function f(name, count, options)
    checks('string', '?number|boolean', { timeout = '?number', deep = { on = '?boolean' } })
    return name, count, options
end

local name, count, options = f('a')
assert(name == 'a' and count == nil and type(options) == 'table')
assert(f('a', 1, { timeout = 2, deep = { on = true } }) == 'a')
assert(f('a', true) == 'a')

local function refused(pattern, ...)
    local arguments = { ... }
    local done, message = pcall(function() return (f(unpack(arguments, 1, 3))) end)
    assert(not done and message:find(pattern, 1, true), message)
end
refused('bad argument #1 to f (string expected, got nil)')
refused('bad argument #2 to f (?number|boolean expected, got string)', 'a', 'b')
refused('bad argument options.timeout to f (?number expected, got string)', 'a', 1, { timeout = 'x' })
refused('unexpected argument options.other to f', 'a', 1, { other = 1 })
refused('bad argument options.deep.on to f (?boolean expected, got number)', 'a', 1, { deep = { on = 1 } })

checkers.even = function(value) return type(value) == 'number' and value % 2 == 0 end
local function g(number) checks('even') return number end
assert(g(4) == 4 and not pcall(g, 3))
local function h(value) checks('Point') return value end
assert(h(setmetatable({}, { __type = 'Point' })) and not pcall(h, {}))
local function whole(value) checks('?uint64') return value end
assert(whole(5ULL) and whole(5) and not pcall(whole, -1) and not pcall(whole, 1.5))
local function unchecked(one, two) checks('?') return one, two end
assert(select(2, pcall(unchecked)):find('argument "two" is not checked', 1, true))
