//! Reading of MessagePack arrays field by field, and what can be wrong with them.

use lycosa_tuple::mp::{MpError, Reader};

/// Why bytes are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// They are not MessagePack, or another value stands where a field belongs.
    #[error(transparent)]
    MessagePack(#[from] MpError),
    /// An array has another number of fields.
    #[error("expected {expected} fields, found {found}")]
    Fields {
        /// What belongs there.
        expected: u32,
        /// What stands there.
        found: u32,
    },
    /// A field has a value that means nothing.
    #[error("{0} {1} is unknown")]
    Value(&'static str, u64),
    /// A text or context is longer than its bound, or no text.
    #[error("a text or context is longer than {0} bytes, or not UTF-8")]
    Text(usize),
    /// The list of members contradicts itself.
    #[error("the list of members contradicts itself")]
    Members,
    /// Entries leave a gap, or are of later terms than their message.
    #[error("entry {index} of term {term} does not follow entry {after}")]
    Order {
        /// Its index.
        index: u64,
        /// Its term.
        term: u64,
        /// The entry before it.
        after: u64,
    },
}

/// Reads the head of an array of `expected` fields.
pub(crate) fn fields(reader: &mut Reader<'_>, expected: u32) -> Result<(), CodecError> {
    match reader.array()? {
        found if found == expected => Ok(()),
        found => Err(CodecError::Fields { expected, found }),
    }
}

/// Fails if something follows.
pub(crate) fn exhausted(reader: &Reader<'_>) -> Result<(), CodecError> {
    if reader.is_empty() { Ok(()) } else { Err(MpError::Trailing { at: reader.position() }.into()) }
}

/// Reads a text of at most `limit` bytes.
pub(crate) fn text(reader: &mut Reader<'_>, limit: usize) -> Result<String, CodecError> {
    let bytes = reader.str()?;
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= limit);
    text.map(str::to_owned).ok_or(CodecError::Text(limit))
}

/// Reads a number below 256.
pub(crate) fn uint8(reader: &mut Reader<'_>, field: &'static str) -> Result<u8, CodecError> {
    let value = reader.uint()?;
    u8::try_from(value).map_err(|_| CodecError::Value(field, value))
}
