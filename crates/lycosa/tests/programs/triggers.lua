-- Triggers of spaces and transactions, as in Tarantool.
box.cfg({ log = '/dev/null' })
box.schema.user.create('u') box.schema.role.create('r') box.schema.user.grant('u','r')
print(pcall(box.schema.user.revoke,'u','r',nil,nil,{if_not_exists=true}))
print(pcall(box.schema.user.revoke,'u','r',nil,nil,{if_not_exists=true}))
print(pcall(box.schema.user.revoke,'u','r',nil,nil,{if_exists=true}))
print(pcall(box.schema.user.grant,'u','r',nil,nil,{if_exists=true}))
print(pcall(box.on_commit, function() end))
print(pcall(box.on_rollback, function() end))
box.begin() print(pcall(box.on_commit, print)) print(pcall(box.on_commit, 1)) box.rollback()
local s = box.schema.space.create('s') s:create_index('p')
local t1, t2
local function a(o,n,name,op,it) print('a',o,n,name,op,it) end
local function b(o,n) print('b',o,n) end
print(s:on_replace(a)==a, s:on_replace(b)==b)
s:insert{1,2}
print(s:on_replace(nil,a)==nil, pcall(s.on_replace,s,nil,a))
print(#s:on_replace(), s:on_replace()[1]==b)
s:replace{1,3} s:update(1,{{'=',2,4}}) s:upsert({1,3},{{'+',2,1}}) s:upsert({2,3},{{'+',2,1}}) s:delete(1)
print(pcall(s.on_replace,s,1)) print(pcall(s.on_replace,s,1,2))print(pcall(s.on_replace,s,b,a))
s:on_replace(nil,b)
s:before_replace(function(o,n,name,op) print('before',o,n,name,op) if n and n[1]==5 then return nil end if n and n[1]==6 then return box.tuple.new{6,'changed'} end if n and n[1]==7 then error('no') end if n and n[1]==8 then return 1 end if n and n[1]==9 then return {9,'tbl'} end return n end)
s:on_replace(function(o,n,name,op) print('on',o,n,name,op) end)
print(s:insert{5}) print(s:insert{6}) print(pcall(s.insert,s,{7})) print(pcall(s.insert,s,{8})) print(pcall(s.insert,s,{9})) print(s:insert{10}) print(s:delete(10)) print(s:update(6,{{'=',2,'z'}}))
s:run_triggers(false) s:insert{11} s:run_triggers(true) s:insert{12}
s:before_replace(nil, s:before_replace()[1])
s:on_replace(nil, s:on_replace()[1])
s:on_replace(function(o,n) print(box.is_in_txn()) require('fiber').yield() end)
print(pcall(s.insert,s,{20}))
print(s:get(20))
s:on_replace(nil, s:on_replace()[1])
s:on_replace(function(o,n) if n and n[1]==30 then s:insert{31} end if n and n[1]==32 then box.rollback() end if n and n[1]==33 then box.commit() end if n and n[1]==34 then box.begin() end end)
for i = 30, 34 do
    if i ~= 31 then
        print(i, pcall(s.insert, s, { i }))
        print(s:get(31), s:get(i), box.is_in_txn())
    end
end
box.begin() s:insert{40} print(pcall(s.insert,s,{34})) print(box.is_in_txn()) box.commit() print(s:get(40))
box.begin() s:insert{45} print(pcall(s.insert,s,{45})) print(pcall(s.insert,s,{'x'})) box.commit() print(s:get(45))
box.begin()
box.on_commit(function(it) for i,o,n,sp in it() do print('c',i,o,n,sp==s.id) end end)
box.on_commit(function(it) print('second') end)
box.on_rollback(function(it) print('never') end)
s:insert{50} s:replace{50,1} s:delete{50} box.commit()
box.begin()
box.on_rollback(function(it) print('rb') for i,o,n,sp in it() do print('r',i,o,n,sp==s.id) end end)
s:insert{51} s:insert{52} box.rollback()
-- A blackhole keeps no tuple, but its triggers run.
local hole = box.schema.space.create('hole', {engine = 'blackhole'})
print(type(hole:on_replace(function(o,n,name,op) print('on',o,n,name,op) end)))
print(pcall(hole.insert, hole, {1,2})) print(pcall(hole.replace, hole, {1,2})) print(pcall(hole.upsert, hole, {1}, {})) print(pcall(hole.delete, hole, 1))
box.begin() hole:insert{5} hole:insert{6} print('in') box.commit()
local before = hole:before_replace(function(o,n,name,op) print('before',o,n,name,op) if n[1]==9 then return nil end return box.tuple.new{n[1],'x'} end)
print(pcall(hole.insert, hole, {1,2})) print(pcall(hole.replace, hole, {1,2})) print(pcall(hole.insert, hole, {9}))
print(pcall(hole.upsert, hole, {1}, {})) print(pcall(hole.upsert, hole, {9}, {})) print(pcall(hole.update, hole, 1, {}))
hole:before_replace(nil, before)
hole:before_replace(function(o,n) return n end)
print(pcall(hole.upsert, hole, {1}, {})) print(pcall(hole.insert, hole, {1,2}))
hole:on_replace(function() error('no') end)
print(pcall(hole.insert, hole, {1}))
-- What a trigger leaves in a part of the key that is a decimal or a boolean.
local given
local first = {require('decimal').new(1), require('decimal').new(1), 1, true, false}
for number, parts in pairs({{{1,'decimal'}}, {{1,'decimal'},{2,'unsigned'}}, {{1,'unsigned'}}, {{1,'boolean'}}, {{1,'boolean'}}}) do
    local kept = box.schema.space.create('kept' .. number)
    kept:create_index('pk', {parts = parts})
    local old = {first[number], 1}
    kept:insert(old)
    kept:before_replace(function() return box.tuple.new{given, 1} end)
    for _, value in ipairs({'a', number < 4, {1}, number == 3 and 2 or 3}) do
        given = value
        print(number, select(2, pcall(kept.replace, kept, old)))
        -- A comparison that failed there makes the next conversion fail, too.
        pcall(require('decimal').new, 1)
    end
end
os.exit(0)
