//! An instance that takes no changes.

use lycosa_instance::{Election, Forwarded, GroupMember, HANDING_OVER, MemberProgress, Upstream};
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::request::Body;
use lycosa_replication::sync::UpstreamState;
use lycosa_tuple::value::Value;

use crate::rig::{Client, Rig, SECOND, options, refused, task, values};

const SPACE: u32 = 600;
const TEXT: &str = "Can't modify data because this instance is in read-only mode.";

fn rig() -> (Rig, Client) {
    let mut rig = Rig::new();
    rig.create_space(SPACE, "s", options! {});
    rig.create_space(SPACE + 1, "temporary", options! { temporary: true });
    rig.create_tube("t", "fifo");
    let admin = rig.admin();
    (rig, admin)
}

fn switch(rig: &mut Rig, admin: &mut Client, read_only: bool) {
    let switched = rig.call(admin, "box.cfg", &values![options! { read_only: read_only }]);
    assert_eq!(switched, Ok(vec![]));
    assert_eq!(rig.instance.standing().is_read_only, read_only);
}

#[test]
fn changes_are_refused_and_reads_are_not() {
    let (mut rig, mut admin) = rig();
    rig.insert(&mut admin, SPACE, &values![1]).expect("a change");
    switch(&mut rig, &mut admin, true);
    assert_eq!(refused(rig.insert(&mut admin, SPACE, &values![2])), (ErrorCode::Readonly, TEXT.to_owned()));
    let key = values![1].encode();
    let deleted = rig.ask(&mut admin, &Body::Delete { space: SPACE, index: 0, key: &key });
    assert_eq!(refused(deleted).0, ErrorCode::Readonly);
    let created = rig.call(&mut admin, "box.schema.user.create", &values!["u"]);
    assert_eq!(refused(created), (ErrorCode::Readonly, TEXT.to_owned()));
    assert_eq!(rig.insert(&mut admin, SPACE + 1, &values![2]), Ok(vec![values![2]]));
    assert_eq!(rig.select(&mut admin, SPACE, 0, &values![1]), Ok(vec![values![1]]));
    let exists = rig.call(&mut admin, "box.schema.user.exists", &values!["guest"]);
    assert_eq!(exists, Ok(vec![true.into()]));
    switch(&mut rig, &mut admin, false);
    assert_eq!(rig.insert(&mut admin, SPACE, &values![2]), Ok(vec![values![2]]));
}

#[test]
fn a_member_of_a_group_takes_writes_by_election_alone() {
    let (mut rig, mut admin) = rig();
    let now = rig.now;
    rig.instance.join_group(now);
    rig.instance.set_read_only(false, now);
    assert!(rig.instance.standing().is_read_only, "a reload of the settings makes no leader");
    for function in ["box.ctl.promote", "box.ctl.demote"] {
        let (code, text) = refused(rig.call(&mut admin, function, &values![]));
        assert_eq!(code, ErrorCode::Unsupported);
        assert!(text.contains("lycosa cluster transfer"), "{text}");
    }
    let (code, _) = refused(rig.call(&mut admin, "box.cfg", &values![options! { read_only: false }]));
    assert_eq!(code, ErrorCode::Unsupported);
    assert!(rig.instance.standing().is_read_only);
    rig.instance.handle_leads(now);
    assert!(!rig.instance.standing().is_read_only);
    rig.instance.set_read_only(true, now);
    assert!(!rig.instance.standing().is_read_only, "the leader is what the group has decided");
}

/// The member that has passed the request on makes it again at the leader; a member that leads no more executes nothing of it.
#[test]
fn what_members_pass_on_is_refused_where_none_leads() {
    let (mut rig, mut admin) = rig();
    rig.insert(&mut admin, SPACE, &values![1]).expect("a change");
    let now = rig.now;
    rig.instance.join_group(now);
    let mut client = rig.forwarded();
    let key = values![].encode();
    let bodies = [
        Body::Call { name: b"queue.tube.t:put", args: &values!["x"].encode() },
        Body::Call { name: b"queue.tube.t:take", args: &values![0].encode() },
        Body::Call { name: b"queue.identify", args: &values![].encode() },
        Body::Select { space: SPACE, index: 0, limit: 1, offset: 0, iterator: 2, key: &key },
        Body::Ping,
        Body::Vote,
    ];
    for _ in 0..2 {
        for body in &bodies {
            let asked = rig.ask(&mut client, body);
            let error = asked.expect_err("this member does not lead");
            assert_eq!(error.name(), Some(HANDING_OVER), "{body:?}: {error:?}");
        }
        // It led in between.
        rig.instance.handle_leads(now);
        rig.instance.handle_follows(now);
    }
    rig.instance.handle_leads(now);
    let put = rig.call(&mut client, "queue.tube.t:put", &values!["x"]);
    assert_eq!(put, Ok(task(0, "r", "x")));
}

#[test]
fn a_new_leader_goes_on_with_the_time_that_the_leader_before_has_told() {
    const DAY: u64 = 86_400_000_000;
    let (mut rig, _) = rig();
    let now = rig.now;
    rig.instance.join_group(now);
    rig.instance.hear_leader_time(now - DAY, now);
    rig.instance.hear_leader_time(now + DAY, now);
    assert_eq!(rig.instance.handle_leads(now), DAY.cast_signed());
    // The caller's time is the group's from here on.
    let now = now + DAY;
    rig.instance.handle_follows(now);
    assert_eq!(rig.instance.handle_leads(now), 0);
}

#[test]
fn a_leader_is_handed_over_to_a_voter_that_answers_once_its_reply_may_leave() {
    let (mut rig, mut admin) = rig();
    let transfer = "lycosa.cluster.transfer";
    let (code, text) = refused(rig.call(&mut admin, transfer, &values![]));
    assert!(code == ErrorCode::Unsupported && text.contains("belongs to no group"), "{text}");
    let member = |node: u64, lag: u64, is_active: bool, standing| GroupMember {
        node,
        address: format!("10.0.0.{node}:3311"),
        standing,
        is_connected: true,
        progress: Some(MemberProgress { lag, is_close: lag < 1_000, is_active, awaits_snapshot: false }),
    };
    let election = |state| Election {
        state,
        node: 1,
        leader: Some(1),
        term: 4,
        voters: 4,
        behind: 0,
        forwarded: Forwarded::default(),
        members: vec![
            member(1, 0, true, "voter"),
            member(2, 0, false, "voter"),
            member(3, 7, true, "voter"),
            member(4, 2, true, "voter"),
            member(5, 0, true, "learner"),
            member(6, 5_000, true, "voter"),
        ],
    };
    rig.instance.set_election(election("leader"));
    for node in [1, 2, 5, 6, 9] {
        let (_, text) = refused(rig.call(&mut admin, transfer, &values![node]));
        assert!(text.contains(&format!("node {node} cannot lead")), "{text}");
        assert_eq!(rig.instance.poll_hand_over(), None);
    }
    let mut guest = rig.guest();
    assert_eq!(refused(rig.call(&mut guest, transfer, &values![3])).0, ErrorCode::AccessDenied);
    // Without a number: the voter that lacks the fewest entries.
    let asked = rig.call(&mut admin, transfer, &values![Value::Nil, options! { reason: "kernel" }]);
    assert_eq!(asked.expect("a successor")[0].get("successor"), Some(&Value::from(4_u64)));
    assert_eq!(rig.instance.poll_hand_over(), Some(4));
    assert_eq!(rig.instance.poll_hand_over(), None, "once");
    rig.call(&mut admin, transfer, &values![3]).expect("a successor");
    assert_eq!(rig.instance.poll_hand_over(), Some(3));
    let entries = rig.call(&mut admin, "queue.audit", &values![options! { limit: 2 }]).expect("entries");
    let first = &entries[0].as_array().expect("an array")[1];
    assert_eq!(first.get("operation").and_then(Value::as_str), Some("transfer to node 4"));
    assert_eq!(first.get("reason").and_then(Value::as_str), Some("kernel"));
    rig.instance.set_election(election("follower"));
    let (_, text) = refused(rig.call(&mut admin, transfer, &values![3]));
    assert!(text.contains("ask the leader"), "{text}");
}

#[test]
fn a_replica_names_its_master() {
    let (mut rig, mut admin) = rig();
    switch(&mut rig, &mut admin, true);
    let upstream = |peer: &str, state| Upstream { peer: peer.to_owned(), state, ..Upstream::default() };
    let myself = upstream("here:3301", UpstreamState::Myself);
    let follows = upstream("repl@there:3301", UpstreamState::Following);
    let lost = |peer| upstream(peer, UpstreamState::Disconnected);
    for (upstreams, advice) in [
        (vec![], String::new()),
        (vec![myself.clone()], String::new()),
        (vec![myself, lost("gone:3301"), follows], "its master is there:3301".to_owned()),
        (vec![lost("a:1"), lost("b:2")], "its masters are a:1, b:2".to_owned()),
    ] {
        rig.instance.set_upstreams(upstreams);
        let refusal = refused(rig.insert(&mut admin, SPACE, &values![2]));
        let advice =
            if advice.is_empty() { advice } else { format!(" This server takes no writes; {advice}") };
        assert_eq!(refusal, (ErrorCode::Readonly, format!("{TEXT}{advice}")));
    }
}

#[test]
fn the_queue_pauses_and_goes_on() {
    let (mut rig, mut admin) = rig();
    let (mut worker, mut producer) = (rig.guest(), rig.guest());
    let put = "queue.tube.t:put";
    assert_eq!(rig.call(&mut producer, put, &values!["a"]), Ok(task(0, "r", "a")));
    assert_eq!(rig.call(&mut worker, "queue.tube.t:take", &values![0]), Ok(task(0, "t", "a")));
    rig.start_call(&mut worker, "queue.tube.t:take", &values![0.5]);
    switch(&mut rig, &mut admin, true);
    assert_eq!(rig.call(&mut producer, put, &values!["b"]), Ok(vec![Value::Nil]));
    assert_eq!(rig.call(&mut admin, "queue.state", &values![]), Ok(vec!["WAITING".into()]));
    rig.advance(SECOND / 2);
    rig.sync_journal();
    assert_eq!(rig.replies(&worker)[0].answer, Ok(vec![]), "a wait ends whatever the state");
    rig.advance(2 * SECOND);
    switch(&mut rig, &mut admin, false);
    assert_eq!(rig.call(&mut admin, "queue.state", &values![]), Ok(vec!["RUNNING".into()]));
    assert_eq!(rig.call(&mut producer, put, &values!["c"]), Ok(task(1, "r", "c")));
    assert_eq!(rig.call(&mut worker, "queue.tube.t:ack", &values![0]), Ok(task(0, "-", "a")));
}

#[test]
fn the_queues_settings_are_not_changed() {
    let (mut rig, mut admin) = rig();
    switch(&mut rig, &mut admin, true);
    let replicated = values![options! { in_replicaset: true }];
    let refusal = refused(rig.call(&mut admin, "queue.cfg", &replicated));
    assert_eq!(refusal, (ErrorCode::Readonly, TEXT.to_owned()));
}

#[test]
fn the_switch_takes_a_boolean_from_who_may_write() {
    let (mut rig, mut admin) = rig();
    let refusal = refused(rig.call(&mut admin, "box.cfg", &values![options! { read_only: 1 }]));
    let text = "Incorrect value for option 'read_only': should be of type boolean";
    assert_eq!(refusal, (ErrorCode::Cfg, text.to_owned()));
    let both = options! { read_only: true, listen: 3301 };
    let refusal = refused(rig.call(&mut admin, "box.cfg", &values![both]));
    assert_eq!(refusal.0, ErrorCode::ReloadCfg);
    assert!(refusal.1.starts_with("Can't set option 'listen' dynamically"), "{}", refusal.1);
    assert!(!rig.instance.standing().is_read_only, "nothing of a wrong request is done");
    assert_eq!(refused(rig.call(&mut admin, "box.cfg", &values![1])).0, ErrorCode::ProcLua);

    let mut guest = rig.guest();
    let read_only = values![options! { read_only: true }];
    let refusal = refused(rig.call(&mut guest, "box.cfg", &read_only));
    let text = "Write access to universe '' is denied for user 'guest'";
    assert_eq!(refusal, (ErrorCode::AccessDenied, text.to_owned()));
}
