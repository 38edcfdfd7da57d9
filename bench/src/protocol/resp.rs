//! RESP, the protocol of Redis: commands as arrays of bulk strings, replies as nested values.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};

use super::Shown;
use crate::connect;

/// Appends a command.
pub(super) fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    header(out, b'*', words.len());
    for word in words {
        header(out, b'$', word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

fn header(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    push_decimal(out, number as u64);
    out.extend_from_slice(b"\r\n");
}

/// Appends a number in decimal digits.
pub(super) fn push_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// One reply, or the head of an array whose values follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Integer(i64),
    Bulk(&'a [u8]),
    /// This number of values follows.
    Array(usize),
    /// The null bulk string or the null array.
    Nil,
}

/// A cursor over replies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replies<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Replies<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self { rest: input, length: input.len() }
    }

    /// Bytes that have been read.
    pub(super) fn position(&self) -> usize {
        self.length - self.rest.len()
    }

    /// The next value; `None` if it is not all there.
    ///
    /// # Errors
    /// Bytes that are no reply.
    pub(super) fn value(&mut self) -> Result<Option<Value<'a>>> {
        let Some(end) = self.rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
        let (line, after) = (&self.rest[..end], &self.rest[end + 2..]);
        let Some((kind, text)) = line.split_first() else { bail!("a reply is an empty line") };
        let mut rest = after;
        let value = match kind {
            b'+' => Value::Simple(text),
            b'-' => Value::Error(text),
            b':' => Value::Integer(number(text)?),
            b'*' => usize::try_from(number(text)?).map_or(Value::Nil, Value::Array),
            b'$' => match usize::try_from(number(text)?) {
                Err(_) => Value::Nil,
                Ok(length) => {
                    let Some((bytes, end)) = after.split_at_checked(length) else { return Ok(None) };
                    let Some((line_end, behind)) = end.split_at_checked(2) else { return Ok(None) };
                    ensure!(line_end == b"\r\n", "a bulk string does not end where it says");
                    rest = behind;
                    Value::Bulk(bytes)
                }
            },
            _ => bail!("the server does not speak RESP: {}", Shown(line)),
        };
        self.rest = rest;
        Ok(Some(value))
    }
}

fn number(text: &[u8]) -> Result<i64> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.with_context(|| format!("`{}` is not a number", Shown(text)))
}

/// Executes commands on a connection of their own; each has to succeed. Gives the last reply if it is a number.
pub(super) fn execute(address: SocketAddr, commands: &[&[&[u8]]]) -> Result<Option<i64>> {
    let mut stream = connect(address)?;
    let mut number = None;
    for words in commands {
        let mut out = Vec::new();
        command(&mut out, words);
        stream.write_all(&out)?;
        number = read_success(&mut stream).with_context(|| format!("{} failed", Shown(words[0])))?;
    }
    Ok(number)
}

/// The number that a command answers.
pub(super) fn count(address: SocketAddr, words: &[&[u8]]) -> Result<u64> {
    let number = execute(address, &[words])?.and_then(|number| u64::try_from(number).ok());
    number.with_context(|| format!("{} does not answer a number", Shown(words[0])))
}

fn read_success(stream: &mut TcpStream) -> Result<Option<i64>> {
    let mut input = Vec::new();
    loop {
        match Replies::new(&input).value()? {
            Some(Value::Error(text)) => bail!("{}", Shown(text)),
            Some(Value::Integer(number)) => return Ok(Some(number)),
            Some(_) => return Ok(None),
            None => {}
        }
        let mut byte = [0];
        stream.read_exact(&mut byte).context("the server closed the connection")?;
        input.extend_from_slice(&byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(input: &[u8]) -> Vec<Value<'_>> {
        let mut replies = Replies::new(input);
        let mut values = Vec::new();
        while let Some(value) = replies.value().unwrap() {
            values.push(value);
        }
        assert_eq!(replies.position(), input.len());
        values
    }

    #[test]
    fn commands_are_arrays() {
        let mut out = Vec::new();
        command(&mut out, &[b"LPUSH", b"q", b"", b"0123456789"]);
        assert_eq!(out, b"*4\r\n$5\r\nLPUSH\r\n$1\r\nq\r\n$0\r\n\r\n$10\r\n0123456789\r\n");
        out.clear();
        push_decimal(&mut out, u64::MAX);
        push_decimal(&mut out, 0);
        assert_eq!(out, b"184467440737095516150");
    }

    #[test]
    fn replies_of_every_kind() {
        assert_eq!(
            values(b"+OK\r\n-ERR no\r\n:-3\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n*2\r\n$0\r\n\r\n:1\r\n"),
            [
                Value::Simple(b"OK"),
                Value::Error(b"ERR no"),
                Value::Integer(-3),
                Value::Bulk(b"a\r\n"),
                Value::Nil,
                Value::Nil,
                Value::Array(2),
                Value::Bulk(b""),
                Value::Integer(1),
            ]
        );
    }

    #[test]
    fn a_reply_grows_byte_by_byte() {
        let reply = b"$12\r\nhello\r\nworld\r\n";
        for length in 0..reply.len() {
            assert_eq!(Replies::new(&reply[..length]).value().unwrap(), None);
        }
    }

    #[test]
    fn what_is_no_reply() {
        for wrong in ["\r\n", "HTTP\r\n", ":x\r\n", "$1\r\nabc\r\n", "$99999999999999999999\r\n"] {
            assert!(Replies::new(wrong.as_bytes()).value().is_err(), "{wrong}");
        }
    }
}
