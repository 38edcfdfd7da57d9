-- box.session.settings and `_session_settings`: what a session has set for itself.
--
-- The space holds no tuples: its rows are made when somebody reads them, from the settings of the session that reads. Only
-- `error_marshaling_enabled` has an effect; those of SQL are kept and told, as programs expect, and change nothing here.
local internal = require('lycosa.box')
local client_error = internal.client_error

local SPACE = 380

-- Names in the order of the index, with their first values.
local NAMES = {
    'error_marshaling_enabled', 'sql_default_engine', 'sql_defer_foreign_keys', 'sql_full_column_names',
    'sql_full_metadata', 'sql_parser_debug', 'sql_recursive_triggers', 'sql_reverse_unordered_selects',
    'sql_select_debug', 'sql_vdbe_debug',
}
local DEFAULTS = { sql_default_engine = 'memtx', sql_recursive_triggers = true }

-- Values that differ from the first ones, by session and name.
local changed = {}

local function session_id() return (internal.session()) end

local function value_of(name)
    local own = changed[session_id()]
    if own and own[name] ~= nil then return own[name] end
    return DEFAULTS[name] or false
end

local function is_known(name)
    for _, known in ipairs(NAMES) do if known == name then return true end end
    return false
end

local function row_of(name) return internal.tuple_new({ name, value_of(name) }, SPACE) end

local function set(name, value)
    local wanted = type(value_of(name))
    if type(value) ~= wanted then
        client_error('SESSION_SETTING_INVALID_VALUE',
            ('Session setting %s expected a value of type %s'):format(name, wanted))
    end
    if name == 'sql_default_engine' and value ~= 'memtx' and value ~= 'vinyl' then
        client_error('NO_SUCH_ENGINE', ("Space engine '%s' does not exist"):format(value))
    end
    local id = session_id()
    changed[id] = changed[id] or {}
    changed[id][name] = value
    if name == 'error_marshaling_enabled' then internal.marshal_errors(id, value) end
end

-- The value of a setting in the running fiber's session.
function internal.setting(name) return row_of(name)[2] end

-- `SET SESSION` of SQL.
function internal.set_setting(name, value)
    if not is_known(name) then
        client_error('NO_SUCH_SESSION_SETTING', ("Session setting %s doesn't exist"):format(name))
    end
    set(name, value)
end

function internal.forget_settings(id)
    changed[id] = nil
    internal.marshal_errors(id, false)
end

local function refuse(what)
    client_error('UNSUPPORTED', ('Session_settings space does not support %s()'):format(what))
end

-- The name in a key: a scalar, a table or a tuple; nil for none.
local function name_in(key)
    if type(key) == 'table' or box.tuple.is(key) then key = key[1] end
    if key == nil then return nil end
    if type(key) ~= 'string' then
        client_error('KEY_PART_TYPE',
            'Supplied key type of part 0 does not match index part type: expected string')
    end
    return key
end

local function is_after(name, key, wanted)
    if key == nil then return true end
    if wanted == 'GE' then return name >= key end
    if wanted == 'GT' then return name > key end
    if wanted == 'LE' then return name <= key end
    if wanted == 'LT' then return name < key end
    return name == key
end

local BY_NUMBER = { [0] = 'EQ', 'REQ', 'GE', 'LT', 'LE', 'GE', 'GT' }

local function rows(key, iterator, offset, limit)
    local name, wanted, found = name_in(key), BY_NUMBER[iterator], {}
    if not wanted then refuse('requested iterator type') end
    local is_reversed = wanted == 'REQ' or wanted == 'LE' or wanted == 'LT'
    for place = 1, #NAMES do
        local candidate = NAMES[is_reversed and #NAMES + 1 - place or place]
        if is_after(candidate, name, wanted) then
            if offset > 0 then
                offset = offset - 1
            elseif #found < limit then
                found[#found + 1] = row_of(candidate)
            end
        end
    end
    return found
end

local function get(key)
    local name = name_in(key)
    if name == nil then client_error('EXACT_MATCH', 'Invalid key part count in an exact match (expected 1, got 0)') end
    return is_known(name) and row_of(name) or nil
end

-- UPDATE, with the numbers of fields from `base`.
local function update(key, operations, base)
    local name = name_in(key)
    if name == nil or not is_known(name) then return nil end
    local old = row_of(name)
    local new = internal.tuple_update(old, internal.operations_by_name(old, operations), SPACE, base or 1)
    if #new ~= 2 then
        client_error('EXACT_FIELD_COUNT',
            ('Tuple field count %d does not match space field count 2'):format(#new))
    end
    if new[1] ~= name then
        client_error('CANT_UPDATE_PRIMARY_KEY', "Attempt to modify a tuple field which is part of index 'primary' in "
            .. "space '_session_settings'")
    end
    set(name, new[2])
    return row_of(name)
end

internal.set_service(SPACE, function(kind, key, operations, base)
    if kind == 'update' then return update(key, operations, base) end
    refuse(kind == 'insert' and 'replace' or kind)
end)

-- A client's SELECT.
function internal.select_settings(iterator, key, offset, limit)
    return unpack(rows(key, iterator, offset, limit))
end

local methods = {}

function methods.select(_, key, options)
    local offset, limit
    if type(options) == 'table' then offset, limit = options.offset, options.limit end
    return rows(key, internal.iterator_of(options, key), offset or 0, limit or 4294967295)
end

function methods.get(_, key) return get(key) end
function methods.count(_, key, options) return #methods.select(nil, key, options) end
function methods.pairs(_, key, options)
    local found, place = methods.select(nil, key, options), 0
    return require('fun').wrap(function()
        place = place + 1
        if found[place] ~= nil then return place, found[place] end
    end)
end
function methods.min(_, key) return methods.select(nil, key, { iterator = 'GE', limit = 1 })[1] end
function methods.max(_, key) return methods.select(nil, key, { iterator = 'LE', limit = 1 })[1] end
function methods.random()
    client_error('UNSUPPORTED_INDEX_FEATURE', "Index 'primary' (TREE) of space '_session_settings' (service) does not "
        .. 'support random()')
end

-- The methods above, before those that all spaces have.
local index_mt = { __index = setmetatable(methods, { __index = internal.index_methods }) }
local space_methods = setmetatable({}, { __index = internal.space_methods })
for _, name in ipairs({ 'select', 'get', 'count', 'pairs' }) do space_methods[name] = methods[name] end
internal.services[SPACE] = { space_mt = { __index = space_methods }, index_mt = index_mt }

box.session.settings = setmetatable({}, {
    __index = function(_, name)
        if type(name) ~= 'string' or not is_known(name) then
            client_error('NO_SUCH_SESSION_SETTING', ("Session setting %s doesn't exist"):format(tostring(name)))
        end
        return value_of(name)
    end,
    __newindex = function(_, name, value)
        if type(name) ~= 'string' or not is_known(name) then
            client_error('NO_SUCH_SESSION_SETTING', ("Session setting %s doesn't exist"):format(tostring(name)))
        end
        set(name, value)
    end,
    __serialize = function()
        local shown = {}
        for _, name in ipairs(NAMES) do shown[name] = value_of(name) end
        return shown
    end,
})
