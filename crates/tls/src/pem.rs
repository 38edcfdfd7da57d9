//! Reading of PEM files, and errors about files that are none.

use std::path::Path;

use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::TlsError;

/// Of a PEM file's size; a chain of certificates is a hundredth of it.
const MAX_SIZE: u64 = 16 << 20;

pub(crate) fn content(what: &'static str, path: &Path, problem: impl Into<String>) -> TlsError {
    TlsError::Content { what, path: path.to_owned(), problem: problem.into() }
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |cause| TlsError::Unreadable { what, path: path.to_owned(), cause };
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_SIZE {
        return Err(content(what, path, format!("has {size} bytes and cannot be a PEM file")));
    }
    std::fs::read(path).map_err(unreadable)
}

/// Every certificate of a file, at least one.
pub(crate) fn certificates(
    what: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(what, path)?;
    let found: Result<Vec<_>, Error> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| damaged(what, path, &error))?;
    if !found.is_empty() {
        return Ok(found);
    }
    let problem = if has(&bytes, "PRIVATE KEY-----") {
        "holds a private key and no certificate: are the two files exchanged?"
    } else if bytes.starts_with(&[0x30, 0x82]) {
        "is binary (DER): convert it with `openssl x509 -inform der -in FILE -out FILE.pem`"
    } else {
        "holds no certificate: expected PEM, which begins with -----BEGIN CERTIFICATE-----"
    };
    Err(content(what, path, problem))
}

/// The private key of a file.
pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    const WHAT: &str = "key";
    let bytes = read(WHAT, path)?;
    match PrivateKeyDer::from_pem_slice(&bytes) {
        Ok(key) => Ok(key),
        Err(Error::NoItemsFound) => {
            let problem = if has(&bytes, "ENCRYPTED PRIVATE KEY-----") {
                "is encrypted, and a server that starts by itself has no passphrase: write it unencrypted with \
                 `openssl pkey -in FILE -out FILE.plain`, readable by the server's account alone"
            } else if has(&bytes, "BEGIN CERTIFICATE-----") {
                "holds a certificate and no private key: are the two files exchanged?"
            } else if bytes.starts_with(&[0x30, 0x82]) {
                "is binary (DER): convert it with `openssl pkey -inform der -in FILE -out FILE.pem`"
            } else {
                "holds no private key: expected PEM, which begins with -----BEGIN PRIVATE KEY-----"
            };
            Err(content(WHAT, path, problem))
        }
        Err(error) => Err(damaged(WHAT, path, &error)),
    }
}

fn damaged(what: &'static str, path: &Path, error: &Error) -> TlsError {
    content(what, path, format!("is damaged: {error}"))
}

fn has(bytes: &[u8], sign: &str) -> bool {
    bytes.windows(sign.len()).any(|window| window == sign.as_bytes())
}
