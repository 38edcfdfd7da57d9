//! Tokens: what each role may call, on which tubes, and until when.

use lycosa_instance::{Called, Caller, Settings, TokenDigest};
use lycosa_iproto::error::ErrorObject;
use lycosa_store::{IteratorType, Statement, user};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;

use crate::rig::{Rig, options, values};

fn rig() -> Rig {
    let mut rig = Rig::with(Settings::default());
    rig.create_tube("mail", "fifottl");
    rig.create_tube("mail-late", "fifottl");
    rig.create_tube("crawl", "fifo");
    rig
}

#[allow(clippy::needless_pass_by_value, reason = "calls read as they are written")]
fn call(rig: &mut Rig, caller: &Caller, name: &str, args: Value) -> Result<Value, ErrorObject> {
    let mut out = Vec::new();
    match rig.instance.call(caller, name.as_bytes(), &args.encode(), &mut out)? {
        Called::Done { count: 0 } => Ok(Value::Nil),
        Called::Done { .. } => Ok(Value::read(&mut Reader::new(&out)).expect("a value")),
        Called::Parked(_) => Ok(Value::from("parked")),
    }
}

/// Makes a token; returns its secret.
fn add(rig: &mut Rig, name: &str, role: &str, tubes: &[&str], ttl: Option<u64>) -> String {
    let tubes = Value::array(tubes.iter().copied());
    let ttl = ttl.map_or(Value::Nil, Value::from);
    let options = options! {role: role, tubes: tubes, ttl: ttl};
    let made = call(rig, &Caller::internal(), "lycosa.token.add", values![name, options]).expect("a token");
    made.get("secret").and_then(Value::as_str).expect("a secret").to_owned()
}

fn caller(rig: &mut Rig, secret: &str) -> Result<Caller, ErrorObject> {
    let caller = rig.instance.token_caller(&TokenDigest::of(secret.as_bytes()), 0)?;
    let session = rig.instance.open_token_session(caller.token.expect("a token's caller"));
    Ok(Caller { session, ..caller })
}

#[track_caller]
fn kind(result: Result<impl std::fmt::Debug, ErrorObject>) -> String {
    let error = result.expect_err("it is refused");
    let name = error.fields.iter().find(|(name, _)| name == "name");
    name.map_or(error.message.clone(), |(_, kind)| kind.clone())
}

#[test]
fn each_role_may_call_what_the_roles_before_it_may() {
    let mut rig = rig();
    let roles = ["viewer", "operator", "administrator"];
    let callers = roles.map(|role| {
        let secret = add(&mut rig, role, role, &["*"], None);
        caller(&mut rig, &secret).expect("a caller")
    });
    // A call that each role may make, and the place of the first role that may.
    let calls: [(usize, &str, Value); 14] = [
        (0, "queue.tube.mail:list", values![]),
        (0, "queue.statistics", values![]),
        (0, "box.info", values![]),
        (0, "queue.tube.mail:find", values![options! {state: "ready"}]),
        (0, "queue.tube.mail:explain", values![]),
        (0, "queue.tube.mail:jobs", values![]),
        (1, "queue.tube.mail:apply", values!["kick", options! {all: true}]),
        (0, "queue.audit", values![]),
        (0, "queue.jobs", values![]),
        (1, "queue.tube.mail:put", values!["x"]),
        (1, "queue.tube.mail:kick", values![1u64]),
        (2, "queue.create_tube", values!["new", "fifo", options! {if_not_exists: true}]),
        (2, "queue.tube.crawl:truncate", values![]),
        (2, "lycosa.token.list", values![]),
    ];
    for (least, name, args) in calls {
        for (place, caller) in callers.iter().enumerate() {
            let result = call(&mut rig, caller, name, args.clone());
            if place >= least {
                result.unwrap_or_else(|error| panic!("{name} for {}: {error:?}", roles[place]));
            } else {
                assert_eq!(kind(result), "TOKEN_DENIED", "{name} for {}", roles[place]);
            }
        }
    }
}

#[test]
fn a_token_reaches_its_own_tubes_only() {
    let mut rig = rig();
    let secret = add(&mut rig, "worker", "administrator", &["mail*"], None);
    let caller = caller(&mut rig, &secret).expect("a caller");
    for tube in ["mail", "mail-late"] {
        call(&mut rig, &caller, &format!("queue.tube.{tube}:put"), values!["x"]).expect("its own tube");
        call(&mut rig, &caller, "queue.statistics", values![tube]).expect("its own tube");
    }
    for refused in ["queue.tube.crawl:put", "queue.tube.crawl:peek"] {
        assert_eq!(kind(call(&mut rig, &caller, refused, values![0u64])), "TOKEN_DENIED");
    }
    assert_eq!(kind(call(&mut rig, &caller, "queue.statistics", values!["crawl"])), "TOKEN_DENIED");
    // Functions about the instance need a token of every tube.
    for refused in ["queue.create_tube", "box.info", "queue.sessions", "box.snapshot", "lycosa.token.list"] {
        assert_eq!(kind(call(&mut rig, &caller, refused, values![])), "TOKEN_DENIED", "{refused}");
    }
    for list in ["queue.tubes", "queue.statistics"] {
        let Value::Map(shown) = call(&mut rig, &caller, list, values![]).expect("a list") else {
            panic!("{list} answers a map")
        };
        let mut names: Vec<_> = shown.iter().filter_map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["mail", "mail-late"], "{list}");
    }
    let status = call(&mut rig, &caller, "queue.status", values![]).expect("a page");
    let tubes = status.get("tubes").and_then(Value::as_array).expect("tubes");
    assert_eq!((tubes.len(), status.get("instance")), (2, None));
    let one = |tube: &str| values![options! {tube: tube}];
    call(&mut rig, &caller, "queue.status", one("mail")).expect("its own tube");
    assert_eq!(kind(call(&mut rig, &caller, "queue.status", one("crawl"))), "TOKEN_DENIED");
    for tube in ["mail", "crawl"] {
        let pause = format!("queue.tube.{tube}:pause");
        call(&mut rig, &Caller::internal(), &pause, values![]).expect("paused");
    }
    let caller_names = |entry: &Value| ["user", "token", "role"].map(|name| entry.get(name).cloned());
    let operator = add(&mut rig, "night shift", "operator", &["mail*"], None);
    let operator = self::caller(&mut rig, &operator).expect("a caller");
    call(&mut rig, &operator, "queue.tube.mail-late:pause", values![]).expect("paused");
    let late = call(&mut rig, &caller, "queue.audit", one("mail-late")).expect("entries");
    let late = late.as_array().and_then(<[Value]>::first).map(caller_names).expect("an entry");
    assert_eq!(late, ["admin", "night shift", "operator"].map(|name| Some(name.into())));
    call(&mut rig, &Caller::internal(), "queue.tube.mail-late:resume", values![]).expect("resumed");
    let late = call(&mut rig, &caller, "queue.audit", one("mail-late")).expect("entries");
    let late = late.as_array().and_then(<[Value]>::first).map(caller_names).expect("an entry");
    assert_eq!(late, [Some("admin".into()), None, None]);
    let entries = call(&mut rig, &caller, "queue.audit", values![]).expect("entries");
    let entries = entries.as_array().expect("an array");
    assert_eq!(
        entries.iter().filter_map(|entry| entry.get("tube")?.as_str()).collect::<Vec<_>>(),
        ["mail-late", "mail-late", "mail"]
    );
    assert_eq!(kind(call(&mut rig, &caller, "queue.audit", one("crawl"))), "TOKEN_DENIED");
    let elsewhere = values!["move", options! {all: true}, options! {to: "crawl"}];
    assert_eq!(kind(call(&mut rig, &caller, "queue.tube.mail:apply", elsewhere)), "TOKEN_DENIED");
    let names = call(&mut rig, &caller, "queue.tube", values![]).expect("names");
    assert_eq!(names.as_array().map(<[Value]>::len), Some(2));
}

#[test]
fn a_token_ends_with_its_time_its_revocation_and_its_row() {
    let mut rig = rig();
    let short = add(&mut rig, "short", "viewer", &["*"], Some(60));
    let long = add(&mut rig, "long", "viewer", &["*"], None);
    let row = add(&mut rig, "row", "viewer", &["*"], None);
    let callers = [&short, &long, &row].map(|secret| caller(&mut rig, secret).expect("a caller"));
    let look = |rig: &mut Rig, at: usize| call(rig, &callers[at], "queue.state", values![]);
    for at in 0..3 {
        look(&mut rig, at).expect("valid");
    }
    let now = rig.now + 59_999_999;
    rig.instance.set_now(now);
    look(&mut rig, 0).expect("valid to the last microsecond");
    rig.instance.set_now(now + 1);
    assert_eq!(kind(look(&mut rig, 0)), "TOKEN_INVALID");
    assert_eq!(kind(caller(&mut rig, &short)), "TOKEN_INVALID");
    call(&mut rig, &Caller::internal(), "lycosa.token.revoke", values!["long"]).expect("revoked");
    assert_eq!(kind(look(&mut rig, 1)), "TOKEN_INVALID");
    // The row may be removed by a statement, and so by replication.
    let space = rig.instance.store().space_by_name("_lycosa_tokens").expect("the space").id();
    let id = {
        let mut found = None;
        let mut read = |tuple: &[u8]| {
            let tuple = Value::decode(tuple).expect("a row");
            let fields = tuple.as_array().expect("fields");
            if fields[1].as_str() == Some("row") {
                found = fields[0].as_u64();
            }
            std::ops::ControlFlow::Continue(())
        };
        rig.instance.store().scan(space, 0, IteratorType::All, &[0x90], &mut read).expect("rows");
        found.expect("the row")
    };
    let key = values![id].encode();
    let delete = Statement::Delete { space, index: 0, key: &key };
    rig.instance.execute(user::ADMIN, &delete, &mut Vec::new()).expect("deleted");
    assert_eq!(kind(look(&mut rig, 2)), "TOKEN_INVALID");
}

#[test]
fn a_token_of_a_revoked_name_is_another_one() {
    let mut rig = rig();
    let first = add(&mut rig, "ann", "viewer", &["*"], None);
    let caller_of_first = caller(&mut rig, &first).expect("a caller");
    let again = values!["ann", options! {role: "viewer", tubes: Value::array(["*"])}];
    let twice = call(&mut rig, &Caller::internal(), "lycosa.token.add", again);
    assert_eq!(kind(twice), "TOKEN_EXISTS");
    call(&mut rig, &Caller::internal(), "lycosa.token.revoke", values!["ann"]).expect("revoked");
    let second = add(&mut rig, "ann", "administrator", &["*"], None);
    assert_ne!(first, second);
    assert_eq!(kind(call(&mut rig, &caller_of_first, "queue.state", values![])), "TOKEN_INVALID");
    let gone = call(&mut rig, &Caller::internal(), "lycosa.token.revoke", values!["bob"]);
    assert_eq!(kind(gone), "NO_SUCH_TOKEN");
}

#[test]
fn secrets_are_stored_nowhere() {
    let mut rig = rig();
    let secret = add(&mut rig, "ann", "viewer", &["*"], None);
    let batch = rig.instance.poll_append().expect("the token's rows");
    let rows = batch.rows;
    let digits = secret.strip_prefix("lycosa_").expect("the prefix").as_bytes();
    assert_eq!(digits.len(), 64);
    assert!(rows.windows(3).any(|bytes| bytes == b"ann"), "the row is in the batch");
    assert!(!rows.windows(digits.len()).any(|bytes| bytes == digits));
    let listed = call(&mut rig, &Caller::internal(), "lycosa.token.list", values![]).expect("a list");
    assert!(listed.as_array().expect("an array")[0].get("secret").is_none());
}

#[test]
fn only_who_may_write_everything_makes_tokens() {
    let mut rig = rig();
    let guest = Caller { user: user::GUEST, effective: user::GUEST, ..Caller::internal() };
    let args = values!["ann", options! {role: "viewer", tubes: Value::array(["*"])}];
    // `internal` is trusted as a guest on loopback is.
    for name in ["lycosa.token.add", "lycosa.token.revoke", "lycosa.token.list"] {
        call(&mut rig, &guest, name, args.clone()).expect_err(name);
    }
}

#[test]
fn a_token_moves_tasks_only_between_its_tubes() {
    let mut rig = rig();
    let secret = add(&mut rig, "mailer", "operator", &["mail", "mail-late"], None);
    let mailer = caller(&mut rig, &secret).expect("a caller");
    let moving = |to: &str| values!["move", options! {all: true}, options! {to: to}];
    call(&mut rig, &mailer, "queue.tube.mail:apply", moving("mail-late")).expect("its own tubes");
    assert_eq!(kind(call(&mut rig, &mailer, "queue.tube.mail:apply", moving("crawl"))), "TOKEN_DENIED");
    let twice = Value::Map(vec![("to".into(), "mail-late".into()), ("to".into(), "crawl".into())]);
    let binary = Value::Map(vec![(Value::Bin(b"to".to_vec()), Value::Bin(b"crawl".to_vec()))]);
    for hidden in [twice, binary] {
        let args = values!["move", options! {all: true}, hidden];
        assert_eq!(kind(call(&mut rig, &mailer, "queue.tube.mail:apply", args)), "TOKEN_DENIED");
    }
}

/// A function about sessions is the whole server's: a session may hold tasks of every tube.
#[test]
fn sessions_are_released_by_operators_and_ended_by_administrators() {
    let mut rig = rig();
    for (name, role, tubes, released, ended) in [
        ("one", "administrator", "mail", "TOKEN_DENIED", "TOKEN_DENIED"),
        ("two", "viewer", "*", "TOKEN_DENIED", "TOKEN_DENIED"),
        ("three", "operator", "*", "NO_SUCH_SESSION", "TOKEN_DENIED"),
        ("four", "administrator", "*", "NO_SUCH_SESSION", "NO_SUCH_SESSION"),
    ] {
        let secret = add(&mut rig, name, role, &[tubes], None);
        let caller = caller(&mut rig, &secret).expect("a caller");
        let args = values![4711u64];
        assert_eq!(kind(call(&mut rig, &caller, "lycosa.session.release", args.clone())), released, "{name}");
        assert_eq!(kind(call(&mut rig, &caller, "lycosa.session.disconnect", args)), ended, "{name}");
    }
}

#[test]
fn lists_and_logs_name_the_token_and_an_undo_of_a_move_needs_both_tubes() {
    let mut rig = rig();
    let secret = add(&mut rig, "ops", "operator", &["*"], None);
    let ops = caller(&mut rig, &secret).expect("a caller");
    call(&mut rig, &ops, "queue.tube.mail:put", values!["x"]).expect("a task");
    let elsewhere = values!["move", options! {all: true}, options! {to: "crawl"}];
    let job = call(&mut rig, &ops, "queue.tube.mail:apply", elsewhere).expect("a job");
    for _ in 0..10 {
        rig.advance(1000);
    }
    let id = job.get("id").and_then(Value::as_u64).expect("a number");
    assert_eq!(job.get("user").and_then(Value::as_str), Some("token ops"));
    let audit = call(&mut rig, &ops, "queue.audit", values![]).expect("entries");
    let entry = &audit.as_array().expect("an array")[0];
    assert_eq!(entry.get("token").and_then(Value::as_str), Some("ops"));
    // Jobs of all tubes, restricted to the token's.
    let listed = |rig: &mut Rig, caller: &Caller| {
        let jobs = call(rig, caller, "queue.jobs", values![]).expect("jobs");
        jobs.as_array()
            .expect("an array")
            .iter()
            .filter_map(|job| job.get("id")?.as_u64())
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(&mut rig, &ops), [id]);
    let crawler = add(&mut rig, "crawler", "operator", &["crawl"], None);
    let crawler = caller(&mut rig, &crawler).expect("a caller");
    assert!(listed(&mut rig, &crawler).is_empty());
    let mailer = add(&mut rig, "mailer", "operator", &["mail"], None);
    let mailer = caller(&mut rig, &mailer).expect("a caller");
    assert_eq!(listed(&mut rig, &mailer), [id]);
    for number in [Value::from(id), Value::Double(id as f64)] {
        let undone = call(&mut rig, &mailer, "queue.tube.mail:undo", Value::Array(vec![number]));
        assert_eq!(kind(undone), "TOKEN_DENIED", "its tasks are in another tube now");
    }
    call(&mut rig, &ops, "queue.tube.mail:undo", values![id]).expect("a job");
}
