-- Lists the functions and methods that a program can call: `api.lua PORT FILE` writes one a line, sorted, into the file.
-- `compatibility.rs` compares what Tarantool and Lycosa have.
local fiber, fio, fun, netbox = require('fiber'), require('fio'), require('fun'), require('net.box')
box.cfg({ log = 'log', listen = '127.0.0.1:' .. arg[1] })
box.schema.user.grant('guest', 'super', nil, nil, { if_not_exists = true })

local found = {}

local function is_callable(value)
    if type(value) == 'function' then return true end
    local metatable = type(value) == 'table' and getmetatable(value)
    return type(metatable) == 'table' and type(metatable.__call) == 'function'
end

-- The functions of a module; those of its tables too, but for what is its own business.
local function list(name, module, depth)
    for key, value in pairs(module) do
        if type(key) == 'string' and not key:match('^_') and key ~= 'internal' and not key:match('_mt$') then
            if is_callable(value) or (type(value) == 'cdata' and tostring(value):match('cdata<%S+ %(')) then
                found[name .. '.' .. key] = true
            elseif type(value) == 'table' and depth < 2 and name ~= 'package' then
                list(name .. '.' .. key, value, depth + 1)
            end
        end
    end
end

local MODULES = {
    'buffer', 'clock', 'console', 'crypto', 'csv', 'decimal', 'digest', 'errno', 'fiber', 'fio', 'fun', 'http.client', 'iconv',
    'json', 'key_def', 'log', 'merger', 'msgpack', 'msgpackffi', 'net.box', 'pickle', 'popen', 'pwd', 'socket', 'strict', 'swim',
    'tap', 'tarantool', 'title', 'uri', 'utf8', 'uuid', 'xlog', 'yaml', 'string', 'table', 'os', 'io', 'math', 'debug', 'bit',
    'coroutine', 'package',
}
for _, name in ipairs(MODULES) do
    local done, module = pcall(require, name)
    if done and type(module) == 'table' then list(name, module, 1) end
end
require('strict').off()

for _, name in ipairs({
    'atomic', 'begin', 'cfg', 'commit', 'execute', 'is_in_txn', 'on_commit', 'on_rollback', 'once', 'prepare', 'rollback',
    'rollback_to_savepoint', 'savepoint', 'snapshot', 'unprepare',
}) do
    local value = box[name]
    if is_callable(value) or type(value) == 'cdata' then found['box.' .. name] = true end
end
for _, name in ipairs({ 'info', 'check', 'stats' }) do
    if is_callable(box.slab[name]) then found['box.slab.' .. name] = true end
end
for _, name in ipairs({ 'ctl', 'error', 'schema', 'session', 'tuple', 'runtime' }) do list('box.' .. name, box[name], 1) end
local backup = box.backup
if backup then list('box.backup', backup, 1) end

-- The methods of an object: those of a list that it has.
local function methods(name, object, names)
    for method in names:gmatch('%S+') do
        local done, value = pcall(function() return object[method] end)
        if done and (is_callable(value) or type(value) == 'cdata') then found[name .. ':' .. method] = true end
    end
end

local space = box.schema.space.create('listed', { format = { { 'id', 'unsigned' }, { 'name', 'string' } } })
space:create_index('pk', { sequence = true })
methods('space', space, [[alter auto_increment before_replace bsize count create_check_constraint create_index delete drop
    format frommap get insert len max min on_replace pairs put random rename replace run_triggers select truncate update upsert]])
methods('index', space.index.pk, [[alter bsize compact count delete drop get len max min pairs random rename select stat update]])
methods('sequence', box.schema.sequence.create('listed'), 'next reset set current alter drop')
methods('tuple', box.tuple.new({ 1, 'a' }), [[bsize find findall next pairs ipairs slice totable tomap transform unpack update
    upsert]])
methods('error', box.error.new({ code = 1, reason = 'x' }), 'raise unpack match set_prev')
box.schema.func.create('listed', { body = 'function() return 1 end' })
methods('func', box.func.listed, 'call drop')
methods('fiber object', fiber.new(function() end), 'cancel id join name set_joinable status wakeup')
methods('channel', fiber.channel(1), 'put get close count size is_empty is_full is_closed has_readers has_writers')
methods('cond', fiber.cond(), 'wait signal broadcast')
methods('socket object', require('socket')('AF_INET', 'SOCK_STREAM', 'tcp'), [[accept bind close errno error fd getsockopt linger
    listen name nonblock peer read readable recv recvfrom send sendto setsockopt shutdown sysconnect sysread syswrite wait
    writable write]])
local connection = netbox.connect('127.0.0.1:' .. arg[1])
local CONNECTION = [[call eval ping close is_connected wait_connected wait_state timeout reload_schema execute prepare unprepare
    on_connect on_disconnect on_schema_reload console]]
methods('connection', connection, CONNECTION)
methods('connection space', connection.space.listed, 'select get insert replace put update upsert delete format')
methods('connection index', connection.space.listed.index.pk, 'select get update delete count min max')
methods('net.box.self', netbox.self, CONNECTION)
methods('future', connection:eval('return 1', {}, { is_async = true }), 'is_ready wait_result result discard pairs')
methods('popen object', require('popen').new({ '/bin/true' }, { stdout = 'pipe' }), [[signal terminate kill wait shutdown read
    write info close]])
methods('file', fio.open('file', { 'O_CREAT', 'O_RDWR' }, 420), [[read write pread pwrite seek truncate fsync fdatasync stat
    close]])
methods('ibuf', require('buffer').ibuf(), 'alloc reserve recycle reset checksize read size capacity pos unused')
methods('iterator', fun.iter({ 1 }), 'map filter each foldl totable take drop zip chain enumerate grep partition')
methods('http client', require('http.client').new(), 'get post put patch delete head options connect trace request stat')

local names = {}
for name in pairs(found) do names[#names + 1] = name end
table.sort(names)
fio.open(arg[2], { 'O_CREAT', 'O_WRONLY', 'O_TRUNC' }, 420):write(table.concat(names, '\n') .. '\n')
os.exit(0)
