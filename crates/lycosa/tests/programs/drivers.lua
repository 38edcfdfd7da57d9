-- Tubes whose drivers are Lua: sessions, waiting takes, statistics, callbacks, transactions, restarts of the driver.
local fiber = require('fiber')
local queue = require('queue')

local function check(what, found, wanted)
    if found ~= wanted then error(('%s: %s instead of %s'):format(what, tostring(found), tostring(wanted)), 2) end
end

check('state before box.cfg', queue.state(), 'INIT')
local done, message = pcall(function() return queue.tube end)
check('use before box.cfg', done, false)
check('its text', message:match('Please configure box.cfg{} in read/write mode first') ~= nil, true)

-- A driver with a layout of its own: the newest task first.
local starts, stops = 0, 0
local lifo = {}
function lifo.create_space(name, options)
    local space = box.schema.create_space(name, { temporary = options.temporary })
    space:create_index('id', { parts = { 1, 'unsigned' }, sequence = true })
    space:create_index('state', { parts = { 3, 'string', 1, 'unsigned' } })
    return space
end
function lifo.new(space, on_task_change, options)
    local self = {}
    local function set(id, state, operation)
        local row = space:update(id, { { '=', 3, state } })
        on_task_change(row and box.tuple.new({ row[1], row[3], row[2] }), operation)
        return row
    end
    function self.normalize_task(_, row) return row and box.tuple.new({ row[1], row[3], row[2] }) end
    function self.put(_, data)
        local row = space:insert({ box.NULL, data, 'r' })
        on_task_change(box.tuple.new({ row[1], 'r', data }), 'put')
        return row
    end
    function self.take()
        local row = space.index.state:max({ 'r' })
        return row and set(row[1], 't', 'take')
    end
    function self.release(_, id) return set(id, 'r', 'release') end
    function self.bury(_, id) return set(id, '!', 'bury') end
    function self.kick() return 0 end
    function self.peek(_, id) return space:get(id) end
    function self.touch() error('no') end
    function self.delete(_, id)
        local row = space:delete(id)
        row = row:update({ { '=', 3, '-' } })
        on_task_change(box.tuple.new({ row[1], '-', row[2] }), 'delete')
        return row
    end
    function self.truncate() space:truncate() end
    function self.tasks_by_state(_, state) return space.index.state:pairs(state) end
    function self.start() starts = starts + 1 end
    function self.stop() stops = stops + 1 end
    return self
end

queue.register_driver('lifo', lifo)
check('a type twice', pcall(queue.register_driver, 'lifo', lifo), false)
box.cfg({ log = '/dev/null' })
check('state', queue.state(), 'RUNNING')

local seen = {}
local tube = queue.create_tube('stack', 'lifo', {
    on_task_change = function(task, operation)
        seen[#seen + 1] = operation
        fiber.sleep(0)
        if operation == 'bury' then error('a callback fails') end
    end,
})
tube:put('a')
tube:put('b')
check('the newest first', tube:take(0)[3], 'b')
check('ownership', pcall(tube.ack, tube, 1), false)
check('ack', tube:ack(2)[2], '-')
check('ids', tube:put('c')[1], 3)

-- A take waits, and a put wakes it.
check('nothing else', tube:take(0)[3], 'c')
check('nothing else', tube:take(0)[3], 'a')
local taken
fiber.create(function() taken = tube:take(10) end)
fiber.sleep(0.01)
check('a drop is refused while a take waits', pcall(tube.drop, tube), false)
tube:put('d')
for _ = 1, 500 do
    if taken then break end
    fiber.sleep(0.01)
end
check('a waiting take', taken and taken[3], 'd')

-- A callback that fails changes nothing but the count.
local before = box.runtime.info().hook_errors
tube:bury(1)
check('counted', box.runtime.info().hook_errors, before + 1)
check('buried', tube:peek(1)[2], '!')

-- An operation and its bookkeeping go with a transaction.
box.begin()
tube:put('gone')
box.rollback()
check('rolled back', queue.statistics('stack').tasks.ready, 0)
local statistics = queue.statistics()
check('puts', statistics.stack.calls.put, 4)
check('acks', statistics.stack.calls.ack, 1)
check('taken', statistics.stack.tasks.taken, 2)

-- A session that ends gives its tasks back.
queue._on_consumer_disconnect()
check('ready again', queue.statistics('stack').tasks.ready, 2)

-- A native driver's class as the base of another.
local fifottl = require('queue.abstract.driver.fifottl')
local timed = setmetatable({}, { __index = fifottl })
queue.register_driver('timed', timed)
local other = queue.create_tube('timed', 'timed', { ttl = 60 })
local late = other:put('late', { delay = 1 })
check('delayed', late[2], '~')
check('not yet', other:take(0), nil)
check('after its delay', other:take(10)[3], 'late')
check('touch', other:touch(late[1], 5)[2], 't')

-- Drivers stop with the instance's writability and start again.
local had = starts
box.cfg({ read_only = true })
check('waiting', queue.state(), 'WAITING')
check('refused', tube:put('x'), nil)
check('stopped', stops > 0, true)
box.cfg({ read_only = false })
check('started', starts, had + 1)

-- The driver is taken away and comes back: its taken tasks are ready.
check('taken', tube:take(0)[2], 't')
queue.driver.lifo = nil
queue.start()
check('without its driver', queue.tube.stack, nil)
queue.register_driver('lifo', lifo)
check('with it', queue.tube.stack:peek(4)[2], 'r')
queue.tube.stack:truncate()
check('dropped', queue.tube.stack:drop(), true)
check('gone', queue.tube.stack, nil)

-- What happens between a driver's change and its word for it, and between two releases.
local between = {}
local tardy = { create_space = lifo.create_space }
function tardy.new(space, on_task_change, options)
    local function act(operation)
        local what = between[operation]
        between[operation] = nil
        if what then what() end
    end
    local self = lifo.new(space, function(task, operation)
        act(operation)
        on_task_change(task, operation)
    end, options)
    function self.truncate()
        space:truncate()
        act('truncate')
    end
    -- What a driver's own fiber does when a time is over.
    function self.expire(_, id)
        space:update(id, { { '=', 3, 'r' } })
        act('ttr')
        on_task_change(box.tuple.new({ id, 'r', 'expired' }), 'ttr')
    end
    return self
end
queue.register_driver('tardy', tardy)
tube = queue.create_tube('tardy', 'tardy')
local function take_it() check('taken between', tube:take(0)[2], 't') end

between.put = take_it
local first = tube:put('a put that may wait', { timeout = 60 })[1]
check('whoever took it acknowledges it', tube:ack(first)[2], '-')

local second = tube:put('with a time')[1]
take_it()
between.ttr = take_it
tube.raw:expire(second)
check('its new owner acknowledges it', tube:ack(second)[2], '-')

local third = tube:put('with a time')[1]
take_it()
tube.raw:expire(third)
check('its former owner does not', pcall(tube.ack, tube, third), false)
take_it()

local fourth = tube:put('another')[1]
take_it()
tube:on_task_change(function(task, operation)
    if operation ~= 'release' then return end
    check('the elder first', task[1], third)
    tube:on_task_change(nil)
    tube.raw:release(fourth)
    take_it()
end)
tube:release_all()
check('released', tube:peek(third)[2], 'r')
check('its new owner keeps it', tube:peek(fourth)[2], 't')

between.truncate = function()
    box.space.tardy:insert({ fourth, 'another of this number', 'r' })
    take_it()
end
tube:truncate()
check('the task that was taken behind it has its owner', tube:ack(fourth)[2], '-')
check('no owner is left', box.space._queue_taken_2:count({ tube.tube_id }), 0)

-- Many tubes.
for i = 1, 60 do queue.create_tube('many' .. i, i % 2 == 0 and 'fifo' or 'timed', { temporary = true }) end
for i = 1, 60 do queue.tube['many' .. i]:put(i) end
for i = 1, 60 do check('its own task', queue.tube['many' .. i]:take(0)[3], i) end
check('all of them', #queue.tube() >= 60, true)
print('done')
os.exit(0)
