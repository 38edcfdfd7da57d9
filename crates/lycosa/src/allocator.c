/* Jemalloc's settings, part of every binary however it is built; `_RJEM_MALLOC_CONF` overrides them when a process starts.
 *
 * Memory goes back to the system within seconds, in a thread of the allocator, and never inside a free() of the loop: one
 * such call took up to 5 ms ("Expiration" in docs/performance.md). */

extern const char *_rjem_malloc_conf;
const char *_rjem_malloc_conf = "background_thread:true,oversize_threshold:0,dirty_decay_ms:1000,muzzy_decay_ms:1000";
