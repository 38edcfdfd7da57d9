-- The article's two sessions with capped-expirationd: a pass over the primary index, and an index over the lifetime.
fiber = require('fiber')
net_box = require('net.box')
local port = arg[1]
box.cfg{ listen = '127.0.0.1:' .. port, log_level = 2 }
box.schema.func.create('libcapped-expirationd.start', { language = 'C' })
box.schema.user.grant('guest', 'execute', 'function', 'libcapped-expirationd.start')
box.schema.func.create('libcapped-expirationd.kill', { language = 'C' })
box.schema.user.grant('guest', 'execute', 'function', 'libcapped-expirationd.kill')
box.schema.space.create('tester')
box.space.tester:create_index('primary', { unique = true, parts = { 1, 'unsigned' } })
capped_connection = net_box:new('127.0.0.1:' .. port)

local function wait(what, is_true)
    for _ = 1, 3000 do
        if is_true() then return end
        fiber.sleep(0.01)
    end
    error('waited in vain: ' .. what, 2)
end

local function insert(first, lifetime)
    for i = first, first + 2 do
        box.space.tester:insert{ i, ('user%d@tarantool.io'):format(i), math.floor(fiber.time()) + lifetime }
    end
end

local function ids()
    local found = {}
    for _, tuple in ipairs(box.space.tester.index.primary:select()) do found[#found + 1] = tuple[1] end
    return table.concat(found, ' ')
end

-- In one transaction, so that nothing expires between the inserts and the look at them, however slow the machine is.
local function insert_and_print(...)
    box.begin()
    for _, batch in ipairs({ ... }) do insert(unpack(batch)) end
    local found = ids()
    box.commit()
    print(found)
end

-- With scan_time 1 instead of 3600, so that nobody waits.
capped_connection:call('libcapped-expirationd.start',
    { 'non-indexed', box.space.tester.id, box.space.tester.index.primary, box.space.tester.index.primary, 3, 1024, 1 })
insert_and_print({ 0, 1 })
wait('all are gone', function() return ids() == '' end)
capped_connection:call('libcapped-expirationd.kill', { 'non-indexed' })

box.space.tester:create_index('exp', { unique = false, parts = { 3, 'unsigned' } })
capped_connection:call('libcapped-expirationd.start',
    { 'indexed', box.space.tester.id, box.space.tester.index.primary, box.space.tester.index.exp, 3, 1024, 3600 })
insert_and_print({ 0, 1 }, { 3, 3600 })
wait('three are gone', function() return ids() == '3 4 5' end)
print(pcall(capped_connection.call, capped_connection, 'libcapped-expirationd.start', { 'indexed' }))
capped_connection:call('libcapped-expirationd.kill', { 'indexed' })
insert(6, 0)
fiber.sleep(0.1)
print(ids())
os.exit(0)
