//! Maps of named values, written member by member, as lists and reports of the queue return them.

use lycosa_tuple::mp;

use crate::time::MICROSECONDS;

/// Appends named values of a map, whose count is known at the end.
pub(crate) struct Members<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    count: u8,
    is_wide: bool,
}

impl<'a> Members<'a> {
    /// A map of at most 15 members: its header is one byte.
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.push(0x80);
        Self { out, start, count: 0, is_wide: false }
    }

    /// A map of at most 255 members: its header is three bytes.
    pub(crate) fn wide(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0xde, 0, 0]);
        Self { out, start, count: 0, is_wide: true }
    }

    pub(crate) fn name(&mut self, name: &str) -> &mut Vec<u8> {
        self.count += 1;
        match self.is_wide {
            true => self.out[self.start + 2] = self.count,
            false => self.out[self.start] = 0x80 + self.count,
        }
        mp::write_str(self.out, name.as_bytes());
        self.out
    }

    pub(crate) fn number(&mut self, name: &str, value: u64) {
        mp::write_uint(self.name(name), value);
    }

    pub(crate) fn text(&mut self, name: &str, value: &[u8]) {
        mp::write_str(self.name(name), value);
    }

    /// Microseconds as seconds.
    pub(crate) fn seconds(&mut self, name: &str, micros: u64) {
        write_seconds(self.name(name), micros);
    }
}

/// Appends microseconds as seconds: a whole number if they are one.
pub(crate) fn write_seconds(out: &mut Vec<u8>, micros: u64) {
    if micros.is_multiple_of(MICROSECONDS) {
        mp::write_uint(out, micros / MICROSECONDS);
    } else {
        mp::write_double(out, micros as f64 / MICROSECONDS as f64);
    }
}
