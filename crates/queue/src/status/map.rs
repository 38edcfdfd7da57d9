//! A map of the status whose members are written one by one.

use lycosa_tuple::mp;

use crate::time::MICROSECONDS;

/// Writes the members of a map whose number is known at the end, at most 65 535.
pub(super) struct Map<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    count: u16,
}

impl<'a> Map<'a> {
    pub(super) fn begin(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0xde, 0, 0]);
        Self { out, start, count: 0 }
    }

    pub(super) fn name(&mut self, name: &str) -> &mut Vec<u8> {
        self.count += 1;
        let place = self.start + 1;
        self.out[place..place + 2].copy_from_slice(&self.count.to_be_bytes());
        mp::write_str(self.out, name.as_bytes());
        self.out
    }

    pub(super) fn text(&mut self, name: &str, value: &str) {
        mp::write_str(self.name(name), value.as_bytes());
    }

    pub(super) fn number(&mut self, name: &str, value: u64) {
        mp::write_uint(self.name(name), value);
    }

    pub(super) fn optional(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.number(name, value);
        }
    }

    pub(super) fn seconds(&mut self, name: &str, micros: Option<u64>) {
        if let Some(micros) = micros {
            mp::write_double(self.name(name), micros as f64 / MICROSECONDS as f64);
        }
    }
}
