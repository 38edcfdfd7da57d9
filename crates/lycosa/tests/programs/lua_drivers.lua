-- Drivers in Lua of the kinds that the queue has natively, as a program would write them: sub-queues, sub-queues with
-- times, a limited tube. The same steps on the native tube and on the one in Lua give the same results.
local fiber = require('fiber')
local json = require('json')
local queue = require('queue')
local state = require('queue.abstract.state')

local INFINITY = 365 * 86400 * 100 * 1000000
local function now() return tonumber(fiber.time64()) end
-- A time in a tuple may be a number of 64 bits, which math.min does not take.
local function least(one, other) return one < other and one or other end
local function micros(seconds) return seconds and least(seconds * 1000000, INFINITY) or INFINITY end

-- Numbers of tasks, none twice.
local function ids(space)
    local last = space.index.task_id:max()
    local id = last and last[1] or -1
    return function() id = id + 1 return id end
end

-- utube: at most one task of a sub-queue is taken.
local utube = {}

function utube.create_space(name, options)
    local space = box.schema.create_space(name, { temporary = options.temporary, if_not_exists = options.if_not_exists })
    space:create_index('task_id', { parts = { 1, 'unsigned' }, if_not_exists = true })
    space:create_index('status', { parts = { 2, 'string', 1, 'unsigned' }, if_not_exists = true })
    space:create_index('utube', { parts = { 2, 'string', 3, 'string', 1, 'unsigned' }, if_not_exists = true })
    return space
end

function utube.new(space, on_task_change)
    local self, next_id = {}, ids(space)
    local function change(id, to, operation)
        local row = space:update(id, { { '=', 2, to } })
        if row ~= nil then on_task_change(row, operation) end
        return row
    end
    -- The next task of a sub-queue that is free now.
    local function wake(name)
        if space.index.utube:count({ state.TAKEN, name }) > 0 then return end
        local row = space.index.utube:min({ state.READY, name })
        if row ~= nil and row[2] == state.READY then on_task_change(row) end
    end
    function self.normalize_task(_, row) return row and row:transform(3, 1) end
    function self.put(_, data, options)
        local row = space:insert({ next_id(), state.READY, tostring(options.utube or ''), data })
        on_task_change(row, 'put')
        return row
    end
    function self.take()
        for _, row in space.index.status:pairs(state.READY) do
            if space.index.utube:count({ state.TAKEN, row[3] }) == 0 then return change(row[1], state.TAKEN, 'take') end
        end
    end
    function self.touch() error('utube queue does not support touch') end
    function self.delete(_, id)
        local row = space:get(id)
        space:delete(id)
        if row == nil then return nil end
        local was_taken = row[2] == state.TAKEN
        row = row:transform(2, 1, state.DONE)
        on_task_change(row, 'delete')
        if was_taken then wake(row[3]) end
        return row
    end
    function self.release(_, id) return change(id, state.READY, 'release') end
    function self.bury(_, id)
        local row = change(id, state.BURIED, 'bury')
        if row ~= nil then wake(row[3]) end
        return row
    end
    function self.kick(_, count)
        for i = 1, count do
            local row = space.index.status:min(state.BURIED)
            if row == nil or row[2] ~= state.BURIED then return i - 1 end
            change(row[1], state.READY, 'kick')
        end
        return count
    end
    function self.peek(_, id) return space:get(id) end
    function self.tasks_by_state(_, which) return space.index.status:pairs(which) end
    function self.truncate() space:truncate() end
    return self
end

-- What a driver with times does: fields id, status, next_event, ttl, ttr, pri, created, utube, data.
local ID, STATUS, NEXT, TTL, TTR, PRI, CREATED, UTUBE = 1, 2, 3, 4, 5, 6, 7, 8
local timed = {}

function timed.create_space(name, options)
    local space = box.schema.create_space(name, { temporary = options.temporary, if_not_exists = options.if_not_exists })
    space:create_index('task_id', { parts = { ID, 'unsigned' }, if_not_exists = true })
    space:create_index('status', { parts = { STATUS, 'string', PRI, 'unsigned', ID, 'unsigned' }, if_not_exists = true })
    space:create_index('utube', { parts = { STATUS, 'string', UTUBE, 'string', PRI, 'unsigned', ID, 'unsigned' },
        if_not_exists = true })
    space:create_index('watch', { parts = { STATUS, 'string', NEXT, 'unsigned' }, unique = false, if_not_exists = true })
    return space
end

-- `has_subqueues`: one taken task of each; `capacity`: puts wait while so many tasks are there.
function timed.make(space, on_task_change, options, has_subqueues, capacity)
    local self, next_id = {}, ids(space)
    local room, work = fiber.cond(), fiber.cond()
    local function change(row, updates, operation)
        row = space:update(row[ID], updates)
        if row ~= nil then on_task_change(row, operation) work:signal() end
        return row
    end
    local function is_free(name) return not has_subqueues or space.index.utube:count({ state.TAKEN, name }) == 0 end
    local function wake(name)
        if not has_subqueues or not is_free(name) then return end
        local row = space.index.utube:min({ state.READY, name })
        if row ~= nil and row[STATUS] == state.READY then on_task_change(row) end
    end
    local function finish(row, operation)
        space:delete(row[ID])
        local was_taken = row[STATUS] == state.TAKEN
        row = row:update({ { '=', STATUS, state.DONE } })
        on_task_change(row, 'delete')
        if operation ~= 'delete' then on_task_change(row, operation) end
        room:broadcast()
        if was_taken then wake(row[UTUBE]) end
        return row
    end
    -- Does what is due with the first task of a state; when the next one is.
    local function due(which, at)
        local row = space.index.watch:min(which)
        if row == nil or row[STATUS] ~= which then return INFINITY end
        if row[NEXT] > at then return row[NEXT] - at end
        if which == state.DELAYED then
            change(row, { { '=', STATUS, state.READY }, { '=', NEXT, row[CREATED] + row[TTL] } }, 'delay')
        elseif which == state.TAKEN and row[CREATED] + row[TTL] > at then
            change(row, { { '=', STATUS, state.READY }, { '=', NEXT, row[CREATED] + row[TTL] } }, 'ttr')
        else
            finish(row, 'ttl')
        end
        return 0
    end
    local worker
    local function watch()
        while true do
            local pause = INFINITY
            for _, which in ipairs({ state.DELAYED, state.READY, state.TAKEN }) do
                pause = least(pause, due(which, now()))
            end
            if pause > 0 then work:wait(math.min(tonumber(pause) / 1000000, 3600)) else fiber.yield() end
            fiber.testcancel()
        end
    end
    function self.start() worker = worker or fiber.create(watch) end
    function self.stop()
        if worker then worker:cancel() end
        worker = nil
    end
    self.start()
    function self.normalize_task(_, row) return row and row:transform(3, row[UTUBE] and 6 or 5) end
    function self.put(_, data, given)
        local deadline = now() + (given.timeout and micros(given.timeout) or INFINITY)
        while capacity and space:len() >= capacity do
            if now() >= deadline then return nil end
            room:wait(tonumber(deadline - now()) / 1000000)
        end
        local ttl, ttr = micros(given.ttl or options.ttl), micros(given.ttr or options.ttr or given.ttl or options.ttl)
        local status, at = state.READY, now() + ttl
        if given.delay and given.delay > 0 then
            status, at, ttl = state.DELAYED, now() + micros(given.delay), ttl + micros(given.delay)
        end
        local row = space:insert({ next_id(), status, at, ttl, ttr, given.pri or options.pri or 0, now(),
            tostring(given.utube or ''), data })
        on_task_change(row, 'put')
        work:signal()
        return row
    end
    function self.take()
        for _, row in space.index.status:pairs(state.READY) do
            if is_free(row[UTUBE]) then
                local at = least(now() + row[TTR], row[CREATED] + row[TTL])
                return change(row, { { '=', STATUS, state.TAKEN }, { '=', NEXT, at } }, 'take')
            end
        end
    end
    function self.touch(_, id, more)
        return change(space:get(id), { { '+', NEXT, more }, { '+', TTL, more }, { '+', TTR, more } }, 'touch')
    end
    function self.delete(_, id)
        local row = space:get(id)
        return row and finish(row, 'delete')
    end
    function self.release(_, id, given)
        local row = space:get(id)
        if given.delay and given.delay > 0 then
            local delay = micros(given.delay)
            row = change(row, { { '=', STATUS, state.DELAYED }, { '=', NEXT, now() + delay }, { '+', TTL, delay } }, 'release')
        else
            row = change(row, { { '=', STATUS, state.READY }, { '=', NEXT, row[CREATED] + row[TTL] } }, 'release')
        end
        wake(row[UTUBE])
        return row
    end
    function self.bury(_, id)
        local row = change(space:get(id), { { '=', STATUS, state.BURIED } }, 'bury')
        wake(row[UTUBE])
        return row
    end
    function self.kick(_, count)
        for i = 1, count do
            local row = space.index.status:min(state.BURIED)
            if row == nil or row[STATUS] ~= state.BURIED then return i - 1 end
            change(row, { { '=', STATUS, state.READY } }, 'kick')
        end
        return count
    end
    function self.peek(_, id) return space:get(id) end
    function self.tasks_by_state(_, which) return space.index.status:pairs(which) end
    function self.truncate() space:truncate() room:broadcast() end
    return self
end

local utubettl = { create_space = timed.create_space }
function utubettl.new(space, on_task_change, options) return timed.make(space, on_task_change, options, true) end
local limfifottl = { create_space = timed.create_space }
function limfifottl.new(space, on_task_change, options)
    return timed.make(space, on_task_change, options, false, options.capacity)
end

queue.register_driver('lua_utube', utube)
queue.register_driver('lua_utubettl', utubettl)
queue.register_driver('lua_limfifottl', limfifottl)
box.cfg({ log = '/dev/null' })

-- What a call gave, as text: the task without what differs by time, or the error without its place.
local function shown(done, ...)
    local result = ...
    if done and select('#', ...) == 0 then return 'nothing' end
    if not done then return 'error: ' .. tostring(result):gsub('^[^ ]*:%d+: ', '') end
    if result == nil then return 'nil' end
    if type(result) == 'table' or type(result) == 'cdata' then return json.encode(result) end
    return tostring(result)
end

local tubes = 0
local function compare(kind, options, steps)
    local found = {}
    tubes = tubes + 1
    for place, name in ipairs({ kind, 'lua_' .. kind }) do
        local tube = queue.create_tube(('tube_%s_%d'):format(name, tubes), name, options)
        local lines = {}
        local function step(method, ...) lines[#lines + 1] = method .. ' ' .. shown(pcall(tube[method], tube, ...)) end
        steps(step, tube, lines)
        local statistics = queue.statistics(tube.name)
        lines[#lines + 1] = json.encode({ statistics.tasks.ready, statistics.tasks.taken, statistics.tasks.buried,
            statistics.tasks.delayed, statistics.tasks.done, statistics.tasks.total, statistics.calls.put,
            statistics.calls.take, statistics.calls.ack, statistics.calls.release, statistics.calls.bury,
            statistics.calls.kick })
        found[place] = table.concat(lines, '\n')
    end
    if found[1] ~= found[2] then error(('%s\nnative:\n%s\nin Lua:\n%s'):format(kind, found[1], found[2]), 2) end
end

-- Takes in a fiber of its own; the task is shown when it has come.
local function waiting(tube, lines, act)
    local taken
    local taker = fiber.new(function() taken = tube:take(60) end)
    taker:set_joinable(true)
    fiber.yield()
    act()
    taker:join()
    lines[#lines + 1] = 'waited ' .. shown(true, taken)
end

local function subqueues(step, tube, lines)
    for number, name in ipairs({ 'a', 'a', 'b', 'c' }) do step('put', 'task ' .. number, { utube = name }) end
    step('take', 0)
    step('take', 0)
    step('take', 0)
    step('take', 0)
    step('ack', 0)
    step('take', 0)
    step('release', 2)
    step('bury', 3)
    step('kick', 5)
    step('ack', 2)
    step('peek', 99)
    step('put', 'task 5', { utube = 'b' })
    step('put', 'task 6', { utube = 'b' })
    step('take', 0)
    step('take', 0)
    step('take', 0)
    -- A sub-queue that becomes free serves whoever waits.
    waiting(tube, lines, function() step('ack', 2) end)
    step('delete', 1)
    step('put', 7)
    step('truncate')
    step('take', 0)
end
compare('utube', {}, subqueues)
compare('utubettl', {}, subqueues)

compare('utubettl', { ttr = 3600 }, function(step, tube, lines)
    step('put', 'much later', { delay = 3600, utube = 'd' })
    step('take', 0)
    step('delete', 0)
    step('put', 'later', { delay = 0.05, utube = 'd' })
    step('take', 60)
    step('release', 1, { delay = 0.05 })
    step('take', 60)
    step('ack', 1)
    step('put', 'lost', { ttl = 0.05, utube = 'd' })
    for _ = 1, 1000 do
        if box.space[tube.name]:len() == 0 then break end
        fiber.sleep(0.01)
    end
    step('peek', 2)
    step('put', 'again', { ttr = 0.05, utube = 'd' })
    step('take', 0)
    -- Its time runs out, and a waiting call gets it. It may run out again at once: the counts below are those without it.
    step('take', 60)
    step('delete', 3)
end)

compare('limfifottl', { capacity = 2 }, function(step, tube, lines)
    step('put', 'one')
    step('put', 'two', { pri = 0 })
    step('put', 'three', { timeout = 0.01 })
    step('take', 0)
    fiber.create(function() fiber.sleep(0.02) tube:ack(0) end)
    step('put', 'four', { timeout = 60 })
    step('take', 0)
    step('bury', 1)
    step('kick', 1)
    step('take', 0)
    step('take', 0)
end)
print('done')
os.exit(0)
