-- Triggers on the spaces of tubes, and what the server does by itself.
local fiber = require('fiber')
local queue = require('queue')
local function check(what, found, wanted)
    if found ~= wanted then error(('%s: %s instead of %s'):format(what, tostring(found), tostring(wanted)), 2) end
end

box.cfg({ log = '/dev/null' })
local tube = queue.create_tube('mail', 'fifottl')
local space = box.space.mail
local seen = {}
local watcher = space:on_replace(function(old, new, name, kind)
    seen[#seen + 1] = (old and old[2] or '') .. '>' .. (new and new[2] or '') .. '/' .. (box.is_in_txn() and 1 or 0)
end)

tube:put('a')
check('put', seen[1], '>r/1')
tube:take(0)
check('take', seen[2], 'r>t/1')
tube:ack(0)
check('ack', seen[3], 't>/1')

-- A trigger's error takes the operation back.
local refusing = space:on_replace(function(_, new) if new and new.data == 'no' then error('refused') end end)
local done, message = pcall(tube.put, tube, 'no')
check('refused', done, false)
check('why', tostring(message):match('refused$'), 'refused')
check('nothing is left', space:len(), 0)
space:on_replace(nil, refusing)

-- A before trigger changes what is put.
local changing = space:before_replace(function(_, new)
    if new and new.data == 'small' then return new:update({ { '=', 'data', 'BIG' } }) end
    return new
end)
check('changed', tube:put('small')[3], 'BIG')
check('stored', tube:take(0)[3], 'BIG')
space:before_replace(nil, changing)

-- A waiting take, a deadline: triggers run behind them, and their errors undo nothing.
seen = {}
local taken
fiber.create(function() taken = tube:take(10) end)
fiber.sleep(0.01)
tube:put('waited for')
for _ = 1, 500 do
    if taken then break end
    fiber.sleep(0.01)
end
check('taken', taken and taken[3], 'waited for')
local failing = space:on_replace(function(_, new) if new and new[2] == 'r' and taken then error('too late') end end)
local errors = box.runtime.info().hook_errors
local late = tube:release(taken[1], { delay = 0.05 })
check('delayed', late[2], '~')
for _ = 1, 200 do
    if tube:peek(late[1])[2] == 'r' then break end
    fiber.sleep(0.01)
end
for _ = 1, 500 do
    if box.runtime.info().hook_errors > errors then break end
    fiber.sleep(0.01)
end
check('ready all the same', tube:peek(late[1])[2], 'r')
check('counted', box.runtime.info().hook_errors > errors, true)
space:on_replace(nil, failing)

-- The spaces of the queue itself.
local owners = 0
local owning = box.space._queue_taken_2:on_replace(function(_, new) if new then owners = owners + 1 end end)
tube:take(0)
check('an owner', owners > 0, true)
box.space._queue_taken_2:on_replace(nil, owning)

-- A hook may write and put.
box.schema.create_space('log'):create_index('pk', { sequence = true })
local other = queue.create_tube('other', 'fifo')
other:on_task_change(function(task, operation)
    box.space.log:insert({ box.NULL, operation })
    if operation == 'put' and task[3] ~= 'echo' then other:put('echo') end
end)
other:put('first')
check('logged', box.space.log:len() >= 2, true)
check('echoed', queue.statistics('other').tasks.ready, 2)

-- A yield inside a trigger takes the transaction away.
local yielding = space:on_replace(function() fiber.yield() end)
done, message = pcall(space.insert, space, { 77, 'r', 0, 0, 0, 0, 0, 'x' })
check('aborted', done, false)
check('by the yield', tostring(message), 'Transaction has been aborted by a fiber yield')
check('nothing stored', space:get(77), nil)
space:on_replace(nil, yielding)
space:on_replace(nil, watcher)
check('none is left', #space:on_replace(), 0)

-- An endless trigger ends with an error.
local endless = box.space.log:on_replace(function() while true do end end)
done, message = pcall(box.space.log.insert, box.space.log, { box.NULL, 'x' })
check('ended', done, false)
check('its text', tostring(message):match('without a pause') ~= nil, true)
box.space.log:on_replace(nil, endless)

-- An argument that is nil is not there.
check('no options', tube:put('nil', nil)[3], 'nil')
check('nor here', tube:release(tube:take(0)[1], nil)[3], 'nil')
check('nor a timeout', pcall(tube.put, tube, 'null', box.NULL), false)

-- Triggers of the process.
local list = require('internal.trigger').new('mine')
local order = {}
local first, second = function(x) order[#order + 1] = 'first' .. x end, function(x) order[#order + 1] = 'second' .. x end
list(first)
list(second)
list:run(7)
check('the oldest first', table.concat(order, ' '), 'first7 second7')
list(nil, first)
check('removed', #list(), 1)
box.ctl.on_shutdown(function() print('done') end)
os.exit(0)
