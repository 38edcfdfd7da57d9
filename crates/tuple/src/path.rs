//! JSON paths: `a.b`, `[4][3]`, `list[2]`, `map["x y"]`, `.leading`.
//!
//! A path names a place inside of a value: indexes count elements of arrays from 1, names are string keys of maps. The
//! grammar, and the position that an error names, are Tarantool's:
//!
//! - a name is a letter or `_`, then letters, digits and `_`, of all of Unicode; a dot stands before every name but the
//!   first, where it may stand;
//! - in brackets stands an index, a name in single or double quotes (any characters but that quote; no escapes), or `*`;
//! - an index is cut to 32 bits, as Tarantool cuts it, and must then be in 1 … 2^31−1;
//! - text is UTF-8 and positions count characters, from 1.
//!
//! [`Lexer`] yields one token after the other and allocates nothing: an update operation stops at the first token that
//! does not fit the tuple and never reads the rest. [`Path`] is a path that is used often and was parsed once.
//!
//! `[*]` alone leads to no value: multikey indexes walk the elements of the array before it
//! ([`crate::key::KeyDef::each_key`]).

use crate::mp::{Kind, Reader};

/// A path breaks the grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid JSON in position {position}")]
pub struct PathError {
    /// The first character that does not fit, counted from 1; the one behind the last if the path ends too early.
    pub position: usize,
}

/// A step that a [`Lexer`] yields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// Element of an array, counted from 0 (written from 1).
    Index(u32),
    /// Value of a map's string key.
    Key(&'a [u8]),
    /// `[*]`.
    Any,
}

/// Reads a path step by step.
#[derive(Debug, Clone, Copy)]
pub struct Lexer<'a> {
    text: &'a [u8],
    offset: usize,
    /// Characters before `offset`.
    characters: usize,
}

impl<'a> Lexer<'a> {
    /// A lexer at the start of `text`.
    pub const fn new(text: &'a [u8]) -> Self {
        Self { text, offset: 0, characters: 0 }
    }

    /// Whether all of the text has been read.
    pub const fn is_at_end(&self) -> bool {
        self.offset >= self.text.len()
    }

    /// Number of characters read so far.
    pub const fn position(&self) -> usize {
        self.characters
    }

    /// The next step; `None` at the end of the text.
    ///
    /// # Errors
    /// The text goes on, but not with a step. The lexer must not be used any more then.
    pub fn step(&mut self) -> Result<Option<Step<'a>>, PathError> {
        let at_start = self.offset == 0;
        if self.is_at_end() {
            return Ok(None);
        }
        match self.text[self.offset] {
            b'[' => self.advance('['),
            b'.' => {
                self.advance('.');
                return self.name().map(Some);
            }
            _ if at_start => return self.name().map(Some),
            _ => return Err(self.error_here()),
        }
        let step = match self.text.get(self.offset) {
            None => return Err(PathError { position: self.characters }),
            Some(quote @ (b'"' | b'\'')) => self.quoted(char::from(*quote))?,
            Some(b'0'..=b'9') => self.index()?,
            Some(b'*') => {
                self.advance('*');
                Step::Any
            }
            Some(_) => return Err(self.error_here()),
        };
        if self.text.get(self.offset) != Some(&b']') {
            return Err(self.error_here());
        }
        self.advance(']');
        Ok(Some(step))
    }

    fn name(&mut self) -> Result<Step<'a>, PathError> {
        let start = self.offset;
        match self.character()? {
            Some(first) if first == '_' || first.is_alphabetic() && !first.is_numeric() => {
                self.advance(first);
            }
            _ => return Err(self.error_here()),
        }
        // A byte that is not UTF-8 ends the name, and is the next step's error.
        while let Ok(Some(next)) = self.character() {
            if next != '_' && !next.is_alphanumeric() {
                break;
            }
            self.advance(next);
        }
        Ok(Step::Key(&self.text[start..self.offset]))
    }

    fn quoted(&mut self, quote: char) -> Result<Step<'a>, PathError> {
        self.advance(quote);
        let start = self.offset;
        loop {
            match self.character()? {
                Some(next) if next != quote => self.advance(next),
                Some(_) if self.offset > start => break,
                _ => return Err(self.error_here()),
            }
        }
        let key = &self.text[start..self.offset];
        self.advance(quote);
        Ok(Step::Key(key))
    }

    fn index(&mut self) -> Result<Step<'a>, PathError> {
        let error = self.error_here();
        let mut number = 0_u32;
        while let Some(digit @ b'0'..=b'9') = self.text.get(self.offset) {
            number = number.wrapping_mul(10).wrapping_add(u32::from(digit - b'0'));
            self.advance(char::from(*digit));
        }
        match number.checked_sub(1) {
            Some(index) if number <= i32::MAX.unsigned_abs() => Ok(Step::Index(index)),
            _ => Err(error),
        }
    }

    /// The next character, which is not consumed; `None` at the end.
    fn character(&self) -> Result<Option<char>, PathError> {
        let rest = &self.text[self.offset..];
        let Some(&first) = rest.first() else {
            return Ok(None);
        };
        if first.is_ascii() {
            return Ok(Some(char::from(first)));
        }
        let length = match first {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            _ => 4,
        };
        rest.get(..length)
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .and_then(|text| text.chars().next())
            .map(Some)
            .ok_or_else(|| self.error_here())
    }

    const fn advance(&mut self, character: char) {
        self.offset += character.len_utf8();
        self.characters += 1;
    }

    const fn error_here(&self) -> PathError {
        PathError { position: self.characters + 1 }
    }
}

/// One step of a [`Path`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// Element of an array, counted from 0 (written from 1).
    Index(u32),
    /// Value of a map's string key.
    Key(Box<[u8]>),
    /// `[*]`, which leads nowhere.
    Any,
}

impl Token {
    /// The step, borrowed.
    pub fn as_step(&self) -> Step<'_> {
        match self {
            Self::Index(index) => Step::Index(*index),
            Self::Key(key) => Step::Key(key),
            Self::Any => Step::Any,
        }
    }

    /// The value that the step leads to inside of `value`.
    pub fn lookup<'v>(&self, value: &'v [u8]) -> Option<&'v [u8]> {
        self.as_step().lookup(value)
    }
}

impl Step<'_> {
    /// The value that the step leads to inside of `value`; `None` too if `value` is broken. An index leads to an
    /// element of an array, or to a map's value under the unsigned key as the path writes it (from 1). Of equal keys the
    /// first counts.
    pub fn lookup(self, value: &[u8]) -> Option<&[u8]> {
        let mut reader = Reader::new(value);
        self.seek(&mut reader)?;
        reader.raw().ok()
    }

    /// Moves the reader from a value to the one that [`Step::lookup`] finds inside of it.
    fn seek(self, reader: &mut Reader<'_>) -> Option<()> {
        match (self, reader.kind().ok()?) {
            (Self::Index(index), Kind::Array) => {
                if index >= reader.array().ok()? {
                    return None;
                }
                for _ in 0..index {
                    reader.skip().ok()?;
                }
                Some(())
            }
            (Self::Index(_) | Self::Key(_), Kind::Map) => {
                for _ in 0..reader.map().ok()? {
                    if self.matches_key(reader.raw().ok()?) {
                        return Some(());
                    }
                    reader.skip().ok()?;
                }
                None
            }
            _ => None,
        }
    }

    /// Whether `key`, a whole value, is the map key that this step means.
    pub fn matches_key(self, key: &[u8]) -> bool {
        let mut reader = Reader::new(key);
        match self {
            Self::Index(index) => reader.uint() == Ok(u64::from(index) + 1),
            Self::Key(name) => reader.str() == Ok(name),
            Self::Any => false,
        }
    }
}

/// A parsed path of at least one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    tokens: Box<[Token]>,
}

impl Path {
    /// Parses a path.
    ///
    /// # Errors
    /// The text breaks the grammar, or is empty.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, PathError> {
        let mut lexer = Lexer::new(text.as_ref());
        let mut tokens = Vec::new();
        while let Some(step) = lexer.step()? {
            tokens.push(match step {
                Step::Index(index) => Token::Index(index),
                Step::Key(key) => Token::Key(key.into()),
                Step::Any => Token::Any,
            });
        }
        if tokens.is_empty() { Err(PathError { position: 1 }) } else { Ok(Self { tokens: tokens.into() }) }
    }

    /// The steps, in order.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The value that the path leads to inside of `field`.
    pub fn lookup<'v>(&self, field: &'v [u8]) -> Option<&'v [u8]> {
        self.tokens.iter().try_fold(field, |value, token| token.lookup(value))
    }

    /// Moves the reader from a field to the value that [`Path::lookup`] finds inside of it.
    pub fn seek(&self, reader: &mut Reader<'_>) -> Option<()> {
        self.tokens.iter().try_for_each(|token| token.as_step().seek(reader))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::value::Value;

    fn key(name: &str) -> Token {
        Token::Key(name.as_bytes().into())
    }

    #[test]
    fn parses_names_indexes_and_quotes() {
        let cases: &[(&str, &[Token])] = &[
            ("a", &[key("a")]),
            (".a.b_1", &[key("a"), key("b_1")]),
            ("[4][3]", &[Token::Index(3), Token::Index(2)]),
            ("arr[2]", &[key("arr"), Token::Index(1)]),
            ("m[\"x y\"]['a\"b']", &[key("m"), key("x y"), key("a\"b")]),
            ("_.日本.é2", &[key("_"), key("日本"), key("é2")]),
            ("[01][*]", &[Token::Index(0), Token::Any]),
            ("[4294967298]", &[Token::Index(1)]),
        ];
        for (text, tokens) in cases {
            assert_eq!(Path::parse(text).unwrap().tokens(), *tokens, "{text}");
        }
    }

    #[test]
    fn names_the_position_that_tarantool_names() {
        let cases = [
            ("[4", 3),
            ("[4][", 4),
            ("[4].", 5),
            ("[4]..a", 5),
            ("[4]a", 4),
            ("[4] .a", 4),
            ("[4][ 1]", 5),
            ("[4][\"a", 7),
            ("[4][\"\"]", 6),
            ("[5].1a", 5),
            ("[5].éб[", 7),
            ("[0]", 2),
            ("[-1]", 2),
            ("[4294967296]", 2),
            ("[2147483648]", 2),
            ("[2][1a]", 6),
            ("[2].a-b", 6),
            ("[2][\"é\"x", 8),
            ("[2][**]", 6),
            ("[2][*", 6),
            ("..a", 2),
            ("1", 1),
            (".", 2),
            ("]", 1),
            ("[", 1),
            ("", 1),
            ("[2].a$", 6),
        ];
        for (text, position) in cases {
            assert_eq!(Path::parse(text), Err(PathError { position }), "{text}");
        }
        assert_eq!(Path::parse(b"[5].\xff"), Err(PathError { position: 5 }));
        assert_eq!(Path::parse(b"[5][\"\xff\"]"), Err(PathError { position: 6 }));
    }

    #[test]
    fn looks_up_in_arrays_and_maps() {
        let value = Value::array([
            Value::map([("a", Value::array([1_u64, 2])), ("x y", Value::Nil), ("a", Value::Uint(9))]),
            Value::Map(vec![(Value::Uint(7), Value::Bool(true))]),
        ])
        .encode();
        let found = |path: &str| Path::parse(path).unwrap().lookup(&value);
        assert_eq!(found("[1].a[2]"), Some(&[0x02][..]));
        assert_eq!(found("[1]['x y']"), Some(&[0xc0][..]));
        assert_eq!(found("[2][7]"), Some(&[0xc3][..]));
        for nowhere in ["[3]", "a", "[1].b", "[1].a[3]", "[1].a.a", "[1].a[1][1]", "[2][8]", "[*]", "[1][*]"]
        {
            assert_eq!(found(nowhere), None, "{nowhere}");
        }
        assert_eq!(Path::parse("[1][2]").unwrap().lookup(&[0x92, 0x92]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_path_or_an_error_inside(text in proptest::collection::vec(any::<u8>(), 0..20)) {
            if let Err(error) = Path::parse(&text) {
                prop_assert!((1..=text.len() + 1).contains(&error.position));
            }
        }

        #[test]
        fn reads_back_what_was_written(steps in proptest::collection::vec((1_u32..1000, "[^\"]{1,8}"), 1..6)) {
            let text: String = steps.iter().map(|(index, name)| format!("[{index}][\"{name}\"]")).collect();
            let tokens: Vec<Token> = steps.iter().flat_map(|(index, name)| [Token::Index(index - 1), key(name)]).collect();
            let path = Path::parse(&text).unwrap();
            prop_assert_eq!(path.tokens(), &tokens[..]);
        }
    }
}
