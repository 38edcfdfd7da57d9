-- box.func: the registered functions as objects, by name and by number.
--
-- A function in Lua is called in the fiber that calls it, with the rights of its owner if it was registered with `setuid`. The
-- functions of the language C that the server has itself (`libcapped-expirationd.start`) are called like any native one.
local internal = require('lycosa.box')
local guarded = internal.guarded

local FUNC = 296

local methods = {}
local func_mt = { __index = methods }

local function check(func, usage)
    if type(func) ~= 'table' or getmetatable(func) ~= func_mt then
        error(('Use func:%s(...) instead of func.%s(...)'):format(usage, usage), 3)
    end
end

function methods.call(func, args)
    check(func, 'call')
    if args ~= nil and type(args) ~= 'table' then error('Use func:call(table)', 2) end
    args = args or {}
    local count = table.maxn(args)
    if func.language ~= 'LUA' then
        return internal.call(func.name, { n = count, unpack(args, 1, count) })
    end
    internal.check_execute(func.name)
    local program = require('lycosa.program')
    local row = internal.system_row(FUNC, 2, func.name)
    if row and row[4] == 1 then return internal.as_user(row[2], program.call, func.name, unpack(args, 1, count)) end
    return program.call(func.name, unpack(args, 1, count))
end

function methods.drop(func, options)
    check(func, 'drop')
    return internal.native('box.schema.func.drop', func.name, options)
end

local function object_of(row)
    local exports = { lua = false, sql = false }
    for _, language in ipairs(row[15] or { 'LUA' }) do exports[language:lower()] = true end
    local func = setmetatable({
        id = row[1], name = row[3], setuid = row[4] == 1, language = row[5], exports = exports,
        returns = row[9] or 'any', aggregate = row[10] or 'none', is_deterministic = row[12] or false,
        is_multikey = type(row[16]) == 'table' and row[16].is_multikey == true,
    }, func_mt)
    if row[6] ~= nil and row[6] ~= '' then func.body, func.is_sandboxed = row[6], row[13] or false end
    return func
end

local function all()
    local found = {}
    for _, row in ipairs(internal.system_rows(FUNC)) do
        local func = object_of(row)
        found[func.id], found[func.name] = func, func
    end
    return found
end

guarded.func = setmetatable({}, {
    __index = function(_, key)
        local kind = type(key)
        if kind ~= 'string' and kind ~= 'number' then return nil end
        local row = internal.system_row(FUNC, kind == 'number' and 0 or 2, key)
        return row and object_of(row)
    end,
    __pairs = function() return pairs(all()) end,
    __serialize = function()
        local shown = {}
        for key, func in pairs(all()) do if type(key) == 'string' then shown[key] = func end end
        return shown
    end,
})
