-- With wal_mode = 'none' no statement gives up the processor: whatever a program defines after `box.cfg{listen = …}` is
-- there before another fiber, or a client, gets its turn.
local fiber = require('fiber')
local net_box = require('net.box')

box.cfg{wal_mode = 'none', listen = '127.0.0.1:0', log = 'log', log_level = 3}

local turns = 0
local other = fiber.new(function()
    while true do
        turns = turns + 1
        fiber.yield()
    end
end)
local caller = fiber.new(function()
    local connection = net_box.connect(box.info.listen)
    print('first call', pcall(connection.call, connection, 'defined_last'))
    connection:close()
end)
caller:set_joinable(true)

box.schema.user.grant('guest', 'read,write,execute', 'universe', nil, {if_not_exists = true})
box.schema.user.create('worker', {password = 'secret'})
box.schema.func.create('defined_last', {setuid = true})
box.once('definitions', function()
    local space = box.schema.create_space('jobs', {format = {{'id', 'unsigned'}, {'state', 'string'}}})
    space:create_index('primary')
    space:create_index('state', {parts = {2, 'string'}, unique = false})
end)
print('defined', turns)
for id = 1, 1000 do
    box.space.jobs:insert{id, 'ready'}
end
print('inserted', turns)
box.begin()
box.space.jobs:update(1, {{'=', 2, 'done'}})
box.commit()
box.atomic(function() box.space.jobs:delete(2) end)
print('in transactions', turns)
box.execute('CREATE TABLE readings (id INTEGER PRIMARY KEY, name TEXT)')
box.space.jobs:format{{'id', 'unsigned'}, {'state', 'string'}, {'note', 'string', is_nullable = true}}
box.space.jobs:truncate()
print('changed', turns)

function defined_last()
    return 'answer'
end
caller:join()
print('others run', turns > 0)
other:cancel()
os.exit(0)
