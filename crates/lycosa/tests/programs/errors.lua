-- box.error: codes, templates, custom types, causes, the last error; and who waits for a mode.
local function without_place(value) return (tostring(value):gsub('^[^ ]*%.lua:%d+: ', '')) end

local function try(body, ...)
    local done, result = pcall(body, ...)
    print(done, without_place(result))
end

local function fields(object)
    local names, shown = {}, object:unpack()
    for name in pairs(shown) do names[#names + 1] = name end
    table.sort(names)
    for place, name in ipairs(names) do
        local value = shown[name]
        if name == 'trace' then value = #value end
        names[place] = name .. '=' .. tostring(value)
    end
    print(table.concat(names, ' '))
end

local by_code = box.error.new(box.error.NO_SUCH_SPACE, 'x')
fields(by_code)
print(by_code.code, by_code.type, by_code.base_type, by_code.message, by_code.prev, by_code.errno, by_code.nosuch)
print(by_code.trace[1].line, by_code.trace[1].file:match('errors.lua$'))
fields(box.error.new(box.error.UNSUPPORTED, 'a', 'b'))
fields(box.error.new(box.error.PROC_LUA, 'message %d', 3))
for _, arguments in ipairs({
    { 99999 }, { box.error.UNKNOWN }, { 0, 'x' }, { { type = 'Custom', code = 1, reason = 'r' } }, { 'Custom', 'text %s', 'a' },
    { {} }, { { reason = 1 } }, { { message = 'm' } }, { { type = 'X', code = 3 } }, { { code = 1, reason = 'r', type = 'ClientError' } },
    { 'ClientError', 'x' }, { { 1, 2 } }, { { type = 1, reason = 'r' } }, { { code = 'x' } },
}) do
    local done, object = pcall(box.error.new, unpack(arguments))
    if done then fields(object) else print(without_place(object)) end
end
for _, arguments in ipairs({ {}, { 'T' }, { 'T', 1 }, { box.error.NO_SUCH_SPACE } }) do try(box.error.new, unpack(arguments)) end

local first, second = box.error.new({ code = 111, reason = 'first' }), box.error.new({ code = 222, reason = 'second' })
local third = box.error.new({ code = 333, reason = 'third' })
try(second.set_prev, second, first)
print(second.prev == first, second.prev)
fields(second)
try(first.set_prev, first, second)
try(first.set_prev, first, first)
first:set_prev(third)
print(second.prev, second.prev.prev, second.prev.prev.prev)
try(third.set_prev, third, second)
try(second.set_prev, second, nil)
print(second.prev)
try(second.set_prev, second, 'x')
try(first.match, first, 'fi..t')
try(first.raise, first)
try(function() first.code = 1 end)
try(function() return first:bad() end)
print(first .. '!', first == first, first == second, type(first))
print(require('json').encode({ first }), require('yaml').encode(first))

try(box.error, box.error.NO_SUCH_SPACE, 'y')
print(box.error.last())
try(box.error, first)
print(box.error.last() == first)
try(box.error, { code = 5, reason = 'z' })
try(box.error, 'text')
try(box.error, 'Type', 'text')
box.error.clear()
print(box.error.last())
try(box.error)
try(box.error.set, second)
print(box.error.last() == second)
try(box.error.set, 'x')
try(box.error.set)
try(box.error.last, 1)
print(box.error.UNKNOWN, box.error.TUPLE_FOUND, box.error.WRONG_QUERY_ID, box.error.nosuch)

box.cfg({ log = 'log' })
local space = box.schema.space.create('s')
try(space.insert, space, { 1 })
space:create_index('p')
space:insert({ 1 })
local _, duplicate = pcall(space.insert, space, { 1 })
print(duplicate.type, duplicate.base_type, duplicate.code, duplicate.message, box.error.last() == duplicate)
box.schema.user.create('u')
box.session.su('u', function()
    local _, denied = pcall(space.get, space, { 1 })
    print(denied.type, denied.code, denied)
end)

try(box.ctl.wait_rw, 0.1)
try(box.ctl.wait_rw, -1)
try(box.ctl.wait_ro, 0.01)
try(box.ctl.wait_ro, -1)
try(box.ctl.wait_ro, 'x')
local _, timeout = pcall(box.ctl.wait_ro, 0.001)
print(timeout.type, timeout.code)
print(box.schema.SPACE_ID, box.schema.VUSER_ID, box.schema.SYSTEM_ID_MAX, box.schema.SUPER_ROLE_ID, box.schema.FIELD_MAX)
os.exit(0)
