-- net.box: connections to servers. A fiber for each connection reads replies; whoever asks writes its request itself.
local errno = require('errno')
local fiber = require('fiber')
local ffi = require('ffi')
local log = require('log')
local socket = require('socket')
local uri = require('uri')
local triggers = require('internal.trigger')
local native = require('lycosa.netbox')
local stream = require('lycosa.socket')

local arguments_of = require('lycosa.net_box.arguments')
local errors = require('lycosa.net_box.errors')
local futures = require('lycosa.net_box.future')
local keys = require('lycosa.net_box.keys')
local replies = require('lycosa.net_box.reply')
local remote_spaces = require('lycosa.net_box.space')
local transport = require('lycosa.net_box.transport')

local FOREVER = 500 * 365 * 86400
local CONNECT_TIMEOUT = 10
local MAX_LIMIT = 0xFFFFFFFF
local GREETING_SIZE = 128
local VSPACE, VINDEX = 281, 289

-- A connection's life.

local methods = {}

local function set_state(connection, state, message)
    connection.state, connection.error = state, message
    connection._is_connected = state == 'active' or state == 'fetch_schema' or nil
    connection._changed:broadcast()
end

local function run_triggers(connection, list)
    for _, trigger in ipairs(table.copy(list)) do
        local done, message = pcall(trigger, connection)
        if not done then log.error('%s', tostring(message)) end
    end
end

-- Pending requests by number. The table is weak: a future that the program has dropped is collected.
local function new_requests() return setmetatable({}, { __mode = 'v' }) end

-- Ends what waits for replies.
local function fail_requests(connection, failure)
    local requests = connection._requests
    connection._requests = new_requests()
    for _, future in pairs(requests) do futures.finish(future, failure) end
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

-- Sends a request, or raw bytes (`inject`), and returns its future.
local function start(connection, decode, kind, ...)
    local sync = connection._next_sync
    connection._next_sync = sync + 1
    local bytes = kind == 'inject' and (...) or native.request(kind, sync, ...)
    local future = futures.new(connection, sync, decode)
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
                futures.finish(future, one)
            else
                local done, result = pcall(decoded, future, one, two)
                if done then futures.finish(future, nil, result) else futures.finish(future, result) end
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

-- The schema.

local function ask_schema(connection)
    local function all_of(space)
        return start(connection, replies.all_values, keys.SELECT, keys.SPACE_ID, space, keys.INDEX_ID, 0,
            keys.LIMIT, MAX_LIMIT, keys.OFFSET, 0, keys.ITERATOR, 2, keys.KEY, {})
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
        remote_spaces.install(connection, {}, {})
    else
        remote_spaces.install(connection, spaces._result, indexes._result)
    end
    connection.schema_version = connection._seen_version
end

local function reload_schema(connection)
    if connection._reloading then return end
    connection._reloading = true
    local spaces, indexes = ask_schema(connection)
    fiber.create(function()
        fiber.name('net.box schema')
        futures.wait_done(spaces, FOREVER)
        futures.wait_done(indexes, FOREVER)
        connection._reloading = false
        if connection.state ~= 'active' then return end
        take_schema(connection, spaces, indexes)
        connection._changed:broadcast()
        run_triggers(connection, connection._on_schema_reload)
    end)
end

-- What the 128 bytes say in which a server introduces itself; nil and why they are none.
local function greeting_of(bytes)
    local version, packed, uuid, salt = native.greeting(bytes)
    if not version then return nil, packed end
    return { protocol = 'Binary', version_id = packed, uuid = uuid, salt = salt }
end

-- Connects: the text of the failure, and whether trying again makes no sense; nothing when replies can be served.
local function establish(connection)
    local options = connection.opts
    local deadline = fiber.clock() + (options.connect_timeout or CONNECT_TIMEOUT)
    local client, greeting = connection._wrapped, connection._greeting
    connection._wrapped, connection._greeting = nil, nil
    if not client then
        client = socket.tcp_connect(connection.host, connection.port, options.connect_timeout or CONNECT_TIMEOUT)
    end
    if not client then return errno.strerror() end
    if connection._closed then
        client:close()
        return 'Connection closed'
    end
    connection._socket, connection._input, connection._unsent = client, stream.input(), nil
    -- Nobody has the connection any more: its reader, which waits for the socket, is woken and ends.
    connection._owner = ffi.gc(ffi.new('char[1]'), function() pcall(client.shutdown, client) end)
    if connection.host ~= 'unix/' then client:setsockopt('tcp', 'TCP_NODELAY', true) end
    local failure
    if not greeting then
        local function greeted() return stream.held(connection._input) >= GREETING_SIZE end
        failure = read_until(connection, greeted, deadline)
        if failure then return failure end
        greeting, failure = greeting_of(stream.take(connection._input, GREETING_SIZE))
        if not greeting then return failure, true end
    end
    connection.protocol, connection.peer_version_id, connection.peer_uuid = 'Binary', greeting.version_id, greeting.uuid
    if options.user then
        set_state(connection, 'auth')
        local reply = start(connection, replies.nothing, keys.AUTH, keys.USER_NAME, options.user,
            keys.TUPLE, { 'chap-sha1', native.scramble(connection._password or '', greeting.salt) })
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
    connection._was_active, connection._told = true, nil
    run_triggers(connection, connection._on_connect)
    run_triggers(connection, connection._on_schema_reload)
end

-- Hands out what has come: the file to wait for, or nil and the text of the failure.
local function advance(connection)
    while true do
        local done, message = pcall(dispatch, connection)
        if not done then return nil, tostring(message) end
        if connection._seen_version ~= connection.schema_version then reload_schema(connection) end
        local fd = connection._socket._fd
        if connection._closed or not fd then return nil, 'Connection closed' end
        local count, number = stream.fill(connection._input, fd)
        if count == 0 then return nil, 'Peer closed' end
        if count == nil and number ~= errno.EINTR then
            if number == errno.EAGAIN then return fd end
            return nil, errno.strerror(number)
        end
    end
end

local function disconnected(connection)
    if connection._socket and connection._socket._fd then connection._socket:close() end
    if connection._was_active then
        connection._was_active = false
        run_triggers(connection, connection._on_disconnect)
    end
end

-- The fiber of a connection has it in a weak table alone while it waits: a connection that nobody has any more is collected,
-- and the fiber ends. These steps have it for their own time.

local function connect_step(weak)
    local connection = weak.connection
    if not connection or connection._closed then return nil end
    local done, failure, is_final = pcall(establish, connection)
    if not done then failure, is_final = tostring(failure), true end
    return connection._socket, failure, is_final
end

local function reply_step(weak)
    local connection = weak.connection
    if not connection then return nil, 'Connection closed' end
    local done, fd, failure = pcall(advance, connection)
    if not done then return nil, tostring(fd) end
    return fd, failure
end

-- After a failure: the condition to wait for before the next attempt, and how long; nil if there will be none.
local function failure_step(weak, failure, is_final)
    local connection = weak.connection
    if not connection or connection._closed then return nil end
    local reconnect = connection.opts.reconnect_after
    connection._failure = errors.no_connection(failure)
    -- The same cause a hundred times would only hide what else the log has.
    if connection._told ~= failure then log.warn('%s:%s: %s', connection.host, connection.port, failure) end
    connection._told = failure
    set_state(connection, reconnect and not is_final and 'error_reconnect' or 'error', failure)
    fail_requests(connection, connection._failure)
    disconnected(connection)
    if not reconnect or is_final then return nil end
    return connection._retry, reconnect
end

local function retry_step(weak, failure)
    local connection = weak.connection
    if not connection or connection._closed then return false end
    set_state(connection, 'initial', failure)
    return true
end

local function run(weak, name)
    fiber.name(name, { truncate = true })
    while true do
        local client, failure, is_final = connect_step(weak)
        if not failure then
            local fd = client
            while fd do
                fd, failure = reply_step(weak)
                if fd then stream.wait(fd, 1, math.huge) end
            end
        end
        local retry, pause = failure_step(weak, failure, is_final)
        if not retry then
            if client and client._fd then client:close() end
            return
        end
        retry:wait(pause)
        retry = nil
        if not retry_step(weak, failure) then return end
    end
end

function methods.close(connection)
    if connection._closed then return end
    connection._closed = true
    connection._failure = errors.no_connection('Connection closed')
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

local REQUEST_OPTIONS = { timeout = 'number', is_async = 'boolean' }

-- Sends a request and waits for it as the options say: its result, or its future.
local function request(connection, options, decode, kind, ...)
    local timeout
    if type(options) == 'table' then
        for name, wanted in pairs(REQUEST_OPTIONS) do
            if options[name] ~= nil and type(options[name]) ~= wanted then
                error(errors.new(box.error.ILLEGAL_PARAMS,
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
    local deadline = fiber.clock() + (timeout or FOREVER)
    if not options.is_async and connection.state ~= 'active' then connection:wait_state('active', timeout) end
    if not connection:is_connected() then
        error(connection._failure
            or errors.no_connection(('Connection is not established, state is "%s"'):format(connection.state)), 0)
    end
    local future = start(connection, decode, kind, ...)
    future._buffer, future._skip_header = options.buffer, options.skip_header
    future._on_push, future._on_push_ctx = options.on_push, options.on_push_ctx
    if options.is_async then return future end
    if not futures.wait_done(future, deadline - fiber.clock()) then
        connection._requests[future._sync] = nil
        error(errors.timed_out(), 0)
    end
    if future._error then error(future._error, 0) end
    -- If the reply announces a new schema, the result waits until that schema is loaded.
    while connection._reloading and connection.state == 'active' and fiber.clock() < deadline do
        connection._changed:wait(deadline - fiber.clock())
    end
    return future._result
end
-- Spaces, indexes and named requests send through this function.
remote_spaces.request, transport.request = request, request

methods._request = transport.perform

-- A list of values as results; a buffer's count and a future are results themselves.
local function results(options, result)
    if type(options) == 'table' and (options.is_async or options.buffer) then return result end
    return unpack(result)
end

function methods.call(connection, name, arguments, options)
    check_connection(connection, 'call')
    arguments = arguments_of(arguments, 'call', 'func_name')
    return results(options,
        request(connection, options, replies.all_values, keys.CALL, keys.FUNCTION_NAME, tostring(name),
            keys.TUPLE, arguments))
end

function methods.call_16(connection, name, ...)
    check_connection(connection, 'call')
    return request(connection, nil, replies.tuples_of(0), keys.CALL_16, keys.FUNCTION_NAME, tostring(name),
        keys.TUPLE, { ... })
end

function methods.eval(connection, text, arguments, options)
    check_connection(connection, 'eval')
    arguments = arguments_of(arguments, 'eval', 'expression')
    return results(options,
        request(connection, options, replies.all_values, keys.EVAL, keys.EXPRESSION, tostring(text), keys.TUPLE, arguments))
end

function methods.eval_16(connection, text, ...)
    return results(nil,
        request(connection, nil, replies.all_values, keys.EVAL, keys.EXPRESSION, text, keys.TUPLE, { ... }))
end

function methods.execute(connection, query, parameters, sql_options, options)
    check_connection(connection, 'execute')
    if sql_options ~= nil then
        error(errors.new(box.error.UNSUPPORTED, 'execute does not support options'), 0)
    end
    local key = type(query) == 'number' and keys.STATEMENT_ID or keys.SQL_TEXT
    return request(connection, options, replies.sql_result, keys.EXECUTE, key, query,
        keys.SQL_BIND, parameters or {}, keys.OPTIONS, {})
end

function methods.prepare(connection, query, _, _, options)
    check_connection(connection, 'prepare')
    return request(connection, options, replies.sql_result, keys.PREPARE, keys.SQL_TEXT, query)
end

function methods.unprepare(connection, id, _, _, options)
    check_connection(connection, 'unprepare')
    local result = request(connection, options, replies.nothing, keys.PREPARE, keys.STATEMENT_ID, id)
    return options and options.is_async and result or nil
end

function methods.ping(connection, options)
    check_connection(connection, 'ping')
    local done, result = pcall(request, connection, options, replies.nothing, keys.PING)
    return done and result or false
end

function methods.reload_schema(connection)
    check_connection(connection, 'reload_schema')
    local spaces, indexes = ask_schema(connection)
    futures.wait_done(spaces, FOREVER)
    futures.wait_done(indexes, FOREVER)
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

local TRIGGERS = { 'on_connect', 'on_disconnect', 'on_schema_reload' }
for _, name in ipairs(TRIGGERS) do
    methods[name] = function(connection, ...)
        check_connection(connection, name)
        return connection['_' .. name](...)
    end
end

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
        if parsed == nil or parsed.service == nil then error(errors.new(box.error.PROC_LUA, USAGE), 0) end
        host, port = parsed.host or 'localhost', parsed.service
        local given = second or {}
        if type(given) ~= 'table' then error(errors.new(box.error.PROC_LUA, USAGE), 0) end
        for name, value in pairs(given) do options[name] = value end
        if options.user == nil and options.password == nil then
            options.user, options.password = parsed.login, parsed.password
        end
    else
        error(errors.new(box.error.PROC_LUA, USAGE), 0)
    end
    if type(options) ~= 'table' then error(errors.new(box.error.PROC_LUA, USAGE), 0) end
    if options.user == nil and options.password ~= nil then
        error(errors.new(box.error.PROC_LUA, 'net.box: user is not defined'), 0)
    end
    -- The password is not shown with the options.
    local shown, password = {}, options.password
    for name, value in pairs(options) do shown[name] = value end
    shown.password = nil
    return host, port, shown, password
end

-- A connection; `client` is a socket whose greeting has been read, if there is one already.
local function new_connection(client, greeting, ...)
    local host, port, options, password = place_of(...)
    local connection = setmetatable({
        host = host, port = port, opts = options, state = 'initial', space = {},
        _password = password, _spaces = {}, _requests = new_requests(), _next_sync = 1, _limits = {}, _seen_version = 0,
        _changed = fiber.cond(), _retry = fiber.cond(), _wrapped = client, _greeting = greeting,
    }, connection_mt)
    for _, name in ipairs(TRIGGERS) do connection['_' .. name] = triggers.new(name) end
    connection._transport = transport.new(connection)
    if options.call_16 then
        connection.call, connection.eval = methods.call_16, methods.eval_16
    end
    local weak = setmetatable({ connection = connection }, { __mode = 'v' })
    fiber.create(run, weak, ('%s:%s (net.box)'):format(host, port))
    local wait = options.wait_connected
    if wait ~= false then
        connection:wait_connected(type(wait) == 'number' and wait or FOREVER)
    end
    return connection
end

local function connect(...)
    -- `net_box:connect(…)` names the module first.
    if type((...)) == 'table' and (...) == package.loaded['net.box'] then return new_connection(nil, nil, select(2, ...)) end
    return new_connection(nil, nil, ...)
end

-- `net_box:timeout(seconds):connect(…)`, as programs for Tarantool 1.6 say it: the time that the connection gets.
local function timed(...)
    local timeout = (...) == package.loaded['net.box'] and select(2, ...) or (...)
    local function connect_in_time(first, ...)
        local host, port, options = first, ...
        if type(first) == 'table' then host, port, options = ... end
        if type(port) == 'table' then port, options = nil, port end
        local given = { wait_connected = tonumber(timeout) }
        for name, value in pairs(type(options) == 'table' and options or {}) do given[name] = value end
        if port == nil then return new_connection(nil, nil, host, given) end
        return new_connection(nil, nil, host, port, given)
    end
    return setmetatable({ connect = connect_in_time, new = connect_in_time }, { __index = package.loaded['net.box'] })
end

-- A socket to the server and what it says in its greeting; nil and the text of the failure.
local function establish_connection(host, port, timeout)
    timeout = timeout or CONNECT_TIMEOUT
    local deadline = fiber.clock() + timeout
    local client = socket.tcp_connect(host, port, timeout)
    if not client then return nil, errno.strerror() end
    local bytes = client:read({ chunk = GREETING_SIZE }, deadline - fiber.clock())
    local greeting, failure
    if not bytes then failure = client:error()
    elseif #bytes < GREETING_SIZE then failure = 'Invalid greeting'
    else greeting, failure = greeting_of(bytes) end
    if greeting then return client, greeting end
    client:close()
    return nil, failure
end

-- A connection over what `establish_connection` has returned.
local function wrap(client, greeting, host, port, options)
    if client == nil or type(greeting) ~= 'table' then error('Usage: netbox.wrap(socket, greeting, [opts])', 2) end
    return new_connection(client, greeting, tostring(host), port, options)
end

return setmetatable({
    connect = connect,
    new = connect,
    wrap = wrap,
    establish_connection = establish_connection,
    self = require('lycosa.net_box.own'),
    timeout = timed,
}, {})
