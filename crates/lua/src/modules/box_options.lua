-- The options of `box.cfg`: their names and types, and which values they can have.
local internal = require('lycosa.box')
local log = require('log')
local client_error = internal.client_error

local OLD_NAMES = {
    slab_alloc_arena = 'memtx_memory', slab_alloc_minimal = 'memtx_min_tuple_size',
    slab_alloc_maximal = 'memtx_max_tuple_size', snap_dir = 'memtx_dir', logger = 'log',
    logger_nonblock = 'log_nonblock', panic_on_snap_error = 'force_recovery', panic_on_wal_error = 'force_recovery',
    snapshot_count = 'checkpoint_count', snapshot_period = 'checkpoint_interval', replication_source = 'replication',
}

-- What each option is, and whether it changes nothing here.
local OPTIONS = {
    listen = 'string, number', memtx_memory = 'number', strip_core = 'boolean', memtx_min_tuple_size = 'number',
    memtx_max_tuple_size = 'number', slab_alloc_factor = 'number', work_dir = 'string', memtx_dir = 'string',
    wal_dir = 'string', vinyl_dir = 'string', vinyl_memory = 'number', vinyl_cache = 'number',
    vinyl_max_tuple_size = 'number', vinyl_read_threads = 'number', vinyl_write_threads = 'number',
    vinyl_timeout = 'number', vinyl_run_count_per_level = 'number', vinyl_run_size_ratio = 'number',
    vinyl_range_size = 'number', vinyl_page_size = 'number', vinyl_bloom_fpr = 'number', log = 'string',
    log_nonblock = 'boolean', log_level = 'number, string', log_format = 'string', io_collect_interval = 'number',
    readahead = 'number', snap_io_rate_limit = 'number', too_long_threshold = 'number', wal_mode = 'string',
    rows_per_wal = 'number', wal_max_size = 'number', wal_dir_rescan_delay = 'number', force_recovery = 'boolean',
    replication = 'string, number, table', instance_uuid = 'string', replicaset_uuid = 'string',
    custom_proc_title = 'string', pid_file = 'string', background = 'boolean', username = 'string',
    coredump = 'boolean', read_only = 'boolean', hot_standby = 'boolean', checkpoint_interval = 'number',
    checkpoint_wal_threshold = 'number', checkpoint_count = 'number', worker_pool_threads = 'number',
    election_mode = 'string', election_timeout = 'number', replication_timeout = 'number',
    replication_sync_lag = 'number', replication_sync_timeout = 'number', replication_synchro_quorum = 'number',
    replication_synchro_timeout = 'number', replication_connect_timeout = 'number',
    replication_connect_quorum = 'number', replication_skip_conflict = 'boolean', replication_anon = 'boolean',
    replicas_before_reply = 'number', replicas_missing = 'string',
    feedback_enabled = 'boolean', feedback_host = 'string', feedback_interval = 'number',
    net_msg_max = 'number', sql_cache_size = 'number',
}

local function refuse(name, reason) client_error('CFG', ("Incorrect value for option '%s': %s"):format(name, reason)) end

-- A value under the new name of an option; the same option may stand there under both names if the values are equal.
local function renamed(options, name, new, value)
    log.warn("box.cfg: '%s' is the old name of '%s'", name, new)
    if name == 'slab_alloc_arena' then value = math.floor(value * 1073741824) end
    if name:match('^panic_on') then value = not value end
    local other = options[new]
    if other ~= nil and other ~= value then
        client_error('CFG', ("Incorrect value for option '%s': the old name '%s' has another value"):format(new, name))
    end
    return value
end

local function typed(options)
    local checked = {}
    for name, value in pairs(options) do
        if type(name) ~= 'string' then refuse('cfg', 'should be a table') end
        local new = OLD_NAMES[name]
        if new then name, value = new, renamed(options, name, new, value) end
        local types = OPTIONS[name]
        if not types then refuse(name, 'unexpected option') end
        -- No value, and an empty text, stand for what is there without the option.
        if value == nil and name == 'listen' then value = '' end
        if value == '' and name == 'wal_mode' then value = nil end
        if value ~= nil then
            if name == 'log_level' and not types:find(type(value), 1, true) then refuse(name, 'must be a number or a string') end
            if not types:find(type(value), 1, true) then
                refuse(name, 'should be ' .. (types:find(',') and 'one of types ' .. types or 'of type ' .. types))
            end
            checked[name] = value
        end
    end
    return checked
end

local function outside(low, high) return function(value) return value < low or value > high end end
local function not_above(bound) return function(value) return value <= bound end end
local function below(bound) return function(value) return value < bound end end

-- Whether a text, or one of several, says no place to listen at or to connect to.
local function is_no_address(value)
    if type(value) == 'table' then
        for _, one in pairs(value) do if is_no_address(one) then return true end end
        return false
    end
    local text = tostring(value)
    if text == '' or text:match('^%.?/[^/]') then return false end
    local parsed = require('uri').parse(text)
    return not parsed or not parsed.service
end

local function is_nil_uuid(text) return text:match('^[0-]+$') ~= nil end

-- The most memory that a Tarantool takes for tuples.
local MAX_MEMORY = 4398046510080
local function beyond_memory(value) return ('must be >= 0 and <= %.0f, but it is %.0f'):format(MAX_MEMORY, value) end

-- A file whose name has a colon is named with `file:` before it.
local function has_unknown_prefix(target)
    if target:find('^|') or target:find('^file:') or target:find('^pipe:') or target:find('^syslog:') then return false end
    return target:find(':', 1, true) ~= nil
end

-- In which case a value is refused, and with which words, or a function that makes them of the value.
local RULES = {
    { 'log', has_unknown_prefix, "expecting a file name or a prefix, such as '|', 'pipe:', 'syslog:'" },
    { 'memtx_min_tuple_size', outside(8, 1048280), 'specified value is out of bounds' },
    { 'listen', is_no_address, 'expected host:service or /unix.socket' },
    { 'replication', is_no_address, 'expected host:service or /unix.socket' },
    { 'net_msg_max', below(2), 'minimal value is 2' },
    { 'log_format', function(format) return format ~= 'json' and format ~= 'plain' end, 'expected json,plain' },
    { 'readahead', outside(128, 2147483647), 'specified value is out of bounds' },
    { 'replication_timeout', not_above(0), 'the value must be greather than 0' },
    { 'replication_connect_timeout', not_above(0), 'the value must be greather than 0' },
    { 'replication_sync_lag', not_above(0), 'the value must be greater than 0' },
    { 'replication_sync_timeout', not_above(0), 'the value must be greater than 0' },
    { 'replication_connect_quorum', below(0), 'the value must be greater or equal to 0' },
    {
        'replication_synchro_quorum', outside(1, 31),
        'the value must be greater than zero and less than maximal number of replicas',
    },
    { 'replication_synchro_timeout', not_above(0), 'the value must be greater than zero' },
    { 'instance_uuid', is_nil_uuid, 'nil UUID is reserved' },
    { 'replicaset_uuid', is_nil_uuid, 'nil UUID is reserved' },
    { 'wal_max_size', below(0), 'specified value is out of bounds' },
    { 'memtx_memory', outside(0, MAX_MEMORY), beyond_memory },
    { 'vinyl_memory', outside(0, MAX_MEMORY), beyond_memory },
    { 'vinyl_read_threads', below(1), 'must be greater than or equal to 1' },
    { 'vinyl_write_threads', below(2), 'must be greater than or equal to 2' },
    { 'vinyl_page_size', not_above(0), 'must be greater than 0 and less than or equal to vinyl_range_size' },
    { 'vinyl_run_count_per_level', not_above(0), 'must be greater than 0' },
    { 'vinyl_run_size_ratio', not_above(1), 'must be greater than 1' },
    {
        'vinyl_bloom_fpr', function(rate) return rate <= 0 or rate > 1 end,
        'must be greater than 0 and less than or equal to 1',
    },
}

--- The options with their new names, or the error that names the first wrong one.
function internal.check_cfg(options)
    local checked = typed(options)
    for _, option in ipairs({ 'level', 'log', 'nonblock' }) do
        local name = option == 'log' and option or 'log_' .. option
        local fault = checked[name] ~= nil and log.box_api.fault(option, checked[name])
        if fault then refuse(name, fault) end
    end
    local target = checked.log or log.box_api.cfg_get('log')
    if checked.log_nonblock and not (target and (target:find('^|') or target:find('^pipe:') or target:find('^syslog:'))) then
        refuse('log_nonblock', 'the option is incompatible with file/stderr logger')
    end
    for _, rule in ipairs(RULES) do
        local name, is_wrong, reason = unpack(rule)
        local value = checked[name]
        if value ~= nil and is_wrong(value) then refuse(name, type(reason) == 'function' and reason(value) or reason) end
    end
    local page, range = checked.vinyl_page_size, checked.vinyl_range_size
    if page and range and range > 0 and page > range then
        refuse('vinyl_page_size', 'must be greater than 0 and less than or equal to vinyl_range_size')
    end
    return checked
end
