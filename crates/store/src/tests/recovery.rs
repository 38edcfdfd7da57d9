//! Loading snapshots and logs.

use super::data::with_wire_data;
use super::*;
use crate::ddl::{self, IndexSpec, PartSpec, SequenceSpec, SequenceUse, SpaceSpec};
use crate::system;

fn loaded(origin: &Store) -> Store {
    let mut store = Store::new(Settings::default());
    origin.for_each_snapshot_row(&mut |space, tuple, _| {
        store.recover(&Statement::Insert { space, tuple }).unwrap();
    });
    store.finish_snapshot().unwrap();
    store
}

#[test]
fn a_snapshot_brings_everything_back() {
    let mut origin = with_wire_data();
    let s = &mut origin;
    commit(s, |s| {
        let temporary = ddl::create_space(s, &SpaceSpec { temporary: true, ..SpaceSpec::new("tmp", &[]) })?;
        let parts = [PartSpec::new(0, "unsigned")];
        ddl::create_index(s, temporary, &IndexSpec::new("pk", &parts))?;
        s.execute(&Statement::Insert { space: temporary, tuple: &row("[1]") })?;
        let id = ddl::create_sequence(s, &SequenceSpec::new("q"))?;
        s.sequence_next(id)?;
        s.execute(&Statement::Insert { space: 520, tuple: &row("[null]") })?;
        s.execute(&Statement::Insert { space: 520, tuple: &row("[null]") }).map(drop)
    });
    delete(s, 520, 0, "[2]").unwrap();
    let mut store = loaded(&origin);
    store.finish_recovery().unwrap();
    assert_eq!(store.digest(), origin.digest());
    for (space, index) in [(512, 1), (512, 2), (514, 1), (519, 1)] {
        let everything = |store: &Store| walk(store, space, index, IteratorType::All, "[]");
        assert_eq!(everything(&store), everything(&origin), "{space}/{index}");
    }
    assert_eq!(store.space_by_name("tmp").unwrap().len(), 0);
    assert_eq!(all(&store, system::SEQUENCE_DATA), "[2, 1] [1, 2]");
    assert_eq!(insert(&mut store, 520, "[null]").unwrap().unwrap(), "[3]");
    let tester = store.user_by_name("tester").unwrap();
    assert_eq!(tester.hash2, origin.user_by_name("tester").unwrap().hash2);
    assert!(store.check_access(tester.id, crate::Object::Space(512), crate::Access::READ).is_ok());
    assert!(insert(&mut store, 512, r#"[1000, "ten", 1]"#).is_err());
    assert!(store.space(512).unwrap().bytes() == origin.space(512).unwrap().bytes());
}

#[test]
fn limits_do_not_refuse_what_was_accepted() {
    let origin = with_wire_data();
    let mut store =
        Store::new(Settings { memory_limit: 1, max_tuple_size: 1, transaction_limit: 1, make_keys: None });
    origin.for_each_snapshot_row(&mut |space, tuple, _| {
        store.recover(&Statement::Insert { space, tuple }).unwrap();
    });
    store.recover(&Statement::Insert { space: 512, tuple: &row(r#"[1001, "late", 1]"#) }).unwrap();
    store.finish_snapshot().unwrap();
    store.recover(&Statement::Insert { space: 512, tuple: &row(r#"[1003, "later", 1]"#) }).unwrap();
    store.finish_recovery().unwrap();
    assert!(store.memory().used > store.memory().limit);
    assert!(matches!(insert(&mut store, 512, r#"[1002, "refused", 1]"#), Err(Error::MemtxMaxTupleSize(_))));
    store.settings.max_tuple_size = 1 << 20;
    assert!(matches!(insert(&mut store, 512, r#"[1002, "refused", 1]"#), Err(Error::Unsupported { .. })));
    store.settings.transaction_limit = 1 << 20;
    assert!(matches!(insert(&mut store, 512, r#"[1002, "refused", 1]"#), Err(Error::MemoryIssue { .. })));
    delete(&mut store, 512, 0, "[1001]").unwrap();
}

#[test]
fn a_log_is_followed() {
    let mut origin = with_wire_data();
    let mut store = loaded(&origin);
    origin.drain_committed(&mut |_| {});
    let s = &mut origin;
    insert(s, 520, "[null]").unwrap();
    upsert(s, 515, "[1]", r#"[["+", 2, 5], ["=", 1, "applied"]]"#).unwrap();
    update(s, 512, 1, r#"["ten"]"#, r#"[["=", 2, 7]]"#).unwrap();
    commit(s, |s| ddl::truncate(s, 514));
    commit(s, |s| {
        let id = ddl::create_space(s, &SpaceSpec::new("late", &[]))?;
        let parts = [PartSpec::new(0, "unsigned")];
        let sequence = Some(SequenceUse::Generate);
        ddl::create_index(s, id, &IndexSpec { sequence, ..IndexSpec::new("pk", &parts) })?;
        s.execute(&Statement::Insert { space: id, tuple: &row("[null]") }).map(drop)
    });
    commit(s, |s| ddl::drop_space(s, 513));
    origin.drain_committed(&mut |transaction| {
        for effect in transaction.effects() {
            store.recover(&effect.statement).unwrap();
        }
    });
    store.finish_recovery().unwrap();
    assert_eq!(store.digest(), origin.digest());
    assert!(store.nothing_committed(), "what was loaded is not logged again");
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut store = loaded(&with_wire_data());
    let mut recover = |space, tuple: &str| store.recover(&Statement::Insert { space, tuple: &row(tuple) });
    assert_eq!(refusal(recover(9999, "[1]")), "Space '9999' does not exist");
    assert_eq!(
        refusal(recover(512, r#"[10, "again"]"#)),
        "Duplicate key exists in unique index 'pk' in space 'tree'"
    );
    let mut store = Store::new(Settings::default());
    with_wire_data().for_each_snapshot_row(&mut |space, tuple, _| {
        store.recover(&Statement::Insert { space, tuple }).unwrap();
    });
    let mut recover = |space, tuple: &str| store.recover(&Statement::Insert { space, tuple: &row(tuple) });
    assert_eq!(refusal(recover(512, "[10]")), "Tuple field 2 required by space format is missing");
    recover(512, r#"[10, "again"]"#).unwrap();
    assert_eq!(refusal(store.finish_snapshot()), "Duplicate key exists in unique index 'pk' in space 'tree'");
}

#[test]
fn functional_indexes_are_left_out() {
    let mut store = loaded(&with_wire_data());
    let index = r#"[515, 1, "area", "tree", {"unique": false, "func": 66}, [[0, "unsigned"]]]"#;
    store.recover(&Statement::Insert { space: system::INDEX, tuple: &row(index) }).unwrap();
    store.finish_recovery().unwrap();
    assert_eq!(store.space(515).unwrap().indexes().len(), 1);
    commit(&mut store, |s| ddl::drop_space(s, 515));
    assert_eq!(walk(&store, system::INDEX, 0, IteratorType::Eq, "[515]"), "");
}

/// A Tarantool reads the log row by row: it knows no more of what one transaction undid itself.
#[test]
fn rows_of_the_log_count_as_statements_of_vinyl() {
    let insert_row = |space: SpaceId, tuple: &str| (space, true, row(tuple));
    let delete_row = |space: SpaceId, key: &str| (space, false, row(key));
    let truncate = r#"[600, 1]"#;
    for (log, is_allowed) in [
        (vec![], true),
        (vec![insert_row(600, "[1]"), delete_row(600, "[1]")], false),
        (vec![delete_row(600, "[1]")], false),
        (vec![insert_row(600, "[1]"), insert_row(system::TRUNCATE, truncate)], true),
    ] {
        let mut origin = with_wire_data();
        insert(&mut origin, 280, r#"[600, 1, "v", "vinyl", 0, {}, []]"#).unwrap();
        insert(&mut origin, 288, r#"[600, 0, "pk", "tree", {}, [[0, "unsigned"]]]"#).unwrap();
        let mut store = loaded(&origin);
        for (space, is_insert, bytes) in &log {
            let (space, bytes) = (*space, bytes.as_slice());
            store
                .recover(&match is_insert {
                    true => Statement::Replace { space, tuple: bytes },
                    false => Statement::Delete { space, index: 0, key: bytes },
                })
                .unwrap();
        }
        store.finish_recovery().unwrap();
        let altered = replace(&mut store, 288, r#"[600, 0, "pk", "tree", {}, [[0, "string"]]]"#);
        assert_eq!(altered.is_ok(), is_allowed, "{log:?}");
    }
}

#[test]
fn data_that_take_the_place_of_others_check_bodies_as_they_did() {
    let function = |store: &mut Store, body: &str| {
        let spec = ddl::FunctionSpec { name: "f", setuid: false, language: "LUA", body };
        ddl::create_function(store, &spec, "2026-01-01 00:00:00", false)
    };
    let mut former = with_wire_data();
    former.set_body_check(|body| Err(format!("no {body}")));
    let mut store = loaded(&former);
    store.finish_recovery().unwrap();
    store.succeed(&former);
    store.begin(user::ADMIN);
    let refused = function(&mut store, "function() end").unwrap_err();
    assert!(refused.to_string().contains("no function() end"), "{refused}");
    store.rollback();
}

#[test]
fn data_that_give_way_keep_their_definitions_and_give_their_memory_back() {
    let mut store = with_wire_data();
    let definitions = |store: &Store| all(store, system::SPACE);
    let (before, used) = (definitions(&store), store.memory().tuples);
    store.vacate();
    assert!(store.has_garbage());
    let mut steps = 1;
    while store.collect_garbage(1) {
        steps += 1;
    }
    assert!(steps > 1 && !store.has_garbage(), "{steps} steps");
    assert_eq!(definitions(&store), before);
    let mut left = store.spaces().filter(|space| !space.is_system());
    assert!(left.all(crate::Space::is_empty));
    assert!(store.memory().tuples < used);
}
