//! Entries of a group's log: the rows of one batch, where its transactions end, and changes of owners.
//!
//! Rows are as a journal has them, with stamps: replica id, LSN, time. So a member that applies an entry needs nothing else.
//! Changes of owners ([`OwnerChanges`]) have no stamps and belong to the rows of the whole entry: they count once these are applied. An
//! entry has some only in a group that has risen to [`OWNERS_LEVEL`](lycosa_group::base::OWNERS_LEVEL).
//!
//! Absent: which entries are committed.

use lycosa_iproto::row::{RowBody, RowHeader, decode_row};
use lycosa_queue::{OwnerChange, OwnerChangeError, OwnerChanges};
use lycosa_tuple::mp::{self, MpError, Reader};

/// The form of an entry without changes of owners. A program refuses a form that it does not know.
const PLAIN: u64 = 1;
/// The form of an entry with changes of owners, which are its last field.
const WITH_OWNERS: u64 = 2;
const PLAIN_FIELDS: u32 = 3;

/// Why an entry cannot be read. The entry was committed: a node that cannot read it must leave its service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// It is not as it was written.
    #[error("an entry of the group's log cannot be read: {0}")]
    MessagePack(#[from] MpError),
    /// A newer program has written it.
    #[error(
        "an entry of the group's log has form {0}, this program knows forms up to {WITH_OWNERS}: start a newer version"
    )]
    Form(u64),
    /// The rows or the ends of transactions do not fit each other.
    #[error("an entry of the group's log is damaged: {0}")]
    Damaged(String),
    /// The changes of owners.
    #[error("an entry of the group's log is damaged: {0}")]
    Owners(#[from] OwnerChangeError),
}

/// Makes an entry of a batch's rows, back to back, the offset after each transaction, and the changes of owners.
#[must_use]
pub fn encode(rows: &[u8], ends: &[u32], owners: &[u8]) -> Vec<u8> {
    // A head and an end take at most five bytes each.
    let mut out = Vec::with_capacity(rows.len() + owners.len() + 5 * ends.len() + 24);
    mp::write_array(&mut out, PLAIN_FIELDS + u32::from(!owners.is_empty()));
    mp::write_uint(&mut out, if owners.is_empty() { PLAIN } else { WITH_OWNERS });
    let count = u32::try_from(ends.len()).expect("a batch is full long before it has 2^32 transactions");
    mp::write_array(&mut out, count);
    ends.iter().for_each(|end| mp::write_uint(&mut out, (*end).into()));
    mp::write_bin(&mut out, rows);
    if !owners.is_empty() {
        mp::write_bin(&mut out, owners);
    }
    out
}

/// A row with its stamp.
pub type Stamped<'a> = (RowHeader, RowBody<'a>);

/// The content of an entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry<'a> {
    /// Its transactions in order, each with at least one row.
    pub transactions: Vec<Vec<Stamped<'a>>>,
    /// Changes of owners: [`OwnerChanges`].
    pub owners: &'a [u8],
}

impl<'a> Entry<'a> {
    /// All rows in order.
    pub fn rows(&self) -> impl Iterator<Item = &Stamped<'a>> {
        self.transactions.iter().flatten()
    }

    /// The changes of owners as changes of the rows of `_queue_taken_2`, which come behind all rows.
    ///
    /// # Errors
    /// [`EntryError::Owners`].
    pub fn owner_rows(&self) -> Result<Vec<RowBody<'a>>, EntryError> {
        let body = |change| match change {
            OwnerChange::Owned { space, row } => RowBody::Replace { space, tuple: row },
            OwnerChange::Free { space, key } => RowBody::Delete { space, index: 0, key },
        };
        OwnerChanges::new(self.owners).map(|change| Ok(body(change?))).collect()
    }
}

/// Reads an entry. Its changes of owners are not looked at.
///
/// # Errors
/// [`EntryError`].
pub fn decode(bytes: &[u8]) -> Result<Entry<'_>, EntryError> {
    let damaged = |reason: &str| EntryError::Damaged(reason.to_owned());
    let mut reader = Reader::new(bytes);
    let fields = reader.array()?;
    let with_owners = match reader.uint()? {
        PLAIN => false,
        WITH_OWNERS => true,
        other => return Err(EntryError::Form(other)),
    };
    if fields != PLAIN_FIELDS + u32::from(with_owners) {
        return Err(damaged("it has another number of fields"));
    }
    let count = reader.array()?;
    let mut ends = Vec::new();
    for _ in 0..count {
        ends.push(reader.uint()?);
    }
    let rows = reader.bin()?;
    let owners = if with_owners { reader.bin()? } else { &[] };
    if !reader.is_empty() {
        return Err(damaged("something follows its last field"));
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
    if begin != rows.len() {
        return Err(damaged("rows follow its last transaction"));
    }
    Ok(Entry { transactions, owners })
}

#[cfg(test)]
mod tests {
    use lycosa_iproto::row::encode_row;

    use super::*;

    /// Space 513: a task has an owner, and another one has none.
    const OWNERS: [u8; 12] = [0xcd, 2, 1, 0x93, 1, 2, 3, 0x92, 1, 0xcd, 1, 44];

    fn entry(owners: &[u8]) -> Vec<u8> {
        let (mut rows, mut ends) = (Vec::new(), Vec::new());
        for lsn in 1..=3_u64 {
            let header = RowHeader { tsn: lsn.min(2), is_commit: lsn != 2, ..RowHeader::single(1, lsn, 2.5) };
            encode_row(&mut rows, &header, &RowBody::Delete { space: 512, index: 0, key: &[0x91, 0x07] });
            if header.is_commit {
                ends.push(rows.len() as u32);
            }
        }
        encode(&rows, &ends, owners)
    }

    #[test]
    fn an_entry_reads_back_with_its_transactions() {
        let bytes = entry(&[]);
        let entry = decode(&bytes).expect("an entry");
        assert_eq!(entry.owner_rows(), Ok(Vec::new()));
        let transactions = entry.transactions;
        let lsns: Vec<Vec<u64>> =
            transactions.iter().map(|rows| rows.iter().map(|(header, _)| header.lsn).collect()).collect();
        assert_eq!(lsns, [vec![1], vec![2, 3]]);
        assert!(transactions[1][1].0.is_commit && !transactions[1][0].0.is_commit);
    }

    #[test]
    fn changes_of_owners_are_rows_without_stamps() {
        let bytes = entry(&OWNERS);
        let rows = decode(&bytes).expect("an entry").owner_rows().expect("changes");
        let owned = RowBody::Replace { space: 513, tuple: &[0x93, 1, 2, 3] };
        let free = RowBody::Delete { space: 513, index: 0, key: &[0x92, 1, 0xcd, 1, 44] };
        assert_eq!(rows, [owned, free]);
        let foreign = entry(&[0x92, 1, 1]);
        let refused = decode(&foreign).expect("an entry").owner_rows();
        assert_eq!(refused, Err(EntryError::Owners(OwnerChangeError::Space)));
    }

    #[test]
    fn no_cut_and_no_foreign_form_is_taken_for_an_entry() {
        for bytes in [entry(&[]), entry(&OWNERS)] {
            for length in 0..bytes.len() {
                assert!(decode(&bytes[..length]).is_err(), "{length} bytes");
            }
            let mut newer = bytes.clone();
            newer[1] = 3;
            assert_eq!(decode(&newer), Err(EntryError::Form(3)));
            let mut other = bytes.clone();
            other[1] = 3 - bytes[1];
            assert!(matches!(decode(&other), Err(EntryError::Damaged(_))));
            let longer = [bytes.as_slice(), &[0xc0]].concat();
            assert!(matches!(decode(&longer), Err(EntryError::Damaged(_))));
        }
        assert!(decode(&encode(&[], &[0], &[])).is_err(), "a transaction without rows");
    }
}
