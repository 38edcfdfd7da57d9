use std::sync::Arc;

use lycosa_tuple::format::Format;
use lycosa_tuple::value::Value;
use proptest::prelude::*;

use crate::ddl::{self, IndexSpec, PartSpec, SpaceSpec};
use crate::index::Distance;
use crate::tests::{commit, new_store, refusal, row, text, walk};
use crate::{
    Budget, Cursor, Error, IndexKind, IteratorType, KeyFault, KeyFunction, KeyMaker, Progress, Settings,
    SpaceId, Statement, Store, system, user,
};

const BY: u32 = 1;

/// A store with one space: a primary key over field 1, and the index.
fn store_with(index: &IndexSpec<'_>) -> (Store, SpaceId) {
    let mut store = new_store();
    let space = commit(&mut store, |store| {
        let space = ddl::create_space(store, &SpaceSpec::new("s", &[]))?;
        ddl::create_index(store, space, &IndexSpec::new("pk", &[PartSpec::new(0, "unsigned")]))?;
        ddl::create_index(store, space, index)?;
        Ok(space)
    });
    (store, space)
}

fn replace(store: &mut Store, space: SpaceId, tuple: &str) -> Result<(), Error> {
    store.execute(&Statement::Replace { space, tuple: &row(tuple) }).map(drop)
}

fn delete(store: &mut Store, space: SpaceId, index: u32, key: &str) -> Result<Option<String>, Error> {
    Ok(store.execute(&Statement::Delete { space, index, key: &row(key) })?.map(text))
}

/// The first fields of the tuples on a walk.
fn ids(store: &Store, space: SpaceId, iterator: IteratorType, key: &str) -> Vec<u64> {
    let mut found = Vec::new();
    let key = row(key);
    let mut note = |tuple: &[u8]| {
        let first = lycosa_tuple::tuple::TupleRef::trusted(tuple).at(0).unwrap().uint().unwrap();
        found.push(first);
    };
    store.select(user::ADMIN, space, BY, iterator, &key, 0, u64::MAX, &mut note).unwrap();
    found
}

/// The first fields of what a cursor hands out, a tuple with each step.
fn stepped(store: &mut Store, space: SpaceId, iterator: IteratorType, key: &str) -> Vec<u64> {
    let mut cursor = Cursor::new(user::ADMIN, space, BY, iterator, &row(key));
    let mut found = Vec::new();
    loop {
        let mut note = |tuple: &[u8]| {
            found.push(lycosa_tuple::tuple::TupleRef::trusted(tuple).at(0).unwrap().uint().unwrap());
        };
        let progress = store.advance(&mut cursor, Budget::of_rows(1), &mut note).unwrap();
        if progress == Progress::End {
            return found;
        }
    }
}

fn tags() -> PartSpec<'static> {
    PartSpec { path: "[*]", ..PartSpec::new(1, "unsigned") }
}

#[test]
fn a_tuple_has_a_key_for_each_element() {
    let parts = [tags()];
    let (mut store, space) = store_with(&IndexSpec { unique: false, ..IndexSpec::new("tags", &parts) });
    commit(&mut store, |store| {
        replace(store, space, "[1, [3, 1, 3]]")?;
        replace(store, space, "[2, [2, 3]]")?;
        replace(store, space, "[3, []]")?;
        replace(store, space, "[4]")
    });
    assert_eq!(ids(&store, space, IteratorType::All, "[]"), [1, 2, 1, 2]);
    assert_eq!(ids(&store, space, IteratorType::Eq, "[3]"), [1, 2]);
    assert_eq!(ids(&store, space, IteratorType::Le, "[2]"), [2, 1]);
    assert_eq!(stepped(&mut store, space, IteratorType::All, "[]"), [1, 2, 1, 2]);
    assert_eq!(store.count(space, BY, IteratorType::Ge, &row("[2]")).unwrap(), 3);
    assert_eq!(store.space(space).unwrap().index(BY).unwrap().len(), 4);

    store.begin(user::ADMIN);
    replace(&mut store, space, "[1, [7]]").unwrap();
    delete(&mut store, space, 0, "[2]").unwrap();
    assert_eq!(ids(&store, space, IteratorType::All, "[]"), [1]);
    store.rollback();
    assert_eq!(ids(&store, space, IteratorType::All, "[]"), [1, 2, 1, 2]);

    store.begin(user::ADMIN);
    let wrong = replace(&mut store, space, r#"[5, [1, "a"]]"#);
    let expected = "Tuple field [2][*] type does not match one required by operation: expected unsigned";
    assert_eq!(refusal(wrong), expected);
    store.rollback();
}

#[test]
fn a_unique_multikey_index_refuses_the_key_of_another_tuple_only() {
    let parts = [tags()];
    let (mut store, space) = store_with(&IndexSpec::new("tags", &parts));
    commit(&mut store, |store| replace(store, space, "[1, [3, 1, 3]]"));
    store.begin(user::ADMIN);
    let refused = refusal(replace(&mut store, space, "[2, [5, 1]]"));
    assert_eq!(refused, "Duplicate key exists in unique index 'tags' in space 's'");
    assert_eq!(ids(&store, space, IteratorType::All, "[]"), [1, 1]);
    replace(&mut store, space, "[1, [1, 5]]").unwrap();
    replace(&mut store, space, "[2, [3]]").unwrap();
    assert_eq!(ids(&store, space, IteratorType::All, "[]"), [1, 2, 1]);
    assert_eq!(delete(&mut store, space, BY, "[5]").unwrap().as_deref(), Some("[1, [1, 5]]"));
    assert_eq!(ids(&store, space, IteratorType::All, "[]"), [2]);
    store.rollback();
    assert_eq!(ids(&store, space, IteratorType::All, "[]"), [1, 1]);
}

/// Bulk deletion meets a tuple under several keys and deletes it once.
#[test]
fn a_walk_that_deletes_counts_each_tuple_once() {
    let parts = [tags()];
    let (mut store, space) = store_with(&IndexSpec { unique: false, ..IndexSpec::new("tags", &parts) });
    commit(&mut store, |store| {
        replace(store, space, "[1, [3, 1, 2]]")?;
        replace(store, space, "[2, [2, 3]]")
    });
    let walk_all = (BY, IteratorType::All, &row("[]")[..]);
    let deleted = commit(&mut store, |store| store.delete_along(space, walk_all, 10, &mut |_| true));
    assert_eq!((deleted, walk(&store, space, 0, IteratorType::All, "[]")), (2, String::new()));
    assert!(store.space(space).unwrap().index(BY).unwrap().is_empty());
}

#[test]
fn an_rtree_refuses_what_has_no_coordinates() {
    let parts = [PartSpec::new(1, "array")];
    let kind = IndexKind::Rtree { dimension: 2, distance: Distance::Euclid };
    let (mut store, space) =
        store_with(&IndexSpec { unique: false, kind, ..IndexSpec::new("places", &parts) });
    commit(&mut store, |store| replace(store, space, "[1, [1, 2]]"));
    store.begin(user::ADMIN);
    let expected = "RTree: Field must be an array with 2 (point) or 4 (rectangle/box) numeric coordinates";
    assert_eq!(refusal(replace(&mut store, space, "[2, [1, 2, 3]]")), expected);
    let operations = row("[[\"=\", 1, [1]]]");
    let update = Statement::Update { space, index: 0, key: &row("[1]"), operations: &operations, base: 0 };
    assert_eq!(refusal(store.execute(&update).map(drop)), expected);
    store.rollback();
    let select = |key: &str| {
        store.range(space, BY, IteratorType::Eq, &row(key), 0).map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(select("[1, 2, 3]"), Err("Invalid key part count (expected [0..4], got 3)".to_owned()));
    assert_eq!(select("[[1, 2]]"), Ok(()));
}

/// A rectangle with small coordinates: random ones often touch.
fn sides() -> impl Strategy<Value = [u8; 4]> {
    prop_oneof![
        (0_u8..12, 0_u8..12).prop_map(|(x, y)| [x, y, x, y]),
        (0_u8..12, 0_u8..12, 0_u8..4, 0_u8..4).prop_map(|(x, y, w, h)| [x, y, x + w, y + h]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 48 }))]

    /// An RTREE finds the tuples that a scan finds, after any inserts and deletes, and the nearest first.
    #[test]
    fn an_rtree_is_a_list_of_rectangles(
        steps in proptest::collection::vec((0_u64..160, proptest::option::weighted(0.7, sides())), 1..400),
        key in sides(),
        is_manhattan in any::<bool>(),
    ) {
        let distance = if is_manhattan { Distance::Manhattan } else { Distance::Euclid };
        let parts = [PartSpec::new(1, "array")];
        let kind = IndexKind::Rtree { dimension: 2, distance };
        let (mut store, space) =
            store_with(&IndexSpec { unique: false, kind, ..IndexSpec::new("places", &parts) });
        let mut model = std::collections::BTreeMap::new();
        store.begin(user::ADMIN);
        for (id, sides) in steps {
            match sides {
                Some(sides) => {
                    let [a, b, c, d] = sides;
                    replace(&mut store, space, &format!("[{id}, [{a}, {b}, {c}, {d}]]")).unwrap();
                    model.insert(id, sides);
                }
                None => {
                    delete(&mut store, space, 0, &format!("[{id}]")).unwrap();
                    model.remove(&id);
                }
            }
        }
        store.commit();
        let [x, y, to_x, to_y] = key;
        let text = format!("[{x}, {y}, {to_x}, {to_y}]");
        let expect = |fits: &dyn Fn([u8; 4]) -> bool| -> Vec<u64> {
            model.iter().filter(|(_, sides)| fits(**sides)).map(|(id, _)| *id).collect()
        };
        let inside = |a: [u8; 4], b: [u8; 4]| b[0] <= a[0] && b[1] <= a[1] && a[2] <= b[2] && a[3] <= b[3];
        let strictly = |a: [u8; 4], b: [u8; 4]| b[0] < a[0] && b[1] < a[1] && a[2] < b[2] && a[3] < b[3];
        let overlaps = |a: [u8; 4]| a[0] <= to_x && x <= a[2] && a[1] <= to_y && y <= a[3];
        for (iterator, expected) in [
            (IteratorType::All, expect(&|_| true)),
            (IteratorType::Eq, expect(&|sides| sides == key)),
            (IteratorType::Overlaps, expect(&overlaps)),
            (IteratorType::Le, expect(&|sides| inside(sides, key))),
            (IteratorType::Lt, expect(&|sides| strictly(sides, key))),
            (IteratorType::Ge, expect(&|sides| inside(key, sides))),
            (IteratorType::Gt, expect(&|sides| strictly(key, sides))),
        ] {
            let mut found = ids(&store, space, iterator, &text);
            found.sort_unstable();
            prop_assert_eq!(&found, &expected, "{:?}", iterator);
            let mut by_steps = stepped(&mut store, space, iterator, &text);
            by_steps.sort_unstable();
            prop_assert_eq!(&by_steps, &expected, "{:?}", iterator);
            prop_assert_eq!(store.count(space, BY, iterator, &row(&text)).unwrap(), expected.len() as u64);
        }
        let far = |id: &u64| {
            let [left, top, right, bottom] = model[id].map(i64::from);
            let gap = |low: i64, at: i64, high: i64| (low - at).max(at - high).max(0);
            let (dx, dy) = (gap(left, i64::from(x), right), gap(top, i64::from(y), bottom));
            if is_manhattan { dx + dy } else { dx * dx + dy * dy }
        };
        let nearest = ids(&store, space, IteratorType::Neighbor, &text);
        prop_assert_eq!(nearest.len(), model.len());
        prop_assert!(nearest.is_sorted_by_key(far), "{:?}", nearest);
        prop_assert_eq!(stepped(&mut store, space, IteratorType::Neighbor, &text), nearest);
    }

    /// A BITSET finds what a look at every tuple finds.
    #[test]
    fn a_bitset_is_a_list_of_numbers(
        steps in proptest::collection::vec((0_u64..150, proptest::option::weighted(0.7, 0_u64..64)), 1..300),
        key in 0_u64..64,
    ) {
        let parts = [PartSpec::new(1, "unsigned")];
        let kind = IndexKind::Bitset;
        let (mut store, space) = store_with(&IndexSpec { unique: false, kind, ..IndexSpec::new("bits", &parts) });
        let mut model = std::collections::BTreeMap::new();
        store.begin(user::ADMIN);
        for (id, number) in steps {
            match number {
                Some(number) => {
                    replace(&mut store, space, &format!("[{id}, {number}]")).unwrap();
                    model.insert(id, number);
                }
                None => {
                    delete(&mut store, space, 0, &format!("[{id}]")).unwrap();
                    model.remove(&id);
                }
            }
        }
        store.commit();
        let text = format!("[{key}]");
        type Fits = fn(u64, u64) -> bool;
        let asked: [(IteratorType, Fits); 5] = [
            (IteratorType::All, |_, _| true),
            (IteratorType::Eq, |number, key| number == key),
            (IteratorType::BitsAllSet, |number, key| key != 0 && number & key == key),
            (IteratorType::BitsAnySet, |number, key| number & key != 0),
            (IteratorType::BitsAllNotSet, |number, key| number & key == 0),
        ];
        for (iterator, fits) in asked {
            let expected: Vec<u64> =
                model.iter().filter(|(_, number)| fits(**number, key)).map(|(id, _)| *id).collect();
            let mut found = ids(&store, space, iterator, &text);
            found.sort_unstable();
            prop_assert_eq!(&found, &expected, "{:?}", iterator);
            let mut by_steps = stepped(&mut store, space, iterator, &text);
            by_steps.sort_unstable();
            prop_assert_eq!(&by_steps, &expected, "{:?}", iterator);
        }
    }
}

/// What the functions of the tests return for a tuple: `sum` a key of its first two fields, `words` the keys in its second
/// field, `odd` no key of a tuple whose first field is even.
fn make(function: &Arc<KeyFunction>, format: &Format, tuple: &[u8]) -> Result<Vec<u8>, KeyFault> {
    let Value::Array(fields) = Value::decode(tuple).unwrap() else { panic!("a tuple is an array") };
    assert_eq!(format.fields().first().map(|field| field.name.as_str()), Some("id"));
    let number = |place: usize| fields[place].as_u64().unwrap();
    let returned = match function.name.as_str() {
        "sum" => Value::Array(vec![Value::from(number(0) + number(1))]),
        "words" => fields[1].clone(),
        _ if number(0) % 2 == 0 => return Err(KeyFault::Raised("even".to_owned())),
        _ => Value::Array(vec![Value::from(number(0))]),
    };
    Ok(Value::Array(vec![returned]).encode())
}

/// The rows of a space `s` with the functions of [`make`].
fn definitions() -> Vec<(SpaceId, String)> {
    let function = |id: u32, name: &str, options: &str| {
        let row = format!(
            r#"[{id}, 1, "{name}", 0, "LUA", "function() end", "function", [], "any", "none", "none", true, true, true, ["LUA"], {options}, "", "", ""]"#
        );
        (system::FUNC, row)
    };
    vec![
        (system::SPACE, r#"[512, 1, "s", "memtx", 0, {}, [{"name": "id", "type": "unsigned"}]]"#.to_owned()),
        (system::INDEX, r#"[512, 0, "pk", "tree", {"unique": true}, [[0, "unsigned"]]]"#.to_owned()),
        function(70, "sum", "{}"),
        function(71, "words", r#"{"is_multikey": true}"#),
        function(72, "odd", "{}"),
    ]
}

fn with_functions() -> Store {
    let mut store = Store::new(Settings { make_keys: Some(KeyMaker(make)), ..Settings::default() });
    store.bootstrap("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002").unwrap();
    commit(&mut store, |store| {
        for (space, row) in definitions() {
            insert_row(store, space, &row)?;
        }
        Ok(())
    });
    store
}

fn insert_row(store: &mut Store, space: SpaceId, tuple: &str) -> Result<(), Error> {
    store.execute(&Statement::Insert { space, tuple: &row(tuple) }).map(drop)
}

fn functional(store: &mut Store, id: u32, function: u32, unique: bool) -> Result<(), Error> {
    let index = format!(
        r#"[512, {id}, "f{id}", "tree", {{"unique": {unique}, "func": {function}}}, [[0, "unsigned"]]]"#
    );
    insert_row(store, system::INDEX, &index)?;
    insert_row(store, system::FUNC_INDEX, &format!("[512, {id}, {function}]"))
}

#[test]
fn a_function_makes_the_keys_of_a_tuple() {
    let mut store = with_functions();
    commit(&mut store, |store| {
        functional(store, BY, 70, true)?;
        replace(store, 512, "[1, 10]")?;
        replace(store, 512, "[2, 3]")
    });
    assert_eq!(ids(&store, 512, IteratorType::All, "[]"), [2, 1]);
    assert_eq!(ids(&store, 512, IteratorType::Eq, "[11]"), [1]);
    store.begin(user::ADMIN);
    assert_eq!(
        refusal(replace(&mut store, 512, "[3, 2]")),
        "Duplicate key exists in unique index 'f1' in space 's'"
    );
    replace(&mut store, 512, "[2, 20]").unwrap();
    replace(&mut store, 512, "[3, 2]").unwrap();
    assert_eq!(delete(&mut store, 512, BY, "[11]").unwrap().as_deref(), Some("[1, 10]"));
    assert_eq!(ids(&store, 512, IteratorType::All, "[]"), [3, 2]);
    store.rollback();
    assert_eq!(ids(&store, 512, IteratorType::All, "[]"), [2, 1]);
    assert_eq!(stepped(&mut store, 512, IteratorType::Ge, "[5]"), [2, 1]);
}

/// A function is asked once for each new tuple: a removal and a rollback ask nothing.
#[test]
fn keys_of_a_multikey_function_come_and_go_with_their_tuple() {
    let mut store = with_functions();
    commit(&mut store, |store| {
        functional(store, BY, 71, false)?;
        replace(store, 512, "[1, [[5], [7], [5]]]")?;
        replace(store, 512, "[2, [[5]]]")?;
        replace(store, 512, "[3, []]")
    });
    assert_eq!(ids(&store, 512, IteratorType::All, "[]"), [1, 2, 1]);
    assert_eq!(store.space(512).unwrap().index(BY).unwrap().len(), 3);
    store.begin(user::ADMIN);
    let refused = replace(&mut store, 512, "[4, [5]]");
    assert_eq!(
        refusal(refused),
        "Key format doesn't match one defined in functional index 'f1' of space 's': supplied key type is invalid: \
         expected array"
    );
    replace(&mut store, 512, "[1, [[9]]]").unwrap();
    replace(&mut store, 512, "[1, [[8]]]").unwrap();
    assert_eq!(ids(&store, 512, IteratorType::All, "[]"), [2, 1]);
    store.rollback();
    assert_eq!(ids(&store, 512, IteratorType::All, "[]"), [1, 2, 1]);
    commit(&mut store, |store| delete(store, 512, 0, "[1]"));
    assert_eq!(ids(&store, 512, IteratorType::All, "[]"), [2]);
}

#[test]
fn a_tuple_without_a_key_is_refused_and_changes_nothing() {
    let mut store = with_functions();
    commit(&mut store, |store| {
        functional(store, BY, 72, true)?;
        functional(store, 2, 70, false)?;
        replace(store, 512, "[1, 1]")
    });
    store.begin(user::ADMIN);
    assert_eq!(
        refusal(replace(&mut store, 512, "[2, 1]")),
        "Failed to build a key for functional index 'f1' of space 's': can't evaluate function"
    );
    replace(&mut store, 512, "[3, 1]").unwrap();
    store.commit();
    assert_eq!(ids(&store, 512, IteratorType::All, "[]"), [1, 3]);
    assert_eq!(store.space(512).unwrap().index(2).unwrap().len(), 2);
    let over_tuples = |store: &mut Store| {
        store.begin(user::ADMIN);
        insert_row(store, 512, "[5, 7]").unwrap();
        let refused = functional(store, 3, 71, false);
        store.rollback();
        refusal(refused)
    };
    assert!(
        over_tuples(&mut store).starts_with("Key format doesn't match one defined in functional index 'f3'")
    );
    assert_eq!(store.space(512).unwrap().indexes().len(), 3);
}

/// A row of `_index` comes before that of its function in a snapshot; the row of `_func_index` puts them together.
#[test]
fn functional_indexes_are_built_when_the_data_have_been_read() {
    let mut origin = with_functions();
    commit(&mut origin, |store| {
        functional(store, BY, 70, true)?;
        replace(store, 512, "[1, 10]")?;
        replace(store, 512, "[2, 3]")
    });
    let mut store = Store::new(Settings { make_keys: Some(KeyMaker(make)), ..Settings::default() });
    origin.for_each_snapshot_row(&mut |space, tuple, _| {
        store.recover(&Statement::Insert { space, tuple }).unwrap();
    });
    store.finish_snapshot().unwrap();
    store.recover(&Statement::Delete { space: 512, index: 0, key: &row("[1]") }).unwrap();
    store.recover(&Statement::Insert { space: 512, tuple: &row("[4, 1]") }).unwrap();
    let later = r#"[512, 2, "f2", "tree", {"unique": false, "func": 70}, [[0, "unsigned"]]]"#;
    store.recover(&Statement::Insert { space: system::INDEX, tuple: &row(later) }).unwrap();
    store.recover(&Statement::Insert { space: system::FUNC_INDEX, tuple: &row("[512, 2, 70]") }).unwrap();
    store.recover(&Statement::Delete { space: 512, index: 0, key: &row("[2]") }).unwrap();
    store.finish_recovery().unwrap();
    assert_eq!(ids(&store, 512, IteratorType::All, "[]"), [4]);
    assert_eq!(store.space(512).unwrap().index(2).unwrap().len(), 1);
}

/// The log may delete a tuple after a multikey index was made over it.
#[test]
fn an_index_that_the_log_makes_holds_no_tuple_that_is_gone() {
    let parts = [tags()];
    let (mut origin, space) = store_with(&IndexSpec { unique: false, ..IndexSpec::new("tags", &parts) });
    commit(&mut origin, |store| {
        replace(store, space, "[1, [3]]")?;
        replace(store, space, "[2, [4]]")?;
        ddl::drop_index(store, space, BY)
    });
    let mut store = Store::new(Settings::default());
    origin.for_each_snapshot_row(&mut |space, tuple, _| {
        store.recover(&Statement::Insert { space, tuple }).unwrap();
    });
    store.finish_snapshot().unwrap();
    for (id, path) in [(1, "[*]"), (2, "[*]")] {
        let index = format!(
            r#"[{space}, {id}, "i{id}", "tree", {{"unique": false}}, [{{"field": 1, "type": "unsigned", "path": "{path}"}}]]"#
        );
        store.recover(&Statement::Insert { space: system::INDEX, tuple: &row(&index) }).unwrap();
    }
    store.recover(&Statement::Delete { space, index: 0, key: &row("[1]") }).unwrap();
    store.finish_recovery().unwrap();
    assert_eq!(ids(&store, space, IteratorType::All, "[]"), [2]);
}
