//! Writing rows of the system spaces.

use lycosa_tuple::mp;

/// A row (or key) in the making: an array whose fields are written one after another.
#[derive(Debug)]
pub(super) struct RowWriter(Vec<u8>);

impl RowWriter {
    /// A row of this number of fields.
    pub(super) fn new(fields: u32) -> Self {
        let mut bytes = Vec::with_capacity(32);
        mp::write_array(&mut bytes, fields);
        Self(bytes)
    }

    /// A key of ids.
    pub(super) fn ids<const N: usize>(ids: [u32; N]) -> Self {
        ids.into_iter().fold(Self::new(N as u32), Self::id)
    }

    pub(super) fn id(self, id: u32) -> Self {
        self.uint(u64::from(id))
    }

    pub(super) fn uint(mut self, number: u64) -> Self {
        mp::write_uint(&mut self.0, number);
        self
    }

    pub(super) fn int(mut self, number: i64) -> Self {
        mp::write_int(&mut self.0, number);
        self
    }

    pub(super) fn bool(mut self, value: bool) -> Self {
        mp::write_bool(&mut self.0, value);
        self
    }

    pub(super) fn text(mut self, text: &str) -> Self {
        mp::write_str(&mut self.0, text.as_bytes());
        self
    }

    pub(super) fn empty_map(mut self) -> Self {
        mp::write_map(&mut self.0, 0);
        self
    }

    pub(super) fn empty_array(mut self) -> Self {
        mp::write_array(&mut self.0, 0);
        self
    }

    /// A field that is encoded already.
    pub(super) fn raw(mut self, value: &[u8]) -> Self {
        self.0.extend_from_slice(value);
        self
    }

    /// A field that is an array itself.
    pub(super) fn row(self, row: &Self) -> Self {
        self.raw(&row.0)
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Encodes a map of options.
#[derive(Debug, Default)]
pub(super) struct MapWriter {
    count: u32,
    pairs: Vec<u8>,
}

impl MapWriter {
    pub(super) fn text(mut self, key: &str, value: &str) -> Self {
        mp::write_str(self.key(key), value.as_bytes());
        self
    }

    pub(super) fn uint(mut self, key: &str, value: u64) -> Self {
        mp::write_uint(self.key(key), value);
        self
    }

    pub(super) fn bool(mut self, key: &str, value: bool) -> Self {
        mp::write_bool(self.key(key), value);
        self
    }

    /// Writes a flag only if it is set.
    pub(super) fn flag(self, key: &str, value: bool) -> Self {
        if value { self.bool(key, true) } else { self }
    }

    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        self.count += 1;
        mp::write_str(&mut self.pairs, key.as_bytes());
        &mut self.pairs
    }

    pub(super) fn finish(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.pairs.len() + 5);
        mp::write_map(&mut bytes, self.count);
        bytes.extend(self.pairs);
        bytes
    }
}
