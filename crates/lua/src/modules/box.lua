-- box: configuration, transactions, sessions, errors, and what the other parts of box need.
local internal = require('lycosa.box')
local fiber = require('fiber')
local ffi = require('ffi')

local box = {}
_G.box = box
-- Programs parse this text: release, commits since that release, commit.
_G._TARANTOOL = '2.6.0-0-g0000000'
box.NULL = ffi.cast('void *', 0)

local function native(name, ...)
    if internal.has_hooked_tubes then return internal.hooked_call(name, ...) end
    return internal.call(name, { n = select('#', ...), ... })
end
internal.native = native

require('lycosa.box.error')
local client_error = internal.client_error

-- Transactions and triggers.

require('lycosa.box.trigger')
local trigger_list, run_list = internal.trigger_list, internal.run_list

-- Sessions.

local storages, connected = {}, {}
-- Sessions whose triggers of the end run: they have no peer any more.
local closing = {}

local session_number, running = internal.session_number, require('lycosa.fiber').place
local function session_id()
    local id = running.session
    if id ~= 0 then return id end
    return internal.configured() and session_number() or 1
end

-- Number, peer, user and effective user of the running session. Before box.cfg it is the administrator's.
local function running_session()
    if internal.configured() then return internal.session() end
    return 1, '', 1, 1
end

local function user_name(id)
    return internal.configured() and internal.user_name(id) or 'admin'
end

local on_connect, on_auth, set_on_connect, set_on_auth
-- A connection, and a log-in, wait for their triggers.
local function watch() internal.watch_sessions(#on_connect > 0, #on_auth > 0) end
on_connect, set_on_connect = trigger_list(watch)
on_auth, set_on_auth = trigger_list(watch)
local on_disconnect, set_on_disconnect = trigger_list()
-- Clients' requests that are refused never reach a program, unless somebody wants to know.
local on_access_denied, set_on_access_denied = trigger_list(function(list) internal.watch_denied(#list > 0) end)
function internal.access_denied(...) if #on_access_denied > 0 then run_list(on_access_denied, ...) end end

-- The number of a session that a function was asked about.
local function session_number(name, ...)
    local id = ...
    if select('#', ...) == 0 then return session_id() end
    if select('#', ...) ~= 1 then error(('session.%s(sid): bad arguments'):format(name), 3) end
    if type(id) ~= 'number' and (type(id) ~= 'cdata' or not tonumber(id)) then error('expected int64_t as -1 argument', 3) end
    return math.floor(tonumber(id))
end

local function is_session(id) return id == session_id() or connected[id] == true or storages[id] ~= nil end

local session = {
    id = session_id,
    peer = function(...)
        local other = ...
        if select('#', ...) > 1 then error('session.peer(sid): bad arguments', 2) end
        if select('#', ...) == 1 and (type(other) == 'cdata' or not tonumber(other)) then
            error(("bad argument #1 to '?' (number expected, got %s)"):format(type(other)), 2)
        end
        local id, peer = running_session()
        if other ~= nil and other ~= id then error('session.peer(): session does not exist', 0) end
        return peer ~= '' and not closing[id] and peer or nil
    end,
    user = function() local _, _, user = running_session() return user_name(user) end,
    effective_user = function() local _, _, _, user = running_session() return user_name(user) end,
    uid = function() local _, _, user = running_session() return user end,
    euid = function() local _, _, _, user = running_session() return user end,
    sync = function() return internal.configured() and internal.sync() or 0 end,
    -- Descriptors are the server's own.
    fd = function(...)
        if not is_session(session_number('fd', ...)) then error('session.fd(): session does not exist', 2) end
        return -1
    end,
    exists = function(...) return is_session(session_number('exists', ...)) end,
    type = function()
        if internal.console_of_fiber() then return 'console' end
        local _, peer = running_session()
        return peer ~= '' and 'binary' or 'background'
    end,
    push = function(...)
        if select('#', ...) ~= 1 then error('Usage: box.session.push(data)', 2) end
        local repl = internal.console_of_fiber()
        if repl then return repl:push((...)) end
        local done, message = pcall(internal.push, (...))
        if done then return true end
        if not box.error.is(message) then message = internal.new_error('LuajitError', nil, message) end
        return nil, message
    end,
    on_connect = set_on_connect,
    on_disconnect = set_on_disconnect,
    on_auth = set_on_auth,
    on_access_denied = set_on_access_denied,
    su = function(name, ...)
        local row
        if select('#', ...) > 0 and type((...)) ~= 'function' then
            error(("bad argument #2 to '?' (function expected, got %s)"):format(type((...))), 2)
        end
        if type(name) == 'number' then
            row = internal.find_user(name)
        elseif type(name) == 'string' then
            row = internal.find_user(name)
        else
            error('session.su(): bad arguments', 2)
        end
        -- A role is no user.
        if not row or row[4] ~= 'user' then
            -- The error shows the first 64 bytes of a long name.
            client_error('NO_SUCH_USER', ("User '%s' is not found"):format((row and row[3] or tostring(name)):sub(1, 64)))
        end
        if select('#', ...) == 0 then return internal.set_user(row[1]) end
        return internal.as_user(row[1], ...)
    end,
}
function internal.release_session(uuid)
    internal.with_new_session(function()
        local rows = box.space._queue_taken_2.index.uuid:select({ uuid })
        if #rows == 0 then return end
        native('queue.identify', uuid)
        for _, row in ipairs(rows) do
            local tube = box.space._queue.index.tube_id:get(row[1])
            if tube then
                local done, message = pcall(native, 'queue.tube.' .. tube[1] .. ':release', row[2])
                if not done then require('log').error('task %s: %s', tostring(row[2]), tostring(message)) end
            end
        end
    end)
end

-- The console that the running fiber serves, once there is one.
function internal.console_of_fiber() end

box.session = setmetatable(session, {
    -- What the sessions keep, by their numbers, as in Tarantool.
    aggregate_storage = storages,
    __index = function(_, key)
        if key ~= 'storage' then return nil end
        local id = session_id()
        local storage = storages[id]
        if not storage then
            storage = {}
            storages[id] = storage
        end
        return storage
    end,
})

-- The row of a user or role by name or number, whoever asks.
function internal.find_user(name) return internal.system_row(304, type(name) == 'number' and 0 or 2, name) end

function internal.is_connected(id) return connected[id] == true and not closing[id] end

function internal.connected()
    connected[session_id()] = true
    internal.run_until_failure(on_connect)
end
function internal.logged_in(name, is_right) internal.run_until_failure(on_auth, name, is_right) end
function internal.disconnected()
    local id = session_id()
    closing[id] = true
    run_list(on_disconnect)
    -- Requests of the connection may still run, and are to find what the triggers have left them.
    local pause = 0.05
    while storages[id] and internal.session_has_requests() do
        fiber.sleep(pause)
        pause = math.min(pause * 2, 1)
    end
    closing[id], storages[id], connected[id] = nil, nil, nil
    internal.forget_statements(session_id())
    internal.forget_settings(session_id())
end

-- Configuration.

local current = {
    memtx_memory = 268435456, memtx_dir = '.', wal_dir = '.', vinyl_dir = '.', wal_mode = 'fsync', log_level = 5,
    log_format = 'plain', read_only = false, checkpoint_interval = 3600, checkpoint_count = 2, force_recovery = false,
    readahead = 16320, slab_alloc_factor = 1.05, too_long_threshold = 0.5, wal_max_size = 268435456,
    hot_standby = false, memtx_max_tuple_size = 1048576, memtx_min_tuple_size = 16, strip_core = true,
    worker_pool_threads = 4, net_msg_max = 768, replication_timeout = 1, feedback_enabled = false,
    background = false, coredump = false, feedback_interval = 3600, replication_anon = false,
    replication_connect_timeout = 30, replication_skip_conflict = false, replication_sync_lag = 10,
    replication_sync_timeout = 300, replication_synchro_quorum = 1, replication_synchro_timeout = 5,
    sql_cache_size = 5242880, vinyl_bloom_fpr = 0.05, vinyl_cache = 134217728, vinyl_max_tuple_size = 1048576,
    vinyl_memory = 134217728, vinyl_page_size = 8192, vinyl_read_threads = 1, vinyl_run_count_per_level = 2,
    vinyl_run_size_ratio = 3.5, vinyl_timeout = 60, vinyl_write_threads = 4, wal_dir_rescan_delay = 2,
}

-- Options that a configuration file, SIGHUP or `lycosa promote` change too.
local SHARED = {
    'read_only', 'replication_timeout', 'replication_connect_timeout', 'replication_connect_quorum',
    'replication_sync_lag', 'replication_skip_conflict', 'replication_anon', 'replicas_before_reply',
    'replicas_missing',
}

local log = require('log')
require('lycosa.box.options')

-- What `log.cfg` may have changed since. A level that `box.cfg` was given by its name keeps it.
local function log_option(name)
    local now = log.box_api.cfg_get(name:match('^log_(.+)') or name)
    if name == 'log_level' and log.box_api.level_number(current.log_level) == now then return current.log_level end
    return now
end

-- What an option is now.
local function effective(name)
    if name == 'log' or name == 'log_level' or name == 'log_format' or name == 'log_nonblock' then return log_option(name) end
    local value = internal.option(name)
    if value == nil then value = current[name] end
    return value
end

local function all_effective()
    local all = {}
    for name, value in pairs(current) do all[name] = value end
    for _, name in ipairs(SHARED) do all[name] = effective(name) end
    for _, name in ipairs({ 'log', 'log_level', 'log_format', 'log_nonblock' }) do all[name] = log_option(name) end
    return all
end

-- The parts that need a configured instance say so before.
local GUARDED = {}

local configuration
-- The first box.cfg is under way, or has succeeded.
local has_begun = false

local function configure(options)
    if options == nil then options = {} end
    if type(options) ~= 'table' then error("Usage: box.cfg{option = value, ...}", 3) end
    local checked = internal.check_cfg(options)
    -- Other fibers run while an instance starts, which may take long: for them box is configured already.
    local is_first = not has_begun
    if is_first then
        has_begun = true
        for name, part in pairs(GUARDED) do
            -- Until the instance has started, `box.execute` waits for it.
            if name ~= 'info' and name ~= 'execute' then rawset(box, name, part) end
        end
        rawset(box, 'cfg', configuration)
    end
    local done, failure = pcall(internal.configure, checked)
    if not done then
        if is_first then
            has_begun = false
            for name in pairs(GUARDED) do rawset(box, name, nil) end
            rawset(box, 'cfg', configure)
        end
        if type(failure) == 'string' and failure:match("^Can't listen on") then
            failure = require('lycosa.box.error').socket_error(tonumber(failure:match('%(os error (%d+)%)$')), failure)
        end
        error(failure, 0)
    end
    for _, option in ipairs({ 'level', 'format', 'log', 'nonblock' }) do
        local value = checked[option == 'log' and option or 'log_' .. option]
        if value ~= nil then log.box_api.cfg_set(nil, option, value) end
    end
    log.box_api.is_configured()
    for name, value in pairs(checked) do current[name] = value end
    if internal.has_own_queue then internal.set_native_queue(false) end
    -- The rows of the data's own files are loaded by now: a trigger on a system space sees the changes that follow.
    if is_first then
        rawset(box, 'execute', GUARDED.execute)
        internal.run_list(internal.on_schema_init)
    end
    if internal.after_cfg then internal.after_cfg() end
end

configuration = setmetatable({}, {
    __call = function(_, options) return configure(options) end,
    __index = function(_, name) return effective(name) end,
    -- Assigning nil changes no setting and raises no error, as in Tarantool, where `box.cfg` is a copy of the settings.
    __newindex = function(_, _, value)
        if value ~= nil then error('Attempt to modify a read-only table', 2) end
    end,
    __pairs = function() return pairs(all_effective()) end,
    __serialize = all_effective,
})

box.cfg = configure

-- Information.


-- A table that tells its content when it is called, and shows nothing of it else.
local function told(tell) return setmetatable({}, { __call = tell, __serialize = function() return {} end }) end

-- There is no engine `vinyl`: its numbers are those of one that is not used, for programs that read them.
local function vinyl()
    return {
        disk = { data = 0, data_compacted = 0, index = 0 },
        memory = { bloom_filter = 0, level0 = 0, page_index = 0, tuple_cache = 0, tx = 0 },
        regulator = { dump_bandwidth = 0, dump_watermark = 0, rate_limit = 0, write_rate = 0 },
        scheduler = {
            compaction_input = 0, compaction_output = 0, compaction_queue = 0, compaction_time = 0, dump_count = 0,
            dump_input = 0, dump_output = 0, dump_time = 0, tasks_completed = 0, tasks_failed = 0, tasks_inprogress = 0,
        },
        tx = { commit = 0, conflict = 0, gap_locks = 0, read_views = 0, rollback = 0, statements = 0, transactions = 0 },
    }
end

-- The clock in the head of a snapshot or journal, and its sum; nil of a file that has been removed meanwhile.
local function clock_of(path)
    local file = io.open(path)
    local head = file and file:read(1024)
    if file then file:close() end
    local text = head and head:match('\nVClock: {(.-)}')
    if not text then return nil end
    local clock, sum = {}, 0
    for id, lsn in text:gmatch('(%d+): (%d+)') do
        clock[tonumber(id)] = tonumber(lsn)
        sum = sum + tonumber(lsn)
    end
    return setmetatable(clock, { __serialize = 'map' }), sum
end

-- Snapshots, and the oldest journal that is kept.
local function kept_files()
    local checkpoints = {}
    for _, path in ipairs(internal.snapshots()) do
        local clock, sum = clock_of(path)
        if clock then checkpoints[#checkpoints + 1] = { vclock = clock, signature = sum, references = {} } end
    end
    local told_of = { checkpoints = checkpoints, consumers = {}, checkpoint_is_in_progress =
        internal.info_part('checkpoint').state == 'running', vclock = setmetatable({}, { __serialize = 'map' }), signature = 0 }
    local journal = internal.files('%.xlog$')[1]
    local clock, sum
    if journal then clock, sum = clock_of(journal) end
    if clock then told_of.vclock, told_of.signature = clock, sum end
    return told_of
end

-- What `box.info` tells by functions.
local own_info = {
    vinyl = told(vinyl),
    sql = told(function() return { cache = internal.sql_statistics() } end),
    gc = told(kept_files),
    memory = told(function() return native('box.info.memory') end),
}

-- Replicas without a number are told by how many they are, and called by an empty list.
local function with_list(anonymous)
    return setmetatable(anonymous, { __call = function() return setmetatable({}, { __serialize = 'mapping' }) end })
end

-- As Tarantool 1.6 tells of the instance.
local function server()
    return { id = internal.info_part('id'), uuid = internal.info_part('uuid'), lsn = internal.info_part('lsn'), ro = internal.info_part('ro') }
end

-- While the instance starts.
local function loading()
    return { version = _TARANTOOL, status = 'loading', ro = true, lsn = -1, pid = require('lycosa.system').pid() }
end

local function net_statistics() return native('box.stat.net') end

-- A table that asks when a key is not among its own, which `pairs` shows.
local function asks(name, own)
    return setmetatable(own, {
        __index = function(_, key)
            if name == 'box.info' then
                if not internal.configured() then return loading()[key] end
                if key == 'listen' then return internal.listening() end
                if own_info[key] then return own_info[key] end
                if key == 'server' then return server() end
                if key == 'replication_anon' then return with_list(internal.info_part(key)) end
                return internal.info_part(key)
            end
            return native(name)[key]
        end,
        __call = function()
            if name == 'box.info' and not internal.configured() then return loading() end
            if name ~= 'box.info' then return native(name) end
            local all = native(name)
            for key, part in pairs(own_info) do if key ~= 'memory' then all[key] = part end end
            all.package, all.listen = require('tarantool').package, internal.listening()
            return setmetatable(all, { __index = function(_, key) if key == 'server' then return server() end end })
        end,
        __serialize = function(self) return self() end,
    })
end

GUARDED.info = asks('box.info', { version = _TARANTOOL, package = require('tarantool').package })
GUARDED.stat = asks('box.stat', {
    vinyl = vinyl,
    -- Of Tarantool's own machine for SQL, which is another one here.
    sql = function() return { sql_search_count = 0, sql_sort_count = 0, sql_found_count = 0, sql_xfer_count = 0 } end,
    reset = function() end,
    net = setmetatable({}, {
        __call = net_statistics,
        __index = function(_, key) return net_statistics()[key] end,
        __serialize = net_statistics,
    }),
})
GUARDED.slab = asks('box.slab.info', {
    info = function() return native('box.slab.info') end,
    -- Tuples lie in slabs of their own kind: there are no classes to list, and no cache to check.
    stats = function() return {} end,
    check = function() end,
})
box.runtime = {
    info = function()
        return { used = internal.memory(), lua = internal.memory(), maxalloc = internal.memory_limit(), hook_errors = internal.hook_errors() }
    end,
}

function GUARDED.snapshot() return native('box.snapshot') end

-- Backups: while one is made, no snapshot is removed.

local is_backed_up = false

-- Numbered files in the data folder, the oldest first.
function internal.files(ending)
    local folder, found = internal.data_dir(), {}
    for _, name in ipairs(require('fio').listdir(folder) or {}) do
        if name:match('^%d+' .. ending) then found[#found + 1] = folder .. '/' .. name end
    end
    table.sort(found)
    return found
end

local function snapshots() return internal.files('%.snap$') end

internal.snapshots = snapshots

local backup = {}

--- The files of a checkpoint, which stay until `stop`: of the newest one, or of the one that many before it.
function backup.start(number)
    if is_backed_up then client_error('BACKUP_IN_PROGRESS', 'Backup is already in progress') end
    if number == nil then number = 0 end
    if type(number) ~= 'number' then error(("bad argument #1 to '?' (number expected, got %s)"):format(type(number)), 2) end
    if number < 0 then error('invalid checkpoint index', 0) end
    local found = snapshots()
    if #found == 0 then
        -- A new instance has none until its first checkpoint.
        GUARDED.snapshot()
        found = snapshots()
    end
    local file = found[#found - math.floor(number)]
    if not file then client_error('MISSING_SNAPSHOT', "Can't find snapshot") end
    internal.hold_snapshots(true)
    is_backed_up = true
    return { file }
end

function backup.stop()
    internal.hold_snapshots(false)
    is_backed_up = false
end

GUARDED.backup = backup

function GUARDED.once(key, body, ...)
    if type(key) ~= 'string' or type(body) ~= 'function' then
        client_error('ILLEGAL_PARAMS', 'Illegal parameters, Usage: box.once(key, func, ...)')
    end
    key = 'once' .. key
    if box.space._schema:get{ key } ~= nil then return end
    box.space._schema:put{ key }
    return body(...)
end

-- Waits until the instance is read-only, or no longer. Without a timeout it waits as long as it takes.
local function wait_for_mode(wanted, timeout)
    if timeout ~= nil and type(timeout) ~= 'number' then
        error(("bad argument #1 to '?' (number expected, got %s)"):format(type(timeout)), 0)
    end
    local deadline = fiber.clock() + (timeout or math.huge)
    -- Before box.cfg the instance is neither; at the end of its start it is read-only for a moment, as in Tarantool.
    local is_early = wanted and not internal.configured()
    while not internal.configured() or not is_early and box.info.ro ~= wanted do
        local left = deadline - fiber.clock()
        if left <= 0 then
            error(require('lycosa.box.error').timed_out(), 0)
        end
        fiber.sleep(math.min(left, 0.01))
    end
end

box.ctl = {
    wait_rw = function(timeout) wait_for_mode(false, timeout) end,
    wait_ro = function(timeout) wait_for_mode(true, timeout) end,
    -- Of synchronous transactions, which there are none of.
    clear_synchro_queue = function() end,
    is_recovery_finished = function() return internal.configured() end,
}
internal.on_shutdown, box.ctl.on_shutdown = trigger_list()
internal.on_schema_init, box.ctl.on_schema_init = trigger_list()

-- The bits of rights, as the rows of `_priv` have them.
GUARDED.priv = {
    R = 1, W = 2, X = 4, S = 8, U = 16, C = 32, D = 64, A = 128, REFERENCE = 256, TRIGGER = 512, INSERT = 1024, UPDATE = 2048,
    DELETE = 4096, GRANT = 8192, REVOKE = 16384, ALL = 4294967295,
}

internal.guarded = GUARDED
require('lycosa.box.tuple')
require('lycosa.box.schema')
require('lycosa.box.index')
require('lycosa.box.named')
require('lycosa.box.sequence')
require('lycosa.box.func')
require('lycosa.box.sql')
require('lycosa.box.settings')
require('box.internal')
-- UUIDs and decimals from tuples have their methods, whatever the program requires.
require('uuid')
require('decimal')

-- As in Tarantool, SQL configures an instance that is not, and waits for a start that another fiber has begun.
local function execute_when_configured(...)
    while has_begun and not internal.configured() do fiber.sleep(0.001) end
    if not internal.configured() then box.cfg() end
    return GUARDED.execute(...)
end

-- A program may put a function of its own in the place of `box.info`; clients that call it get that function then. Until then
-- `box.info` is no field of the table, and `pairs` adds it.
local function with_info(own)
    local shown = {}
    for name, value in next, own do shown[name] = value end
    if has_begun and shown.info == nil then shown.info = GUARDED.info end
    return next, shown
end

setmetatable(box, {
    __pairs = with_info,
    __index = function(_, name)
        if GUARDED[name] == nil then return nil end
        if name == 'info' and has_begun then return GUARDED.info end
        if name == 'execute' then return execute_when_configured end
        error('Please call box.cfg{} first', 2)
    end,
    __newindex = function(_, name, value)
        if name == 'info' and internal.configured() then internal.own_function('box.info') end
        rawset(box, name, value)
    end,
})

return box
