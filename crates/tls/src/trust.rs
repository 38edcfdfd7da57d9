//! A client's trust: the authorities of a file, and servers whose own certificate stands in it.
//!
//! Who begins makes one self-signed certificate and gives it to both ends. Such a certificate calls itself an authority
//! as a rule, and a strict verifier accepts no authority as a server. [`Trusted`] accepts a certificate that is byte by
//! byte in the file, for the names that it is for; everything else is verified as usual.
//!
//! Invariant: a certificate of the file counts while it is valid and no longer, as an authority too. (`rustls` looks at the
//! dates of a chain's certificates and not at those of its authority.) [`Trusted`] and [`Clients`] therefore leave
//! certificates out whose dates do not include the present.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, DistinguishedName, Error, RootCertStore};

use crate::signatures::handshake_signatures;

/// The certificates of a CA file.
#[derive(Debug)]
pub(crate) struct Authorities {
    certificates: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
    /// Trusts all of them: reads their dates, and verifies signatures.
    all: Arc<WebPkiServerVerifier>,
}

impl Authorities {
    /// # Errors
    /// There are no certificates, or one that cannot be an authority.
    pub(crate) fn new(
        certificates: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let roots = Arc::new(store(certificates.iter()));
        let all = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider)).build()?;
        Ok(Self { certificates, provider: Arc::clone(provider), all })
    }

    /// Refuses a certificate whose dates do not include `now`.
    pub(crate) fn check_dates(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
        let name = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
        match self.all.verify_server_cert(certificate, &[], &name, &[], now) {
            Err(error) if is_out_of_date(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// The certificates that are valid at `now`; the error is that of the first one if none is.
    fn valid(&self, now: UnixTime) -> Result<Vec<&CertificateDer<'static>>, Error> {
        let (mut valid, mut refused) = (Vec::new(), None);
        for certificate in &self.certificates {
            match self.check_dates(certificate, now) {
                Ok(()) => valid.push(certificate),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        match refused {
            Some(error) if valid.is_empty() => Err(error),
            _ => Ok(valid),
        }
    }

    /// The store of the authorities that are valid at `now`; `None` if all are.
    pub(crate) fn valid_roots(&self, now: UnixTime) -> Result<Option<Arc<RootCertStore>>, Error> {
        let valid = self.valid(now)?;
        let is_whole = valid.len() == self.certificates.len();
        Ok((!is_whole).then(|| Arc::new(store(valid.into_iter()))))
    }
}

/// Certificates that cannot be authorities were refused when their file was read.
fn store<'a>(certificates: impl Iterator<Item = &'a CertificateDer<'static>>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.cloned());
    roots
}

fn is_out_of_date(error: &Error) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let Error::InvalidCertificate(error) = error else { return false };
    matches!(error, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}

fn builder_error(error: &VerifierBuilderError) -> Error {
    Error::General(error.to_string())
}

/// The verifier of servers' certificates.
#[derive(Debug)]
pub struct Trusted(pub(crate) Authorities);

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authorities = &self.0;
        if authorities.certificates.contains(end_entity) {
            authorities.check_dates(end_entity, now)?;
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        let of_valid = match authorities.valid_roots(now)? {
            None => Arc::clone(&authorities.all),
            Some(roots) => {
                let provider = Arc::clone(&authorities.provider);
                let builder = WebPkiServerVerifier::builder_with_provider(roots, provider);
                builder.build().map_err(|error| builder_error(&error))?
            }
        };
        of_valid.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    handshake_signatures!(|verifier| verifier.0.provider);
}

/// The verifier of clients' certificates.
#[derive(Debug)]
pub(crate) struct Clients {
    authorities: Authorities,
    all: Arc<dyn ClientCertVerifier>,
}

impl Clients {
    /// # Errors
    /// There are no authorities.
    pub(crate) fn new(authorities: Authorities) -> Result<Self, VerifierBuilderError> {
        let roots = Arc::new(store(authorities.certificates.iter()));
        let provider = Arc::clone(&authorities.provider);
        let all = WebPkiClientVerifier::builder_with_provider(roots, provider).build()?;
        Ok(Self { authorities, all })
    }
}

impl ClientCertVerifier for Clients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.all.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let of_valid = match self.authorities.valid_roots(now)? {
            None => Arc::clone(&self.all),
            Some(roots) => {
                let provider = Arc::clone(&self.authorities.provider);
                let builder = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.build().map_err(|error| builder_error(&error))?
            }
        };
        of_valid.verify_client_cert(end_entity, intermediates, now)
    }

    handshake_signatures!(|verifier| verifier.authorities.provider);
}
