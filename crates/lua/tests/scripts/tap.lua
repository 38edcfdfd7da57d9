-- oracle
-- Only lines that name tests: the order of keys in their explanations is YAML's own affair.
local tap = require('tap')
local write = io.write
local printed = ''
io.write = function(...)
    printed = printed .. table.concat({ ... })
    return true
end
local test = tap.test('top')
test:plan(29)
test:ok(true, 'ok')
test:ok(false, 'not ok')
test:ok(1)
test:is(1, 1, 'is')
test:is(1, 2, 'is not')
test:isnt(1, 2, 'isnt')
test:isnt(1, 1, 'isnt fails')
test:like('abc', 'b', 'like')
test:like('abc', 'x', 'like fails')
test:unlike('abc', 'x', 'unlike')
test:is_deeply({ 1, { 2 } }, { 1, { 2 } }, 'deep')
test:is_deeply({ 1, { 2 } }, { 1, { 3 } }, 'deep fails')
test:is_deeply({ a = 1 }, { a = 1, b = 2 }, 'deep misses')
test:isnil(nil, 'nil')
test:isstring('x', 'string')
test:isnumber('x', 'no number')
test:istable({}, 'table')
test:isboolean(true, 'boolean')
test:isfunction(print, 'function')
test:iscdata(1ULL, 'uint64_t', 'cdata')
test:test('sub', function(t)
    t:plan(2)
    t:ok(true, 'inner')
    t:test('deeper', function(t2) t2:plan(1) t2:ok(true, 'deepest') end)
end)
test:test('bad plan', function(t) t:plan(2) t:ok(true, 'one') end)
test:test('failing', function(t) t:plan(1) t:ok(false, 'f') end)
test:isnil(false, 'false')
local open = test:test('without a body')
open:plan(1)
open.strict = true
open:is(nil, nil, 'checked by hand')
local held = open:check()
test:test('strictness is of one test', function(t) t:plan(1) t:is_deeply({ a = require('json').NULL }, {}, 'null') end)
test:diag('a remark %d', 5)
test:skip('skipped')
test:fail('failed')
local passed = test:check()
local twice = pcall(test.check, test)
local whole = tap.test('whole', function(t) t:plan(1) t:ok(true, 'at no depth') end)
io.write = write
print(held, twice, whole, passed, test.failed, test.total, test.planned)
for line in printed:gmatch('[^\n]+') do
    if line:match('^ *ok') or line:match('^ *not ok') or line:match('^ *#') or line:match('^ *1%.%.') then
        print(line)
    end
end
