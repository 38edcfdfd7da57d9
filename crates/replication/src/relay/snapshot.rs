//! JOIN: rows of files become frames.

use lycosa_iproto::keys::RequestType;
use lycosa_iproto::row::{RowBody, RowError, decode_row};
use lycosa_iproto::vclock::Vclock;
use lycosa_tuple::mp::Reader;

use super::request::IdFilter;
use crate::stream::{self, frame, span};

/// The first part of a JOIN: rows of a snapshot. Each loses its header but for the type; local rows stay.
#[derive(Debug, Clone, Copy, Default)]
pub struct SnapshotRows;

impl SnapshotRows {
    /// Appends the frames of the rows in `rows`, the content of a snapshot's block. Returns how many they are.
    ///
    /// # Errors
    /// Bytes that are no row.
    pub fn send(self, rows: &[u8], out: &mut Vec<u8>) -> Result<u64, RowError> {
        let mut reader = Reader::new(rows);
        let mut sent = 0;
        while !reader.is_empty() {
            let (header, body) = decode_row(&mut reader)?;
            let RowBody::Insert { space, tuple } = body else { continue };
            if header.group_id != 0 {
                continue;
            }
            sent += 1;
            frame(out, |out| {
                // The space's number is as wide as in a snapshot file.
                out.extend_from_slice(&[0x81, 0x00, RequestType::Insert as u8, 0x82, 0x10, 0xce]);
                out.extend_from_slice(&space.to_be_bytes());
                out.push(0x21);
                out.extend_from_slice(tuple);
            });
        }
        Ok(sent)
    }
}

/// The log as one replica wants it: the second part of a JOIN, and what a subscribed replica has missed. It can be used on
/// another thread than its [`Relay`](super::Relay).
#[derive(Debug, Clone)]
pub struct LogRows {
    position: Vclock,
    filter: IdFilter,
}

impl LogRows {
    /// Everything after a snapshot with this clock.
    #[must_use]
    pub fn after(snapshot: &Vclock) -> Self {
        Self { position: snapshot.replicated(), filter: IdFilter::default() }
    }

    pub(super) fn new(position: Vclock, filter: IdFilter) -> Self {
        Self { position, filter }
    }

    /// What the receiver has or was sent.
    #[must_use]
    pub fn position(&self) -> &Vclock {
        &self.position
    }

    pub(super) fn position_mut(&mut self) -> &mut Vclock {
        &mut self.position
    }

    pub(super) fn filter(&self) -> IdFilter {
        self.filter
    }

    /// Appends the frames of the rows in `rows`, whole transactions of the log, that the receiver does not have, wants, and
    /// that are not local.
    ///
    /// # Errors
    /// Bytes that are no row.
    pub fn send(&mut self, rows: &[u8], out: &mut Vec<u8>) -> Result<(), RowError> {
        let mut rest = rows;
        while !rest.is_empty() {
            let row = span(rest).map_err(|_| RowError::Header)?;
            let (encoded, tail) = rest.split_at(row.length);
            rest = tail;
            let is_known = row.lsn <= self.position.get(row.replica_id);
            if row.is_local || self.filter.excludes(row.replica_id) || is_known {
                continue;
            }
            self.position.set(row.replica_id, row.lsn).map_err(|_| RowError::Header)?;
            stream::row(out, encoded);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lycosa_iproto::row::encode_snapshot_row;

    use super::*;
    use crate::transcript::Transcript;

    #[test]
    fn rows_of_a_snapshot_are_sent_as_recorded() {
        let transcript = Transcript::read("20-replication-join.json");
        let recorded = transcript.of_master("row of space 272").expect("recorded").to_vec();
        let mut rows = Vec::new();
        let tuple = &recorded[5 + 11..];
        encode_snapshot_row(&mut rows, 0, 1.5, 0, 272, tuple);
        encode_snapshot_row(&mut rows, 1, 1.5, 1, 600, &[0x91, 0x01]);
        let mut out = Vec::new();
        assert_eq!(SnapshotRows.send(&rows, &mut out), Ok(1));
        assert_eq!(out, recorded);
        assert!(SnapshotRows.send(&[0xc1], &mut out).is_err());
    }
}
