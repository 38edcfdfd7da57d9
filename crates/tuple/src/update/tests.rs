use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::field::FieldSet;
use crate::field::FieldType;
use crate::format::{FieldDef, Refusal};
use crate::value::Value;

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn format(fields: &[(&str, FieldType)]) -> Format {
    let define = |&(name, ty): &(&str, FieldType)| FieldDef {
        name: name.to_owned(),
        ty,
        nullable: true,
        refusal: Refusal::Default,
    };
    Format::new(fields.iter().map(define).collect(), 0)
}

fn named(name: &str) -> Format {
    use FieldType::{Any, Double, Integer, Number, String, Unsigned};
    match name {
        "none" => Format::default(),
        "tree" => format(&[("id", Unsigned), ("name", String), ("n", Number)]),
        "strict" => format(&[("id", Unsigned), ("s", String), ("d", Double), ("i", Integer)]),
        "names" => format(&[("id", Unsigned), ("d", Double), ("n", Any), ("m", Any), ("a.b", Any)]),
        other => panic!("no format is called {other}"),
    }
}

#[test]
fn answers_what_tarantool_answers() {
    let mut count = 0;
    for line in include_str!("golden.txt").lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.splitn(6, ' ').collect();
        let [mode, base, names, tuple, operations, expected] = fields[..] else {
            panic!("a case has six fields: {line}");
        };
        let mode = if mode == "update" { Mode::Update } else { Mode::Upsert };
        let (tuple, operations) = (unhex(tuple), unhex(operations));
        let (names, base) = (named(names), base.parse().unwrap());
        let found = apply(&operations, TupleRef::new(&tuple).unwrap(), &names, base, mode, STEP_LIMIT);
        let expected = match expected.strip_prefix("! ") {
            Some(error) => Err(error.to_owned()),
            None => Ok(unhex(expected)),
        };
        assert_eq!(found.map_err(|error| error.to_string()), expected, "{line}");
        count += 1;
    }
    assert!(count > 400, "only {count} cases were found");
}

/// Operations as MessagePack. Each is an operator, a field and arguments.
fn encode(operations: &[Value]) -> Vec<u8> {
    Value::Array(operations.to_vec()).encode()
}

fn set(field: impl Into<Value>, value: impl Into<Value>) -> Value {
    Value::Array(vec![Value::str("="), field.into(), value.into()])
}

fn update(tuple: &Value, operations: &[Value]) -> Result<Value, String> {
    let tuple = tuple.encode();
    let result = apply(
        &encode(operations),
        TupleRef::new(&tuple).unwrap(),
        &Format::default(),
        1,
        Mode::Update,
        STEP_LIMIT,
    );
    result.map(|bytes| Value::decode(&bytes).unwrap()).map_err(|error| error.to_string())
}

#[test]
fn takes_4000_operations_and_no_more() {
    let tuple = Value::array([1_u64, 2]);
    let many = vec![set(2_u64, 7_u64); OPERATION_LIMIT as usize];
    assert_eq!(update(&tuple, &many), Ok(Value::array([1_u64, 7])));
    let too_many = vec![Value::Uint(5); OPERATION_LIMIT as usize + 1];
    let error = "Illegal parameters, too many operations for update";
    assert_eq!(update(&tuple, &too_many), Err(error.to_owned()));
}

#[test]
fn check_refuses_what_cannot_be_read_and_nothing_else() {
    let checked =
        |operation| check(&encode(&[operation]), &named("tree"), 0).map_err(|error| error.to_string());
    let operation = |operator: &str, field: Value, argument: Value| {
        Value::Array(vec![Value::str(operator), field, argument])
    };
    assert_eq!(checked(operation("=", Value::Uint(99), Value::Nil)), Ok(()));
    assert_eq!(checked(operation("+", Value::str("name"), Value::Uint(1))), Ok(()));
    let unknown = "Unknown UPDATE operation #1: \"?\"";
    assert_eq!(checked(operation("?", Value::Uint(1), Value::Uint(1))), Err(unknown.to_owned()));
    let missing = "Field 'nope' was not found in the tuple";
    assert_eq!(checked(operation("=", Value::str("nope"), Value::Uint(1))), Err(missing.to_owned()));
}

#[test]
fn refuses_operations_that_are_not_one_array() {
    let format = Format::default();
    for operations in ["", "81a13d01", "05", "9193a13d01", "91", "9193a13d010100", "dc0fa0"] {
        assert_eq!(check(&unhex(operations), &format, 0), Err(UpdateError::InvalidMsgpack), "{operations}");
    }
}

#[test]
fn counts_that_lie_do_no_harm() {
    for tuple in ["ddffffffff01", "9101", "92ddffffffff01", "92dfffffffffa16101"] {
        for operation in [
            set("[1][1]", 1_u64),
            Value::Array(vec![Value::str("!"), Value::str("[1][1]"), Value::Nil]),
            Value::Array(vec![Value::str("!"), Value::Uint(1), Value::Nil]),
        ] {
            let _ = apply(
                &encode(&[operation]),
                TupleRef::trusted(&unhex(tuple)),
                &Format::default(),
                1,
                Mode::Update,
                STEP_LIMIT,
            );
        }
    }
}

#[test]
fn a_path_of_any_depth_needs_no_stack() {
    let depth = 100_000;
    let mut tuple = vec![0x92, 0x01];
    tuple.extend(std::iter::repeat_n(0x91, depth));
    tuple.push(0x07);
    let path = "[1]".repeat(depth);
    for (operations, last) in [
        (vec![set(format!("[2]{path}").as_str(), 8_u64)], vec![0x91, 0x08]),
        (
            vec![
                set(format!("[2]{path}").as_str(), 8_u64),
                set(format!("[2]{}[2]", &path[3..]).as_str(), 9_u64),
            ],
            vec![0x92, 0x08, 0x09],
        ),
    ] {
        let result = apply(
            &encode(&operations),
            TupleRef::new(&tuple).unwrap(),
            &Format::default(),
            1,
            Mode::Update,
            STEP_LIMIT,
        )
        .unwrap();
        assert!(result.ends_with(&last));
        assert!(TupleRef::new(&result).is_ok());
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => (0_u64..300).prop_map(Value::Uint),
        1 => any::<u64>().prop_map(Value::Uint),
        1 => (i64::MIN..0).prop_map(Value::Int),
        1 => (-4_i32..4).prop_map(|halves| Value::Double(f64::from(halves) / 2.0)),
        1 => Just(Value::Float(0.5)),
        1 => Just(Value::Ext(1, vec![1, 0x5d])),
        2 => "[a-c]{0,40}".prop_map(Value::str),
        1 => Just(Value::Nil),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::Array),
            vec(("[a-d]", inner), 0..5).prop_map(|pairs| Value::Map(
                pairs.into_iter().map(|(key, value)| (Value::str(key), value)).collect()
            )),
        ]
    })
}

fn tuples() -> impl Strategy<Value = Value> {
    vec(values(), 0..7).prop_map(Value::Array)
}

fn fields() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => (0_u64..9).prop_map(Value::Uint),
        1 => (-9_i64..0).prop_map(Value::Int),
        4 => "(\\[[1-7]\\])((\\[[1-4]\\])|(\\.[a-d])){0,3}".prop_map(Value::str),
        1 => "[\\[\\].\"'*a1é ]{0,6}".prop_map(Value::str),
        1 => values(),
    ]
}

fn operations() -> impl Strategy<Value = Vec<Value>> {
    let simple =
        (prop::sample::select(vec!["=", "!", "#", "+", "-", "&", "|", "^", "?"]), fields(), values())
            .prop_map(|(operator, field, argument)| {
                Value::Array(vec![Value::str(operator), field, argument])
            });
    let splice =
        (fields(), -8_i64..8, -8_i64..8, "[x-z]{0,3}").prop_map(|(field, position, length, paste)| {
            Value::Array(vec![Value::str(":"), field, position.into(), length.into(), Value::str(paste)])
        });
    vec(prop_oneof![8 => simple, 1 => splice, 1 => values()], 0..8)
}

/// A field of the plain model: its value, and whether it has had its one computation.
#[derive(Debug, Clone)]
struct ModelField {
    value: Value,
    is_final: bool,
}

/// An operation of the plain model: operator, field from 0 or from the end, argument.
type ModelOperation = (char, i64, u64);

/// Applies `= ! # +` with unsigned arguments to fields by number, as plainly as can be. `None`: refused.
fn model(tuple: &[u64], operations: &[ModelOperation]) -> Option<Vec<Value>> {
    let mut fields: Vec<_> =
        tuple.iter().map(|&value| ModelField { value: Value::Uint(value), is_final: false }).collect();
    for &(operator, field, argument) in operations {
        let count = fields.len() as i64;
        let at = if field >= 0 { field } else { field + count + i64::from(operator == '!') };
        let at = usize::try_from(at).ok().filter(|&at| at <= fields.len())?;
        let inserted = ModelField { value: Value::Uint(argument), is_final: false };
        match operator {
            '!' => fields.insert(at, inserted),
            '=' if at == fields.len() && field >= 0 => fields.push(inserted),
            _ if at == fields.len() => return None,
            '=' => fields[at] = ModelField { is_final: true, ..inserted },
            '#' => {
                let end = fields.len().min(at + usize::try_from(argument).ok().filter(|&count| count > 0)?);
                fields.drain(at..end);
            }
            _ => {
                let ModelField { value: Value::Uint(old), is_final: false } = fields[at] else {
                    return None;
                };
                fields[at] = ModelField { value: Value::Uint(old.checked_add(argument)?), is_final: true };
            }
        }
    }
    Some(fields.into_iter().map(|field| field.value).collect())
}

proptest! {
    #[test]
    fn agrees_with_a_plain_model(
        tuple in vec(0_u64..1000, 0..6),
        operations in vec((prop::sample::select(vec!['=', '!', '#', '+']), -8_i64..9, 0_u64..4), 0..8),
    ) {
        let sent: Vec<Value> = operations
            .iter()
            .map(|&(operator, field, argument)| {
                let field = if field < 0 { field } else { field + 1 };
                Value::Array(vec![Value::str(operator.to_string()), field.into(), argument.into()])
            })
            .collect();
        let found = update(&Value::array(tuple.iter().copied()), &sent);
        prop_assert_eq!(found.ok(), model(&tuple, &operations).map(Value::Array));
    }

    #[test]
    fn the_shortcut_agrees_with_the_general_path(
        tuple in tuples(),
        assignments in vec((0_u64..8, any::<bool>(), values()), 1..10),
        base in 0_i64..2,
    ) {
        let names = (0..8).map(|field| format!("f{field}")).collect::<Vec<_>>();
        let format = format(&names.iter().map(|name| (name.as_str(), FieldType::Any)).collect::<Vec<_>>());
        let tuple = tuple.encode();
        let tuple = TupleRef::new(&tuple).unwrap();
        let send = |(field, by_name, value): &(u64, bool, Value)| match by_name {
            true => set(names[*field as usize].as_str(), value.clone()),
            false => set(*field, value.clone()),
        };
        let sent = encode(&assignments.iter().map(send).collect::<Vec<_>>());
        let general = apply_any(&sent, tuple, &format, base, Mode::Update, STEP_LIMIT);
        if let Some(shortcut) = assignment::apply(&sent, tuple, &format, base) {
            prop_assert_eq!(Ok(shortcut), general);
        } else if general.is_ok() {
            // Left to the general path: more fields than the shortcut takes, or one that is appended.
            let number = |(field, by_name, _): &(u64, bool, Value)| *field as i64 - if *by_name { 0 } else { base };
            let fields: BTreeSet<i64> = assignments.iter().map(number).collect();
            let is_appended = |field: &i64| *field >= i64::from(tuple.len());
            prop_assert!(fields.len() > assignment::CAPACITY || fields.iter().any(is_appended));
        }
    }

    #[test]
    fn what_is_assigned_at_once_fits_the_format(
        tuple in tuples(),
        assignments in vec((0_u64..8, values()), 1..4),
        types in vec(prop::sample::select(vec![FieldType::Any, FieldType::Unsigned, FieldType::Number, FieldType::String]), 0..5),
        base in 0_i64..2,
        in_place: bool,
    ) {
        let format = format(&types.into_iter().map(|ty| ("f", ty)).collect::<Vec<_>>());
        let tuple = tuple.encode();
        let tuple = TupleRef::new(&tuple).unwrap();
        prop_assume!(format.check(tuple).is_ok());
        let sent: Vec<Value> = assignments.iter().map(|(field, value)| set(*field, value.clone())).collect();
        let sent = encode(&sent);
        let mut updated = Vec::new();
        let assigned = assign(&sent, tuple, &format, base, |_| in_place, &mut updated);
        let general = apply_any(&sent, tuple, &format, base, Mode::Update, STEP_LIMIT);
        let fits = general.as_ref().is_ok_and(|result| format.check(TupleRef::new(result).unwrap()).is_ok());
        if let Some(assigned) = assigned {
            prop_assert!(fits);
            let fields = assignments.iter().map(|(field, _)| (*field as i64 - base) as u32);
            prop_assert_eq!(assigned.fields, fields.collect::<FieldSet>());
            if let Some(offset) = assigned.offset {
                prop_assert!(in_place);
                let mut overwritten = tuple.bytes().to_vec();
                overwritten[offset..offset + updated.len()].copy_from_slice(&updated);
                prop_assert_eq!(Ok(overwritten), general);
            } else {
                let is_as_long = |(field, value): &(u64, Value)| {
                    tuple.field((*field as i64 - base) as u32).map(<[u8]>::len) == Some(value.encode().len())
                };
                prop_assert!(!in_place || !assignments.iter().all(is_as_long));
                prop_assert_eq!(Ok(updated), general);
            }
        } else {
            prop_assert!(updated.is_empty());
            // An extension's first byte does not tell its type, so the format looks at all of the value.
            let is_left_out = |(field, value): &(u64, Value)| {
                let field = *field as i64 - base;
                field < 0 || field >= i64::from(tuple.len()) || matches!(value, Value::Ext(..))
            };
            prop_assert!(!fits || assignments.iter().any(is_left_out));
        }
    }

    #[test]
    fn whatever_comes_gives_a_tuple_or_an_error(tuple in tuples(), operations in operations()) {
        let (tuple, operations) = (tuple.encode(), encode(&operations));
        let tuple = TupleRef::new(&tuple).unwrap();
        for mode in [Mode::Update, Mode::Upsert] {
            if let Ok(result) = apply(&operations, tuple, &named("names"), 1, mode, STEP_LIMIT) {
                prop_assert!(TupleRef::new(&result).is_ok(), "{:02x?}", result);
            }
        }
    }

    #[test]
    fn bytes_of_any_kind_do_no_harm(tuple in vec(any::<u8>(), 0..40), operations in vec(any::<u8>(), 0..60)) {
        let _ = apply(&operations, TupleRef::trusted(&tuple), &Format::default(), 1, Mode::Upsert, STEP_LIMIT);
    }

    #[test]
    fn cut_operations_do_no_harm(tuple in tuples(), operations in operations(), cut in 0_usize..200) {
        let (tuple, mut operations) = (tuple.encode(), encode(&operations));
        operations.truncate(cut);
        let _ = apply(&operations, TupleRef::new(&tuple).unwrap(), &Format::default(), 1, Mode::Update, STEP_LIMIT);
        let _ = apply(&encode(&[set("[1][1]", 1_u64), set("[1][2]", 1_u64)]), TupleRef::trusted(&tuple[..cut.min(tuple.len())]), &Format::default(), 1, Mode::Update, STEP_LIMIT);
    }

    #[test]
    fn setting_every_field_to_itself_changes_nothing(tuple in tuples()) {
        let Value::Array(fields) = &tuple else { unreachable!("tuples are arrays") };
        let by_number: Vec<Value> = (1_u64..).zip(fields).map(|(number, value)| set(number, value.clone())).collect();
        let by_path: Vec<Value> =
            (1..).zip(fields).map(|(number, value)| set(format!("[{number}]").as_str(), value.clone())).collect();
        for operations in [by_number, by_path] {
            let encoded = tuple.encode();
            let result = apply(&encode(&operations), TupleRef::new(&encoded).unwrap(), &Format::default(), 1, Mode::Update, STEP_LIMIT);
            prop_assert_eq!(result, Ok(encoded));
        }
    }
}

/// Paths that find their places by walking a large map or a deep value again and again end with an error, in both modes;
/// without a limit, as when a log is replayed, they are applied.
#[test]
fn walking_a_tuple_again_and_again_has_a_limit() {
    const PAIRS: u64 = 4000;
    let pairs = (0..PAIRS).map(|number| (Value::str(format!("k{number:05}")), Value::Nil)).collect();
    let map = encode(&[Value::Uint(1), Value::Map(pairs)]);
    let late: Vec<_> =
        (0..300).map(|back| set(format!("[2].k{:05}", PAIRS - 1 - back).as_str(), 1_u64)).collect();
    // Every path ends one level above the path before it, and each level holds a long array behind the place.
    let long = Value::Array(vec![Value::Nil; 5000]);
    let tower = (0..100).fold(long, |below, _| Value::Array(vec![below, Value::Nil]));
    let tower = encode(&[Value::Uint(1), tower]);
    let partings: Vec<_> = (1..=100)
        .rev()
        .map(|depth| set(format!("[2]{}[2]", "[1]".repeat(depth - 1)).as_str(), 1_u64))
        .collect();
    for (tuple, operations) in [(map, encode(&late)), (tower, encode(&partings))] {
        let tuple = TupleRef::new(&tuple).unwrap();
        let applied = |mode, limit| apply(&operations, tuple, &Format::default(), 1, mode, limit);
        for mode in [Mode::Update, Mode::Upsert] {
            assert_eq!(applied(mode, 100_000), Err(UpdateError::TooManySteps));
        }
        let unlimited = applied(Mode::Update, u64::MAX).unwrap();
        assert_eq!(applied(Mode::Upsert, u64::MAX), Ok(unlimited));
    }
}

/// Operations on as many places as a request may name, each of them once, are far below the limit.
#[test]
fn operations_on_fields_by_number_are_far_below_the_limit() {
    let fields = vec![Value::Uint(1); 900_000];
    let tuple = encode(&fields);
    let operations: Vec<_> = (0..u64::from(OPERATION_LIMIT))
        .map(|number| {
            let field = 899_990 - number * 200;
            Value::Array(vec![Value::str("+"), Value::Uint(field), Value::Uint(1)])
        })
        .collect();
    let tuple = TupleRef::new(&tuple).unwrap();
    apply(&encode(&operations), tuple, &Format::default(), 1, Mode::Update, STEP_LIMIT).unwrap();
}
