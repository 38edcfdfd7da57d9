//! Random values for property tests, and the plain model of their order.
//!
//! The model writes every number as its full decimal expansion and compares the digits, so that it shares nothing with
//! the comparison under test.

use std::cmp::Ordering;

use proptest::prelude::*;

use crate::field::FieldType;
use crate::mp;
use crate::value::Value;

/// A decimal's extension bytes: scale, BCD digits, sign.
pub(crate) fn decimal(coefficient: i128, scale: u8) -> Value {
    let mut digits = coefficient.unsigned_abs().to_string();
    if digits.len().is_multiple_of(2) {
        digits.insert(0, '0');
    }
    digits.push(if coefficient < 0 { 'd' } else { 'c' });
    let nibbles: Vec<u8> = digits.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
    let mut bytes = vec![scale];
    bytes.extend(nibbles.chunks(2).map(|pair| pair[0] << 4 | pair[1]));
    Value::Ext(mp::EXT_DECIMAL, bytes)
}

/// Integers of all sizes, small ones and those around limits more often.
pub(crate) fn integers() -> impl Strategy<Value = i128> {
    prop_oneof![
        4 => -3_i128..4,
        2 => any::<i64>().prop_map(i128::from),
        2 => any::<u64>().prop_map(i128::from),
        2 => (0_u32..65, -2_i128..3).prop_map(|(bits, off)| ((1_i128 << bits) + off).min(u64::MAX.into())),
        2 => (0_u32..64, -2_i128..3).prop_map(|(bits, off)| (-(1_i128 << bits) + off).max(i64::MIN.into())),
    ]
}

pub(crate) fn unsigned() -> impl Strategy<Value = u64> {
    integers().prop_map(|value| u64::try_from(value).unwrap_or_else(|_| value.unsigned_abs() as u64))
}

pub(crate) fn doubles() -> impl Strategy<Value = f64> {
    prop_oneof![
        2 => (-16_i32..17).prop_map(|eighths| f64::from(eighths) / 8.0),
        2 => integers().prop_map(|value| value as f64),
        1 => any::<u64>().prop_map(f64::from_bits),
        1 => prop::sample::select(vec![
            0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, 5e-324, -5e-324, 0.1, 1e17, 1e38,
        ]),
    ]
}

pub(crate) fn decimals() -> impl Strategy<Value = Value> {
    let coefficients =
        prop_oneof![-3_i128..4, -2000_i128..2000, integers(), -(10_i128.pow(38) - 1)..10_i128.pow(38)];
    (coefficients, 0_u8..39).prop_map(|(coefficient, scale)| decimal(coefficient, scale))
}

pub(crate) fn strings() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, b'a', b'b', 0xff]), 0..4),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

pub(crate) fn integer_value(value: i128) -> Value {
    u64::try_from(value).map_or_else(|_| Value::Int(value as i64), Value::Uint)
}

/// Anything that a number field takes.
pub(crate) fn numbers() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => integers().prop_map(integer_value),
        2 => doubles().prop_map(Value::Double),
        1 => doubles().prop_map(|value| Value::Float(value as f32)),
        2 => decimals(),
    ]
}

/// Anything that a scalar field takes.
pub(crate) fn scalars() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => any::<bool>().prop_map(Value::Bool),
        3 => numbers(),
        2 => strings().prop_map(Value::Str),
        1 => strings().prop_map(Value::Bin),
    ]
}

pub(crate) fn uuids() -> impl Strategy<Value = Value> {
    prop_oneof![Just([0_u8; 16]), Just([0xff; 16]), any::<[u8; 16]>()]
        .prop_map(|bytes| Value::Ext(mp::EXT_UUID, bytes.to_vec()))
}

/// Anything that a field of type `ty`, in a key, takes.
pub(crate) fn of_type(ty: FieldType) -> BoxedStrategy<Value> {
    match ty {
        FieldType::Unsigned => unsigned().prop_map(Value::Uint).boxed(),
        FieldType::Integer => integers().prop_map(integer_value).boxed(),
        FieldType::Number => numbers().boxed(),
        FieldType::Double => doubles().prop_map(Value::Double).boxed(),
        FieldType::Decimal => decimals().boxed(),
        FieldType::Boolean => any::<bool>().prop_map(Value::Bool).boxed(),
        FieldType::String => strings().prop_map(Value::Str).boxed(),
        FieldType::Varbinary => strings().prop_map(Value::Bin).boxed(),
        FieldType::Scalar => scalars().boxed(),
        FieldType::Uuid => uuids().boxed(),
        FieldType::Any | FieldType::Array | FieldType::Map => values().boxed(),
    }
}

/// Any value, a few levels deep.
pub(crate) fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        1 => Just(Value::Nil),
        6 => scalars(),
        1 => uuids(),
        1 => (any::<i8>(), prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(kind, bytes)| Value::Ext(kind, bytes)),
    ];
    leaf.prop_recursive(3, 20, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..18).prop_map(Value::Array),
            prop::collection::vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
        ]
    })
}

/// The value's bytes; integers in a form that `wide` selects instead of the shortest.
pub(crate) fn encode_widely(value: &Value, wide: u8) -> Vec<u8> {
    let mut out = Vec::new();
    match (value, wide % 3) {
        (Value::Uint(value), 1) => mp::write_u64_wide(&mut out, *value),
        (Value::Uint(value), 2) if *value < 128 => out.extend([0xd0, *value as u8]),
        (Value::Int(value), 1) => {
            out.push(0xd3);
            out.extend(value.to_be_bytes());
        }
        _ => value.write(&mut out),
    }
    out
}

/// The order of two values by the model.
pub(crate) fn model_compare(a: &Value, b: &Value) -> Ordering {
    model_key(a).cmp(&model_key(b))
}

/// Something whose derived order is that of the values: class, and bytes or signed digits.
fn model_key(value: &Value) -> (u8, i8, Vec<u8>) {
    match value {
        Value::Nil => (0, 0, vec![]),
        Value::Bool(value) => (1, i8::from(*value), vec![]),
        Value::Uint(value) => model_number(&value.to_string()),
        Value::Int(value) => model_number(&value.to_string()),
        Value::Float(value) => model_double(f64::from(*value)),
        Value::Double(value) => model_double(*value),
        Value::Ext(mp::EXT_DECIMAL, bytes) => {
            let mut digits: String = bytes[1..].iter().map(|byte| format!("{byte:02x}")).collect();
            let sign = if digits.pop() == Some('d') { "-" } else { "" };
            let scale = usize::from(bytes[0]);
            let digits = format!("{digits:0>width$}", width = scale + 1);
            let (whole, fraction) = digits.split_at(digits.len() - scale);
            model_number(&format!("{sign}{whole}.{fraction}"))
        }
        Value::Str(bytes) => (3, 0, bytes.clone()),
        Value::Bin(bytes) => (4, 0, bytes.clone()),
        Value::Ext(mp::EXT_UUID, bytes) => (5, 0, bytes.clone()),
        other => panic!("the model does not order {other}"),
    }
}

fn model_double(value: f64) -> (u8, i8, Vec<u8>) {
    if value.is_nan() {
        (2, -3, vec![])
    } else if value.is_infinite() {
        (2, if value > 0.0 { 2 } else { -2 }, vec![])
    } else {
        model_number(&format!("{value:.1080}"))
    }
}

fn model_number(text: &str) -> (u8, i8, Vec<u8>) {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    let mut digits = format!("{whole:0>320}{}", fraction.trim_end_matches('0')).into_bytes();
    if digits.iter().all(|&digit| digit == b'0') {
        return (2, 0, vec![]);
    }
    if negative {
        // Complemented digits, and an end above every digit: a longer fraction is a lesser number.
        digits.iter_mut().for_each(|digit| *digit = b'9' - *digit);
        digits.push(b'~');
    }
    (2, if negative { -1 } else { 1 }, digits)
}
