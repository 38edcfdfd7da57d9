//! A space with several indexes against a plain list, through statements, savepoints and rollbacks.

use std::collections::BTreeMap;

use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::update::{self, Assigned};
use proptest::prelude::*;

use super::*;
use crate::ddl::{self, IndexSpec, PartSpec, SpaceSpec};
use crate::{Deferral, IndexKind, Overwrite, system};

/// A tuple `[id, name, number or nil]`. As it is stored it has a fourth field, the [`half`] of the alphabet.
type Tuple = (u8, u8, Option<u8>);

#[derive(Debug, Clone)]
enum Step {
    Insert(Tuple),
    Replace(Tuple),
    /// By id: sets the name and the number.
    Update(u8, u8, Option<u8>),
    /// By name.
    Delete(u8),
    /// Up to this number of tuples in a row, in the order of an index by id (0), by name (1) or by half and id ([`HALVED`]).
    DeleteAlong(IndexId, u8, usize),
    Upsert(Tuple, u8),
    Truncate,
    Savepoint,
    RollbackTo,
    Commit,
    Rollback,
}

fn tuple() -> impl Strategy<Value = Tuple> {
    // Some numbers are longer than others: tuples with them are not changed in place.
    let number = proptest::sample::select(vec![0, 1, 2, 200]);
    (0..12u8, 0..12u8, proptest::option::of(number))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => tuple().prop_map(Step::Insert),
        4 => tuple().prop_map(Step::Replace),
        4 => tuple().prop_map(|(id, name, number)| Step::Update(id, name, number)),
        4 => (0..12u8).prop_map(Step::Delete),
        3 => (proptest::sample::select(vec![0, 1, HALVED]), 0..12u8, 0..5usize)
            .prop_map(|(index, from, limit)| Step::DeleteAlong(index, from, limit)),
        2 => (tuple(), 0..12u8).prop_map(|(tuple, name)| Step::Upsert(tuple, name)),
        1 => Just(Step::Truncate),
        2 => Just(Step::Savepoint),
        2 => Just(Step::RollbackTo),
        2 => Just(Step::Commit),
        1 => Just(Step::Rollback),
    ]
}

/// The half of the alphabet in which a name is.
fn half(name: u8) -> &'static str {
    if name < 6 { "first" } else { "other" }
}

fn written((id, name, number): Tuple) -> String {
    let number = number.map_or("null".to_owned(), |number| number.to_string());
    format!(r#"[{id}, "{}", {number}, "{}"]"#, char::from(b'a' + name), half(name))
}

/// The plain list: names are unique, numbers are unique unless nil.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model(Vec<Tuple>);

impl Model {
    fn conflicts(&self, (id, name, number): Tuple) -> bool {
        self.0.iter().any(|other| other.0 != id && (other.1 == name || number.is_some() && other.2 == number))
    }

    fn put(&mut self, tuple: Tuple) -> bool {
        if self.conflicts(tuple) {
            return false;
        }
        self.0.retain(|other| other.0 != tuple.0);
        self.0.push(tuple);
        true
    }

    fn has(&self, id: u8) -> bool {
        self.0.iter().any(|other| other.0 == id)
    }

    /// Does the step; `false` if it must be refused.
    fn apply(&mut self, step: &Step) -> bool {
        match *step {
            Step::Insert(tuple) => !self.has(tuple.0) && self.put(tuple),
            Step::Replace(tuple) => self.put(tuple),
            Step::Update(id, name, number) => !self.has(id) || self.put((id, name, number)),
            Step::Delete(name) => {
                self.0.retain(|other| other.1 != name);
                true
            }
            Step::DeleteAlong(index, from, limit) => {
                for (id, ..) in self.run(index, from, limit) {
                    self.0.retain(|other| other.0 != id);
                }
                true
            }
            Step::Upsert(tuple, name) => match self.0.iter().find(|other| other.0 == tuple.0) {
                Some(&(id, _, number)) => self.put((id, name, number)),
                None => self.put(tuple),
            },
            Step::Truncate => {
                self.0.clear();
                true
            }
            _ => true,
        }
    }

    /// Up to `limit` tuples in the order of an index, from an id or name on, and before the one with the id 7.
    fn run(&self, index: IndexId, from: u8, limit: usize) -> Vec<Tuple> {
        let mut tuples = self.0.clone();
        tuples.retain(|tuple| match index {
            0 => tuple.0 >= from,
            1 => tuple.1 >= from,
            _ => half(tuple.1) >= half(from),
        });
        tuples.sort_by_key(|tuple| match index {
            0 => ("", tuple.0),
            1 => ("", tuple.1),
            _ => (half(tuple.1), tuple.0),
        });
        tuples.into_iter().take(limit).take_while(|tuple| tuple.0 != 7).collect()
    }

    fn walk(&self, order: impl Fn(&Tuple) -> (Option<u8>, u8)) -> String {
        let mut tuples = self.0.clone();
        tuples.sort_by_key(order);
        tuples.into_iter().map(written).collect::<Vec<_>>().join(" ")
    }

    /// The first tuple of a walk, or nothing.
    fn first(&self, order: impl Fn(&Tuple) -> (Option<u8>, u8)) -> String {
        self.0.iter().copied().min_by_key(order).map(written).unwrap_or_default()
    }
}

/// The bytes that an UPDATE puts into a tuple.
fn assigned_bytes(
    store: &Store,
    space: SpaceId,
    key: &[u8],
    operations: &[u8],
) -> Option<(Assigned, Vec<u8>)> {
    let tuple = TupleRef::trusted(store.get(space, 0, key).unwrap()?);
    let mut bytes = Vec::new();
    let format = store.space(space).unwrap().format();
    let assigned = update::assign(operations, tuple, format, 0, |_| true, &mut bytes)?;
    Some((assigned, bytes))
}

fn execute(store: &mut Store, space: SpaceId, step: &Step) -> bool {
    let text = |name: u8| char::from(b'a' + name);
    let result = match *step {
        Step::Insert(tuple) => {
            store.execute(&Statement::Insert { space, tuple: &row(&written(tuple)) }).map(drop)
        }
        Step::Replace(tuple) => {
            store.execute(&Statement::Replace { space, tuple: &row(&written(tuple)) }).map(drop)
        }
        Step::Update(id, name, number) => {
            let number = number.map_or("null".to_owned(), |number| number.to_string());
            let operations = row(&format!(
                r#"[["=", 1, "{}"], ["=", 2, {number}], ["=", 3, "{}"]]"#,
                text(name),
                half(name)
            ));
            let key = row(&format!("[{id}]"));
            // Half of the updates come as the bytes that they put into the tuple, where that is possible.
            let bytes = (id % 2 == 0).then(|| assigned_bytes(store, space, &key, &operations)).flatten();
            match bytes {
                Some((Assigned { fields, offset: Some(offset) }, mut bytes)) => {
                    let change = Overwrite { fields, offset, bytes: &mut bytes, operations: &operations };
                    store.overwrite(space, u64::from(id), change).map(drop)
                }
                _ => {
                    let operations = &operations;
                    store
                        .execute(&Statement::Update { space, index: 0, key: &key, operations, base: 0 })
                        .map(drop)
                }
            }
        }
        Step::Delete(name) => {
            let key = row(&format!(r#"["{}"]"#, text(name)));
            store.execute(&Statement::Delete { space, index: 1, key: &key }).map(drop)
        }
        Step::DeleteAlong(index, from, limit) => {
            let key = match index {
                0 => row(&format!("[{from}]")),
                1 => row(&format!(r#"["{}"]"#, text(from))),
                _ => row(&format!(r#"["{}"]"#, half(from))),
            };
            let mut deleted = 0;
            let walk = (index, IteratorType::Ge, key.as_slice());
            let counted = store.delete_along(space, walk, limit, &mut |tuple| {
                let is_deleted = tuple[1] != 7;
                deleted += u64::from(is_deleted);
                is_deleted
            });
            counted.map(|counted| assert_eq!(counted, deleted))
        }
        Step::Upsert(tuple, name) => {
            let operations = row(&format!(r#"[["=", 1, "{}"], ["=", 3, "{}"]]"#, text(name), half(name)));
            let tuple = row(&written(tuple));
            store
                .execute(&Statement::Upsert { space, tuple: &tuple, operations: &operations, base: 0 })
                .map(drop)
        }
        Step::Truncate => ddl::truncate(store, space),
        _ => Ok(()),
    };
    result.is_ok()
}

/// Every index must show exactly the model's tuples, in its order.
fn compare(store: &Store, space: SpaceId, model: &Model) -> Result<(), TestCaseError> {
    let walk = |index| walk(store, space, index, IteratorType::All, "[]");
    prop_assert_eq!(walk(0), model.walk(|tuple| (None, tuple.0)));
    prop_assert_eq!(walk(1), model.walk(|tuple| (None, tuple.1)));
    prop_assert_eq!(walk(2), model.walk(|tuple| (tuple.2, tuple.0)));
    let mut hashed: Vec<_> = walk(3).split("] [").map(|t| t.trim_matches(['[', ']']).to_owned()).collect();
    hashed.sort();
    let mut expected: Vec<_> = model
        .walk(|tuple| (None, tuple.0))
        .split("] [")
        .map(|t| t.trim_matches(['[', ']']).to_owned())
        .collect();
    expected.sort();
    prop_assert_eq!(hashed, expected);
    for (name, other) in [(0, 6), (6, 0)] {
        let key = row(&format!(r#"["{}"]"#, half(name)));
        let count = model.0.iter().filter(|tuple| half(tuple.1) == half(name)).count() as u64;
        prop_assert_eq!(store.count(space, HALVED, IteratorType::Eq, &key), Ok(count));
        let first = store.first(space, HALVED, IteratorType::Eq, &key).unwrap().map(text);
        let of_half = Model(model.0.iter().filter(|tuple| half(tuple.1) != half(other)).copied().collect());
        prop_assert_eq!(first.unwrap_or_default(), of_half.first(|tuple| (None, tuple.0)));
    }
    let space = store.space(space).unwrap();
    let bytes: usize = model.0.iter().map(|&tuple| row(&written(tuple)).len()).sum();
    prop_assert_eq!((space.len(), space.bytes()), (model.0.len() as u64, bytes as u64));
    Ok(())
}

/// The changes, one after the other, must lead from the committed data to the model.
fn follow_changes(
    store: &Store,
    space: SpaceId,
    committed: &Model,
    model: &Model,
) -> Result<(), TestCaseError> {
    let id = |text: &str| text.split(',').next().unwrap_or_default().to_owned();
    let by_id = |model: &Model| -> BTreeMap<String, String> {
        model.0.iter().copied().map(written).map(|text| (id(&text), text)).collect()
    };
    let mut rows = by_id(committed);
    for change in store.changes() {
        if change.space == system::TRUNCATE {
            rows.clear();
        } else if change.space == space {
            if let Some(gone) = change.gone().as_deref().map(text) {
                prop_assert_eq!(rows.remove(&id(&gone)), Some(gone));
            }
            if let Some(came) = change.came().map(text) {
                prop_assert_eq!(rows.insert(id(&came), came), None);
            }
        }
    }
    prop_assert_eq!(rows, by_id(model));
    Ok(())
}

/// The index that defers all entries.
const LAZY: IndexId = 4;
/// The index that also defers entries beyond a bound.
const DISTANT: IndexId = 6;
const BEYOND: u64 = 2;
/// The index that defers one half of the alphabet.
const HALVED: IndexId = 5;
const DEFERRED_HALF: &str = "first";
/// The other half, which has a cache.
const CACHED_HALF: &str = "other";

/// Indexes that defer entries show the same, before and after these are flushed.
fn compare_deferred(store: &Store, space: SpaceId, model: &Model) -> Result<(), TestCaseError> {
    let walk = |index, iterator| walk(store, space, index, iterator, "[]");
    let reversed = |text: &str| {
        let mut tuples: Vec<_> = text.split_inclusive(']').map(str::trim).collect();
        tuples.reverse();
        tuples.join(" ")
    };
    let by_number = model.walk(|tuple| (tuple.2, tuple.0));
    for index in [LAZY, DISTANT] {
        prop_assert_eq!(walk(index, IteratorType::All), &by_number[..]);
        prop_assert_eq!(walk(index, IteratorType::Le), reversed(&by_number));
        let from = model.0.iter().filter(|tuple| tuple.2 >= Some(1)).count() as u64;
        prop_assert_eq!(store.count(space, index, IteratorType::Ge, &row("[1]")), Ok(from));
        let beyond = model.0.iter().filter(|tuple| tuple.2.is_some_and(|number| number > 1));
        let first = Model(beyond.copied().collect()).first(|tuple| (tuple.2, tuple.0));
        let found = store.first(space, index, IteratorType::Gt, &row("[1]")).unwrap().map(text);
        prop_assert_eq!(found.unwrap_or_default(), first);
        prop_assert_eq!(store.space(space).unwrap().index(index).unwrap().len(), model.0.len() as u64);
    }
    let by_half = model.walk(|tuple| (Some(u8::from(half(tuple.1) != DEFERRED_HALF)), tuple.0));
    prop_assert_eq!(walk(HALVED, IteratorType::All), &by_half[..]);
    let after_two = store.range(space, HALVED, IteratorType::Ge, &[0x90], 2).unwrap().map(text);
    let expected: Vec<_> =
        by_half.split_inclusive(']').skip(2).map(|tuple| tuple.trim().to_owned()).collect();
    prop_assert_eq!(after_two.collect::<Vec<_>>(), expected);
    for &(id, name, number) in &model.0 {
        let key = row(&format!(r#"["{}", {id}]"#, half(name)));
        let found = store.get(space, HALVED, &key).unwrap().map(text);
        prop_assert_eq!(found, Some(written((id, name, number))));
    }
    // A read of the first tuple sorts no deferred entries, and finds the one that a walk begins with.
    for index in [LAZY, DISTANT, HALVED] {
        let mut keys: Vec<_> = match index {
            HALVED => [DEFERRED_HALF, CACHED_HALF].map(|half| format!(r#"["{half}"]"#)).to_vec(),
            _ => (0..3).map(|number| format!("[{number}]")).collect(),
        };
        let by_half = |tuple: &Tuple| format!(r#"["{}", {}]"#, half(tuple.1), tuple.0);
        keys.extend(model.0.iter().filter(|_| index == HALVED).map(by_half));
        for (key, iterator) in keys.iter().flat_map(|key| [(key, IteratorType::Ge), (key, IteratorType::Gt)])
        {
            let found = store.first(space, index, iterator, &row(key)).unwrap().map(text);
            let walked = store.range(space, index, iterator, &row(key), 0).unwrap().next().map(text);
            prop_assert_eq!(found, walked, "{} {:?}", key, iterator);
        }
    }
    Ok(())
}

/// Flushes entries in steps. A search within the bound sees nothing beyond it.
fn flush(store: &mut Store, space: SpaceId, model: &Model) -> Result<(), TestCaseError> {
    let within = store.first_within(space, DISTANT, &row("[1]")).unwrap().map(text);
    let ones = Model(model.0.iter().filter(|tuple| tuple.2 == Some(1)).copied().collect());
    prop_assert_eq!(within.unwrap_or_default(), ones.first(|tuple| (None, tuple.0)));
    store.read(space, LAZY, 0).unwrap();
    store.read(space, HALVED, 0).unwrap();
    if model.0.len() % 3 == 2 {
        store.read(space, DISTANT, 0).unwrap();
    }
    Ok(())
}

fn store_with_indexes() -> (Store, SpaceId) {
    let mut store = new_store();
    let space = commit(&mut store, |s| {
        let space = ddl::create_space(s, &SpaceSpec::new("t", &[]))?;
        let part = PartSpec::new;
        ddl::create_index(s, space, &IndexSpec::new("pk", &[part(0, "unsigned")]))?;
        ddl::create_index(s, space, &IndexSpec::new("name", &[part(1, "string")]))?;
        let number = PartSpec { nullable: true, ..part(2, "unsigned") };
        ddl::create_index(s, space, &IndexSpec::new("number", &[number]))?;
        let parts = [part(1, "string")];
        ddl::create_index(s, space, &IndexSpec { kind: IndexKind::Hash, ..IndexSpec::new("hash", &parts) })?;
        let number = [PartSpec { nullable: true, ..part(2, "unsigned") }];
        ddl::create_index(s, space, &IndexSpec { unique: false, ..IndexSpec::new("lazy", &number) })?;
        ddl::create_index(s, space, &IndexSpec::new("half", &[part(3, "string"), part(0, "unsigned")]))?;
        ddl::create_index(s, space, &IndexSpec { unique: false, ..IndexSpec::new("distant", &number) })?;
        Ok(space)
    });
    let (cached, deferred) = (row(&format!("\"{CACHED_HALF}\"")), row(&format!("\"{DEFERRED_HALF}\"")));
    store.defer_entries(space, LAZY, Deferral::Beyond { field: 2, bound: u64::MAX });
    store.defer_entries(space, HALVED, Deferral::Parts { cached: Some(&cached), deferred: &deferred });
    store.defer_entries(space, DISTANT, Deferral::Beyond { field: 2, bound: BEYOND });
    (store, space)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_space_is_a_list_of_tuples(steps in proptest::collection::vec(step(), 1..80)) {
        let (mut store, space) = store_with_indexes();
        let empty = store.memory().tuples;
        let (mut committed, mut model) = (Model::default(), Model::default());
        let mut savepoints = Vec::new();
        store.begin(user::ADMIN);
        for (number, step) in steps.iter().enumerate() {
            // A change first looks at the tuple that was read last.
            store.first(space, 0, IteratorType::Ge, &row(&format!("[{}]", number % 4))).unwrap();
            match step {
                Step::Savepoint => savepoints.push((store.savepoint(), model.clone())),
                Step::RollbackTo => if let Some((savepoint, saved)) = savepoints.pop() {
                    store.rollback_to(savepoint);
                    model = saved;
                },
                Step::Commit | Step::Rollback => {
                    savepoints.clear();
                    if matches!(step, Step::Commit) {
                        store.commit();
                        committed = model.clone();
                    } else {
                        store.rollback();
                        model = committed.clone();
                    }
                    store.begin(user::ADMIN);
                }
                _ => {
                    let before = model.clone();
                    let done = model.apply(step);
                    if !done {
                        model = before;
                    }
                    prop_assert_eq!(execute(&mut store, space, step), done, "{:?}", step);
                }
            }
            compare(&store, space, &model)?;
            follow_changes(&store, space, &committed, &model)?;
            if number % 4 == 3 {
                compare_deferred(&store, space, &model)?;
            }
            if number % 8 == 7 {
                flush(&mut store, space, &model)?;
                compare_deferred(&store, space, &model)?;
            }
        }
        store.rollback();
        compare(&store, space, &committed)?;
        compare_deferred(&store, space, &committed)?;
        // The log alone leads to the same data.
        let mut copy = new_store_to_follow();
        store.drain_committed(&mut |transaction| {
            for effect in transaction.effects() {
                copy.recover(&effect.statement).unwrap();
            }
        });
        copy.finish_recovery().unwrap();
        prop_assert_eq!(copy.digest(), store.digest());
        prop_assert_eq!(store.memory().indexes, walked_indexes(&store));
        store.set_memory_limit(u64::MAX);
        prop_assert_eq!(store.memory().indexes, walked_indexes(&store));
        // No tuple was lost in the arena.
        store.begin(user::ADMIN);
        ddl::truncate(&mut store, space).unwrap();
        store.commit();
        let one_row_of_truncate = 64;
        prop_assert!(store.memory().tuples <= empty + one_row_of_truncate);
    }
}

/// Bytes of all indexes, with a look at each of them.
fn walked_indexes(store: &Store) -> u64 {
    store.catalog.iter().map(crate::Space::index_memory).sum()
}

/// A new instance that is still recovering.
fn new_store_to_follow() -> Store {
    let origin = new_store();
    let mut store = Store::new(Settings::default());
    origin.for_each_snapshot_row(&mut |space, tuple, _| {
        store.recover(&Statement::Insert { space, tuple }).unwrap();
    });
    store
}
