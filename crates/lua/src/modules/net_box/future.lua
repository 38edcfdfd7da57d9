-- Futures: requests whose replies are asked for later.
local fiber = require('fiber')
local errors = require('lycosa.net_box.errors')

local FOREVER = 500 * 365 * 86400

local future_methods = {}
local future_mt = { __index = future_methods }
local futures = {}

function future_methods.is_ready(future) return future._done end

function future_methods.result(future)
    if not future._done then return nil, errors.new(box.error.PROC_LUA, 'Response is not ready') end
    if future._error then return nil, future._error end
    return future._result
end

function futures.wait_done(future, timeout)
    local deadline = fiber.clock() + timeout
    while not future._done do
        local left = deadline - fiber.clock()
        if left <= 0 then return false end
        future._cond:wait(left)
    end
    return true
end

function future_methods.wait_result(future, timeout)
    if timeout == nil then timeout = FOREVER end
    if type(timeout) ~= 'number' or timeout < 0 then error('Usage: future:wait_result(timeout)', 2) end
    if not futures.wait_done(future, timeout) then return nil, errors.timed_out() end
    return future:result()
end

function future_methods.discard(future)
    if future._done then return end
    future._connection._requests[future._sync] = nil
    future._done, future._error = true, errors.new(box.error.PROC_LUA, 'Response is discarded')
    future._cond:broadcast()
end

-- The values that were pushed, then the result.
function future_methods.pairs(future, timeout)
    if timeout == nil then timeout = FOREVER end
    if type(timeout) ~= 'number' or timeout < 0 then error('Usage: future:pairs(timeout)', 2) end
    local function next_value(_, position)
        if position == box.NULL then return nil end
        position = position + 1
        local deadline = fiber.clock() + timeout
        while true do
            if position <= #future._messages then return position, future._messages[position] end
            if future._done then
                if position > #future._messages + 1 then return nil end
                if future._error then return box.NULL, future._error end
                return position, future._result
            end
            local left = deadline - fiber.clock()
            if left <= 0 then return box.NULL, errors.timed_out() end
            future._cond:wait(left)
        end
    end
    return next_value, nil, 0
end

function futures.finish(future, failure, result)
    if failure then future._error = failure else future._result = result end
    future._done = true
    future._cond:broadcast()
end

-- A future of a request that is about to be sent. `decode` makes the result from the data of the reply.
function futures.new(connection, sync, decode)
    return setmetatable({
        _connection = connection, _sync = sync, _decode = decode, _done = false, _messages = {}, _cond = fiber.cond(),
    }, future_mt)
end

return futures
