-- Definitions of SQL: tables, views, indexes, triggers, foreign keys and check constraints. The rows of the schema are those that Tarantool's SQL writes,
-- with its names for what a statement leaves without one.
local internal = require('lycosa.box')
local rules = require('lycosa.sql_rules')

-- `_schema`, `_space`, `_index`, `_trigger`, `_space_sequence`, `_fk_constraint` and `_ck_constraint`.
local SCHEMA, SPACE, INDEX, TRIGGER, SPACE_SEQUENCE, FK_CONSTRAINT, CK_CONSTRAINT = 272, 280, 288, 328, 340, 356, 364
-- Spaces of the system have smaller numbers.
local FIRST_SPACE = 512

-- `ER_CREATE_SPACE`, `ER_DROP_SPACE`, `ER_MODIFY_INDEX`, `ER_NO_SUCH_TRIGGER`, `ER_TRIGGER_EXISTS`, `ER_SQL_EXECUTE`.
local CREATE_SPACE, DROP_SPACE, MODIFY_INDEX, NO_SUCH_TRIGGER, TRIGGER_EXISTS, SQL_EXECUTE = 9, 11, 14, 34, 55, 159
-- `ER_CREATE_FK_CONSTRAINT`, `ER_NO_SUCH_CONSTRAINT`, `ER_CONSTRAINT_EXISTS`, `ER_SQL_CANT_RESOLVE_FIELD`, `ER_INDEX_EXISTS_IN_SPACE`.
local CREATE_FOREIGN_KEY, NO_SUCH_CONSTRAINT, CONSTRAINT_EXISTS, CANT_RESOLVE_FIELD, INDEX_EXISTS = 167, 169, 170, 176, 177

local function fail(code, message) error(internal.new_error('ClientError', code, message), 0) end

local function nullable_action(is_nullable) return is_nullable and 'none' or 'abort' end

-- A part of an index as a row of `_index` has it. `field` counts from 1; `collation` is the name that COLLATE gives. Without one the
-- field's counts: a name in a new format, a number in a row.
local function part_of(field, definition, collation)
    collation = collation or definition.collation
    if type(collation) == 'string' then collation = internal.sql_collation(collation) end
    local is_nullable = definition.is_nullable or false
    return {
        field = field - 1, type = definition.type, is_nullable = is_nullable,
        nullable_action = definition.nullable_action or nullable_action(is_nullable),
        sort_order = 'asc', collation = collation,
    }
end

-- The row is as Tarantool's SQL writes it, with options of parts that `space:create_index` does not take.
local function create_index(space, id, name, is_unique, parts)
    internal.change('insert', INDEX, 0, { space.id, id, name, 'tree', { unique = is_unique }, parts })
end

-- CREATE TABLE and DROP TABLE, by the functions of `box.schema`. The names of indexes are Tarantool's.
local function create_table(plan)
    for _, field in ipairs(plan.fields) do
        field.nullable_action = field.nullable_action or nullable_action(field.is_nullable)
        -- The format of `create` has the name; this refuses one that does not exist as SQL does.
        if field.collation then internal.sql_collation(field.collation) end
    end
    local engine = plan.engine or internal.setting('sql_default_engine')
    local space = box.schema.space.create(plan.name, { format = plan.fields, field_count = #plan.fields, engine = engine })
    for number, key in ipairs(plan.keys) do
        local parts, is_primary = {}, number == 1
        for place, part in ipairs(key) do parts[place] = part_of(part.field, plan.fields[part.field], part.collation) end
        local name = key.name or ('%s_unnamed_%s_%d'):format(is_primary and 'pk' or 'unique', plan.name, number)
        create_index(space, number - 1, name, true, parts)
    end
    -- AUTOINCREMENT: a sequence with the name of the space, which goes with it.
    if plan.sequence then
        local sequence = box.schema.sequence.create(plan.name, { min = 0, start = 1 })
        internal.change('insert', SPACE_SEQUENCE, 0, { space.id, sequence.id, true, plan.sequence - 1, '' })
    end
end

-- CREATE VIEW: a space without an index, whose options have the text of the statement.
local function create_view(plan)
    local format = internal.sql_view_fields(plan.fields)
    for _, field in ipairs(format) do field.nullable_action = nullable_action(field.is_nullable) end
    local last = internal.system_row(SCHEMA, 0, { 'max_id' })
    local id = last and last[2] or 511
    repeat id = id + 1 until not internal.system_row(SPACE, 0, { id })
    internal.change('replace', SCHEMA, 0, { 'max_id', id })
    internal.change('insert', SPACE, 0, {
        id, box.session.euid(), plan.name, 'memtx', #format, { sql = plan.fields, view = true }, format,
    })
end

local function no_such_space(name) internal.client_error('NO_SUCH_SPACE', ("Space '%s' does not exist"):format(name)) end

-- CREATE INDEX and DROP INDEX. `plan.fields` is the name of the space, `plan.keys` are names of fields.
local function define_index(plan, atomically)
    local space, creates = box.space[plan.fields], plan.kind == 'create index'
    if internal.sql_hides(plan.fields, false) then space = nil end
    if space == nil then
        if plan.is_optional and not creates then return 0 end
        no_such_space(plan.fields)
    end
    local index = space.index[plan.name]
    if creates then
        if index ~= nil and plan.is_optional then return 0 end
        if index ~= nil then fail(INDEX_EXISTS, ("Index '%s' already exists in space '%s'"):format(plan.name, space.name)) end
        if plan.constraint == 'primary' and space.index[0] then
            fail(CREATE_SPACE, ("Failed to create space '%s': primary key has been already declared"):format(space.name))
        end
        local parts, known = {}, {}
        local row = internal.system_row(SPACE, 0, { space.id })
        if row[6].view then
            fail(MODIFY_INDEX, ("Can't create or modify index '%s' in space '%s': views can not be indexed"):format(plan.name, space.name))
        end
        for _, part in ipairs(plan.keys) do
            local found
            local number
            for place, own in ipairs(row[7]) do if own.name == part.field then found, number = own, place end end
            if not found then fail(CANT_RESOLVE_FIELD, ("Can’t resolve field '%s'"):format(part.field)) end
            if not known[part.field] then
                parts[#parts + 1] = part_of(number, found, part.collation)
            end
            known[part.field] = true
        end
        local id = 0
        for number in pairs(space.index) do
            if type(number) == 'number' then id = math.max(id, number + 1) end
        end
        atomically(create_index, space, id, plan.name, plan.sequence, parts)
        if plan.constraint then return 0 end
    else
        if index == nil and plan.is_optional then return 0 end
        if index == nil then
            internal.client_error('NO_SUCH_INDEX_NAME', ("No index '%s' is defined in space '%s'"):format(plan.name, space.name))
        end
        atomically(index.drop, index)
    end
    return 1
end


-- The space with a name that the caller may know.
local function find_space(name)
    local space = box.space[name]
    if space == nil or internal.sql_hides(name, false) then no_such_space(name) end
    return space
end

-- The numbers of columns from 0, in the format of a space.
local function columns_of(key, format, names)
    local numbers = {}
    for place, name in ipairs(names) do
        for number, field in ipairs(format) do
            if field.name == name then numbers[place] = number - 1 end
        end
        if not numbers[place] then
            fail(CREATE_FOREIGN_KEY, ("Failed to create foreign key constraint '%s': foreign key refers to nonexistent field %s"):format(key.name, name))
        end
    end
    return numbers
end

local function add_foreign_key(child, key)
    local function wrong(reason)
        fail(CREATE_FOREIGN_KEY, ("Failed to create foreign key constraint '%s': %s"):format(key.name, reason))
    end
    local parent = find_space(key.parent)
    local child_row, parent_row = internal.system_row(SPACE, 0, { child.id }), internal.system_row(SPACE, 0, { parent.id })
    if parent_row[6].view then wrong("referenced space can't be VIEW") end
    local children, parents = columns_of(key, child_row[7], key.columns), {}
    if #key.parent_columns == 0 then
        if not parent.index[0] then wrong("referenced space doesn't feature PRIMARY KEY") end
        for place, part in ipairs(parent.index[0].parts) do parents[place] = part.fieldno - 1 end
    else
        parents = columns_of(key, parent_row[7], key.parent_columns)
    end
    if #children ~= #parents then
        wrong('number of columns in foreign key does not match the number of columns in the primary index of referenced table')
    end
    if internal.system_row(FK_CONSTRAINT, 0, { key.name, child.id }) then
        fail(CONSTRAINT_EXISTS, ("FOREIGN KEY constraint '%s' already exists in space '%s'"):format(key.name, child.name))
    end
    internal.change('insert', FK_CONSTRAINT, 0, {
        key.name, child.id, parent.id, key.is_deferred, key.matches, key.on_delete, key.on_update, children, parents,
    })
end

local function no_such_constraint(space, name)
    fail(NO_SUCH_CONSTRAINT, ("Constraint '%s' does not exist in space '%s'"):format(name, space.name))
end

local function add_check(space, name, text)
    if internal.system_row(CK_CONSTRAINT, 0, { space.id, name }) then
        fail(CONSTRAINT_EXISTS, ("CHECK constraint '%s' already exists in space '%s'"):format(name, space.name))
    end
    internal.change('insert', CK_CONSTRAINT, 0, { space.id, name, false, 'SQL', text, true })
end

local function switch_check(space, name, is_enabled)
    local row = internal.system_row(CK_CONSTRAINT, 0, { space.id, name })
    if not row then no_such_constraint(space, name) end
    internal.change('replace', CK_CONSTRAINT, 0, { row[1], row[2], row[3], row[4], row[5], is_enabled })
end

local function drop_constraint(space, name)
    local index = space.index[name]
    if internal.system_row(FK_CONSTRAINT, 0, { name, space.id }) then
        internal.change('delete', FK_CONSTRAINT, 0, { name, space.id })
    elseif internal.system_row(CK_CONSTRAINT, 0, { space.id, name }) then
        internal.change('delete', CK_CONSTRAINT, 0, { space.id, name })
    elseif index ~= nil and index.unique then
        index:drop()
    else
        no_such_constraint(space, name)
    end
end

local function create_trigger(plan)
    local trigger = plan.fields
    if internal.system_row(TRIGGER, 0, { plan.name }) then
        if plan.is_optional then return 0 end
        fail(TRIGGER_EXISTS, ("Trigger '%s' already exists"):format(plan.name))
    end
    local space = find_space(trigger.space)
    if space.id < FIRST_SPACE then fail(SQL_EXECUTE, 'Failed to execute SQL statement: cannot create trigger on system table') end
    local is_view = internal.system_row(SPACE, 0, { space.id })[6].view
    if is_view and trigger.time ~= 'instead' then
        fail(SQL_EXECUTE, ('Failed to execute SQL statement: cannot create %s trigger on view: %s'):format(trigger.time:upper(), space.name))
    end
    if not is_view and trigger.time == 'instead' then
        fail(SQL_EXECUTE, ('Failed to execute SQL statement: cannot create INSTEAD OF trigger on space: %s'):format(space.name))
    end
    internal.change('insert', TRIGGER, 0, { plan.name, space.id, { sql = trigger.text } })
    return 1
end

local function drop_trigger(plan)
    if not internal.system_row(TRIGGER, 0, { plan.name }) then
        if plan.is_optional then return 0 end
        fail(NO_SUCH_TRIGGER, ("Trigger '%s' doesn't exist"):format(plan.name))
    end
    internal.change('delete', TRIGGER, 0, { plan.name })
    return 1
end

-- Refuses the drop of a space that another space's foreign key refers to.
local function check_children(space)
    for _, row in ipairs(internal.system_rows(FK_CONSTRAINT, {})) do
        if row[3] == space.id and row[2] ~= space.id then
            fail(DROP_SPACE, ("Can't drop space '%s': other objects depend on it"):format(space.name))
        end
    end
end

local function truncate(plan)
    local space = find_space(plan.name)
    local reason
    for _, row in ipairs(internal.system_rows(FK_CONSTRAINT, {})) do
        if row[3] == space.id then reason = 'other objects depend on it' end
    end
    if not reason and internal.system_row(SPACE, 0, { space.id })[6].view then reason = 'space is a view' end
    if reason then
        fail(SQL_EXECUTE, ("Failed to execute SQL statement: can not truncate space '%s' because %s"):format(space.name, reason))
    end
    space:truncate()
    return 0
end

local function create(plan, space, atomically)
    if space ~= nil and plan.is_optional then return 0 end
    if plan.kind == 'create view' then
        if space ~= nil then internal.client_error('SPACE_EXISTS', ("Space '%s' already exists"):format(plan.name)) end
        atomically(create_view, plan)
        return 1
    end
    atomically(function()
        create_table(plan)
        local unnamed = 0
        for _, key in ipairs(plan.foreign) do
            if not key.name then unnamed = unnamed + 1 end
            key.name = key.name or ('fk_unnamed_%s_%d'):format(plan.name, unnamed)
            add_foreign_key(box.space[plan.name], key)
        end
        -- The newest check is asked first, as in Tarantool, whose statement writes the last one first.
        unnamed = 0
        for _, check in ipairs(plan.checks) do
            if not check.name then unnamed = unnamed + 1 end
            check.name = check.name or ('ck_unnamed_%s_%d'):format(plan.name, unnamed)
        end
        for place = #plan.checks, 1, -1 do
            add_check(box.space[plan.name], plan.checks[place].name, plan.checks[place].text)
        end
    end)
    return 1
end

local function drop(plan, space, atomically)
    if space == nil and plan.is_optional then return 0 end
    if space == nil then no_such_space(plan.name) end
    local word = internal.system_row(SPACE, 0, { space.id })[6].view and 'VIEW' or 'TABLE'
    if (word == 'VIEW') ~= (plan.kind == 'drop view') then
        fail(DROP_SPACE, ("Can't drop space '%s': use DROP %s"):format(space.name, word))
    end
    check_children(space)
    atomically(space.drop, space)
    return 1
end

-- The texts of triggers name their space.
local function rename(space, name)
    space:rename(name)
    for _, row in ipairs(internal.system_rows(TRIGGER, {})) do
        if row[2] == space.id then
            internal.change('replace', TRIGGER, 0, { row[1], row[2], { sql = internal.sql_renamed_trigger(row[3].sql, name) } })
        end
    end
end

local others = {
    ['truncate'] = truncate,
    ['create trigger'] = create_trigger,
    ['drop trigger'] = drop_trigger,
    ['add foreign key'] = function(plan)
        add_foreign_key(find_space(plan.name), plan.fields)
        return 1
    end,
    ['drop constraint'] = function(plan)
        drop_constraint(find_space(plan.fields), plan.name)
        return 1
    end,
    ['add check'] = function(plan)
        add_check(find_space(plan.fields), plan.name, plan.keys)
        return 1
    end,
    ['enable check'] = function(plan)
        switch_check(find_space(plan.fields), plan.name, true)
        return 0
    end,
    ['disable check'] = function(plan)
        switch_check(find_space(plan.fields), plan.name, false)
        return 0
    end,
    ['rename'] = function(plan, atomically)
        local space = find_space(plan.name)
        if box.space[plan.fields] ~= nil then internal.client_error('SPACE_EXISTS', ("Space '%s' already exists"):format(plan.fields)) end
        atomically(rename, space, plan.fields)
        return 0
    end,
}

local definitions = {}

-- Makes a definition. Returns the number of objects that it has changed.
function definitions.define(plan, atomically)
    if others[plan.kind] then return others[plan.kind](plan, atomically) end
    if plan.kind:match(' index$') then return define_index(plan, atomically) end
    local space, creates = box.space[plan.name], plan.kind:match('^create') ~= nil
    if internal.sql_hides(plan.name, creates) then space = nil end
    if creates then return create(plan, space, atomically) end
    return drop(plan, space, atomically)
end

return definitions
