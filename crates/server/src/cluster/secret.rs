//! The secret that the members of a group share, and the proofs made with it.
//!
//! A proof is HMAC-SHA-256 over everything that both sides have said, so a proof of one connection is worthless for
//! another one. Proofs of the two sides differ in their label: a peer that sends a proof back proves nothing.
//!
//! Absent: encryption. Who can change bytes on the way can take over a connection after its handshake; `tls://`
//! addresses keep others out.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, ensure};
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Bytes of a proof.
pub(crate) const PROOF: usize = 32;
/// The shortest secret that is accepted, in bytes.
const SHORTEST: usize = 16;
/// The longest one.
const LONGEST: usize = 4096;

/// Which side proves that it knows the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The one that opened the connection.
    Connector,
    /// The one that accepted it.
    Acceptor,
}

/// The secret. Its text form shows nothing of it.
pub(crate) struct Secret(Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Reads the secret of a group: the content of the file without white space around it.
    ///
    /// # Errors
    /// The file cannot be read, other accounts can read it, or the secret is shorter than 16 bytes or longer than 4096.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let file = path.display();
        let advice = format!("`head -c 32 /dev/urandom | base64 > {file}; chmod 600 {file}` makes a secret");
        let content = std::fs::read(path).with_context(|| {
            format!("cannot read cluster.secret_file {file}: every member needs the same file; {advice}")
        })?;
        let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
        ensure!(
            mode & 0o077 == 0,
            "other accounts can read cluster.secret_file {file} (mode {:03o}): `chmod 600 {file}` keeps them out",
            mode & 0o777
        );
        let secret = content.trim_ascii();
        ensure!(
            (SHORTEST..=LONGEST).contains(&secret.len()),
            "the secret in cluster.secret_file {file} has {} bytes, and needs {SHORTEST} to {LONGEST}: {advice}",
            secret.len()
        );
        Ok(Self(secret.to_vec()))
    }

    fn mac(&self, side: Side, parts: [&[u8]; 2]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of every length");
        mac.update(match side {
            Side::Connector => b"lycosa member connects",
            Side::Acceptor => b"lycosa member accepts\0",
        });
        parts.iter().for_each(|part| mac.update(part));
        mac
    }

    /// The proof of one side. `head` and `nonce` have fixed lengths.
    pub(crate) fn proof(&self, side: Side, head: &[u8], nonce: &[u8]) -> [u8; PROOF] {
        self.mac(side, [head, nonce]).finalize().into_bytes().into()
    }

    /// Whether a proof is right; the time that this takes says nothing about a wrong one.
    pub(crate) fn is_proof(&self, proof: &[u8; PROOF], side: Side, head: &[u8], nonce: &[u8]) -> bool {
        self.mac(side, [head, nonce]).verify_slice(proof).is_ok()
    }
}

#[cfg(test)]
pub(crate) fn secret_of(text: &str) -> Secret {
    Secret(text.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_belongs_to_one_side_and_one_connection() {
        let secret = secret_of("0123456789abcdef");
        let proof = secret.proof(Side::Connector, &[1; 64], &[2; 32]);
        assert!(secret.is_proof(&proof, Side::Connector, &[1; 64], &[2; 32]));
        assert!(!secret.is_proof(&proof, Side::Acceptor, &[1; 64], &[2; 32]));
        assert!(!secret.is_proof(&proof, Side::Connector, &[1; 64], &[3; 32]));
        assert!(!secret.is_proof(&proof, Side::Connector, &[4; 64], &[2; 32]));
        assert!(!secret_of("0123456789abcdeX").is_proof(&proof, Side::Connector, &[1; 64], &[2; 32]));
    }

    #[test]
    fn a_secret_that_others_know_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let read = || Secret::read(&path).map_err(|error| error.to_string());
        assert!(read().unwrap_err().contains("/dev/urandom"), "the error says how to make one");
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        };
        write("0123456789abcdef\n", 0o640);
        assert!(read().unwrap_err().contains("mode 640"));
        write("0123456789abcde\n", 0o600);
        assert!(read().unwrap_err().contains("has 15 bytes"));
        write("0123456789abcdef\n", 0o600);
        assert_eq!(read().unwrap().0, b"0123456789abcdef");
    }
}
