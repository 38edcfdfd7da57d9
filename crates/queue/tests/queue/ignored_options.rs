//! Options that a call brings and its tube ignores are named in the log; the call does what it does.

use lycosa_queue::{Answer, Caller, CallerKind, Error};
use lycosa_tuple::value::Value;

use crate::rig::{Reply, Rig, SECOND, args, options};

/// The lines that were logged since the last look.
fn lines(rig: &mut Rig) -> Vec<String> {
    std::iter::from_fn(|| rig.queue.poll_log()).map(|line| line.text).collect()
}

fn refusal(reply: Reply) -> Error {
    match reply {
        Reply::Error(error) => error,
        other => panic!("not an error: {other:?}"),
    }
}

fn number(value: u64) -> Value {
    Value::from(value)
}

#[test]
fn an_option_that_means_nothing_to_the_type_is_named() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.create("q", "fifottl", Value::Nil);
    lines(&mut rig);
    for option in ["ttl", "ttr", "pri", "delay", "utube", "timeout"] {
        rig.t(1, "put", args!["a", options([(option, number(5))])]).values();
        assert_eq!(
            lines(&mut rig),
            [format!("put by user 'admin' in tube 't' (fifo): tubes of this type ignore option '{option}'")]
        );
    }
    for (option, is_heeded) in [("delay", true), ("pri", true), ("utube", false), ("timeout", false)] {
        rig.call(1, "queue.tube.q:put", args!["a", options([(option, number(5))])]).values();
        assert_eq!(lines(&mut rig).is_empty(), is_heeded, "{option}");
    }
    rig.t(1, "take", args![0]).values();
    rig.t(1, "release", args![0, options([("delay", number(60))])]).values();
    assert_eq!(
        lines(&mut rig),
        ["release by user 'admin' in tube 't' (fifo): tubes of this type ignore option 'delay'"]
    );
}

#[test]
fn an_option_that_does_not_exist_is_named_with_those_that_do() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    lines(&mut rig);
    let unknown = |method: &str, option: &str, known: &str| {
        format!(
            "{method} by user 'admin' in tube 't' (fifottl): option '{option}' does not exist and is ignored; \
             the options are {known}"
        )
    };
    rig.t(1, "put", args!["a", options([("later", number(5))])]).values();
    assert_eq!(
        lines(&mut rig),
        [unknown("put", "later", "delay, headers, pri, replicas, timeout, ttl, ttr, utube")]
    );
    rig.t(1, "take", args![0, options([("extend", Value::from(true))])]).values();
    assert_eq!(lines(&mut rig), [unknown("take", "extend", "again, extended, lease, request")]);
    rig.t(1, "release", args![0, options([("pri", number(1))])]).values();
    assert_eq!(lines(&mut rig), [unknown("release", "pri", "attempted, delay, reason")]);
    rig.t(1, "bury", args![0, options([("why", Value::str("x"))])]).values();
    assert_eq!(lines(&mut rig), [unknown("bury", "why", "reason")]);
    // Null is absent, and a refused call has done nothing that the log should tell of.
    rig.t(1, "put", args!["a", options([("later", Value::Nil)])]).values();
    rig.t(1, "put", args!["a", options([("later", number(5)), ("ttl", Value::str("x"))])]).error();
    assert_eq!(lines(&mut rig), Vec::<String>::new());
    let long = "x".repeat(1000);
    rig.t(1, "put", args!["a", options([(long.as_str(), number(5))])]).values();
    assert_eq!(
        lines(&mut rig),
        [unknown(
            "put",
            &format!("{}…", "x".repeat(64)),
            "delay, headers, pri, replicas, timeout, ttl, ttr, utube"
        )]
    );
}

#[test]
fn batches_and_arrays_in_the_place_of_options() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    lines(&mut rig);
    let payloads = Value::Array(vec![number(1), number(2)]);
    let each = Value::Array(vec![Value::Nil, options([("delay", number(5))])]);
    rig.t(1, "put_many", vec![payloads.clone(), each]).values();
    let line = "put_many by user 'admin' in tube 't' (fifo): tubes of this type ignore option 'delay'";
    assert_eq!(lines(&mut rig), [line]);
    rig.t(1, "put_many", vec![payloads, options([("delay", number(5))])]).values();
    assert_eq!(lines(&mut rig), [line]);
    rig.t(1, "put", vec![number(1), Value::Array(vec![options([("delay", number(5))])])]).values();
    let line =
        "put by user 'admin' in tube 't' (fifo): the options are an array and not a map, and are ignored";
    assert_eq!(lines(&mut rig), [line]);
    // What an empty map becomes in some clients.
    rig.t(1, "put", vec![number(1), Value::Array(vec![])]).values();
    assert_eq!(lines(&mut rig), Vec::<String>::new());
}

#[test]
fn a_tube_is_created_with_options_that_it_ignores_and_the_log_names_them() {
    let mut rig = Rig::new();
    lines(&mut rig);
    rig.create("a", "fifo", options([("ttl", number(5))]));
    let line = "create_tube by user 'admin' in tube 'a' (fifo): tubes of this type ignore option 'ttl'";
    assert_eq!(lines(&mut rig), [line]);
    rig.create("b", "fifottl", options([("lifetime", number(5))]));
    let line = "create_tube by user 'admin' in tube 'b' (fifottl): option 'lifetime' does not exist and is ignored; the options \
                are capacity, engine, if_not_exists, pri, storage_mode, temporary, ttl, ttr";
    assert_eq!(lines(&mut rig), [line]);
    let heeded = [("ttl", number(5)), ("capacity", number(5)), ("if_not_exists", Value::from(true))];
    rig.create("c", "limfifottl", options(heeded));
    assert_eq!(lines(&mut rig), Vec::<String>::new());
}

/// A call as it comes over HTTP.
fn over_http(rig: &mut Rig, name: &str, arguments: Vec<Value>) -> Result<Answer, Error> {
    let caller = Caller { kind: CallerKind::Http, ..rig.caller(1) };
    let procedure = rig.queue.resolve(name.as_bytes()).expect("the procedure");
    let answer = rig.call_as(&caller, &procedure, &Value::from(arguments).encode(), &mut Vec::new());
    rig.collect_committed();
    answer
}

#[test]
fn http_ignores_no_option() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.create("u", "utube", Value::Nil);
    rig.t(1, "put", args!["held"]).values();
    rig.t(1, "take", args![0]).values();
    lines(&mut rig);
    let timed = "fifottl, limfifottl, utubettl";
    let unheeded = |method: &str, tube_type: &str, option: &str, types: &str| {
        format!(
            "{method}: tubes of type {tube_type} ignore option '{option}': only tubes of these types heed it: {types}"
        )
    };
    for (option, types) in [
        ("ttl", timed),
        ("ttr", timed),
        ("pri", timed),
        ("delay", timed),
        ("utube", "utube, utubettl"),
        ("timeout", "limfifottl"),
    ] {
        let refused = over_http(&mut rig, "queue.tube.t:put", args!["a", options([(option, number(5))])]);
        assert_eq!(refused.unwrap_err().to_string(), unheeded("put", "fifo", option, types));
    }
    over_http(&mut rig, "queue.tube.u:put", args!["a", options([("utube", Value::str("x"))])]).unwrap();
    // One task of a batch is enough, wherever it stands.
    let each = Value::Array(vec![options([]), options([("delay", number(5))])]);
    let batch = Value::Array(vec![number(1), number(2)]);
    let refused = over_http(&mut rig, "queue.tube.t:put_many", vec![batch, each]).unwrap_err();
    assert_eq!(refused.to_string(), format!("#2: {}", unheeded("put_many", "fifo", "delay", timed)));
    let refused = over_http(&mut rig, "queue.tube.t:release", args![0, options([("delay", number(5))])]);
    assert_eq!(refused.unwrap_err().to_string(), unheeded("release", "fifo", "delay", timed));
    let create = |rig: &mut Rig, name: &str, tube_type: &str, option: &str| {
        let options = options([(option, number(5))]);
        over_http(rig, "queue.create_tube", args![name, tube_type, options])
            .map_err(|error| error.to_string())
    };
    assert_eq!(
        create(&mut rig, "a", "utube", "capacity"),
        Err(unheeded("create_tube", "utube", "capacity", "limfifottl"))
    );
    let known = "capacity, engine, if_not_exists, pri, storage_mode, temporary, ttl, ttr";
    for option in ["lifetime", "on_task_change"] {
        let text = format!("create_tube: option '{option}' does not exist; the options are {known}");
        assert_eq!(create(&mut rig, "a", "utube", option), Err(text));
    }
    assert_eq!(create(&mut rig, "a", "fifottl", "ttl"), Ok(Answer::Done { count: 1 }));
    assert_eq!(lines(&mut rig), Vec::<String>::new(), "what is refused is not logged");
    assert_eq!(rig.status().tasks.total(), 1, "nothing was put");
}

#[test]
fn the_lines_are_sampled() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    lines(&mut rig);
    for _ in 0..100 {
        rig.t(1, "put", args!["a", options([("delay", number(5))])]).values();
    }
    assert_eq!(lines(&mut rig).len(), 10);
    rig.now += 60 * SECOND;
    rig.tick();
    assert_eq!(lines(&mut rig), ["90 more calls had options that their tubes ignore"]);
}

#[test]
fn lines_about_released_tasks_are_sampled() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    for _ in 0..100 {
        rig.t(2, "put", args!["a"]).values();
        rig.t(2, "take", args![0]).values();
    }
    lines(&mut rig);
    rig.disconnect(2);
    rig.tick();
    let logged = lines(&mut rig);
    assert_eq!(logged.len(), 10);
    assert!(logged.iter().all(|line| line.contains("closed, release task")), "{logged:?}");
    rig.now += 60 * SECOND;
    rig.tick();
    assert_eq!(lines(&mut rig), ["90 more tasks of sessions that are gone were released"]);
}

#[test]
fn lines_about_refused_calls_are_sampled() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    let master = Rig::new();
    rig.demote(&master);
    lines(&mut rig);
    for _ in 0..100 {
        rig.t(1, "take", args![0]);
    }
    let logged = lines(&mut rig);
    assert_eq!(logged.len(), 10);
    assert!(logged.iter().all(|line| line.starts_with("take: queue is in ")), "{logged:?}");
    rig.now += 60 * SECOND;
    rig.tick();
    assert_eq!(lines(&mut rig), ["90 more calls came while the queue was not running"]);
}

#[test]
fn list_refuses_what_it_does_not_know() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    for (name, value) in [
        ("stat", Value::str("!")),
        ("state", Value::str("buried")),
        ("limit", Value::str("many")),
        ("older_than", Value::from(-1_i64)),
        ("after", Value::from(1.5)),
        ("utube", number(1)),
    ] {
        let error = rig.t(1, "list", vec![options([(name, value)])]).error();
        assert!(error.starts_with("argument #1 should be a map "), "{name}: {error}");
    }
    assert_eq!(rig.t(1, "list", vec![number(7)]).error(), "argument #1 should be a map of options");
    rig.t(1, "list", vec![Value::Array(vec![])]).values();
    rig.t(
        1,
        "list",
        vec![options([("state", Value::str("!")), ("limit", number(0)), ("after", Value::Nil)])],
    )
    .values();
}

#[test]
fn an_option_that_is_one_slip_away_from_another_is_refused() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    rig.t(1, "put", args!["a"]).values();
    lines(&mut rig);
    let each = Value::Array(vec![Value::Nil, options([("prio", number(5))])]);
    let calls = [
        ("put", args!["a", options([("dealy", number(5))])], ("dealy", "delay")),
        ("put_many", vec![Value::Array(vec![number(1), number(2)]), each], ("prio", "pri")),
        ("take", args![0, options([("extnded", Value::from(true))])], ("extnded", "extended")),
        ("release", args![0, options([("Delay", number(5))])], ("Delay", "delay")),
        ("bury", args![0, options([("reson", Value::str("x"))])], ("reson", "reason")),
    ];
    for (method, arguments, (option, nearest)) in calls {
        let error = refusal(rig.t(1, method, arguments));
        let text = format!("{method}: option \"{option}\" does not exist (did you mean \"{nearest}\"?)");
        assert_eq!(error.to_string(), text);
        assert!(error.is_lua());
    }
    let created =
        rig.call(1, "queue.create_tube", args!["u", "fifo", options([("temporry", Value::from(true))])]);
    assert_eq!(
        created.error(),
        "create_tube: option \"temporry\" does not exist (did you mean \"temporary\"?)"
    );
    // Nothing of it has happened.
    let statistics = rig.queue.tube_statistics(&rig.store, "t").expect("a space").expect("a tube");
    assert_eq!((statistics.tasks.ready, statistics.tasks.total()), (1, 1));
    assert_eq!(rig.queue.tube_statistics(&rig.store, "u").expect("a look"), None);
    assert_eq!(lines(&mut rig), Vec::<String>::new());
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn a_wrong_argument_is_named_with_its_value_before_what_the_module_says() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    let odd = || Value::str("x");
    let compare = |left, right| format!("attempt to compare {left} with {right}");
    let field = |number, what| format!("Tuple field {number} {what}");
    let key =
        |part| format!("Supplied key type of part {part} does not match index part type: expected unsigned");
    let unsigned = "type does not match one required by operation: expected unsigned";
    let (whole, seconds) = ("not a whole number, 0 or more", "not a number of seconds");
    let cases = [
        (
            "put",
            args![],
            "argument #1, the payload, is missing".into(),
            field(8, "required by space format is missing"),
        ),
        (
            "put",
            args![1, options([("pri", Value::str("high"))])],
            format!("option pri is \"high\", {whole}"),
            field(6, unsigned),
        ),
        (
            "put",
            args![1, options([("ttl", odd())])],
            format!("option ttl is \"x\", {seconds}"),
            compare("string", "number"),
        ),
        (
            "put",
            args![1, options([("delay", odd())])],
            format!("option delay is \"x\", {seconds}"),
            compare("number", "string"),
        ),
        (
            "put",
            args![1, 5],
            "argument #2, the options, is 5, not a map".into(),
            "attempt to index local 'opts' (a number value)".into(),
        ),
        (
            "take",
            args!["now"],
            format!("argument #1, the timeout, is \"now\", {seconds}"),
            compare("string", "number"),
        ),
        ("ack", args!["x"], format!("argument #1, the task's id, is \"x\", {whole}"), key(1)),
        ("ack", args![-1], format!("argument #1, the task's id, is -1, {whole}"), key(1)),
        (
            "peek",
            args![],
            "argument #1, the task's id, is missing".into(),
            "Invalid key part count in an exact match (expected 1, got 0)".into(),
        ),
        (
            "touch",
            args![0, "x"],
            format!("argument #2, the increment, is \"x\", {seconds}"),
            compare("string", "number"),
        ),
        (
            "kick",
            args!["x"],
            "argument #1, the count, is \"x\", not a number of tasks".into(),
            "'for' limit must be a number".into(),
        ),
        (
            "ack_many",
            vec![Value::Array(vec![odd()])],
            format!("id #1 of argument #1 is \"x\", {whole}"),
            key(1),
        ),
        (
            "put",
            args![1, options([("pri", Value::str("y".repeat(1000)))])],
            format!("option pri is \"{}…, {whole}", "y".repeat(63)),
            field(6, unsigned),
        ),
    ];
    for (method, arguments, what, reason) in cases {
        let error = refusal(rig.t(1, method, arguments));
        assert_eq!(error.to_string(), format!("{method}: {what}: {reason}"));
        let is_of_box =
            matches!(&error, Error::Refused { reason, .. } if matches!(**reason, Error::Store(_)));
        assert_eq!(error.is_lua(), !is_of_box, "{method}: the code is that of the module's error");
    }
    let each = Value::Array(vec![Value::Nil, options([("ttl", odd())])]);
    let error = rig.t(1, "put_many", vec![Value::Array(vec![number(1), number(2)]), each]).error();
    let what = format!("put_many: option ttl is \"x\", {seconds}");
    assert_eq!(error, format!("#2: {what}: {}", compare("string", "number")));
}
