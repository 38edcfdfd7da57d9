-- The queue of a program starts when the program asks for it, not when a client does: it may be about to load another. Client suites of connectors count on the number of a program's first
-- space, and on sizes with a fraction in box.cfg.
box.cfg{ listen = '127.0.0.1:0', memtx_memory = 0.1 * 1024 ^ 3 }
local first = box.schema.space.create('first')
first:create_index('pk')
assert(first.id == 512 and box.space._queue == nil)
box.schema.user.grant('guest', 'read,write,execute,create', 'universe', nil, { if_not_exists = true })

-- A client that calls a name of the queue makes nothing.
local client = require('net.box').connect(box.info.listen)
local done, message = pcall(client.call, client, 'queue.tube.mail:put', { 'a' })
assert(not done and tostring(message):find("'queue.tube.mail:put' is not defined", 1, true), message)
done, message = pcall(client.call, client, 'queue.create_tube', { 'mail', 'fifo' })
assert(not done and tostring(message):find("'queue.create_tube' is not defined", 1, true), message)
assert(box.space._queue == nil)

local queue = require('queue')
assert(queue.state() == 'RUNNING' and box.space._queue.id == 513)
queue.create_tube('mail', 'fifo')
assert(client:call('queue.tube.mail:put', { 'a' })[2] == 'r')
assert(client:call('queue.tube.mail:take', { 0 })[2] == 't')
client:close()
print('done')
os.exit(0)
