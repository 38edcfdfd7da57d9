//! CALL and CALL_16: names, shapes, and the cache of resolved names.

use lycosa_instance::Handled;
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::frame::{DEFAULT_LIMIT, Split, split};
use lycosa_iproto::keys::RequestType;
use lycosa_iproto::request::{self, Body};
use lycosa_tuple::value::Value;

use crate::rig::{Client, Rig, options, refused, task, values};

fn call_16(rig: &mut Rig, client: &mut Client, name: &str, args: &Value) -> Vec<Value> {
    let body = Body::Call16 { name: name.as_bytes(), args: &args.encode() };
    rig.ask(client, &body).expect("values")
}

#[test]
fn unknown_names() {
    let mut rig = Rig::new();
    let (mut admin, mut guest) = (rig.admin(), rig.guest());
    for name in ["nothing", "queue.nothing", "queue.tube.none:take", "box.nothing", "box.info.none", ""] {
        let expected = (ErrorCode::NoSuchProc, format!("Procedure '{name}' is not defined"));
        assert_eq!(refused(rig.call(&mut admin, name, &values![])), expected);
    }
    assert_eq!(refused(rig.call(&mut guest, "queue.nothing", &values![])).0, ErrorCode::NoSuchProc);
    let denied = "Execute access to function 'nothing' is denied for user 'guest'";
    let refusal = refused(rig.call(&mut guest, "nothing", &values![]));
    assert_eq!(refusal, (ErrorCode::AccessDenied, denied.to_owned()));
    let args = values![].encode();
    let invalid = rig.ask(&mut admin, &Body::Call { name: b"\xff.x", args: &args });
    assert_eq!(refused(invalid).0, ErrorCode::NoSuchProc);
}

/// A frame has 16 MiB of a name: it is refused without a look at what stands in it, and not shown as a whole.
#[test]
fn a_name_longer_than_any_function_s_is_refused_by_its_length() {
    let mut rig = Rig::new();
    let mut guest = rig.guest();
    let args = values![].encode();
    for (begin, repeated) in [("", "x"), ("queue.", "a."), ("queue.tube.", ":"), ("box.", "é"), ("", "a:")] {
        let longest = format!("{begin}{}", repeated.repeat(65_001)).into_bytes();
        let name = &longest[..65_000];
        let refusal = refused(rig.ask(&mut guest, &Body::Call { name, args: &args }));
        assert!(refusal.1.contains(&String::from_utf8_lossy(name)[..100]), "{begin:?}");
        let name = &longest[..65_001];
        for body in [Body::Call { name, args: &args }, Body::Call16 { name, args: &args }] {
            let (code, text) = refused(rig.ask(&mut guest, &body));
            assert_eq!(code, ErrorCode::NoSuchProc);
            assert!(text.ends_with("its name has 65001 bytes, and a name has at most 65000"), "{text}");
            assert!(text.len() < 400, "{} bytes", text.len());
        }
    }
}

#[test]
fn a_name_that_is_a_slip_of_the_pen_comes_with_the_one_that_was_meant() {
    let mut rig = Rig::new();
    rig.create_tube("mail", "fifo");
    let mut client = rig.guest();
    for (name, text) in [
        (
            "queue.tube.mail:putt",
            "Procedure 'queue.tube.mail:putt' is not defined (did you mean 'queue.tube.mail:put'?)",
        ),
        (
            "queue.tube.mail.put",
            "queue.tube.mail.put: a colon stands before the method of a tube (did you mean 'queue.tube.mail:put'?)",
        ),
        (
            "queue.tube.none.put",
            "Procedure 'queue.tube.none.put' is not defined (did you mean 'queue.tube.none:put'?)",
        ),
    ] {
        let refusal = refused(rig.call(&mut client, name, &values!["x"]));
        assert_eq!(refusal, (ErrorCode::NoSuchProc, text.to_owned()), "{name}");
    }
    // A program that runs here is asked for names with dots; its own error keeps code and text, and gets the advice.
    rig.instance.set_lua(true);
    let refusal = refused(rig.call(&mut client, "queue.tube.mail.put", &values!["x"]));
    assert_eq!(refusal.0, ErrorCode::ProcLua);
    assert!(refusal.1.contains("did you mean 'queue.tube.mail:put'?"), "{}", refusal.1);
}

#[test]
fn wrong_arguments_keep_their_codes() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifottl");
    let mut client = rig.guest();
    for (method, arguments, code, text) in [
        ("put", values![], ErrorCode::FieldMissing, "put: argument #1, the payload, is missing: "),
        (
            "put",
            values![1, options! { pri: "high" }],
            ErrorCode::FieldType,
            "put: option pri is \"high\", not a whole number, 0 or more: ",
        ),
        (
            "take",
            values!["now"],
            ErrorCode::ProcLua,
            "take: argument #1, the timeout, is \"now\", not a number of seconds: ",
        ),
        (
            "put",
            values![1, options! { dealy: 5 }],
            ErrorCode::ProcLua,
            "put: option \"dealy\" does not exist (did you mean \"delay\"?)",
        ),
    ] {
        let refusal = refused(rig.call(&mut client, &format!("queue.tube.t:{method}"), &arguments));
        assert_eq!(refusal.0, code, "{}", refusal.1);
        assert!(refusal.1.starts_with(text), "{}", refusal.1);
    }
}

#[test]
fn values_of_a_call_of_old_are_tuples() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifo");
    let mut client = rig.guest();
    let client = &mut client;
    assert_eq!(call_16(&mut rig, client, "queue.tube.t:put", &values!["a"]), task(0, "r", "a"));
    assert_eq!(call_16(&mut rig, client, "queue.tube.t:take", &values![0]), task(0, "t", "a"));
    assert_eq!(call_16(&mut rig, client, "queue.tube.t:take", &values![0]), []);
    assert_eq!(call_16(&mut rig, client, "queue.tube", &values!["t"]), [values![true]]);
    assert_eq!(call_16(&mut rig, client, "queue.tube", &values![]), [values!["t"]]);
    assert_eq!(call_16(&mut rig, client, "box.session.user", &values![]), [values!["guest"]]);
    let info = call_16(&mut rig, client, "box.info", &values![]);
    assert!(matches!(&info[..], [Value::Array(items)] if matches!(items[..], [Value::Map(_)])));

    let mut admin = rig.admin();
    let listed = call_16(&mut rig, &mut admin, "box.schema.user.info", &values!["guest"]);
    assert_eq!(listed.len(), 2, "a list of arrays is a list of tuples: {listed:?}");
}

#[test]
fn a_woken_call_of_old_answers_tuples_too() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifo");
    let (mut worker, mut producer) = (rig.guest(), rig.guest());
    let args = values![].encode();
    rig.send(&mut worker, &Body::Call16 { name: b"queue.tube.t:take", args: &args });
    let nested = values![values![values![1], values![2]]];
    rig.call(&mut producer, "queue.tube.t:put", &nested).expect("a task");
    let expected = values![0, "t", values![values![1], values![2]]];
    assert_eq!(rig.replies(&worker)[0].answer, Ok(vec![expected]));
}

#[test]
fn a_name_is_resolved_again_when_its_tube_was_dropped() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifo");
    let (mut client, mut admin) = (rig.guest(), rig.admin());
    let put = "queue.tube.t:put";
    assert_eq!(rig.call(&mut client, put, &values!["a"]), Ok(task(0, "r", "a")));
    rig.call(&mut admin, "queue.tube.t:drop", &values![]).expect("a drop");
    assert_eq!(refused(rig.call(&mut client, put, &values!["b"])).0, ErrorCode::NoSuchProc);
    rig.create_tube("t", "fifottl");
    assert_eq!(rig.call(&mut client, put, &values!["c", options! { delay: 5 }]), Ok(task(0, "~", "c")));
}

#[test]
fn a_name_is_resolved_again_when_its_tube_has_gone_without_a_change_of_the_schema() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifo");
    let (mut client, mut admin) = (rig.guest(), rig.admin());
    let put = "queue.tube.t:put";
    assert_eq!(rig.call(&mut client, put, &values!["a"]), Ok(task(0, "r", "a")));
    let queue = rig.instance.store().space_by_name("_queue").expect("the list of tubes").id();
    let rows = rig.select(&mut admin, queue, 0, &values!["t"]).expect("the tube's row");
    let key = values!["t"].encode();
    rig.ask(&mut admin, &Body::Delete { space: queue, index: 0, key: &key }).expect("a delete");
    restart_queue(&mut rig);
    assert_eq!(refused(rig.call(&mut client, put, &values!["b"])).0, ErrorCode::NoSuchProc);
    rig.insert(&mut admin, queue, &rows[0]).expect("the row comes back");
    restart_queue(&mut rig);
    assert_eq!(rig.call(&mut client, put, &values!["c"]), Ok(task(1, "r", "c")));
}

/// Lets the queue read its list of tubes again.
fn restart_queue(rig: &mut Rig) {
    for read_only in [true, false] {
        rig.instance.set_read_only(read_only, rig.now);
    }
    rig.sync_journal();
}

#[test]
fn more_names_than_are_remembered() {
    let mut rig = Rig::new();
    let mut client = rig.guest();
    for number in 0..40 {
        rig.create_tube(&format!("t{number}"), "fifo");
    }
    for round in 0..3 {
        for number in 0..40 {
            let name = format!("queue.tube.t{number}:put");
            assert_eq!(rig.call(&mut client, &name, &values!["a"]), Ok(task(round, "r", "a")));
        }
    }
}

#[test]
fn a_grant_and_its_end_count_at_once() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifo");
    rig.create_user("ann", "secret");
    let (mut ann, mut admin) = (rig.login("ann", "secret"), rig.admin());
    let put = "queue.tube.t:put";
    let denied = "Execute access to function 'queue.tube.t:put' is denied for user 'ann'";
    assert_eq!(refused(rig.call(&mut ann, put, &values!["a"])).1, denied);
    let granted = rig.call(&mut admin, "queue.tube.t:grant", &values!["ann", options! { call: true }]);
    assert_eq!(granted, Ok(vec![]));
    assert_eq!(rig.call(&mut ann, put, &values!["a"]), Ok(task(0, "r", "a")));
    let revoked = rig.call(&mut admin, "box.schema.user.revoke", &values!["ann", "execute", "function", put]);
    assert_eq!(revoked, Ok(vec![]));
    assert_eq!(refused(rig.call(&mut ann, put, &values!["b"])).1, denied);
}

#[test]
fn names_are_forgotten_when_the_user_changes() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifo");
    rig.create_user("ann", "secret");
    let mut client = rig.guest();
    let put = "queue.tube.t:put";
    assert_eq!(rig.call(&mut client, put, &values!["a"]), Ok(task(0, "r", "a")));
    rig.auth(&mut client, "ann", "secret").expect("the password is right");
    let refusal = refused(rig.call(&mut client, put, &values!["b"]));
    let denied = "Execute access to function 'queue.tube.t:put' is denied for user 'ann'";
    assert_eq!(refusal, (ErrorCode::AccessDenied, denied.to_owned()));
}

#[test]
fn a_tube_itself_cannot_be_called() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifo");
    let mut client = rig.guest();
    let refusal = refused(rig.call(&mut client, "queue.tube.t", &values![]));
    assert_eq!(refusal, (ErrorCode::ProcLua, "attempt to call a table value".to_owned()));
}

#[test]
fn a_call_that_fails_leaves_nothing_behind() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifo");
    let mut client = rig.guest();
    let refusal = refused(rig.call(&mut client, "queue.tube.t:ack", &values![7]));
    assert_eq!(refusal, (ErrorCode::ProcLua, "Task was not taken".to_owned()));
    assert_eq!(rig.instance.pending_bytes(client.slot), 0);
    assert_eq!(rig.call(&mut client, "queue.tube.t:put", &values!["a"]), Ok(task(0, "r", "a")));
}

/// The frame of a CALL, without its length.
fn frame(name: &str, args: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    request::encode(&mut bytes, 1, &Body::Call { name: name.as_bytes(), args: &args.encode() });
    match split(&bytes, DEFAULT_LIMIT) {
        Ok(Split::Frame { content, .. }) => content.to_vec(),
        other => panic!("no frame: {other:?}"),
    }
}

#[test]
fn a_large_batch_is_deferred_untouched_and_done_when_it_comes_again() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifo");
    let admin = rig.admin();
    let numbers = |count: u64| Value::Array((0..count).map(Value::from).collect());
    let put = |count| frame("queue.tube.t:put_many", &values![numbers(count)]);
    let calls = |rig: &Rig| rig.instance.status().requests.of(RequestType::Call);
    let before = calls(&rig);
    let short = |rig: &mut Rig, frame: &[u8]| rig.instance.handle_short_frame(admin.slot, frame, rig.now);
    for (name, args) in [
        ("queue.tube.t:put_many", values![numbers(128)]),
        ("queue.tube.t:take_many", values![128, 0]),
        ("queue.tube.t:delete_many", values![numbers(10_000)]),
    ] {
        assert_eq!(short(&mut rig, &frame(name, &args)).unwrap(), Handled::Deferred, "{name}");
    }
    assert_eq!(calls(&rig), before, "what is deferred is not counted");
    assert_eq!(rig.replies(&admin), []);
    // Small batches, and calls that are refused, are not.
    for (name, args) in [
        ("queue.tube.t:put_many", values![numbers(127)]),
        ("queue.tube.t:take_many", values!["many"]),
        ("queue.tube.none:put_many", values![numbers(10_000)]),
        ("queue.tube.t:put", values![numbers(10_000)]),
    ] {
        assert_eq!(short(&mut rig, &frame(name, &args)).unwrap(), Handled::Done, "{name}");
    }
    rig.handle_frame(&admin, &put(128));
    rig.sync_journal();
    assert_eq!(calls(&rig), before + 5);
    let mut asker = rig.admin();
    let statistics = rig.call(&mut asker, "queue.statistics", &values!["t"]).unwrap();
    assert_eq!(
        statistics[0].get("tasks").and_then(|tasks| tasks.get("total")),
        Some(&Value::from(127 + 1 + 128))
    );
}
