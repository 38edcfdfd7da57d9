-- box.internal: the functions of Tarantool's own that public modules call.
--
-- `schema_version` tells modules when to look at spaces again; the checks are what methods of Tarantool's objects begin
-- with. Statements take the numbers of a space and an index. Tarantool's setters of options (`cfg_set_*`) and its iterators
-- are absent: `box.cfg` and `pairs` do the same.
local ffi = require('ffi')
local internal = require('lycosa.box')

local version = ffi.cast('const uint32_t *', internal.schema_version_address())

local own = { tuple = box.tuple, session = box.session }

--- A number that every change of the schema makes another one.
function own.schema_version() return tonumber(version[0]) end

local function check_object(object, name, method)
    if type(object) ~= 'table' or object.id == nil then error(('Use %s:%s(...) instead of %s.%s(...)'):format(
        name, method, name, method), 3) end
end

--- Raises an error unless a method of a space was called with the space.
function own.check_space_arg(space, method) check_object(space, 'space', method) end

--- Raises an error unless a method of an index was called with the index.
function own.check_index_arg(index, method) check_object(index, 'index', method) end

--- The index of a space that statements without an index use.
function own.check_primary_index(space)
    local index = space.index and space.index[0]
    if index == nil then
        internal.client_error('NO_SUCH_INDEX_ID', ("No index #0 is defined in space '%s'"):format(tostring(space.name)))
    end
    return index
end

-- Statements by the numbers of a space and an index, as Tarantool's methods of spaces call them.

local function usage(text) error('Usage ' .. text, 3) end

local function is_list(value) return type(value) == 'table' or box.tuple.is(value) end

local function list_of(value) return box.tuple.is(value) and value:totable() or value end

local function index_of(space, index)
    local known = box.space[space]
    if not known then internal.client_error('NO_SUCH_SPACE', ("Space '%s' does not exist"):format(tostring(space))) end
    local found = known.index[index]
    if not found then
        internal.client_error('NO_SUCH_INDEX_ID', ("No index #%s is defined in space '%s'"):format(tostring(index), known.name))
    end
    return found
end

function own.insert(space, tuple)
    if type(space) ~= 'number' or tuple == nil then usage('space:insert(tuple)') end
    return internal.change('insert', space, 0, tuple)
end

function own.replace(space, tuple)
    if type(space) ~= 'number' or tuple == nil then usage('space:replace(tuple)') end
    return internal.change('replace', space, 0, tuple)
end

function own.upsert(space, tuple, operations)
    if type(space) ~= 'number' or not is_list(tuple) or not is_list(operations) then usage('space:upsert(tuple_key, ops)') end
    return internal.change('upsert', space, 0, tuple, list_of(operations))
end

function own.update(space, index, key, operations)
    if type(space) ~= 'number' or type(index) ~= 'number' or not is_list(operations) then usage('index:update(key, ops)') end
    return internal.change('update', space, index, key, list_of(operations))
end

function own.delete(space, index, key)
    if type(space) ~= 'number' or type(index) ~= 'number' then usage('space:delete(key)') end
    return internal.change('delete', space, index, key)
end

function own.get(space, index, key)
    if type(space) ~= 'number' or type(index) ~= 'number' then usage('index:get(key)') end
    return internal.get(space, index, key)
end

function own.select(space, index, iterator, offset, limit, key)
    if type(iterator) ~= 'number' or type(offset) ~= 'number' or type(limit) ~= 'number' then
        usage('index:select(iterator, offset, limit, key)')
    end
    return internal.select(space, index, iterator, key, offset, limit)
end

function own.count(space, index, iterator, key)
    if type(iterator) ~= 'number' then usage('index.count(space_id, index_id, iterator, key)') end
    return index_of(space, index):count(key, { iterator = iterator })
end

for _, name in ipairs({ 'min', 'max', 'random', 'stat', 'compact' }) do
    own[name] = function(space, index, argument)
        local found = index_of(space, index)
        return found[name](found, argument)
    end
end

function own.truncate(space)
    index_of(space, 0)
    box.space[space]:truncate()
end

--- Calls a function of `box.func` by its name.
function own.func_call(name, ...) return internal.guarded.schema.func.call(name, ...) end

--- Modules in C are not loaded here, so that none can be loaded again.
function own.module_reload(name)
    if type(name) ~= 'string' and type(name) ~= 'number' then
        local found = type(name) == 'nil' and 'no value' or type(name)
        error(("bad argument #1 to '?' (string expected, got %s)"):format(found), 2)
    end
    internal.client_error('NO_SUCH_MODULE', ("Module '%s' does not exist"):format(name))
end

-- Collations: what a program that brings its own calls, until there is a function of `box.schema` for it.
local COLLATION = 276
local collation = {}
own.collation = collation

local function illegal(text) internal.client_error('ILLEGAL_PARAMS', 'Illegal parameters, ' .. text) end

function collation.exists(name) return box.space[COLLATION].index.name:get({ name }) ~= nil end

function collation.id_by_name(name) return box.space[COLLATION].index.name:get({ name }).id end

--- Makes a collation of the caller; its strength is tertiary if nothing else is said.
function collation.create(name, kind, locale, options)
    for _, argument in ipairs({ { name, 'name (first' }, { kind, 'type (second' }, { locale, 'locale (third' } }) do
        if type(argument[1]) ~= 'string' then illegal(argument[2] .. ' arg) must be a string') end
    end
    if options ~= nil and type(options) ~= 'table' then illegal('options (fourth arg) must be a table or nil') end
    local kept = setmetatable({ strength = 'tertiary' }, { __serialize = 'map' })
    for option, value in pairs(options or {}) do kept[option] = value end
    local is_optional = internal.check_options({ if_not_exists = kept.if_not_exists }, { if_not_exists = 'boolean' }).if_not_exists
    kept.if_not_exists = nil
    if is_optional and collation.exists(name) then return end
    box.space[COLLATION]:auto_increment({ name, box.session.euid(), kind, locale, kept })
end

function collation.drop(name, options)
    if internal.check_options(options, { if_exists = 'boolean' }).if_exists and not collation.exists(name) then return end
    box.space[COLLATION].index.name:delete({ name })
end

internal.share_index_methods()
rawset(box, 'internal', own)
return own
