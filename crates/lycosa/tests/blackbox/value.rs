//! MessagePack for the black-box tests: values, a checked decoder, a shortest-form encoder, and a printed form.
//!
//! Written apart from `lycosa_tuple` on purpose: a mistake in the codec under test must not be able to hide itself by
//! being made twice. Strings stay bytes, integers are one kind however they were encoded, and MP_STR, MP_BIN, MP_FLOAT
//! and MP_DOUBLE are told apart because a client can tell them apart.

use std::fmt;

/// One MessagePack value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Nil,
    Bool(bool),
    /// MP_UINT and MP_INT.
    Int(i128),
    Float(f32),
    Double(f64),
    Str(Vec<u8>),
    Bin(Vec<u8>),
    Array(Vec<Value>),
    /// In the order of the bytes; keys may repeat.
    Map(Vec<(Value, Value)>),
    Ext(i8, Vec<u8>),
    /// The byte 0xc1, which MessagePack never uses and a Tarantool passes through.
    Never,
}

/// Why bytes are not MessagePack, with the offset at which they stop being it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) what: &'static str,
    pub(crate) at: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.what, self.at)
    }
}

impl Value {
    pub(crate) fn str(text: &str) -> Self {
        Value::Str(text.as_bytes().to_vec())
    }

    /// The value at integer key `key` of a map; the last one if the key repeats.
    pub(crate) fn get(&self, key: i128) -> Option<&Value> {
        let Value::Map(pairs) = self else { return None };
        pairs.iter().rev().find(|(k, _)| *k == Value::Int(key)).map(|(_, v)| v)
    }

    pub(crate) fn as_int(&self) -> Option<i128> {
        if let Value::Int(n) = self { Some(*n) } else { None }
    }

    pub(crate) fn as_array(&self) -> Option<&[Value]> {
        if let Value::Array(items) = self { Some(items) } else { None }
    }

    /// The text of an MP_STR, lossily.
    pub(crate) fn as_text(&self) -> Option<String> {
        if let Value::Str(bytes) = self { Some(String::from_utf8_lossy(bytes).into_owned()) } else { None }
    }

    /// Integers and both kinds of floats as a double.
    pub(crate) fn as_number(&self) -> Option<f64> {
        match self {
            Value::Int(n) => Some(*n as f64),
            Value::Float(x) => Some(f64::from(*x)),
            Value::Double(x) => Some(*x),
            _ => None,
        }
    }
}

// ---------------------------------------------------------------------------------------------------------- encoding

pub(crate) fn encode(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, value);
    out
}

/// Appends `value` in its shortest form.
pub(crate) fn write(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Nil => out.push(0xc0),
        Value::Never => out.push(0xc1),
        Value::Bool(b) => out.push(if *b { 0xc3 } else { 0xc2 }),
        Value::Int(n) => write_int(out, *n),
        Value::Float(x) => {
            out.push(0xca);
            out.extend_from_slice(&x.to_be_bytes());
        }
        Value::Double(x) => {
            out.push(0xcb);
            out.extend_from_slice(&x.to_be_bytes());
        }
        Value::Str(bytes) => {
            match bytes.len() {
                n @ 0..32 => out.push(0xa0 | n as u8),
                n => write_length(out, n, [Some(0xd9), Some(0xda), Some(0xdb)]),
            }
            out.extend_from_slice(bytes);
        }
        Value::Bin(bytes) => {
            write_length(out, bytes.len(), [Some(0xc4), Some(0xc5), Some(0xc6)]);
            out.extend_from_slice(bytes);
        }
        Value::Array(items) => {
            match items.len() {
                n @ 0..16 => out.push(0x90 | n as u8),
                n => write_length(out, n, [None, Some(0xdc), Some(0xdd)]),
            }
            items.iter().for_each(|item| write(out, item));
        }
        Value::Map(pairs) => {
            match pairs.len() {
                n @ 0..16 => out.push(0x80 | n as u8),
                n => write_length(out, n, [None, Some(0xde), Some(0xdf)]),
            }
            for (key, item) in pairs {
                write(out, key);
                write(out, item);
            }
        }
        Value::Ext(kind, bytes) => {
            match bytes.len() {
                n @ (1 | 2 | 4 | 8 | 16) => out.push(0xd4 + n.trailing_zeros() as u8),
                n => write_length(out, n, [Some(0xc7), Some(0xc8), Some(0xc9)]),
            }
            out.push(*kind as u8);
            out.extend_from_slice(bytes);
        }
    }
}

/// A length in 1, 2 or 4 bytes behind the marker of that width; `None` where the type has no such width.
fn write_length(out: &mut Vec<u8>, length: usize, markers: [Option<u8>; 3]) {
    match (u8::try_from(length), u16::try_from(length), markers) {
        (Ok(n), _, [Some(marker), ..]) => out.extend_from_slice(&[marker, n]),
        (_, Ok(n), [_, Some(marker), _]) => {
            out.push(marker);
            out.extend_from_slice(&n.to_be_bytes());
        }
        (_, _, markers) => {
            out.push(markers[2].expect("every type has a 4-byte length"));
            out.extend_from_slice(&u32::try_from(length).expect("a test value is below 4 GiB").to_be_bytes());
        }
    }
}

fn write_int(out: &mut Vec<u8>, n: i128) {
    match n {
        0..=0x7f => out.push(n as u8),
        -32..=-1 => out.push(n as i8 as u8),
        0x80..=0xff => out.extend_from_slice(&[0xcc, n as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend_from_slice(&(n as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend_from_slice(&(n as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            out.push(0xcf);
            out.extend_from_slice(&u64::try_from(n).expect("fits MP_UINT").to_be_bytes());
        }
        -0x80..=-33 => out.extend_from_slice(&[0xd0, n as i8 as u8]),
        -0x8000..=-0x81 => {
            out.push(0xd1);
            out.extend_from_slice(&(n as i16).to_be_bytes());
        }
        -0x8000_0000..=-0x8001 => {
            out.push(0xd2);
            out.extend_from_slice(&(n as i32).to_be_bytes());
        }
        _ => {
            out.push(0xd3);
            out.extend_from_slice(&i64::try_from(n).expect("fits MP_INT").to_be_bytes());
        }
    }
}

// ---------------------------------------------------------------------------------------------------------- decoding

/// Nesting at which the decoder gives up instead of overrunning the stack.
const MAX_DEPTH: u32 = 1000;

/// A cursor over bytes that hands out whole values.
#[derive(Debug, Clone)]
pub(crate) struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(crate) fn value(&mut self) -> Result<Value, Malformed> {
        self.nested(0)
    }

    fn nested(&mut self, depth: u32) -> Result<Value, Malformed> {
        if depth > MAX_DEPTH {
            return Err(self.malformed("nested too deep"));
        }
        let marker = self.take(1)?[0];
        Ok(match marker {
            0x00..=0x7f => Value::Int(i128::from(marker)),
            0x80..=0x8f => self.map(usize::from(marker & 0x0f), depth)?,
            0x90..=0x9f => self.array(usize::from(marker & 0x0f), depth)?,
            0xa0..=0xbf => Value::Str(self.take(usize::from(marker & 0x1f))?.to_vec()),
            0xc0 => Value::Nil,
            0xc1 => Value::Never,
            0xc2 | 0xc3 => Value::Bool(marker == 0xc3),
            0xc4..=0xc6 => {
                let length = self.unsigned(1 << (marker - 0xc4))? as usize;
                Value::Bin(self.take(length)?.to_vec())
            }
            0xc7..=0xc9 => {
                let length = self.unsigned(1 << (marker - 0xc7))? as usize;
                self.ext(length)?
            }
            0xca => Value::Float(f32::from_bits(self.unsigned(4)? as u32)),
            0xcb => Value::Double(f64::from_bits(self.unsigned(8)?)),
            0xcc..=0xcf => Value::Int(i128::from(self.unsigned(1 << (marker - 0xcc))?)),
            0xd0 => Value::Int(i128::from(self.unsigned(1)? as i8)),
            0xd1 => Value::Int(i128::from(self.unsigned(2)? as i16)),
            0xd2 => Value::Int(i128::from(self.unsigned(4)? as i32)),
            0xd3 => Value::Int(i128::from(self.unsigned(8)? as i64)),
            0xd4..=0xd8 => self.ext(1 << (marker - 0xd4))?,
            0xd9..=0xdb => {
                let length = self.unsigned(1 << (marker - 0xd9))? as usize;
                Value::Str(self.take(length)?.to_vec())
            }
            0xdc | 0xdd => {
                let count = self.unsigned(2 << (marker - 0xdc))? as usize;
                self.array(count, depth)?
            }
            0xde | 0xdf => {
                let count = self.unsigned(2 << (marker - 0xde))? as usize;
                self.map(count, depth)?
            }
            0xe0..=0xff => Value::Int(i128::from(marker as i8)),
        })
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| self.malformed("truncated"))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn unsigned(&mut self, width: usize) -> Result<u64, Malformed> {
        Ok(self.take(width)?.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)))
    }

    fn array(&mut self, count: usize, depth: u32) -> Result<Value, Malformed> {
        (0..count).map(|_| self.nested(depth + 1)).collect::<Result<_, _>>().map(Value::Array)
    }

    fn map(&mut self, count: usize, depth: u32) -> Result<Value, Malformed> {
        let pair = |_| Ok((self.nested(depth + 1)?, self.nested(depth + 1)?));
        (0..count).map(pair).collect::<Result<_, _>>().map(Value::Map)
    }

    fn ext(&mut self, length: usize) -> Result<Value, Malformed> {
        let kind = self.take(1)?[0] as i8;
        Ok(Value::Ext(kind, self.take(length)?.to_vec()))
    }

    fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { what, at: self.at }
    }
}

// ---------------------------------------------------------------------------------------------------------- printing

/// JSON as the scenarios write it: `{"$bin": …}` for MP_BIN, `{"$str": …}` for text that is not UTF-8, long texts cut.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 120;
        match self {
            Value::Nil => f.write_str("null"),
            Value::Never => f.write_str("{\"$never\": 1}"),
            Value::Bool(b) => write!(f, "{b}"),
            Value::Int(n) => write!(f, "{n}"),
            Value::Float(x) => write!(f, "{{\"$float\": {x:?}}}"),
            Value::Double(x) => write!(f, "{x:?}"),
            Value::Str(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if text.chars().count() <= SHOWN => write!(f, "{}", serde_json::Value::from(text)),
                Ok(text) => {
                    let head = text.chars().take(SHOWN).collect::<String>();
                    write!(f, "{}… ({} bytes)", serde_json::Value::from(head), bytes.len())
                }
                Err(_) => write!(f, "{{\"$str\": \"{}\"}}", hex(&bytes[..bytes.len().min(SHOWN)])),
            },
            Value::Bin(bytes) => write!(f, "{{\"$bin\": \"{}\"}}", hex(&bytes[..bytes.len().min(SHOWN)])),
            Value::Array(items) => {
                f.write_str("[")?;
                for (n, item) in items.iter().take(SHOWN).enumerate() {
                    write!(f, "{}{item}", if n == 0 { "" } else { ", " })?;
                }
                if items.len() > SHOWN {
                    write!(f, ", … {} in all", items.len())?;
                }
                f.write_str("]")
            }
            Value::Map(pairs) => {
                f.write_str("{")?;
                for (n, (key, item)) in pairs.iter().enumerate() {
                    write!(f, "{}{key}: {item}", if n == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
            Value::Ext(kind, bytes) => write!(f, "{{\"$ext\": [{kind}, \"{}\"]}}", hex(bytes)),
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    })
}

/// Bytes of a hex text; blanks in it do not count.
pub(crate) fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let digits = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect::<Vec<_>>();
    if digits.len() % 2 != 0 {
        return Err(format!("an odd number of hex digits: {text}"));
    }
    let digit =
        |byte: u8| (byte as char).to_digit(16).ok_or_else(|| format!("not a hex digit: {}", byte as char));
    digits.chunks(2).map(|pair| Ok((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect()
}
