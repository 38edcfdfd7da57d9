//! Sessions of the model.

/// A session, by the order in which the model came to know it. Its real id is another matter: the instance draws it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionKey(pub(crate) u32);

/// A session that the queue knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Session {
    /// When it ends, µs since the epoch; `None` while it is active.
    pub(crate) expires: Option<u64>,
    /// Whether `admin` has opened it, and not `guest`.
    pub(crate) is_admins: bool,
}
