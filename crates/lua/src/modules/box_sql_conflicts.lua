-- What becomes of a row whose key another row has: the word behind OR of an INSERT or UPDATE.
local internal = require('lycosa.box')

local INDEX = 288

-- `ER_TUPLE_FOUND`, `ER_CANT_UPDATE_PRIMARY_KEY`, `ER_CK_CONSTRAINT_FAILED`.
local REFUSALS = { [3] = true, [94] = true, [196] = true }

local conflicts = {}

-- The unique keys of the space that a plan changes, the primary one first: each with the number of its index, and of its fields from 1.
-- Keys that a function computes or that lie below a field are left to the index.
function conflicts.keys_of(plan)
    if plan.unique_keys then return plan.unique_keys end
    local keys = {}
    for _, row in ipairs(internal.system_rows(INDEX, { plan.space })) do
        local key, is_plain = { id = row[2] }, row[5].unique and row[5].func == nil
        for place, part in ipairs(row[6]) do
            local field = part.field or part[1]
            if part.path ~= nil or type(field) ~= 'number' then is_plain = false else key[place] = field + 1 end
        end
        if is_plain then keys[#keys + 1] = key end
    end
    plan.unique_keys = keys
    return keys
end

local function values_of(row, key)
    local values = {}
    for place, field in ipairs(key) do
        local value = row[field]
        if value == nil then return nil end
        values[place] = value
    end
    return values
end

-- The row that has a key of another one; nil for none. A key with NULL equals no other.
local function owner_of(space, key, row)
    local values = values_of(row, key)
    return values and internal.system_row(space, key.id, values)
end

-- Whether a row has a key that another row, or its own former state, has. Only keys of fields that are written count.
function conflicts.is_taken(space, keys, row, written)
    for _, key in ipairs(keys) do
        local is_written = false
        for _, field in ipairs(key) do is_written = is_written or written[field] end
        if is_written and owner_of(space, key, row) then return true end
    end
    return false
end

-- Removes the rows that have keys of a row: `remove` gets the primary key of each, and whether the new row takes its place. Returns the
-- sum of what it returns, and whether all are gone.
function conflicts.remove(space, keys, row, remove)
    local count, primary = 0, keys[1]
    for _, key in ipairs(keys) do
        local owner = owner_of(space, key, row)
        if owner then
            local removed = remove(values_of(owner, primary), key == primary)
            if removed == 0 then return count, false end
            count = count + removed
        end
    end
    return count, true
end

-- Whether an error says that a key or a constraint forbids a row.
function conflicts.is_refusal(failure)
    if not box.error.is(failure) then return false end
    return REFUSALS[failure.code] or tostring(failure):find('NOT NULL constraint failed', 1, true) ~= nil
end

-- Calls a change whose refusal means nothing. Returns the new row, or nil.
function conflicts.ignoring(change, ...)
    local done, result = pcall(change, ...)
    if done then return result end
    if not conflicts.is_refusal(result) then error(result, 0) end
    return nil
end

-- A body that returns nil and the error when a key or a constraint forbids a row, so that the changes before it stay.
function conflicts.keeping(body)
    return function(...)
        local done, count, ids = pcall(body, ...)
        if done then return count, ids end
        if not conflicts.is_refusal(count) then error(count, 0) end
        return nil, count
    end
end

return conflicts
