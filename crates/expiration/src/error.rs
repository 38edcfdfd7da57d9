//! Errors that refuse a task or stop it.

/// Why a task is refused or stops.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// An argument or a definition that makes no sense (ILLEGAL_PARAMS, code 1).
    #[error("Illegal parameters, {0}")]
    Illegal(String),
    /// What the store refuses.
    #[error(transparent)]
    Store(#[from] lycosa_store::Error),
    /// The walk over an index cannot go on.
    #[error(transparent)]
    Walk(#[from] lycosa_store::CursorError),
    /// An expired tuple could not be put into the archive.
    #[error("the archive takes no tuple: {0}")]
    Archive(String),
}

impl Error {
    /// An argument or a definition that makes no sense.
    pub(crate) fn illegal(reason: impl Into<String>) -> Self {
        Self::Illegal(reason.into())
    }
}
