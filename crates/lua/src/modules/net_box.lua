-- net.box: connections to servers. A fiber for each connection reads replies; whoever asks writes its request itself.
local errno = require('errno')
local fiber = require('fiber')
local ffi = require('ffi')
local log = require('log')
local socket = require('socket')
local uri = require('uri')
local internal = require('lycosa.box')
local native = require('lycosa.netbox')
local stream = require('lycosa.socket')

local FOREVER = 500 * 365 * 86400
local CONNECT_TIMEOUT = 10
local MAX_LIMIT = 0xFFFFFFFF

-- Types of requests and keys of their bodies.
local SELECT, INSERT, REPLACE, UPDATE, DELETE, CALL_16, AUTH, EVAL, UPSERT, CALL, EXECUTE, PREPARE, PING =
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 64
local SPACE_ID, INDEX_ID, LIMIT, OFFSET, ITERATOR, INDEX_BASE = 0x10, 0x11, 0x12, 0x13, 0x14, 0x15
local KEY, TUPLE, FUNCTION_NAME, USER_NAME, EXPRESSION, OPERATIONS = 0x20, 0x21, 0x22, 0x23, 0x27, 0x28
local OPTIONS, DATA, METADATA, BIND_METADATA, BIND_COUNT = 0x2b, 0x30, 0x32, 0x33, 0x34
local SQL_TEXT, SQL_BIND, SQL_INFO, STATEMENT_ID = 0x40, 0x41, 0x42, 0x43
local VSPACE, VINDEX = 281, 289

local function new_error(code, message, kind)
    return internal.new_error(kind or 'ClientError', code, message)
end

local function no_connection(message) return new_error(box.error.NO_CONNECTION, message) end
local function timed_out() return new_error(box.error.TIMEOUT, 'Timeout exceeded') end

-- Names of the fields of remote tuples. Equal lists share a number, above those of the own spaces.
local FIRST_NUMBER = 0x80000000
local names_by_number, numbers_by_names, next_number = {}, {}, FIRST_NUMBER
local own_names = internal.names_of

internal.names_of = function(space)
    if space >= FIRST_NUMBER then return names_by_number[space] end
    return own_names(space)
end

local function number_of(format)
    local names, list = {}, {}
    for position, field in ipairs(format) do
        local name = field.name or field[1]
        if type(name) == 'string' then
            names[name] = position
            list[#list + 1] = ('%d:%s'):format(position, name)
        end
    end
    if #list == 0 then return 0 end
    local text = table.concat(list, '\0')
    if not numbers_by_names[text] then
        numbers_by_names[text], names_by_number[next_number] = next_number, names
        next_number = next_number + 1
    end
    return numbers_by_names[text]
end

-- Futures: requests whose replies are asked for later.

local future_methods = {}
local future_mt = { __index = future_methods }

function future_methods.is_ready(future) return future._done end

function future_methods.result(future)
    if not future._done then return nil, new_error(box.error.PROC_LUA, 'Response is not ready') end
    if future._error then return nil, future._error end
    return future._result
end

local function wait_done(future, timeout)
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
    if not wait_done(future, timeout) then return nil, timed_out() end
    return future:result()
end

function future_methods.discard(future)
    if future._done then return end
    future._connection._requests[future._sync] = nil
    future._done, future._error = true, new_error(box.error.PROC_LUA, 'Response is discarded')
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
            if left <= 0 then return box.NULL, timed_out() end
            future._cond:wait(left)
        end
    end
    return next_value, nil, 0
end

local function finish(future, failure, result)
    if failure then future._error = failure else future._result = result end
    future._done = true
    future._cond:broadcast()
end

-- What a reply's data become.

local function all_values(data) return native.values(data) end
local function nothing() return true end
local function tuples_of(number) return function(data) return (native.tuples(data, number)) end end
local function one_tuple_of(number)
    return function(data)
        local tuples, count = native.tuples(data, number)
        if count > 1 then error(new_error(box.error.MORE_THAN_ONE_TUPLE, 'Get() doesn\'t support partial keys and non-unique indexes'), 0) end
        return tuples[1]
    end
end
local function first_tuple_of(number)
    return function(data) return native.tuples(data, number)[1] end
end

local function columns(list)
    local shown = {}
    for i, column in ipairs(list or {}) do shown[i] = { name = column[0], type = column[1] } end
    return shown
end

local function sql_result(_, body)
    local fields = native.values(body)
    if fields[SQL_INFO] then
        return { row_count = fields[SQL_INFO][0], autoincrement_ids = fields[SQL_INFO][1] }
    end
    if fields[STATEMENT_ID] then
        return {
            stmt_id = fields[STATEMENT_ID], param_count = fields[BIND_COUNT], params = columns(fields[BIND_METADATA]),
            metadata = fields[METADATA] and columns(fields[METADATA]),
        }
    end
    return { metadata = columns(fields[METADATA]), rows = fields[DATA] }
end

-- A connection's life.

local methods = {}

local function set_state(connection, state, message)
    connection.state, connection.error = state, message
    connection._is_connected = state == 'active' or state == 'fetch_schema' or nil
    connection._changed:broadcast()
end

local function run_triggers(connection, list)
    for i = #list, 1, -1 do
        local done, message = pcall(list[i], connection)
        if not done then log.error('%s', tostring(message)) end
    end
end

-- Ends what waits for replies.
local function fail_requests(connection, failure)
    local requests = connection._requests
    connection._requests = {}
    for _, future in pairs(requests) do finish(future, failure) end
end

-- Sends what the system did not take at once, in order.
local function send_rest(connection, client)
    fiber.name('net.box send')
    while #connection._unsent > 0 do
        local text = table.concat(connection._unsent)
        connection._unsent = {}
        if not client:write(text) then break end
    end
    connection._unsent = nil
end

local function transmit(connection, bytes)
    local client = connection._socket
    if connection._unsent then
        table.insert(connection._unsent, bytes)
        return
    end
    local written, number = stream.write(client._fd, bytes, 0)
    if written == #bytes then return end
    if written == nil and number ~= errno.EAGAIN and number ~= errno.EWOULDBLOCK then
        -- The reader finds the end of the connection and tells whoever waits.
        client:shutdown()
        return
    end
    connection._unsent = { bytes:sub((written or 0) + 1) }
    fiber.create(send_rest, connection, client)
end

-- Sends a request; its future.
local function start(connection, decode, kind, ...)
    local sync = connection._next_sync
    connection._next_sync = sync + 1
    local bytes = native.request(kind, sync, ...)
    local future = setmetatable({
        _connection = connection, _sync = sync, _decode = decode, _done = false, _messages = {}, _cond = fiber.cond(),
    }, future_mt)
    connection._requests[sync] = future
    transmit(connection, bytes)
    return future
end

local function decoded(future, data, body)
    local buffer = future._buffer
    if not buffer then return future._decode(data, body) end
    if not future._skip_header then data = native.raw(data) end
    ffi.copy(buffer:alloc(#data), data, #data)
    return #data
end

-- Hands the replies that have come to those who wait.
local function dispatch(connection)
    while true do
        local sync, version, kind, one, two = native.reply(connection._input)
        if not sync then return end
        local future = connection._requests[sync]
        if future and kind == 'push' then
            local message = native.values(one)[1]
            if future._buffer then
                message = decoded(future, one)
            end
            if future._on_push then
                local done, failure = pcall(future._on_push, future._on_push_ctx, message)
                if not done then log.error('%s', tostring(failure)) end
            else
                table.insert(future._messages, message)
            end
            future._cond:broadcast()
        elseif future then
            connection._requests[sync] = nil
            if kind == 'error' then
                finish(future, one)
            else
                local done, result = pcall(decoded, future, one, two)
                if done then finish(future, nil, result) else finish(future, result) end
            end
        end
        if kind ~= 'push' and version > 0 then connection._seen_version = version end
    end
end

-- Reads until the condition holds; the text of the failure.
local function read_until(connection, is_enough, deadline)
    while not is_enough() do
        local fd = connection._socket._fd
        if not fd then return 'Connection closed' end
        local count, number = stream.fill(connection._input, fd)
        if count == 0 then return 'Peer closed' end
        if count == nil and number ~= errno.EAGAIN and number ~= errno.EINTR then return errno.strerror(number) end
        if count == nil then
            local left = deadline - fiber.clock()
            if left <= 0 then return errno.strerror(errno.ETIMEDOUT) end
            stream.wait(fd, 1, left)
        end
    end
end

local function wait_reply(connection, future, deadline)
    local failure
    local function is_answered()
        local done, message = pcall(dispatch, connection)
        if not done then failure = tostring(message) end
        return failure or future._done
    end
    return read_until(connection, is_answered, deadline) or failure
end

-- The schema as space objects.

local space_mt, index_mt

local function read_parts(list)
    local parts = {}
    for i, part in ipairs(list) do
        parts[i] = {
            fieldno = (part.field or part[1]) + 1,
            type = part.type or part[2],
            is_nullable = part.is_nullable or false,
            collation = part.collation,
            path = part.path,
        }
    end
    return parts
end

local function install_schema(connection, spaces, indexes)
    local known, by_key = connection._spaces, {}
    connection._spaces = {}
    for _, row in ipairs(spaces) do
        local id, name, format = row[1], row[3], row[7] or {}
        local space = known[id] or setmetatable({ connection = connection }, space_mt)
        space.id, space.name, space.engine, space.field_count = id, name, row[4], row[5]
        space.enabled, space.index, space._format = true, {}, format
        space.temporary = (row[6] or {}).temporary or false
        space.is_sync = (row[6] or {}).is_sync or false
        space._number = number_of(format)
        connection._spaces[id], by_key[id], by_key[name] = space, space, space
    end
    for _, row in ipairs(indexes) do
        local space = connection._spaces[row[1]]
        if space then
            local options = row[5]
            local index = setmetatable({
                space = space, id = row[2], name = row[3], type = row[4]:upper(), parts = read_parts(row[6]),
                unique = type(options) == 'table' and options.unique or options == 1 or false,
            }, index_mt)
            space.index[index.id], space.index[index.name] = index, index
        end
    end
    for key in pairs(connection.space) do connection.space[key] = nil end
    for key, space in pairs(by_key) do connection.space[key] = space end
end

local function ask_schema(connection)
    local function all_of(space)
        return start(connection, all_values, SELECT, SPACE_ID, space, INDEX_ID, 0, LIMIT, MAX_LIMIT, OFFSET, 0,
            ITERATOR, 2, KEY, {})
    end
    return all_of(VSPACE), all_of(VINDEX)
end

-- Takes the answers of `ask_schema`. Whether the schema is there now.
local function take_schema(connection, spaces, indexes)
    local failure = spaces._error or indexes._error
    if failure then
        -- A user without rights on the views has no spaces here, and may call functions all the same.
        if failure.code ~= box.error.ACCESS_DENIED and failure.code ~= box.error.NO_SUCH_SPACE then
            return tostring(failure)
        end
        install_schema(connection, {}, {})
    else
        install_schema(connection, spaces._result, indexes._result)
    end
    connection.schema_version = connection._seen_version
end

local function reload_schema(connection)
    if connection._reloading then return end
    connection._reloading = true
    local spaces, indexes = ask_schema(connection)
    fiber.create(function()
        fiber.name('net.box schema')
        wait_done(spaces, FOREVER)
        wait_done(indexes, FOREVER)
        connection._reloading = false
        if connection.state ~= 'active' then return end
        take_schema(connection, spaces, indexes)
        connection._changed:broadcast()
        run_triggers(connection, connection._on_schema_reload)
    end)
end

-- Connects and serves replies until the end. The text of the failure, and whether trying again makes no sense.
local function serve(connection)
    local options = connection.opts
    local deadline = fiber.clock() + (options.connect_timeout or CONNECT_TIMEOUT)
    local client = socket.tcp_connect(connection.host, connection.port, options.connect_timeout or CONNECT_TIMEOUT)
    if not client then return errno.strerror() end
    if connection._closed then
        client:close()
        return 'Connection closed'
    end
    connection._socket, connection._input, connection._unsent = client, stream.input(), nil
    if connection.host ~= 'unix/' then client:setsockopt('tcp', 'TCP_NODELAY', true) end
    local function greeted() return stream.held(connection._input) >= 128 end
    local failure = read_until(connection, greeted, deadline)
    if failure then return failure end
    local version, packed, uuid, salt = native.greeting(stream.take(connection._input, 128))
    if not version then return packed, true end
    connection.protocol, connection.peer_version_id, connection.peer_uuid = 'Binary', packed, uuid
    if options.user and not (options.user == 'guest' and not connection._password) then
        set_state(connection, 'auth')
        local reply = start(connection, nothing, AUTH, USER_NAME, options.user,
            TUPLE, { 'chap-sha1', native.scramble(connection._password or '', salt) })
        failure = wait_reply(connection, reply, deadline)
        if failure then return failure end
        if reply._error then return tostring(reply._error), true end
    end
    set_state(connection, 'fetch_schema')
    local spaces, indexes = ask_schema(connection)
    failure = wait_reply(connection, indexes, deadline)
    if failure then return failure end
    failure = take_schema(connection, spaces, indexes)
    if failure then return failure, true end
    set_state(connection, 'active')
    connection._was_active = true
    run_triggers(connection, connection._on_connect)
    run_triggers(connection, connection._on_schema_reload)
    return read_until(connection, function()
        local done, message = pcall(dispatch, connection)
        if not done then
            connection._protocol_error = tostring(message)
            return true
        end
        if connection._seen_version ~= connection.schema_version then reload_schema(connection) end
        return connection._closed
    end, math.huge) or connection._protocol_error or 'Connection closed'
end

local function disconnected(connection)
    if connection._socket and connection._socket._fd then connection._socket:close() end
    if connection._was_active then
        connection._was_active = false
        run_triggers(connection, connection._on_disconnect)
    end
end

local function run(connection)
    fiber.name(('%s:%s (net.box)'):format(connection.host, connection.port), { truncate = true })
    while not connection._closed do
        local done, failure, is_final = pcall(serve, connection)
        if not done then failure, is_final = tostring(failure), true end
        if connection._closed then break end
        local reconnect = connection.opts.reconnect_after
        connection._failure = no_connection(failure)
        log.warn('%s:%s: %s', connection.host, connection.port, failure)
        set_state(connection, reconnect and not is_final and 'error_reconnect' or 'error', failure)
        fail_requests(connection, connection._failure)
        disconnected(connection)
        if not reconnect or is_final then return end
        connection._retry:wait(reconnect)
        if not connection._closed then set_state(connection, 'initial', failure) end
    end
end

function methods.close(connection)
    if connection._closed then return end
    connection._closed = true
    connection._failure = no_connection('Connection closed')
    set_state(connection, 'closed', 'Connection closed')
    fail_requests(connection, connection._failure)
    disconnected(connection)
    connection._retry:broadcast()
end

local ENDS = { error = true, closed = true }

-- Waits for a state, or a set of them; false when the time is over or the state cannot come.
function methods.wait_state(connection, states, timeout)
    local deadline = fiber.clock() + (timeout or FOREVER)
    local function is_reached()
        return states == connection.state or (type(states) == 'table' and states[connection.state])
    end
    while not is_reached() do
        local left = deadline - fiber.clock()
        if left <= 0 or ENDS[connection.state] then return false end
        connection._changed:wait(left)
    end
    return true
end

function methods.wait_connected(connection, timeout)
    return connection:wait_state({ active = true }, timeout)
end

function methods.is_connected(connection)
    return connection.state == 'active' or connection.state == 'fetch_schema'
end

-- The requests.

local function check_connection(connection, name)
    if type(connection) ~= 'table' or rawget(connection, '_requests') == nil then
        error(('Use remote:%s(...) instead of remote.%s(...):'):format(name, name), 3)
    end
end

local REQUEST_OPTIONS = { timeout = 'number', is_async = 'boolean', on_push = 'function' }

-- Sends a request and waits for it as the options say: its result, or its future.
local function request(connection, options, decode, kind, ...)
    local timeout
    if type(options) == 'table' then
        for name, wanted in pairs(REQUEST_OPTIONS) do
            if options[name] ~= nil and type(options[name]) ~= wanted then
                error(new_error(box.error.ILLEGAL_PARAMS,
                    ("Illegal parameters, %s should be a %s"):format(name, wanted)), 0)
            end
        end
        if options.is_async and options.on_push then
            error('To handle pushes in an async request use future:pairs()', 0)
        end
        timeout = options.timeout
    else
        options = {}
    end
    local id = fiber.id()
    local limit = connection._limits[id]
    if limit then
        connection._limits[id] = nil
        timeout = timeout or limit - fiber.clock()
    end
    if not connection:is_connected() then
        error(connection._failure
            or no_connection(('Connection is not established, state is "%s"'):format(connection.state)), 0)
    end
    local future = start(connection, decode, kind, ...)
    future._buffer, future._skip_header = options.buffer, options.skip_header
    future._on_push, future._on_push_ctx = options.on_push, options.on_push_ctx
    if options.is_async then return future end
    if not wait_done(future, timeout or FOREVER) then
        connection._requests[future._sync] = nil
        error(timed_out(), 0)
    end
    if future._error then error(future._error, 0) end
    return future._result
end

-- A list of values as results; a buffer's count and a future are results themselves.
local function results(options, result)
    if type(options) == 'table' and (options.is_async or options.buffer) then return result end
    return unpack(result)
end

local function check_arguments(arguments, name, usage)
    if arguments ~= nil and type(arguments) ~= 'table' and type(arguments) ~= 'cdata' then
        error(('Use remote:%s(%s, {arg1, arg2, ...}, opts) instead of remote:%s(%s, arg1, arg2, ...)'):format(
            name, usage, name, usage), 3)
    end
    return arguments or {}
end

function methods.call(connection, name, arguments, options)
    check_connection(connection, 'call')
    arguments = check_arguments(arguments, 'call', 'func_name')
    return results(options,
        request(connection, options, all_values, CALL, FUNCTION_NAME, tostring(name), TUPLE, arguments))
end

function methods.call_16(connection, name, ...)
    check_connection(connection, 'call')
    return request(connection, nil, tuples_of(0), CALL_16, FUNCTION_NAME, tostring(name), TUPLE, { ... })
end

function methods.eval(connection, text, arguments, options)
    check_connection(connection, 'eval')
    arguments = check_arguments(arguments, 'eval', 'expression')
    return results(options,
        request(connection, options, all_values, EVAL, EXPRESSION, tostring(text), TUPLE, arguments))
end

function methods.eval_16(connection, text, ...)
    return results(nil, request(connection, nil, all_values, EVAL, EXPRESSION, text, TUPLE, { ... }))
end

function methods.execute(connection, query, parameters, sql_options, options)
    check_connection(connection, 'execute')
    if sql_options ~= nil then
        error(new_error(box.error.UNSUPPORTED, 'execute does not support options'), 0)
    end
    local key = type(query) == 'number' and STATEMENT_ID or SQL_TEXT
    return request(connection, options, sql_result, EXECUTE, key, query, SQL_BIND, parameters or {}, OPTIONS, {})
end

function methods.prepare(connection, query, _, _, options)
    check_connection(connection, 'prepare')
    return request(connection, options, sql_result, PREPARE, SQL_TEXT, query)
end

function methods.unprepare(connection, id, _, _, options)
    check_connection(connection, 'unprepare')
    return request(connection, options, sql_result, PREPARE, STATEMENT_ID, id)
end

function methods.ping(connection, options)
    check_connection(connection, 'ping')
    if not connection:is_connected() then return false end
    local done, result = pcall(request, connection, options, nothing, PING)
    return done and result or false
end

function methods.reload_schema(connection)
    check_connection(connection, 'reload_schema')
    local spaces, indexes = ask_schema(connection)
    wait_done(spaces, FOREVER)
    wait_done(indexes, FOREVER)
    take_schema(connection, spaces, indexes)
end

local has_warned = false
function methods.timeout(connection, timeout)
    check_connection(connection, 'timeout')
    if not has_warned then
        has_warned = true
        log.warn('netbox:timeout(timeout) is deprecated since 1.7.4, please use space:<request>(..., {timeout = t}) instead.')
    end
    connection._limits[fiber.id()] = fiber.clock() + timeout
    return connection
end

local function trigger(list)
    return function(connection, new, old)
        check_connection(connection, list:sub(2))
        return connection[list](new, old)
    end
end
methods.on_connect = trigger('_set_on_connect')
methods.on_disconnect = trigger('_set_on_disconnect')
methods.on_schema_reload = trigger('_set_on_schema_reload')

-- Spaces and indexes.

local space_methods, index_methods = {}, {}
space_mt = {
    __index = space_methods,
    __serialize = function(space)
        local shown = {}
        for key, value in pairs(space) do
            if key ~= 'connection' and tostring(key):sub(1, 1) ~= '_' then shown[key] = value end
        end
        return shown
    end,
}
index_mt = {
    __index = index_methods,
    __serialize = function(index)
        local shown = {}
        for key, value in pairs(index) do
            if key ~= 'space' then shown[key] = value end
        end
        return shown
    end,
}

local function check_space(space, name)
    if type(space) ~= 'table' or getmetatable(space) ~= space_mt then
        error(('Use space:%s(...) instead of space.%s(...)'):format(name, name), 3)
    end
end

local function check_index(index, name)
    if type(index) ~= 'table' or getmetatable(index) ~= index_mt then
        error(('Use index:%s(...) instead of index.%s(...)'):format(name, name), 3)
    end
end

local function primary(space)
    local index = space.index[0]
    if not index then
        error(new_error(box.error.NO_SUCH_INDEX_ID,
            ("No index #0 is defined in space '%s'"):format(space.name)), 0)
    end
    return index
end

local function iterator_of(options, key)
    local iterator = options.iterator
    if iterator == nil then
        local is_empty = key == nil or (type(key) == 'table' and next(key) == nil)
        return is_empty and box.index.ALL or box.index.EQ
    end
    if type(iterator) == 'number' then return iterator end
    local number = box.index[tostring(iterator):upper()]
    if type(number) ~= 'number' then
        error(new_error(box.error.ITERATOR_TYPE, ("Unknown iterator type '%s'"):format(tostring(iterator))), 0)
    end
    return number
end

local function select_from(space, index, key, options)
    local settings = type(options) == 'table' and options or {}
    return request(space.connection, options, tuples_of(space._number), SELECT, SPACE_ID, space.id, INDEX_ID, index,
        LIMIT, settings.limit or MAX_LIMIT, OFFSET, settings.offset or 0, ITERATOR, iterator_of(settings, key),
        KEY, native.key(key))
end

local function get_from(space, index, key, options)
    if type(options) == 'table' and options.buffer then
        error('index:get() doesn\'t support `buffer` argument', 3)
    end
    local tuple = request(space.connection, options, one_tuple_of(space._number), SELECT, SPACE_ID, space.id,
        INDEX_ID, index, LIMIT, 2, OFFSET, 0, ITERATOR, box.index.EQ, KEY, native.key(key))
    if tuple ~= nil then return tuple end
end

local function change(space, options, kind, ...)
    local tuple = request(space.connection, options, first_tuple_of(space._number), kind, SPACE_ID, space.id, ...)
    if tuple ~= nil then return tuple end
end

function space_methods.select(space, key, options)
    check_space(space, 'select')
    return select_from(space, 0, key, options)
end

function space_methods.get(space, key, options)
    check_space(space, 'get')
    return get_from(space, 0, key, options)
end

function space_methods.insert(space, tuple, options)
    check_space(space, 'insert')
    return change(space, options, INSERT, TUPLE, tuple)
end

function space_methods.replace(space, tuple, options)
    check_space(space, 'replace')
    return change(space, options, REPLACE, TUPLE, tuple)
end

function space_methods.delete(space, key, options)
    check_space(space, 'delete')
    return change(space, options, DELETE, INDEX_ID, 0, KEY, native.key(key))
end

function space_methods.update(space, key, operations, options)
    check_space(space, 'update')
    return change(space, options, UPDATE, INDEX_ID, 0, INDEX_BASE, 1, KEY, native.key(key), TUPLE, operations)
end

function space_methods.upsert(space, tuple, operations, options)
    check_space(space, 'upsert')
    local result = change(space, options, UPSERT, INDEX_BASE, 1, TUPLE, tuple, OPERATIONS, operations)
    if type(options) == 'table' and (options.is_async or options.buffer) then return result end
end

function space_methods.format(space, format)
    check_space(space, 'format')
    if format == nil then return space._format end
    error('net.box does not support setting space format', 2)
end

function index_methods.select(index, key, options)
    check_index(index, 'select')
    return select_from(index.space, index.id, key, options)
end

function index_methods.get(index, key, options)
    check_index(index, 'get')
    return get_from(index.space, index.id, key, options)
end

function index_methods.delete(index, key, options)
    check_index(index, 'delete')
    return change(index.space, options, DELETE, INDEX_ID, index.id, KEY, native.key(key))
end

function index_methods.update(index, key, operations, options)
    check_index(index, 'update')
    return change(index.space, options, UPDATE, INDEX_ID, index.id, INDEX_BASE, 1, KEY, native.key(key),
        TUPLE, operations)
end

-- What has no request of its own is a call of the server's box.
local function by_call(name, decode)
    index_methods[name] = function(index, key, options)
        check_index(index, name)
        local called = ('box.space.%s.index.%s:%s'):format(index.space.name, index.name, name)
        local list = native.key(key)
        if key ~= nil and #list == 0 then list = { {} } elseif key ~= nil then list = { list } end
        return request(index.space.connection, options, decode(index), CALL_16, FUNCTION_NAME, called, TUPLE, list)
    end
end
local function tuple_of_index(index)
    return function(data)
        local first = native.tuples(data, index.space._number)[1]
        if first ~= nil and #first == 0 then return nil end
        return first
    end
end
by_call('min', tuple_of_index)
by_call('max', tuple_of_index)
by_call('count', function()
    return function(data)
        local first = native.values(data)[1]
        return type(first) == 'table' and first[1] or first
    end
end)

-- Connecting.

local connection_mt = {
    __index = methods,
    __metatable = false,
    __serialize = function(connection)
        local options = {}
        for name, value in pairs(connection.opts) do
            if type(value) ~= 'function' then options[name] = value end
        end
        return {
            host = connection.host, port = connection.port, opts = next(options) and options or nil,
            state = connection.state, error = connection.error, protocol = connection.protocol,
            schema_version = connection.schema_version, peer_uuid = connection.peer_uuid,
            peer_version_id = connection.peer_version_id,
        }
    end,
}

local USAGE = 'usage: connect(uri[, opts] | host, port[, opts])'

-- `connect(uri [, options])`, `connect(host, port [, options])`
local function place_of(...)
    local first, second, third = ...
    local options, host, port = {}, nil, nil
    if type(first) == 'string' and (type(second) == 'string' or type(second) == 'number') then
        host, port = first, second
        options = third or {}
    elseif type(first) == 'string' or type(first) == 'number' then
        local parsed = uri.parse(tostring(first))
        if parsed == nil or parsed.service == nil then error(new_error(box.error.PROC_LUA, USAGE), 0) end
        host, port = parsed.host or 'localhost', parsed.service
        local given = second or {}
        if type(given) ~= 'table' then error(new_error(box.error.PROC_LUA, USAGE), 0) end
        for name, value in pairs(given) do options[name] = value end
        if options.user == nil and options.password == nil then
            options.user, options.password = parsed.login, parsed.password
        end
    else
        error(new_error(box.error.PROC_LUA, USAGE), 0)
    end
    if type(options) ~= 'table' then error(new_error(box.error.PROC_LUA, USAGE), 0) end
    if options.user == nil and options.password ~= nil then error(new_error(box.error.PROC_LUA, 'net.box: user is not defined'), 0) end
    -- The password is not shown with the options.
    local shown, password = {}, options.password
    for name, value in pairs(options) do shown[name] = value end
    shown.password = nil
    return host, port, shown, password
end

local connect
function connect(...)
    -- `net_box:connect(…)` names the module first.
    if type((...)) == 'table' and (...) == package.loaded['net.box'] then return connect(select(2, ...)) end
    local host, port, options, password = place_of(...)
    local connection = setmetatable({
        host = host, port = port, opts = options, state = 'initial', space = {},
        _password = password, _spaces = {}, _requests = {}, _next_sync = 1, _limits = {}, _seen_version = 0,
        _changed = fiber.cond(), _retry = fiber.cond(),
    }, connection_mt)
    for _, name in ipairs({ 'on_connect', 'on_disconnect', 'on_schema_reload' }) do
        local list, set = internal.trigger_list()
        connection['_' .. name] = list
        connection['_set_' .. name] = function(new, old) set(new, old) end
    end
    if options.call_16 then
        connection.call, connection.eval = methods.call_16, methods.eval_16
    end
    fiber.create(run, connection)
    local wait = options.wait_connected
    if wait ~= false then
        connection:wait_connected(type(wait) == 'number' and wait or FOREVER)
    end
    return connection
end

-- The own instance, as if it were remote.

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

-- What a remote server would have answered: tuples are tables there.
local function plain(count, value, ...)
    if count == 0 then return end
    if box.tuple.is(value) then value = value:totable() end
    return value, plain(count - 1, ...)
end

local function as_error(done, ...)
    if done then return plain(select('#', ...), ...) end
    local message = ...
    if box.error.is(message) then error(message, 0) end
    error(new_error(box.error.PROC_LUA, tostring(message)), 0)
end

function own.call(_, name, arguments)
    arguments = check_arguments(arguments, 'call', 'func_name')
    return as_error(pcall(require('lycosa.program').call, name, unpack(arguments, 1, table.maxn(arguments))))
end

function own.eval(_, text, arguments)
    arguments = check_arguments(arguments, 'eval', 'expression')
    return as_error(pcall(require('lycosa.program').eval, text, unpack(arguments, 1, table.maxn(arguments))))
end

setmetatable(own, {
    __index = function(_, name)
        if name == 'space' then return box.space end
        if name == 'schema_version' then return internal.configured() and internal.schema_version() or nil end
        if name == 'uuid' then return box.info.uuid end
    end,
})

return setmetatable({
    connect = connect,
    new = connect,
    self = own,
    timeout = function(timeout)
        log.warn('net.box.timeout(%s) has no effect: give the timeout to the request', timeout)
        return { connect = connect, new = connect }
    end,
}, {})
