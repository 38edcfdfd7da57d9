//! Addresses of peers: `[tarantool://|lycosa://|tls://][USER[:PASSWORD]@]HOST:PORT`.

use std::fmt;
use std::str::FromStr;

/// Where a peer listens, and the user of this instance there.
///
/// Its text leaves the password out, so that it may be logged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Uri {
    /// The account, `guest` if none is named.
    pub user: String,
    /// Its password; empty for none.
    pub password: String,
    /// `HOST:PORT`; an IPv6 host stands in brackets.
    pub address: String,
    /// Whether the peer is to be spoken to with TLS.
    pub is_tls: bool,
}

/// Why a text is not an address of a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an address of a peer: {reason}; expected [tls://][USER[:PASSWORD]@]HOST:PORT")]
pub struct UriError {
    text: String,
    reason: &'static str,
}

/// The account of a peer that is addressed without one.
pub const DEFAULT_USER: &str = "guest";

/// What an address may begin with whose peer does not speak TLS.
const PLAIN_SCHEMES: [&str; 2] = ["tarantool://", "lycosa://"];

/// What an address begins with whose peer speaks TLS.
const TLS_SCHEME: &str = "tls://";

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let rest = text.trim();
        let (rest, is_tls) = match rest.strip_prefix(TLS_SCHEME) {
            Some(rest) => (rest, true),
            None => {
                let bare = PLAIN_SCHEMES.iter().find_map(|scheme| rest.strip_prefix(scheme));
                (bare.unwrap_or(rest), false)
            }
        };
        // Else `redis://me@host:1` would be a user named `redis`.
        if let Some((scheme, _)) = rest.split_once("://")
            && !scheme.is_empty()
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        {
            let reason = "its scheme is not tarantool, lycosa or tls";
            return Err(UriError { text: format!("{scheme}://"), reason });
        }
        let (account, address) = match rest.rsplit_once('@') {
            Some((account, address)) => (Some(account), address),
            None => (None, rest),
        };
        // The fault may be in the password, so no error shows it.
        let error = |reason| UriError { text: address.to_owned(), reason };
        let address = if address.bytes().all(|byte| byte.is_ascii_digit()) && !address.is_empty() {
            format!("localhost:{address}")
        } else {
            address.to_owned()
        };
        let (host, port) = address.rsplit_once(':').ok_or_else(|| error("it has no port"))?;
        if host.is_empty() {
            return Err(error("it has no host"));
        }
        if port.parse::<u16>().map_or(true, |port| port == 0) {
            return Err(error("its port is not a number between 1 and 65535"));
        }
        let (user, password) = match account {
            Some(account) => account.split_once(':').unwrap_or((account, "")),
            None => (DEFAULT_USER, ""),
        };
        if user.is_empty() {
            return Err(error("it has an empty user"));
        }
        let decoded =
            |text: &str| percent_decoded(text).ok_or_else(|| error("a % is not followed by two digits"));
        Ok(Self { user: decoded(user)?, password: decoded(password)?, address, is_tls })
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_tls {
            f.write_str(TLS_SCHEME)?;
        }
        if self.user == DEFAULT_USER {
            f.write_str(&self.address)
        } else {
            write!(f, "{}@{}", self.user, self.address)
        }
    }
}

/// Replaces `%40` and the like by their bytes.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|digit| char::from(digit).to_digit(16));
        let (high, low) = (digit()?, digit()?);
        decoded.push((high * 16 + low) as u8);
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().expect("an address")
    }

    #[test]
    fn forms_of_an_address() {
        let guest = Uri {
            user: "guest".into(),
            password: String::new(),
            address: "10.0.0.1:3301".into(),
            is_tls: false,
        };
        assert_eq!(uri("10.0.0.1:3301"), guest);
        assert_eq!(uri(" tarantool://10.0.0.1:3301"), guest);
        assert_eq!(uri("lycosa://10.0.0.1:3301"), guest);
        assert_eq!(uri("me:http%3A//@10.0.0.1:3301").password, "http://");
        assert_eq!(uri("tls://repl:x@10.0.0.1:3301").to_string(), "tls://repl@10.0.0.1:3301");
        assert_eq!(uri("3301").address, "localhost:3301");
        assert_eq!(uri("[::1]:3301").address, "[::1]:3301");
        let named = uri("repl:s%40cr:et@db.example:3301");
        assert_eq!((named.user.as_str(), named.password.as_str()), ("repl", "s@cr:et"));
        assert_eq!(named.to_string(), "repl@db.example:3301");
        assert_eq!(uri("repl@h:1").password, "");
    }

    #[test]
    fn other_texts_are_refused_without_their_password() {
        let schemes = ["http://host:1", "redis://me:x@host:1", "tls://tls://host:1"];
        let forms =
            ["", "host", ":3301", "host:", "host:0", "host:70000", "a:b@host", ":x@host:1", "a%4@h:1"];
        for text in forms.into_iter().chain(schemes) {
            let error = text.parse::<Uri>().expect_err(text).to_string();
            assert!(error.contains("expected [tls://][USER[:PASSWORD]@]HOST:PORT"), "{error}");
        }
        assert!(!"me:secret@host".parse::<Uri>().expect_err("no port").to_string().contains("secret"));
        assert!(
            !"me:secret://x@host:1".parse::<Uri>().is_err_and(|error| error.to_string().contains("secret"))
        );
    }
}
