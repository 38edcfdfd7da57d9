-- Triggers and foreign keys of SQL, written by hand: rows, errors and rows of the schema are as in Tarantool.
local json = require('json')
box.cfg({ log = 'log' })

local q = dofile(arg[0]:match('^.*/') .. 'said.lua')
-- Triggers.
for _, query in ipairs({
    [[create table p(a int primary key, b int, c int unique)]], [[create table log(id int primary key autoincrement, what text, x int, y int)]],
    [[create trigger t1 after insert on p for each row begin insert into log values(null, 'insert', new.a, new.b); end]],
    [[create trigger t1 after insert on p for each row begin select 1; end]], [[create trigger if not exists t1 after insert on p for each row begin select 1; end]],
    [[create trigger t2 after update of b on p for each row when new.b > old.b begin insert into log values(null, 'update', old.b, new.b); end;]],
    [[create trigger t3 before delete on p for each row begin insert into log values(null, 'delete', old.a, (select count(*) from p)); delete from p where a = old.a + 100; end]],
    [[create trigger t4 before insert on p for each row when new.a = 50 begin select raise(abort, 'no 50'); end]],
    [[create trigger t5 before insert on p for each row when new.a = 60 begin select raise(ignore); end]],
    [[create trigger t6 after insert on p begin select 1; end]], [[create trigger t6 after insert on nosuch for each row begin select 1; end]],
    [[create trigger t6 instead of insert on p for each row begin select 1; end]], [[create trigger t6 after insert on "_space" for each row begin select 1; end]],
    [[create view v as select a from p]], [[create trigger t6 after insert on v for each row begin select 1; end]],
    [[insert into p values(1, 10, 1), (2, 20, 2), (102, 0, 102)]], [[insert into p values(50, 1, 50)]], [[insert into p values(60, 1, 60), (61, 1, 61)]], [[insert into p values(1, 1, 9)]],
    [[update p set b = b + 1 where a < 3]], [[update p set b = b - 1]], [[update p set c = c + 1000 where a = 1]], [[delete from p where a = 2]],
    [[insert or ignore into p values(3, 6, 8)]], [[select * from p]], [[select what, x, y from log]], [[select raise(abort, 'no')]],
    [[create trigger t7 before insert on p for each row begin select new.nosuch; end]], [[insert into p values(70, 1, 70)]], [[drop trigger t7]], [[drop trigger t7]], [[drop trigger if exists t7]],
    [[create trigger t8 after insert on log for each row begin update p set b = new.x where a = 61; end]], [[insert into p values(4, 44, 4)]], [[select a, b from p order by a]],
    [[create trigger t9 before insert on p for each row begin insert into p values(new.a + 1, 1, new.a + 1); end]], [[insert into p values(500, 1, 500)]], [[select count(*) from p]],
    [[set session "sql_recursive_triggers" = false]], [[insert into p values(500, 1, 500)]], [[select a from p where a >= 500 order by a]], [[set session "sql_recursive_triggers" = true]],
}) do q(query) end
for _, row in box.space._trigger:pairs() do print(json.encode(row)) end
-- A change without SQL runs none.
box.space.P:insert({ 900, 1, 900 })
q([[select count(*) from log where x = 900]])
for _, query in ipairs({ [[drop view v]], [[drop table p]], [[drop table log]] }) do q(query) end
print(#box.space._trigger:select())

-- INSTEAD OF.
for _, query in ipairs({
    [[create table p(a int primary key, b int)]], [[create view v as select a, b, a + b as c from p]], [[insert into v values(1, 2, 3)]], [[update v set b = 1]], [[delete from v]],
    [[create trigger i1 instead of insert on v for each row begin insert into p values(new.a, new.b); end]],
    [[create trigger i2 instead of update on v for each row begin update p set b = new.b where a = old.a; end]],
    [[create trigger i3 instead of delete on v for each row begin delete from p where a = old.a; end]],
    [[insert into v values(1, 2, 3), (2, 3, 5)]], [[insert into v(b, a) values(9, 7)]], [[insert into v select a + 10, b, 0 from p]], [[update v set b = c * 10 where a < 7]], [[delete from v where c > 100]],
    [[select * from v order by a]], [[drop view v]], [[drop table p]],
}) do q(query) end

-- Foreign keys.
for _, query in ipairs({
    [[create table p(a int primary key, b int, c int unique)]],
    [[create table k(a int primary key, b int references p, c int references p(c) on delete cascade on update set null, d int constraint own references p(c) deferrable initially deferred, foreign key (b) references p(a) match full)]],
    [[create table z(a int primary key, b int references p(b))]], [[create table z(a int primary key, b int references nosuch(b))]], [[create table z(a int primary key, b int references p(nosuch))]],
    [[create table z(a int primary key, b int, foreign key(b) references p(a, c))]], [[create table z(a int primary key, b text, foreign key(b) references p(a))]],
    [[create table z(a int primary key, b int references z)]], [[alter table z add constraint x foreign key(b) references p(a)]], [[alter table z add constraint x foreign key(b) references p(a)]],
    [[alter table z drop constraint x]], [[alter table z drop constraint x]], [[alter table z rename to y]], [[alter table y rename to p]], [[insert into y values(1, 1)]], [[insert into y values(2, 7)]],
    [[drop table p]], [[insert into p values(1, 1, 1), (2, 2, 2)]], [[insert into k values(1, 1, 1, null)]], [[insert into k values(2, 2, 2, 9)]], [[insert into k values(2, 9, 2, 1)]],
    [[start transaction]], [[insert into k values(3, 2, 2, 9)]], [[commit]], [[rollback]], [[select * from k]],
    [[start transaction]], [[insert into k values(3, 2, 2, 9)]], [[insert into p values(9, 9, 9)]], [[commit]], [[select * from k]],
    [[delete from p where a = 1]], [[update p set c = 5 where a = 2]], [[select * from k]], [[delete from p where a = 9]], [[update k set b = 77 where a = 3]], [[update p set a = 77 where a = 2]],
    [[create table s(a int primary key, b int default 2 references p(a) on delete set default on update cascade)]], [[insert into s values(1, 9)]], [[delete from k]], [[update p set a = 10 where a = 9]],
    [[select * from s]], [[delete from p where a = 10]], [[select * from s]], [[delete from p where a = 2]], [[select a from p]],
    [[create table r(a int primary key, b int references p(a) on delete restrict)]], [[insert into r values(1, 2)]], [[delete from p]], [[delete from r]],
}) do q(query) end
for _, row in box.space._fk_constraint:pairs() do print(json.encode(row)) end
for _, query in ipairs({ [[drop table k]], [[drop table s]], [[drop table r]], [[drop table p]], [[drop table y]] }) do q(query) end
print(#box.space._fk_constraint:select())
os.exit(0)
