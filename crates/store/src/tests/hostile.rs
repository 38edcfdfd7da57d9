//! Rows of system spaces with anything in them: nothing may panic, a refusal changes nothing, and a rollback brings back
//! exactly the schema that was there.

use lycosa_tuple::mp;
use lycosa_tuple::value::Value;
use proptest::prelude::*;

use super::data::with_wire_data;
use super::*;

const SPACES: [SpaceId; 14] = [272, 276, 280, 284, 285, 288, 296, 304, 312, 320, 330, 340, 515, 520];

#[derive(Debug, Clone)]
struct Step {
    space: usize,
    row: usize,
    field: usize,
    /// What the field becomes: of its own kind, or anything.
    id: u64,
    name: &'static str,
    anything: Option<Value>,
    kind: u8,
}

fn name() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "",
        "a",
        "b",
        "c",
        "tree",
        "hash",
        "memtx",
        "blackhole",
        "unsigned",
        "string",
        "user",
        "role",
        "space",
        "universe",
        "sequence",
        "public",
        "ops",
        "LUA",
        "none",
        "bad\0",
    ])
}

fn id() -> impl Strategy<Value = u64> {
    proptest::sample::select(vec![
        0,
        1,
        2,
        3,
        4,
        31,
        32,
        33,
        127,
        128,
        280,
        288,
        512,
        513,
        515,
        520,
        600,
        u64::MAX,
    ])
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::from),
        id().prop_map(Value::from),
        name().prop_map(Value::str),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let key = proptest::sample::select(vec![
            "name",
            "type",
            "unique",
            "temporary",
            "field",
            "is_nullable",
            "path",
        ]);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::array),
            proptest::collection::vec((key.prop_map(Value::str), inner), 0..3).prop_map(Value::map),
        ]
    })
}

fn step() -> impl Strategy<Value = Step> {
    let anything = proptest::option::weighted(0.2, value());
    (0..SPACES.len(), any::<usize>(), any::<usize>(), id(), name(), anything, 0..6u8).prop_map(
        |(space, row, field, id, name, anything, kind)| Step { space, row, field, id, name, anything, kind },
    )
}

impl Step {
    fn instead_of(&self, field: &Value) -> Value {
        match (&self.anything, field) {
            (Some(anything), _) => anything.clone(),
            (None, Value::Uint(_)) => self.id.into(),
            (None, Value::Str(_)) => self.name.into(),
            (None, Value::Bool(value)) => (!value).into(),
            // A list of parts or fields gets shorter, an option goes.
            (None, Value::Array(items)) => Value::Array(items.iter().skip(1).cloned().collect()),
            (None, _) => Value::map([("unique", false)]),
        }
    }
}

/// Takes an existing row, changes a field, and puts it back in some way.
fn execute(store: &mut Store, step: &Step) -> Result<(), Error> {
    let space = SPACES[step.space];
    let primary = store.space(space)?.primary()?.key().clone();
    let all = row("[]");
    let rows: Vec<_> = store.range(space, 0, IteratorType::All, &all, 0)?.map(<[u8]>::to_vec).collect();
    let fallback = match space {
        285 => row("[1, 5]"),
        330 => row("[512, 1]"),
        _ => all.clone(),
    };
    let picked = rows.get(step.row % rows.len().max(1)).cloned().unwrap_or(fallback);
    let mut fields = Value::decode(&picked).unwrap().as_array().unwrap().to_vec();
    let mut key = Vec::new();
    mp::write_array(&mut key, primary.part_count());
    primary.extract(&picked, &mut key);
    let place = step.field % (fields.len() + 1);
    match fields.get_mut(place) {
        Some(field) => *field = step.instead_of(field),
        None => fields.push(Value::Nil),
    }
    // A new row mostly needs a new key and a new name.
    if step.kind == 0 {
        for (field, value) in
            fields.iter_mut().zip([Value::from(step.id % 50 + 40), Value::Nil, step.name.into()])
        {
            *field = if value == Value::Nil { field.clone() } else { value };
        }
    }
    let tuple = Value::array(fields).encode();
    let statement = match step.kind {
        0 | 1 => Statement::Insert { space, tuple: &tuple },
        2 | 3 => Statement::Replace { space, tuple: &tuple },
        4 => Statement::Delete { space, index: 0, key: &key },
        _ => Statement::Upsert { space, tuple: &tuple, operations: b"\x91\x93\xa1=\x01\x07", base: 0 },
    };
    store.execute(&statement).map(drop)
}

/// What follows from the rows: names and shapes of everything.
fn schema(store: &Store) -> String {
    let spaces: Vec<_> = store
        .spaces()
        .map(|space| {
            let indexes: Vec<_> =
                space.indexes().iter().map(|index| (index.name(), index.kind(), index.len())).collect();
            format!("{:?} {} {:?} {:?}", space.def, space.bytes(), space.sequence, indexes)
        })
        .collect();
    let users: Vec<_> = (0..200)
        .filter_map(|id| store.user(id))
        .map(|user| {
            format!(
                "{user:?} {:?}",
                (0..600)
                    .map(|space| store
                        .check_access(user.id, crate::Object::Space(space), crate::Access::WRITE)
                        .is_ok())
                    .filter(|may| *may)
                    .count()
            )
        })
        .collect();
    let sequences: Vec<_> = store.sequences().collect();
    format!("{spaces:?} {users:?} {sequences:?} {:?}", store.functions().count())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_is_done_to_the_schema_can_be_undone(steps in proptest::collection::vec(step(), 1..60)) {
        let mut store = with_wire_data();
        let before = (store.digest(), schema(&store), store.memory().tuples);
        store.begin(user::ADMIN);
        for step in &steps {
            let digest = store.digest();
            if execute(&mut store, step).is_err() {
                prop_assert_eq!(store.digest(), digest, "{:?}", step);
            }
        }
        store.rollback();
        prop_assert_eq!((store.digest(), schema(&store), store.memory().tuples), before);
    }

    #[test]
    fn whatever_is_done_to_the_schema_can_be_loaded(steps in proptest::collection::vec(step(), 1..40)) {
        let mut store = with_wire_data();
        for step in &steps {
            store.begin(user::ADMIN);
            if execute(&mut store, step).is_ok() {
                store.commit();
            } else {
                store.rollback();
            }
        }
        let mut copy = Store::new(Settings::default());
        let mut problem = None;
        store.for_each_snapshot_row(&mut |space, tuple, _| {
            if let Err(error) = copy.recover(&Statement::Insert { space, tuple }) {
                problem.get_or_insert(error);
            }
        });
        // The definitions of the system spaces may have been turned against their rows; then the loading says so.
        if problem.is_none() && copy.finish_recovery().is_ok() {
            prop_assert_eq!(copy.digest(), store.digest());
        }
    }
}
