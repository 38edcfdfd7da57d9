//! Users of connections: log-ins and rights.

use lycosa_instance::{Settings, Trust};
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::request::{AuthTuple, Body, Sql};
use lycosa_queue::{Configuration, Queue};
use lycosa_store::{Statement, ddl};
use lycosa_tuple::value::Value;

use crate::rig::{Answer, Client, Rig, options, refused, task, values};

fn user_of(rig: &mut Rig, client: &mut Client) -> Value {
    rig.call(client, "box.session.user", &values![]).expect("a name").remove(0)
}

/// The code and text of `42`.
fn denied(text: &str) -> (ErrorCode, String) {
    (ErrorCode::AccessDenied, text.to_owned())
}

fn auth_with(rig: &mut Rig, client: &mut Client, user: &[u8], scramble: AuthTuple<'_>) -> Answer {
    rig.ask(client, &Body::Auth { user, scramble })
}

#[test]
fn a_login_is_right_or_wrong() {
    let mut rig = Rig::new();
    rig.create_user("ann", "secret");
    let mut admin = rig.admin();
    rig.call(&mut admin, "box.schema.user.create", &values!["silent"]).expect("a user");
    rig.grant("ann", "execute", "universe", "");
    let mut client = rig.stranger();

    let wrong =
        |user: &str| (ErrorCode::PasswordMismatch, format!("Incorrect password supplied for user '{user}'"));
    assert_eq!(rig.auth(&mut client, "ann", "secret"), Ok(vec![]));
    assert_eq!(user_of(&mut rig, &mut client), Value::from("ann"));
    assert_eq!(refused(rig.auth(&mut client, "ann", "guess")), wrong("ann"));
    assert_eq!(refused(rig.auth(&mut client, "bob", "secret")), wrong("bob"));
    assert_eq!(refused(rig.auth(&mut client, "public", "secret")), wrong("public"));
    assert_eq!(refused(rig.auth(&mut client, "silent", "")), wrong("silent"));
    assert_eq!(refused(rig.auth(&mut client, "admin", "")), wrong("admin"));
    assert_eq!(refused(rig.auth(&mut client, "guest", "secret")), wrong("guest"));
    assert_eq!(user_of(&mut rig, &mut client), Value::from("ann"), "a failed login changes nothing");
    assert_eq!(rig.instance.status().requests.failed_logins, 6);

    // Failures are forgotten in time, and with them the delay.
    rig.advance(600_000_000);
    let malformed = |reason: &str| (ErrorCode::InvalidMsgpack, format!("Invalid MsgPack - {reason}"));
    let answer = auth_with(&mut rig, &mut client, b"ann", AuthTuple::Empty);
    assert_eq!(refused(answer), malformed("authentication request body"));
    let answer = auth_with(&mut rig, &mut client, b"\xff", AuthTuple::Empty);
    assert_eq!(refused(answer), malformed("authentication request body"), "whoever it is");

    assert_eq!(rig.auth(&mut client, "guest", ""), Ok(vec![]));
    assert_eq!(auth_with(&mut rig, &mut client, b"guest", AuthTuple::Empty), Ok(vec![]));
    let refusal = refused(rig.call(&mut client, "box.info", &values![]));
    assert_eq!(refusal, denied("Execute access to function 'box.info' is denied for user 'guest'"));
}

/// Guesses from many connections of one address are answered at the pace of the place, and no other client waits for them.
#[test]
fn many_guessers_get_few_answers_and_lock_nobody_out() {
    let mut rig = Rig::new();
    for name in ["ann", "bob"] {
        rig.create_user(name, "secret");
    }
    let mut guessers: Vec<Client> = (0..200).map(|_| rig.stranger()).collect();
    let (mut looked_at, seconds) = (0, 20);
    for _ in 0..8 * seconds {
        for guesser in &mut guessers {
            if !rig.instance.is_paused(guesser.slot) {
                rig.send(guesser, &Body::Auth { user: b"ann", scramble: AuthTuple::ChapSha1(&[7; 20]) });
            }
        }
        rig.advance(125_000);
        rig.sync_journal();
        for guesser in &guessers {
            for reply in rig.replies(guesser) {
                let (code, text) = refused(reply.answer);
                assert_eq!(code, ErrorCode::PasswordMismatch);
                looked_at += usize::from(text.starts_with("Incorrect password"));
            }
        }
    }
    assert!((8 * seconds / 2..=20 * seconds).contains(&looked_at), "{looked_at} guesses in {seconds} s");
    let mut bob = rig.stranger();
    let (delay, answers) = slow_login(&mut rig, &mut bob, "bob", "secret");
    assert_eq!((delay, answers), (0, vec![Ok(vec![])]), "another user from the same address");
    let mut ann = rig.stranger();
    let (delay, answers) = slow_login(&mut rig, &mut ann, "ann", "secret");
    assert!(
        delay <= 4_000_000 && answers == [Ok(vec![])],
        "the same user, on a new connection: {delay} {answers:?}"
    );
}

/// Sends AUTH and a request behind it; how long their answers take, and the answers.
fn slow_login(rig: &mut Rig, client: &mut Client, user: &str, password: &str) -> (u64, Vec<Answer>) {
    let scramble = lycosa_iproto::auth::scramble(password.as_bytes(), &client.salt);
    let body = Body::Auth { user: user.as_bytes(), scramble: AuthTuple::ChapSha1(&scramble) };
    rig.send(client, &body);
    let began = rig.now;
    while rig.instance.is_paused(client.slot) {
        let due = rig.advance(0).expect("a delayed answer is a deadline");
        rig.advance(due.saturating_sub(rig.now));
    }
    rig.sync_journal();
    (rig.now - began, rig.replies(client).into_iter().map(|reply| reply.answer).collect())
}

#[test]
fn guesses_are_slowed_and_right_passwords_still_get_in() {
    let mut rig = Rig::new();
    rig.create_user("ann", "secret");
    rig.grant("ann", "execute", "universe", "");
    let mut guesser = rig.stranger();
    let mut working = rig.login("ann", "secret");
    let mut last = 0;
    for _ in 0..20 {
        let (delay, answers) = slow_login(&mut rig, &mut guesser, "ann", "guess");
        assert!(delay >= last && delay <= 2_000_000, "{delay} after {last}");
        assert_eq!(answers.len(), 1);
        last = delay;
    }
    assert_eq!(last, 2_000_000);
    let delays = (0..20).map(|_| slow_login(&mut rig, &mut guesser, "nobody", "guess").0).collect::<Vec<_>>();
    assert_eq!((delays[0], delays[19]), (0, last), "who does not exist takes as long after as many failures");
    let mut newcomer = rig.stranger();
    let (right, answers) = slow_login(&mut rig, &mut newcomer, "ann", "secret");
    assert_eq!((right, answers), (last, vec![Ok(vec![])]), "who knows it gets in, as slowly");
    assert_eq!(user_of(&mut rig, &mut newcomer), Value::from("ann"));
    assert_eq!(user_of(&mut rig, &mut working), Value::from("ann"), "who is in does not wait");
    let lines: Vec<_> = std::iter::from_fn(|| rig.instance.poll_log()).map(|line| line.text).collect();
    let told = lines.iter().filter(|line| line.starts_with("a log-in as \"ann\" from ")).count();
    assert!((10..=20).contains(&told), "{lines:?}");

    // The log names the first failures of a period and counts the rest.
    rig.advance(60_000_000);
    while rig.instance.poll_log().is_some() {}
    for _ in 0..20 {
        let mut stranger = rig.stranger();
        rig.send(&mut stranger, &Body::Auth { user: b"eve", scramble: AuthTuple::ChapSha1(&[0; 20]) });
    }
    assert_eq!(std::iter::from_fn(|| rig.instance.poll_log()).count(), 10);
    rig.advance(60_000_000);
    let lines: Vec<_> = std::iter::from_fn(|| rig.instance.poll_log()).map(|line| line.text).collect();
    assert_eq!(lines, ["10 more log-ins failed"]);

    // A connection that ends while its answer waits takes no other connection's answer with it.
    let mut gone = rig.stranger();
    let scramble = [0; 20];
    rig.send(&mut gone, &Body::Auth { user: b"ann", scramble: AuthTuple::ChapSha1(&scramble) });
    rig.disconnect(&gone);
    let next = rig.stranger();
    rig.advance(5_000_000);
    rig.sync_journal();
    assert!(rig.replies(&next).is_empty());
    assert!(!rig.instance.is_paused(next.slot));
}

#[test]
fn a_scramble_is_good_for_one_connection() {
    let mut rig = Rig::new();
    rig.create_user("ann", "secret");
    let (mut first, mut second) = (rig.stranger(), rig.stranger());
    assert_eq!(rig.auth(&mut first, "ann", "secret"), Ok(vec![]));
    // The other connection's salt makes another scramble of the same password.
    std::mem::swap(&mut first.slot, &mut second.slot);
    assert_eq!(refused(rig.auth(&mut first, "ann", "secret")).0, ErrorCode::PasswordMismatch);
}

#[test]
fn a_user_without_the_right_to_log_in() {
    let mut rig = Rig::new();
    rig.create_user("ann", "secret");
    let mut admin = rig.admin();
    rig.call(&mut admin, "box.schema.user.revoke", &values!["ann", "session", "universe"]).expect("a revoke");
    let mut client = rig.stranger();
    let refusal = refused(rig.auth(&mut client, "ann", "secret"));
    assert_eq!(refusal, denied("Session access to universe '' is denied for user 'ann'"));
}

#[test]
fn a_user_without_usage_can_only_ping() {
    let mut rig = Rig::new();
    rig.create_user("ann", "secret");
    rig.grant("ann", "read,execute", "universe", "");
    let mut ann = rig.login("ann", "secret");
    let mut admin = rig.admin();
    rig.call(&mut admin, "box.schema.user.revoke", &values!["ann", "usage", "universe"]).expect("a revoke");
    let empty = values![].encode();
    let refusal = denied("Usage access to universe '' is denied for user 'ann'");
    for body in [
        Body::Select { space: 280, index: 0, limit: 1, offset: 0, iterator: 0, key: &empty },
        Body::Call { name: b"box.info", args: &empty },
        Body::Eval { text: b"return 1", args: &empty },
        Body::Execute(Sql::Text(b"SELECT 1"), &[0x90]),
        Body::Join { instance_uuid: None },
    ] {
        assert_eq!(refused(rig.ask(&mut ann, &body)), refusal, "{body:?}");
    }
    assert_eq!(rig.ping(&mut ann), Ok(vec![]));
    assert!(rig.ask(&mut ann, &Body::Vote).is_ok());
    assert_eq!(refused(rig.ask(&mut ann, &Body::Unknown(99))).0, ErrorCode::UnknownRequestType);
}

#[test]
fn guests_on_loopback_may_use_the_queue_and_ask() {
    let mut rig = Rig::new();
    let mut guest = rig.guest();
    rig.call(&mut guest, "queue.create_tube", &values!["t", "fifo"]).expect("a tube");
    assert_eq!(rig.call(&mut guest, "queue.tube.t:put", &values!["a"]), Ok(task(0, "r", "a")));
    assert!(rig.call(&mut guest, "queue.statistics", &values![]).is_ok());
    for name in ["box.info", "box.info.memory", "box.stat", "box.stat.net", "box.slab.info", "box.cfg"] {
        assert!(rig.call(&mut guest, name, &values![]).is_ok(), "{name}");
    }
    let create = rig.call(&mut guest, "box.schema.user.create", &values!["mallory"]);
    let text = "Execute access to function 'box.schema.user.create' is denied for user 'guest'";
    assert_eq!(refused(create), denied(text));
    let space = rig.instance.store().space_by_name("t").expect("the tube's space").id();
    let refusal = refused(rig.select(&mut guest, space, 0, &values![0]));
    assert_eq!(refusal, denied("Read access to space 't' is denied for user 'guest'"));
    let refusal = refused(rig.insert(&mut guest, space, &values![5, "r", 1]));
    assert_eq!(refusal, denied("Write access to space 't' is denied for user 'guest'"));
}

#[test]
fn guests_from_elsewhere_may_not() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifo");
    let mut stranger = rig.stranger();
    for name in ["queue.tube.t:put", "queue.create_tube", "queue.nothing", "box.info", "box.cfg"] {
        let text = format!("Execute access to function '{name}' is denied for user 'guest'");
        assert_eq!(refused(rig.call(&mut stranger, name, &values!["a"])), denied(&text));
    }
    assert_eq!(rig.ping(&mut stranger), Ok(vec![]));
}

#[test]
fn the_rule_for_loopback_can_be_off() {
    let mut rig = Rig::with(Settings { guest_on_loopback: false, ..Settings::default() });
    rig.create_tube("t", "fifo");
    let mut guest = rig.guest();
    let text = "Execute access to function 'queue.tube.t:put' is denied for user 'guest'";
    assert_eq!(refused(rig.call(&mut guest, "queue.tube.t:put", &values!["a"])), denied(text));
    assert_eq!(refused(rig.call(&mut guest, "box.info", &values![])).0, ErrorCode::AccessDenied);
}

#[test]
fn the_rule_for_loopback_can_be_switched_while_connections_are_open() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifo");
    let mut guest = rig.guest();
    for name in ["queue.tube.t:put", "box.info"] {
        rig.call(&mut guest, name, &values!["a"]).expect("the rule is on");
    }
    rig.settings.guest_on_loopback = false;
    rig.instance.reconfigure(rig.settings.clone(), 256 << 20);
    for name in ["queue.tube.t:put", "box.info"] {
        let text = format!("Execute access to function '{name}' is denied for user 'guest'");
        assert_eq!(refused(rig.call(&mut guest, name, &values!["a"])), denied(&text));
    }
    rig.settings.guest_on_loopback = true;
    rig.instance.reconfigure(rig.settings.clone(), 256 << 20);
    assert!(rig.call(&mut guest, "queue.tube.t:put", &values!["a"]).is_ok());
}

#[test]
fn the_rule_for_loopback_is_for_guests() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifo");
    rig.create_user("ann", "secret");
    let mut client = rig.guest();
    rig.auth(&mut client, "ann", "secret").expect("the password is right");
    let text = "Execute access to function 'queue.tube.t:put' is denied for user 'ann'";
    assert_eq!(refused(rig.call(&mut client, "queue.tube.t:put", &values!["a"])), denied(text));
    auth_with(&mut rig, &mut client, b"guest", AuthTuple::Empty).expect("guest again");
    assert!(rig.call(&mut client, "queue.tube.t:put", &values!["a"]).is_ok());
}

#[test]
fn who_comes_over_the_operators_socket_is_admin() {
    let mut rig = Rig::new();
    let mut client = rig.connect(Trust::Admin);
    assert_eq!(user_of(&mut rig, &mut client), Value::from("admin"));
    assert!(rig.select(&mut client, 304, 0, &values![]).is_ok());
    auth_with(&mut rig, &mut client, b"guest", AuthTuple::Empty).expect("admin may become guest");
    assert_eq!(refused(rig.select(&mut client, 304, 0, &values![])).0, ErrorCode::AccessDenied);
}

#[test]
fn what_is_not_served_is_refused_after_the_rights() {
    let mut rig = Rig::new();
    let (mut admin, mut guest) = (rig.admin(), rig.guest());
    let empty = values![].encode();
    let eval = Body::Eval { text: b"return 1", args: &empty };
    let text = "Execute access to universe '' is denied for user 'guest'";
    assert_eq!(refused(rig.ask(&mut guest, &eval)), denied(text));
    assert_eq!(refused(rig.ask(&mut admin, &eval)).0, ErrorCode::Unsupported);
    for sql in [Body::Execute(Sql::Text(b"SELECT 1"), &[0x90]), Body::Prepare(Sql::Prepared(5))] {
        assert_eq!(refused(rig.ask(&mut guest, &sql)).0, ErrorCode::Unsupported);
        assert_eq!(refused(rig.ask(&mut admin, &sql)).0, ErrorCode::Unsupported);
    }
}

/// SQL costs parsing and planning before the statement's rights are known: the right to connect is not enough for it.
#[test]
fn sql_is_for_users_and_for_a_guest_with_a_right() {
    let mut rig = Rig::with(Settings { lua: true, ..Settings::default() });
    rig.create_space(600, "s", options! {});
    let mut admin = rig.admin();
    rig.call(&mut admin, "box.schema.user.create", &values!["ann", options! { password: "secret" }]).unwrap();
    let (mut guest, mut ann) = (rig.guest(), rig.login("ann", "secret"));
    let (execute, prepare) =
        (Body::Execute(Sql::Text(b"SELECT 1"), &[0x90]), Body::Prepare(Sql::Text(b"SELECT 1")));
    let text = "Execute access to sql '' is denied for user 'guest'";
    for sql in [&execute, &prepare, &Body::Execute(Sql::Prepared(5), &[0x90])] {
        assert_eq!(refused(rig.ask(&mut guest, sql)), denied(text));
    }
    assert!(rig.instance.poll_invoke(|_| true).is_none(), "no program has been asked");
    rig.send(&mut ann, &execute);
    assert!(rig.instance.poll_invoke(|_| true).is_some_and(|invoke| invoke.caller.user == ann_id(&rig)));
    rig.call(&mut admin, "box.schema.user.grant", &values!["guest", "read", "space", "s"]).unwrap();
    rig.send(&mut guest, &prepare);
    assert!(rig.instance.poll_invoke(|_| true).is_some());
}

fn ann_id(rig: &Rig) -> u32 {
    rig.instance.store().user_by_name("ann").expect("she was created").id
}

#[test]
fn replicas_need_rights_and_then_the_fields_of_their_requests() {
    let mut rig = Rig::new();
    let text = "Read access to universe '' is denied for user 'guest'";
    for replication in [
        Body::Join { instance_uuid: None },
        Body::Subscribe(lycosa_iproto::request::Subscribe::default()),
        Body::Register { instance_uuid: None, vclock: None },
    ] {
        let (mut admin, mut guest) = (rig.admin(), rig.guest());
        assert_eq!(refused(rig.ask(&mut guest, &replication)), denied(text));
        assert_eq!(refused(rig.ask(&mut admin, &replication)).0, ErrorCode::MissingRequestField);
    }
    let mut guest = rig.guest();
    assert_eq!(refused(rig.ask(&mut guest, &Body::FetchSnapshot)), denied(text));
}

#[test]
fn granted_rights_reach_as_far_as_they_say() {
    let mut rig = Rig::new();
    rig.create_space(600, "s", options! {});
    rig.create_user("ann", "secret");
    let mut ann = rig.login("ann", "secret");
    let refusal = denied("Read access to space 's' is denied for user 'ann'");
    assert_eq!(refused(rig.select(&mut ann, 600, 0, &values![])), refusal);
    rig.grant("ann", "read", "space", "s");
    assert_eq!(rig.select(&mut ann, 600, 0, &values![]), Ok(vec![]));
    let refusal = denied("Write access to space 's' is denied for user 'ann'");
    assert_eq!(refused(rig.insert(&mut ann, 600, &values![1])), refusal);
    rig.grant("ann", "write", "space", "s");
    assert_eq!(rig.insert(&mut ann, 600, &values![1]), Ok(vec![values![1]]));
    let refusal = denied("Create access to space 'own' is denied for user 'ann'");
    let row = values![700, 1, "own", "memtx", 0, options! {}, values![]];
    assert_eq!(refused(rig.insert(&mut ann, 280, &row)).0, refusal.0);
}

#[test]
fn a_user_that_was_dropped_may_do_nothing() {
    let mut rig = Rig::new();
    rig.create_space(600, "s", options! {});
    rig.create_user("ann", "secret");
    rig.grant("ann", "read,write", "space", "s");
    let (mut ann, mut admin) = (rig.login("ann", "secret"), rig.admin());
    assert_eq!(rig.insert(&mut ann, 600, &values![1]), Ok(vec![values![1]]));
    rig.call(&mut admin, "box.schema.user.drop", &values!["ann"]).expect("a drop");
    assert_eq!(refused(rig.insert(&mut ann, 600, &values![2])).0, ErrorCode::AccessDenied);
    assert_eq!(rig.ping(&mut ann), Ok(vec![]));
}

/// A user `name` who was granted the tube and is logged in.
fn with_tube(rig: &mut Rig, name: &str, tube: &str) -> Client {
    rig.create_user(name, "secret");
    let mut admin = rig.admin();
    let granted =
        rig.call(&mut admin, &format!("queue.tube.{tube}:grant"), &values![name, options! { call: true }]);
    assert_eq!(granted, Ok(vec![]));
    rig.login(name, "secret")
}

#[test]
fn a_grant_on_one_tube_reaches_nobody_else() {
    let mut rig = Rig::new();
    rig.create_tube("mail", "fifo");
    rig.create_tube("other", "fifo");
    let (mut ann, mut bob) = (with_tube(&mut rig, "ann", "mail"), with_tube(&mut rig, "bob", "other"));
    rig.call(&mut bob, "queue.tube.other:put", &values!["a"]).expect("a task");
    rig.call(&mut bob, "queue.tube.other:take", &values![0]).expect("a task");
    let session = rig.call(&mut bob, "queue.identify", &values![]).expect("a session").remove(0);
    for name in ["_queue_consumers", "_queue_taken_2", "_queue_session_ids", "_queue_shared_sessions"] {
        let space = rig.instance.store().space_by_name(name).expect("a space").id();
        let refusal = denied(&format!("Read access to space '{name}' is denied for user 'ann'"));
        assert_eq!(refused(rig.select(&mut ann, space, 0, &values![])), refusal);
        let key = values![1, 0].encode();
        let (code, text) = refused(rig.ask(&mut ann, &Body::Delete { space, index: 0, key: &key }));
        let refusal = denied(&format!("Write access to space '{name}' is denied for user 'ann'"));
        assert_eq!((code, text), refusal);
        let truncate = values![space, 1].encode();
        let answer = rig.ask(&mut ann, &Body::Replace { space: 330, tuple: &truncate });
        assert_eq!(refused(answer).0, ErrorCode::AccessDenied);
    }
    let (code, text) = refused(rig.call(&mut ann, "queue.identify", &values![session]));
    assert_eq!(code, ErrorCode::ProcLua);
    assert!(text.contains("another user"), "{text}");
    assert_eq!(rig.call(&mut bob, "queue.tube.other:ack", &values![0]), Ok(task(0, "-", "a")));
}

/// A right that went while a call waited is missed when the call is served, whichever right it was; the next call gets the task.
#[test]
fn a_call_that_waits_needs_its_right_when_it_is_served() {
    type Loss = fn(&mut Rig, &mut Client);
    let tube: Loss = |rig, admin| {
        let revoked = rig.call(admin, "queue.revoke", &values!["ann", "mail"]);
        assert_eq!(revoked, Ok(vec![true.into()]));
    };
    let function: Loss = |rig, admin| {
        for function in ["take", "put"] {
            let function = format!("queue.tube.mail:{function}");
            let arguments = values!["ann", "execute", "function", function];
            rig.call(admin, "box.schema.user.revoke", &arguments).expect("a right less");
        }
    };
    let user: Loss = |rig, admin| {
        rig.call(admin, "box.schema.user.drop", &values!["ann"]).expect("a user less");
    };
    for (lose, told) in [(tube, "Execute"), (function, "Execute"), (user, "Usage")] {
        let mut rig = Rig::new();
        rig.create_tube("mail", "fifo");
        let (mut ann, mut admin) = (with_tube(&mut rig, "ann", "mail"), rig.admin());
        let mut bob = with_tube(&mut rig, "bob", "mail");
        rig.start_call(&mut ann, "queue.tube.mail:take", &values![]);
        rig.start_call(&mut bob, "queue.tube.mail:take", &values![]);
        lose(&mut rig, &mut admin);
        assert_eq!(rig.replies(&ann), [], "the call waits on");
        rig.call(&mut admin, "queue.tube.mail:put", &values!["a"]).expect("a task");
        let (code, text) = refused(rig.replies(&ann).remove(0).answer);
        assert_eq!(code, ErrorCode::AccessDenied);
        assert!(text.starts_with(told), "{text}");
        assert_eq!(rig.replies(&bob)[0].answer, Ok(task(0, "t", "a")));
    }
}

/// A grant that comes while a call waits, and the loss of another user's, change nothing for the call.
#[test]
fn a_call_that_waits_keeps_the_right_that_it_has() {
    let mut rig = Rig::new();
    rig.create_tube("mail", "fifo");
    rig.create_user("dan", "secret");
    let (mut ann, mut admin) = (with_tube(&mut rig, "ann", "mail"), rig.admin());
    rig.call(&mut admin, "queue.grant", &values!["dan", "*"]).expect("a grant");
    let (mut guest, mut dan) = (rig.guest(), rig.login("dan", "secret"));
    for client in [&mut ann, &mut guest, &mut dan] {
        rig.start_call(client, "queue.tube.mail:take", &values![]);
    }
    with_tube(&mut rig, "bob", "mail");
    rig.call(&mut admin, "queue.revoke", &values!["bob", "mail"]).expect("a right less");
    for (id, client) in [&ann, &guest, &dan].into_iter().enumerate() {
        rig.call(&mut admin, "queue.tube.mail:put", &values!["a"]).expect("a task");
        assert_eq!(rig.replies(client)[0].answer, Ok(task(id as u64, "t", "a")));
    }
}

#[test]
fn a_grant_on_one_tube_tells_no_name_of_another() {
    let mut rig = Rig::new();
    for tube in ["alpha", "mail", "zeta"] {
        rig.create_tube(tube, "fifo");
    }
    let mut ann = with_tube(&mut rig, "ann", "mail");
    let mut admin = rig.admin();
    let [queue, mail, zeta] = ["_queue", "mail", "zeta"].map(|name| id(&rig, name));
    let names = |rows: Answer| {
        let rows = rows.expect("rows").into_iter();
        rows.map(|row| row.as_array().expect("a row")[0].as_str().expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(rig.select(&mut admin, queue, 0, &values![])).len(), 3);
    assert_eq!(names(rig.select(&mut ann, queue, 0, &values![])), ["mail"]);
    assert_eq!(names(rig.select(&mut ann, queue, 0, &values!["zeta"])), [""; 0]);
    assert_eq!(names(rig.select(&mut ann, queue, 0, &values!["mail"])), ["mail"]);
    // The rows that are left out count for no offset and no limit.
    let key = values![].encode();
    let select =
        |offset, limit| Body::Select { space: queue, index: 0, limit, offset, iterator: 2, key: &key };
    assert_eq!(names(rig.ask(&mut ann, &select(0, 1))), ["mail"]);
    assert_eq!(names(rig.ask(&mut ann, &select(1, 9))), [""; 0]);

    let statistics = rig.call(&mut ann, "queue.statistics", &values![]).expect("statistics").remove(0);
    let Value::Map(statistics) = statistics else { panic!("{statistics:?}") };
    assert_eq!(statistics.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), [Value::from("mail")]);
    let tubes = rig.call(&mut ann, "queue.tubes", &values![]).expect("tubes").remove(0);
    assert!(tubes.get("mail").is_some() && tubes.get("zeta").is_none(), "{tubes:?}");

    // Tubes and spaces cannot be found out by their numbers.
    let refusal = denied(&format!("Read access to space '{zeta}' is denied for user 'ann'"));
    assert_eq!(refused(rig.select(&mut ann, zeta, 0, &values![])), refusal);
    let refusal = denied(&format!("Write access to space '{zeta}' is denied for user 'ann'"));
    assert_eq!(refused(rig.insert(&mut ann, zeta, &values![1, "r", 1])), refusal);
    let truncate = values![zeta, 1].encode();
    let (_, text) = refused(rig.ask(&mut ann, &Body::Replace { space: 330, tuple: &truncate }));
    assert!(!text.contains("zeta"), "{text}");
    assert_eq!(rig.select(&mut ann, mail, 0, &values![]), Ok(vec![]));

    // A role, all spaces, and the end of the grant.
    rig.grant("ann", "read", "universe", "");
    assert_eq!(names(rig.select(&mut ann, queue, 0, &values![])).len(), 3);
    rig.call(&mut admin, "box.schema.user.revoke", &values!["ann", "read", "universe", ""])
        .expect("a revocation");
    rig.call(&mut admin, "box.schema.user.revoke", &values!["ann", "read,write", "space", "mail"])
        .expect("one more");
    assert_eq!(names(rig.select(&mut ann, queue, 0, &values![])), [""; 0]);
}

#[test]
fn a_queue_that_does_not_run_keeps_sessions_to_itself() {
    let mut rig = Rig::not_started(Settings::default(), &mut |store| {
        let configuration = Configuration { in_replicaset: true, ..Configuration::default() };
        let mut master = Queue::new(configuration, Box::new(|| [7; 16]));
        master.start(store, 1).expect("a queue");
        store.begin(1);
        ddl::create_user(store, "ann", Some(lycosa_iproto::auth::hash2(b"secret")), false).expect("a user");
        for name in ["_queue", "_queue_consumers", "_queue_taken_2", "_queue_shared_sessions"] {
            ddl::grant(store, "ann", "read,write", "space", name, false).expect("a grant");
        }
        let mut row = values!["other", 7, "other", "fifo", options! {}].encode();
        let queue = store.space_by_name("_queue").expect("a space").id();
        store.execute(&Statement::Insert { space: queue, tuple: &row }).expect("a tube");
        row = values!["0123456789abcdef", 0, true].encode();
        let shared = store.space_by_name("_queue_shared_sessions").expect("a space").id();
        store.execute(&Statement::Insert { space: shared, tuple: &row }).expect("a session");
        store.commit();
    });
    let mut ann = rig.login("ann", "secret");
    for name in ["_queue_consumers", "_queue_taken_2", "_queue_shared_sessions"] {
        let space = id(&rig, name);
        assert_eq!(refused(rig.select(&mut ann, space, 0, &values![])).0, ErrorCode::AccessDenied, "{name}");
    }
    let queue = id(&rig, "_queue");
    assert_eq!(rig.select(&mut ann, queue, 0, &values![]), Ok(vec![]));
}

/// The number of a space.
fn id(rig: &Rig, name: &str) -> u32 {
    rig.instance.store().space_by_name(name).expect("a space").id()
}

#[test]
fn a_right_to_a_function_reaches_the_spaces_behind_it() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifo");
    rig.create_user("ann", "secret");
    rig.create_user("eve", "secret");
    let mut admin = rig.admin();
    for function in ["queue.tube.t:put", "queue.tube.t:drop", "queue.tube.t:grant"] {
        rig.call(&mut admin, "box.schema.func.create", &values![function]).expect("a function");
        rig.grant("ann", "execute", "function", function);
    }
    rig.grant("eve", "execute", "universe", "");
    let (mut ann, mut eve) = (rig.login("ann", "secret"), rig.login("eve", "secret"));
    assert_eq!(rig.call(&mut ann, "queue.tube.t:put", &values!["a"]), Ok(task(0, "r", "a")));
    assert_eq!(
        rig.call(&mut ann, "queue.tube.t:put_many", &values![values!["b"]]).map(|list| list.len()),
        Ok(1)
    );
    // What defines and grants still needs the caller's own rights.
    for (function, arguments) in [("drop", values![]), ("grant", values!["eve"])] {
        let refusal = refused(rig.call(&mut ann, &format!("queue.tube.t:{function}"), &arguments));
        assert_eq!(refusal.0, ErrorCode::AccessDenied, "{refusal:?}");
    }
    // A right to execute everything is none to the spaces.
    let text = "Read access to space 't' is denied for user 'eve'";
    assert_eq!(refused(rig.call(&mut eve, "queue.tube.t:put", &values!["a"])), denied(text));
    // A grant counts until it is revoked.
    let gone = values!["ann", "execute", "function", "queue.tube.t:put"];
    rig.call(&mut admin, "box.schema.user.revoke", &gone).expect("a revocation");
    let text = "Execute access to function 'queue.tube.t:put' is denied for user 'ann'";
    assert_eq!(refused(rig.call(&mut ann, "queue.tube.t:put", &values!["a"])), denied(text));
}

#[test]
fn what_the_loopback_rule_allows_ends_with_the_rule() {
    let mut rig = Rig::new();
    rig.create_user("eve", "secret");
    let mut guest = rig.guest();
    rig.call(&mut guest, "queue.create_tube", &values!["t", "fifo"]).expect("the rule allows tubes");
    let before = rig.instance.store().digest();
    for method in ["grant", "grant_role"] {
        for who in ["guest", "eve", "public"] {
            let name = format!("queue.tube.t:{method}");
            let refusal = refused(rig.call(&mut guest, &name, &values![who, options! { call: true }]));
            let text = format!("Execute access to function '{name}' is denied for user 'guest'");
            assert_eq!(refusal, denied(&text));
        }
    }
    for (name, arguments) in [
        ("box.schema.user.create", values!["mallory"]),
        ("box.schema.user.passwd", values!["guess"]),
        ("box.schema.user.passwd", values!["eve", "guess"]),
        ("box.schema.user.grant", values!["guest", "super"]),
        ("box.schema.role.create", values!["mallory"]),
        ("box.schema.func.create", values!["queue.tube.t:put"]),
        ("box.cfg", values![options! { read_only: true }]),
    ] {
        assert_eq!(refused(rig.call(&mut guest, name, &arguments)).0, ErrorCode::AccessDenied, "{name}");
    }
    for (space, tuple) in [
        (304, values![50, 1, "mallory", "user", options! {}]),
        (312, values![1, 0, "universe", 0, 4]),
        (296, values![50, 0, "f", 0]),
    ] {
        assert_eq!(refused(rig.insert(&mut guest, space, &tuple)).0, ErrorCode::AccessDenied, "{space}");
    }
    assert_eq!(rig.instance.store().digest(), before);
    // A call that waits under the rule waits no longer than the rule holds.
    let sync = rig.start_call(&mut guest, "queue.tube.t:take", &values![1000]);
    let mut admin = rig.admin();
    let settings = Settings { guest_on_loopback: false, ..rig.settings.clone() };
    rig.instance.reconfigure(settings, 1 << 30);
    rig.sync_journal();
    let reply = rig.replies(&guest).remove(0);
    assert_eq!(reply.sync, sync);
    assert_eq!(refused(reply.answer), denied("Execute access to universe '' is denied for user 'guest'"));
    rig.call(&mut admin, "queue.tube.t:put", &values!["a"]).expect("a task");
    assert_eq!(rig.call(&mut admin, "queue.tube.t:take", &values![0]), Ok(task(0, "t", "a")));
    assert_eq!(refused(rig.call(&mut guest, "queue.tube.t:put", &values!["a"])).0, ErrorCode::AccessDenied);
}

#[test]
fn the_instance_s_own_row_of_cluster_stays_after_a_restart() {
    // Recovered rows do not say which of them is the instance.
    let mut rig = Rig::over(Settings::default(), &mut |store| store.set_replica_id(0));
    let mut admin = rig.admin();
    let key = values![1].encode();
    let answer = rig.ask(&mut admin, &Body::Delete { space: 320, index: 0, key: &key });
    assert_eq!(refused(answer).0, ErrorCode::LocalInstanceIdIsReadOnly);
    assert_eq!(rig.select(&mut admin, 320, 0, &values![1]).map(|rows| rows.len()), Ok(1));
}
