//! Signatures of the handshake: every verifier checks them by the algorithms of its provider.

/// The three methods of `ServerCertVerifier` and `ClientCertVerifier` about signatures. The argument names the verifier's
/// [`CryptoProvider`](rustls::crypto::CryptoProvider).
macro_rules! handshake_signatures {
    (|$verifier:ident| $provider:expr) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let $verifier = self;
            let algorithms = &$provider.signature_verification_algorithms;
            rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let $verifier = self;
            let algorithms = &$provider.signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            let $verifier = self;
            $provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

pub(crate) use handshake_signatures;
