//! Certificates and keys of the configuration, for TLS: read at the start, and again at SIGHUP.
//!
//! A wrong file keeps a server from starting. A running server goes on with the files that it has read before, and logs
//! the fault.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, bail};
use lycosa_tls::Identity;
use lycosa_tls::rustls::{ClientConfig, ServerConfig};

use crate::config::Config;

/// The certificates for clients and for masters; `None` where TLS is off.
#[derive(Debug, Clone, Default)]
pub(crate) struct Certificates {
    /// For `listen_tls`.
    pub(crate) server: Option<Arc<ServerConfig>>,
    /// For `cluster.listen`, where that is a `tls://` address: members prove the secret, and present certificates if
    /// `tls.client_ca` is set.
    pub(crate) member: Option<Arc<ServerConfig>>,
    /// For `http.listen_tls`: clients present tokens, not certificates.
    pub(crate) http: Option<Arc<ServerConfig>>,
    /// For masters at `tls://` addresses.
    pub(crate) client: Option<Arc<ClientConfig>>,
}

impl Certificates {
    /// Reads the files that the configuration names.
    ///
    /// # Errors
    /// A file is wrong, or one that is needed is not named.
    pub(crate) fn read(config: &Config) -> anyhow::Result<Self> {
        let identity = match (&config.tls_certificate, &config.tls_key) {
            (Some(certificate), Some(key)) => {
                warn_if_open_to_others(key);
                Some(Identity { certificate: certificate.clone(), key: key.clone() })
            }
            (None, None) => None,
            (Some(_), None) => {
                bail!("tls.certificate is set and tls.key is not: name the file of its private key")
            }
            (None, Some(_)) => {
                bail!("tls.key is set and tls.certificate is not: name the file of its certificate")
            }
        };
        let served = |is_wanted: bool, key: &str, client_ca: Option<&Path>| {
            if !is_wanted {
                return Ok(None);
            }
            let identity = identity.as_ref().with_context(|| {
                format!(
                    "{key} {} needs a certificate: name the files with tls.certificate and tls.key \
                     (docs/security.md shows how to make them)",
                    config.text(key)
                )
            })?;
            let served = lycosa_tls::server(identity, client_ca);
            served.map(Some).with_context(|| format!("{key} cannot be served"))
        };
        let client_ca = config.tls_client_ca.as_deref();
        let is_member_tls = config.cluster_listen.as_ref().is_some_and(|listen| listen.is_tls);
        let server = served(!config.listen_tls.0.is_empty(), "listen_tls", client_ca)?;
        let http = served(!config.http_listen_tls.0.is_empty(), "http.listen_tls", None)?;
        let member = served(is_member_tls, "cluster.listen", client_ca)?;
        let master = config.replication.0.iter().find(|uri| uri.is_tls);
        let client = if master.is_some() || is_member_tls {
            let ca = config.tls_ca.as_ref().with_context(|| match master {
                Some(uri) => format!("replication names {uri}: name the file with the trusted certificates, tls.ca"),
                None => "cluster.listen is a tls:// address: name the file with the certificates of the members' authority, \
                         tls.ca"
                    .to_owned(),
            })?;
            let peers = if master.is_some() { "replication" } else { "members" };
            let client = lycosa_tls::client(ca, identity.as_ref());
            Some(client.with_context(|| format!("{peers} cannot speak TLS"))?)
        } else {
            None
        };
        warn_of_dates(config, server.is_some() || member.is_some() || http.is_some(), client.is_some());
        Ok(Self { server, member, http, client })
    }
}

/// Warns of certificates whose dates do not include the present: peers refuse such a certificate, and this server refuses
/// certificates that it has signed. The server starts nevertheless: its plain connections work.
fn warn_of_dates(config: &Config, serves: bool, follows: bool) {
    let files = [
        (
            "certificate",
            &config.tls_certificate,
            serves || follows,
            "peers refuse it: renew it and send SIGHUP",
        ),
        (
            "client CA",
            &config.tls_client_ca,
            serves,
            "what it has signed is refused: renew it and send SIGHUP",
        ),
        ("CA", &config.tls_ca, follows, "what it has signed is refused: renew it and send SIGHUP"),
    ];
    for (what, path, is_used, advice) in files {
        let Some(path) = path.as_deref().filter(|_| is_used) else { continue };
        // A file that cannot be read was refused before.
        if let Ok(Some(problem)) = lycosa_tls::out_of_date(what, path, SystemTime::now()) {
            tracing::warn!("{problem}: {advice}");
        }
    }
}

fn warn_if_open_to_others(key: &Path) {
    if lycosa_tls::is_key_open_to_others(key) {
        let key = key.display();
        tracing::warn!("other accounts can read the private key {key}: `chmod 600 {key}` keeps them out");
    }
}
