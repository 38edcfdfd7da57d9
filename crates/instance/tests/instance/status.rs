//! The status of the instance: `box.info`, `box.stat`, `box.cfg`, votes.

use lycosa_instance::{Files, FreeSpace, Settings};
use lycosa_iproto::keys::RequestType;
use lycosa_iproto::request::Body;
use lycosa_iproto::vclock::Vclock;
use lycosa_tuple::value::Value;
use uuid::Uuid;

use crate::rig::{Client, Rig, SECOND, options, refused, values};

fn one(answer: crate::rig::Answer) -> Value {
    let mut values = answer.expect("an answer");
    assert_eq!(values.len(), 1);
    values.remove(0)
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).expect("a text").to_owned()
}

#[test]
fn info() {
    let mut rig = Rig::new();
    let mut client = rig.guest();
    rig.create_space(600, "s", options! {});
    rig.now += 61 * SECOND;
    let info = one(rig.call(&mut client, "box.info", &values![]));
    assert_eq!(text(&info, "status"), "running");
    assert_eq!(text(&info, "version"), "2.6.0");
    assert_eq!(text(&info, "uuid"), "11111111-1111-1111-1111-111111111111");
    assert_eq!(text(info.get("cluster").expect("a map"), "uuid"), "22222222-2222-2222-2222-222222222222");
    assert_eq!(info.get("ro"), Some(&false.into()));
    assert_eq!(info.get("id"), Some(&1.into()));
    assert_eq!(info.get("uptime"), Some(&62.into()));
    assert_eq!(info.get("failure"), None);
    let signature = rig.instance.standing().signature;
    assert_eq!(info.get("signature"), Some(&signature.into()));
    assert_eq!(info.get("vclock"), Some(&Value::map([(1, signature)])));
    let memory = one(rig.call(&mut client, "box.info.memory", &values![]));
    assert_eq!(Some(&memory), info.get("memory"));
    assert_eq!(memory.get("limit"), Some(&(256_u64 << 20).into()));
    // The bounds of what waits for all clients and from them.
    let part = |name: &str| info.get("net").and_then(|net| net.get(name)).expect("a part").clone();
    let limits = [part("output"), part("input")].map(|part| part.get("limit").and_then(Value::as_u64));
    assert_eq!(limits[0], Some(rig.settings.max_output_total as u64));
    assert!(limits[1].is_some_and(|limit| limit > 0));
    assert_eq!(part("input").get("current"), Some(&0.into()));
    let slabs = one(rig.call(&mut client, "box.slab.info", &values![]));
    assert_eq!(slabs.get("quota_size"), memory.get("limit"));
    assert_eq!(slabs.get("arena_used"), memory.get("data"));
}

#[test]
fn requests_are_counted_by_kind() {
    let mut rig = Rig::new();
    rig.create_space(600, "s", options! {});
    let mut client = rig.admin();
    let before = rig.instance.status().requests;
    rig.insert(&mut client, 600, &values![1]).expect("a tuple");
    rig.insert(&mut client, 600, &values![1]).expect_err("a duplicate");
    rig.ping(&mut client).expect("an answer");
    let args = values![].encode();
    let call_16 = Body::Call16 { name: b"box.session.id", args: &args };
    rig.ask(&mut client, &call_16).expect("an id");
    let after = rig.instance.status().requests;
    assert_eq!(after.of(RequestType::Insert) - before.of(RequestType::Insert), 2);
    assert_eq!(after.errors - before.errors, 1);
    assert_eq!(after.total() - before.total(), 4);

    let stat = one(rig.call(&mut client, "box.stat", &values![]));
    let row = |name: &str| stat.get(name).and_then(|row| row.get("total")).and_then(Value::as_u64);
    assert_eq!(row("INSERT"), Some(after.of(RequestType::Insert)));
    assert_eq!(row("ERROR"), Some(after.errors));
    let calls = after.of(RequestType::Call) + after.of(RequestType::Call16) + 1;
    assert_eq!(row("CALL"), Some(calls));
    let insert = one(rig.call(&mut client, "box.stat", &values!["INSERT"]));
    assert_eq!(Some(&insert), stat.get("INSERT"));
    assert_eq!(one(rig.call(&mut client, "box.stat", &values!["NONE"])), Value::Nil);
    assert_eq!(refused(rig.call(&mut client, "box.stat", &values![1])).1, "Usage: box.stat([name])");

    let net = one(rig.call(&mut client, "box.stat.net", &values![]));
    let connections = net.get("CONNECTIONS").expect("a map");
    assert_eq!(connections.get("current"), Some(&1.into()));
    assert_eq!(connections.get("total"), Some(&after.connections.into()));
}

#[test]
fn the_configuration_is_shown_with_the_present_mode() {
    let mut rig = Rig::new();
    let configuration = [("listen", Value::from(3301)), ("read_only", true.into())];
    let configuration = configuration.map(|(name, value)| (name.to_owned(), value));
    rig.instance.set_configuration(configuration.into());
    let mut client = rig.guest();
    let shown = one(rig.call(&mut client, "box.cfg", &values![]));
    assert_eq!(shown, options! { listen: 3301, read_only: false });
    rig.instance.set_configuration(vec![]);
    assert_eq!(one(rig.call(&mut client, "box.cfg", &values![])), options! { read_only: false });
}

#[test]
fn who_and_which_the_connection_is() {
    let mut rig = Rig::new();
    let (mut admin, mut guest) = (rig.admin(), rig.guest());
    assert_eq!(one(rig.call(&mut admin, "box.session.user", &values![])), Value::from("admin"));
    assert_eq!(one(rig.call(&mut guest, "box.session.user", &values![])), Value::from("guest"));
    let ids = [&mut admin, &mut guest].map(|client| one(rig.call(client, "box.session.id", &values![])));
    assert_ne!(ids[0], ids[1]);
    rig.disconnect(&guest);
    let mut next = rig.guest();
    assert_eq!(next.slot, guest.slot);
    assert_ne!(one(rig.call(&mut next, "box.session.id", &values![])), ids[1], "ids are not used again");
}

#[test]
fn votes() {
    let mut rig = Rig::new();
    let mut client = rig.stranger();
    rig.send(&mut client, &Body::Vote);
    let reply = rig.instance.output(client.slot);
    let body = Value::decode(&reply[28..]).expect("a map");
    let signature = rig.instance.standing().signature;
    let vclock = Value::map([(1, signature)]);
    let ballot = Value::Map(vec![
        (1.into(), false.into()),
        (4.into(), false.into()),
        (2.into(), vclock.clone()),
        (3.into(), Value::Map(vec![])),
    ]);
    assert_eq!(body, Value::Map(vec![(0x29.into(), ballot)]));
    let length = reply.len();
    rig.instance.consume(client.slot, length);
    rig.send(&mut client, &Body::VoteDeprecated);
    let body = Value::decode(&rig.instance.output(client.slot)[28..]).expect("a map");
    assert_eq!(body, Value::Map(vec![(0x26.into(), vclock)]));
}

#[test]
fn a_ballot_says_where_the_oldest_file_begins_that_the_journal_keeps() {
    let mut rig = Rig::new();
    let mut client = rig.stranger();
    let begins: Vclock = "{1: 5, 2: 7}".parse().expect("a clock");
    rig.instance.set_checkpoint_base(12, Files { oldest: Some(begins.into()), ..Files::default() });
    rig.send(&mut client, &Body::Vote);
    let body = Value::decode(&rig.instance.output(client.slot)[28..]).expect("a map");
    let Value::Map(body) = body else { panic!("{body:?}") };
    let Value::Map(ballot) = &body[0].1 else { panic!("{body:?}") };
    let oldest = ballot.iter().find(|(known, _)| *known == 3.into()).map(|(_, oldest)| oldest);
    assert_eq!(oldest, Some(&Value::map([(1, 5_u64), (2, 7)])));
}

/// What the ballot says about replicas.
fn voted_replicas(rig: &mut Rig, client: &mut Client) -> (Option<u64>, Option<u64>) {
    let before = rig.instance.output(client.slot).len();
    rig.instance.consume(client.slot, before);
    rig.send(client, &Body::Vote);
    let body = Value::decode(&rig.instance.output(client.slot)[28..]).expect("a map");
    let Value::Map(body) = body else { panic!("{body}") };
    let Value::Map(ballot) = &body[0].1 else { panic!("{body:?}") };
    let number =
        |key: u64| ballot.iter().find(|(known, _)| *known == key.into()).and_then(|(_, n)| n.as_u64());
    (number(0x60), number(0x61))
}

#[test]
fn votes_tell_who_follows() {
    let mut alone = Rig::with(Settings { replicas_before_reply: 1, ..Settings::default() });
    let mut client = alone.stranger();
    assert_eq!(voted_replicas(&mut alone, &mut client), (Some(0), Some(1)));

    let mut rig = Rig::new();
    let mut client = rig.stranger();
    let now = rig.now;
    let [second, anonymous] = [2, 3].map(Uuid::from_u128);
    rig.instance
        .replicas_mut()
        .subscribed(anonymous, 0, &Vclock::new(), now)
        .expect("it does not follow yet");
    assert_eq!(voted_replicas(&mut rig, &mut client), (None, None), "an anonymous replica counts for nobody");
    assert_eq!(rig.instance.register_replica(second, now), Ok(2));
    rig.sync_journal();
    // A turn brings the known replicas in line with `_cluster`.
    rig.advance(1);
    assert_eq!(voted_replicas(&mut rig, &mut client), (Some(0), Some(0)));
    rig.instance.replicas_mut().subscribed(second, 2, &Vclock::new(), now).expect("it does not follow yet");
    assert_eq!(voted_replicas(&mut rig, &mut client), (Some(1), Some(0)));
    rig.instance.replicas_mut().unsubscribed(second);
    assert_eq!(voted_replicas(&mut rig, &mut client), (Some(0), Some(0)));
}

#[test]
fn an_instance_knows_whether_anyone_can_log_in() {
    let mut rig = Rig::new();
    assert!(!rig.instance.has_users());
    let mut admin = rig.admin();
    rig.call(&mut admin, "box.schema.user.create", &values!["silent"]).expect("a user");
    assert!(!rig.instance.has_users(), "without a password nobody can");
    rig.create_user("ann", "secret");
    assert!(rig.instance.has_users());
}

/// The first page has the instance, all further ones have tubes only; a caller sees the tubes that it may look at.
#[test]
fn the_status_has_the_instance_and_its_tubes() {
    let mut rig = Rig::new();
    for name in ["a", "b", "c"] {
        rig.create_tube(name, "fifo");
    }
    let mut client = rig.admin();
    rig.call(&mut client, "queue.tube.b:put", &values!["x"]).expect("a task");
    rig.call(&mut client, "queue.tube.b:ack", &values![77]).expect_err("no such task");
    let tubes = |page: &Value| {
        let names =
            page.get("tubes").and_then(Value::as_array).expect("tubes").iter().map(|tube| text(tube, "name"));
        names.collect::<Vec<_>>()
    };
    let page = one(rig.call(&mut client, "queue.status", &values![Value::map([("limit", Value::from(2))])]));
    assert_eq!(tubes(&page), ["a", "b"]);
    let instance = page.get("instance").expect("the instance");
    assert_eq!(text(instance, "state"), "running");
    let tasks = instance.get("queue").and_then(|queue| queue.get("tasks")).expect("numbers");
    assert_eq!(tasks.get("ready"), Some(&1.into()));
    let calls = instance.get("requests").and_then(|requests| requests.get("call")).expect("a type");
    let status = rig.instance.status().requests;
    assert_eq!(calls.get("total"), Some(&status.of(RequestType::Call).into()));
    assert_eq!(calls.get("errors"), Some(&1.into()));
    assert!(instance.get("received_bytes").and_then(Value::as_u64).is_some_and(|bytes| bytes > 0));
    let after = page.get("next").cloned().expect("a next page");
    let page = one(rig.call(&mut client, "queue.status", &values![Value::map([("after", after)])]));
    assert_eq!(
        (tubes(&page), page.get("next"), page.get("instance")),
        (vec!["c".to_owned()], Some(&Value::Nil), None)
    );
    let page = one(rig.call(&mut client, "queue.status", &values![Value::map([("tube", Value::from("b"))])]));
    assert_eq!((tubes(&page), page.get("instance")), (vec!["b".to_owned()], None));
    let usage = "Usage: queue.status([{after, limit, tube, history, issues}])";
    assert_eq!(
        refused(rig.call(&mut client, "queue.status", &values![Value::map([("after", Value::from("a"))])])).1,
        usage
    );
    rig.create_user("bob", "secret");
    let mut bob = rig.login("bob", "secret");
    let page = one(rig.call(&mut bob, "queue.status", &values![]));
    assert_eq!(tubes(&page), Vec::<String>::new());
    assert!(page.get("instance").is_some());
}

/// Members about the machine stand there only while it is at fault.
#[test]
fn a_short_disk_and_clocks_that_differ_are_told() {
    const SHORT: u64 = 10 << 20;
    let mut rig = Rig::new();
    let mut client = rig.admin();
    let mut told = |rig: &mut Rig, name: &str| {
        let page = one(rig.call(&mut client, "queue.status", &values![]));
        page.get("instance").expect("the instance").get(name).cloned()
    };
    for name in ["disk_short", "clock_ahead", "leader_ahead"] {
        assert_eq!(told(&mut rig, name), None, "{name}");
    }
    for (free, exhausted) in [(SHORT - 1, false), (1, true)] {
        rig.instance.handle_free_space(Some(FreeSpace::new(free, SHORT)));
        let short = [("free", free.into()), ("reserve", SHORT.into()), ("exhausted", Value::Bool(exhausted))];
        assert_eq!(told(&mut rig, "disk_short"), Some(Value::map(short)));
    }
    rig.instance.handle_free_space(None);
    assert_eq!(told(&mut rig, "disk_short"), None);
    rig.instance.set_clock_ahead(-(3600 * SECOND).cast_signed());
    assert_eq!(told(&mut rig, "clock_ahead"), Some(Value::Double(-3600.0)));
    rig.instance.join_group(rig.now);
    rig.instance.hear_leader_time(rig.now - 5 * SECOND, rig.now);
    assert_eq!(told(&mut rig, "leader_ahead"), Some(Value::Double(-5.0)));
}
