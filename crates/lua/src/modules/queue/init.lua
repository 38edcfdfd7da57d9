-- queue: the native queue as the module `queue` of Tarantool shows it, and tubes whose drivers are Lua.
--
-- Methods of a native tube call the instance; nothing of them runs in Lua. Tubes of registered drivers are in
-- `lycosa.queue.tube`. Before the instance is configured and writable only `cfg`, `state`, `driver` and `register_driver` are
-- there, as in Tarantool.
local internal = require('lycosa.box')
local fiber = require('fiber')
local sampled = require('lycosa.log').sampled
local classes = require('lycosa.queue.driver')
local native = internal.native

local queue = { _VERSION = '1.5.0', driver = classes }
local methods = {}

-- Callbacks of native tubes, by name.
local callbacks = {}
-- Objects of native tubes, by name; names that a program took away from `queue.tube`; other values that it put there.
local objects, hidden, extras = {}, {}, {}
local lua_tubes

-- State.

local is_started = false

-- The state of the native queue; INIT while there is none.
local function native_state()
    if not internal.configured() then return 'INIT' end
    return (internal.queue_state())
end

-- The module starts with the first writable instance that it sees, and stays started. The native queue of a program starts
-- with the module: one that never asks for it has no spaces of a queue.
local function has_started()
    if not is_started and native_state() == 'INIT' and internal.configured() then internal.start_queue() end
    if not is_started and internal.configured() and native_state() == 'RUNNING' then
        is_started = true
        if lua_tubes then lua_tubes.load() end
    end
    return is_started
end

function queue.state()
    return has_started() and native_state() or 'INIT'
end

local function is_running() return has_started() and native_state() == 'RUNNING' end
queue.is_running = is_running

-- How often the native queue stopped: fibers of an earlier life are dead.
local life = 1

internal.after_cfg = function()
    if has_started() and native_state() ~= 'RUNNING' then life = life + 1 end
    if lua_tubes then lua_tubes.follow() end
end

-- Tasks and tubes.

local tube_methods = {}
local tube_mt

-- A task is a tuple; counts and the like are what they are.
local function task_of(value, ...)
    if value == nil then return nil, ... end
    if type(value) == 'table' and type(value[2]) == 'string' and #value >= 3 then return box.tuple.new(value), ... end
    return value, ...
end

local function results(count, ...)
    if count == 0 then return end
    return task_of(...)
end

local function packed(...) return results(select('#', ...), ...) end

local METHODS = {
    'put', 'take', 'touch', 'ack', 'release', 'peek', 'list', 'bury', 'kick', 'delete', 'truncate', 'release_all',
    'put_many', 'take_many', 'ack_many', 'release_many', 'bury_many', 'kick_many', 'delete_many', 'grant', 'grant_role',
    'pause', 'resume', 'explain', 'find', 'count', 'apply', 'job', 'jobs', 'control', 'undo',
}

for _, name in ipairs(METHODS) do
    local suffix = ':' .. name
    tube_methods[name] = function(self, ...)
        local given = select('#', ...)
        local count = given
        -- An argument that is nil here is not there; for a client it would be one that is null.
        while count > 1 and type((select(count, ...))) == 'nil' do count = count - 1 end
        if count < given then return packed(native('queue.tube.' .. self.name .. suffix, unpack({ ... }, 1, count))) end
        return packed(native('queue.tube.' .. self.name .. suffix, ...))
    end
end

function tube_methods.drop(self)
    local dropped = native('queue.tube.' .. self.name .. ':drop')
    objects[self.name], callbacks[self.name], hidden[self.name] = nil, nil, nil
    return dropped
end

local function nothing() end

function tube_methods.on_task_change(self, callback)
    local former = callbacks[self.name]
    if callback ~= nil and type(callback) ~= 'function' then error('on_task_change: a function is expected', 2) end
    callbacks[self.name] = callback
    internal.observe(self.name, callback ~= nil)
    return former or nothing
end

local function row_of(name)
    local found = internal.queue_row(name)
    if found ~= nil then return found end
end

-- What a program finds as the driver of a native tube: the space, a fiber that lives as long as the deadlines are looked
-- at, and the driver's methods.
local raw_methods = {}
local raw_mt = { __index = function(self, key)
    if key == 'space' then
        local row = row_of(self.tube.name)
        return row and box.space[row[3]]
    end
    if key == 'fiber' then
        if not self.tube.type:find('ttl$') or self.stopped or not is_running() then return nil end
        local current = rawget(self, 'current')
        if not current or current.life ~= life then
            current = { life = life }
            local raw = self
            function current.status()
                return current.life == life and not raw.stopped and is_running() and 'suspended' or 'dead'
            end
            function current.name() return raw.tube.type == 'limfifottl' and 'fifottl' or raw.tube.type end
            function current.id() return 0 end
            rawset(self, 'current', current)
        end
        return current
    end
    return raw_methods[key]
end }

local function stored(raw, task) return task and raw.space:get(task[1]) end
function raw_methods.put(raw, data, options) return stored(raw, raw.tube:put(data, options or {})) end
function raw_methods.take(raw) return stored(raw, raw.tube:take(0)) end
function raw_methods.peek(raw, id) return raw.space:get(id) end
function raw_methods.len(raw) return raw.space:len() end
function raw_methods.truncate(raw) raw.tube:truncate() end
function raw_methods.kick(raw, count) return raw.tube:kick(count) end
for _, name in ipairs({ 'delete', 'release', 'bury', 'touch' }) do
    raw_methods[name] = function(raw, ...)
        local before = raw.space:get((...))
        local task = raw.tube[name](raw.tube, ...)
        return stored(raw, task) or (before and task and before:update({ { '=', 2, task[2] } }))
    end
end
function raw_methods.tasks_by_state(raw, state) return raw.space.index.status:pairs(state) end
function raw_methods.normalize_task(raw, task)
    if task == nil then return nil end
    return task:transform(3, #task - 3)
end
function raw_methods.start(raw) raw.stopped = nil end
function raw_methods.stop(raw) raw.stopped = true rawset(raw, 'current', nil) end

tube_mt = {
    __index = tube_methods,
    __serialize = function(self) return { name = self.name, type = self.type, tube_id = self.tube_id, opts = self.opts } end,
}

local function new_object(name, row)
    local tube = setmetatable({ name = name, tube_id = row[2], type = row[4], opts = row[5] }, tube_mt)
    tube.raw = setmetatable({ tube = tube }, raw_mt)
    objects[name] = tube
    hidden[name] = nil
    return tube
end

local BUILT_IN = { fifo = true, fifottl = true, limfifottl = true, utube = true, utubettl = true }

local function tube_of(name)
    if type(name) ~= 'string' or hidden[name] then return nil end
    local row = row_of(name)
    if row == nil then
        objects[name] = nil
        return nil
    end
    if lua_tubes and lua_tubes.is_ours(row[4]) then return lua_tubes.get(name) end
    local tube = objects[name]
    if tube and tube.tube_id == row[2] then return tube end
    -- A tube whose driver nobody has registered is a row and a space, no tube.
    if not BUILT_IN[row[4]] and not native('queue.tube', name) then return nil end
    return new_object(name, row)
end

local function tube_names()
    local names = {}
    for _, row in ipairs(internal.queue_rows()) do
        if not hidden[row[1]] then names[#names + 1] = row[1] end
    end
    return names
end

methods.tube = setmetatable({}, {
    __index = function(_, name)
        local found = tube_of(name)
        if found == nil then return extras[name] end
        return found
    end,
    __newindex = function(_, name, value)
        if value == nil then
            extras[name], objects[name] = nil, nil
            if type(name) == 'string' then
                hidden[name] = true
                if lua_tubes then lua_tubes.forget(name) end
            end
        else
            extras[name] = value
        end
    end,
    __call = function(_, name)
        if name == nil and type(name) == 'nil' then return tube_names() end
        if type(name) ~= 'string' then error('argument #1 should be string or nil', 2) end
        return tube_of(name) ~= nil
    end,
    __pairs = function()
        local all = {}
        for name, value in pairs(extras) do all[name] = value end
        for _, name in ipairs(tube_names()) do all[name] = tube_of(name) end
        return pairs(all)
    end,
})

-- Options as the instance takes them: a map without the callback.
local function plain(options)
    local copy = {}
    for key, value in pairs(options) do if key ~= 'on_task_change' then copy[key] = value end end
    return setmetatable(copy, { __serialize = 'map' })
end

function methods.create_tube(name, kind, options)
    if not is_running() then
        sampled('refused', ('create_tube: queue is in %s state'):format(queue.state()))
        return
    end
    if type(options) == 'table' and options.if_not_exists == true then
        local known = tube_of(name)
        if known ~= nil then return known end
    end
    local row = type(name) == 'string' and row_of(name)
    local wanted = row and row[4] or kind
    if lua_tubes and lua_tubes.is_ours(wanted) then
        hidden[name] = nil
        return lua_tubes.create(name, wanted, options or {}, row)
    end
    local callback = type(options) == 'table' and options.on_task_change or nil
    if type(options) == 'table' then options = plain(options) end
    if options == nil then
        native('queue.create_tube', name, kind)
    else
        native('queue.create_tube', name, kind, options)
    end
    hidden[name] = nil
    local tube = new_object(name, row_of(name))
    if callback then tube:on_task_change(callback) end
    return tube
end

local function statistics(name, ...)
    if lua_tubes and lua_tubes.any() then
        if name ~= nil and lua_tubes.get(name) then return lua_tubes.statistics(name) end
        local found = native('queue.statistics', name, ...)
        if name == nil then
            for other in lua_tubes.names() do found[other] = lua_tubes.statistics(other) end
        end
        return found
    end
    if name == nil then return native('queue.statistics') end
    return native('queue.statistics', name, ...)
end
methods.statistics, methods.stats = statistics, statistics

function methods.audit(...) return native('queue.audit', ...) end

function methods.identify(...) return native('queue.identify', ...) end

-- The queue starts with the instance. Called again it does what the module does at its start: tasks that are taken become
-- ready. A program that is being reloaded has not come back from the dead, so it keeps its tasks.
local start_calls = 0
function methods.start()
    start_calls = start_calls + 1
    if internal.is_reloading or not is_running() then return queue end
    if start_calls == 1 and not queue.was_cold then return queue end
    for _, name in ipairs(tube_names()) do
        local row = row_of(name)
        if row and not (lua_tubes and lua_tubes.has_driver_in_lua(row[4])) then
            native('queue.tube.' .. name .. ':release_all')
        end
    end
    if lua_tubes then lua_tubes.restart() end
    return queue
end

-- What the module does when a connection ends, for the session of the caller.
function methods._on_consumer_disconnect()
    internal.disconnect_session()
    if lua_tubes then lua_tubes.disconnected((internal.session())) end
end

-- Settings.

local pending_options = {}

local function current_options()
    if not internal.configured() then return pending_options end
    local _, ttr, in_replicaset = internal.queue_state()
    return { ttr = ttr, in_replicaset = in_replicaset or nil }
end

queue.cfg = setmetatable({}, {
    __index = function(_, name) return current_options()[name] end,
    __pairs = function() return pairs(current_options()) end,
    __serialize = function() return setmetatable(current_options(), { __serialize = 'map' }) end,
    __call = function(_, options)
        if not internal.configured() then
            for key, value in pairs(options or {}) do pending_options[key] = value end
            return
        end
        if options == nil then native('queue.cfg') else native('queue.cfg', options) end
    end,
})

local former_after_cfg = internal.after_cfg
internal.after_cfg = function()
    if next(pending_options) and internal.configured() then
        local options = pending_options
        pending_options = {}
        native('queue.cfg', options)
    end
    former_after_cfg()
end

-- Drivers.

function queue.register_driver(name, control)
    if type(control) ~= 'table' or type(control.create_space) ~= 'function' or type(control.new) ~= 'function' then
        error('tube control methods must contain functions "create_space" and "new"', 2)
    end
    if queue.driver[name] then error(('overriding registered driver "%s"'):format(tostring(name)), 2) end
    queue.driver[name] = control
    if not lua_tubes then lua_tubes = require('lycosa.queue.tube').open(queue, methods) end
    lua_tubes.register(name, control)
    if is_running() then lua_tubes.load(name) end
end

-- What has happened to tasks of observed tubes, for their callbacks.
function internal.task_changed(tube, operation, tuple)
    local callback = callbacks[tube]
    if not callback then return end
    if operation == '' then operation = nil end
    local done, _, text = internal.hook_call(callback, tuple, operation)
    if not done then sampled('hook', ('on_task_change of tube "%s": %s'):format(tube, text)) end
end

-- A tube that was made before the module learned of it is observed again after a new start of the instance.
queue.was_cold = not internal.configured()
has_started()

-- Before the start calls are reached only in a replica set, or when the settings have been given.
local function is_reachable()
    if has_started() or next(pending_options) then return true end
    if not internal.configured() then return false end
    local _, _, in_replicaset = internal.queue_state()
    return in_replicaset
end

return setmetatable(queue, {
    __index = function(_, key)
        if not is_reachable() then
            error('Please configure box.cfg{} in read/write mode first', 2)
        end
        return methods[key]
    end,
})
