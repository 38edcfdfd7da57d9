//! Native part of `json`: MessagePack is in the middle, so that both ways share the rules of [`convert`](crate::convert).
//!
//! The parser is our own: its error texts and its `nan` and `inf` are the ones that Tarantool programs see, and it writes
//! MessagePack without a tree between. It is a loop with a stack on the heap, so depth costs no stack of the fiber's.

use lycosa_tuple::decimal::Decimal;
use lycosa_tuple::mp::{self, Kind, Reader};

use super::options::{self, Settings};
use crate::api::Lua;
use crate::convert::TOO_DEEP;
use crate::error::Error;
use crate::watchdog::check_time;

/// Bytes that an array or a map takes before its length is known: one with a length of 32 bits.
const HEAD: usize = 5;

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_library(&[("encode", encode), ("decode", decode)]);
    Ok(1)
}

/// `encode(value, options)`
fn encode(lua: Lua) -> Result<i32, Error> {
    let settings = Settings::read(lua, 2)?;
    let mut packed = Vec::new();
    lua.encode_with(1, &mut packed, &settings.encoding).map_err(|error| match error {
        Error::Text(text) if text.starts_with(TOO_DEEP) => Error::here(TOO_DEEP),
        error => error.located(),
    })?;
    let mut text = Vec::with_capacity(packed.len());
    write_value(lua, &mut Reader::new(&packed), settings.precision, &mut text)?;
    lua.push_str(text);
    Ok(1)
}

/// `decode(text, options)`
fn decode(lua: Lua) -> Result<i32, Error> {
    let settings = Settings::read(lua, 2)?;
    let packed = {
        let text = options::text_argument(lua, 1)?;
        Parser { lua, text: &text, at: 0, out: Vec::with_capacity(text.len()), settings: &settings }.run()?
    };
    lua.decode_as(&mut Reader::new(&packed), settings.decode_save_metatables)?;
    Ok(1)
}

fn invalid(error: mp::MpError) -> Error {
    Error::text(format!("invalid MessagePack: {error}"))
}

/// Writes one value; nesting was bounded when it was encoded.
fn write_value(lua: Lua, reader: &mut Reader<'_>, precision: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    check_time(lua)?;
    lua.check_size(out.len())?;
    match reader.kind().map_err(invalid)? {
        Kind::Array => {
            let count = reader.array().map_err(invalid)?;
            out.push(b'[');
            for number in 0..count {
                if number > 0 {
                    out.push(b',');
                }
                write_value(lua, reader, precision, out)?;
            }
            out.push(b']');
        }
        Kind::Map => {
            let count = reader.map().map_err(invalid)?;
            out.push(b'{');
            for number in 0..count {
                if number > 0 {
                    out.push(b',');
                }
                write_key(reader, out)?;
                out.push(b':');
                write_value(lua, reader, precision, out)?;
            }
            out.push(b'}');
        }
        Kind::Str => write_text(reader.str().map_err(invalid)?, out),
        Kind::Bin => write_text(reader.bin().map_err(invalid)?, out),
        Kind::Ext => {
            let (kind, payload) = reader.ext().map_err(invalid)?;
            write_text(extension_text(kind, payload).as_bytes(), out);
        }
        _ => {
            let text = options::scalar_text(reader, precision)?;
            out.extend_from_slice(text.strip_suffix("nan").map_or(&*text, |_| "nan").as_bytes());
        }
    }
    Ok(())
}

/// A decimal or a UUID as text, anything else by its number.
pub(super) fn extension_text(kind: i8, payload: &[u8]) -> String {
    match kind {
        mp::EXT_DECIMAL => Decimal::from_ext(payload).map_or_else(String::new, |decimal| decimal.to_string()),
        mp::EXT_UUID => {
            uuid::Uuid::from_slice(payload).map_or_else(|_| String::new(), |uuid| uuid.to_string())
        }
        kind => format!("(extension {kind})"),
    }
}

fn write_key(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
    match reader.kind().map_err(invalid)? {
        Kind::Str => write_text(reader.str().map_err(invalid)?, out),
        Kind::Uint | Kind::Int => {
            out.push(b'"');
            out.extend_from_slice(options::scalar_text(reader, 0)?.as_bytes());
            out.push(b'"');
        }
        _ => return Err(Error::here("table key must be a number or string")),
    }
    Ok(())
}

fn write_text(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in bytes {
        let short = match byte {
            b'"' | b'\\' | b'/' => byte,
            8 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            12 => b'f',
            b'\r' => b'r',
            0..=31 | 127 => {
                out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                continue;
            }
            _ => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
    out.push(b'"');
}

/// What the text goes on with. Names are those of Tarantool's messages.
#[derive(Debug, Clone, PartialEq)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Text(Vec<u8>),
    Unsigned(u64),
    Signed(i64),
    Number(f64),
    Bool(bool),
    Null,
    Colon,
    Comma,
    End,
    Bad(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::Text(_) => "T_STRING",
            Token::Unsigned(_) => "T_INT",
            Token::Signed(_) => "T_INT",
            Token::Number(_) => "T_NUMBER",
            Token::Bool(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Bad(what) => what,
        }
    }
}

/// An array or an object that is open: where its head stands, how many values it has.
struct Open {
    head: usize,
    count: u32,
    is_object: bool,
}

struct Parser<'a> {
    lua: Lua,
    text: &'a [u8],
    at: usize,
    out: Vec<u8>,
    settings: &'a Settings,
}

impl Parser<'_> {
    fn run(mut self) -> Result<Vec<u8>, Error> {
        let mut open: Vec<Open> = Vec::new();
        let mut is_first = false;
        loop {
            check_time(self.lua)?;
            // A value, or the end of an empty container.
            let (token, place) = self.token();
            if is_first && self.ends(&mut open, &token) {
                is_first = false;
            } else {
                if let Some(container) = open.last_mut() {
                    container.count += 1;
                }
                let token_for_value = match open.last() {
                    Some(container) if container.is_object => self.key(token, place)?,
                    _ => (token, place),
                };
                is_first = self.value(token_for_value, &mut open)?;
                if is_first {
                    continue;
                }
            }
            // What follows a value.
            loop {
                let Some(container) = open.last() else {
                    let (token, place) = self.token();
                    if token == Token::End {
                        return Ok(self.out);
                    }
                    return Err(self.expected("the end", &token, place));
                };
                let is_object = container.is_object;
                let (token, place) = self.token();
                if token == Token::Comma {
                    break;
                }
                if !self.ends(&mut open, &token) {
                    let what = if is_object { "comma or object end" } else { "comma or array end" };
                    return Err(self.expected(what, &token, place));
                }
            }
        }
    }

    /// Closes the innermost container if the token ends it.
    fn ends(&mut self, open: &mut Vec<Open>, token: &Token) -> bool {
        let wanted = match open.last() {
            Some(container) if container.is_object => Token::ObjectEnd,
            Some(_) => Token::ArrayEnd,
            None => return false,
        };
        if *token != wanted {
            return false;
        }
        if let Some(Open { head, count, is_object }) = open.pop() {
            self.out[head] = if is_object { 0xdf } else { 0xdd };
            self.out[head + 1..head + HEAD].copy_from_slice(&count.to_be_bytes());
        }
        true
    }

    /// The token is a key: writes it, and returns the one that begins its value.
    fn key(&mut self, token: Token, place: usize) -> Result<(Token, usize), Error> {
        let Token::Text(key) = token else {
            return Err(self.expected("object key string", &token, place));
        };
        mp::write_str(&mut self.out, &key);
        let (colon, place) = self.token();
        if colon != Token::Colon {
            return Err(self.expected("colon", &colon, place));
        }
        Ok(self.token())
    }

    /// Writes a value; whether it has opened a container.
    fn value(&mut self, (token, place): (Token, usize), open: &mut Vec<Open>) -> Result<bool, Error> {
        match token {
            Token::ObjectBegin | Token::ArrayBegin => {
                if open.len() >= self.settings.decode_depth {
                    let (line, character) = self.line_and_character(self.at);
                    let depth = open.len() + 1;
                    return Err(Error::here(format!(
                        "Found too many nested data structures ({depth}) on line {line} at character {}",
                        character - 1
                    )));
                }
                let is_object = token == Token::ObjectBegin;
                open.push(Open { head: self.out.len(), count: 0, is_object });
                self.out.extend_from_slice(&[0; HEAD]);
                return Ok(true);
            }
            Token::Text(text) => mp::write_str(&mut self.out, &text),
            Token::Unsigned(number) => mp::write_uint(&mut self.out, number),
            Token::Signed(number) => mp::write_int(&mut self.out, number),
            Token::Number(number) => mp::write_double(&mut self.out, number),
            Token::Bool(value) => mp::write_bool(&mut self.out, value),
            Token::Null => mp::write_nil(&mut self.out),
            other => return Err(self.expected("value", &other, place)),
        }
        Ok(false)
    }

    fn expected(&self, what: &str, found: &Token, place: usize) -> Error {
        let (line, character) = self.line_and_character(place);
        Error::here(format!(
            "Expected {what} but found {} on line {line} at character {character}",
            found.name()
        ))
    }

    fn line_and_character(&self, place: usize) -> (usize, usize) {
        let before = &self.text[..place.min(self.text.len())];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        (line, place - start + 1)
    }

    /// The next token and where it begins (for a text that does not end, where it is found out).
    fn token(&mut self) -> (Token, usize) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        let place = self.at;
        let Some(&byte) = self.text.get(place) else { return (Token::End, place) };
        self.at += 1;
        let token = match byte {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            b'"' => return self.string(place),
            _ => self.word(place),
        };
        (token, place)
    }

    /// A number or a word.
    fn word(&mut self, place: usize) -> Token {
        let rest = &self.text[place..];
        let length = rest
            .iter()
            .position(|byte| !(byte.is_ascii_alphanumeric() || b"+-._".contains(byte)))
            .unwrap_or(rest.len());
        let word = std::str::from_utf8(&rest[..length]).unwrap_or_default();
        let token = match word {
            "null" => Token::Null,
            "true" => Token::Bool(true),
            "false" => Token::Bool(false),
            _ => number(word, self.settings.decode_invalid_numbers),
        };
        self.at = place + length.max(1);
        token
    }

    fn string(&mut self, place: usize) -> (Token, usize) {
        let mut text = Vec::new();
        loop {
            let Some(&byte) = self.text.get(self.at) else {
                return (Token::Bad("unexpected end of string"), self.at);
            };
            self.at += 1;
            match byte {
                b'"' => return (Token::Text(text), place),
                b'\\' => {
                    let escape = self.at - 1;
                    if self.escape(&mut text).is_none() {
                        return (Token::Bad("invalid escape code"), escape);
                    }
                }
                _ => text.push(byte),
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Option<()> {
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        text.push(match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut code = self.four_digits()?;
                if (0xd800..0xdc00).contains(&code) {
                    if self.text.get(self.at..self.at + 2) != Some(b"\\u") {
                        return None;
                    }
                    self.at += 2;
                    let low = self.four_digits().filter(|low| (0xdc00..0xe000).contains(low))?;
                    code = 0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                }
                let mut bytes = [0; 4];
                text.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut bytes).as_bytes());
                return Some(());
            }
            _ => return None,
        });
        Some(())
    }

    fn four_digits(&mut self) -> Option<u32> {
        let digits = std::str::from_utf8(self.text.get(self.at..self.at + 4)?).ok()?;
        self.at += 4;
        u32::from_str_radix(digits, 16).ok()
    }
}

/// A number as JSON writes it, or `nan` and `inf` where they are admitted.
fn number(word: &str, admits_invalid: bool) -> Token {
    const BAD: Token = Token::Bad("invalid token");
    let (is_negative, digits) = match word.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, word),
    };
    let sign = if is_negative { -1.0 } else { 1.0 };
    match digits {
        "nan" if admits_invalid => return Token::Number(f64::NAN),
        "inf" if admits_invalid => return Token::Number(f64::INFINITY * sign),
        _ => {}
    }
    let mut bytes = digits.bytes();
    let (first, second) = (bytes.next(), bytes.next());
    if !first.is_some_and(|byte| byte.is_ascii_digit())
        || first == Some(b'0')
            && second.is_some_and(|byte| byte.is_ascii_alphanumeric() && byte != b'e' && byte != b'E')
    {
        return BAD;
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        if is_negative && let Ok(number) = word.parse() {
            return Token::Signed(number);
        }
        if !is_negative && let Ok(number) = word.parse() {
            return Token::Unsigned(number);
        }
        // As in Tarantool, which reads them by `strtoll` and `strtoull`.
        return if is_negative { Token::Signed(i64::MIN) } else { Token::Unsigned(u64::MAX) };
    }
    if digits.bytes().any(|byte| !(byte.is_ascii_digit() || b"+-.eE".contains(&byte))) {
        return BAD;
    }
    word.parse().map_or(BAD, Token::Number)
}
