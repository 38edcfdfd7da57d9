use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::reply;
use lycosa_iproto::request::Request;
use lycosa_tuple::value::Value;

use super::*;
use crate::client::Client;
use crate::fake_server::{Act, FakeServer, call, fail, ok};
use crate::worker::StopHandle;

const NOT_TAKEN: &str = "abstract.lua:83: Task was not taken";

/// What a scripted server does about a call that is not `take`.
type Answer = fn(name: &str, args: &[Value]) -> Result<(), &'static str>;

/// A server that hands out `tasks`, each once, and then nothing; and all calls that it got.
async fn tube_of(tasks: Vec<Value>, answer: Answer) -> (Worker, Arc<Mutex<Vec<String>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&calls);
    let tasks = Mutex::new(tasks.into_iter());
    let server = FakeServer::start(move |_, request| {
        let (name, args) = call(request);
        if name == "queue.identify" {
            return ok(request, &[Value::str([7; 16])]);
        }
        let method = name.strip_prefix("queue.tube.t:").expect("a method of the tube");
        if method == "take" {
            return ok(request, lock(&tasks).next().as_slice());
        }
        if method == "peek" {
            return ok(request, &[task(0, None)]);
        }
        lock(&written).push(format!("{method} {}", Value::Array(args.clone())));
        match answer(method, &args) {
            Ok(()) => ok(request, &[task(0, None)]),
            Err(text) => fail(request, ErrorCode::ProcLua, text) as Act,
        }
    })
    .await;
    let client = Client::connect(server.options()).await.expect("a client");
    let worker = Worker::new(client.queue().tube("t")).until_empty(Duration::from_millis(1));
    (worker, calls)
}

/// A taken task, in extended form if `info` says more of it.
fn task(id: u64, info: Option<Value>) -> Value {
    let plain = [Value::from(id), Value::from("t"), Value::from("data")];
    Value::Array(plain.into_iter().chain(info).collect())
}

fn counted(attempts: u64) -> Option<Value> {
    Some(Value::map([("attempts", attempts)]))
}

fn fine(_: &str, _: &[Value]) -> Result<(), &'static str> {
    Ok(())
}

fn texts(calls: &Mutex<Vec<String>>) -> Vec<String> {
    lock(calls).clone()
}

#[tokio::test]
async fn what_the_handler_returns_settles_the_task() {
    let tasks = (0..5).map(|id| task(id, counted(1))).collect();
    let (worker, calls) = tube_of(tasks, fine).await;
    let worker = worker.retry_delay(Duration::ZERO, Duration::ZERO);
    let summary = worker.run(|job: Job| async move {
        match job.task.id {
            0 => Ok(()),
            1 => Err(Failure::retry("no luck")),
            2 => Err(Failure::bury("never")),
            3 => Err(Failure::retry_after(Duration::from_millis(1), "busy")),
            _ => panic!("at the disco"),
        }
    });
    let summary = summary.await.expect("a summary");
    assert_eq!(summary, Summary { done: 1, failed: 4, buried: 1, ..Summary::default() });
    let expected = [
        "ack [0]",
        r#"release [1, {"reason": "no luck", "delay": 0}]"#,
        r#"bury [2, {"reason": "never"}]"#,
        r#"release [3, {"reason": "busy", "delay": 0.001}]"#,
        r#"release [4, {"reason": "the handler panicked: at the disco", "delay": 0}]"#,
    ];
    let calls: Vec<_> = texts(&calls).into_iter().filter(|call| !call.starts_with("touch")).collect();
    assert_eq!(calls, expected);
}

#[tokio::test]
async fn the_server_s_count_of_attempts_holds_and_the_worker_s_own_where_there_is_none() {
    let last = task(0, counted(2));
    let (worker, calls) = tube_of(vec![last, task(1, None), task(1, None)], fine).await;
    let worker = worker.max_attempts(2).retry_delay(Duration::ZERO, Duration::ZERO);
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&attempts);
    let summary = worker.run(move |job: Job| {
        lock(&seen).push((job.task.id, job.attempt));
        async { Err(Failure::retry("x")) }
    });
    let summary = summary.await.expect("a summary");
    assert_eq!((summary.failed, summary.buried), (3, 2));
    assert_eq!(*lock(&attempts), [(0, 2), (1, 1), (1, 2)]);
    assert_eq!(texts(&calls).iter().filter(|call| call.starts_with("bury")).count(), 2);
}

#[tokio::test]
async fn a_task_that_killed_its_workers_is_buried_unseen() {
    let last = Value::map([("attempts", Value::from(4)), ("last_error", Value::str("exit code 3"))]);
    let (worker, calls) = tube_of(vec![task(0, Some(last))], fine).await;
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ran);
    let summary = worker.max_attempts(3).run(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(()) }
    });
    let summary = summary.await.expect("a summary");
    assert_eq!(summary, Summary { failed: 1, buried: 1, ..Summary::default() });
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    let bury = texts(&calls).into_iter().find(|call| call.starts_with("bury")).expect("a burial");
    assert!(
        bury.contains("attempt 4 of at most 3: ") && bury.contains("the last reason: exit code 3"),
        "{bury}"
    );
}

#[tokio::test]
async fn a_slow_handler_s_task_is_touched_within_its_ttr() {
    let short = Value::map([("attempts", Value::from(1)), ("ttr", Value::Double(0.06))]);
    let (worker, calls) = tube_of(vec![task(0, Some(short))], fine).await;
    let written = Arc::clone(&calls);
    let summary = worker.run(move |_| {
        let calls = Arc::clone(&written);
        async move {
            while texts(&calls).iter().filter(|call| call.starts_with("touch [0, ")).count() < 3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        }
    });
    assert_eq!(summary.await.expect("a summary").done, 1);
}

#[tokio::test]
async fn a_task_that_is_lost_ends_its_handler_and_counts_as_lost() {
    let short = Value::map([("attempts", Value::from(1)), ("ttr", Value::Double(0.03))]);
    let refuse: Answer = |_, _| Err(NOT_TAKEN);
    let (worker, calls) = tube_of(vec![task(0, Some(short))], refuse).await;
    let summary = worker.run(|_| std::future::pending());
    assert_eq!(summary.await.expect("a summary"), Summary { lost: 1, ..Summary::default() });
    assert!(texts(&calls).iter().all(|call| call.starts_with("touch")), "{calls:?}");
}

#[tokio::test]
async fn an_ack_that_is_refused_is_not_counted_as_done() {
    let (worker, _) = tube_of(vec![task(0, counted(1))], |_, _| Err(NOT_TAKEN)).await;
    let summary = worker.run(|_| async { Ok(()) }).await.expect("a summary");
    assert_eq!(summary, Summary { lost: 1, ..Summary::default() });
}

/// An error whose name says that the outcome of the request is unknown.
fn outcome_unknown(request: &Request<'_>) -> Act {
    let fields = vec![("name".into(), "OUTCOME_UNKNOWN".to_owned())];
    let error = ErrorObject { fields, ..ErrorObject::client(ErrorCode::SyncRollback, "rows were lost") };
    let mut out = Vec::new();
    reply::error(&mut out, request.header.sync, 1, &error);
    Act::Send(out)
}

/// What the first ack of [`settled_at_last`] meets.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Refusal {
    OutcomeUnknown,
    ReadOnly,
    Nil,
}

/// One task of a server that refuses the first ack; `is_done`: it had done it nevertheless.
async fn settled_at_last(refusal: Refusal, is_done: bool) {
    let acks = Arc::new(AtomicUsize::new(0));
    let taken = AtomicUsize::new(0);
    let seen = Arc::clone(&acks);
    let is_unknown = refusal == Refusal::OutcomeUnknown;
    let server = FakeServer::start(move |_, request| match call(request).0.as_str() {
        "queue.identify" => ok(request, &[Value::str([7; 16])]),
        "queue.tube.t:take" => match taken.fetch_add(1, Ordering::Relaxed) {
            // Whether that has taken a task is not known either: the worker asks again.
            0 if is_unknown => outcome_unknown(request),
            count if count == usize::from(is_unknown) => ok(request, &[task(0, counted(1))]),
            _ => ok(request, &[]),
        },
        "queue.tube.t:peek" => fail(request, ErrorCode::ProcLua, "abstract.lua:1: Task 0 not found"),
        "queue.tube.t:ack" => match (seen.fetch_add(1, Ordering::Relaxed), refusal) {
            (0, Refusal::OutcomeUnknown) => outcome_unknown(request),
            (0, Refusal::ReadOnly) => fail(request, ErrorCode::Readonly, "read-only mode"),
            (0, Refusal::Nil) => ok(request, &[Value::Nil]),
            _ if is_done => fail(request, ErrorCode::ProcLua, NOT_TAKEN),
            _ => ok(request, &[task(0, None)]),
        },
        other => panic!("nobody calls {other}"),
    })
    .await;
    let client = Client::connect(server.options()).await.expect("a client");
    // The first take of a task whose outcome is unknown ends no worker, the empty one after the task does.
    let worker = Worker::new(client.queue().tube("t")).until_empty(Duration::from_millis(1));
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&runs);
    let summary = worker.run(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        async { Ok(()) }
    });
    let summary = summary.await.expect("a summary");
    assert_eq!(summary, Summary { done: 1, ..Summary::default() }, "{refusal:?}");
    assert_eq!((runs.load(Ordering::Relaxed), acks.load(Ordering::Relaxed)), (1, 2), "{refusal:?}");
}

#[tokio::test]
async fn a_task_is_settled_again_where_nobody_knows_whether_it_was() {
    settled_at_last(Refusal::OutcomeUnknown, false).await;
    settled_at_last(Refusal::OutcomeUnknown, true).await;
}

#[tokio::test]
async fn a_task_is_settled_again_while_the_master_changes() {
    settled_at_last(Refusal::ReadOnly, false).await;
    settled_at_last(Refusal::Nil, false).await;
}

#[tokio::test]
async fn a_handler_that_takes_too_long_has_failed() {
    let (worker, calls) = tube_of(vec![task(0, counted(1))], fine).await;
    let worker = worker.timeout(Duration::from_millis(5)).retry_delay(Duration::ZERO, Duration::ZERO);
    let summary = worker.run(|_| std::future::pending()).await.expect("a summary");
    assert_eq!(summary.failed, 1);
    assert_eq!(texts(&calls), [r#"release [0, {"reason": "timed out after 5ms", "delay": 0}]"#]);
}

/// Runs a worker whose only handler says when it is running, and then stops it.
async fn stopped(stop_it: fn(&StopHandle), finish: bool) -> (Summary, Vec<String>) {
    let (worker, calls) = tube_of(vec![task(0, counted(1))], fine).await;
    let stop = worker.stop_handle();
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let working = tokio::spawn(worker.run(move |_| {
        let (begun, stop) = (begun.clone(), stop.clone());
        async move {
            begun.send(stop.clone()).expect("the test waits");
            if finish { Ok(()) } else { std::future::pending().await }
        }
    }));
    stop_it(&begins.recv().await.expect("the handler runs"));
    let summary = working.await.expect("no panic").expect("a summary");
    (summary, texts(&calls))
}

#[tokio::test]
async fn finish_lets_the_handler_end_and_abort_gives_the_task_back() {
    let (summary, calls) = stopped(StopHandle::finish, true).await;
    assert_eq!((summary.done, calls), (1, vec!["ack [0]".to_owned()]));
    let (summary, calls) = stopped(StopHandle::abort, false).await;
    let expected = vec![r#"release [0, {"attempted": false}]"#.to_owned()];
    assert_eq!((summary.given_back, calls), (1, expected));
}

#[tokio::test]
async fn until_empty_waits_for_what_was_released_with_a_delay() {
    let (worker, _) = tube_of(vec![task(0, None)], fine).await;
    let delay = Duration::from_millis(150);
    let worker = worker.retry_delay(delay, delay);
    let released = Arc::new(Mutex::new(None));
    let at = Arc::clone(&released);
    let worker = worker.on_event(move |event| {
        if matches!(event, Event::Settled { .. }) {
            *lock(&at) = Some(Instant::now());
        }
    });
    worker.run(|_| async { Err(Failure::retry("x")) }).await.expect("a summary");
    let released = lock(&released).expect("it was released");
    // A lower bound: the worker may end later, never before the task could be back.
    assert!(released.elapsed() >= Duration::from_millis(100));
}

#[test]
fn a_job_of_a_task_that_was_taken_again_is_superseded() {
    let turns = Turns::default();
    let (first, other) = (JobTurn::new(&turns, 7), JobTurn::new(&turns, 8));
    assert!(!first.is_superseded());
    let second = JobTurn::new(&turns, 7);
    assert_eq!([&first, &other, &second].map(JobTurn::is_superseded), [true, false, false]);
    drop((first, other, second));
    assert!(lock(&turns).is_empty());
}

/// The worker's clock says that the delay is over, the server's does not yet.
#[tokio::test]
async fn until_empty_asks_the_server_whether_a_delay_is_over() {
    let takes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&takes);
    let states = Mutex::new(["~", "~", "r", "r"].into_iter());
    let server = FakeServer::start(move |_, request| match call(request).0.as_str() {
        "queue.identify" => ok(request, &[Value::str([7; 16])]),
        "queue.tube.t:take" => {
            let is_first = counted.fetch_add(1, Ordering::Relaxed) == 0;
            ok(request, is_first.then(|| task(0, None)).as_slice())
        }
        "queue.tube.t:peek" => {
            let state = lock(&states).next().expect("no more peeks than states");
            ok(request, &[Value::Array(vec![Value::from(0), Value::from(state), Value::from("data")])])
        }
        _ => ok(request, &[task(0, None)]),
    })
    .await;
    let client = Client::connect(server.options()).await.expect("a client");
    let worker = Worker::new(client.queue().tube("t")).until_empty(Duration::ZERO);
    let worker = worker.retry_delay(Duration::ZERO, Duration::ZERO);
    worker.run(|_| async { Err(Failure::retry("x")) }).await.expect("a summary");
    // The task, then nothing: delayed, delayed, ready, and ready again, so not for this worker.
    assert_eq!(takes.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn what_no_attempt_mends_ends_the_worker() {
    let server = FakeServer::start(|_, request| match call(request).0.as_str() {
        "queue.identify" => ok(request, &[Value::str([7; 16])]),
        _ => fail(request, ErrorCode::NoSuchProc, "Procedure 'queue.tube.t:take' is not defined"),
    })
    .await;
    let client = Client::connect(server.options()).await.expect("a client");
    let error = Worker::new(client.queue().tube("t")).jobs(3).run(|_| async { Ok(()) }).await;
    assert_eq!(error.expect_err("refused").kind(), Some(Kind::NoSuchProcedure));
}

#[test]
fn the_tail_of_a_text_keeps_whole_characters() {
    assert_eq!(tail("abc", 5), "abc");
    assert_eq!(tail("abcdef", 2), "ef");
    assert_eq!(tail("aé", 1), "");
    assert_eq!(tail("éa", 2), "a");
}

#[tokio::test]
async fn calls_with_an_unknown_outcome_are_asked_again_and_no_task_is_done_twice() {
    let (takes, acks) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let acks = Arc::new(acks);
    let written = Arc::clone(&acks);
    let server = FakeServer::start(move |_, request| {
        let (name, args) = call(request);
        match name.strip_prefix("queue.tube.t:") {
            // Of four takes the first is lost and the third arrives too early; the two between have tasks 0 and 1.
            Some("take") => match takes.fetch_add(1, Ordering::Relaxed) {
                0 => outcome_unknown(request),
                2 => fail(request, ErrorCode::Loading, "Instance bootstrap hasn't finished yet"),
                1 => ok(request, &[task(0, counted(1))]),
                3 => ok(request, &[task(1, counted(1))]),
                _ => ok(request, &[]),
            },
            Some("ack") => {
                let id = args[0].clone();
                let mut acks = lock(&written);
                acks.push(id.clone());
                let count = acks.iter().filter(|other| **other == id).count();
                match (id, count) {
                    (_, 1) => outcome_unknown(request),
                    // The ack of task 0 was done, that of task 1 was not.
                    (Value::Uint(0), _) => fail(request, ErrorCode::ProcLua, NOT_TAKEN),
                    _ => ok(request, &[task(1, None)]),
                }
            }
            Some("peek") => fail(request, ErrorCode::ProcLua, "abstract.lua:237: Task 0 not found"),
            _ => ok(request, &[Value::str([7; 16])]),
        }
    })
    .await;
    let client = Client::connect(server.options()).await.expect("a client");
    let troubles = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&troubles);
    let worker =
        Worker::new(client.queue().tube("t")).until_empty(Duration::from_millis(1)).on_event(move |event| {
            if let Event::Trouble { error } = event {
                assert!(error.is_outcome_unknown() || error.kind() == Some(Kind::Loading), "{error}");
                noted.fetch_add(1, Ordering::Relaxed);
            }
        });
    let ran = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&ran);
    let summary = worker.run(move |job: Job| {
        lock(&seen).push(job.task.id);
        async { Ok(()) }
    });
    assert_eq!(summary.await.expect("a summary"), Summary { done: 2, ..Summary::default() });
    assert_eq!((troubles.load(Ordering::Relaxed), lock(&ran).as_slice()), (2, &[0, 1][..]));
    assert_eq!(*lock(&acks), [0_u64, 0, 1, 1].map(Value::from));
}
