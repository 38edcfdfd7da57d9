//! MessagePack values, tuples, field types, keys and their order, update operations.
//!
//! Everything works on bytes as they came from a client or a file, and keeps them as they came: a tuple is a borrowed
//! MessagePack array ([`tuple::TupleRef`]), a key is its parts' values back to back. Nothing here knows of spaces,
//! protocols, files or clocks, and nothing panics on any bytes.

pub mod collation;
pub mod decimal;
pub mod field;
pub mod format;
mod hint;
pub mod key;
pub mod mp;
pub mod path;
#[cfg(test)]
mod samples;
pub mod scalar;
pub mod tuple;
pub mod update;
pub mod value;
