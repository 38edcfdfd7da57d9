-- Sequences, functions, users, roles, sessions, transactions and the rest of `box`, with arguments of every kind.
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

local q=box.schema.sequence
try('seq',q.create) try('seq',q.create,'s',5) try('seq',q.create,'s',{zz=1}) try('seq',q.create,'s',{step=0}) try('seq',q.create,'s',{min=5,max=1}) try('seq',q.create,'s',{start=-1}) try('seq',q.create,'s',{step='x'}) try('seq',q.create,'')
local s=q.create('s') p(s.name,s.id,s.step,s.min,s.max,s.start,s.cache,s.cycle,s.uid,s.owner)
try('dup',q.create,'s') try('dup',function() return q.create('s',{if_not_exists=true}).name, select(2, q.create('s',{if_not_exists=true})) end)
try('cur',s.current,s) try('next',s.next,s) try('next',s.next,s) try('cur',s.current,s) try('set',s.set,s,100) try('next',s.next,s) try('reset',s.reset,s) try('next',s.next,s) try('set',s.set,s) try('set',s.set,s,'x') try('set',s.set,s,-5) try('next',s.next)
try('alter',s.alter,s,{step=10}) try('next',s.next,s) try('alter',s.alter,s,{zz=1}) try('alter',s.alter,s) try('alter',s.alter,s,{min=100}) p(s.step,s.min)
local d=q.create('d',{step=-2,max=10,min=5}) p(d.start,d.min,d.max) for i=1,4 do try('d',d.next,d) end
local c=q.create('c',{max=3,cycle=true}) for i=1,5 do try('c',c.next,c) end
local m=q.create('m',{max=2}) for i=1,4 do try('m',m.next,m) end
try('drop',q.drop,'zz') try('drop',q.drop,'zz',{if_exists=true}) try('drop',q.drop,'m') try('drop',q.drop,'m') p(box.sequence.m) try('drop',s.drop,s) try('n',s.next,s)
p(type(box.sequence.d), box.sequence[1]) try('ser',function() local k={} for n in pairs(box.sequence) do k[#k+1]=tostring(n) end table.sort(k) return table.concat(k,',') end)
local sp=box.schema.space.create('t')
try('sq',sp.create_index,sp,'pk',{sequence='nosuch'}) try('sq',sp.create_index,sp,'pk',{sequence=5}) try('sq',sp.create_index,sp,'pk',{parts={{1,'string'}},sequence=true})
p(sp.index[0]) if sp.index[0] then sp.index[0]:drop() end
try('sq',function() sp:create_index('pk',{sequence=true}) end) p(sp.index[0].sequence_id, sp.index[0].sequence_fieldno, box.sequence.t_seq and box.sequence.t_seq.name)
try('ins',sp.insert,sp,{box.NULL,'a'}) try('ins',sp.insert,sp,{nil}) try('ins',sp.insert,sp,{10}) try('ins',sp.insert,sp,{box.NULL}) try('ins',sp.insert,sp,{}) try('rep',sp.replace,sp,{box.NULL,'r'})
try('dropseq',q.drop,'t_seq') try('alter',function() sp.index[0]:alter{sequence=false} end) p(sp.index[0].sequence_id, box.sequence.t_seq) try('alter',function() sp.index[0]:alter{sequence='d'} end) p(sp.index[0].sequence_id~=nil) sp:drop() p(box.sequence.d~=nil)
-- funcs
local f=box.schema.func
try('f',f.create) try('f',f.create,'f',5) try('f',f.create,'f',{zz=1}) try('f',f.create,'f',{language='zz'}) try('f',f.create,'f',{language='sql_builtin'}) try('f',f.create,'f',{body='not a function'}) try('f',f.create,'f',{body='function() return 1 end', language='C'}) try('f',f.create,'f',{setuid='x'})
try('f',f.create,'f') try('f',f.create,'f') try('f',f.create,'f',{if_not_exists=true}) try('ex',f.exists,'f') try('ex',f.exists,'zz')
try('f',f.create,'g',{body='function(a,b) return a+b, "x" end', is_deterministic=true, is_sandboxed=true, comment='hi', param_list={'number','number'}, returns='number', exports={'LUA','SQL'}, aggregate='none'})
try('call',function() return box.func.g:call{1,2} end) try('call',function() return box.func.f:call() end) try('call',f.call,'g',{1,2}) try('call',f.call,'g',1,2) try('call',f.call,'zz')
try('g',function() local g=box.func.g return g.id~=nil,g.name,g.language,g.is_deterministic,g.is_sandboxed,g.comment,g.returns,g.aggregate,g.setuid,g.body,g.exports,g.param_list,g.is_multikey,g.routine_type end)
try('y',function() local y=require'yaml'.encode(box.func.g) return y end)
try('rows',function() return box.space._func.index.name:get('g'):totable(3) ~= nil, #box.space._func.index.name:get('g'), box.space._func.index.name:get('g')[4], box.space._func.index.name:get('g')[8], box.space._func.index.name:get('g')[10],box.space._func.index.name:get('g')[16] end)
try('sb',function() f.create('sb',{body='function() return io end',is_sandboxed=true}) return box.func.sb:call() end)
try('nosb',function() f.create('nosb',{body='function() return io ~= nil end'}) return box.func.nosb:call() end)
try('err',function() f.create('er',{body='function() error("x",0) end'}) return box.func.er:call() end)
try('agg',f.create,'ag',{aggregate='group'}) try('ret',f.create,'rt',{returns='zz'}) try('exp',f.create,'xp',{exports={'zz'}}) try('exp',f.create,'xp',{exports='LUA'}) try('mk',f.create,'mk',{body='function(t) return {{1}} end',is_deterministic=true,is_sandboxed=true,opts={is_multikey=true}}) try('mk',function() return box.func.mk.is_multikey end)
try('drop',f.drop,'zz') try('drop',f.drop,'zz',{if_exists=true}) try('drop',f.drop,'f') try('drop',function() box.func.g:drop() end) p(box.func.g)
try('reload',f.reload) try('reload',f.reload,'zz')
-- users
local u=box.schema.user local r=box.schema.role
try('u',u.create,'u',{zz=1}) try('u',u.create,'u',{password=5}) try('u',u.create,'u',{password='x'}) try('u',u.create,'u') try('u',u.create,'u',{if_not_exists=true}) try('u',u.create,'') try('u',u.create,'admin') try('u',u.create,'public')
try('g',u.grant,'u','read') try('g',u.grant,'u','read','universe') try('g',u.grant,'u','read','universe') try('g',u.grant,'u','read','universe',nil,{if_not_exists=true}) try('g',u.grant,'u','zz','universe') try('g',u.grant,'u','read','zz','x') try('g',u.grant,'u','read','space','nosuch') try('g',u.grant,'u','read,write','space','_space') try('g',u.grant,'u','super') try('g',u.grant,'u','super') try('g',u.grant,'zz','read','universe') try('g',u.grant,'u','execute','role','public') try('g',u.grant,'u','nosuchrole') try('g',u.grant,'u','execute','function','nosuch') try('g',u.grant,'u','create','space')
try('i',u.info,'u') try('i',u.info,'zz') try('i',function() return #u.info() end)
try('rv',u.revoke,'u','read','universe') try('rv',u.revoke,'u','read','universe') try('rv',u.revoke,'u','read','universe',nil,{if_exists=true}) try('rv',u.revoke,'u','super') try('rv',u.revoke,'u','super') try('rv',u.revoke,'zz','read','universe')
try('pw',u.passwd,'u','new') try('pw',u.passwd,'zz','x') try('pw',u.passwd,'guest','x') try('pw',u.password,'secret')
try('dis',u.disable,'u') try('dis',u.disable,'u') try('en',u.enable,'u') try('en',u.enable,'u') try('dis',u.disable,'zz') try('i',u.info,'u')
try('ex',u.exists,'u') try('ex',u.exists,'zz') try('ex',u.exists,1) try('ex',u.exists,0)
try('r',r.create,'rr') try('r',r.create,'rr') try('r',r.create,'rr',{if_not_exists=true}) try('r',r.create,'u') try('r',r.grant,'rr','read','universe') try('r',r.grant,'rr','rr') try('r',r.info,'rr') try('r',r.exists,'rr') try('r',r.exists,'u') try('r',u.grant,'u','rr') try('r',r.grant,'rr','public') try('r',r.revoke,'rr','public') try('r',r.drop,'zz') try('r',r.drop,'zz',{if_exists=true}) try('r',r.drop,'public') try('r',r.drop,'rr') try('i',u.info,'u') try('r',r.grant,'zz','read','universe')
try('d',u.drop,'zz') try('d',u.drop,'zz',{if_exists=true}) try('d',u.drop,'admin') try('d',u.drop,'guest') try('d',u.drop,'rr')
try('su',box.session.su) try('su',box.session.su,'zz') try('su',box.session.su,'u') p(box.session.user()) try('su',box.session.su,'admin') p(box.session.user(),box.session.euid(),box.session.uid(),box.session.effective_user())
try('su',box.session.su,'u',function(...) return box.session.user(),box.session.effective_user(),... end,1,2)
try('su',box.session.su,'u',function() box.schema.space.create('no') end) try('su',box.session.su,'u',function() return box.space._user:select() end)
try('den',function() local ok,e=pcall(box.session.su,'guest',function() box.space._space:insert{1} end) return e.type,e.code,e.object_type,e.object_name,e.access_type,e:unpack().type end)
local seen={} local tr=box.session.on_access_denied(function(...) seen[#seen+1]={...} end) pcall(box.session.su,'guest',function() box.space._space:get{280} return box.space._user:insert{1} end) p(seen) p(#box.session.on_access_denied()) box.session.on_access_denied(nil,tr) p(#box.session.on_access_denied())
try('d',u.drop,'u')
-- once
try('once',box.once) try('once',box.once,'k') try('once',box.once,1,print) local n=0 try('once',box.once,'k',function(a) n=n+a return 'ret' end,5) try('once',box.once,'k',function(a) n=n+a end,5) p(n) p(box.space._schema:get{'oncek'})
try('once',box.once,'e',function() error('bad',0) end) p(box.space._schema:get{'oncee'})
-- a sequence that inserts alone have moved
try('rst',function() local z=box.schema.space.create('zq') z:create_index('pk',{sequence=true}) z:insert{box.NULL} z:insert{box.NULL} box.sequence.zq_seq:reset() local ok=pcall(z.insert,z,{box.NULL}) z:drop() return ok, box.sequence.zq_seq end)
-- misc
p(box.session.id()>0,box.session.type(),box.session.peer(),box.session.sync(),box.session.fd(),box.session.exists(box.session.id()),box.session.exists(12345)) try('ex',box.session.exists) try('peer',box.session.peer,12345) try('type',box.session.type,1) box.session.storage.x=5 p(box.session.storage.x, box.session.storage.y)
try('push',box.session.push) try('push',box.session.push,1) try('push',box.session.push,1,2)
for _,nm in ipairs{'begin','commit','rollback','savepoint','is_in_txn','rollback_to_savepoint','atomic'} do try(nm,box[nm]) end box.rollback()
try('begin2',function() box.begin() box.begin() end) p(box.is_in_txn()) box.rollback() try('atomic',box.atomic,function(...) return 1,... end,2) try('atomic',box.atomic,function() error('x',0) end) p(box.is_in_txn()) try('sv',box.savepoint) try('sv',function() box.begin() local s=box.savepoint() box.rollback_to_savepoint(s) box.rollback_to_savepoint(s) box.commit() box.rollback_to_savepoint(s) end) box.rollback() try('sv',function() box.begin() box.rollback_to_savepoint(5) end) box.rollback()
try('yield',function() box.begin() box.space._schema:replace{'zz',1} fiber.yield() box.commit() end) p(box.is_in_txn()) box.rollback() p(box.space._schema:get{'zz'})
for _,o in ipairs{{zz=1},{listen={}},{read_only=5},{log_level='x'},{checkpoint_interval=-1},{readahead='x'},{memtx_memory=1},{checkpoint_count=0},{too_long_threshold=0.1},{net_msg_max=1},{log_level=99}} do try('cfg '..require'json'.encode(o),box.cfg,o) end
try('cfg',function() box.cfg.x=1 end) p(box.cfg.read_only, box.cfg.zzz, box.cfg.wal_max_size, box.cfg.vinyl_memory,box.cfg.replication_timeout)
p(box.info.status,box.info.ro,box.info.id,type(box.info.lsn),type(box.info.uuid),type(box.info.vclock),type(box.info.signature),type(box.info.uptime),type(box.info.pid),type(box.info.cluster.uuid),type(box.info.replication[1]),type(box.info.gc().checkpoints),type(box.info.memory().data),type(box.info.sql().cache),type(box.info.replication_anon.count),box.info.listen,box.info.zz,type(box.info().version))
p(type(box.stat().INSERT.total),type(box.stat.INSERT.rps),type(box.stat.vinyl),1,box.stat.zz,type(box.stat.reset))
p(type(box.slab.info().items_size),type(box.slab.stats()),type(box.slab.check),type(box.runtime.info().lua),type(box.runtime.info().used))
p(pcall(box.backup.start,'x'), pcall(box.session.su, ('a'):rep(100))) p(#box.backup.start(),pcall(box.backup.start)) p(pcall(box.backup.stop)) p(pcall(box.backup.stop)) p(pcall(box.backup.start,-1)) p(pcall(box.backup.start,99)) p(pcall(function() return #box.backup.start(0) end)) p(pcall(box.backup.stop))
p(box.snapshot()) p(pcall(box.ctl.wait_ro,0.01)) p(pcall(box.ctl.wait_rw,0.01)) p(pcall(box.ctl.wait_rw,-1)) p(pcall(box.ctl.wait_rw,'x'))
os.exit()
