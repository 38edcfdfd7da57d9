-- Indexes of every kind: their definitions, what they find, what is refused.
--
-- Each line of a list is a chunk; its results are printed in a form that does not depend on the order of a table's keys.
io.stdout:setvbuf('no')

local function show(value)
    if box.tuple ~= nil and box.tuple.is(value) then value = value:totable() end
    local kind = type(value)
    if kind == 'table' then
        local shown = {}
        for key, inner in pairs(value) do shown[#shown + 1] = tostring(key) .. '=' .. show(inner) end
        table.sort(shown)
        return '{' .. table.concat(shown, ', ') .. '}'
    elseif kind == 'function' or kind == 'userdata' then
        return kind
    elseif kind == 'cdata' and tostring(require('ffi').typeof(value)):find('error') then
        local fields = value:unpack()
        return ('%s %s: %s'):format(fields.type, fields.code, fields.message)
    end
    return tostring(value)
end

local function run(chunks)
    for line in chunks:gmatch('[^\n]+') do
        local chunk = loadstring('return ' .. line) or assert(loadstring(line))
        local results = { pcall(chunk) }
        if box.is_in_txn ~= nil and box.is_in_txn() then box.rollback() end
        local shown = {}
        for i = 1, table.maxn(results) do shown[i] = show(results[i]) end
        print(line .. '\n    ' .. table.concat(shown, ' | '))
    end
end

box.cfg{ log = 'log', listen = 'unix/:./socket' }

run[[
s = box.schema.space.create('s', {format={{'a','integer'},{'b','string',is_nullable=true},{name='c',type='any'},{'d','map',is_nullable=true}}})
s:create_index('pk').parts
s.index.pk:drop()
s:create_index('pk', {parts={1}}).parts
s:create_index('i2', {parts={2}}).parts
s:create_index('i3', {parts={2, 'string'}}).parts
s:create_index('i4', {parts={'b'}}).parts
s:create_index('i5', {parts={'b', 'a'}}).parts
s:create_index('i6', {parts={{'b', 'string'}}}).parts
s:create_index('i7', {parts={{'b', nullable=true}}}).parts
s:create_index('i8', {parts={3}}).parts
s:create_index('i9', {parts={'d.x'}}).parts
s:create_index('i10', {parts={{'d.x', 'string'}}}).parts
s:create_index('i11', {parts={{'d["y"]', 'string', is_nullable=true}}}).parts
s:create_index('i12', {parts={{'["d"].z', 'string', is_nullable=true}}}).parts
s:create_index('i13', {parts={{'[4].w', 'string', is_nullable=true}}}).parts
s:create_index('i14', {parts={{4, 'string', path='v', is_nullable=true}}}).parts
s:create_index('i15', {parts={{4, 'string', path='v', is_nullable=true, exclude_null=true}}})
s:create_index('i16', {parts={1,'unsigned', 2}})
s:create_index('i17', {parts={{field=1, type='integer', foo=1}}})
s:create_index('i18', {hint=true})
s:create_index('i19', {hint=false})
s:create_index('i20', {parts={{1,'integer',collation='binary'}}})
s:create_index('i21', {parts={{2,'string',collation='binary', is_nullable=true}}}).parts
s:create_index('i22', {parts={{2,'string',collation='none', is_nullable=true}}}).parts
s:create_index('i23', {parts={{2,'string',collation='unicode', is_nullable=true}}}).parts
s:create_index('i24', {parts={{2,'string',collation=0, is_nullable=true}}})
s:create_index('i25', {parts={{2,'string',collation='xx', is_nullable=true}}})
s:create_index('i26', {parts={{'zz','string'}}})
s:create_index('i27', {parts={{'[4].[', 'string', is_nullable=true}}})
s:create_index('i28', {parts={{'d.x[', 'string', is_nullable=true}}})
s:create_index('i29', {parts={{'[9].x', 'string', is_nullable=true}}}).parts
s:create_index('i30', {parts={{'[0].x', 'string', is_nullable=true}}}).parts
s:create_index('i31', {parts={{0, 'string', is_nullable=true}}}).parts
s:create_index('i32', {parts={{1.5, 'string', is_nullable=true}}}).parts
s:create_index('i33', {parts={{true, 'string', is_nullable=true}}}).parts
s:create_index('i34', {parts={}})
s:create_index('i35', {parts='b'})
s:create_index('i36', {parts=1})
s:create_index('i37', {type='foo'})
s:create_index('i38', {type='bitset', parts={1,'unsigned'}})
s:create_index('i39', {type='rtree', parts={5,'array'}})
s:create_index('i40', {parts={{'b','string',5}}})
s:create_index('i41', {parts={{'b'}, 'a'}})
s:create_index('i42', {parts={'a', {'b'}}})
s:create_index('i43', {parts={1,'integer',{'b'}}})
s:create_index('i44', {parts={field=1,type='integer'}}).parts
s:create_index('i45', {parts={{field=1,type='integer',is_nullable=false}}}).parts
s:create_index('i46', {unique=5})
s:create_index('i47', {foo=5})
s:create_index('i48', {parts={1, 'integer', 2, 'string'}}).parts
s:create_index('i49', {parts={1, 'num'}})
s:create_index('i50', {parts={2, 'str'}})
s:create_index('i51', {parts={'b', is_nullable=false}})
s:create_index('i52', {parts={{'b', is_nullable=false}}}).parts
s:create_index('i53', {parts={{'b', is_nullable=5}}})
s:create_index('i54', {parts={{'b', type=5}}})
s:create_index('i55', {parts={{'b', 'foo'}}})
s:create_index('i56', {parts={{'b', 'string', path=5}}})
s:create_index('i57', {parts={{'b', 'string', collation=true}}})
s:create_index('i58', {parts={{'b', 'string', collation=300}}})
s:create_index('i59', {id='a'})
s:create_index('i60', {parts={{10,'*'}}}).parts
s:create_index('i61', {parts={10}}).parts
s:create_index('i62', {parts={10, 11}}).parts
s:create_index('i63', {parts={10, 'any'}}).parts
s:create_index('i64', {parts={{10, 'any'}}}).parts
s:create_index('i65', {parts={{10, 'map'}}}).parts
s:create_index('i66', {parts={{10, 'double'}}}).parts
t = box.schema.space.create('t')
t:create_index('pk').parts
t:create_index('s', {parts={2}}).parts
t:create_index('s2', {parts={2, 'STR'}}).parts
t:create_index('s3', {parts={{2, 'UINT'}}}).parts
t:create_index('s4', {parts={{3, 'uint'}}}).parts
t:create_index('s5', {parts={{3, 'NUM', 4, 'STR'}}}).parts
t:create_index('s6', {parts={3, 'NUM', 4, 'STR'}}).parts
t:create_index('m', {parts={{5, 'string', path='[*]'}}})
t:create_index('m2', {parts={{'[5][*].a', 'string'}}})
t.index.m2
t:create_index('m3', {parts={{'[6][*].a', 'string'}, {'[7][*].b', 'unsigned'}}})
t:create_index('m4', {parts={{'[6][*].a', 'string'}, {'[6][*].b', 'unsigned'}}})
t:create_index('m5', {type='hash', parts={{'[6][*].a', 'string'}}})
t:create_index('m6', {parts={{'[6][*].a[*].c', 'string'}}})
t.index.m4
t.index.m4.parts
t.index.s:alter{parts={2,'string'}}
t.index.s.parts
t.index.s:alter{foo=1}
t.index.s:alter{type='hash'}
t.index.s
t.index.s:alter{id=77}
t.index[77]
t.index.pk:alter{id=77}
u = box.schema.space.create('u', {format={'a', 'b'}})
u:create_index('pk').parts
u:format()
v = box.schema.space.create('v', {format={{'a','string'}}})
v:create_index('pk').parts
v:create_index('pk', {if_not_exists=true})
v:create_index('pk')
w = box.schema.space.create('w', {format={{'a','number'},{'b','scalar'},{'c','unsigned',is_nullable=true}}})
w:create_index('pk').parts
w:create_index('x', {parts={'b','c'}}).parts
w:create_index('y', {parts={{'b'},{'c'}}}).parts
w:create_index('z', {parts={2,'scalar',3,'unsigned'}}).parts
w:create_index('z1', {parts={3,'unsigned'}}).parts
w:create_index('z2', {parts={3,'unsigned', is_nullable=true}}).parts
]]

run[[
s:drop()
s = box.schema.space.create('s')
s:create_index('pk', {parts={1,'unsigned'}})
s:create_index('b', {type='bitset'})
s:create_index('b1', {type='bitset', unique=true})
s:create_index('b2', {type='bitset', parts={2,'unsigned',3,'unsigned'}})
s:create_index('b3', {type='bitset', parts={2,'string'}})
s:create_index('b4', {type='bitset', parts={3,'string'}})
s:create_index('b10', {type='BITSET', parts={7,'NUM'}})
for i = 0, 12 do s:insert{i, (i*7) % 16, string.char(65+i)} end
s.index.b:select{}
s.index.b:select({}, {iterator='ALL'})
s.index.b:select({5}, {iterator='ALL'})
s.index.b:select{5}
s.index.b:select({5}, {iterator='EQ'})
s.index.b:select({5}, {iterator='BITS_ALL_SET'})
s.index.b:select({5}, {iterator='BITS_ANY_SET'})
s.index.b:select({5}, {iterator='BITS_ALL_NOT_SET'})
s.index.b:select({0}, {iterator='BITS_ALL_SET'})
s.index.b:select({0}, {iterator='BITS_ANY_SET'})
s.index.b:select({0}, {iterator='BITS_ALL_NOT_SET'})
s.index.b:select({0}, {iterator='EQ'})
s.index.b:select({}, {iterator='EQ'})
s.index.b:select({}, {iterator='BITS_ALL_SET'})
s.index.b:select({5}, {iterator='GE'})
s.index.b:select({5}, {iterator='GT'})
s.index.b:select({5}, {iterator='REQ'})
s.index.b:select({5}, {iterator='LE'})
s.index.b:select({5}, {iterator='OVERLAPS'})
s.index.b:select({'x'}, {iterator='EQ'})
s.index.b:select({5,6}, {iterator='EQ'})
s.index.b4:select({'A'}, {iterator='BITS_ALL_SET'})
s.index.b4:select({'A'}, {iterator='EQ'})
s.index.b4:select({''}, {iterator='EQ'})
s.index.b4:select({''}, {iterator='BITS_ALL_SET'})
s.index.b4:select({'\1\1'}, {iterator='BITS_ALL_SET'})
s.index.b4:select({'\1\1'}, {iterator='BITS_ANY_SET'})
s.index.b:count(), s.index.b:len(), s.index.b:count({5}), s.index.b:count({5},{iterator='BITS_ANY_SET'}), s.index.b:count({5},{iterator='BITS_ALL_SET'}), s.index.b:count({5},{iterator='BITS_ALL_NOT_SET'})
s.index[0]:random(), s.index[0]:random(3), s.index[0]:random(-1), s.index[0]:random(2.9), s.index[0]:random(2^32 + 1), s.index[0]:random(true)
s.index.b:count({5},{iterator='GE'})
s.index.b:count({},{iterator='GE'})
s.index.b:get{5}
s.index.b:min()
s.index.b:max()
s.index.b:min(5)
s.index.b:random(0)
s.index.b:random(5)
s.index.b:delete{5}
s.index.b:update({5}, {})
s:delete{3}
s:delete{5}
s:insert{100, 5, 'A'}
s:insert{101, 5, 'A'}
s:insert{102, 5, 'A'}
s.index.b:select({5}, {iterator='BITS_ALL_SET'})
s.index.b:select({}, {iterator='ALL'})
s:update(100, {{'=', 2, 6}})
s.index.b:select({}, {iterator='ALL', limit=3, offset=9})
s.index.b:pairs({5}, {iterator='BITS_ANY_SET'}):totable()
s:replace{200, 2^40, 'zz'}
s.index.b:select({2^40}, {iterator='BITS_ALL_SET'})
s.index.b:select({18446744073709551615ULL}, {iterator='BITS_ANY_SET', limit=2})
s.index.b.parts, s.index.b.type, s.index.b.unique
s.index.b:alter{type='tree'}
s.index.b:alter{parts={1,'unsigned'}}
s.index.b:select{}
s:truncate()
s.index.b:select({}, {iterator='ALL'})
]]

run[[
r = box.schema.space.create('r')
r:create_index('pk')
r:create_index('r', {type='rtree'})
r:create_index('r1', {type='rtree', unique=true})
r:create_index('r2', {type='rtree', parts={2,'unsigned'}})
r:create_index('r3', {type='rtree', parts={2,'array',3,'array'}})
r:create_index('r4', {type='rtree', dimension=0})
r:create_index('r5', {type='rtree', dimension=21})
r:create_index('r6', {type='rtree', dimension=-1})
r:create_index('r7', {type='rtree', distance='foo'})
r:create_index('r8', {type='rtree', parts={{2,'array',is_nullable=true}}})
r:create_index('r9', {type='rtree', parts={{2,'array',path='a'}}})
r:create_index('r10', {type='rtree', parts={4, 'array'}, distance='manhattan', dimension=3})
r:create_index('r11', {parts={2,'array'}})
r:create_index('r12', {type='rtree', parts={2}})
r:create_index('pkr', {type='rtree', id=0})
box.schema.space.create('r00'):create_index('pk', {type='rtree'})
box.schema.space.create('r01'):create_index('pk', {type='bitset'})
r.index.r10:drop()
r.index.r
r:insert{1, {1,2}}
r:insert{2, {1,2,3,4}}
r:insert{3, {3,4,1,2}}
r:insert{4, {1}}
r:insert{5, {1,2,3}}
r:insert{6, {'a',2}}
r:insert{7, 5}
r:insert{8, {}}
r:insert{9, {-1.5,2.5}}
r:insert{11, {1/0,5}}
r:insert{12, {5,6,7,8,9}}
r:insert{13}
r:delete{11}
function ids(t) local x = {} for _, v in ipairs(t) do x[#x+1] = v[1] end table.sort(x) return table.concat(x, ',') end
ids(r.index.r:select{})
ids(r.index.r:select({}, {iterator='ALL'}))
ids(r.index.r:select({1,2}))
ids(r.index.r:select({1,2}, {iterator='EQ'}))
ids(r.index.r:select({1,2,3,4}, {iterator='EQ'}))
ids(r.index.r:select({1,2,3,4}, {iterator='OVERLAPS'}))
ids(r.index.r:select({1,2,3,4}, {iterator='LE'}))
ids(r.index.r:select({1,2,3,4}, {iterator='LT'}))
ids(r.index.r:select({1,2,3,4}, {iterator='GE'}))
ids(r.index.r:select({1,2,3,4}, {iterator='GT'}))
ids(r.index.r:select({1,2}, {iterator='GE'}))
ids(r.index.r:select({1,2}, {iterator='GT'}))
ids(r.index.r:select({{1,2}}, {iterator='GT'}))
r.index.r:select({1,2}, {iterator='REQ'})
r.index.r:select({1}, {iterator='EQ'})
r.index.r:select({1,2,3}, {iterator='EQ'})
r.index.r:select({'a',2}, {iterator='EQ'})
r.index.r:select({'a'}, {iterator='EQ'})
r.index.r:select({{'a',2}}, {iterator='EQ'})
r.index.r:select({{1}}, {iterator='EQ'})
r.index.r:select({}, {iterator='EQ'})
r.index.r:select({}, {iterator='NEIGHBOR'})
r.index.r:select({}, {iterator='GE'})
r.index.r:select({}, {iterator='OVERLAPS'})
r.index.r:select({1,2}, {iterator='BITS_ALL_SET'})
r.index.r:count(), r.index.r:len(), r.index.r:count({1,2}), r.index.r:count({0,0,10,10},{iterator='LE'})
r.index.r:min()
r.index.r:max()
r.index.r:random(0)
r.index.r:get{1,2}
r.index.r:delete{1,2}
r.index.r:get{}
r.index.r:update({1,2}, {})
r:update(1, {{'=', 2, {50,60}}})
ids(r.index.r:select({50,60}))
ids(r.index.r:pairs({50,60}, {iterator='EQ'}):totable())
#r.index.r:pairs({0,0}, {iterator='NEIGHBOR'}):totable()
r.index.r:alter{dimension=3}
r.index.r:alter{distance='manhattan'}
r.index.r
r:truncate()
r.index.r:count()
d = box.schema.space.create('d')
d:create_index('pk')
d:create_index('r', {type='rtree', dimension=3, distance='manhattan', parts={2,'array'}})
math.randomseed(1) for i = 1, 500 do d:insert{i, {(i*7919)%1000, (i*104729)%1000, (i*1299709)%1000}} end
ids(d.index.r:select({100,100,100,500,500,500}, {iterator='LE'}))
ids(d.index.r:select({500,500,500}, {iterator='NEIGHBOR', limit=5}))
for i = 1, 500, 2 do d:delete{i} end
d.index.r:count({0,0,0,500,500,500}, {iterator='LE'})
d.index.r:len()
]]

run[[
m = box.schema.space.create('m')
m:create_index('pk', {parts={1,'unsigned'}})
m:create_index('u', {unique=false, parts={{2,'string',path='[*].a'}}})
m:insert{30}
m:insert{31, box.NULL}
m:insert{32, {}}
m:insert{33, {{a='x', b=5}, {b=3}}}
m:insert{34, {{a='x', b=5}, {a=box.NULL}}}
m:create_index('u2', {unique=true, parts={{2,'string',path='[*].a'},{1,'unsigned'}}})
m:create_index('u3', {unique=true, parts={{1,'unsigned'},{2,'string',path='[*].a'}}})
m:create_index('u4', {unique=true, parts={{2,'string',path='[*].a'},{2,'string',path='[1].a'}}})
m:create_index('u5', {unique=true, parts={{3,'string',path='[*].a'},{2,'string',path='[*].a'}}})
m:create_index('u6', {unique=true, parts={{2,'string',path='[*].a'},{2,'string',path='[*].b.c'}}})
m:create_index('u7', {unique=true, parts={{2,'string',path='[*].a'},{2,'string',path='[*]'}}})
m:create_index('u8', {unique=true, type='hash', parts={{2,'string',path='[*].a'}}})
m:create_index('u9', {unique=true, type='rtree', parts={{5,'array',path='[*]'}}})
m:create_index('u9', {type='rtree', parts={{5,'array',path='[*]'}}})
m:create_index('u9', {type='rtree', parts={{5,'array',path='a'}}})
m.index.u9 and m.index.u9:drop()
box.schema.space.create('p'):create_index('pk', {parts={{1,'unsigned',path='[*]'}}})
m:insert{1, {{a='x', b={c='q'}}, {a='y', b={c='w'}}}}
m:insert{2, {{a='x', b={c='q'}}, {a='y', b={c='z'}}}}
m:insert{3, {{a='x', b={c='k'}}, {a='y', b={c='l'}}}}
m:insert{4, {{a='x', b={c='q2'}}, {a='x', b={c='q1'}}}}
m.index.u6 and m.index.u6:select{}
m.index.u6 and m.index.u6:select{'x'}
m.index.u3:select{1}
m.index.u3:select{1,'x'}
m.index.u:select({'x'}, {limit=2, offset=1})
m.index.u:count({'x'}, {iterator='GT'})
m.index.u:select({}, {iterator='LT', limit=3})
m.index.u:min(), m.index.u:max(), m.index.u:min('y'), m.index.u:max('x')
m:update(1, {{'=', '[2][1].a', 'zzz'}})
m.index.u:select({'z'}, {iterator='GE'})
m:update(1, {{'!', '[2][1]', {a='new', b={c='1'}}}})
m.index.u:select({'new'})
m:delete{1}
m.index.u:count()
box.begin() m:insert{50, {{a='t1', b={c='a'}}}} m:delete{3} box.rollback() return m.index.u:count()
box.begin() m:insert{50, {{a='t1', b={c='a'}}}} m:delete{3} box.commit() return m.index.u:count()
m:truncate()
m.index.u:count()
m:insert{1, {{a='x', b={c='q'}}, {a='y', b={c='w'}}}}
m.index.u:pairs({'x'},{iterator='GE'}):totable()
n = box.schema.space.create('n', {format={{'id','unsigned'},{'tags','array'},{'opt','array',is_nullable=true},{'any','any'}}})
n:create_index('pk')
n:create_index('tags', {unique=false, parts={{'tags[*]','unsigned'}}})
n:create_index('opt', {unique=false, parts={{'opt[*]','unsigned'}}})
n:create_index('opt2', {unique=false, parts={{'opt[*]','unsigned',is_nullable=true}}})
n:create_index('any', {unique=false, parts={{'any[*].x','unsigned',is_nullable=true}}})
n:insert{1,{1,2},{3},{{x=1}}}
n:insert{2,{},{},{}}
n:insert{3,{},box.NULL,{}}
n:insert{4,{},nil,5}
n:insert{5,{1},box.NULL,box.NULL}
n:insert{5,{1}}
n:insert{6,{1, box.NULL}, {}, {}}
n:insert{7,{1}, {box.NULL}, {}}
n.index.opt2:select{}
n.index.tags:select{}
n.index.any:select{}
]]

os.exit(0)
