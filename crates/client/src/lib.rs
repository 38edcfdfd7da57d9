//! Typed asynchronous client for Lycosa and tarantool/queue servers.
