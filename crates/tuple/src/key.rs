//! Keys: the parts of an index, the order of tuples by them, their hints and hashes.
//!
//! A key is the values of its parts back to back, without an array's header. A tuple that lacks a part's field has nil
//! there. Tuples are expected to have passed a [`crate::format::Format`] with the same parts; others are ordered too,
//! by the total order of [`crate::scalar`], only their hints may not follow it.
//!
//! A multikey definition has parts with `[*]` in their paths, all for the elements of one array: a tuple has a key for each
//! ([`KeyDef::each_key`]). Functions that return one key of a tuple are not for it.
//!
//! Absent: functional keys.

use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hasher};

use crate::collation::Collation;
use crate::field::{FieldSet, FieldType};
use crate::format::Refusal;
use crate::hint;
use crate::mp::{self, MpError, Reader};
use crate::path::{Path, Token};
use crate::scalar;

const NIL: &[u8] = &[0xc0];

/// One part of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPart {
    /// Number of the tuple's field, from 0.
    pub field: u32,
    /// Type of the values.
    pub ty: FieldType,
    /// Whether the part may be nil or missing.
    pub nullable: bool,
    /// How a nil is refused where the part may be none.
    pub refusal: Refusal,
    /// Order of the strings.
    pub collation: Collation,
    /// Where in the field the value is, if it is not the field itself.
    pub path: Option<Path>,
}

impl KeyPart {
    /// A part that is a whole field, not nullable, in binary order.
    pub const fn new(field: u32, ty: FieldType) -> Self {
        Self {
            field,
            ty,
            nullable: false,
            refusal: Refusal::Default,
            collation: Collation::Binary,
            path: None,
        }
    }

    /// Whether both parts look at the same place in a tuple.
    fn is_same_place(&self, other: &Self) -> bool {
        self.field == other.field && self.path == other.path
    }

    /// The path behind `[*]`, if the part is one of a multikey definition.
    fn behind_any(&self) -> Option<&[Token]> {
        let tokens = self.path.as_ref()?.tokens();
        let any = tokens.iter().position(|token| *token == Token::Any)?;
        Some(&tokens[any + 1..])
    }

    /// Whether the part is one of a multikey definition: its path leads to each element of an array.
    pub fn is_multikey(&self) -> bool {
        self.behind_any().is_some()
    }

    /// The field and the path of the array whose elements the part asks for.
    pub fn array(&self) -> Option<(u32, &[Token])> {
        let tokens = self.path.as_ref()?.tokens();
        let any = tokens.iter().position(|token| *token == Token::Any)?;
        Some((self.field, &tokens[..any]))
    }

    /// The value of the part inside the field's `value`.
    #[inline]
    fn inside<'a>(&self, value: &'a [u8]) -> &'a [u8] {
        match &self.path {
            None => value,
            Some(path) => path.lookup(value).unwrap_or(NIL),
        }
    }
}

/// Why a key does not fit an index. The texts are Tarantool's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A part has another type (KEY_PART_TYPE, code 18).
    #[error("Supplied key type of part {part} does not match index part type: expected {expected}")]
    PartType {
        /// Number of the part, from 0.
        part: u32,
        /// The index part's type.
        expected: FieldType,
    },
    /// More parts than the index has (KEY_PART_COUNT, code 31).
    #[error("Invalid key part count (expected [0..{expected}], got {got})")]
    PartCount {
        /// Parts of the index.
        expected: u32,
        /// Parts of the key.
        got: u32,
    },
    /// Not as many parts as the index has, where a whole key is needed (EXACT_MATCH, code 19).
    #[error("Invalid key part count in an exact match (expected {expected}, got {got})")]
    ExactMatch {
        /// Parts of the index.
        expected: u32,
        /// Parts of the key.
        got: u32,
    },
    /// The bytes hold fewer values than was said (INVALID_MSGPACK, code 20).
    #[error("Invalid MsgPack - {0}")]
    Malformed(#[from] MpError),
}

/// How to compare a part without decoding more than needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// A field of unsigned integers.
    Unsigned,
    /// A field of integers.
    Integer,
    /// A field of strings in binary order.
    String,
    /// Anything else.
    Scalar,
}

/// What a comparison needs to know of a part.
#[derive(Debug, Clone, Copy)]
struct Step {
    field: u32,
    order: Order,
    nullable: bool,
}

/// The parts of a key, in order.
#[derive(Debug, Clone)]
pub struct KeyDef {
    parts: Box<[KeyPart]>,
    steps: Box<[Step]>,
    /// The fields that the parts are in.
    fields: FieldSet,
    has_nullable: bool,
    hint_can_be_exact: bool,
    /// The only part is the number in the first field.
    is_first: bool,
    /// The last of several parts is the number in the first field, which no other part is in.
    ends_with_first: bool,
    /// The parts are the text in the second field and the number in the first one.
    is_text_and_first: bool,
}

/// Two definitions are equal if their parts are.
impl PartialEq for KeyDef {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

impl Eq for KeyDef {}

impl KeyDef {
    /// A definition of these parts.
    pub fn new(parts: Vec<KeyPart>) -> Self {
        let steps: Box<[Step]> = parts
            .iter()
            .map(|part| {
                let order = match part.ty {
                    FieldType::Unsigned if part.path.is_none() => Order::Unsigned,
                    FieldType::Integer if part.path.is_none() => Order::Integer,
                    FieldType::String if part.path.is_none() && part.collation.is_binary() => Order::String,
                    _ => Order::Scalar,
                };
                Step { field: part.field, order, nullable: part.nullable }
            })
            .collect();
        let is_first = |step: &Step| step.field == 0 && step.order == Order::Unsigned && !step.nullable;
        let (last, others) =
            steps.split_last().map_or((false, &[][..]), |(last, others)| (is_first(last), others));
        let is_text = |step: &Step| step.field == 1 && step.order == Order::String && !step.nullable;
        Self {
            is_text_and_first: last && matches!(others, [text] if is_text(text)),
            is_first: last && others.is_empty(),
            ends_with_first: last && !others.is_empty() && others.iter().all(|step| step.field != 0),
            steps,
            fields: parts.iter().map(|part| part.field).collect(),
            has_nullable: parts.iter().any(|part| part.nullable),
            hint_can_be_exact: hint::can_be_exact(&parts),
            parts: parts.into(),
        }
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// The fields that the parts are in.
    pub fn fields(&self) -> FieldSet {
        self.fields
    }

    /// Number of parts.
    pub fn part_count(&self) -> u32 {
        u32::try_from(self.parts.len()).unwrap_or(u32::MAX)
    }

    /// The full order of a secondary TREE index that may hold equal keys (one that is not unique, or unique with
    /// nullable parts): the own parts, then those of the `primary` key that are not among them. A part that the own
    /// key has under a collation is appended nevertheless, because strings that differ may be equal in it.
    #[must_use]
    pub fn extended_by(&self, primary: &Self) -> Self {
        let is_decided = |part: &KeyPart| {
            self.parts.iter().any(|own| {
                own.is_same_place(part) && (own.collation.is_binary() || own.collation == part.collation)
            })
        };
        let missing = primary.parts.iter().filter(|part| !is_decided(part));
        Self::new(self.parts.iter().chain(missing).cloned().collect())
    }

    /// Orders two tuples by all parts.
    #[inline]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let mut a = Walk::new(a);
        let mut b = Walk::new(b);
        for (index, step) in self.steps.iter().enumerate() {
            let field = step.field;
            let quick = match step.order {
                Order::Unsigned => a.unsigned(field).and_then(|a| Some(a.cmp(&b.unsigned(field)?))),
                Order::Integer => a.integer(field).and_then(|a| Some(a.cmp(&b.integer(field)?))),
                Order::String => a.string(field).and_then(|a| Some(a.cmp(b.string(field)?))),
                Order::Scalar => None,
            };
            let ordering = quick.unwrap_or_else(|| {
                let part = &self.parts[index];
                scalar::compare(a.part(part), b.part(part), &part.collation)
            });
            if ordering.is_ne() {
                return ordering;
            }
        }
        Ordering::Equal
    }

    /// Orders a tuple against the first `part_count` parts of `key`. A tuple whose key begins with them is equal.
    #[inline]
    pub fn compare_with_key(&self, tuple: &[u8], key: &[u8], part_count: u32) -> Ordering {
        let mut tuple = Walk::new(tuple);
        let mut key = Reader::new(key);
        for (index, step) in self.steps.iter().enumerate().take(part_count as usize) {
            let field = step.field;
            // Where this gives nothing, `key` has not moved.
            let quick = match step.order {
                Order::Unsigned => tuple.unsigned(field).and_then(|a| Some(a.cmp(&key.uint().ok()?))),
                Order::Integer => tuple.integer(field).and_then(|a| Some(a.cmp(&key.int().ok()?))),
                Order::String => tuple.string(field).and_then(|a| Some(a.cmp(key.str().ok()?))),
                Order::Scalar => None,
            };
            let ordering = quick.unwrap_or_else(|| {
                let part = &self.parts[index];
                scalar::compare(tuple.part(part), key.raw().unwrap_or(NIL), &part.collation)
            });
            if ordering.is_ne() {
                return ordering;
            }
        }
        Ordering::Equal
    }

    /// Checks that `key` is `part_count` values which can be compared with the first parts.
    ///
    /// # Errors
    /// Too many parts, then the first part of another type. Nil fits nullable parts only.
    pub fn check_key(&self, key: &[u8], part_count: u32) -> Result<(), KeyError> {
        if part_count > self.part_count() {
            return Err(KeyError::PartCount { expected: self.part_count(), got: part_count });
        }
        let mut reader = Reader::new(key);
        for (number, part) in (0..part_count).zip(&self.parts) {
            let value = reader.raw()?;
            if !(part.ty.accepts(value) || part.nullable && value == NIL) {
                return Err(KeyError::PartType { part: number, expected: part.ty });
            }
        }
        Ok(())
    }

    /// Checks that `key` is a whole key, as a lookup of one tuple needs it.
    ///
    /// # Errors
    /// Another number of parts, then the first part of another type.
    pub fn check_whole_key(&self, key: &[u8], part_count: u32) -> Result<(), KeyError> {
        if part_count != self.part_count() {
            return Err(KeyError::ExactMatch { expected: self.part_count(), got: part_count });
        }
        self.check_key(key, part_count)
    }

    /// Refuses a key with nil in a part: tuples whose key has nil may repeat, so no lookup finds one of them.
    ///
    /// # Errors
    /// The first such part.
    pub fn check_no_nil(&self, key: &[u8]) -> Result<(), KeyError> {
        let mut reader = Reader::new(key);
        for (number, part) in (0..).zip(&self.parts) {
            if reader.raw()? == NIL {
                return Err(KeyError::PartType { part: number, expected: part.ty });
            }
        }
        Ok(())
    }

    /// Checks that the tuple has a whole key. Fields outside of the key are not looked at.
    ///
    /// # Errors
    /// The first part of another type, or without a value.
    pub fn check_extracted(&self, tuple: &[u8]) -> Result<(), KeyError> {
        let mut key = Vec::new();
        self.extract(tuple, &mut key);
        self.check_whole_key(&key, self.part_count())
    }

    /// Appends the tuple's key: the values of all parts as they stand in the tuple, nil for a missing field.
    #[inline]
    pub fn extract(&self, tuple: &[u8], out: &mut Vec<u8>) {
        let mut walk = Walk::new(tuple);
        for part in &self.parts {
            out.extend_from_slice(walk.part(part));
        }
    }

    /// Appends the tuple's key as a MessagePack array of all parts.
    #[inline]
    pub fn extract_array(&self, tuple: &[u8], out: &mut Vec<u8>) {
        if self.is_first
            && let &[0x91..=0x9f, first, ..] = tuple
            && let Some(bytes) = tuple.first_chunk::<{ 1 + mp::MAX_UINT }>()
            && let Some(width) = mp::uint_width(first)
        {
            // A copy of constant length is a few instructions, one of the length that there is a call.
            let mut key = *bytes;
            key[0] = 0x91;
            let end = out.len() + 1 + width;
            out.extend_from_slice(&key);
            return out.truncate(end);
        }
        mp::write_array(out, self.part_count());
        self.extract(tuple, out);
    }

    /// Hands out the keys that a tuple has under a multikey definition, one for each element of the array: the values of all
    /// parts back to back, nil for a missing value. A tuple without the array has no key.
    pub fn each_key(&self, tuple: &[u8], f: &mut dyn FnMut(&[u8])) {
        let Some((field, before)) = self.parts.iter().find_map(KeyPart::array) else { return };
        let field = Walk::new(tuple).field(field);
        let array = field.and_then(|field| before.iter().try_fold(field, |value, token| token.lookup(value)));
        let Some(array) = array else { return };
        let mut elements = Reader::new(array);
        let mut key = Vec::new();
        for _ in 0..elements.array().unwrap_or(0) {
            let Ok(element) = elements.raw() else { return };
            key.clear();
            let mut walk = Walk::new(tuple);
            for part in &self.parts {
                let value = match part.behind_any() {
                    Some(behind) => behind.iter().try_fold(element, |value, token| token.lookup(value)),
                    None => Some(walk.part(part)),
                };
                key.extend_from_slice(value.unwrap_or(NIL));
            }
            f(&key);
        }
    }

    /// The definition of the same keys in tuples that hold the parts' values one after the other, followed by those of `more`.
    #[must_use]
    pub fn flattened(&self, more: Option<&Self>) -> Self {
        let parts = self.parts.iter().chain(more.into_iter().flat_map(|more| &more.parts));
        Self::new(
            (0..).zip(parts).map(|(field, part)| KeyPart { field, path: None, ..part.clone() }).collect(),
        )
    }

    /// The tuple's hint. `hint(a) < hint(b)` says that `a` is before `b`; equal hints say nothing unless
    /// [`Self::hint_is_exact`].
    #[inline]
    pub fn hint(&self, tuple: &[u8]) -> u64 {
        if self.is_text_and_first
            && let Some(hint) = hint::of_letter(tuple)
        {
            return hint;
        }
        self.hint_of_parts(tuple)
    }

    fn hint_of_parts(&self, tuple: &[u8]) -> u64 {
        let mut writer = hint::Writer::new();
        let mut walk = Walk::new(tuple);
        // The number that decides between equal values behind it: read in the order of the tuple.
        let first = if self.ends_with_first { walk.unsigned(0) } else { None };
        for (index, step) in self.steps.iter().enumerate() {
            let is_written = !step.nullable
                && match step.order {
                    Order::Unsigned => {
                        let first = first.filter(|_| step.field == 0);
                        let value = first.or_else(|| walk.unsigned(step.field));
                        value.map(|value| writer.unsigned(value, 0)).is_some()
                    }
                    Order::String => walk.string(step.field).map(|value| writer.bytes(value)).is_some(),
                    Order::Integer | Order::Scalar => false,
                };
            if !is_written {
                let part = &self.parts[index];
                writer.part(part, walk.part(part));
            }
            if writer.is_full() {
                break;
            }
        }
        writer.least()
    }

    /// The least and the greatest hint that a tuple can have whose key begins with the first `part_count` parts of
    /// `key`.
    pub fn key_hint(&self, key: &[u8], part_count: u32) -> (u64, u64) {
        let mut writer = hint::Writer::new();
        let mut reader = Reader::new(key);
        for part in self.parts.iter().take(part_count as usize) {
            writer.part(part, reader.raw().unwrap_or(NIL));
            if writer.is_full() {
                break;
            }
        }
        if part_count >= self.part_count() {
            (writer.least(), writer.least())
        } else {
            (writer.least(), writer.greatest())
        }
    }

    /// Whether a tuple's `hint` holds its whole key, so that tuples of the same hint have equal keys.
    #[inline]
    pub fn hint_is_exact(&self, hint: u64) -> bool {
        self.hint_can_be_exact && hint::is_exact(&self.parts, hint)
    }

    /// The hash of the tuple's key. Tuples that compare as equal have the same. It is the same in every process of one
    /// build, and stored nowhere.
    pub fn hash(&self, tuple: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut walk = Walk::new(tuple);
        for part in &self.parts {
            scalar::hash(walk.part(part), &part.collation, &mut hasher);
        }
        hasher.finish()
    }

    /// The hash of a whole key: that of the tuples which have it.
    pub fn hash_key(&self, key: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut reader = Reader::new(key);
        for part in &self.parts {
            scalar::hash(reader.raw().unwrap_or(NIL), &part.collation, &mut hasher);
        }
        hasher.finish()
    }

    /// Whether one of the tuple's nullable parts is nil or missing. A unique index lets any number of such tuples have
    /// the same key.
    pub fn has_nil(&self, tuple: &[u8]) -> bool {
        if !self.has_nullable {
            return false;
        }
        let mut walk = Walk::new(tuple);
        self.parts.iter().filter(|part| part.nullable).any(|part| walk.part(part) == NIL)
    }
}

/// A cursor over the fields of a tuple that starts again only when it has to go back.
struct Walk<'a> {
    tuple: &'a [u8],
    cursor: Reader<'a>,
    /// Number of the field at the cursor.
    next: u32,
    /// Number of fields.
    count: u32,
}

impl<'a> Walk<'a> {
    #[inline]
    fn new(tuple: &'a [u8]) -> Self {
        let mut cursor = Reader::new(tuple);
        let count = cursor.array().unwrap_or(0);
        Self { tuple, cursor, next: 0, count }
    }

    /// Moves to a field; `None` if the tuple has no such field.
    #[inline]
    fn seek(&mut self, field: u32) -> Option<()> {
        if field >= self.count {
            return None;
        }
        if field < self.next {
            *self = Self::new(self.tuple);
        }
        while self.next < field {
            self.cursor.skip().ok()?;
            self.next += 1;
        }
        Some(())
    }

    /// The bytes of a field.
    fn field(mut self, field: u32) -> Option<&'a [u8]> {
        self.seek(field)?;
        self.cursor.raw().ok()
    }

    #[inline]
    fn unsigned(&mut self, field: u32) -> Option<u64> {
        self.seek(field)?;
        let value = self.cursor.uint().ok()?;
        self.next += 1;
        Some(value)
    }

    #[inline]
    fn integer(&mut self, field: u32) -> Option<i128> {
        self.seek(field)?;
        let value = self.cursor.int().ok()?;
        self.next += 1;
        Some(value)
    }

    #[inline]
    fn string(&mut self, field: u32) -> Option<&'a [u8]> {
        self.seek(field)?;
        let value = self.cursor.str().ok()?;
        self.next += 1;
        Some(value)
    }

    /// The value of a part; nil if it is missing.
    #[inline]
    fn part(&mut self, part: &KeyPart) -> &'a [u8] {
        let value = self.seek(part.field).and_then(|()| {
            let value = self.cursor.raw().ok()?;
            self.next += 1;
            Some(value)
        });
        value.map_or(NIL, |value| part.inside(value))
    }
}

#[cfg(test)]
mod tests;
