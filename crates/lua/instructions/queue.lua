-- A queue in Lua, as programs have them, for the gate on instructions (`xtask/src/instructions.rs`): `queue.lua CYCLES` puts,
-- takes and acknowledges so many tasks from several fibers and ends. Nothing in it depends on time.
box.cfg({ wal_mode = 'none', log = 'queue.log' })
local fiber = require('fiber')

local WORKERS = 8
local READY, TAKEN = 'R', 'T'

local space = box.schema.space.create('tasks', { format = {
    { name = 'id', type = 'unsigned' },
    { name = 'status', type = 'string' },
    { name = 'taken_by', type = 'unsigned' },
    { name = 'data', type = '*' },
} })
space:create_index('primary', { parts = { 'id' } })
space:create_index('status', { parts = { 'status', 'id' } })

-- Tasks by status, kept by a trigger.
local counts = { [READY] = 0, [TAKEN] = 0 }
space:on_replace(function(old, new)
    if old ~= nil then counts[old.status] = counts[old.status] - 1 end
    if new ~= nil then counts[new.status] = counts[new.status] + 1 end
end)

local queue = {}
local waiting, owners, last = fiber.channel(0), {}, 0

local function check_owner(id)
    local task = space:get({ id })
    if task == nil then error(('Task {%s} was not found'):format(id), 2) end
    if owners[id] ~= fiber.id() then error(('Task {%s} was not taken by this fiber'):format(id), 2) end
    return task
end

function queue.put(data)
    last = last + 1
    local task = space:insert({ last, READY, 0, data })
    if waiting:has_readers() then waiting:put(true, 0) end
    return task
end

function queue.take(timeout)
    local deadline = fiber.time() + timeout
    repeat
        for _, task in space.index.status:pairs({ READY }, { iterator = 'EQ' }) do
            owners[task.id] = fiber.id()
            return space:update({ task.id }, { { '=', 'status', TAKEN }, { '=', 'taken_by', fiber.id() } })
        end
        waiting:get(deadline - fiber.time())
    until fiber.time() > deadline
end

function queue.ack(id)
    local task = check_owner(id):transform(2, 1, 'D')
    space:delete({ id })
    owners[id] = nil
    return { id = task[1], data = task[4], fields = { task:unpack() } }
end

local cycles, sum, workers = tonumber(arg[1]), 0, {}
for worker = 1, WORKERS do
    workers[worker] = fiber.new(function()
        for number = worker, cycles, WORKERS do
            fiber.yield()
            queue.put({ number = number, text = 'task ' .. number })
            box.atomic(function()
                local task = queue.take(60)
                sum = sum + queue.ack(task.id).data.number
            end)
        end
    end)
    workers[worker]:set_joinable(true)
end
for _, worker in ipairs(workers) do assert(worker:join()) end
assert(sum == cycles * (cycles + 1) / 2 and space:len() == 0 and counts[READY] == 0 and counts[TAKEN] == 0)
os.exit(0)
