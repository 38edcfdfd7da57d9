-- Functions of box.schema that name their object: users, roles, functions, spaces and indexes, by name or number.
--
-- What is no name and no number is refused as in Tarantool, where the index of the system space refuses the key.
local internal = require('lycosa.box')
local client_error, check_options = internal.client_error, internal.check_options
local lookup, schema = internal.lookup_space, internal.guarded.schema

local FUNCTION, VISIBLE_USERS = 296, 305

-- Users, roles and functions by their numbers too, as in Tarantool.

local NO_SUCH = {
    user = { 'NO_SUCH_USER', "User '%s' is not found" },
    role = { 'NO_SUCH_ROLE', "Role '%s' is not found" },
    func = { 'NO_SUCH_FUNCTION', "Function '%s' does not exist" },
}

-- The row of a user or role, if the fiber's user may know of it.
local function visible(kind, name)
    local row = internal.get(VISIBLE_USERS, type(name) == 'number' and 0 or 2, { name })
    return row ~= nil and row[4] == kind and row or nil
end

-- The row of an object of this kind, by its number.
local function numbered(kind, number)
    if kind == 'func' then return internal.system_row(FUNCTION, 0, number) end
    return visible(kind, number)
end

-- Refuses what is no key of an index over names or numbers, as the index does there.
local function check_key(key, wanted)
    local kind = type(key)
    if kind == 'function' or kind == 'userdata' or kind == 'thread' then
        error(("can not encode Lua type: '%s'"):format(kind), 0)
    end
    if kind == 'string' or kind == 'nil' then return end
    local number = tonumber(key)
    if kind == 'boolean' or kind == 'table' or not number or number < 0 or number % 1 ~= 0 or wanted == 'string' then
        client_error('KEY_PART_TYPE',
            ('Supplied key type of part 0 does not match index part type: expected %s'):format(wanted))
    end
end

internal.check_key = check_key

-- The row of an object of this kind by its name or number; nil if there is none.
local function find_named(kind, name)
    check_key(name, 'unsigned')
    if type(name) == 'nil' then return nil end
    if type(name) ~= 'string' then return numbered(kind, tonumber(name)) end
    if kind == 'func' then return internal.system_row(FUNCTION, 2, name) end
    return visible(kind, name)
end

local function no_such(kind, name) client_error(NO_SUCH[kind][1], NO_SUCH[kind][2]:format(tostring(name))) end

local function check_name_is_there()
    client_error('EXACT_MATCH', 'Invalid key part count in an exact match (expected 1, got 0)')
end

-- The name of an object of a grant that is given by its number.
local function object_name(kind, number)
    if type(number) ~= 'number' then return number end
    local function fail(code, text) client_error(code, text:format(number)) end
    if kind == 'space' then
        local space = lookup(number)
        return space and space.name or fail('NO_SUCH_SPACE', "Space '%s' does not exist")
    elseif kind == 'sequence' then
        local row = internal.system_row(284, 0, number)
        return row and row[3] or fail('NO_SUCH_SEQUENCE', "Sequence '%s' does not exist")
    elseif kind == 'function' then
        local row = numbered('func', number)
        return row and row[3] or no_such('func', number)
    elseif kind == 'user' or kind == 'role' then
        local row = numbered(kind, number)
        return row and row[3] or no_such(kind, number)
    end
    return number
end

-- Rows of privileges without the marks of decoded lists.
local function unmarked(rows)
    for _, row in ipairs(rows) do setmetatable(row, nil) end
    return setmetatable(rows, nil)
end

local LAST_SYSTEM_USER = 31

-- A user in whose name the session acts is not dropped.
local function check_is_inactive(row)
    if row and row[1] > LAST_SYSTEM_USER and (row[1] == box.session.uid() or row[1] == box.session.euid()) then
        client_error('DROP_USER', ("Failed to drop user or role '%s': the user is active in the current session"):format(row[3]))
    end
end

for _, kind in ipairs({ 'user', 'role', 'func' }) do
    local exists, drop = schema[kind].exists, schema[kind].drop
    schema[kind].exists = function(name)
        if name == nil and type(name) == 'nil' then return false end
        if kind == 'func' and type(name) ~= 'string' and type(name) ~= 'number' then return false end
        if kind ~= 'func' or type(name) ~= 'string' then return find_named(kind, name) ~= nil end
        return exists(name)
    end
    schema[kind].drop = function(name, options)
        options = check_options(options, { if_exists = 'boolean' })
        if kind == 'func' and type(name) == 'nil' then check_name_is_there() end
        if kind == 'user' then check_is_inactive(find_named(kind, name)) end
        if type(name) == 'string' then return drop(name, options) end
        local row = find_named(kind, name)
        if row then return drop(row[3], options) end
        if not options.if_exists then no_such(kind, name) end
    end
    for _, call in ipairs({ 'info', 'grant', 'revoke' }) do
        local by_name = schema[kind][call]
        schema[kind][call] = by_name and function(name, ...)
            if call == 'info' and kind == 'user' and name == nil then name = box.session.euid() end
            local row = find_named(kind, name)
            if not row then no_such(kind, name) end
            if call ~= 'info' and type((select(3, ...))) == 'number' then
                local privileges, object_type, object = ...
                return by_name(row[3], privileges, object_type, object_name(object_type, object), select(4, ...))
            end
            if call == 'info' then return unmarked(by_name(row[3])) end
            return by_name(row[3], ...)
        end
    end
end

local USER_OPTIONS = { password = 'string', if_not_exists = 'boolean' }
local create_user, create_role, passwd = schema.user.create, schema.role.create, schema.user.passwd

function schema.user.create(name, options)
    if type(name) == 'nil' then check_name_is_there() end
    local found = type(name) ~= 'string' and find_named('user', name)
    options = check_options(options, USER_OPTIONS)
    if found then
        if options.if_not_exists then return end
        client_error('USER_EXISTS', ("User '%s' already exists"):format(tostring(name)))
    end
    if type(name) ~= 'string' then
        client_error('FIELD_TYPE', 'Tuple field 3 type does not match one required by operation: expected string')
    end
    return create_user(name, options)
end

function schema.role.create(name, options)
    options = check_options(options, { if_not_exists = 'boolean' })
    if type(name) == 'nil' then check_name_is_there() end
    check_key(name, 'unsigned')
    if type(name) ~= 'string' then
        if internal.find_user(tonumber(name)) then
            if options.if_not_exists then return end
            client_error('ROLE_EXISTS', ("Role '%s' already exists"):format(tostring(name)))
        end
        client_error('FIELD_TYPE', 'Tuple field 3 type does not match one required by operation: expected string')
    end
    return create_role(name, options)
end

function schema.user.passwd(name, password)
    if type(name) == 'nil' then client_error('PROC_LUA', 'Usage: box.schema.user.passwd([user,] password)') end
    if type(password) == 'nil' then return passwd(name) end
    local row = find_named('user', name)
    if not row then no_such('user', name) end
    return passwd(row[3], password)
end

-- The rows of the schema are those of the newest version that is known here.
function schema.upgrade() end

-- A user who is disabled can neither open a session nor use anything. Both are no error where nothing is to be done.
function schema.user.disable(name)
    if not find_named('user', name) then no_such('user', name) end
    return schema.user.revoke(name, 'session,usage', 'universe', nil, { if_exists = true })
end
function schema.user.enable(name)
    if not find_named('user', name) then no_such('user', name) end
    return schema.user.grant(name, 'session,usage', 'universe', nil, { if_not_exists = true })
end

function schema.user.password(password)
    if type(password) ~= 'string' then error(('attempt to get length of a %s value'):format(type(password)), 2) end
    local digest = require('digest')
    return digest.base64_encode(digest.sha1(digest.sha1(password)))
end

-- Functions of the schema that name their object instead of being called on it.

local function space_called(id)
    local space = lookup(id)
    if space == nil then client_error('NO_SUCH_SPACE', ("Space '%s' does not exist"):format('#' .. tostring(id))) end
    return space
end

-- Refuses an argument of another type; a C number is a number too.
local function check_argument(value, name, kind)
    if type(value) == kind or (kind == 'number' and type(value) == 'cdata' and tonumber(value)) then return end
    client_error('ILLEGAL_PARAMS', ('Illegal parameters, %s should be a %s'):format(name, kind))
end

function schema.space.drop(id, name, options)
    check_argument(id, 'space_id', 'number')
    local space = lookup(id)
    if space == nil then
        if type(options) == 'table' and options.if_exists then return end
        check_key(id, 'unsigned')
        client_error('NO_SUCH_SPACE', ("Space '%s' does not exist"):format(tostring(name == nil and '#' .. tostring(id) or name)))
    end
    space:drop()
end

function schema.space.rename(id, name)
    check_argument(id, 'space_id', 'number')
    check_argument(name, 'space_name', 'string')
    check_key(id, 'unsigned')
    space_called(id):rename(name)
end

function schema.space.format(id, format)
    check_argument(id, 'id', 'number')
    check_key(id, 'unsigned')
    if type(format) ~= 'nil' then check_argument(format, 'format', 'table') end
    return space_called(id):format(format)
end

local create_index = schema.index.create
function schema.index.create(space_id, name, ...)
    check_argument(space_id, 'space_id', 'number')
    check_argument(name, 'name', 'string')
    space_called(space_id)
    return create_index(space_id, name, ...)
end

for _, name in ipairs({ 'drop', 'rename', 'alter' }) do
    schema.index[name] = function(space_id, index_id, ...)
        if name ~= 'alter' then
            check_argument(space_id, 'space_id', 'number')
            check_argument(index_id, 'index_id', 'number')
            check_key(space_id, 'unsigned')
        end
        if name == 'rename' then check_argument((...), 'name', 'string') end
        local index = space_called(space_id).index[index_id]
        if index == nil then
            client_error('NO_SUCH_INDEX_ID',
                ("No index #%s is defined in space '%s'"):format(tostring(index_id), space_called(space_id).name))
        end
        return index[name](index, ...)
    end
end
