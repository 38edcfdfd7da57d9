-- Values, settings of serializers, errors of modules as objects, and reads in transactions. Both servers print the same.
io.stdout:setvbuf('line')
box.cfg{ log = 'values.log', wal_mode = 'none', listen = 'unix/:./values.sock' }
local ffi, fiber, json, uuid, uri, fio = require('ffi'), require('fiber'), require('json'), require('uuid'), require('uri'), require('fio')

local function shown(value)
    if type(value) == 'cdata' and tostring(ffi.typeof(value)):find('error') then
        return ('%s %s %s'):format(value.type, tostring(value.code), value.message)
    end
    if type(value) == 'table' then return json.encode(value) end
    return tostring(value)
end

-- The place of an error is not compared.
local function try(name, f)
    local results, texts = { pcall(f) }, {}
    for i = 2, table.maxn(results) do
        texts[#texts + 1] = shown(results[i]):gsub('^[^ ]*%.lua:%d+: ', '')
    end
    print(name, results[1], table.concat(texts, ' | '))
end

local function hex(value) return (require('msgpack').encode(value)):hex() end
try('floats', function() return hex(ffi.new('float', 1.5)), hex(ffi.new('double', 1)), hex({ ffi.new('float', -1) }) end)
try('a float in a tuple', function()
    local tuple = box.tuple.new{ ffi.new('float', 1.5), 2 }
    return tuple:bsize(), tuple[1], tuple
end)

-- Settings of serializers.
local nested = { { { { 1 } } } }
local hidden = setmetatable({ a = 1 }, { __serialize = function() return 'x' end })
for _, name in ipairs({ 'json', 'msgpack', 'yaml' }) do
    local function with(options)
        local module = require(name).new()
        module.cfg(options)
        return module
    end
    local function encode(options, value)
        local text = with(options).encode(value)
        return name == 'msgpack' and text:hex() or (text:gsub('\n', '~'))
    end
    local function metatable(options)
        local text = name == 'msgpack' and '\145\1' or '[1]'
        return getmetatable((with(options).decode(text))) ~= nil
    end
    try(name .. ' sparse', function() return encode({ encode_sparse_convert = false }, { 1, [100] = 2 }) end)
    try(name .. ' depth', function() return encode({ encode_max_depth = 2 }, nested) end)
    try(name .. ' deep as nil', function() return encode({ encode_max_depth = 2, encode_deep_as_nil = true }, nested) end)
    try(name .. ' NaN', function() return encode({ encode_invalid_numbers = false }, { 0 / 0 }) end)
    try(name .. ' metatables', function()
        return encode({ encode_load_metatables = false }, hidden), encode({}, hidden), metatable({}),
            metatable({ decode_save_metatables = false })
    end)
    try(name .. ' __serialize', function() return encode({}, setmetatable({}, { __serialize = 'bad' })) end)
    try(name .. ' a text for a number', function() return encode({ encode_max_depth = 'x', encode_deep_as_nil = true }, { 1 }) end)
    try(name .. ' a number for a flag', function() return encode({ encode_invalid_numbers = 5 }, { 1 }) end)
end
try('yaml decode', function()
    local yaml = require('yaml').new()
    yaml.cfg{ decode_max_depth = 2 }
    return yaml.decode('[[[[1]]]]')
end)
try('yaml decode NaN', function()
    local yaml = require('yaml').new()
    yaml.cfg{ decode_invalid_numbers = false }
    return yaml.decode('[nan]')
end)

-- Texts that are taken apart.
for _, text in ipairs({ '64d22e4d-ac92-4a23-899a-e59f34af5479', '64D22E4D-AC92-4A23-899A-E59F34AF547g',
    ' 4d22e4d-ac92-4a23-899a-e59f34af5479', '64d22e4d-ac92-4a23-e99a-e59f34af5479', '64d22e4d-ac92-4a23-c99a-e59f34af5479',
    '64d22e4dac924a23899ae59f34af5479', '64d22e4d-ac92-4a23-899a+e59f34af5479', '0x1-' .. ('0'):rep(32) }) do
    try('uuid ' .. text, function() return uuid.fromstr(text) end)
end
for _, text in ipairs({ 'unix/:/tmp/x:/p', 'http://unix/:/tmp/x.sock:/abc?q=1', '/tmp/x:/p', 'guest@', 'guest:x@', 'a@b' }) do
    try('uri ' .. text, function()
        local parsed, parts = uri.parse(text), {}
        if not parsed then return nil end
        for name, value in pairs(parsed) do parts[#parts + 1] = name .. '=' .. value end
        table.sort(parts)
        return table.concat(parts, ' '), uri.format(parsed, true)
    end)
end
for _, path in ipairs({ '/', '//', '///', '//a', 'a//', '' }) do
    try('path ' .. path, function() return fio.dirname(path), fio.basename(path) end)
end

-- Errors as objects.
for _, options in ipairs({ { wal_dir = '/x' }, { work_dir = '/x' }, { instance_uuid = 'x' }, { memtx_memory = 1 },
    { checkpoint_count = -1 }, { listen = 'x:y:z' }, { log_format = 'xml' }, { readahead = -1 }, { replication_timeout = -1 },
    { replication_connect_timeout = -1 }, { replication_connect_quorum = -1 }, { replication_sync_lag = -1 } }) do
    try(next(options), function() box.cfg(options) end)
end
local crypto = require('crypto')
try('key', function() return crypto.cipher.aes128.cbc.encrypt('x', 'y', 'z') end)
try('vector', function() return crypto.cipher.aes128.cbc.encrypt('x', ('y'):rep(16), 'z') end)
try('no key', function() return crypto.hmac.md5(nil, 'x') end)

-- A read begins a transaction, and a yield ends it then.
local space = box.schema.space.create('s')
space:create_index('pk')
space:create_index('sk', { parts = { 2, 'string' } })
space:insert{ 1, 'x' }
local function read(name, f)
    box.begin()
    pcall(f)
    fiber.yield()
    print('transaction', name, (pcall(box.commit)))
    pcall(box.rollback)
end
read('get', function() space:get(1) end)
read('get nothing', function() space:get(2) end)
read('get by another index', function() space.index.sk:get('x') end)
read('select', function() space:select() end)
read('count', function() space:count() end)
read('min', function() space.index.pk:min() end)
read('length', function() space:len() end)
read('length of an index', function() space.index.sk:len() end)
read('a wrong key', function() space:select('x') end)
read('a sequence that is not there', function() return box.sequence.nothing end)
read('a random tuple', function() space.index.pk:random(1) end)
read('nothing', function() end)

try('a sequence on a secondary index', function() space:create_index('third', { sequence = true }) end)

-- A field with paths inside is not nil, whatever the format says.
local number = 0
for _, kind in ipairs({ 'map', 'any', 'array' }) do
    for _, is_nullable in ipairs({ true, false }) do
        number = number + 1
        local place = kind == 'array' and '[1]' or 'x'
        local paths = box.schema.space.create('paths' .. number,
            { format = { { 'id', 'unsigned' }, { 'm', kind, is_nullable = true } } })
        paths:create_index('pk')
        paths:create_index('path', { parts = { { 2, 'string', path = place, is_nullable = is_nullable } }, unique = false })
        for _, tuple in ipairs({ { 1 }, { 2, box.NULL }, { 3, { x = 'a' } }, { 4, { 'a' } } }) do
            try(('%s %s %d'):format(kind, is_nullable, tuple[1]), function() return paths:insert(tuple) ~= nil end)
        end
    end
end

-- A log-in as guest is one.
local told = {}
box.session.on_auth(function(name, is_right) told[#told + 1] = ('%s %s'):format(name, is_right) end)
box.schema.user.grant('guest', 'execute', 'universe')
for _, options in ipairs({ {}, { user = 'guest' }, { user = 'guest', password = '' }, { user = 'guest', password = 'x' } }) do
    local connection = require('net.box').connect('unix/:./values.sock', options)
    print('log-in', connection:ping(), table.concat(told, ', '))
    connection:close()
end
os.exit(0)
