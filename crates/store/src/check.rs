//! Check constraints of a space: expressions of SQL that every new tuple has to pass.
//!
//! The store knows no SQL. It asks the process for a [`RowCheck`] of each text once ([`SqlKnowledge`](crate::SqlKnowledge)),
//! and drops it when the definition of the space changes. A [`RowCheck`] counts its work, and the checks of one tuple share
//! one bound.
//!
//! Absent: the rows of `_ck_constraint` and the places where tuples are checked (`schema/check.rs`).

use std::cell::OnceCell;
use std::fmt::Debug;

/// Why a statement or an expression of SQL is refused or fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SqlFault {
    /// Tarantool's error code.
    pub code: u32,
    /// The text that users see.
    pub message: String,
    /// Whether a Tarantool would not have this fault: the text exceeds a bound that Lycosa alone has.
    pub is_ours: bool,
}

impl SqlFault {
    /// A fault that a Tarantool has, too.
    pub fn new(code: u32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), is_ours: false }
    }
}

/// An expression over the tuples of one space, as the space is defined now.
pub trait RowCheck: Debug + Send {
    /// Whether the tuple passes: the value of the expression is true or NULL. `spent` counts the work on this tuple, that of
    /// other checks included; the call adds its own.
    ///
    /// # Errors
    /// The value is no boolean, a part of the expression fails, or the work on the tuple exceeds the bound.
    fn passes(&self, tuple: &[u8], spent: &mut u64) -> Result<bool, SqlFault>;
}

/// The expression of a text, or why it has none.
pub type Compiled = Result<Box<dyn RowCheck>, SqlFault>;

/// A check constraint.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) is_enabled: bool,
    compiled: OnceCell<Compiled>,
}

impl Check {
    pub(crate) fn new(name: String, text: String, is_enabled: bool) -> Self {
        Self { name, text, is_enabled, compiled: OnceCell::new() }
    }

    /// The expression, which `compile` makes at the first call.
    pub(crate) fn compiled(&self, compile: impl FnOnce(&str) -> Compiled) -> &Compiled {
        self.compiled.get_or_init(|| compile(&self.text))
    }
}

/// The check constraints of a space, in the order in which they are asked: as in a Tarantool the newest first.
#[derive(Debug, Default)]
pub(crate) struct Checks(Vec<Check>);

impl Checks {
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Check> {
        self.0.iter()
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Check> {
        self.iter().find(|check| check.name == name)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn any_enabled(&self) -> bool {
        self.iter().any(|check| check.is_enabled)
    }

    pub(crate) fn add(&mut self, check: Check) {
        match self.0.iter_mut().find(|known| known.name == check.name && known.text == check.text) {
            Some(known) => known.is_enabled = check.is_enabled,
            None => {
                self.remove(&check.name);
                self.0.insert(0, check);
            }
        }
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.0.retain(|known| known.name != name);
    }

    /// The definition of the space has changed: each expression is made anew. A Tarantool then asks them in the opposite order.
    pub(crate) fn redefined(&mut self) {
        self.0.reverse();
        self.forget_compiled();
    }

    /// The types of fields may have changed.
    pub(crate) fn forget_compiled(&mut self) {
        self.0.iter_mut().for_each(|check| check.compiled = OnceCell::new());
    }
}
