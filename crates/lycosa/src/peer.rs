//! A server named by one text, with the account in it: `[tarantool://|lycosa://|tls://][USER[:PASSWORD]@]HOST[:PORT]`.

use std::io::{self, IsTerminal};
use std::path::Path;

use lycosa_server::config::{SettingValue, Uris};

use crate::outcome::Usage;
use crate::session::{PASSWORD_VARIABLE, given_password, typed_password};

/// Port of an address that names none.
const DEFAULT_PORT: u16 = 3301;
/// Who one is without a name.
const GUEST: &str = "guest";

/// The address of a server, and the user of the connection.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) user: String,
    /// Empty if the text has none.
    password: String,
    /// `HOST:PORT`.
    pub(crate) address: String,
    pub(crate) is_tls: bool,
}

impl Peer {
    /// Reads what stands in a URI. `argument` is its name in the error.
    pub(crate) fn parse(argument: &str, text: &str) -> Result<Self, Usage> {
        let bare = text.trim();
        let bare = ["tarantool://", "lycosa://"].iter().find_map(|scheme| bare.strip_prefix(scheme));
        let mut bare = bare.unwrap_or(text.trim()).to_owned();
        let address = bare.rsplit('@').next().unwrap_or_default();
        let host = address.strip_prefix("tls://").unwrap_or(address);
        let is_port = host.bytes().all(|byte| byte.is_ascii_digit());
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        if !is_port && !has_port && !host.contains(',') {
            bare += &format!(":{DEFAULT_PORT}");
        }
        let uri = <Uris as SettingValue>::parse(&bare).and_then(|uris| {
            let mut uris = uris.0.into_iter();
            uris.next().filter(|_| uris.next().is_none())
        });
        // The text may hold a password, the error must not.
        let shown = text.rsplit('@').next().unwrap_or_default();
        let uri = uri.ok_or_else(|| {
            Usage(format!(
                "{argument}: `{shown}` is no address of one server; expected \
                 [tarantool://|lycosa://|tls://][USER[:PASSWORD]@]HOST[:PORT], a % and two hexadecimal digits for a \
                 character that would be misread"
            ))
        })?;
        Ok(Self { user: uri.user, password: uri.password, address: uri.address, is_tls: uri.is_tls })
    }

    pub(crate) fn is_guest(&self) -> bool {
        self.user == GUEST
    }

    /// The password: of the text, else of the file, else of the environment, else typed.
    pub(crate) fn password(&self, file: Option<&Path>) -> anyhow::Result<String> {
        if !self.password.is_empty() || self.is_guest() {
            return Ok(self.password.clone());
        }
        if let Some(password) = given_password(file)? {
            return Ok(password);
        }
        anyhow::ensure!(
            io::stdin().is_terminal(),
            "{self} needs a password: set {PASSWORD_VARIABLE}, or write USER:PASSWORD@HOST:PORT"
        );
        typed_password(&format!("Password for {self}"))
    }

    /// The URI that the setting `replication` takes.
    pub(crate) fn uri(&self, password: &str) -> String {
        let scheme = if self.is_tls { "tls://" } else { "" };
        if self.is_guest() {
            return format!("{scheme}{}", self.address);
        }
        format!("{scheme}{}:{}@{}", encoded(&self.user), encoded(password), self.address)
    }
}

/// Everything but the password.
impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_guest() { f.write_str(&self.address) } else { write!(f, "{}@{}", self.user, self.address) }
    }
}

/// Everything that is neither letter nor digit as `%` and two digits.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02x}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_mean_the_same() {
        for text in ["me@h", "tarantool://me@h:3301", "lycosa://me@h", " me@h:3301 "] {
            let peer = Peer::parse("A", text).unwrap();
            assert_eq!((peer.to_string().as_str(), peer.is_tls), ("me@h:3301", false), "{text}");
        }
        assert_eq!(Peer::parse("A", "3302").unwrap().address, "localhost:3302");
        assert_eq!(Peer::parse("A", "[::1]").unwrap().address, "[::1]:3301");
        assert!(Peer::parse("A", "tls://me@h:1").unwrap().is_tls);
        for text in ["", "h:x", "me:secret@h:x", "a:1,b:2", "http://h:1/x"] {
            let error = Peer::parse("A", text).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("is no address") && !error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn a_password_survives_its_way_into_the_setting() {
        let peer = Peer::parse("A", "me:s%40cr%3aet%25%2c@h:1").unwrap();
        assert_eq!(peer.password(None).unwrap(), "s@cr:et%,");
        let again = Peer::parse("A", &peer.uri("s@cr:et%,")).unwrap();
        assert!(again == peer);
    }
}
