use std::sync::Mutex;

use lycosa_iproto::error::ErrorCode;

use super::*;
use crate::fake_server::{FakeServer, call, fail, ok};
use crate::payload::Payload;
use crate::queue::{QueueConfig, QueueState, StorageMode, TubeOptions, TubeType};
use crate::task::{Task, TaskState};

/// A client whose server gives these answers in turn, and the calls that it makes, as text.
async fn scripted(answers: Vec<Result<Vec<Value>, &'static str>>) -> (Client, Arc<Mutex<Vec<String>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&calls);
    let answers = Mutex::new(answers.into_iter());
    let server = FakeServer::start(move |_, request| {
        let (name, args) = call(request);
        if name == "queue.identify" {
            return ok(request, &[Value::str([7; 16])]);
        }
        written.lock().expect("not poisoned").push(format!("{name} {}", Value::Array(args)));
        match answers.lock().expect("not poisoned").next().expect("an answer is left") {
            Ok(values) => ok(request, &values),
            Err(message) => fail(request, ErrorCode::ProcLua, message),
        }
    })
    .await;
    (Client::connect(server.options()).await.expect("a client"), calls)
}

fn task(id: u64, state: &str, data: &str) -> Result<Vec<Value>, &'static str> {
    Ok(vec![Value::Array(vec![Value::from(id), Value::from(state), Value::from(data)])])
}

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[tokio::test]
async fn the_life_of_a_task() {
    let (client, calls) = scripted(vec![
        task(0, "r", "x"),
        task(1, "~", "y"),
        task(0, "t", "x"),
        task(0, "t", "x"),
        Ok(vec![]),
        task(0, "r", "x"),
        task(0, "~", "x"),
        task(0, "!", "x"),
        Ok(vec![Value::from(1)]),
        task(0, "r", "x"),
        task(0, "-", "x"),
        task(1, "-", "y"),
    ])
    .await;
    let tube = client.queue().tube("t");
    let put = tube.put("x", PutOptions::new()).await.expect("put");
    assert_eq!((put.id, put.state, put.data.as_str()), (0, TaskState::Ready, Some("x")));
    let options = PutOptions::new()
        .ttl(milliseconds(60_000))
        .ttr(milliseconds(1_500))
        .delay(milliseconds(5_000))
        .priority(3)
        .utube("u")
        .timeout(milliseconds(250))
        .replicas(2)
        .header("traceparent", "00-1");
    assert_eq!(tube.put(Value::from(true), options).await.expect("put").state, TaskState::Delayed);
    let taken = tube.take(Some(milliseconds(500))).await.expect("take").expect("a task");
    assert_eq!(taken.state, TaskState::Taken);
    taken.touch(milliseconds(10_000)).await.expect("touch");
    assert!(tube.touch(0, Duration::ZERO).await.expect("touch").is_none());
    taken.release(None).await.expect("release");
    assert_eq!(tube.release(0, Some(milliseconds(1_000))).await.expect("release").state, TaskState::Delayed);
    taken.bury().await.expect("bury");
    assert_eq!(tube.kick(5).await.expect("kick"), 1);
    assert_eq!(tube.peek(0).await.expect("peek").state, TaskState::Ready);
    taken.ack().await.expect("ack");
    assert_eq!(tube.delete(1).await.expect("delete").state, TaskState::Done);
    let expected = [
        r#"put ["x", {}]"#,
        r#"put [true, {"ttl": 60, "ttr": 1.5, "delay": 5, "timeout": 0.25, "pri": 3, "utube": "u", "replicas": 2, "headers": {"traceparent": "00-1"}}]"#,
        "take [0.5]",
        "touch [0, 10]",
        "touch [0, 0]",
        "release [0]",
        r#"release [0, {"delay": 1}]"#,
        "bury [0]",
        "kick [5]",
        "peek [0]",
        "ack [0]",
        "delete [1]",
    ];
    assert_eq!(*calls.lock().expect("not poisoned"), expected.map(|call| format!("queue.tube.t:{call}")));
}

#[tokio::test]
async fn tasks_of_a_runtime_may_share_a_tube() {
    let (client, _) =
        scripted(vec![task(0, "r", "x"), task(0, "t", "x"), task(0, "t", "x"), task(0, "-", "x")]).await;
    let tube = client.queue().tube("t");
    let life = tokio::spawn(async move {
        tube.put("x", PutOptions::new()).await?;
        let task = tube.take(None).await?.ok_or(Error::Unavailable)?;
        tube.peek(task.id).await?;
        task.ack().await
    });
    life.await.expect("no panic").expect("no error");
}

#[tokio::test]
async fn what_a_take_may_give() {
    let (client, calls) = scripted(vec![
        Ok(vec![]),
        Ok(vec![Value::Nil]),
        Ok(vec![Value::Array(vec![Value::from(0), Value::from("t")])]),
        Ok(vec![Value::from("nonsense")]),
        Ok(vec![Value::Array(vec![Value::from(5), Value::from("?"), Value::Nil, Value::from("more")])]),
    ])
    .await;
    let tube = client.queue().tube("t");
    assert!(tube.take(Some(Duration::ZERO)).await.expect("an answer").is_none());
    assert!(matches!(tube.take(None).await, Err(Error::Unavailable)));
    assert!(matches!(tube.take(None).await, Err(Error::Protocol(_))));
    assert!(matches!(tube.take(None).await, Err(Error::Protocol(_))));
    let odd = tube.take(None).await.expect("an answer").expect("a task");
    assert_eq!((odd.state, odd.data.encoded()), (TaskState::Other('?'), &[0xc0][..]));
    assert_eq!(format!("{odd:?}"), r#"Task { tube: "t", id: 5, state: Other('?'), data: null }"#);
    assert_eq!(calls.lock().expect("not poisoned")[..2], ["queue.tube.t:take [0]", "queue.tube.t:take []"]);
}

#[tokio::test]
async fn refusals() {
    let (client, _) = scripted(vec![
        Err("/usr/share/tarantool/queue/abstract.lua:83: Task was not taken"),
        Err("/usr/share/tarantool/queue/abstract.lua:237: Task 9 not found"),
        Ok(vec![Value::Nil]),
    ])
    .await;
    let tube = client.queue().tube("t");
    assert!(tube.ack(9).await.expect_err("refused").is_not_taken());
    assert!(!tube.peek(9).await.expect_err("refused").is_not_taken());
    assert!(matches!(tube.put("x", PutOptions::new()).await, Err(Error::Unavailable)));
}

#[tokio::test]
async fn batches() {
    let task =
        |id: u64, state: &str| Value::Array(vec![Value::from(id), Value::from(state), Value::from("x")]);
    let (client, calls) = scripted(vec![
        Ok(vec![Value::array([task(0, "r"), task(1, "r")])]),
        Ok(vec![Value::array([task(2, "~"), task(3, "r")])]),
        Ok(vec![Value::Nil]),
        Ok(vec![Value::array([task(0, "t"), task(1, "t")])]),
        Ok(vec![Value::Array(Vec::new())]),
        Ok(vec![]),
        Ok(vec![Value::array([task(1, "~")])]),
        Ok(vec![Value::array([task(1, "r")])]),
        Ok(vec![Value::array([task(0, "-")])]),
        Err("task 9: Task was not taken"),
    ])
    .await;
    let tube = client.queue().tube("t");
    let ids = |tasks: Vec<Task>| tasks.iter().map(|task| task.id).collect::<Vec<_>>();
    let put = tube.put_many(["a", "b"], PutOptions::new().priority(1)).await.expect("put");
    assert_eq!(ids(put), [0, 1]);
    let later = PutOptions::new().delay(milliseconds(2_000)).timeout(milliseconds(500));
    let put = tube.put_many_with([("c", later), ("d", PutOptions::new())]).await.expect("put");
    assert_eq!([put[0].state, put[1].state], [TaskState::Delayed, TaskState::Ready]);
    let full = tube.put_many(Vec::<Payload>::new(), PutOptions::new()).await;
    assert!(matches!(full, Err(Error::Unavailable)));
    let taken = tube.take_many(10, Some(milliseconds(500))).await.expect("take");
    assert_eq!((taken[1].state, taken[1].data.as_str()), (TaskState::Taken, Some("x")));
    assert_eq!(ids(taken), [0, 1]);
    assert!(tube.take_many(10, None).await.expect("take").is_empty());
    assert!(matches!(tube.take_many(1, None).await, Err(Error::Protocol(_))));
    assert_eq!(ids(tube.release_many([1], Some(milliseconds(1_000))).await.expect("release")), [1]);
    assert_eq!(ids(tube.release_many([1], None).await.expect("release")), [1]);
    assert_eq!(ids(tube.ack_many([0]).await.expect("ack")), [0]);
    assert!(tube.ack_many([0, 9]).await.expect_err("refused").is_not_taken());
    let expected = [
        r#"put_many [["a", "b"], {"pri": 1}]"#,
        r#"put_many [["c", "d"], [{"delay": 2, "timeout": 0.5}, {}]]"#,
        "put_many [[], {}]",
        "take_many [10, 0.5]",
        "take_many [10]",
        "take_many [1]",
        r#"release_many [[1], {"delay": 1}]"#,
        "release_many [[1]]",
        "ack_many [[0]]",
        "ack_many [[0, 9]]",
    ];
    assert_eq!(*calls.lock().expect("not poisoned"), expected.map(|call| format!("queue.tube.t:{call}")));
}

#[tokio::test]
async fn leases() {
    let task = |state: &str, token: &str, ends: u64| {
        let info = Value::map([("lease", Value::from(token)), ("lease_ends", Value::from(ends))]);
        Value::Array(vec![Value::from(0), Value::from(state), Value::from("x"), info])
    };
    let plain =
        |state: &str| Ok(vec![Value::Array(vec![Value::from(0), Value::from(state), Value::from("x")])]);
    let (client, calls) = scripted(vec![
        Ok(vec![task("t", "1-0-7-0f", 60)]),
        Ok(vec![]),
        Ok(vec![Value::array([task("t", "1-0-8-0f", 60)])]),
        Ok(vec![task("t", "1-0-7-0f", 90)]),
        plain("-"),
        plain("~"),
        plain("!"),
        plain("t"),
        plain("t"),
    ])
    .await;
    let tube = client.queue().tube("t");
    let span = milliseconds(60_000);
    let (taken, lease) =
        tube.take_leased(Some(milliseconds(500)), span).await.expect("take").expect("a task");
    assert_eq!((taken.data.as_str(), lease.token()), (Some("x"), "1-0-7-0f"));
    assert!(tube.take_leased(None, span).await.expect("take").is_none());
    let many = tube.take_many_leased(5, None, span).await.expect("take");
    assert_eq!(many[0].1.token(), "1-0-8-0f");
    let ends = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(90);
    assert_eq!(lease.renew(span).await.expect("renewed"), ends);
    lease.ack().await.expect("ack");
    tube.lease("1-0-8-0f").release(Some(milliseconds(1_000)), Some("later")).await.expect("release");
    lease.bury(Some("never")).await.expect("bury");
    // A server without leases.
    assert!(matches!(tube.take_leased(None, span).await, Err(Error::Protocol(_))));
    assert!(matches!(lease.renew(span).await, Err(Error::Protocol(_))));
    let expected = [
        r#"take [0.5, {"lease": 60}]"#,
        r#"take [null, {"lease": 60}]"#,
        r#"take_many [5, null, {"lease": 60}]"#,
        r#"touch ["1-0-7-0f", 60]"#,
        r#"ack ["1-0-7-0f"]"#,
        r#"release ["1-0-8-0f", {"delay": 1, "reason": "later"}]"#,
        r#"bury ["1-0-7-0f", {"reason": "never"}]"#,
        r#"take [null, {"lease": 60}]"#,
        r#"touch ["1-0-7-0f", 60]"#,
    ];
    assert_eq!(*calls.lock().expect("not poisoned"), expected.map(|call| format!("queue.tube.t:{call}")));
}

#[tokio::test]
async fn making_tubes() {
    let (client, calls) = scripted(vec![
        Err("unsupported Lua type 'function'"),
        Ok(vec![]),
        Err("…/abstract.lua:663: Space 'a' already exists"),
    ])
    .await;
    let queue = client.queue();
    let options = TubeOptions::new()
        .if_not_exists()
        .temporary()
        .ttl(milliseconds(60_000))
        .ttr(milliseconds(500))
        .priority(1)
        .capacity(100)
        .storage_mode(StorageMode::ReadyBuffer);
    assert_eq!(queue.create_tube("a", TubeType::LimFifoTtl, options).await.expect("made").name(), "a");
    queue.create_tube("b", "mine".into(), TubeOptions::new().option("x", 1)).await.expect("made");
    let error = queue.create_tube("a", TubeType::Fifo, TubeOptions::new()).await.expect_err("exists");
    assert!(error.to_string().ends_with("already exists"));
    let expected = [
        concat!(
            r#"queue.create_tube ["a", "limfifottl", {"if_not_exists": true, "temporary": true, "ttl": 60, "#,
            r#""ttr": 0.5, "pri": 1, "capacity": 100, "storage_mode": "ready_buffer"}]"#
        ),
        r#"queue.create_tube ["b", "mine", {"x": 1}]"#,
        r#"queue.create_tube ["a", "fifo", {}]"#,
    ];
    assert_eq!(*calls.lock().expect("not poisoned"), expected);
    assert_eq!(TubeType::from("utubettl"), TubeType::UtubeTtl);
    assert_eq!(TubeType::default().name(), "fifottl");
}

#[tokio::test]
async fn the_whole_queue() {
    let statistics = || {
        Value::map([("tasks", Value::map([("ready", 1), ("total", 1)])), ("calls", Value::map([("put", 1)]))])
    };
    let (client, calls) = scripted(vec![
        Ok(vec![Value::array(["a", "b"])]),
        Ok(vec![Value::map([("a", statistics())])]),
        Ok(vec![Value::Array(vec![])]),
        Ok(vec![statistics()]),
        Ok(vec![Value::from("WAITING")]),
        Ok(vec![Value::from("ASLEEP")]),
        Ok(vec![]),
        Ok(vec![]),
        Ok(vec![]),
        Ok(vec![Value::from(true)]),
        Ok(vec![]),
    ])
    .await;
    let queue = client.queue();
    let tube = queue.tube("a");
    assert_eq!(queue.tubes().await.expect("names"), ["a", "b"]);
    assert_eq!(queue.statistics().await.expect("statistics")["a"].tasks.ready, 1);
    assert!(queue.statistics().await.expect("statistics").is_empty());
    assert_eq!(tube.statistics().await.expect("statistics").calls["put"], 1);
    let state = queue.state().await.expect("a state");
    assert_eq!((state, state.to_string().as_str()), (QueueState::Waiting, "WAITING"));
    assert!(matches!(queue.state().await, Err(Error::Protocol(_))));
    queue.cfg(&QueueConfig { ttr: Some(milliseconds(500)), in_replicaset: true }).await.expect("cfg");
    tube.truncate().await.expect("truncate");
    tube.release_all().await.expect("release_all");
    tube.drop().await.expect("drop");
    tube.call_method("grant", [Value::from("me"), Value::map([("call", true)])]).await.expect("grant");
    let expected = [
        "queue.tube []",
        "queue.statistics []",
        "queue.statistics []",
        r#"queue.statistics ["a"]"#,
        "queue.state []",
        "queue.state []",
        r#"queue.cfg [{"in_replicaset": true, "ttr": 0.5}]"#,
        "queue.tube.a:truncate []",
        "queue.tube.a:release_all []",
        "queue.tube.a:drop []",
        r#"queue.tube.a:grant ["me", {"call": true}]"#,
    ];
    assert_eq!(*calls.lock().expect("not poisoned"), expected);
}

#[tokio::test]
async fn batches_with_reasons_and_whoever_holds_the_tasks() {
    let tasks = |ids: &[u64], state: &str, info: Option<Value>| {
        let task = |id: &u64| {
            let plain = [Value::from(*id), Value::from(state), Value::from("x")];
            Value::Array(plain.into_iter().chain(info.clone()).collect())
        };
        Ok(vec![Value::Array(ids.iter().map(task).collect())])
    };
    let (client, calls) = scripted(vec![
        tasks(&[0, 1], "t", Some(Value::map([("attempts", 3)]))),
        tasks(&[], "t", None),
        tasks(&[0], "r", None),
        tasks(&[0], "~", None),
        tasks(&[0, 1], "!", None),
        tasks(&[0, 1], "!", None),
        tasks(&[0, 1], "r", None),
        tasks(&[0, 1], "-", None),
        Err("task 9: Task 9 not found"),
    ])
    .await;
    let tube = client.queue().tube("t");
    let taken = tube.take_many_extended(5, Some(milliseconds(500))).await.expect("take");
    let attempts: Vec<_> = taken.iter().map(|task| task.info.as_ref().map(|info| info.attempts)).collect();
    assert_eq!(attempts, [Some(3), Some(3)]);
    assert!(tube.take_many_extended(5, None).await.expect("take").is_empty());
    tube.release_many_because([0], None, "busy").await.expect("release");
    let later = Some(milliseconds(2_000));
    let released = tube.release_many_because([0], later, "busy").await.expect("release");
    assert_eq!(released[0].state, TaskState::Delayed);
    tube.bury_many([0, 1]).await.expect("bury");
    let buried = tube.bury_many_because([0, 1], "given up").await.expect("bury");
    assert!(buried.iter().all(|task| task.state == TaskState::Buried));
    assert_eq!(tube.kick_many([0, 1]).await.expect("kick").len(), 2);
    assert_eq!(tube.delete_many([0, 1]).await.expect("delete").len(), 2);
    assert!(tube.delete_many([9]).await.is_err());
    let expected = [
        r#"take_many [5, 0.5, {"extended": true}]"#,
        r#"take_many [5, null, {"extended": true}]"#,
        r#"release_many [[0], {"reason": "busy"}]"#,
        r#"release_many [[0], {"reason": "busy", "delay": 2}]"#,
        "bury_many [[0, 1]]",
        r#"bury_many [[0, 1], {"reason": "given up"}]"#,
        "kick_many [[0, 1]]",
        "delete_many [[0, 1]]",
        "delete_many [[9]]",
    ];
    assert_eq!(*calls.lock().expect("not poisoned"), expected.map(|call| format!("queue.tube.t:{call}")));
}
