-- box.error: errors as C data with a number. What an error says stands beside, as long as the error lives.
--
-- An error may have another one as its cause (`prev`), in a chain without cycles.
local internal = require('lycosa.box')
local ffi = require('ffi')
-- A state without an instance has errors, but no `box`.
local box = rawget(_G, 'box') or {}

ffi.cdef('struct error { uint64_t number; };')
local error_t
local payloads, next_number = {}, 1ULL

-- Codes by name and texts by code, as Tarantool 2.6 has them. A name of Lua finds its code in `box.error`.
local codes, templates = internal.error_codes()

-- The last error of each fiber, by its number.
local lasts, last_count = {}, 0
local running = package.loaded.fiber and require('lycosa.fiber').place or { fiber = 0 }

local function forget_dead_fibers()
    local find = require('lycosa.fiber').find
    last_count = 0
    for id in pairs(lasts) do
        if find(id) then last_count = last_count + 1 else lasts[id] = nil end
    end
end

local most_lasts = 64

local function payload(object) return payloads[tonumber(object.number)] end
local function is_error(value) return type(value) == 'cdata' and ffi.istype(error_t, value) end

-- An error is the cause of one other error at most: the number of that one, by its own.
local effects = {}
local function unlink_effect(object)
    local number = tonumber(object.number)
    local effect = effects[number] and payloads[effects[number]]
    if effect then effect.prev = nil end
    effects[number] = nil
end
local function set_cause(object, cause)
    local of = payload(object)
    if of.prev ~= nil then effects[tonumber(of.prev.number)] = nil end
    of.prev = nil
    if cause ~= nil then
        unlink_effect(cause)
        effects[tonumber(cause.number)] = tonumber(object.number)
        of.prev = cause
    end
end

-- The last error is the head of its chain.
local function set_last(object)
    if next(effects) then unlink_effect(object) end
    local id = running.fiber
    if lasts[id] == nil then
        last_count = last_count + 1
        if last_count > most_lasts then
            forget_dead_fibers()
            most_lasts = math.max(64, 2 * last_count)
        end
    end
    lasts[id] = object
end

local function make(of)
    local number = next_number
    next_number = next_number + 1
    local object = error_t(number)
    payloads[tonumber(number)] = of
    return object
end

-- Where the error was made: what called the modules here.
local function trace_of()
    local level, place = 2, nil
    repeat
        place, level = debug.getinfo(level, 'Sl'), level + 1
    until not place or not place.source:match('^@builtin/')
    if not place or place.what == 'C' then return { { file = '[C]', line = 4294967295 } } end
    return { { file = place.short_src, line = place.currentline } }
end

-- For errors of the instance and of other servers; it is the last error from now on. `fields` are further facts of it; `file`
-- and `line` say where another server's program has raised it.
local function make_error(kind, code, message, fields, file, line, cause)
    local of = {
        type = fields and fields.custom_type or kind, base_type = kind, message = message,
        code = kind ~= 'LuajitError' and (code ~= 0 or kind == 'ClientError' or kind == 'CustomError') and code or nil,
        trace = file and { { file = file, line = line } } or trace_of(),
    }
    for _, name in ipairs({ 'custom_type', 'object_type', 'object_name', 'access_type' }) do
        of[name] = fields and fields[name]
    end
    local object = make(of)
    set_cause(object, cause)
    set_last(object)
    return object
end
internal.make_error = make_error
internal.set_error_maker(make_error, tonumber(ffi.typeof('struct error')))

local function with_code(code, ...)
    local text = templates[code] or templates[0]
    if select('#', ...) > 0 then
        -- The precision of `%.*s` is an argument of C's alone.
        text = text:gsub('%%%.%*s', '%%s'):gsub('%%l*u', '%%d'):format(...)
    elseif text:find('%', 1, true) then
        return nil
    end
    return make({ type = 'ClientError', base_type = 'ClientError', code = code, message = text, trace = trace_of() })
end

-- The longest name of a custom type, as Tarantool keeps it.
local MAX_TYPE = 63

local function custom(kind, code, message)
    kind = kind:sub(1, MAX_TYPE)
    return make({
        type = kind, base_type = 'CustomError', custom_type = kind, code = code, message = message, trace = trace_of(),
    })
end

local function from_table(fields)
    local code, reason = fields.code, fields.reason
    code = tonumber(code) or 0
    local message = reason ~= nil and tostring(reason) or ''
    if fields.type ~= nil then return custom(tostring(fields.type), code, message) end
    return make({ type = 'ClientError', base_type = 'ClientError', code = code, message = message, trace = trace_of() })
end

-- What `box.error.new` and `box.error` make of their arguments; nil if they are of no use.
local function from_arguments(what, ...)
    if type(what) == 'table' then return from_table(what) end
    if type(what) == 'number' then return with_code(what, ...) end
    if type(what) == 'string' and type((...)) == 'string' then
        local text = ...
        if select('#', ...) > 1 then text = text:format(select(2, ...)) end
        return custom(what, 0, text)
    end
    return nil
end

-- An error of the class of a server's answer, or of a module: it is no custom one.
function internal.new_error(kind, code, message)
    return make({ type = kind, base_type = kind, code = code, message = message, trace = trace_of() })
end

-- An error that the system has reported to a module, with a text of the module; it is the last error from now on.
local function system_error_as(number, text)
    local object = internal.new_error('SystemError', nil, text)
    payload(object).errno = number
    set_last(object)
    return object
end

-- The same of a socket; without a number if a name was not found.
local function socket_error(number, text)
    local object = internal.new_error('SocketError', nil, text)
    payload(object).errno = number
    set_last(object)
    return object
end

-- The same with the system's text for the number.
local function system_error(module, number)
    return system_error_as(number, ('%s: %s'):format(module, require('errno').strerror(number)))
end

local function timed_out()
    local object = internal.new_error('TimedOut', nil, 'timed out')
    payload(object).errno = 110
    set_last(object)
    return object
end

-- An error of a module about its arguments: it is raised.
local function illegal_params(text, ...)
    local object = internal.new_error('IllegalParams', nil, text:format(...))
    set_last(object)
    error(object, 0)
end

local methods = {}

function methods.unpack(object)
    if not is_error(object) then error('Usage: error:unpack()', 2) end
    local shown = {}
    for name, value in pairs(payload(object)) do shown[name] = value end
    return shown
end

function methods.raise(object)
    if not is_error(object) then error('Usage: error:raise()', 2) end
    error(object, 0)
end

function methods.match(object, ...)
    if not is_error(object) then error('Usage: error:match()', 2) end
    return payload(object).message:match(...)
end

function methods.set_prev(object, ...)
    local prev = ...
    if not is_error(object) or (prev ~= nil and not is_error(prev)) then
        error('Usage: error1:set_prev(error2)', 2)
    end
    local place = prev
    while place ~= nil do
        if place == object then error('Cycles are not allowed', 2) end
        place = payload(place).prev
    end
    -- `box.NULL` stands for no cause, too.
    set_cause(object, prev ~= nil and prev or nil)
end

local function serialize(object) return payload(object).message end

error_t = ffi.metatype('struct error', {
    __index = function(object, key)
        if key == '__serialize' then return serialize end
        return methods[key] or payload(object)[key]
    end,
    __newindex = function() error('attempt to write to constant location', 2) end,
    __tostring = function(object) return payload(object).message end,
    -- Errors of Lua show these names.
    __concat = function(lhs, rhs)
        if is_error(lhs) then lhs = tostring(lhs) end
        if is_error(rhs) then rhs = tostring(rhs) end
        return lhs .. rhs
    end,
    __gc = function(object)
        local number = tonumber(object.number)
        local of = payloads[number]
        if of and of.prev ~= nil then effects[tonumber(of.prev.number)] = nil end
        payloads[number], effects[number] = nil, nil
    end,
})

local functions = {
    new = function(...)
        local object = from_arguments(...)
        if not object then error('Usage: box.error.new(code, args) or box.error.new(type, args)', 2) end
        return object
    end,
    last = function(...)
        if select('#', ...) > 0 then error('box.error.last(): bad arguments', 2) end
        return lasts[running.fiber]
    end,
    set = function(...)
        if select('#', ...) == 0 then error('Usage: box.error.set(error)', 2) end
        local object = ...
        if not is_error(object) then
            error(('Invalid argument #1 (error expected, got %s)'):format(type(object)), 2)
        end
        set_last(object)
    end,
    clear = function(...)
        if select('#', ...) > 0 then error('box.error.clear(): bad arguments', 2) end
        lasts[running.fiber] = nil
    end,
    is = is_error,
}

-- Functions are found beside the codes; `pairs` shows the codes alone, as in Tarantool.
local injection = setmetatable({}, { __index = function()
    error('faults cannot be injected: they are for the tests of Tarantool itself', 2)
end })
local everything = { injection = injection }
for name, code in pairs(codes) do everything[name] = code end
box.error = setmetatable(everything, {
    __call = function(_, ...)
        if select('#', ...) == 0 then
            local last = lasts[running.fiber]
            if last then error(last, 0) end
            return
        end
        local what = ...
        local object = is_error(what) and what or from_arguments(...)
        if not object then error('box.error(): bad arguments', 2) end
        set_last(object)
        error(object, 0)
    end,
    __index = functions,
    __serialize = function() return codes end,
})

function internal.client_error(name, message)
    local object = make({
        type = 'ClientError', base_type = 'ClientError', code = codes[name], message = message, trace = trace_of(),
    })
    set_last(object)
    error(object, 0)
end
internal.error_t = error_t

return { system_error = system_error, system_error_as = system_error_as, socket_error = socket_error, timed_out = timed_out,
    illegal_params = illegal_params }
