-- box.execute, box.prepare and the same over a connection: what SQL over one space says and does.
local json = require('json')
box.cfg({ log = 'log', listen = '127.0.0.1:' .. arg[1] })

-- A result with its fields in a fixed order.
local function shown(result)
    if type(result) ~= 'table' then return tostring(result) end
    local parts = {}
    if result.row_count then parts[#parts + 1] = 'row_count ' .. result.row_count end
    if result.autoincrement_ids then parts[#parts + 1] = 'ids ' .. json.encode(result.autoincrement_ids) end
    for _, field in ipairs({ 'metadata', 'params' }) do
        for _, column in ipairs(result[field] or {}) do parts[#parts + 1] = field .. ' ' .. column.name .. ' ' .. column.type end
    end
    if result.stmt_id then parts[#parts + 1] = ('statement %d, %d'):format(result.stmt_id, result.param_count) end
    if result.rows then parts[#parts + 1] = json.encode(result.rows) end
    return table.concat(parts, ', ')
end

local function q(text, parameters)
    local done, result, failure
    if parameters == nil then
        done, result, failure = pcall(box.execute, text)
    else
        done, result, failure = pcall(box.execute, text, parameters)
    end
    print(text, done, shown(result), failure ~= nil and tostring(failure) or '', failure ~= nil and failure.code or '')
end

local s = box.schema.create_space('T', {format = {
    {'ID','unsigned'},{'NAME','string'},{'AGE','integer',is_nullable=true},{'D','number',is_nullable=true},{'B','boolean',is_nullable=true},
    {'DB','double',is_nullable=true},{'V','varbinary',is_nullable=true},{'SC','scalar',is_nullable=true}, {'X','any',is_nullable=true}}})
s:create_index('pk',{parts={1,'unsigned'}})
s:create_index('age',{parts={{3,'integer',is_nullable=true},{1,'unsigned'}},unique=true})
s:create_index('name',{parts={{2,'string'}},unique=false})
q("insert into t(id,name,age,d,b,db,sc) values (1,'Ann',10,1.5,true,2,'x'),(2,'bob',-5,2,false,2.5,3),(3,'Ünder',null,null,null,null,null),(4,'a_c%',7,1e10,true,0.1,1.5)")
q("insert into t(id) values (9)")
q("insert into t(name) values ('x')")
q("insert into t values (9)")
q("insert into t(id,name) values (9)")
q("insert into t(id,nope) values (9,1)")
q("insert into t(id,id) values (9,1)")
q("insert into t(id,name) values ('9','q')")
q("insert into t(id,name) values ('9x','q')")
q("insert into t(id,name) values (10,5)")
q("insert into t(id,name,age) values (11,'z',2.0)")
q("insert into t(id,name,age) values (12,'z',2.5)")
q("insert into t(id,name,age) values (13,'z','7')")
q("insert into t(id,name,b) values (14,'z',1)")
q("insert into t(id,name,db) values (15,'z',1)")
q("insert into t(id,name,d) values (16,'z','1.5')")
q("insert into t(id,name,v) values (17,'z',x'00ff')")
q("insert into t(id,name,v) values (18,'z','str')")
q("insert into t(id,name,sc) values (19,x'00','str')")
q("insert into t(id,name) values (-1,'z')")
q("insert into t(id,name,x) values (20,'z',?)",{{1,2}})
q("insert into t(id,name,x) values (20,'z',?)",{{a=1}})
q("insert into t(id,name,x) values (21,'z',:p)",{{[':p']='x'}})
q("select id,name,age,d,b,db,sc from t")
for _, w in ipairs({
    "name like 'a%'",
    "name like 'A%'",
    "name like 'ann'",
    "name like '_nn'",
    "name like 'a\\_c%' escape '\\'",
    "name like '%'",
    "name not like '%n%'",
    "name like 1",
    "age like 'a'",
    "age = null",
    "not (age = null)",
    "age <> 10",
    "age != 10",
    "age == 10",
    "id in (1,2,null)",
    "id not in (1,2)",
    "id not in (1,null)",
    "id in ()",
    "age between -5 and 7",
    "age not between -5 and 7",
    "b",
    "not b",
    "b = true",
    "b = 1",
    "b > false",
    "name > 'a'",
    "name >= 'bob'",
    "id > 1.5",
    "id = 1.0",
    "id = 1.5",
    "d > 1.5",
    "sc > 1",
    "sc = 'x'",
    "sc > 'a'",
    "id = 1 or name='bob'",
    "id = 1 and name='bob'",
    "1",
    "true",
    "null",
    "'a'",
    "id and true",
    "id in (?, ?)",
    "name = upper('ann')",
    "lower(name)='ann'",
    "length(name)=3",
    "abs(age)=5",
    "id+1=3",
    "id % 2 = 0",
    "id / 2 = 1",
    "-id = -1",
    "id | 1 = 3",
    "id & 1",
    "name || 'x' = 'bobx'",
    "name || 1 = 'b'",
    "coalesce(age,0)=0",
    "ifnull(age,0)=0",
    "id is 1",
    "x is null",
    "x = 1",
    "v = x'00ff'",
    "t.id=1",
    "t.\"ID\"=1",
    "u.id=1",
    "\"id\"=1",
    "id = 18446744073709551615",
    "id=99999999999999999999",
    "age = 9223372036854775808",
    "d = 1e10",
    "id >= 2 and id < 4",
    "id > 4 and id < 2",
    "age >= -5 and age <= 7",
    "age < 8",
    "age > 7",
    "id = ?",
    "id=:a",
    "1 = 1",
    "1 > 'a'",
    "'a' > 1",
    "1/0",
    "id/0 is null",
    "age + null is null",
    "2.5 > 2",
    "length(1,2)",
    "not 1",
    "-'a'",
    "+'a'",
    "~id=-2",
    "id between 1",
    "id = 1 limit 1",
    "b is unknown"
}) do
    q("select id from t where "..w, w:find("[?]") and (w:find("%(") and {1,2} or {1}) or w:find(":a") and {{[":a"]=1}} or {}) end
q("select * from t order by id desc limit 2 offset 1")
q("select id from t limit 1,2")
q("select id from t limit -1")
q("select id from t limit 'a'")
q("select id from t limit ?",{2})
q("select id from t limit 2.5")
q("select id from t limit 0")
  q("select id from t as q where q.id=1") q("select q.id from t q where q.id=1") q("select q.* from t q where id=1") q("select t.id from t q")
q("select id i from t order by i desc limit 1")
q("select id+1 as x from t order by x limit 1")
q("select id from t order by 5")
q("select id from t order by age+nope")
q("select id, * from t where id=1")
q("select count(id), count(age), count(*) from t")
q("select max(name), min(name), sum(name) from t")
q("select sum(d), avg(age) from t")
q("select count(*)+1 from t")
q("select max(id)+1, id from t")
q("select id from t where count(*)>1")
q("select sum(id) from t where id>100000")
q("select min(id,2) from t where id=3")
q("select total(id), avg(id) from t where id > 10000")
q("update t set nope=1")
q("update t set age=1 where id=1")
q("update t set age=age+1, d=age where id in (1,2)")
q("select id,age,d from t where id<3")
q("update t set name=null where id=1")
q("update t set age='x' where id=1")
q("update t set age='12' where id=1")
q("update t set id=1 where id=1")
q("update t set id=500 where id=1")
q("update t set age = ? where id=?",{3,1})
q("delete from t where id=:id",{{[':id']=1}})
q("delete from t where age>0")
q("select id from t")
q("select id from t")

q("select ?, :a, $b, @c, ?",{1,{[':a']=2},{['$b']=3},{['@c']=4},5})
q("select ?",{true})
q("select ?",{1.5})
q("select ?",{-1})
q("select ?",{'x'})
q("select ?",{box.NULL})
q("select ?",{1ULL})
q("select ?", {require'uuid'.new()})
q("select ?, ?", {1})
q("select ?", {1,2})
q("select ?",{{}})
q("select :a, ?",{{[':a']=1},2})
q("select :a",{{a=1}})
q("select :a",{5})
q("select ?",{{[':a']=5}})
q("select ?",{{[':a']=5,[':b']=3}})
q("select ?",{a=1})
q("select 'it''s', \"a\"")
q("select 1 as \"a b\", 2 as \"X\", 3 y")
q("SELECT 1; ")
q("select 1;;")
q("-- comment\nselect 1 -- x")
q("/* c */ select 1")
q(" ")
q(";")
q("select 1.0, 1e3, 0x10, .5, -1, - 1, +1, 9223372036854775808, -9223372036854775808")
q("select null + 1, 1+1.5, 7/2, 7.0/2, -7/2, -7%3, 1||2, 'a'||null, 1=1, 1<2 , not true, 2*3.0")
q("select from t")
q("insert into t values (1,2")
q("update t")
q("delete t")
q("select 'abc")
q("select \"abc")
q("select id from t where id = = 1")
box.schema.user.create('u',{if_not_exists=true})
box.session.su('u')
q("select * from t")
q("insert into t(id,name) values(1,'x')")
box.session.su('admin')
box.begin()
q("insert into t(id,name) values(800,'x')")
q("insert into t(id,name) values(801,'x'),(800,'y')")
q("select id from t where id >=800")
box.rollback()
q("select id from t where id >=800")

-- More rows than one step reads.
local many = box.schema.create_space('MANY', { format = { { 'ID', 'unsigned' }, { 'K', 'unsigned' } } })
many:create_index('pk')
many:create_index('k', { parts = { { 2, 'unsigned' } }, unique = false })
box.begin()
for id = 1, 3000 do many:insert({ id, id % 7 }) end
box.commit()
q('select count(*), sum(id), min(k), max(id), avg(k) from many')
q('select count(*) from many where k = 3 and id > 1000 and id <= 2000')
q('select id from many where k = 5 order by id desc limit 3 offset 2')
q('select id from many order by id desc limit 2')
q('select id, k from many order by k desc, id desc limit 2')
q('update many set k = k + 10 where k >= 5')
q('select count(*) from many where k between 15 and 16')
q('delete from many where id % 3 = 0')
q('select count(*) from many')

-- A long expression.
q('select 1' .. (' + 1'):rep(150))
q('select count(*) from many where ' .. ('id = 1 or '):rep(60) .. 'id = 2')

-- Prepared statements, and the requests of the protocol.
local prepared = box.prepare('select id, name from t where id = ? or name = :n')
print(shown(prepared), shown(prepared:execute({ 800, { [':n'] = 'x' } })), shown(box.execute(prepared.stmt_id, { 1 })))
prepared:unprepare()
print(box.execute(prepared.stmt_id))
print(box.prepare('selec'))
for _, arguments in ipairs({ {}, { {} }, { 'select 1', 12 } }) do print(pcall(box.execute, unpack(arguments))) end
print(pcall(box.prepare), pcall(box.unprepare), pcall(box.unprepare, 'x'))

box.schema.user.grant('guest', 'super', nil, nil, { if_not_exists = true })
local connection = require('net.box').connect('127.0.0.1:' .. arg[1])
local auto = box.schema.create_space('AUTO', { format = { { 'ID', 'unsigned' }, { 'V', 'string' } } })
auto:create_index('pk', { sequence = true })
print(shown(connection:execute("insert into auto values (null, 'a'), (null, 'b')")))
print(shown(connection:execute('select * from auto where id > ? and v = :v', { 0, { [':v'] = 'b' } })))
print(pcall(connection.execute, connection, 'selec'))
local remote = connection:prepare('select v from auto where id = ?')
print(shown(remote), shown(connection:execute(remote.stmt_id, { 1 })))
connection:unprepare(remote.stmt_id)
print(pcall(connection.execute, connection, remote.stmt_id, { 1 }))
print(shown(connection:execute('delete from auto where id < 3')))

-- Triggers see what SQL changes.
auto:on_replace(function(old, new, _, kind) print(kind, old, new) end)
q("insert into auto values (7, 'x')")
q("update auto set v = v || '!' where id = 7")
q('delete from auto')

-- Tables.
q('create table made (id integer primary key autoincrement, name varchar(20) unique, d double not null, b boolean)')
q('create table if not exists made (id int primary key)')
q('create table made (id int primary key)')
q('create table two (id int, name text, primary key (id, name), unique (name, id))')
q('create table none (id int)')
q('create table twice (id int primary key, id text)')
q('create table wrong (id foo primary key)')
q("insert into made values (null, 'a', 1.5, true), (null, 'b', 2.5, false)")
q("insert into made values (null, 'a', 1.5, true)")
q("insert into made values (null, 'c', null, true)")
q('select * from made')
for _, name in ipairs({ 'MADE', 'TWO' }) do
    local space = box.space[name]
    print(space.name, space.engine, space.field_count)
    for id = 0, #space.index do
        local index = space.index[id]
        print(index.name, index.type, index.unique, #index.parts, index.parts[1].fieldno, index.parts[1].type,
            index.parts[1].is_nullable)
    end
end
q('drop table made')
q('drop table if exists made')
q('drop table made')
q('drop table two')
print(box.space.MADE, box.space.TWO, box.sequence.MADE)

-- Settings of the session.
q('SET SESSION "sql_full_metadata" = true')
print(box.space._session_settings:get('sql_full_metadata')[2])
q('set  session "sql_full_metadata"= FALSE;')
print(box.space._session_settings:get('sql_full_metadata')[2])
q([[set session "sql_default_engine" = 'memtx']])
q([[SET SESSION "sql_default_engine" = 'nope']])
q('SET SESSION "nope" = true')
q('SET SESSION sql_full_metadata = false')
q('SET SESSION "sql_full_metadata" = 1')
q('SET SESSION "sql_full_metadata" = ?', {})
q('SET SESSION "sql_default_engine" = memtx')
q('SET SESSION')
print(shown(box.prepare('SET SESSION "sql_full_metadata" = false'):execute()))
os.exit(0)
