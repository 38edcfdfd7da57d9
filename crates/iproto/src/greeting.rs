//! The greeting: 128 bytes that the server sends before anything else.
//!
//! Two lines of 64 bytes, each padded with blanks and ended by `\n`: the first names program, version and instance,
//! the second is the salt of authentication in base64.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use uuid::Uuid;

/// Length of a greeting in bytes.
pub const GREETING_SIZE: usize = 128;
/// Length of the salt in bytes, of which authentication uses the first 20.
pub const SALT_SIZE: usize = 32;
/// Length of a scramble and of a hash in bytes.
pub const SCRAMBLE_SIZE: usize = 20;

const LINE_SIZE: usize = GREETING_SIZE / 2;

/// The version of a server program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Changes that break programs.
    pub major: u8,
    /// Changes that add.
    pub minor: u8,
    /// Corrections.
    pub patch: u8,
}

impl Version {
    /// The number that a replica sends with SUBSCRIBE: 132608 for 2.6.0.
    pub fn packed(self) -> u32 {
        u32::from_be_bytes([0, self.major, self.minor, self.patch])
    }

    /// Reads `2.6.0` and ignores the text behind the third number (`-beta1`, `-0-g47aa4e01e`).
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let mut next = || parts.next();
        let (major, minor, rest) = (next()?, next()?, next()?);
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
            patch: rest[..digits].parse().ok()?,
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What a server says about itself when a client connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// Version of the program, such as `2.6.0`. Clients decide by it what they may ask for.
    pub version: String,
    /// The instance.
    pub uuid: Uuid,
    /// Random bytes, other ones for each connection.
    pub salt: [u8; SALT_SIZE],
}

/// Why a greeting could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GreetingError {
    /// The peer does not begin as a server of this protocol does.
    #[error(
        "the peer does not speak IPROTO: its greeting is not of the form `Tarantool <version> (Binary) <uuid>`"
    )]
    Program,
    /// The second line is not a salt.
    #[error("the salt in the greeting is not base64 of at least 20 bytes")]
    Salt,
    /// The first line would be longer than 63 bytes.
    #[error("version `{0}` is too long for a greeting")]
    VersionTooLong(String),
}

/// What a text begins with that a server of Lycosa sends in place of a greeting, because it cannot serve the client. It
/// is filled up with spaces to [`GREETING_SIZE`], so that a client which waits for a greeting reads it whole.
pub const REFUSAL_PREFIX: &str = "Lycosa: ";

/// What such a text begins with, behind the prefix, if the server can serve the client once its start is over.
pub const STARTING: &str = "the server is starting: ";

/// The bytes of such a text, cut at the size.
pub fn refusal(text: &str) -> [u8; GREETING_SIZE] {
    let mut bytes = [b' '; GREETING_SIZE];
    let text = REFUSAL_PREFIX.bytes().chain(text.bytes());
    bytes[..GREETING_SIZE - 1].iter_mut().zip(text).for_each(|(place, byte)| *place = byte);
    bytes[GREETING_SIZE - 1] = b'\n';
    bytes
}

impl Greeting {
    /// The 128 bytes.
    ///
    /// # Errors
    /// [`GreetingError::VersionTooLong`] if the version has more than 7 bytes.
    pub fn encode(&self) -> Result<[u8; GREETING_SIZE], GreetingError> {
        let first = format!("Tarantool {} (Binary) {}", self.version, self.uuid.hyphenated());
        if first.len() >= LINE_SIZE {
            return Err(GreetingError::VersionTooLong(self.version.clone()));
        }
        let second = BASE64.encode(self.salt);
        let mut bytes = [b' '; GREETING_SIZE];
        bytes[..first.len()].copy_from_slice(first.as_bytes());
        bytes[LINE_SIZE - 1] = b'\n';
        bytes[LINE_SIZE..LINE_SIZE + second.len()].copy_from_slice(second.as_bytes());
        bytes[GREETING_SIZE - 1] = b'\n';
        Ok(bytes)
    }

    /// Reads the 128 bytes. A salt of fewer than 32 bytes is filled up with zeros.
    ///
    /// # Errors
    /// Another program than Tarantool or one that speaks as it, another protocol than `Binary`, no salt.
    pub fn decode(bytes: &[u8; GREETING_SIZE]) -> Result<Self, GreetingError> {
        if bytes[LINE_SIZE - 1] != b'\n' || bytes[GREETING_SIZE - 1] != b'\n' {
            return Err(GreetingError::Program);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| GreetingError::Program)?;
        let (first, second) = text.split_at_checked(LINE_SIZE).ok_or(GreetingError::Program)?;
        let mut words = first.split_ascii_whitespace();
        let (Some("Tarantool"), Some(version), Some("(Binary)"), Some(uuid), None) =
            (words.next(), words.next(), words.next(), words.next(), words.next())
        else {
            return Err(GreetingError::Program);
        };
        let uuid = Uuid::parse_str(uuid).map_err(|_| GreetingError::Program)?;
        let decoded = BASE64.decode(second.trim_ascii_end()).map_err(|_| GreetingError::Salt)?;
        if !(SCRAMBLE_SIZE..=SALT_SIZE).contains(&decoded.len()) {
            return Err(GreetingError::Salt);
        }
        let mut salt = [0; SALT_SIZE];
        salt[..decoded.len()].copy_from_slice(&decoded);
        Ok(Self { version: version.to_owned(), uuid, salt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = concat!(
        "Tarantool 2.6.0 (Binary) e9af5baf-c3a3-4d3d-b079-23966f11467e  \n",
        "zKrGEDjXByDu6P/3CSkDENIHSSYfqX6uEq/etuLg1kY=                   \n",
    );

    fn recorded() -> [u8; GREETING_SIZE] {
        RECORDED.as_bytes().try_into().expect("128 bytes")
    }

    #[test]
    fn a_recorded_greeting() {
        let greeting = Greeting::decode(&recorded()).expect("a greeting");
        assert_eq!(greeting.version, "2.6.0");
        assert_eq!(greeting.uuid.to_string(), "e9af5baf-c3a3-4d3d-b079-23966f11467e");
        assert_eq!(greeting.salt[..4], [0xcc, 0xaa, 0xc6, 0x10]);
        assert_eq!(greeting.encode(), Ok(recorded()));
    }

    #[test]
    fn other_programs() {
        let with = |position: usize, byte: u8| {
            let mut bytes = recorded();
            bytes[position] = byte;
            Greeting::decode(&bytes)
        };
        for position in [0, 9, 16, 26, 63, 127] {
            assert_eq!(with(position, b'?'), Err(GreetingError::Program), "byte {position}");
        }
        assert_eq!(with(70, b'?'), Err(GreetingError::Salt));
        assert_eq!(with(62, b'x'), Err(GreetingError::Program));
        assert_eq!(with(3, 0xff), Err(GreetingError::Program));
        assert_eq!(Greeting::decode(&[b' '; GREETING_SIZE]), Err(GreetingError::Program));
    }

    #[test]
    fn a_version_has_its_limit() {
        let greeting =
            |version: &str| Greeting { version: version.to_owned(), uuid: Uuid::nil(), salt: [7; SALT_SIZE] };
        let longest = greeting("2.10.99");
        assert_eq!(Greeting::decode(&longest.encode().expect("fits")), Ok(longest));
        assert_eq!(greeting("2.10.100").encode(), Err(GreetingError::VersionTooLong("2.10.100".to_owned())));
    }

    #[test]
    fn versions() {
        let version = Version { major: 2, minor: 6, patch: 0 };
        assert_eq!(version.packed(), 132_608);
        assert_eq!(version.to_string(), "2.6.0");
        for text in ["2.6.0", "2.6.0-0-g47aa4e01e", "2.6.0.1"] {
            assert_eq!(Version::parse(text), Some(version));
        }
        for text in ["", "2", "2.6", "2.6.", "2.6.x", "2.256.0", "-1.6.0"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
        assert!(version < Version { major: 2, minor: 10, patch: 0 });
    }
}
