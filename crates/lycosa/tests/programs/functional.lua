-- Functional indexes: what is refused and with which errors, reads, changes, rollbacks, and the rows behind them.
box.cfg{ log = 'log' }
local json = require('json')

local function try(what, f, ...)
    local done, result = pcall(f, ...)
    if done then
        print(what, 'ok', type(result) == 'table' and json.encode(result) or tostring(result))
        return
    end
    local chain = {}
    while result do
        chain[#chain + 1] = type(result) == 'string' and result
            or ('%s:%s:%s'):format(result.type, result.code, tostring(result.message):gsub('0x%x+', 'ADDRESS'))
        result = type(result) ~= 'string' and result.prev or nil
    end
    print(what, 'error', table.concat(chain, ' <- '))
end
local s = box.schema.space.create('withdata', {format={{'a','unsigned'},{'b','unsigned'}}})
local body='function(tuple) return {tuple[1] + tuple[2]} end'
local function mk(n, o) try('create '..n, box.schema.func.create, n, o) end
mk('s', {body=body, is_deterministic=true, is_sandboxed=true})
mk('np')
mk('nd', {body=body, is_sandboxed=true})
mk('scalar', {body='function(tuple) return tuple[1] + tuple[2] end', is_deterministic=true, is_sandboxed=true})
mk('names', {body='function(tuple) return {tuple.a + tuple.b} end', is_deterministic=true, is_sandboxed=true})
mk('two', {body='function(tuple) return {1}, {2} end', is_deterministic=true, is_sandboxed=true})
mk('none', {body='function(tuple) end', is_deterministic=true, is_sandboxed=true})
mk('err', {body='function(tuple) error("boo") end', is_deterministic=true, is_sandboxed=true})
mk('errt', {body='function(tuple) error({}) end', is_deterministic=true, is_sandboxed=true})
mk('fn', {body='function(tuple) return {print} end', is_deterministic=true, is_sandboxed=true})
mk('str', {body='function(tuple) return {tostring(tuple[1])} end', is_deterministic=true, is_sandboxed=true})
mk('m', {body='function(tuple) return {{tuple[1]},{tuple[2]},{tuple[1]}} end', is_deterministic=true, is_sandboxed=true, opts={is_multikey=true}})
mk('mbad', {body='function(tuple) return 5 end', is_deterministic=true, is_sandboxed=true, opts={is_multikey=true}})
mk('mempty', {body='function(tuple) return {} end', is_deterministic=true, is_sandboxed=true, opts={is_multikey=true}})
mk('mmix', {body='function(tuple) return {{1},2} end', is_deterministic=true, is_sandboxed=true, opts={is_multikey=true}})
mk('null', {body='function(tuple) return {nil} end', is_deterministic=true, is_sandboxed=true})
mk('plain', {body='function(tuple) return {box.NULL} end', is_deterministic=true})
mk('nullb', {body='function(tuple) return {tuple[2]} end', is_deterministic=true, is_sandboxed=true})
mk('usebox', {body='function(tuple) return {box.space.withdata:len()} end', is_deterministic=true, is_sandboxed=true})
mk('usereq', {body='function(tuple) return {require("digest").crc32(tostring(tuple[1]))} end', is_deterministic=true, is_sandboxed=true})
mk('glob', {body='function(tuple) return {GL} end', is_deterministic=true, is_sandboxed=true})
mk('tup', {body='function(tuple) return box.tuple.new{tuple[1]} end', is_deterministic=true, is_sandboxed=true})
mk('same', {body='function(tuple) return tuple end', is_deterministic=true, is_sandboxed=true})
mk('map', {body='function(tuple) return {a=1} end', is_deterministic=true, is_sandboxed=true})
mk('types', {body='function(tuple) return {type(tuple), tuple} end', is_deterministic=true, is_sandboxed=true})
local P = {{1,'unsigned'}}
local function ci(n, o) local r; try('index '..n, function() r = s:create_index(n, o); return r.func and r.func.name end); return r end
ci('f0', {func='s', parts=P})
s:create_index('pk')
for _, f in ipairs{'np','nd','s',6666,'zzz',0,-1,1.5,'LUA'} do local i = ci('a'..tostring(f), {func=f, parts=P}); if i then i:drop() end end
ci('p1', {func='s', parts={{2,'unsigned'}}})
ci('p2', {func='s', parts={{1,'unsigned'},{3,'unsigned'}}})
ci('p3', {func='s', parts={{1,'unsigned',path='a'}}})
ci('p4', {func='s', parts={{1,'unsigned',path='[*]'}}})
ci('p5', {func='s', parts={{'a','unsigned'}}})
ci('p6', {func='s', parts={'a'}})
ci('p7', {func='s'})
ci('h', {func='s', parts=P, type='hash'})
ci('b', {func='s', parts=P, type='bitset'})
ci('r', {func='s', parts={{1,'array'}}, type='rtree'})
for i = 1, #box.space.withdata.index do box.space.withdata.index[#box.space.withdata.index]:drop() end
s:insert{1,2}
for _, f in ipairs{'s','scalar','names','two','none','err','errt','fn','str','m','mbad','mempty','mmix','null','plain','nullb','usebox','usereq','glob','tup','same','map','types'} do
  local i = ci('x'..f, {func=f, parts=P})
  if i then
    try('  sel', function() return i:select() end)
    try('  ins', function() return s:insert{5,7} end)
    try('  sel', function() return i:select() end)
    try('  cnt', function() return {i:len(), i:count()} end)
    try('  get', function() return i:get{3} end)
    try('  getx', function() return i:get{} end)
    try('  sel3', function() return i:select({3},{iterator='GE'}) end)
    try('  upd', function() return s:update({5},{{'=',2,8}}) end)
    try('  updi', function() return i:update({13},{{'=',2,9}}) end)
    try('  ups', function() return s:upsert({5,7},{{'+',2,1}}) end)
    try('  sel', function() return i:select({}, {iterator='REQ'}) end)
    try('  min', function() return i:min() end)
    try('  max', function() return i:max() end)
    try('  del', function() return s:delete(5) end)
    try('  sel', function() return i:select() end)
    try('  fdrop', function() return box.func[f]:drop() end)
    try('  row', function() return box.space._func_index:select() end)
    try('  idx', function() local r = box.space._index:get{s.id,i.id} return {r[3], r[4], r[5].func, r[5].unique, r[6]} end)
    try('  show', function() return {i.func.name, i.func.fid, i.parts[1].type, i.parts[1].fieldno, i.unique, i.type} end)
    try('  alter', function() return i:alter{parts={{1,'integer'}}} end)
    try('  unique', function() return i:alter{unique=false} end)
    try('  rename', function() return i:rename('re') end)
    try('  repl', function() return s:replace{1,2} end)
    try('  sel', function() return i:select() end)
    try('  pairs', function() local n=0 for _ in i:pairs() do n=n+1 end return n end)
    try('  idrop', function() return i:drop() end)
    s:delete(5)
  end
end
-- duplicates
local i = ci('uq', {func='s', parts=P})
try('dup', function() return s:insert{2,1} end)
try('txn', function() box.begin() s:replace{1,9} s:insert{3,3} box.rollback() return i:select() end)
try('trunc', function() s:truncate() return i:select() end)
try('funcindexdel', function() box.space._func_index:delete{s.id,i.id} s:insert{1,1} return i:select() end)
try('cnt', function() return i:count() end)
try('funcindexins', function() box.space._func_index:insert{s.id,i.id,box.func.s.id} return i:select() end)
try('funcindexrepl', function() box.space._func_index:replace{s.id,i.id,box.func.s.id} return i:select() end)
try('funcindexother', function() box.space._func_index:delete{s.id,i.id} box.space._func_index:insert{s.id,i.id,box.func.m.id} end)
try('bad', function() box.space._func_index:insert{s.id,i.id,box.func.np.id} end)
try('bad', function() box.space._func_index:insert{s.id,99,box.func.s.id} end)
try('bad', function() box.space._func_index:insert{9999,0,box.func.s.id} end)
try('bad', function() box.space._func_index:insert{s.id,0,box.func.s.id} end)
try('bad', function() box.space._func_index:insert{s.id,i.id,7777} end)
try('raw', function() box.space._index:insert{s.id,50,'raw','tree',{func=box.func.s.id,unique=true},{{0,'unsigned'}}} return box.space.withdata.index.raw:select() end)
try('raw7777', function() box.space._index:insert{s.id,51,'raw2','tree',{func=7777,unique=true},{{0,'unsigned'}}} return box.space.withdata.index.raw2:select() end)
try('raw7777b', function() return box.space._func_index:insert{s.id,51,7777} end)
try('vinyl', function() local v=box.schema.space.create('v',{engine='vinyl'}) v:create_index('pk') v:create_index('f',{func='s',parts=P}) end)
try('drop space', function() return s:drop() end)
try('rows', function() return box.space._func_index:select() end)
-- primary func
local s = box.schema.space.create('t2')
try('pkf', function() s:create_index('pk',{func='s',parts=P}) end)
s:create_index('pk')
local i = s:create_index('n',{func='nullb',parts={{1,'unsigned',is_nullable=true}}})
try('ins', function() s:insert{1, box.NULL} s:insert{2, box.NULL} s:insert{3, 1} return i:select() end)
try('same', function() s:insert{4, 1} end)
try('sel', function() return i:select(box.NULL) end)
try('sel', function() return i:select{box.NULL} end)
os.exit(0)
