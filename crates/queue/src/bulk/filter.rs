//! Filters: which tasks of a tube `find`, `count` and `apply` mean, and in which order they look at them.

mod walk;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use lycosa_tuple::collation::Collation;
use lycosa_tuple::mp::{self, Kind, Reader};
use lycosa_tuple::path::Path;
use lycosa_tuple::scalar;
use memchr::memmem;

use crate::arguments::{Number, Table, is_nil, kind, string, unsigned};
use crate::error::{Error, Result};
use crate::members::Members;
use crate::task::{STATES, State};
use crate::tube::Tube;

/// Names of the members of a filter.
const MEMBERS: &str = "all, state, id_from, id_to, ids, utube, pri_from, pri_to, older_than, younger_than, attempts_from, \
                       attempts_to, error, field, equals and contains";

/// Bytes of a filter at most. A job keeps its filter, and writes it with each slice.
const MAX_FILTER_BYTES: usize = 16 << 10;

/// Bytes of payloads after which a page or a slice ends that looks into them, changes their tasks or brings them back: a page of
/// tasks of a megabyte holds the loop no longer than a page of small ones.
pub(crate) const MAX_TASK_BYTES: usize = 1 << 20;

/// Ids that a filter may name.
const MAX_IDS: usize = 1000;

/// A range of numbers, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    from: u64,
    to: u64,
}

impl Default for Span {
    fn default() -> Self {
        Self { from: 0, to: u64::MAX }
    }
}

impl Span {
    const fn has(self, number: u64) -> bool {
        self.from <= number && number <= self.to
    }

    fn is_all(self) -> bool {
        self == Self::default()
    }
}

/// A test of one value in a payload.
#[derive(Debug, Clone, PartialEq)]
enum Test {
    Exists,
    Equals(Vec<u8>),
    Contains(Vec<u8>),
}

impl Test {
    fn holds(&self, value: &[u8]) -> bool {
        match self {
            Self::Exists => true,
            Self::Equals(expected) => scalar::compare(value, expected, &Collation::Binary) == Ordering::Equal,
            Self::Contains(text) => string(value).is_some_and(|value| contains(value, text)),
        }
    }
}

/// Takes time in proportion to the lengths of both, for any texts.
fn contains(text: &[u8], part: &[u8]) -> bool {
    memmem::find(text, part).is_some()
}

/// A state by its name or its letter.
fn state_of(name: &[u8]) -> Option<State> {
    let letter = State::parse(name).filter(|state| *state != State::Done);
    letter.or_else(|| STATES.iter().find(|(_, word)| word.as_bytes() == name).map(|(state, _)| *state))
}

/// Reads an array of ids, and of pairs of an id and a state.
fn named_tasks(value: &[u8]) -> Option<BTreeMap<u64, Option<State>>> {
    let mut reader = Reader::new(value);
    let count = reader.array().ok()?;
    let mut named = BTreeMap::new();
    for _ in 0..count {
        let item = reader.raw().ok()?;
        let mut pair = Reader::new(item);
        let (id, state) = match kind(item) {
            Kind::Array if pair.array() == Ok(2) => {
                (pair.raw().ok()?, Some(state_of(string(pair.raw().ok()?)?)?))
            }
            _ => (item, None),
        };
        named.insert(unsigned(id)?, state);
    }
    Some(named)
}

/// A parsed filter. A task is admitted if every member admits it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Filter {
    pub(crate) state: Option<State>,
    ids: Span,
    /// The only tasks that are meant, by id, each with the state in which it is meant, if one was named.
    named: Option<BTreeMap<u64, Option<State>>>,
    utube: Option<Vec<u8>>,
    pris: Span,
    /// Times of the put, µs since the epoch.
    created: Option<Span>,
    attempts: Span,
    error: Option<Vec<u8>>,
    field: Option<(Path, Test)>,
    is_all: bool,
    /// Whether a walk over a state follows ids, not priorities.
    pub(super) is_by_id: bool,
    /// Number of members but `all`.
    members: usize,
}

impl Filter {
    /// Reads a filter for a tube. Ages count from `now`, µs since the epoch. Nothing is every task.
    ///
    /// # Errors
    /// A member that does not exist, has the wrong type, or can never match in this tube.
    pub(crate) fn parse(method: &'static str, value: Option<&[u8]>, tube: &Tube, now: u64) -> Result<Self> {
        let unfit = |what: String| Error::Unfit { method, what };
        let mut filter = Self::default();
        let Some(value) = value.filter(|value| !is_nil(value) && *value != [0x90]) else { return Ok(filter) };
        if kind(value) != Kind::Map {
            return Err(unfit(format!("the filter should be a map of {MEMBERS}")));
        }
        let bytes = value.len();
        if bytes > MAX_FILTER_BYTES {
            return Err(unfit(format!(
                "the filter has {bytes} bytes: it should have at most {MAX_FILTER_BYTES}"
            )));
        }
        let (mut path, mut test) = (None, None);
        for (name, value) in Table::parse(Some(value))?.filter(|(_, value)| !is_nil(value)) {
            filter.members += usize::from(name != b"all");
            let shown = String::from_utf8_lossy(name).into_owned();
            let of = |expected: &str| unfit(format!("{shown} of the filter should be {expected}"));
            let number = || unsigned(value).ok_or_else(|| of("a whole number, 0 or more"));
            let text = || string(value).ok_or_else(|| of("a text"));
            let age = || {
                let age = Number::parse(value).filter(|number| !number.is_negative());
                let age = age.ok_or_else(|| of("a number of seconds, 0 or more"))?;
                Ok::<_, Error>(now.saturating_sub(age.seconds().deadline(0)))
            };
            match name {
                b"all" => filter.is_all = value == [0xc3],
                b"state" => {
                    let state = state_of(text()?);
                    filter.state = Some(state.ok_or_else(|| of("ready, taken, delayed or buried"))?);
                }
                b"ids" => {
                    let named = named_tasks(value).filter(|named| (1..=MAX_IDS).contains(&named.len()));
                    let ids = "an array of ids, or of pairs of an id and a state, at least 1 and at most";
                    filter.named = Some(named.ok_or_else(|| of(&format!("{ids} {MAX_IDS}")))?);
                }
                b"id_from" => filter.ids.from = number()?,
                b"id_to" => filter.ids.to = number()?,
                b"utube" => filter.utube = Some(text()?.to_vec()),
                b"pri_from" => filter.pris.from = number()?,
                b"pri_to" => filter.pris.to = number()?,
                b"older_than" => filter.created.get_or_insert_default().to = age()?,
                b"younger_than" => filter.created.get_or_insert_default().from = age()?,
                b"attempts_from" => filter.attempts.from = number()?,
                b"attempts_to" => filter.attempts.to = number()?,
                b"error" => filter.error = Some(text()?.to_vec()),
                b"field" => {
                    let parsed = Path::parse(text()?);
                    path = Some(parsed.map_err(|error| of(&format!("a path, such as user.name: {error}")))?);
                }
                b"equals" => test = Some(Test::Equals(value.to_vec())),
                b"contains" => test = Some(Test::Contains(text()?.to_vec())),
                _ => return Err(unfit(format!("the filter has no member {shown}: it has {MEMBERS}"))),
            }
        }
        if path.is_none() && test.is_some() {
            return Err(unfit("equals and contains of the filter need a field".to_owned()));
        }
        filter.field = path.map(|path| (path, test.unwrap_or(Test::Exists)));
        filter.check_layout(tube).map_err(unfit)?;
        Ok(filter)
    }

    /// The filter of `list`, which has three members and names their faults in its own texts. `before` is the latest time of the put.
    pub(crate) fn of_list(state: Option<State>, utube: Option<&[u8]>, before: Option<u64>) -> Self {
        let created = before.map(|to| Span { from: 0, to });
        Self { state, utube: utube.map(<[u8]>::to_vec), created, ..Self::default() }
    }

    /// Says which member can never match in the tube.
    fn check_layout(&self, tube: &Tube) -> Result<(), String> {
        let layout = tube.kind.layout();
        let of_tube = |member: &str, what: &str| {
            Err(format!("{member} matches no task: tube \"{}\" ({}) {what}", tube.name, tube.kind.name()))
        };
        if !layout.timed && self.created.is_some() {
            return of_tube("the age of the filter", "keeps no time of its tasks");
        }
        if !layout.timed && !self.pris.is_all() {
            return of_tube("the priority of the filter", "has no priorities");
        }
        if layout.utube.is_none() && self.utube.is_some() {
            return of_tube("utube of the filter", "has no sub-queues");
        }
        Ok(())
    }

    /// Whether the filter says that it means all that match, or means one task at most.
    pub(crate) fn is_deliberate(&self) -> bool {
        self.is_all || self.ids.from >= self.ids.to
    }

    /// Whether the filter names a state for the task, and that state is `state`.
    pub(crate) fn names_state(&self, id: u64, state: State) -> bool {
        let named = self.named.as_ref().and_then(|named| named.get(&id));
        self.state == Some(state) || named == Some(&Some(state))
    }

    /// The state whose index a walk follows.
    fn walked_state(&self) -> Option<State> {
        self.state.filter(|_| self.utube.is_some() || !self.is_by_id)
    }

    /// Whether the filter says nothing, not even `all = true`.
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_all && self.members == 0
    }
}

/// Appends the map of every task, for a filter that was left out.
pub(crate) fn write_everything(out: &mut Vec<u8>) {
    mp::write_bool(Members::new(out).name("all"), true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_found_wherever_it_stands() {
        for (text, part) in [("", ""), ("ab", ""), ("ab", "ab"), ("aab", "ab"), ("abab", "bab")] {
            assert!(contains(text.as_bytes(), part.as_bytes()), "{part:?} in {text:?}");
        }
        for (text, part) in [("", "a"), ("ab", "ba"), ("ab", "abc"), ("aaaa", "aab")] {
            assert!(!contains(text.as_bytes(), part.as_bytes()), "{part:?} in {text:?}");
        }
        assert!(contains(b"\xff\x00\xfe", b"\x00\xfe"));
    }

    /// A search that begins anew behind each byte compares 16 TB here, and does not end.
    #[test]
    fn a_text_that_nearly_stands_everywhere_is_searched_once() {
        let text = vec![b'a'; 8 << 20];
        let part = [&text[..4 << 20], b"b"].concat();
        assert!(!contains(&text, &part));
    }
}
