-- box.func: the registered functions as objects, by name and by number.
--
-- A function in Lua is called in the fiber that calls it, with the rights of its owner if it was registered with `setuid`. The
-- functions of the language C that the server has itself (`libcapped-expirationd.start`) are called like any native one.
local internal = require('lycosa.box')
local guarded, client_error = internal.guarded, internal.client_error

local FUNC = 296

local methods = {}
local func_mt = { __index = methods }

local function check(func, usage)
    if type(func) ~= 'table' or getmetatable(func) ~= func_mt then
        error(('Use func:%s(...) instead of func.%s(...)'):format(usage, usage), 3)
    end
end

-- What a function raises leaves the call as an error object.
local function raised(done, ...)
    if done then return ... end
    local reason = ...
    if box.error.is(reason) then error(reason, 0) end
    local failure = internal.new_error('LuajitError', nil, tostring(reason))
    box.error.set(failure)
    error(failure, 0)
end

-- A function in C that cannot be loaded has its module's name in the error: what stands before its last dot.
function internal.refuse_module(name)
    client_error('LOAD_MODULE', ("Failed to dynamically load module '%s': module not found"):format(name:match('^(.*)%.') or name))
end

local function loaded(name, done, ...)
    local reason = ...
    if not done and box.error.is(reason) and reason.code == box.error.NO_SUCH_PROC then internal.refuse_module(name) end
    return raised(done, ...)
end

function methods.call(func, args)
    check(func, 'call')
    if type(args) ~= 'nil' and type(args) ~= 'table' then error('Use func:call(table)', 2) end
    args = args or {}
    local count = table.maxn(args)
    local row = internal.system_row(FUNC, 2, func.name)
    if not row then client_error('NO_SUCH_FUNCTION', ("Function '%s' does not exist"):format(func.name)) end
    if func.language ~= 'LUA' then
        return loaded(func.name, pcall(internal.call, func.name, { n = count, unpack(args, 1, count) }))
    end
    internal.check_execute(func.name)
    local program = require('lycosa.program')
    if row[4] == 1 then
        return raised(pcall(internal.as_user, row[2], program.call, func.name, unpack(args, 1, count)))
    end
    return raised(pcall(program.call, func.name, unpack(args, 1, count)))
end

function methods.drop(func, options)
    check(func, 'drop')
    options = internal.check_options(options, {})
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
    if row[17] ~= nil and row[17] ~= '' then func.comment = row[17] end
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

-- Definitions.

local schema = guarded.schema

local OPTIONS = {
    setuid = 'boolean', if_not_exists = 'boolean', language = 'string', body = 'string', is_deterministic = 'boolean',
    is_sandboxed = 'boolean', comment = 'string', param_list = 'table', returns = 'string', exports = 'table',
    opts = 'table',
}

local TYPES = {
    any = true, unsigned = true, string = true, number = true, double = true, integer = true, boolean = true,
    varbinary = true, scalar = true, decimal = true, uuid = true, array = true, map = true,
}

-- What a function that is sandboxed finds, as in Tarantool.
local SANDBOX = {
    'assert', 'error', 'ipairs', 'math', 'next', 'pairs', 'pcall', 'print', 'select', 'string', 'table', 'tonumber',
    'tostring', 'type', 'unpack', 'xpcall', 'utf8',
}

-- The function that a body stands for; an error that names the function.
function internal.compile(name, body, is_sandboxed)
    local function fail(reason)
        client_error('LOAD_FUNCTION', ("Failed to dynamically load function '%s': %s"):format(name, reason))
    end
    local chunk, message = loadstring('return ' .. body)
    if not chunk then fail(message) end
    if is_sandboxed then
        local environment = {}
        for _, known in ipairs(SANDBOX) do environment[known] = known == 'utf8' and require('utf8') or rawget(_G, known) end
        for _, known in ipairs({ 'math', 'string', 'table' }) do environment[known] = table.copy(environment[known]) end
        setfenv(chunk, environment)
    end
    local done, made = pcall(chunk)
    if not done then fail(tostring(made)) end
    if type(made) ~= 'function' then fail("given body doesn't define a function") end
    return made
end

local function check_definition(name, options)
    local function fail(reason) client_error('CREATE_FUNCTION', ("Failed to create function '%s': %s"):format(name, reason)) end
    local language = options.language:upper()
    if language == 'SQL_BUILTIN' then fail('given built-in is not predefined') end
    if language ~= 'LUA' and language ~= 'C' then
        client_error('FUNCTION_LANGUAGE', ("Unsupported language '%s' specified for function '%s'"):format(language, name))
    end
    if language == 'C' and (options.body ~= '' or options.is_sandboxed) then
        fail('body and is_sandboxed options are not compatible with C language')
    end
    if options.is_sandboxed and options.body == '' then fail('is_sandboxed option may be set only for a persistent Lua function (one with a non-empty body)') end
    if not TYPES[options.returns:lower()] then fail('invalid returns value') end
    for _, wanted in ipairs(options.exports) do
        if type(wanted) ~= 'string' or (wanted:upper() ~= 'LUA' and wanted:upper() ~= 'SQL') then fail('invalid exports value') end
    end
    for _, kind in ipairs(options.param_list) do
        if type(kind) ~= 'string' or not TYPES[kind:lower()] then fail('invalid argument type') end
    end
    if options.body ~= '' then internal.compile(name, options.body, options.is_sandboxed) end
    return language
end

function schema.func.create(name, options)
    options = internal.check_options(options, OPTIONS)
    internal.check_key(name, 'string')
    if type(name) == 'nil' then
        client_error('EXACT_MATCH', 'Invalid key part count in an exact match (expected 1, got 0)')
    end
    if internal.system_row(FUNC, 2, name) then
        if not options.if_not_exists then
            client_error('FUNCTION_EXISTS', ("Function '%s' already exists"):format(name))
        end
        return
    end
    local full = {
        language = 'LUA', body = '', returns = 'any', param_list = {}, exports = { 'LUA' }, comment = '',
        opts = setmetatable({}, { __serialize = 'map' }), is_deterministic = false, is_sandboxed = false,
    }
    for key, value in pairs(options) do full[key] = value end
    if next(full.opts) == nil or full.opts.is_multikey ~= nil then setmetatable(full.opts, { __serialize = 'map' }) end
    local language = check_definition(name, full)
    local now = os.date('%Y-%m-%d %H:%M:%S')
    box.space._func:auto_increment{ box.session.euid(), name, full.setuid and 1 or 0, language, full.body, 'function',
        full.param_list, full.returns, 'none', 'none', full.is_deterministic, full.is_sandboxed, true, full.exports,
        full.opts, full.comment, now, now }
end

function schema.func.call(name, ...)
    if type(name) ~= 'string' and type(name) ~= 'number' then error('Use func:call(...)', 2) end
    name = tostring(name)
    local func = guarded.func[name]
    if func == nil then client_error('NO_SUCH_FUNCTION', ("Function '%s' does not exist"):format(name)) end
    return func:call({ ... })
end

-- Modules in C are refused, so there is none to load again.
function schema.func.reload(...)
    local name = ...
    if type(name) == 'number' then name = tostring(name) end
    if type(name) ~= 'string' then
        error(("bad argument #1 to '?' (string expected, got %s)"):format(select('#', ...) == 0 and 'no value' or type(name)), 0)
    end
    client_error('NO_SUCH_MODULE', ("Module '%s' does not exist"):format(name))
end
