-- box.schema and box.space: definitions, spaces and indexes as objects.
local internal = require('lycosa.box')
local client_error, native = internal.client_error, internal.native
local guarded = internal.guarded
local pause, shows_fields = require('lycosa.fiber').pause, require('lycosa.fields')

-- Where the version of the schema stands: code that reads it there is compiled.
local ffi = require('ffi')
local checks = require('lycosa.box_checks')
local version_place = ffi.cast('const uint32_t *', internal.schema_version_address())
function internal.schema_version() return version_place[0] end

local SPACE, INDEX, SEQUENCE, TRUNCATE, FUNCTION = 280, 288, 284, 330, 296

-- A row as a view shows it: a table with metatables of decoded arrays taken off its outside.
local function fields(row) return row:totable() end

local space_methods, index_methods = {}, {}
-- The methods of indexes by the engine of their space.
local engine_methods = {}
local spaces = {}
local names_by_space = {}

local lookup

-- Numbers of the fields of a space by their names; nil without a format.
-- A tuple of which a format was not asked yet has this bit in its space: `PROPOSED` of boxes/tuple.rs.
local PROPOSED = 2 ^ 31
internal.names_of = function(space)
    if space >= PROPOSED then space = space - PROPOSED end
    if space == 0 then return nil end
    local names = names_by_space[space]
    if names == nil then
        -- Until the space is loaded, and for one that is gone, there are none.
        names_by_space[space] = false
        lookup(space)
        names = names_by_space[space]
    end
    return names or nil
end

local ITERATORS = {
    EQ = 0, REQ = 1, ALL = 2, LT = 3, LE = 4, GE = 5, GT = 6, BITS_ALL_SET = 7, BITS_ANY_SET = 8,
    BITS_ALL_NOT_SET = 9, OVERLAPS = 10, NEIGHBOR = 11,
}

local function is_empty_key(key)
    return key == nil or (type(key) == 'table' and next(key) == nil)
end

-- Options are a table or the name of an iterator.
local function iterator_of(options, key)
    local given
    local kind = type(options)
    if kind == 'table' then
        given = options.iterator
    elseif kind == 'string' or kind == 'nil' then
        given = options
    else
        error(kind == 'cdata' and "'void *' has no member named 'iterator'" or ('attempt to index a %s value'):format(kind), 3)
    end
    if given == nil then return is_empty_key(key) and ITERATORS.ALL or ITERATORS.EQ end
    if type(given) == 'number' then return given end
    local number = ITERATORS[tostring(given):upper()]
    if not number then client_error('ITERATOR_TYPE', ("Unknown iterator type '%s'"):format(tostring(given))) end
    return number
end

-- A field that a program adds to the metatable of one object is a method of that object.
local function opens_for_methods(mt)
    local shared = mt.__index
    return setmetatable(mt, {
        __newindex = function(own, name, value)
            setmetatable(own, nil)
            own.__index = function(_, key)
                local method = rawget(own, key)
                if method == nil then return shared[key] end
                return method
            end
            own[name] = value
        end,
    })
end

-- Each index, and each space, has a metatable of its own, so that a program may change one of them. `fun.iter` walks their
-- tuples by `__pairs`; `pairs` shows their fields, as in Tarantool.
local function own_index_mt(methods)
    local mt = {
        __index = methods, __pairs = methods.pairs, __ipairs = methods.pairs,
        -- An index stands in its space by its number and its name: YAML shows it once, and an alias.
        __is_aliased = true,
        __serialize = function(index)
            return { id = index.id, name = index.name, type = index.type, unique = index.unique, parts = index.parts,
                space_id = index.space_id, sequence_id = index.sequence_id, sequence_fieldno = index.sequence_fieldno,
                sequence_path = index.sequence_path,
                dimension = index.dimension, func = index.func }
        end,
    }
    shows_fields(mt)
    return opens_for_methods(mt)
end

local function own_space_mt(methods)
    local mt = {
        __index = methods, __pairs = methods.pairs, __ipairs = methods.pairs,
        __serialize = function(space)
            return { id = space.id, name = space.name, engine = space.engine, field_count = space.field_count,
                temporary = space.temporary, is_local = space.is_local, is_sync = space.is_sync, enabled = space.enabled,
                index = space.index }
        end,
    }
    shows_fields(mt)
    return opens_for_methods(mt)
end

local function collation_name(id)
    if id == nil or id == 0 then return nil end
    local row = internal.system_row(276, 0, { id })
    return row and row[2]
end

local function describe_parts(parts)
    local shown = {}
    for i, part in ipairs(parts) do
        if part.field ~= nil then
            shown[i] = { fieldno = part.field + 1, type = part.type, is_nullable = part.is_nullable or false,
                path = part.path, collation = collation_name(part.collation) }
        else
            shown[i] = { fieldno = part[1] + 1, type = part[2], is_nullable = false }
        end
    end
    return shown
end

-- The function whose keys an index has, as its object shows it.
local function key_function(id)
    if id == nil or id == 0 then return nil end
    local row = internal.system_row(FUNCTION, 0, { id })
    return { fid = id, name = row and row[3] }
end

-- Spaces whose methods a module has, by number: the metatables of the space and its index.
internal.services = {}
internal.space_methods, internal.index_methods, internal.iterator_of = space_methods, index_methods, iterator_of

-- Objects of spaces by number, and what was found by name or number, with the version of the schema that it is of.
local objects, found = {}, {}

-- Makes an object show the rows of its space.
local function load(row, version)
    local id, _, name, engine, field_count, flags, format = row:unpack()
    local space = objects[id]
    local service = internal.services[id]
    if not space then
        space = setmetatable({ index = {}, enabled = false }, service and service.space_mt or own_space_mt(space_methods))
        space.on_replace, space.before_replace = internal.on_replace, internal.before_replace
        objects[id] = space
    end
    space.id, space.name, space.engine, space.field_count = id, name, engine, field_count
    space.temporary = flags.temporary == true
    space.is_local, space.is_sync = flags.group_id == 1, flags.is_sync == true
    space.ck_constraint = space.ck_constraint or checks.of(id)
    space.enabled = false
    local names = {}
    for number, field in ipairs(format) do
        if field.name ~= nil and names[field.name] == nil then names[field.name] = number end
    end
    names_by_space[id] = next(names) and names or false
    local former = {}
    for key, index in pairs(space.index) do
        former[key] = index
        space.index[key] = nil
    end
    for _, index_row in ipairs(internal.system_rows(INDEX, id)) do
        local _, index_id, index_name, kind, options, parts = index_row:unpack()
        local index = former[index_id] or setmetatable({}, service and service.index_mt or own_index_mt(engine_methods[engine] or index_methods))
        index.id, index.name, index.type = index_id, index_name, tostring(kind):upper()
        index.parts, index.space_id = describe_parts(parts), id
        local is_ordered = index.type == 'TREE' or index.type == 'HASH'
        index.unique = is_ordered and options.unique ~= false or nil
        if is_ordered and options.unique == false then index.unique = false end
        index.dimension = index.type == 'RTREE' and (options.dimension or 2) or nil
        index.func = key_function(options.func)
        space.index[index_id], space.index[index_name] = index, index
        if index_id == 0 then
            space.enabled = true
            local attached = internal.system_row(340, 0, { id })
            index.sequence_id = attached and attached[2]
            index.sequence_fieldno = attached and attached[4] + 1
            index.sequence_path = attached and attached[5] ~= '' and attached[5] or nil
        end
    end
    found[id] = { version = version, space = space }
    found[name] = found[id]
    return space
end

-- The object of a space by name or number, as the schema is now.
lookup = function(key)
    local kind = type(key)
    if kind ~= 'string' and kind ~= 'number' then return nil end
    local version = version_place[0]
    local known = found[key]
    if known and known.version == version then return known.space end
    local done, row = pcall(internal.system_row, SPACE, kind == 'number' and 0 or 2, key)
    if not done then row = nil end
    if row == nil then
        found[key] = nil
        if kind == 'number' and objects[key] then
            objects[key], names_by_space[key] = nil, nil
            checks.forget(key)
            internal.forget_triggers(key)
        end
        return nil
    end
    return load(row, version)
end

local function all_spaces()
    local all = {}
    for _, row in ipairs(internal.system_rows(SPACE)) do
        local space = lookup(row[1])
        all[row[1]], all[row[3]] = space, space
    end
    return all
end

setmetatable(spaces, {
    __index = function(_, key) return lookup(key) end,
    __pairs = function() return pairs(all_spaces()) end,
    __serialize = function()
        local shown = {}
        for key, space in pairs(all_spaces()) do if type(key) == 'string' then shown[key] = space end end
        return shown
    end,
})
guarded.space = spaces

local function check_space(space, usage)
    if type(space) ~= 'table' or rawget(space, 'id') == nil then
        error('Use space:' .. usage .. '(...) instead of space.' .. usage .. '(...)', 3)
    end
    return space
end

-- Refuses a definition of a space that was dropped.
local function check_exists(space)
    if not lookup(space.id) then client_error('NO_SUCH_SPACE', ("Space '%s' does not exist"):format(space.name)) end
end
internal.check_space_exists = check_exists

local function check_index(index, usage)
    if type(index) ~= 'table' or rawget(index, 'space_id') == nil then
        error('Use index:' .. usage .. '(...) instead of index.' .. usage .. '(...)', 3)
    end
    return index
end

local function primary(space)
    local index = space.index[0]
    if not index then
        lookup(space.id)
        index = space.index[0]
    end
    if not index then
        client_error('NO_SUCH_INDEX_ID', ("No index #0 is defined in space '%s'"):format(space.name))
    end
    return index
end

local change = internal.change

local function is_list(value) return type(value) == 'table' or box.tuple.is(value) end

-- Names of fields are the store's to find: its errors tell them.
local function operations_of(operations)
    return type(operations) == 'table' and operations or operations:totable()
end

-- Space methods.

function space_methods.insert(space, tuple)
    check_space(space, 'insert')
    return change('insert', space.id, 0, tuple)
end

function space_methods.replace(space, tuple)
    check_space(space, 'replace')
    return change('replace', space.id, 0, tuple)
end
space_methods.put = space_methods.replace

-- The engine, which never has an index, refuses a client's UPDATE and DELETE in other words.
local function check_has_index(space) return space.engine == 'blackhole' and primary(space) end

function space_methods.update(space, key, operations)
    check_space(space, 'update')
    check_has_index(space)
    if not is_list(operations) then error('Usage index:update(key, ops)', 2) end
    return change('update', space.id, 0, key, operations_of(operations))
end

function space_methods.upsert(space, tuple, operations)
    check_space(space, 'upsert')
    if not is_list(tuple) and type(tuple) ~= 'number' and type(tuple) ~= 'string' then
        error('Usage space:upsert(tuple_key, ops)', 2)
    end
    if not is_list(operations) then error('Usage space:upsert(tuple_key, ops)', 2) end
    -- It returns a tuple only where a `before_replace` trigger has made it a REPLACE.
    return change('upsert', space.id, 0, tuple, operations_of(operations))
end

function space_methods.delete(space, key)
    check_space(space, 'delete')
    check_has_index(space)
    return change('delete', space.id, 0, key)
end

function space_methods.get(space, key)
    check_space(space, 'get')
    return internal.get(space.id, 0, key)
end

for _, name in ipairs({ 'select', 'pairs', 'count', 'min', 'max', 'random' }) do
    space_methods[name] = function(space, ...)
        check_space(space, name)
        if not space.index[0] then
            lookup(space.id)
            if not space.index[0] then
                if name == 'count' then return 0 end
                if name == 'pairs' then return require('fun').wrap(function() end) end
            end
        end
        return index_methods[name](primary(space), ...)
    end
end

function space_methods.len(space)
    check_space(space, 'len')
    return space.index[0] and space.index[0]:len() or 0
end

function space_methods.bsize(space)
    check_space(space, 'bsize')
    return internal.bsize(space.id) + 0ULL
end

function space_methods.truncate(space)
    check_space(space, 'truncate')
    change('upsert', TRUNCATE, 0, { space.id, 1 }, { { '+', 2, 1 } })
end

function space_methods.create_check_constraint(space, name, text)
    return checks.create(check_space(space, 'create_constraint'), name, text)
end

function space_methods.auto_increment(space, tuple)
    check_space(space, 'auto_increment')
    local last = index_methods.max(primary(space))
    if type(tuple) ~= 'table' then error(("bad argument #1 to 'insert' (table expected, got %s)"):format(type(tuple)), 2) end
    local new = { last and last[1] + 1 or 1 }
    for _, value in ipairs(tuple) do new[#new + 1] = value end
    return space:insert(new)
end

function space_methods.frommap(space, map, ...)
    local options = ...
    if type(space) ~= 'table' or type(map) ~= 'table' or (select('#', ...) > 0 and type(options) ~= 'table') then
        error('Usage: space:frommap(map, opts)', 2)
    end
    local names = names_by_space[space.id] or {}
    local row, count = {}, 0
    for name, value in pairs(map) do
        local number = names[name]
        if not number then return nil, ("Unknown field '%s'"):format(name) end
        row[number] = value
        if number > count then count = number end
    end
    local fields = {}
    for i = 1, count do fields[i] = row[i] == nil and box.NULL or row[i] end
    local tuple = internal.tuple_new(fields, space.id)
    local misfit = internal.misfit(space.id, tuple)
    if misfit then return nil, misfit end
    if options and options.table then return row end
    return tuple
end

function internal.on_replace(space, ...)
    if type(space) ~= 'table' then error('usage: space:on_replace(function | nil, [function | nil])', 2) end
    check_space(space, 'on_replace')
    return internal.set_on_replace(space.id, ...)
end

function internal.before_replace(space, ...)
    if type(space) ~= 'table' then error('usage: space:before_replace(function | nil, [function | nil])', 2) end
    check_space(space, 'before_replace')
    return internal.set_before_replace(space.id, ...)
end

function space_methods.run_triggers(space, enabled)
    check_space(space, 'run_triggers')
    if type(enabled) ~= 'boolean' and not (type(enabled) ~= 'string' and tonumber(enabled)) then
        local kind = type(enabled) == 'cdata' and 'void *' or type(enabled)
        error(("bad argument #2 to 'space_run_triggers' (cannot convert '%s' to 'bool')"):format(kind), 2)
    end
    internal.run_triggers(space.id, enabled and true or false)
end

-- Definitions.

-- Changes a row of the schema; the object of the space `id` shows it at once.
local function schema_statement(id, kind, space, key, operations)
    local result = change(kind, space, 0, key, operations)
    if id then lookup(id) end
    return result
end

-- Turns a field of a format (`{'name', 'type'}`, or with named members) into the map that the row of a space holds. Number keys
-- beside named members stay, and the store refuses the row.
local function normalize_field(given, place)
    local function illegal(text) client_error('ILLEGAL_PARAMS', ('Illegal parameters, format[%d]: %s'):format(place, text)) end
    local field = {}
    if type(given) ~= 'table' then given = { name = given } end
    for key, value in pairs(given) do
        if key == 1 and not given.name then
            key = 'name'
        elseif (key == 1 and not given.type) or (key == 2 and not given.type and not given.name) then
            key = 'type'
        elseif key == 'collation' then
            local found = internal.select(276, 1, ITERATORS.EQ, { value }, 0, 1)[1]
            if not found then illegal(("collation was not found by name '%s'"):format(value)) end
            value = found[1]
        end
        field[key] = value
    end
    if type(field.name) ~= 'string' then illegal('name (string) is expected') end
    if field.type == nil then field.type = 'any' end
    if type(field.type) ~= 'string' then illegal('type must be a string') end
    return setmetatable(field, { __serialize = 'map' })
end

local function normalize_format(format)
    if format == nil then return {} end
    if type(format) ~= 'table' then client_error('ILLEGAL_PARAMS', 'Illegal parameters, format should be a table') end
    local rows = {}
    for place, field in ipairs(format) do rows[place] = normalize_field(field, place) end
    return rows
end

local function row_of_space(space) return internal.system_row(SPACE, 0, { space.id }) end

function space_methods.format(space, format)
    check_space(space, 'format')
    if format == nil then
        local row = row_of_space(space)
        return row and row[7] or {}
    end
    schema_statement(space.id, 'update', SPACE, { space.id }, { { '=', 7, normalize_format(format) } })
end

function space_methods.rename(space, name)
    check_space(space, 'rename')
    check_exists(space)
    if type(name) ~= 'string' then
        client_error('ILLEGAL_PARAMS', 'Illegal parameters, space_name should be a string')
    end
    schema_statement(space.id, 'update', SPACE, { space.id }, { { '=', 3, name } })
end

-- The object of a space shows what a change of the schema did that has no version.
local function reload(space_id)
    local row = internal.system_row(SPACE, 0, { space_id })
    if row then load(row, version_place[0]) end
end

-- The sequence that feeds a space feeds it no longer; one that was made for it goes, unless it is the one that is kept.
local function detach_sequence(space_id, kept)
    local attached = internal.system_row(340, 0, { space_id })
    -- Also without a row: a user without the right to write there drops no space.
    change('delete', 340, 0, { space_id })
    if not attached then return end
    if attached[3] and attached[2] ~= kept then
        -- Also without a row: inserts move a sequence, and a Tarantool that reads the journal drops none that has moved.
        change('delete', 285, 0, { attached[2] })
        change('delete', SEQUENCE, 0, { attached[2] })
    end
    reload(space_id)
end

local function reversed(list)
    local place = #list + 1
    return function()
        place = place - 1
        if place > 0 then return place, list[place] end
    end
end

-- `_trigger`, `_fk_constraint`, `_ck_constraint` and `_func_index`: an index over the number of the space, and the key of a row.
local OWNED = {
    { space = 328, index = 1, key = function(row) return { row[1] } end },
    { space = 356, index = 1, key = function(row) return { row[1], row[2] } end },
    { space = 364, index = 0, key = function(row) return { row[1], row[2] } end },
    { space = 372, index = 0, key = function(row) return { row[1], row[2] } end },
}

function space_methods.drop(space)
    check_space(space, 'drop')
    local id = space.id
    if lookup(id) ~= space then client_error('NO_SUCH_SPACE', ("Space '%s' does not exist"):format(space.name)) end
    -- As in Tarantool, whose first row of a drop is not yet the end of an index: a fiber that was woken because of a task
    -- (a driver's timers) finds the space whole, and sleeps on.
    if not box.is_in_txn() then pause() end
    detach_sequence(id)
    -- What belongs to the space or to one of its indexes, in the order of Tarantool: it does not start with a row that is left.
    for _, owned in ipairs(OWNED) do
        for _, row in ipairs(internal.select(owned.space, owned.index, ITERATORS.EQ, { id }, 0, 4294967295)) do
            change('delete', owned.space, 0, owned.key(row))
        end
    end
    for _, row in reversed(internal.system_rows(INDEX, id)) do
        change('delete', INDEX, 0, { row[1], row[2] })
    end
    for _, row in ipairs(internal.select(312, 2, ITERATORS.EQ, { 'space', id }, 0, 4294967295)) do
        change('delete', 312, 0, { row[2], row[3], row[4] })
    end
    if internal.system_row(TRUNCATE, 0, { id }) then change('delete', TRUNCATE, 0, { id }) end
    schema_statement(id, 'delete', SPACE, { id })
    -- As in Tarantool, the object that a program still has is that of a space without indexes. A transaction may bring it back.
    if not box.is_in_txn() then
        for key in pairs(space.index) do space.index[key] = nil end
        space.enabled = false
    end
end

local schema = { space = {}, index = {}, user = {}, role = {}, func = {}, sequence = {} }
guarded.schema = schema

-- Numbers of system spaces and users, and limits.
local CONSTANTS = {
    SCHEMA_ID = 272, COLLATION_ID = 276, VCOLLATION_ID = 277, SPACE_ID = 280, VSPACE_ID = 281, SEQUENCE_ID = 284,
    SEQUENCE_DATA_ID = 285, VSEQUENCE_ID = 286, INDEX_ID = 288, VINDEX_ID = 289, FUNC_ID = 296, VFUNC_ID = 297,
    USER_ID = 304, VUSER_ID = 305, PRIV_ID = 312, VPRIV_ID = 313, CLUSTER_ID = 320, TRIGGER_ID = 328, TRUNCATE_ID = 330,
    SPACE_SEQUENCE_ID = 340, FK_CONSTRAINT_ID = 356, CK_CONSTRAINT_ID = 364, FUNC_INDEX_ID = 372,
    SESSION_SETTINGS_ID = 380, GUEST_ID = 0, ADMIN_ID = 1, PUBLIC_ROLE_ID = 2, SUPER_ROLE_ID = 31, REPLICA_MAX = 32,
    SYSTEM_ID_MIN = 256, SYSTEM_ID_MAX = 511, SYSTEM_USER_ID_MIN = 0, SYSTEM_USER_ID_MAX = 2, SPACE_MAX = 2147483647,
    NAME_MAX = 65000, FIELD_MAX = 2147483647, FORMAT_ID_MAX = 65534, INDEX_MAX = 128, INDEX_PART_MAX = 255,
    INDEX_FIELD_MAX = 32767, SQL_BIND_PARAMETER_MAX = 65000,
}
for name, value in pairs(CONSTANTS) do schema[name] = value end

local SPACE_OPTIONS = {
    if_not_exists = 'boolean', engine = 'string', field_count = 'number', user = 'string', format = 'table',
    id = 'number', temporary = 'boolean', is_local = 'boolean', is_sync = 'boolean',
}

local function check_options(options, known)
    if options == nil then return {} end
    if type(options) ~= 'table' then client_error('ILLEGAL_PARAMS', 'Illegal parameters, options should be a table') end
    for name, value in pairs(options) do
        local kind = known[name]
        if not kind then
            client_error('ILLEGAL_PARAMS', ("Illegal parameters, unexpected option '%s'"):format(tostring(name)))
        end
        if kind ~= 'any' and not kind:find(type(value), 1, true) then
            client_error('ILLEGAL_PARAMS',
                ("Illegal parameters, options parameter '%s' should be of type %s"):format(name, kind))
        end
    end
    return options
end

function schema.space.create(name, options)
    if type(name) ~= 'string' then
        client_error('ILLEGAL_PARAMS', 'Illegal parameters, name should be a string')
    end
    options = check_options(options, SPACE_OPTIONS)
    local known = lookup(name)
    if known then
        if options.if_not_exists then return known, 'not created' end
        client_error('SPACE_EXISTS', ("Space '%s' already exists"):format(name))
    end
    local id = options.id
    if id == nil then
        local last = internal.system_row(272, 0, { 'max_id' })
        id = last and last[2] or 511
        if id < 511 then id = 511 end
        repeat id = id + 1 until not internal.system_row(SPACE, 0, { id })
        change('replace', 272, 0, { 'max_id', id })
    end
    local owner = box.session.euid()
    if options.user then
        local row = internal.select(304, 2, ITERATORS.EQ, { options.user }, 0, 1)[1]
        if not row then client_error('NO_SUCH_USER', ("User '%s' is not found"):format(options.user)) end
        owner = row[1]
    end
    local flags = setmetatable({
        temporary = options.temporary and true or nil,
        group_id = options.is_local and 1 or nil,
        is_sync = options.is_sync and true or nil,
    }, { __serialize = 'map' })
    schema_statement(nil, 'insert', SPACE,
        { id, owner, name, options.engine or 'memtx', options.field_count or 0, flags, normalize_format(options.format) })
    return lookup(id), 'created'
end
schema.create_space = schema.space.create

-- The methods of all spaces and indexes: what a program adds here all of them have.
space_methods.__index, space_methods.__pairs, space_methods.__ipairs = space_methods, space_methods.pairs, space_methods.pairs
index_methods.__index, index_methods.__pairs, index_methods.__ipairs = index_methods, index_methods.pairs, index_methods.pairs
schema.space_mt, schema.index_mt = space_methods, index_methods

-- The methods of all indexes go to the engines once; what a program adds to `index_mt` later goes to both engines, and what
-- it adds to the table of one engine stays there.
function internal.share_index_methods()
    for _, name in ipairs({ 'memtx', 'vinyl' }) do
        local methods = {}
        for key, value in pairs(index_methods) do methods[key] = value end
        methods.__index = methods
        engine_methods[name], schema[name .. '_index_mt'] = methods, methods
    end
    setmetatable(index_methods, {
        __newindex = function(own, key, value)
            rawset(own, key, value)
            for _, methods in pairs(engine_methods) do methods[key] = value end
        end,
    })
end
for _, name in ipairs({ 'space', 'index', 'sequence', 'func' }) do
    -- Objects have their methods from the beginning.
    schema[name].bless = function(object)
        if type(object) == 'table' then return end
        if name == 'space' then error(('attempt to index a %s value'):format(type(object)), 2) end
        error(("bad argument #1 to 'setmetatable' (table expected, got %s)"):format(type(object)), 2)
    end
end

-- Index methods.

-- A number of rows as C takes it: a negative one is a very large one.
local function rows_of(value, argument, default)
    if value == nil then return default end
    if type(value) ~= 'number' and type(value) ~= 'cdata' then
        error(("bad argument #%d to 'box_select' (cannot convert '%s' to 'unsigned int')"):format(argument, type(value)), 0)
    end
    return value < 0 and 4294967295 or math.floor(tonumber(value))
end

function index_methods.select(index, key, options)
    check_index(index, 'select')
    local offset, limit
    if type(options) == 'table' then
        offset, limit = rows_of(options.offset, 4), rows_of(options.limit, 5)
    end
    return internal.select(index.space_id, index.id, iterator_of(options, key), key, offset or 0, limit or 4294967295)
end

function index_methods.get(index, key)
    check_index(index, 'get')
    return internal.get(index.space_id, index.id, key)
end


local loaded_modules = package.loaded

-- The cursor is the state of the iteration. The first argument is ignored, as in Tarantool.
local function generate(_, cursor)
    local tuple = internal.advance(cursor)
    if tuple ~= nil then return cursor, tuple end
    return nil
end

function index_methods.pairs(index, key, options)
    check_index(index, 'pairs')
    local cursor = internal.cursor(index.space_id, index.id, iterator_of(options, key), key)
    local loaded, fun = true, loaded_modules.fun
    if fun == nil then loaded, fun = pcall(require, 'fun') end
    if loaded then return fun.wrap(generate, index, cursor) end
    return setmetatable({ nth = function(_, n)
        local tuple
        for _ = 1, n do tuple = internal.advance(cursor) end
        return tuple
    end }, { __call = function() return generate(nil, cursor) end })
end

function index_methods.count(index, key, options)
    check_index(index, 'count')
    local iterator = iterator_of(options, key)
    -- As in Tarantool, the key has to fit the index, and says nothing else.
    if iterator == ITERATORS.ALL and not is_empty_key(key) then
        internal.select(index.space_id, index.id, iterator, key, 0, 0)
        key = nil
    end
    return internal.count(index.space_id, index.id, iterator, key)
end

-- Refuses what the index of that type cannot do.
local function refuse(index, name)
    local space = spaces[index.space_id]
    client_error('UNSUPPORTED_INDEX_FEATURE', ("Index '%s' (%s) of space '%s' (%s) does not support %s()"):format(
        index.name, index.type, space.name, space.engine, name))
end

-- The views of system spaces, which show each user something else.
local FIRST_VIEW, LAST_VIEW = 277, 313
local function is_view(id)
    return id >= FIRST_VIEW and id <= LAST_VIEW and (spaces[id] or {}).engine == 'sysview'
end

function index_methods.len(index)
    check_index(index, 'len')
    if is_view(index.space_id) then refuse(index, 'size') end
    return internal.count(index.space_id, index.id, ITERATORS.ALL)
end

local function extreme(index, name, iterator, key)
    if index.type ~= 'TREE' then refuse(index, name) end
    return internal.first(index.space_id, index.id, iterator, key)
end

function index_methods.min(index, key)
    check_index(index, 'min')
    return extreme(index, 'min', is_empty_key(key) and ITERATORS.ALL or ITERATORS.EQ, key)
end

function index_methods.max(index, key)
    check_index(index, 'max')
    return extreme(index, 'max', is_empty_key(key) and ITERATORS.LE or ITERATORS.REQ, key)
end

function index_methods.random(index, seed)
    check_index(index, 'random')
    if index.type ~= 'TREE' and index.type ~= 'HASH' or is_view(index.space_id) then refuse(index, 'random') end
    local count = index:len()
    if count == 0 then return nil end
    local number = seed == true and 1 or not seed and 0 or tonumber(seed)
    if type(seed) == 'string' or not number or (type(seed) == 'cdata' and seed == nil) then
        error(("bad argument #3 to 'box_index_random' (cannot convert '%s' to 'unsigned int')"):format(type(seed) == 'cdata' and 'void *' or type(seed)), 2)
    end
    -- As C takes it: without a fraction, modulo 2^32.
    local offset = (number < 0 and math.ceil(number) or math.floor(number)) % 2 ^ 32
    return internal.first(index.space_id, index.id, ITERATORS.ALL, nil, offset % count)
end

function index_methods.update(index, key, operations)
    check_index(index, 'update')
    if not is_list(operations) then error('Usage index:update(key, ops)', 2) end
    return change('update', index.space_id, index.id, key, operations_of(operations))
end

function index_methods.delete(index, key)
    check_index(index, 'delete')
    return change('delete', index.space_id, index.id, key)
end

local function check_object(index)
    if type(index) ~= 'table' then error(('attempt to index a %s value'):format(type(index)), 3) end
end

-- Bytes that the index takes beside the tuples.
function index_methods.bsize(index)
    check_index(index, 'bsize')
    return internal.index_bsize(index.space_id, index.id)
end
function index_methods.stat(index)
    check_object(index)
    return {}
end
function index_methods.compact(index) check_object(index) end

-- Programs that choose between Tarantool's two ways to call the engine find one.
for _, name in ipairs({ 'get', 'select', 'min', 'max', 'count', 'random' }) do
    index_methods[name .. '_ffi'], index_methods[name .. '_luac'] = index_methods[name], index_methods[name]
end

box.index = ITERATORS

-- Users, roles, functions: the instance's own.

for _, name in ipairs({ 'create', 'drop', 'exists', 'passwd', 'grant', 'revoke', 'info' }) do
    schema.user[name] = function(...) return native('box.schema.user.' .. name, ...) end
end
for _, name in ipairs({ 'create', 'drop', 'exists', 'grant', 'revoke', 'info' }) do
    schema.role[name] = function(...) return native('box.schema.role.' .. name, ...) end
end
for _, name in ipairs({ 'drop', 'exists' }) do
    schema.func[name] = function(...) return native('box.schema.func.' .. name, ...) end
end
internal.check_space, internal.check_index, internal.check_options = check_space, check_index, check_options
internal.lookup_space, internal.reload_space, internal.detach_sequence = lookup, reload, detach_sequence
internal.schema_statement = schema_statement
