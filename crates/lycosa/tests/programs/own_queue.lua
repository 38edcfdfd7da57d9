-- What a queue module of the program's own needs of `box`: spaces with the names of the native queue's are spaces like
-- all others, and a driver's fiber that a task has woken finds the space whole while it is dropped.
local fiber = require('fiber')
box.cfg({ log = '/dev/null' })

local function check(what, found, wanted)
    if found ~= wanted then error(('%s: %s instead of %s'):format(what, tostring(found), tostring(wanted)), 2) end
end

box.schema.user.create('worker')
for _, name in ipairs({ '_queue_consumers', '_queue_taken_2', '_queue_session_ids', '_queue_shared_sessions' }) do
    local space = box.schema.create_space(name, { temporary = true })
    space:create_index('pk')
    box.session.su('worker', function()
        check(name .. ' is closed', pcall(space.insert, space, { 1 }), false)
    end)
    box.schema.user.grant('worker', 'read,write', 'space', name)
    box.session.su('worker', function()
        check(name .. ' takes rows', space:insert({ 1 })[1], 1)
        check(name .. ' is read', #space:select(), 1)
    end)
end

-- A driver's fiber: an error would not end it, as in the public module, so that it would never pause again.
local space = box.schema.create_space('tasks')
space:create_index('task_id')
space:create_index('watch', { parts = { 2, 'unsigned' }, unique = false })
local changed, failures = fiber.cond(), 0
local timers = fiber.create(function()
    while failures == 0 do
        if not pcall(function() return space.index.watch:min() end) then failures = failures + 1 end
        changed:wait(100)
    end
end)
space:insert({ 1, 1 })
changed:signal()
space:drop()
fiber.yield()
check('failures of the timers', failures, 0)
check('the timers', timers:status(), 'suspended')
check('the space', box.space.tasks, nil)
-- Who may call the program's own queue is said by its grants alone; the rule for guest on this machine is about the native one.
rawset(_G, 'queue', { put = function() return 'put' end })
box.cfg({ listen = '127.0.0.1:0' })
local guest = require('net.box').connect(box.info.listen)
local done, message = pcall(guest.call, guest, 'queue.put')
check('a call of guest', done, false)
check('its error', tostring(message), "Execute access to function 'queue.put' is denied for user 'guest'")
box.schema.func.create('queue.put')
box.schema.user.grant('guest', 'execute', 'function', 'queue.put')
check('a call that is granted', guest:call('queue.put'), 'put')
io.write('done\n')
io.flush()
os.exit(0)
