-- box.execute, box.prepare and the same over a connection: what SQL says and does, mostly over one space.
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
-- Functions, CASE and CAST.
q('CREATE TABLE f (id INT PRIMARY KEY, a TEXT, b NUMBER, c SCALAR, d DOUBLE, e BOOLEAN, f VARBINARY, g UNSIGNED)')
q([[INSERT INTO f VALUES (1, 'abc', 1.5, 'x', 2.5, true, X'414243', 7), (2, NULL, 2, 3, 2, false, NULL, 8)]])
for _, text in ipairs({
    [[SELECT TYPEOF(NULL), TYPEOF(1), TYPEOF(1.5), TYPEOF('a'), TYPEOF(X'41'), TYPEOF(TRUE)]],
    [[SELECT TYPEOF(a), TYPEOF(b), TYPEOF(c), TYPEOF(d), TYPEOF(e), TYPEOF(f), TYPEOF(g) FROM f]],
    [[SELECT TYPEOF(b+1), TYPEOF(g+1), TYPEOF(a||'x'), TYPEOF(CAST(c AS SCALAR)) FROM f]],
    [[SELECT IFNULL(NULL, 1), IFNULL('a', 2), COALESCE(NULL, NULL, 5), COALESCE(a, b) FROM f]],
    [[SELECT NULLIF(1, 1), NULLIF(1, 2), NULLIF('a', NULL), NULLIF(NULL, 1)]],
    [[SELECT GREATEST(1, 2, 3), LEAST(1, 2, 3), GREATEST('a', 1), LEAST('a', 1, TRUE), GREATEST(1, NULL)]],
    [[SELECT GREATEST(1)]],
    [[SELECT LEAST()]],
    [[SELECT CHAR(), CHAR(65, 66), CHAR(-1), CHAR(8364), CHAR(1114112), CHAR('65'), CHAR(66.7), CHAR(NULL), CHAR(128512)]],
    [[SELECT UNICODE('A'), UNICODE('€'), UNICODE(''), UNICODE(NULL), UNICODE(12)]],
    [[SELECT HEX('abc'), HEX(X'0A0B'), HEX(12), HEX(NULL), HEX(1.5), HEX(TRUE)]],
    [[SELECT QUOTE('it''s'), QUOTE(1), QUOTE(1.5), QUOTE(1e300), QUOTE(NULL), QUOTE(X'0aff'), QUOTE(TRUE), QUOTE(-0.1), QUOTE(0.1), QUOTE(1e15), QUOTE(1e14), QUOTE(123456789.125), QUOTE(1e-5), QUOTE(0.0001)]],
    [[SELECT ROUND(1.5), ROUND(2.5), ROUND(-1.5), ROUND(1), ROUND('12.7'), ROUND('abc'), ROUND(NULL), ROUND(1.2345, 2), ROUND(1.2345, -1), ROUND(1.5, NULL), ROUND(1e300), ROUND(TRUE)]],
    [[SELECT ROUND(1, 2, 3)]],
    [[SELECT ROUND()]],
    [[SELECT ROUND(X'41')]],
    [[SELECT SUBSTR('hello', 2), SUBSTR('hello', 2, 2), SUBSTR('hello', -3), SUBSTR('hello', -3, 2), SUBSTR('hello', 0), SUBSTR('hello', 0, 2), SUBSTR('hello', 3, -2), SUBSTR('hello', -10, 7), SUBSTR('hello', 10)]],
    [[SELECT SUBSTR('héllo', 2, 1), SUBSTR(X'414243', 2), SUBSTR(X'414243', -2, 1), SUBSTR(12345, 2, 3), SUBSTR(NULL, 1), SUBSTR('a', NULL), SUBSTR('a', 1, NULL), SUBSTR('abc', '2')]],
    [[SELECT SUBSTR('a')]],
    [[SELECT SUBSTR('a', 1, 2, 3)]],
    [[SELECT POSITION('l', 'hello'), POSITION('', 'abc'), POSITION('z', 'abc'), POSITION('é', 'aé'), POSITION(X'42', X'414243'), POSITION(NULL, 'a'), POSITION('a', NULL)]],
    [[SELECT POSITION(1, 'a')]],
    [[SELECT POSITION('a', 1)]],
    [[SELECT POSITION('a', X'41')]],
    [[SELECT REPLACE('abcabc', 'b', 'XX'), REPLACE('abc', '', 'x'), REPLACE('abc', 'b', ''), REPLACE(NULL, 'a', 'b'), REPLACE('a', NULL, 'b'), REPLACE('a', 'a', NULL), REPLACE(121, 1, 3), REPLACE('aaa', 'aa', 'b')]],
    [[SELECT TRIM('  a  '), TRIM('x' FROM 'xxaxx'), TRIM(TRAILING 'x' FROM 'xxaxx'), TRIM(BOTH 'xy' FROM 'xyayx'), TRIM(NULL), TRIM(12), TRIM(LEADING 'x' FROM NULL)]],
    [[SELECT TRIM(X'004100')]],
    [[SELECT SOUNDEX('Robert'), SOUNDEX('Rupert'), SOUNDEX(''), SOUNDEX(NULL), SOUNDEX('123'), SOUNDEX('Tymczak'), SOUNDEX('  euler'), SOUNDEX(12)]],
    [[SELECT SOUNDEX(X'41')]],
    [[SELECT LENGTH(12345), LENGTH(TRUE), LENGTH(1.5), LENGTH('héllo'), LENGTH(X'4142'), LENGTH(NULL), CHAR_LENGTH('ab'), CHARACTER_LENGTH('abc'), LENGTH(1e300)]],
    [[SELECT UPPER(12), LOWER(TRUE), UPPER(1.5), UPPER(NULL), LOWER('ÀB')]],
    [[SELECT UPPER(X'41')]],
    [[SELECT ABS(-5), ABS(5.5), ABS('12'), ABS('abc'), ABS(NULL), ABS(-9223372036854775808)]],
    [[SELECT ABS(TRUE)]],
    [[SELECT ABS(X'41')]],
    [[SELECT ZEROBLOB(3), ZEROBLOB(-1), ZEROBLOB(0), ZEROBLOB('2')]],
    [[SELECT LIKELY(1), UNLIKELY(TRUE), LIKELY('a')]],
    [[SELECT CASE WHEN 1 > 2 THEN 'a' ELSE 'b' END, CASE 3 WHEN 1 THEN 'x' WHEN 3 THEN 'y' END, CASE 5 WHEN 1 THEN 2 END, CASE WHEN NULL THEN 1 ELSE 2 END]],
    [[SELECT CASE a WHEN 'abc' THEN 1 WHEN NULL THEN 2 ELSE 'z' END FROM f]],
    [[SELECT CASE WHEN 1 THEN 2 END]],
    [[SELECT CASE 1 WHEN 'a' THEN 2 ELSE 3 END]],
    [[SELECT CASE 'a' WHEN 1 THEN 2 ELSE 3 END]],
    [[SELECT CASE id WHEN 1 THEN 1.5 ELSE 2 END FROM f]],
    [[SELECT CASE WHEN 0.5 THEN 1 END]],
    [[SELECT CASE WHEN 'true' THEN 1 END]],
    [[SELECT CAST('12' AS INTEGER), CAST(1.9 AS INTEGER), CAST(-1.9 AS INT), CAST(TRUE AS INTEGER), CAST(' 12 ' AS INTEGER), CAST(NULL AS INTEGER), CAST(X'3132' AS INTEGER), CAST(12 AS UNSIGNED)]],
    [[SELECT CAST('1.5' AS INTEGER)]],
    [[SELECT CAST('abc' AS INTEGER)]],
    [[SELECT CAST(-1 AS UNSIGNED)]],
    [[SELECT CAST('-1' AS UNSIGNED)]],
    [[SELECT CAST(-1.5 AS UNSIGNED)]],
    [[SELECT CAST(1e30 AS INTEGER)]],
    [[SELECT CAST(1 AS TEXT), CAST(1.5 AS TEXT), CAST(TRUE AS TEXT), CAST(X'41' AS TEXT), CAST('a' AS STRING), CAST(1e20 AS VARCHAR(3)), CAST(2.0 AS TEXT)]],
    [[SELECT CAST(1 AS BOOLEAN), CAST(0 AS BOOLEAN), CAST(0.5 AS BOOLEAN), CAST(' true ' AS BOOLEAN), CAST('FALSE' AS BOOLEAN)]],
    [[SELECT CAST('yes' AS BOOLEAN)]],
    [[SELECT CAST(X'41' AS BOOLEAN)]],
    [[SELECT CAST('true x' AS BOOLEAN)]],
    [[SELECT CAST(1 AS DOUBLE), CAST('1.5' AS DOUBLE), CAST('12' AS DOUBLE), CAST(X'312e35' AS DOUBLE)]],
    [[SELECT CAST(TRUE AS DOUBLE)]],
    [[SELECT CAST('abc' AS DOUBLE)]],
    [[SELECT CAST('12' AS NUMBER), CAST('1.5' AS NUMBER), CAST(TRUE AS NUMBER), CAST(1 AS NUMBER), CAST(X'3132' AS NUMBER), CAST('1e3' AS NUMBER)]],
    [[SELECT CAST('abc' AS NUMBER)]],
    [[SELECT CAST('' AS NUMBER)]],
    [[SELECT CAST('a' AS VARBINARY), CAST(X'41' AS VARBINARY)]],
    [[SELECT CAST(1 AS VARBINARY)]],
    [[SELECT CAST(TRUE AS VARBINARY)]],
    [[SELECT CAST(1 AS SCALAR), CAST('a' AS SCALAR), CAST(NULL AS SCALAR)]],
    [[SELECT TYPEOF(CAST(1 AS TEXT)), TYPEOF(CAST(1 AS NUMBER)), TYPEOF(CAST(NULL AS TEXT)), TYPEOF(CAST(1 AS SCALAR)), TYPEOF(CAST(1 AS UNSIGNED)), TYPEOF(CAST('a' AS VARBINARY))]],
    [[SELECT id FROM f WHERE CAST(id AS TEXT) = '2']],
    [[SELECT id FROM f WHERE CASE WHEN id = 1 THEN TRUE ELSE FALSE END]],
    [[SELECT MAX(ROUND(d)), MIN(CAST(id AS TEXT)), SUM(CASE WHEN e THEN 1 ELSE 0 END) FROM f]],
    [[SELECT ROUND(SUM(d), 1), CAST(COUNT(*) AS TEXT) FROM f]],
    [[SELECT id, SUBSTR(a, 1, id) AS s FROM f ORDER BY s DESC]],
    [[SELECT -ROUND(1.5), CAST('5' AS INTEGER) + 1, ROUND(1.5) || 'a']],
    [[SELECT 1.0 || 'a']],
    [[SELECT CAST('a' AS INTEGER) FROM f WHERE id > 5]],
    [[SELECT IFNULL(1)]],
    [[SELECT HEX()]],
    [[SELECT 1.5 LIKE 'a']],
    [[SELECT QUOTE(2.5e-7), QUOTE(3.14159265358979), QUOTE(100.0)]],
    [[SELECT 'a' || 1]],
    [[SELECT 'abc' < 1.5]],
    [[SELECT TRUE + 1]],
    [[SELECT 1 + 'a1']],
    [[SELECT NOT 1.5]],
    [[SELECT NOT 2.0]],
}) do q(text) end
-- Transactions, savepoints and indexes.
for _, text in ipairs({
    [[CREATE TABLE x (id INT PRIMARY KEY, a TEXT, b INT)]],
    [[COMMIT]],
    [[ROLLBACK]],
    [[SAVEPOINT s]],
    [[RELEASE s]],
    [[ROLLBACK TO s]],
    [[START TRANSACTION]],
    [[START TRANSACTION]],
    [[INSERT INTO x VALUES (1, 'a', 1)]],
    [[SAVEPOINT s]],
    [[INSERT INTO x VALUES (2, 'b', 2)]],
    [[ROLLBACK TO SAVEPOINT s]],
    [[SELECT id FROM x]],
    [[RELEASE SAVEPOINT nope]],
    [[ROLLBACK TO nope]],
    [[INSERT INTO x VALUES (3, 'b', 2)]],
    [[RELEASE SAVEPOINT s]],
    [[ROLLBACK TO s]],
    [[COMMIT]],
    [[SELECT id FROM x]],
    [[START TRANSACTION]],
    [[DELETE FROM x]],
    [[ROLLBACK]],
    [[SELECT id FROM x]],
    [[START TRANSACTION]],
    [[SAVEPOINT "a"]],
    [[SAVEPOINT a]],
    [[INSERT INTO x VALUES (4, 'x', 3)]],
    [[ROLLBACK TO "a"]],
    [[INSERT INTO x VALUES (1, 'x', 3)]],
    [[ROLLBACK TO A]],
    [[COMMIT]],
    [[CREATE INDEX i1 ON x(a)]],
    [[CREATE INDEX i1 ON x(a)]],
    [[CREATE INDEX IF NOT EXISTS i1 ON x(a)]],
    [[CREATE UNIQUE INDEX i2 ON x(b, a)]],
    [[CREATE INDEX i3 ON x(nope)]],
    [[CREATE INDEX i3 ON nope(a)]],
    [[CREATE INDEX i4 ON x(b ASC)]],
    [[SELECT id FROM x WHERE a = 'b']],
    [[DROP INDEX i1 ON x]],
    [[DROP INDEX i1 ON x]],
    [[DROP INDEX IF EXISTS i1 ON x]],
    [[DROP INDEX i1 ON nope]],
    [[DROP INDEX IF EXISTS i1 ON nope]],
    [[DROP INDEX "pk_unnamed_X_1" ON x]],
    [[INSERT INTO x VALUES (7, 'a', 1), (8, 'a', 1)]],
    [[DROP INDEX i2 ON x]],
    [[INSERT INTO x VALUES (7, 'a', 1), (8, 'a', 1)]],
    [[CREATE UNIQUE INDEX i2 ON x(b, a)]],
    [[START TRANSACTION]],
    [[CREATE INDEX i9 ON x(a)]],
    [[ROLLBACK]],
    [[START TRANSACTION]],
    [[ROLLBACK]],
}) do q(text) print(box.is_in_txn()) end
q('START TRANSACTION')
for id = 11, 14 do q('SAVEPOINT s') q(('INSERT INTO x VALUES (%d, NULL, NULL)'):format(id)) end
for _, text in ipairs({'ROLLBACK TO s', 'SELECT id FROM x', 'RELEASE s', 'ROLLBACK TO s', 'SELECT id FROM x', 'ROLLBACK'}) do q(text) end
for i = 0, 9 do local index = box.space.X.index[i] print(i, index and index.name, index and index.unique) end
-- Numbers.
for _, text in ipairs({
    '0X1f, 0x1F', '1abc', '1 abc', '12x', '0x10000000000000000', '0X10000000000000000', '1.5e', '1e5', '1.5e3x', '0x', "x'41'", "X'4142'",
}) do q('SELECT ' .. text) end
-- Groups.
q('CREATE TABLE o (id INT PRIMARY KEY, who TEXT, n INT, w NUMBER)')
q("INSERT INTO o VALUES (1,'a',5,1.5),(2,'b',7,2),(3,'a',1,NULL),(4,NULL,2,3),(5,'b',7,2.0),(6,NULL,9,1),(7,'c',0,0)")
for _, text in ipairs({
    [[SELECT who, COUNT(*), SUM(n) FROM o GROUP BY who]],
    [[SELECT who, COUNT(*) AS c FROM o GROUP BY who ORDER BY c DESC, who]],
    [[SELECT n % 2 AS odd, COUNT(*) FROM o GROUP BY odd]],
    [[SELECT n % 2, COUNT(*) FROM o GROUP BY n % 2]],
    [[SELECT who, n, COUNT(*) FROM o GROUP BY 1, 2]],
    [[SELECT who FROM o GROUP BY who]],
    [[SELECT DISTINCT COUNT(*) FROM o GROUP BY who]],
    [[SELECT w, COUNT(*) FROM o GROUP BY w]],
    [[SELECT COUNT(*) FROM o GROUP BY nope]],
    [[SELECT who, COUNT(*) FROM o GROUP BY 3]],
    [[SELECT who, COUNT(*) FROM o GROUP BY 0]],
    [[SELECT who, COUNT(*) AS c FROM o GROUP BY c]],
    [[SELECT who, COUNT(*) FROM o GROUP BY COUNT(*)]],
    [[SELECT who, MAX(n), id FROM o GROUP BY who]],
    [[SELECT who, MIN(n), id FROM o GROUP BY who]],
    [[SELECT COUNT(*) FROM o WHERE id > 100 GROUP BY who]],
    [[SELECT COUNT(*), MAX(n) FROM o WHERE id > 100]],
    [[SELECT who, COUNT(*) FROM o GROUP BY who LIMIT 2]],
    [[SELECT who, COUNT(*) FROM o GROUP BY who LIMIT 0]],
    [[SELECT who, COUNT(*) FROM o GROUP BY who ORDER BY who DESC]],
    [[SELECT id, COUNT(*) FROM o GROUP BY id HAVING id < 3]],
    [[SELECT UPPER(who) AS u, AVG(n), TOTAL(w), COUNT(w) FROM o GROUP BY u]],
    [[SELECT DISTINCT COUNT(*) FROM o]],
    [[SELECT COUNT(*) FROM o ORDER BY 1]],
    [[SELECT COUNT(*) FROM o LIMIT 0]],
    [[SELECT COUNT(*) FROM o LIMIT 1 OFFSET 1]],
    [[SELECT who, SUM(n) + 1, CASE WHEN SUM(n) > 5 THEN 'big' ELSE 'small' END FROM o GROUP BY who]],
    [[SELECT 1 AS x, COUNT(*) GROUP BY x]],
    [[SELECT who, n FROM o GROUP BY who]],
    [[SELECT who, COUNT(*) FROM o GROUP BY o.who]],
    [[SELECT who AS n, COUNT(*) FROM o GROUP BY n ORDER BY n, COUNT(*), o.n]],
}) do q(text) end
os.exit(0)
