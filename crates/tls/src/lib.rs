//! TLS from PEM files: a server's certificate, a client's trust, and errors that name the file and the remedy.
//!
//! Both ends of a connection read their settings here, so that a server, the Rust client and a replica say the same
//! about the same file. The protocol itself is `rustls` with the `ring` provider: TLS 1.2 and 1.3.
//!
//! A client of Lycosa trusts the certificates of one file and nothing else: the system's list plays no part. A certificate in that
//! file may be an authority, or the server's own, self-signed one (see [`trust`]). Clients of the web are in [`web`].
//!
//! Invariants: no error shows the content of a key; a key that does not belong to its certificate is refused before
//! the first connection. Absent: sockets, revocation lists.

mod error;
mod pem;
mod signatures;
pub mod trust;
pub mod web;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use error::TlsError;
pub use rustls;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A certificate and its private key, both as PEM.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The certificate, followed by those of intermediate authorities.
    pub certificate: PathBuf,
    /// Its private key, not encrypted.
    pub key: PathBuf,
}

impl Identity {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let chain = pem::certificates("certificate", &self.certificate)?;
        let key = pem::key(&self.key)?;
        let signer = provider().key_provider.load_private_key(key.clone_key()).map_err(|error| {
            pem::content("key", &self.key, format!("holds a key that cannot be used ({error}): use ECDSA P-256, Ed25519 or RSA of 2048 bits and more"))
        })?;
        match CertifiedKey::new(chain.clone(), signer).keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
                Ok((chain, key))
            }
            Err(rustls::Error::InconsistentKeys(_)) => {
                Err(TlsError::Mismatch { certificate: self.certificate.clone(), key: self.key.clone() })
            }
            Err(error) if is_of_old_version(&error) => {
                Err(pem::content("certificate", &self.certificate, format!("has {OLD_VERSION}")))
            }
            Err(error) => Err(pem::content("certificate", &self.certificate, format!("is damaged: {error}"))),
        }
    }
}

/// What `openssl x509 -req` makes of a request without extensions.
const OLD_VERSION: &str = "X.509 version 1, and TLS takes version 3 only: \
     make it with `openssl req -x509 -CA CA.pem -CAkey CA.key -addext …`, or `openssl x509 -req -extfile …`";

fn is_of_old_version(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(rustls::CertificateError::Other(_)))
        && error.to_string().contains("UnsupportedCertVersion")
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What a server presents. With `client_ca` every client has to present a certificate of an authority in that file.
///
/// # Errors
/// A file that cannot be read, or does not hold what it should.
pub fn server(identity: &Identity, client_ca: Option<&Path>) -> Result<Arc<ServerConfig>, TlsError> {
    let (chain, key) = identity.read()?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites for every version of TLS that rustls knows");
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier = authorities("client CA", path).and_then(|found| {
                trust::Clients::new(found).map_err(|error| pem::content("client CA", path, error.to_string()))
            })?;
            builder.with_client_cert_verifier(Arc::new(verifier))
        }
    };
    let config = builder.with_single_cert(chain, key).map_err(|error| {
        pem::content("certificate", &identity.certificate, format!("cannot be used: {error}"))
    })?;
    Ok(Arc::new(config))
}

/// The certificate that a client presents on request, and its trust: the certificates in the file `ca`.
///
/// # Errors
/// A file that cannot be read, or does not hold what it should.
pub fn client(ca: &Path, identity: Option<&Identity>) -> Result<Arc<ClientConfig>, TlsError> {
    present(Arc::new(trust::Trusted(authorities("CA", ca)?)), identity)
}

/// The settings of a client that verifies servers by `verifier`, and presents `identity` if a server asks for it.
fn present(
    verifier: Arc<dyn ServerCertVerifier>,
    identity: Option<&Identity>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites for every version of TLS that rustls knows")
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = identity.read()?;
            builder.with_client_auth_cert(chain, key).map_err(|error| {
                pem::content("certificate", &identity.certificate, format!("cannot be used: {error}"))
            })?
        }
    };
    Ok(Arc::new(config))
}

/// The name that a server's certificate has to be for: `host` or `host:port`, IPv6 addresses with or without brackets.
///
/// # Errors
/// The host is neither a name nor an IP address.
pub fn server_name(address: &str) -> Result<ServerName<'static>, TlsError> {
    let host = match address.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') && (!host.contains(':') || host.ends_with(']')) => host,
        _ => address,
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))
}

/// Whether accounts other than its owner may read the key file.
pub fn is_key_open_to_others(key: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(key).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
}

/// The failure of a handshake, in words for the person that has set up this client or server.
pub fn explain(error: &rustls::Error) -> String {
    use rustls::{AlertDescription, CertificateError, Error};
    if let Some(problem) = dates(error) {
        return format!("its certificate, or that of its authority, {problem}");
    }
    match error {
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => {
            "the peer does not speak TLS on this port".to_owned()
        }
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is not signed by an authority in the CA file".to_owned()
        }
        error if is_of_old_version(error) => format!("its certificate has {OLD_VERSION}"),
        // A self-signed certificate that is not the trusted one.
        Error::InvalidCertificate(CertificateError::Other(_) | CertificateError::BadSignature) => {
            "its certificate is neither in the CA file nor signed by an authority in it".to_owned()
        }
        Error::InvalidCertificate(CertificateError::NotValidForName) => {
            "its certificate is for another name".to_owned()
        }
        Error::InvalidCertificate(CertificateError::NotValidForNameContext { expected, presented }) => {
            let names: Vec<_> = presented.iter().map(|name| plain_name(name)).collect();
            let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
            format!("its certificate is for another name: for {names}, not for {}", expected.to_str())
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "it wants a client certificate".to_owned()
        }
        Error::NoCertificatesPresented => "it presented no client certificate".to_owned(),
        Error::AlertReceived(AlertDescription::UnknownCA) => {
            "it does not trust the authority of the certificate that it was shown".to_owned()
        }
        Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "the certificate that it was shown, or that of its authority, is not valid now".to_owned()
        }
        Error::AlertReceived(AlertDescription::CertificateUnknown | AlertDescription::BadCertificate) => {
            "it does not trust the certificate that it was shown".to_owned()
        }
        Error::AlertReceived(AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion)
        | Error::PeerIncompatible(_) => {
            "it has no version or cipher of TLS 1.2 or 1.3 in common with this side".to_owned()
        }
        Error::AlertReceived(AlertDescription::UnrecognisedName) => {
            "it has no certificate for the name under which it was reached".to_owned()
        }
        error => error.to_string(),
    }
}

/// `queue.example` of `DnsName("queue.example")`, as the library writes the names of a certificate.
fn plain_name(written: &str) -> &str {
    let quoted = written.split('"').nth(1);
    let bare = written.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    quoted.or(bare).unwrap_or(written)
}

/// The certificates of a CA file, each of which can be an authority.
fn authorities(what: &'static str, path: &Path) -> Result<trust::Authorities, TlsError> {
    let certificates = pem::certificates(what, path)?;
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots.add(certificate.clone()).map_err(|error| {
            pem::content(what, path, format!("holds a certificate that cannot be used: {error}"))
        })?;
    }
    trust::Authorities::new(certificates, &provider())
        .map_err(|error| pem::content(what, path, error.to_string()))
}

/// The fault of the dates of a file's certificates at `now`, for a person; `None` if they are valid. `what` names the purpose of
/// the file. A certificate that cannot be read has no dates here: its use reports the fault.
///
/// # Errors
/// The file cannot be read, or holds no certificate.
pub fn out_of_date(what: &'static str, path: &Path, now: SystemTime) -> Result<Option<String>, TlsError> {
    let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let certificates = pem::certificates(what, path)?;
    let Ok(found) = trust::Authorities::new(certificates.clone(), &provider()) else { return Ok(None) };
    let refused = certificates.iter().find_map(|certificate| {
        found.check_dates(certificate, UnixTime::since_unix_epoch(since_epoch)).err()
    });
    Ok(refused.map(|error| {
        let problem = dates(&error).unwrap_or_else(|| error.to_string());
        format!("the {what} file {} holds a certificate that {problem}", path.display())
    }))
}

/// When a certificate was or will be valid, if its dates are the fault.
fn dates(error: &rustls::Error) -> Option<String> {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let rustls::Error::InvalidCertificate(error) = error else { return None };
    let shown = |time: &UnixTime| {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs());
        humantime::format_rfc3339_seconds(at).to_string()
    };
    Some(match error {
        Expired => "has expired".to_owned(),
        ExpiredContext { not_after, .. } => format!("has expired at {}", shown(not_after)),
        NotValidYet => "is not valid yet".to_owned(),
        NotValidYetContext { not_before, .. } => format!("is not valid before {}", shown(not_before)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
