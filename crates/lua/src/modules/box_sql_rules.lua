-- What statements of SQL obey beside the schema: triggers and foreign keys. As in Tarantool, changes that are no statements of SQL
-- obey neither.
--
-- A trigger's pieces run as statements of their own, with the values of the old and the new row for parameters. A foreign key is
-- checked when its statement ends, or its transaction if it is deferred: a key is violated if a row of the child has it and
-- no row of the parent does. So the check looks at the rows as they are then, whatever came in between.
local internal = require('lycosa.box')
local conflicts = require('lycosa.sql_conflicts')
local fiber = require('fiber')

local SCHEMA_SPACE, TRIGGER, FK_CONSTRAINT = 280, 328, 356
-- `ER_ALTER_SPACE`, `ER_NO_SUCH_FIELD_NAME`, `ER_SQL_EXECUTE`, `ER_FOREIGN_KEY_CONSTRAINT`, `ER_SQL_TYPE_MISMATCH`.
local ALTER_SPACE, NO_SUCH_FIELD, SQL_EXECUTE, DEFERRED_VIOLATED, TYPE_MISMATCH = 12, 153, 159, 164, 171

-- Triggers and actions inside of each other.
local MAX_DEPTH = 100
-- Keys of deferred foreign keys of a transaction.
local MAX_DEFERRED = 100000

-- The error of RAISE(IGNORE).
local RAISE_IGNORE = 'RAISE(IGNORE)'

local rules = {}

-- `box.sql` sets these: runs a statement with values, within the bounds of a client's request if it is of one; the value of `ROW_COUNT()`,
-- and its change.
function rules.execute_as() end
function rules.row_count() end
function rules.set_row_count() end

local function fail(code, message) error(internal.new_error('ClientError', code, message), 0) end
local function violated() fail(SQL_EXECUTE, 'Failed to execute SQL statement: FOREIGN KEY constraint failed') end

local function quoted(name) return '"' .. name:gsub('"', '""') .. '"' end

-- Triggers and foreign keys by the number of their space, for one version of the schema.
local known = {}

local function of(list, space)
    local found = list[space]
    if not found then
        found = { insert = {}, update = {}, delete = {}, child = {}, parent = {} }
        list[space] = found
    end
    return found
end

local function places_of(format)
    local places = {}
    for place, field in ipairs(format) do places[field.name] = place end
    return places
end

-- A column that is equal to a parameter. The values of parameters are those of tuples in Lua, which have one type for strings of both kinds.
local function equal_to_value(field)
    local value = field.type == 'varbinary' and '"bytes of a key"(?)' or '?'
    return ('%s = %s'):format(quoted(field.name), value)
end

-- A condition over columns with a parameter for each.
local function equal_to(format, columns)
    local terms = {}
    for place, column in ipairs(columns) do terms[place] = equal_to_value(format[column + 1]) end
    return table.concat(terms, ' AND ')
end

local function foreign_key_of(row)
    local child, parent = internal.system_row(SCHEMA_SPACE, 0, { row[2] }), internal.system_row(SCHEMA_SPACE, 0, { row[3] })
    if not child or not parent then return nil end
    local children, parents = row[8], row[9]
    local set = {}
    for place, column in ipairs(children) do set[place] = equal_to_value(child[7][column + 1]) end
    local where, defaults = equal_to(child[7], children), {}
    for place, column in ipairs(children) do
        local field = child[7][column + 1]
        defaults[place] = ('%s = %s'):format(quoted(field.name), field.default or 'NULL')
    end
    return {
        is_deferred = row[4], on_delete = row[6], on_update = row[7], children = children, parents = parents,
        find_child = ('SELECT 1 FROM %s WHERE %s LIMIT 1'):format(quoted(child[3]), where),
        find_parent = ('SELECT 1 FROM %s WHERE %s LIMIT 1'):format(quoted(parent[3]), equal_to(parent[7], parents)),
        delete = ('DELETE FROM %s WHERE %s'):format(quoted(child[3]), where),
        update = ('UPDATE %s SET %s WHERE %s'):format(quoted(child[3]), table.concat(set, ', '), where),
        reset = ('UPDATE %s SET %s WHERE %s'):format(quoted(child[3]), table.concat(defaults, ', '), where),
    }
end

local function rules_of_schema()
    local version = internal.schema_version()
    if known.version == version then return known.by_space end
    local by_space = {}
    local rows = internal.system_rows(TRIGGER, {})
    -- The names descend: as in Tarantool, a trigger that was made later runs earlier, and the names are all that a row tells of that.
    for place = #rows, 1, -1 do
        local row = rows[place]
        local trigger = internal.sql_trigger(row[3].sql)
        local own = of(by_space, row[2])
        own.has_triggers = true
        table.insert(own[trigger.event], trigger)
    end
    for _, row in ipairs(internal.system_rows(FK_CONSTRAINT, {})) do
        local key = foreign_key_of(row)
        if key then
            table.insert(of(by_space, row[2]).child, key)
            table.insert(of(by_space, row[3]).parent, key)
        end
    end
    known = { version = version, by_space = by_space }
    return by_space
end

-- The rules that a change of a space obeys; nil for most spaces. A view may be changed if a trigger does it.
function rules.of(space, event)
    local own = rules_of_schema()[space]
    if own and own.places and not own.is_view then return own end
    local row = internal.system_row(SCHEMA_SPACE, 0, { space })
    local is_view = row and row[6].view
    if own then own.places, own.is_view = places_of(row[7]), is_view end
    if is_view and (not own or #own[event] == 0) then
        fail(ALTER_SPACE, ("Can't modify space '%s': space is a view"):format(row[3]))
    end
    return own
end

-- Of each fiber that runs a statement: how many statements are inside of each other, the keys that the outermost one has to check at
-- its end, its active triggers, whether the transaction goes on behind it, and whether a client asks for it.
local states = {}

local function execute(text, values)
    local state = states[fiber.id()]
    return rules.execute_as(text, values, state and state.of_client or false)
end

-- Runs a statement that `ROW_COUNT()` does not count.
local function execute_uncounted(text, values)
    local count = rules.row_count()
    local result = execute(text, values)
    rules.set_row_count(count)
    return result
end

-- Keys to check when the transaction ends, with a savepoint that tells whether it is still open.
local deferred = {}

local function forget_deferred() deferred, internal.check_foreign_keys = {}, nil end

local check_deferred

local function deferred_of_transaction()
    if not deferred.place or not internal.is_live(deferred.place) then
        deferred = { place = internal.savepoint() }
        internal.check_foreign_keys = check_deferred
    end
    return deferred
end

local function is_violated(entry)
    local key, values = entry.key, entry.values
    local function finds(text) return #box.session.su('admin', execute_uncounted, text, values).rows > 0 end
    return finds(key.find_child) and not finds(key.find_parent)
end

-- Notes a key to check. One with NULL refers to nothing.
local function note(key, values)
    for place = 1, #key.children do if values[place] == nil then return end end
    local entry, state = { key = key, values = values }, states[fiber.id()]
    if key.is_deferred or internal.setting('sql_defer_foreign_keys') then
        local list = state.is_explicit and deferred_of_transaction() or state.pending
        if #list >= MAX_DEFERRED then
            fail(SQL_EXECUTE, ('Failed to execute SQL statement: a transaction may leave %d foreign keys to check'):format(MAX_DEFERRED))
        end
        list[#list + 1] = entry
    else
        state.pending[#state.pending + 1] = entry
    end
end

-- Fails if the transaction leaves a violated key. Commits call it while `internal` has it.
function check_deferred()
    local list = deferred
    forget_deferred()
    if not internal.is_live(list.place) then return end
    for _, entry in ipairs(list) do
        if is_violated(entry) then
            fail(DEFERRED_VIOLATED, 'Can not commit transaction: deferred foreign keys violations are not resolved')
        end
    end
end

local function check_pending(state)
    for _, entry in ipairs(state.pending) do
        if is_violated(entry) then violated() end
    end
end

-- Runs `body` as a statement whose keys are checked at its end. `is_explicit`: in a transaction that goes on behind it;
-- `of_client`: a client asks for it.
function rules.statement(is_explicit, of_client, body, ...)
    local id = fiber.id()
    local state = states[id]
    local is_outermost = state == nil
    if is_outermost then
        state = { depth = 0, pending = {}, active = {}, is_explicit = is_explicit, of_client = of_client }
        states[id] = state
    elseif state.depth >= MAX_DEPTH then
        fail(SQL_EXECUTE, 'Failed to execute SQL statement: too many levels of trigger recursion')
    end
    state.depth = state.depth + 1
    local done, count, ids = pcall(body, ...)
    if done and is_outermost then
        local is_kept, failure = pcall(check_pending, state)
        if not is_kept then done, count = false, failure end
    end
    state.depth = state.depth - 1
    if is_outermost then states[id] = nil end
    if not done then error(count, 0) end
    return count, ids
end

local function values_of(row, columns)
    local values = {}
    for place, column in ipairs(columns) do values[place] = row[column + 1] end
    return values
end

local function is_same(left, right, count)
    for place = 1, count do if left[place] ~= right[place] then return false end end
    return true
end

local function run_piece(own, piece, old, new, runs)
    local values = {}
    for place, field in ipairs(piece.fields) do
        local number = own.places[field.name]
        local row = field.is_new and new or nil
        if not field.is_new then row = old end
        if not number or row == nil then
            fail(NO_SUCH_FIELD, ("Field '%s' was not found in space '%s' format"):format(field.name, field.is_new and 'NEW' or 'OLD'))
        end
        local value = row[number]
        if value == nil then value = box.NULL end
        values[place] = value
    end
    return runs(piece.text, values)
end

local function is_due(own, trigger, old, new, written)
    if not written or #trigger.columns == 0 then return true end
    for _, column in ipairs(trigger.columns) do
        if written[own.places[column]] then return true end
    end
    return false
end

local function fire_one(own, trigger, old, new)
    if trigger.when then
        local holds = run_piece(own, trigger.when, old, new, execute_uncounted).rows[1][1]
        if holds ~= nil and type(holds) ~= 'boolean' then
            fail(TYPE_MISMATCH, ('Type mismatch: can not convert %s to boolean'):format(tostring(holds)))
        end
        if holds ~= true then return end
    end
    for _, piece in ipairs(trigger.statements) do run_piece(own, piece, old, new, execute) end
end

-- Runs the triggers of an event. Returns false if RAISE(IGNORE) gives the row up.
local function fire(own, event, time, old, new, written)
    local active = states[fiber.id()].active
    for _, trigger in ipairs(own[event]) do
        local may_run = trigger.time == time and is_due(own, trigger, old, new, written)
        if may_run and active[trigger] and not internal.setting('sql_recursive_triggers') then may_run = false end
        if may_run then
            local was_active, count = active[trigger], rules.row_count()
            active[trigger] = true
            local done, failure = pcall(fire_one, own, trigger, old, new)
            active[trigger] = was_active
            rules.set_row_count(count)
            if not done then
                if tostring(failure) == RAISE_IGNORE then return false end
                error(failure, 0)
            end
        end
    end
    return true
end

-- What becomes of the rows that refer to a row which goes, or to a key that it no longer has.
local function act(own, action_of, old, new)
    for _, key in ipairs(own.parent) do
        local before = values_of(old, key.parents)
        local after = new and values_of(new, key.parents)
        local has_null = false
        for place = 1, #key.parents do has_null = has_null or before[place] == nil end
        if not has_null and not (after and is_same(before, after, #key.parents)) then
            local action = key[action_of]
            if action == 'cascade' and not after then
                execute_uncounted(key.delete, before)
            elseif action == 'cascade' then
                local values = {}
                for place = 1, #key.parents do
                    values[place] = after[place] == nil and box.NULL or after[place]
                    values[#key.parents + place] = before[place]
                end
                execute_uncounted(key.update, values)
            elseif action == 'set_null' then
                local values = {}
                for place = 1, #key.parents do values[place], values[#key.parents + place] = box.NULL, before[place] end
                execute_uncounted(key.update, values)
            elseif action == 'set_default' then
                execute_uncounted(key.reset, before)
            elseif action == 'restrict' and is_violated({ key = key, values = before }) then
                violated()
            end
            note(key, before)
        end
    end
end

local function note_child(own, new)
    for _, key in ipairs(own.child) do note(key, values_of(new, key.children)) end
end

function rules.delete(own, space, key)
    if not own then return internal.change('delete', space, 0, key) == nil and 0 or 1 end
    local old = internal.system_row(space, 0, key)
    if old == nil or not fire(own, 'delete', 'before', old, nil) then return 0 end
    if internal.change('delete', space, 0, key) == nil then return 0 end
    act(own, 'on_delete', old, nil)
    fire(own, 'delete', 'after', old, nil)
    return 1
end

-- Changes a row to `planned`. Returns the number of rows that changed, and the new row.
local function replace_row(own, space, key, planned, keys)
    local count, is_gone = conflicts.remove(space, keys, planned, function(other) return rules.delete(own, space, other) end)
    if not is_gone then return count end
    -- A row whose primary key changes is still there.
    if internal.system_row(space, 0, key) then internal.change('delete', space, 0, key) end
    local new = internal.change('insert', space, 0, planned)
    return count + 1, new
end

-- `conflict` is the word behind OR; `keys` are the unique keys of the space, if the word asks for them.
function rules.update(own, space, key, operations, conflict, keys)
    if not own and not keys then
        internal.change('update', space, 0, key, operations)
        return 1
    end
    local old = internal.system_row(space, 0, key)
    if old == nil then return 0 end
    local written = {}
    for _, operation in operations:pairs() do written[operation[2]] = true end
    local planned = old:update(operations:totable())
    if own and not fire(own, 'update', 'before', old, planned, written) then return 0 end
    local count, new = 1, nil
    if conflict == 'replace' then
        count, new = replace_row(own, space, key, planned, keys)
    elseif conflict == 'ignore' then
        if conflicts.is_taken(space, keys, planned, written) then return 0 end
        new = conflicts.ignoring(internal.change, 'update', space, 0, key, operations)
    else
        new = internal.change('update', space, 0, key, operations)
    end
    if new == nil then return count end
    if own then
        act(own, 'on_update', old, new)
        note_child(own, new)
        fire(own, 'update', 'after', old, new, written)
    end
    return count
end

-- Runs the INSTEAD OF triggers of a view for a row. As in Tarantool, no row of the view counts as changed.
function rules.instead(own, event, old, operations)
    local new = operations and old:update(operations:totable())
    local written
    if operations then
        written = {}
        for _, operation in operations:pairs() do written[operation[2]] = true end
    end
    if event == 'insert' then old, new = nil, old end
    fire(own, event, 'instead', old, new, written)
    return 0
end

-- Inserts a row. Returns the number of rows that changed, and the new row. `conflict` and `keys` are those of `rules.update`.
function rules.insert(own, space, row, conflict, keys)
    if own and not fire(own, 'insert', 'before', nil, row) then return 0 end
    local count, new = 0, nil
    if conflict == 'replace' then
        local is_gone
        count, is_gone = conflicts.remove(space, keys, row, function(key, is_primary)
            -- Without rules the row takes the place of the one with its primary key.
            return not own and is_primary and 1 or rules.delete(own, space, key)
        end)
        if not is_gone then return count end
        new = internal.change('replace', space, 0, row)
    elseif conflict == 'ignore' then
        new = conflicts.ignoring(internal.change, 'insert', space, 0, row)
    else
        new = internal.change('insert', space, 0, row)
    end
    if new == nil then
        -- A trigger of a program has kept the row back.
        return (own or conflict == 'ignore') and count or count + 1
    end
    if own then
        note_child(own, new)
        -- A row of the parent that comes may end a violation, and begins none.
        fire(own, 'insert', 'after', nil, new)
    end
    return count + 1, new
end

return rules
