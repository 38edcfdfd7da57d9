-- The modules beside `queue` that programs and tests require: states, sessions, versions, times.
local name = ...
local fiber = require('fiber')

local STATE = { READY = 'r', TAKEN = 't', DONE = '-', BURIED = '!', DELAYED = '~' }

local helpers = {}

helpers['queue.abstract.state'] = function() return STATE end
helpers['queue.abstract'] = function() return require('queue') end
helpers['queue.version'] = function() return '1.5.0' end

helpers['queue.abstract.queue_state'] = function()
    local queue = require('queue')
    local module = { states = { INIT = 'i', STARTUP = 's', RUNNING = 'r', ENDING = 'e', WAITING = 'w' } }
    function module.show() return queue.state() end
    function module.get() return module.states[queue.state()] end
    function module.init() end
    function module.poll(state, attempts)
        for attempt = 1, attempts or math.huge do
            if module.get() == state then return true end
            if attempt == attempts then break end
            fiber.sleep(0.01)
        end
        return false
    end
    return module
end

helpers['queue.abstract.queue_session'] = function()
    local queue = require('queue')
    local module = { cfg = queue.cfg }
    function module.identify(_, uuid)
        if uuid == nil then return queue.identify() end
        return queue.identify(uuid)
    end
    function module.disconnect() queue._on_consumer_disconnect() end
    function module.exist_shared(uuid) return box.space._queue_shared_sessions:get(uuid) ~= nil end
    function module.on_session_remove(callback)
        if type(callback) ~= 'function' then
            error('The "on_session_remove" argument type must be "function"', 2)
        end
    end
    -- Gives the tasks of a session back, whoever owns it.
    function module._on_session_remove(uuid)
        if queue.state() ~= 'RUNNING' then return end
        require('lycosa.box').release_session(uuid)
    end
    function module.grant() end
    function module.start() end
    function module.stop() end
    return setmetatable(module, {
        __index = function(_, key)
            if key ~= 'expiration_fiber' then return nil end
            return { status = function() return queue.state() == 'RUNNING' and 'suspended' or 'dead' end }
        end,
    })
end

helpers['queue.util'] = function()
    local module = { MAX_TIMEOUT = 100 * 365 * 86400, TIMEOUT_INFINITY = 18446744073709551615ULL }
    -- Seconds as microseconds; without an argument the present moment.
    function module.time(seconds)
        if seconds == nil then return 0ULL + fiber.time64() end
        return 0ULL + (seconds < 0 and 0 or seconds * 1000000)
    end
    -- The moment so many seconds from now.
    function module.event_time(seconds)
        if seconds ~= nil and seconds > module.MAX_TIMEOUT then return module.TIMEOUT_INFINITY end
        if seconds == nil or seconds < 0 then seconds = 0 end
        return 0ULL + seconds * 1000000 + fiber.time64()
    end
    function module.atomic(body, ...)
        if box.is_in_txn() then return body(...) end
        return box.atomic(body, ...)
    end
    return module
end

helpers['queue.compat'] = function()
    local module = {}
    function module.split_version(text)
        local parts = {}
        for part in text:gmatch('[^.]+') do parts[#parts + 1] = part end
        if parts[3] then
            local patch, build = parts[3]:match('^([^-]+)%-?([^-]*)')
            parts[3] = patch
            if build ~= '' then parts[4] = build end
        end
        return parts
    end
    function module.check_version(expected, version)
        version = version or _TARANTOOL
        if type(version) == 'string' then version = module.split_version(version) end
        for i, wanted in ipairs(expected) do
            local found = tonumber(version[i])
            if found == nil then break end
            if found ~= tonumber(wanted) then return found > tonumber(wanted) end
        end
        return true
    end
    local function since(wanted, new, old)
        return function(version) return module.check_version(wanted, version) and new or old end
    end
    module.num_type = since({ 1, 7, 2 }, 'unsigned', 'num')
    module.str_type = since({ 1, 7, 2 }, 'string', 'str')
    module.vinyl_name = since({ 1, 7 }, 'vinyl', nil)
    module.snapdir_optname = since({ 1, 7 }, 'memtx_dir', 'snap_dir')
    module.logger_optname = since({ 1, 7 }, 'log', 'logger')
    function module.pack_args(...) return { ... } end
    function module.replication_id() return box.info.id end
    function module.waiter()
        local waiter = { cond = fiber.cond() }
        function waiter:wait(timeout) self.cond:wait(timeout) end
        function waiter:signal() self.cond:signal() end
        function waiter:free() end
        return waiter
    end
    return module
end

for _, kind in ipairs({ 'fifo', 'fifottl', 'limfifottl', 'utube', 'utubettl' }) do
    helpers['queue.abstract.driver.' .. kind] = function() return require('lycosa.queue.driver')[kind] end
end

return helpers
