//! Looking into a data folder without serving it: its content, and the parts of it that this server does not run.
//!
//! [`load`] recovers a folder the way a start does, into a store of its own, and reports the result. Nothing in
//! the folder is changed and no lock is taken, so it works beside a running server, whose last rows may then be missing. Of the
//! folder of a group's member, the log is read too, up to the last entry that is known to be committed.
//!
//! [`unsupported`] goes through the definitions. A data folder of a Tarantool may hold things that mean nothing here;
//! they are kept, and go back to a Tarantool with the folder, but an operator should know before the start.

use std::collections::HashMap;
use std::fmt;

use lycosa_group::log::GroupLog;
use lycosa_group::record::Identity;
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::decision::{Mode, Resolution};
use lycosa_journal::directory::Directory;
use lycosa_journal::recovery::{Progress, Recovered, Recovery, Source, Transaction};
use lycosa_journal::transaction::Row;
use lycosa_queue::task::{STATUS, State};
pub use lycosa_store::SqlKnowledge;
use lycosa_store::{Engine, IteratorType, Settings, Space, SpaceId, Statement, Store, system};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;
use uuid::Uuid;

use crate::group::entry;
use crate::replay::{LoadError, Observer, Replay};

/// An empty key: the whole index.
const EVERYTHING: &[u8] = &[0x90];

/// The space with a row for every tube.
const QUEUE: &str = "_queue";

/// The function that a new instance has for SQL to run Lua with.
const LUA_OF_SQL: &str = "LUA";

/// Transactions between two reports of progress.
const PROGRESS_STEP: u64 = 1 << 12;

/// Something in the data that is kept but not run. Its text says what it is, what happens here, and what the operator
/// can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsupported {
    /// A space of the engine `vinyl`.
    Vinyl {
        /// Its number, which is the name of the folder with its files.
        id: SpaceId,
        /// Its name.
        space: String,
    },
    /// A space whose changes wait for other instances (`is_sync`).
    Synchronous {
        /// Its name.
        space: String,
    },
    /// An index that is not built.
    Index {
        /// Name of its space.
        space: String,
        /// Its name.
        index: String,
        /// `functional`, or its type's name if that is unheard of.
        kind: String,
    },
    /// An index that is ordered by bytes instead.
    Collation {
        /// Name of its space.
        space: String,
        /// Its name.
        index: String,
        /// Name of the collation that it asks for.
        collation: String,
    },
    /// A function.
    Function {
        /// Its name.
        name: String,
        /// `LUA` or `C`.
        language: String,
    },
}

impl Unsupported {
    /// What it is.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            Self::Vinyl { space, .. } => format!("space '{space}' has the engine vinyl"),
            Self::Synchronous { space } => format!("space '{space}' is synchronous (is_sync)"),
            Self::Index { space, index, kind } => {
                format!("index '{index}' of space '{space}' is of the kind {kind}")
            }
            Self::Collation { space, index, collation } => {
                format!("index '{index}' of space '{space}' asks for the collation '{collation}'")
            }
            Self::Function { name, language } => format!("function '{name}' is written in {language}"),
        }
    }

    /// What happens to it here.
    #[must_use]
    pub fn here(&self) -> &'static str {
        match self {
            Self::Vinyl { .. } => {
                "its tuples are kept in memory, and tuples that a Tarantool wrote into .run files are not read"
            }
            Self::Synchronous { .. } => "its changes are answered without waiting for other instances",
            Self::Index { .. } => "it is not built, and requests that name it are refused",
            Self::Collation { .. } => "it is ordered by bytes instead",
            Self::Function { .. } => "it is not run, and calls of it are refused",
        }
    }

    /// What the operator can do.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Vinyl { .. } => {
                "on the Tarantool that wrote them, copy its tuples into a memtx space and take a snapshot first"
            }
            Self::Synchronous { .. } => "go on if one instance's disk is safe enough, else keep it elsewhere",
            Self::Index { .. } => "make a TREE or HASH index instead, or drop it",
            Self::Collation { .. } => "use a collation that is supported, or do not rely on the order",
            Self::Function { .. } => "do in the client what it does, or drop it",
        }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what(), self.here(), self.advice())
    }
}

/// What the data hold and this server does not run, spaces first.
#[must_use]
pub fn unsupported(store: &Store) -> Vec<Unsupported> {
    let mut found = Vec::new();
    for row in rows(store, system::SPACE) {
        found.extend(unsupported_space(&row));
    }
    let collations = icu_collations(store);
    for row in rows(store, system::INDEX) {
        found.extend(unsupported_index(store, &row, &collations));
    }
    for function in store.functions() {
        // A function without a body is looked up by its name; these names are known here.
        let is_native = function.name.starts_with("queue.") || function.name.starts_with("box.");
        let is_run = match function.language.as_str() {
            "LUA" => function.name == LUA_OF_SQL || (is_native && function.body.is_empty()),
            language => language != "C",
        };
        if !is_run {
            let (name, language) = (function.name.clone(), function.language.clone());
            found.push(Unsupported::Function { name, language });
        }
    }
    found
}

/// A row of `_space`.
fn unsupported_space(row: &[Value]) -> Option<Unsupported> {
    let id = number(row, 0).filter(|&id| id > system::MAX)?;
    let (space, engine, flags) = (text(row, 2)?, text(row, 3)?, row.get(5)?);
    let is_set = |flag: &str| flags.get(flag).and_then(Value::as_bool) == Some(true);
    if engine == Engine::Vinyl.name() {
        Some(Unsupported::Vinyl { id, space })
    } else if is_set("is_sync") {
        Some(Unsupported::Synchronous { space })
    } else {
        None
    }
}

/// A row of `_index`.
fn unsupported_index(store: &Store, row: &[Value], collations: &HashMap<u64, String>) -> Option<Unsupported> {
    let space = store.space(number(row, 0).filter(|&id| id > system::MAX)?).ok()?;
    let name = text(row, 2)?;
    let parts = row.get(5).and_then(Value::as_array).unwrap_or_default();
    let Some(index) = space.index(number(row, 1)?) else {
        // A server runs the function; here are only the tuples.
        if row.get(4).is_some_and(|options| options.get("func").is_some()) {
            return None;
        }
        let kind = text(row, 3)?.to_ascii_uppercase();
        return Some(Unsupported::Index { space: space.name().to_owned(), index: name, kind });
    };
    let asked = parts.iter().map(|part| part.get("collation").and_then(Value::as_u64));
    let used = index.key().parts().iter().map(|part| part.collation.is_binary());
    let lost = asked.zip(used).find_map(|(id, is_binary)| collations.get(&id?).filter(|_| is_binary))?;
    Some(Unsupported::Collation { space: space.name().to_owned(), index: name, collation: lost.clone() })
}

/// Names of the collations that are not an order of bytes.
fn icu_collations(store: &Store) -> HashMap<u64, String> {
    let rows = rows(store, system::COLLATION);
    let icu = rows.iter().filter(|row| text(row, 3).is_some_and(|ty| ty.eq_ignore_ascii_case("ICU")));
    icu.filter_map(|row| Some((row.first()?.as_u64()?, text(row, 1)?))).collect()
}

/// The rows of a system space, which is empty if the data are too old to have it.
fn rows(store: &Store, space: SpaceId) -> Vec<Vec<Value>> {
    let found = store.range(space, 0, IteratorType::All, EVERYTHING, 0).into_iter().flatten();
    let decoded = found.filter_map(|tuple| match Value::decode(tuple) {
        Ok(Value::Array(fields)) => Some(fields),
        _ => None,
    });
    decoded.collect()
}

fn space_name(store: &Store, id: SpaceId) -> String {
    store.space(id).map_or_else(|_| id.to_string(), |space| space.name().to_owned())
}

fn number(row: &[Value], field: usize) -> Option<u32> {
    row.get(field)?.as_u64().and_then(|number| u32::try_from(number).ok())
}

fn text(row: &[Value], field: usize) -> Option<String> {
    row.get(field)?.as_str().map(str::to_owned)
}

/// The content of a data folder.
#[derive(Debug, Clone)]
pub struct Contents {
    /// Whose data they are.
    pub instance: Uuid,
    /// The clock of the snapshot that recovery began with.
    pub snapshot: Vclock,
    /// The clock after the last row.
    pub vclock: Vclock,
    /// Whose member the folder is, if it is a group's.
    pub group: Option<GroupContents>,
    /// Rows that were read.
    pub rows: u64,
    /// Findings in the files, and the decision of a start about each.
    pub resolutions: Vec<Resolution>,
    /// All spaces by id.
    pub spaces: Vec<SpaceContents>,
    /// All tubes by name.
    pub tubes: Vec<TubeContents>,
    /// What this server does not run.
    pub unsupported: Vec<Unsupported>,
    /// The digest of everything that replicas have in common: equal for equal data.
    pub digest: u128,
}

/// What the log of a group says about the data of a member. The data hold every entry that is known to be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupContents {
    /// The group and the member.
    pub identity: Identity,
    /// Entries up to this one are known to be committed.
    pub committed: u64,
    /// The last entry of the log. Entries behind `committed` are confirmed if a majority has them; they are not in the data.
    pub last: u64,
}

/// The content of a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceContents {
    /// Its number; up to 511 it is one of the system.
    pub id: SpaceId,
    /// Its name.
    pub name: String,
    /// Its engine.
    pub engine: &'static str,
    /// Number of its indexes.
    pub indexes: usize,
    /// Number of its tuples.
    pub tuples: u64,
    /// Bytes of its tuples.
    pub bytes: u64,
}

impl SpaceContents {
    fn of(space: &Space) -> Self {
        Self {
            id: space.id(),
            name: space.name().to_owned(),
            engine: space.engine().name(),
            indexes: space.indexes().len(),
            tuples: space.len(),
            bytes: space.bytes(),
        }
    }

    /// Whether the space is one of the system.
    #[must_use]
    pub fn is_system(&self) -> bool {
        self.id <= system::MAX
    }
}

/// The content of a tube.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TubeContents {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// Whether the space of its tasks exists.
    pub has_space: bool,
    /// Tasks that may be taken.
    pub ready: u64,
    /// Tasks that a session holds. A start makes them ready.
    pub taken: u64,
    /// Tasks that become ready later.
    pub delayed: u64,
    /// Tasks that are set aside.
    pub buried: u64,
    /// Tuples with a status that no task has.
    pub other: u64,
}

impl TubeContents {
    /// A row of `_queue`.
    fn read(store: &Store, row: &[Value]) -> Option<Self> {
        let mut tube = Self { name: text(row, 0)?, kind: text(row, 3)?, ..Self::default() };
        let Some(space) = text(row, 2).and_then(|name| store.space_by_name(&name)) else { return Some(tube) };
        tube.has_space = true;
        let tuples = store.range(space.id(), 0, IteratorType::All, EVERYTHING, 0).into_iter().flatten();
        for tuple in tuples {
            let status =
                TupleRef::trusted(tuple).field(STATUS).and_then(|field| Reader::new(field).str().ok());
            let count = match status.and_then(State::parse) {
                Some(State::Ready) => &mut tube.ready,
                Some(State::Taken) => &mut tube.taken,
                Some(State::Delayed) => &mut tube.delayed,
                Some(State::Buried) => &mut tube.buried,
                Some(State::Done) | None => &mut tube.other,
            };
            *count += 1;
        }
        Some(tube)
    }
}

/// Recovers the data in a folder as a start does and inspects them; `None` if it has none. `progress` hears now and
/// then how far it is.
///
/// # Errors
/// [`LoadError`].
pub fn load(
    directory: &Directory,
    progress: &mut dyn FnMut(Progress),
) -> Result<Option<Contents>, LoadError> {
    load_with(directory, None, progress)
}

/// The same, and asks of each row whether a Tarantool 2.6 would take it.
///
/// # Errors
/// [`LoadError`].
pub fn judge(
    directory: &Directory,
    judge: &mut Judge,
    progress: &mut dyn FnMut(Progress),
) -> Result<Option<Contents>, LoadError> {
    load_with(directory, Some(judge), progress)
}

fn load_with(
    directory: &Directory,
    mut judge: Option<&mut Judge>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Option<Contents>, LoadError> {
    let Some(recovery) = Recovery::open(directory, Mode::Strict)? else { return Ok(None) };
    if let Some(judge) = &mut judge {
        let names = directory.disk().list().unwrap_or_default();
        judge.has_vylog = names.iter().any(|name| name.ends_with(".vylog"));
    }
    let sql = judge.as_ref().and_then(|judge| judge.sql);
    let limits = Settings { memory_limit: u64::MAX, max_tuple_size: u32::MAX, ..Settings::default() };
    let observer = Reported { transactions: 0, judge: judge.as_deref_mut(), progress };
    let mut store = Store::new(limits);
    if let Some(sql) = sql {
        store.set_sql(sql);
    }
    let mut replay = Replay::observed(store, observer);
    let mut recovered = recovery.run(&mut replay)?;
    let group = apply_group_log(directory, &mut replay, &mut recovered)?;
    let store = replay.finish()?;
    if let Some(judge) = judge {
        judge.look_at_tuples(&store);
    }
    Ok(Some(Contents { group, ..contents(&store, recovered) }))
}

/// Applies what the log of a group has behind the snapshot and knows to be committed.
fn apply_group_log<O: Observer>(
    directory: &Directory,
    replay: &mut Replay<O>,
    recovered: &mut Recovered,
) -> Result<Option<GroupContents>, LoadError> {
    let Some(identity) = GroupLog::find(directory)? else { return Ok(None) };
    let Some(read) = GroupLog::read_back(directory)? else { return Ok(None) };
    for entry in read.rows(read.committed()) {
        let entry = entry::decode(entry)?;
        for (header, body) in entry.rows() {
            replay.apply(body)?;
            recovered.progress.rows += 1;
            let known = recovered.vclock.set(header.replica_id, header.lsn);
            known.map_err(|error| entry::EntryError::Damaged(error.to_string()))?;
        }
        for body in entry.owner_rows()? {
            replay.apply(&body)?;
        }
    }
    let last = read.state_at_end(read.base.signature).index;
    Ok(Some(GroupContents { identity, committed: read.committed(), last }))
}

fn contents(store: &Store, recovered: Recovered) -> Contents {
    let tubes = store.space_by_name(QUEUE).map(|queue| rows(store, queue.id())).unwrap_or_default();
    Contents {
        instance: recovered.instance,
        snapshot: recovered.snapshot,
        vclock: recovered.vclock,
        group: None,
        rows: recovered.progress.rows,
        resolutions: recovered.resolutions,
        spaces: store.spaces().map(SpaceContents::of).collect(),
        tubes: tubes.iter().filter_map(|row| TubeContents::read(store, row)).collect(),
        unsupported: unsupported(store),
        digest: store.digest(),
    }
}

/// What a Tarantool 2.6 would refuse of a folder.
#[derive(Debug, Default)]
pub struct Judge {
    has_vylog: bool,
    sql: Option<SqlKnowledge>,
    found: Vec<String>,
    /// Objections beyond the bound.
    others: u64,
}

/// Objections that are kept as texts.
const MAX_OBJECTIONS: usize = 100;

impl Judge {
    /// A judge that also asks the check constraints of the data.
    #[must_use]
    pub fn knowing(sql: SqlKnowledge) -> Judge {
        Judge { sql: Some(sql), ..Judge::default() }
    }

    /// The findings, as texts.
    #[must_use]
    pub fn objections(&self) -> Vec<String> {
        let more = (self.others > 0).then(|| format!("{} further rows", self.others));
        self.found.iter().cloned().chain(more).collect()
    }

    fn add(&mut self, objection: String) {
        if self.found.len() < MAX_OBJECTIONS { self.found.push(objection) } else { self.others += 1 }
    }

    fn look_at(&mut self, store: &Store, statement: &Statement<'_>, lsn: u64, source: Source) {
        let place = match source {
            Source::Snapshot => "in the snapshot".to_owned(),
            Source::Xlog => format!("at LSN {lsn}"),
        };
        if let Err(error) = store.judge(statement) {
            let space = space_name(store, statement.space());
            self.add(format!("a row of space '{space}' {place}: {error}"));
        }
        // A Tarantool keeps an account of vinyl's indexes beside the snapshot.
        if source == Source::Snapshot
            && !self.has_vylog
            && let Statement::Insert { space: system::INDEX, tuple } = *statement
            && let Some(space) = TupleRef::trusted(tuple).field(0).and_then(|id| Reader::new(id).uint().ok())
            && let Some(space) = u32::try_from(space).ok().and_then(|id| store.space(id).ok())
            && space.engine() == Engine::Vinyl
        {
            self.add(format!(
                "an index of the vinyl space '{}' {place}: there is no .vylog file",
                space.name()
            ));
        }
    }

    /// Tuples that an UPDATE has made what they are.
    fn look_at_tuples(&mut self, store: &Store) {
        let users = store.spaces().filter(|space| space.id() > system::MAX && space.engine().has_tuples());
        for space in users {
            if let Some((count, tuple, error)) = store.misfits(space) {
                let first =
                    Value::decode(tuple).map_or_else(|_| "?".to_owned(), |tuple| format!("{tuple:?}"));
                self.add(format!("{count} tuple(s) of space '{}', the first {first}: {error}", space.name()));
            }
        }
    }
}

/// Tells how far it is, and shows the rows to a judge.
struct Reported<'a> {
    transactions: u64,
    judge: Option<&'a mut Judge>,
    progress: &'a mut dyn FnMut(Progress),
}

impl Observer for Reported<'_> {
    fn applies(&mut self, store: &Store, row: &Row<'_>, source: Source) {
        if let (Some(judge), Some(statement)) = (&mut self.judge, lycosa_instance::statement(&row.body)) {
            judge.look_at(store, &statement, row.header.lsn, source);
        }
    }

    fn applied(&mut self, _rows: u64, transaction: &Transaction<'_>) {
        self.transactions += 1;
        if self.transactions.is_multiple_of(PROGRESS_STEP) {
            (self.progress)(transaction.progress);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lycosa_journal::decision::Category;
    use lycosa_store::Statement;

    use super::*;

    fn corpus(folder: &str) -> Directory {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/files").join(folder);
        Directory::inspect(&path).expect("a folder of the corpus")
    }

    /// A store that recovers `rows` as its log, after what every new instance has.
    fn store(rows: &[(SpaceId, Value)]) -> Store {
        let mut new = Store::new(Settings::default());
        new.bootstrap(&Uuid::new_v4().to_string(), &Uuid::new_v4().to_string()).expect("a new instance");
        let mut store = Store::new(Settings::default());
        new.for_each_snapshot_row(&mut |space, tuple, _| {
            store.recover(&Statement::Insert { space, tuple }).expect("a row of a new instance");
        });
        store.finish_snapshot().expect("a new instance");
        for (space, row) in rows {
            let tuple = row.encode();
            store.recover(&Statement::Insert { space: *space, tuple: &tuple }).expect("a row of the test");
        }
        store.finish_recovery().expect("consistent rows");
        store
    }

    fn space(id: u32, name: &str, engine: &str, flags: Value) -> (SpaceId, Value) {
        let fields = [id.into(), 1_u32.into(), name.into(), engine.into(), 0_u32.into(), flags];
        let format = Value::Array(Vec::new());
        (system::SPACE, Value::Array(fields.into_iter().chain([format]).collect()))
    }

    fn index(space: u32, id: u32, ty: &str, options: Value, part: Value) -> (SpaceId, Value) {
        let name = format!("i{id}");
        let parts = Value::Array(vec![part]);
        let fields = vec![space.into(), id.into(), name.into(), ty.into(), options, parts];
        (system::INDEX, Value::Array(fields))
    }

    fn no_options() -> Value {
        Value::Map(Vec::new())
    }

    fn first_field() -> Value {
        Value::Array(vec![0_u32.into(), "unsigned".into()])
    }

    fn flag(name: &str) -> Value {
        Value::map([(name, true)])
    }

    #[test]
    fn a_new_instance_has_nothing_that_is_not_run() {
        assert_eq!(unsupported(&store(&[])), []);
    }

    #[test]
    fn what_is_not_run_is_named_one_by_one() {
        let unique = Value::map([("unique", false)]);
        let elements =
            Value::map([("field", Value::from(2_u32)), ("type", "string".into()), ("path", "[*]".into())]);
        let second_field = || Value::Array(vec![1_u32.into(), "unsigned".into()]);
        let functional = Value::map([("unique", Value::from(true)), ("func", Value::from(70_u32))]);
        let body = "function() end";
        let function = |id: u32, name: &str, language: &str, body: &str| {
            let none: Value = Value::Array(Vec::new());
            let exports = Value::Array(vec!["LUA".into()]);
            let fields = vec![
                id.into(),
                1_u32.into(),
                name.into(),
                0_u32.into(),
                language.into(),
                body.into(),
                "function".into(),
                none,
                "any".into(),
                "none".into(),
                "none".into(),
                false.into(),
                false.into(),
                true.into(),
                exports,
                no_options(),
                "".into(),
                "".into(),
                "".into(),
            ];
            (system::FUNC, Value::Array(fields))
        };
        let rows = [
            space(512, "old", "vinyl", no_options()),
            space(513, "sync", "memtx", flag("is_sync")),
            space(515, "plain", "memtx", no_options()),
            index(515, 0, "tree", no_options(), first_field()),
            index(515, 2, "bitset", unique, second_field()),
            function(70, "by_last", "LUA", body),
            index(515, 3, "tree", functional, second_field()),
            index(515, 4, "tree", flag("unique"), elements),
            function(71, "native.f", "C", ""),
            function(72, "global", "LUA", ""),
            function(73, "queue.tube.t:put", "LUA", ""),
        ];
        let texts: Vec<String> = unsupported(&store(&rows)).iter().map(Unsupported::what).collect();
        assert_eq!(
            texts,
            [
                "space 'old' has the engine vinyl",
                "space 'sync' is synchronous (is_sync)",
                "function 'by_last' is written in LUA",
                "function 'native.f' is written in C",
                "function 'global' is written in LUA",
            ]
        );
    }

    #[test]
    fn a_text_says_what_happens_and_what_to_do() {
        let sync = Unsupported::Synchronous { space: "s".to_owned() };
        assert_eq!(
            sync.to_string(),
            "space 's' is synchronous (is_sync): its changes are answered without waiting for other instances; go on if one \
             instance's disk is safe enough, else keep it elsewhere"
        );
    }

    #[test]
    fn a_folder_is_loaded_as_a_start_does() {
        let mut reports = 0;
        let contents = load(&corpus("queue-single"), &mut |_| reports += 1).expect("sound").expect("data");
        assert_eq!(contents.vclock.to_string(), "{1: 520}");
        let tube = contents.tubes.iter().find(|tube| tube.name == "ft").expect("the tube ft");
        assert_eq!((tube.kind.as_str(), tube.has_space), ("fifottl", true));
        assert!(tube.taken > 0 && tube.delayed > 0 && tube.buried > 0 && tube.other == 0, "{tube:?}");
        let again = load(&corpus("queue-single"), &mut |_| {}).expect("sound").expect("data");
        assert_eq!(contents.digest, again.digest);
    }

    #[test]
    fn a_folder_that_no_start_takes_has_a_category() {
        let category = |folder| load(&corpus(folder), &mut |_| {}).expect_err("a fault").category();
        assert_eq!(category("corrupt/flip-crc"), Category::Damaged);
        assert_eq!(category("corrupt/missing-xlog"), Category::Missing);
        let empty = tempfile::tempdir().expect("a folder");
        let directory = Directory::inspect(empty.path()).expect("a folder");
        assert!(load(&directory, &mut |_| {}).expect("nothing is wrong").is_none());
    }
}
