//! What an entry of a group's log holds: the rows of one batch, and where its transactions end.
//!
//! Rows are as a journal has them, with stamps: replica id, LSN, time. So a member that applies an entry needs nothing else.
//!
//! Absent: which entries are committed.

use lycosa_iproto::row::{RowBody, RowHeader, decode_row};
use lycosa_tuple::mp::{self, MpError, Reader};

/// The form of entries that this program writes. A program refuses a form that it does not know.
const FORM: u64 = 1;
const FIELDS: u32 = 3;

/// Why an entry cannot be read. The entry was committed: a node that cannot read it must leave its service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// It is not as it was written.
    #[error("an entry of the group's log cannot be read: {0}")]
    MessagePack(#[from] MpError),
    /// A newer program has written it.
    #[error(
        "an entry of the group's log has form {0}, this program knows form {FORM}: start a newer version"
    )]
    Form(u64),
    /// The rows or the ends of transactions do not fit each other.
    #[error("an entry of the group's log is damaged: {0}")]
    Damaged(String),
}

/// Makes an entry of a batch's rows, back to back, and the offset after each transaction.
#[must_use]
pub fn encode(rows: &[u8], ends: &[u32]) -> Vec<u8> {
    // A head and an end take at most five bytes each.
    let mut out = Vec::with_capacity(rows.len() + 5 * ends.len() + 16);
    mp::write_array(&mut out, FIELDS);
    mp::write_uint(&mut out, FORM);
    let count = u32::try_from(ends.len()).expect("a batch is full long before it has 2^32 transactions");
    mp::write_array(&mut out, count);
    ends.iter().for_each(|end| mp::write_uint(&mut out, (*end).into()));
    mp::write_bin(&mut out, rows);
    out
}

/// A row with its stamp.
pub type Stamped<'a> = (RowHeader, RowBody<'a>);

/// Reads an entry: its transactions in order, each with at least one row.
///
/// # Errors
/// [`EntryError`].
pub fn decode(bytes: &[u8]) -> Result<Vec<Vec<Stamped<'_>>>, EntryError> {
    let damaged = |reason: &str| EntryError::Damaged(reason.to_owned());
    let mut reader = Reader::new(bytes);
    if reader.array()? != FIELDS {
        return Err(damaged("it has another number of fields"));
    }
    match reader.uint()? {
        FORM => {}
        other => return Err(EntryError::Form(other)),
    }
    let count = reader.array()?;
    let mut ends = Vec::new();
    for _ in 0..count {
        ends.push(reader.uint()?);
    }
    let rows = reader.bin()?;
    if !reader.is_empty() {
        return Err(damaged("something follows its rows"));
    }
    let mut begin = 0;
    let mut transactions = Vec::with_capacity(ends.len());
    for end in ends {
        let end = usize::try_from(end).map_err(|_| damaged("a transaction ends behind its rows"))?;
        let part = rows.get(begin..end).filter(|part| !part.is_empty());
        let mut part = Reader::new(part.ok_or_else(|| damaged("a transaction has no rows"))?);
        let mut transaction = Vec::new();
        while !part.is_empty() {
            let row = decode_row(&mut part).map_err(|error| EntryError::Damaged(error.to_string()))?;
            transaction.push(row);
        }
        transactions.push(transaction);
        begin = end;
    }
    if begin == rows.len() { Ok(transactions) } else { Err(damaged("rows follow its last transaction")) }
}

#[cfg(test)]
mod tests {
    use lycosa_iproto::row::encode_row;

    use super::*;

    fn entry() -> Vec<u8> {
        let (mut rows, mut ends) = (Vec::new(), Vec::new());
        for lsn in 1..=3_u64 {
            let header = RowHeader { tsn: lsn.min(2), is_commit: lsn != 2, ..RowHeader::single(1, lsn, 2.5) };
            encode_row(&mut rows, &header, &RowBody::Delete { space: 512, index: 0, key: &[0x91, 0x07] });
            if header.is_commit {
                ends.push(rows.len() as u32);
            }
        }
        encode(&rows, &ends)
    }

    #[test]
    fn an_entry_reads_back_with_its_transactions() {
        let bytes = entry();
        let transactions = decode(&bytes).expect("an entry");
        let lsns: Vec<Vec<u64>> =
            transactions.iter().map(|rows| rows.iter().map(|(header, _)| header.lsn).collect()).collect();
        assert_eq!(lsns, [vec![1], vec![2, 3]]);
        assert!(transactions[1][1].0.is_commit && !transactions[1][0].0.is_commit);
    }

    #[test]
    fn no_cut_and_no_foreign_form_is_taken_for_an_entry() {
        let bytes = entry();
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        let mut newer = bytes.clone();
        newer[1] = 2;
        assert_eq!(decode(&newer), Err(EntryError::Form(2)));
        let longer = [bytes.as_slice(), &[0xc0]].concat();
        assert!(matches!(decode(&longer), Err(EntryError::Damaged(_))));
        assert!(decode(&encode(&[], &[0])).is_err(), "a transaction without rows");
    }
}
