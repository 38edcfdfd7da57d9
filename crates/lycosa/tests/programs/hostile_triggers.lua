-- Triggers that do what a trigger should not: each of ACTIONS, in `before_replace` and in `on_replace`, on a space and on
-- the space of a tube, for each kind of statement and of queue operation, alone and inside of a transaction, from Lua and
-- from a client. After each the server answers, no transaction is open, and all indexes of the space agree. At the end
-- the contents of all spaces are printed: `hostile_triggers.lua again` prints what a restart finds.
local fiber = require('fiber')
local net_box = require('net.box')

local address = '127.0.0.1:' .. arg[1]
box.cfg({ listen = address, wal_mode = 'write', log = 'hostile.log' })
local queue = require('queue')

-- What a restart brings back. It releases tasks, and the queue's own spaces are about sessions.
local function contents()
    local shown = {}
    for _, row in box.space._space:pairs(512, { iterator = 'GE' }) do
        local space = box.space[row[1]]
        if space.index[0] and not row[3]:match('^_queue') then
            for _, tuple in space:pairs() do
                table.insert(shown, row[3] .. ' ' .. tostring(row[3] == 'hostile' and tuple[1] or tuple))
            end
        end
    end
    return table.concat(shown, '\n')
end

if arg[2] == 'again' then
    print(contents())
    os.exit(0)
end

box.schema.user.grant('guest', 'super', nil, nil, { if_not_exists = true })
local client = net_box.connect(address)
assert(client:ping(), 'the server answers')

-- What the present combination works on.
local space, tube, outer, inner, before
local busy = false
local other = box.schema.space.create('other')
other:create_index('pk')

local function in_space(name, ...) return space[name](space, ...) end
local function finalizers()
    for _ = 1, 20 do
        local object = newproxy(true)
        getmetatable(object).__gc = function()
            pcall(box.rollback)
            pcall(in_space, 'replace', { 1, 'finalized', 9 })
            error('in a finalizer')
        end
    end
    collectgarbage()
end

-- Each gets the old and the new tuple; what it returns is what the trigger returns.
local ACTIONS = {
    commit = function() box.commit() end,
    rollback = function() box.rollback() end,
    begin = function() box.begin() end,
    atomic = function() box.atomic(in_space, 'replace', { 2, 'atomic', 2 }) end,
    replace_same = function(_, new) in_space('replace', { new and new[1] or 1, 'nested', 5 }) end,
    replace_same_kept = function(_, new) in_space('replace', { 1, 'nested', 5 }) return new end,
    update_same = function() in_space('update', 1, { { '=', 2, 'updated' } }) end,
    upsert_same = function() in_space('upsert', { 1, 'upserted', 7 }, { { '=', 2, 'upserted' } }) end,
    delete_same = function() in_space('delete', 1) end,
    delete_all = function() for _, tuple in ipairs(space:select()) do in_space('delete', tuple[1]) end end,
    delete_and_insert = function() in_space('delete', 1) in_space('insert', { 1, 'again', 3 }) end,
    conflict = function() in_space('insert', { 1, 'a', 1 }) end,
    conflict_caught = function() pcall(in_space, 'insert', { 1, 'a', 1 }) end,
    truncate = function() in_space('truncate') end,
    drop = function() in_space('drop') end,
    drop_and_create = function()
        local id, name = space.id, space.name
        space:drop()
        space = box.schema.space.create(name, { id = id })
        space:create_index('pk')
    end,
    drop_index = function() space.index[1]:drop() end,
    drop_caught = function() pcall(in_space, 'drop') end,
    alter_index = function() space.index[1]:alter({ parts = { 1, 'unsigned' }, unique = true }) end,
    rename_index = function() space.index[1]:rename('renamed') end,
    create_index = function() space:create_index('third', { parts = { 1, 'unsigned' } }) end,
    format = function() space:format({ { 'id', 'unsigned' }, { 'second', 'any' } }) end,
    rename = function() space:rename('renamed_' .. space.id) end,
    remove_trigger = function() before.remove() end,
    disable_triggers = function() space:run_triggers(false) space:run_triggers(true) end,
    more_triggers = function() before.add(function() end) end,
    yield = function() fiber.yield() end,
    yield_and_write = function() fiber.sleep(0) in_space('replace', { 3, 'after a yield', 3 }) end,
    yield_and_rollback = function() fiber.sleep(0) pcall(box.rollback) pcall(box.begin) end,
    other_fiber = function() fiber.create(function() pcall(in_space, 'replace', { 4, 'other fiber', 4 }) end) end,
    other_transaction = function()
        fiber.create(function() box.begin() pcall(in_space, 'replace', { 4, 'left open', 4 }) end)
    end,
    coroutine = function() coroutine.wrap(function() in_space('replace', { 1, 'in a coroutine', 5 }) fiber.sleep(0) end)() end,
    cancel_self = function() fiber.self():cancel() end,
    error = function() error('no') end,
    error_object = function() box.error({ code = 1000, reason = 'no' }) end,
    error_nil = function() error(nil) end,
    error_table = function() error({}) end,
    error_after_write = function() in_space('replace', { 1, 'before an error', 5 }) error('no') end,
    collect = function() collectgarbage() end,
    finalizers = finalizers,
    old_savepoint = function() box.rollback_to_savepoint(outer) end,
    old_savepoint_caught = function() pcall(box.rollback_to_savepoint, outer) end,
    own_savepoint = function()
        local place = box.savepoint()
        in_space('replace', { 1, 'undone', 5 })
        box.rollback_to_savepoint(place)
    end,
    keep_savepoint = function() inner = box.savepoint() end,
    former_savepoint = function() if inner then box.rollback_to_savepoint(inner) end inner = box.savepoint() end,
    recurse = function(_, new) busy = false in_space('replace', new or { 1, 'x', 1 }) end,
    endless_tables = function() local all = {} for i = 1, 1000 do all[i] = { all[i - 1] } end return nil end,
    returns_old = function(old) return old end,
    returns_nil = function() return nil end,
    returns_text = function() return 'text' end,
    returns_table = function() return { 1, 'table', 1 } end,
    returns_other_key = function() return box.tuple.new({ 77, 'other key', 8 }) end,
    returns_same_key = function(old, new)
        local tuple = (new or old):totable()
        tuple[2] = 'returned'
        return box.tuple.new(tuple)
    end,
    returns_conflict = function(old, new) return box.tuple.new({ (new or old)[1], 'b', 2 }) end,
    returns_short = function() return box.tuple.new({}) end,
    changed_table = function()
        local map = {}
        for i = 1, 9 do
            map['k' .. i] = setmetatable({}, { __serialize = function() map['k' .. i] = nil map[{}] = 1 return i end })
        end
        in_space('replace', { 5, 'changed', 5, map })
    end,
    snapshot = function() box.snapshot() end,
    su = function() box.session.su('guest') end,
    put = function() tube:put('from a trigger') end,
    take = function() tube:take(0) end,
    ack_same = function(old, new) tube:ack((new or old)[1]) end,
    release_same = function(old, new) tube:release((new or old)[1]) end,
    delete_task = function(old, new) tube:delete((new or old)[1]) end,
    bury_and_kick = function(old, new) tube:bury((new or old)[1]) tube:kick(10) end,
    drop_tube = function() tube:drop() end,
    create_tube = function() queue.create_tube('made', 'fifo', { if_not_exists = true }) end,
    release_all = function() tube:release_all() end,
    truncate_tube = function() tube:truncate() end,
    wait = function() tube:take(0.001) end,
}

local STATEMENTS = {
    insert = function(on) on:insert({ 6, 'inserted', 6 }) end,
    replace = function(on) on:replace({ 1, 'replaced', 6 }) end,
    replace_new = function(on) on:replace({ 8, 'replaced', 6 }) end,
    update = function(on) on:update(1, { { '=', 2, 'u' } }) end,
    upsert = function(on) on:upsert({ 1, 'upserted', 6 }, { { '=', 2, 'upserted' } }) end,
    upsert_new = function(on) on:upsert({ 9, 'upserted', 6 }, { { '=', 2, 'upserted' } }) end,
    delete = function(on) on:delete(1) end,
}

local OPERATIONS = {
    put = function(t) t:put('new', { delay = 0 }) end,
    take = function(t) t:take(0) end,
    ack = function(t) t:ack(0) end,
    release = function(t) t:release(0) end,
    bury = function(t) t:bury(0) end,
    delete = function(t) t:delete(1) end,
    touch = function(t) t:touch(0, 1) end,
    kick = function(t) t:kick(1) end,
    truncate = function(t) t:truncate() end,
    drop = function(t) t:ack(0) t:drop() end,
}

local function sorted(of)
    local names = {}
    for name in pairs(of) do names[#names + 1] = name end
    table.sort(names)
    return names
end

-- Every index has every tuple once.
local function check_indexes(on, what)
    if not on or not on.index[0] then return end
    local all = on:select()
    for number, index in pairs(on.index) do
        if type(number) == 'number' then
            assert(index:len() == #all and #index:select() == #all, what .. ': length of index ' .. number)
            local seen = {}
            for _, tuple in index:pairs() do
                assert(not seen[tuple[1]], what .. ': a tuple twice in index ' .. number)
                seen[tuple[1]] = true
            end
            for _, tuple in ipairs(all) do assert(seen[tuple[1]], what .. ': a tuple is not in index ' .. number) end
        end
    end
end

local function check(what)
    fiber.self():set_joinable(false)
    assert(not box.is_in_txn(), what .. ': a transaction is open')
    check_indexes(box.space[space.id], what)
    local row = box.space._queue:get('hostile')
    check_indexes(row and box.space[row[3]], what)
    check_indexes(other, what)
    assert(client:eval('return box.is_in_txn()') == false, what .. ': the server answers')
    assert(other:replace({ 1, what }), what)
    assert(other:get(1)[2] == what, what)
    assert(not inner or not pcall(box.rollback_to_savepoint, inner), what)
    inner = nil
end

-- Runs in a fiber of its own, which may be cancelled or leave a transaction open.
local function run(what, body)
    local runner = fiber.new(body)
    runner:set_joinable(true)
    local done, message = runner:join()
    local text = tostring(message)
    busy = false
    assert(done or not text:find('internal error', 1, true), what .. ': ' .. text)
    check(what)
end

local function in_transaction(body, ends)
    return function()
        box.begin()
        outer = box.savepoint()
        pcall(other.replace, other, { 2, 'in the transaction' })
        pcall(body)
        pcall(box.rollback_to_savepoint, inner)
        box[ends]()
    end
end

local function with_trigger(kind, action, watched, body)
    local function trigger(...)
        if busy then return select(2, ...) end
        busy = true
        local results = { pcall(action, ...) }
        busy = false
        if not results[1] then error(results[2], 0) end
        return unpack(results, 2, table.maxn(results))
    end
    watched[kind](watched, trigger)
    before = {
        remove = function() watched[kind](watched, nil, trigger) end,
        add = function(new) watched[kind](watched, new) end,
    }
    body()
    -- The next combination is prepared by this fiber, which must not be cancelled.
    busy = true
    pcall(before.remove)
    busy = false
end

local function new_tube()
    if queue.tube.hostile then
        -- A taken task keeps its tube from being dropped.
        for _, row in ipairs(box.space._queue_taken_2:select()) do box.space._queue_taken_2:delete({ row[1], row[2] }) end
        queue.tube.hostile:drop()
    end
    tube = queue.create_tube('hostile', 'fifottl')
    for i = 1, 4 do tube:put(i) end
    tube:bury(2)
    tube:take(0)
end

local function new_space(name)
    local former = box.space[name] or space and box.space[space.id]
    if former then former:drop() end
    space = box.schema.space.create(name)
    space:create_index('pk')
    space:create_index('second', { parts = { 2, 'string' }, unique = false })
    space:create_index('number', { parts = { 3, 'unsigned' }, unique = false })
    for i, text in ipairs({ 'a', 'b', 'c' }) do space:insert({ i, text, i }) end
end

local count, stride = 0, tonumber(arg[2] or 1)
local function combine(kind, name, action, from, modes)
    for _, statement in ipairs(sorted(from.bodies)) do
        local body = from.bodies[statement]
        for _, mode in ipairs(modes) do
            local what = ('%s %s: %s %s %s'):format(kind, name, from.name, statement, mode)
            count = count + 1
            if count % stride ~= 0 then goto continue end
            if os.getenv('LYCOSA_TEST_VERBOSE') then io.stderr:write(what, '\n') end
            from.prepare()
            with_trigger(kind, action, from.watched(), function()
                if mode == 'alone' then
                    outer = nil
                    run(what, function() body(from.target()) end)
                elseif mode == 'client' then
                    run(what, function() from.by_client(statement) end)
                else
                    run(what, in_transaction(function() body(from.target()) end, mode))
                end
            end)
            ::continue::
        end
    end
end

-- What clients call.
function hostile_statement(name) STATEMENTS[name](space) end
local function client_statement(name)
    client:reload_schema()
    local on = client.space[space.name]
    pcall(STATEMENTS[name], on)
    pcall(client.call, client, 'hostile_statement', { name })
end
local function client_operation(name)
    local arguments = ({ put = { 'new' }, take = { 0 }, touch = { 0, 1 }, kick = { 1 } })[name] or { 0 }
    pcall(client.call, client, 'queue.tube.hostile:' .. name, arguments)
end

new_tube()
local own = {
    name = 'space', bodies = STATEMENTS, by_client = client_statement,
    prepare = function() if not queue.tube.hostile or not box.space._queue:get('hostile') then new_tube() end new_space('watched') end,
    watched = function() return space end, target = function() return space end,
}
local tasks = {
    name = 'tube', bodies = OPERATIONS, by_client = client_operation,
    prepare = function() new_tube() space = box.space[box.space._queue:get('hostile')[3]] end,
    watched = function() return space end, target = function() return tube end,
}

for _, kind in ipairs({ 'before_replace', 'on_replace' }) do
    for _, name in ipairs(sorted(ACTIONS)) do
        combine(kind, name, ACTIONS[name], own, { 'alone', 'client', 'commit', 'rollback' })
        combine(kind, name, ACTIONS[name], tasks, { 'alone', 'client', 'commit' })
    end
end

new_space('watched')
print(contents())
os.exit(0)
