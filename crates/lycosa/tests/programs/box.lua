-- What a program sees of box: spaces, indexes, tuples, transactions, triggers, errors.
print(arg[1], ...)
print((pcall(function() return box.space end)))
box.cfg{ log_level = 2 }
local s = box.schema.create_space('queue', { if_not_exists = true })
local same, how = box.schema.create_space('queue', { if_not_exists = true })
print(same == s, how)
print(pcall(box.schema.create_space, 'queue'))
s:format({ { name = 'id', type = 'number' }, { name = 'status', type = 'string' }, { name = 'data', type = '*' } })
for i, field in ipairs(s:format()) do print(i, field.name, field.type) end
local primary = s:create_index('primary', { parts = { 1, 'number' }, if_not_exists = true })
s:create_index('status', { parts = { 2, 'string', 1, 'number' }, if_not_exists = true })
s:create_index('plain', { parts = { { 'status' } }, unique = false })
print(primary.name, primary.id, primary.type, primary.unique, primary.parts[1].fieldno, primary.parts[1].type)
print(s.index.status.parts[2].fieldno, s.index.plain.parts[1].type, s.index[1].name)
print(pcall(s.create_index, s, 'primary'))

local t = s:insert{ 5, 'R', { 'hello', { a = 1 } } }
print(t, t.id, t.status, t[3][1], #t, type(t), box.tuple.is(t), box.tuple.is({}))
print(pcall(s.insert, s, { 5, 'R', 'x' }))
print(pcall(s.insert, s, { 'x', 'R', 'x' }))
print(pcall(s.insert, s, 5))
print(s:update({ 5 }, { { '=', 2, 'T' } }), s:update(5, { { '=', 'status', 'W' } }), s:update(77, { { '=', 2, 'x' } }))
s:upsert({ 5, 'N', 1 }, { { '=', 3, 'upserted' } })
s:upsert({ 6, 'N', 1 }, { { '=', 3, 'upserted' } })
print(s:get(5), s:get{ 6 }, s:get(99))
print(s:replace{ 6, 'R', 2 }, s:put{ 7, 'R', box.NULL })
for _, x in s.index.status:pairs({ 'R' }, { iterator = 'EQ' }) do print('pair', x) end
for _, x in s:pairs(6, { iterator = 'GE' }) do print('from 6', x) end
print(s:len(), s:count(), s:count(6, { iterator = 'GT' }), s.index.plain:count('R'), s.index.primary:min(), s.index.primary:max())
print(#s:select(), #s:select({}, { limit = 2 }), s:select({}, { offset = 1, limit = 1 })[1], s:select({ 5 }, 'LE')[1])
print(pcall(s.get, s, { 'x' }))
print(pcall(s.get, s, {}))
print(pcall(s.index.plain.get, s.index.plain, 'R'))
print(pcall(s.select, s, {}, { iterator = 'NONE' }))
print(s:delete(7), s:delete{ 7 })

-- What changes while it is walked.
for i = 10, 15 do s:insert{ i, 'L', i } end
local seen = {}
for _, x in s.index.status:pairs({ 'L' }, { iterator = 'EQ' }) do
    seen[#seen + 1] = x.id
    s:delete(x.id)
    if x.id == 11 then s:insert{ 16, 'L', 0 } end
end
print(table.concat(seen, ' '))

-- Triggers.
local function trigger(old, new) print('trigger', old, new) end
print(s:on_replace(trigger) == trigger, #s:on_replace())
s:replace{ 20, 'R', 1 }
s:update(20, { { '+', 3, 1 } })
s:delete(20)
local failing = s:on_replace(function() error('refused', 0) end, trigger)
print(pcall(s.replace, s, { 21, 'R', 1 }))
print(s:get(21))
s:on_replace(nil, failing)
print(#s:on_replace())

-- Transactions.
box.begin()
s:replace{ 30, 'R', 1 }
print(box.is_in_txn(), s:get(30))
box.rollback()
print(box.is_in_txn(), s:get(30))
box.begin()
s:replace{ 31, 'R', 1 }
local place = box.savepoint()
s:replace{ 32, 'R', 1 }
box.rollback_to_savepoint(place)
box.commit()
print(s:get(31), s:get(32))
print(box.atomic(function(a, b) s:replace{ 33, 'R', a + b } return 'done', a end, 1, 2))
print(pcall(box.atomic, function() s:replace{ 34, 'R', 1 } error('oops', 0) end))
print(s:get(33), s:get(34))
print(pcall(function()
    box.begin()
    box.begin()
end))
box.rollback()
box.begin()
s:replace{ 35, 'R', 1 }
require('fiber').sleep(0)
print(pcall(box.commit))
print(s:get(35))

-- Truncation, with its trigger.
box.space._truncate:on_replace(function(old, new) print('truncate', old == nil, new and new.id == s.id) end)
s:truncate()
print(s:len())

-- Tuples.
local tuple = box.tuple.new{ 1, 'two', { three = 3 }, box.NULL, 5 }
print(tuple, #tuple, tuple[2], tuple[3].three, tuple[4] == nil, tuple[6])
print(tuple:totable()[5], tuple:totable(2, 3)[1], tuple:unpack(1, 2))
print(tuple:slice(1, 3), tuple:find('two'), #tuple:findall(5))
print(tuple:update{ { '=', 2, 'x' }, { '#', 4, 1 } }, tuple:transform(2, 2, 'a', 'b', 'c'))
for i, field in tuple:ipairs() do if i < 3 then io.write(i, '=', tostring(field), ' ') end end
print(box.tuple.new(1, 2), box.tuple.new{})
print(t:tomap{ names_only = true }.id, t:tomap()[1], t:tomap().status)
print(pcall(function() tuple.x = 1 end))
print(s:frommap{ id = 1, status = 'R', data = 3 })

-- Errors.
local done, e = pcall(s.insert, s, { 'x' })
print(done, type(e), e.type, e.code, tostring(e) == e.message)
local done, e = pcall(box.error, box.error.PROC_LUA, 'text %s', 1)
print(done, e.code, e.message, e.type)
local done, e = pcall(box.error, { code = 555, reason = 'own' })
print(done, e.code, e.message)
print(box.error.new(box.error.UNSUPPORTED, 'x', 'y').code)

-- Sequences and users.
local sequence = box.schema.sequence.create('numbers', { start = 5, step = 2 })
print(sequence:next(), sequence:next(), box.sequence.numbers:current())
local counted = box.schema.space.create('counted')
counted:create_index('pk', { sequence = true })
print(counted:insert{ box.NULL, 'a' }, counted:insert{ box.NULL, 'b' })
box.schema.user.create('ann', { password = 'x', if_not_exists = true })
box.schema.user.grant('ann', 'read', 'space', 'queue', { if_not_exists = true })
print(box.schema.user.exists('ann'), box.schema.user.exists('bob'))
box.schema.user.grant('guest', 'super', nil, nil, { if_not_exists = true })
print(box.session.user(), box.session.storage.x, box.session.peer())
print(pcall(box.cfg, { no_such_option = 1 }))
local ran = 0
for _ = 1, 2 do box.once('key', function() ran = ran + 1 end) end
print(ran)
s:rename('renamed')
print(box.space.queue, box.space.renamed.name)
s:drop()
print(box.space.renamed)
os.exit(3)
