-- The spaces and indexes of a remote server, made of the rows of its schema.
local native = require('lycosa.netbox')
local errors = require('lycosa.net_box.errors')
local keys = require('lycosa.net_box.keys')
local replies = require('lycosa.net_box.reply')

local MAX_LIMIT = 0xFFFFFFFF

-- The module of connections puts `request` here, which sends.
local spaces = {}

local space_methods, index_methods = {}, {}
local space_mt = {
    __index = space_methods,
    __serialize = function(space)
        local shown = {}
        for key, value in pairs(space) do
            if key ~= 'connection' and tostring(key):sub(1, 1) ~= '_' then shown[key] = value end
        end
        return shown
    end,
}
local index_mt = {
    __index = index_methods,
    __serialize = function(index)
        local shown = {}
        for key, value in pairs(index) do
            if key ~= 'space' then shown[key] = value end
        end
        return shown
    end,
}

local function check_space(space, name)
    if type(space) ~= 'table' or getmetatable(space) ~= space_mt then
        error(('Use space:%s(...) instead of space.%s(...)'):format(name, name), 3)
    end
end

local function check_index(index, name)
    if type(index) ~= 'table' or getmetatable(index) ~= index_mt then
        error(('Use index:%s(...) instead of index.%s(...)'):format(name, name), 3)
    end
end

local function iterator_of(options, key)
    local iterator = options.iterator
    if iterator == nil then
        local is_empty = key == nil or (type(key) == 'table' and next(key) == nil)
        return is_empty and box.index.ALL or box.index.EQ
    end
    if type(iterator) == 'number' then return iterator end
    local number = box.index[tostring(iterator):upper()]
    if type(number) ~= 'number' then
        error(errors.new(box.error.ITERATOR_TYPE, ("Unknown iterator type '%s'"):format(tostring(iterator))), 0)
    end
    return number
end

local function select_from(space, index, key, options)
    local settings = type(options) == 'table' and options or {}
    return spaces.request(space.connection, options, replies.tuples_of(space._number), keys.SELECT,
        keys.SPACE_ID, space.id, keys.INDEX_ID, index, keys.LIMIT, settings.limit or MAX_LIMIT,
        keys.OFFSET, settings.offset or 0, keys.ITERATOR, iterator_of(settings, key), keys.KEY, native.key(key))
end

local function get_from(space, index, key, options)
    if type(options) == 'table' and options.buffer then
        error('index:get() doesn\'t support `buffer` argument', 3)
    end
    local tuple = spaces.request(space.connection, options, replies.one_tuple_of(space._number), keys.SELECT,
        keys.SPACE_ID, space.id, keys.INDEX_ID, index, keys.LIMIT, 2, keys.OFFSET, 0, keys.ITERATOR, box.index.EQ,
        keys.KEY, native.key(key))
    if tuple ~= nil then return tuple end
end

local function change(space, options, kind, ...)
    local decode = replies.first_tuple_of(space._number)
    local tuple = spaces.request(space.connection, options, decode, kind, keys.SPACE_ID, space.id, ...)
    if tuple ~= nil then return tuple end
end

function space_methods.select(space, key, options)
    check_space(space, 'select')
    return select_from(space, 0, key, options)
end

function space_methods.get(space, key, options)
    check_space(space, 'get')
    return get_from(space, 0, key, options)
end

function space_methods.insert(space, tuple, options)
    check_space(space, 'insert')
    return change(space, options, keys.INSERT, keys.TUPLE, tuple)
end

function space_methods.replace(space, tuple, options)
    check_space(space, 'replace')
    return change(space, options, keys.REPLACE, keys.TUPLE, tuple)
end

function space_methods.delete(space, key, options)
    check_space(space, 'delete')
    return change(space, options, keys.DELETE, keys.INDEX_ID, 0, keys.KEY, native.key(key))
end

function space_methods.update(space, key, operations, options)
    check_space(space, 'update')
    return change(space, options, keys.UPDATE, keys.INDEX_ID, 0, keys.INDEX_BASE, 1, keys.KEY, native.key(key),
        keys.TUPLE, operations)
end

function space_methods.upsert(space, tuple, operations, options)
    check_space(space, 'upsert')
    local result = change(space, options, keys.UPSERT, keys.INDEX_BASE, 1, keys.TUPLE, tuple,
        keys.OPERATIONS, operations)
    if type(options) == 'table' and (options.is_async or options.buffer) then return result end
end

function space_methods.format(space, format)
    check_space(space, 'format')
    if format == nil then return space._format end
    error('net.box does not support setting space format', 2)
end

function index_methods.select(index, key, options)
    check_index(index, 'select')
    return select_from(index.space, index.id, key, options)
end

function index_methods.get(index, key, options)
    check_index(index, 'get')
    return get_from(index.space, index.id, key, options)
end

function index_methods.delete(index, key, options)
    check_index(index, 'delete')
    return change(index.space, options, keys.DELETE, keys.INDEX_ID, index.id, keys.KEY, native.key(key))
end

function index_methods.update(index, key, operations, options)
    check_index(index, 'update')
    return change(index.space, options, keys.UPDATE, keys.INDEX_ID, index.id, keys.INDEX_BASE, 1,
        keys.KEY, native.key(key), keys.TUPLE, operations)
end

local function refuse_buffer(options, name)
    if type(options) == 'table' and options.buffer then
        error(("index:%s() doesn't support `buffer` argument"):format(name), 3)
    end
end

-- The first tuple of a walk.
local function extreme(index, name, iterator, key, options)
    refuse_buffer(options, name)
    local space = index.space
    local tuple = spaces.request(space.connection, options, replies.first_tuple_of(space._number), keys.SELECT,
        keys.SPACE_ID, space.id, keys.INDEX_ID, index.id, keys.LIMIT, 1, keys.OFFSET, 0, keys.ITERATOR, iterator,
        keys.KEY, native.key(key))
    if tuple ~= nil then return tuple end
end

function index_methods.min(index, key, options)
    check_index(index, 'min')
    return extreme(index, 'min', box.index.GE, key, options)
end

function index_methods.max(index, key, options)
    check_index(index, 'max')
    return extreme(index, 'max', box.index.LE, key, options)
end

local function count_of(data)
    local first = native.values(data)[1]
    return type(first) == 'table' and first[1] or first
end

--- IPROTO has no request that counts, so this calls the server's method.
function index_methods.count(index, key, options)
    check_index(index, 'count')
    refuse_buffer(options, 'count')
    local given = type(options) == 'table' and options or {}
    local called = ('box.space.%s.index.%s:count'):format(index.space.name, index.name)
    local list = native.key(key)
    if key ~= nil and #list == 0 then list = { {} } elseif key ~= nil then list = { list } end
    if given.iterator ~= nil then list = { list[1] or {}, { iterator = given.iterator } } end
    return spaces.request(index.space.connection, options, count_of, keys.CALL_16, keys.FUNCTION_NAME, called, keys.TUPLE, list)
end

-- The schema as space objects.

local function read_parts(list)
    local parts = {}
    for i, part in ipairs(list) do
        parts[i] = {
            fieldno = (part.field or part[1]) + 1,
            type = part.type or part[2],
            is_nullable = part.is_nullable or false,
            collation = part.collation,
            path = part.path,
        }
    end
    return parts
end

function spaces.install(connection, space_rows, index_rows)
    local known, by_key = connection._spaces, {}
    connection._spaces = {}
    for _, row in ipairs(space_rows) do
        local id, name, format = row[1], row[3], row[7] or {}
        local space = known[id] or setmetatable({ connection = connection }, space_mt)
        space.id, space.name, space.engine, space.field_count = id, name, row[4], row[5]
        space.enabled, space.index, space._format = true, {}, format
        space.temporary = (row[6] or {}).temporary or false
        space.is_sync = (row[6] or {}).is_sync or false
        space._number = replies.number_of(format)
        connection._spaces[id], by_key[id], by_key[name] = space, space, space
    end
    for _, row in ipairs(index_rows) do
        local space = connection._spaces[row[1]]
        if space then
            local options = row[5]
            local index = setmetatable({
                space = space, id = row[2], name = row[3], type = row[4]:upper(), parts = read_parts(row[6]),
                unique = type(options) == 'table' and options.unique or options == 1 or false,
            }, index_mt)
            space.index[index.id], space.index[index.name] = index, index
        end
    end
    for key in pairs(connection.space) do connection.space[key] = nil end
    for key, space in pairs(by_key) do connection.space[key] = space end
end

return spaces
