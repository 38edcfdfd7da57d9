//! Rows of `_queue`: each names a tube, its space, its type and its options.

use lycosa_tuple::mp::{self, Reader};

/// Suffix of the name of a tube's ready buffer.
pub(crate) const BUFFER_SUFFIX: &str = "_ready_buffer";

/// A row of `_queue`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TubeRow<'a> {
    pub(crate) name: &'a str,
    pub(crate) id: u64,
    pub(crate) space: &'a str,
    pub(crate) tube_type: &'a str,
    pub(crate) options: &'a [u8],
}

impl<'a> TubeRow<'a> {
    pub(crate) fn read(tuple: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(tuple);
        reader.array().ok()?;
        Some(Self {
            name: str::from_utf8(reader.str().ok()?).ok()?,
            id: reader.uint().ok()?,
            space: str::from_utf8(reader.str().ok()?).ok()?,
            tube_type: str::from_utf8(reader.str().ok()?).ok()?,
            options: reader.raw().ok()?,
        })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::new();
        mp::write_array(&mut row, 5);
        mp::write_str(&mut row, self.name.as_bytes());
        mp::write_uint(&mut row, self.id);
        mp::write_str(&mut row, self.space.as_bytes());
        mp::write_str(&mut row, self.tube_type.as_bytes());
        row.extend_from_slice(self.options);
        row
    }
}
