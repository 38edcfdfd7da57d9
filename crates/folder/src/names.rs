//! Names of spaces, learned from rows of `_space`.
//!
//! A row carries the number of its space only. The name stands in a row of `_space`: in the same file, in the snapshot
//! before it, or in a file between them. Those before it are read when a number comes up that is not known yet. Before a
//! group's log these are the newest snapshot and the files of the log.

use std::collections::HashMap;

use lycosa_engine::group::{Payload, entry, listing};
use lycosa_iproto::row::RowBody;
use lycosa_journal::directory::Directory;
use lycosa_journal::meta::FileKind;
use lycosa_journal::reader::{FileReader, Step};
use lycosa_journal::transaction::{Next, Transactions};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;

/// `_space`.
const SPACE: u32 = 280;
/// Its field with the space's name, from 0.
const NAME: u32 = 2;

/// The names that are known.
#[derive(Debug, Default)]
pub struct SpaceNames {
    known: HashMap<u32, String>,
    /// Where the names of older files can be looked up: once for each file that is printed.
    history: Option<(Directory, FileKind, u64)>,
}

impl SpaceNames {
    /// Another file is to be printed: the one of this kind and with that signature in `directory`.
    pub fn turn_to(&mut self, directory: &Directory, kind: FileKind, signature: u64) {
        self.history = Some((directory.clone(), kind, signature));
    }

    /// Looks at a row that is printed or passed over.
    pub fn learn(&mut self, body: &RowBody<'_>) {
        if let Some((id, name)) = definition(body) {
            self.known.insert(id, name);
        }
    }

    /// The name of a space, if some file says it.
    pub fn of(&mut self, space: u32) -> Option<&str> {
        if !self.known.contains_key(&space)
            && let Some((directory, kind, signature)) = self.history.take()
        {
            let recalled = match kind {
                FileKind::GroupLog => recall_group(&directory, signature),
                _ => recall(&directory, signature),
            };
            for (id, name) in recalled {
                self.known.entry(id).or_insert(name);
            }
        }
        self.known.get(&space).map(String::as_str)
    }
}

/// The space and its name that a row of `_space` tells.
fn definition(body: &RowBody<'_>) -> Option<(u32, String)> {
    let id = |field: &[u8]| Reader::new(field).uint().ok().and_then(|id| u32::try_from(id).ok());
    match *body {
        RowBody::Insert { space: SPACE, tuple } | RowBody::Replace { space: SPACE, tuple } => {
            let tuple = TupleRef::new(tuple).ok()?;
            let name = Reader::new(tuple.field(NAME)?).str().ok()?;
            Some((id(tuple.field(0)?)?, String::from_utf8_lossy(name).into_owned()))
        }
        RowBody::Update { space: SPACE, index: 0, base, key, operations } => {
            let id = id(TupleRef::new(key).ok()?.field(0)?)?;
            let operations = Value::decode(operations).ok()?;
            let renaming = operations.as_array()?.iter().find_map(|operation| {
                let [what, field, name] = operation.as_array()? else { return None };
                let is_name = match field {
                    Value::Str(field) => field == b"name",
                    field => field.as_i64()?.checked_sub(base)? == i64::from(NAME),
                };
                name.as_str().filter(|_| is_name && what.as_str() == Some("="))
            });
            Some((id, renaming?.to_owned()))
        }
        _ => None,
    }
}

/// The names that the files before `signature` tell: the newest snapshot and the xlogs after it. An unreadable file
/// tells nothing.
fn recall(directory: &Directory, signature: u64) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    let Ok(listing) = directory.list() else { return names };
    let snapshot = listing.snapshots.iter().copied().rfind(|&snapshot| snapshot <= signature);
    if let Some(snapshot) = snapshot
        && let Ok(mut reader) = directory.read(FileKind::Snapshot, snapshot)
    {
        read_names(&mut reader, &mut names);
    }
    let from = snapshot.unwrap_or(0);
    for &xlog in listing.xlogs.iter().filter(|&&xlog| from <= xlog && xlog < signature) {
        if let Ok(mut reader) = directory.read(FileKind::Xlog, xlog) {
            read_names(&mut reader, &mut names);
        }
    }
    names
}

/// The names that the newest snapshot and the files of a group's log before `signature` tell.
fn recall_group(directory: &Directory, signature: u64) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    let Ok(listing) = directory.list() else { return names };
    for &log in listing.group_logs.iter().filter(|&&log| log < signature) {
        if let Ok(mut reader) = directory.read(FileKind::GroupLog, log) {
            while let Ok(Step::Block(block)) = reader.next_block() {
                for record in listing::records(block.rows) {
                    let Ok(listing::LogRecord::Entry { payload: Payload::Rows(rows), .. }) = record else {
                        continue;
                    };
                    let Ok(entry) = entry::decode(&rows) else { continue };
                    names.extend(entry.rows().filter_map(|(_, body)| definition(body)));
                }
            }
        }
    }
    // A name that the snapshot has is that of a space which still exists.
    if let Some(&snapshot) = listing.snapshots.last()
        && let Ok(mut reader) = directory.read(FileKind::Snapshot, snapshot)
    {
        read_names(&mut reader, &mut names);
    }
    names
}

fn read_names(reader: &mut FileReader, names: &mut HashMap<u32, String>) {
    let is_snapshot = reader.meta().kind == FileKind::Snapshot;
    while let Ok(Step::Block(block)) = reader.next_block() {
        let mut transactions = Transactions::new(block.rows);
        let mut rows = Vec::new();
        while let Ok(Next::Transaction(_)) = transactions.next(&mut rows) {
            for row in &rows {
                if is_snapshot && row.body.space().is_some_and(|space| space > SPACE) {
                    return;
                }
                names.extend(definition(&row.body));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn rows_of_space_tell_names() {
        let tuple = Value::array([Value::from(512_u64), Value::from(1_u64), "mail".into()]).encode();
        let mut names = SpaceNames::default();
        names.learn(&RowBody::Insert { space: SPACE, tuple: &tuple });
        names.learn(&RowBody::Insert { space: 281, tuple: &tuple });
        assert_eq!(names.of(512), Some("mail"));
        let key = Value::array([512_u64]).encode();
        let operation = |field: Value, name: &str| {
            Value::Array(vec![Value::Array(vec!["=".into(), field, name.into()])]).encode()
        };
        let mut rename = |base, operations: &[u8]| {
            names.learn(&RowBody::Update { space: SPACE, index: 0, base, key: &key, operations });
            names.of(512).map(str::to_owned)
        };
        assert_eq!(rename(1, &operation(3_u64.into(), "post")).as_deref(), Some("post"));
        assert_eq!(rename(0, &operation(3_u64.into(), "vinyl")).as_deref(), Some("post"));
        assert_eq!(rename(0, &operation("name".into(), "letters")).as_deref(), Some("letters"));
        assert_eq!(rename(i64::MIN, &operation(3_u64.into(), "x")).as_deref(), Some("letters"));
    }

    #[test]
    fn older_files_tell_what_this_one_does_not() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/files/queue-single");
        let directory = Directory::inspect(&folder).unwrap();
        let mut names = SpaceNames::default();
        assert_eq!(names.of(280), None);
        names.turn_to(&directory, FileKind::Xlog, 275);
        assert_eq!(names.of(280), Some("_space"));
        assert_eq!(names.of(512), Some("_queue"));
        assert_eq!(names.of(99_999), None);
    }
}
