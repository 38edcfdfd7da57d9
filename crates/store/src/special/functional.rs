//! Functional indexes: a function of the program makes the keys of a tuple.
//!
//! The store knows no Lua: it asks a [`KeyMaker`] what the function returns for a tuple, checks that the result is keys of the
//! index, and keeps them as a multikey index does ([`Wide`]). Each tuple's entries are kept beside its handle, so that a
//! removal asks no function. A function that is asked twice may fail or return another key the second time; so the keys of
//! a removed tuple stay until the transaction ends, and a rollback puts them back.
//!
//! An index is *disabled* until a row of `_func_index` names its function: a snapshot has the rows of `_index` before those
//! of `_func`. A disabled index holds nothing and cannot be read.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lycosa_tuple::format::Format;
use lycosa_tuple::key::KeyDef;
use lycosa_tuple::mp::{Kind, Reader};

use super::wide::Wide;
use crate::arena::{Arena, Handle};
use crate::error::Error;
use crate::index::SelectError;
use crate::schema::function::Function;
use crate::schema::index::IndexDef;
use crate::space_index::Occupied;

/// The function of an index, as a [`KeyMaker`] needs it.
#[derive(Debug)]
pub struct KeyFunction {
    /// Tells the function from every other one of the process, also from one with the same name.
    pub identity: u64,
    /// Its number in `_func`.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its source text.
    pub body: String,
    /// Whether the source sees only a few harmless globals.
    pub is_sandboxed: bool,
    /// Whether it returns an array of keys, and not one key.
    pub is_multikey: bool,
}

impl PartialEq for KeyFunction {
    /// Rows of `_func` that exist do not change, but a number may be given again.
    fn eq(&self, other: &Self) -> bool {
        let seen = |function: &Self| (function.id, function.is_sandboxed, function.is_multikey);
        seen(self) == seen(other) && self.body == other.body
    }
}

impl KeyFunction {
    /// What an index needs of a registered function.
    pub(crate) fn of(function: &Function) -> Arc<Self> {
        static IDENTITIES: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            identity: IDENTITIES.fetch_add(1, Ordering::Relaxed),
            id: function.id,
            name: function.name.clone(),
            body: function.body.clone(),
            is_sandboxed: function.is_sandboxed,
            is_multikey: function.is_multikey,
        })
    }
}

/// Why a function has made no keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyFault {
    /// It failed, with this text.
    Raised(String),
    /// It returned a value that no tuple can hold.
    Unreadable(String),
}

/// As a [`KeyMaker`] is called.
pub type MakeKeys = fn(&Arc<KeyFunction>, &Format, &[u8]) -> Result<Vec<u8>, KeyFault>;

/// Calls a function for a tuple of a space with this format. Returns a MessagePack array of all that the function returned.
/// It may be called on any thread, and must not ask the store.
#[derive(Debug, Clone, Copy)]
pub struct KeyMaker(pub MakeKeys);

impl PartialEq for KeyMaker {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for KeyMaker {}

/// What a functional index is defined by beside its key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FunctionUse {
    /// The number of the function that the row of `_index` names.
    pub(crate) id: u32,
    pub(crate) make: KeyMaker,
    /// `None`: the index is disabled.
    pub(crate) function: Option<Arc<KeyFunction>>,
}

/// Why a tuple has no keys. The names of the index and the space are the caller's.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    is_format: bool,
    reason: String,
    cause: Option<Box<Error>>,
}

impl Fault {
    fn of_call(reason: &str, cause: String) -> Self {
        Self { is_format: false, reason: reason.to_owned(), cause: Some(Box::new(Error::Raised(cause))) }
    }

    fn of_format(reason: impl Into<String>) -> Self {
        Self { is_format: true, reason: reason.into(), cause: None }
    }

    /// The error that a client sees.
    pub(crate) fn into_error(self, index: &str, space: &str) -> Error {
        let (index, space) = (index.to_owned(), space.to_owned());
        let Self { is_format, reason, cause } = self;
        if is_format {
            Error::FunctionalFormat { index, space, reason, cause }
        } else {
            Error::FunctionalKey { index, space, reason, cause }
        }
    }
}

/// A functional index.
#[derive(Debug)]
pub(crate) struct Functional {
    usage: FunctionUse,
    key: KeyDef,
    wide: Wide,
    /// The entries of each tuple.
    entries: HashMap<Handle, Vec<Handle>>,
    /// The entries, as bytes, of tuples that the open transaction has removed.
    removed: HashMap<Handle, Vec<Vec<u8>>>,
    /// The entries of the tuple that is put next.
    prepared: Option<(Handle, Vec<Vec<u8>>)>,
    /// Why the last tuple was refused, if it was for its keys.
    fault: Option<Fault>,
}

impl Functional {
    /// An empty index.
    pub(crate) fn new(def: &IndexDef, usage: &FunctionUse, primary: Option<&KeyDef>) -> Self {
        Self {
            usage: usage.clone(),
            key: def.key.clone(),
            wide: Wide::new(def, primary),
            entries: HashMap::new(),
            removed: HashMap::new(),
            prepared: None,
            fault: None,
        }
    }

    /// The entries.
    pub(crate) fn wide(&self) -> &Wide {
        &self.wide
    }

    /// The entries, if the index can be read.
    pub(crate) fn readable(&self) -> Result<&Wide, SelectError> {
        if self.is_disabled() { Err(SelectError::Disabled) } else { Ok(&self.wide) }
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.usage.function.is_none()
    }

    /// Asks the function for the keys of a tuple that is put next.
    pub(crate) fn prepare(&mut self, arena: &Arena, new: Handle, format: &Format) {
        let Some(function) = self.usage.function.clone() else { return };
        self.removed.remove(&new);
        match self.keys_of(&function, arena.get(new), format) {
            Ok(keys) => {
                let entries = keys.iter().map(|key| self.wide.entry_of(key, arena.get(new), new)).collect();
                self.prepared = Some((new, entries));
            }
            Err(fault) => self.fault = Some(fault),
        }
    }

    /// The values of each key, back to back.
    fn keys_of(
        &self,
        function: &Arc<KeyFunction>,
        tuple: &[u8],
        format: &Format,
    ) -> Result<Vec<Vec<u8>>, Fault> {
        let returned = (self.usage.make.0)(function, format, tuple).map_err(|fault| match fault {
            KeyFault::Raised(text) => Fault::of_call("can't evaluate function", text),
            KeyFault::Unreadable(text) => Fault::of_call("can't get a value returned by function", text),
        })?;
        let mut reader = Reader::new(&returned);
        if reader.array() != Ok(1) {
            return Err(Fault::of_format("to many values were returned"));
        }
        let mut count = 1;
        if function.is_multikey {
            if reader.kind() != Ok(Kind::Array) {
                return Err(Fault::of_format("a multikey function mustn't return a scalar"));
            }
            count = reader.array().unwrap_or_default();
        }
        let mut keys = Vec::new();
        for _ in 0..count {
            if reader.kind() != Ok(Kind::Array) {
                return Err(Fault::of_format("supplied key type is invalid: expected array"));
            }
            let parts = reader.array().unwrap_or_default();
            if parts != self.key.part_count() {
                return Err(Fault::of_format(format!(
                    "Invalid key part count in an exact match (expected {}, got {parts})",
                    self.key.part_count()
                )));
            }
            let begin = reader.position();
            for _ in 0..parts {
                if reader.skip().is_err() {
                    return Err(Fault::of_format("key does not follow functional index definition"));
                }
            }
            let key = &returned[begin..reader.position()];
            if let Err(error) = self.key.check_whole_key(key, parts) {
                let fault = Fault::of_format("key does not follow functional index definition");
                return Err(Fault { cause: Some(Box::new(error.into())), ..fault });
            }
            keys.push(key.to_vec());
        }
        Ok(keys)
    }

    /// Takes the reason why the last tuple was refused, if its keys are the reason.
    pub(crate) fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    /// Puts `new` in, in the place of `old`: a tuple that was prepared, or one that the open transaction has removed.
    pub(crate) fn put(&mut self, old: Option<Handle>, new: Handle) -> Result<(), Occupied> {
        if self.is_disabled() {
            return Ok(());
        }
        let prepared = self.prepared.take().filter(|(handle, _)| *handle == new);
        let Some(entries) = prepared.map(|(_, entries)| entries).or_else(|| self.removed.remove(&new)) else {
            return Err(Occupied);
        };
        // As in a Tarantool, a key that may be nil is never taken: its folders hold such tuples.
        let may_repeat = self.key.parts().iter().any(|part| part.nullable);
        if !may_repeat && self.wide.refuses(&entries, old) {
            return Err(Occupied);
        }
        if let Some(old) = old {
            self.remove(old);
        }
        let inserted = self.wide.insert(entries);
        self.entries.insert(new, inserted);
        Ok(())
    }

    /// Removes a tuple; nothing if it is not there.
    pub(crate) fn remove(&mut self, old: Handle) {
        let Some(entries) = self.entries.remove(&old) else { return };
        let bytes = entries.into_iter().map(|entry| self.wide.take(entry)).collect();
        self.removed.insert(old, bytes);
    }

    /// The transaction has ended: no removed tuple comes back.
    pub(crate) fn forget_removed(&mut self) {
        self.removed = HashMap::new();
    }

    /// Bytes of the entries and their order, about.
    pub(crate) fn memory(&self) -> u64 {
        let beside = self.entries.capacity() * (size_of::<(Handle, Vec<Handle>)>() + size_of::<Handle>());
        self.wide.memory() + beside as u64
    }
}
