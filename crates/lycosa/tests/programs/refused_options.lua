-- Options of box.cfg with values that are refused: box is not started by any of them. Both servers print the same.
local function invalid(name, value)
    local done, message = pcall(box.cfg, { [name] = value })
    print(name, tostring(value), done, tostring(message):match('Incorrect[^:]*'))
end

for _, case in ipairs({
    { 'memtx_memory', -1 }, { 'memtx_min_tuple_size', 7 }, { 'memtx_min_tuple_size', 0 }, { 'memtx_min_tuple_size', -1 },
    { 'memtx_min_tuple_size', 1048281 }, { 'replication', '//guest@localhost:3301' }, { 'replication_timeout', 0 },
    { 'replication_sync_lag', 0 }, { 'replication_sync_timeout', -1 }, { 'replication_sync_timeout', 0 },
    { 'replication_connect_timeout', 0 }, { 'replication_connect_quorum', -1 }, { 'wal_mode', 'invalid' }, { 'listen', '//!' },
    { 'log_level', 'unknown' }, { 'log_format', 'xml' }, { 'vinyl_memory', -1 }, { 'vinyl_read_threads', 0 },
    { 'vinyl_write_threads', 1 }, { 'vinyl_page_size', 0 }, { 'vinyl_run_count_per_level', 0 }, { 'vinyl_run_size_ratio', 1 },
    { 'vinyl_bloom_fpr', 0 }, { 'vinyl_bloom_fpr', 1.1 }, { 'readahead', 1 },
    { 'instance_uuid', '00000000-0000-0000-0000-000000000000' }, { 'replicaset_uuid', '00000000-0000-0000-0000-000000000000' },
}) do
    invalid(unpack(case))
end
for _, options in ipairs({
    { log = ':' }, { log = ':test:' }, { log = 'a:b' }, { log = '1.log', log_nonblock = true },
    { log = 'file:1.log', log_nonblock = true },
}) do
    print(pcall(box.cfg, options))
end
-- Tarantool keeps refused options of the log.
print((pcall(box.cfg, { log = 'refused_options.log', log_nonblock = false, readahead = 1 })))
print(pcall(box.cfg, { vinyl_page_size = 4 * 1024 ^ 2, vinyl_range_size = 2 * 1024 ^ 2 }))
print((pcall(box.cfg, { slab_alloc_arena = 0.2, memtx_memory = 107374182 })))
print(type(box.cfg), (pcall(function() return box.space end)))

box.cfg({
    slab_alloc_arena = 0.2, memtx_memory = 214748364, slab_alloc_minimal = 16, memtx_min_tuple_size = 16, vinyl_memory = 0,
    wal_mode = '', log = 'refused_options.log', vinyl_page_size = 1024 ^ 2, vinyl_range_size = 1024 ^ 2, listen = '127.0.0.1:0',
})
print(type(box.cfg), box.cfg.memtx_memory, box.cfg.vinyl_memory, box.info.listen ~= nil)
box.cfg({ listen = box.NULL })
print(box.info.listen)
os.exit(0)
