//! TLS of a connection: what [`TlsOptions`] say, and the handshake.

use std::path::PathBuf;

/// How to speak TLS with a server.
///
/// The server has to present a certificate for its host name, signed by an authority in the file [`Self::ca`], or a
/// certificate that itself stands in that file. The authorities that the system knows are not asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// PEM file with the certificates to trust. Without it no connection is made.
    pub ca: Option<PathBuf>,
    /// PEM files with this client's certificate and its private key, for servers that want one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate has to be for, if it is not the host of the address.
    pub server_name: Option<String>,
}

impl TlsOptions {
    /// Trusts the certificates of a PEM file.
    pub fn new(ca: impl Into<PathBuf>) -> Self {
        Self { ca: Some(ca.into()), ..Self::default() }
    }

    /// The same with a client certificate and its private key.
    pub fn identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// The same for a server whose certificate is for `name`.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }
}

#[cfg(feature = "tls")]
mod handshake {
    use lycosa_tls::rustls;
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;

    use super::TlsOptions;
    use crate::error::{Error, Result};

    /// Why a stream ended during the handshake.
    fn of_stream(error: &std::io::Error) -> String {
        use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        match error.kind() {
            BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof => {
                "the peer closed the connection during the handshake: does it speak TLS on this port?"
                    .to_owned()
            }
            _ => error.to_string(),
        }
    }

    impl TlsOptions {
        /// Speaks TLS over `stream` from now on. `address` names the server. The files are read each time, so that a
        /// renewed certificate needs no new client.
        pub(crate) async fn handshake(
            &self,
            stream: TcpStream,
            address: &str,
        ) -> Result<TlsStream<TcpStream>> {
            let failed = |reason: String| Error::Tls { address: address.to_owned(), reason };
            let of_file = |error: lycosa_tls::TlsError| failed(error.to_string());
            let Some(ca) = &self.ca else {
                return Err(failed("no file with certificates to trust was named (a CA file)".to_owned()));
            };
            let identity = self.identity.as_ref().map(|(certificate, key)| lycosa_tls::Identity {
                certificate: certificate.clone(),
                key: key.clone(),
            });
            let config = lycosa_tls::client(ca, identity.as_ref()).map_err(of_file)?;
            let name =
                lycosa_tls::server_name(self.server_name.as_deref().unwrap_or(address)).map_err(of_file)?;
            TlsConnector::from(config).connect(name, stream).await.map_err(|error| {
                let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
                failed(cause.map_or_else(|| of_stream(&error), lycosa_tls::explain))
            })
        }
    }
}
