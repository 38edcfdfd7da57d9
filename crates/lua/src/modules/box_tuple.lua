-- box.tuple: tuples as C data, with their fields by number and name.
local internal = require('lycosa.box')
local ffi = require('ffi')

-- The names are such that no field of a space has them.
ffi.cdef([[
struct tuple { uint32_t __tuple_size; uint32_t __tuple_space; uint8_t __tuple_data[?]; };
struct tuple_scalar { const char *bytes; uint32_t length; uint32_t kind; };
]])

local methods = {}
local tuple_t
local to_table = internal.tuple_table
local any_field, ffi_string, null = internal.tuple_field, ffi.string, box.NULL

-- Numbers, strings and the like come through the FFI, whose calls can be compiled. Numbers are what a call returns: compiled
-- code may read memory after the next call has changed it.
local natural = ffi.cast('uint64_t (*)(const struct tuple *, double)', internal.tuple_natural())
local scalar = ffi.cast('double (*)(const struct tuple *, double, struct tuple_scalar *)', internal.tuple_scalar())
local found = ffi.new('struct tuple_scalar')
local length = ffi.cast('double (*)(const struct tuple *)', internal.tuple_length())

-- A field from 1; nothing beyond the end. A finalizer may run where a pointer is boxed, and read a field itself: the
-- length is read before.
local function field(tuple, number)
    local value = scalar(tuple, number, found)
    if value == value then return value end
    local kind = found.kind
    if kind == 2 then
        local size = found.length
        return ffi_string(found.bytes, size)
    end
    if kind == 1 then return value end
    if kind == 0 then return nil end
    if kind == 3 then return true end
    if kind == 4 then return false end
    if kind == 5 then return null end
    if kind == 7 then return natural(tuple, number) end
    return any_field(tuple, number)
end

-- Names of the fields of a space; set by box.schema.
internal.names_of = function() return nil end

local function is_tuple(value) return type(value) == 'cdata' and ffi.istype(tuple_t, value) end

local function check(value, usage)
    if not is_tuple(value) then error('Usage: ' .. usage, 3) end
end

-- The functions that are C there name the argument.
local function check_first(value)
    if not is_tuple(value) then error(('Invalid argument #1 (box.tuple expected, got %s)'):format(type(value)), 3) end
end

local function next_field(tuple, position)
    check(tuple, 'tuple:next(tuple[, pos])')
    if type(position) == 'string' then error("bad argument #2 to '?' (cannot convert 'string' to 'unsigned int')", 2) end
    position = (position or 0) + 1
    if position < 1 or position > length(tuple) then return nil end
    return position, field(tuple, position)
end

function methods.next(tuple, position) return next_field(tuple, position) end
local function walk(tuple) return next_field, tuple, nil end

-- The same in a walk, which may begin behind a field, or behind the last one.
local function step(tuple, position)
    local place = position or 0
    if type(place) ~= 'number' or place < 0 or place > length(tuple) then error("error: invalid key to 'next'", 2) end
    if place == length(tuple) then return nil end
    return place + 1, field(tuple, place + 1)
end

-- Programs see a step as an object with a name of its own.
local iterator = ffi.metatype(ffi.typeof('struct { char __tuple_iterator; }'), {
    __call = function(_, tuple, position) return step(tuple, position) end,
    __tostring = function() return '<tuple iterator>' end,
})()

function methods.pairs(tuple, position)
    check(tuple, 'tuple:pairs(tuple[, pos])')
    local loaded, fun = pcall(require, 'fun')
    if loaded then return fun.wrap(iterator, tuple, position) end
    return iterator, tuple, position
end
methods.ipairs = methods.pairs

-- The numbers of the first and the last field of a part.
local function range(tuple, first, last)
    for place, number in pairs({ second = first, third = last }) do
        if type(number) ~= 'number' then error('attempt to compare ' .. type(number) .. ' with number', 3) end
        if number < 1 then error(('tuple.totable: invalid %s argument'):format(place), 3) end
    end
    local count = length(tuple)
    return first or 1, math.min(last or count, count)
end

function methods.totable(tuple, first, last)
    check(tuple, 'tuple:totable([from[, to]])')
    local all = to_table(tuple)
    if first == nil and last == nil then return all end
    local part = {}
    first, last = range(tuple, first, last)
    for i = first, last do part[#part + 1] = all[i] end
    return setmetatable(part, getmetatable(all))
end

function methods.unpack(tuple, first, last)
    check(tuple, 'tuple:totable([from[, to]])')
    return unpack(to_table(tuple), range(tuple, first, last))
end

function methods.tomap(...)
    local tuple, options = ...
    local given = select('#', ...)
    if given < 1 or given > 2 or (given == 2 and type(options) ~= 'table') then error('Usage: tuple:tomap(opts)', 2) end
    check_first(tuple)
    local only = false
    if options ~= nil then
        only = options.names_only
        if only ~= nil and type(only) ~= 'boolean' then error('Usage: tuple:tomap(opts)', 0) end
    end
    local map, names = {}, internal.names_of(tuple.__tuple_space)
    local count = length(tuple)
    if not only then
        for i = 1, count do map[i] = field(tuple, i) end
    end
    if names then
        for name, number in pairs(names) do
            if number <= count then map[name] = field(tuple, number) end
        end
    end
    return map
end

function methods.bsize(tuple)
    check(tuple, 'tuple:bsize()')
    return tuple.__tuple_size
end

-- Numbers as C takes them.
local function whole(value)
    value = tonumber(value) or 0
    return value < 0 and math.ceil(value) or math.floor(value)
end

function methods.slice(tuple, ...)
    check_first(tuple)
    if select('#', ...) < 1 or select('#', ...) > 2 then
        error('tuple.slice(): bad arguments', 0)
    end
    local first, last = ...
    local count = length(tuple)
    first = whole(first)
    if first < 0 and -first <= count then
        first = first + count
    elseif first < 0 or first >= count then
        error('tuple.slice(): start >= field count', 0)
    end
    if select('#', ...) == 1 then
        last = count
    else
        last = whole(last)
        if last < 0 and -last < count then
            last = last + count
        elseif last <= 0 or last > count then
            error('tuple.slice(): end > field count', 0)
        end
    end
    if last <= first then error('tuple.slice(): start must be less than end', 0) end
    return methods.unpack(tuple, first + 1, last)
end

function methods.transform(tuple, ...)
    check_first(tuple)
    return internal.tuple_transform(tuple, ...)
end

-- The numbers of the fields behind `offset` that are equal to the value.
local function places(tuple, name, ...)
    check(tuple, ('tuple:%s([offset, ]val)'):format(name))
    local offset, value = ...
    if value == nil then offset, value = 0, offset end
    if type(offset) ~= 'number' or offset < 0 or offset > length(tuple) then error("error: invalid key to 'next'", 3) end
    local found = {}
    for i = offset + 1, length(tuple) do
        if field(tuple, i) == value then found[#found + 1] = i end
    end
    return found
end
function methods.find(tuple, ...) return (unpack(places(tuple, 'find', ...), 1, 1)) end
function methods.findall(tuple, ...) return places(tuple, 'findall', ...) end

-- Operations whose fields have names: the numbers in their place, before a path too.
local function by_name(tuple, operations)
    local names = internal.names_of(tuple.__tuple_space)
    if not names then return operations end
    local new = {}
    for i, operation in ipairs(operations) do
        local named = type(operation) == 'table' and type(operation[2]) == 'string' and operation[2]
        local place = named and names[named]
        if named and not place then
            local name, path = named:match('^([^%.%[]+)([%.%[].*)$')
            if name and names[name] then place = ('[%d]%s'):format(names[name], path) end
        end
        if place then
            local copy = {}
            for k, v in pairs(operation) do copy[k] = v end
            copy[2], operation = place, copy
        end
        new[i] = operation
    end
    return new
end

internal.operations_by_name = by_name

function methods.update(tuple, operations)
    check(tuple, 'tuple:update({ { op, field, arg}+ })')
    if type(operations) ~= 'table' then error('Usage: tuple:update({ { op, field, arg}+ })', 2) end
    return internal.tuple_update(tuple, by_name(tuple, operations), tuple.__tuple_space)
end

function methods.upsert(tuple, operations)
    check(tuple, 'tuple:upsert({ { op, field, arg}+ })')
    if type(operations) ~= 'table' then error('Usage: tuple:upsert({ { op, field, arg}+ })', 2) end
    return internal.tuple_update(tuple, by_name(tuple, operations), tuple.__tuple_space, 1, true)
end

-- The value at a JSON path, of which the first step is a field by its name or number.
local function by_path(tuple, names, path)
    local name, rest = path:match('^%.?([^%.%[]+)([%.%[].*)$')
    if name and names and names[name] then path = ('[%d]%s'):format(names[name], rest) end
    return internal.tuple_path(tuple, path)
end

tuple_t = ffi.metatype('struct tuple', {
    __index = function(tuple, key)
        local kind = type(key)
        if kind == 'number' then return field(tuple, key) end
        if kind ~= 'string' then return nil end
        local names = internal.names_of(tuple.__tuple_space)
        local number = names and names[key]
        local value
        if number then value = field(tuple, number) elseif key:find('[%.%[]') then value = by_path(tuple, names, key) end
        -- As in Tarantool, a null that is asked for by a name or a path is nil; by a number it is `box.NULL`.
        if value ~= nil then return value end
        return methods[key]
    end,
    __len = function(tuple) return length(tuple) end,
    __eq = function(one, other) return is_tuple(one) and is_tuple(other) and internal.tuple_equal(one, other) end,
    __tostring = internal.tuple_display,
    __pairs = walk,
    __ipairs = walk,
})
methods.__serialize = to_table
internal.set_tuple_type(tonumber(ffi.typeof('struct tuple')))

box.tuple = {
    new = function(...)
        local value = ...
        local count = select('#', ...)
        if count ~= 1 or (type(value) ~= 'table' and not is_tuple(value)) then
            value = { ... }
            for i = 1, count do if value[i] == nil then value[i] = box.NULL end end
        end
        return internal.tuple_new(value)
    end,
    is = is_tuple,
    find = methods.find,
    findall = methods.findall,
    ipairs = methods.ipairs,
    pairs = methods.pairs,
    slice = methods.slice,
    transform = methods.transform,
    unpack = methods.unpack,
    update = methods.update,
    upsert = methods.upsert,
    bsize = methods.bsize,
    tomap = methods.tomap,
    totable = methods.totable,
    next = methods.next,
}
