-- A module in C (c_module.c, which the test compiles into the working directory): `require` finds it, its calls of Lua work.
local ffi = require('ffi')
local fiber = require('fiber')
local fio = require('fio')

print(package.cpath)
print(package.search('c_module') == fio.pathjoin(fio.cwd(), 'c_module.so'), package.search('c_nothing'))
local m = require('c_module')
print(m.version, m == require('c_module'), package.loaded.c_module == m)

print(m.collect(function(i) return i * i end, 4))
print(m.collect(function(i) fiber.sleep(0) return tostring(i) end, 3))
print(pcall(m.collect, function(i) if i == 2 then error('at two', 0) end return i end, 3))
print(pcall(m.collect, 5, 'x'))
print(pcall(m.fail, 'a word'))
print(pcall(m.fail, {}))
print(select(2, pcall(m.raise, {code = 5})).code)
print(m.attempt(function(a, b) return a + b end, 1, 2))
print(m.attempt(error, 'in vain'))
print(m.attempt(fiber.sleep, 0))
print(m.sum({1, 2, a = 3.5}), pcall(m.sum, 1))
local counter = m.counter(5)
print(counter(), counter(), m.counter(1)())
print(type(m.box(1)), m.get(m.box(2.5)), pcall(m.get, {}), pcall(m.get, io.stdout))
collectgarbage() collectgarbage()
print('freed', m.freed())
print(table.concat(m.drive(function() m.pause(1) coroutine.yield(2) fiber.sleep(0) m.pause(3) end), ','))
print(pcall(m.drive, function() error('stopped', 0) end))
print(coroutine.wrap(function() return m.pause('yielded') end)())
print(m.kept('value'))

-- What Tarantool adds.
print(m.wide(1, -1))
print(m.wide(18446744073709551614ULL, '-9223372036854775807'))
for _, value in ipairs({'5', '5x', 'x5', '', '1e3', '99999999999999999999', ' 7', '-3', 2.75, -2.75, true, {}, ffi.new('uint8_t', 200), ffi.new('int16_t', -4), 7LL, 2 ^ 53}) do
    print(type(value), m.to_wide(value))
    print(pcall(m.wide, value, 1))
    print(pcall(m.wide, 1, value))
end
print(m.define('struct c_module_point { double x, y; };'), m.define('struct ] {'))
local finalized = 0
do
    local point, is_same = m.point(1.5, 2, function() finalized = finalized + 1 end)
    print(point.x, point.y, is_same, m.point_x(point), ffi.istype('struct c_module_point', point))
end
collectgarbage() collectgarbage()
print('finalized', finalized, pcall(m.point_x, 1))
print(m.callable(print), m.callable(setmetatable({}, {__call = print})), m.callable({}), m.callable(nil))
print(m.relay(function(...) return select('#', ...), ... end, 1, nil, 3))
print(tostring(select(2, pcall(m.relay, error, 'kept', 0))))
print(pcall(m.relay, box.error, box.error.UNKNOWN))
print(m.has_state())

-- Functions of a file, and its parts.
package.cpath = fio.cwd() .. '/?.so;' .. package.cpath
print(require('c_module.part'))
print(package.loadlib(fio.cwd() .. '/c_module.so', 'luaopen_c_module')().version)
print(package.loadlib(fio.cwd() .. '/c_module.so', '*'))
print((select(3, package.loadlib(fio.cwd() .. '/c_module.so', 'luaopen_other'))), (select(3, package.loadlib('/none.so', 'f'))))
fio.mkdir('nested')
fio.copyfile('c_module.so', 'nested/v1-c_module.so')
print(require('nested.v1-c_module').version)
fio.mktree('.rocks/lib/tarantool')
fio.rename('c_module.so', '.rocks/lib/tarantool/rock.so')
print(package.search('rock') == fio.pathjoin(fio.cwd(), '.rocks/lib/tarantool/rock.so'), (pcall(require, 'rock')))

-- In a fiber that others interrupt, and while triggers run.
box.cfg{log = 'c_module.log', wal_mode = 'none'}
local space = box.schema.space.create('s')
space:create_index('i')
local order = {}
local other = fiber.new(function() for i = 1, 3 do order[#order + 1] = 'o' .. i fiber.sleep(0) end end)
other:set_joinable(true)
print(m.collect(function(i) order[#order + 1] = 'c' .. i fiber.sleep(0) return space:replace({i, 'x'})[1] end, 3))
other:join()
print(#order, space:len())
space:on_replace(function(_, new) order[#order + 1] = m.sum(new:totable()) end)
box.atomic(m.collect, function(i) return space:replace({i, i})[2] end, 2)
print(order[#order - 1], order[#order])
local lpeg = pcall(require, 'lpeg') and require('lpeg')
if lpeg then
    local word = lpeg.C(lpeg.R('az') ^ 1)
    print(table.concat({(word * (lpeg.P(' ') ^ 1 * word) ^ 0):match('one two  three')}, ','))
    print(lpeg.match(lpeg.Cs((lpeg.P('a') / function() fiber.sleep(0) return 'b' end + 1) ^ 0), 'banana'))
end
os.exit(0)
