-- A master and a replica, which this program starts as its child: masters change, sessions live on, idle ones end.
local fiber = require('fiber')
local net_box = require('net.box')
local queue = require('queue')
local uuid = require('uuid')
rawset(_G, 'queue', queue)

local own, other = '127.0.0.1:' .. arg[1], '127.0.0.1:' .. arg[2]
local function uri(address) return 'replicator:secret@' .. address end

-- The machine may be busy: everything is waited for, and long.
local function await(what, holds)
    for _ = 1, 3000 do
        if holds() then return print('ok ' .. what) end
        fiber.sleep(0.02)
    end
    error(what .. ' did not happen')
end
local function refused(options)
    local done, message = pcall(box.cfg, options)
    print(done, tostring(message))
end

box.cfg({ listen = own, replication = { uri(own) }, log_level = 2 })
box.schema.user.grant('guest', 'read,write,execute,create,drop', 'universe')
box.schema.user.create('replicator', { password = 'secret' })
box.schema.user.grant('replicator', 'replication')

local folder = require('fio').tempdir()
local replica = require('popen').new({ arg[-1], '-e', ([[
    box.cfg({ listen = '%s', read_only = true, replication = '%s', work_dir = '%s', wal_dir = '%s', memtx_dir = '%s', log_level = 2 })
]]):format(other, uri(own), folder, folder, folder) }, { stdin = 'devnull' })

local function run()
    await('the replica follows', function()
        local downstream = (box.info.replication[2] or {}).downstream
        return downstream ~= nil and downstream.status == 'follow'
    end)
    box.cfg({ replication = { uri(own), uri(other) } })
    print('upstream at once', box.info.replication[2].upstream ~= nil)
    refused({ replication_timeout = 0 })
    refused({ replication_timeout = 'x' })
    refused({ replication_connect_quorum = 40 })
    refused({ replication_anon = true })
    box.cfg({ replication_anon = false })
    refused({ replication_synchro_quorum = 32 })
    refused({ replication_synchro_timeout = 0 })
    box.cfg({ replication_synchro_quorum = 2, replication_synchro_timeout = 3 })
    print('synchro', box.cfg.replication_synchro_quorum, box.cfg.replication_synchro_timeout)
    print('by default', box.cfg.replicas_before_reply, box.cfg.replicas_missing, box.cfg.replication_anon)
    refused({ replication_sync_timeout = -1 })
    refused({ read_only = true, replicas_missing = 'never' })
    print('still writable', box.info.ro)
    box.cfg({ replication_timeout = 0.5, replication_sync_timeout = 5, replicas_before_reply = 1 })
    print('now', box.cfg.replicas_before_reply, box.cfg.replication_timeout)

    local conn = net_box.connect(other)
    conn:eval('rawset(_G, "queue", require("queue"))')
    print(conn:call('queue.state'), queue.state())
    conn:call('queue.cfg', { { ttr = 600, in_replicaset = true } })
    queue.cfg({ ttr = 600, in_replicaset = true })
    queue.create_tube('jobs', 'fifo')

    local function to_replica()
        box.cfg({ read_only = true })
        await('the master waits', function() return queue.state() == 'WAITING' end)
        local lsn = box.info.vclock[1]
        await('the replica has all', function() return conn:call('box.info').vclock[1] >= lsn end)
        conn:eval('box.cfg({ read_only = false })')
        await('the replica is the master', function() return conn:call('queue.state') == 'RUNNING' end)
    end
    local function back()
        conn:eval('box.cfg({ read_only = true })')
        await('the replica waits', function() return conn:call('queue.state') == 'WAITING' end)
        local lsn = conn:call('box.info').vclock[2]
        await('the master has all', function() return box.info.vclock[2] >= lsn end)
        box.cfg({ read_only = false })
        await('the master is back', function() return queue.state() == 'RUNNING' end)
    end

    queue.tube.jobs:put('first')
    local client = net_box.connect(own)
    local session = client:call('queue.identify')
    local task = client:call('queue.tube.jobs:take', { 0 })
    to_replica()
    conn:call('queue.identify', { session })
    print('acknowledged there', conn:call('queue.tube.jobs:ack', { task[1] })[3])
    client:close()
    local short = { ttr = 0.2, in_replicaset = true }
    queue.cfg(short)
    conn:call('queue.cfg', { short })
    back()
    -- The session owns nothing any more. A connection to the other instance does not keep it.
    await('the idle session ends', function() return box.space._queue_shared_sessions:len() == 0 end)
    to_replica()
    await('nor is it there', function() return conn:eval('return box.space._queue_shared_sessions:len()') == 0 end)
    back()
    print('tasks left', queue.statistics('jobs').tasks.total)
end
local done, message = pcall(run)
replica:kill()
replica:wait()
print(done, message)
os.exit(done and 0 or 1)
