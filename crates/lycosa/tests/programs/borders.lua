-- Where native code and Lua code meet: Lua code runs in the middle of a native function and changes what that works on.
local fiber = require('fiber')
box.cfg({ wal_mode = 'none', log_level = 1 })
local space = box.schema.space.create('things')
space:create_index('pk')

local function fails(wanted, ...)
    local done, message = pcall(...)
    message = tostring(message)
    assert(not done and message:find(wanted, 1, true), message)
end

-- A table that loses or gains items while it is encoded. The number of its items is written before them.
local function table_that(change)
    local map = {}
    for i = 1, 20 do
        map['key ' .. i] = setmetatable({}, { __serialize = function() change(map) return i end })
    end
    return map
end
local function empty(map)
    for key in pairs(map) do map[key] = nil end
    collectgarbage()
    for i = 1, 100 do map[i] = i end
end
for _, encode in ipairs({
    require('msgpack').encode, require('json').encode, require('yaml').encode,
    function(map) return space:replace({ 1, map }) end,
    function(map) return box.tuple.new({ map }) end,
}) do
    -- Which of the errors depends on the order of the table's items; either way nothing is encoded.
    fails('the table was changed while it was', encode, table_that(empty))
    for _, change in ipairs({ function(map) map[{}] = nil map.more = 1 end, function(map) map['key 1'] = nil end }) do
        local done, message = pcall(encode, table_that(change))
        assert(done or tostring(message):find('the table was changed while it was', 1, true), message)
    end
end
space:truncate()

-- A fiber that ends in a transaction ends the transaction too, with its triggers: nobody else joins it.
local undone = 0
for _, ending in ipairs({ function() end, function() error('no') end, function() fiber.self():cancel() end }) do
    local left = fiber.new(function()
        box.begin()
        box.on_rollback(function() undone = undone + 1 end)
        space:insert({ 2 })
        ending()
    end)
    left:set_joinable(true)
    left:join()
    assert(not space:get(2) and not box.is_in_txn())
    space:replace({ 3 })
    box.begin()
    box.commit()
    assert(space:len() == 1 and space:delete(3))
end
assert(undone == 3)

-- What is committed already cannot be taken back by its trigger, which may leave a transaction open.
local queue = require('queue')
local tube = queue.create_tube('jobs', 'fifo')
tube:on_task_change(function() box.begin() space:replace({ 4 }) end)
tube:put('a')
assert(not box.is_in_txn() and not space:get(4))
tube:on_task_change(nil)

-- Savepoints of other transactions, and those that were undone.
local gone = 'Can not rollback to savepoint: the savepoint does not exist'
box.begin()
local old = box.savepoint()
space:replace({ 5 })
local newer = box.savepoint()
box.rollback_to_savepoint(old)
space:replace({ 6, ('long'):rep(100) })
fails(gone, box.rollback_to_savepoint, newer)
box.rollback_to_savepoint(old)
box.rollback_to_savepoint(old)
space:replace({ 7 })
box.commit()
box.begin()
space:replace({ 8 })
fails(gone, box.rollback_to_savepoint, old)
fails(gone, box.rollback_to_savepoint, newer)
box.commit()
assert(#space:select() == 2 and space:get(7) and space:get(8))

-- The coroutine of a fiber that has ended is used for another fiber, and only by that.
local kept = {}
for _ = 1, 5 do
    local made = fiber.new(function() table.insert(kept, (coroutine.running())) end)
    made:set_joinable(true)
    made:join()
end
local ran = 0
for _ = 1, 5 do
    fiber.new(function(a) ran = ran + a end, 1)
    for _, co in ipairs(kept) do
        if co then assert(not coroutine.resume(co)) end
    end
end
fiber.sleep(0)
assert(ran == 5)

-- Something else in the place of a module.
local loaded = package.loaded
for _, odd in ipairs({ 1, 'text', true, print, newproxy() }) do
    for _, name in ipairs({ 'lycosa.box', 'lycosa.program' }) do
        local former = loaded[name]
        loaded[name] = odd
        pcall(fiber.create, function() box.begin() end)
        pcall(tube.put, tube, 'a')
        loaded[name] = former
    end
end
assert(not box.is_in_txn() and space:replace({ 9 }))

print('done')
os.exit(0)
