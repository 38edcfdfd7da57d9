//! The arguments of takes that can be made again.
//!
//! The answer to a `take` may be lost with a connection. The options `request` (a name of 16 bytes) and `again` let the same session
//! make the take again: it gets the tasks of the lost answer, or waits in place of the lost call. The value of `again` grows with
//! each repetition, so that an older one that arrives later is known for what it is.

use std::time::Duration;

use lycosa_tuple::value::Value;

/// The option with the name, and the one of a repetition.
const REQUEST: &str = "request";
const AGAIN: &str = "again";

/// The position of the timeout among the arguments of a procedure that takes tasks, `queue.tube.NAME:take` or `:take_many`. The
/// options follow it.
pub fn timeout_at(procedure: &[u8]) -> Option<usize> {
    let method = procedure.strip_prefix(b"queue.tube.")?;
    let colon = method.iter().rposition(|byte| *byte == b':')?;
    match &method[colon + 1..] {
        b"take" => Some(0),
        b"take_many" => Some(1),
        _ => None,
    }
}

/// The arguments of a take with a name, unless they have one. `None`: the take is for a lease, which has an end of its own, or
/// the arguments are malformed.
pub fn first(arguments: &[u8], timeout_at: usize, name: &[u8; 16]) -> Option<Vec<u8>> {
    let name = Value::Bin(name.to_vec());
    changed(arguments, timeout_at, |options| {
        if !options.iter().any(|(option, _)| option.as_str() == Some(REQUEST)) {
            options.push((REQUEST.into(), name));
        }
    })
}

/// What `again` says of a call that a member of a group repeats for its client. Repetitions of the client itself count from
/// [`CLIENT_STEP`] on in steps of it, so that each is newer than what members make of the one before.
pub const MEMBER_ATTEMPT: u64 = 1;
/// See [`MEMBER_ATTEMPT`].
pub const CLIENT_STEP: u64 = 2;

/// The arguments with which a take that has a name is made again after `elapsed`. A greater `again` that it has stays.
pub fn again(arguments: &[u8], timeout_at: usize, elapsed: Duration, attempt: u64) -> Option<Vec<u8>> {
    let arguments = changed(arguments, timeout_at, |options| {
        let is_again = |(option, _): &(Value, Value)| option.as_str() == Some(AGAIN);
        let made = options.iter().find(|option| is_again(option)).and_then(|(_, made)| made.as_u64());
        options.retain(|option| !is_again(option));
        options.push((AGAIN.into(), attempt.max(made.unwrap_or(0)).into()));
    })?;
    shortened(&arguments, timeout_at, elapsed)
}

/// The arguments of a take whose timeout has run for `elapsed`. A missing timeout stays missing. `None`: the
/// arguments are malformed.
pub fn shortened(arguments: &[u8], timeout_at: usize, elapsed: Duration) -> Option<Vec<u8>> {
    let Ok(Value::Array(mut values)) = Value::decode(arguments) else { return None };
    if let Some(timeout) = values.get_mut(timeout_at) {
        let seconds = match &*timeout {
            Value::Double(seconds) => Some(*seconds),
            Value::Float(seconds) => Some(f64::from(*seconds)),
            number => number.as_u64().map(|seconds| seconds as f64),
        };
        if let Some(seconds) = seconds {
            *timeout = Value::Double((seconds - elapsed.as_secs_f64()).max(0.0));
        }
    }
    Some(Value::Array(values).encode())
}

fn changed(
    arguments: &[u8],
    timeout_at: usize,
    change: impl FnOnce(&mut Vec<(Value, Value)>),
) -> Option<Vec<u8>> {
    let Ok(Value::Array(mut values)) = Value::decode(arguments) else { return None };
    let at = timeout_at + 1;
    while values.len() <= at {
        values.push(Value::Nil);
    }
    let mut options = match std::mem::replace(&mut values[at], Value::Nil) {
        Value::Nil => Vec::new(),
        Value::Map(options) => options,
        _ => return None,
    };
    if options.iter().any(|(option, _)| option.as_str() == Some("lease")) {
        return None;
    }
    change(&mut options);
    values[at] = Value::Map(options);
    Some(Value::Array(values).encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: [u8; 16] = *b"the name of this";

    fn decoded(bytes: Option<Vec<u8>>) -> Option<Value> {
        bytes.map(|bytes| Value::decode(&bytes).expect("a value"))
    }

    fn options(more: &[(&str, Value)]) -> Value {
        let named = std::iter::once(("request", Value::Bin(NAME.to_vec())));
        Value::map(more.iter().cloned().chain(named).collect::<Vec<_>>())
    }

    #[test]
    fn takes_get_a_name_and_keep_it() {
        assert_eq!(timeout_at(b"queue.tube.a:b:take"), Some(0));
        assert_eq!(timeout_at(b"queue.tube.a:take_many"), Some(1));
        assert_eq!((timeout_at(b"queue.tube.a:ack"), timeout_at(b"queue.statistics")), (None, None));
        let extended = Value::map([("extended", true)]);
        for (arguments, at, named) in [
            (Value::Array(vec![]), 0, Value::array([Value::Nil, options(&[])])),
            (Value::array([5_u64]), 0, Value::array([Value::from(5_u64), options(&[])])),
            (
                Value::array([Value::from(7_u64), Value::Double(0.5), extended]),
                1,
                Value::array([Value::from(7_u64), Value::Double(0.5), options(&[("extended", true.into())])]),
            ),
        ] {
            let first = first(&arguments.encode(), at, &NAME);
            assert_eq!(decoded(first.clone()), Some(named));
            let named = first.expect("arguments");
            assert_eq!(super::first(&named, at, &[0; 16]), Some(named), "a name is kept");
        }
        let lease = Value::array([Value::from(5_u64), Value::map([("lease", 60_u64)])]);
        assert_eq!(first(&lease.encode(), 0, &NAME), None);
        assert_eq!(first(&Value::array([Value::from(5_u64), Value::from("x")]).encode(), 0, &NAME), None);
    }

    #[test]
    fn a_repeated_take_waits_for_the_rest_of_its_time() {
        let named = first(&Value::array([5_u64]).encode(), 0, &NAME).expect("arguments");
        let mut repeated = named;
        for (elapsed, left, attempt, said) in [(2, 3.0, 1, 1_u64), (1, 2.0, 4, 4), (9, 0.0, 1, 4)] {
            repeated = again(&repeated, 0, Duration::from_secs(elapsed), attempt).expect("arguments");
            let values = Value::decode(&repeated).expect("a value");
            let values = values.as_array().expect("an array");
            assert_eq!(values[0], Value::Double(left));
            assert_eq!(values[1].get("again"), Some(&Value::from(said)));
            assert_eq!(values[1].get("request"), Some(&Value::Bin(NAME.to_vec())));
        }
        let leased = Value::array([Value::from(9_u64), Value::from(5_u64), Value::map([("lease", 60_u64)])]);
        let later = shortened(&leased.encode(), 1, Duration::from_secs(2));
        let wanted = Value::array([Value::from(9_u64), Value::Double(3.0), Value::map([("lease", 60_u64)])]);
        assert_eq!(decoded(later), Some(wanted));
        let endless = first(&Value::Array(vec![]).encode(), 0, &NAME).expect("arguments");
        let endless = decoded(again(&endless, 0, Duration::from_secs(2), 1)).expect("arguments");
        assert_eq!(endless.as_array().map(|values| &values[0]), Some(&Value::Nil));
    }
}
