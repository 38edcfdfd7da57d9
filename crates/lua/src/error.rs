//! Errors between Rust and Lua, in both directions.

use crate::api::{Lua, Ref};

/// Why a [`Native`](crate::Native) function fails; it becomes the Lua error that the caller sees.
#[derive(Debug)]
pub enum Error {
    /// A text, as `error(text, 0)` raises it.
    Text(String),
    /// A text with the caller's place before it, as `error(text, 2)` raises it.
    Here(String),
    /// An error of `box`: code and message; Lua sees a `box.error` object.
    Box {
        /// Tarantool's error code.
        code: u32,
        /// Its text.
        message: String,
    },
    /// An error of the instance; Lua sees a `box.error` object.
    Object(Box<lycosa_iproto::error::ErrorObject>),
    /// An error of a serializer; Lua sees an error object of the type `LuajitError`.
    Luajit(&'static str),
    /// A value that Lua raised, to be raised again.
    Raised(Ref),
    /// The fiber was cancelled.
    Cancelled,
}

impl Error {
    /// A text with the caller's place before it.
    pub fn here(text: impl Into<String>) -> Error {
        Error::Here(text.into())
    }

    /// A text alone.
    pub fn text(text: impl Into<String>) -> Error {
        Error::Text(text.into())
    }

    /// The error with the caller's place before its text.
    pub(crate) fn located(self) -> Error {
        match self {
            Error::Text(text) => Error::Here(text),
            other => other,
        }
    }

    /// An error object of the type `LuajitError`.
    pub(crate) fn luajit(text: &'static str) -> Error {
        Error::Luajit(text)
    }

    /// Pushes the value that Lua is to see.
    pub(crate) fn push(self, lua: Lua) {
        match self {
            Error::Text(text) => lua.push_str(text),
            Error::Here(text) => {
                let place = lua.place(1);
                lua.push_str(place + &text);
            }
            Error::Box { code, message } => lua.shared().push_box_error(lua, "ClientError", code, &message),
            Error::Object(error) => {
                lua.push_error_object(&error);
                lua.tell_denied(&error);
            }
            Error::Luajit(text) => lua.shared().push_box_error(lua, "LuajitError", 0, text),
            Error::Raised(value) => lua.push_ref(&value),
            Error::Cancelled => {
                lua.shared().push_box_error(lua, "FiberIsCancelled", 0, "fiber is cancelled");
            }
        }
    }

    /// The text of the error, for logs and replies. Calls `__tostring`.
    pub fn message(&self, lua: Lua) -> String {
        match self {
            Error::Text(text) | Error::Here(text) | Error::Box { message: text, .. } => text.clone(),
            Error::Object(error) => error.message.clone(),
            Error::Luajit(text) => (*text).to_owned(),
            Error::Cancelled => "fiber is cancelled".to_owned(),
            Error::Raised(value) => {
                lua.push_ref(value);
                let text = lua.display(-1);
                lua.pop(1);
                text
            }
        }
    }
}

impl From<String> for Error {
    fn from(text: String) -> Error {
        Error::Text(text)
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Error {
        Error::Text(text.to_owned())
    }
}
