-- checks: the types of a function's arguments, stated in one call at its beginning.
--
-- `checks('string', '?number', { timeout = '?number' })` raises an error that names the argument, what was expected
-- and what came. `?T` also admits nil; `T|U` admits both; a table states the options of an options table.
local ffi = require('ffi')

--- Types that programs add: a function that says whether a value is of the type.
_G.checkers = rawget(_G, 'checkers') or {}
local checkers = _G.checkers

local own = {
    number = function(value) return type(value) == 'number' end,
    ['uint64'] = function(value)
        if type(value) == 'number' then return value >= 0 and value == math.floor(value) and value < 2 ^ 64 end
        return type(value) == 'cdata'
            and (ffi.istype('uint64_t', value) or ffi.istype('int64_t', value) and value >= 0)
    end,
    ['int64'] = function(value)
        if type(value) == 'number' then return value == math.floor(value) and math.abs(value) < 2 ^ 63 end
        return type(value) == 'cdata'
            and (ffi.istype('int64_t', value) or ffi.istype('uint64_t', value) and value < 2ULL ^ 63)
    end,
    tuple = function(value) return box ~= nil and box.tuple ~= nil and box.tuple.is(value) end,
}
for name, check in pairs(own) do
    if checkers[name] == nil and name ~= 'number' then checkers[name] = check end
end

local function is_of(value, name)
    if name == '?' then return true end
    if type(value) == name then return true end
    local meta = getmetatable(value)
    if type(meta) == 'table' and meta.__type == name then return true end
    local check = checkers[name]
    return type(check) == 'function' and check(value) == true
end

local function admits(expected, value)
    local first = expected:sub(1, 1)
    if first == '?' then
        if value == nil then return true end
        expected = expected:sub(2)
        if expected == '' then return true end
    end
    for name in expected:gmatch('[^|]+') do
        if is_of(value, name) then return true end
    end
    return false
end

local function called(level)
    return debug.getinfo(level + 1, 'n').name or 'nil'
end

-- Raises an error about the caller of the function that called `checks`.
local function refuse(level, what, expected, value)
    error(("bad argument %s to %s (%s expected, got %s)"):format(what, called(level + 1), expected, type(value)),
        level + 1)
end

local function check_options(level, path, rules, options)
    for name in pairs(options) do
        if rules[name] == nil then
            error(("unexpected argument %s.%s to %s"):format(path, tostring(name), called(level + 1)), level + 1)
        end
    end
    for name, expected in pairs(rules) do
        local value = options[name]
        local inner = path .. '.' .. tostring(name)
        if type(expected) == 'table' then
            if value ~= nil and type(value) ~= 'table' then refuse(level + 1, inner, '?table', value) end
            check_options(level + 1, inner, expected, value or {})
        elseif not admits(expected, value) then
            refuse(level + 1, inner, expected, value)
        end
    end
end

local function checks(...)
    local count = select('#', ...)
    local level = 2
    local info = debug.getinfo(level, 'u')
    for at = 1, count do
        local expected = select(at, ...)
        local name, value = debug.getlocal(level, at)
        if at > (info.nparams or count) then
            error('checks: excess check, absent argument', 2)
        end
        if type(expected) == 'table' then
            if value ~= nil and type(value) ~= 'table' then
                refuse(level, '#' .. at, '?table', value)
            end
            check_options(level, name, expected, value or {})
            if value == nil then debug.setlocal(level, at, {}) end
        elseif type(expected) ~= 'string' then
            error(('checks: argument %d is a text or a table, got %s'):format(at, type(expected)), 2)
        elseif not admits(expected, value) then
            refuse(level, '#' .. at, expected, value)
        end
    end
    if info.nparams and count < info.nparams then
        error(('checks: argument "%s" is not checked'):format((debug.getlocal(level, count + 1))), 2)
    end
end

_G.checks = checks

return setmetatable({ checkers = checkers }, { __call = function(_, ...) return checks(...) end })
