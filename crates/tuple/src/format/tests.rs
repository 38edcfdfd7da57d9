//! Which tuples a format admits, and with which words it refuses.

use super::*;
use crate::path::Path;
use crate::value::Value;

fn field(name: &str, ty: FieldType, nullable: bool) -> FieldDef {
    FieldDef { name: name.to_owned(), ty, nullable, refusal: Refusal::Default }
}

fn part(field: u32, ty: FieldType) -> KeyPart {
    KeyPart::new(field, ty)
}

fn nullable(part: KeyPart) -> KeyPart {
    KeyPart { nullable: true, ..part }
}

fn inside(path: &str, part: KeyPart) -> KeyPart {
    KeyPart { path: Some(Path::parse(path).unwrap()), ..part }
}

fn format_with(fields: Vec<FieldDef>, parts: &[KeyPart]) -> Format {
    let mut format = Format::new(fields, 0);
    for part in parts {
        format.add_key_part(part).unwrap();
    }
    format
}

fn check(format: &Format, fields: &[Value]) -> Result<(), String> {
    let bytes = Value::Array(fields.to_vec()).encode();
    format.check(TupleRef::new(&bytes).unwrap()).map_err(|error| error.to_string())
}

fn wrong(field: &str, expected: &str) -> Result<(), String> {
    Err(format!("Tuple field {field} type does not match one required by operation: expected {expected}"))
}

fn missing(field: &str) -> Result<(), String> {
    Err(format!("Tuple field {field} required by space format is missing"))
}

fn refused(format: &mut Format, part: &KeyPart) -> String {
    format.add_key_part(part).unwrap_err().to_string()
}

fn map<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    Value::map(pairs)
}

#[test]
fn count_then_types_then_what_is_missing() {
    let fields = vec![
        field("id", FieldType::Unsigned, false),
        field("name", FieldType::String, false),
        field("note", FieldType::String, true),
        field("more", FieldType::Any, false),
    ];
    let format = Format::new(fields.clone(), 0);
    assert_eq!(check(&format, &[1.into(), "a".into(), Value::Nil, Value::Nil]), Ok(()));
    assert_eq!(check(&format, &[1.into(), "a".into(), "b".into(), 1.into(), 5.into()]), Ok(()));
    assert_eq!(check(&format, &[(-1).into()]), wrong("1", "unsigned"));
    assert_eq!(check(&format, &[1.into(), 5.into(), 5.into()]), wrong("2", "string"));
    assert_eq!(check(&format, &[1.into(), Value::Nil]), wrong("2", "string"));
    assert_eq!(check(&format, &[1.into()]), missing("2"));
    assert_eq!(check(&format, &[1.into(), "a".into()]), missing("4"));
    assert_eq!(check(&format, &[]), missing("1"));

    let exact = Format::new(fields, 4);
    let count = Err("Tuple field count 3 does not match space field count 4".to_owned());
    assert_eq!(check(&exact, &["x".into(), 1.into(), 2.into()]), count);
    assert_eq!(exact.exact_field_count(), 4);
    assert_eq!(exact.field_by_name(b"note"), Some(2));
    assert_eq!(exact.field_by_name(b"nope"), None);
}

#[test]
fn parts_narrow_fields_and_demand_them() {
    let fields = vec![field("id", FieldType::Unsigned, false), field("n", FieldType::Number, true)];
    let format = format_with(fields, &[part(0, FieldType::Unsigned), part(1, FieldType::Integer)]);
    assert_eq!(format.field_type(1), FieldType::Integer);
    assert!(!format.is_nullable(1) && format.is_nullable(7));
    assert_eq!(format.field_type(7), FieldType::Any);
    assert_eq!(format.fields()[1].ty, FieldType::Number);
    assert_eq!(check(&format, &[1.into(), 1.5.into()]), wrong("2", "integer"));
    assert_eq!(check(&format, &[1.into()]), missing("2"));
    let wider = format_with(vec![field("id", FieldType::Unsigned, false)], &[part(0, FieldType::Scalar)]);
    assert_eq!(wider.field_type(0), FieldType::Unsigned);
}

#[test]
fn fields_before_a_part_are_free() {
    let format = format_with(vec![], &[part(0, FieldType::Unsigned), part(2, FieldType::String)]);
    assert_eq!(check(&format, &[1.into(), Value::Nil, "a".into()]), Ok(()));
    assert_eq!(check(&format, &[1.into()]), missing("3"));
}

#[test]
fn a_field_is_nullable_if_all_parts_agree() {
    let both =
        [part(0, FieldType::Unsigned), nullable(part(1, FieldType::Scalar)), part(1, FieldType::String)];
    let format = format_with(vec![], &both);
    assert_eq!(check(&format, &[1.into(), Value::Nil]), wrong("2", "string"));
    assert_eq!(check(&format, &[1.into()]), missing("2"));
    let format = format_with(vec![], &both[..2]);
    assert_eq!(check(&format, &[1.into(), Value::Nil]), Ok(()));
    assert_eq!(check(&format, &[1.into()]), Ok(()));
    let declared = vec![field("id", FieldType::Unsigned, false), field("x", FieldType::String, false)];
    let format = format_with(declared, &both[..2]);
    assert_eq!(check(&format, &[1.into()]), missing("2"));
}

/// Texts as Tarantool 2.6 gave them for the same definitions and tuples.
#[test]
fn places_inside_of_fields() {
    let deep = inside("a[2].b", part(2, FieldType::String));
    let format = format_with(vec![], &[part(0, FieldType::Unsigned), deep]);
    let checked = |value: Value| check(&format, &[1.into(), 2.into(), value]);
    let in_a = |value: Value| checked(map([("a", value)]));
    assert_eq!(check(&format, &[1.into()]), missing(r#"[3]["a"][2]["b"]"#));
    assert_eq!(checked(Value::Nil), wrong("3", "map"));
    assert_eq!(checked(Value::Array(vec![])), wrong("3", "map"));
    assert_eq!(checked(map([("x", 1.into())])), missing(r#"[3]["a"][2]["b"]"#));
    assert_eq!(in_a(5.into()), wrong(r#"[3]["a"]"#, "array"));
    assert_eq!(in_a(Value::Nil), wrong(r#"[3]["a"]"#, "array"));
    assert_eq!(in_a(Value::array([1])), missing(r#"[3]["a"][2]["b"]"#));
    assert_eq!(in_a(Value::array([1, 2])), wrong(r#"[3]["a"][2]"#, "map"));
    let second = |value: Value| in_a(Value::Array(vec![1.into(), value]));
    assert_eq!(second(map([("c", 2.into())])), missing(r#"[3]["a"][2]["b"]"#));
    assert_eq!(second(map([("b", 2.into())])), wrong(r#"[3]["a"][2]["b"]"#, "string"));
    assert_eq!(second(map([("b", "s".into())])), Ok(()));
}

#[test]
fn nullable_places_inside_of_fields() {
    let fields = vec![field("x", FieldType::Any, false), field("y", FieldType::Map, true)];
    let format = format_with(
        fields,
        &[part(0, FieldType::Unsigned), nullable(inside("a.b", part(1, FieldType::String)))],
    );
    let checked = |value: Value| check(&format, &[1.into(), value]);
    assert_eq!(check(&format, &[1.into()]), Ok(()));
    assert_eq!(checked(Value::Nil), wrong("2", "map"));
    let stored = Value::Array(vec![1.into(), Value::Nil]).encode();
    assert!(format.check_stored(TupleRef::new(&stored).unwrap()).is_ok(), "an older version has taken it");
    assert_eq!(checked(map([("a", map([("c", 1.into())]))])), Ok(()));
    assert_eq!(checked(map([("a", map([("b", Value::Nil)]))])), Ok(()));
    assert_eq!(checked(map([("a", 5.into())])), wrong(r#"[2]["a"]"#, "map"));
    assert_eq!(checked(map([("a", Value::Nil)])), wrong(r#"[2]["a"]"#, "map"));
    assert_eq!(checked(map([("a", map([("b", 5.into())]))])), wrong(r#"[2]["a"]["b"]"#, "string"));
    assert_eq!(checked("q".into()), wrong("2", "map"));

    // A declared map that only nullable places look into may be left out, though not be nil.
    let fields = vec![
        field("x", FieldType::Unsigned, false),
        field("y", FieldType::Map, false),
        field("z", FieldType::Any, false),
    ];
    let format = format_with(fields, &[nullable(inside("a", part(1, FieldType::String)))]);
    assert_eq!(check(&format, &[1.into()]), missing("3"));
    assert_eq!(check(&format, &[1.into(), Value::Nil, 1.into()]), wrong("2", "map"));
}

/// Which of the two errors: as Tarantool 2.6 chose for the same definitions.
#[test]
fn parts_that_contradict() {
    let declared = || {
        vec![
            field("x", FieldType::Unsigned, false),
            field("y", FieldType::Number, false),
            field("z", FieldType::Map, false),
            field("w", FieldType::Any, false),
        ]
    };
    let mut format = format_with(declared(), &[part(0, FieldType::Unsigned)]);
    assert_eq!(
        refused(&mut format, &part(1, FieldType::String)),
        "Field 2 has type 'number' in space format, but type 'string' in index definition"
    );
    assert_eq!(
        refused(&mut format, &part(2, FieldType::String)),
        "Field 3 has type 'map' in space format, but type 'string' in index definition"
    );
    assert_eq!(
        refused(&mut format, &inside("k", part(1, FieldType::String))),
        "Field 2 has type 'number' in one index, but type 'map' in another"
    );
    let format = format_with(
        declared(),
        &[
            part(1, FieldType::Unsigned),
            inside("a", part(2, FieldType::String)),
            part(3, FieldType::String),
            inside("a[2].b", part(4, FieldType::String)),
        ],
    );
    for (part, text) in [
        (
            part(1, FieldType::String),
            "Field 2 has type 'unsigned' in one index, but type 'string' in another",
        ),
        (
            part(1, FieldType::Double),
            "Field 2 has type 'unsigned' in one index, but type 'double' in another",
        ),
        (part(2, FieldType::String), "Field 3 has type 'map' in one index, but type 'string' in another"),
        (
            part(3, FieldType::Unsigned),
            "Field 4 has type 'string' in one index, but type 'unsigned' in another",
        ),
        (
            inside("a", part(3, FieldType::Unsigned)),
            "Field 4 has type 'string' in one index, but type 'map' in another",
        ),
        (
            inside("a[2].b", part(4, FieldType::Unsigned)),
            r#"Field [5]["a"][2]["b"] has type 'string' in one index, but type 'unsigned' in another"#,
        ),
        (
            inside("a.c", part(4, FieldType::Unsigned)),
            r#"Field [5]["a"] has type 'array' in one index, but type 'map' in another"#,
        ),
    ] {
        assert_eq!(refused(&mut format.clone(), &part), text);
    }
}

#[test]
fn the_depth_of_a_path_is_no_recursion() {
    let path = vec!["a"; 2_000].join(".");
    let format = format_with(vec![], &[inside(&path, part(0, FieldType::Unsigned))]);
    let mut bytes = vec![0x91];
    bytes.extend([0x81, 0xa1, b'a'].repeat(2_000));
    bytes.push(0x05);
    assert_eq!(format.check(TupleRef::new(&bytes).unwrap()), Ok(()));
    *bytes.last_mut().unwrap() = 0xc0;
    assert!(format.check(TupleRef::new(&bytes).unwrap()).is_err());
}
