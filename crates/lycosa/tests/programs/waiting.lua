-- Fibers that wait for box.cfg: SQL in several at once, and the modes of the instance. Both servers print the same.
local fiber = require('fiber')
local session = box.session
print(session.id(), session.type(), session.user(), session.effective_user(), session.uid(), session.euid(), session.sync())
print(session.peer(), session.exists(1), session.exists(100), box.runtime.info().used > 0)
local execute = box.execute
local results, order = fiber.channel(4), {}
local read_only = fiber.create(function() box.ctl.wait_ro() order[#order + 1] = 'read-only' end)
local writable = fiber.create(function() box.ctl.wait_rw() order[#order + 1] = 'writable' end)
print(read_only:status(), writable:status())

for number = 1, 4 do
    fiber.create(function()
        local done, result = pcall(number == 4 and box.execute or execute, 'SELECT * FROM "_vindex"')
        results:put({ done, done and #result.rows > 0 or result })
    end)
end
for _ = 1, 4 do
    local result = results:get()
    print(result[1], tostring(result[2]))
end
while #order < 2 do fiber.sleep(0.001) end
table.sort(order)
print(table.concat(order, ' '), type(box.cfg), box.execute ~= execute)
print(pcall(box.ctl.wait_ro, 0.001))

local later = fiber.create(function() box.ctl.wait_ro() order[#order + 1] = 'later' end)
fiber.sleep(0.01)
print(later:status())
box.cfg({ read_only = true })
while #order < 3 do fiber.sleep(0.001) end
print(order[3], later:status())
box.cfg({ read_only = false, force_recovery = true, wal_dir_rescan_delay = 1 })
print(box.cfg.force_recovery, box.cfg.wal_dir_rescan_delay)

-- An iterator over what was dropped meanwhile ends.
local space = box.schema.space.create('dropped')
space:create_index('first')
space:create_index('second')
space:insert({ 1 })
space:insert({ 2 })
local step, parameter, state = space.index.second:pairs()
state = step(parameter, state)
space.index.second:drop()
print(step(parameter, state) == nil)
step, parameter, state = space:pairs()
state = step(parameter, state)
space:drop()
print(step(parameter, state) == nil)
print(tonumber64(100, 10), tonumber64(7LL, 10), pcall(tonumber64, 100, 16) == false)
os.exit(0)
