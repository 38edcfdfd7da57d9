use std::cmp::Ordering;

use IteratorType::{All, BitsAllNotSet, BitsAllSet, BitsAnySet, Eq, Ge, Gt, Le, Lt, Neighbor, Overlaps, Req};
use lycosa_tuple::field::FieldType;
use lycosa_tuple::key::KeyPart;
use lycosa_tuple::mp;
use proptest::prelude::*;

use super::*;
use crate::statement::IteratorType;

const WALKS: [IteratorType; 7] = [Eq, Req, All, Lt, Le, Ge, Gt];

/// A tuple `[id, name or nil, number]`.
type Row = (u64, Option<u8>, u64);

/// An index and the rows that should be in it.
struct Fixture {
    arena: Arena,
    index: Index,
    rows: Vec<(Row, Handle)>,
}

impl Fixture {
    /// Adds the rows that the index takes, the way a space does.
    fn new(index: Index, rows: &[Row]) -> Self {
        let mut fixture = Self { arena: Arena::new(), index, rows: Vec::new() };
        for &row in rows {
            let is_id_known = fixture.rows.iter().any(|((id, ..), _)| *id == row.0);
            if !is_id_known && fixture.index.duplicate_of(&fixture.arena, &tuple(row)).is_none() {
                let handle = fixture.arena.insert(&tuple(row)).unwrap();
                assert_eq!(fixture.index.insert(&fixture.arena, handle), None);
                fixture.rows.push((row, handle));
            }
        }
        fixture.rows.sort_by_key(|&((id, name, number), _)| (name, number, id));
        fixture
    }

    fn select(&self, iterator: IteratorType, key: &[u8], part_count: u32, offset: u64) -> Vec<Handle> {
        self.index.select(&self.arena, iterator, key, part_count, offset).unwrap().collect()
    }

    /// What an iterator of a TREE yields, when `place` is how a row lies to the key.
    fn expected(&self, iterator: IteratorType, place: impl Fn(Row) -> Ordering) -> Vec<Handle> {
        let found = self.rows.iter().filter(|&&(row, _)| match iterator {
            Eq | Req => place(row).is_eq(),
            Lt => place(row).is_lt(),
            Le => place(row).is_le(),
            Gt => place(row).is_gt(),
            _ => place(row).is_ge(),
        });
        let mut found: Vec<Handle> = found.map(|&(_, handle)| handle).collect();
        if matches!(iterator, Req | Lt | Le) {
            found.reverse();
        }
        found
    }
}

fn tuple((id, name, number): Row) -> Vec<u8> {
    let mut tuple = Vec::new();
    mp::write_array(&mut tuple, 3);
    mp::write_uint(&mut tuple, id);
    tuple.extend(key_of(name, number));
    tuple
}

fn key_of(name: Option<u8>, number: u64) -> Vec<u8> {
    let mut key = Vec::new();
    match name {
        Some(letter) => mp::write_str(&mut key, &[b'a' + letter]),
        None => mp::write_nil(&mut key),
    }
    mp::write_uint(&mut key, number);
    key
}

fn number_key(number: u64) -> Vec<u8> {
    let mut key = Vec::new();
    mp::write_uint(&mut key, number);
    key
}

fn primary() -> KeyDef {
    KeyDef::new(vec![KeyPart::new(0, FieldType::Unsigned)])
}

/// A TREE by name, which may be nil, and number.
fn secondary(unique: bool) -> Index {
    let own = KeyDef::new(vec![
        KeyPart { nullable: true, ..KeyPart::new(1, FieldType::String) },
        KeyPart::new(2, FieldType::Unsigned),
    ]);
    Index::tree(own.extended_by(&primary()), 2, unique)
}

fn row() -> impl Strategy<Value = Row> {
    (0..300u64, prop::option::weighted(0.8, 0..4u8), 0..5u64)
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    prop::collection::vec(row(), 0..120)
}

/// Ids of a queue, of several ones, and ids that no encoding with a length can hold in 64 bits.
fn id() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..600u64,
        1 => (0..4u64, 0..100u64).prop_map(|(queue, id)| (1 << 40) * queue + id),
        1 => (58..64u32, 0..4u64).prop_map(|(bit, id)| (1 << bit) + id),
        2 => (0..300u64).prop_map(|id| u64::MAX - id),
    ]
}

/// A type, values of it, and whether the part may be nil as well.
type Part = (FieldType, &'static [&'static [u8]], bool);

fn part() -> impl Strategy<Value = Part> {
    const NUMBERS: &[&[u8]] =
        &[&[0], &[1], &[2], &[0x7f], &[0xcd, 1, 0], &[0xcf, 0x80, 0, 0, 0, 0, 0, 0, 1], &[0xcf; 9]];
    const INTEGERS: &[&[u8]] = &[&[0], &[1], &[0xff], &[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0], &[0xcf; 9]];
    const STRINGS: &[&[u8]] =
        &[&[0xa0], b"\xa1r", b"\xa1t", b"\xa2rt", b"\xa1\0", b"\xa7abcdefg", b"\xa8abcdefgh"];
    const BINARIES: &[&[u8]] = &[&[0xc4, 0], &[0xc4, 1, 0], &[0xc4, 1, 0xff], &[0xc4, 2, 0, 0]];
    const DOUBLES: &[&[u8]] = &[
        &[0xcb, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0xcb, 0x80, 0, 0, 0, 0, 0, 0, 0],
        &[0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0],
    ];
    const SCALARS: &[&[u8]] = &[
        &[0xc2],
        &[0xc3],
        &[0],
        &[5],
        &[0xff],
        b"\xa1r",
        &[0xc4, 1, 0x72],
        &[0xcb, 0x40, 0x14, 0, 0, 0, 0, 0, 0],
    ];
    const BOOLEANS: &[&[u8]] = &[&[0xc2], &[0xc3]];
    let typed = prop::sample::select(vec![
        (FieldType::Unsigned, NUMBERS),
        (FieldType::Integer, INTEGERS),
        (FieldType::Number, INTEGERS),
        (FieldType::String, STRINGS),
        (FieldType::Varbinary, BINARIES),
        (FieldType::Double, DOUBLES),
        (FieldType::Scalar, SCALARS),
        (FieldType::Boolean, BOOLEANS),
    ]);
    (typed, any::<bool>()).prop_map(|((ty, values), nullable)| (ty, values, nullable))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_tree_walks_as_a_sorted_list_says(rows in rows(), unique in any::<bool>(), (_, name, number) in row()) {
        let fixture = Fixture::new(secondary(unique), &rows);
        let key = key_of(name, number);
        for (iterator, part_count) in WALKS.into_iter().flat_map(|iterator| [(iterator, 0), (iterator, 1), (iterator, 2)]) {
            let expected = match part_count {
                0 if matches!(iterator, Req | Lt | Le) => fixture.expected(Req, |_| Ordering::Equal),
                0 => fixture.expected(Eq, |_| Ordering::Equal),
                1 => fixture.expected(iterator, |row| row.1.cmp(&name)),
                _ => fixture.expected(iterator, |row| (row.1, row.2).cmp(&(name, number))),
            };
            let count = fixture.index.count(&fixture.arena, iterator, &key, part_count);
            prop_assert_eq!(count, Ok(expected.len() as u64));
            for offset in (0..=expected.len() + 2).chain([usize::MAX]) {
                let found = fixture.select(iterator, &key, part_count, offset as u64);
                prop_assert_eq!(&found, expected.get(offset..).unwrap_or_default(), "{:?} {}", iterator, offset);
            }
        }
        prop_assert_eq!(
            fixture.index.get(&fixture.arena, &key, 2),
            fixture.select(Eq, &key, 2, 0).first().copied()
        );
    }

    #[test]
    fn a_unique_index_names_the_duplicate(rows in rows(), row in row()) {
        let fixture = Fixture::new(secondary(true), &rows);
        let equal = fixture.rows.iter().find(|((_, name, number), _)| (*name, *number) == (row.1, row.2));
        let expected = equal.filter(|_| row.1.is_some()).map(|&(_, handle)| handle);
        prop_assert_eq!(fixture.index.duplicate_of(&fixture.arena, &tuple(row)), expected);
    }

    #[test]
    fn a_build_gives_what_insertions_give(rows in rows(), unique in any::<bool>()) {
        let mut arena = Arena::new();
        let handles: Vec<Handle> = rows.iter().map(|&row| arena.insert(&tuple(row)).unwrap()).collect();
        let fixture = Fixture::new(secondary(unique), &rows);
        let mut built = secondary(unique);
        if fixture.rows.len() == rows.len() {
            prop_assert_eq!(built.build(&arena, handles), Ok(()));
            let tuples = |index: &Index, arena: &Arena| -> Vec<Vec<u8>> {
                index.select(arena, All, &[], 0, 0).unwrap().map(|handle| arena.get(handle).to_vec()).collect()
            };
            prop_assert_eq!(tuples(&built, &arena), tuples(&fixture.index, &fixture.arena));
        } else if let Err(duplicate) = built.build(&arena, handles) {
            prop_assert_ne!(duplicate.old, duplicate.new);
            prop_assert!(built.is_empty());
            let key = |handle| rows.iter().find(|&&row| tuple(row) == arena.get(handle)).map(|row| (row.1, row.2));
            prop_assert_eq!(key(duplicate.old), key(duplicate.new));
        } else {
            let mut ids: Vec<u64> = rows.iter().map(|row| row.0).collect();
            ids.sort_unstable();
            prop_assert!(ids.windows(2).any(|pair| pair[0] == pair[1]), "only a repeated id may pass");
        }
    }

    #[test]
    fn a_probe_that_hints_decide_has_the_hints_of_its_tuples_only(
        parts in prop::collection::vec(part(), 1..4),
        tuples in prop::collection::vec(prop::collection::vec(0..8usize, 3), 1..30),
    ) {
        let types = parts.iter().enumerate().map(|(field, &(ty, _, nullable))| KeyPart {
            nullable,
            ..KeyPart::new(field as u32, ty)
        });
        let definition = KeyDef::new(types.collect());
        let values = |choice: &[usize]| -> Vec<Vec<u8>> {
            let pick = |(&(_, values, nullable), &choice): (&Part, &usize)| match values.get(choice) {
                Some(value) => value.to_vec(),
                None if nullable => vec![0xc0],
                None => values[0].to_vec(),
            };
            parts.iter().zip(choice).map(pick).collect()
        };
        let tuples: Vec<Vec<Vec<u8>>> = tuples.iter().map(|choice| values(choice)).collect();
        for (probed, count) in tuples.iter().flat_map(|probed| (0..=parts.len()).map(move |count| (probed, count))) {
            let (key, count) = (probed[..count].concat(), count as u32);
            let probe = Probe::new(&definition, &key, count);
            for fields in &tuples {
                let mut tuple = Vec::new();
                mp::write_array(&mut tuple, fields.len() as u32);
                tuple.extend(fields.concat());
                let is_equal = definition.compare_with_key(&tuple, &key, count).is_eq();
                let is_within = (probe.low..=probe.high).contains(&definition.hint(&tuple));
                prop_assert!(is_within || !is_equal);
                prop_assert!(!probe.decided || is_within == is_equal, "{:?} {:?} {:?}", parts, fields, key);
            }
        }
    }

    #[test]
    fn a_tree_of_numbers_walks_as_a_sorted_list_says(
        ids in prop::collection::btree_set(id(), 0..400),
        gone in prop::collection::vec(any::<prop::sample::Index>(), 0..100),
        sought in prop::collection::vec(id(), 1..10),
        in_bulk in any::<bool>(),
    ) {
        let (mut arena, mut index) = (Arena::new(), Index::tree(primary(), 1, true));
        let handles: Vec<Handle> = ids.iter().map(|&id| arena.insert(&tuple((id, None, 0))).unwrap()).collect();
        let mut rows: Vec<(u64, Handle)> = ids.into_iter().zip(handles).collect();
        if in_bulk {
            prop_assert_eq!(index.build(&arena, rows.iter().rev().map(|&(_, handle)| handle)), Ok(()));
        } else {
            rows.iter().for_each(|&(_, handle)| assert_eq!(index.insert(&arena, handle), None));
        }
        for place in gone {
            if rows.is_empty() {
                break;
            }
            let place = place.index(rows.len());
            prop_assert_eq!(index.remove(&arena, rows[place].1), Some(rows[place].1));
            let (_, handle) = rows.remove(place);
            arena.remove(handle);
        }
        let present = rows.iter().map(|&(id, _)| id).take(5);
        for id in present.chain(sought).collect::<Vec<u64>>() {
            let key = number_key(id);
            let handle = rows.iter().find(|row| row.0 == id).map(|row| row.1);
            prop_assert_eq!(index.get(&arena, &key, 1), handle);
            prop_assert_eq!(index.find(&arena, &tuple((id, Some(1), 9))), handle);
            prop_assert_eq!(index.duplicate_of(&arena, &tuple((id, Some(1), 9))), handle);
            for iterator in WALKS {
                let is_yielded = |other: u64| match iterator {
                    Eq | Req => other == id,
                    Lt => other < id,
                    Le => other <= id,
                    Gt => other > id,
                    _ => other >= id,
                };
                let mut expected: Vec<Handle> =
                    rows.iter().filter(|row| is_yielded(row.0)).map(|row| row.1).collect();
                if matches!(iterator, Req | Lt | Le) {
                    expected.reverse();
                }
                prop_assert_eq!(index.count(&arena, iterator, &key, 1), Ok(expected.len() as u64));
                for offset in [0, 1, 7, expected.len()] {
                    let found: Vec<Handle> =
                        index.select(&arena, iterator, &key, 1, offset as u64).unwrap().collect();
                    prop_assert_eq!(&found, expected.get(offset..).unwrap_or_default(), "{:?} {}", iterator, offset);
                }
            }
            let place = index.bookmark(&tuple((id, None, 0)));
            let behind = rows.iter().filter(|row| row.0 > id).map(|row| row.1);
            prop_assert!(index.after(&arena, Some(&place)).eq(behind));
            prop_assert!(rows.iter().all(|row| index.is_passed(arena.get(row.1), &place) == (row.0 <= id)));
        }
    }

    #[test]
    fn a_hash_finds_every_tuple_and_walks_on_behind_it(rows in rows()) {
        let fixture = Fixture::new(Index::hash(primary()), &rows);
        let all = fixture.select(All, &number_key(7), 1, 0);
        prop_assert_eq!(&all, &fixture.select(Gt, &[], 0, 0));
        prop_assert_eq!(all.len(), fixture.rows.len());
        for &((id, ..), handle) in &fixture.rows {
            prop_assert_eq!(fixture.select(Eq, &number_key(id), 1, 0), [handle]);
            prop_assert_eq!(fixture.index.get(&fixture.arena, &number_key(id), 1), Some(handle));
            let place = all.iter().position(|&other| other == handle).unwrap();
            prop_assert_eq!(fixture.select(Gt, &number_key(id), 1, 0), &all[place + 1..]);
            let rest = fixture.index.count(&fixture.arena, Gt, &number_key(id), 1);
            prop_assert_eq!(rest, Ok((all.len() - place - 1) as u64));
        }
        prop_assert_eq!(fixture.select(Eq, &number_key(1000), 1, 0), []);
        prop_assert_eq!(fixture.select(Gt, &number_key(1000), 1, 0), []);
    }
}

#[test]
fn the_order_of_a_hash_does_not_depend_on_its_history() {
    let rows: Vec<Row> = (0..200).map(|id| (id, None, 0)).collect();
    let fixture = Fixture::new(Index::hash(primary()), &rows);
    let mut changed = Fixture::new(Index::hash(primary()), &rows);
    for &((id, ..), handle) in changed.rows.iter().filter(|((id, ..), _)| id % 2 == 0) {
        assert_eq!(changed.index.remove(&changed.arena, handle), Some(handle), "{id}");
    }
    let ids = |fixture: &Fixture| -> Vec<u64> {
        let id = |handle| fixture.rows.iter().find(|&&(_, other)| other == handle).map(|&((id, ..), _)| id);
        fixture.select(All, &[], 0, 0).into_iter().filter_map(id).collect()
    };
    let odd: Vec<u64> = ids(&fixture).into_iter().filter(|id| id % 2 == 1).collect();
    assert_eq!(ids(&changed), odd);
}

#[test]
fn a_replaced_tuple_keeps_its_place() {
    let rows: Vec<Row> = (0..300).map(|id| (id, Some((id % 3) as u8), id % 7)).collect();
    let mut fixture = Fixture::new(secondary(false), &rows);
    for (row, handle) in &mut fixture.rows {
        let new = fixture.arena.insert(&tuple(*row)).unwrap();
        assert!(fixture.index.replace(&fixture.arena, *handle, new));
        fixture.arena.remove(*handle);
        *handle = new;
    }
    let all: Vec<Handle> = fixture.rows.iter().map(|&(_, handle)| handle).collect();
    assert_eq!(fixture.select(All, &[], 0, 0), all);
    assert!(fixture.index.handles().eq(all.iter().copied()));
    let stranger = fixture.arena.insert(&tuple((1000, None, 0))).unwrap();
    assert!(!fixture.index.replace(&fixture.arena, stranger, all[0]));
}

#[test]
fn what_an_index_cannot_do_is_refused() {
    let fixture = Fixture::new(secondary(false), &[]);
    for iterator in [BitsAllSet, BitsAnySet, BitsAllNotSet, Overlaps, Neighbor] {
        assert_eq!(fixture.index.count(&fixture.arena, iterator, &[], 0), Err(SelectError::Iterator));
    }
    let fixture = Fixture::new(Index::hash(primary()), &[]);
    for iterator in [Req, Lt, Le, Ge, Overlaps] {
        let count = |key: &[u8], part_count| fixture.index.count(&fixture.arena, iterator, key, part_count);
        assert_eq!(count(&number_key(1), 1), Err(SelectError::Iterator));
        assert_eq!(count(&[], 0), Err(SelectError::PartialKey { expected: 1, got: 0 }));
    }
    assert_eq!(
        fixture.index.count(&fixture.arena, Eq, &[], 0),
        Err(SelectError::PartialKey { expected: 1, got: 0 })
    );
}

#[test]
fn an_index_that_is_cleared_takes_no_memory() {
    let rows: Vec<Row> = (0..300).map(|id| (id, None, 0)).collect();
    let mut fixture = Fixture::new(secondary(false), &rows);
    assert!(fixture.index.memory() > 300 * 12);
    fixture.index.clear();
    assert_eq!((fixture.index.len(), fixture.index.memory()), (0, 0));
}
