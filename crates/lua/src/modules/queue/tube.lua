-- Tubes whose drivers are Lua: what the native queue does around a driver, for drivers that a program registers.
--
-- A driver gets a space, a function `on_task_change(task, operation)` and the tube's options. Owners of its tasks are rows of
-- `_queue_taken_2` as those of native tubes; sessions are the native queue's. An operation and its bookkeeping are one
-- transaction. Waiting takes are woken, operations counted, and the tube's callback called when it is committed.
-- Tasks of a session that has ended become ready soon after; so do tasks that are taken when the tube is loaded.
local internal = require('lycosa.box')
local fiber = require('fiber')
local log = require('log')
local sampled = require('lycosa.log').sampled

local READY, TAKEN, DONE, BURIED = 'r', 't', '-', '!'
local MAX_TIMEOUT = 100 * 365 * 86400
local REQUIRED = {
    'normalize_task', 'put', 'take', 'delete', 'release', 'bury', 'kick', 'peek', 'touch', 'truncate', 'tasks_by_state',
}
local COUNTED = { 'ack', 'bury', 'delay', 'delete', 'kick', 'put', 'release', 'take', 'touch', 'ttl', 'ttr' }

local queue, controls, tubes = nil, {}, {}
local checked = {}
local module = {}

local function nothing() end

local function refuse(method)
    if queue.is_running() then return false end
    sampled('refused', ('%s: queue is in %s state'):format(method, queue.state()))
    return true
end

-- What follows from the changes of an operation, at its end.
local function wake_one(tube)
    for _, waiter in ipairs(tube.waiters) do
        if not waiter.called then
            waiter.called = true
            waiter.cond:signal()
            return
        end
    end
end

local function finish(events)
    for _, event in ipairs(events) do
        local tube, task, operation = event[1], event[2], event[3]
        if operation ~= nil then
            tube.counts[operation] = (tube.counts[operation] or 0) + 1
            if operation == 'delete' or operation == 'ack' then tube.done = tube.done + 1 end
        end
        if task ~= nil and task[2] == READY then wake_one(tube) end
    end
    for _, event in ipairs(events) do
        local tube, task, operation = event[1], event[2], event[3]
        if operation == 'ack' then operation = 'delete' end
        if tube.callback ~= nothing then
            local done, _, text = internal.hook_call(tube.callback, task, operation)
            if not done then
                sampled('hook', ('on_task_change of tube "%s": %s'):format(tube.object.name, text))
            end
        end
    end
end

-- Changes of the operations under way, by fiber.
local collected = {}

local function tail(id, former, events, done, ...)
    collected[id] = former
    if not done then error((...), 0) end
    if box.is_in_txn() then
        if #events > 0 then box.on_commit(function() finish(events) end) end
    else
        finish(events)
    end
    return ...
end

-- Runs an operation as one transaction, and what follows from it afterwards.
local function operate(body, ...)
    local id = fiber.id()
    local former, events = collected[id], {}
    collected[id] = events
    if box.is_in_txn() then return tail(id, former, events, pcall(body, ...)) end
    return tail(id, former, events, pcall(box.atomic, body, ...))
end

local function owner_of(tube, id) return box.space._queue_taken_2:get({ tube.object.tube_id, id }) end

local function disown(tube, id)
    if owner_of(tube, id) ~= nil then box.space._queue_taken_2:delete({ tube.object.tube_id, id }) end
end

-- Whether two rows of owners are of the same take.
local function is_same_take(row, other)
    if row == nil or other == nil then return row == other end
    return row[4] == other[4] and row[5] == other[5]
end

-- Whether the driver has a task as taken now. A driver whose `peek` fails has no such task.
local function is_taken(tube, id)
    local raw = tube.raw
    if raw == nil then return false end
    local done, task = pcall(function() return raw:normalize_task(raw:peek(id)) end)
    return done and task ~= nil and task[2] == TAKEN
end

-- Notes what a driver has done to a task. Where the driver changes a task outside a transaction, the change waits for the disk
-- and others see it before it is noted: the task may be taken by then, and its new owner keeps it.
local function note(tube, task, operation)
    if task ~= nil then
        if task[2] == TAKEN then
            disown(tube, task[1])
            local session = queue.identify()
            box.space._queue_taken_2:insert({
                tube.object.tube_id, task[1], (internal.session()), session, fiber.time64(),
            })
        elseif owner_of(tube, task[1]) ~= nil and not is_taken(tube, task[1]) then
            disown(tube, task[1])
        end
    end
    local events = collected[fiber.id()]
    if events then
        events[#events + 1] = { tube, task, operation }
    else
        finish({ { tube, task, operation } })
    end
end

local function check_owner(tube, id)
    local row = owner_of(tube, id)
    if row == nil or row[4] ~= queue.identify() then error('Task was not taken', 0) end
end

-- Methods of tube objects.

local methods = {}

local function tube_behind(self)
    local tube = tubes[self.name]
    if not tube or tube.object ~= self then error(('Tube "%s" was dropped or loaded again'):format(self.name), 3) end
    return tube
end

function methods.put(self, data, options)
    if refuse('put') then return nil end
    local raw = tube_behind(self).raw
    -- A put that waits for free places waits before the transaction.
    if options and options.timeout ~= nil then
        local id = fiber.id()
        local events, former = {}, collected[id]
        collected[id] = events
        return tail(id, former, events, pcall(function() return raw:normalize_task(raw:put(data, options)) end))
    end
    return operate(function() return raw:normalize_task(raw:put(data, options or {})) end)
end

local function try_take(tube, ...)
    local raw, extra = tube.raw, { n = select('#', ...), ... }
    return operate(function() return raw:normalize_task(raw:take(unpack(extra, 1, extra.n))) end)
end

local function leave(tube, waiter)
    for i, other in ipairs(tube.waiters) do
        if other == waiter then
            table.remove(tube.waiters, i)
            break
        end
    end
end

local function wait_for_task(tube, waiter, timeout, ...)
    local until_when = fiber.clock() + timeout
    while true do
        local rest = until_when - fiber.clock()
        if rest <= 0 then return nil end
        waiter.cond:wait(rest)
        if waiter.is_closing then return nil end
        waiter.called = false
        local task = try_take(tube, ...)
        if task ~= nil then return task end
    end
end

function methods.take(self, timeout, ...)
    if refuse('take') then return nil end
    local tube = tube_behind(self)
    local task = try_take(tube, ...)
    if task ~= nil then return task end
    timeout = timeout == nil and MAX_TIMEOUT or timeout
    -- Without a task there is no value at all, so that clients get an empty list.
    if timeout <= 0 or box.is_in_txn() then return end
    local waiter = { cond = fiber.cond(), session = (internal.session()) }
    table.insert(tube.waiters, waiter)
    local done, result = pcall(wait_for_task, tube, waiter, timeout, ...)
    leave(tube, waiter)
    -- A call that comes too late for this one goes to the next.
    if waiter.called then wake_one(tube) end
    if not done then error(result, 0) end
    if result ~= nil then return result end
end

function methods.ack(self, id)
    if refuse('ack') then return nil end
    local tube = tube_behind(self)
    return operate(function()
        check_owner(tube, id)
        self:peek(id)
        disown(tube, id)
        local task = tube.raw:delete(id)
        for _, event in ipairs(collected[fiber.id()]) do
            if event[3] == 'delete' then event[3] = 'ack' end
        end
        return tube.raw:normalize_task(task and task:transform(2, 1, DONE))
    end)
end

function methods.release(self, id, options)
    if refuse('release') then return nil end
    local tube = tube_behind(self)
    return operate(function()
        check_owner(tube, id)
        self:peek(id)
        disown(tube, id)
        return tube.raw:normalize_task(tube.raw:release(id, options or {}))
    end)
end

function methods.touch(self, id, delta)
    if refuse('tube') or delta == nil or delta <= 0 then return end
    local tube = tube_behind(self)
    local micros = delta > MAX_TIMEOUT and 18446744073709551615ULL or math.floor(delta * 1000000)
    return operate(function()
        check_owner(tube, id)
        return tube.raw:normalize_task(tube.raw:touch(id, micros))
    end)
end

function methods.peek(self, id)
    if refuse('peek') then return nil end
    local raw = tube_behind(self).raw
    local task = raw:peek(id)
    if task == nil then error(('Task %s not found'):format(tostring(id)), 0) end
    return raw:normalize_task(task)
end

function methods.bury(self, id)
    if refuse('bury') then return nil end
    local tube = tube_behind(self)
    return operate(function()
        local task = self:peek(id)
        if task[2] == BURIED then return task end
        return tube.raw:normalize_task(tube.raw:bury(id))
    end)
end

function methods.kick(self, count)
    if refuse('kick') then return nil end
    local raw = tube_behind(self).raw
    return operate(function() return raw:kick(count or 1) end)
end

function methods.delete(self, id)
    if refuse('delete') then return nil end
    local raw = tube_behind(self).raw
    return operate(function()
        self:peek(id)
        return raw:normalize_task(raw:delete(id))
    end)
end

-- The tasks that are taken now: each one's number and the row of its owner.
local function taken_tasks(tube)
    local taken = {}
    for _, task in tube.raw:tasks_by_state(TAKEN) do
        taken[#taken + 1] = { id = task[1], owner = owner_of(tube, task[1]) }
    end
    return taken
end

-- Releases tasks of `taken_tasks`. Each release waits for the disk; a task that has another owner by then stays with it.
local function release_tasks(tube, tasks)
    for _, task in ipairs(tasks) do
        local done, message = pcall(operate, function()
            if not is_taken(tube, task.id) or not is_same_take(owner_of(tube, task.id), task.owner) then return end
            disown(tube, task.id)
            tube.raw:release(task.id, {})
        end)
        if not done then
            sampled('driver', ('task %s of tube "%s" was not released: %s'):format(tostring(task.id), tube.object.name,
                tostring(message)))
        end
    end
end

function methods.release_all(self)
    if refuse('tube') then return end
    local tube = tube_behind(self)
    release_tasks(tube, taken_tasks(tube))
end

function methods.truncate(self)
    if refuse('tube') then return end
    local tube = tube_behind(self)
    local owners = box.space._queue_taken_2:select({ self.tube_id })
    tube.raw:truncate()
    operate(function()
        for _, row in ipairs(owners) do
            if is_same_take(owner_of(tube, row[2]), row) then disown(tube, row[2]) end
        end
    end)
end

local function close(tube)
    if tube.raw and tube.raw.stop then
        local done, message = pcall(tube.raw.stop, tube.raw)
        if not done then log.error('tube "%s" was not stopped: %s', tube.object.name, tostring(message)) end
    end
end

function methods.drop(self)
    if refuse('drop') then return nil end
    local tube = tube_behind(self)
    if #tube.waiters > 0 then error('There are consumers connected the tube', 2) end
    if box.space._queue_taken_2:count({ self.tube_id }) > 0 then error('There are taken tasks in the tube', 2) end
    close(tube)
    if tube.raw.drop then tube.raw:drop() else tube.space:drop() end
    box.space._queue:delete(self.name)
    tubes[self.name] = nil
    return true
end

function methods.on_task_change(self, callback)
    local tube = tube_behind(self)
    local former = tube.callback
    if callback ~= nil and type(callback) ~= 'function' then error('on_task_change: a function is expected', 2) end
    tube.callback = callback or nothing
    return former
end

local SHARED_SPACES = { '_queue_consumers', '_queue_taken_2', '_queue_session_ids', '_queue_shared_sessions' }
local GRANTED = { 'put', 'take', 'touch', 'ack', 'release', 'peek', 'bury', 'kick', 'delete' }

local function grant_with(grant, self, name, options, own_grant)
    options = options or {}
    local once = { if_not_exists = true }
    grant(name, 'read', 'space', '_queue', once)
    for _, space in ipairs(SHARED_SPACES) do grant(name, 'read,write', 'space', space, once) end
    if own_grant then own_grant(self.raw, name, options) end
    local function functions(list)
        for _, body in ipairs(list) do
            box.schema.func.create(body, once)
            grant(name, 'execute', 'function', body, once)
        end
    end
    local prefix = (options.prefix or 'queue.tube') .. '.' .. self.name .. ':'
    if options.call then
        functions({ 'queue.identify', 'queue.statistics' })
        for _, method in ipairs(GRANTED) do functions({ prefix .. method }) end
    end
    if options.truncate then functions({ prefix .. 'truncate' }) end
end

function methods.grant(self, user, options)
    if refuse('grant') then return end
    local tube = tube_behind(self)
    local own = tube.raw.grant or function(_, name)
        box.schema.user.grant(name, 'read,write', 'space', tube.space.name, { if_not_exists = true })
    end
    grant_with(box.schema.user.grant, self, user, options, own)
end

function methods.grant_role(self, role, options)
    if refuse('grant') then return end
    local tube = tube_behind(self)
    if not tube.raw.grant_role and tube.raw.grant then
        error(('Tube %s driver does not support grant_role()'):format(self.name), 2)
    end
    local own = tube.raw.grant_role or function(_, name)
        box.schema.role.grant(name, 'read,write', 'space', tube.space.name, { if_not_exists = true })
    end
    grant_with(box.schema.role.grant, self, role, options, own)
end

local object_mt = {
    __index = methods,
    __serialize = function(self) return { name = self.name, type = self.type, tube_id = self.tube_id, opts = self.opts } end,
}

-- Making, loading and ending tubes.

local function open_tube(name, id, space, kind, options, callback)
    local tube = { space = space, waiters = {}, counts = {}, done = 0, callback = callback or nothing }
    tube.object = setmetatable({ name = name, type = kind, tube_id = id, opts = options }, object_mt)
    local former = tubes[name]
    if former then close(former) end
    local raw = controls[kind].new(space, function(task, operation) note(tube, task, operation) end, options)
    if not checked[kind] then
        for _, method in ipairs(REQUIRED) do
            if type(raw) ~= 'table' or raw[method] == nil then
                error(('The "%s" driver does not have an implementation of method "%s".'):format(kind, method), 0)
            end
        end
        checked[kind] = true
    end
    tube.raw = raw
    tube.object.raw = raw
    tubes[name] = tube
    return tube
end

local function load_row(row)
    local name, id, space_name, kind, options = row:unpack()
    local space = box.space[space_name]
    if space == nil then error(("Space '%s' doesn't exists"):format(space_name), 0) end
    local tube = open_tube(name, id, space, kind, options)
    release_tasks(tube, taken_tasks(tube))
    return tube
end

-- Loads the tubes of a type, or of all types, that are not loaded yet.
function module.load(kind)
    if not queue.is_running() then return end
    internal.set_program_tubes()
    for _, row in ipairs(internal.queue_rows()) do
        if controls[row[4]] and (kind == nil or row[4] == kind) and not tubes[row[1]] then
            local done, message = pcall(load_row, row)
            if not done then log.error('tube "%s" was not loaded: %s', row[1], tostring(message)) end
        end
    end
end

function module.create(name, kind, options, row)
    if queue.driver[kind] ~= controls[kind] then error('Unknown tube type ' .. tostring(kind), 3) end
    if options.if_not_exists == nil then options.if_not_exists = false end
    if options.temporary and queue.cfg.in_replicaset then
        error('Cannot create temporary tube in replicaset mode', 3)
    end
    if box.space[name] ~= nil and options.if_not_exists == false then
        error(("Space '%s' already exists"):format(name), 3)
    end
    if row then
        local tube = load_row(row)
        tube.callback = options.on_task_change or nothing
        return tube.object
    end
    local space = controls[kind].create_space(name, options)
    local last = box.space._queue.index.tube_id:max()
    local id = last and last[2] + 1 or 0
    local callback = options.on_task_change
    local kept = setmetatable({}, { __serialize = 'map' })
    for key, value in pairs(options) do if type(value) ~= 'function' then kept[key] = value end end
    local done, tube = pcall(open_tube, name, id, space, kind, options, callback)
    if not done then
        -- A tube that was not made leaves no space behind.
        pcall(function() if box.space[name] then box.space[name]:drop() end end)
        error(tube, 0)
    end
    box.space._queue:insert({ name, id, space.name, kind, kept })
    return tube.object
end

function module.get(name)
    local tube = tubes[name]
    return tube and tube.object
end

function module.names()
    local name
    return function()
        name = next(tubes, name)
        return name
    end
end

function module.any() return next(tubes) ~= nil end
function module.is_ours(kind) return controls[kind] ~= nil end
function module.has_driver_in_lua(kind) return controls[kind] ~= nil end

function module.forget(name)
    local tube = tubes[name]
    if tube then close(tube) end
    tubes[name] = nil
end

function module.statistics(name)
    local tube = tubes[name]
    if not tube then error('attempt to index a nil value', 0) end
    local calls, tasks = {}, { total = 0, done = tube.done }
    for _, operation in ipairs(COUNTED) do calls[operation] = tube.counts[operation] or 0 end
    for operation, count in pairs(tube.counts) do calls[operation] = count end
    for status, title in pairs({ r = 'ready', t = 'taken', ['~'] = 'delayed', ['!'] = 'buried' }) do
        local count = 0
        for _ in tube.raw:tasks_by_state(status) do count = count + 1 end
        tasks[title] = count
        tasks.total = tasks.total + count
    end
    return { tasks = tasks, calls = calls }
end

-- The driver of a type was taken away, or the module starts again.
function module.restart()
    for name, tube in pairs(tubes) do
        close(tube)
        tubes[name] = nil
    end
    for kind in pairs(controls) do
        if queue.driver[kind] ~= controls[kind] then controls[kind] = nil end
    end
    module.load()
end

function module.register(kind, control)
    controls[kind], checked[kind] = control, nil
end

-- Sessions.

-- Tasks whose session is gone become ready.
local function release_orphans()
    if not queue.is_running() then return end
    for _, tube in pairs(tubes) do
        local orphans = {}
        for _, task in ipairs(taken_tasks(tube)) do
            local owner = task.owner
            if owner == nil or box.space._queue_shared_sessions:get(owner[4]) == nil then orphans[#orphans + 1] = task end
        end
        release_tasks(tube, orphans)
    end
end

function module.disconnected(session)
    for _, tube in pairs(tubes) do
        for _, waiter in ipairs(tube.waiters) do
            if waiter.session == session then
                waiter.is_closing = true
                waiter.cond:signal()
            end
        end
    end
    release_orphans()
end

local was_running = true

-- The instance became read-only or writable: drivers stop or start.
function module.follow()
    local runs = queue.is_running()
    if runs == was_running then return end
    was_running = runs
    for name, tube in pairs(tubes) do
        local method = runs and 'start' or 'stop'
        if tube.raw[method] then
            local done, message = pcall(tube.raw[method], tube.raw)
            if not done then log.error('tube "%s": %s: %s', name, method, tostring(message)) end
        else
            log.warn('queue: [tube "%s"] method %s is not implemented', name, method)
        end
    end
    if runs then release_orphans() end
end

local function look_after_sessions()
    fiber.name('queue_expiration')
    while true do
        fiber.sleep(1)
        if internal.configured() then
            local done, message = pcall(function()
                module.follow()
                if next(tubes) then release_orphans() end
            end)
            if not done then log.error('tasks of ended sessions: %s', tostring(message)) end
        end
    end
end

-- Called once, with the module that the tubes belong to.
function module.open(owner)
    queue = owner
    fiber.create(look_after_sessions)
    box.session.on_disconnect(function() module.disconnected((internal.session())) end)
    return module
end

return module
