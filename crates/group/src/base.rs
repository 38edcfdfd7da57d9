//! The base of a snapshot: its place in the log, and the members at that entry.
//!
//! A snapshot `N.snap` is a pure one of Tarantool's format. Its [`Base`] stands in `S.group`, where S is the index of the last
//! entry that the snapshot holds, with opaque bytes that the layer above keeps beside rows (owners of tasks). One snapshot
//! can have several states, since a change of the members adds an entry and no row. A node starts from the newest state
//! whose snapshot exists.
//!
//! Invariants:
//! - a state is durable before its snapshot gets a name, so each snapshot that a node finds has one. A state without a
//!   snapshot is the left-over of a crash;
//! - a state is written once and never changed.
//!
//! Absent: the snapshot's content.

use std::io;

use lycosa_iproto::vclock::Vclock;
use lycosa_journal::block::Encoder;
use lycosa_journal::directory::{Directory, IN_PROGRESS, file_name};
use lycosa_journal::disk::write_all_at;
use lycosa_journal::meta::{FileKind, Meta};
use lycosa_journal::reader::{End, FileReader, OpenError, Step};
use lycosa_journal::writer::WRITTEN_BY;
use lycosa_tuple::mp::{self, Reader};
use uuid::Uuid;

use crate::codec::{CodecError, exhausted, fields};
use crate::members::Members;

/// The term and the index at which every group begins. A group that began at 0 could not take a second member in: a
/// joiner needs a snapshot first, and `raft` panics where a term of 0 would be sent.
pub const FIRST_TERM: u64 = 1;
/// See [`FIRST_TERM`].
pub const FIRST_INDEX: u64 = 1;

/// The newest level of rows and records that this program knows. A group rises to a level by an entry in its log; a
/// program that does not know the level refuses to start above it.
pub const FEATURE_LEVEL: u32 = OWNERS_LEVEL;

/// The level of a log without entries.
pub const FIRST_LEVEL: u32 = 1;

/// From this level on, changes of owners travel beside the rows of an entry. Before, they are rows.
pub const OWNERS_LEVEL: u32 = 2;

const BASE_FIELDS: u32 = 6;

/// The state of a group at one entry of its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// The group.
    pub group: Uuid,
    /// The entry that the snapshot holds last.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// The number in the snapshot's name.
    pub signature: u64,
    /// The level of rows and records that the group has risen to.
    pub level: u32,
    /// The members after that entry.
    pub members: Members,
}

/// Why a state cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// The disk.
    #[error("can't {action} '{file}': {cause}")]
    Io {
        /// The operation.
        action: &'static str,
        /// The file's name.
        file: String,
        /// Why.
        cause: io::Error,
    },
    /// The file cannot be opened.
    #[error("can't open '{file}': {cause}")]
    Open {
        /// The file's name.
        file: String,
        /// Why.
        cause: Box<OpenError>,
    },
    /// The file is not as it was written.
    #[error(
        "'{file}' is damaged: {reason}. Remove this node from the group, and add an empty server in its place"
    )]
    Damaged {
        /// The file's name.
        file: String,
        /// The fault.
        reason: String,
    },
}

impl Base {
    /// The state of a new group with one member, whose snapshot has the number `signature`.
    #[must_use]
    pub fn first(group: Uuid, signature: u64, level: u32, address: String) -> Self {
        let members = Members::first(address);
        Self { group, index: FIRST_INDEX, term: FIRST_TERM, signature, level, members }
    }

    /// The state as a MessagePack array.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        mp::write_array(&mut out, BASE_FIELDS);
        mp::write_bin(&mut out, self.group.as_bytes());
        for field in [self.index, self.term, self.signature, self.level.into()] {
            mp::write_uint(&mut out, field);
        }
        self.members.encode(&mut out);
        out
    }

    /// Reads a state, which is all of `bytes`.
    ///
    /// # Errors
    /// [`CodecError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reader = Reader::new(bytes);
        let base = Self::read(&mut reader)?;
        exhausted(&reader).map(|()| base)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        fields(reader, BASE_FIELDS)?;
        let group = uuid(reader)?;
        let (index, term, signature) = (reader.uint()?, reader.uint()?, reader.uint()?);
        if index == 0 || term == 0 {
            return Err(CodecError::Value("index or term", 0));
        }
        let level = reader.uint()?;
        let level = u32::try_from(level).map_err(|_| CodecError::Value("level", level))?;
        let members = Members::decode(reader)?;
        if members.is_empty() {
            return Err(CodecError::Members);
        }
        Ok(Self { group, index, term, signature, level, members })
    }

    /// Writes `S.group`, durably, with `beside` for the layer above. A snapshot that is new gets its name after that. The
    /// same state of an earlier attempt stays as it is, and the folder is synced: that attempt may have failed to.
    ///
    /// # Errors
    /// [`BaseError`]: another state of the same entry is one.
    pub fn write(&self, directory: &Directory, beside: &[u8]) -> Result<(), BaseError> {
        let name = file_name(FileKind::GroupState, self.index);
        let temporary = format!("{name}{IN_PROGRESS}");
        let failed = |action, file: &str| {
            let file = file.to_owned();
            move |cause| BaseError::Io { action, file, cause }
        };
        let disk = directory.disk();
        let listing = directory.list().map_err(failed("list the folder of", &name))?;
        if listing.group_states.contains(&self.index) {
            let (found, _) = Self::read_file(directory, self.index)?;
            if found != *self {
                let reason = "it is another state of the same entry".to_owned();
                return Err(BaseError::Damaged { file: name, reason });
            }
            return disk.sync().map_err(failed("sync the folder of", &name));
        }
        match disk.remove(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", &temporary)(error));
            }
            _ => {}
        }
        let mut vclock = Vclock::new();
        vclock.set(1, self.index).expect("1 is a replica id");
        let meta = Meta {
            kind: FileKind::GroupState,
            written_by: WRITTEN_BY.to_owned(),
            instance: self.group,
            vclock,
            prev_vclock: None,
            has_synced_length: false,
        };
        let mut content = meta.encode().into_bytes();
        let mut record = self.encode();
        mp::write_bin(&mut record, beside);
        let encode = |content: &mut Vec<u8>| {
            Encoder::new(None).and_then(|mut encoder| encoder.encode(&record, content))
        };
        encode(&mut content).map_err(|error| failed("write", &name)(io::Error::other(error)))?;
        let mut file = disk.create(&temporary).map_err(failed("create", &temporary))?;
        write_all_at(&mut *file, &content, 0).map_err(failed("write to", &temporary))?;
        file.sync().map_err(failed("sync", &temporary))?;
        disk.rename(&temporary, &name).map_err(failed("rename to", &name))?;
        disk.sync().map_err(failed("sync the folder of", &name))
    }

    /// Reads the state of the entry `index`, and what the layer above put beside it.
    ///
    /// # Errors
    /// [`BaseError`].
    pub fn read_file(directory: &Directory, index: u64) -> Result<(Self, Vec<u8>), BaseError> {
        let file = file_name(FileKind::GroupState, index);
        let mut reader = directory
            .read(FileKind::GroupState, index)
            .map_err(|cause| BaseError::Open { file: file.clone(), cause: Box::new(cause) })?;
        let found = Self::read_from(&mut reader, &file)?;
        if found.0.index == index {
            return Ok(found);
        }
        Err(BaseError::Damaged { file, reason: format!("it is the state of entry {}", found.0.index) })
    }

    /// Reads the state that a file holds; `file` is its name in errors.
    ///
    /// # Errors
    /// [`BaseError`].
    pub fn read_from(reader: &mut FileReader, file: &str) -> Result<(Self, Vec<u8>), BaseError> {
        let damaged = |reason: String| BaseError::Damaged { file: file.to_owned(), reason };
        let read = |cause| BaseError::Io { action: "read", file: file.to_owned(), cause };
        let found = match reader.next_block().map_err(read)? {
            Step::Block(block) => {
                let mut cursor = Reader::new(block.rows);
                let mut decode = || {
                    let base = Self::read(&mut cursor)?;
                    let beside = cursor.bin()?.to_vec();
                    exhausted(&cursor).map(|()| (base, beside))
                };
                decode().map_err(|error: CodecError| damaged(error.to_string()))?
            }
            Step::End(_) => return Err(damaged("it has no state".to_owned())),
            Step::Damage(damage) => return Err(damaged(damage.to_string())),
        };
        match reader.next_block().map_err(read)? {
            Step::End(End::Open) => Ok(found),
            _ => Err(damaged("something follows the state".to_owned())),
        }
    }

    /// The newest state whose snapshot exists, and what stands beside it. `None`: the node waits for its first.
    ///
    /// # Errors
    /// [`BaseError`]: a newer state cannot be read.
    pub fn newest(directory: &Directory) -> Result<Option<(Self, Vec<u8>)>, BaseError> {
        let list = |cause| BaseError::Io { action: "list", file: "the folder".to_owned(), cause };
        let listing = directory.list().map_err(list)?;
        for &index in listing.group_states.iter().rev() {
            let found = Self::read_file(directory, index)?;
            if listing.snapshots.contains(&found.0.signature) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Removes states before this one, but for those whose snapshots are kept.
    ///
    /// # Errors
    /// [`BaseError`].
    pub(crate) fn remove_older(&self, directory: &Directory) -> Result<(), BaseError> {
        let list = |cause| BaseError::Io { action: "list", file: "the folder".to_owned(), cause };
        let listing = directory.list().map_err(list)?;
        for &index in listing.group_states.iter().filter(|index| **index < self.index) {
            let (older, _) = Self::read_file(directory, index)?;
            if older.signature == self.signature || !listing.snapshots.contains(&older.signature) {
                let file = file_name(FileKind::GroupState, index);
                let removed = directory.disk().remove(&file);
                removed.map_err(|cause| BaseError::Io { action: "remove", file, cause })?;
            }
        }
        Ok(())
    }
}

/// Reads a UUID.
pub(crate) fn uuid(reader: &mut Reader<'_>) -> Result<Uuid, CodecError> {
    let bytes = reader.bin()?;
    Uuid::from_slice(bytes).map_err(|_| CodecError::Value("length of a UUID", bytes.len() as u64))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lycosa_journal::memory::{Crash, Fault, MemoryDisk};

    use super::*;

    fn base(signature: u64) -> Base {
        Base::first(Uuid::from_u128(9), signature, FEATURE_LEVEL, "a:1".to_owned())
    }

    fn snapshot(disk: &MemoryDisk, signature: u64) {
        use lycosa_journal::disk::Disk;
        disk.create(&file_name(FileKind::Snapshot, signature)).expect("created");
    }

    #[test]
    fn a_state_counts_once_its_snapshot_has_a_name() {
        let disk = MemoryDisk::new();
        let directory = Directory::on(Arc::new(disk.clone()));
        let newest = || Base::newest(&directory).expect("read").map(|(base, _)| base);
        base(5).write(&directory, b"owners").expect("written");
        assert_eq!(newest(), None);
        // A second attempt finds the state of the first one.
        base(5).write(&directory, b"owners").expect("written");
        snapshot(&disk, 5);
        assert_eq!(newest(), Some(base(5)));
        assert_eq!(Base::read_file(&directory, FIRST_INDEX).expect("read"), (base(5), b"owners".to_vec()));
        let refused = base(6).write(&directory, b"").expect_err("another snapshot of the same entry");
        assert!(matches!(refused, BaseError::Damaged { .. }));
        // The members change without a row: the same snapshot has a newer state.
        let newer = Base { index: 9, ..base(5) };
        newer.write(&directory, b"").expect("written");
        assert_eq!(newest(), Some(newer.clone()));
        let future = Base { index: 12, ..base(7) };
        future.write(&directory, b"").expect("written");
        assert_eq!(newest(), Some(newer.clone()), "its snapshot has no name yet");
        newer.remove_older(&directory).expect("removed");
        assert_eq!(directory.list().expect("listed").group_states, [9, 12]);
    }

    #[test]
    fn a_crash_at_any_operation_leaves_a_whole_state_or_none() {
        let attempt = |operations| {
            let disk = MemoryDisk::new();
            disk.fail_after(operations, Fault::Freeze);
            let done = base(5).write(&Directory::on(Arc::new(disk.clone())), &[7; 3000]).is_ok();
            (disk, done)
        };
        let mut kept = 0;
        for operations in 0..7 {
            for seed in 0..20 {
                let (disk, done) = attempt(operations);
                let disk = disk.crash(Crash::Ragged(seed));
                let directory = Directory::on(Arc::new(disk));
                let states = directory.list().expect("listed").group_states;
                assert!(!done || states == [FIRST_INDEX]);
                for state in states {
                    kept += 1;
                    assert_eq!(Base::read_file(&directory, state).expect("whole"), (base(5), vec![7; 3000]));
                }
            }
        }
        assert!(kept > 0);
    }

    /// The folder's sync fails, as on a full disk, and the state is written again.
    #[test]
    fn a_state_that_is_written_again_outlives_a_power_loss() {
        let newer = Base { index: 9, ..base(5) };
        for operations in 0..6 {
            let disk = MemoryDisk::new();
            let directory = Directory::on(Arc::new(disk.clone()));
            snapshot(&disk, 5);
            base(5).write(&directory, b"").expect("written");
            disk.fail_after(operations, Fault::Fail(io::ErrorKind::StorageFull));
            if newer.write(&directory, b"").is_err() {
                newer.write(&directory, b"").expect("written again");
            }
            newer.remove_older(&directory).expect("removed");
            for seed in 0..20 {
                let crashed = Directory::on(Arc::new(disk.crash(Crash::Scattered(seed))));
                let found = Base::newest(&crashed).expect("read").map(|(base, _)| base);
                assert_eq!(found, Some(newer.clone()), "{operations} operations, seed {seed}");
            }
        }
    }

    #[test]
    fn no_bit_of_a_state_changes_unseen() {
        let disk = MemoryDisk::new();
        let directory = Directory::on(Arc::new(disk.clone()));
        base(5).write(&directory, b"owners").expect("written");
        let name = file_name(FileKind::GroupState, FIRST_INDEX);
        let whole = disk.files()[&name].clone();
        let read = |bytes: Vec<u8>| {
            let directory = Directory::on(Arc::new(MemoryDisk::with_files([(name.clone(), bytes)])));
            Base::read_file(&directory, FIRST_INDEX)
        };
        assert!(read(whole.clone()).is_ok());
        // The text header's line `Checksum` under another name is a key that no reader knows: its bits are left out.
        let text = String::from_utf8_lossy(&whole);
        let checksum =
            text.find("Checksum").expect("a line") * 8..(text.find("Checksum").expect("a line") + 9) * 8;
        for bit in (0..8 * whole.len()).filter(|bit| !checksum.contains(bit)) {
            let mut wrong = whole.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(read(wrong).is_err(), "bit {bit}");
        }
        for length in 0..whole.len() {
            assert!(read(whole[..length].to_vec()).is_err(), "{length} bytes");
        }
    }
}
