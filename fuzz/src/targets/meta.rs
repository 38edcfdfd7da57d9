//! The text at the start of a journal file, and clocks as text and as MessagePack.

use lycosa_iproto::vclock::Vclock;
use lycosa_journal::meta::{FileKind, MAX_META_BYTES, Meta};
use lycosa_tuple::mp::Reader;

use crate::feature::note;

/// Reads a text header of either kind and a clock. What was read is the same after it was written.
///
/// # Panics
/// If it is not.
pub fn meta_header(data: &[u8]) {
    for kind in [FileKind::Xlog, FileKind::Snapshot] {
        match Meta::decode(data, kind) {
            Ok(decoded) => {
                note(("meta", kind, decoded.unknown_keys.len(), decoded.meta.prev_vclock.is_some()));
                assert!(decoded.length <= data.len().min(MAX_META_BYTES));
                let text = decoded.meta.encode();
                if text.len() <= MAX_META_BYTES {
                    let again = Meta::decode(text.as_bytes(), kind).expect("a header that was written");
                    assert_eq!((again.meta, again.length), (decoded.meta, text.len()));
                }
            }
            Err(error) => note(("meta", kind, std::mem::discriminant(&error))),
        }
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(clock) = text.parse::<Vclock>()
    {
        note(("clock", clock.iter().count()));
        assert_eq!(clock.to_string().parse(), Ok(clock));
    }
    if let Ok(clock) = Vclock::decode(&mut Reader::new(data)) {
        note(("encoded clock", clock.iter().count()));
        let mut bytes = Vec::new();
        clock.encode(&mut bytes);
        assert_eq!(Vclock::decode(&mut Reader::new(&bytes)), Ok(clock));
    }
}
