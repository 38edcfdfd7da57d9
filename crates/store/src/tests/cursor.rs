//! Cursors against a sorted list, with changes between their steps.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::ddl::{self, FieldSpec, IndexSpec, PartSpec, SpaceSpec};
use crate::{Budget, Cursor, CursorError, Deferral, IndexKind, Progress};

const BY_ID: IndexId = 0;
const BY_NUMBER: IndexId = 1;
const BY_HASH: IndexId = 2;
const DEFERRED: IndexId = 3;

/// Tuples are `[id, number]`; both indexes over the number are not unique, and one of them defers its entries.
fn space_of_pairs() -> (Store, SpaceId) {
    let mut store = new_store();
    let space = commit(&mut store, |s| {
        let space = ddl::create_space(s, &SpaceSpec::new("pairs", &[]))?;
        let (id, number) = ([PartSpec::new(0, "unsigned")], [PartSpec::new(1, "unsigned")]);
        ddl::create_index(s, space, &IndexSpec::new("id", &id))?;
        ddl::create_index(s, space, &IndexSpec { unique: false, ..IndexSpec::new("number", &number) })?;
        ddl::create_index(s, space, &IndexSpec { kind: IndexKind::Hash, ..IndexSpec::new("hash", &id) })?;
        ddl::create_index(s, space, &IndexSpec { unique: false, ..IndexSpec::new("deferred", &number) })?;
        Ok(space)
    });
    store.defer_entries(space, DEFERRED, Deferral::Beyond { field: 1, bound: 3 });
    (store, space)
}

fn rows(rows: u32) -> Budget<'static> {
    Budget::of_rows(rows)
}

/// The pairs that a step hands out.
fn step(
    store: &mut Store,
    cursor: &mut Cursor,
    budget: u32,
) -> Result<(Vec<(u64, u64)>, Progress), CursorError> {
    let mut pairs = Vec::new();
    let progress = store.advance(cursor, rows(budget), &mut |tuple| {
        let mut reader = Reader::new(tuple);
        assert_eq!(reader.array(), Ok(2));
        pairs.push((reader.uint().unwrap(), reader.uint().unwrap()));
    })?;
    Ok((pairs, progress))
}

/// The pairs of a walk to its end, in steps of three.
fn rest(store: &mut Store, cursor: &mut Cursor) -> Vec<u64> {
    let mut ids = Vec::new();
    loop {
        let (pairs, progress) = step(store, cursor, 3).unwrap();
        ids.extend(pairs.iter().map(|pair| pair.0));
        if progress == Progress::End {
            return ids;
        }
    }
}

fn cursor(space: SpaceId, index: IndexId, iterator: IteratorType, key: &str) -> Cursor {
    Cursor::new(user::ADMIN, space, index, iterator, &row(key))
}

#[derive(Debug, Clone)]
enum Change {
    Put(u64, u64),
    Remove(u64),
    Truncate,
    Advance(u32),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        12 => (0..40u64, 0..6u64).prop_map(|(id, number)| Change::Put(id, number)),
        6 => (0..40u64).prop_map(Change::Remove),
        1 => Just(Change::Truncate),
        12 => (0..5u32).prop_map(Change::Advance),
    ]
}

fn iterator() -> impl Strategy<Value = IteratorType> {
    use IteratorType::{All, Eq, Ge, Gt, Le, Lt, Req};
    proptest::sample::select(vec![Eq, Req, All, Lt, Le, Ge, Gt])
}

/// Whether a walk yields a tuple with this key. ALL with a key is GE.
fn yields(iterator: IteratorType, asked: Option<u64>, key: u64) -> bool {
    use IteratorType::{Eq, Gt, Le, Lt, Req};
    asked.is_none_or(|asked| match iterator {
        Eq | Req => key == asked,
        Lt => key < asked,
        Le => key <= asked,
        Gt => key > asked,
        _ => key >= asked,
    })
}

fn is_descending(iterator: IteratorType) -> bool {
    matches!(iterator, IteratorType::Req | IteratorType::Lt | IteratorType::Le)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Each step of a TREE's cursor shows what a sorted list has behind the last tuple at that time.
    #[test]
    fn a_cursor_goes_on_in_a_list_that_changes(
        index in proptest::sample::select(vec![BY_ID, BY_NUMBER, DEFERRED]),
        iterator in iterator(),
        asked in proptest::option::of(0..8u64),
        first in proptest::collection::btree_map(0..40u64, 0..6u64, 0..30),
        changes in proptest::collection::vec(change(), 1..60),
    ) {
        let (mut store, space) = space_of_pairs();
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        let first = first.into_iter().map(|(id, number)| Change::Put(id, number));
        let key = asked.map_or("[]".to_owned(), |asked| format!("[{asked}]"));
        let mut cursor = cursor(space, index, iterator, &key);
        let mut last: Option<(u64, u64)> = None;
        let mut is_over = false;
        let advances = std::iter::repeat_n(Change::Advance(7), 40);
        for change in first.chain(changes).chain(advances) {
            match change {
                Change::Put(id, number) => {
                    replace(&mut store, space, &format!("[{id}, {number}]")).unwrap();
                    model.insert(id, number);
                }
                Change::Remove(id) => {
                    delete(&mut store, space, 0, &format!("[{id}]")).unwrap();
                    model.remove(&id);
                }
                Change::Truncate => {
                    commit(&mut store, |s| ddl::truncate(s, space));
                    model.clear();
                }
                Change::Advance(budget) => {
                    let (pairs, progress) = step(&mut store, &mut cursor, budget).unwrap();
                    let of_pair = |(id, number): (u64, u64)| if index == BY_ID { (id, id) } else { (number, id) };
                    let mut ahead: Vec<_> = model
                        .iter()
                        .map(|(&id, &number)| of_pair((id, number)))
                        .filter(|place| yields(iterator, asked, place.0))
                        .filter(|place| last.is_none_or(|last| {
                            if is_descending(iterator) { *place < last } else { *place > last }
                        }))
                        .collect();
                    ahead.sort_unstable();
                    if is_descending(iterator) {
                        ahead.reverse();
                    }
                    let shown: Vec<_> = pairs.into_iter().map(of_pair).collect();
                    if is_over {
                        prop_assert!(shown.is_empty() && progress == Progress::End);
                        continue;
                    }
                    // A step that flushes deferred entries may show less than its budget allows.
                    let is_partial = index == DEFERRED && progress == Progress::More;
                    if !is_partial || !shown.is_empty() {
                        prop_assert_eq!(shown.len(), ahead.len().min(budget as usize));
                    }
                    prop_assert_eq!(&shown[..], &ahead[..shown.len()]);
                    is_over = progress == Progress::End;
                    prop_assert!(!is_over || shown.len() == ahead.len());
                    last = shown.last().copied().or(last);
                }
            }
        }
        prop_assert!(is_over && cursor.is_at_end());
    }

    /// A HASH has no order, but tuples that stay are met once, and no tuple twice unless it was put again in between.
    #[test]
    fn a_pass_over_a_hash_meets_what_stays_once(
        first in proptest::collection::btree_set(0..40u64, 0..30),
        changes in proptest::collection::vec(change(), 1..60),
    ) {
        let (mut store, space) = space_of_pairs();
        for id in &first {
            replace(&mut store, space, &format!("[{id}, 0]")).unwrap();
        }
        let (mut stays, mut met) = (first, BTreeSet::new());
        let mut cursor = cursor(space, BY_HASH, IteratorType::All, "[]");
        for change in changes.into_iter().chain(std::iter::repeat_n(Change::Advance(4), 20)) {
            match change {
                Change::Put(id, number) => {
                    replace(&mut store, space, &format!("[{id}, {number}]")).unwrap();
                }
                Change::Remove(id) => {
                    delete(&mut store, space, 0, &format!("[{id}]")).unwrap();
                    stays.remove(&id);
                    met.remove(&id);
                }
                Change::Truncate => {
                    commit(&mut store, |s| ddl::truncate(s, space));
                    stays.clear();
                    met.clear();
                }
                Change::Advance(budget) => {
                    for (id, _) in step(&mut store, &mut cursor, budget).unwrap().0 {
                        prop_assert!(met.insert(id), "{} is met twice", id);
                    }
                }
            }
        }
        prop_assert!(cursor.is_at_end());
        prop_assert!(stays.is_subset(&met), "{:?} stayed, {:?} was met", stays, met);
    }
}

fn filled(count: u64) -> (Store, SpaceId) {
    let (mut store, space) = space_of_pairs();
    for id in 0..count {
        replace(&mut store, space, &format!("[{id}, {}]", id % 3)).unwrap();
    }
    (store, space)
}

#[test]
fn offset_and_limit_hold_over_all_steps_and_begin_anew_with_the_walk() {
    let (mut store, space) = filled(20);
    let mut cursor = cursor(space, 0, IteratorType::Ge, "[2]").with_offset(3).with_limit(7);
    let expected: Vec<u64> = (5..12).collect();
    assert_eq!(rest(&mut store, &mut cursor), expected);
    assert_eq!((cursor.handed_out(), cursor.is_at_end()), (7, true));
    replace(&mut store, space, "[100, 1]").unwrap();
    assert_eq!(step(&mut store, &mut cursor, 9).unwrap(), (vec![], Progress::End));
    cursor.rewind();
    assert_eq!(rest(&mut store, &mut cursor), expected);
}

#[test]
fn a_budget_of_bytes_ends_a_step_behind_the_tuple_that_spends_it() {
    let (mut store, space) = filled(5);
    let mut cursor = cursor(space, 0, IteratorType::All, "[]");
    let mut count = 0;
    let budget = Budget::new(100, 4);
    assert_eq!(store.advance(&mut cursor, budget, &mut |_| count += 1), Ok(Progress::More));
    assert_eq!(count, 2, "tuples of three bytes");
}

#[test]
fn a_rollback_between_steps_moves_no_cursor() {
    let (mut store, space) = filled(10);
    let mut cursor = cursor(space, BY_NUMBER, IteratorType::Le, "[]");
    assert_eq!(step(&mut store, &mut cursor, 2).unwrap().0, [(8, 2), (5, 2)]);
    store.begin(user::ADMIN);
    ddl::truncate(&mut store, space).unwrap();
    store.execute(&Statement::Insert { space, tuple: &row("[3, 2]") }).unwrap();
    assert_eq!(step(&mut store, &mut cursor, 1).unwrap().0, [(3, 2)]);
    store.rollback();
    assert_eq!(rest(&mut store, &mut cursor), [2, 7, 4, 1, 9, 6, 3, 0]);
}

#[test]
fn changes_of_the_schema_are_survived_or_reported() {
    let (mut store, space) = filled(10);
    let mut by_id = cursor(space, 0, IteratorType::All, "[]");
    let mut by_number = cursor(space, BY_NUMBER, IteratorType::All, "[]");
    let mut by_hash = cursor(space, BY_HASH, IteratorType::All, "[]");
    for cursor in [&mut by_id, &mut by_number, &mut by_hash] {
        step(&mut store, cursor, 1).unwrap();
    }
    commit(&mut store, |s| {
        ddl::rename_space(s, space, "other")?;
        ddl::rename_index(s, space, BY_NUMBER, "amount")?;
        let field = |name, ty| FieldSpec { name, ty, nullable: false };
        ddl::set_format(s, space, &[field("id", "unsigned"), field("amount", "integer")])
    });
    assert_eq!(step(&mut store, &mut by_id, 1).unwrap().0, [(1, 1)]);
    assert_eq!(step(&mut store, &mut by_number, 1).unwrap().0, [(3, 0)]);

    // A dropped index that comes back with the rollback is the one that it was.
    store.begin(user::ADMIN);
    ddl::drop_index(&mut store, space, BY_NUMBER).unwrap();
    let dropped = CursorError::IndexDropped { space: "other".to_owned(), index: BY_NUMBER };
    assert_eq!(step(&mut store, &mut by_number, 1), Err(dropped));
    store.rollback();
    assert_eq!(step(&mut store, &mut by_number, 1).unwrap().0, [(6, 0)]);

    commit(&mut store, |s| {
        ddl::drop_index(s, space, BY_NUMBER)?;
        ddl::create_index(
            s,
            space,
            &IndexSpec {
                id: Some(BY_NUMBER),
                ..IndexSpec::new("amount", &[PartSpec::new(1, "unsigned"), PartSpec::new(0, "unsigned")])
            },
        )
    });
    let altered = step(&mut store, &mut by_number, 1).unwrap_err();
    assert_eq!(
        altered.to_string(),
        "index 'amount' of space 'other' was altered while a cursor walked it: start the walk again"
    );
    by_number.rewind();
    assert_eq!(rest(&mut store, &mut by_number), [0, 3, 6, 9, 1, 4, 7, 2, 5, 8]);

    commit(&mut store, |s| ddl::drop_space(s, space));
    assert_eq!(step(&mut store, &mut by_id, 1), Err(CursorError::SpaceDropped(space)));
    commit(&mut store, |s| {
        ddl::create_space(s, &SpaceSpec { id: Some(space), ..SpaceSpec::new("third", &[]) })?;
        ddl::create_index(s, space, &IndexSpec::new("id", &[PartSpec::new(0, "unsigned")]))
    });
    assert_eq!(step(&mut store, &mut by_id, 1), Err(CursorError::SpaceDropped(space)));
    by_id.rewind();
    assert_eq!(step(&mut store, &mut by_id, 1).unwrap(), (vec![], Progress::End));
    by_hash.rewind();
    let refused = step(&mut store, &mut by_hash, 1).unwrap_err();
    assert!(matches!(refused, CursorError::Refused(Error::NoSuchIndexId { .. })), "{refused}");
}

#[test]
fn a_cursor_shows_what_its_user_may_see() {
    let mut store = new_store();
    let guests = |store: &mut Store, iterator, limit| {
        let mut cursor = Cursor::new(user::GUEST, crate::system::VUSER, 0, iterator, &row("[]"))
            .with_offset(1)
            .with_limit(limit);
        let mut names = Vec::new();
        while store.advance(&mut cursor, rows(1), &mut |tuple| names.push(text(tuple))).unwrap()
            == Progress::More
        {}
        names
    };
    let mut shown = Vec::new();
    store
        .select(user::GUEST, crate::system::VUSER, 0, IteratorType::All, &row("[]"), 1, 9, &mut |tuple| {
            shown.push(text(tuple));
        })
        .unwrap();
    assert!(!shown.is_empty());
    assert_eq!(guests(&mut store, IteratorType::All, 9), shown);
    let mut denied = Cursor::new(user::GUEST, crate::system::USER, 0, IteratorType::All, &row("[]"));
    let error = step(&mut store, &mut denied, 1).unwrap_err();
    assert!(matches!(error, CursorError::Refused(Error::AccessDenied { .. })), "{error}");
    let mut hash = cursor(space_of_pairs().1, 9, IteratorType::All, "[]");
    assert!(step(&mut store, &mut hash, 1).is_err());
}
