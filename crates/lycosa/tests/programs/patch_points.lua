-- What public libraries change or call beneath the documented interface.
box.cfg({ log = 'log', wal_mode = 'none' })
local ffi = require('ffi')

-- Metatables: of one space, of one index, of the indexes of an engine, of all.
local one, other = box.schema.space.create('one'), box.schema.space.create('other')
local first, second = one:create_index('first'), one:create_index('second')
function box.schema.space_mt.of_all(space) return space.name end
function box.schema.index_mt.of_all(index) return index.name end
function box.schema.memtx_index_mt.of_memtx(index) return 'memtx ' .. index.name end
function box.schema.vinyl_index_mt.of_vinyl(index) return 'vinyl ' .. index.name end
getmetatable(one).only, getmetatable(first).only = 'one', 'first'
print(one:of_all(), other:of_all(), one.only, other.only, first.only, second.only)
print(first:of_all(), second:of_memtx(), first.of_vinyl, box.schema.index_mt.of_memtx, box.schema.index_mt.of_vinyl)
print(box.schema.vinyl_index_mt.of_all == box.schema.index_mt.of_all, box.schema.memtx_index_mt == box.schema.vinyl_index_mt)
print(getmetatable(first) ~= getmetatable(second))

-- box.internal
local before = box.internal.schema_version()
one:create_index('third')
print(type(before), box.internal.schema_version() > before, box.internal.check_primary_index(one).name)
print(pcall(box.internal.check_space_arg, one, 'x'), (pcall(box.internal.check_space_arg, nil, 'x')))
print(pcall(box.internal.module_reload, 'nothing'))
print(pcall(box.internal.module_reload))

-- Statements by the numbers of a space and an index
local id, EQ, ALL = one.id, box.index.EQ, box.index.ALL
print(box.internal.insert(id, { 1 }), box.internal.replace(id, { 2, 'a' }), box.internal.upsert(id, { 3 }, {}))
print(box.internal.update(id, 0, { 2 }, { { '=', 2, 'b' } }), box.internal.get(id, 0, { 2 }), box.internal.delete(id, 0, { 1 }))
print(box.internal.min(id, 0, {}), box.internal.max(id, 0, {}), box.internal.count(id, 0, EQ, { 2 }), box.internal.random(id, 0, 0) ~= nil)
print(#box.internal.select(id, 0, ALL, 1, 5, {}), pcall(box.internal.insert, id), pcall(box.internal.update, id, 0, 1))
print(pcall(box.internal.count, 9999, 0, EQ, {}), pcall(box.internal.min, id, 9, {}))
local hole = box.schema.space.create('hole', { engine = 'blackhole' })
print(pcall(box.internal.delete, hole.id, 0, {}), pcall(box.internal.update, hole.id, 0, {}, {}), pcall(box.internal.upsert, hole.id, {}, {}))
box.schema.func.create('three', { body = 'function(x) return x, 3 end', comment = 'returns three' })
local three = box.func.three
print(box.internal.func_call('three', 1), three.comment, three:call({ 2 }))
three:drop()
print(pcall(box.internal.func_call, 'three'), pcall(three.call, three, {}))
box.internal.truncate(id)
print(one:len(), box.priv.R, box.priv.ALL, box.runtime.info().maxalloc > 0, box.info.uptime > 0)
local names = {}
for name in pairs(box) do names[name] = true end
print(names.info, names.space, names.priv, package.loaded['box.error'], package.loaded['box.tuple'], require('box.internal') == box.internal)

-- Encoding into a buffer
local buf = require('buffer').ibuf()
require('msgpackffi').internal.encode_r(buf, { 1, { a = 'b' } }, 0)
require('msgpackffi').internal.encode_r(buf, 'text', 0)
print(buf:size(), (ffi.string(buf.rpos, buf:size()):gsub('.', function(c) return ('%02x'):format(c:byte()) end)))

-- Fields of tuples are the same in compiled code, however many a line compares
local function order(one, other)
    if one[1] ~= other[1] then return one[1] < other[1] and -1 or 1 end
    return 0
end
for _, make in ipairs({ tonumber, function(i) return 2ULL ^ 60 + i end, function(i) return ('text %02d'):format(i) end }) do
    local tuples, wrong = {}, 0
    for i = 1, 16 do tuples[i] = box.tuple.new({ make(i) }) end
    for round = 1, 5000 do
        local left, right = (round * 7) % 16 + 1, (round * 13) % 16 + 1
        local expected = left == right and 0 or left < right and -1 or 1
        if order(tuples[left], tuples[right]) ~= expected then wrong = wrong + 1 end
    end
    print('compared', wrong)
end

-- Values behind pointers
local msgpack, msgpackffi = require('msgpack'), require('msgpackffi')
for _, value in ipairs({ 1, -200, 1.5, 'text', ('x'):rep(300), { 1, { 2, 'three' } }, { a = { b = 'c' } }, 2 ^ 40, true }) do
    local bytes = msgpack.encode(value)
    local start = ffi.cast('const char *', bytes)
    local after, decoded = msgpack.ibuf_decode(start)
    local _, unchecked = msgpackffi.decode_unchecked(start)
    print(#bytes, after - start == #bytes, unchecked - start == #bytes, msgpack.encode(decoded) == bytes)
end
print(pcall(msgpack.ibuf_decode, 'text'))
for _, case in ipairs({ { '\xdc\x00', 2 }, { '\x94', 0 }, { '\xc0', 1 }, { '\xdd\0\0\0\4', 5 } }) do
    print((select(2, pcall(msgpack.decode_array_header, ffi.cast('char *', case[1]), case[2]))))
end

-- A type of C has none of the methods of its values
local kind = ffi.metatype('struct { int a; }', { __index = { __serialize = function() return 'value' end } })
local tostringer = require('yaml').new()
tostringer.cfg({ encode_use_tostring = true })
print(tostringer.decode(tostringer.encode(kind)):match('^ctype'), tostringer.decode(tostringer.encode(kind())))

-- Tags of YAML, characters that are not printed, quotes inside of CSV
local yaml = require('yaml')
print(yaml.encode(300, { tag_handle = '!mine!', tag_prefix = 'tag:mine,2018' }))
print(yaml.encode(1, { tag_handle = 'mine!', tag_prefix = 'x' }))
print(yaml.encode(1, { tag_handle = '!mine', tag_prefix = 'x' }))
print(yaml.encode(1, { tag_handle = '!mi ne!', tag_prefix = 'x' }))
print(yaml.encode(1, { tag_handle = '!mine!', tag_prefix = '' }))
print(pcall(yaml.encode, 1, { tag_handle = '!mine!' }))
print(yaml.decode('\n%TAG !one! tag:one,2018\n--- 1\n...\n', { tag_only = true }))
print(yaml.decode('%TAG !one! tag:one,2018\n%TAG !two! tag:two,2018\n--- 1\n...\n', { tag_only = true }))
print(yaml.encode({ '\194\128', 'a\8b', 'a\0b', '\239\187\191', '\194\160' }))
for _, text in ipairs({ 'kp""v', 'a"b,c"d', 'a""', '"a"b', '"a""b"', 'x""""y', 'ab"x,y"z,w' }) do
    print(require('json').encode(require('csv').load(text)))
end

-- Triggers of a program's own
local list = require('internal.trigger').new('mine')
local ran = {}
local function late() table.insert(ran, 'late') end
print(list(late) == late, #list, #list(), list(function() table.insert(ran, 'later') end) ~= nil, #list)
list:run()
print(table.concat(ran, ' '), list(nil, late) == late, #list)
print((select(2, pcall(getmetatable(list).__call, list, nil, late)):gsub('^builtin[^ ]* ', '')))
require('table.clear')(list)
list(function(value) error(value, 0) end)
print(#list, pcall(function() list:run('raised') end))

-- Arguments of a command line
local parse = require('internal.argparse').parse
local function show(...)
    local done, parsed = pcall(parse, ...)
    if not done then return print((tostring(parsed):gsub('^builtin[^ ]* ', ''))) end
    local names, shown = {}, {}
    for name in pairs(parsed) do names[#names + 1] = name end
    table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
    for _, name in ipairs(names) do
        local value = parsed[name]
        shown[#shown + 1] = tostring(name) .. '=' .. (type(value) == 'table' and '[' .. #value .. ' ' .. tostring(value[1]) .. ']'
            or type(value) .. ' ' .. tostring(value))
    end
    print(table.concat(shown, ', '))
end
show({ 'a', '-b', '--cc', 'd', '--ee=f', '-ghi', '-' })
show({ '--cc', '1', '--cc', '2' }, { { 'cc', 'number+' } })
show({ '--cc', '1', '2', '--cc', '3' }, { { 'cc', 'number' } })
show({ '--cc', 'x' }, { { 'cc', 'number' } })
show({ '--cc' }, { { 'cc', 'number' } })
show({ '--cc', '-d' }, { { 'cc', 'string' }, { 'd', 'boolean' } })
show({ '--cc', 'x', '-d' }, { { 'cc', 'boolean' }, { 'd', 'boolean' } })
show({ '--cc=x' }, { { 'cc', 'boolean' } })
show({ '--cc', 'x' }, { { 'cc', 'odd' } })
show({ '--yy', '--cc' }, { 'cc' })
show({ '--cc', '--cc' })
show({ '--' })
show({ 'x', '-c5' })
show(nil)
os.exit(0)
