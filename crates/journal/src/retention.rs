//! Retention: the files that a start can do without.
//!
//! A start begins with the newest sound snapshot and reads the xlogs from the last one that begins at or before it; if that
//! snapshot turns out to be damaged, the one before it will do, with the xlogs since. So files are kept by *generation*: a
//! snapshot and the xlogs up to the next one. [`removable`] is the whole decision, a function of names and sizes.
//!
//! Invariants:
//! - the snapshot that is known to be sound stays, and so does every xlog that a start from it reads;
//! - of each snapshot that stays, the xlogs since it stay too;
//! - snapshots newer than the one known to be sound are neither counted nor touched: a start has passed them over.
//!
//! Replicas read the xlogs too. [`hold`] says which xlogs stay for them alone, within a bound.
//!
//! Absent: files that were set aside, left-overs and strangers. They are the operator's.

use std::io;

use lycosa_iproto::vclock::Vclock;

use crate::directory::{Directory, file_name};
use crate::meta::FileKind;
use crate::reader::FileReader;

/// A complete journal file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredFile {
    /// The number in its name.
    pub signature: u64,
    /// Bytes in it.
    pub bytes: u64,
}

/// The journal files of a folder with their sizes, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Snapshots.
    pub snapshots: Vec<StoredFile>,
    /// Xlogs.
    pub xlogs: Vec<StoredFile>,
}

/// The files to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Signature of the newest snapshot that is known to be sound: a start used it, or this process has written it.
    pub sound: u64,
    /// Snapshots to keep, that one included.
    pub snapshots: usize,
    /// Bytes that all files may take; above this older snapshots go earlier, with their xlogs.
    pub bytes: u64,
    /// Xlogs with this signature and later ones stay for replicas that read them. `u64::MAX` keeps none.
    pub held_from: u64,
}

/// The xlogs that stay for replicas alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// [`Rule::held_from`].
    pub from: u64,
    /// Bytes of the xlogs that a start could do without.
    pub bytes: u64,
    /// The places in `needed` of the replicas whose xlogs do not fit.
    pub lost: Vec<usize>,
}

impl Inventory {
    /// The files of the folder.
    ///
    /// # Errors
    /// When the folder or one of the files cannot be read.
    pub fn of(directory: &Directory) -> io::Result<Self> {
        let listing = directory.list()?;
        let measure = |kind, signatures: Vec<u64>| -> io::Result<Vec<StoredFile>> {
            let size = |signature| directory.disk().open(&file_name(kind, signature))?.size();
            signatures
                .into_iter()
                .map(|signature| Ok(StoredFile { signature, bytes: size(signature)? }))
                .collect()
        };
        Ok(Self {
            snapshots: measure(FileKind::Snapshot, listing.snapshots)?,
            xlogs: measure(FileKind::Xlog, listing.xlogs)?,
        })
    }

    /// The clock at which the oldest xlog begins. `None`: there is no xlog, or its header cannot be read.
    #[must_use]
    pub fn oldest_vclock(&self, directory: &Directory) -> Option<Vclock> {
        let oldest = self.xlogs.first()?;
        let file = directory.disk().open(&file_name(FileKind::Xlog, oldest.signature)).ok()?;
        FileReader::open(file, FileKind::Xlog).ok().map(|reader| reader.meta().vclock.clone())
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.snapshots.iter().chain(&self.xlogs).map(|file| file.bytes).sum()
    }

    /// Bytes of the snapshot with that signature; 0 if there is none.
    #[must_use]
    pub fn snapshot_bytes(&self, signature: u64) -> u64 {
        self.snapshots.iter().find(|file| file.signature == signature).map_or(0, |file| file.bytes)
    }

    /// Bytes of the xlogs that a start from the snapshot with that signature reads.
    #[must_use]
    pub fn journal_bytes(&self, snapshot: u64) -> u64 {
        self.xlogs[self.first_xlog_for(snapshot)..].iter().map(|file| file.bytes).sum()
    }

    /// The place of the first xlog that a start from that snapshot reads.
    fn first_xlog_for(&self, snapshot: u64) -> usize {
        self.xlogs.partition_point(|file| file.signature <= snapshot).saturating_sub(1)
    }
}

/// The files that are not needed any more by the rule, in the order in which they are to be removed: snapshots before
/// the xlogs that belong to them, so that no snapshot is ever there without its xlogs.
#[must_use]
pub fn removable(inventory: &Inventory, rule: &Rule) -> Vec<(FileKind, StoredFile)> {
    let Inventory { snapshots, xlogs } = inventory;
    let Ok(newest) = snapshots.binary_search_by_key(&rule.sound, |file| file.signature) else {
        return Vec::new();
    };
    let mut oldest = (newest + 1).saturating_sub(rule.snapshots.max(1));
    let kept = |oldest: usize| {
        let xlogs = &xlogs[inventory.first_xlog_for(snapshots[oldest].signature)..];
        snapshots[oldest..].iter().chain(xlogs).map(|file| file.bytes).sum::<u64>()
    };
    while oldest < newest && kept(oldest) > rule.bytes {
        oldest += 1;
    }
    let held = xlogs.partition_point(|file| file.signature < rule.held_from);
    let first_xlog = inventory.first_xlog_for(snapshots[oldest].signature).min(held);
    let snapshots = snapshots[..oldest].iter().map(|&file| (FileKind::Snapshot, file));
    snapshots.chain(xlogs[..first_xlog].iter().map(|&file| (FileKind::Xlog, file))).collect()
}

/// Which xlogs stay for replicas, beyond what `rule` keeps without them. `needed` has the signature of the first xlog
/// that each replica reads. These xlogs take at most `limit` bytes: a replica that is further behind is lost, and does
/// not hold anything back.
#[must_use]
pub fn hold(inventory: &Inventory, rule: &Rule, needed: &[u64], limit: u64) -> Held {
    let xlogs = &inventory.xlogs;
    let superfluous = removable(inventory, &Rule { held_from: u64::MAX, ..*rule })
        .iter()
        .filter(|(kind, _)| *kind == FileKind::Xlog)
        .count();
    let mut first = superfluous;
    let mut bytes = 0_u64;
    while first > 0 && bytes.saturating_add(xlogs[first - 1].bytes) <= limit {
        first -= 1;
        bytes += xlogs[first].bytes;
    }
    let place = |needed: u64| xlogs.partition_point(|file| file.signature < needed);
    let lost: Vec<_> = (0..needed.len()).filter(|&replica| place(needed[replica]) < first).collect();
    let held = needed.iter().map(|&needed| place(needed)).filter(|&place| place >= first).min();
    let held = held.unwrap_or(superfluous).min(superfluous);
    Held {
        from: xlogs.get(held).map_or(u64::MAX, |file| file.signature),
        bytes: xlogs[held..superfluous].iter().map(|file| file.bytes).sum(),
        lost,
    }
}

/// Removes the files that the rule does not keep. Returns the removed and the remaining files.
///
/// # Errors
/// When the folder cannot be read or changed. A file that was not removed is harmless and goes the next time.
pub fn collect(directory: &Directory, rule: &Rule) -> io::Result<(Vec<(FileKind, StoredFile)>, Inventory)> {
    let mut inventory = Inventory::of(directory)?;
    let removed = removable(&inventory, rule);
    let mut has_removed_snapshot = false;
    for &(kind, file) in &removed {
        if kind == FileKind::Xlog && std::mem::take(&mut has_removed_snapshot) {
            // Nor may a crash bring the snapshot back without them.
            directory.disk().sync()?;
        }
        has_removed_snapshot |= kind == FileKind::Snapshot;
        directory.disk().remove(&file_name(kind, file.signature))?;
        let files = if kind == FileKind::Snapshot { &mut inventory.snapshots } else { &mut inventory.xlogs };
        files.retain(|kept| kept.signature != file.signature);
    }
    Ok((removed, inventory))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn files(signatures: &[u64]) -> Vec<StoredFile> {
        signatures.iter().map(|&signature| StoredFile { signature, bytes: 100 }).collect()
    }

    fn inventory(snapshots: &[u64], xlogs: &[u64]) -> Inventory {
        Inventory { snapshots: files(snapshots), xlogs: files(xlogs) }
    }

    fn rule(sound: u64, snapshots: usize, bytes: u64) -> Rule {
        Rule { sound, snapshots, bytes, held_from: u64::MAX }
    }

    fn removed(inventory: &Inventory, sound: u64, snapshots: usize, bytes: u64) -> (Vec<u64>, Vec<u64>) {
        let removed = removable(inventory, &rule(sound, snapshots, bytes));
        let of = |wanted: FileKind| {
            removed.iter().filter(|(kind, _)| *kind == wanted).map(|(_, file)| file.signature).collect()
        };
        (of(FileKind::Snapshot), of(FileKind::Xlog))
    }

    #[test]
    fn generations_are_counted() {
        let folder = inventory(&[0, 10, 20, 30], &[0, 5, 10, 15, 20, 30, 35]);
        assert_eq!(removed(&folder, 30, 9, u64::MAX), (vec![], vec![]));
        assert_eq!(removed(&folder, 30, 3, u64::MAX), (vec![0], vec![0, 5]));
        assert_eq!(removed(&folder, 30, 2, u64::MAX), (vec![0, 10], vec![0, 5, 10, 15]));
        assert_eq!(removed(&folder, 30, 1, u64::MAX), (vec![0, 10, 20], vec![0, 5, 10, 15, 20]));
        assert_eq!(removed(&folder, 30, 0, u64::MAX), removed(&folder, 30, 1, u64::MAX));
    }

    #[test]
    fn an_xlog_that_holds_the_snapshot_s_moment_stays() {
        let folder = inventory(&[0, 10], &[0, 7, 12]);
        assert_eq!(removed(&folder, 10, 1, u64::MAX), (vec![0], vec![0]));
        // Nothing was journaled since: the file before it is the newest, and is written on or followed.
        let folder = inventory(&[0, 10], &[0, 7]);
        assert_eq!(removed(&folder, 10, 1, u64::MAX), (vec![0], vec![0]));
        let folder = inventory(&[0, 10], &[12]);
        assert_eq!(removed(&folder, 10, 1, u64::MAX), (vec![0], vec![]));
    }

    #[test]
    fn want_of_room_comes_before_the_count() {
        let folder = inventory(&[10, 20, 30], &[10, 20, 30]);
        assert_eq!(removed(&folder, 30, 3, 600), (vec![], vec![]));
        assert_eq!(removed(&folder, 30, 3, 599), (vec![10], vec![10]));
        assert_eq!(removed(&folder, 30, 3, 399), (vec![10, 20], vec![10, 20]));
        assert_eq!(removed(&folder, 30, 3, 0), (vec![10, 20], vec![10, 20]));
    }

    #[test]
    fn a_snapshot_that_a_start_passed_over_saves_nothing() {
        let folder = inventory(&[10, 20, 30], &[10, 20, 30]);
        assert_eq!(removed(&folder, 20, 1, 0), (vec![10], vec![10]));
        assert_eq!(removed(&folder, 25, 1, 0), (vec![], vec![]));
    }

    #[test]
    fn xlogs_stay_for_replicas_within_the_limit() {
        let folder = inventory(&[0, 30, 40], &[0, 10, 20, 30, 40]);
        let rule = rule(40, 2, u64::MAX);
        let hold = |needed: &[u64], limit| hold(&folder, &rule, needed, limit);
        assert_eq!(hold(&[], 900), Held { from: 30, bytes: 0, lost: vec![] });
        assert_eq!(hold(&[40, 30], 900), Held { from: 30, bytes: 0, lost: vec![] });
        assert_eq!(hold(&[40, 10], 900), Held { from: 10, bytes: 200, lost: vec![] });
        assert_eq!(hold(&[20, 10], 199), Held { from: 20, bytes: 100, lost: vec![1] });
        // A lost replica holds nothing back.
        assert_eq!(hold(&[0, 40], 299), Held { from: 30, bytes: 0, lost: vec![0] });
        assert_eq!(hold(&[20], 0), Held { from: 30, bytes: 0, lost: vec![0] });
        let held = Rule { held_from: 10, ..rule };
        let gone: Vec<_> = removable(&folder, &held).into_iter().map(|(_, file)| file.signature).collect();
        assert_eq!(gone, [0, 0], "the snapshot and the first xlog");
    }

    proptest! {
        #[test]
        fn a_start_finds_what_it_needs(
            snapshots in proptest::collection::btree_set(0..60_u64, 1..8),
            xlogs in proptest::collection::btree_set(0..60_u64, 0..12),
            sound in any::<prop::sample::Index>(),
            count in 0..5_usize,
            bytes in 0..2500_u64,
        ) {
            let (snapshots, xlogs): (Vec<_>, Vec<_>) = (snapshots.into_iter().collect(), xlogs.into_iter().collect());
            let sound = *sound.get(&snapshots);
            let (gone, gone_xlogs) = removed(&inventory(&snapshots, &xlogs), sound, count, bytes);
            let left: Vec<_> = snapshots.iter().filter(|snapshot| !gone.contains(snapshot)).collect();
            prop_assert!(left.contains(&&sound) && snapshots.iter().all(|s| *s <= sound || left.contains(&s)));
            for snapshot in left {
                let begin = xlogs.iter().rposition(|xlog| xlog <= snapshot).unwrap_or(0);
                prop_assert!(xlogs[begin..].iter().all(|xlog| !gone_xlogs.contains(xlog)), "{snapshot}");
            }
            prop_assert!(xlogs.last().is_none_or(|last| !gone_xlogs.contains(last)));
        }
    }
}
