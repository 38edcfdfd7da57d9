-- The own instance, as if it were remote.
local internal = require('lycosa.box')
local errors = require('lycosa.net_box.errors')
local msgpack = require('msgpack')
local arguments_of = require('lycosa.net_box.arguments')

local own = {
    is_local = true,
    ping = function() return true end,
    close = function() end,
    is_connected = function() return true end,
    wait_connected = function() return true end,
    wait_state = function() return true end,
    reload_schema = function() end,
    timeout = function(self) return self end,
    on_connect = function() end,
    on_disconnect = function() end,
    on_schema_reload = function() end,
    state = 'active',
    host = 'localhost',
}

-- What a remote server would have answered: tuples are tables there, and small numbers are no C data.
local function plain(count, value, ...)
    if count == 0 then return end
    if type(value) == 'cdata' then value = msgpack.decode(msgpack.encode(value)) end
    return value, plain(count - 1, ...)
end

-- A call that fails takes the transaction of its program with it, as there.
local function as_error(done, ...)
    if done then return plain(select('#', ...), ...) end
    if internal.configured() and internal.in_txn() then box.rollback() end
    local message = ...
    if box.error.is(message) then error(message, 0) end
    error(errors.new(box.error.PROC_LUA, tostring(message)), 0)
end

local function check_self(self, name)
    if type(self) == 'table' then return end
    local reason = ('Use remote:%s(...) instead of remote.%s(...):'):format(name, name)
    error(errors.new(box.error.PROC_LUA, reason), 0)
end

function own.call(self, name, arguments)
    check_self(self, 'call')
    arguments = arguments_of(arguments, 'call', 'func_name')
    return as_error(pcall(require('lycosa.program').call, name, unpack(arguments, 1, table.maxn(arguments))))
end

function own.eval(self, text, arguments)
    check_self(self, 'eval')
    arguments = arguments_of(arguments, 'eval', 'expression')
    -- An expression has its value, as in a console.
    local chunk, message = loadstring(text)
    if not chunk then chunk, message = loadstring('return ' .. text) end
    if not chunk then return as_error(false, message) end
    return as_error(pcall(chunk, unpack(arguments, 1, table.maxn(arguments))))
end

setmetatable(own, {
    __index = function(_, name)
        if name == 'space' then return box.space end
        if name == 'schema_version' then return internal.configured() and internal.schema_version() or nil end
        if name == 'uuid' then return box.info.uuid end
    end,
})

return own
