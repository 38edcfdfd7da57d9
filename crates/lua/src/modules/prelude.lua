-- Declares the C structures that values of MessagePack become, and globals.
local ffi = require('ffi')

ffi.cdef([[
struct tt_uuid {
    uint32_t time_low;
    uint16_t time_mid;
    uint16_t time_hi_and_version;
    uint8_t clock_seq_hi_and_reserved;
    uint8_t clock_seq_low;
    uint8_t node[6];
};
struct decimal {
    uint8_t length;
    uint8_t payload[31];
};
]])

-- Types and functions of the C library that libraries use without declaring them, as Tarantool's modules have done it.
ffi.cdef([[
typedef int pid_t;
typedef unsigned int uid_t;
typedef unsigned int gid_t;
typedef long time_t;
typedef unsigned int socklen_t;
typedef void *iconv_t;
typedef struct decimal decimal_t;
typedef struct tuple box_tuple_t;
typedef struct key_def box_key_def_t;
typedef struct iterator box_iterator_t;
struct lua_State;
struct sockaddr;
struct space;
struct type_info;
pid_t getpid(void);
uid_t getuid(void);
gid_t getgid(void);
pid_t getppid(void);
]])

local uint64_t, int64_t = ffi.typeof('uint64_t'), ffi.typeof('int64_t')

--- Converts to a number, or to 64-bit C data where a number is not exact; nil if the value is no number.
function _G.tonumber64(...)
    local value, base = ...
    local function refuse(number, reason)
        error(("bad argument #%d to '%s' (%s)"):format(number, debug.getinfo(2, 'n').name or '?', reason), 3)
    end
    if type(value) == 'nil' then
        if select('#', ...) == 0 then refuse(1, 'value expected') end
        return nil
    end
    if base ~= nil then
        if type(tonumber(base)) ~= 'number' or type(base) == 'cdata' then refuse(2, 'number expected, got ' .. type(base)) end
        base = tonumber(base)
        if base < 2 or base > 36 then refuse(2, 'base out of range') end
        local is_decimal = base == 10 and (type(value) == 'number' or type(value) == 'cdata')
        if type(value) ~= 'string' and not is_decimal then refuse(1, 'string expected') end
    end
    local kind = type(value)
    if kind == 'number' then
        return value
    elseif kind == 'cdata' then
        if ffi.istype(uint64_t, value) or ffi.istype(int64_t, value) then return value end
        return tonumber(value)
    elseif kind ~= 'string' then
        return nil
    end
    local sign, digits = value:match('^%s*([+-]?)([%w]+)%s*$')
    if not digits then return nil end
    base = base or 10
    local prefix = digits:sub(1, 2):lower()
    if base == 10 and prefix == '0x' then
        base, digits = 16, digits:sub(3)
    elseif base == 10 and prefix == '0b' then
        base, digits = 2, digits:sub(3)
    elseif base == 10 then
        digits = digits:lower():gsub('u?ll$', '')
        if not digits:match('^%d+$') then return nil end
    elseif base == 16 and prefix == '0x' then
        digits = digits:sub(3)
    elseif base == 2 and prefix == '0b' then
        digits = digits:sub(3)
    end
    local result, limit = 0ULL, 18446744073709551615ULL
    if digits == '' then return nil end
    for i = 1, #digits do
        local digit = tonumber(digits:sub(i, i), 36)
        if not digit or digit >= base then return nil end
        if result > (limit - digit) / base then return nil end
        result = result * base + digit
    end
    if sign == '-' then
        if result <= 99999999999999ULL then return -tonumber(result) end
        if result > 9223372036854775808ULL then return nil end
        return -ffi.cast(int64_t, result)
    end
    if result <= 99999999999999ULL then return tonumber(result) end
    return result
end

-- `pairs` and `ipairs` obey `__pairs` and `__ipairs` of tables, as in Tarantool. C data are left to LuaJIT, which does so itself.
local debug_getmetatable = debug.getmetatable
-- Metatables whose `__pairs` is for modules alone: `pairs` shows the fields of their tables.
local shown = setmetatable({}, { __mode = 'k' })
for name, builtin in pairs({ pairs = pairs, ipairs = ipairs }) do
    local event = '__' .. name
    _G[name] = function(...)
        local value = ...
        local kind = type(value)
        if kind == 'table' then
            local metatable = debug_getmetatable(value)
            local own = metatable and rawget(metatable, event)
            if own ~= nil and not shown[metatable] then
                local generate, state, control = own(value)
                return generate, state, control
            end
        elseif kind ~= 'cdata' then
            error(("bad argument #1 to '%s' (table expected, got %s)"):format(name,
                select('#', ...) == 0 and 'no value' or kind), 2)
        end
        return builtin(value)
    end
end

package.preload['lycosa.fields'] = function() return function(metatable) shown[metatable] = true end end

--- Compiles a text and runs it.
function _G.dostring(text, ...)
    local chunk, message = loadstring(text)
    if not chunk then error(message, 2) end
    return chunk(...)
end

-- A table that gets a new key is no longer what was decoded: its own keys tell what it is, as in Tarantool.
local setmetatable, rawset = setmetatable, rawset
local function forget_hint(value, key, item)
    setmetatable(value, nil)
    rawset(value, key, item)
end
local hints = {
    seq = setmetatable({ __serialize = 'seq', __newindex = forget_hint }, { __newindex = function() error('the metatable is shared', 2) end }),
    map = setmetatable({ __serialize = 'map', __newindex = forget_hint }, { __newindex = function() error('the metatable is shared', 2) end }),
}

return tonumber(ffi.typeof('struct tt_uuid')), tonumber(ffi.typeof('struct decimal')), hints
