//! Clients of the web: they trust the authorities of the system, or of a file or folder that the caller names.
//!
//! A caller may switch the verification of the certificate or of its name off, as every client of HTTP lets its caller do.
//! The connection is then encrypted, and the peer is unknown.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};

use crate::signatures::handshake_signatures;
use crate::{Identity, TlsError, pem, present, provider};

/// Where systems keep their list of authorities.
const SYSTEM_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// How a client of the web verifies servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// A file of authorities instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// A folder of such files.
    pub ca_path: Option<PathBuf>,
    /// Whether the certificate has to be signed by an authority.
    pub peer: bool,
    /// Whether the certificate has to be for the server's name.
    pub host: bool,
}

impl Verification {
    /// What `ca_file` and `ca_path` hold, or the system's list. Single certificates that cannot be used are left out: the list
    /// is not the caller's own.
    fn roots(&self) -> Result<RootCertStore, TlsError> {
        const WHAT: &str = "CA";
        let mut roots = RootCertStore::empty();
        let mut files: Vec<PathBuf> = self.ca_file.iter().cloned().collect();
        if let Some(folder) = &self.ca_path {
            let unreadable = |cause| TlsError::Unreadable { what: WHAT, path: folder.clone(), cause };
            for entry in std::fs::read_dir(folder).map_err(unreadable)? {
                let path = entry.map_err(unreadable)?.path();
                if path.extension().is_some_and(|extension| extension == "pem" || extension == "crt") {
                    files.push(path);
                }
            }
        }
        if self.ca_file.is_none() && self.ca_path.is_none() {
            let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
            let known = SYSTEM_FILES.iter().map(PathBuf::from).find(|path| path.exists());
            files.extend(named.or(known));
        }
        for file in &files {
            let _ = roots.add_parsable_certificates(pem::certificates(WHAT, file)?);
        }
        if roots.is_empty() {
            let path = files.first().map_or(Path::new(SYSTEM_FILES[0]), PathBuf::as_path);
            return Err(pem::content(WHAT, path, "holds no authority: name one with ca_file"));
        }
        Ok(roots)
    }
}

/// The settings of a client that verifies servers like this, and presents `identity` if a server asks for it.
///
/// # Errors
/// A file that cannot be read, or does not hold what it should.
pub fn client(
    verification: &Verification,
    identity: Option<&Identity>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let inner = if verification.peer {
        let builder =
            WebPkiServerVerifier::builder_with_provider(Arc::new(verification.roots()?), provider());
        let built = builder.build();
        Some(built.map_err(|error| pem::content("CA", Path::new(SYSTEM_FILES[0]), error.to_string()))?)
    } else {
        None
    };
    let verifier = WebVerifier { inner, host: verification.host, provider: provider() };
    present(Arc::new(verifier), identity)
}

/// Verifies as much as was asked for. Signatures of the handshake are always verified.
#[derive(Debug)]
struct WebVerifier {
    inner: Option<Arc<WebPkiServerVerifier>>,
    host: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for WebVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.host => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    handshake_signatures!(|verifier| verifier.provider);
}
