-- Forms of statements of SQL, the types that their results have, and the errors of values that no operator takes, as in Tarantool.
local json = require('json')
box.cfg({ log = 'log' })

local q = dofile(arg[0]:match('^.*/') .. 'said.lua')
local function all(queries) for _, query in ipairs(queries) do q(query) end end

-- Types of results, and errors of operators.
all({
    [[select 1 >= 2, 1 > 2, 'a' like 'b', not 'a' like 'b', 5 % 2.5, ~1, ~'1', 1 + null, 2 * 1.5, unknown, unknown and true]],
    [[select true + false]], [[select 'a' + 'b']], [[select 1 + x'31', x'31' * x'32', -x'31']], [[select 'a' & 'b']], [[select 1.5 & 1]], [[select 2.0 & 3, 2.0 << 1, ~2.0, '6' | 1]], [[select 1e30 | 1]],
    [[select ~true]], [[select ~'a']], [[select true and 2]], [[select 2 and false, false and 2]], [[select true or 2]], [[select case when true or 2 then 1 end]], [[select 1 where true or 2]],
    [[select 'a' || x'61']], [[select x'61' || 'a']], [[select 1 || 2.5]], [[select typeof('a' || null), typeof(x'61' || x'62')]], [[select null like x'61', x'61' like null]], [[select 'a' like x'61']],
    [[select true in (1, 2)]], [[select true in (1, 2, 3), true in (1, 2, null), 'a' in (1, 2, 3), x'31' in (1, 2, 3)]], [[select 1 = x'31']], [[select x'31' = 'a']], [[select true = x'31']], [[select x'31' = true]], [[select 1 = true]],
    [[select -9223372036854775809]],
})

-- Misplaced words.
all({
    [[create table 't'(a int primary key)]], [[create table t(a primary key)]], [[create table t(a, b int primary key)]], [[create table t(a int primary key, b)]], [[create table t(a int primary key, b unique)]], [[create table t(a int primary key on conflict fail)]],
    [[create table t(a int primary key, b int constraint c null)]], [[create table t(a int primary key, b int constraint c default 1)]], [[create table t(a int primary key, b int default random())]], [[create table t(b int, primary key(a))]],
    [[select 1; select 2]], [[select from t]], [[select a from where]], [[insert t values(1)]], [[select 1 limit 1 collate "binary"]], [[select 1 limit 1 offset 1 collate nosuch]],
    [[create table x(a int primary key)]], [[create trigger t1 after insert on x for each row begin select ?; end]], [[drop table x]],
})

-- VALUES as a value, and TRIM with a side.
all({
    [[create table b(s1 int primary key)]], [[insert into b values(1), (2)]], [[values((values((select 1))))]], [[select (values(3)) + 1, 2 in (values(2))]], [[select s1, (values(b.s1 * 10)) from b where s1 > (values(1))]],
    [[create view v as values((values((select 1))))]], [[select * from v]], [[drop view v]], [[select trim(leading from '  a  ') || '|', trim(trailing from '  a  ') || '|', trim(both from '  a  ') || '|', trim('  a  ') || '|', trim(both 'a' from 'aba')]],
    [[drop table b]],
})

-- Keys and names of tables that exist.
all({
    [[create table t(a int primary key, b int, c int)]], [[alter table t add constraint u unique(b)]], [[insert into t values(1, 1, 1)]], [[insert into t values(2, 1, 1)]], [[alter table t add constraint u unique(c)]], [[alter table t add constraint w unique(nosuch)]],
    [[alter table t add unique(c)]],
    [[create trigger t1 after insert on t for each row begin insert into t2 select 'on t for' from t; end]], [[alter table t rename to "new name"]],
})
for _, row in box.space._trigger:pairs() do print(row[1], row[3].sql) end
all({ [[drop table "new name"]] })

-- PRAGMA, and WITH before UPDATE and DELETE.
all({
    [[create table t(a int primary key, b int)]], [[create table c(a int primary key, x text collate "unicode_ci" default 'q', y varbinary not null, constraint f1 foreign key (a) references t, unique (x, y))]],
    [[create index i1 on c(x)]], [[create view v as select * from c]], [[pragma table_info(t)]], [[pragma table_info(c)]], [[pragma table_info(v)]], [[pragma table_info("c")]], [[pragma table_info]], [[pragma index_list(c)]],
    [[pragma index_info(c.i1)]], [[pragma index_info(c."unique_unnamed_C_2")]], [[pragma index_info(c)]], [[pragma foreign_key_list(c)]], [[pragma collation_list]], [[pragma nosuch]],
    [[insert into t values(1, 1), (2, 2), (3, 3)]], [[with x(y) as (select 1), z as (select y + 10 as y from x) update t set b = (select y from z) where a in (select y from x)]],
    [[with x(y) as (values(2)) delete from t where a in (select y from x)]], [[select * from t]], [[with x as (select 1) update nosuch set a = 1]], [[drop view v]], [[drop table c]], [[drop table t]],
})

-- A space without a key.
box.schema.space.create('P', { format = { { 'A', 'integer' } } }):create_index('pk')
q([[create view v as select * from p]])
box.space.P.index.pk:drop()
all({ [[select * from p]], [[select p.a, x.a from p, p as x]], [[insert into p values(1)]], [[update p set nosuch = 1]], [[delete from p]], [[select * from v]] })
print(pcall(box.space.P.drop, box.space.P))
all({ [[drop view v]], [[drop table p]] })

-- Foreign keys of strings of bytes.
all({
    [[create table p(a varbinary primary key)]], [[create table c(a int primary key, b varbinary references p on update cascade on delete set null)]], [[insert into c values(1, x'6162')]], [[insert into p values(x'6162')]], [[insert into c values(1, x'6162')]],
    [[delete from p]], [[select * from c]], [[drop table c]], [[drop table p]],
})
os.exit(0)
