-- Before triggers see tuples before their format is asked for; what a yield does to a transaction; sessions.
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
fiber = require('fiber')
s = box.schema.space.create('s', {format={{'a','unsigned'},{'b','string'}}})
s:create_index('pk')
s:before_replace(function(old, new) if new and new[2] == nil then return box.tuple.new{new[1], 'filled'} end return new end)
s:insert{1}
s:replace{2}
s:upsert({3}, {{'=', 2, 'x'}})
s:select{}
s:upsert({1}, {{'=', 2, 5}})
s:update(1, {{'=', 2, 5}})
s:before_replace(nil, s:before_replace()[1])
s:before_replace(function(old, new) return new and new:update{{'=', 1, tonumber(new[1])}, {'=', 2, tostring(new[2])}} end)
s:insert{'10', 5}
s:insert{'x', 5}
s:insert{11, 5}
s:upsert({'12', 7}, {{'=', 2, 9}})
s:upsert({12, 7}, {{'=', 2, 9}})
s:update(12, {{'=', 2, 100}})
s:update(12, {{'=', 1, 100}})
s:select{}
s:before_replace(nil, s:before_replace()[1])
n = box.schema.space.create('n')
n:before_replace(function(old, new) log = {old, new} return new end)
n:insert{1}
n:upsert({1}, {})
n:update(1, {})
log
n:on_replace(function() end)
n:on_replace(nil, n:on_replace()[1])
select('#', n:on_replace(nil, nil))
f = function() end
select('#', n:on_replace(f))
select('#', n:on_replace(nil, f))
n:on_replace(5)
n:on_replace(f, 5)
n:on_replace(nil, f)
select('#', box.session.on_connect(nil, box.session.on_connect(f)))
s:before_replace(function(old, new) return nil end)
s:insert{50, 'a'}
s:replace{50, 'a'}
s:delete{12}
s:select{}
s:before_replace(nil, s:before_replace()[1])
s:before_replace(function(old, new) return old end)
s:insert{50, 'a'}
s:delete{12}
s:before_replace(nil, s:before_replace()[1])
s:before_replace(function(old, new) return 5 end)
s:insert{50, 'a'}
s:before_replace(nil, s:before_replace()[1])
s:before_replace(function(old, new) return box.tuple.new{1000, 'other'} end)
s:insert{50, 'a'}
s:delete{12}
s:before_replace(nil, s:before_replace()[1])
s:before_replace(function(old, new, name, op) return {new[1], 'tab'} end)
s:insert{50, 'a'}
s:before_replace(nil, s:before_replace()[1])
s:insert{50, 'a'}
s:before_replace(nil, s:before_replace()[1])
box.begin() fiber.yield() s:insert{60,'x'} box.commit() return s:get(60)
box.begin() s:get(60) fiber.yield() local ok, e = pcall(box.commit) box.rollback() return ok, e
box.begin() s:select{} fiber.yield() local ok, e = pcall(box.commit) box.rollback() return ok, e
box.begin() s:count() fiber.yield() local ok, e = pcall(box.commit) box.rollback() return ok, e
box.begin() s.index.pk:min() fiber.yield() local ok, e = pcall(box.commit) box.rollback() return ok, e
box.begin() s:len() fiber.yield() local ok, e = pcall(box.commit) box.rollback() return ok, e
box.begin() for _ in s:pairs() do end fiber.yield() local ok, e = pcall(box.commit) box.rollback() return ok, e
box.begin() fiber.yield() local ok, e = pcall(box.commit) box.rollback() return ok, e
box.begin() box.savepoint() fiber.yield() local ok, e = pcall(box.commit) box.rollback() return ok, e
box.begin() box.on_commit(function() end) fiber.yield() local ok, e = pcall(box.commit) box.rollback() return ok, e
box.begin() s:insert{70,'x'} fiber.yield() local ok, e = pcall(box.commit) box.rollback() return ok, e
box.begin() s:insert{70,'x'} fiber.yield() local ok, e = pcall(s.get, s, 70) box.rollback() return ok, e
box.begin() s:insert{70,'x'} fiber.yield() return box.rollback()
s:get(70)
box.begin() local ok, e = pcall(s.create_index, s, 'x', {parts={2,'string'}}) box.rollback() return ok, e
box.begin() s:insert{80, 'x'} local ok, e = pcall(s.create_index, s, 'x', {parts={2,'string'}}) box.rollback() return ok, e
box.begin() s:insert{80, 'x'} local ok, e = pcall(box.schema.space.create, 'zz') box.rollback() return ok, e
box.begin() local ok, e = pcall(function() local z = box.schema.space.create('zz') z:create_index('pk') z:create_index('s', {parts={2,'string'}}) z:insert{1,'x'} end) box.commit() return ok, e
box.begin() local ok, e = pcall(s.format, s, {{'a','unsigned'},{'b','any'}}) box.rollback() return ok, e
box.begin() local ok, e = pcall(s.truncate, s) box.rollback() return ok, e
box.begin() local ok, e = pcall(s.drop, s) box.rollback() return ok, e
box.begin() local ok, e = pcall(box.space.zz.index.s.alter, box.space.zz.index.s, {parts={1,'unsigned',2,'string'}}) box.rollback() return ok, e
box.begin() local ok, e = pcall(box.begin) box.rollback() return ok, e
net = require('net.box')
box.schema.user.grant('guest', 'super')
c = net.connect('unix/:./s.sock')
c:ping()
c:eval('return box.session.sync() > 0')
c:eval('return box.session.sync()') - c:eval('return box.session.sync()')
box.session.sync()
box.session.type()
box.session.peer()
auth = {}
box.session.on_auth(function(...) table.insert(auth, {...}) table.insert(auth, {box.session.user(), box.session.type()}) end)
c2 = net.connect('unix/:./s.sock')
c2:ping()
auth
box.schema.user.create('joe', {password='x'})
c3 = net.connect('joe:x@unix/:./s.sock')
c3:ping()
auth
c4 = net.connect('joe:y@unix/:./s.sock', {wait_connected=true})
c4.state, c4.error
auth
box.ctl.on_schema_init
box.ctl.on_schema_init(function() end) ~= nil
box.ctl.on_shutdown(nil, nil)
]]

os.exit(0)
