//! Rows, back to back, as in a block of a journal.

use lycosa_iproto::row::{RowBody, RowHeader, decode_row, encode_row};
use lycosa_journal::transaction::{Next, Transactions};
use lycosa_tuple::mp::Reader;

/// Decodes rows one by one and as transactions. A row that was decoded is the same after it was encoded.
///
/// # Panics
/// If it is not.
pub fn row(data: &[u8]) {
    let mut reader = Reader::new(data);
    while !reader.is_empty() {
        match decode_row(&mut reader) {
            Ok((header, body)) => check(&header, &body),
            Err(error) => {
                let _ = error.to_string();
                break;
            }
        }
    }
    let mut transactions = Transactions::new(data);
    let mut rows = Vec::new();
    let mut end = 0;
    while let Ok(Next::Transaction(range)) = transactions.next(&mut rows) {
        assert!(range.start == end && range.end > end && range.end <= data.len());
        assert!(rows.last().is_some_and(|row| row.header.is_commit));
        end = range.end;
    }
}

fn check(header: &RowHeader, body: &RowBody<'_>) {
    let mut bytes = Vec::new();
    encode_row(&mut bytes, header, body);
    let mut reader = Reader::new(&bytes);
    let (again, same_body) = decode_row(&mut reader).expect("an encoded row is one");
    assert!(reader.is_empty(), "nothing follows the row");
    assert_eq!(&same_body, body);
    // Through bytes: a timestamp may be a number that is not equal to itself.
    let mut canonical = Vec::new();
    encode_row(&mut canonical, &again, &same_body);
    assert_eq!(canonical, bytes);
    assert_eq!((again.lsn, again.tsn, again.is_commit), (header.lsn, header.tsn, header.is_commit));
}
