-- What `lycosa bench programs` calls: the same program under Lycosa and under Tarantool. `programs.lua ADDRESS`.
box.cfg({ listen = arg[1], wal_mode = 'write', log = 'program.log', memtx_memory = 512 * 1024 * 1024 })
box.schema.user.grant('guest', 'super', nil, nil, { if_not_exists = true })

local ROWS = 10000
local space = box.schema.space.create('rows', { if_not_exists = true })
space:create_index('primary', { parts = { { 1, 'unsigned' } }, if_not_exists = true })
space:create_index('kind', { parts = { { 2, 'string' }, { 1, 'unsigned' } }, if_not_exists = true })
for i = 1, ROWS do space:replace({ i, 'r', 'payload ' .. i }) end
local tasks = box.schema.space.create('tasks', { if_not_exists = true })
tasks:create_index('primary', { parts = { { 1, 'unsigned' } }, if_not_exists = true })
tasks:create_index('state', { parts = { { 2, 'string' }, { 1, 'unsigned' } }, if_not_exists = true })

local at, last, last_task = 0, ROWS, 0
local function next_row()
    at = at % ROWS + 1
    return at
end

local bench = {}
function bench.noop() end
function bench.get() return space:get(next_row()) end
function bench.select() return space:select({ next_row() }, { iterator = 'GE', limit = 10 }) end
function bench.insert()
    last = last + 1
    space:insert({ last, 'r', 'payload of a row' })
end
function bench.update()
    local row = next_row()
    space:update(row, { { '=', 3, 'changed ' .. row } })
end
-- A queue in Lua: put, take and ack of a task.
function bench.queue()
    last_task = last_task + 1
    tasks:insert({ last_task, 'r', 'payload of a task' })
    local task = tasks.index.state:min('r')
    tasks:update(task[1], { { '=', 2, 't' } })
    tasks:delete(task[1])
end
function bench.gets()
    local size = 0
    for i = 1, 100 do size = size + #space:get(next_row())[3] end
    return size
end
function bench.walk()
    local sum = 0
    for _, row in space:pairs({ next_row() }, { iterator = 'GE' }) do
        sum = sum + row[1]
        if row[1] % 100 == 0 then break end
    end
    return sum
end
function bench.transaction()
    box.begin()
    for _ = 1, 100 do bench.update() end
    box.commit()
end
-- Code that calls nothing.
function bench.loop()
    local sum, fields = 0, {}
    for i = 1, 10000 do
        fields[i % 16] = i
        sum = sum + (fields[i % 7] or 0) % 13
    end
    return sum
end
local fiber = require('fiber')
function bench.fibers()
    local done = fiber.channel(10)
    for number = 1, 10 do
        fiber.create(function()
            fiber.yield()
            done:put(number)
        end)
    end
    local sum = 0
    for _ = 1, 10 do sum = sum + done:get() end
    return sum
end
rawset(_G, 'bench', bench)
