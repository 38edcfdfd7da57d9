-- Tuples, with arguments of every kind.
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

local T=box.tuple.new
try('new',T) try('new',T,1) try('new',T,1,2,'x') try('new',T,nil) try('new',T,{}) try('new',T,{1,nil,3}) try('new',T,{1,{2,{3}}},4)
try('new',T,'x') try('new',T,box.NULL) try('new',T,{a=1}) try('new',T,T{1,2}) try('new',T,print)
try('new',T,{1,print})
local t=T{1,'two',{3,4,{a='b'}},box.NULL,5.5,true,false,-7,18446744073709551615ULL,"five''six", "q'q"}
p(t,#t,t:bsize())
p(t[0],t[1],t[2],t[4],t[-1],t[100],t.x,t['1'])
p(t:totable()) p(t:totable(2)) p(t:totable(2,3)) try('tt',t.totable,t,0) try('tt',t.totable,t,-1) try('tt',t.totable,t,3,2) try('tt',t.totable,t,2,100)
try('tt',t.totable,t,'x')
p(t:unpack()) p(t:unpack(2)) p(t:unpack(2,3)) try('up',t.unpack,t,100)
try('slice',t.slice,t) try('slice',t.slice,t,0) try('slice',t.slice,t,1,3) try('slice',t.slice,t,-2) try('slice',t.slice,t,-3,-1) try('slice',t.slice,t,5,2) try('slice',t.slice,t,100) try('slice',t.slice,t,0,100) try('slice',t.slice,t,0,-100)
try('tr',t.transform,t) try('tr',t.transform,t,1) try('tr',t.transform,t,1,1) try('tr',t.transform,t,2,1,'N','M') try('tr',t.transform,t,-1,1) try('tr',t.transform,t,12,0,'end') try('tr',t.transform,t,13,0) try('tr',t.transform,t,0,1) try('tr',t.transform,t,3,100) try('tr',t.transform,t,-20,1)
try('tr',t.transform,t,1,-1)
try('find',t.find,t,'two') try('find',t.find,t,1,'two') try('find',t.find,t,2,'two') try('find',t.find,t,box.NULL) try('find',t.find,t) try('find',t.find,t,100,1) try('findall',t.findall,t,1) try('find',t.find,t,-1,1)
local u=T{1,2,1,3,1} p(u:find(1),u:find(1,1),u:findall(1)) p(u:findall(2,1)) p(select('#',u:findall(9)))
try('pairs',function() local r={} for i,v in t:pairs() do r[#r+1]=tostring(i) end return table.concat(r,',') end)
try('ipairs',function() local r={} for i,v in t:ipairs() do r[#r+1]=tostring(i)..type(v) end return table.concat(r,',') end)
try('pairs3',function() local a,b,c=u:pairs() return type(a),type(b),type(c) end)
try('forpairs',function() local r={} for i,v in pairs(u) do r[#r+1]=i..'='..v end return table.concat(r,',') end)
try('next',u.next,u) try('next',u.next,u,1) try('next',u.next,u,5) try('next',u.next,u,6) try('next',u.next,u,0) try('next',u.next,u,-1)
try('upd',u.update,u,{{'=',1,9}}) try('upd',u.update,u,{{'+',2,5},{'-',3,1},{'!',1,'first'}}) try('upd',u.update,u,{{'#',1,2}}) try('upd',u.update,u,{{'=',100,1}}) try('upd',u.update,u,{{'=',6,1}}) try('upd',u.update,u,{}) try('upd',u.update,u) try('upd',u.update,u,{{'^',1,1},{'&',2,3},{'|',3,8}}) try('upd',u.update,u,{{'+',1,'x'}}) try('upd',u.update,u,{{'zz',1,1}}) try('upd',u.update,u,{{}}) try('upd',u.update,u,{'=',1,1}) try('upd',u.update,u,5) try('upd',u.update,u,{{'='}}) try('upd',u.update,u,{{'=',1}}) try('upd',u.update,u,{{1,1,1}}) try('upd',u.update,u,{{'=','x',1}}) try('upd',u.update,u,{{'=',-1,'L'}}) try('upd',u.update,u,{{'!',-1,'L'}}) try('upd',u.update,u,{{'#',-1,1}}) try('upd',u.update,u,{{'#',1,0}}) try('upd',u.update,u,{{'#',1,-1}}) try('upd',u.update,u,{{'+',1,1.5}}) try('upd',u.update,u,{{'+',1,18446744073709551615ULL}}) try('upd',u.update,u,{{'-',1,2}})
try('ups',u.upsert,u,{{'=',1,9}}) try('ups',u.upsert,u,{{'+',1,'x'}}) try('ups',u.upsert,u,{{'=',100,1}}) try('ups',u.upsert,u,{{'+',1,1},{'+',100,1}}) try('ups',u.upsert,u,{{'zz',1,1}})
local j=T{1,{a={b={1,2,3}}}}
try('json',j.update,j,{{'=','[2].a.b[1]',9}}) try('json',j.update,j,{{'!','[2].a.b[4]','new'}}) try('json',j.update,j,{{'=','[2].q.r',9}}) try('json',j.update,j,{{'=','[5]',9}}) try('json',j.update,j,{{'=','[3]',9}}) try('json',j.update,j,{{'+','[2].a.b[2]',10}}) try('json',j.update,j,{{'=','[2',9}})
p(j['[2].a.b[2]'], j['[9]'], j['[2].zz'], j['[1]'])
try('tomap',u.tomap,u) try('tomap',u.tomap,u,{names_only=true}) try('tomap',u.tomap,u,5) try('tomap',u.tomap,u,{names_only=5})
local s=box.schema.space.create('s',{format={{'id','unsigned'},{'update','string'},{'name','any',is_nullable=true},{'id2','any',is_nullable=true}}}) s:create_index('pk')
local v=s:insert{1,'u',{x={1,2}}}
p(v.id,v.update,v.name,v.id2,v.nosuch,v['name.x[1]'],v['name.x'],v['name["x"][2]'],v['name.y'])
p(v:tomap{names_only=false}.id, getmetatable(v:tomap{}) and getmetatable(v:tomap{}).__serialize)
try('upn',box.tuple.update,v,{{'=','name',5}}) try('upn',box.tuple.update,v,{{'=','name.x[1]',5}}) try('upn',box.tuple.update,v,{{'=','id2',5}})
p(v==v, v==s:get(1), T{1}==T{2}, T{1}==1, T{1}~=nil, T{}==nil)
try('lt',function() return T{1}<T{2} end) try('add',function() return T{1}+1 end) try('cat',function() return T{1}..'x' end) try('call',function() return T{1}() end) try('set',function() local t=T{1} t[1]=2 end) try('set',function() local t=T{1} t.x=2 end)
p(box.tuple.is(T{1}),box.tuple.is({1}),box.tuple.is(nil),box.tuple.is())
try('str',box.tuple.totable,{1}) try('bs',box.tuple.bsize,T{1,2,3}) try('bs',box.tuple.bsize,1)
p(T{'a\nb','\255\254','é','"',"''",'\\','\0x'}) p(T{1e300,1/0,-1/0,0/0,0.1,1e15,123456789012345678,-0.0, 3.0,1e16,1e-7,2^53,2^63,2^64})
p(require'msgpack'.encode(T{1,2}):hex(), require'msgpack'.encode({T{1,2}}):hex())
p(T{{},{a=1},setmetatable({},{__serialize='map'}),setmetatable({1,2},{__serialize='map'}),{[1]=1,[3]=3},{[1]=1,[50]=3},{1,2,x=1}})
for _,part in ipairs{T{1,2,3}:totable(), T{1,2,3}:totable(2), T{1,2,3}:totable(1,1), T{1}:totable(9)} do p(#part, getmetatable(part).__serialize) end
p(#T{}, T{}, tostring(T{}), T():totable())
local w=T{box.NULL,true,false,{1},-5,2^60,1e15,100ULL,'',-2^40,{a=1},1.25,-1LL} for i=0,14 do p(i,type(w[i]),w[i]) end p(w[1]==box.NULL,w[-1])
local k={} for n in pairs(box.tuple) do k[#k+1]=n end table.sort(k) p(table.concat(k,','))
-- Names of fields: a null is nil, and a tuple of `frommap` has the names of its space.
do
    local space = box.schema.space.create('named')
    space:format({ { 'id', 'unsigned' }, { name = 'mail', type = 'string', is_nullable = true }, { name = 'bsize', type = 'any', is_nullable = true } })
    space:create_index('pk')
    space:insert({ 1, box.NULL, { a = { b = box.NULL } } })
    local tuple = space:get(1)
    p(tuple.mail, tuple[2], tuple['[3].a.b'], tuple['[3].a'], type(tuple.bsize), type(space:replace({ 2 }).bsize))
    local made = space:frommap({ id = 1, mail = 'x' })
    p(made.mail, made:update({ { '=', 'mail', 'y' } }).mail, made:tomap({ names_only = true }).mail)
    space:drop()
end
-- Lines of a text are indented by its depth; blanks beside a line break make double quotes.
for _, value in ipairs({ 'a\nb', { 'a\nb' }, { { "it's\n\nb", 1 } }, { a = 'x\ny\n' }, 'a \nb', 'a\n b', '\n', 'a\n', '\na' }) do
    p(tostring(T({ 1, value })))
end
os.exit()
