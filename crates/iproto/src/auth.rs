//! `chap-sha1`: a client proves that it knows a password without sending it.
//!
//! The server stores `hash2 = sha1(sha1(password))`, in base64 in `_user`. The client sends
//! `sha1(password) xor sha1(salt ++ hash2)`; undoing the `xor` gives what hashes to `hash2`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha1::{Digest as _, Sha1};

use crate::greeting::{SALT_SIZE, SCRAMBLE_SIZE};

/// Name of the method in requests and in `_user`.
pub const METHOD: &str = "chap-sha1";

/// A SHA-1 hash, or two of them in `xor`.
pub type Hash = [u8; SCRAMBLE_SIZE];

/// What a client with this password sends to a server with this salt.
pub fn scramble(password: &[u8], salt: &[u8; SALT_SIZE]) -> Hash {
    let hash1 = sha1([password]);
    xor(hash1, mask(salt, &sha1([&hash1])))
}

/// Whether `scramble` was made with the password that `hash2` belongs to. Takes the same time for both results.
pub fn check(scramble: &Hash, salt: &[u8; SALT_SIZE], hash2: &Hash) -> bool {
    let candidate = sha1([&xor(*scramble, mask(salt, hash2))]);
    xor(candidate, *hash2).iter().fold(0, |difference, byte| difference | byte) == 0
}

/// What the server keeps of a password.
pub fn hash2(password: &[u8]) -> Hash {
    sha1([&sha1([password])])
}

/// [`hash2`] as it stands in `_user`.
pub fn hash2_base64(password: &[u8]) -> String {
    BASE64.encode(hash2(password))
}

/// Reads [`hash2`] as it stands in `_user`; `None` if it is not base64 of 20 bytes.
pub fn hash2_from_base64(text: &[u8]) -> Option<Hash> {
    BASE64.decode(text).ok()?.try_into().ok()
}

fn mask(salt: &[u8; SALT_SIZE], hash2: &Hash) -> Hash {
    sha1([&salt[..SCRAMBLE_SIZE], hash2])
}

fn sha1<const N: usize>(parts: [&[u8]; N]) -> Hash {
    let mut hasher = Sha1::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().into()
}

fn xor(a: Hash, b: Hash) -> Hash {
    std::array::from_fn(|position| a[position] ^ b[position])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT_LINE: &str = "MPnaK5lFM2RNDRJ/+Pya77EFo8LRdOpPul7VfME7INw=";
    const SCRAMBLE: Hash = [
        0xae, 0x4c, 0x81, 0x07, 0xda, 0xba, 0x4b, 0xfd, 0xec, 0xd2, 0x04, 0x0f, 0x7b, 0x3d, 0x61, 0x19, 0x6b,
        0x96, 0x03, 0xb7,
    ];

    fn salt() -> [u8; SALT_SIZE] {
        BASE64.decode(SALT_LINE).expect("base64").try_into().expect("32 bytes")
    }

    #[test]
    fn scramble_of_a_recorded_connection() {
        assert_eq!(scramble(b"secret", &salt()), SCRAMBLE);
        assert_eq!(hash2_base64(b"secret"), "FOZVZ6vbUTXQz9mnCzAywXmknuc=");
        assert_eq!(hash2_from_base64(b"FOZVZ6vbUTXQz9mnCzAywXmknuc="), Some(hash2(b"secret")));
    }

    #[test]
    fn only_the_right_scramble_passes() {
        let stored = hash2(b"secret");
        assert!(check(&SCRAMBLE, &salt(), &stored));
        assert!(!check(&SCRAMBLE, &salt(), &hash2(b"Secret")));
        assert!(!check(&SCRAMBLE, &[0; SALT_SIZE], &stored));
        for position in 0..SCRAMBLE_SIZE {
            let mut wrong = SCRAMBLE;
            wrong[position] ^= 0x10;
            assert!(!check(&wrong, &salt(), &stored));
        }
        assert!(check(&scramble(b"", &salt()), &salt(), &hash2(b"")));
    }

    #[test]
    fn stored_hashes_are_checked() {
        assert_eq!(hash2_from_base64(b"not base64!"), None);
        assert_eq!(hash2_from_base64(b"AAAA"), None);
    }
}
