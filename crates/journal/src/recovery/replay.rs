//! Reading the chosen files: blocks to transactions, transactions to the target, everything else to the
//! table.

use std::io;

use lycosa_iproto::keys::GROUP_LOCAL;
use lycosa_iproto::row::{RowBody, decode_row};
use lycosa_iproto::vclock::{VCLOCK_MAX, Vclock};
use lycosa_tuple::mp;

use super::choice::Replaced;
use super::{Ledger, Progress, RecoveryError, RecoveryTarget, Source, Transaction, Xlog, io_error};
use crate::decision::{Defect, Finding};
use crate::directory::Directory;
use crate::empty_xlog::EmptyXlog;
use crate::limbo::{Limbo, Undecided};
use crate::meta::FileKind;
use crate::reader::{Damage, DamageKind, End, FileReader, OpenError, Step, Torn, TornCause};
use crate::transaction::{Next, Row, Transactions};

/// A recovery that runs.
pub(super) struct RecoveryRun<'a> {
    directory: &'a Directory,
    target: &'a mut dyn RecoveryTarget,
    pub(super) ledger: Ledger,
    /// The clock after the last whole transaction.
    pub(super) vclock: Vclock,
    limbo: Limbo,
    /// Transactions of the current xlog that could not be applied.
    inapplicable: u64,
    pub(super) progress: Progress,
}

/// Transactions of an xlog that are named if they cannot be applied; further ones are counted.
const MAX_NAMED: u64 = 10;

/// The component of the clock that counts a row.
fn component(row: &Row<'_>) -> u32 {
    if row.header.group_id == GROUP_LOCAL { 0 } else { row.header.replica_id }
}

/// The position of a block, for messages.
#[derive(Clone, Copy)]
struct BlockPosition<'a> {
    file: &'a str,
    offset: u64,
}

impl<'a> RecoveryRun<'a> {
    pub(super) fn new(
        directory: &'a Directory,
        target: &'a mut dyn RecoveryTarget,
        ledger: Ledger,
        vclock: Vclock,
        progress: Progress,
    ) -> Self {
        Self { directory, target, ledger, vclock, limbo: Limbo::default(), inapplicable: 0, progress }
    }

    fn resolve(&mut self, finding: Finding) -> Result<(), RecoveryError> {
        self.ledger.resolve(finding)?;
        if let Some(resolution) = self.ledger.resolutions.last() {
            self.target.report(resolution);
        }
        Ok(())
    }

    fn apply(
        &mut self,
        source: Source,
        rows: &[Row<'_>],
        position: BlockPosition<'_>,
    ) -> Result<(), RecoveryError> {
        let transaction = Transaction { source, rows, progress: self.progress };
        self.progress.rows += rows.len() as u64;
        let Err(cause) = self.target.apply(&transaction) else { return Ok(()) };
        let (file, offset) = (position.file.to_owned(), position.offset);
        let lsn = rows.first().map_or(0, |row| row.header.lsn);
        if source == Source::Snapshot {
            return Err(RecoveryError::Apply { file, offset, row: lsn, cause });
        }
        self.inapplicable += 1;
        if self.inapplicable > MAX_NAMED {
            return Ok(());
        }
        self.resolve(Finding::Inapplicable { file, offset, lsn, cause: cause.to_string() })
    }

    /// Reports the number of transactions of a file that could not be applied, besides the named ones.
    fn resolve_inapplicable(&mut self, file: &str) -> Result<(), RecoveryError> {
        match std::mem::take(&mut self.inapplicable).checked_sub(MAX_NAMED) {
            None | Some(0) => Ok(()),
            Some(transactions) => {
                self.resolve(Finding::MoreInapplicable { file: file.to_owned(), transactions })
            }
        }
    }

    pub(super) fn read_snapshot(&mut self, reader: &mut FileReader, name: &str) -> Result<(), RecoveryError> {
        let directory = self.directory;
        let failed = |cause| io_error(directory, name, cause);
        let mut next_lsn = 0;
        let base = self.progress.bytes_done;
        loop {
            self.progress.bytes_done = base + reader.offset();
            let damage = match reader.next_block().map_err(failed)? {
                Step::Block(block) => {
                    let position = BlockPosition { file: name, offset: block.offset };
                    match self.read_snapshot_block(block.rows, position, &mut next_lsn)? {
                        None => continue,
                        Some(kind) => Damage { offset: block.offset, kind },
                    }
                }
                Step::End(End::Marker) => break,
                Step::End(end) => {
                    let defect = match end {
                        End::Torn(torn) => Defect::Torn(torn),
                        End::Open | End::Marker => Defect::NoEnd,
                    };
                    self.resolve(Finding::SnapshotUnsound { file: name.to_owned(), defect, older: false })?;
                    break;
                }
                Step::Damage(damage) => damage,
            };
            self.skip(reader, name, damage)?;
        }
        self.progress.bytes_done = base + reader.size().map_err(failed)?;
        self.target.end_of_snapshot().map_err(|cause| RecoveryError::Apply {
            file: name.to_owned(),
            offset: reader.offset(),
            row: next_lsn,
            cause,
        })
    }

    /// Hands over the rows of a block; what stops being rows is returned.
    fn read_snapshot_block(
        &mut self,
        bytes: &[u8],
        position: BlockPosition<'_>,
        next_lsn: &mut u64,
    ) -> Result<Option<DamageKind>, RecoveryError> {
        let mut transactions = Transactions::new(bytes);
        let mut rows = Vec::new();
        loop {
            match transactions.next(&mut rows) {
                Ok(Next::Transaction(_)) => {
                    let lsn = rows[0].header.lsn;
                    if lsn > *next_lsn {
                        self.resolve(Finding::RowsMissing {
                            file: position.file.to_owned(),
                            offset: position.offset,
                            replica_id: 0,
                            first: *next_lsn,
                            last: lsn - 1,
                        })?;
                    }
                    *next_lsn = lsn.wrapping_add(rows.len() as u64);
                    self.apply(Source::Snapshot, &rows, position)?;
                }
                Ok(Next::End) => return Ok(None),
                Ok(Next::Partial(at)) => {
                    return Ok(Some(DamageKind::Row {
                        at,
                        reason: "a transaction without an end".to_owned(),
                    }));
                }
                Err(kind) => return Ok(Some(kind)),
            }
        }
    }

    /// Reads an xlog to its end. Returns how to write it on, if it has nothing after its text header but an
    /// end.
    pub(super) fn read_xlog(&mut self, xlog: &Xlog) -> Result<Option<EmptyXlog>, RecoveryError> {
        let is_ahead = xlog.vclock.iter().any(|(id, lsn)| lsn > self.vclock.get(id));
        if is_ahead {
            let (reached, begins) = (Box::new(self.vclock.clone()), Box::new(xlog.vclock.clone()));
            self.resolve(Finding::Gap { file: xlog.name.clone(), reached, begins })?;
            for (id, lsn) in xlog.vclock.iter() {
                let lsn = lsn.max(self.vclock.get(id));
                self.vclock.set(id, lsn).expect("the id comes from a vclock");
            }
        }
        let directory = self.directory;
        let failed = |cause| io_error(directory, &xlog.name, cause);
        let mut reader = match directory.read(FileKind::Xlog, xlog.signature) {
            Ok(reader) => reader,
            Err(OpenError::Io(cause)) => return Err(failed(cause)),
            // It was readable a moment ago.
            Err(changed) => return Err(failed(io::Error::other(changed.to_string()))),
        };
        let base = self.progress.bytes_done;
        let mut reading =
            Reading { name: &xlog.name, carried: Vec::new(), carried_from: 0, has_content: false };
        let end = loop {
            self.progress.bytes_done = base + reader.offset();
            let damage = match reader.next_block().map_err(failed)? {
                Step::Block(block) => {
                    reading.has_content = true;
                    match self.read_xlog_block(&mut reading, block.rows, block.offset)? {
                        None => continue,
                        Some(kind) => Damage { offset: block.offset, kind },
                    }
                }
                Step::End(end) => break end,
                Step::Damage(damage) => damage,
            };
            reading.has_content = true;
            reading.carried.clear();
            self.skip(&mut reader, &xlog.name, damage)?;
        };
        let size = reader.size().map_err(failed)?;
        self.progress.bytes_done = base + size;
        self.resolve_inapplicable(&xlog.name)?;
        self.resolve_end(&reading, end, size)?;
        let empty = EmptyXlog {
            name: xlog.name.clone(),
            header_bytes: reader.first_block(),
            is_closed: end == End::Marker,
            prev_vclock: reader.meta().prev_vclock.clone().map(Box::new),
            has_synced_length: reader.meta().has_synced_length,
        };
        Ok((!reading.has_content).then_some(empty))
    }

    fn resolve_end(&mut self, reading: &Reading<'_>, end: End, size: u64) -> Result<(), RecoveryError> {
        let file = reading.name.to_owned();
        let reached = Box::new(self.vclock.clone());
        if !reading.carried.is_empty() {
            let offset = reading.carried_from;
            if end == End::Marker {
                let kind = DamageKind::Row { at: 0, reason: "a transaction without an end".to_owned() };
                return self.resolve(Finding::Damaged {
                    file,
                    damage: Damage { offset, kind },
                    resumes: None,
                });
            }
            let torn = Torn { offset, bytes: size.saturating_sub(offset), cause: TornCause::Transaction };
            return self.resolve(Finding::TornTail { file, torn, reached });
        }
        match end {
            End::Marker => Ok(()),
            End::Open => self.resolve(Finding::NotClosed { file }),
            End::Torn(torn) => self.resolve(Finding::TornTail { file, torn, reached }),
        }
    }

    /// Settles a damage and goes on after it.
    fn skip(&mut self, reader: &mut FileReader, name: &str, damage: Damage) -> Result<(), RecoveryError> {
        // A block whose rows are wrong has been passed already; any other still lies ahead.
        let resumes = if reader.offset() > damage.offset {
            Some(reader.offset())
        } else {
            reader.skip_damage().map_err(|cause| io_error(self.directory, name, cause))?
        };
        self.resolve(Finding::Damaged { file: name.to_owned(), damage, resumes })
    }

    /// Takes the transactions of a block; what stops being rows is returned.
    fn read_xlog_block(
        &mut self,
        reading: &mut Reading<'_>,
        bytes: &[u8],
        offset: u64,
    ) -> Result<Option<DamageKind>, RecoveryError> {
        let mut joined = std::mem::take(&mut reading.carried);
        let bytes = if joined.is_empty() {
            reading.carried_from = offset;
            bytes
        } else {
            joined.extend_from_slice(bytes);
            &joined
        };
        let position = BlockPosition { file: reading.name, offset };
        let mut transactions = Transactions::new(bytes);
        let mut rows = Vec::new();
        loop {
            match transactions.next(&mut rows) {
                Ok(Next::Transaction(_)) => {
                    if let Some(kind) = self.take(&mut rows, position)? {
                        return Ok(Some(kind));
                    }
                    reading.carried_from = offset;
                }
                Ok(Next::End) => return Ok(None),
                Ok(Next::Partial(at)) => {
                    reading.carried = bytes[at..].to_vec();
                    return Ok(None);
                }
                Err(kind) => return Ok(Some(kind)),
            }
        }
    }

    /// Advances the clock by a transaction and delivers its new rows.
    fn take(
        &mut self,
        rows: &mut Vec<Row<'_>>,
        position: BlockPosition<'_>,
    ) -> Result<Option<DamageKind>, RecoveryError> {
        if let Some(row) = rows.iter().find(|row| component(row) as usize >= VCLOCK_MAX) {
            let reason = format!("replica id {} is not below {VCLOCK_MAX}", row.header.replica_id);
            return Ok(Some(DamageKind::Row { at: 0, reason }));
        }
        let vclock = &mut self.vclock;
        let mut missing = Vec::new();
        rows.retain(|row| {
            let (component, lsn) = (component(row), row.header.lsn);
            let reached = vclock.get(component);
            if lsn <= reached {
                return false;
            }
            if lsn - reached > 1 {
                missing.push((component, reached + 1, lsn - 1));
            }
            vclock.set(component, lsn).is_ok()
        });
        for (replica_id, first, last) in missing {
            let (file, offset) = (position.file.to_owned(), position.offset);
            self.resolve(Finding::RowsMissing { file, offset, replica_id, first, last })?;
        }
        if !rows.is_empty() {
            self.deliver(rows, position)?;
        }
        Ok(None)
    }

    /// Hands a transaction over, or lets it wait for its verdict.
    fn deliver(&mut self, rows: &[Row<'_>], position: BlockPosition<'_>) -> Result<(), RecoveryError> {
        match rows {
            [Row { body: RowBody::Confirm { replica_id, lsn }, .. }] => {
                let released = self.limbo.confirm(*replica_id, *lsn);
                self.apply_released(&released, position)?;
            }
            [Row { body: RowBody::Rollback { replica_id, lsn }, .. }] => {
                self.limbo.roll_back(*replica_id, *lsn);
            }
            _ => {
                let mut spaces = rows.iter().filter_map(|row| row.body.space());
                let is_synchronous = spaces.any(|space| self.target.is_synchronous(space));
                if is_synchronous || !self.limbo.is_empty() {
                    self.limbo.push(rows, is_synchronous);
                    return Ok(());
                }
            }
        }
        self.apply(Source::Xlog, rows, position)
    }

    /// Hands over transactions that waited.
    fn apply_released(
        &mut self,
        released: &[Vec<u8>],
        position: BlockPosition<'_>,
    ) -> Result<(), RecoveryError> {
        for encoded in released {
            let mut rows = Vec::new();
            let mut reader = mp::Reader::new(encoded);
            while !reader.is_empty() {
                let (header, body) = decode_row(&mut reader).expect("the row was encoded here");
                rows.push(Row { header, body });
            }
            self.apply(Source::Xlog, &rows, position)?;
        }
        Ok(())
    }

    /// Hands over what got no verdict.
    pub(super) fn end_limbo(&mut self, last_xlog: &str) -> Result<(), RecoveryError> {
        if let Some(Undecided { transactions, replica_id, lsn }) = self.limbo.undecided() {
            self.resolve(Finding::Unconfirmed { transactions, replica_id, lsn })?;
        }
        let released = self.limbo.release();
        self.apply_released(&released, BlockPosition { file: last_xlog, offset: 0 })?;
        self.resolve_inapplicable(last_xlog)
    }

    pub(super) fn check_replaced(&mut self, replaced: &[Replaced]) -> Result<(), RecoveryError> {
        for snapshot in replaced {
            let is_reached = match &snapshot.vclock {
                Some(vclock) => *vclock <= self.vclock,
                None => snapshot.signature <= self.vclock.signature(),
            };
            if !is_reached {
                let needed = snapshot
                    .vclock
                    .as_ref()
                    .map_or_else(|| snapshot.signature.to_string(), Vclock::to_string);
                let (file, reached) = (snapshot.name.clone(), Box::new(self.vclock.clone()));
                self.resolve(Finding::FallBackTooShort { file, reached, needed })?;
            }
        }
        Ok(())
    }
}

/// An xlog that is being read.
struct Reading<'a> {
    name: &'a str,
    /// Rows of a transaction whose end the blocks so far do not hold.
    carried: Vec<u8>,
    /// The block in which it begins.
    carried_from: u64,
    /// Whether there is anything but an end after the text header.
    has_content: bool,
}
