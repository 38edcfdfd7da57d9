//! Requests that make sense, made up at random: what changes of recorded bytes do not find by themselves.
//!
//! They define a few spaces and indexes again and again in different ways, fill them, and use the tubes, users and
//! functions that exist.

use lycosa_iproto::request::{self, Body};
use lycosa_tuple::mp;
use lycosa_tuple::value::Value;

use crate::random::Random;
use crate::world::{ADMIN, GUEST};

/// Spaces that the requests define; few, so that they meet.
const SPACES: [u32; 4] = [700, 701, 702, 703];
/// Their system spaces: of spaces, indexes, sequences and their use, users, privileges, truncations.
const SPACE: u32 = 280;
const SEQUENCE: u32 = 284;
const INDEX: u32 = 288;
const USER: u32 = 304;
const PRIVILEGE: u32 = 312;
const TRUNCATE: u32 = 330;
const SPACE_SEQUENCE: u32 = 340;

const TUBES: [&str; 5] = ["fifo", "fifottl", "limfifottl", "utube", "utubettl"];

/// Bytes of a frame before its content.
const FRAME_PREFIX: usize = 5;

/// A control byte and the content of a frame.
pub(crate) fn step(random: &mut Random) -> (u8, Vec<u8>) {
    let mut frame = Vec::new();
    let who = match random.below(5) {
        0 | 1 => definition(random, &mut frame),
        2 | 3 => data(random, &mut frame),
        _ => call(random, &mut frame),
    };
    let action = if random.one_in(2) { 0 } else { random.next() as u8 & !0b11 };
    (who | action, frame.split_off(FRAME_PREFIX))
}

fn send(frame: &mut Vec<u8>, body: &Body<'_>) -> u8 {
    request::encode(frame, 1, body);
    ADMIN
}

fn insert_or_replace(random: &mut Random, frame: &mut Vec<u8>, space: u32, tuple: &Value) -> u8 {
    let tuple = &tuple.encode();
    match random.one_in(2) {
        true => send(frame, &Body::Insert { space, tuple }),
        false => send(frame, &Body::Replace { space, tuple }),
    }
}

fn array<const N: usize>(values: [Value; N]) -> Value {
    Value::Array(values.into())
}

fn one(value: &Value) -> Value {
    Value::Array(vec![value.clone()])
}

/// Changes a row of a system space.
fn definition(random: &mut Random, frame: &mut Vec<u8>) -> u8 {
    let id = Value::from(*random.pick(&SPACES));
    let index = Value::from(random.small(3) as u64);
    match random.below(16) {
        0 | 1 => {
            let row = space_row(random, id);
            insert_or_replace(random, frame, SPACE, &row)
        }
        2..=6 => {
            let row = index_row(random, id, index);
            insert_or_replace(random, frame, INDEX, &row)
        }
        7 => {
            let key = array([id, index]).encode();
            send(frame, &Body::Delete { space: INDEX, index: 0, key: &key })
        }
        8 => send(frame, &Body::Delete { space: SPACE, index: 0, key: &array([id]).encode() }),
        9 => {
            let name = Value::from(["a", "b", "space"][random.below(3)]);
            let operations = array([array(["=".into(), 2.into(), name])]).encode();
            let key = array([id]).encode();
            send(frame, &Body::Update { space: SPACE, index: 0, base: 0, key: &key, operations: &operations })
        }
        10 => {
            let operations = array([array(["+".into(), 1.into(), 1.into()])]).encode();
            let tuple = array([id, 1.into()]).encode();
            send(frame, &Body::Upsert { space: TRUNCATE, base: 0, tuple: &tuple, operations: &operations })
        }
        11 => {
            let number = Value::from(random.below(3) as u64 + 1);
            let limits = [1.into(), (-5).into(), 9.into(), 3.into(), 0.into(), random.one_in(2).into()];
            let row =
                [&[number.clone(), 1.into(), format!("sequence {number}").into()], &limits[..]].concat();
            insert_or_replace(random, frame, SEQUENCE, &Value::Array(row))
        }
        12 => {
            let sequence = Value::from(random.below(3) as u64 + 1);
            let row =
                array([id, sequence, random.one_in(2).into(), (random.small(2) as u64).into(), "".into()]);
            insert_or_replace(random, frame, SPACE_SEQUENCE, &row)
        }
        13 => {
            let number = random.below(2) as u64 + 50;
            let kind = ["user", "role"][random.below(2)];
            let row = array([
                number.into(),
                1.into(),
                format!("party {number}").into(),
                kind.into(),
                Value::Map(vec![]),
            ]);
            insert_or_replace(random, frame, USER, &row)
        }
        14 => {
            let grantee = Value::from(random.below(2) as u64 + 50);
            let (kind, object) =
                [("space", id), ("universe", 0.into()), ("role", 51.into()), ("user", 50.into())]
                    [random.below(4)]
                .clone();
            let row = array([1.into(), grantee, kind.into(), object, (random.small(8191) as u64).into()]);
            insert_or_replace(random, frame, PRIVILEGE, &row)
        }
        _ => {
            let key = array([(random.below(2) as u64 + 50).into()]).encode();
            send(frame, &Body::Delete { space: USER, index: 0, key: &key })
        }
    }
}

fn space_row(random: &mut Random, id: Value) -> Value {
    let flags = match random.below(4) {
        0 => Value::map([("temporary", true)]),
        1 => Value::map([("group_id", 1)]),
        _ => Value::Map(vec![]),
    };
    let format = (0..random.small(4)).map(|field| {
        let ty = *random.pick(&FIELD_TYPES);
        let nullable = random.one_in(2);
        Value::map([
            ("name", Value::from(format!("f{field}"))),
            ("type", ty.into()),
            ("is_nullable", nullable.into()),
        ])
    });
    let format = Value::Array(format.collect());
    let count = if random.one_in(6) { random.small(4) as u64 } else { 0 };
    let name = format!("space {id}");
    array([id, 1.into(), name.into(), "memtx".into(), count.into(), flags, format])
}

const FIELD_TYPES: [&str; 13] = [
    "any",
    "unsigned",
    "string",
    "number",
    "double",
    "integer",
    "boolean",
    "varbinary",
    "scalar",
    "decimal",
    "uuid",
    "array",
    "map",
];

fn index_row(random: &mut Random, id: Value, index: Value) -> Value {
    let kind = ["tree", "tree", "tree", "hash", "TREE"][random.below(5)];
    let parts = (0..=random.small(2)).map(|_| part(random)).collect();
    let options = Value::map([("unique", !random.one_in(3))]);
    let name = format!("index {index}");
    array([id, index, name.into(), kind.into(), options, Value::Array(parts)])
}

fn part(random: &mut Random) -> Value {
    let field = Value::from(random.small(3) as u64);
    let ty = Value::from(
        ["unsigned", "string", "scalar", "number", "integer", "unsigned", "string", "decimal"]
            [random.below(8)],
    );
    if random.one_in(2) {
        return array([field, ty]);
    }
    let mut pairs = vec![("field", field), ("type", ty)];
    if random.one_in(2) {
        pairs.push(("is_nullable", random.one_in(2).into()));
    }
    if random.one_in(3) {
        pairs.push(("collation", (random.below(4) as u64).into()));
    }
    if random.one_in(3) {
        pairs.push(("path", ["a", "[1]", ".b.c", "a[2]"][random.below(4)].into()));
    }
    Value::map(pairs)
}

/// Some value that fits many types of fields.
fn scalar(random: &mut Random) -> Value {
    let number = random.small(6);
    match random.below(9) {
        0 => Value::Nil,
        1..=3 => Value::from(number as u64),
        4 => Value::from(-(number as i64)),
        5 => Value::from(number as f64 / 2.0),
        6 => Value::from(["", "a", "A", "b", "ß", "aa"][number.min(5)]),
        7 => Value::Ext(mp::EXT_DECIMAL, vec![0x01, (number as u8) << 4 | 0x0c]),
        _ => Value::from(random.one_in(2)),
    }
}

fn field(random: &mut Random) -> Value {
    match random.below(6) {
        0 => {
            let inner = Value::map([("c", scalar(random))]);
            Value::map([("a", scalar(random)), ("b", inner)])
        }
        1 => array([scalar(random), scalar(random)]),
        _ => scalar(random),
    }
}

/// Changes or reads the defined spaces.
fn data(random: &mut Random, frame: &mut Vec<u8>) -> u8 {
    let space = *random.pick(&SPACES);
    let first = Value::from(random.small(6) as u64);
    let fields: Vec<_> =
        std::iter::once(first.clone()).chain((0..random.small(4)).map(|_| field(random))).collect();
    let tuple = Value::Array(fields);
    let index = random.small(2) as u32;
    let key = match random.below(3) {
        0 => Value::Array(vec![]),
        1 => one(&first),
        _ => array([scalar(random), scalar(random)]),
    };
    let key = key.encode();
    let operations = operations(random).encode();
    match random.below(8) {
        0..=2 => insert_or_replace(random, frame, space, &tuple),
        3 => send(frame, &Body::Delete { space, index, key: &key }),
        4 => send(frame, &Body::Update { space, index, base: 0, key: &key, operations: &operations }),
        5 => send(frame, &Body::Upsert { space, base: 0, tuple: &tuple.encode(), operations: &operations }),
        _ => {
            let (limit, offset, iterator) =
                (random.small(9) as u32, random.small(3) as u32, random.below(7) as u32);
            send(frame, &Body::Select { space, index, limit, offset, iterator, key: &key })
        }
    }
}

fn operations(random: &mut Random) -> Value {
    let operation = |random: &mut Random| {
        let operator = ["=", "+", "-", "!", "#", "=", "&", "|"][random.below(8)];
        let place = match random.below(3) {
            0 => Value::from(["f1", "[2].a", "f2.b.c", "[3][1]"][random.below(4)]),
            _ => Value::from(random.small(4) as i64 - 1),
        };
        let argument = if operator == "#" { Value::from(1) } else { field(random) };
        array([operator.into(), place, argument])
    };
    Value::Array((0..=random.small(2)).map(|_| operation(random)).collect())
}

/// Calls a function of the queue or of `box`.
fn call(random: &mut Random, frame: &mut Vec<u8>) -> u8 {
    let tube = *random.pick(&TUBES);
    let task = Value::from(random.small(5) as u64);
    let seconds = Value::from([0.0, 0.5, 1.0, 2.5, 1e10][random.below(5)]);
    let many = Value::Array((0..random.small(4)).map(|_| Value::from(random.small(5) as u64)).collect());
    let methods: [(&str, Value); 22] = [
        ("put", array(["data".into(), options(random)])),
        ("put", array([Value::Nil, options(random)])),
        ("put", one(&task)),
        ("take", array([seconds.clone()])),
        ("take", Value::Array(vec![])),
        ("ack", one(&task)),
        ("ack", one(&task)),
        ("release", array([task.clone(), options(random)])),
        ("touch", array([task.clone(), seconds.clone()])),
        ("bury", one(&task)),
        ("kick", one(&task)),
        ("peek", one(&task)),
        ("delete", one(&task)),
        ("truncate", Value::Array(vec![])),
        ("release_all", Value::Array(vec![])),
        ("drop", Value::Array(vec![])),
        ("put_many", array([many.clone(), options(random)])),
        ("take_many", array([task.clone(), seconds.clone()])),
        ("take_many", array([task.clone()])),
        ("ack_many", array([many.clone()])),
        ("release_many", array([many, options(random)])),
        ("", Value::Array(vec![])),
    ];
    let (method, args) = random.pick(&methods);
    let (name, args) = match *method {
        "" => match random.below(4) {
            0 => ("queue.create_tube".to_owned(), array([tube.into(), tube.into(), options(random)])),
            1 => ("queue.statistics".to_owned(), array([])),
            2 => ("queue.cfg".to_owned(), array([Value::map([("in_replicaset", random.one_in(2))])])),
            _ => ("box.snapshot".to_owned(), array([])),
        },
        method => (format!("queue.tube.{tube}:{method}"), args.clone()),
    };
    let args = args.encode();
    let who = send(frame, &Body::Call { name: name.as_bytes(), args: &args });
    if random.one_in(6) { who } else { GUEST + random.below(2) as u8 }
}

fn options(random: &mut Random) -> Value {
    let names = ["ttl", "ttr", "pri", "delay", "utube", "timeout", "capacity", "temporary"];
    let option = |random: &mut Random| {
        let name = *random.pick(&names);
        let value = match name {
            "temporary" => random.one_in(2).into(),
            "utube" => ["x", "y"][random.below(2)].into(),
            _ => Value::from([0.0, 0.5, 1.0, 3.0, 1e9][random.below(5)]),
        };
        (Value::from(name), value)
    };
    Value::Map((0..random.small(3)).map(|_| option(random)).collect())
}
