-- Collations and views of SQL, written by hand: rows, metadata, errors and rows of the schema are as in Tarantool.
local json = require('json')
box.cfg({ log = 'log' })

local q = dofile(arg[0]:match('^.*/') .. 'said.lua')
local function rows(space, from)
    for _, row in box.space[space]:pairs(from, { iterator = 'GE' }) do
        print(space, row[1], row[3], json.encode(row:totable(4, 4)), row[6] and (row[6].sql or 'no text'), #(row[7] or {}))
        for _, field in ipairs(row[7] or row[6] or {}) do
            print('', field.name, field.field, field.type, field.collation, field.is_nullable, field.nullable_action)
        end
    end
end

-- Strings in the order of a collation.
q([[create table t(a int primary key, b text collate "unicode_ci", c text, d text collate "unicode", e scalar)]])
q([[insert into t values(1,'a','x','q',1),(2,'A','X','Q','z'),(3,'b','y','w','Z'),(4,'B','Y',null,null),(5,null,'x','ä','ae')]])
for _, condition in ipairs({
    [[b = 'a']], [[b <> 'a']], [[b < 'B']], [[b between 'A' and 'a']], [[b in ('A', 'x')]], [['A' in ('a', b)]], [[b like 'A%']], [[c = 'x']],
    [[c = 'x' collate "unicode_ci"]], [[c collate "unicode_ci" in ('x')]], [[b = 'a' collate "binary"]], [[b = d]], [[b = c]], [[d = c collate "unicode_ci"]],
    [[b collate "unicode_ci" = d collate "unicode"]], [[b in (select c from t)]], [[c in (select b from t)]], [[b in (select d from t)]],
    [[(b || c) = 'AX' collate "unicode_ci"]], [[upper(b) = 'a']], [[lower(d) > 'A']], [[case b when 'A' then true else false end]], [[nullif(b, 'A') is null]],
    [[exists (select 1 from t as u where u.b = t.b and u.a < t.a)]], [[d = 'Q']], [[e = 'Z' collate "unicode_ci"]], [[b collate "nosuch" = 'a']], [[b collate unicode = 'a']],
}) do q('select a from t where ' .. condition .. ' order by a') end
for _, query in ipairs({
    [[select b, a from t order by b, a]], [[select b, a from t order by b desc, a]], [[select c, a from t order by c collate "unicode_ci", a]],
    [[select d, a from t order by 1 collate "unicode_ci", a]], [[select count(*), min(c) from t group by b]], [[select count(*) from t group by c collate "unicode_ci"]],
    [[select distinct b from t]], [[select distinct c collate "unicode_ci" from t]], [[select count(distinct b), count(distinct c) from t]], [[select min(b), max(b), min(c), max(c) from t]],
    [[select b from t union select c from t]], [[select c from t union select c from t]], [[select b from t union select d from t]], [[select c from t except select b from t]],
    [[select b from t intersect select c from t]], [[select c from t union all select c from t order by 1 collate "unicode_ci" limit 3]],
    [[select t.a, u.a from t join t as u on t.b = u.b order by 1, 2]], [[select t.a, u.a from t join t as u using (b) order by 1, 2]], [[select b || 'x', b collate "binary" from t where a = 1]],
    [[select 1 collate "unicode"]], [[select true collate "unicode"]], [[select x'12' collate "unicode"]], [[select null collate "unicode"]], [[select length(b) collate "unicode" from t]],
    [[select position('A', b), position('A' collate "unicode_ci", c) from t where a = 1]], [[select greatest(b, 'Z'), least(b, 'B') from t]], [[select ? collate "unicode"]],
    [[select 'a' collate "unicode_ci" = 'A' collate "binary"]], [[select 'a' < 'B' collate "unicode_ci"]],
}) do q(query) end

-- Collations of keys.
q([[create table u(a text collate "unicode_ci" primary key, b text, unique (b collate "unicode_ci"))]])
q([[insert into u values('a', 'x')]])
q([[insert into u values('A', 'y')]])
q([[insert into u values('b', 'X')]])
q([[create index i on u(b)]])
q([[create index j on u(b collate "unicode", a)]])
q([[create index k on u(b + 1)]])
q([[create index k on u(c)]])
q([[create table w(a text collate "nosuch" primary key)]])
q([[create table w(a int collate "unicode" primary key)]])
q([[create table w(a text primary key, unique (a collate "nosuch"))]])
rows('_index', { 512 })

-- Views.
q([[create view v as select a, b, a + 1, c as d, a from t]])
q([[create view if not exists v as select 1]])
q([[create view v as select 1]])
q([[create view w(x, y) as select a from t]])
q([[create view w(x) as select a from t where a > 2]])
q([[create view p(x) as select ? from t]])
q([[create view x as values(1, 'q'), (2, 'w')]])
q([[create view y as select v.a as a, w.x from v, w where v.a < w.x]])
q([[create view z as select * from nosuch]])
q([[create view z as select * from z]])
rows('_space', { 512 })
for _, query in ipairs({
    [[select * from v order by a]], [[select * from w]], [[select v.a from v where b = 'A' order by a]], [[select x.* from x]], [[select * from y order by 1, 2]],
    [[select count(*) from v]], [[select t.a, w.x from t left join w on t.a = w.x order by 1]], [[select a from t where a in (select x from w) order by a]],
    [[select (select max(x) from w where x > t.a) from t order by a]], [[select * from v union select * from v order by 1 limit 2]], [[select nosuch from v]], [[select a_1, column_1 from v where a = 1]],
    [[with w as (select 7 as x) select * from w]], [[insert into v values(1, 'a', 2, 3, 4)]], [[update v set a = 1]], [[delete from v]], [[create index i on v(a)]],
    [[drop table v]], [[drop view t]], [[drop table t]], [[drop view v]], [[drop view nosuch]], [[drop view if exists nosuch]], [[insert into u select b, c from v where a = 3]],
    [[drop view y]], [[drop view v]], [[drop view w]], [[drop view x]], [[drop table t]], [[drop table u]],
}) do q(query) end

-- Forms of FROM, IN and operators.
q([[create table a(id int primary key, x int)]])
q([[create table b(id int primary key, y int)]])
q([[insert into a values(1, 10), (2, 20)]])
q([[insert into b values(1, 10), (3, 30)]])
for _, query in ipairs({
    [[select a.id from a, b on a.id = b.id]], [[select a.id from a cross join b on a.id = b.id]], [[select a.id from a, b using (id)]], [[select x, y from (a, b) where a.id = b.id]],
    [[select x, y from (a join b on a.id = b.id)]], [[select a.id from a where x in ((select min(y) from b), 20) order by 1]], [[select a.id from a where id in ((select id from b))]],
    [[select x in b from a]], [[select ~~x, ~ ~1 from a]], [[select 1 << 3, 1 >> 1, 1 << 64, -1 >> 1, 3 << -1, 18446744073709551615 >> 1, null << 1]], [[select 1.5 << 1]], [[select 'a' >> 1]],
}) do q(query) end

-- Ends of compound queries, functions, plans.
for _, query in ipairs({
    [[select id from a order by id union select 1]], [[select id from a order by id union all select 1]], [[select id from a limit 1 except select 1]], [[select id from a order by id limit 1 intersect select 1]],
    [[select count(1, 2)]], [[select 'a' like 'b' escape 'xx']], [[select id from a where '%' like 'a%' escape 'a' collate "unicode_ci"]], [[select x'1']], [[select x'zz']],
    [[select printf('%5d|%-5d|%05d|%+d|% d|%x|%o|%c|%.2s|%10s|%%', 42, 42, 42, 42, 42, 255, 8, 'xyz', 'abc', 'abc')]],
    [[select printf('%f|%.1f|%e|%g|%10.3f|%u', 1.5, 2.25, 12345.678, 0.0001, 3.14159, -1)]], [[select printf('%q|%Q', 'it''s', null), printf('%*d', 5, 42), printf(null), printf()]],
    [[select typeof(random()), length(randomblob(5)), randomblob(0)]],
}) do q(query) end

-- Recursive queries.
for _, query in ipairs({
    [[with n(x) as (values(1) union all select x + 1 from n where x < 5) select x from n]], [[with recursive n(x) as (select 1 union select x % 3 + 1 from n) select x from n order by x]],
    [[with n(x) as (select 1 union all select x + 1 from n limit 4) select x from n]], [[with n(x) as (select 1 union all select x + 1 from n limit 4 offset 2) select x from n]],
    [[with recursive p(id, way) as (select id, cast(x as text) from a where id = 1 union all select a.id, p.way || '-' || a.x from p join a on a.id = p.id + 1) select * from p]],
    [[with n(x, y) as (values(1) union all select x + 1 from n) select x from n]], [[with n(x) as (select 1 union all select x, 2 from n) select x from n]],
    [[select a.id, (with n(x) as (select a.id union all select x + 1 from n where x < 4) select sum(x) from n) from a order by 1]], [[with n as (select * from n) select * from n]],
    [[with n(x) as (values(1) union all select x + 1 from n) select x from n limit 3]], [[with n(x) as (values(1) union all select x + 1 from n) select x * 2 as y from n limit 2 offset 4]],
    [[with n(x) as (values(1) union all select x + 1 from n limit 9) select a.id, (select x from n limit 1 offset 2) as y, (select max(x) from n) as z from a order by 1]],
}) do q(query) end
os.exit(0)
