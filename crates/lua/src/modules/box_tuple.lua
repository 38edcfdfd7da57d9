-- box.tuple: tuples as C data, with their fields by number and name.
local internal = require('lycosa.box')
local ffi = require('ffi')

-- The names are such that no field of a space has them.
ffi.cdef('struct tuple { uint32_t __tuple_size; uint32_t __tuple_space; uint8_t __tuple_data[?]; };')

local methods = {}
local tuple_t
local field, length, to_table = internal.tuple_field, internal.tuple_len, internal.tuple_table

-- Names of the fields of a space; set by box.schema.
internal.names_of = function() return nil end

local function is_tuple(value) return type(value) == 'cdata' and ffi.istype(tuple_t, value) end

local function check(value, usage)
    if not is_tuple(value) then error('Invalid argument #1 (box.tuple expected, got ' .. type(value) .. ')', 3) end
    return usage
end

local function next_field(tuple, position)
    check(tuple)
    if position == nil then position = 0 end
    position = position + 1
    if position < 1 or position > length(tuple) then return nil end
    return position, field(tuple, position)
end

function methods.next(tuple, position) return next_field(tuple, position) end
function methods.ipairs(tuple) check(tuple) return next_field, tuple, nil end

function methods.pairs(tuple)
    check(tuple)
    local loaded, fun = pcall(require, 'fun')
    if loaded then return fun.wrap(next_field, tuple, nil) end
    return next_field, tuple, nil
end

function methods.totable(tuple, first, last)
    check(tuple)
    local all = to_table(tuple)
    if first == nil then return all end
    local count, part = length(tuple), {}
    for i = first, math.min(last or count, count) do part[#part + 1] = all[i] end
    return part
end

function methods.unpack(tuple, first, last)
    check(tuple)
    local all, count = to_table(tuple), length(tuple)
    return unpack(all, first or 1, math.min(last or count, count))
end

function methods.tomap(tuple, options)
    check(tuple)
    local map, names = {}, internal.names_of(tuple.__tuple_space)
    local only = options and options.names_only
    local count = length(tuple)
    if not only then
        for i = 1, count do map[i] = field(tuple, i) end
    end
    if names then
        for name, number in pairs(names) do
            if number <= count then map[name] = field(tuple, number) end
        end
    end
    return setmetatable(map, { __serialize = 'map' })
end

function methods.bsize(tuple) check(tuple) return tuple.__tuple_size end

function methods.slice(tuple, first, last)
    check(tuple)
    local count = length(tuple)
    if first < 0 then first = count + first end
    if last == nil then last = count elseif last < 0 then last = count + last end
    if first < 0 or last > count or first >= last then error('tuple.slice(): start or end is out of range', 2) end
    return methods.unpack(tuple, first + 1, last)
end

function methods.transform(tuple, first, count, ...)
    check(tuple)
    local fields, total = to_table(tuple), length(tuple)
    if first < 0 then first = total + first + 1 end
    if first < 1 or first > total + 1 then error('tuple.transform(): offset is out of range', 2) end
    local new = {}
    for i = 1, first - 1 do new[#new + 1] = fields[i] end
    for i = 1, select('#', ...) do
        local value = select(i, ...)
        if value == nil then value = box.NULL end
        new[#new + 1] = value
    end
    for i = first + (count or 0), total do new[#new + 1] = fields[i] end
    return internal.tuple_new(new)
end

local function find(tuple, offset, value, all)
    check(tuple)
    if value == nil then offset, value = 0, offset end
    local found = {}
    for i = offset + 1, length(tuple) do
        if field(tuple, i) == value then
            if not all then return i end
            found[#found + 1] = i
        end
    end
    if all then return found end
end
function methods.find(tuple, offset, value) return find(tuple, offset, value, false) end
function methods.findall(tuple, offset, value) return find(tuple, offset, value, true) end

local function by_name(tuple, operations)
    local names = internal.names_of(tuple.__tuple_space)
    if not names then return operations end
    local new = {}
    for i, operation in ipairs(operations) do
        if type(operation) == 'table' and type(operation[2]) == 'string' and names[operation[2]] then
            local copy = {}
            for k, v in pairs(operation) do copy[k] = v end
            copy[2] = names[operation[2]]
            operation = copy
        end
        new[i] = operation
    end
    return new
end

function methods.update(tuple, operations)
    check(tuple)
    if type(operations) ~= 'table' then error('Usage: tuple:update({{op, field, arg}+})', 2) end
    return internal.tuple_update(tuple, by_name(tuple, operations), tuple.__tuple_space)
end
methods.upsert = methods.update

tuple_t = ffi.metatype('struct tuple', {
    __index = function(tuple, key)
        local kind = type(key)
        if kind == 'number' then return field(tuple, key) end
        if kind ~= 'string' then return nil end
        local names = internal.names_of(tuple.__tuple_space)
        local number = names and names[key]
        if number then return field(tuple, number) end
        return methods[key]
    end,
    __len = length,
    __eq = function(one, other) return is_tuple(one) and is_tuple(other) and internal.tuple_equal(one, other) end,
    __tostring = internal.tuple_display,
    __pairs = methods.ipairs,
    __ipairs = methods.ipairs,
})
methods.__serialize = to_table
internal.set_tuple_type(tonumber(ffi.typeof('struct tuple')))

box.tuple = {
    new = function(...)
        local value = ...
        if select('#', ...) ~= 1 or (type(value) ~= 'table' and not is_tuple(value)) then value = { ... } end
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
