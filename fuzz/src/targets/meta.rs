//! The text at the start of a journal file, and clocks as text and as MessagePack.

use lycosa_iproto::vclock::Vclock;
use lycosa_journal::meta::{FileKind, MAX_META_BYTES, Meta};
use lycosa_tuple::mp::Reader;

/// Reads a text header of either kind and a clock. A header that was read is the same after it was written.
///
/// # Panics
/// If it is not.
pub fn meta_header(data: &[u8]) {
    for kind in [FileKind::Xlog, FileKind::Snapshot] {
        if let Ok(decoded) = Meta::decode(data, kind) {
            assert!(decoded.length <= data.len().min(MAX_META_BYTES));
            let text = decoded.meta.encode();
            if text.len() <= MAX_META_BYTES {
                let again = Meta::decode(text.as_bytes(), kind).expect("a header that was written");
                assert_eq!((again.meta, again.length), (decoded.meta, text.len()));
            }
        }
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(clock) = text.parse::<Vclock>()
    {
        assert_eq!(clock.to_string().parse(), Ok(clock));
    }
    if let Ok(clock) = Vclock::decode(&mut Reader::new(data)) {
        let mut bytes = Vec::new();
        clock.encode(&mut bytes);
        assert_eq!(Vclock::decode(&mut Reader::new(&bytes)), Ok(clock));
    }
}
