//! Tests of a store from outside. Rows and requests are written as JSON.

mod access;
mod bootstrap;
mod checks;
mod cursor;
mod data;
mod definitions;
mod effects;
mod foreign_keys;
mod hook;
mod hostile;
mod model;
mod recovery;
mod transcripts;

use lycosa_tuple::mp::{Kind, Reader};

use crate::bootstrap::notation;
use crate::{Error, IndexId, IteratorType, Settings, SpaceId, Statement, Store, UserId, user};

const CLUSTER: &str = "a9224992-9578-42f4-b33e-0ab2104f5a60";
const INSTANCE: &str = "457d9794-5488-4899-a2ad-4853b0feda40";

/// MessagePack of a JSON text.
pub(crate) fn row(text: &str) -> Vec<u8> {
    notation::encode(text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

/// JSON of MessagePack, for values that the notation knows.
pub(crate) fn text(bytes: &[u8]) -> String {
    fn value(reader: &mut Reader<'_>) -> String {
        match reader.kind().unwrap() {
            Kind::Nil => {
                reader.nil().unwrap();
                "null".to_owned()
            }
            Kind::Bool => reader.bool().unwrap().to_string(),
            Kind::Uint | Kind::Int => reader.int().unwrap().to_string(),
            Kind::Double => reader.double().unwrap().to_string(),
            Kind::Str => format!("{:?}", String::from_utf8_lossy(reader.str().unwrap())),
            Kind::Array => {
                let count = reader.array().unwrap();
                let items: Vec<_> = (0..count).map(|_| value(reader)).collect();
                format!("[{}]", items.join(", "))
            }
            Kind::Map => {
                let count = reader.map().unwrap();
                let pairs: Vec<_> =
                    (0..count).map(|_| format!("{}: {}", value(reader), value(reader))).collect();
                format!("{{{}}}", pairs.join(", "))
            }
            other => panic!("{other:?}"),
        }
    }
    value(&mut Reader::new(bytes))
}

/// The content of a new instance.
pub(crate) fn new_store() -> Store {
    let mut store = Store::new(Settings::default());
    store.bootstrap(CLUSTER, INSTANCE).unwrap();
    store
}

/// Executes one statement in a transaction of its own.
pub(crate) fn run_as(
    store: &mut Store,
    user: UserId,
    statement: &Statement<'_>,
) -> Result<Option<String>, Error> {
    store.begin(user);
    let result = store.execute(statement).map(|shown| shown.map(text));
    match result {
        Ok(_) => store.commit(),
        Err(_) => store.rollback(),
    }
    result
}

pub(crate) fn run(store: &mut Store, statement: &Statement<'_>) -> Result<Option<String>, Error> {
    run_as(store, user::ADMIN, statement)
}

pub(crate) fn insert(store: &mut Store, space: SpaceId, tuple: &str) -> Result<Option<String>, Error> {
    run(store, &Statement::Insert { space, tuple: &row(tuple) })
}

pub(crate) fn replace(store: &mut Store, space: SpaceId, tuple: &str) -> Result<Option<String>, Error> {
    run(store, &Statement::Replace { space, tuple: &row(tuple) })
}

pub(crate) fn update(
    store: &mut Store,
    space: SpaceId,
    index: IndexId,
    key: &str,
    operations: &str,
) -> Result<Option<String>, Error> {
    run(store, &Statement::Update { space, index, key: &row(key), operations: &row(operations), base: 0 })
}

pub(crate) fn upsert(store: &mut Store, space: SpaceId, tuple: &str, operations: &str) -> Result<(), Error> {
    let (tuple, operations) = (row(tuple), row(operations));
    run(store, &Statement::Upsert { space, tuple: &tuple, operations: &operations, base: 0 }).map(drop)
}

pub(crate) fn delete(
    store: &mut Store,
    space: SpaceId,
    index: IndexId,
    key: &str,
) -> Result<Option<String>, Error> {
    run(store, &Statement::Delete { space, index, key: &row(key) })
}

/// Everything that a walk yields, as one line.
pub(crate) fn walk(
    store: &Store,
    space: SpaceId,
    index: IndexId,
    iterator: IteratorType,
    key: &str,
) -> String {
    let mut tuples = Vec::new();
    let key = row(key);
    store
        .select(user::ADMIN, space, index, iterator, &key, 0, u64::MAX, &mut |tuple| tuples.push(text(tuple)))
        .unwrap();
    tuples.join(" ")
}

pub(crate) fn all(store: &Store, space: SpaceId) -> String {
    walk(store, space, 0, IteratorType::All, "[]")
}

/// Does work in a transaction and commits it.
pub(crate) fn commit<T>(store: &mut Store, work: impl FnOnce(&mut Store) -> Result<T, Error>) -> T {
    store.begin(user::ADMIN);
    let result = work(store).unwrap();
    store.commit();
    result
}

pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}
