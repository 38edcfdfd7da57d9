//! Operators release the tasks of a session and end connections; lists name the holders of tasks.

use lycosa_instance::{Settings, Trust};
use lycosa_tuple::value::Value;

use crate::rig::{Rig, options, refused, task, values};

fn rig() -> Rig {
    let mut rig = Rig::with(Settings::default());
    rig.create_tube("t", "fifo");
    rig
}

/// Sessions as the administrator sees them.
fn sessions(rig: &mut Rig) -> Vec<Value> {
    let mut admin = rig.admin();
    let answer = rig.call(&mut admin, "queue.sessions", &values![]).expect("sessions");
    rig.disconnect(&admin);
    answer[0].get("sessions").and_then(Value::as_array).expect("an array").to_vec()
}

/// The number of the connection that holds tasks.
fn holder(rig: &mut Rig) -> u64 {
    let all = sessions(rig);
    let holds = |session: &&Value| session.get("taken_at").is_some() && session.get("lease_ends").is_none();
    let holder = all.iter().find(holds).expect("a session that holds tasks");
    let connections = holder.get("connections").and_then(Value::as_array).expect("connections");
    connections[0].get("id").and_then(Value::as_u64).expect("a number")
}

#[test]
fn all_tasks_of_a_session_are_released_and_the_session_goes_on() {
    const TASKS: u64 = 3000;
    let mut rig = rig();
    let (mut worker, mut other, mut admin) = (rig.guest(), rig.guest(), rig.admin());
    for _ in 0..TASKS {
        rig.call(&mut admin, "queue.tube.t:put", &values!["x"]).expect("a task");
    }
    rig.call(&mut other, "queue.tube.t:take", &values![0]).expect("a task");
    for _ in 1..TASKS {
        rig.call(&mut worker, "queue.tube.t:take", &values![0]).expect("a task");
    }
    let waiting = rig.start_call(&mut worker, "queue.tube.t:take", &values![60]);
    let held = |session: &Value| Some(session.get("taken")?.get("t")?.as_u64()? > 1);
    let all = sessions(&mut rig);
    let busy = all.iter().find(|session| held(session) == Some(true)).expect("the worker's session");
    let id =
        busy.get("connections").and_then(Value::as_array).unwrap()[0].get("id").unwrap().as_u64().unwrap();
    rig.now += 1;
    let release = values![id, options! {reason: "stuck"}];
    assert_eq!(rig.call(&mut admin, "lycosa.session.release", &release), Ok(vec![Value::from(true)]));
    // More than a turn may handle: the rest follows in slices.
    for _ in 0..20 {
        rig.advance(1000);
    }
    let statistics = rig.call(&mut admin, "queue.statistics", &values!["t"]).expect("statistics");
    let count = |state: &str| statistics[0].get("tasks").and_then(|tasks| tasks.get(state)?.as_u64());
    // The worker's waiting call went on, and got one of them.
    assert_eq!((count("taken"), count("ready")), (Some(2), Some(TASKS - 2)));
    let replies = rig.replies(&worker);
    assert_eq!(replies.iter().filter(|reply| reply.sync == waiting && reply.answer.is_ok()).count(), 1);
    let audit = rig.call(&mut admin, "queue.audit", &values![]).expect("entries");
    let entry = &audit[0].as_array().expect("an array")[0];
    let operation = entry.get("operation").and_then(Value::as_str).expect("an operation");
    assert!(operation.starts_with(&format!("release session of connection {id}, guest at ")), "{operation}");
    assert_eq!(entry.get("reason").and_then(Value::as_str), Some("stuck"));
    // The worker does not hold them any more.
    assert_eq!(
        refused(rig.call(&mut worker, "queue.tube.t:ack", &values![TASKS - 1])).1,
        "Task was not taken"
    );
}

#[test]
fn a_connection_is_ended_with_what_it_has_not_read() {
    let mut rig = rig();
    let (mut worker, mut admin) = (rig.guest(), rig.admin());
    rig.call(&mut admin, "queue.tube.t:put", &values!["x"]).expect("a task");
    rig.call(&mut worker, "queue.tube.t:take", &values![0]).expect("a task");
    rig.start_call(&mut worker, "queue.tube.t:put", &values!["a reply that is not read"]);
    let id = holder(&mut rig);
    let disconnect = values![id, options! {reason: "stuck"}];
    assert_eq!(rig.call(&mut admin, "lycosa.session.disconnect", &disconnect), Ok(vec![Value::from(true)]));
    let excess = rig.instance.poll_excess().expect("a connection to close");
    assert!(excess.is_dismissed && excess.slot == worker.slot);
    assert_eq!((rig.instance.pending_bytes(worker.slot), rig.instance.poll_excess()), (0, None));
    assert!(rig.instance.wants_close(worker.slot) && rig.instance.is_paused(worker.slot));
    rig.disconnect(&worker);
    assert_eq!(rig.call(&mut admin, "queue.tube.t:peek", &values![0]), Ok(task(0, "r", "x")));
}

/// Another client may have the slot when the host comes to it.
#[test]
fn a_connection_that_closes_first_is_not_ended_in_the_place_of_the_next() {
    let mut rig = rig();
    let (mut worker, mut admin) = (rig.guest(), rig.admin());
    rig.call(&mut admin, "queue.tube.t:put", &values!["x"]).expect("a task");
    rig.call(&mut worker, "queue.tube.t:take", &values![0]).expect("a task");
    let id = holder(&mut rig);
    rig.call(&mut admin, "lycosa.session.disconnect", &values![id]).expect("done");
    rig.disconnect(&worker);
    let next = rig.connect(Trust::Loopback);
    assert_eq!(next.slot, worker.slot);
    assert_eq!(rig.instance.poll_excess(), None);
    assert!(!rig.instance.wants_close(next.slot));
}

#[test]
fn only_who_may_change_everything_ends_others() {
    let mut rig = rig();
    rig.create_user("ann", "secret");
    let (mut ann, mut admin) = (rig.login("ann", "secret"), rig.admin());
    rig.grant("ann", "execute", "universe", "");
    rig.call(&mut admin, "queue.tube.t:put", &values!["x"]).expect("a task");
    rig.call(&mut admin, "queue.tube.t:take", &values![0]).expect("a task");
    let id = holder(&mut rig);
    for function in ["lycosa.session.release", "lycosa.session.disconnect"] {
        rig.call(&mut ann, function, &values![id]).expect_err("ann may execute everything, not change it");
        let (_, text) = refused(rig.call(&mut admin, function, &values![4711u64]));
        assert!(text.contains("connection 4711 does not exist"), "{text}");
        refused(rig.call(&mut admin, function, &values!["17"]));
    }
    let (_, text) = refused(rig.call(&mut admin, "lycosa.session.disconnect", &values![id]));
    assert!(text.contains("that of this call"), "{text}");
}

#[test]
fn leases_of_a_user_stand_together() {
    let mut rig = rig();
    let mut admin = rig.admin();
    for _ in 0..3 {
        rig.call(&mut admin, "queue.tube.t:put", &values!["x"]).expect("a task");
    }
    for seconds in [60u64, 30] {
        rig.call(&mut admin, "queue.tube.t:take", &values![0, options! {lease: seconds}]).expect("a task");
    }
    let all = sessions(&mut rig);
    let leased = all.iter().find(|session| session.get("lease_ends").is_some()).expect("a holder of leases");
    assert_eq!(leased.get("taken").and_then(|taken| taken.get("t")?.as_u64()), Some(2));
    assert_eq!(leased.get("user").and_then(Value::as_str), Some("admin"));
    let now = rig.now as f64 / 1e6;
    let Some(Value::Double(ends)) = leased.get("lease_ends") else { panic!("{leased:?}") };
    assert!(*ends > now + 29.0 && *ends < now + 31.0, "{ends}");
}
