//! Errors as a client sees them: a code, a text, and the error object of a reply.
//!
//! The codes, names and templates ([`ErrorCode`]) are those of Tarantool 2.6.0. The texts are part of the contract:
//! clients and their test suites compare them.
//!
//! An error object travels twice: under key `52` of an error reply, and as an extension of type 3 inside data once a
//! session has set `error_marshaling_enabled`. Both hold the same map ([`ErrorObject::encode`]). An error of a program
//! names its place there. Files and lines of the server's own source are not told: [`FILE`] and line 0 stand in their place.

mod code;

use std::borrow::Cow;

use lycosa_tuple::mp::{self, MpError, Reader};

pub use self::code::ErrorCode;
use crate::keys::error_object as key;

/// What an error object says where Tarantool names the source file that raised it.
pub const FILE: &str = "lycosa";

/// The longest chain of causes that is read from a peer; the rest is dropped.
const MAX_CAUSES: u32 = 32;

/// An error with everything that a reply tells about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorObject {
    /// The class of the error: `ClientError`, `LuajitError`, `AccessDeniedError`, `CustomError`, …
    pub kind: Cow<'static, str>,
    /// The code; one of [`ErrorCode`] unless a user's program raised its own.
    pub code: u32,
    /// The text.
    pub message: String,
    /// Further facts by name, such as `object_type` of an `AccessDeniedError`.
    pub fields: Vec<(Cow<'static, str>, String)>,
    /// The file and line of the program that raised it.
    pub place: Option<Box<(String, u32)>>,
    /// The error that led to this one.
    pub cause: Option<Box<Self>>,
}

/// The file and line that Lua writes before a text, as in `init.lua:7: attempt to call a nil value`.
fn place_in(message: &str) -> Option<(String, u32)> {
    let (place, _) = message.lines().next()?.split_once(": ")?;
    let (file, line) = place.rsplit_once(':')?;
    let line = line.parse().ok().filter(|&line| line > 0)?;
    // Names of chunks alone have blanks: `[string "return 1"]`.
    let is_name = !file.is_empty() && (file.starts_with('[') || !file.contains(' '));
    is_name.then(|| (file.to_owned(), line))
}

impl ErrorObject {
    /// An error of class `ClientError`: everything that a statement or request can do wrong.
    pub fn client(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new("ClientError", code, message.into())
    }

    /// The name of the error's kind, which programs compare: the field `name`.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == "name").map(|(_, name)| name.as_str())
    }

    /// The same error with the name of its kind.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        self.fields.push(("name".into(), name.to_owned()));
        self
    }

    /// An error raised by a Lua program: class `LuajitError`, code [`ErrorCode::ProcLua`]. Its place is the one that its
    /// text begins with, if any.
    pub fn lua(message: impl Into<String>) -> Self {
        let message = message.into();
        let place = place_in(&message).map(Box::new);
        Self { place, ..Self::new("LuajitError", ErrorCode::ProcLua, message) }
    }

    /// A refused access, for example `Write` to the `space` named `tree` by `guest`.
    pub fn access_denied(access: &str, object_type: &str, object_name: &str, user: &str) -> Self {
        let message = format!("{access} access to {object_type} '{object_name}' is denied for user '{user}'");
        let fields = [("object_type", object_type), ("object_name", object_name), ("access_type", access)];
        Self {
            fields: fields.map(|(name, value)| (Cow::Borrowed(name), value.to_owned())).into(),
            ..Self::new("AccessDeniedError", ErrorCode::AccessDenied, message)
        }
    }

    fn new(kind: &'static str, code: ErrorCode, message: String) -> Self {
        Self {
            kind: Cow::Borrowed(kind),
            code: code.into(),
            message,
            fields: Vec::new(),
            place: None,
            cause: None,
        }
    }

    /// Appends the map `{0: [this error, its cause, …]}`, keys in Tarantool's order.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let chain = || std::iter::successors(Some(self), |error| error.cause.as_deref());
        mp::write_map(out, 1);
        mp::write_uint(out, key::STACK.into());
        mp::write_array(out, chain().count() as u32);
        chain().for_each(|error| error.encode_one(out));
    }

    fn encode_one(&self, out: &mut Vec<u8>) {
        mp::write_map(out, if self.fields.is_empty() { 6 } else { 7 });
        mp::write_uint(out, key::TYPE.into());
        mp::write_str(out, self.kind.as_bytes());
        let (file, line) = self.place.as_deref().map_or((FILE, 0), |(file, line)| (file.as_str(), *line));
        mp::write_uint(out, key::LINE.into());
        mp::write_uint(out, line.into());
        mp::write_uint(out, key::FILE.into());
        mp::write_str(out, file.as_bytes());
        mp::write_uint(out, key::MESSAGE.into());
        mp::write_str(out, self.message.as_bytes());
        mp::write_uint(out, key::ERRNO.into());
        mp::write_uint(out, 0);
        mp::write_uint(out, key::CODE.into());
        mp::write_uint(out, self.code.into());
        if !self.fields.is_empty() {
            mp::write_uint(out, key::FIELDS.into());
            mp::write_map(out, self.fields.len() as u32);
            for (name, value) in &self.fields {
                mp::write_str(out, name.as_bytes());
                mp::write_str(out, value.as_bytes());
            }
        }
    }

    /// Reads the map that [`encode`](Self::encode) writes. Unknown keys are skipped, and so are fields that are not
    /// strings; text that is not UTF-8 is replaced as [`String::from_utf8_lossy`] does.
    ///
    /// # Errors
    /// If the bytes are not MessagePack of that shape, or the stack is empty.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, MpError> {
        let mut stack = Vec::new();
        for _ in 0..reader.map()? {
            if reader.uint()? != u64::from(key::STACK) {
                reader.skip()?;
                continue;
            }
            for position in 0..reader.array()? {
                if position < MAX_CAUSES {
                    stack.push(Self::decode_one(reader)?);
                } else {
                    reader.skip()?;
                }
            }
        }
        stack
            .into_iter()
            .rev()
            .reduce(|cause, error| Self { cause: Some(Box::new(cause)), ..error })
            .ok_or(MpError::Truncated)
    }

    fn decode_one(reader: &mut Reader<'_>) -> Result<Self, MpError> {
        let mut error = Self::new("ClientError", ErrorCode::Unknown, String::new());
        let (mut file, mut line) = (None, 0);
        for _ in 0..reader.map()? {
            match u8::try_from(reader.uint()?) {
                Ok(key::TYPE) => error.kind = Cow::Owned(text(reader.str()?)),
                Ok(key::FILE) => file = Some(text(reader.str()?)),
                Ok(key::LINE) => line = reader.uint()? as u32,
                Ok(key::MESSAGE) => error.message = text(reader.str()?),
                Ok(key::CODE) => error.code = reader.uint()? as u32,
                Ok(key::FIELDS) => {
                    for _ in 0..reader.map()? {
                        let name = reader.raw()?;
                        let value = reader.raw()?;
                        if let (Ok(name), Ok(value)) = (Reader::new(name).str(), Reader::new(value).str()) {
                            error.fields.push((Cow::Owned(text(name)), text(value)));
                        }
                    }
                }
                _ => reader.skip()?,
            }
        }
        error.place = file.filter(|file| file != FILE).map(|file| Box::new((file, line)));
        Ok(error)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lua_error_has_the_place_that_its_text_begins_with() {
        let place = |text: &str| ErrorObject::lua(text).place.map(|place| *place);
        assert_eq!(place("eval:1: unexpected symbol near 'not'"), Some(("eval".to_owned(), 1)));
        assert_eq!(place("/srv/init.lua:42: no tube: x"), Some(("/srv/init.lua".to_owned(), 42)));
        assert_eq!(place("[string \"return 1 2\"]:3: oops"), Some(("[string \"return 1 2\"]".to_owned(), 3)));
        for text in
            ["", "oops", ":1: oops", "a:b: oops", "a:0: oops", "task 3: oops", "no answer of a:1: oops"]
        {
            assert_eq!(place(text), None, "{text}");
        }
        // A place of the server's own source is not told.
        let mut bytes = Vec::new();
        ErrorObject::client(ErrorCode::Unsupported, "a:1: oops").encode(&mut bytes);
        let decoded = ErrorObject::decode(&mut Reader::new(&bytes)).expect("an error");
        assert_eq!(decoded.place.map_or(0, |place| place.1), 0);
    }
}
