//! Maps of named values, written member by member, as lists, reports and the status of the queue return them.

use lycosa_tuple::mp;

use crate::time::MICROSECONDS;

/// Appends named values of a map, whose count is known at the end.
pub struct Members<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    count: u16,
    is_wide: bool,
}

impl<'a> Members<'a> {
    /// A map of at most 15 members: its header is one byte.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.push(0x80);
        Self { out, start, count: 0, is_wide: false }
    }

    /// A map of at most 65 535 members: its header is three bytes.
    pub fn wide(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0xde, 0, 0]);
        Self { out, start, count: 0, is_wide: true }
    }

    /// Begins a member, whose value is then to be appended.
    pub fn name(&mut self, name: &str) -> &mut Vec<u8> {
        self.count += 1;
        match self.is_wide {
            true => self.out[self.start + 1..self.start + 3].copy_from_slice(&self.count.to_be_bytes()),
            false => self.out[self.start] = 0x80 + self.count as u8,
        }
        mp::write_str(self.out, name.as_bytes());
        self.out
    }

    /// A number.
    pub fn number(&mut self, name: &str, value: u64) {
        mp::write_uint(self.name(name), value);
    }

    pub(crate) fn optional(&mut self, name: &str, value: Option<u64>) {
        value.into_iter().for_each(|value| self.number(name, value));
    }

    pub(crate) fn text(&mut self, name: &str, value: impl AsRef<[u8]>) {
        mp::write_str(self.name(name), value.as_ref());
    }

    /// Microseconds as seconds, a whole number if they are one.
    pub(crate) fn seconds(&mut self, name: &str, micros: u64) {
        write_seconds(self.name(name), micros);
    }

    /// Microseconds as seconds, in any case as a fraction.
    pub(crate) fn fraction(&mut self, name: &str, micros: Option<u64>) {
        if let Some(micros) = micros {
            mp::write_double(self.name(name), micros as f64 / MICROSECONDS as f64);
        }
    }
}

/// Appends a number, or null.
pub fn write_optional(out: &mut Vec<u8>, number: Option<u64>) {
    if let Some(number) = number { mp::write_uint(out, number) } else { mp::write_nil(out) }
}

/// Appends microseconds as seconds: a whole number if they are one.
pub(crate) fn write_seconds(out: &mut Vec<u8>, micros: u64) {
    if micros.is_multiple_of(MICROSECONDS) {
        mp::write_uint(out, micros / MICROSECONDS);
    } else {
        mp::write_double(out, micros as f64 / MICROSECONDS as f64);
    }
}
