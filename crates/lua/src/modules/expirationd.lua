-- expirationd: tasks that delete the tuples of a space that a program calls expired.
--
-- The interface is that of the Tarantool module of this name. A task passes over an index in batches, with a rest after
-- each batch and each pass. Two fibers belong to a running task: the worker passes over the index, the guardian checks the
-- space and starts a new worker after a failure. An error in a callback ends the pass, is logged and counted. The next pass
-- begins at the tuple that failed; a tuple that fails twice in a row is left out of that pass.
--
-- `options.field` instead of `is_tuple_expired` makes a task of the server itself (`expiration.start`), without callbacks.
local internal = require('lycosa.box')
local checks = require('checks')
local clock = require('clock')
local fiber = require('fiber')
local log = require('log')

local DEFAULT_BATCH = 1024
local DEFAULT_SCAN_TIME = 3600
local LONGEST_DELAY = 1
local GUARD_INTERVAL = 1
-- Seconds of work after which a worker lets other fibers run, outside of a transaction.
local SLICE = 0.0005
-- Tuples that one pass leaves out at most because they have failed twice.
local MAX_LEFT_OUT = 1000

-- What outlives `expirationd.update()`.
internal.expirationd = internal.expirationd or { tasks = {}, positions = {}, cfg = {}, metrics = {} }
local state = internal.expirationd
local tasks, positions, cfg, metrics_state = state.tasks, state.positions, state.cfg, state.metrics

-- Metrics, if the program has the module `metrics`.

local COUNTERS = {
    checked_count = 'tuples that the task has checked',
    expired_count = 'tuples that had expired',
    restarts = 'starts of the task and of its worker',
    working_time = 'seconds since the start of the task',
}

local function forget_metrics(name)
    for _, counter in pairs(metrics_state.counters or {}) do
        counter.collector:remove({ name = name })
        counter.told[name] = nil
    end
end

local function disable_metrics()
    if not metrics_state.counters then return end
    local metrics = require('metrics')
    metrics.unregister_callback(metrics_state.callback)
    for _, counter in pairs(metrics_state.counters) do metrics.registry:unregister(counter.collector) end
    metrics_state.counters, metrics_state.callback = nil, nil
end

local function enable_metrics(level)
    local loaded, metrics = pcall(require, 'metrics')
    local usable = loaded and type(metrics) == 'table' and metrics.unregister_callback
        and require('metrics.collectors.counter').remove
    if not usable then error('metrics >= 0.11.0 is required', level + 1) end
    disable_metrics()
    local counters = {}
    for name, help in pairs(COUNTERS) do
        counters[name] = { collector = metrics.counter('expirationd_' .. name, 'expirationd: ' .. help), told = {} }
    end
    local function tell()
        for name, task in pairs(tasks) do
            for key, value in pairs(task:statistics()) do
                local counter = counters[key]
                counter.collector:inc(value - (counter.told[name] or 0), { name = name })
                counter.told[name] = value
            end
        end
    end
    metrics.register_callback(tell)
    metrics_state.counters, metrics_state.callback = counters, tell
end

if cfg.metrics == nil then cfg.metrics = pcall(enable_metrics, 1) end

-- Keys.

-- The value that a path such as `.data.name[1]` leads to.
local function follow(value, path)
    for step in path:gmatch('[^%.%[%]]+') do
        if type(value) ~= 'table' then return nil end
        step = step:match('^"(.*)"$') or step
        value = value[tonumber(step) or step]
    end
    return value
end

-- The key that a tuple has in an index; nothing for an index with several entries per tuple.
local function key_of(index, tuple)
    local key = {}
    for i, part in ipairs(index.parts) do
        local value = tuple[part.fieldno]
        if part.path then
            if part.path:find('[*]', 1, true) then return nil end
            value = follow(value, part.path)
        end
        if value == nil then value = box.NULL end
        key[i] = value
    end
    return key
end

-- A text that differs if the parts of an index differ.
local function shape_of(index)
    local shape = {}
    for i, part in ipairs(index.parts) do
        shape[i] = table.concat({ part.fieldno, part.type, part.path or '', tostring(part.collation) }, ':')
    end
    return table.concat(shape, ' ')
end

-- Passes.

local function default_start_key() return nil end
local function default_process_while() return true end
local function nothing() end

-- Deletes the tuple, unless it was replaced while the program's callback waited.
local function delete_tuple(space_name, _, tuple)
    local space = box.space[space_name]
    local key = key_of(space.index[0], tuple)
    if space:get(key) == tuple then space:delete(key) end
end

-- The iterator that goes on from a tuple, by the name and the number of the iterator that came to it.
local RESUMING = {}
for name, iterator in pairs({ ALL = 'GE', GE = 'GE', GT = 'GE', EQ = 'GE', LE = 'LE', LT = 'LE', REQ = 'LE' }) do
    RESUMING[name], RESUMING[box.index[name]] = iterator, iterator
end

-- Where the pass before stopped: a key and an iterator.
local function resume(task, index)
    local position = positions[task.name]
    positions[task.name] = nil
    if not position or index.type ~= 'TREE' then return end
    local is_same = position.space == task.space and position.index == task.index
        and position.iterator == task.iterator_type and position.shape == shape_of(index)
    local iterator = RESUMING[task.iterator_type]
    if not is_same or not iterator then return end
    return key_of(index, position.tuple), iterator
end

local function default_iterate_with(task)
    local index = box.space[task.space].index[task.index]
    local key, iterator
    if task.start_key == default_start_key then key, iterator = resume(task, index) end
    if key == nil then key, iterator = task.start_key(), task.iterator_type end
    return index:pairs(key, { iterator = iterator }):take_while(function() return task:process_while() end)
end

local function remember(task, tuple)
    if task.iterate_with ~= default_iterate_with or task.start_key ~= default_start_key then return end
    local index = box.space[task.space].index[task.index]
    positions[task.name] = {
        space = task.space, index = task.index, iterator = task.iterator_type, shape = shape_of(index), tuple = tuple,
    }
end

local function rest(task)
    local length = box.space[task.space].index[task.index]:len()
    if length > 0 then
        fiber.sleep(math.min(task.tuples_per_iteration * task.full_scan_time / length, task.iteration_delay))
    end
end

-- The tuple as a text, to recognize it in a later pass.
local function name_of(task, tuple)
    local space = box.space[task.space]
    local key = space and key_of(space.index[0], tuple)
    return key and require('json').encode(key)
end

-- One pass over the index. `pass` tells what it was about when it ended early.
local function scan(task, run, pass)
    local in_batch = 0
    if task.atomic_iteration then box.begin() end
    local since = clock.monotonic()
    for _, tuple in task:iterate_with() do
        if run.cancelled then break end
        if in_batch == 0 or not task.atomic_iteration then remember(task, tuple) end
        in_batch = in_batch + 1
        pass.tuple = tuple
        if next(task.left_out) == nil or not task.left_out[name_of(task, tuple)] then
            task.checked_tuples_count = task.checked_tuples_count + 1
            if task.is_tuple_expired(task.args, tuple) then
                task.expired_tuples_count = task.expired_tuples_count + 1
                pass.expired = pass.expired + 1
                task.process_expired_tuple(task.space, task.args, tuple, task)
            end
        end
        pass.tuple = nil
        if in_batch >= task.tuples_per_iteration then
            in_batch = 0
            if task.atomic_iteration then box.commit() end
            pass.expired = 0
            if run.cancelled then return end
            rest(task)
            if run.cancelled then return end
            if task.atomic_iteration then box.begin() end
            since = clock.monotonic()
        elseif not task.atomic_iteration and clock.monotonic() - since > SLICE then
            fiber.yield()
            since = clock.monotonic()
        end
    end
    if task.atomic_iteration then box.commit() end
    if not run.cancelled then positions[task.name] = nil end
end

-- Counts a failure. A tuple that has failed twice in a row is left out until a pass succeeds.
local function note_failure(task, pass, message)
    task.errors = task.errors + 1
    task.last_error = tostring(message)
    if task.atomic_iteration then
        task.expired_tuples_count = math.max(task.expired_tuples_count - pass.expired, 0)
    end
    log.error('expirationd: task "%s": %s', task.name, task.last_error)
    local failed = pass.tuple ~= nil and name_of(task, pass.tuple) or nil
    if failed and failed == task.failed and task.left_out_count < MAX_LEFT_OUT then
        task.left_out[failed] = true
        task.left_out_count = task.left_out_count + 1
        log.warn('expirationd: task "%s" leaves the tuple with the key %s out of this pass', task.name, failed)
    end
    task.failed = failed
end

-- What the task works on and is not there: a program may make it again.
local function missing(task)
    local space = box.space[task.space]
    if space == nil then
        return ('Space with %s %s does not exist'):format(type(task.space) == 'string' and 'name' or 'id', task.space)
    end
    if space.index[task.index] == nil then
        return ('Index with %s %s does not exist'):format(type(task.index) == 'string' and 'name' or 'id', task.index)
    end
end

local function may_run(task)
    local space = box.space[task.space]
    return task.force or not box.info.ro or space.temporary or space.is_local
end

-- The largest lag of an instance that is followed: its last transactions may still arrive.
local function upstream_lag()
    local largest = 0
    for _, replica in pairs(box.info.replication or {}) do
        local upstream = type(replica) == 'table' and replica.upstream
        local lag = type(upstream) == 'table' and tonumber(upstream.lag) or 0
        if lag > largest then largest = lag end
    end
    return largest
end

local function work(task, run)
    fiber.name(('worker of %q'):format(task.name), { truncate = true })
    local waited = false
    while not run.cancelled do
        -- The guardian says so, and waits for it.
        if missing(task) then return end
        if may_run(task) then
            if waited then fiber.sleep(2 * upstream_lag()) end
            waited = false
            task.on_full_scan_start(task)
            local pass = { expired = 0 }
            local done, message = pcall(scan, task, run, pass)
            if not done then box.rollback() end
            if run.cancelled then return end
            if done then
                task.failed, task.left_out, task.left_out_count = nil, {}, 0
                task.on_full_scan_success(task)
            else
                note_failure(task, pass, message)
                task.on_full_scan_error(task, message)
            end
            task.on_full_scan_complete(task)
            -- A new worker goes on.
            if not done then return end
        else
            waited = true
        end
        if run.cancelled then return end
        task.alert = nil
        fiber.sleep(task.full_scan_delay)
    end
end

local function run_worker(task, run)
    local done, message = pcall(work, task, run)
    box.rollback()
    if not done and not run.cancelled then note_failure(task, {}, message) end
end

-- Checks.

local CALLBACKS = {
    'is_tuple_expired', 'iterate_with', 'on_full_scan_complete', 'on_full_scan_error', 'on_full_scan_start',
    'on_full_scan_success', 'process_expired_tuple', 'process_while',
}

-- Replaces the names of global functions by the functions.
local function load_callbacks(task)
    for _, option in ipairs(CALLBACKS) do
        local name = task[option]
        if type(name) == 'string' then
            local value = _G
            for part in name:gmatch('[^.]+') do
                value = type(value) == 'table' and rawget(value, part) or nil
            end
            if type(value) ~= 'function' then
                return ('Function "%s" (for option "%s") -- not loaded'):format(name, option)
            end
            task[option] = value
        end
    end
end

-- A task without `is_tuple_expired` has `args.time_create_field` and `args.lifetime_in_seconds`.
local function load_lifetime(task)
    if task.is_tuple_expired ~= nil then return end
    local name = task.args.time_create_field
    for _, field in ipairs(box.space[task.space]:format()) do
        if field.name == name then
            if not ({ number = true, integer = true, unsigned = true, double = true, decimal = true })[field.type] then
                return 'is_tuple_expired not supported field type ' .. tostring(field.type)
            end
            task.is_tuple_expired = function(args, tuple)
                local created = tuple[args.time_create_field]
                return created ~= nil and created < clock.time() - args.lifetime_in_seconds
            end
            return
        end
    end
    return ('Field %s not found in space %s'):format(name, task.space)
end

local function wrong_index(task)
    local index = box.space[task.space].index[task.index]
    if index.type ~= 'TREE' and index.type ~= 'HASH' then
        return 'Not supported index type, expected TREE or HASH'
    end
    local done, message = pcall(function()
        index:select(task.start_key(), { iterator = task.iterator_type, limit = 1 })
    end)
    if not done then return message end
end

-- What keeps a task from running.
local function obstacle(task)
    return missing(task) or load_callbacks(task) or load_lifetime(task) or wrong_index(task)
end

local function warn(task, reason)
    local alert = ('Expirationd warning, task "%s": %s'):format(task.name, tostring(reason))
    if alert ~= task.alert then log.warn('%s', alert) end
    task.alert = alert
end

local function is_alive(one) return one ~= nil and one:status() ~= 'dead' end

local function guard(task, run)
    fiber.name(('guardian of %q'):format(task.name), { truncate = true })
    while not run.cancelled do
        if not is_alive(task.worker_fiber) then
            local done, reason = pcall(obstacle, task)
            if not done or reason then
                warn(task, reason)
            else
                task.restarts = task.restarts + 1
                task.worker_fiber = fiber.create(run_worker, task, run)
                log.info('expirationd: task "%s" restarted', task.name)
            end
        end
        if not pcall(fiber.sleep, GUARD_INTERVAL) then return end
    end
end

-- Tasks.

local task_methods = {}

local function end_fiber(one)
    -- A callback may stop its own task: the worker ends when the callback returns.
    if not is_alive(one) or one:id() == fiber.id() then return end
    while is_alive(one) do fiber.sleep(0.01) end
end

--- Ends the fibers of the task. The task keeps its name and its place in the index.
function task_methods.stop(self)
    local run = self.run
    if not run then return end
    run.cancelled = true
    self.worker_cancelled = true
    local guardian, worker = self.guardian_fiber, self.worker_fiber
    if is_alive(guardian) and guardian:id() ~= fiber.id() then guardian:cancel() end
    -- The batch of a transaction is finished.
    if is_alive(worker) and worker:id() ~= fiber.id() and not self.atomic_iteration then worker:cancel() end
    end_fiber(guardian)
    end_fiber(worker)
    if self.run == run then
        self.run, self.guardian_fiber, self.worker_fiber, self.alert = nil, nil, nil, nil
    end
end

--- Starts the task, after its end if it runs. It goes on where it stopped.
function task_methods.start(self)
    while self.run do self:stop() end
    local run = { cancelled = false }
    self.run, self.worker_cancelled = run, false
    self.guardian_fiber = fiber.create(guard, self, run)
end

--- Starts the task from the beginning of the index.
function task_methods.restart(self)
    self:stop()
    positions[self.name] = nil
    self:start()
end

--- Stops the task and forgets it. Its name is free.
function task_methods.kill(self)
    self:stop()
    forget_metrics(self.name)
    if tasks[self.name] == self then tasks[self.name] = nil end
    positions[self.name] = nil
end

function task_methods.runs(self) return self.run ~= nil end

function task_methods.statistics(self)
    return {
        checked_count = self.checked_tuples_count,
        expired_count = self.expired_tuples_count,
        restarts = self.restarts,
        working_time = math.floor(fiber.time() - self.start_time),
    }
end

local task_mt = {
    __index = task_methods,
    __serialize = function(task)
        local shown = task:statistics()
        shown.name, shown.space, shown.index, shown.alert = task.name, task.space, task.index, task.alert
        shown.errors, shown.last_error = task.errors, task.last_error
        return shown
    end,
}

-- Tasks of the server.

local native_methods = setmetatable({}, { __index = task_methods })

local function native_numbers(self)
    local all = self.is_running and internal.native('expiration.stats')[self.name]
    if type(all) ~= 'table' then return 0, 0 end
    return all.scanned, all.expired
end

-- Somebody else may have stopped the task by its name.
function native_methods.runs(self)
    return self.is_running and type(internal.native('expiration.stats')[self.name]) == 'table'
end

function native_methods.stop(self)
    if not self.is_running then return end
    local scanned, expired = native_numbers(self)
    self.is_running = false
    self.checked_tuples_count = self.checked_tuples_count + scanned
    self.expired_tuples_count = self.expired_tuples_count + expired
    internal.native('expiration.stop', self.name, { if_exists = true })
end

function native_methods.start(self)
    self:stop()
    internal.native('expiration.start', self.name, self.space, self.definition)
    self.is_running = true
    self.restarts = self.restarts + 1
end

function native_methods.statistics(self)
    local shown = task_methods.statistics(self)
    local scanned, expired = native_numbers(self)
    shown.checked_count, shown.expired_count = shown.checked_count + scanned, shown.expired_count + expired
    return shown
end

local native_mt = { __index = native_methods, __serialize = task_mt.__serialize }

local NATIVE_OPTIONS = { field = true, unit = true, index = true, tuples_per_iteration = true, full_scan_time = true }

local function check_native(options, level)
    for name in pairs(options) do
        if not NATIVE_OPTIONS[name] then
            error(('options.%s needs is_tuple_expired: a task by options.field takes unit, index, tuples_per_iteration '
                .. 'and full_scan_time only'):format(name), level + 1)
        end
    end
end

-- The module.

local OPTIONS = {
    args = '?',
    atomic_iteration = '?boolean',
    field = '?number|string',
    force = '?boolean',
    force_allow_functional_index = '?boolean',
    full_scan_delay = '?number|cdata',
    full_scan_time = '?number|cdata',
    index = '?number|string',
    iterate_with = '?string|function',
    iteration_delay = '?number|cdata',
    iterator_type = '?number|string',
    on_full_scan_complete = '?string|function',
    on_full_scan_error = '?string|function',
    on_full_scan_start = '?string|function',
    on_full_scan_success = '?string|function',
    process_expired_tuple = '?string|function',
    process_while = '?string|function',
    start_key = '?',
    tuples_per_iteration = '?number|cdata',
    unit = '?string',
    vinyl_assumed_space_len = '?number|cdata',
    vinyl_assumed_space_len_factor = '?number|cdata',
}

-- A number of the options, or its default.
local function number_of(options, name, default, what, may_be_zero)
    local value = options[name]
    if value == nil then return default end
    local number = tonumber(value)
    if number == nil or number ~= number or number < 0 or number == 0 and not may_be_zero then
        error(('%s: options.%s is %s'):format(what, name, tostring(value)), 4)
    end
    return number
end

local function new_task(name, space, is_tuple_expired, options)
    local task = setmetatable({
        name = name,
        space = space,
        index = options.index or 0,
        start_time = fiber.time(),
        options = options,
        -- As it was given; is_tuple_expired may be found by its name later.
        condition = is_tuple_expired,
        is_tuple_expired = is_tuple_expired,
        args = options.args,
        process_expired_tuple = options.process_expired_tuple or delete_tuple,
        iterate_with = options.iterate_with or default_iterate_with,
        iterator_type = options.iterator_type or 'ALL',
        start_key = default_start_key,
        process_while = options.process_while or default_process_while,
        atomic_iteration = options.atomic_iteration or false,
        force = options.force or false,
        on_full_scan_start = options.on_full_scan_start or nothing,
        on_full_scan_success = options.on_full_scan_success or nothing,
        on_full_scan_error = options.on_full_scan_error or nothing,
        on_full_scan_complete = options.on_full_scan_complete or nothing,
        tuples_per_iteration =
            number_of(options, 'tuples_per_iteration', DEFAULT_BATCH, 'Invalid tuples per iteration parameter'),
        full_scan_time = number_of(options, 'full_scan_time', DEFAULT_SCAN_TIME, 'Invalid full scan time'),
        iteration_delay = number_of(options, 'iteration_delay', LONGEST_DELAY, 'Invalid iteration delay', true),
        full_scan_delay = number_of(options, 'full_scan_delay', LONGEST_DELAY, 'Invalid full scan delay', true),
        checked_tuples_count = 0,
        expired_tuples_count = 0,
        restarts = 0,
        errors = 0,
        worker_cancelled = false,
        left_out = {},
        left_out_count = 0,
    }, task_mt)
    local key = options.start_key
    if type(key) == 'function' then
        task.start_key = function() return key(task) end
    elseif key ~= nil then
        task.start_key = function() return key end
    elseif type(key) == 'cdata' then
        -- box.NULL begins at the front, too.
        task.start_key = function() return key end
    end
    return task
end

local function start(name, space, is_tuple_expired, options)
    checks('string', 'number|string', '?string|function', OPTIONS)
    options = options or {}
    local task = new_task(name, space, is_tuple_expired, options)
    if options.field ~= nil then
        if is_tuple_expired ~= nil then
            error('is_tuple_expired and options.field exclude each other', 2)
        end
        check_native(options, 2)
        setmetatable(task, native_mt)
        task.definition = {
            field = options.field, unit = options.unit, index = options.index, transient = true,
            scan_size = math.ceil(task.tuples_per_iteration), scan_time = math.ceil(task.full_scan_time),
        }
    else
        if options.unit ~= nil then error('options.unit belongs to options.field', 2) end
        local lifetime = type(task.args) == 'table' and type(task.args.time_create_field) == 'string'
            and type(task.args.lifetime_in_seconds) == 'number'
        if is_tuple_expired == nil and not lifetime then
            error('bad argument #3 to start (function expected, got nil): give is_tuple_expired, or options.field, '
                .. 'or options.args with time_create_field and lifetime_in_seconds', 2)
        end
        -- A space, index or function that does not exist yet may come; the task waits for it.
        if not missing(task) then
            local reason = wrong_index(task)
            if reason then error(reason, 2) end
        end
    end
    local former, former_ran
    while tasks[name] do
        log.info('restart task %q', name)
        local position = positions[name]
        former = tasks[name]
        former_ran = former:runs()
        former:kill()
        positions[name] = position
    end
    tasks[name] = task
    local done, message = pcall(task.start, task)
    if not done then
        -- The server refuses some options only when it is asked to start the task.
        if tasks[name] == task then tasks[name] = former end
        if tasks[name] == former and former_ran then pcall(former.start, former) end
        error(message, 2)
    end
    return task
end

local function task_of(name)
    local task = tasks[name]
    if not task then error(("task '%s' doesn't exist"):format(name), 3) end
    return task
end

local expirationd = { _VERSION = '1.6.0', start = start }

function expirationd.kill(name)
    checks('string')
    task_of(name):kill()
end

function expirationd.task(name)
    checks('string')
    return task_of(name)
end

function expirationd.tasks()
    local names = {}
    for name in pairs(tasks) do names[#names + 1] = name end
    table.sort(names)
    return names
end

function expirationd.stats(name)
    checks('?string')
    if name ~= nil then return task_of(name):statistics() end
    local all = {}
    for key, task in pairs(tasks) do all[key] = task:statistics() end
    return all
end

--- Loads the module again and starts all tasks anew, each where it was.
function expirationd.update()
    local former = require('expirationd')
    for name in pairs(former) do former[name] = nil end
    setmetatable(former, {
        __index = function() error('Wait until update is done before using expirationd', 2) end,
    })
    package.loaded['expirationd'], package.loaded['lycosa.expirationd'] = nil, nil
    local new = require('expirationd')
    fiber.yield()
    local failure
    for _, name in ipairs(new.tasks()) do
        local task, position = tasks[name], positions[name]
        task:kill()
        positions[name] = position
        local done, message = pcall(new.start, name, task.space, task.condition, task.options)
        if not done then failure = failure or ('task "%s": %s'):format(name, tostring(message)) end
    end
    -- A program that keeps the former table goes on with the new functions.
    setmetatable(former, nil)
    for name, value in pairs(new) do former[name] = value end
    if failure then error(failure, 2) end
end

expirationd.cfg = setmetatable({}, {
    __index = cfg,
    __newindex = function() error('Use expirationd.cfg{} instead', 2) end,
    __serialize = function() return cfg end,
    __call = function(_, options)
        if type(options) ~= 'table' then error('Usage: expirationd.cfg({metrics = boolean})', 2) end
        for name in pairs(options) do
            if name ~= 'metrics' then error(('unexpected argument options.%s to cfg'):format(tostring(name)), 2) end
        end
        if options.metrics == nil then return end
        if type(options.metrics) ~= 'boolean' then
            error(('bad argument options.metrics to cfg (?boolean expected, got %s)'):format(type(options.metrics)), 2)
        end
        if options.metrics ~= cfg.metrics then
            if options.metrics then enable_metrics(2) else disable_metrics() end
            cfg.metrics = options.metrics
        end
    end,
})

-- Names of older versions.

function expirationd.run_task(name, space, is_tuple_expired, process_expired_tuple, args, tuples_per_iteration,
    full_scan_time)
    return start(name, space, is_tuple_expired, {
        process_expired_tuple = process_expired_tuple, args = args, tuples_per_iteration = tuples_per_iteration,
        full_scan_time = full_scan_time,
    })
end

expirationd.kill_task, expirationd.task_stats = expirationd.kill, expirationd.stats
expirationd.get_task, expirationd.get_tasks = expirationd.task, expirationd.tasks
expirationd.show_task_list = expirationd.tasks

return expirationd
