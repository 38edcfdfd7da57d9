//! The choice of the snapshot and the xlogs that make up the database. Only text headers are read here, and the blocks of
//! snapshots that have one to fall back to.

use std::io;

use lycosa_iproto::vclock::Vclock;
use uuid::Uuid;

use super::{Ledger, RecoveryError, Xlog, io_error};
use crate::decision::{Defect, Finding, HeaderDefect};
use crate::directory::{Directory, Listing, file_name};
use crate::meta::{FileKind, Meta};
use crate::reader::{End, FileReader, OpenError, Step, Torn};

/// The snapshot to begin with.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) reader: FileReader,
    pub(super) name: String,
    /// Newer ones that are not sound: the xlogs must make up for them.
    pub(super) replaced: Vec<Replaced>,
}

/// A snapshot that is not sound, and how far the xlogs must reach to make up for it.
#[derive(Debug)]
pub(super) struct Replaced {
    pub(super) name: String,
    pub(super) signature: u64,
    /// Known if its text header can be read.
    pub(super) vclock: Option<Vclock>,
}

/// The newest snapshot that is sound; in force mode, if none is, the newest whose header is.
pub(super) fn choose_snapshot(
    directory: &Directory,
    listing: &Listing,
    ledger: &mut Ledger,
) -> Result<Chosen, RecoveryError> {
    let mut unsound = Vec::new();
    let mut chosen = None;
    // With nothing to fall back to, a defect that shows when the rows are read is early enough.
    let is_verified = listing.snapshots.len() > 1;
    for &signature in listing.snapshots.iter().rev() {
        let name = file_name(FileKind::Snapshot, signature);
        let failed = |cause| io_error(directory, &name, cause);
        match open_snapshot(directory, signature).map_err(failed)? {
            Err(defect) => unsound.push((name, signature, None, Defect::Header(defect))),
            Ok(mut reader) => {
                let defect = if is_verified { verify(&mut reader).map_err(failed)? } else { None };
                if let Some(defect) = defect {
                    unsound.push((name, signature, Some(reader), defect));
                } else if unsound.is_empty() || has_xlog_for(directory, &listing.xlogs, &reader.meta().vclock)
                {
                    chosen = Some((reader, name));
                    break;
                }
            }
        }
    }
    if chosen.is_none() {
        let salvaged = unsound.iter().position(|(_, _, reader, _)| reader.is_some()).unwrap_or(0);
        let (name, _, reader, defect) = unsound.swap_remove(salvaged);
        ledger.resolve(Finding::SnapshotUnsound { file: name.clone(), defect, older: false })?;
        unsound.truncate(salvaged);
        chosen = reader.map(|reader| (reader, name));
    }
    let mut replaced = Vec::new();
    for (name, signature, reader, defect) in unsound {
        ledger.resolve(Finding::SnapshotUnsound { file: name.clone(), defect, older: true })?;
        let vclock = reader.map(|reader| reader.meta().vclock.clone());
        replaced.push(Replaced { name, signature, vclock });
    }
    let (reader, name) = chosen.expect("a snapshot without a readable header is refused in every mode");
    for key in reader.unknown_keys() {
        ledger.resolve(Finding::UnknownKey { file: name.clone(), key: key.clone() })?;
    }
    Ok(Chosen { reader, name, replaced })
}

fn open_snapshot(directory: &Directory, signature: u64) -> io::Result<Result<FileReader, HeaderDefect>> {
    let defect = match directory.read(FileKind::Snapshot, signature) {
        Ok(reader) if reader.meta().vclock.signature() == signature => return Ok(Ok(reader)),
        Ok(reader) => {
            HeaderDefect::Signature { name: signature, vclock: Box::new(reader.meta().vclock.clone()) }
        }
        Err(OpenError::Io(cause)) => return Err(cause),
        Err(OpenError::Torn(torn)) => HeaderDefect::Torn(torn),
        Err(OpenError::Meta(error)) => HeaderDefect::Meta(error),
    };
    Ok(Err(defect))
}

/// Checks every block of a snapshot and its end, and goes back to its beginning.
fn verify(snapshot: &mut FileReader) -> io::Result<Option<Defect>> {
    let defect = loop {
        match snapshot.next_stored()? {
            Step::Block(_) => {}
            Step::End(End::Marker) => break None,
            Step::End(End::Open) => break Some(Defect::NoEnd),
            Step::End(End::Torn(torn)) => break Some(Defect::Torn(torn)),
            Step::Damage(damage) => break Some(Defect::Damage(damage)),
        }
    };
    snapshot.seek(snapshot.first_block());
    Ok(defect)
}

/// Whether some xlog begins at or before `vclock`.
fn has_xlog_for(directory: &Directory, xlogs: &[u64], vclock: &Vclock) -> bool {
    xlogs.iter().any(|&signature| {
        directory.read(FileKind::Xlog, signature).is_ok_and(|reader| reader.meta().vclock <= *vclock)
    })
}

/// An xlog whose text header has been looked at.
enum Opened {
    Sound(Box<Xlog>),
    Torn(Torn),
    Bad(HeaderDefect),
    Foreign(Uuid),
}

/// The xlogs from the one that holds the snapshot's clock on. Faults of earlier ones do not
/// matter.
pub(super) fn choose_xlogs(
    directory: &Directory,
    signatures: &[u64],
    snapshot: &Meta,
    ledger: &mut Ledger,
) -> Result<Vec<Xlog>, RecoveryError> {
    let mut opened = Vec::with_capacity(signatures.len());
    for &signature in signatures {
        let name = file_name(FileKind::Xlog, signature);
        let found = open_xlog(directory, signature, &name, snapshot.instance);
        opened.push((found.map_err(|cause| io_error(directory, &name, cause))?, name));
    }
    let holds_snapshot =
        |found: &Opened| matches!(found, Opened::Sound(xlog) if xlog.vclock <= snapshot.vclock);
    let first = opened.iter().rposition(|(found, _)| holds_snapshot(found)).unwrap_or(0);
    let mut xlogs = Vec::new();
    for (found, file) in opened.drain(first..) {
        let finding = match found {
            Opened::Sound(mut xlog) => {
                for key in std::mem::take(&mut xlog.unknown_keys) {
                    ledger.resolve(Finding::UnknownKey { file: file.clone(), key })?;
                }
                xlogs.push(*xlog);
                continue;
            }
            Opened::Torn(torn) => Finding::TornHeader { file, torn },
            Opened::Bad(error) => Finding::BadHeader { file, error },
            Opened::Foreign(theirs) => Finding::Foreign { file, theirs, ours: snapshot.instance },
        };
        ledger.resolve(finding)?;
    }
    Ok(xlogs)
}

fn open_xlog(directory: &Directory, signature: u64, name: &str, instance: Uuid) -> io::Result<Opened> {
    let reader = match directory.read(FileKind::Xlog, signature) {
        Ok(reader) => reader,
        Err(OpenError::Io(cause)) => return Err(cause),
        Err(OpenError::Torn(torn)) => return Ok(Opened::Torn(torn)),
        Err(OpenError::Meta(error)) => return Ok(Opened::Bad(error.into())),
    };
    let meta = reader.meta();
    if meta.instance != instance {
        return Ok(Opened::Foreign(meta.instance));
    }
    let vclock = meta.vclock.clone();
    if vclock.signature() != signature {
        return Ok(Opened::Bad(HeaderDefect::Signature { name: signature, vclock: Box::new(vclock) }));
    }
    let (bytes, unknown_keys) = (reader.size()?, reader.unknown_keys().to_vec());
    Ok(Opened::Sound(Box::new(Xlog { name: name.to_owned(), signature, vclock, bytes, unknown_keys })))
}
