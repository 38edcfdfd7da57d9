-- Check constraints in a data folder and on a replica: `checks_kept.lua MODE [PORT]`.
--   write   begins a folder with constraints
--   read    opens the folder and shows what holds
--   snap    the same behind a snapshot
--   late    begins a folder with a tuple that fails a constraint, which was enabled later, and takes a snapshot
--   lead    begins a folder and serves a replica until that replica has shown what holds
--   follow  is that replica
local mode, port = arg[1], arg[2]
local fiber, fio, json = require('fiber'), require('fio'), require('json')
io.stdout:setvbuf('no')

if mode == 'follow' then fio.mkdir('replica') end
box.cfg({
    log = 'log', work_dir = mode == 'follow' and 'replica' or nil, listen = mode == 'lead' and '127.0.0.1:' .. port or nil,
    replication = mode == 'follow' and 'guest@127.0.0.1:' .. port or nil, replication_timeout = 0.5,
})

local function try(what, call, ...)
    local done, result = pcall(call, ...)
    print(what, done and 'done' or result.code, done and '' or result.message)
end

local function statement(text)
    local result, failure = box.execute(text)
    print(text, result and result.row_count or failure.code, failure and failure.message or '')
end

local function write()
    statement([[CREATE TABLE t(id INT PRIMARY KEY, a INT CONSTRAINT small CHECK (a < 10), CONSTRAINT "off" CHECK (a > 100), s TEXT, CHECK (length(s) > 1))]])
    statement([[ALTER TABLE t DISABLE CHECK CONSTRAINT "off"]])
    statement([[INSERT INTO t VALUES (1, 5, 'aa'), (2, NULL, NULL)]])
    local s = box.schema.space.create('s', { format = { { 'id', 'unsigned' }, { 'n', 'number', is_nullable = true } } })
    s:create_index('pk')
    s:create_check_constraint('odd', '"n" % 2 = 1')
    s:create_check_constraint('gone', '"n" > 1000000')
    s.ck_constraint.gone:drop()
    s:insert({ 1, 1 })
    s.ck_constraint.odd:enable(false)
    s:insert({ 2, 2 })
    s:delete(2)
    s.ck_constraint.odd:enable(true)
end

local function show()
    for _, row in box.space._ck_constraint:pairs() do print(json.encode(row)) end
    local t, s = box.space.T, box.space.s
    try('small', t.insert, t, { 3, 11, 'aa' })
    try('unnamed', t.insert, t, { 3, 1, 'a' })
    try('update', t.update, t, 1, { { '+', 2, 5 } })
    try('odd', s.insert, s, { 3, 2 })
    try('fits', s.replace, s, { 1, 3 })
    statement([[UPDATE t SET s = 'b' WHERE id = 1]])
    statement([[UPDATE t SET s = 'bb' WHERE id = 1]])
    print(json.encode(t:select()), json.encode(s:select()), s.ck_constraint.odd.is_enabled, t.ck_constraint.off.is_enabled)
end

if mode == 'write' then
    write()
elseif mode == 'read' then
    show()
elseif mode == 'snap' then
    box.snapshot()
    show()
elseif mode == 'late' then
    write()
    local s = box.space.s
    s.ck_constraint.odd:enable(false)
    s:insert({ 2, 2 })
    s.ck_constraint.odd:enable(true)
    box.snapshot()
elseif mode == 'lead' then
    box.schema.user.grant('guest', 'replication')
    write()
    local found = box.schema.space.create('found')
    found:create_index('pk')
    while not fio.path.exists('followed') do fiber.sleep(0.01) end
elseif mode == 'follow' then
    while not box.space.found or not box.space.found.index.pk do fiber.sleep(0.01) end
    show()
    fio.open(fio.pathjoin('..', 'followed'), { 'O_CREAT', 'O_WRONLY' }, tonumber('644', 8)):close()
end
os.exit(0)
