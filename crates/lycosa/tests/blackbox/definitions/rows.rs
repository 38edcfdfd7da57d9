//! Odd rows of the system spaces, from a seed.
//!
//! A row begins as one that a program could mean. Each of its fields then comes from a short list in which most
//! values are in order and some are not. Now and then a field is exchanged for a value of another kind, left out or
//! added. Ids and names come from short lists too, so that rows meet: an index of a space that exists, a second
//! sequence of the same name.

use serde_json::{Value as Json, json};

use crate::connection::{self, key, kind};
use crate::crash::Dice;
use crate::scenario::value_of;
use crate::value::Value;

/// A statement on a space.
#[derive(Debug, Clone)]
pub(super) struct Statement {
    pub(super) space: i128,
    pub(super) change: Change,
}

#[derive(Debug, Clone)]
pub(super) enum Change {
    Insert(Vec<Value>),
    Replace(Vec<Value>),
    Delete(Vec<Value>),
    Update(Vec<Value>, Vec<Value>),
}

impl Statement {
    /// The request's number and body.
    pub(super) fn request(&self) -> (u32, Value) {
        let with = |name, fields: &[Value]| {
            connection::body([(key::SPACE, Value::Int(self.space)), (name, Value::Array(fields.to_vec()))])
        };
        match &self.change {
            Change::Insert(row) => (kind::INSERT, with(key::TUPLE, row)),
            Change::Replace(row) => (kind::REPLACE, with(key::TUPLE, row)),
            Change::Delete(key) => (kind::DELETE, with(key::KEY, key)),
            Change::Update(primary, operations) => {
                let Value::Map(mut pairs) = with(key::KEY, primary) else {
                    return (kind::UPDATE, Value::Nil);
                };
                pairs.push((Value::Int(key::TUPLE), Value::Array(operations.clone())));
                (kind::UPDATE, Value::Map(pairs))
            }
        }
    }

    pub(super) fn shown(&self) -> String {
        let list = |values: &[Value]| Value::Array(values.to_vec()).to_string();
        let what = match &self.change {
            Change::Insert(row) => format!("INSERT {}", list(row)),
            Change::Replace(row) => format!("REPLACE {}", list(row)),
            Change::Delete(key) => format!("DELETE {}", list(key)),
            Change::Update(key, operations) => format!("UPDATE {} {}", list(key), list(operations)),
        };
        format!("{} {what}", self.space)
    }

    /// Whether one of its numbers takes more than 32 bits.
    pub(super) fn has_long_number(&self) -> bool {
        self.has(&|value| matches!(value, Value::Int(number) if *number > i128::from(u32::MAX)))
    }

    /// Whether it gives a row of a system space a number of more than 32 bits in the primary key. Rows of `_priv` are taken with
    /// such numbers by both.
    pub(super) fn adds_long_key(&self) -> bool {
        const PRIV: i128 = 312;
        if self.space == PRIV {
            return false;
        }
        let is_long = |value: &Value| matches!(value, Value::Int(number) if *number > i128::from(u32::MAX));
        let adds = matches!(self.change, Change::Insert(_) | Change::Replace(_));
        adds && self.key().is_some_and(|key| key.iter().any(is_long))
    }

    /// Whether it holds the byte that MessagePack never uses.
    pub(super) fn has_never(&self) -> bool {
        self.has(&|value| matches!(value, Value::Never))
    }

    fn has(&self, is_it: &dyn Fn(&Value) -> bool) -> bool {
        fn holds(value: &Value, is_it: &dyn Fn(&Value) -> bool) -> bool {
            is_it(value)
                || match value {
                    Value::Array(values) => values.iter().any(|value| holds(value, is_it)),
                    Value::Map(pairs) => pairs.iter().any(|(_, value)| holds(value, is_it)),
                    _ => false,
                }
        }
        let mut values: Box<dyn Iterator<Item = &Value>> = match &self.change {
            Change::Insert(row) | Change::Replace(row) | Change::Delete(row) => Box::new(row.iter()),
            Change::Update(key, operations) => Box::new(key.iter().chain(operations)),
        };
        values.any(|value| holds(value, is_it))
    }

    /// The primary key of the row that it is about, if its space is one of the system's.
    pub(super) fn key(&self) -> Option<Vec<Value>> {
        match &self.change {
            Change::Insert(row) | Change::Replace(row) => {
                let fields = &KINDS.iter().find(|kind| kind.space == self.space)?.key;
                fields.iter().map(|&field| row.get(field).cloned()).collect()
            }
            Change::Delete(key) | Change::Update(key, _) => Some(key.clone()),
        }
    }
}

/// A system space: its number, how often it is chosen, the fields of its primary key, and what makes its rows.
struct Kind {
    space: i128,
    weight: u64,
    key: &'static [usize],
    row: fn(&mut Dice) -> Json,
}

const KINDS: [Kind; 16] = [
    Kind { space: 272, weight: 2, key: &[0], row: schema },
    Kind { space: 276, weight: 2, key: &[0], row: collation },
    Kind { space: 280, weight: 12, key: &[0], row: space },
    Kind { space: 284, weight: 4, key: &[0], row: sequence },
    Kind { space: 285, weight: 2, key: &[0], row: sequence_data },
    Kind { space: 288, weight: 16, key: &[0, 1], row: index },
    Kind { space: 296, weight: 4, key: &[0], row: function },
    Kind { space: 304, weight: 5, key: &[0], row: user },
    Kind { space: 312, weight: 8, key: &[1, 2, 3], row: privilege },
    Kind { space: 320, weight: 2, key: &[0], row: cluster },
    Kind { space: 328, weight: 2, key: &[0], row: trigger },
    Kind { space: 330, weight: 2, key: &[0], row: truncate },
    Kind { space: 340, weight: 3, key: &[0], row: space_sequence },
    Kind { space: 356, weight: 2, key: &[0, 1], row: foreign_key },
    Kind { space: 364, weight: 3, key: &[0, 1], row: check },
    Kind { space: 372, weight: 2, key: &[0, 1], row: functional_index },
];

/// Numbers of the system spaces that the rows are for.
pub(super) fn system_spaces() -> impl Iterator<Item = i128> {
    KINDS.iter().map(|kind| kind.space)
}

/// What both servers begin with: spaces with and without indexes, users, a role, functions, sequences.
pub(super) fn foundation() -> Vec<Statement> {
    let rows = [
        (
            280,
            json!([600, 1, "s600", "memtx", 0, {}, [{"name": "id", "type": "unsigned"}, {"name": "a", "type": "any", "is_nullable": true}, {"name": "b"}]]),
        ),
        (288, json!([600, 0, "i0", "tree", {"unique": true}, [[0, "unsigned"]]])),
        (
            288,
            json!([600, 1, "i1", "tree", {"unique": false}, [{"field": 1, "type": "scalar", "is_nullable": true}]]),
        ),
        (280, json!([601, 1, "s601", "vinyl", 0, {}, [{"name": "id", "type": "unsigned"}]])),
        (288, json!([601, 0, "i0", "tree", {"unique": true}, [[0, "unsigned"]]])),
        (280, json!([602, 1, "s602", "memtx", 0, {}, []])),
        (280, json!([603, 1, "s603", "blackhole", 0, {}, []])),
        (304, json!([32, 1, "u32", "user", {}])),
        (304, json!([33, 1, "u33", "role", {}])),
        (284, json!([1, 1, "q1", 1, 1, 100, 1, 0, false])),
        (284, json!([2, 1, "q2", -1, -100, 100, 50, 0, true])),
        (600, json!([1, "x", 1])),
        (600, json!([2, null, [1]])),
    ];
    let row = |(space, row)| Statement { space, change: Change::Insert(fields(&row)) };
    rows.into_iter().map(row).collect()
}

fn fields(row: &Json) -> Vec<Value> {
    match value_of(row) {
        Ok(Value::Array(fields)) => fields,
        other => panic!("a row is an array of what scenarios may write: {other:?}"),
    }
}

/// The next statement.
pub(super) fn statement(dice: &mut Dice) -> Statement {
    if dice.chance(12) {
        return of_a_user(dice);
    }
    let kind = chosen(dice);
    let mut row = fields(&(kind.row)(dice));
    let space = kind.space;
    let of_key = |row: &[Value]| kind.key.iter().filter_map(|&field| row.get(field).cloned()).collect();
    let change = match dice.below(100) {
        0..18 => Change::Delete(of_key(&row)),
        18..32 => {
            let other = fields(&(kind.row)(dice));
            let field = dice.below(row.len() as u64) as usize;
            let value =
                if dice.chance(20) { odd(dice) } else { other.get(field).cloned().unwrap_or(Value::Nil) };
            let operation = Value::Array(vec![Value::str("="), Value::Int(field as i128), value]);
            Change::Update(of_key(&row), vec![operation])
        }
        case => {
            spoil(dice, &mut row);
            if case < 60 { Change::Insert(row) } else { Change::Replace(row) }
        }
    };
    if ends_a_tarantool(space, &change) {
        return statement(dice);
    }
    Statement { space, change }
}

/// Whether a Tarantool ends with a fault instead of refusing: it reads a UUID or the text of a trigger without a look
/// at its type.
fn ends_a_tarantool(space: i128, change: &Change) -> bool {
    let row = match change {
        Change::Insert(row) | Change::Replace(row) => row,
        Change::Update(key, operations) => {
            let sets = |field: i128| {
                let operation = operations.first().and_then(Value::as_array);
                operation.and_then(|operation| operation.get(1)) == Some(&Value::Int(field))
            };
            return match space {
                272 => key.first() == Some(&Value::str("cluster")) && sets(1),
                328 => sets(2),
                _ => false,
            };
        }
        Change::Delete(_) => return false,
    };
    match space {
        272 => row.first() == Some(&Value::str("cluster")) && !matches!(row.get(1), Some(Value::Str(_))),
        328 => !matches!(row.get(2), Some(Value::Map(options)) if !options.is_empty()),
        _ => false,
    }
}

fn chosen(dice: &mut Dice) -> &'static Kind {
    let mut left = dice.below(KINDS.iter().map(|kind| kind.weight).sum());
    let is_it = |kind: &&Kind| {
        let is_it = left < kind.weight;
        left = left.saturating_sub(kind.weight);
        is_it
    };
    KINDS.iter().find(is_it).unwrap_or(&KINDS[0])
}

/// A statement on a space of a user's, with values that not every file may hold.
fn of_a_user(dice: &mut Dice) -> Statement {
    let space = i128::from(600 + dice.below(7));
    let key = Value::Int(i128::from(dice.below(5)));
    let change = match dice.below(10) {
        0 => Change::Delete(vec![key]),
        1 => {
            let operation = Value::Array(vec![Value::str("="), Value::Int(1), odd(dice)]);
            Change::Update(vec![key], vec![operation])
        }
        _ => {
            let mut row = vec![key, Value::str("text"), Value::Int(3)];
            let field = dice.below(3) as usize;
            if dice.chance(60) {
                row[field] = odd(dice);
            }
            if dice.chance(50) { Change::Insert(row) } else { Change::Replace(row) }
        }
    };
    Statement { space, change }
}

fn spoil(dice: &mut Dice, row: &mut Vec<Value>) {
    match dice.below(100) {
        0..10 => {
            let field = dice.below(row.len() as u64) as usize;
            row[field] = odd(dice);
        }
        10..13 => drop(row.pop()),
        13..16 => row.push(odd(dice)),
        _ => {}
    }
}

/// A value of any kind.
pub(super) fn odd(dice: &mut Dice) -> Value {
    match dice.below(20) {
        0 => Value::Nil,
        1 => Value::Int(-1),
        2 => Value::Int(0),
        3 => Value::Int(1 << 32),
        4 => Value::Int((1 << 64) - 1),
        5 => Value::Double(1.5),
        6 => Value::Float(2.5),
        7 => Value::str(""),
        8 => Value::str("text"),
        9 => Value::Str(vec![0xff, b'a', 0]),
        10 => Value::Bin(vec![1, 2]),
        11 => Value::Array(Vec::new()),
        12 => Value::Map(Vec::new()),
        13 => Value::Map(vec![(Value::Int(1), Value::str("x"))]),
        14 => Value::Bool(true),
        15 => Value::Never,
        _ => {
            let kind = one(dice, &[0, -1, 1, 2, 3, 4, 32, 64, 96, 127, -128]);
            let bytes = one(dice, &[&[1_u8][..], &[2, 0x1c], &[0; 16], &[0x01, 0x01, 0x5d], &[0; 5]]);
            Value::Ext(kind, bytes.to_vec())
        }
    }
}

pub(super) fn one<T: Copy>(dice: &mut Dice, list: &[T]) -> T {
    list[dice.below(list.len() as u64) as usize]
}

/// The first of the list in most cases, else any of it.
fn mostly<T: Copy>(dice: &mut Dice, list: &[T]) -> T {
    if dice.chance(70) { list[0] } else { one(dice, list) }
}

fn json_of(dice: &mut Dice, texts: &[&str]) -> Json {
    let text = mostly(dice, texts);
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn space_id(dice: &mut Dice) -> u64 {
    if dice.chance(90) {
        return 600 + dice.below(7);
    }
    one(dice, &[0, 257, 272, 277, 280, 281, 288, 289, 304, 380, 511, 700, 0x7fff_ffff, 0x8000_0000, 1 << 40])
}

fn owner(dice: &mut Dice) -> u64 {
    mostly(dice, &[1, 0, 2, 3, 31, 32, 33, 34, 99, 1 << 33])
}

fn name(dice: &mut Dice, letter: &str, id: u64) -> String {
    if dice.chance(88) {
        return format!("{letter}{id}");
    }
    let odd = one(dice, &["", "a\u{0}b", "a\u{7f}b", "_space", "queue", "admin", "имя", "z\n", "Z"]);
    if dice.chance(40) { format!("{letter}{}", id + 1) } else { odd.to_owned() }
}

fn schema(dice: &mut Dice) -> Json {
    json_of(
        dice,
        &[
            r#"["mine", 1]"#,
            r#"["mine", {"a": [1]}, 2]"#,
            r#"["cluster", "a401d4d7-37a3-4d8a-a0b9-eeeb4d0a3753"]"#,
            r#"["cluster", "no uuid"]"#,
            r#"["version", 2, 3, 1]"#,
            r#"["version", 1, 6, 8]"#,
            r#"["version", 1, 7, 7]"#,
            r#"["version", 2, 1, 0]"#,
            r#"["version", 2, 11, 0]"#,
            r#"["version", 3, 0, 0]"#,
            r#"["version", "x"]"#,
            r#"["version"]"#,
            r#"["max_id", 4000]"#,
            r#"["max_id", "x"]"#,
            r#"["max_id", -5]"#,
            r#"["max_id"]"#,
            r#"["once_x", true]"#,
        ],
    )
}

fn collation(dice: &mut Dice) -> Json {
    let id = 300 + dice.below(3);
    let id = if dice.chance(10) { one(dice, &[0, 1, 3, 1 << 33, 255]) } else { id };
    let kind = mostly(dice, &["ICU", "icu", "BINARY", "nope", ""]);
    let locale = mostly(dice, &["en_US", "", "ru_RU", "zz_zz", "not a locale at all", "de_DE_u_co_phonebk"]);
    let options = json_of(
        dice,
        &[
            "{}",
            r#"{"strength": "primary"}"#,
            r#"{"strength": "TERTIARY"}"#,
            r#"{"strength": "none"}"#,
            r#"{"strength": 1}"#,
            r#"{"french_collation": "on", "case_first": "upper_first"}"#,
            r#"{"french_collation": "maybe"}"#,
            r#"{"alternate_handling": "shifted", "case_level": "on"}"#,
            r#"{"normalization_mode": "off", "numeric_collation": "on"}"#,
            r#"{"case_first": "x"}"#,
            r#"{"unknown": "x"}"#,
        ],
    );
    json!([id, name(dice, "c", id), owner(dice), kind, locale, options])
}

fn space(dice: &mut Dice) -> Json {
    let id = space_id(dice);
    let engine = if dice.chance(60) {
        "memtx"
    } else {
        one(dice, &["vinyl", "vinyl", "blackhole", "sysview", "service", "nope", "", "MEMTX"])
    };
    let flags = json_of(
        dice,
        &[
            "{}",
            r#"{"temporary": true}"#,
            r#"{"temporary": false, "is_sync": false}"#,
            r#"{"is_sync": true}"#,
            r#"{"is_sync": true, "group_id": 1}"#,
            r#"{"is_sync": true, "temporary": true}"#,
            r#"{"group_id": 1}"#,
            r#"{"group_id": 2}"#,
            r#"{"view": true}"#,
            r#"{"view": true, "sql": "CREATE VIEW \"s604\" AS SELECT * FROM \"s600\""}"#,
            r#"{"view": true, "sql": "CREATE VIEW x AS"}"#,
            r#"{"view": true, "sql": "CREATE TABLE x (a INT PRIMARY KEY)"}"#,
            r#"{"sql": "nonsense"}"#,
            r#"{"checks": []}"#,
            r#"{"checks": [{"expr": "a > 1", "name": "c"}]}"#,
            r#"{"unknown": 1}"#,
            r#"{"temporary": 1}"#,
            r#"{"group_id": -1}"#,
        ],
    );
    let count = mostly(dice, &[0_u64, 1, 2, 3, 7, 1 << 31, 1 << 32]);
    let fields = match dice.below(4) {
        0 => Vec::new(),
        count => (0..count).map(|number| field(dice, number)).collect(),
    };
    json!([id, owner(dice), name(dice, "s", id), engine, count, flags, fields])
}

fn field_type(dice: &mut Dice) -> &'static str {
    const TYPES: [&str; 19] = [
        "unsigned",
        "string",
        "any",
        "integer",
        "scalar",
        "number",
        "boolean",
        "array",
        "map",
        "double",
        "decimal",
        "uuid",
        "varbinary",
        "num",
        "str",
        "*",
        "UNSIGNED",
        "datetime",
        "nope",
    ];
    if dice.chance(60) { one(dice, &TYPES[..3]) } else { one(dice, &TYPES) }
}

fn field(dice: &mut Dice, number: u64) -> Json {
    if dice.chance(4) {
        return json_of(
            dice,
            &[r#"["a", "unsigned"]"#, "1", "{}", "null", r#"{"type": "any"}"#, r#"{"name": 1}"#],
        );
    }
    let name = if dice.chance(95) {
        format!("f{number}")
    } else {
        one(dice, &["f0", "", "a.b", "a\u{0}"]).to_owned()
    };
    let mut field = json!({ "name": name });
    let mut with = |key: &str, value: Json| field[key] = value;
    if dice.chance(80) {
        with("type", json!(field_type(dice)));
    }
    if dice.chance(20) {
        with("is_nullable", json!(dice.chance(60)));
    }
    if dice.chance(8) {
        with("nullable_action", json!(one(dice, &["none", "abort", "default", "x", "NONE"])));
    }
    if dice.chance(8) {
        with("collation", json!(one(dice, &[0, 1, 2, 3, 300, 999])));
    }
    if dice.chance(8) {
        let default =
            one(dice, &["1", "'a'", "1 +", "", "nope(", "NULL", "SELECT 1", "a", "-1.5e3", "abs(1)", "(1)"]);
        with("default", json!(default));
    }
    if dice.chance(3) {
        with(one(dice, &["unknown", "constraint", "foreign_key"]), json!(1));
    }
    field
}

fn index(dice: &mut Dice) -> Json {
    let id = if dice.chance(55) { 0 } else { one(dice, &[1_u64, 1, 2, 3, 127, 128, 1 << 33]) };
    let kind = mostly(dice, &["tree", "TREE", "hash", "hash", "HASH", "rtree", "bitset", "nope", ""]);
    let mut options = json!({});
    let mut with = |key: &str, value: Json| options[key] = value;
    if dice.chance(60) {
        with("unique", json!(id == 0 || dice.chance(50)));
    }
    if dice.chance(30) {
        let (option, values): (&str, &[f64]) = one(
            dice,
            &[
                ("dimension", &[2.0, 0.0, 21.0]),
                ("range_size", &[1_073_741_824.0, 100.0, 0.0, -1.0]),
                ("page_size", &[8192.0, 0.0, 1e12, -1.0]),
                ("run_count_per_level", &[2.0, 0.0, -1.0]),
                ("run_size_ratio", &[3.5, 1.0, 0.5]),
                ("bloom_fpr", &[0.05, 1.0, 0.0, 1.5]),
                ("lsn", &[5.0, -1.0]),
                ("func", &[0.0, 1.0, 65.0, 70.0]),
                ("unknown", &[1.0]),
            ],
        );
        let value = one(dice, values);
        with(option, if value.fract() == 0.0 { json!(value as i64) } else { json!(value) });
    }
    if dice.chance(5) {
        with(one(dice, &["distance", "sql"]), json!(one(dice, &["euclid", "MANHATTAN", "x"])));
    }
    let count = mostly(dice, &[1, 2, 3, 0]);
    let in_pairs = dice.chance(40);
    let parts: Vec<Json> = (0..count).map(|number| part(dice, number, in_pairs)).collect();
    json!([space_id(dice), id, name(dice, "i", id), kind, options, parts])
}

fn part(dice: &mut Dice, number: u64, in_pairs: bool) -> Json {
    let field =
        if dice.chance(80) { number } else { one(dice, &[0, 1, 5, 0x7fff_ffff, 0x8000_0000, 1 << 40]) };
    let ty = field_type(dice);
    if in_pairs {
        return if dice.chance(92) {
            json!([field, ty])
        } else {
            json_of(dice, &["[]", "[0]", r#"[0, "unsigned", 1]"#, r#"["x", "unsigned"]"#, "[0, 1]", "1"])
        };
    }
    let mut part = json!({ "field": field, "type": ty });
    let mut with = |key: &str, value: Json| part[key] = value;
    if dice.chance(25) {
        with("is_nullable", json!(dice.chance(60)));
    }
    if dice.chance(6) {
        with("nullable_action", json!(one(dice, &["none", "abort", "x"])));
    }
    if dice.chance(8) {
        with("collation", json!(one(dice, &[0, 1, 2, 3, 300, 999])));
    }
    if dice.chance(10) {
        with("path", json!(one(dice, &["a", ".a.b", "[1]", "[*]", "a[*].b", "[0]", "..", "a b", ""])));
    }
    if dice.chance(10) {
        with("sort_order", json!(one(dice, &["asc", "desc", "undef", "x", ""])));
    }
    if dice.chance(3) {
        with(one(dice, &["unknown", "exclude_null"]), json!(true));
    }
    part
}

fn function(dice: &mut Dice) -> Json {
    let id = 70 + dice.below(3);
    let id = if dice.chance(8) { one(dice, &[1, 65, 32000, 32001, 0]) } else { id };
    let language = mostly(dice, &["LUA", "lua", "C", "SQL", "SQL_BUILTIN", "nope", ""]);
    let short = json!([id, owner(dice), name(dice, "f", id), dice.below(2), language]);
    if dice.chance(40) {
        return short;
    }
    let bodies = ["", "function(a) return a end", "function() error('x') end", "function(", "5", "math.abs"];
    let body = mostly(dice, &bodies);
    let exports =
        json_of(dice, &[r#"["LUA"]"#, r#"["LUA", "SQL"]"#, "[]", r#"["nope"]"#, "[1]", r#"["SQL"]"#]);
    let parameters = json_of(dice, &["[]", r#"["string"]"#, r#"["nope"]"#, "[1]"]);
    let options =
        json_of(dice, &["{}", r#"{"is_multikey": true}"#, r#"{"unknown": 1}"#, r#"{"is_multikey": 1}"#]);
    let mut row = short;
    let mut rest = vec![
        json!(body),
        json!(mostly(dice, &["function", "procedure", ""])),
        parameters,
        json!(mostly(dice, &["any", "unsigned", "nope", ""])),
        json!(mostly(dice, &["none", "group", ""])),
        json!(mostly(dice, &["none", "contains", ""])),
        json!(dice.chance(50)),
        json!(dice.chance(20)),
        json!(dice.chance(90)),
        exports,
        options,
        json!(""),
        json!("2020-01-01 00:00:00"),
        json!("2020-01-01 00:00:00"),
    ];
    if dice.chance(5) {
        rest.truncate(dice.below(14) as usize);
    }
    if let Json::Array(fields) = &mut row {
        fields.extend(rest);
    }
    row
}

fn user(dice: &mut Dice) -> Json {
    let id = if dice.chance(80) { 32 + dice.below(4) } else { one(dice, &[0, 2, 3, 31, 40, 1 << 32]) };
    let kind = if dice.chance(60) { "user" } else { one(dice, &["role", "role", "USER", "nope", ""]) };
    let auth = json_of(
        dice,
        &[
            "{}",
            r#"{"chap-sha1": "FOZVZ6vbUTXQz9mnCzAywXmknuc="}"#,
            r#"{"chap-sha1": "FOZVZ6vbUTXQz9mnCzAywXmknuc"}"#,
            r#"{"chap-sha1": "?OZVZ6vbUTXQz9mnCzAywXmknuc="}"#,
            r#"{"chap-sha1": 1}"#,
            r#"{"chap-sha2": "x"}"#,
            r#"{"chap-sha1": ""}"#,
            r#"{"x": 1, "chap-sha1": "FOZVZ6vbUTXQz9mnCzAywXmknuc="}"#,
        ],
    );
    let known = ["guest", "admin", "public", "replication"];
    let name = match known.get(id as usize) {
        Some(known) if dice.chance(80) => (*known).to_owned(),
        _ => name(dice, "u", id),
    };
    json!([id, owner(dice), name, kind, auth])
}

fn privilege(dice: &mut Dice) -> Json {
    let kind = one(
        dice,
        &["universe", "space", "space", "role", "role", "user", "function", "sequence", "collation", "nope"],
    );
    let object = match kind {
        "universe" => json_of(dice, &["0", r#""""#, "1", "null"]),
        "space" => json!(space_id(dice)),
        "role" | "user" => json!(one(dice, &[32, 33, 34, 2, 3, 31, 0, 1, 99])),
        "function" => json!(one(dice, &[1, 65, 70, 71, 99])),
        _ => json!(one(dice, &[1, 2, 3, 300])),
    };
    let object =
        if dice.chance(10) { json_of(dice, &[r#""""#, r#""x""#, "-1", "4294967296"]) } else { object };
    let access = mostly(dice, &[4_u64, 1, 2, 3, 7, 24, 0xffff_ffff, 0, 1 << 20, 1 << 33, 0x20, 0x100]);
    let grantee = if dice.chance(80) { 32 + dice.below(3) } else { one(dice, &[0, 1, 2, 3, 31, 99]) };
    json!([owner(dice), grantee, kind, object, access])
}

fn sequence(dice: &mut Dice) -> Json {
    let id = if dice.chance(90) { 1 + dice.below(4) } else { one(dice, &[0, 1 << 32]) };
    let step = mostly(dice, &[1, -1, 0, 5, i64::MAX]);
    let min = mostly(dice, &[1, 0, -100, i64::MIN, 200]);
    let max = mostly(dice, &[100, 10, i64::MAX, -200]);
    let start = mostly(dice, &[1, 0, 50, 1000]);
    json!([
        id,
        owner(dice),
        name(dice, "q", id),
        step,
        min,
        max,
        start,
        mostly(dice, &[0, 10, -1]),
        dice.chance(30)
    ])
}

fn sequence_data(dice: &mut Dice) -> Json {
    json!([1 + dice.below(4), mostly(dice, &[5, 0, -7, 1000, i64::MAX])])
}

fn space_sequence(dice: &mut Dice) -> Json {
    let (space, sequence) = (space_id(dice), 1 + dice.below(4));
    if dice.chance(20) {
        return json!([space, sequence, dice.chance(50)]);
    }
    let field = mostly(dice, &[0_u64, 1, 2, 9, 1 << 32]);
    json!([space, sequence, dice.chance(30), field, mostly(dice, &["", "a", "[1]", ".."])])
}

fn cluster(dice: &mut Dice) -> Json {
    let id = if dice.chance(60) { 2 + dice.below(3) } else { one(dice, &[0, 1, 31, 32, 1 << 32]) };
    let uuid = mostly(
        dice,
        &[
            "a401d4d7-37a3-4d8a-a0b9-eeeb4d0a3753",
            "b401d4d7-37a3-4d8a-a0b9-eeeb4d0a3753",
            "00000000-0000-0000-0000-000000000000",
            "no uuid",
            "",
            "A401D4D7-37A3-4D8A-A0B9-EEEB4D0A3753",
            "a401d4d737a34d8aa0b9eeeb4d0a3753",
        ],
    );
    json!([id, uuid])
}

fn truncate(dice: &mut Dice) -> Json {
    json!([space_id(dice), mostly(dice, &[1_u64, 2, 0, 1 << 40])])
}

fn trigger(dice: &mut Dice) -> Json {
    let options = json_of(
        dice,
        &[
            r#"{"sql": "CREATE TRIGGER"}"#,
            r#"{"sql": "CREATE TRIGGER t1 BEFORE INSERT ON \"s600\" FOR EACH ROW BEGIN SELECT 1; END"}"#,
            r#"{"sql": 1}"#,
            r#"{"x": "y"}"#,
            r#"{"sql": "SELECT 1"}"#,
        ],
    );
    let number = 1 + dice.below(2);
    json!([name(dice, "T", number), space_id(dice), options])
}

fn foreign_key(dice: &mut Dice) -> Json {
    let columns = json_of(dice, &["[0]", "[1]", "[9]", "[]", "[0, 1]", r#"["x"]"#, "[0, 0]"]);
    let parents = json_of(dice, &["[0]", "[1]", "[]", "[0, 1]"]);
    let action = |dice: &mut Dice| mostly(dice, &["no_action", "cascade", "nope", "NO_ACTION", "set_null"]);
    let (on_delete, on_update) = (action(dice), action(dice));
    json!([
        name(dice, "k", 1),
        space_id(dice),
        space_id(dice),
        dice.chance(10),
        mostly(dice, &["simple", "full", "nope"]),
        on_delete,
        on_update,
        columns,
        parents
    ])
}

fn check(dice: &mut Dice) -> Json {
    let code =
        mostly(dice, &["\"id\" > 0", "id >", "", "1", "nope > 1", "SELECT 1", "\"id\" < 0", "\"a\" > 0"]);
    let language = mostly(dice, &["SQL", "sql", "LUA", ""]);
    let mut row = vec![
        json!(space_id(dice)),
        json!(name(dice, "x", 1)),
        json!(dice.chance(10)),
        json!(language),
        json!(code),
        json!(dice.chance(80)),
    ];
    if dice.chance(20) {
        row.pop();
    }
    Json::Array(row)
}

fn functional_index(dice: &mut Dice) -> Json {
    json!([space_id(dice), dice.below(3), one(dice, &[1, 65, 70, 71, 99])])
}
