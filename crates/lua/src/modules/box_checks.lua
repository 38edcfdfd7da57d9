-- `space.ck_constraint`: the check constraints of a space by name, as the rows of `_ck_constraint` are now.
local internal = require('lycosa.box')

local CK_CONSTRAINT = 364
-- `ER_NO_SUCH_CONSTRAINT`.
local NO_SUCH_CONSTRAINT = 169

local checks = {}

-- By the number of a space: its constraints by name, and the version of the schema that they are of.
local known, versions = {}, {}

local methods = {}
local constraint_mt = { __index = methods }

local function check_argument(constraint, method)
    if type(constraint) ~= 'table' or constraint.name == nil then
        error(('Use ck_constraint:%s(...) instead of ck_constraint.%s(...)'):format(method, method), 3)
    end
end

-- As in Tarantool, an object shows its constraint as it was: a changed constraint has another object.
local function refreshed(id)
    local version = internal.schema_version()
    local former = known[id] or {}
    if versions[id] == version then return former end
    local now = {}
    for _, row in ipairs(internal.system_rows(CK_CONSTRAINT, id)) do
        local name, is_enabled, constraint = row[2], row[6] ~= false, former[row[2]]
        if not constraint or constraint.expr ~= row[5] or constraint.is_enabled ~= is_enabled then
            constraint = setmetatable({ name = name, space_id = id, expr = row[5], is_enabled = is_enabled }, constraint_mt)
        end
        now[name] = constraint
    end
    known[id], versions[id] = now, version
    return now
end

function methods.drop(constraint)
    check_argument(constraint, 'drop')
    internal.change('delete', CK_CONSTRAINT, 0, { constraint.space_id, constraint.name })
end

function methods.enable(constraint, is_enabled)
    check_argument(constraint, 'enable')
    local id = constraint.space_id
    if box.space[id] == nil then internal.client_error('NO_SUCH_SPACE', ("Space '%s' does not exist"):format(tostring(id))) end
    if not internal.system_row(CK_CONSTRAINT, 0, { id, constraint.name }) then
        -- As in Tarantool, which leaves the name of the space out.
        error(internal.new_error('ClientError', NO_SUCH_CONSTRAINT, ("Constraint '%s' does not exist in space '(null)'"):format(
            tostring(constraint.name))), 0)
    end
    internal.change('update', CK_CONSTRAINT, 0, { id, constraint.name }, { { '=', 6, is_enabled } })
end

-- The numbers of spaces by the tables of their constraints.
local ids = setmetatable({}, { __mode = 'k' })
local list_mt = {
    __index = function(list, name) return refreshed(ids[list])[name] end,
    __pairs = function(list) return pairs(refreshed(ids[list])) end,
    __serialize = function(list) return refreshed(ids[list]) end,
}

-- The table of a space's constraints. Its content is read when it is asked for: a client or SQL may have changed it.
function checks.of(id)
    local list = setmetatable({}, list_mt)
    ids[list] = id
    return list
end

-- The space is gone: its number may be given again.
function checks.forget(id)
    known[id], versions[id] = nil, nil
end

function checks.create(space, name, text)
    if name == nil or text == nil then internal.client_error('PROC_LUA', 'Usage: space:create_constraint(name, code)') end
    internal.change('insert', CK_CONSTRAINT, 0, { space.id, name, false, 'SQL', text, true })
    return refreshed(space.id)[name]
end

return checks
