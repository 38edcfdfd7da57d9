//! CALL_16: replies in the form of Tarantool 1.6, in which each value is a tuple.

use lycosa_tuple::mp::{self, Kind, Reader};

/// Turns the `count` values at the end of `out` (from `from` on) into the form of CALL_16, where each value is a tuple;
/// returns how many there are then.
///
/// An array is a tuple as it stands; a value that is none becomes an array of itself; a single array that holds only
/// arrays is taken for a list of tuples.
pub(crate) fn to_call_16(out: &mut Vec<u8>, from: usize, count: u32) -> u32 {
    let values = out.split_off(from);
    let mut reader = Reader::new(&values);
    if count == 1
        && let Some(inner) = list_of_arrays(&values)
    {
        let (count, tuples) = inner;
        out.extend_from_slice(tuples);
        return count;
    }
    for _ in 0..count {
        let is_array = reader.kind() == Ok(Kind::Array);
        let value = reader.raw().unwrap_or_default();
        if !is_array {
            mp::write_array(out, 1);
        }
        out.extend_from_slice(value);
    }
    count
}

fn list_of_arrays(value: &[u8]) -> Option<(u32, &[u8])> {
    let mut reader = Reader::new(value);
    let count = reader.array().ok().filter(|&count| count > 0)?;
    let items = reader.rest();
    for _ in 0..count {
        if reader.kind() != Ok(Kind::Array) {
            return None;
        }
        reader.skip().ok()?;
    }
    Some((count, items))
}

#[cfg(test)]
mod tests {
    use std::slice;

    use lycosa_tuple::value::Value;

    use super::*;

    fn shape(values: &[Value]) -> Vec<Value> {
        let mut out = Vec::new();
        values.iter().for_each(|value| value.write(&mut out));
        let count = to_call_16(&mut out, 0, values.len() as u32);
        let mut reader = Reader::new(&out);
        (0..count).map(|_| Value::read(&mut reader).unwrap()).collect()
    }

    #[test]
    fn values_become_tuples() {
        let one = Value::from(1u64);
        let array = |items: &[Value]| Value::Array(items.to_vec());
        assert_eq!(shape(&[]), []);
        assert_eq!(shape(&[Value::Nil]), [array(&[Value::Nil])]);
        assert_eq!(
            shape(&[one.clone(), Value::from("x")]),
            [array(slice::from_ref(&one)), array(&[Value::from("x")])]
        );
        assert_eq!(shape(&[array(slice::from_ref(&one))]), [array(slice::from_ref(&one))]);
        assert_eq!(shape(&[array(&[])]), [array(&[])]);
        let tuples = [array(slice::from_ref(&one)), array(&[])];
        assert_eq!(shape(&[array(&tuples)]), tuples);
        assert_eq!(shape(&tuples), tuples);
    }
}
