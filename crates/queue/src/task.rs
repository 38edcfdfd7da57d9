//! A task: a tuple in its tube's space, read through the tube's layout.
//!
//! Field numbers are here and nowhere else. A tuple begins with the id and the status and ends with the payload; what
//! lies between depends on the type of the tube. The store holds every tuple to the space's format, so the fields that
//! a [`Task`] reads have the right types; a space whose format was taken away may still hold anything, and then
//! [`Task::read`] says so instead of guessing.

use std::ops::Deref;

use lycosa_store::{Overwrite, SpaceId, Statement, Store};
use lycosa_tuple::field::FieldSet;
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::tuple::TupleRef;

/// Number of the id's field, from 0. Every layout begins with it.
pub const TASK_ID: u32 = 0;
/// Number of the status's field.
pub const STATUS: u32 = 1;
/// Number of the field of the next event, in tubes with deadlines.
pub const NEXT_EVENT: u32 = 2;
/// Number of the ttl's field.
pub const TTL: u32 = 3;
/// Number of the ttr's field.
pub const TTR: u32 = 4;
/// Number of the priority's field.
pub const PRI: u32 = 5;
/// Number of the field of the moment of creation.
pub const CREATED: u32 = 6;

/// Where a task is in its life. The byte is what the status field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// May be taken.
    Ready,
    /// Held by a session.
    Taken,
    /// Becomes ready later.
    Delayed,
    /// Set aside until it is kicked.
    Buried,
    /// Gone: only in what `ack` and `delete` return.
    Done,
}

impl State {
    /// The states that a stored task can have.
    pub const STORED: [Self; 4] = [Self::Ready, Self::Taken, Self::Delayed, Self::Buried];

    /// The status field's only byte.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self.text()[0]
    }

    /// The status field.
    #[must_use]
    pub(crate) const fn text(self) -> &'static [u8] {
        match self {
            Self::Ready => b"r",
            Self::Taken => b"t",
            Self::Delayed => b"~",
            Self::Buried => b"!",
            Self::Done => b"-",
        }
    }

    /// The state that a status names.
    #[must_use]
    pub const fn parse(status: &[u8]) -> Option<Self> {
        match status {
            b"r" => Some(Self::Ready),
            b"t" => Some(Self::Taken),
            b"~" => Some(Self::Delayed),
            b"!" => Some(Self::Buried),
            b"-" => Some(Self::Done),
            _ => None,
        }
    }

    /// The status as MessagePack.
    #[must_use]
    pub const fn encoded(self) -> [u8; 2] {
        [0xa1, self.byte()]
    }
}

/// The states of stored tasks and their names.
pub(crate) const STATES: [(State, &str); 4] = [
    (State::Ready, "ready"),
    (State::Taken, "taken"),
    (State::Delayed, "delayed"),
    (State::Buried, "buried"),
];

/// A field of a space as the code writes it: its name and the name of its type.
pub type FieldText = (&'static str, &'static str);

/// An index as the code writes it: its name, whether a key occurs at most once, the numbers of its fields from 0.
pub type IndexText = (&'static str, bool, &'static [u32]);

/// An index of a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexLayout {
    /// Name.
    pub name: String,
    /// Whether a key occurs at most once.
    pub unique: bool,
    /// Numbers of the fields, from 0.
    pub parts: Vec<u32>,
}

/// Fields and indexes of a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceLayout {
    /// Names and types of the fields, in order.
    pub fields: Vec<(String, String)>,
    /// The indexes in the order of their ids.
    pub indexes: Vec<IndexLayout>,
}

impl SpaceLayout {
    /// As the code writes it.
    #[must_use]
    pub fn new(fields: &[FieldText], indexes: &[IndexText]) -> Self {
        let index = |&(name, unique, parts): &IndexText| IndexLayout {
            name: name.into(),
            unique,
            parts: parts.to_vec(),
        };
        Self {
            fields: fields.iter().map(|&(name, kind)| (name.into(), kind.into())).collect(),
            indexes: indexes.iter().map(index).collect(),
        }
    }
}

/// How tasks of one type of tube lie in their space. The last field is the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The space.
    pub space: SpaceLayout,
    /// Whether the fields from [`NEXT_EVENT`] to [`CREATED`] exist.
    pub timed: bool,
    /// Number of the sub-queue's field.
    pub utube: Option<u32>,
    /// The space beside it that shows each free sub-queue's next task.
    pub ready_buffer: Option<SpaceLayout>,
}

impl Layout {
    /// Number of the payload's field.
    #[must_use]
    pub fn data(&self) -> u32 {
        self.space.fields.len() as u32 - 1
    }

    /// Number of fields of a row of the ready buffer.
    pub(crate) fn buffer_columns(&self) -> usize {
        self.ready_buffer.as_ref().map_or(0, |buffer| buffer.fields.len())
    }

    /// Describes the fault of a layout that the queue cannot work with.
    ///
    /// # Errors
    /// A field or an index that the queue reads is missing or elsewhere.
    pub fn check(&self) -> Result<(), String> {
        let fields = &self.space.fields;
        let expect_field = |number: u32, kind: &str| match fields.get(number as usize) {
            Some((_, present)) if present == kind => Ok(()),
            Some((name, present)) => {
                Err(format!("field {} ('{name}') has type {present}, expected {kind}", number + 1))
            }
            None => Err(format!("field {} is missing, expected one of type {kind}", number + 1)),
        };
        expect_field(TASK_ID, "unsigned")?;
        expect_field(STATUS, "string")?;
        if self.timed {
            (NEXT_EVENT..=CREATED).try_for_each(|number| expect_field(number, "unsigned"))?;
        }
        if let Some(utube) = self.utube {
            expect_field(utube, "string")?;
        }
        let before = STATUS + 1 + if self.timed { CREATED - STATUS } else { 0 };
        let expected = before as usize + usize::from(self.utube.is_some()) + 1;
        if fields.len() != expected || self.utube.is_some_and(|utube| utube != before) {
            return Err(format!(
                "{} fields, expected {expected}: id, status, those of deadlines, the sub-queue, the payload",
                fields.len()
            ));
        }
        let expect_index = |place: Option<usize>, name: &str, unique: bool, parts: &[u32]| {
            let index = match place {
                Some(place) => self.space.indexes.get(place),
                None => self.space.indexes.iter().find(|index| index.name == name),
            };
            match index {
                Some(index) if index.unique == unique && index.parts == parts => Ok(()),
                Some(index) => {
                    Err(format!("index '{}' should be over the fields {parts:?} from 0", index.name))
                }
                None => Err(format!("index '{name}' is missing")),
            }
        };
        expect_index(Some(0), "task_id", true, &[TASK_ID])?;
        if self.timed {
            expect_index(None, "status", true, &[STATUS, PRI, TASK_ID])?;
            expect_index(None, "watch", false, &[STATUS, NEXT_EVENT])?;
        } else {
            expect_index(None, "status", true, &[STATUS, TASK_ID])?;
        }
        self.utube.map_or(Ok(()), |utube| expect_index(None, "utube", true, &[STATUS, utube, TASK_ID]))
    }
}

/// One task as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task<'a> {
    /// Id, unique in the tube.
    pub id: u64,
    /// The status as it is stored: anything in a row that a user wrote.
    pub status: &'a [u8],
    /// The fields of tubes with deadlines; all zero elsewhere.
    pub times: Times,
    /// Priority: the smallest is taken first. Zero in tubes without.
    pub pri: u64,
    /// Name of the sub-queue; empty in tubes without.
    pub utube: &'a [u8],
    /// The payload, byte for byte.
    pub data: &'a [u8],
    head: Head,
}

/// Where the fields of a stored task lie that its changes assign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    status: usize,
    /// The end of the status; in tubes with deadlines the field of the next event begins here.
    next_event: usize,
    /// The end of the next event; in tubes without deadlines the end of the status.
    end: usize,
}

/// Times of a task, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// The task's next deadline.
    pub next_event: u64,
    /// How long it lives from its creation.
    pub ttl: u64,
    /// How long it may be held.
    pub ttr: u64,
    /// When it was put.
    pub created: u64,
}

impl Times {
    /// When the task's life ends.
    #[must_use]
    pub fn death(&self) -> u64 {
        self.created.saturating_add(self.ttl)
    }
}

impl<'a> Task<'a> {
    /// Reads a stored tuple. None if its fields are not those of the layout.
    #[must_use]
    pub fn read(tuple: &'a [u8], layout: &Layout) -> Option<Self> {
        let mut reader = Reader::new(tuple);
        let count = reader.array().ok()?;
        if count <= layout.data() {
            return None;
        }
        let id = reader.uint().ok()?;
        let mut head = Head { status: reader.position(), next_event: 0, end: 0 };
        let status = reader.str().ok()?;
        head.next_event = reader.position();
        head.end = head.next_event;
        let mut times = Times::default();
        let mut pri = 0;
        if layout.timed {
            times.next_event = reader.uint().ok()?;
            head.end = reader.position();
            times.ttl = reader.uint().ok()?;
            times.ttr = reader.uint().ok()?;
            pri = reader.uint().ok()?;
            times.created = reader.uint().ok()?;
        }
        let utube = if layout.utube.is_some() { reader.str().ok()? } else { &[] };
        let data = if count == layout.data() + 1 { reader.rest() } else { reader.raw().ok()? };
        Some(Self { id, status, times, pri, utube, data, head })
    }

    /// The state, unless a user has written another status.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        State::parse(self.status)
    }

    /// Whether the task's life is over, so that no session may take it any more.
    #[must_use]
    pub fn is_expired(&self, layout: &Layout, now: u64) -> bool {
        layout.timed && self.times.death() <= now
    }
}

/// A task as clients see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shown<'a> {
    id: u64,
    status: &'a [u8],
    data: &'a [u8],
}

impl<'a> Shown<'a> {
    /// Bytes before the payload, at most: the array's header, the id, the status.
    const HEAD: usize = 1 + mp::MAX_UINT + 2;

    /// Reads a stored tuple; what lies between the status and the payload is not looked at. None if there is no id, status
    /// or payload where the layout has them.
    #[must_use]
    pub(crate) fn read(tuple: &'a [u8], layout: &Layout) -> Option<Self> {
        let mut reader = Reader::new(tuple);
        let count = reader.array().ok()?;
        if count <= layout.data() {
            return None;
        }
        let (id, status) = (reader.uint().ok()?, reader.str().ok()?);
        for _ in STATUS + 1..layout.data() {
            reader.skip().ok()?;
        }
        let data = if count == layout.data() + 1 { reader.rest() } else { reader.raw().ok()? };
        Some(Self { id, status, data })
    }

    /// A task of this state.
    #[must_use]
    pub(crate) fn new(id: u64, state: State, data: &'a [u8]) -> Self {
        Self { id, status: state.text(), data }
    }

    /// The state, unless a user has written another status.
    #[must_use]
    pub(crate) fn state(&self) -> Option<State> {
        State::parse(self.status)
    }

    /// Appends `[id, status, data]`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.reserve(self.data.len() + Self::HEAD);
        let &[status] = self.status else { return self.write_odd(out) };
        let mut head = [0x93; Self::HEAD];
        let (id, length) = mp::uint_bytes(self.id);
        mp::overwrite(&mut head, 1, id);
        mp::overwrite(&mut head, 1 + length, [0xa1, status]);
        // A copy of constant length is a few instructions, one of the length that there is a call.
        let end = out.len() + 1 + length + 2;
        out.extend_from_slice(&head);
        out.truncate(end);
        out.extend_from_slice(self.data);
    }

    /// With a status that only a user can have written.
    #[cold]
    fn write_odd(&self, out: &mut Vec<u8>) {
        mp::write_array(out, 3);
        mp::write_uint(out, self.id);
        mp::write_str(out, self.status);
        out.extend_from_slice(self.data);
    }

    /// The same task with another status.
    #[must_use]
    pub(crate) fn with_state(self, state: State) -> Self {
        Self { status: state.text(), ..self }
    }
}

/// The letter that is the status of a tuple as the queue writes it, and what follows it.
#[inline]
fn plain_status(tuple: &[u8]) -> Option<(u8, &[u8])> {
    match mp::behind_number(tuple)? {
        &[0xa1, letter, ref rest @ ..] => Some((letter, rest)),
        _ => None,
    }
}

/// What a stored task waits for: its state, unless a user has written another status, and its next event, zero in tubes
/// without deadlines. None if there is no id, status or moment where the layout has them.
#[must_use]
pub(crate) fn prospect(tuple: &[u8], layout: &Layout) -> Option<(Option<State>, u64)> {
    let (state, mut reader) = match plain_status(tuple) {
        Some((letter, rest)) => (State::parse(&[letter]), Reader::new(rest)),
        None => {
            let mut reader = Reader::new(tuple);
            reader.array().ok()?;
            reader.skip().ok()?;
            (State::parse(reader.str().ok()?), reader)
        }
    };
    let next_event = if layout.timed { reader.uint().ok()? } else { 0 };
    Some((state, next_event))
}

/// The id of a stored task. Reads no other field.
#[must_use]
pub fn id_of(tuple: &[u8]) -> Option<u64> {
    Reader::new(TupleRef::trusted(tuple).field(TASK_ID)?).uint().ok()
}

/// A task: the id of its tube and its own.
pub(crate) type TaskKey = (u64, u64);

/// The key of a row of `_queue_taken_2`: tube and task.
pub(crate) fn taken_key(tuple: &[u8]) -> Option<TaskKey> {
    let mut reader = Reader::new(tuple);
    reader.array().ok()?;
    Some((reader.uint().ok()?, reader.uint().ok()?))
}

/// A key of a few short parts, without allocation. Dereferences to its MessagePack array.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShortKey {
    bytes: [u8; Self::CAPACITY],
    length: usize,
}

impl ShortKey {
    /// An array's header, a status and three numbers.
    const CAPACITY: usize = 1 + 2 + 3 * 9;

    /// The key of a task.
    pub(crate) fn id(id: u64) -> Self {
        Self::numbers(&[id])
    }

    /// One or two numbers.
    pub(crate) fn numbers(numbers: &[u64]) -> Self {
        let mut key = Self { bytes: [0; Self::CAPACITY], length: 1 };
        key.bytes[0] = 0x90 | numbers.len() as u8;
        numbers.iter().for_each(|number| key.push(*number));
        key
    }

    /// A status and up to three numbers.
    pub(crate) fn state(state: State, numbers: &[u64]) -> Self {
        let mut key = Self { bytes: [0; Self::CAPACITY], length: 3 };
        key.bytes[0] = 0x91 + numbers.len() as u8;
        mp::overwrite(&mut key.bytes, 1, state.encoded());
        numbers.iter().for_each(|number| key.push(*number));
        key
    }

    fn push(&mut self, number: u64) {
        if number < 0x80 {
            self.bytes[self.length] = number as u8;
            self.length += 1;
        } else {
            self.bytes[self.length] = 0xcf;
            mp::overwrite(&mut self.bytes, self.length + 1, number.to_be_bytes());
            self.length += 9;
        }
    }
}

impl Deref for ShortKey {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// A key that begins with a status and the name of a sub-queue; without an allocation if the name is short.
#[derive(Debug)]
pub(crate) enum NameKey {
    Short([u8; Self::CAPACITY], usize),
    Long(Vec<u8>),
}

impl NameKey {
    /// The longest name of a short key: its header is one byte.
    const MAX_SHORT: usize = 31;
    /// An array's header, a status and a name.
    const CAPACITY: usize = 1 + 2 + 1 + Self::MAX_SHORT;

    /// `numbers` are two at most.
    pub(crate) fn new(state: State, name: &[u8], numbers: &[u64]) -> Self {
        let header = 0x92 + numbers.len() as u8;
        let [tag, state] = state.encoded();
        if name.len() > Self::MAX_SHORT || !numbers.is_empty() {
            let mut key = Vec::with_capacity(name.len() + 27);
            key.extend_from_slice(&[header, tag, state]);
            mp::write_str(&mut key, name);
            numbers.iter().for_each(|number| mp::write_uint(&mut key, *number));
            return Self::Long(key);
        }
        let mut bytes = [0; Self::CAPACITY];
        mp::overwrite(&mut bytes, 0, [header, tag, state, 0xa0 | name.len() as u8]);
        bytes[4..4 + name.len()].copy_from_slice(name);
        Self::Short(bytes, 4 + name.len())
    }
}

impl Deref for NameKey {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(bytes, length) => &bytes[..*length],
            Self::Long(bytes) => bytes,
        }
    }
}

/// A key of one string.
pub(crate) fn string_key(text: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(text.len() + 6);
    key.push(0x91);
    mp::write_str(&mut key, text);
    key
}

/// The fields of a task that an event changes; a field that is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The state after it.
    pub state: State,
    /// The next event, µs since the epoch.
    pub next_event: Option<u64>,
    /// Time to live, µs.
    pub ttl: Option<u64>,
    /// Time to run, µs.
    pub ttr: Option<u64>,
}

impl Change {
    /// Only the state changes.
    #[must_use]
    pub const fn to(state: State) -> Self {
        Self { state, next_event: None, ttl: None, ttr: None }
    }
}

/// A change of a task's small fields, as the operations of an UPDATE and, if the new values are as long as the old ones, as
/// the bytes that it puts into the tuple.
#[derive(Debug, Default)]
pub(crate) struct Assignments {
    operations: Operations,
    fields: FieldSet,
    /// Where the bytes belong; `None`: only the operations name the change.
    offset: Option<usize>,
    bytes: [u8; Self::HEAD],
    length: usize,
}

/// The operations of an UPDATE, without an allocation.
#[derive(Debug)]
struct Operations {
    bytes: [u8; Self::CAPACITY],
    length: usize,
}

impl Operations {
    /// An operation before its value: an array's header, `=`, a field whose number is one byte.
    const HEAD: usize = 4;
    /// An array's header, a status and three numbers.
    const CAPACITY: usize = 1 + 4 * (Self::HEAD + mp::MAX_UINT);

    /// Adds an operation that gives a field the first `width` bytes of `value`.
    #[inline]
    fn assign<const N: usize>(&mut self, field: u32, value: [u8; N], width: usize) {
        self.bytes[0] += 1;
        mp::overwrite(&mut self.bytes, self.length, [0x93, 0xa1, b'=', field as u8]);
        mp::overwrite(&mut self.bytes, self.length + Self::HEAD, value);
        self.length += Self::HEAD + width;
    }
}

impl Default for Operations {
    fn default() -> Self {
        let mut bytes = [0; Self::CAPACITY];
        bytes[0] = 0x90;
        Self { bytes, length: 1 }
    }
}

impl Deref for Operations {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Assignments {
    /// Bytes of a status and a next event, at most.
    const HEAD: usize = 2 + mp::MAX_UINT;

    /// Takes over the outcome for a task.
    #[inline]
    pub(crate) fn set(&mut self, task: &Task<'_>, change: &Change) {
        self.clear();
        let Head { status, next_event, end } = task.head;
        let is_moved = task.state() != Some(change.state);
        let (begin, mut fits) =
            if is_moved { (status, next_event - status == 2) } else { (next_event, true) };
        if is_moved {
            let state = change.state.encoded();
            self.operations.assign(STATUS, state, state.len());
            mp::overwrite(&mut self.bytes, 0, state);
            self.fields.insert(STATUS);
            self.length = state.len();
        }
        if let Some(value) = change.next_event {
            let (value, width) = mp::uint_bytes(value);
            self.operations.assign(NEXT_EVENT, value, width);
            mp::overwrite(&mut self.bytes, self.length, value);
            self.fields.insert(NEXT_EVENT);
            self.length += width;
            fits &= width == end - next_event;
        }
        for (field, value) in [(TTL, change.ttl), (TTR, change.ttr)] {
            if let Some(value) = value {
                let (value, width) = mp::uint_bytes(value);
                self.operations.assign(field, value, width);
                fits = false;
            }
        }
        self.offset = (fits && self.length > 0).then_some(begin);
    }

    /// Takes over a state and up to three numbers by their fields, for a caller that has not read the task's head.
    pub(crate) fn set_unread(&mut self, state: Option<State>, numbers: &[(u32, u64)]) {
        self.clear();
        if let Some(state) = state {
            self.operations.assign(STATUS, state.encoded(), 2);
        }
        for (field, value) in numbers {
            let (value, width) = mp::uint_bytes(*value);
            self.operations.assign(*field, value, width);
        }
    }

    fn clear(&mut self) {
        (self.operations.bytes[0], self.operations.length) = (0x90, 1);
        self.fields = FieldSet::default();
        self.offset = None;
        self.length = 0;
    }

    /// Changes the task with that id in the space of its tube.
    pub(crate) fn carry_out<'s>(
        &mut self,
        store: &'s mut Store,
        space: SpaceId,
        id: u64,
    ) -> Result<Option<&'s [u8]>, lycosa_store::Error> {
        let Self { operations, fields, offset, bytes, length } = self;
        match *offset {
            Some(offset) => {
                let change = Overwrite { fields: *fields, offset, bytes: &mut bytes[..*length], operations };
                store.overwrite(space, id, change)
            }
            None => {
                let key = &ShortKey::id(id);
                store.execute(&Statement::Update { space, index: 0, key, operations, base: 0 })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{fifo, fifottl, utube, utubettl};

    #[test]
    fn layouts_agree_with_the_field_numbers() {
        for layout in [&fifo::layout(), &fifottl::layout(), &utube::layout(), &utubettl::layout()] {
            let name = |number: u32| layout.space.fields[number as usize].0.as_str();
            assert_eq!(name(TASK_ID), "task_id");
            assert_eq!(name(STATUS), "status");
            assert_eq!(name(layout.data()), "data");
            if layout.timed {
                let names = [NEXT_EVENT, TTL, TTR, PRI, CREATED].map(name);
                assert_eq!(names, ["next_event", "ttl", "ttr", "pri", "created"]);
            }
            if let Some(number) = layout.utube {
                assert_eq!(name(number), "utube");
                assert_eq!(number + 1, layout.data());
            }
        }
    }

    #[test]
    fn reads_and_writes() {
        let tuple = [0x94, 5, 0xa1, b'r', 0xa1, b'u', 0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0];
        let task = Task::read(&tuple, &utube::layout()).expect("the layout's tuple");
        assert_eq!((task.id, task.state(), task.utube), (5, Some(State::Ready), b"u".as_slice()));
        let shown = Shown::read(&tuple, &utube::layout()).expect("the layout's tuple");
        assert_eq!(
            (shown.state(), prospect(&tuple, &utube::layout())),
            (task.state(), Some((task.state(), 0)))
        );
        let mut out = Vec::new();
        shown.with_state(State::Taken).write(&mut out);
        assert_eq!(out, [0x93, 5, 0xa1, b't', 0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Task::read(&tuple, &fifottl::layout()), None);
        assert_eq!(Shown::read(&tuple, &fifottl::layout()), None);
        assert_eq!(prospect(&tuple, &fifottl::layout()), None);
        assert_eq!(id_of(&tuple), Some(5));
        assert_eq!(id_of(&[0x90]), None);
    }

    #[test]
    fn extra_fields_do_not_belong_to_the_payload() {
        let tuple = [0x94, 0, 0xa1, b'!', 0x07, 0x08];
        let task = Task::read(&tuple, &fifo::layout()).expect("three fields and one more");
        assert_eq!(task.data, [0x07]);
        assert_eq!(Shown::read(&tuple, &fifo::layout()).map(|shown| shown.data), Some(&[0x07][..]));
    }
}
