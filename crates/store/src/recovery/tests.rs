//! The short way leads where the ordinary one does.

use proptest::prelude::*;

use super::*;
use crate::ddl::{self, IndexSpec, PartSpec, SequenceSpec, SequenceUse, SpaceSpec};
use crate::{IteratorType, Settings};

const SPACE: SpaceId = 512;

/// A store with a space of three indexes; with `attached` a sequence fills its primary key.
fn store(attached: bool) -> Store {
    let mut store = Store::new(Settings::default());
    store.bootstrap("11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222").unwrap();
    store.begin(user::ADMIN);
    let id = ddl::create_space(&mut store, &SpaceSpec::new("tasks", &[])).unwrap();
    assert_eq!(id, SPACE);
    let (key, name) = ([PartSpec::new(0, "unsigned")], [PartSpec::new(1, "unsigned")]);
    ddl::create_sequence(&mut store, &SequenceSpec::new("numbers")).unwrap();
    let sequence = attached.then_some(SequenceUse::Existing("numbers"));
    let primary = IndexSpec { sequence, ..IndexSpec::new("key", &key) };
    ddl::create_index(&mut store, id, &primary).unwrap();
    ddl::create_index(&mut store, id, &IndexSpec::new("name", &name)).unwrap();
    let many = [PartSpec::new(2, "unsigned")];
    let many = IndexSpec { unique: false, ..IndexSpec::new("many", &many) };
    ddl::create_index(&mut store, id, &many).unwrap();
    store.commit();
    store
}

fn array(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0x90 | u8::try_from(numbers.len()).unwrap()];
    numbers.iter().for_each(|&number| lycosa_tuple::mp::write_uint(&mut bytes, number));
    bytes
}

/// `[["=", 3rd field, value]]`, numbered from 0.
fn assignment(value: u64) -> Vec<u8> {
    let mut bytes = vec![0x91, 0x93, 0xa1, b'=', 0x02];
    lycosa_tuple::mp::write_uint(&mut bytes, value);
    bytes
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u64, u64, u64),
    Next(u64, u64),
    Replace(u64, u64, u64),
    Update { by_name: bool, key: u64, value: u64 },
    Upsert(u64, u64, u64),
    Delete { by_name: bool, key: u64 },
    Truncate,
    DropIndex,
    AddIndex,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = || 0_u64..12;
    let step = prop_oneof![
        8 => (number(), number(), number()).prop_map(|(a, b, c)| Step::Insert(a, b, c)),
        2 => (number(), number()).prop_map(|(b, c)| Step::Next(b, c)),
        4 => (number(), number(), number()).prop_map(|(a, b, c)| Step::Replace(a, b, c)),
        6 => (any::<bool>(), number(), number())
            .prop_map(|(by_name, key, value)| Step::Update { by_name, key, value }),
        1 => (number(), number(), number()).prop_map(|(a, b, c)| Step::Upsert(a, b, c)),
        6 => (any::<bool>(), number()).prop_map(|(by_name, key)| Step::Delete { by_name, key }),
        1 => Just(Step::Truncate),
        1 => Just(Step::DropIndex),
        1 => Just(Step::AddIndex),
    ];
    proptest::collection::vec(step, 0..60)
}

fn perform(store: &mut Store, step: &Step) -> Result<(), Error> {
    let statement = |store: &mut Store, statement: Statement<'_>| store.execute(&statement).map(drop);
    match *step {
        Step::Insert(a, b, c) => {
            statement(store, Statement::Insert { space: SPACE, tuple: &array(&[a, b, c]) })
        }
        Step::Next(b, c) => {
            let mut tuple = array(&[0, b, c]);
            tuple[1] = 0xc0;
            statement(store, Statement::Insert { space: SPACE, tuple: &tuple })
        }
        Step::Replace(a, b, c) => {
            statement(store, Statement::Replace { space: SPACE, tuple: &array(&[a, b, c]) })
        }
        Step::Update { by_name, key, value } => {
            let (key, operations) = (array(&[key]), assignment(value));
            let index = u32::from(by_name);
            let update =
                Statement::Update { space: SPACE, index, key: &key, operations: &operations, base: 0 };
            statement(store, update)
        }
        Step::Upsert(a, b, c) => {
            let (tuple, operations) = (array(&[a, b, c]), assignment(c));
            statement(
                store,
                Statement::Upsert { space: SPACE, tuple: &tuple, operations: &operations, base: 0 },
            )
        }
        Step::Delete { by_name, key } => {
            let index = u32::from(by_name);
            statement(store, Statement::Delete { space: SPACE, index, key: &array(&[key]) })
        }
        Step::Truncate => ddl::truncate(store, SPACE),
        Step::DropIndex => ddl::drop_index(store, SPACE, 2),
        Step::AddIndex => {
            let parts = [PartSpec::new(2, "unsigned")];
            let many = IndexSpec { id: Some(2), unique: false, ..IndexSpec::new("many", &parts) };
            ddl::create_index(store, SPACE, &many).map(drop)
        }
    }
}

fn walk(store: &Store, index: crate::IndexId) -> Vec<Vec<u8>> {
    let rows = store.range(SPACE, index, IteratorType::All, &[0x90], 0);
    rows.map_or_else(|_| Vec::new(), |rows| rows.map(<[u8]>::to_vec).collect())
}

fn snapshot_of(store: &Store) -> Store {
    let mut copy = Store::new(Settings::default());
    store.for_each_snapshot_row(&mut |space, tuple, _| {
        copy.recover(&Statement::Insert { space, tuple }).unwrap();
    });
    copy.finish_snapshot().unwrap();
    copy
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_log_leads_to_what_was_logged(
        attached in any::<bool>(),
        before in steps(),
        after in steps(),
        by_secondary in proptest::collection::vec((any::<bool>(), 0_u64..12), 0..3),
    ) {
        let mut origin = store(attached);
        let work = |origin: &mut Store, steps: &[Step]| {
            for step in steps {
                origin.begin(user::ADMIN);
                match perform(origin, step) {
                    Ok(()) => origin.commit(),
                    Err(_) => origin.rollback(),
                }
            }
        };
        work(&mut origin, &before);
        origin.drain_committed(&mut |_| {});
        let mut copy = snapshot_of(&origin);
        work(&mut origin, &after);
        origin.drain_committed(&mut |transaction| {
            for effect in transaction.effects() {
                copy.recover(&effect.statement).unwrap();
            }
        });
        // No log of ours has rows like these; they lead to the same data all the same.
        for (deletes, key) in by_secondary {
            let (key, operations) = (array(&[key]), assignment(1));
            let statement = if deletes {
                Statement::Delete { space: SPACE, index: 1, key: &key }
            } else {
                Statement::Update { space: SPACE, index: 1, key: &key, operations: &operations, base: 0 }
            };
            origin.begin(user::ADMIN);
            origin.execute(&statement).unwrap();
            origin.commit();
            copy.recover(&statement).unwrap();
        }
        copy.finish_recovery().unwrap();
        prop_assert_eq!(copy.digest(), origin.digest());
        prop_assert_eq!(copy.space(SPACE).unwrap().bytes(), origin.space(SPACE).unwrap().bytes());
        for index in 0..3 {
            prop_assert_eq!(walk(&copy, index), walk(&origin, index), "index {}", index);
        }
        let value = |store: &Store| store.sequence_by_name("numbers").map(|sequence| sequence.value);
        prop_assert_eq!(value(&copy), value(&origin));
    }
}

#[test]
fn what_a_secondary_index_cannot_hold_is_said_at_the_end() {
    let origin = store(false);
    let mut copy = snapshot_of(&origin);
    copy.recover(&Statement::Insert { space: SPACE, tuple: &array(&[1, 7, 0]) }).unwrap();
    copy.recover(&Statement::Insert { space: SPACE, tuple: &array(&[2, 7, 0]) }).unwrap();
    let refusal = copy.finish_recovery().unwrap_err();
    assert_eq!(refusal.to_string(), "Duplicate key exists in unique index 'name' in space 'tasks'");

    let mut copy = snapshot_of(&origin);
    copy.recover(&Statement::Insert { space: SPACE, tuple: &array(&[1, 7, 0]) }).unwrap();
    let again = copy.recover(&Statement::Insert { space: SPACE, tuple: &array(&[1, 8, 0]) }).unwrap_err();
    assert_eq!(again.to_string(), "Duplicate key exists in unique index 'key' in space 'tasks'");
}

#[test]
fn builds_can_run_on_other_threads_in_any_order() {
    let origin = store(false);
    let mut copy = snapshot_of(&origin);
    for key in 0..100 {
        copy.recover(&Statement::Insert { space: SPACE, tuple: &array(&[key, 100 - key, key % 3]) }).unwrap();
    }
    let run = |builds: Vec<IndexBuild<'_>>| {
        assert_eq!(builds.iter().map(IndexBuild::tuples).collect::<Vec<_>>(), [100, 100]);
        std::thread::scope(|scope| {
            builds.into_iter().rev().for_each(|build| drop(scope.spawn(|| build.run())));
        });
    };
    copy.finish_recovery_with(run).unwrap();
    assert_eq!(walk(&copy, 1)[0], array(&[99, 1, 0]));
    assert_eq!(walk(&copy, 2).len(), 100);
}
