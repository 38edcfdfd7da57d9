//! Error objects of `box` between Lua and the protocol: type, code, text, place, further facts, and the chain of causes.
//!
//! In Lua an error object is C data whose payload is a table (`box_error.lua`); in Rust it is an
//! [`ErrorObject`]. MessagePack has it as an extension of type 3, for sessions that have set `error_marshaling_enabled`.

use lycosa_iproto::error::ErrorObject;

use crate::api::{Kind, Lua};
use crate::cdata::Cdata;

/// Facts that an error object may have besides its text, as Tarantool names them.
const FACTS: [&str; 4] = ["custom_type", "object_type", "object_name", "access_type"];

/// The longest chain of causes that is followed.
const MAX_CAUSES: usize = 32;

impl Lua {
    /// Pushes an error object of `box`, or its text where there is no `box`.
    pub(crate) fn push_error_object(self, error: &ErrorObject) {
        let chain: Vec<_> =
            std::iter::successors(Some(error), |error| error.cause.as_deref()).take(MAX_CAUSES).collect();
        self.push_nil();
        // The cause comes first, so that each error finds the one that it names at the top.
        for error in chain.into_iter().rev() {
            if !self.make_error_object(error) {
                self.pop(1);
                self.push_str(&error.message);
            }
            self.remove(-2);
        }
    }

    /// Runs the triggers of `box.session.on_access_denied` if the error is a refused access.
    pub(crate) fn tell_denied(self, error: &ErrorObject) {
        let fact =
            |wanted: &str| error.fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
        let (Some(access), Some(kind), Some(name)) =
            (fact("access_type"), fact("object_type"), fact("object_name"))
        else {
            return;
        };
        let top = self.top();
        for text in [access, kind, name] {
            self.push_str(text);
        }
        // It logs what its triggers raise.
        let _ = self.call_module("lycosa.box", "access_denied", 3, 0);
        self.set_top(top);
    }

    /// Pushes an error whose cause, or nil, stands at the top.
    fn make_error_object(self, error: &ErrorObject) -> bool {
        let cause = self.top();
        {
            let make = self.shared().make_error.borrow();
            let Some(make) = make.as_ref() else {
                self.push_nil();
                return false;
            };
            self.push_ref(make);
        }
        self.push_str(error.kind.as_bytes());
        self.push_number(f64::from(error.code));
        self.push_str(&error.message);
        if error.fields.is_empty() {
            self.push_nil();
        } else {
            self.new_table(0, error.fields.len());
            for (name, value) in &error.fields {
                self.push_str(value);
                self.raw_set_field(-2, name);
            }
        }
        match error.place.as_deref() {
            Some((file, line)) => {
                self.push_str(file);
                self.push_number(f64::from(*line));
            }
            None => {
                self.push_nil();
                self.push_nil();
            }
        }
        self.push_value(cause);
        if self.call(7, 1).is_ok() {
            return true;
        }
        self.push_nil();
        false
    }

    /// The error object at `index`, with its causes, if it is one.
    pub(crate) fn error_object(self, index: i32) -> Option<ErrorObject> {
        let mut chain = Vec::new();
        self.push_value(index);
        while chain.len() < MAX_CAUSES {
            let Some(error) = self.one_error_object(self.top()) else { break };
            chain.push(error);
            if self.field(self.top(), "prev").is_err() {
                break;
            }
            self.remove(-2);
        }
        self.pop(1);
        chain.into_iter().rev().reduce(|cause, error| ErrorObject { cause: Some(Box::new(cause)), ..error })
    }

    fn is_error_object(self, index: i32) -> bool {
        let id = self.shared().types.get().error;
        id != 0 && matches!(self.cdata(index), Some(Cdata::Struct(found, _)) if found == id)
    }

    fn one_error_object(self, index: i32) -> Option<ErrorObject> {
        if self.kind(index) != Kind::Cdata || !self.is_error_object(index) {
            return None;
        }
        let text = |name: &str| {
            self.field(index, name).ok()?;
            let text = self.text(-1);
            self.pop(1);
            text
        };
        let mut object = ErrorObject::lua(text("message")?);
        object.kind = text("base_type")?.into();
        self.field(index, "code").ok()?;
        // An error of Lua has a code for clients alone.
        if let Some(code) = self.number(-1) {
            object.code = code as u32;
        } else if object.kind != "LuajitError" {
            object.code = 0;
        }
        self.pop(1);
        for name in FACTS {
            object.fields.extend(text(name).map(|value| (name.into(), value)));
        }
        object.place = self.place_of_error(index).map(Box::new);
        Some(object)
    }

    /// The first entry of the error's `trace`.
    fn place_of_error(self, index: i32) -> Option<(String, u32)> {
        let top = self.top();
        let find = || {
            self.field(index, "trace").ok()?;
            (self.kind(-1) == Kind::Table).then_some(())?;
            self.raw_item(-1, 1);
            (self.kind(-1) == Kind::Table).then_some(())?;
            self.raw_field(-1, "file");
            let file = self.text(-1)?;
            self.pop(1);
            self.raw_field(-1, "line");
            Some((file, self.number(-1).unwrap_or_default() as u32))
        };
        let found = find();
        self.set_top(top);
        found
    }
}
