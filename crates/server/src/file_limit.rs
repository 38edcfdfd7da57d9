//! The limit of open files, which bounds connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// File descriptors that the server needs beside its connections: files, listeners, the loop, and the
/// administrator's connections.
const OTHER_FILES: u64 = 128;

/// Allows as many open files as `max_connections` needs, as far as the system lets us.
pub(crate) fn raise_file_limit(max_connections: u64) {
    let wanted = max_connections.saturating_add(OTHER_FILES);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let current = limit.maximum.map_or(wanted, |maximum| wanted.min(maximum));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit });
    if raised.is_err() || current < wanted {
        tracing::warn!(
            "the system allows {current} open files, which is fewer than max_connections {max_connections} needs: \
             {} connections are taken; raise it with `ulimit -n {wanted}` or LimitNOFILE",
            allowed_connections(max_connections)
        );
    }
}

/// `max_connections`, as far as the limit of open files allows: connections that used up the last descriptor would keep the
/// administrator out, and snapshots and journals from being opened.
pub(crate) fn allowed_connections(max_connections: u64) -> u64 {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return max_connections };
    max_connections.min(limit.saturating_sub(OTHER_FILES).max(limit / 4))
}
