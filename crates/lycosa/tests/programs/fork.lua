-- A fork of the queue module with a driver of its own, in the folder of the program: it runs as it is, on its first start and on
-- the next one, where its spaces are there already; between box.cfg and `require 'queue'` no client gets the native queue.
local fio = require('fio')
local function write(path, text)
    fio.mktree(fio.dirname(path))
    local file = assert(fio.open(path, { 'O_CREAT', 'O_WRONLY', 'O_TRUNC' }, 420))
    file:write(text)
    file:close()
end
local is_first = arg[1] ~= 'again'
if is_first then
    write('queue/init.lua', "return require('queue.abstract')")
    write('queue/abstract.lua', [[
        local queue = { driver = { mine = require('queue.abstract.driver.mine') } }
        if not box.space._queue then
            box.schema.create_space('_queue'):create_index('tube', { parts = { 1, 'string' } })
            box.space._queue:create_index('tube_id', { parts = { 2, 'unsigned' } })
        end
        function queue.create_tube(name, kind)
            box.space._queue:replace({ name, 0, name, kind, {} })
            return 'forked ' .. queue.driver[kind].name
        end
        return queue
    ]])
    write('queue/abstract/driver/fifo.lua', 'return {}')
    write('queue/abstract/driver/mine.lua', "return { name = 'mine' }")
end

box.cfg({ listen = '127.0.0.1:0', log = 'log' })
box.schema.user.grant('guest', 'read,write,execute', 'universe', nil, { if_not_exists = true })
local client = require('net.box').connect(box.info.listen)
for _, call in ipairs({ 'queue.create_tube', 'queue.tube.mail:put', 'queue.statistics' }) do
    local done, message = pcall(client.call, client, call, { 'mail', 'mine' })
    assert(not done and tostring(message):find(("'%s' is not defined"):format(call), 1, true), message)
end
assert((box.space._queue == nil) == is_first)
-- The native queue has five spaces.
assert(box.space._queue_taken_2 == nil)

queue = require('queue')
assert(client:call('queue.create_tube', { 'mail', 'mine' }) == 'forked mine')
assert(box.space._queue:get('mail')[4] == 'mine' and box.space._queue_taken_2 == nil)
client:close()
local log = io.open('log'):read('*a')
assert(log:find('is a fork of the module, with the driver mine', 1, true), log)
print('done')
os.exit(0)
