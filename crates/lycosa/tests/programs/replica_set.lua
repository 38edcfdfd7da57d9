-- An instance of a new replica set: its number, the ports of all, in the order in which it names them. Writes what it has come to.
-- As many programs do, the first makes the user of the others right behind box.cfg, and takes its time.
local fiber = require('fiber')
local own = arg[1]
local masters = {}
for port in arg[2]:gmatch('%d+') do table.insert(masters, 'peer:secret@127.0.0.1:' .. port) end

box.cfg{ listen = arg[3] or own, replication = masters, replication_timeout = 0.2, log_level = 5, log = 'log' }
fiber.sleep(0.5)
box.once('users', function()
    box.schema.user.create('peer', { password = 'secret' })
    -- The others log in meanwhile, and have no right to join yet.
    fiber.sleep(0.5)
    box.schema.user.grant('peer', 'replication')
    box.schema.space.create('notes'):create_index('pk')
end)

local function is_up()
    if box.info.status ~= 'running' or box.info.ro or box.space.notes == nil then return false end
    local followed = 0
    for _, replica in pairs(box.info.replication) do
        if replica.upstream and replica.upstream.status == 'follow' then followed = followed + 1 end
    end
    return followed == #masters - 1
end
while not is_up() do fiber.sleep(0.02) end
box.space.notes:replace{ box.info.id, 'of ' .. box.info.id }
while box.space.notes:len() < #masters do fiber.sleep(0.02) end
local file = require('fio').open('up.new', { 'O_CREAT', 'O_WRONLY' }, 420)
file:write(box.info.cluster.uuid)
file:close()
require('fio').rename('up.new', 'up')
