-- key_def: definitions of keys outside of indexes: order of tuples, keys of tuples.
local ffi = require('ffi')
local native = require('lycosa.key_def')
local internal = require('lycosa.box')

local USAGE = 'Bad params, use: key_def.new({{fieldno = fieldno, type = type[, is_nullable = <boolean>]'
    .. '[, path = <string>][, collation_id = <number>][, collation = <string>]}, ...}'

local client_error = internal.client_error

local methods = {}

-- A definition is C data with a number, as programs test for it; its parts are kept beside.
ffi.cdef('struct key_def { int __key_def_number; };')
local struct = ffi.typeof('struct key_def')
local kept, last = {}, 0

local function illegal(message)
    error(internal.new_error('IllegalParams', nil, message), 0)
end

-- A wrong call raises a text, a wrong definition an error object, as in Tarantool.
local function usage(message) error(message, 3) end

-- The row of a collation by its name or number. There is none before box.cfg, but the two that need no table.
local function collation_of(name, id, field)
    if name == nil and id == nil then return nil end
    local row
    if internal.configured() then
        row = internal.system_row(276, name ~= nil and 1 or 0, name ~= nil and name or id)
    elseif name == 'none' or id == 0 or id == 3 then
        return nil
    end
    if not row and name ~= nil then illegal(('Unknown collation: "%s"'):format(tostring(name))) end
    if not row then
        client_error('WRONG_INDEX_OPTIONS', ('Wrong index options (field %d): collation was not found by ID'):format(field))
    end
    return { name = row[2], kind = row[4], locale = row[5], options = row[6] }
end

local function read_part(part, place)
    if type(part) ~= 'table' then error(('attempt to index a %s value'):format(type(part)), 0) end
    if part.fieldno ~= nil and part.field ~= nil then illegal('Conflicting options: fieldno and field') end
    local field = part.fieldno
    if field == nil then field = part.field end
    if field == nil then illegal('fieldno or field must not be nil') end
    local number = tonumber(field)
    if not number or number < 1 or number % 1 ~= 0 then illegal('fieldno must be a whole number from 1') end
    if part.type == nil then illegal('type must not be nil') end
    local ty, usable = native.field_type(tostring(part.type))
    if not ty then illegal('Unknown field type: ' .. tostring(part.type)) end
    if not usable then illegal('Unsupported field type: ' .. tostring(part.type)) end
    if part.collation ~= nil and part.collation_id ~= nil then illegal('Conflicting options: collation_id and collation') end
    local collation = collation_of(part.collation, part.collation_id, place)
    if part.path ~= nil and not native.is_path(tostring(part.path)) then
        client_error('WRONG_INDEX_OPTIONS', 'invalid path')
    end
    if tostring(part.path):find('[*]', 1, true) then illegal('multikey path is unsupported') end
    return {
        fieldno = number, type = ty, is_nullable = part.is_nullable and true or false,
        path = part.path, collation = collation and collation.name, _order = collation,
    }
end

local function make(parts)
    local described = {}
    for place, part in ipairs(parts) do
        local order = part._order or {}
        described[place] = {
            part.fieldno - 1, part.type, part.is_nullable, part.path or '', order.kind or 'BINARY', order.locale or '',
            setmetatable(order.options or {}, { __serialize = 'map' }),
        }
    end
    local made = native.make(described)
    last = last + 1
    kept[last] = { native = made, parts = parts }
    return struct(last)
end

local function new(...)
    local parts = ...
    if select('#', ...) ~= 1 then usage(USAGE) end
    if type(parts) ~= 'table' then usage(USAGE) end
    if #parts == 0 then
        illegal('Key definition can only be constructed by using at least 1 key_part')
    end
    local list = {}
    for place, part in ipairs(parts) do list[place] = read_part(part, place) end
    return make(list)
end

local function is_key_def(object) return type(object) == 'cdata' and ffi.istype(struct, object) end
local function native_of(object) return kept[object.__key_def_number].native end
local function parts_of(object) return kept[object.__key_def_number].parts end

function methods.extract_key(object, ...)
    if not is_key_def(object) or select('#', ...) < 1 then usage('Usage: key_def:extract_key(tuple)') end
    return native.extract_key(native_of(object), (...))
end

-- Refuses a tuple that a merger cannot sort.
local function check_tuple(object, tuple) native.check_tuple(native_of(object), tuple) end

function methods.compare(object, ...)
    if not is_key_def(object) or select('#', ...) ~= 2 then usage('Usage: key_def:compare(tuple_a, tuple_b)') end
    return native.compare(native_of(object), ...)
end

function methods.compare_with_key(object, ...)
    if not is_key_def(object) or select('#', ...) ~= 2 then usage('Usage: key_def:compare_with_key(tuple, key)') end
    return native.compare_with_key(native_of(object), ...)
end

--- The parts of both, each place once.
function methods.merge(object, other)
    if not is_key_def(object) or not is_key_def(other) then usage('Usage: key_def:merge(second_key_def)') end
    local list, seen = {}, {}
    for _, parts in ipairs({ parts_of(object), parts_of(other) }) do
        for _, part in ipairs(parts) do
            local place = part.fieldno .. '\0' .. (part.path or '')
            if not seen[place] or parts == parts_of(object) then
                seen[place] = true
                list[#list + 1] = part
            end
        end
    end
    return make(list)
end

function methods.totable(object)
    if not is_key_def(object) then usage('Usage: key_def:totable()') end
    local shown = {}
    for place, part in ipairs(parts_of(object)) do
        local one = { type = part.type, fieldno = part.fieldno }
        one.is_nullable = part.is_nullable
        if part.path ~= nil then one.path = part.path end
        if part.collation ~= nil then one.collation = part.collation end
        shown[place] = one
    end
    return shown
end

methods.__serialize = methods.totable
ffi.metatype(struct, {
    __index = function(_, name) return methods[name] end,
    __tostring = function() return '<struct key_def &>' end,
    __gc = function(object) kept[object.__key_def_number] = nil end,
})

return {
    new = new, extract_key = methods.extract_key, compare = methods.compare, compare_with_key = methods.compare_with_key,
    merge = methods.merge, totable = methods.totable, is_key_def = is_key_def, check_tuple = check_tuple,
}
