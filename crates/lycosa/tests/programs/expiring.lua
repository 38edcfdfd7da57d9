-- The module expirationd: passes, callbacks, errors, tasks in every order.
box.cfg{ log_level = 5 }
local expirationd = require('expirationd')
local fiber = require('fiber')
local test = require('tap').test('expirationd')

local function wait(what, is_true)
    for _ = 1, 3000 do
        if is_true() then return end
        fiber.sleep(0.01)
    end
    error('waited in vain: ' .. what, 2)
end

local function fresh(kind)
    if box.space.s then box.space.s:drop() end
    local space = box.schema.create_space('s')
    space:create_index('primary', { type = kind or 'tree', parts = { 1, 'unsigned' } })
    if kind ~= 'hash' then space:create_index('name', { parts = { 2, 'string' } }) end
    for i = 1, 10 do space:insert{ i, tostring(11 - i) } end
    return space
end

local function always() return true end
local function kept() end
local quick = { full_scan_delay = 0.01, iteration_delay = 0.01 }
local function options(more)
    local all = {}
    for name, value in pairs(quick) do all[name] = value end
    for name, value in pairs(more or {}) do all[name] = value end
    return all
end

-- A condition that collects the first fields of what it sees.
local function collector()
    local seen = {}
    return seen, function(_, tuple)
        seen[#seen + 1] = tuple[1]
        return true
    end
end

test:plan(19)

test:test('a task deletes what its condition names', function(test)
    test:plan(6)
    local space = fresh()
    local task = expirationd.start('t', 's', function(args, tuple) return tuple[1] <= args.limit end,
        options({ args = { limit = 4 } }))
    wait('four are gone', function() return space:count() == 6 end)
    -- Other fibers run between a deletion and what the task counts of it.
    wait('they are counted', function() return task.expired_tuples_count >= 4 end)
    wait('all are checked', function() return task.checked_tuples_count >= 10 end)
    test:is(task.expired_tuples_count, 4, 'expired')
    test:ok(task.checked_tuples_count >= 10, 'checked')
    test:is_deeply(expirationd.tasks(), { 't' }, 'its name')
    test:is(expirationd.task('t'), task, 'the task')
    test:is(expirationd.stats('t').restarts, 1, 'restarts')
    expirationd.kill('t')
    test:is_deeply(expirationd.stats(), {}, 'nothing is left')
end)

test:test('order, start key, end', function(test)
    test:plan(6)
    fresh()
    local seen, condition = collector()
    local function run(more)
        for i in pairs(seen) do seen[i] = nil end
        local done = false
        more.process_expired_tuple = kept
        more.on_full_scan_complete = function() done = true end
        more.full_scan_delay = 100
        local task = expirationd.start('t', 's', condition, options(more))
        wait('a pass', function() return done end)
        task:kill()
        return table.concat(seen, ' ')
    end
    test:is(run({}), '1 2 3 4 5 6 7 8 9 10', 'primary')
    test:is(run({ index = 'name', start_key = '5' }), '6 5 4 3 2', 'by an index, from a key')
    test:is(run({ iterator_type = 'LT', start_key = function() return 4 end }), '3 2 1', 'backwards')
    test:is(run({ iterator_type = box.index.EQ, start_key = 7 }), '7', 'equal')
    test:is(run({ process_while = function(task) return #seen < 3 and task.name == 't' end }), '1 2 3', 'while')
    test:is(run({ iterate_with = function(task)
        return box.space.s.index[task.index]:pairs(9, { iterator = 'GE' })
    end }), '9 10', 'an iterator of the program')
end)

test:test('a batch is a transaction', function(test)
    test:plan(2)
    local space = fresh()
    local commits = 0
    local task = expirationd.start('t', 's', function(_, tuple)
        if tuple[1] == 6 then error('six') end
        return true
    end, options({ atomic_iteration = true, tuples_per_iteration = 4, full_scan_delay = 100,
        on_full_scan_error = function() commits = space:count() end }))
    wait('an error', function() return commits > 0 end)
    test:is(commits, 6, 'the first batch is gone, the second is back')
    test:is(task.expired_tuples_count, 4, 'what was rolled back does not count')
    task:kill()
end)

test:test('a replaced tuple is not deleted', function(test)
    test:plan(1)
    local space = fresh()
    local passed = false
    local task = expirationd.start('t', 's', function(_, tuple)
        if tuple[1] == 5 and tuple[3] == nil then
            space:replace{ 5, tuple[2], 'alive' }
            return true
        end
        return false
    end, options({ full_scan_delay = 100, on_full_scan_success = function() passed = true end }))
    wait('a pass', function() return passed end)
    test:is(space:get(5)[3], 'alive', 'it is there')
    task:kill()
end)

test:test('an error ends the pass, not the task', function(test)
    test:plan(6)
    fresh()
    local seen, failures, messages = {}, 0, {}
    local task = expirationd.start('t', 's', function(_, tuple)
        if tuple[1] == 6 and failures == 0 then
            failures = failures + 1
            error('refused', 0)
        end
        seen[#seen + 1] = tuple[1]
        return true
    end, options({ process_expired_tuple = kept, full_scan_delay = 100,
        on_full_scan_error = function(_, message) messages[#messages + 1] = message end }))
    wait('the pass goes on', function() return #seen >= 10 end)
    test:is(table.concat(seen, ' '), '1 2 3 4 5 6 7 8 9 10', 'it goes on where it failed')
    test:is_deeply(messages, { 'refused' }, 'the callback is told')
    test:is(task.errors, 1, 'counted')
    test:is(task.last_error, 'refused', 'kept')
    test:is(task.restarts, 2, 'a new worker')
    test:is(task.guardian_fiber:status(), 'suspended', 'guarded')
    task:kill()
end)

test:test('a tuple that always fails is left out', function(test)
    test:plan(2)
    local space = fresh('hash')
    local task = expirationd.start('t', 's', always, options({
        process_expired_tuple = function(_, _, tuple)
            if tuple[1] == 3 then error('three') end
            box.space.s:delete(tuple[1])
        end,
    }))
    wait('the others are gone', function() return space:count() == 1 end)
    test:is(space:select()[1][1], 3, 'it is there')
    test:ok(task.errors >= 2, 'counted')
    task:kill()
end)

test:test('stop, start, restart', function(test)
    test:plan(4)
    fresh()
    local seen, blocked, is_at_six = {}, true, false
    local function condition(_, tuple)
        if tuple[1] == 6 and blocked then
            is_at_six = true
            fiber.sleep(1000)
        end
        seen[#seen + 1] = tuple[1]
        return true
    end
    local more = options({ process_expired_tuple = kept, full_scan_delay = 100 })
    local task = expirationd.start('t', 's', condition, more)
    -- A busy machine lets the worker pause behind any tuple, and a task that is stopped there sees that tuple again.
    wait('the sixth', function() return is_at_six end)
    task:stop()
    test:is(task.worker_fiber, nil, 'no fiber')
    blocked = false
    task:start()
    wait('ten', function() return #seen == 10 end)
    test:is(table.concat(seen, ' '), '1 2 3 4 5 6 7 8 9 10', 'it goes on')
    task:restart()
    wait('all again', function() return #seen == 20 end)
    test:is(seen[11], 1, 'from the beginning')
    task:stop()
    task:stop()
    task:start()
    expirationd.start('t', 's', condition, more):kill()
    test:is_deeply(expirationd.tasks(), {}, 'killed')
end)

test:test('a callback may end its own task', function(test)
    test:plan(3)
    for _, method in ipairs({ 'stop', 'kill', 'restart' }) do
        fresh()
        local called = false
        local task
        task = expirationd.start('t', 's', function()
            if not called then
                called = true
                fiber.sleep(0.01)
                task[method](task)
            end
            return false
        end, options())
        wait(method, function() return called end)
        fiber.sleep(0.05)
        test:is(#expirationd.tasks(), method == 'kill' and 0 or 1, method)
        if method ~= 'kill' then task:kill() end
    end
end)

test:test('what is missing may come', function(test)
    test:plan(6)
    if box.space.s then box.space.s:drop() end
    rawset(_G, 'named', nil)
    local task = expirationd.start('t', 's', 'named', options({ index = 'later' }))
    test:is(task.alert, 'Expirationd warning, task "t": Space with name s does not exist', 'no space')
    local space = fresh()
    wait('no index', function()
        return task.alert == 'Expirationd warning, task "t": Index with name later does not exist'
    end)
    test:is(task.restarts, 0, 'not started')
    space:create_index('later', { parts = { 2, 'string' } })
    wait('no function', function()
        return task.alert == 'Expirationd warning, task "t": Function "named" (for option "is_tuple_expired") -- not loaded'
    end)
    rawset(_G, 'named', always)
    wait('it works', function() return space:count() == 0 end)
    wait('no warning is left', function() return task.alert == nil end)
    test:is(task.restarts, 1, 'started')
    space:drop()
    wait('no space again', function()
        return task.alert == 'Expirationd warning, task "t": Space with name s does not exist'
    end)
    test:is(task.guardian_fiber:status(), 'suspended', 'guarded')
    test:is(task.errors, 0, 'a space that is gone is no error')
    fresh():create_index('later', { parts = { 2, 'string' } })
    wait('it goes on', function() return box.space.s:count() == 0 end)
    test:is(task.restarts, 2, 'started again')
    task:kill()
end)

test:test('a read-only instance', function(test)
    test:plan(3)
    local space = fresh()
    box.cfg{ read_only = true }
    local task = expirationd.start('t', 's', always, options())
    fiber.sleep(0.1)
    test:is(task.checked_tuples_count, 0, 'nothing is checked')
    local forced = expirationd.start('forced', 's', function() return false end, options({ force = true }))
    wait('by force', function() return forced.checked_tuples_count > 0 end)
    forced:kill()
    test:is(space:count(), 10, 'nothing is deleted')
    box.cfg{ read_only = false }
    wait('all are gone', function() return space:count() == 0 end)
    test:ok(true, 'it goes on')
    task:kill()
end)

test:test('a lifetime', function(test)
    test:plan(2)
    local space = fresh()
    space:format({ { 'id', 'unsigned' }, { 'name', 'string' }, { 'created', 'number', is_nullable = true } })
    space:replace{ 1, 'old', fiber.time() - 100 }
    space:replace{ 2, 'new', fiber.time() + 100 }
    local task = expirationd.start('t', 's', nil,
        options({ args = { time_create_field = 'created', lifetime_in_seconds = 50 } }))
    wait('one is gone', function() return space:get(1) == nil end)
    test:is(space:count(), 9, 'the others live')
    task:kill()
    task = expirationd.start('t', 's', nil, options({ args = { time_create_field = 'none', lifetime_in_seconds = 5 } }))
    test:like(task.alert, 'Field none not found in space s', 'a field that is missing')
    task:kill()
end)

test:test('the task of a field', function(test)
    test:plan(6)
    local space = fresh()
    space:create_index('deadline', { unique = false, parts = { { 3, 'number', is_nullable = true } } })
    space:replace{ 1, 'x', fiber.time() - 1 }
    space:replace{ 2, 'y', fiber.time() + 1000 }
    local task = expirationd.start('t', 's', nil, { field = 3 })
    wait('one is gone', function() return space:get(1) == nil end)
    test:is(task:statistics().expired_count, 1, 'counted')
    test:is(require('lycosa.box').native('expiration.list')[1].mode, 'indexed', 'the server walks the index')
    task:stop()
    task:restart()
    test:is(task:statistics().restarts, 2, 'restarted')
    test:is(task:statistics().expired_count, 1, 'the counts stay')
    task:kill()
    test:is(#require('lycosa.box').native('expiration.list'), 0, 'gone')
    local done, message = pcall(expirationd.start, 't', 's', nil, { field = 'none' })
    test:ok(not done and tostring(message):find("has no field 'none'", 1, true), 'a field that is missing')
end)

test:test('triggers of a task of the server', function(test)
    test:plan(4)
    local native = require('lycosa.box').native
    local space = fresh()
    local fired, asked = {}, 0
    local function note(old, new)
        if new ~= nil then return end
        fired[#fired + 1] = old[1]
        if old[1] == 2 then error('two') end
    end
    space:truncate()
    space:on_replace(note)
    space:before_replace(function(_, new)
        if new == nil then asked = asked + 1 end
        return new
    end)
    for i = 1, 3 do space:replace{ i, tostring(i), 1 } end
    native('expiration.start', 't', 's', { field = 3 })
    wait('all have fired', function() return #fired == 3 end)
    test:is_deeply(fired, { 1, 2, 3 }, 'on_replace learns of each deletion, behind the transaction')
    test:is(space:count(), 0, 'an error in it takes nothing back')
    test:is(asked, 0, 'before_replace decides about statements of programs and clients only')
    test:is(native('expiration.stats', 't').errors, 0, 'and the task does not fail')
    native('expiration.stop', 't')
end)

test:test('wrong options of the server leave the task that runs', function(test)
    test:plan(4)
    local space = fresh()
    local task = expirationd.start('t', 's', function() return false end, options())
    test:ok(not pcall(expirationd.start, 't', 's', nil, { field = 3, unit = 'h' }), 'refused')
    test:is(expirationd.task('t'), task, 'the task with callbacks runs')
    wait('it checks', function() return task.checked_tuples_count > 0 end)
    task = expirationd.start('t', 's', nil, { field = 3 })
    test:ok(not pcall(expirationd.start, 't', 's', nil, { field = 3, unit = 'h' }), 'refused')
    space:replace{ 1, 'x', 1 }
    wait('the task by field runs', function() return space:get(1) == nil end)
    test:is(expirationd.task('t'), task, 'it is the same')
    task:kill()
end)

test:test('wrong arguments leave no name taken', function(test)
    local cases = {
        { 'bad argument #1', nil, 's', always },
        { 'bad argument #2', 't', {}, always },
        { 'bad argument #3', 't', 's', 5 },
        { 'bad argument #3 to start', 't', 's', nil },
        { 'bad argument options.iterate_with to nil (?string|function expected, got number)', 't', 's', always,
            { iterate_with = 1 } },
        { 'bad argument options.atomic_iteration', 't', 's', always, { atomic_iteration = 1 } },
        { 'bad argument options.index', 't', 's', always, { index = {} } },
        { 'unexpected argument options.bogus', 't', 's', always, { bogus = 1 } },
        { 'Invalid tuples per iteration parameter', 't', 's', always, { tuples_per_iteration = 0 } },
        { 'Invalid full scan time', 't', 's', always, { full_scan_time = -1 } },
        { 'Invalid full scan delay', 't', 's', always, { full_scan_delay = 0 / 0 } },
        { 'Invalid iteration delay', 't', 's', always, { iteration_delay = -1LL } },
        { "Unknown iterator type 'X'", 't', 's', always, { iterator_type = 'X' } },
        { 'Supplied key type of part 0 does not match', 't', 's', always, { start_key = 'x' } },
        { 'start key of the program', 't', 's', always, { start_key = function() error('start key of the program') end } },
        { 'exclude each other', 't', 's', always, { field = 3 } },
        { 'options.args needs is_tuple_expired', 't', 's', nil, { field = 3, args = {} } },
        { 'options.unit belongs to options.field', 't', 's', always, { unit = 's' } },
        { "space 'none' does not exist", 't', 'none', nil, { field = 3 } },
        { 'unit', 't', 's', nil, { field = 3, unit = 'h' } },
    }
    test:plan(2 * #cases + 6)
    fresh()
    for _, case in ipairs(cases) do
        local done, message = pcall(expirationd.start, case[2], case[3], case[4], case[5])
        test:ok(not done and tostring(message):find(case[1], 1, true), case[1] .. ': ' .. tostring(message))
        test:is(#expirationd.tasks(), 0, 'no task')
    end
    for _, name in ipairs({ 'kill', 'task', 'stats' }) do
        local done, message = pcall(expirationd[name], 'none')
        test:ok(not done and message:find("task 'none' doesn't exist", 1, true), name)
        done, message = pcall(expirationd[name], 5)
        test:ok(not done and message:find('bad argument #1', 1, true), name .. ' of a number')
    end
end)

test:test('a wrong restart leaves the task that runs', function(test)
    test:plan(2)
    fresh()
    local task = expirationd.start('t', 's', function() return false end, options())
    test:ok(not pcall(expirationd.start, 't', 's', always, { iterator_type = 'X' }), 'refused')
    test:is(expirationd.task('t'), task, 'it runs')
    task:kill()
end)

test:test('update', function(test)
    test:plan(4)
    local space = fresh()
    expirationd.start('t', 's', function(args, tuple) return tuple[1] == args[1] end, options({ args = { 3 } }))
    local former, done = expirationd, false
    fiber.create(function() expirationd.update() done = true end)
    local _, message = pcall(function() return expirationd.start end)
    test:like(message, 'Wait until update is done', 'meanwhile')
    wait('the update', function() return done end)
    test:ok(require('expirationd') ~= former and former.start == require('expirationd').start, 'a new table')
    expirationd = require('expirationd')
    space:replace{ 3, 'again' }
    wait('three is gone', function() return space:get(3) == nil end)
    test:is(expirationd.task('t').full_scan_delay, 0.01, 'with its options')
    former.kill('t')
    test:is_deeply(expirationd.tasks(), {}, 'killed by the former table')
end)

test:test('configuration and metrics', function(test)
    test:plan(8)
    test:is(expirationd.cfg.metrics, false, 'no module metrics')
    local done, message = pcall(expirationd.cfg, { metrics = true })
    test:ok(not done and message:find('metrics >= 0.11.0 is required', 1, true), 'not without it')
    test:ok(not pcall(function() expirationd.cfg.metrics = true end), 'no assignment')
    test:ok(not pcall(expirationd.cfg, { other = true }), 'no other option')
    local values, callbacks = {}, {}
    package.loaded['metrics.collectors.counter'] = { remove = kept }
    package.loaded.metrics = {
        registry = { unregister = function(_, counter) values[counter.name] = nil end },
        register_callback = function(callback) callbacks[callback] = true end,
        unregister_callback = function(callback) callbacks[callback] = nil end,
        counter = function(name)
            values[name] = 0
            return {
                name = name,
                inc = function(_, count, labels) values[name] = values[name] + (labels.name == 't' and count or 0) end,
                remove = function() values[name] = 0 end,
            }
        end,
    }
    expirationd.cfg({ metrics = true })
    local space = fresh()
    expirationd.start('t', 's', always, options())
    wait('all are gone', function() return space:count() == 0 end)
    -- Other fibers run between a deletion and what the task counts of it.
    wait('all are told', function()
        for callback in pairs(callbacks) do callback() callback() end
        return values.expirationd_expired_count >= 10
    end)
    test:is(values.expirationd_expired_count, 10, 'expired')
    test:is(values.expirationd_restarts, 1, 'restarts')
    expirationd.kill('t')
    test:is(values.expirationd_expired_count, 0, 'forgotten')
    expirationd.cfg({ metrics = false })
    test:ok(next(callbacks) == nil and next(values) == nil, 'disabled')
end)

test:test('older names', function(test)
    test:plan(3)
    local space = fresh()
    local task = expirationd.run_task('t', space.id, always, nil, nil, 5, 0.01)
    wait('all are gone', function() return space:count() == 0 end)
    test:is(expirationd.get_task('t'), task, 'get_task')
    test:is_deeply(expirationd.show_task_list(), { 't' }, 'show_task_list')
    expirationd.kill_task('t')
    test:like(expirationd._VERSION, '^%d+%.%d+%.%d+$', 'version')
end)

os.exit(test:check() and 0 or 1)
