-- Random work of one round: returns what was done, by kind. Runs in Lycosa and in Tarantool, on the master.
local seed, count, has_queue = ...
local state = seed
local function below(bound)
    -- Park and Miller: the same numbers in every Lua.
    state = (state * 16807) % 2147483647
    return state % bound
end
local function pick(list) return list[below(#list) + 1] end

-- Spaces of this work, by name.
local function spaces()
    local found = {}
    for _, row in box.space._space:pairs() do
        if row[1] >= 512 and row[3]:match('^w%d') then found[#found + 1] = row[3] end
    end
    return found
end
local function a_space()
    local found = spaces()
    local name = #found > 0 and pick(found)
    local space = name and box.space[name]
    if not space or not space.index[0] then return nil end
    return space
end
local function key() return below(60) + 1 end
local function tuple() return { key(), 'name ' .. below(40), below(1000), { deep = below(9), list = { 1, box.NULL, 'x' } } } end
local function tubes()
    local found = {}
    for _, row in box.space._queue:pairs() do found[#found + 1] = row[1] end
    return found
end

local kinds = {}
function kinds.create_space()
    if #spaces() > 6 then return false end
    local name = 'w' .. below(12)
    local space = box.schema.space.create(name, {
        is_local = below(8) == 0, temporary = below(8) == 0 or nil,
        format = below(2) == 0 and { { 'id', 'unsigned' }, { 'name', 'string', is_nullable = true } } or nil,
    })
    space:create_index('pk', { type = pick { 'tree', 'hash' }, sequence = below(3) == 0 or nil })
end
function kinds.create_index()
    local space = a_space()
    if not space then return false end
    space:create_index('i' .. below(4), pick {
        { unique = false, parts = { { 2, 'string', is_nullable = true }, { 1, 'unsigned' } } },
        { unique = false, parts = { { 3, 'unsigned', is_nullable = true } } },
        { type = 'hash', parts = { { 3, 'unsigned' }, { 1, 'unsigned' } } },
    })
end
function kinds.drop_index()
    local space = a_space()
    local index = space and space.index['i' .. below(4)]
    if not index then return false end
    index:drop()
end
function kinds.drop_space()
    local space = a_space()
    if not space or below(3) > 0 then return false end
    space:drop()
end
function kinds.rename()
    local space = a_space()
    if not space then return false end
    space:rename('w' .. below(12))
end
function kinds.truncate()
    local space = a_space()
    -- The row of `_truncate` of a space that stays on the master stays there too.
    if not space or space.is_local or space.temporary then return false end
    space:truncate()
end
function kinds.format()
    local space = a_space()
    if not space then return false end
    space:format(pick { {}, { { 'id', 'unsigned' } }, { { 'key', 'unsigned' }, { 'text', 'string', is_nullable = true } } })
end
function kinds.insert() local space = a_space() if not space then return false end space:insert(tuple()) end
function kinds.replace() local space = a_space() if not space then return false end space:replace(tuple()) end
function kinds.delete() local space = a_space() if not space then return false end return space:delete(key()) ~= nil end
function kinds.update()
    local space = a_space()
    if not space then return false end
    return space:update(key(), pick {
        { { '=', 2, 'changed' } }, { { '+', 3, 5 } }, { { '!', 5, 'more' } }, { { ':', 2, 1, 2, 'ab' } },
        { { '=', 2, 'a' }, { '-', 3, 1 } },
    }) ~= nil
end
function kinds.upsert()
    local space = a_space()
    if not space then return false end
    space:upsert(tuple(), { { '+', 3, 1 }, { '=', 2, 'upserted' } })
end
function kinds.auto_increment()
    local space = a_space()
    if not space or not space.index[0].sequence_id then return false end
    space:insert { box.NULL, 'numbered', below(1000) }
end
function kinds.transaction()
    local a, b = a_space(), a_space()
    if not a then return false end
    box.begin()
    for _ = 1, below(12) + 1 do pcall(a.replace, a, tuple()) pcall(b.delete, b, key()) end
    local place = box.savepoint()
    pcall(b.replace, b, tuple())
    if below(2) == 0 then box.rollback_to_savepoint(place) end
    if below(4) == 0 then box.rollback() return false end
    box.commit()
end
function kinds.sequence()
    local name = 's' .. below(4)
    local sequence = box.sequence[name]
    if not sequence then
        box.schema.sequence.create(name, { step = below(5) + 1, cycle = below(2) == 0, max = 100000 })
    elseif below(6) == 0 then
        sequence:drop()
    elseif below(4) == 0 then
        sequence:set(below(500) + 1)
    elseif below(6) == 0 then
        sequence:reset()
    else
        sequence:next()
    end
end
function kinds.user()
    local name = 'u' .. below(4)
    if not box.schema.user.exists(name) then
        box.schema.user.create(name, { password = 'secret ' .. below(9) })
    elseif below(4) == 0 then
        box.schema.user.drop(name)
    else
        box.schema.user.passwd(name, 'secret ' .. below(9))
    end
end
function kinds.role()
    local name = 'r' .. below(3)
    if not box.schema.role.exists(name) then
        box.schema.role.create(name)
    elseif below(4) == 0 then
        box.schema.role.drop(name)
    else
        local space = a_space()
        if not space then return false end
        local change = pick { box.schema.role.grant, box.schema.role.revoke }
        change(name, pick { 'read', 'write', 'read,write' }, 'space', space.name)
    end
end
function kinds.grant()
    local user, role = 'u' .. below(4), 'r' .. below(3)
    local change = pick { box.schema.user.grant, box.schema.user.revoke }
    if below(2) == 0 then change(user, role) else change(user, 'read,write', 'universe') end
end
function kinds.function_row()
    local name = 'f' .. below(4)
    if box.schema.func.exists(name) then
        box.schema.func.drop(name)
    else
        box.schema.func.create(name, { setuid = below(2) == 0 })
    end
end

local queue_kinds = {}
function queue_kinds.create_tube()
    if #tubes() > 5 then return false end
    local kind = pick { 'fifo', 'fifottl', 'utube', 'utubettl', 'limfifottl' }
    local options = kind == 'limfifottl' and { capacity = 50 } or {}
    queue.create_tube('t' .. below(8), kind, options)
end
local function a_tube()
    local found = tubes()
    return #found > 0 and queue.tube[pick(found)] or nil
end
function queue_kinds.put()
    local tube = a_tube()
    if not tube then return false end
    tube:put({ text = 'task ' .. below(1000) }, pick {
        {}, { delay = 0.01 }, { ttl = 3600, ttr = 1800, pri = below(9) }, { utube = 'sub ' .. below(3) },
    })
end
local taken = {}
function queue_kinds.take()
    local tube = a_tube()
    local task = tube and tube:take(0)
    if not task then return false end
    taken[#taken + 1] = { tube, task[1] }
end
local function finish(method, ...)
    local one = table.remove(taken)
    if not one then return false end
    one[1][method](one[1], one[2], ...)
end
function queue_kinds.ack() return finish('ack') end
function queue_kinds.release() return finish('release', pick { {}, { delay = 0.02 } }) end
function queue_kinds.bury() return finish('bury') end
function queue_kinds.kick() local tube = a_tube() if not tube then return false end return tube:kick(3) > 0 end
function queue_kinds.truncate_tube()
    local tube = a_tube()
    if not tube or below(4) > 0 then return false end
    tube:truncate()
end
function queue_kinds.drop_tube()
    local tube = a_tube()
    if not tube or below(4) > 0 then return false end
    tube:drop()
end

local names = {}
for name in pairs(kinds) do names[#names + 1] = name end
table.sort(names)
-- Rows are written more often than definitions.
for _ = 1, 5 do
    for _, name in ipairs { 'insert', 'replace', 'delete', 'update', 'upsert', 'transaction' } do names[#names + 1] = name end
end
if has_queue then
    local own = {}
    for name, kind in pairs(queue_kinds) do
        kinds[name] = kind
        own[#own + 1] = name
    end
    table.sort(own)
    for _, name in ipairs(own) do names[#names + 1] = name end
    for _ = 1, 6 do
        for _, name in ipairs { 'put', 'put', 'take', 'ack', 'release', 'bury' } do names[#names + 1] = name end
    end
end

local done = {}
for _ = 1, count do
    local name = pick(names)
    -- What does not fit the data is refused; what was done until then stays, or is rolled back with its transaction.
    local ok, result = pcall(kinds[name])
    if box.is_in_txn() then box.rollback() end
    if ok and result ~= false then done[name] = (done[name] or 0) + 1 end
end
return done
