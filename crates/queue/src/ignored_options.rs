//! Options that a call brings and its tube ignores.
//!
//! The Lua module passes over an option that it does not know, and over one that means nothing to the tube's type. An
//! error would break programs that work with the module, so a call succeeds here, too. But a `delay` that a `fifo`
//! ignores is a mistake: the log names it, sampled. A name that is one slip away from an option's, `dealy`, is no option of
//! a program that works: the call is refused before it has done anything.
//!
//! HTTP has no such programs: its requests are written for this server. There each ignored option refuses the call, as the command
//! line refuses it, and the error names the types of tubes that heed the option. The options of each task of a batch are looked at.
//!
//! Absent: refusals by the types of a program, whose drivers heed the options that they like.

use std::fmt;

use lycosa_tuple::mp::{Kind, Reader};

use crate::argument_faults::misspelt;
use crate::arguments::{Arguments, Table, is_nil, kind};
use crate::driver::options::{OPTIONS, heeds};
use crate::driver::{BUILT_IN, Driver, TubeType};
use crate::error::{Error, Result};
use crate::procedure::TubeMethod;
use crate::tube_call::TubeCall;
use crate::turn::{CatalogTurn, Often, Turn};
use crate::{Caller, CallerKind, lua_text};

/// An ignored option.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ignored<'a> {
    /// The call knows no option of that name, only these.
    Unknown { option: &'a [u8], known: &'static [&'static str] },
    /// It means nothing to tubes of the type.
    Unheeded { option: &'a [u8] },
    /// An array that is not empty, where a map with options belongs.
    Array,
}

/// The place of a method's options among its arguments, and their names. None if it has none.
#[inline]
const fn options_of(method: TubeMethod) -> Option<(usize, &'static [&'static str])> {
    Some(match method {
        TubeMethod::Put | TubeMethod::PutMany => {
            (1, &["delay", "headers", "pri", "replicas", "timeout", "ttl", "ttr", "utube"])
        }
        TubeMethod::Release => (1, &["attempted", "delay", "reason"]),
        TubeMethod::ReleaseMany => (1, &["attempted", "delay", "force", "reason"]),
        TubeMethod::Bury | TubeMethod::BuryMany => (1, &["reason"]),
        TubeMethod::Take => (1, &["again", "extended", "lease", "request"]),
        TubeMethod::Peek => (1, &["extended"]),
        TubeMethod::TakeMany => (2, &["again", "extended", "lease", "request"]),
        _ => return None,
    })
}

/// Whether an option of a task means something to tubes of that type.
fn is_heeded(option: &[u8], kind: &TubeType, driver: &dyn Driver) -> bool {
    match option {
        b"ttl" | b"ttr" | b"pri" | b"delay" => kind.layout().timed,
        b"utube" => kind.layout().utube.is_some(),
        b"timeout" => driver.waits_for_capacity(),
        _ => true,
    }
}

/// The first ignored option of a table.
fn first<'a>(
    options: &'a [u8],
    known: &'static [&'static str],
    is_heeded: impl Fn(&[u8]) -> bool,
) -> Option<Ignored<'a>> {
    if kind(options) == Kind::Array {
        return Reader::new(options).array().is_ok_and(|count| count > 0).then_some(Ignored::Array);
    }
    for (option, value) in Table::parse(Some(options)).ok()? {
        if is_nil(value) {
            continue;
        }
        if !known.iter().any(|name| name.as_bytes() == option) {
            return Some(Ignored::Unknown { option, known });
        }
        if !is_heeded(option) {
            return Some(Ignored::Unheeded { option });
        }
    }
    None
}

fn check_spelling<'a>(method: &'static str, ignored: Option<Ignored<'a>>) -> Result<Option<Ignored<'a>>> {
    if let Some(Ignored::Unknown { option, known }) = ignored
        && let Some(nearest) = misspelt(option, known.iter().copied())
    {
        let option = String::from_utf8_lossy(option).into_owned();
        return Err(Error::MisspeltOption { method, option, nearest });
    }
    Ok(ignored)
}

/// The options of each task of a batch: place from 0, and options that are not null.
fn of_each(options: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut reader = Reader::new(options);
    let count = reader.array().unwrap_or(0);
    (0..count).map_while(move |_| reader.raw().ok()).enumerate().filter(|(_, options)| !is_nil(options))
}

/// Refuses what the call would ignore, if its caller's door wants that.
fn check_door<'a>(
    caller: &Caller,
    method: &'static str,
    tube_type: &str,
    ignored: Option<Ignored<'a>>,
) -> Result<Option<Ignored<'a>>> {
    match &ignored {
        Some(option) if caller.kind == CallerKind::Http && BUILT_IN.contains(&tube_type) => {
            Err(Error::Unfit { method, what: option.refusal(tube_type) })
        }
        _ => Ok(ignored),
    }
}

/// The built-in types whose tubes heed an option of a task or of `create_tube`.
fn heeding(option: &[u8]) -> Vec<&'static str> {
    let option = match option {
        b"delay" => "ttl",
        b"utube" => "storage_mode",
        b"timeout" => "capacity",
        option => str::from_utf8(option).unwrap_or_default(),
    };
    BUILT_IN.into_iter().filter(|tube_type| heeds(tube_type, option) == Some(true)).collect()
}

impl<'a> TubeCall<'a> {
    /// The first option of a call that will be ignored.
    ///
    /// # Errors
    /// It is one slip away from an option that the call knows; the caller's door ignores no option.
    pub(crate) fn ignored(&self, method: TubeMethod) -> Result<Option<Ignored<'a>>> {
        let given =
            options_of(method).and_then(|(place, known)| Some((self.call.arguments.present(place)?, known)));
        given.map_or(Ok(None), |(options, known)| self.ignored_of(method, options, known))
    }

    fn ignored_of(
        &self,
        method: TubeMethod,
        options: &'a [u8],
        known: &'static [&'static str],
    ) -> Result<Option<Ignored<'a>>> {
        let Some(tube) = self.turn.tubes.at(self.call.index) else { return Ok(None) };
        let (caller, name) = (self.call.caller, method.name());
        let ignored = |options| {
            check_spelling(name, first(options, known, |option| is_heeded(option, &tube.kind, &*tube.driver)))
        };
        let check_door = |ignored| check_door(caller, name, tube.kind.name(), ignored);
        if kind(options) != Kind::Array || method != TubeMethod::PutMany {
            return ignored(options).and_then(check_door);
        }
        // The log names one option of a call, so the first task's stand for all; a door that refuses them looks at each.
        let looked_at = if caller.kind == CallerKind::Http { usize::MAX } else { 1 };
        for (place, options) in of_each(options).take(looked_at) {
            if let Some(ignored) = check_door(ignored(options)?).map_err(|error| error.in_batch(place))? {
                return Ok(Some(ignored));
            }
        }
        Ok(None)
    }

    /// Logs an option of a call that has succeeded and was ignored.
    #[cold]
    pub(crate) fn note_ignored(&mut self, method: TubeMethod, ignored: &Ignored<'_>) {
        let Some(tube) = self.turn.tubes.at(self.call.index) else { return };
        let (name, kind) = (tube.name.clone(), tube.kind.clone());
        self.turn.log_ignored(self.call.caller, method.name(), (&name, kind.name()), ignored);
    }
}

impl CatalogTurn<'_> {
    /// As [`TubeCall::ignored`], for `create_tube`.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn ignored<'a>(caller: &Caller, arguments: Arguments<'a>) -> Result<Option<Ignored<'a>>> {
        let Some(options) = arguments.present(2) else { return Ok(None) };
        let kind = lua_text::text(arguments.get(1));
        if !BUILT_IN.contains(&kind.as_str()) {
            return Ok(None);
        }
        let heeded =
            |option: &[u8]| str::from_utf8(option).ok().and_then(|option| heeds(&kind, option)) == Some(true);
        // A callback is no option of the list, as it cannot come over the wire: programs pass one, and no request over HTTP does.
        let is_callback = |ignored: &Ignored<'_>| {
            caller.kind != CallerKind::Http
                && *ignored == Ignored::Unknown { option: b"on_task_change", known: &OPTIONS }
        };
        let ignored = first(options, &OPTIONS, heeded).filter(|ignored| !is_callback(ignored));
        check_door(caller, "create_tube", &kind, check_spelling("create_tube", ignored)?)
    }

    /// As [`TubeCall::note_ignored`], for the tube that was just created.
    pub(crate) fn note_ignored(&mut self, caller: &Caller, arguments: Arguments<'_>, ignored: &Ignored<'_>) {
        let (name, kind) = (lua_text::text(arguments.get(0)), lua_text::text(arguments.get(1)));
        self.turn.log_ignored(caller, "create_tube", (&name, &kind), ignored);
    }
}

impl Turn<'_> {
    fn log_ignored(&mut self, caller: &Caller, method: &str, tube: (&str, &str), ignored: &Ignored<'_>) {
        let user = self.store.user(caller.effective).map_or("", |user| user.name.as_str());
        self.common.log_often(Often::Ignored, self.now, || ignored.line(method, tube, user));
    }
}

impl Ignored<'_> {
    /// What a call is refused with, where nothing is ignored.
    fn refusal(&self, tube_type: &str) -> String {
        match self {
            Self::Unknown { option, known } => {
                format!("option {} does not exist; the options are {}", Quoted(option), known.join(", "))
            }
            Self::Unheeded { option } => {
                let (option, types) = (Quoted(option), heeding(option).join(", "));
                format!(
                    "tubes of type {tube_type} ignore option {option}: only tubes of these types heed it: {types}"
                )
            }
            Self::Array => "the options are an array and not a map".to_owned(),
        }
    }

    /// The line of the log.
    fn line(&self, method: &str, (tube, tube_type): (&str, &str), user: &str) -> String {
        let (user, tube) = (Quoted(user.as_bytes()), Quoted(tube.as_bytes()));
        let head = format!("{method} by user {user} in tube {tube} ({tube_type})");
        match self {
            Self::Unknown { option, known } => {
                let (option, known) = (Quoted(option), known.join(", "));
                format!("{head}: option {option} does not exist and is ignored; the options are {known}")
            }
            Self::Unheeded { option } => {
                format!("{head}: tubes of this type ignore option {}", Quoted(option))
            }
            Self::Array => format!("{head}: the options are an array and not a map, and are ignored"),
        }
    }
}

/// A name that a client chose, cut to a length that a log bears.
struct Quoted<'a>(&'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LIMIT: usize = 64;
        let text = String::from_utf8_lossy(self.0);
        match text.char_indices().nth(LIMIT) {
            Some((end, _)) => write!(f, "'{}…'", &text[..end]),
            None => write!(f, "'{text}'"),
        }
    }
}
