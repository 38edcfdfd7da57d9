-- serializer: what json, yaml and msgpack have in common: their options, `cfg` and `new`.
local ffi = require('ffi')
local hints = require('lycosa.convert')

local serializer = { array_mt = hints.array_mt, map_mt = hints.map_mt }
local NULL = ffi.cast('void *', 0)

-- As in Tarantool.
local DEFAULTS = {
    decode_invalid_numbers = true,
    decode_max_depth = 128,
    decode_save_metatables = true,
    encode_deep_as_nil = false,
    encode_invalid_as_nil = false,
    encode_invalid_numbers = true,
    encode_load_metatables = true,
    encode_max_depth = 128,
    encode_number_precision = 14,
    encode_sparse_convert = true,
    encode_sparse_ratio = 2,
    encode_sparse_safe = 10,
    encode_use_tostring = false,
}

-- A value of another type is converted as the C functions of Lua do it: what is no number is 0.
local function converted(value, default)
    if type(default) == 'boolean' then return value ~= nil and value ~= false end
    local number = tonumber(value) or 0
    return number < 0 and math.ceil(number) or math.floor(number)
end

local function assign(options, given)
    for name, value in pairs(given) do
        local default = DEFAULTS[name]
        if default ~= nil then options[name] = converted(value, default) end
    end
    return options
end

--- The options of a module, with those of one call in their place.
function serializer.with(cfg, given)
    -- A text has no options, as in Tarantool.
    if given == nil or type(given) == 'string' then return cfg end
    if type(given) ~= 'table' then error(('attempt to index a %s value'):format(type(given)), 3) end
    local merged = {}
    for name, value in pairs(cfg) do merged[name] = value end
    return assign(merged, given)
end

--- A module with options of its own; `open(module, cfg)` adds its functions. `changed(cfg)` hears of changes of this module, and
--- not of those that its `new` makes.
function serializer.new(open, changed)
    local cfg = table.copy(DEFAULTS)
    setmetatable(cfg, {
        __call = function(self, ...)
            local given = ...
            if type(given) ~= 'table' then
                local kind = select('#', ...) == 0 and 'no value' or type(given)
                error(("bad argument #2 to '?' (table expected, got %s)"):format(kind), 2)
            end
            assign(self, given)
            if changed then changed(self) end
        end,
        __serialize = 'map',
    })
    local module = {
        NULL = NULL,
        cfg = cfg,
        array_mt = serializer.array_mt,
        map_mt = serializer.map_mt,
        new = function() return serializer.new(open) end,
    }
    open(module, cfg)
    return module
end

return serializer
