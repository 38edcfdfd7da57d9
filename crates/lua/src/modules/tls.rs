//! Native part of `https`: the client's side of TLS as a machine between bytes; the fiber's socket carries them.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::sync::Arc;

use lycosa_tls::rustls::{ClientConfig, ClientConnection};
use lycosa_tls::web::{self, Verification};
use lycosa_tls::{Identity, explain, server_name};

use crate::api::{Kind, Lua};
use crate::error::Error;

struct Settings(Arc<ClientConfig>);
struct Session(RefCell<Encrypted>);

/// A connection, and the bytes decrypted since the program last read: rustls takes no more bytes while it keeps
/// 16 KiB of text itself.
struct Encrypted {
    connection: ClientConnection,
    plain: Vec<u8>,
    has_ended: bool,
}

impl Encrypted {
    /// Takes in received bytes. Returns whether the handshake goes on.
    fn feed(&mut self, mut bytes: &[u8]) -> Result<bool, String> {
        while !bytes.is_empty() {
            self.connection.read_tls(&mut bytes).map_err(|error| error.to_string())?;
            self.connection.process_new_packets().map_err(|error| explain(&error))?;
            // "Nothing yet" is an error of the reader, and so is an end without a word.
            self.has_ended = self.connection.reader().read_to_end(&mut self.plain).is_ok();
        }
        Ok(self.connection.is_handshaking())
    }
}

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_class::<Settings>("tls settings", &[("connect", connect)], &[]);
    lua.pop(1);
    let methods: &[(&str, crate::Native)] =
        &[("feed", feed), ("pull", pull), ("read", read), ("write", write), ("close", close)];
    lua.new_class::<Session>("tls session", methods, &[]);
    lua.pop(1);
    lua.new_library(&[("settings", settings)]);
    Ok(1)
}

fn option(lua: Lua, name: &str) -> Option<String> {
    lua.raw_field(1, name);
    let text = lua.text(-1);
    lua.pop(1);
    text
}

/// `settings({ca_file, ca_path, verify_peer, verify_host, ssl_cert, ssl_key})`
fn settings(lua: Lua) -> Result<i32, Error> {
    if lua.kind(1) != Kind::Table {
        return Err(Error::here("usage: settings({option = value, ...})"));
    }
    let flag = |name: &str| {
        lua.raw_field(1, name);
        let is_off = lua.kind(-1) == Kind::Boolean && !lua.truth(-1) || lua.number(-1) == Some(0.0);
        lua.pop(1);
        !is_off
    };
    let verification = Verification {
        ca_file: option(lua, "ca_file").map(Into::into),
        ca_path: option(lua, "ca_path").map(Into::into),
        peer: flag("verify_peer"),
        host: flag("verify_host"),
    };
    let identity = option(lua, "ssl_cert").map(|certificate| Identity {
        key: option(lua, "ssl_key").unwrap_or_else(|| certificate.clone()).into(),
        certificate: certificate.into(),
    });
    let config =
        web::client(&verification, identity.as_ref()).map_err(|error| Error::text(error.to_string()))?;
    lua.push_userdata(Settings(config));
    Ok(1)
}

/// `settings:connect(host)`: a session that has said nothing yet.
fn connect(lua: Lua) -> Result<i32, Error> {
    let settings = lua.userdata::<Settings>(1).ok_or_else(|| Error::here("usage: settings:connect(host)"))?;
    let host = lua.text(2).unwrap_or_default();
    let name = server_name(&host).map_err(|error| Error::text(error.to_string()))?;
    let made = ClientConnection::new(settings.0.clone(), name);
    let connection = made.map_err(|error| Error::text(explain(&error)))?;
    let encrypted = Encrypted { connection, plain: Vec::new(), has_ended: false };
    lua.push_userdata(Session(RefCell::new(encrypted)));
    Ok(1)
}

fn session(lua: &Lua) -> Result<&RefCell<Encrypted>, Error> {
    lua.userdata::<Session>(1)
        .map(|session| &session.0)
        .ok_or_else(|| Error::here("the argument is no session of TLS"))
}

/// `session:feed(bytes)`: received bytes. Returns whether the handshake goes on; nil and the reason if the session cannot go on.
fn feed(lua: Lua) -> Result<i32, Error> {
    let bytes = lua.arg_bytes(2, "usage: session:feed(bytes)")?.to_vec();
    let done = session(&lua)?.borrow_mut().feed(&bytes);
    match done {
        Ok(handshaking) => {
            lua.push_bool(handshaking);
            Ok(1)
        }
        Err(reason) => {
            lua.push_nil();
            lua.push_str(reason);
            Ok(2)
        }
    }
}

/// `session:pull()`: the bytes to send.
fn pull(lua: Lua) -> Result<i32, Error> {
    let mut bytes = Vec::new();
    {
        let mut session = session(&lua)?.borrow_mut();
        while session.connection.wants_write() {
            // A vector takes everything.
            if session.connection.write_tls(&mut bytes).is_err() {
                break;
            }
        }
    }
    lua.push_str(bytes);
    Ok(1)
}

/// `session:read()`: the decrypted bytes, and whether the peer has announced its end.
fn read(lua: Lua) -> Result<i32, Error> {
    let (plain, ended) = {
        let mut session = session(&lua)?.borrow_mut();
        (std::mem::take(&mut session.plain), session.has_ended)
    };
    lua.push_str(plain);
    lua.push_bool(ended);
    Ok(2)
}

/// `session:write(text)`: to be encrypted and pulled.
fn write(lua: Lua) -> Result<i32, Error> {
    let text = lua.arg_bytes(2, "usage: session:write(text)")?.to_vec();
    let connection = &mut session(&lua)?.borrow_mut().connection;
    connection.set_buffer_limit(None);
    connection.writer().write_all(&text).map_err(|error| Error::text(error.to_string()))?;
    Ok(0)
}

/// `session:close()`: announces the end to the peer.
fn close(lua: Lua) -> Result<i32, Error> {
    session(&lua)?.borrow_mut().connection.send_close_notify();
    Ok(0)
}
