-- What a user without rights may do in a program: views, sequences, functions of box.schema.
box.cfg{log = 'users.log', wal_mode = 'none'}
box.schema.user.create('u')
box.schema.sequence.create('q')
box.schema.space.create('s'):create_index('p')
-- Who may read a system space sees all of its view.
for name, view in pairs({ _space = '_vspace', _user = '_vuser', _priv = '_vpriv', _index = '_vindex', _func = '_vfunc', _sequence = '_vsequence' }) do
    box.schema.user.grant('u', 'read', 'space', name)
    local seen = box.session.su('u', function() return #box.space[view]:select() end)
    if seen ~= #box.space[name]:select() then print(view, seen) end
    box.schema.user.revoke('u', 'read', 'space', name)
end
for _, u in ipairs{'admin', 'u'} do
    for _, n in ipairs{'_vspace', '_vuser', '_vindex', '_vfunc', '_vpriv', '_vcollation'} do
        local s = box.space[n]
        local function t(what, f) print(n, u, what, box.session.su(u, function() return pcall(f) end)) end
        t('count', function() return s:count() end)
        t('select', function() return #s:select() end)
        t('len', function() return s:len() end)
        t('bsize', function() return s:bsize() end)
        t('ibsize', function() return s.index[0]:bsize() end)
        t('count', function() return s:count({}, 'EQ') end)
        t('count', function() return s:count({1}, 'GE') end)
        t('icount', function() return s.index[1]:count() end)
        t('min', function() return s.index[0]:min() ~= nil end)
        t('max', function() return s.index[0]:max() ~= nil end)
        t('max', function() return s.index[0]:min(1) ~= nil end)
        t('random', function() return s.index[0]:random(1) ~= nil end)
        t('get', function() return s:get(1) end)
        t('insert', function() return s:insert{1} end)
        t('delete', function() return s:delete{1} end)
        t('update', function() return s:update({1}, {{'=', 1, 1}}) end)
        t('upsert', function() return s:upsert({1}, {{'=', 1, 1}}) end)
        t('truncate', function() return s:truncate() end)
        t('pairs', function() local n = 0 for _ in s:pairs() do n = n + 1 end return n end)
    end
end
box.schema.user.grant('u', 'write', 'sequence', 'q')
local function t(what, f) print(what, box.session.su('u', function() return pcall(f) end)) end
t('next', function() return box.sequence.q:next() end)
t('current', function() return box.sequence.q:current() end)
t('set', function() return box.sequence.q:set(5) end)
t('reset', function() return box.sequence.q:reset() end)
t('alter', function() return box.sequence.q:alter{step = 2} end)
t('drop', function() return box.sequence.q:drop() end)
box.schema.user.revoke('u', 'write', 'sequence', 'q')
box.schema.user.grant('u', 'read', 'sequence', 'q')
t('next', function() return box.sequence.q:next() end)
t('current', function() return box.sequence.q:current() end)
box.sequence.q:next()
t('current', function() return box.sequence.q:current() end)
t('set', function() return box.sequence.q:set(5) end)
t('reset', function() return box.sequence.q:reset() end)
t('create', function() return box.schema.sequence.create('z') end)
t('exists', function() return box.sequence.nope end)
t('pairs', function() local n = 0 for k in pairs(box.sequence) do n = n + 1 end return n end)
box.schema.user.revoke('u', 'read', 'sequence', 'q')
t('current', function() return box.sequence.q:current() end)
t('fields', function() return box.sequence.q.step, box.sequence.q.name end)
box.schema.user.grant('u', 'create', 'universe')
t('create', function() return box.schema.sequence.create('z').name end)
t('create', function() return box.schema.sequence.create('z').name end)
t('create', function() return box.schema.space.create('sz').name end)
t('create', function() return box.schema.space.create('sz').name end)
t('use', function() return box.sequence.z:next(), box.sequence.z:set(4), box.sequence.z:current() end)
t('passwd', function() return box.schema.user.passwd('x') end)
t('passwd', function() return box.schema.user.passwd('admin', 'x') end)
t('passwd', function() return box.schema.user.passwd('u', 'x') end)
t('info', function() return #box.schema.user.info() end)
t('info', function() return #box.schema.user.info('admin') end)
t('info', function() return #box.schema.user.info('u') end)
t('exists', function() return box.schema.user.exists('admin'), box.schema.user.exists('u'), box.schema.role.exists('super'), box.schema.func.exists('box.schema.user.info') end)
t('grant', function() return box.schema.user.grant('guest', 'read', 'universe') end)
t('grant', function() return box.schema.user.grant('u', 'read', 'universe') end)
t('grant', function() return box.schema.user.grant('u', 'read', 'space', 's') end)
t('grant', function() return box.schema.user.grant('u', 'read', 'space', 'sz') end)
t('grant', function() return box.schema.user.grant('public', 'read', 'space', 'sz') end)
t('grant', function() return box.schema.user.grant('nobody', 'read', 'space', 'sz') end)
t('revoke', function() return box.schema.user.revoke('u', 'create', 'universe') end)
t('revoke', function() return box.schema.user.revoke('u', 'read', 'space', 'sz') end)
t('user.create', function() return box.schema.user.grant('w', 'read', 'space', 'sz') end)
t('user.drop', function() return box.schema.user.drop('w') end)
t('role.grant', function() return box.schema.role.grant('rr', 'read', 'space', 'sz') end)
t('role.grant', function() return box.schema.user.grant('u', 'rr') end)
t('role.drop', function() return box.schema.role.drop('rr') end)
t('func.create', function() return box.schema.func.create('ff') end)
t('func.create', function() return box.schema.func.create('fb', {body='function() return box.session.euid() end', setuid=true}) end)
t('func.call', function() return box.func.fb:call() end)
t('func.drop', function() return box.schema.func.drop('ff') end)
t('func.drop', function() return box.func.fb:drop() end)
t('drop', function() return box.space.sz:drop() end)
t('rename', function() return box.space.s:rename('x') end)
t('format', function() return box.space.s:format({}) end)
t('truncate', function() return box.space.s:truncate() end)
t('enable', function() return box.schema.user.enable('u') end)
t('disable', function() return box.schema.user.disable('u') end)
t('snapshot', function() return box.snapshot() end)
t('cfg', function() box.cfg{readahead=16320} return 1 end)
t('execute', function() return #box.execute('select 1').rows end)
t('once', function() return box.once('k', function() end) end)
for _, rights in ipairs({
    {'usage', 'universe'}, {'session', 'universe'}, {'usage', 'space', 's'}, {'session', 'space', 's'}, {'usage', 'sequence', 'q'},
    {'session', 'space'}, {'usage', 'function'}, {'read,usage', 'universe'},
}) do
    for _, call in ipairs({'grant', 'revoke'}) do
        for _, kind in ipairs({'user', 'role'}) do
            box.schema.role.create('r1', {if_not_exists = true})
            print(kind, call, rights[1], rights[2], rights[3], pcall(box.schema[kind][call], kind == 'role' and 'r1' or 'u', unpack(rights)))
        end
    end
end

-- One object for each sequence, which shows what a rollback has left.
local q = box.sequence.q
print(q == box.sequence.q, q == box.sequence[q.id], q.step)
box.begin() q:alter({step = 7}) print(q.step) box.rollback()
print(q.step, box.sequence.q.step, q:next() - q:next())
q:alter({step = 3, max = 100})
print(q.step, q.max, box.sequence.q == q)
q:drop()
print(box.sequence.q, pcall(q.next, q))
local again = box.schema.sequence.create('q')
print(again == q, again.step, box.sequence.q == again)
-- A user in whose name the session acts is not dropped.
box.schema.user.create('acting')
box.schema.user.grant('acting', 'super')
box.session.su('acting')
print(pcall(box.session.su, 'admin', box.schema.user.drop, 'acting'))
print(pcall(box.schema.user.drop, 'acting'))
box.session.su('admin')
print(pcall(box.schema.user.drop, 'acting'))
os.exit(0)
