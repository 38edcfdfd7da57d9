//! Faults of TLS files.

use std::path::PathBuf;

/// Faults of TLS files. Each names the file, the fault, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read the {what} file {}: {cause}", path.display())]
    Unreadable {
        /// What the file is for.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// A file holds something else than it should.
    #[error("the {what} file {} {problem}", path.display())]
    Content {
        /// What the file is for.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The fault and the remedy, to be read after the file's name.
        problem: String,
    },
    /// Certificate and key are of two pairs.
    #[error(
        "the key {} does not belong to the certificate {}: name the key with which the certificate was made",
        key.display(), certificate.display()
    )]
    Mismatch {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// The text is neither a host's name nor an IP address, so no certificate can be for it.
    #[error("{0:?} is neither a host name nor an IP address")]
    Name(String),
}
