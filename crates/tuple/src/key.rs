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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples;
    use crate::value::Value;

    const KEY_TYPES: [FieldType; 10] = [
        FieldType::Unsigned,
        FieldType::String,
        FieldType::Integer,
        FieldType::Boolean,
        FieldType::Varbinary,
        FieldType::Double,
        FieldType::Number,
        FieldType::Decimal,
        FieldType::Scalar,
        FieldType::Uuid,
    ];

    fn nullable(part: KeyPart) -> KeyPart {
        KeyPart { nullable: true, ..part }
    }

    fn tuple(fields: impl IntoIterator<Item = Value>) -> Vec<u8> {
        Value::Array(fields.into_iter().collect()).encode()
    }

    fn key(parts: &[Value]) -> Vec<u8> {
        parts.iter().flat_map(Value::encode).collect()
    }

    /// A definition over fields 0 … n in some order, and two tuples that share many fields.
    #[derive(Debug)]
    struct Case {
        definition: KeyDef,
        a: Vec<Value>,
        b: Vec<Value>,
        wide: u8,
    }

    impl Case {
        fn bytes(&self, fields: &[Value]) -> Vec<u8> {
            // Trailing nils are left out, as they may be.
            let count = fields.iter().rposition(|field| *field != Value::Nil).map_or(0, |last| last + 1);
            let mut out = Vec::new();
            mp::write_array(&mut out, count as u32);
            for (field, value) in fields[..count].iter().enumerate() {
                let part = self.definition.parts.iter().find(|part| part.field as usize == field).unwrap();
                let wide = if part.ty == FieldType::Unsigned { self.wide % 2 } else { self.wide };
                out.extend(samples::encode_widely(value, wide));
            }
            out
        }

        fn key(&self, fields: &[Value], count: usize) -> Vec<u8> {
            self.definition.parts[..count]
                .iter()
                .flat_map(|part| fields[part.field as usize].encode())
                .collect()
        }

        fn model(&self, count: usize) -> Ordering {
            let fields = self.definition.parts[..count].iter().map(|part| part.field as usize);
            fields
                .map(|field| samples::model_compare(&self.a[field], &self.b[field]))
                .find(|ordering| ordering.is_ne())
                .unwrap_or(Ordering::Equal)
        }
    }

    fn cases() -> impl Strategy<Value = Case> {
        let part = (prop::sample::select(KEY_TYPES.to_vec()), any::<bool>());
        prop::collection::vec(part, 1..5)
            .prop_flat_map(|parts| {
                let fields: Vec<u32> = (0..parts.len() as u32).collect();
                (Just(parts), Just(fields).prop_shuffle())
            })
            .prop_flat_map(|(parts, fields)| {
                let value = |(ty, nullable)| {
                    let nils = if nullable { 1 } else { 0 };
                    prop_oneof![nils => Just(Value::Nil), 3 => samples::of_type(ty)]
                };
                let values = || fields.iter().map(|&field| value(parts[field as usize])).collect::<Vec<_>>();
                let (first, second, shared) =
                    (values(), values(), prop::collection::vec(any::<bool>(), parts.len()));
                (Just((parts, fields.clone())), first, second, shared, any::<u8>())
            })
            .prop_map(|((parts, fields), first, second, shared, wide)| {
                let mut a = vec![Value::Nil; fields.len()];
                let mut b = a.clone();
                let mut definition = Vec::new();
                for (place, &field) in fields.iter().enumerate() {
                    let (ty, nullable) = parts[field as usize];
                    definition.push(KeyPart { nullable, ..KeyPart::new(field, ty) });
                    a[field as usize] = first[place].clone();
                    b[field as usize] = if shared[place] { &first } else { &second }[place].clone();
                }
                Case { definition: KeyDef::new(definition), a, b, wide }
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(800))]

        #[test]
        fn tuples_are_ordered_as_the_model_orders_them(case in cases()) {
            let definition = &case.definition;
            let (a, b) = (case.bytes(&case.a), case.bytes(&case.b));
            let ordering = definition.compare(&a, &b);
            prop_assert_eq!(ordering, case.model(definition.parts.len()));
            prop_assert_eq!(definition.compare(&b, &a), ordering.reverse());
            if ordering.is_eq() {
                prop_assert_eq!(definition.hash(&a), definition.hash(&b));
                prop_assert_eq!(definition.hint(&a), definition.hint(&b));
            }
        }

        #[test]
        fn hints_agree_with_the_order(case in cases()) {
            let definition = &case.definition;
            let (a, b) = (case.bytes(&case.a), case.bytes(&case.b));
            let (a_hint, b_hint) = (definition.hint(&a), definition.hint(&b));
            let ordering = definition.compare(&a, &b);
            if a_hint != b_hint {
                prop_assert_eq!(a_hint.cmp(&b_hint), ordering, "{:x} {:x}", a_hint, b_hint);
            } else if definition.hint_is_exact(a_hint) {
                prop_assert_eq!(ordering, Ordering::Equal, "{:x}", a_hint);
            }
        }

        #[test]
        fn keys_are_ordered_as_their_tuples(case in cases()) {
            let definition = &case.definition;
            let (a, b) = (case.bytes(&case.a), case.bytes(&case.b));
            let mut extracted = Vec::new();
            definition.extract(&b, &mut extracted);
            let count = definition.part_count();
            prop_assert!(definition.check_whole_key(&extracted, count).is_ok());
            prop_assert_eq!(definition.compare_with_key(&b, &extracted, count), Ordering::Equal);
            prop_assert_eq!(definition.hash_key(&extracted), definition.hash(&b));
            for given in 0..=definition.parts.len() {
                let key = case.key(&case.b, given);
                let given = given as u32;
                prop_assert!(definition.check_key(&key, given).is_ok());
                let ordering = definition.compare_with_key(&a, &key, given);
                prop_assert_eq!(ordering, case.model(given as usize));
                let hint = definition.hint(&a);
                let (least, greatest) = definition.key_hint(&key, given);
                match ordering {
                    Ordering::Equal => prop_assert!(least <= hint && hint <= greatest),
                    Ordering::Less => prop_assert!(hint <= greatest),
                    Ordering::Greater => prop_assert!(hint >= least),
                }
            }
        }

        #[test]
        fn any_bytes_do_no_harm(case in cases(), a: Vec<u8>, b: Vec<u8>, count: u32) {
            let definition = &case.definition;
            prop_assert_eq!(definition.compare(&a, &b), definition.compare(&b, &a).reverse());
            definition.compare_with_key(&a, &b, count);
            let _ = definition.check_key(&b, count);
            definition.key_hint(&b, count);
            definition.hint_is_exact(definition.hint(&a));
            definition.hash(&a);
            definition.hash_key(&b);
            definition.has_nil(&a);
            definition.extract(&a, &mut Vec::new());
        }
    }

    #[test]
    fn queue_keys_fit_into_their_hints() {
        let by_id =
            KeyDef::new(vec![KeyPart::new(1, FieldType::String), KeyPart::new(0, FieldType::Unsigned)]);
        let task = |id: u64| tuple([id.into(), "r".into()]);
        assert!(by_id.hint_is_exact(by_id.hint(&task(0))));
        assert!(by_id.hint_is_exact(by_id.hint(&task((1 << 49) - 1))));
        assert!(!by_id.hint_is_exact(by_id.hint(&task(1 << 49))));

        let by_priority = KeyDef::new(vec![
            KeyPart::new(1, FieldType::String),
            KeyPart::new(2, FieldType::Unsigned),
            KeyPart::new(0, FieldType::Unsigned),
        ]);
        let task = |id: u64| tuple([id.into(), "r".into(), 0.into()]);
        assert!(by_priority.hint_is_exact(by_priority.hint(&task((1 << 43) - 1))));
        assert!(!by_priority.hint_is_exact(by_priority.hint(&task(1 << 43))));

        let by_time =
            KeyDef::new(vec![KeyPart::new(0, FieldType::String), KeyPart::new(1, FieldType::Unsigned)]);
        let at = |time: u64| by_time.hint(&tuple(["~".into(), time.into()]));
        let time = 1_700_000_000_000_000;
        assert!(at(time) < at(time + 4), "microseconds of today are told apart to within four");
        assert!(!by_time.hint_is_exact(at(time)));
    }

    #[test]
    fn prefixes_bound_hints() {
        let definition =
            KeyDef::new(vec![KeyPart::new(0, FieldType::String), KeyPart::new(1, FieldType::Unsigned)]);
        assert_eq!(definition.key_hint(&[], 0), (0, u64::MAX));
        let (least, greatest) = definition.key_hint(&key(&["r".into()]), 1);
        // '1' and 'r', '0', then 54 bits that the second part decides.
        assert_eq!(least, 0b10_1110_0100 << 54);
        assert_eq!(greatest, least + ((1 << 54) - 1));
        let number =
            KeyDef::new(vec![KeyPart::new(0, FieldType::Number), KeyPart::new(1, FieldType::Unsigned)]);
        let (least, greatest) = number.key_hint(&key(&[1.into()]), 1);
        assert_eq!((least, greatest), (0b1000_0010 << 56, (0b1000_0011 << 56) - 1));
        let (least, greatest) = number.key_hint(&key(&[1.5.into()]), 1);
        assert_eq!((least, greatest), (0b1_0000_0111 << 55, least), "nothing follows a fraction");
    }

    #[test]
    fn numbers_of_any_kind_have_hints_that_tell_them_apart() {
        let by_number =
            KeyDef::new(vec![KeyPart::new(0, FieldType::Number), KeyPart::new(1, FieldType::Number)]);
        let hint = |first: Value, second: u64| by_number.hint(&tuple([first, second.into()]));
        let time = 1_700_000_000_000_000_000;
        assert!(hint(0.into(), time) < hint(0.into(), time + 2048), "nanoseconds of today, to within two µs");
        assert!(by_number.hint_is_exact(hint(0.into(), 1 << 40)));
        assert!(
            !by_number.hint_is_exact(hint(0.into(), time)) && !by_number.hint_is_exact(hint(0.5.into(), 0))
        );
        assert_eq!(hint(Value::Double(7.0), 9), hint(7.into(), 9));
        assert_eq!(hint(samples::decimal(-15, 1), 0), hint((-1.5).into(), 0));
        let ascending = [
            Value::Double(f64::NAN),
            Value::Double(f64::NEG_INFINITY),
            Value::Double(f64::MIN),
            Value::Double(-1e39),
            samples::decimal(-(10_i128.pow(38) - 1), 0),
            Value::Int(i64::MIN),
            Value::Int(-1),
            Value::Double(-0.75),
            samples::decimal(-7, 1),
            Value::Uint(0),
            samples::decimal(7, 1),
            Value::Double(0.75),
            Value::Uint(1),
            Value::Uint(u64::MAX),
            Value::Double(18_446_744_073_709_551_616.0),
            Value::Double(1e39),
            Value::Double(f64::MAX),
            Value::Double(f64::INFINITY),
        ];
        let hints = ascending.map(|value| hint(value, 0));
        assert!(hints.is_sorted_by(|a, b| a < b), "{hints:x?}");
    }

    #[test]
    fn fields_in_any_order_and_missing_ones() {
        let definition = KeyDef::new(vec![
            nullable(KeyPart::new(2, FieldType::Unsigned)),
            KeyPart::new(0, FieldType::String),
            nullable(KeyPart::new(1, FieldType::Integer)),
        ]);
        let full = tuple(["a".into(), 5.into(), 7.into()]);
        let short = tuple(["a".into()]);
        assert_eq!(definition.compare(&short, &full), Ordering::Less);
        assert!(definition.has_nil(&short) && !definition.has_nil(&full));
        assert!(definition.has_nil(&tuple(["a".into(), Value::Nil, 7.into()])));
        let mut extracted = Vec::new();
        definition.extract(&short, &mut extracted);
        assert_eq!(extracted, [0xc0, 0xa1, b'a', 0xc0]);
        extracted.clear();
        definition.extract(&full, &mut extracted);
        assert_eq!(extracted, [0x07, 0xa1, b'a', 0x05]);
    }

    #[test]
    fn parts_inside_of_fields() {
        let inside = |path: &str| KeyPart {
            path: Some(Path::parse(path).unwrap()),
            ..nullable(KeyPart::new(1, FieldType::Unsigned))
        };
        let definition = KeyDef::new(vec![inside("b"), inside("a[2]")]);
        let document =
            |a: u64, b: u64| tuple([1.into(), Value::map([("a", Value::array([0, a])), ("b", b.into())])]);
        assert_eq!(definition.compare(&document(1, 2), &document(2, 1)), Ordering::Greater);
        assert_eq!(definition.compare(&document(1, 2), &document(2, 2)), Ordering::Less);
        assert_eq!(definition.compare_with_key(&document(1, 2), &[2, 1], 2), Ordering::Equal);
        assert!(definition.hint(&document(1, 2)) < definition.hint(&document(2, 2)));
        assert!(definition.has_nil(&tuple([1.into(), Value::map([("b", 1)])])));
        assert!(!definition.has_nil(&document(1, 2)));
    }

    #[test]
    fn the_primary_key_breaks_ties_once() {
        let primary =
            KeyDef::new(vec![KeyPart::new(0, FieldType::Unsigned), KeyPart::new(3, FieldType::String)]);
        let own = KeyDef::new(vec![KeyPart::new(1, FieldType::String), KeyPart::new(0, FieldType::Unsigned)]);
        let extended = own.extended_by(&primary);
        let fields: Vec<u32> = extended.parts().iter().map(|part| part.field).collect();
        assert_eq!(fields, [1, 0, 3]);
        let in_path = KeyPart { path: Path::parse("x").ok(), ..KeyPart::new(0, FieldType::Unsigned) };
        assert_eq!(KeyDef::new(vec![in_path]).extended_by(&primary).part_count(), 3);
    }

    #[test]
    fn key_errors_have_their_texts() {
        let definition = KeyDef::new(vec![
            KeyPart::new(0, FieldType::Unsigned),
            nullable(KeyPart::new(1, FieldType::String)),
        ]);
        let refused = |parts: &[Value]| {
            definition.check_key(&key(parts), parts.len() as u32).map_err(|error| error.to_string())
        };
        let part = |number: u32, expected: &str| {
            Err(format!(
                "Supplied key type of part {number} does not match index part type: expected {expected}"
            ))
        };
        assert_eq!(refused(&[]), Ok(()));
        assert_eq!(refused(&[1.into(), Value::Nil]), Ok(()));
        assert_eq!(refused(&[Value::Nil]), part(0, "unsigned"));
        assert_eq!(refused(&[50.0.into()]), part(0, "unsigned"));
        assert_eq!(refused(&[(-1).into()]), part(0, "unsigned"));
        assert_eq!(refused(&[1.into(), Value::bin("x")]), part(1, "string"));
        let three = [1.into(), "a".into(), 2.into()];
        assert_eq!(refused(&three), Err("Invalid key part count (expected [0..2], got 3)".to_owned()));
        assert_eq!(
            definition.check_whole_key(&key(&three[..1]), 1).map_err(|error| error.to_string()),
            Err("Invalid key part count in an exact match (expected 2, got 1)".to_owned())
        );
        assert_eq!(definition.check_key(&[0x01], 2), Err(KeyError::Malformed(MpError::Truncated)));
    }
}
