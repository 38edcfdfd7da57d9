-- Spaces and indexes, with arguments of every kind.
-- Prints the same under Tarantool and Lycosa: run by programs.rs.
box.cfg{log_level = 1}
local json = require('json')
local fiber = require('fiber')
local function show(value)
    if type(value) ~= 'table' then return tostring(value) end
    local done, text = pcall(json.encode, value)
    return done and text or 'table'
end
local function p(...)
    local shown = {}
    for i = 1, select('#', ...) do shown[i] = show((select(i, ...))) end
    print((table.concat(shown, ' | '):gsub('0x%x+', 'PTR'):gsub('[^ ]*%.lua:%d+: ', '')))
end
local function try(name, body, ...) p(name, pcall(body, ...)) end
try('cs',box.schema.space.create)
try('cs',box.schema.space.create,'a',5)
try('cs',box.schema.space.create,'a',{x=1})
try('cs',box.schema.space.create,'a',{engine=1})
try('cs',box.schema.space.create,'a',{engine='zzz'})
try('cs',box.schema.space.create,'',{})
local s=box.schema.space.create('a',{format={{'id','unsigned'},{'name','string',is_nullable=true},{name='v',type='any',is_nullable=true}}})
try('again',box.schema.space.create,'a')
try('again',function() return select(2, box.schema.space.create('a',{if_not_exists=true})) end)
try('idx',s.create_index)
try('idx',s.create_index,s)
try('idx',s.create_index,s,'pk',{parts={}})
try('idx',s.create_index,s,'pk',{parts={'nosuch'}})
try('idx',s.create_index,s,'pk',{parts={1,'badtype'}})
try('idx',s.create_index,s,'pk',{parts={{}}})
try('idx',s.create_index,s,'pk',{parts={0,'unsigned'}})
try('idx',s.create_index,s,'pk',{type='zzz'})
try('idx',s.create_index,s,'pk',{unique=5})
try('idx',s.create_index,s,'pk',{unique=false})
try('idx',s.create_index,s,'pk',{bad=false})
try('ins',s.insert,s,{1})
try('sel',s.select,s)
try('get',s.get,s,1)
try('len',s.len,s)
try('count',s.count,s)
local pk=s:create_index('pk')
try('idx2',s.create_index,s,'pk')
try('idx2',function() return select(2, s:create_index('pk',{if_not_exists=true})) end)
local sk=s:create_index('sk',{parts={{'name',is_nullable=true}},unique=false})
p(pk.parts[1].type, pk.parts[1].fieldno, pk.parts[1].is_nullable, sk.parts[1].is_nullable)
try('ins',s.insert,s,{})
try('ins',s.insert,s,{'x'})
try('ins',s.insert,s,5)
try('ins',s.insert,s)
try('ins',s.insert)
try('ins',s.insert,nil,{1})
try('ins',s.insert,s,{1,2})
try('ins',s.insert,s,{1,'a',{1,2,{x=1}}})
try('ins',s.insert,s,{1})
try('ins',s.insert,s,{-1})
try('ins',s.insert,s,{1.5})
try('ins',s.insert,s,{2,box.NULL,0.5,'more',{}})
try('repl',s.replace,s,{3,'c'})
try('put',s.put,s,{4,'d'})
try('upd',s.update,s,1,{{'=',2,'z'}})
try('upd',s.update,s,1,{{'=','name','zz'}})
try('upd',s.update,s,1,{{'=','nosuch','zz'}})
try('upd',s.update,s,1,{{'=','v[1]','zz'}})
try('upd',s.update,s,1,{{'=','v[3].x','deep'}})
try('upd',s.update,s,1,{{'+','id',1}})
try('upd',s.update,s,1,{{'bad','name',1}})
try('upd',s.update,s,1,{'=',2,'q'})
try('upd',s.update,s,1,{})
try('upd',s.update,s,1)
try('upd',s.update,s,99,{{'=',2,'q'}})
try('upd',s.update,s,{1,2},{{'=',2,'q'}})
try('upd',s.update,s,{},{{'=',2,'q'}})
try('upd',s.update,s,1,{{'#',3,1}})
try('upd',s.update,s,1,{{'!',3,'ins'}})
try('upd',s.update,s,1,{{'!',-1,'last'}})
try('upd',s.update,s,1,{{':',2,1,1,'XX'}})
try('upd',s.update,s,1,{{'=',0,1}})
try('upd',s.update,s,1,{{'=',20,1}})
try('ups',s.upsert,s,{7,'u'},{{'=',2,'uu'}})
try('ups',s.upsert,s,{7,'u'},{{'=',2,'uu'}})
try('ups',s.upsert,s,{7,'u'},{{'+',2,1}})
try('ups',s.upsert,s,{7,'u'},{{'+',9,1}})
try('ups',s.upsert,s,{7})
try('ups',s.upsert,s)
try('del',s.delete,s,7)
try('del',s.delete,s,7)
try('del',s.delete,s,{})
try('del',s.delete,s)
try('get',s.get,s)
try('get',s.get,s,{})
try('get',s.get,s,{1,2})
try('get',s.get,s,'x')
try('get',sk.get,sk,'z')
for i=10,20 do s:insert{i,'n'..i%3,i} end
for _,it in ipairs{'EQ','REQ','GE','GT','LE','LT','ALL','BITS_ALL_SET','OVERLAPS','NEIGHBOR','zzz',5,77} do
 try('sel '..tostring(it),function() local r={} for _,t in ipairs(sk:select('n1',{iterator=it,limit=4})) do r[#r+1]=t[1] end return table.concat(r,',') end)
 try('pairs '..tostring(it),function() local r={} for _,t in sk:pairs('n1',{iterator=it}) do r[#r+1]=t[1] end return table.concat(r,',') end)
 try('count '..tostring(it),function() return sk:count('n1',{iterator=it}) end)
end
try('sel',s.select,s,nil,{limit=2})
try('sel',s.select,s,{},{limit=2,offset=1})
try('sel',s.select,s,{},{limit=-1})
try('sel',s.select,s,{},{limit='x'})
try('sel',s.select,s,'x')
try('sel',s.select,s,{1,2})
try('sel',s.select)
try('pairs',function() for a,b in s:pairs({},{iterator='LT'}) do return b end end)
try('pairs map',function() return s:pairs():take(3):map(function(t) return t[1] end):totable()[3] end)
try('mm',function() return s.index.pk:min(),s.index.pk:max(), s.index.pk:min(12), s.index.pk:max(12), s.index.pk:min(99), s.index.pk:max(99) end)
try('rnd',function() return s.index.pk:random(1) ~= nil end)
try('sk',function() return sk:min(), sk:max() end)
try('cnt',function() return s:count(),s:count(10),s:count({10},{iterator='GT'}),s:len(),s:bsize()>0,pk:len(), pk:bsize()>0 end)
do
    local big = box.schema.space.create('big')
    big:create_index('pk')
    big:create_index('name', {parts = {2, 'string'}, unique = false})
    local empty = big.index.pk:bsize()
    box.begin()
    for i = 1, 3000 do big:insert{i, 'name ' .. i} end
    box.commit()
    local primary, secondary = big.index.pk:bsize(), big.index.name:bsize()
    p(empty, primary > 3000, secondary > 3000, primary ~= 8 * big:len(), secondary ~= 8 * big:len(), type(primary))
    big:drop()
end
try('keys',function() local k={} for n in pairs(pk) do k[#k+1]=n end table.sort(k) return table.concat(k,',') end)
try('ren',s.rename,s,'b') p(s.name, box.space.a, box.space.b and box.space.b.name)
try('ren',s.rename,s,'')
try('ren',s.rename,s)
try('fmt',function() return #s:format(), s:format()[2].name end)
try('fmt',s.format,s,{{'id','string'}})
try('fmt',s.format,s,{{'id','unsigned'},{'id','string'}})
try('fmt',s.format,s,{{'id','unsigned',zzz=1}})
try('fmt',s.format,s,{{}})
try('fmt',s.format,s,5)
try('fmt',s.format,s,{{'id','unsigned'}})
p(s:format()[1].name, s:format()[1].type)
try('alter',pk.alter,pk,{parts={{1,'number'}}})
try('alter',pk.alter,pk,{type='hash'})
try('alter',sk.alter,sk,{unique=true})
try('alter',sk.alter,sk,{name='sk2'})
p(sk.name, s.index.sk, s.index.sk2 and s.index.sk2.id)
try('alter',sk.alter,sk,{zzz=1})
try('alter',sk.alter,sk)
try('ren',pk.rename,pk,'prim') p(s.index.prim and s.index.prim.name, pk.name)
try('drop',pk.drop,pk)
try('drop',function() s.index[1]:drop() end)
p(s.index[1])
try('trunc',s.truncate,s) p(s:len())
try('ai',s.auto_increment,s,{'x'}) try('ai',s.auto_increment,s,{'y'})
try('fm',s.frommap,s,{id=1})
try('fm',s.frommap,s,{id=1,zz=2})
try('fm',s.frommap,s,{id=1},{table=true})
try('fm',s.frommap,s,5)
try('drop',s.drop,s) try('drop',s.drop,s)
p(box.space.b)
-- `box.NULL` is no key, and rows made of a map fit the format.
local f = box.schema.space.create('f', {format = {{'id', 'unsigned'}, {'name', 'string'}, {'n', 'number', is_nullable = true}}})
f:create_index('pk')
f:insert{1, 'a'} f:insert{2, 'b', 2.5}
for _, name in ipairs{'select', 'count', 'min', 'max'} do
    try(name, f.index.pk[name], f.index.pk, box.NULL)
    if name == 'select' or name == 'count' then try(name, f[name], f, box.NULL, {iterator = 'GE'}) end
end
p(#f:pairs(box.NULL):totable())
try('get', f.get, f, box.NULL) try('delete', f.delete, f, box.NULL) try('update', f.update, f, box.NULL, {{'=', 2, 'x'}})
p(box.tuple.new(box.NULL), f:len())
for _, map in ipairs{{}, {n = 1}, {name = 'x'}, {id = 1}, {id = 1, n = 5}, {id = 'x', name = 1}, {id = 1, name = 'x', n = 'x'},
        {id = 1, name = box.NULL}, {id = 3, name = 'c'}} do
    try('frommap', f.frommap, f, map)
    try('frommap', f.frommap, f, map, {table = true})
end
-- Users, roles and functions are found by their numbers too.
for _, kind in ipairs{'user', 'role', 'func'} do
    for _, name in ipairs{1, 99, 'guest', 'box.schema.user.info', ''} do
        try(kind, box.schema[kind].exists, name)
        if name == 99 then
            try(kind, box.schema[kind].drop, name)
            try(kind, box.schema[kind].drop, name, {if_exists = true})
        end
    end
    try(kind, box.schema[kind].exists)
end
p(#box.schema.user.info(0) == #box.schema.user.info('guest'), pcall(box.schema.user.info, 99))
-- Formats are kept as they were given; names beside numbers are refused.
local formatted = box.schema.space.create('formatted')
for _, kind in ipairs({ 'num', 'NUM', 'Unsigned', 'uint', 'int', 'str', '*', 'UInt', 'any' }) do
    try('format ' .. kind, function()
        formatted:format({ { 'a', kind } })
        return formatted:format()[1].type
    end)
end
for _, format in ipairs({
    { { 'a', 5 } }, { { 'a', 'string', 5 } }, { 'a', { name = 'b', 'number' }, { 'c', name = 'd', type = 'string' } },
    { { name = 'b', [2] = 'number' } }, { { 'a', collation = 'unknown' } }, { 5 }, { { 'number', name = 'a' }, { 'b', type = 'string' } },
}) do
    try('format', formatted.format, formatted, format)
end
p(formatted:format()[1].name, formatted:format()[1].type, formatted:format()[2].name, formatted:format()[2].type)
-- Iterators: the state is what counts; one whose index was dropped has ended.
formatted:format({})
local primary, second = formatted:create_index('primary'), formatted:create_index('second')
for number = 1, 3 do formatted:insert({ number }) end
local generate, parameter, state = primary:pairs()
local _, first = generate(parameter, state)
local _, later = generate(nil, state)
p(first, later, tostring(state))
p((select(2, pcall(generate, parameter, nil)):gsub('^[^ ]* ', '')))
generate, parameter, state = second:pairs()
second:drop()
p(generate(parameter, state))
-- Names with separators of lines, engines with long names.
for _, name in ipairs({ '\226\128\168', 'a\226\128\169', '\239\191\189', 'ä' }) do
    try('name', function() box.schema.space.create(name) end)
end
try('engine', box.schema.space.create, 'too_long', { engine = ('e'):rep(17) })
os.exit()
