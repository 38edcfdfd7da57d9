-- Check constraints: texts, rows of the schema, statements of every kind, and errors are as in Tarantool.
local json = require('json')
box.cfg({ log = 'log' })

local q = dofile(arg[0]:match('^.*/') .. 'said.lua')

-- Calls a function and prints what it returns, or its error.
local function try(what, call, ...)
    local done, result = pcall(call, ...)
    if done then
        local is_row = type(result) ~= 'table' or box.tuple.is(result)
        print(what, 'done', is_row and json.encode(result == nil and json.null or result) or result.name .. ': ' .. result.expr)
    elseif type(result) == 'cdata' then
        print(what, result.code, result.type, result.message)
    else
        print(what, (tostring(result):gsub('^.-:%d+: ', '')))
    end
end

-- Definitions by SQL.
for _, query in ipairs({
    [[CREATE TABLE t(a INT CONSTRAINT one CHECK( a<5 ), b NUMBER CONSTRAINT "two" CHECK (b   >  a), c TEXT CHECK (substr(c, 1, 3)  =  'x  '), id INT PRIMARY KEY, CHECK (a + b < 12))]],
    [[INSERT INTO t VALUES (7, 1, 'no', 1)]], [[INSERT INTO t VALUES (2, 1, 'x  ', 1)]], [[INSERT INTO t VALUES (2, 11, 'x  ', 1)]], [[INSERT INTO t VALUES (2, 4, 'x ', 1)]],
    [[INSERT INTO t VALUES (2, 4, 'x  y', 1)]], [[INSERT INTO t VALUES (NULL, NULL, NULL, 2)]], [[INSERT INTO t VALUES (9, 9, NULL, 2)]],
    [[INSERT OR REPLACE INTO t VALUES (9, 9, NULL, 2)]], [[REPLACE INTO t VALUES (9, 10, NULL, 2)]], [[UPDATE t SET a = a + 3]], [[UPDATE t SET b = 3 WHERE id = 1]], [[SELECT * FROM t]],
    [[INSERT INTO t VALUES (1, 2, NULL, 5), (8, 9, NULL, 6)]], [[SELECT id FROM t]], [[DELETE FROM t WHERE id > 4]],
    [[ALTER TABLE t ADD CONSTRAINT late CHECK (a > 0)]], [[DELETE FROM t]], [[ALTER TABLE t ADD CONSTRAINT late CHECK (a > 0)]], [[ALTER TABLE t ADD CONSTRAINT late CHECK (a > 0)]],
    [[ALTER TABLE t ADD CONSTRAINT one CHECK (b > 0)]], [[ALTER TABLE nosuch ADD CONSTRAINT c CHECK (b > 0)]], [[INSERT INTO t VALUES (-1, 1, NULL, 1)]],
    [[ALTER TABLE t DISABLE CHECK CONSTRAINT late]], [[INSERT INTO t VALUES (-1, 1, NULL, 1)]], [[ALTER TABLE t ENABLE CHECK CONSTRAINT late]], [[UPDATE t SET b = 2]],
    [[ALTER TABLE t ENABLE CHECK CONSTRAINT nosuch]], [[ALTER TABLE nosuch DISABLE CHECK CONSTRAINT c]], [[ALTER TABLE t DROP CONSTRAINT late]], [[ALTER TABLE t DROP CONSTRAINT late]], [[UPDATE t SET b = 2]],
    [[CREATE TABLE bad(id INT PRIMARY KEY, CONSTRAINT c CHECK(id > 0), CONSTRAINT c CHECK(id < 0))]], [[CREATE TABLE bad(id INT PRIMARY KEY CHECK(id >< 5))]],
    [[CREATE TABLE bad(id INT PRIMARY KEY, CHECK ((SELECT COUNT(*) FROM bad) = 0))]], [[CREATE TABLE bad(id INT PRIMARY KEY, y INT, CHECK( id*y < ? ))]], [[CREATE TABLE bad(id INT PRIMARY KEY, CHECK (nosuch > 1))]],
    [[CREATE TABLE bad(id INT PRIMARY KEY, CHECK (count(id) > 1))]], [[CREATE TABLE bad(id INT PRIMARY KEY, CHECK (other.id > 1))]],
    [[SELECT "name" FROM "_space" WHERE "name" = 'BAD']],
    [[CREATE TABLE u(id INT PRIMARY KEY, d DOUBLE, s SCALAR, CHECK (u.d / id > 0.5), CHECK (typeof(s) = 'string' OR s IS NULL), CHECK (CASE WHEN id > 100 THEN false ELSE true END), CHECK (id = 1 OR id = 2 OR id = 200))]],
    [[INSERT INTO u VALUES (1, 0.25, NULL)]], [[INSERT INTO u VALUES (1, 0.75, 1)]], [[INSERT INTO u VALUES (1, 0.75, 'a')]], [[INSERT INTO u VALUES (4, 7.5, 'a')]], [[INSERT INTO u VALUES (200, 700, 'a')]], [[INSERT INTO u VALUES (0, 700, 'a')]],
    [[CREATE TABLE k(id INT CONSTRAINT pk PRIMARY KEY, x INT CONSTRAINT ux UNIQUE, y INT CONSTRAINT fy REFERENCES u(id))]], [[ALTER TABLE k ADD CONSTRAINT pk CHECK (x > 1)]], [[ALTER TABLE k ADD CONSTRAINT ux CHECK (x > 1)]],
    [[ALTER TABLE k ADD CONSTRAINT fy CHECK (x > 1)]], [[ALTER TABLE k ADD CONSTRAINT cx CHECK (x > 1)]], [[ALTER TABLE k ADD CONSTRAINT cx FOREIGN KEY (x) REFERENCES u(id)]], [[CREATE UNIQUE INDEX cx ON k(y)]], [[CREATE INDEX cx ON k(y)]],
    [[ALTER TABLE k DROP CONSTRAINT ux]], [[INSERT INTO k VALUES (1, 1, NULL)]], [[INSERT INTO k VALUES (1, 2, NULL), (2, 2, NULL)]],
}) do q(query) end
for _, row in box.space._ck_constraint:pairs() do print(json.encode(row)) end

-- Every other door, on one space.
local t = box.space.T
t:delete(1)
try('insert', t.insert, t, { 7, 1, 'x  ', 1 })
try('insert', t.insert, t, { 1, 2, 'x  ', 1 })
try('insert', t.insert, t, { 7, 1, 'x  ', 1 })
try('replace', t.replace, t, { 1, 3, 'y', 1 })
try('update', t.update, t, 1, { { '+', 'A', 5 } })
try('update', t.update, t, 1, { { '=', 'B', 3 } })
try('upsert', t.upsert, t, { 1, 2, 'x  ', 1 }, { { '=', 1, 77 } })
try('upsert', t.upsert, t, { 77, 2, 'x  ', 9 }, { { '=', 1, 77 } })
try('upsert', t.upsert, t, { 3, 9, 'x  ', 1 }, { { '=', 2, 4 } })
print(json.encode(t:select()))
box.begin()
t:insert({ 1, 2, nil, 10 })
try('insert in a transaction', t.insert, t, { 9, 2, nil, 11 })
box.commit()
print(t:count())
t:before_replace(function(_, new) return new and new:update({ { '=', 1, 50 } }) end)
try('a trigger makes it wrong', t.insert, t, { 1, 2, 'x  ', 20 })
t:before_replace(nil, t:before_replace()[1])

-- Lua's objects.
local s = box.schema.space.create('test', { format = { { 'X', 'any' }, { 'Y', 'integer' }, { 'Z', 'integer', is_nullable = true } } })
s:create_index('pk')
try('create', s.create_check_constraint, s, 'physics', 'X < Y')
try('create', s.create_check_constraint, s, 'physics', 'X > Y')
try('create', s.create_check_constraint, s, 'physics', 'X > Y AND')
try('create', s.create_check_constraint, s, 'nosuch', 'W > Y')
try('create', s.create_check_constraint, s, 'none')
try('create', s.create_check_constraint, nil, 'none')
try('insert', s.insert, s, { 2, 1 })
try('insert', s.insert, s, { 1, 2 })
try('insert', s.insert, s, { '1', 2 })
try('insert', s.insert, s, { { 1 }, 2 })
try('insert', s.insert, s, { 5 })
local physics = s.ck_constraint.physics
print(physics.name, physics.expr, physics.is_enabled, physics.space_id == s.id, s.ck_constraint.nosuch)
try('enable', physics.enable, physics, false)
print(physics.is_enabled, s.ck_constraint.physics == physics, box.space.test.ck_constraint.physics.is_enabled)
try('insert', s.insert, s, { 2, 1 })
try('enable', physics.enable, physics, true)
try('enable', physics.enable, physics, 1)
try('enable', physics.enable)
try('insert', s.insert, s, { 3, 1 })
try('a row', box.space._ck_constraint.insert, box.space._ck_constraint, { s.id, 'full', false, 'SQL', 'X > 10', true })
s:truncate()
try('insert', s.insert, s, { 3, 1 })
for _, row in ipairs({
    { s.id, 'c', false, 'SQL', 'X><5', true }, { 9999, 'c', false, 'SQL', 'X<5', true }, { s.id, 'c', false, 'SQL', 666, true }, { s.id, 'c', true, 'SQL', 'X<5', true },
    { s.id, 'c', false, 'LUA', 'X<5', true }, { s.id, 'c', false, 'sql', 'X<5' }, { s.id, '', false, 'SQL', 'X<5', true }, { s.id, 'pk', false, 'SQL', 'X<5', true },
    { s.id, 'c', false, 'SQL', 'X<5', true }, { s.id, 'd', false, 'SQL', '"X" + Y > 0 -- and so on', false },
}) do try('a row', box.space._ck_constraint.insert, box.space._ck_constraint, row) end
try('a row', box.space._ck_constraint.replace, box.space._ck_constraint, { s.id, 'c', false, 'SQL', 'X<=6', true })
try('insert', s.insert, s, { 6, 7 })
try('insert', s.insert, s, { 7, 8 })
-- The definition of the space changes.
try('format', s.format, s, { { 'Y', 'integer' }, { 'X', 'any' } })
try('insert', s.insert, s, { 3, 7 })
try('insert', s.insert, s, { 9, 3 })
try('format', s.format, s, { { 'V', 'integer' }, { 'X', 'any' } })
try('format', s.format, s, {})
try('rename', s.rename, s, 'other')
try('insert', s.insert, s, { 8, 5 })
try('insert', s.insert, s, { 3, 7 })
-- An index goes and a space stays.
s:truncate()
s.index.pk:drop()
try('the space', box.space._space.delete, box.space._space, s.id)
try('drop', s.drop, s)
print(box.space.other, #box.space._ck_constraint:select({ s.id }))
try('enable', physics.enable, physics, false)
try('drop', physics.drop, physics)

-- A blackhole keeps nothing, and checks; what a check asks of fields beyond the tuple is NULL.
local b = box.schema.space.create('hole', { engine = 'blackhole', format = { { 'X', 'integer' }, { 'Y', 'integer', is_nullable = true } } })
try('create', b.create_check_constraint, b, 'c', 'Y > X')
try('create', b.create_check_constraint, b, 'n', 'Y IS NOT NULL')
try('insert', b.insert, b, { 1, 1 })
try('insert', b.insert, b, { 1, 2 })
try('insert', b.insert, b, { 1 })
b:drop()
-- The word is no name.
q([[CREATE TABLE check (a INT PRIMARY KEY)]])
q([[CREATE TABLE named (a INT PRIMARY KEY, check INT)]])
for _, query in ipairs({ [[DROP TABLE k]], [[DROP TABLE u]], [[DROP TABLE t]] }) do q(query) end
print(#box.space._ck_constraint:select())
os.exit(0)
