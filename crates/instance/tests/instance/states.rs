//! Every call of the queue in every state of an instance that has started it: RUNNING, WAITING, STARTUP, and back.
//!
//! INIT, orphans and programs are asked over sockets (`blackbox/replication/states.rs`). ENDING begins and ends inside of
//! one call, so no client can send a request in it; the log has it.

use lycosa_instance::Upstream;
use lycosa_iproto::error::ErrorCode;
use lycosa_queue::TubeMethod;
use lycosa_replication::sync::UpstreamState;
use lycosa_tuple::value::Value;

use crate::rig::{Client, Rig, SECOND, options, refused, task, values};

/// Methods that answer nothing, and not null, while the queue does not run.
const ANSWER_NOTHING: [TubeMethod; 5] = [
    TubeMethod::Touch,
    TubeMethod::Truncate,
    TubeMethod::ReleaseAll,
    TubeMethod::Grant,
    TubeMethod::GrantRole,
];

/// A rig whose only master is this much behind.
fn rig(lag: u64) -> (Rig, Client) {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifottl");
    let upstream =
        Upstream { state: UpstreamState::Following, lag, heard_at: rig.now, ..Upstream::default() };
    rig.instance.set_upstreams(vec![upstream]);
    let mut admin = rig.admin();
    assert_eq!(rig.call(&mut admin, "queue.tube.t:put", &values!["x"]), Ok(task(0, "r", "x")));
    (rig, admin)
}

fn assert_state(rig: &mut Rig, admin: &mut Client, state: &str) {
    assert_eq!(rig.call(admin, "queue.state", &values![]), Ok(vec![state.into()]));
}

/// What methods of tubes and `queue.create_tube` answer: a success that says nothing.
fn assert_quiet(rig: &mut Rig, admin: &mut Client, state: &str) {
    assert_state(rig, admin, state);
    let before = rig.call(admin, "queue.statistics", &values!["t"]).expect("statistics work in every state");
    for method in TubeMethod::ALL {
        let expected = if ANSWER_NOTHING.contains(&method) { vec![] } else { vec![Value::Nil] };
        // Arguments do not matter: nothing is looked at.
        for arguments in [values![], values![0, 1], values!["x", options! { delay: 1 }]] {
            let answer = rig.call(admin, &format!("queue.tube.t:{}", method.name()), &arguments);
            assert_eq!(answer, Ok(expected.clone()), "{} in state {state}", method.name());
        }
    }
    assert_eq!(rig.call(admin, "queue.create_tube", &values!["u", "fifo"]), Ok(vec![]), "in state {state}");
    assert_eq!(rig.call(admin, "queue.statistics", &values!["t"]), Ok(before), "nothing happened in {state}");
    assert_eq!(rig.call(admin, "queue.tube", &values!["t"]), Ok(vec![true.into()]), "in state {state}");
    assert_eq!(rig.call(admin, "queue.tube", &values!["u"]), Ok(vec![false.into()]), "in state {state}");
    let tubes = rig.call(admin, "queue.tubes", &values![]).expect("the tubes");
    assert!(format!("{tubes:?}").contains('t'), "{tubes:?} in state {state}");
    let session = rig.call(admin, "queue.identify", &values![]).expect("a session in memory");
    assert_eq!(rig.call(admin, "queue.identify", &Value::Array(session.clone())), Ok(session), "{state}");
    assert_eq!(rig.call(admin, "queue.cfg", &values![options! { ttr: 60 }]), Ok(vec![]), "in state {state}");
    let unknown = refused(rig.call(admin, "queue.tube.u:put", &values!["x"]));
    assert_eq!(unknown.0, ErrorCode::NoSuchProc, "in state {state}");
}

fn switch(rig: &mut Rig, admin: &mut Client, read_only: bool) {
    let switched = rig.call(admin, "box.cfg", &values![options! { read_only: read_only }]);
    assert_eq!(switched, Ok(vec![]));
}

fn assert_runs(rig: &mut Rig, admin: &mut Client) {
    assert_state(rig, admin, "RUNNING");
    assert_eq!(rig.call(admin, "queue.tube.t:take", &values![0]), Ok(task(0, "t", "x")));
    assert_eq!(rig.call(admin, "queue.tube.t:release", &values![0]), Ok(task(0, "r", "x")));
}

#[test]
fn only_a_running_queue_answers() {
    let (mut rig, mut admin) = rig(0);
    assert_runs(&mut rig, &mut admin);
    switch(&mut rig, &mut admin, true);
    assert_quiet(&mut rig, &mut admin, "WAITING");
    switch(&mut rig, &mut admin, false);
    assert_runs(&mut rig, &mut admin);
}

#[test]
fn startup_lasts_twice_the_lag() {
    let (mut rig, mut admin) = rig(3 * SECOND);
    switch(&mut rig, &mut admin, true);
    switch(&mut rig, &mut admin, false);
    assert_quiet(&mut rig, &mut admin, "STARTUP");
    // The instance takes writes already, its queue does not yet.
    rig.create_space(700, "s", options! {});
    rig.advance(6 * SECOND - 1);
    assert_quiet(&mut rig, &mut admin, "STARTUP");
    rig.advance(1);
    assert_runs(&mut rig, &mut admin);
}

#[test]
fn startup_ends_with_the_role() {
    let (mut rig, mut admin) = rig(3 * SECOND);
    switch(&mut rig, &mut admin, true);
    switch(&mut rig, &mut admin, false);
    assert_state(&mut rig, &mut admin, "STARTUP");
    switch(&mut rig, &mut admin, true);
    assert_quiet(&mut rig, &mut admin, "WAITING");
    rig.advance(60 * SECOND);
    assert_quiet(&mut rig, &mut admin, "WAITING");
}

#[test]
fn no_lag_is_waited_for_longer_than_20_s() {
    let (mut rig, mut admin) = rig(3600 * SECOND);
    switch(&mut rig, &mut admin, true);
    switch(&mut rig, &mut admin, false);
    rig.advance(20 * SECOND - 1);
    assert_state(&mut rig, &mut admin, "STARTUP");
    rig.advance(1);
    assert_runs(&mut rig, &mut admin);
}
