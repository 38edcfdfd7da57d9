//! Calls that are made once.

use lycosa_instance::{Called, Caller, Once, Settings};
use lycosa_iproto::error::ErrorObject;
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;

use crate::rig::{Rig, options, values};

const WINDOW: u64 = 60_000_000;

fn rig() -> Rig {
    let mut rig = Rig::with(Settings::default());
    rig.create_tube("mail", "limfifottl");
    rig
}

fn put(rig: &mut Rig, key: &str, payload: &str) -> Result<Value, ErrorObject> {
    let once =
        Once { key: key.to_owned(), fingerprint: Once::fingerprint(&[payload.as_bytes()]), window: WINDOW };
    let mut out = Vec::new();
    let args = values![payload].encode();
    let called =
        rig.instance.call_once(&Caller::internal(), &once, b"queue.tube.mail:put", &args, &mut out)?;
    assert_eq!(called, Called::Done { count: 1 });
    Ok(Value::read(&mut Reader::new(&out)).expect("a value"))
}

fn id(task: &Value) -> Option<u64> {
    task.as_array()?.first()?.as_u64()
}

fn rows(rig: &Rig) -> u64 {
    rig.instance.store().space_by_name("_lycosa_once").map_or(0, lycosa_store::Space::len)
}

#[test]
fn a_repetition_has_the_first_answer_and_puts_nothing() {
    let mut rig = rig();
    assert_eq!(put(&mut rig, "a", "x").map(|task| id(&task)), Ok(Some(0)));
    let again = put(&mut rig, "a", "x").expect("the first answer");
    assert_eq!((id(&again), &again.as_array().expect("a task")[2]), (Some(0), &Value::Nil));
    assert_eq!(put(&mut rig, "b", "x").map(|task| id(&task)), Ok(Some(1)));
    let other = put(&mut rig, "a", "y").expect_err("another request");
    assert!(other.fields.iter().any(|(name, kind)| name == "name" && kind == "OTHER_REQUEST"), "{other:?}");
    // When the window is over the key is free.
    let now = rig.now + WINDOW;
    rig.instance.set_now(now - 1);
    assert_eq!(put(&mut rig, "a", "x").map(|task| id(&task)), Ok(Some(0)));
    rig.instance.set_now(now);
    assert_eq!(put(&mut rig, "a", "y").map(|task| id(&task)), Ok(Some(2)));
}

#[test]
fn expired_keys_make_way() {
    let mut rig = rig();
    for key in 0..20 {
        put(&mut rig, &format!("old {key}"), "x").expect("a task");
    }
    assert_eq!(rows(&rig), 20);
    let now = rig.now + WINDOW;
    rig.instance.set_now(now);
    for key in 0..6 {
        put(&mut rig, &format!("new {key}"), "x").expect("a task");
    }
    assert_eq!(rows(&rig), 6);
}

#[test]
fn a_refused_put_keeps_no_key_and_changes_nothing() {
    let mut rig = rig();
    let create = values!["small", "limfifottl", options! {capacity: 1u64}].encode();
    rig.instance.call(&Caller::internal(), b"queue.create_tube", &create, &mut Vec::new()).expect("a tube");
    let once = |key: &str| Once { key: key.to_owned(), fingerprint: String::new(), window: WINDOW };
    let mut call = |key: &str, tube: &str, args: &Value| {
        let mut out = Vec::new();
        let (caller, name) = (Caller::internal(), format!("queue.tube.{tube}:put"));
        let done = rig.instance.call_once(&caller, &once(key), name.as_bytes(), &args.encode(), &mut out);
        (done, out)
    };
    assert!(call("a", "small", &values!["x"]).0.is_ok());
    // Full: null, which is no answer to keep.
    assert_eq!(call("b", "small", &values!["x"]).1, [0xc0]);
    assert!(call("c", "mail", &values!["x", options! {pri: "high"}]).0.is_err());
    assert_eq!(rows(&rig), 1);
    assert!(!rig.instance.in_transaction());
    let missing = rig.instance.call_once(
        &Caller::internal(),
        &once("d"),
        b"queue.tube.none:put",
        &values!["x"].encode(),
        &mut Vec::new(),
    );
    assert!(missing.is_err() && !rig.instance.in_transaction());
}
