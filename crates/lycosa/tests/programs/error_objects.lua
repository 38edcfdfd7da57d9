-- Error objects, with arguments of every kind, and the classes of errors that modules raise.
-- Prints the same under Tarantool and Lycosa: run by programs.rs.
box.cfg{log_level = 1}
local json = require('json')
local fiber = require('fiber')
local function show(value)
    if type(value) ~= 'table' then return tostring(value) end
    local done, text = pcall(json.encode, value)
    return done and text or 'table'
end
local function p(...)
    local shown = {}
    for i = 1, select('#', ...) do shown[i] = show((select(i, ...))) end
    print((table.concat(shown, ' | '):gsub('0x%x+', 'PTR'):gsub('[^ ]*%.lua:%d+: ', '')))
end
local function try(name, body, ...) p(name, pcall(body, ...)) end

local e=box.error
try('e',e) try('e',e,nil) try('e',e,'x') try('e',e,'Type','msg') try('e',e,'Type','msg %s %d','a',5) try('e',e,5) try('e',e,36,'sp') try('e',e,36) try('e',e,99999) try('e',e,-1) try('e',e,{}) try('e',e,{code=5}) try('e',e,{reason='r'}) try('e',e,{code=5,reason='r'}) try('e',e,{code='5',reason=7}) try('e',e,{type='T',reason='x'}) try('e',e,{type='T'}) try('e',e,print) try('e',e,true) try('e',e,{1,2})
try('new',e.new) try('new',e.new,5) try('new',e.new,36,'q') try('new',e.new,{}) try('new',e.new,'T','m') try('new',e.new,'T') try('new',e.new,{code=7,reason='seven',type='Seven'})
local x=e.new{code=7,reason='seven',type='Seven'} p(x.type,x.base_type,x.custom_type,x.code,x.message,x.prev,x.errno,x.trace and #x.trace,x.zz)
local k={} for n in pairs(x:unpack()) do k[#k+1]=n end table.sort(k) p(table.concat(k,','))
local y=e.new(36,'q') p(y.type,y.base_type,y.custom_type,y.code,y.message,y.prev,y.errno) k={} for n in pairs(y:unpack()) do k[#k+1]=n end table.sort(k) p(table.concat(k,','))
try('raise',y.raise,y) try('raise',y.raise) try('match',y.match,y,'q') try('match',y.match,y) try('unpack',y.unpack)
try('sp',x.set_prev,x,y) p(x.prev==y,x.prev.message) try('sp',y.set_prev,y,x) try('sp',x.set_prev,x,x) try('sp',x.set_prev,x,nil) p(x.prev) try('sp',x.set_prev,x,5) try('sp',x.set_prev,x) try('sp',x.set_prev)
x:set_prev(y) p(x:unpack().prev==y)
e.clear() p(e.last()) try('set',e.set,y) p(e.last()==y) try('set',e.set,5) try('set',e.set) try('e0',e) e.clear() try('e0',e) try('clear',e.clear,1) try('last',e.last,1)
p(e.UNKNOWN,e.NO_SUCH_SPACE,e.TUPLE_FOUND,e.zz,e.PROC_LUA,e[5])
p(tostring(x),x..'',''..x,x..y) try('eq',function() return x==x,x==y,x==5 end) try('lt',function() return x<y end) try('set',function() x.message='z' end) try('len',function() return #x end)
p(require'json'.encode(x),require'json'.encode{x},require'yaml'.encode(x),require'yaml'.encode{e=x},require'msgpack'.encode(x):hex())
local function cls(f,...) local ok,er=pcall(f,...) if type(er)=='cdata' then p(er.type,er.code,er.message,er.base_type,er.errno) else p(type(er),er) end end
cls(box.space._space.insert,box.space._space,{1}) cls(box.schema.space.create,'_space') cls(require'fiber'.find,'x') cls(box.schema.user.create,'admin') cls(box.space._space.get,box.space._space,'x') cls(require'json'.decode,'{') cls(require'yaml'.decode,'[') cls(require'fio'.open) cls(box.execute,'zz') cls(box.error,{type='Q',reason='a',code=3}) cls(require'key_def'.new,{}) cls(require'uuid'.fromstr,5) cls(require'decimal'.new,'x')
local f=fiber.new(function() fiber.sleep(10) end) f:set_joinable(true) fiber.yield() f:cancel() local ok,er=f:join() p(ok,type(er),er.type,er.code,er.message,tostring(er))
f=fiber.new(function() error({a=1}) end) f:set_joinable(true) ok,er=f:join() p(ok,type(er),er.a) f=fiber.new(function() error('s',0) end) f:set_joinable(true) ok,er=f:join() p(ok,type(er),tostring(er), er.type) f=fiber.new(function() box.error{code=3,reason='q'} end) f:set_joinable(true) ok,er=f:join() p(ok,type(er),tostring(er), er.type, er.code)
f=fiber.new(function() error() end) f:set_joinable(true) ok,er=f:join() p(ok,type(er),tostring(er)) f=fiber.new(function() return 1,nil,3 end) f:set_joinable(true) p(f:join())
-- An error is the cause of one other at most, and the last error is the head of its chain. Raising an error makes it no last one.
do
    local e1, e2, e3 = box.error.new({ reason = '1' }), box.error.new({ reason = '2' }), box.error.new({ reason = '3' })
    local function chain() p(e1.prev, e2.prev, e3.prev) end
    e1:set_prev(e2) chain() e3:set_prev(e2) chain() e1:set_prev(e3) chain() e1:set_prev(e2) chain() e3:set_prev(e1) chain()
    p(pcall(e2.set_prev, e2, e3)) box.error.set(e1) chain() e1:set_prev(nil) chain()
    box.error.clear() p(pcall(e1.raise, e1), box.error.last()) p(pcall(box.error, e1), box.error.last() == e1)
    p(#box.error.new(('t'):rep(100), 'text').type)
end
os.exit()
