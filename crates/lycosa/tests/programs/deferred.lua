-- The first read of an index with many deferred entries lets others run between its steps, but not inside of a transaction.
local fiber = require('fiber')
local queue = require('queue')

box.cfg{ wal_mode = 'none', log_level = 2 }

local TASKS = 20000

local function fill(name)
    queue.create_tube(name, 'fifottl')
    local payloads = {}
    for number = 1, 1000 do payloads[number] = { number } end
    for _ = 1, TASKS / 1000 do queue.tube[name]:put_many(payloads) end
end

local rounds = 0
fiber.create(function()
    while true do
        rounds = rounds + 1
        fiber.yield()
    end
end)

-- Rounds of the other fiber during a call.
local function during(call)
    local before = rounds
    local result = call()
    return rounds - before, result
end

local reads = {
    select = function(space) return #space.index.watch:select({}, { limit = 10 }) end,
    count = function(space) return space.index.watch:count() end,
    pairs = function(space)
        local count = 0
        for _ in space.index.watch:pairs() do
            count = count + 1
            if count == 10 then break end
        end
        return count
    end,
}
for _, name in ipairs({ 'select', 'count', 'pairs' }) do
    fill(name)
    local space = box.space[name]
    local first, found = during(function() return reads[name](space) end)
    local second, again = during(function() return reads[name](space) end)
    print(name, first >= 20, second, found, again)
end

fill('inside')
local space = box.space.inside
box.begin()
space:insert({ 999999, 'r', 9e15, 9e15, 9e15, 0, 0, 'x' })
local paused, found = during(function() return space.index.watch:count() end)
print('transaction', paused, found, box.is_in_txn())
box.commit()
print('committed', space:get(999999) ~= nil)
os.exit(0)
