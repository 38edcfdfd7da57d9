-- Named requests, for programs that call `connection:_request` or `connection._transport.perform_request` in place of methods.
-- The names and arguments are Tarantool's. Absent: states and callbacks of the transport.
local keys = require('lycosa.net_box.keys')
local native = require('lycosa.netbox')
local replies = require('lycosa.net_box.reply')

local function no_result() return nil end
local function first_tuple() return replies.first_tuple_of(0) end
local function all_tuples() return replies.tuples_of(0) end
local function one_tuple() return replies.one_tuple_of(0) end
local function values() return replies.all_values end

local function of_select(decode)
    return function(space, index, iterator, offset, limit, key)
        return decode(), keys.SELECT, keys.SPACE_ID, space, keys.INDEX_ID, index, keys.LIMIT, limit, keys.OFFSET, offset,
            keys.ITERATOR, iterator, keys.KEY, native.key(key)
    end
end

local function of_call(kind, decode)
    return function(name, arguments)
        return decode(), kind, keys.FUNCTION_NAME, name, keys.TUPLE, arguments or {}
    end
end

local function of_tuple(kind)
    return function(space, tuple) return first_tuple(), kind, keys.SPACE_ID, space, keys.TUPLE, tuple end
end

-- Each function returns what `request` of a connection takes: the decoder of the reply, the type, and the body's keys and values.
local REQUESTS = {
    ping = function() return no_result, keys.PING end,
    call_16 = of_call(keys.CALL_16, all_tuples),
    call_17 = of_call(keys.CALL, values),
    count = of_call(keys.CALL, values),
    eval = function(text, arguments)
        return replies.all_values, keys.EVAL, keys.EXPRESSION, text, keys.TUPLE, arguments or {}
    end,
    insert = of_tuple(keys.INSERT),
    replace = of_tuple(keys.REPLACE),
    delete = function(space, index, key)
        return first_tuple(), keys.DELETE, keys.SPACE_ID, space, keys.INDEX_ID, index, keys.KEY, native.key(key)
    end,
    update = function(space, index, key, operations)
        return first_tuple(), keys.UPDATE, keys.SPACE_ID, space, keys.INDEX_ID, index, keys.INDEX_BASE, 1,
            keys.KEY, native.key(key), keys.TUPLE, operations
    end,
    upsert = function(space, tuple, operations)
        return no_result, keys.UPSERT, keys.SPACE_ID, space, keys.INDEX_BASE, 1, keys.TUPLE, tuple,
            keys.OPERATIONS, operations
    end,
    select = of_select(all_tuples),
    get = of_select(one_tuple),
    min = of_select(first_tuple),
    max = of_select(first_tuple),
    execute = function(query, parameters)
        local key = type(query) == 'number' and keys.STATEMENT_ID or keys.SQL_TEXT
        return replies.sql_result, keys.EXECUTE, key, query, keys.SQL_BIND, parameters or {}, keys.OPTIONS, {}
    end,
    prepare = function(query) return replies.sql_result, keys.PREPARE, keys.SQL_TEXT, query end,
    unprepare = function(id) return no_result, keys.PREPARE, keys.STATEMENT_ID, id end,
    -- Bytes that are sent as they are.
    inject = function(bytes) return no_result, 'inject', bytes end,
}

local transport = {}

-- The module `net.box` sets `transport.request`, which sends.

--- Sends a named request and returns its result. The third argument is ignored: Tarantool passes the format of the space.
function transport.perform(connection, method, options, _, ...)
    local make = REQUESTS[method]
    if not make then error(('net.box has no request "%s"'):format(tostring(method)), 2) end
    return transport.request(connection, options, make(...))
end

-- The result or nil, and the error.
local function caught(done, ...)
    if done then return ... end
    return nil, (...)
end

--- The transport of a connection.
function transport.new(connection)
    return {
        perform_request = function(timeout, buffer, skip_header, method, on_push, on_push_ctx, ...)
            local options = {
                timeout = timeout, buffer = buffer, skip_header = skip_header, on_push = on_push, on_push_ctx = on_push_ctx,
            }
            return caught(pcall(transport.perform, connection, method, options, ...))
        end,
        perform_async_request = function(buffer, skip_header, method, _, _, ...)
            local options = { is_async = true, buffer = buffer, skip_header = skip_header }
            return caught(pcall(transport.perform, connection, method, options, ...))
        end,
        wait_state = function(state, timeout) return connection:wait_state(state, timeout) end,
    }
end

return transport
