-- Triggers: lists of functions, triggers of spaces and of transactions.
--
-- A statement of a program or of a client on a space with triggers runs here: `before_replace` decides about it, then
-- `on_replace` sees it, inside its transaction; an error takes it back. Operations of the queue that a program or a client
-- asks for run their triggers in the same way. What the server does by itself (deadlines, expiration, sessions that end,
-- waiting takes, rows of a master) is committed first; an error of a trigger is logged and counted then.
local internal = require('lycosa.box')
local fiber = require('fiber')
local client_error = internal.client_error
-- A program may change the module; this has to be right all the same.
local fiber_id = fiber.id

-- Lists of triggers: `list(new, old)` adds, replaces or removes; `list()` shows them, the newest first.
local function is_callable(value)
    return type(value) == 'function' or (type(value) == 'table' and (getmetatable(value) or {}).__call ~= nil)
end

local function trigger_list(changed)
    local list = {}
    local function set(new, old)
        if type(new) == 'nil' and type(old) == 'nil' then
            local shown = {}
            for i = #list, 1, -1 do shown[#shown + 1] = list[i] end
            return shown
        end
        if not (is_callable(new) or (new == nil and is_callable(old))) or not (is_callable(old) or type(old) == 'nil') then
            error('trigger reset: incorrect arguments', 0)
        end
        if old ~= nil then
            local place
            for i, known in ipairs(list) do if known == old then place = i end end
            if not place then error('trigger reset: Trigger is not found', 0) end
            if new ~= nil then list[place] = new else table.remove(list, place) end
        else
            list[#list + 1] = new
        end
        if changed then changed(list) end
        if new == nil then return end
        return new
    end
    return list, set
end
internal.trigger_list = trigger_list

-- Calls a trigger within the time that hooks have; raises what it raises, as an error object.
local function guarded(done, ...)
    if done then return ... end
    local failure = ...
    if not box.error.is(failure) then
        failure = internal.new_error('LuajitError', nil, tostring(failure))
        box.error.set(failure)
    end
    error(failure, 0)
end
local function call(trigger, ...) return guarded(internal.hook_call(trigger, ...)) end

-- Clients cause any number of such lines.
local function log_failure(text) require('lycosa.log').sampled('hook', text) end

-- Calls triggers whose errors change nothing.
-- A failure of one is that of all: the others do not run.
function internal.run_until_failure(list, ...)
    for i = #list, 1, -1 do
        local done, message, text = internal.hook_call(list[i], ...)
        if not done then
            log_failure(text)
            error(message, 0)
        end
    end
end
function internal.run_list(list, ...)
    for i = #list, 1, -1 do
        local done, _, text = internal.hook_call(list[i], ...)
        if not done then log_failure(text) end
    end
end

-- Transactions.

-- Triggers of open transactions and how deep in statements they are, by fiber.
local transactions, depths = {}, {}
-- How many statements of any fiber have triggers under way, and how deep statements of triggers may be.
local under_way, MOST_NESTED = 0, 4

local function check_no_statement(code, text)
    if (depths[fiber_id()] or 0) > 0 then client_error(code, text) end
end

-- The triggers of a transaction's end walk over its changes; nothing does that afterwards.
local function walk(changes, backwards)
    local function check()
        if changes.are_over then client_error('CURSOR_NO_TRANSACTION', 'The transaction the cursor belongs to has ended') end
    end
    return function()
        check()
        local place = 0
        return function()
            check()
            place = place + 1
            local change = changes[backwards and #changes + 1 - place or place]
            if change then return place, change.old, change.new, change.space end
        end
    end
end

local function run_behind(list, changes, backwards)
    for _, trigger in ipairs(list) do
        local done, _, text = internal.hook_call(trigger, walk(changes, backwards))
        if not done then log_failure(text) end
    end
    changes.are_over = true
end

function box.begin()
    internal.begin()
    transactions[fiber_id()] = nil
end

local function changes_of(own)
    if not own then return {} end
    local done, changes = pcall(internal.changes)
    return done and changes or {}
end

function box.commit()
    check_no_statement('COMMIT_IN_SUB_STMT', 'Can not commit transaction in a nested statement')
    if internal.check_foreign_keys then
        local done, failure = pcall(internal.check_foreign_keys)
        if not done then
            box.rollback()
            error(failure, 0)
        end
    end
    local id = fiber_id()
    local own = transactions[id]
    if not own then return internal.commit() end
    transactions[id] = nil
    local changes = changes_of(own)
    local done, message = pcall(internal.commit)
    if not done then
        run_behind(own.on_rollback, changes, true)
        error(message, 0)
    end
    run_behind(own.on_commit, changes)
end

local function rollback()
    local id = fiber_id()
    local own = transactions[id]
    if not own then return internal.rollback() end
    transactions[id] = nil
    local changes = changes_of(own)
    internal.rollback()
    run_behind(own.on_rollback, changes, true)
end

function box.rollback()
    check_no_statement('ROLLBACK_IN_SUB_STMT', 'Rollback called in a nested statement')
    return rollback()
end

-- What has left its transaction open has ended: a fiber, a request, a trigger.
internal.leave_transaction = rollback

-- How deep in statements a savepoint was taken: a trigger has no way back behind its statement.
local levels = setmetatable({}, { __mode = 'k' })

function box.savepoint()
    local savepoint = internal.savepoint()
    levels[savepoint] = depths[fiber_id()] or 0
    return savepoint
end

function box.rollback_to_savepoint(savepoint)
    local level = savepoint ~= nil and levels[savepoint]
    if level and internal.in_txn() and level ~= (depths[fiber_id()] or 0) then
        client_error('NO_SUCH_SAVEPOINT', 'Can not rollback to savepoint: the savepoint does not exist')
    end
    return internal.rollback_to(savepoint)
end
local in_txn = internal.in_txn
function box.is_in_txn(...)
    if select('#', ...) > 0 then error('wrong number of arguments for function call', 2) end
    return in_txn()
end

local function finish_atomic(done, ...)
    if done then
        box.commit()
        return ...
    end
    box.rollback()
    error((...), 0)
end

function box.atomic(body, ...)
    box.begin()
    return finish_atomic(pcall(body, ...))
end

for _, name in ipairs({ 'on_commit', 'on_rollback' }) do
    box[name] = function(new, old)
        if not internal.in_txn() then
            error(('Usage inside a transaction: box.%s([function | nil, [function | nil]])'):format(name), 0)
        end
        local id = fiber_id()
        local own = transactions[id]
        if not own then
            own = { on_commit = {}, on_rollback = {} }
            own.on_commit, own.set_on_commit = trigger_list()
            own.on_rollback, own.set_on_rollback = trigger_list()
            transactions[id] = own
        end
        return own['set_' .. name](new, old)
    end
end

-- Triggers of spaces, by number; they outlive changes of the schema and end with the space.
local spaces = {}

local function triggers_of(space)
    local triggers = spaces[space]
    if not triggers then
        triggers = { enabled = true }
        local function changed()
            triggers.any = triggers.enabled and (#triggers.before > 0 or #triggers.after > 0)
            internal.set_hooks(space, triggers.any and #triggers.before > 0, triggers.any)
            internal.find_hooked_tubes()
        end
        triggers.changed = changed
        triggers.before, triggers.set_before = trigger_list(changed)
        triggers.after, triggers.set_after = trigger_list(changed)
        spaces[space] = triggers
    end
    return triggers
end

function internal.set_before_replace(space, ...) return triggers_of(space).set_before(...) end
function internal.set_on_replace(space, ...) return triggers_of(space).set_after(...) end
function internal.run_triggers(space, enabled)
    local triggers = triggers_of(space)
    triggers.enabled = enabled
    triggers.changed()
end
function internal.forget_triggers(space) spaces[space] = nil end

-- A space whose statements a module executes, and not the store: `change(kind, key or tuple, operations, base)`.
function internal.set_service(space, change)
    local triggers = triggers_of(space)
    triggers.change = change
end

local function name_of(space)
    local found = box.space[space]
    return found and found.name
end

-- What the before triggers make of a new tuple. A trigger that returns nothing leaves it as it is.
local function decide(triggers, space, old, new, kind)
    local decided = new
    local function take(...)
        if select('#', ...) == 0 then return end
        local value = ...
        if value ~= nil and not box.tuple.is(value) then
            client_error('BEFORE_REPLACE_RET',
                ('Invalid return value of space:before_replace trigger: expected tuple or nil, got %s'):format(type(value)))
        end
        decided = value
    end
    for i = #triggers.before, 1, -1 do take(call(triggers.before[i], old, decided, name_of(space), kind)) end
    return decided
end

local function run_after(change)
    local triggers = spaces[change.space]
    if not triggers or not triggers.any then return end
    for i = #triggers.after, 1, -1 do
        call(triggers.after[i], change.old, change.new, name_of(change.space), change.kind)
    end
end

local function run_statement(triggers, kind, space, index, key, operations, base)
    local place = internal.savepoint()
    local result, proposal, old, new = internal.submit(kind, space, index, key, operations, base)
    if proposal then
        local decided = decide(triggers, space, old, new, kind:upper())
        place = internal.savepoint()
        if rawequal(decided, new) then
            result = internal.decide(proposal, 'proceed')
        elseif decided == nil then
            result = internal.decide(proposal, old ~= nil and new ~= nil and 'remove' or 'skip')
        elseif rawequal(decided, old) then
            result = internal.decide(proposal, 'skip')
        else
            result = internal.decide(proposal, 'put', decided)
        end
    end
    for _, change in ipairs(internal.changes(place, true)) do run_after(change) end
    return result
end

-- A statement of the fiber begins its triggers, and ends them.
local function enter(id)
    under_way = under_way + 1
    depths[id] = (depths[id] or 0) + 1
end
local function leave(id)
    under_way = under_way - 1
    depths[id] = depths[id] > 1 and depths[id] - 1 or nil
end

-- Runs `body` as a part of a transaction that fails alone, with triggers inside.
local function with_triggers(body, ...)
    local own, id = not internal.in_txn(), fiber_id()
    local place
    if own then box.begin() else place = internal.savepoint() end
    enter(id)
    local done, result = pcall(body, ...)
    leave(id)
    if not done then
        if own then
            box.rollback()
        elseif internal.in_txn() then
            pcall(internal.rollback_to, place)
        end
        error(result, 0)
    end
    if own then box.commit() end
    return result
end

local function run_all_after(changes)
    for _, done in ipairs(changes) do run_after(done) end
end

local function run_after_one(triggers, space, kind, old, new)
    if not triggers.any then return end
    local name = name_of(space)
    for i = #triggers.after, 1, -1 do call(triggers.after[i], old, new, name, kind) end
end

-- A statement on a space whose triggers only see what it did, as `with_triggers(run_statement, ...)` does it.
local function change_seen(triggers, kind, space, index, key, operations, base)
    local id, place, result, changes, done_as, old, new =
        internal.execute_seen(kind, space, index, key, operations, base)
    if not place then transactions[id] = nil end
    enter(id)
    local done, message = true, nil
    if changes then
        done, message = pcall(run_all_after, changes)
    elseif done_as then
        done, message = pcall(run_after_one, triggers, space, done_as, old, new)
    end
    leave(id)
    if not done then
        if not place then
            box.rollback()
        elseif internal.in_txn() then
            pcall(internal.rollback_to, place)
        end
        error(message, 0)
    end
    if not place then box.commit() end
    return result
end

-- Executes a statement with the triggers of its space.
local function change(kind, space, index, key, operations, base)
    if under_way > 0 and (depths[fiber_id()] or 0) >= MOST_NESTED then
        client_error('SUB_STMT_MAX', 'Can not execute a nested statement: nesting limit reached')
    end
    local triggers = spaces[space]
    if triggers and triggers.change then return triggers.change(kind, key, operations, base) end
    if not triggers or not triggers.any then
        return internal.execute(kind, space, index, key, operations, base)
    end
    local result
    if #triggers.before > 0 then
        result = with_triggers(run_statement, triggers, kind, space, index, key, operations, base)
    else
        result = change_seen(triggers, kind, space, index, key, operations, base)
    end
    if result ~= nil then return result end
end
internal.change = change

-- A change that is committed already.
function internal.replaced(change_done)
    local triggers = spaces[change_done.space]
    if not triggers or not triggers.any then return end
    for i = #triggers.after, 1, -1 do
        local done, _, text = internal.hook_call(triggers.after[i], change_done.old, change_done.new,
            name_of(change_done.space), change_done.kind)
        if not done then
            log_failure(('on_replace of space "%s": %s'):format(tostring(name_of(change_done.space)), text))
        end
    end
end

-- The queue's operations on tubes whose spaces have triggers.

-- Whether a space of the queue has triggers.
function internal.find_hooked_tubes()
    local found = false
    local tubes = {}
    for _, row in ipairs(internal.queue_rows()) do tubes[row[3]] = true end
    for space, triggers in pairs(spaces) do
        local name = triggers.any and name_of(space)
        if name and (name:match('^_queue') or tubes[name] or tubes[name:gsub('_ready_buffer$', '')]) then found = true end
    end
    internal.has_hooked_tubes = found
    internal.set_hooked_queue(found)
end

local SHORT = { put = true, take = true, touch = true, ack = true, release = true, peek = true, bury = true,
    kick = true, delete = true }

-- What a before trigger makes of a change that the queue has made: another tuple takes its place.
local function correct(done)
    local triggers = spaces[done.space]
    if not triggers or not triggers.any or #triggers.before == 0 then return nil end
    local decided = decide(triggers, done.space, done.old, done.new, done.kind)
    if rawequal(decided, done.new) then return nil end
    if decided == nil and done.new ~= nil then
        client_error('UNSUPPORTED', 'Lycosa does not support before_replace triggers that skip an operation of the queue: '
            .. 'raise an error to refuse it')
    end
    if decided ~= nil then return internal.execute('replace', done.space, 0, decided) end
end

local function run_operation(name, arguments)
    local place = internal.savepoint()
    local results = { internal.call(name, arguments) }
    results.n = select('#', unpack(results))
    -- Owners are noted in memory first; a trigger on their space wants rows.
    local owners = box.space._queue_taken_2
    if owners and spaces[owners.id] and spaces[owners.id].any then owners:len() end
    local changes = internal.changes(place, true)
    results.changed = #changes > 0
    for _, done in ipairs(changes) do
        local corrected = correct(done)
        if corrected ~= nil then
            done.new = corrected
            local task = results[1]
            if type(task) == 'table' and task[1] == corrected[1] and #task >= 3 then
                task[3] = corrected[#corrected]
            end
        end
    end
    for _, done in ipairs(changes) do run_after(done) end
    return results
end

-- A native call, with triggers if it changes a space of the queue that has them.
function internal.hooked_call(name, ...)
    local arguments = { n = select('#', ...), ... }
    local method = name:match('^queue%.tube%..+:([%w_]+)$')
    if not SHORT[method] then return internal.call(name, arguments) end
    local own = not internal.in_txn()
    local results = with_triggers(run_operation, name, arguments)
    if own then internal.tell_callbacks() end
    if own and method == 'take' and not results.changed then return internal.call(name, arguments) end
    return unpack(results, 1, table.maxn(results))
end

-- A program's own list of triggers is a table of its functions, the oldest first: `#list` counts them and `table.clear`
-- empties it.
return { new = function(name)
    return setmetatable({}, {
        __index = {
            name = name,
            run = function(own, ...)
                for _, trigger in ipairs(table.copy(own)) do trigger(...) end
            end,
        },
        -- `list(new)` adds, `list(new, old)` replaces, `list(nil, old)` removes and returns `old`, `list()` is a copy.
        __call = function(own, new, old)
            if new == nil and old == nil then return table.copy(own, true) end
            if new ~= nil and not is_callable(new) or old ~= nil and not is_callable(old) then
                error(('Usage: %s(callable)'):format(name), 2)
            end
            if old == nil then
                own[#own + 1] = new
                return
            end
            for place, known in ipairs(own) do
                if known == old then
                    if new == nil then table.remove(own, place) else own[place] = new end
                    return old
                end
            end
            error(('%s: trigger is not found'):format(name), 2)
        end,
    })
end }
