-- What statements of SQL do to rows whose key is taken or whose value is NULL, and what they count: rows, errors and counts are as in
-- Tarantool.
local json = require('json')
box.cfg({ log = 'log' })

local q = dofile(arg[0]:match('^.*/') .. 'said.lua')
local function all(queries) for _, query in ipairs(queries) do q(query) end end

-- INSERT OR and UPDATE OR.
all({
    [[create table t(a int primary key, b int unique, c int)]], [[insert into t values(1, 1, 1), (2, 2, 2), (3, 3, 3)]], [[select row_count()]],
    [[insert or ignore into t values(1, 9, 9), (4, 1, 9), (5, 5, 5)]], [[select row_count(), row_count()]], [[select row_count()]],
    [[insert or replace into t values(1, 2, 7)]], [[select * from t]], [[replace into t values(8, 8, 8)]], [[replace into t values(8, 5, 8), (9, 9, 9)]], [[select * from t]],
    [[insert or fail into t values(10, 10, 10), (11, 9, 0), (12, 12, 12)]], [[insert or abort into t values(13, 13, 13), (11, 9, 0)]], [[select * from t]],
    [[start transaction]], [[insert into t values(20, 20, 20)]], [[insert or rollback into t values(21, 21, 21), (22, 9, 0)]], [[commit]], [[select * from t]],
    [[start transaction]], [[insert into t values(20, 20, 20)]], [[insert or fail into t values(21, 21, 21), (22, 9, 0)]], [[commit]], [[select count(*) from t]],
    [[update or ignore t set b = 9 where a > 9]], [[update or ignore t set b = b + 1 where a in (8, 9)]], [[select * from t]], [[update or replace t set b = 21 where a < 10]], [[select * from t]],
    [[update or fail t set b = 1]], [[update or rollback t set c = c + 1]], [[update or abort t set b = 2]], [[select * from t]],
    [[create table u(a int primary key, b int unique)]], [[insert into u values(1, 10), (2, 20), (3, 30)]], [[update or replace u set b = b + 10]], [[select * from u]], [[update or replace u set a = 5 where a = 1]],
    [[select * from u]], [[drop table u]], [[drop table t]],
})

-- Triggers of rows that change, and of rows that make way; the latter without Tarantool, whose REPLACE of 2.6 fails in such spaces.
all({
    [[create table p(a int primary key, b int unique)]], [[create table log(id int primary key autoincrement, what text, x int)]],
    [[create trigger t1 before delete on p for each row begin insert into log values(null, 'delete', old.a); end]],
    [[create trigger t2 after insert on p for each row begin insert into log values(null, 'insert', new.a); end]],
    [[create trigger t3 after update on p for each row begin insert into log values(null, 'update', new.a); end]],
    [[insert into p values(1, 1), (2, 2), (3, 3)]], [[insert or ignore into p values(5, 5)]], [[update or ignore p set b = 5 where a > 1]],
    [[select * from p]], [[select what, x from log]],
})
if pcall(require, 'lycosa.box') then
    local function rows(text) return json.encode(box.execute(text).rows) end
    box.execute([[delete from log]])
    box.execute([[create table ch(a int primary key references p on delete cascade)]])
    box.execute([[insert into ch values(1), (2), (3)]])
    assert(box.execute([[replace into p values(1, 2)]]).row_count == 3)
    assert(rows([[select * from ch]]) == '[[3]]')
    assert(box.execute([[update or replace p set b = 5 where a = 3]]).row_count == 3)
    assert(rows([[select * from p]]) == '[[1,2],[3,5]]' and rows([[select * from ch]]) == '[]')
    local seen = {}
    for _, row in ipairs(box.execute([[select what || cast(x as text) from log]]).rows) do seen[#seen + 1] = row[1] end
    assert(table.concat(seen, ' ') == 'delete1 delete2 insert1 delete3 delete5 update3', table.concat(seen, ' '))
    box.execute([[drop table ch]])
end
all({ [[drop table p]], [[drop table log]] })

-- NULL in a field that refuses it, and default values.
all({
    [[create table n(a int primary key, b int not null on conflict ignore, c int not null on conflict replace default (1 + 2 * 3), d int not null on conflict fail)]],
    [[insert into n values(1, null, 1, 1), (2, 2, null, 2)]], [[insert into n values(3, 3, 3, null), (4, 4, 4, 4)]], [[insert or abort into n values(5, null, 5, 5)]], [[insert or ignore into n values(6, 6, 6, null), (7, 7, 7, 7)]],
    [[insert or replace into n values(8, 8, null, 8)]], [[insert or replace into n values(9, null, 9, 9)]], [[insert into n select a + 20, null, c, d from n]], [[insert into n select a + 20, b, null, d from n]],
    [[update n set b = null]], [[update n set c = null where a = 7]], [[update n set d = null]], [[update or ignore n set d = null]], [[select * from n]],
    [[create table d(a int primary key, b int default (5 + 7), c text default (upper('a') || 'b'), e int default (cast('7' as integer)), f int default -3, g int default +4)]],
    [[insert into d(a) values(1)]], [[insert into d(a, b) values(2, null)]], [[insert into d(a) select a + 10 from d]], [[select * from d]],
    [[create table e(a int primary key, b int default (a))]], [[create table e(a int primary key, b int default ((select 1)))]], [[create table e(a int primary key, b int default (?))]], [[create table e(a int primary key, b int default nosuch)]],
    [[create table e(a int primary key null)]], [[create table e(a int null primary key)]], [[create table e(a int primary key, b int null not null)]], [[create table e(a int primary key, b int not null null)]],
    [[create table e(a int primary key, b int not null not null)]], [[create table e1(a int primary key, b int null on conflict abort)]], [[create table e2(a int primary key, b int null on conflict fail)]],
    [[create table e3(a int primary key, b int unique on conflict fail)]], [[create table e4(a int not null on conflict ignore primary key)]],
})
for _, name in ipairs({ 'N', 'D' }) do
    for _, field in ipairs(box.space[name]:format()) do print(name, field.name, field.is_nullable, field.nullable_action, field.default) end
end
all({ [[create index i on n(b, c)]], [[drop table n]], [[drop table d]], [[drop table e]], [[drop table e1]] })

-- TRUNCATE, and WITH before INSERT.
all({
    [[create table t(a int primary key)]], [[create table r(a int primary key references t)]], [[create view v as select * from t]], [[with x(y) as (values(1) union all values(2)) insert into t select y from x]],
    [[with recursive x(y) as (values(10) union all select y + 1 from x where y < 20) insert into t select y from x]], [[insert into t with x(y) as (values(30)) select y from x]], [[select count(*) from t]], [[truncate table t]], [[truncate table v]],
    [[truncate table r]], [[drop table r]], [[truncate table t]], [[select row_count()]], [[select * from t]], [[truncate table nosuch]], [[truncate table "_space"]], [[drop view v]], [[drop table t]],
})

-- ROW_COUNT() is the number of the last statement, in triggers that of their own last one.
all({
    [[create table t(a int primary key, b int)]], [[select row_count()]], [[create table l(id int primary key autoincrement, x int)]],
    [[create trigger t1 after insert on t for each row begin insert into l values(null, row_count()); update l set x = x + 0; insert into l values(null, row_count()); end]],
    [[select row_count()]], [[insert into t values(1, 1), (2, 2)]], [[select row_count()]], [[select x from l]], [[update t set b = 3]], [[insert into t values(1, 1)]], [[select row_count()]],
    [[delete from t]], [[select row_count()]], [[select row_count(1)]], [[drop table t]], [[drop table l]], [[drop table if exists l]], [[select row_count()]],
})
local s = box.prepare('select ?, row_count(), :x')
print(s.param_count, s.metadata[2].type)

-- The engine of a table.
all({
    [[create table m(a int primary key) with engine = 'memtx']], [[create table w(a int primary key) with engine = 'abc']], [[create table w(a int primary key) with engine = vinyl]],
    [[create table w(a int primary key) with engine 'memtx']], [[create table w(a int primary key) with engine = 'memtx' x]], [[create table w(a int primary key) with engine = 'a_name_that_is_too_long']], [[drop table m]],
})
q([[create table w(a int primary key) with engine = 'vinyl']])
print(box.space.W.engine)
q([[drop table w]])
q([[set session "sql_default_engine" = 'vinyl']])
q([[create table w(a int primary key)]])
print(box.space.W.engine)
os.exit(0)
