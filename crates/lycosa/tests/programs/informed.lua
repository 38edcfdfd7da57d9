-- What an instance tells of itself, by the names and types of all members.
box.cfg({listen = arg[1], log = 'informed.log', memtx_memory = 64 * 1024 * 1024})
local s = box.schema.space.create('s')
s:create_index('pk')
s:insert({1})
box.snapshot()

local function shape(value)
    if type(value) ~= 'table' then return type(value) end
    local names = {}
    for name in pairs(value) do names[#names + 1] = tostring(name) end
    table.sort(names)
    local shown = {}
    for place, name in ipairs(names) do shown[place] = name .. '=' .. shape(value[name] == nil and value[tonumber(name)] or value[name]) end
    return '{' .. table.concat(shown, ' ') .. '}'
end
local function has(value, names)
    local missing = {}
    for name, kind in pairs(names) do if type(value[name]) ~= kind then missing[#missing + 1] = name end end
    table.sort(missing)
    return #missing == 0 and 'all' or table.concat(missing, ' ')
end

print('gc', shape(box.info.gc()))
print('checkpoint', box.info.gc().checkpoints[1].signature, box.info.gc().checkpoints[1].vclock[1])
print('vinyl', shape(box.info.vinyl()))
print('sql', shape(box.info.sql()))
print('memory', has(box.info.memory(), {cache = 'number', data = 'number', index = 'number', lua = 'number', net = 'number', tx = 'number'}))
print('memory is told', box.info.memory().data > 0, box.info.memory().index > 0, box.info.memory().tx)
print('anonymous', shape(box.info.replication_anon()), box.info.replication_anon.count)
print('info', has(box.info(), {cluster = 'table', gc = 'table', id = 'number', listen = 'string', lsn = 'number', memory = 'table',
    package = 'string', pid = 'number', replication = 'table', replication_anon = 'table', ro = 'boolean', signature = 'number',
    sql = 'table', status = 'string', uptime = 'number', uuid = 'string', vclock = 'table', version = 'string', vinyl = 'table'}))
print('parts', type(box.info.gc), type(box.info.memory), type(box.info.sql), type(box.info.vinyl))
print('stat', shape(box.stat()))
print('stat.sql', shape(box.stat.sql()))
print('stat.vinyl', shape(box.stat.vinyl()))
for name, names in pairs({CONNECTIONS = {'current', 'rps', 'total'}, RECEIVED = {'rps', 'total'}, SENT = {'rps', 'total'},
    REQUESTS = {'current', 'rps', 'total'}}) do
    for _, member in ipairs(names) do
        if type(box.stat.net()[name][member]) ~= 'number' then print('stat.net', name, member) end
    end
end
local connection = require('net.box').connect(arg[1])
connection:ping()
print('stat.net.SENT', box.stat.net.SENT.total > 0, box.stat.net.RECEIVED.total > 0)
connection:close()

-- As Tarantool 1.6 tells of an instance.
local server = box.info.server
print(server.id == box.info.id, server.uuid == box.info.uuid, server.lsn == box.info.lsn, server.ro, box.info().server.id)

-- Names that no function has.
box.schema.user.grant('guest', 'super')
outer = {inner = {}, ['function'] = function() return 'called' end}
local c = require('net.box').connect(arg[1])
for _, name in ipairs({'outer', 'outer.', 'outer.inner', 'outer.inner.', 'outer..function', '.outer', 'outer.function', 'outer.function.',
    'box.', 'box..info', 'box.info.', 'string.', 'outer:', 'outer:function'}) do
    local done, result = pcall(c.call, c, name)
    print(name, done, done and result or result.code, done or tostring(result))
end
for _, options in ipairs({{listen = '/nonexistent/a.sock'}, {listen = '192.0.2.1:3301'}}) do
    local done, failure = pcall(box.cfg, options)
    print(done, failure.type, failure.errno)
end
-- Statements of a program count, too.
local kinds = { 'SELECT', 'INSERT', 'REPLACE', 'UPDATE', 'UPSERT', 'DELETE' }
local function counted(what, body, ...)
    local before = {}
    for place, kind in ipairs(kinds) do before[place] = box.stat[kind].total end
    pcall(body, ...)
    for place, kind in ipairs(kinds) do before[place] = box.stat[kind].total - before[place] end
    print(what, unpack(before))
end
local q = box.schema.sequence.create('counted')
counted('insert', s.insert, s, { 10 })
counted('insert again', s.insert, s, { 10 })
counted('replace', s.replace, s, { 10 })
counted('update', s.update, s, 10, {})
counted('upsert', s.upsert, s, { 10 }, {})
counted('delete', s.delete, s, 99)
counted('get', s.get, s, 10)
counted('select', s.select, s)
counted('pairs', s.pairs, s)
counted('next', q.next, q)
s:on_replace(function() end)
counted('seen', s.replace, s, { 10 })
s:before_replace(function(_, new) return new end)
counted('proposed', s.replace, s, { 10 })
counted('request', c.space.s.replace, c.space.s, { 10 })
os.exit(0)
