-- Random transactions over tasks and rows until somebody kills the process: `transactions.lua SEED`. Each key is a row of
-- `own` and a task, and both have the same state. Before a commit a line `try KEY STATE` is printed, after it `ok KEY STATE`.
-- `transactions.lua check` prints the state of each key in both places.
local fiber = require('fiber')
local queue = require('queue')
local random = math.random

box.cfg({ log = 'transactions.log', wal_mode = 'write' })
local own = box.schema.space.create('own', { if_not_exists = true })
own:create_index('key', { parts = { 1, 'unsigned' }, if_not_exists = true })
local kinds = { 'fifo', 'fifottl', 'utube', 'utubettl' }
for _, kind in ipairs(kinds) do queue.create_tube(kind, kind, { if_not_exists = true }) end

if arg[1] == 'check' then
    local states = {}
    for _, row in own:pairs() do states[row[1]] = { row[2], 'none' } end
    for _, kind in ipairs(kinds) do
        for _, row in box.space[kind]:pairs() do
            local key = row[#row]
            states[key] = states[key] or { 'none' }
            states[key][2] = row[2]
        end
    end
    for key, both in pairs(states) do print(key, both[1], both[2]) end
    print('checked')
    os.exit(0)
end
math.randomseed(tonumber(arg[1]))

-- Tasks that this process has taken stay taken until it ends, and are ready for the next one.
local last_key = 0
local refused = 'refused by the test'

-- Runs `body` as a transaction that may also fail, pause or come back to a savepoint; whether it was committed.
local function transaction(key, to, body)
    local way = random(10)
    if way == 1 then
        local done = pcall(box.atomic, function()
            body()
            error(refused)
        end)
        assert(not done)
        return false
    end
    box.begin()
    if way == 2 then
        -- What follows a savepoint goes, and the same is done again.
        local savepoint = box.savepoint()
        body()
        box.rollback_to_savepoint(savepoint)
    end
    body()
    if way == 3 then
        box.rollback()
        return false
    end
    if way == 4 then
        -- A pause takes the transaction back.
        fiber.sleep(0)
        assert(not pcall(box.commit))
        box.rollback()
        return false
    end
    -- Others that fail alone.
    if way == 5 then assert(not pcall(own.insert, own, { 'no number' })) end
    if way == 6 then assert(not pcall(queue.tube.fifo.ack, queue.tube.fifo, 1000000)) end
    io.write(('try %d %s\n'):format(key, to))
    box.commit()
    io.write(('ok %d %s\n'):format(key, to))
    return true
end

local function worker(kind)
    local tube = queue.tube[kind]
    -- Tasks of this fiber by their keys: `{id, state}`.
    local tasks, keys = {}, {}
    while true do
        local key = keys[random(math.max(#keys, 1))]
        local task = key and tasks[key]
        local step = random(6)
        if task == nil or step == 1 and #keys < 30 then
            last_key = last_key + 1
            key = last_key
            local id
            local made = transaction(key, 'r', function()
                id = tube:put(key, kind:find('utube') and { utube = tostring(key) } or nil)[1]
                own:insert({ key, 'r' })
            end)
            if made then
                tasks[key] = { id, 'r' }
                table.insert(keys, key)
            end
        elseif task[2] == 'r' then
            -- The first that is ready may be another one; its row changes with it.
            local found
            local function take()
                found = tube:take(0)
                own:update(found[3], { { '=', 2, 't' } })
            end
            -- Which one is known when it is taken: the line names it.
            box.begin()
            take()
            io.write(('try %d t\n'):format(found[3]))
            if random(5) == 1 then
                box.rollback()
            else
                box.commit()
                io.write(('ok %d t\n'):format(found[3]))
                tasks[found[3]][2] = 't'
            end
        elseif task[2] == 't' then
            local method = ({ 'ack', 'release', 'bury', 'delete' })[random(4)]
            local to = ({ ack = 'none', release = 'r', bury = '!', delete = 'none' })[method]
            local done = transaction(key, to, function()
                tube[method](tube, task[1])
                if to == 'none' then own:delete(key) else own:update(key, { { '=', 2, to } }) end
            end)
            if done then
                task[2] = to
                if to == 'none' then
                    tasks[key] = nil
                    for place, known in ipairs(keys) do
                        if known == key then table.remove(keys, place) break end
                    end
                end
            end
        elseif task[2] == '!' then
            local done = transaction(key, 'none', function()
                tube:delete(task[1])
                own:delete(key)
            end)
            if done then
                tasks[key] = nil
                for place, known in ipairs(keys) do
                    if known == key then table.remove(keys, place) break end
                end
            end
        end
        fiber.yield()
    end
end

for _, kind in ipairs(kinds) do
    fiber.create(function()
        local _, message = pcall(worker, kind)
        io.write('failed ', tostring(message), '\n')
    end)
end
