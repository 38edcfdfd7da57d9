//! Whole statements over a store: the same rows come out whichever index a walk uses.

use std::ops::ControlFlow;
use std::sync::Arc;

use lycosa_store::ddl::{self, FieldSpec, IndexSpec, PartSpec, SpaceSpec};
use lycosa_store::{
    Budget, Cursor, CursorError, Error as StoreError, IndexKind, KeyFault, KeyFunction, KeyMaker, Progress,
    Settings, Statement, Store, system, user,
};
use lycosa_tuple::format::Format;
use lycosa_tuple::value::Value;
use proptest::prelude::*;

use super::Walk;
use crate::{Advance, Asker, Error, Limits, Rows, Run};

/// A store, and the step before which its index is said to have changed.
pub(crate) struct Lent {
    pub(crate) store: Store,
    pub(crate) altered_at: Option<u32>,
    pub(crate) steps: u32,
}

impl Rows for Lent {
    type Refusal = Error;

    fn store(&self) -> &Store {
        &self.store
    }

    fn advance_while(
        &mut self,
        cursor: &mut Cursor,
        budget: Budget<'_>,
        f: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Progress, Advance<Error>> {
        self.steps += 1;
        if self.altered_at == Some(self.steps) {
            return Err(Advance::IndexAltered);
        }
        self.store.advance_while(cursor, budget, f).map_err(|error| match error {
            CursorError::Refused(error) => Advance::Refused(Error::Store(error)),
            error => panic!("the schema does not change: {error}"),
        })
    }
}

/// A row: an id, a number or NULL, a text.
pub(crate) type Row = (u64, Option<i64>, String);

/// Two spaces with the same rows: `many` has four indexes, `one` has the primary one.
pub(crate) fn lend(rows: &[Row]) -> Lent {
    let mut store = Store::new(Settings::default());
    let uuid = "00000000-0000-4000-8000-000000000001";
    store.bootstrap(uuid, uuid).expect("an empty store takes it");
    store.begin(user::ADMIN);
    for name in ["one", "many"] {
        let space = fill(&mut store, name, rows).expect("the space is valid");
        assert_ne!(space, 0);
    }
    store.commit();
    store.drain_committed(&mut |_| {});
    Lent { store, altered_at: None, steps: 0 }
}

fn fill(store: &mut Store, name: &str, rows: &[Row]) -> Result<u32, StoreError> {
    let fields = [
        FieldSpec { name: "id", ty: "unsigned", nullable: false },
        FieldSpec { name: "number", ty: "integer", nullable: true },
        FieldSpec { name: "name", ty: "string", nullable: false },
    ];
    let space = ddl::create_space(store, &SpaceSpec::new(name, &fields))?;
    let id = [PartSpec::new(0, "unsigned")];
    ddl::create_index(store, space, &IndexSpec::new("id", &id))?;
    if name == "many" {
        let number = [PartSpec { nullable: true, ..PartSpec::new(1, "integer") }];
        ddl::create_index(store, space, &IndexSpec { unique: false, ..IndexSpec::new("number", &number) })?;
        let both = [PartSpec::new(2, "string"), number[0]];
        ddl::create_index(store, space, &IndexSpec { unique: false, ..IndexSpec::new("both", &both) })?;
        ddl::create_index(store, space, &IndexSpec { kind: IndexKind::Hash, ..IndexSpec::new("hash", &id) })?;
    }
    for (id, number, name) in rows {
        let number = number.map_or(Value::Nil, value_of);
        let tuple = Value::Array(vec![Value::Uint(*id), number, Value::str(name.as_str())]).encode();
        store.execute(&Statement::Replace { space, tuple: &tuple })?;
    }
    Ok(space)
}

fn value_of(number: i64) -> Value {
    u64::try_from(number).map_or(Value::Int(number), Value::Uint)
}

/// The result of a SELECT, and the index that its walk uses.
fn select(lent: &mut Lent, text: &str) -> Result<(u32, Vec<u8>, u32), Error> {
    let asker = Asker { user: user::ADMIN, is_hidden: &|_| false };
    let plan = crate::plan(text, &lent.store, asker)?;
    let walk = Walk::choose(&plan, lent.store.space(plan.space())?, &[])?;
    let mut run = Run::new(&plan, &lent.store, user::ADMIN, Vec::new(), Limits::PROGRAM)?;
    while run.step(&plan, lent)? == Progress::More {}
    let (count, rows) = run.rows();
    Ok((count, rows.to_vec(), walk.index))
}

fn count(lent: &mut Lent, text: &str) -> (u32, u32) {
    let (count, _, index) = select(lent, text).expect(text);
    (count, index)
}

#[test]
fn a_walk_uses_the_index_that_the_filter_compares_most_parts_of() {
    let rows: Vec<Row> =
        (0..100).map(|id| (id, (id % 3 > 0).then_some(id as i64 % 7), format!("n{}", id % 5))).collect();
    let mut lent = lend(&rows);
    let numbers = |wanted: &dyn Fn(i64) -> bool| {
        u32::try_from(rows.iter().filter(|row| row.1.is_some_and(wanted)).count()).expect("100 rows")
    };
    for (filter, index, found) in [
        ("\"id\" = 7", 0, 1),
        ("\"id\" >= 10 AND \"id\" < 20", 0, 10),
        ("\"id\" + 0 = 7", 0, 1),
        ("\"number\" = 5", 1, numbers(&|number| number == 5)),
        ("\"number\" < 5", 1, numbers(&|number| number < 5)),
        ("\"number\" BETWEEN 2 AND 4", 1, numbers(&|number| (2..=4).contains(&number))),
        ("4 < \"number\"", 1, numbers(&|number| number > 4)),
        ("\"name\" = 'n2'", 2, 20),
        ("\"name\" = 'n2' AND \"number\" IS NULL", 2, 6),
        ("\"name\" = 'n2' AND \"id\" = 7", 0, 1),
        ("\"name\" = 'n2' OR \"id\" = 1", 0, 21),
    ] {
        let text = format!("SELECT * FROM \"many\" WHERE {filter}");
        assert_eq!(count(&mut lent, &text), (found, index), "{filter}");
    }
    let ordered = |order: &str| format!("SELECT * FROM \"many\" ORDER BY {order} LIMIT 5");
    for (order, index) in [("\"number\" DESC", 1), ("\"name\", \"number\"", 2), ("\"number\" + 1", 0)] {
        assert_eq!(count(&mut lent, &ordered(order)), (5, index), "{order}");
    }
}

/// The key 7 for every tuple.
fn always_seven(_: &Arc<KeyFunction>, _: &Format, _: &[u8]) -> Result<Vec<u8>, KeyFault> {
    Ok(array([array([Value::Uint(7)])]).encode())
}

fn array<const N: usize>(items: [Value; N]) -> Value {
    Value::Array(Vec::from(items))
}

/// A space `[id, bits]` whose primary key is `bits`. A BITSET is over `bits`, and a functional index has the key 7, whose part is
/// numbered like the field `id`.
fn special_indexes() -> Result<Store, StoreError> {
    let mut store = Store::new(Settings { make_keys: Some(KeyMaker(always_seven)), ..Settings::default() });
    let uuid = "00000000-0000-4000-8000-000000000001";
    store.bootstrap(uuid, uuid)?;
    store.begin(user::ADMIN);
    let fields = ["id", "bits"].map(|name| FieldSpec { name, ty: "unsigned", nullable: false });
    let space = ddl::create_space(&mut store, &SpaceSpec::new("special", &fields))?;
    let bits = [PartSpec::new(1, "unsigned")];
    ddl::create_index(&mut store, space, &IndexSpec::new("pk", &bits))?;
    let bitset = IndexSpec { kind: IndexKind::Bitset, unique: false, ..IndexSpec::new("bitset", &bits) };
    ddl::create_index(&mut store, space, &bitset)?;
    let (text, number) = (|text: &str| Value::str(text), |number: u32| Value::Uint(number.into()));
    let function = array([
        number(70),
        number(1),
        text("seven"),
        number(0),
        text("LUA"),
        text("function() end"),
        text("function"),
        array([]),
        text("any"),
        text("none"),
        text("none"),
        Value::Bool(true),
        Value::Bool(true),
        Value::Bool(true),
        array([text("LUA")]),
        Value::Map(Vec::new()),
        text(""),
        text(""),
        text(""),
    ]);
    let options = Value::Map(vec![(text("unique"), Value::Bool(false)), (text("func"), number(70))]);
    let part = array([number(0), text("unsigned")]);
    let index = array([number(space), number(2), text("seven"), text("tree"), options, array([part])]);
    for (of, row) in [
        (system::FUNC, function),
        (system::INDEX, index),
        (system::FUNC_INDEX, array([number(space), number(2), number(70)])),
    ] {
        store.execute(&Statement::Insert { space: of, tuple: &row.encode() })?;
    }
    for id in 0..10 {
        let tuple = array([number(id), number(id + 1)]).encode();
        store.execute(&Statement::Insert { space, tuple: &tuple })?;
    }
    store.commit();
    store.drain_committed(&mut |_| {});
    Ok(store)
}

/// Parts of an index that are not the values of fields say nothing about a filter.
#[test]
fn a_walk_uses_no_index_whose_keys_are_not_values_of_fields() {
    let store = special_indexes().expect("the definitions are valid");
    let mut lent = Lent { store, altered_at: None, steps: 0 };
    for (filter, found) in [("\"id\" = 5", 1), ("\"id\" = 7", 1), ("\"id\" > 7", 2), ("\"bits\" < 4", 3)] {
        let text = format!("SELECT * FROM \"special\" WHERE {filter}");
        assert_eq!(count(&mut lent, &text), (found, 0), "{filter}");
    }
    assert_eq!(count(&mut lent, "SELECT * FROM \"special\" ORDER BY \"id\""), (10, 0));
}

/// A walk that begins again counts no row twice, with any state that the statement keeps of earlier rows.
#[test]
fn a_walk_whose_index_is_altered_begins_again() {
    let rows: Vec<Row> = (0..1200).map(|id| (id, Some(1), format!("n{}", id % 5))).collect();
    for text in [
        "SELECT COUNT(*), SUM(\"id\") FROM \"many\"",
        "SELECT \"id\" FROM \"many\" WHERE \"number\" = 1",
        "SELECT DISTINCT \"name\" FROM \"many\"",
        "SELECT \"id\" FROM \"many\" ORDER BY \"id\" + 0 DESC",
    ] {
        let mut lent = lend(&rows);
        let expected = select(&mut lent, text).expect(text);
        let steps = lent.steps;
        assert!(steps >= 3, "{text}: {steps} steps");
        for altered_at in 1..=steps {
            let mut lent = Lent { altered_at: Some(altered_at), ..lend(&rows) };
            assert_eq!(select(&mut lent, text).expect(text), expected, "{text}, step {altered_at}");
        }
    }
}

fn filter() -> impl Strategy<Value = String> {
    let sign = prop_oneof![Just("="), Just("<"), Just("<="), Just(">"), Just(">="), Just("<>")];
    let on = |field: &'static str, sign: &str, value: String| format!("\"{field}\" {sign} {value}");
    let term = (sign, 0..3usize, -3i64..8).prop_map(move |(sign, field, number)| match field {
        0 => on("id", sign, number.to_string()),
        1 => on("number", sign, number.to_string()),
        _ => on("name", sign, format!("'n{}'", number.rem_euclid(3))),
    });
    prop::collection::vec(term, 1..4).prop_map(|terms| terms.join(" AND "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_index_gives_the_same_rows(
        numbers in prop::collection::vec(prop::option::of(-3i64..8), 0..40),
        filters in prop::collection::vec(filter(), 16),
    ) {
        let rows: Vec<Row> =
            (0..).zip(&numbers).map(|(id, number)| (id, *number, format!("n{}", id % 3))).collect();
        let mut lent = lend(&rows);
        for filter in filters {
            let text = |space| format!("SELECT * FROM \"{space}\" WHERE {filter} ORDER BY \"id\"");
            let (one, many) = (select(&mut lent, &text("one")).unwrap(), select(&mut lent, &text("many")).unwrap());
            prop_assert_eq!((one.0, one.1), (many.0, many.1), "{}", filter);
        }
    }
}
