-- Tarantool with a queue module: LISTEN DIR WAL_MODE MODULE_DIR
local listen, dir, wal_mode, module_dir = arg[1], arg[2], arg[3], arg[4]
package.path = ('%s/?.lua;%s/?/init.lua;%s'):format(module_dir, module_dir, package.path)
-- The tutorial's code wants a module by which its author reloads code. Nothing is reloaded here.
package.reload = {count = 1}
package.loaded['package.reload'] = package.reload
box.cfg{
    work_dir = dir,
    wal_mode = wal_mode,
    memtx_memory = 8 * 1024 * 1024 * 1024,
    checkpoint_interval = 0,
    -- Ten thousand takes wait in one of the workloads; beyond so many requests Tarantool stops reading.
    net_msg_max = 20000,
}
box.schema.user.grant('guest', 'super', nil, nil, {if_not_exists = true})
queue = require('queue')
box.cfg{listen = listen}
