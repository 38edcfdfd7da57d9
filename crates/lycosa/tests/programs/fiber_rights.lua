-- Whose rights a fiber has that a client's CALL begins: `fiber_rights.lua`.
local fiber = require('fiber')
box.cfg{log = 'fiber_rights.log', wal_mode = 'none', listen = 'unix/:./rights.sock'}
box.schema.user.create('u', {password = 'p'})
local space = box.schema.space.create('s')
space:create_index('i')

local function seen() return box.session.user(), (pcall(space.len, space)), (pcall(space.replace, space, {box.session.euid()})) end

-- What a function sees itself, and what a fiber sees that it begins, at once and later.
local function both()
    local results = {}
    local function note(...) table.insert(results, table.concat({tostring((...)), tostring(select(3, ...))}, ' ')) end
    note(seen())
    fiber.create(function() note(seen()) end)
    local later = fiber.new(function() note(seen()) end)
    later:set_joinable(true)
    later:join()
    return unpack(results)
end
function _G.plain() return both() end
function _G.trusted() return both() end
box.schema.func.create('plain')
box.schema.func.create('trusted', {setuid = true})
for _, name in ipairs({'plain', 'trusted'}) do box.schema.user.grant('u', 'execute', 'function', name) end
local connection = require('net.box').connect('u:p@unix/:./rights.sock')
print('plain', connection:call('plain'))
print('trusted', connection:call('trusted'))
os.exit(0)
