//! Going through a journal file, transaction by transaction, past any damage.

use std::io;
use std::ops::ControlFlow;

use lycosa_journal::reader::{Damage, DamageKind, End, FileReader, Step, Torn, TornCause};
use lycosa_journal::transaction::{Next, Row, Transactions};

/// Why a walk stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WalkEnd {
    /// The file ends here. Asked again, the walk sees rows that were written since.
    End(End),
    /// Something is wrong here; [`Walk::skip`] goes on after it.
    Damage(Damage),
    /// The visitor has seen enough.
    Enough,
}

/// Sees a transaction and the offset of the block in which it ends.
type Visit<'a> = dyn FnMut(&[Row<'_>], u64) -> io::Result<ControlFlow<()>> + 'a;

/// The rows that a walk through a file has read and not handed out, because their transaction goes on.
#[derive(Debug, Default)]
pub struct Walk {
    carried: Vec<u8>,
    /// The block in which they begin.
    carried_from: u64,
}

impl Walk {
    /// Hands out each transaction, with the offset of the block in which it ends, until something stops the walk.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub fn go(&mut self, reader: &mut FileReader, visit: &mut Visit<'_>) -> io::Result<WalkEnd> {
        loop {
            match reader.next_block()? {
                Step::Block(block) => {
                    if let Some(stop) = self.block(block.rows, block.offset, visit)? {
                        return Ok(stop);
                    }
                }
                Step::End(end) => return self.end(reader, end),
                Step::Damage(damage) => {
                    self.carried.clear();
                    return Ok(WalkEnd::Damage(damage));
                }
            }
        }
    }

    /// Leaves the place of a damage behind. Returns where sound data goes on, if it does.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub fn skip(&mut self, reader: &mut FileReader, damage: &Damage) -> io::Result<Option<u64>> {
        self.carried.clear();
        // A block whose rows are wrong has been passed already; any other still lies ahead.
        if reader.offset() > damage.offset { Ok(Some(reader.offset())) } else { reader.skip_damage() }
    }

    fn block(&mut self, rows: &[u8], offset: u64, visit: &mut Visit<'_>) -> io::Result<Option<WalkEnd>> {
        let mut joined = std::mem::take(&mut self.carried);
        let bytes = if joined.is_empty() {
            self.carried_from = offset;
            rows
        } else {
            joined.extend_from_slice(rows);
            &joined
        };
        let mut transactions = Transactions::new(bytes);
        let mut rows = Vec::new();
        loop {
            match transactions.next(&mut rows) {
                Ok(Next::Transaction(_)) => {
                    if visit(&rows, offset)?.is_break() {
                        return Ok(Some(WalkEnd::Enough));
                    }
                    self.carried_from = offset;
                }
                Ok(Next::Partial(at)) => {
                    self.carried = bytes[at..].to_vec();
                    return Ok(None);
                }
                Ok(Next::End) => return Ok(None),
                Err(kind) => return Ok(Some(WalkEnd::Damage(Damage { offset, kind }))),
            }
        }
    }

    fn end(&mut self, reader: &FileReader, end: End) -> io::Result<WalkEnd> {
        if self.carried.is_empty() {
            return Ok(WalkEnd::End(end));
        }
        let offset = self.carried_from;
        if end == End::Marker {
            let kind = DamageKind::Row { at: 0, reason: "a transaction without an end".to_owned() };
            return Ok(WalkEnd::Damage(Damage { offset, kind }));
        }
        let bytes = reader.size()?.saturating_sub(offset);
        Ok(WalkEnd::End(End::Torn(Torn { offset, bytes, cause: TornCause::Transaction })))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lycosa_journal::directory::Directory;
    use lycosa_journal::meta::FileKind;

    use super::*;

    fn read(folder: &str, signature: u64) -> FileReader {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/files").join(folder);
        Directory::inspect(&path).unwrap().read(FileKind::Xlog, signature).unwrap()
    }

    /// The LSNs of the rows, and the stops.
    fn walk(mut reader: FileReader) -> (Vec<u64>, Vec<WalkEnd>) {
        let (mut lsns, mut stops, mut walk) = (Vec::new(), Vec::new(), Walk::default());
        loop {
            let stop = walk.go(&mut reader, &mut |rows, _| {
                lsns.extend(rows.iter().map(|row| row.header.lsn));
                Ok(ControlFlow::Continue(()))
            });
            stops.push(stop.unwrap());
            match stops.last() {
                Some(WalkEnd::Damage(damage)) => walk.skip(&mut reader, &damage.clone()).unwrap(),
                _ => return (lsns, stops),
            };
        }
    }

    #[test]
    fn a_sound_file_is_walked_to_its_end() {
        let (lsns, stops) = walk(read("corrupt/0-sound", 23));
        assert_eq!(lsns, (24..=43).collect::<Vec<_>>());
        assert_eq!(stops, [WalkEnd::End(End::Marker)]);
    }

    #[test]
    fn damage_is_passed() {
        let (sound, _) = walk(read("corrupt/0-sound", 63));
        let (lsns, stops) = walk(read("corrupt/flip-crc", 63));
        assert!(matches!(stops[..], [WalkEnd::Damage(_), WalkEnd::End(End::Marker)]), "{stops:?}");
        assert!(!lsns.is_empty() && lsns.len() < sound.len(), "{lsns:?}");
    }

    #[test]
    fn a_visitor_may_have_enough() {
        let stop =
            Walk::default().go(&mut read("corrupt/0-sound", 23), &mut |_, _| Ok(ControlFlow::Break(())));
        assert_eq!(stop.unwrap(), WalkEnd::Enough);
    }
}
