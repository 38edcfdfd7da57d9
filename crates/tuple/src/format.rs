//! Formats: what a tuple must look like to enter a space.
//!
//! A format is the union of the fields that a space declares and of the parts of its indexes, added in the order of the
//! index ids. A field takes the narrowest type that was asked for and is nullable only if all agree. A part with a path
//! makes every container on the way an array or a map, and is checked inside.
//!
//! The checks and their order are Tarantool's: the field count, then types field by field (and inside of a field, where a
//! path leads), then missing fields. Nothing is allocated while a tuple is checked.

use std::collections::HashMap;
use std::fmt;

use crate::field::{FieldType, bit};
use crate::key::KeyPart;
use crate::mp::{self, Kind, Reader};
use crate::path::Token;
use crate::tuple::TupleRef;

const NIL: u8 = 0xc0;

/// A field as a space declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldDef {
    /// The field's name, unique in its space.
    pub name: String,
    /// The field's type.
    pub ty: FieldType,
    /// Whether the field may be nil or missing.
    pub nullable: bool,
    /// How a nil is refused where the field may be none.
    pub refusal: Refusal,
}

/// How a nil is refused where none may be: the `nullable_action` of a field or an index part. It changes nothing here, but
/// a Tarantool refuses definitions of one field that ask for two ways, and does not open a folder that holds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refusal {
    /// As others want it.
    #[default]
    Default,
    /// `rollback`
    Rollback,
    /// `abort`
    Abort,
    /// `fail`
    Fail,
    /// `ignore`
    Ignore,
    /// `replace`
    Replace,
    /// An unknown name, which a Tarantool lets pass in index parts.
    Unknown,
}

impl Refusal {
    /// The name as Tarantool shows it.
    const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Rollback => "rollback",
            Self::Abort => "abort",
            Self::Fail => "fail",
            Self::Ignore => "ignore",
            Self::Replace => "replace",
            Self::Unknown => "(null)",
        }
    }

    /// The way of that name, in any case.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        const NAMED: [Refusal; 6] = [
            Refusal::Default,
            Refusal::Rollback,
            Refusal::Abort,
            Refusal::Fail,
            Refusal::Ignore,
            Refusal::Replace,
        ];
        NAMED.into_iter().find(|way| way.name().eq_ignore_ascii_case(name)).unwrap_or(Self::Unknown)
    }
}

/// Where a field is: `3`, or `[3]["a"][2]` for a place inside a field. Everything counts from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath {
    /// Number of the tuple's field, from 0.
    pub field: u32,
    /// Steps from the field to the place.
    pub tokens: Vec<Token>,
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = u64::from(self.field) + 1;
        if self.tokens.is_empty() {
            return write!(f, "{number}");
        }
        write!(f, "[{number}]")?;
        for token in &self.tokens {
            match token {
                Token::Index(index) => write!(f, "[{}]", u64::from(*index) + 1)?,
                Token::Key(key) => write!(f, "[\"{}\"]", String::from_utf8_lossy(key))?,
                Token::Any => f.write_str("[*]")?,
            }
        }
        Ok(())
    }
}

/// Why a tuple, or a part of an index, does not fit a format. The texts are Tarantool's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The space asks for another number of fields (EXACT_FIELD_COUNT, code 38).
    #[error("Tuple field count {got} does not match space field count {expected}")]
    ExactFieldCount {
        /// Fields of the tuple.
        got: u32,
        /// Fields that the space asks for.
        expected: u32,
    },
    /// A field has another type (FIELD_TYPE, code 23).
    #[error("Tuple field {field} type does not match one required by operation: expected {expected}")]
    FieldType {
        /// Which field.
        field: FieldPath,
        /// The type it must have.
        expected: FieldType,
    },
    /// A field that must be there is not (FIELD_MISSING, code 39).
    #[error("Tuple field {field} required by space format is missing")]
    FieldMissing {
        /// Which field.
        field: FieldPath,
    },
    /// An index part contradicts a part of another index (INDEX_PART_TYPE_MISMATCH, code 24).
    #[error("Field {field} has type '{first}' in one index, but type '{second}' in another")]
    IndexPartTypeMismatch {
        /// Which field.
        field: FieldPath,
        /// The type it has so far.
        first: FieldType,
        /// The type of the new part.
        second: FieldType,
    },
    /// An index part contradicts the declared field (FORMAT_MISMATCH_INDEX_PART, code 27).
    #[error("Field {field} has type '{declared}' in space format, but type '{part}' in index definition")]
    FormatMismatchIndexPart {
        /// Which field.
        field: FieldPath,
        /// The type in the space's format.
        declared: FieldType,
        /// The type of the part.
        part: FieldType,
    },
    /// One index has a part for each element of an array, another one a part for a single element
    /// (MULTIKEY_INDEX_MISMATCH, code 194).
    #[error("Field {field} is used as multikey in one index and as single key in another")]
    MultikeyMismatch {
        /// The array.
        field: FieldPath,
    },
    /// A part for each element of an array that the space lets be nil (UNSUPPORTED, code 5).
    #[error("multikey index does not support nullable root field")]
    MultikeyNullable,
    /// An index part refuses nil in another way than the field so far (ACTION_MISMATCH, code 162).
    #[error("Field {field} contains {first} on conflict action, but {second} in index parts")]
    ActionMismatch {
        /// Which field.
        field: FieldPath,
        /// The action that it has so far.
        first: &'static str,
        /// The part's action.
        second: &'static str,
    },
}

/// The rule for one place in a tuple.
#[derive(Debug, Clone, Copy)]
struct Rule {
    ty: FieldType,
    nullable: bool,
    refusal: Refusal,
    /// Whether an index has a part at or below this place.
    indexed: bool,
    /// Whether a path leads on from here. Such a place may be absent: the places below are asked for themselves. A field is
    /// not nil then, although it is declared nullable: a Tarantool refuses such a tuple, even when it reads a snapshot.
    container: bool,
}

impl Rule {
    /// A place of which nothing is asked.
    const FREE: Self = Self {
        ty: FieldType::Any,
        nullable: true,
        refusal: Refusal::Default,
        indexed: false,
        container: false,
    };

    /// Whether a tuple without this place is refused.
    const fn is_required(&self) -> bool {
        !self.nullable && !self.container
    }

    /// The kinds of values that satisfy the rule by their first byte alone, a bit for each.
    fn at_once(&self) -> u16 {
        let nil = if self.nullable { bit(Kind::Nil) } else { 0 };
        if self.container { 0 } else { self.ty.kinds() | nil }
    }

    /// What becomes of a nil, as Tarantool names it.
    const fn action(&self) -> &'static str {
        if self.nullable { "none" } else { self.refusal.name() }
    }

    /// Takes on what a part says of nil: the strictest wins, and the way that is not the default. Whether they agree.
    fn join(&mut self, part: &KeyPart) -> bool {
        let is_default = |nullable: bool, refusal: Refusal| !nullable && refusal == Refusal::Default;
        let was = (self.nullable, self.refusal);
        let agree = self.nullable == part.nullable && (self.nullable || self.refusal == part.refusal)
            || is_default(self.nullable, self.refusal)
            || is_default(part.nullable, part.refusal);
        self.nullable = was.0 && part.nullable;
        if is_default(was.0, was.1) && !part.nullable {
            self.refusal = part.refusal;
        }
        agree
    }

    fn accepts(&self, value: &[u8]) -> bool {
        self.ty.accepts(value) || self.nullable && value.first() == Some(&NIL)
    }
}

/// A way from a field to the place of a part inside of it.
#[derive(Debug, Clone)]
struct Branch {
    field: u32,
    tokens: Box<[Token]>,
    /// For each token, which of the format's places it leads to. Ways that begin alike share places.
    places: Box<[usize]>,
}

impl Branch {
    /// Whether there is a value at the end. Where the branch asks for all elements of an array each of them has one; there may
    /// be no array, too.
    fn leads_on(&self, field: &[u8]) -> bool {
        let lookup =
            |value, tokens: &[Token]| tokens.iter().try_fold(value, |value, token| token.lookup(value));
        let Some(all) = self.tokens.iter().position(|token| *token == Token::Any) else {
            return lookup(field, &self.tokens).is_some();
        };
        let (before, behind) = (&self.tokens[..all], &self.tokens[all + 1..]);
        lookup(field, before)
            .is_none_or(|array| elements(array).all(|element| lookup(element, behind).is_some()))
    }

    fn is_multikey(&self) -> bool {
        self.tokens.contains(&Token::Any)
    }

    fn path(&self, length: usize) -> FieldPath {
        FieldPath { field: self.field, tokens: self.tokens[..length].to_vec() }
    }
}

/// The elements of an array, none of anything else.
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader::new(value);
    let count = reader.array().unwrap_or(0);
    (0..count).map_while(move |_| reader.raw().ok())
}

/// What the tuples of a space must look like.
#[derive(Debug, Clone)]
pub struct Format {
    fields: Vec<FieldDef>,
    names: HashMap<Box<[u8]>, u32>,
    /// 0 if any number of fields will do.
    exact_field_count: u32,
    /// For each field up to the last of which something is asked.
    rules: Vec<Rule>,
    /// For each rule, the kinds of values that satisfy it by their first byte alone, a bit for each.
    at_once: Vec<u16>,
    /// One more than the last field that must be there.
    required_count: u32,
    /// The rules for places inside of fields.
    places: Vec<Rule>,
    /// Sorted by field.
    branches: Vec<Branch>,
    /// The first part that refuses nil in another way than the field so far.
    contradiction: Option<Box<FormatError>>,
}

impl Default for Format {
    /// A format that asks nothing.
    fn default() -> Self {
        Self::new(Vec::new(), 0)
    }
}

/// What follows the first value; nothing behind a broken one.
fn behind(values: &[u8]) -> &[u8] {
    let mut reader = Reader::new(values);
    reader.skip().map_or(&[], |()| reader.rest())
}

impl Format {
    /// The format of a space that declares these fields; `exact_field_count` is 0 if any number of fields will do.
    pub fn new(fields: Vec<FieldDef>, exact_field_count: u32) -> Self {
        let rules = fields.iter().map(|field| Rule {
            ty: field.ty,
            nullable: field.nullable,
            refusal: field.refusal,
            ..Rule::FREE
        });
        let names =
            (0..).zip(&fields).map(|(number, field)| (field.name.as_bytes().into(), number)).collect();
        let mut format = Self {
            names,
            exact_field_count,
            rules: rules.collect(),
            at_once: Vec::new(),
            required_count: 0,
            places: Vec::new(),
            branches: Vec::new(),
            contradiction: None,
            fields,
        };
        format.derive();
        format
    }

    /// Computes what follows from the rules.
    fn derive(&mut self) {
        let required = (1..).zip(&self.rules).filter(|(_, rule)| rule.is_required());
        self.required_count = required.last().map_or(0, |(count, _)| count);
        self.at_once = self.rules.iter().map(Rule::at_once).collect();
    }

    /// Adds what an index part asks of tuples. The format keeps a rule for every field up to the part's: the caller
    /// bounds the field number (Tarantool: below 32768).
    ///
    /// # Errors
    /// The part's type and that of the field exclude each other: [`FormatError::FormatMismatchIndexPart`] while only the
    /// declaration has asked something of the field, [`FormatError::IndexPartTypeMismatch`] after another part has. The
    /// format must not be used any more then.
    pub fn add_key_part(&mut self, part: &KeyPart) -> Result<(), FormatError> {
        let number = part.field as usize;
        if self.rules.len() <= number {
            self.rules.resize(number + 1, Rule::FREE);
        }
        let tokens = part.path.as_ref().map_or(&[][..], |path| path.tokens());
        let mut places: Vec<usize> = Vec::with_capacity(tokens.len());
        self.check_multikey(part, tokens)?;
        for (depth, token) in tokens.iter().enumerate() {
            let container = match token {
                Token::Index(_) | Token::Any => FieldType::Array,
                Token::Key(_) => FieldType::Map,
            };
            let is_declared = depth == 0 && number < self.fields.len();
            let rule = self.rule_at(number, places.last().copied());
            if rule.ty != FieldType::Any && rule.ty != container {
                let field = FieldPath { field: part.field, tokens: tokens[..depth].to_vec() };
                return Err(FormatError::IndexPartTypeMismatch { field, first: rule.ty, second: container });
            }
            let nullable = rule.nullable && (rule.indexed || is_declared);
            *rule = Rule { ty: container, nullable, indexed: true, container: true, ..*rule };
            places.push(self.place_of(part.field, &tokens[..=depth]));
        }
        let is_declared = number < self.fields.len();
        let rule = self.rule_at(number, places.last().copied());
        let action = rule.action();
        let agree = if is_declared || rule.indexed {
            rule.join(part)
        } else {
            (rule.nullable, rule.refusal) = (part.nullable, part.refusal);
            true
        };
        let rule = *rule;
        if !agree && self.contradiction.is_none() {
            let field = FieldPath { field: part.field, tokens: tokens.to_vec() };
            let second = if part.nullable { "none" } else { part.refusal.name() };
            let error = FormatError::ActionMismatch { field, first: action, second };
            self.contradiction = Some(Box::new(error));
        }
        let Some(narrower) = rule.ty.narrower(part.ty) else {
            let field = FieldPath { field: part.field, tokens: tokens.to_vec() };
            return Err(if rule.indexed {
                FormatError::IndexPartTypeMismatch { field, first: rule.ty, second: part.ty }
            } else {
                FormatError::FormatMismatchIndexPart { field, declared: rule.ty, part: part.ty }
            });
        };
        *self.rule_at(number, places.last().copied()) = Rule { ty: narrower, indexed: true, ..rule };
        if !tokens.is_empty() && !self.branches.iter().any(|branch| branch.places.last() == places.last()) {
            let branch = Branch { field: part.field, tokens: tokens.into(), places: places.into() };
            let at = self.branches.partition_point(|other| other.field <= part.field);
            self.branches.insert(at, branch);
        }
        self.derive();
        Ok(())
    }

    /// Checks whether the array whose elements a part asks for, all or one of them, can be used so.
    fn check_multikey(&self, part: &KeyPart, tokens: &[Token]) -> Result<(), FormatError> {
        let is_declared = (part.field as usize) < self.fields.len();
        if tokens.contains(&Token::Any) && is_declared && self.is_nullable(part.field) {
            return Err(FormatError::MultikeyNullable);
        }
        for (depth, token) in tokens.iter().enumerate() {
            let is_other = |other: &Token| match token {
                Token::Any => matches!(other, Token::Index(_)),
                Token::Index(_) => *other == Token::Any,
                Token::Key(_) => false,
            };
            let same_array = self.branches.iter().filter(|branch| {
                branch.field == part.field
                    && branch.tokens.len() > depth
                    && branch.tokens[..depth] == tokens[..depth]
            });
            if same_array.map(|branch| &branch.tokens[depth]).any(is_other) {
                let field = FieldPath { field: part.field, tokens: tokens[..depth].to_vec() };
                return Err(FormatError::MultikeyMismatch { field });
            }
        }
        Ok(())
    }

    /// Why a Tarantool would refuse this format although every tuple can be checked by it: two ways to refuse nil.
    pub fn contradiction(&self) -> Option<&FormatError> {
        self.contradiction.as_deref()
    }

    fn rule_at(&mut self, field: usize, place: Option<usize>) -> &mut Rule {
        match place {
            Some(place) => &mut self.places[place],
            None => &mut self.rules[field],
        }
    }

    /// The place where `tokens` lead to: that of a known branch which begins so, or a new one.
    fn place_of(&mut self, field: u32, tokens: &[Token]) -> usize {
        let known =
            self.branches.iter().find(|branch| branch.field == field && branch.tokens.starts_with(tokens));
        known.map_or_else(
            || {
                self.places.push(Rule::FREE);
                self.places.len() - 1
            },
            |branch| branch.places[tokens.len() - 1],
        )
    }

    /// Checks a tuple.
    ///
    /// # Errors
    /// The first of: another number of fields, a field of another type, a field that is missing.
    #[inline]
    pub fn check(&self, tuple: TupleRef<'_>) -> Result<(), FormatError> {
        let count = tuple.len();
        if self.exact_field_count != 0 && count != self.exact_field_count {
            return Err(FormatError::ExactFieldCount { got: count, expected: self.exact_field_count });
        }
        let mut rest = tuple.body();
        let last = self.at_once.len().min(count as usize);
        for (number, at_once) in (1..).zip(&self.at_once[..last]) {
            let Some(&first) = rest.first() else { break };
            if at_once & bit(Kind::of(first)) == 0 {
                self.check_field(number as u32 - 1, Reader::new(rest))?;
            }
            // The last one may be long, and nothing behind it is looked at.
            if number == last {
                break;
            }
            rest = match mp::short_length(first) {
                Some(length) => rest.get(length..).unwrap_or_default(),
                None => behind(rest),
            };
        }
        if count < self.required_count || !self.branches.is_empty() {
            self.check_missing(tuple)?;
        }
        Ok(())
    }

    /// Checks a tuple that was accepted once, maybe by a version that took any extension for a field of type any.
    ///
    /// # Errors
    /// As [`Format::check`].
    #[inline]
    pub fn check_stored(&self, tuple: TupleRef<'_>) -> Result<(), FormatError> {
        match self.check(tuple) {
            Err(FormatError::FieldType { expected: FieldType::Any, .. }) => Ok(()),
            // Versions up to 0.1 took nil for a nullable field with paths inside.
            Err(FormatError::FieldType { ref field, .. }) if self.has_odd_nil(tuple, field) => Ok(()),
            checked => checked,
        }
    }

    /// Whether the field is nil, and refused only because paths lead into it.
    fn has_odd_nil(&self, tuple: TupleRef<'_>, path: &FieldPath) -> bool {
        let rule = self.rules.get(path.field as usize);
        path.tokens.is_empty()
            && rule.is_some_and(|rule| rule.container && rule.nullable)
            && tuple.field(path.field).is_some_and(|value| value.first() == Some(&NIL))
    }

    /// Whether a field may get this value, as far as its first byte tells: `false` says nothing. Where paths lead into
    /// fields nothing can be told.
    #[inline]
    pub fn admits_at_once(&self, field: u32, value: &[u8]) -> bool {
        let Some(&first) = value.first() else { return false };
        let at_once = self.at_once.get(field as usize);
        self.branches.is_empty() && at_once.is_none_or(|at_once| at_once & bit(Kind::of(first)) != 0)
    }

    /// Checks the field at the cursor and the values inside it.
    #[cold]
    fn check_field(&self, number: u32, mut cursor: Reader<'_>) -> Result<(), FormatError> {
        let (Some(rule), Ok(value)) = (self.rules.get(number as usize), cursor.raw()) else { return Ok(()) };
        if !rule.accepts(value) || rule.container && value.first() == Some(&NIL) {
            let field = FieldPath { field: number, tokens: Vec::new() };
            return Err(FormatError::FieldType { field, expected: rule.ty });
        }
        if rule.container { self.check_inside(number, value) } else { Ok(()) }
    }

    /// Checks the types of the places inside a field that exist in this tuple.
    fn check_inside(&self, field: u32, value: &[u8]) -> Result<(), FormatError> {
        let mut branches = self.branches.iter().filter(|branch| branch.field == field);
        branches.try_for_each(|branch| self.check_branch(branch, 0, value))
    }

    /// Checks the types of the places on a branch from `depth` on; `value` is what leads there. A branch asks for all elements
    /// of one array at most.
    fn check_branch(&self, branch: &Branch, depth: usize, mut value: &[u8]) -> Result<(), FormatError> {
        for depth in depth..branch.tokens.len() {
            let rule = &self.places[branch.places[depth]];
            let refused = || FormatError::FieldType { field: branch.path(depth + 1), expected: rule.ty };
            if branch.tokens[depth] == Token::Any {
                return elements(value).try_for_each(|element| {
                    if !rule.accepts(element) {
                        return Err(refused());
                    }
                    self.check_branch(branch, depth + 1, element)
                });
            }
            let Some(inner) = branch.tokens[depth].lookup(value) else { break };
            if !rule.accepts(inner) {
                return Err(refused());
            }
            value = inner;
        }
        Ok(())
    }

    /// Looks for required places that are not there, in the order of the fields.
    fn check_missing(&self, tuple: TupleRef<'_>) -> Result<(), FormatError> {
        let mut values = tuple.fields();
        for (number, rule) in (0..).zip(&self.rules) {
            let value = values.next();
            if value.is_none() && rule.is_required() {
                return Err(FormatError::FieldMissing {
                    field: FieldPath { field: number, tokens: Vec::new() },
                });
            }
            if !rule.container {
                continue;
            }
            for branch in self.branches.iter().filter(|branch| branch.field == number) {
                let is_required = branch.places.last().is_some_and(|&place| self.places[place].is_required());
                if is_required && !value.map_or_else(|| branch.is_multikey(), |value| branch.leads_on(value))
                {
                    return Err(FormatError::FieldMissing { field: branch.path(branch.tokens.len()) });
                }
            }
        }
        Ok(())
    }

    /// The number, from 0, of the field called `name`.
    pub fn field_by_name(&self, name: &[u8]) -> Option<u32> {
        self.names.get(name).copied()
    }

    /// The fields that the space declares.
    pub fn fields(&self) -> &[FieldDef] {
        &self.fields
    }

    /// The number of fields that every tuple must have; 0 if any will do.
    pub fn exact_field_count(&self) -> u32 {
        self.exact_field_count
    }

    /// The type of field `number` (from 0), as narrowed by the index parts; any if nothing is asked of it.
    pub fn field_type(&self, number: u32) -> FieldType {
        self.rules.get(number as usize).map_or(FieldType::Any, |rule| rule.ty)
    }

    /// Whether field `number` (from 0) may be nil or missing.
    pub fn is_nullable(&self, number: u32) -> bool {
        self.rules.get(number as usize).is_none_or(|rule| rule.nullable)
    }
}

#[cfg(test)]
mod tests;
