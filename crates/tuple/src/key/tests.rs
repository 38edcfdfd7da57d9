//! The order of keys against that of their decoded values; hints, hashes and refusals.

use proptest::prelude::*;

use super::*;
use crate::samples;
use crate::value::Value;

const KEY_TYPES: [FieldType; 10] = [
    FieldType::Unsigned,
    FieldType::String,
    FieldType::Integer,
    FieldType::Boolean,
    FieldType::Varbinary,
    FieldType::Double,
    FieldType::Number,
    FieldType::Decimal,
    FieldType::Scalar,
    FieldType::Uuid,
];

fn nullable(part: KeyPart) -> KeyPart {
    KeyPart { nullable: true, ..part }
}

fn tuple(fields: impl IntoIterator<Item = Value>) -> Vec<u8> {
    Value::Array(fields.into_iter().collect()).encode()
}

fn key(parts: &[Value]) -> Vec<u8> {
    parts.iter().flat_map(Value::encode).collect()
}

/// A definition over fields 0 … n in some order, and two tuples that share many fields.
#[derive(Debug)]
struct Case {
    definition: KeyDef,
    a: Vec<Value>,
    b: Vec<Value>,
    wide: u8,
}

impl Case {
    fn bytes(&self, fields: &[Value]) -> Vec<u8> {
        // Trailing nils are left out, as they may be.
        let count = fields.iter().rposition(|field| *field != Value::Nil).map_or(0, |last| last + 1);
        let mut out = Vec::new();
        mp::write_array(&mut out, count as u32);
        for (field, value) in fields[..count].iter().enumerate() {
            let part = self.definition.parts.iter().find(|part| part.field as usize == field).unwrap();
            let wide = if part.ty == FieldType::Unsigned { self.wide % 2 } else { self.wide };
            out.extend(samples::encode_widely(value, wide));
        }
        out
    }

    fn key(&self, fields: &[Value], count: usize) -> Vec<u8> {
        self.definition.parts[..count].iter().flat_map(|part| fields[part.field as usize].encode()).collect()
    }

    fn model(&self, count: usize) -> Ordering {
        let fields = self.definition.parts[..count].iter().map(|part| part.field as usize);
        fields
            .map(|field| samples::model_compare(&self.a[field], &self.b[field]))
            .find(|ordering| ordering.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let part = (prop::sample::select(KEY_TYPES.to_vec()), any::<bool>());
    prop::collection::vec(part, 1..5)
        .prop_flat_map(|parts| {
            let fields: Vec<u32> = (0..parts.len() as u32).collect();
            (Just(parts), Just(fields).prop_shuffle())
        })
        .prop_flat_map(|(parts, fields)| {
            let value = |(ty, nullable)| {
                let nils = if nullable { 1 } else { 0 };
                prop_oneof![nils => Just(Value::Nil), 3 => samples::of_type(ty)]
            };
            let values = || fields.iter().map(|&field| value(parts[field as usize])).collect::<Vec<_>>();
            let (first, second, shared) =
                (values(), values(), prop::collection::vec(any::<bool>(), parts.len()));
            (Just((parts, fields.clone())), first, second, shared, any::<u8>())
        })
        .prop_map(|((parts, fields), first, second, shared, wide)| {
            let mut a = vec![Value::Nil; fields.len()];
            let mut b = a.clone();
            let mut definition = Vec::new();
            for (place, &field) in fields.iter().enumerate() {
                let (ty, nullable) = parts[field as usize];
                definition.push(KeyPart { nullable, ..KeyPart::new(field, ty) });
                a[field as usize] = first[place].clone();
                b[field as usize] = if shared[place] { &first } else { &second }[place].clone();
            }
            Case { definition: KeyDef::new(definition), a, b, wide }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn tuples_are_ordered_as_the_model_orders_them(case in cases()) {
        let definition = &case.definition;
        let (a, b) = (case.bytes(&case.a), case.bytes(&case.b));
        let ordering = definition.compare(&a, &b);
        prop_assert_eq!(ordering, case.model(definition.parts.len()));
        prop_assert_eq!(definition.compare(&b, &a), ordering.reverse());
        if ordering.is_eq() {
            prop_assert_eq!(definition.hash(&a), definition.hash(&b));
            prop_assert_eq!(definition.hint(&a), definition.hint(&b));
        }
    }

    #[test]
    fn hints_agree_with_the_order(case in cases()) {
        let definition = &case.definition;
        let (a, b) = (case.bytes(&case.a), case.bytes(&case.b));
        let (a_hint, b_hint) = (definition.hint(&a), definition.hint(&b));
        let ordering = definition.compare(&a, &b);
        if a_hint != b_hint {
            prop_assert_eq!(a_hint.cmp(&b_hint), ordering, "{:x} {:x}", a_hint, b_hint);
        } else if definition.hint_is_exact(a_hint) {
            prop_assert_eq!(ordering, Ordering::Equal, "{:x}", a_hint);
        }
    }

    #[test]
    fn keys_are_ordered_as_their_tuples(case in cases()) {
        let definition = &case.definition;
        let (a, b) = (case.bytes(&case.a), case.bytes(&case.b));
        let mut extracted = Vec::new();
        definition.extract(&b, &mut extracted);
        let count = definition.part_count();
        prop_assert!(definition.check_whole_key(&extracted, count).is_ok());
        prop_assert_eq!(definition.compare_with_key(&b, &extracted, count), Ordering::Equal);
        prop_assert_eq!(definition.hash_key(&extracted), definition.hash(&b));
        for given in 0..=definition.parts.len() {
            let key = case.key(&case.b, given);
            let given = given as u32;
            prop_assert!(definition.check_key(&key, given).is_ok());
            let ordering = definition.compare_with_key(&a, &key, given);
            prop_assert_eq!(ordering, case.model(given as usize));
            let hint = definition.hint(&a);
            let (least, greatest) = definition.key_hint(&key, given);
            match ordering {
                Ordering::Equal => prop_assert!(least <= hint && hint <= greatest),
                Ordering::Less => prop_assert!(hint <= greatest),
                Ordering::Greater => prop_assert!(hint >= least),
            }
        }
    }

    #[test]
    fn any_bytes_do_no_harm(case in cases(), a: Vec<u8>, b: Vec<u8>, count: u32) {
        let definition = &case.definition;
        prop_assert_eq!(definition.compare(&a, &b), definition.compare(&b, &a).reverse());
        definition.compare_with_key(&a, &b, count);
        let _ = definition.check_key(&b, count);
        definition.key_hint(&b, count);
        definition.hint_is_exact(definition.hint(&a));
        definition.hash(&a);
        definition.hash_key(&b);
        definition.has_nil(&a);
        definition.extract(&a, &mut Vec::new());
    }
}

#[test]
fn queue_keys_fit_into_their_hints() {
    let by_id = KeyDef::new(vec![KeyPart::new(1, FieldType::String), KeyPart::new(0, FieldType::Unsigned)]);
    let task = |id: u64| tuple([id.into(), "r".into()]);
    assert!(by_id.hint_is_exact(by_id.hint(&task(0))));
    assert!(by_id.hint_is_exact(by_id.hint(&task((1 << 49) - 1))));
    assert!(!by_id.hint_is_exact(by_id.hint(&task(1 << 49))));

    let by_priority = KeyDef::new(vec![
        KeyPart::new(1, FieldType::String),
        KeyPart::new(2, FieldType::Unsigned),
        KeyPart::new(0, FieldType::Unsigned),
    ]);
    let task = |id: u64| tuple([id.into(), "r".into(), 0.into()]);
    assert!(by_priority.hint_is_exact(by_priority.hint(&task((1 << 43) - 1))));
    assert!(!by_priority.hint_is_exact(by_priority.hint(&task(1 << 43))));

    let by_time = KeyDef::new(vec![KeyPart::new(0, FieldType::String), KeyPart::new(1, FieldType::Unsigned)]);
    let at = |time: u64| by_time.hint(&tuple(["~".into(), time.into()]));
    let time = 1_700_000_000_000_000;
    assert!(at(time) < at(time + 4), "microseconds of today are told apart to within four");
    assert!(!by_time.hint_is_exact(at(time)));
}

#[test]
fn prefixes_bound_hints() {
    let definition =
        KeyDef::new(vec![KeyPart::new(0, FieldType::String), KeyPart::new(1, FieldType::Unsigned)]);
    assert_eq!(definition.key_hint(&[], 0), (0, u64::MAX));
    let (least, greatest) = definition.key_hint(&key(&["r".into()]), 1);
    // '1' and 'r', '0', then 54 bits that the second part decides.
    assert_eq!(least, 0b10_1110_0100 << 54);
    assert_eq!(greatest, least + ((1 << 54) - 1));
    let number = KeyDef::new(vec![KeyPart::new(0, FieldType::Number), KeyPart::new(1, FieldType::Unsigned)]);
    let (least, greatest) = number.key_hint(&key(&[1.into()]), 1);
    assert_eq!((least, greatest), (0b1000_0010 << 56, (0b1000_0011 << 56) - 1));
    let (least, greatest) = number.key_hint(&key(&[1.5.into()]), 1);
    assert_eq!((least, greatest), (0b1_0000_0111 << 55, least), "nothing follows a fraction");
}

#[test]
fn numbers_of_any_kind_have_hints_that_tell_them_apart() {
    let by_number = KeyDef::new(vec![KeyPart::new(0, FieldType::Number), KeyPart::new(1, FieldType::Number)]);
    let hint = |first: Value, second: u64| by_number.hint(&tuple([first, second.into()]));
    let time = 1_700_000_000_000_000_000;
    assert!(hint(0.into(), time) < hint(0.into(), time + 2048), "nanoseconds of today, to within two µs");
    assert!(by_number.hint_is_exact(hint(0.into(), 1 << 40)));
    assert!(!by_number.hint_is_exact(hint(0.into(), time)) && !by_number.hint_is_exact(hint(0.5.into(), 0)));
    assert_eq!(hint(Value::Double(7.0), 9), hint(7.into(), 9));
    assert_eq!(hint(samples::decimal(-15, 1), 0), hint((-1.5).into(), 0));
    let ascending = [
        Value::Double(f64::NAN),
        Value::Double(f64::NEG_INFINITY),
        Value::Double(f64::MIN),
        Value::Double(-1e39),
        samples::decimal(-(10_i128.pow(38) - 1), 0),
        Value::Int(i64::MIN),
        Value::Int(-1),
        Value::Double(-0.75),
        samples::decimal(-7, 1),
        Value::Uint(0),
        samples::decimal(7, 1),
        Value::Double(0.75),
        Value::Uint(1),
        Value::Uint(u64::MAX),
        Value::Double(18_446_744_073_709_551_616.0),
        Value::Double(1e39),
        Value::Double(f64::MAX),
        Value::Double(f64::INFINITY),
    ];
    let hints = ascending.map(|value| hint(value, 0));
    assert!(hints.is_sorted_by(|a, b| a < b), "{hints:x?}");
}

#[test]
fn fields_in_any_order_and_missing_ones() {
    let definition = KeyDef::new(vec![
        nullable(KeyPart::new(2, FieldType::Unsigned)),
        KeyPart::new(0, FieldType::String),
        nullable(KeyPart::new(1, FieldType::Integer)),
    ]);
    let full = tuple(["a".into(), 5.into(), 7.into()]);
    let short = tuple(["a".into()]);
    assert_eq!(definition.compare(&short, &full), Ordering::Less);
    assert!(definition.has_nil(&short) && !definition.has_nil(&full));
    assert!(definition.has_nil(&tuple(["a".into(), Value::Nil, 7.into()])));
    let mut extracted = Vec::new();
    definition.extract(&short, &mut extracted);
    assert_eq!(extracted, [0xc0, 0xa1, b'a', 0xc0]);
    extracted.clear();
    definition.extract(&full, &mut extracted);
    assert_eq!(extracted, [0x07, 0xa1, b'a', 0x05]);
}

#[test]
fn parts_inside_of_fields() {
    let inside = |path: &str| KeyPart {
        path: Some(Path::parse(path).unwrap()),
        ..nullable(KeyPart::new(1, FieldType::Unsigned))
    };
    let definition = KeyDef::new(vec![inside("b"), inside("a[2]")]);
    let document =
        |a: u64, b: u64| tuple([1.into(), Value::map([("a", Value::array([0, a])), ("b", b.into())])]);
    assert_eq!(definition.compare(&document(1, 2), &document(2, 1)), Ordering::Greater);
    assert_eq!(definition.compare(&document(1, 2), &document(2, 2)), Ordering::Less);
    assert_eq!(definition.compare_with_key(&document(1, 2), &[2, 1], 2), Ordering::Equal);
    assert!(definition.hint(&document(1, 2)) < definition.hint(&document(2, 2)));
    assert!(definition.has_nil(&tuple([1.into(), Value::map([("b", 1)])])));
    assert!(!definition.has_nil(&document(1, 2)));
}

#[test]
fn the_primary_key_breaks_ties_once() {
    let primary = KeyDef::new(vec![KeyPart::new(0, FieldType::Unsigned), KeyPart::new(3, FieldType::String)]);
    let own = KeyDef::new(vec![KeyPart::new(1, FieldType::String), KeyPart::new(0, FieldType::Unsigned)]);
    let extended = own.extended_by(&primary);
    let fields: Vec<u32> = extended.parts().iter().map(|part| part.field).collect();
    assert_eq!(fields, [1, 0, 3]);
    let in_path = KeyPart { path: Path::parse("x").ok(), ..KeyPart::new(0, FieldType::Unsigned) };
    assert_eq!(KeyDef::new(vec![in_path]).extended_by(&primary).part_count(), 3);
}

#[test]
fn key_errors_have_their_texts() {
    let definition =
        KeyDef::new(vec![KeyPart::new(0, FieldType::Unsigned), nullable(KeyPart::new(1, FieldType::String))]);
    let refused = |parts: &[Value]| {
        definition.check_key(&key(parts), parts.len() as u32).map_err(|error| error.to_string())
    };
    let part = |number: u32, expected: &str| {
        Err(format!("Supplied key type of part {number} does not match index part type: expected {expected}"))
    };
    assert_eq!(refused(&[]), Ok(()));
    assert_eq!(refused(&[1.into(), Value::Nil]), Ok(()));
    assert_eq!(refused(&[Value::Nil]), part(0, "unsigned"));
    assert_eq!(refused(&[50.0.into()]), part(0, "unsigned"));
    assert_eq!(refused(&[(-1).into()]), part(0, "unsigned"));
    assert_eq!(refused(&[1.into(), Value::bin("x")]), part(1, "string"));
    let three = [1.into(), "a".into(), 2.into()];
    assert_eq!(refused(&three), Err("Invalid key part count (expected [0..2], got 3)".to_owned()));
    assert_eq!(
        definition.check_whole_key(&key(&three[..1]), 1).map_err(|error| error.to_string()),
        Err("Invalid key part count in an exact match (expected 2, got 1)".to_owned())
    );
    assert_eq!(definition.check_key(&[0x01], 2), Err(KeyError::Malformed(MpError::Truncated)));
}
