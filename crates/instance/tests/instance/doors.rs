//! The doors of embedding programs: open transactions, callers that are no connections, requests for programs.

use lycosa_instance::{Called, Caller, CallerKind, InvokeKind, Select, Settings, Trust};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::frame::{DEFAULT_LIMIT, Split, split};
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::Body;
use lycosa_store::{IteratorType, Statement, user};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;

use crate::rig::{Client, Rig, options, refused, task, values};

const SPACE: u32 = 600;

fn rig() -> Rig {
    let mut rig = Rig::with(Settings { lua: true, ..Settings::default() });
    rig.create_tube("t", "fifottl");
    rig.create_space(SPACE, "s", options! {});
    rig
}

fn insert(rig: &mut Rig, id: u64) -> Result<u32, ErrorObject> {
    let tuple = values![id].encode();
    rig.instance.execute(user::ADMIN, &Statement::Insert { space: SPACE, tuple: &tuple }, &mut Vec::new())
}

fn ids(rig: &mut Rig) -> Vec<u64> {
    let mut bytes = Vec::new();
    let select =
        Select { space: SPACE, index: 0, iterator: IteratorType::All, key: &[0x90], offset: 0, limit: 99 };
    let count = rig.instance.select(user::ADMIN, &select, &mut bytes).expect("a space");
    let mut reader = Reader::new(&bytes);
    let id = |value: Value| value.as_array().and_then(|tuple| tuple[0].as_u64()).expect("an id");
    (0..count).map(|_| id(Value::read(&mut reader).expect("a tuple"))).collect()
}

fn fiber(rig: &mut Rig) -> Caller {
    Caller {
        session: rig.instance.open_session(),
        may_wait: true,
        kind: CallerKind::Fiber,
        ..Caller::internal()
    }
}

/// Calls a function of the queue for a caller that is no connection.
fn call(rig: &mut Rig, caller: &Caller, name: &str, args: &Value) -> Result<Vec<Value>, Called> {
    let mut bytes = Vec::new();
    match rig.instance.call(caller, name.as_bytes(), &args.encode(), &mut bytes).expect("no error") {
        Called::Done { count } => Ok(read(&bytes, count)),
        parked @ Called::Parked(_) => Err(parked),
    }
}

fn read(bytes: &[u8], count: u32) -> Vec<Value> {
    let mut reader = Reader::new(bytes);
    (0..count).map(|_| Value::read(&mut reader).expect("a value")).collect()
}

#[test]
fn the_function_that_runs_any_text_is_for_those_who_may_eval() {
    let mut rig = rig();
    rig.create_user("ann", "secret");
    let (mut guest, mut ann) = (rig.guest(), rig.stranger());
    rig.auth(&mut ann, "ann", "secret").expect("a user");
    let text = values!["return box.session.effective_user()"];
    for (client, name) in [(&mut guest, "guest"), (&mut ann, "ann")] {
        let expected = format!("Execute access to universe '' is denied for user '{name}'");
        assert_eq!(refused(rig.call(client, "LUA", &text)), (ErrorCode::AccessDenied, expected));
    }
    assert!(rig.instance.poll_invoke(|_| true).is_none());
    rig.grant("ann", "execute", "universe", "");
    rig.start_call(&mut ann, "LUA", &text);
    assert!(rig.instance.poll_invoke(|_| true).is_some());
}

#[test]
fn grants_of_others_are_for_those_who_may_read_users() {
    let mut rig = rig();
    rig.create_user("ann", "secret");
    rig.create_user("bob", "secret");
    let mut ann = rig.stranger();
    rig.auth(&mut ann, "ann", "secret").expect("a user");
    let info = "box.schema.user.info";
    assert!(rig.call(&mut ann, info, &values!["ann"]).is_ok());
    assert!(rig.call(&mut ann, info, &values![]).is_ok());
    let expected = "Read access to space '_user' is denied for user 'ann'".to_owned();
    for other in ["bob", "admin", "nobody-of-this-name"] {
        let refusal = refused(rig.call(&mut ann, info, &values![other]));
        assert_eq!(refusal, (ErrorCode::AccessDenied, expected.clone()), "{other}");
    }
    rig.grant("ann", "read", "space", "_user");
    assert!(rig.call(&mut ann, info, &values!["bob"]).is_ok());
}

#[test]
fn an_open_transaction_takes_in_statements_and_calls_and_serves_at_its_commit() {
    let mut rig = rig();
    let mut worker = rig.guest();
    let fiber = fiber(&mut rig);
    rig.start_call(&mut worker, "queue.tube.t:take", &values![]);
    rig.sync_journal();
    rig.instance.begin(user::ADMIN).expect("none is open");
    assert_eq!(rig.instance.begin(user::ADMIN).map_err(|e| e.code), Err(ErrorCode::ActiveTransaction as u32));
    insert(&mut rig, 1).expect("a new id");
    assert_eq!(call(&mut rig, &fiber, "queue.tube.t:put", &values!["a"]), Ok(task(0, "r", "a")));
    let refusal = insert(&mut rig, 1).expect_err("the id is there");
    assert_eq!(refusal.code, ErrorCode::TupleFound as u32);
    assert_eq!(
        call(&mut rig, &fiber, "queue.tube.t:take", &values![10]),
        Ok(task(0, "t", "a")),
        "its own task"
    );
    assert_eq!(call(&mut rig, &fiber, "queue.tube.t:take", &values![10]), Ok(vec![]), "nothing waits");
    assert_eq!(call(&mut rig, &fiber, "queue.tube.t:release", &values![0]), Ok(task(0, "r", "a")));
    assert_eq!(rig.replies(&worker), [], "nobody is served before the commit");
    assert!(rig.instance.poll_append().is_none());
    let lsn = rig.instance.commit().expect("room");
    assert_eq!((rig.instance.awaited(), rig.instance.is_durable(lsn)), (lsn, Ok(false)));
    rig.sync_journal();
    assert_eq!(rig.instance.is_durable(lsn), Ok(true));
    assert_eq!(rig.replies(&worker)[0].answer, Ok(task(0, "t", "a")));
    assert_eq!(ids(&mut rig), [1]);
}

#[test]
fn savepoints_and_rollbacks_take_back_statements_and_calls_alike() {
    let mut rig = rig();
    let fiber = fiber(&mut rig);
    rig.instance.begin(user::ADMIN).expect("none is open");
    insert(&mut rig, 1).expect("a new id");
    let savepoint = rig.instance.savepoint();
    insert(&mut rig, 2).expect("a new id");
    call(&mut rig, &fiber, "queue.tube.t:put", &values!["no"]).expect("a task");
    let refused = rig.instance.transaction(user::ADMIN, |store| {
        let tuple = values![3].encode();
        store.execute(&Statement::Insert { space: SPACE, tuple: &tuple }).expect("a new id");
        Err::<(), _>(ErrorObject::lua("no".to_owned()))
    });
    assert!(refused.is_err());
    assert_eq!(ids(&mut rig), [1, 2]);
    let newer = rig.instance.savepoint();
    rig.instance.rollback_to(savepoint).expect("it is of this transaction");
    assert_eq!(ids(&mut rig), [1]);
    let gone = rig.instance.rollback_to(newer).expect_err("it was undone");
    assert_eq!(gone.message, "Can not rollback to savepoint: the savepoint does not exist");
    assert_eq!(call(&mut rig, &fiber, "queue.tube.t:put", &values!["yes"]), Ok(task(0, "r", "yes")));
    rig.instance.commit().expect("room");
    rig.instance.rollback_to(savepoint).expect_err("its transaction has ended");
    rig.instance.begin(user::ADMIN).expect("none is open");
    insert(&mut rig, 4).expect("a new id");
    call(&mut rig, &fiber, "queue.tube.t:take", &values![0]).expect("a task");
    rig.instance.rollback_to(savepoint).expect_err("it is of another transaction");
    rig.instance.rollback();
    assert_eq!(ids(&mut rig), [1]);
    assert_eq!(call(&mut rig, &fiber, "queue.tube.t:take", &values![0]), Ok(task(0, "t", "yes")));
}

#[test]
fn nobody_else_joins_a_transaction() {
    let mut rig = rig();
    let mut client = rig.admin();
    rig.instance.begin(user::ADMIN).expect("none is open");
    insert(&mut rig, 1).expect("a new id");
    rig.insert(&mut client, SPACE, &values![2]).expect("a new id");
    assert!(!rig.instance.in_transaction());
    assert_eq!(ids(&mut rig), [2]);
}

#[test]
fn a_fiber_waits_as_a_connection_does() {
    let mut rig = rig();
    let mut client = rig.guest();
    let fiber = fiber(&mut rig);
    let Err(Called::Parked(request)) = call(&mut rig, &fiber, "queue.tube.t:take", &values![]) else {
        panic!("there is no task")
    };
    assert_eq!(rig.instance.status().waiting_calls, 1);
    rig.call(&mut client, "queue.tube.t:put", &values!["a"]).expect("a task");
    let answered = rig.instance.poll_answer().expect("an answer");
    assert_eq!((answered.request, answered.kind), (request, CallerKind::Fiber));
    let (count, bytes) = answered.result.expect("a task");
    assert_eq!(read(&bytes, count), task(0, "t", "a"));
    assert_eq!(rig.instance.poll_answer(), None);
    call(&mut rig, &fiber, "queue.tube.t:take", &values![]).expect_err("no task");
    rig.instance.close_session(fiber.session, rig.now);
    assert_eq!((rig.instance.status().waiting_calls, rig.instance.poll_answer()), (0, None));
    assert_eq!(
        rig.call(&mut client, "queue.tube.t:take", &values![0]),
        Ok(task(0, "t", "a")),
        "it was released"
    );
}

#[test]
fn a_call_that_is_cancelled_takes_no_task() {
    let mut rig = rig();
    let mut client = rig.guest();
    let fiber = fiber(&mut rig);
    let parked = |called: Result<_, Called>| match called {
        Err(Called::Parked(request)) => request,
        other => panic!("it waits: {other:?}"),
    };
    let first = parked(call(&mut rig, &fiber, "queue.tube.t:take", &values![]));
    let second = parked(call(&mut rig, &fiber, "queue.tube.t:take", &values![]));
    rig.instance.cancel(first);
    rig.instance.cancel(first);
    assert_eq!(rig.instance.status().waiting_calls, 1);
    rig.call(&mut client, "queue.tube.t:put", &values!["a"]).expect("a task");
    assert_eq!(rig.instance.poll_answer().map(|answered| answered.request), Some(second));
    assert_eq!(rig.instance.poll_answer(), None);
}

#[test]
fn who_may_not_wait_is_told() {
    let mut rig = rig();
    let caller =
        Caller { kind: CallerKind::Http, session: rig.instance.open_session(), ..Caller::internal() };
    let args = values![].encode();
    let refusal =
        rig.instance.call(&caller, b"queue.tube.t:take", &args, &mut Vec::new()).expect_err("no task");
    assert_eq!(refusal.message, "the call would wait, which this caller may not: call with a timeout of 0");
}

/// All frames that were written for a connection.
fn frames(rig: &mut Rig, client: &Client) -> Vec<(u64, bool, Vec<Value>)> {
    let bytes = rig.instance.output(client.slot).to_vec();
    let (mut rest, mut all) = (bytes.as_slice(), Vec::new());
    while let Split::Frame { content, consumed } = split(rest, DEFAULT_LIMIT).expect("frames") {
        let reply = reply::decode(content).expect("a reply");
        let (data, is_push) = match reply.content {
            Content::Push { data } => (data, true),
            Content::Ok { data, .. } => (data, false),
            Content::Error(error) => panic!("{error:?}"),
        };
        let values = Value::decode(data).expect("values");
        all.push((reply.sync, is_push, values.as_array().expect("an array").to_vec()));
        rest = &rest[consumed..];
    }
    rig.instance.consume(client.slot, bytes.len());
    all
}

#[test]
fn programs_are_handed_out_and_answered() {
    let mut rig = rig();
    let mut client = rig.admin();
    let call = rig.start_call(&mut client, "sum", &values![1, 2]);
    let eval = rig.send(&mut client, &Body::Eval { text: b"return ...", args: &values!["x"].encode() });
    let first = rig.instance.poll_invoke(|_| true).expect("the call");
    assert_eq!(first.kind, InvokeKind::Call { name: b"sum".to_vec(), is_stored: false });
    assert_eq!((first.args, first.caller.user), (values![1, 2].encode(), user::ADMIN));
    let second = rig.instance.poll_invoke(|_| true).expect("the expression");
    assert_eq!(second.kind, InvokeKind::Eval { expression: b"return ...".to_vec() });
    assert_eq!(rig.instance.poll_invoke(|_| true), None);
    rig.instance.push(second.request, &Value::from("half").encode()).expect("a connection");
    rig.instance.finish_invoke(second.request, Ok((1, &Value::from("x").encode())));
    rig.instance.finish_invoke(second.request, Ok((0, &[])));
    rig.instance.finish_invoke(first.request, Ok((1, &Value::from(3_u64).encode())));
    let expected = [
        (eval, true, vec![Value::from("half")]),
        (eval, false, vec![Value::from("x")]),
        (call, false, vec![Value::from(3_u64)]),
    ];
    assert_eq!(frames(&mut rig, &client), expected);
    let sync = rig.start_call(&mut client, "fails", &values![]);
    let request = rig.instance.poll_invoke(|_| true).expect("the call").request;
    rig.instance.finish_invoke(request, Err(ErrorObject::lua("no".to_owned())));
    let reply = rig.replies(&client).remove(0);
    assert_eq!((reply.sync, refused(reply.answer)), (sync, (ErrorCode::ProcLua, "no".to_owned())));
    rig.start_call(&mut client, "gone", &values![]);
    let request = rig.instance.poll_invoke(|_| true).expect("the call").request;
    rig.disconnect(&client);
    assert!(rig.instance.push(request, &[0xc0]).is_err());
    rig.instance.finish_invoke(request, Ok((0, &[])));
    assert_eq!(rig.instance.status().waiting_calls, 0);
}

#[test]
fn the_right_to_run_programs_is_checked_before() {
    let mut rig = rig();
    rig.create_user("eve", "secret");
    let mut eve = rig.login("eve", "secret");
    let refusal = refused(rig.call(&mut eve, "sum", &values![])).1;
    assert_eq!(refusal, "Execute access to function 'sum' is denied for user 'eve'");
    let eval = Body::Eval { text: b"return 1", args: &values![].encode() };
    assert_eq!(refused(rig.ask(&mut eve, &eval)).1, "Execute access to universe '' is denied for user 'eve'");
    assert_eq!(rig.instance.poll_invoke(|_| true), None);
    let mut admin = rig.admin();
    let setuid = options! { setuid: true };
    rig.call(&mut admin, "box.schema.func.create", &values!["sum", setuid]).expect("a function");
    rig.grant("eve", "execute", "function", "sum");
    rig.start_call(&mut eve, "sum", &values![]);
    let caller = rig.instance.poll_invoke(|_| true).expect("the call").caller;
    assert_eq!(caller.effective, user::ADMIN, "with the rights of its owner");
    assert_ne!(caller.user, user::ADMIN);
}

#[test]
fn a_connection_with_many_programs_under_way_is_paused() {
    let mut rig = Rig::with(Settings { lua: true, max_in_flight: 2, ..Settings::default() });
    let mut client = rig.connect(Trust::Admin);
    for _ in 0..2 {
        assert!(!rig.instance.is_paused(client.slot));
        rig.start_call(&mut client, "slow", &values![]);
    }
    assert!(rig.instance.is_paused(client.slot));
    let request = rig.instance.poll_invoke(|_| true).expect("the call").request;
    rig.instance.finish_invoke(request, Ok((0, &[])));
    assert!(!rig.instance.is_paused(client.slot));
}

#[test]
fn when_the_journal_fails_whoever_waits_is_told_once() {
    let mut rig = rig();
    let mut client = rig.admin();
    let fiber = fiber(&mut rig);
    call(&mut rig, &fiber, "queue.tube.t:take", &values![]).expect_err("no task");
    let sync = rig.start_call(&mut client, "slow", &values![]);
    let request = rig.instance.poll_invoke(|_| true).expect("the call").request;
    rig.instance
        .execute(user::ADMIN, &Statement::Insert { space: SPACE, tuple: &[0x91, 1] }, &mut Vec::new())
        .expect("room");
    rig.instance.push(request, &[0xc0]).expect("a connection");
    let lsn = rig.instance.awaited();
    rig.instance.handle_failed("the disk is gone");
    let replies = rig.replies(&client);
    assert_eq!(replies.len(), 1, "{replies:?}");
    assert_eq!((replies[0].sync, replies[0].answer.is_err()), (sync, true));
    assert!(rig.instance.poll_answer().expect("the fiber is told").result.is_err());
    assert!(rig.instance.is_durable(lsn).is_err());
    assert!(rig.instance.begin(user::ADMIN).is_err());
    assert!(insert(&mut rig, 2).is_err());
}
