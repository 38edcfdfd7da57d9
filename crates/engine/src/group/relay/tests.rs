//! A relay between a client and leaders that are played by the test.

use lycosa_iproto::repeat::CLIENT_STEP;
use lycosa_iproto::request::AuthTuple;

use super::*;

/// A client, its relay, and what the present leader was sent.
struct Rig {
    relay: Relay,
    now: Instant,
}

const GREETING: &[u8] = b"welcome";
const SESSION: &[u8] = b"a session";

fn call(sync: u64, name: &str, args: &Value) -> Vec<u8> {
    let mut frame = Vec::new();
    request::encode(&mut frame, sync, &Body::Call { name: name.as_bytes(), args: &args.encode() });
    frame
}

fn auth(sync: u64) -> Vec<u8> {
    let mut frame = Vec::new();
    request::encode(&mut frame, sync, &Body::Auth { user: b"bob", scramble: AuthTuple::ChapSha1(&[7; 20]) });
    frame
}

fn empty() -> Value {
    Value::Array(vec![])
}

fn put(sync: u64) -> Vec<u8> {
    call(sync, "queue.tube.t:put", &Value::array(["x"]))
}

fn take(sync: u64) -> Vec<u8> {
    call(sync, "queue.tube.t:take", &Value::array([10_u64]))
}

fn select(sync: u64) -> Vec<u8> {
    let mut frame = Vec::new();
    let body = Body::Select { space: 512, index: 0, limit: 1, offset: 0, iterator: 0, key: &[0x90] };
    request::encode(&mut frame, sync, &body);
    frame
}

/// The error of a leader that hands over, and the one by which its queue refuses a session meanwhile.
fn hands_over() -> ErrorObject {
    ErrorObject::client(ErrorCode::Readonly, "it hands over").with_name(HANDING_OVER)
}

fn read_only() -> ErrorObject {
    ErrorObject::client(ErrorCode::Readonly, "read-only")
}

impl Rig {
    fn new() -> Self {
        let mut names = 0;
        let new_name = move || {
            names += 1;
            [names; 16]
        };
        let relay = Relay::new(1 << 20, GREETING.to_vec(), Box::new(new_name));
        let mut rig = Self { relay, now: Instant::now() };
        rig.relay.replied(GREETING.len());
        rig.relay.begin();
        rig
    }

    /// A client that has a session, with a connection to a leader.
    fn with_session() -> Self {
        let mut rig = Self::new();
        rig.relay.take(&call(1, "queue.identify", &empty()));
        assert_eq!(rig.asked(), [1]);
        rig.answer(1, Ok(&[Value::str(SESSION)]));
        assert_eq!(rig.told(), [(1, None)]);
        rig
    }

    /// Numbers of the requests that the leader is sent now.
    fn asked(&mut self) -> Vec<u64> {
        self.requests().into_iter().map(|(sync, _)| sync).collect()
    }

    /// The same with their arguments.
    fn requests(&mut self) -> Vec<(u64, Value)> {
        self.relay.pass(self.now);
        let bytes = self.relay.output().to_vec();
        self.relay.passed(bytes.len());
        let (mut found, mut done) = (Vec::new(), 0);
        while let Ok(Split::Frame { content, consumed }) = frame::split(&bytes[done..], usize::MAX) {
            let request = request::decode(content).expect("a request");
            let args = match request.body {
                Body::Call { args, .. } => Value::decode(args).expect("arguments"),
                _ => Value::Nil,
            };
            found.push((request.header.sync, args));
            done += consumed;
        }
        found
    }

    fn answer(&mut self, sync: u64, answer: Result<&[Value], ErrorObject>) {
        let mut frame = Vec::new();
        match answer {
            Ok(values) => {
                let bytes = values.iter().flat_map(Value::encode).collect::<Vec<_>>();
                reply::ok_data(&mut frame, sync, 1, values.len() as u32, &bytes);
            }
            Err(error) => reply::error(&mut frame, sync, 1, &error),
        }
        self.relay.hear(&frame);
    }

    /// Numbers of the replies that the client reads now, with the names of their errors.
    fn told(&mut self) -> Vec<(u64, Option<String>)> {
        let bytes = self.relay.replies().to_vec();
        self.relay.replied(bytes.len());
        let (mut found, mut done) = (Vec::new(), 0);
        while let Ok(Split::Frame { content, consumed }) = frame::split(&bytes[done..], usize::MAX) {
            let reply = reply::decode(content).expect("a reply");
            let name = match reply.content {
                Content::Error(error) => Some(error.name().unwrap_or("").to_owned()),
                _ => None,
            };
            found.push((reply.sync, name));
            done += consumed;
        }
        found
    }

    fn next_leader(&mut self) {
        self.relay.lose(self.now);
        self.relay.begin();
    }
}

fn unknown(sync: u64) -> (u64, Option<String>) {
    (sync, Some(OUTCOME_UNKNOWN.to_owned()))
}

#[test]
fn a_leader_that_is_gone_leaves_outcomes_unknown_and_reads_are_made_again() {
    let mut rig = Rig::new();
    for frame in [select(1), put(2), select(3), auth(4)] {
        // Frames arrive in pieces.
        let (head, tail) = frame.split_at(3);
        rig.relay.take(head);
        rig.relay.take(tail);
    }
    assert_eq!(rig.asked(), [1, IDENTIFY, 2, 3, 4]);
    rig.answer(1, Ok(&[]));
    rig.next_leader();
    assert_eq!(rig.told(), [(1, None), unknown(2)]);
    assert_eq!(rig.asked(), [3, 4]);
    assert_eq!(rig.relay.verdict(), Verdict::Stay);
    // The relay's own request for a session is not the client's.
    assert_eq!(rig.relay.take_forwarded(), Forwarded { requests: 6, repeated: 2, unknown: 1 });
    assert_eq!(rig.relay.take_forwarded(), Forwarded::default());
}

#[test]
fn a_take_is_made_again_by_its_name_and_waits_for_the_rest_of_its_time() {
    let mut rig = Rig::new();
    rig.relay.take(&take(1));
    let named = |args: &Value| args.as_array().and_then(|args| args[1].get("request").cloned());
    let first = rig.requests().pop().expect("the take").1;
    let name = named(&first);
    assert_eq!(name, Some(Value::bin([1; 16])));
    rig.now += Duration::from_secs(4);
    rig.next_leader();
    let again = rig.requests().pop().expect("the take again").1;
    assert_eq!(named(&again), name);
    let args = again.as_array().expect("arguments");
    assert_eq!(args[0], Value::Double(6.0));
    assert!(
        args[1].get("again").and_then(Value::as_u64).is_some_and(|again| (1..CLIENT_STEP).contains(&again))
    );
}

#[test]
fn what_a_leader_refuses_that_hands_over_goes_to_the_next_one_once_all_outcomes_are_known() {
    let mut rig = Rig::with_session();
    [put(2), put(3)].iter().for_each(|frame| rig.relay.take(frame));
    assert_eq!(rig.asked(), [2, 3]);
    rig.answer(3, Err(hands_over()));
    rig.relay.take(&put(4));
    assert_eq!((rig.relay.verdict(), rig.asked()), (Verdict::Stay, vec![]), "2 is not answered");
    rig.answer(2, Ok(&[Value::from(0_u64)]));
    assert_eq!((rig.relay.verdict(), rig.told()), (Verdict::LeaveLeader, vec![(2, None)]));
    rig.next_leader();
    assert_eq!(rig.asked(), [IDENTIFY]);
    rig.answer(IDENTIFY, Ok(&[Value::str(SESSION)]));
    assert_eq!((rig.asked(), rig.told()), (vec![3, 4], vec![]));
    assert_eq!(rig.relay.take_forwarded(), Forwarded { requests: 5, repeated: 1, unknown: 0 });
}

#[test]
fn nothing_is_passed_on_before_the_leader_has_taken_the_session_up() {
    let mut rig = Rig::with_session();
    rig.next_leader();
    rig.relay.take(&put(2));
    for refusal in [read_only(), hands_over(), ErrorObject::client(ErrorCode::Loading, "it starts")] {
        assert_eq!((rig.asked(), rig.asked()), (vec![IDENTIFY], vec![]), "{refusal:?}");
        // It may lead on a moment later.
        rig.answer(IDENTIFY, Err(refusal));
        assert_eq!((rig.relay.verdict(), rig.told()), (Verdict::LeaveLeader, vec![]));
        rig.next_leader();
    }
    let asked = rig.requests();
    assert_eq!(asked, [(IDENTIFY, Value::array([Value::str(SESSION)]))]);
    rig.answer(IDENTIFY, Ok(&[Value::str(SESSION)]));
    assert_eq!((rig.relay.verdict(), rig.asked()), (Verdict::Stay, vec![2]));
}

#[test]
fn a_session_that_has_ended_makes_way_for_a_new_one() {
    let mut rig = Rig::with_session();
    rig.next_leader();
    rig.relay.take(&put(2));
    assert_eq!(rig.asked(), [IDENTIFY]);
    rig.answer(IDENTIFY, Err(ErrorObject::client(ErrorCode::ProcLua, "the session is unknown")));
    assert_eq!(rig.requests().first(), Some(&(IDENTIFY, empty())), "a new session is asked for");
    rig.answer(IDENTIFY, Ok(&[Value::str("another one")]));
    rig.answer(2, Ok(&[]));
    rig.next_leader();
    assert_eq!(rig.requests(), [(IDENTIFY, Value::array(["another one"]))]);
}

#[test]
fn a_session_that_was_refused_in_a_hand_over_is_asked_for_before_the_next_call() {
    let mut rig = Rig::new();
    rig.relay.take(&put(1));
    assert_eq!(rig.asked(), [IDENTIFY, 1]);
    rig.answer(IDENTIFY, Err(read_only()));
    // The leader goes on in between.
    rig.answer(1, Ok(&[]));
    rig.relay.take(&put(2));
    assert_eq!(rig.asked(), [IDENTIFY, 2]);
}

#[test]
fn a_log_in_is_made_again_and_ends_the_client_where_it_no_longer_holds() {
    let mut rig = Rig::new();
    rig.relay.take(&auth(1));
    assert_eq!(rig.asked(), [1]);
    rig.answer(1, Ok(&[]));
    assert_eq!(rig.told(), [(1, None)]);
    rig.next_leader();
    rig.relay.take(&put(2));
    assert_eq!(rig.asked(), [LOG_IN]);
    rig.answer(LOG_IN, Ok(&[]));
    assert_eq!((rig.asked(), rig.told()), (vec![IDENTIFY, 2], vec![]));
    rig.next_leader();
    assert_eq!((rig.told(), rig.asked()), (vec![unknown(2)], vec![LOG_IN]));
    rig.answer(LOG_IN, Err(ErrorObject::client(ErrorCode::PasswordMismatch, "no")));
    assert_eq!(rig.relay.verdict(), Verdict::EndClient);
}

#[test]
fn the_last_answers_of_a_leader_count_for_requests_that_are_not_made_again() {
    let mut rig = Rig::new();
    [put(1), take(2), put(3)].iter().for_each(|frame| rig.relay.take(frame));
    assert_eq!(rig.asked(), [IDENTIFY, 1, 2, 3]);
    let mut last = Vec::new();
    let session = Value::str(SESSION).encode();
    reply::ok_data(&mut last, IDENTIFY, 1, 1, &session);
    for sync in [1, 2] {
        reply::ok_data(&mut last, sync, 1, 0, &[]);
    }
    rig.relay.hear_last(&last);
    assert!(rig.relay.awaits_outcome(), "3 is not answered");
    rig.next_leader();
    assert_eq!(rig.told(), [(1, None), unknown(3)]);
    assert_eq!(rig.requests(), [(IDENTIFY, Value::array([Value::str(SESSION)]))]);
    rig.answer(IDENTIFY, Ok(&[Value::str(SESSION)]));
    assert_eq!(
        rig.asked(),
        [2],
        "a task that the former leader gave out has an owner, whom the next one knows"
    );
}

#[test]
fn who_waits_for_a_leader_in_vain_is_told_so() {
    let mut rig = Rig::new();
    let ping = |sync| {
        let mut frame = Vec::new();
        request::encode(&mut frame, sync, &Body::Ping);
        frame
    };
    [ping(1), put(2), ping(SIGN_OF_LIFE)].iter().for_each(|frame| rig.relay.take(frame));
    rig.relay.refuse_pings(&ErrorObject::client(ErrorCode::Loading, "no leader"));
    assert_eq!(rig.told(), [(1, Some(String::new()))]);
    assert_eq!(rig.asked(), [IDENTIFY, 2, SIGN_OF_LIFE]);
}

#[test]
fn neither_side_is_read_while_the_other_lags_behind() {
    let mut rig = Rig::new();
    let large = call(1, "f", &Value::array([Value::bin(vec![0; MAX_WAITING])]));
    rig.relay.take(&large);
    rig.relay.take(&put(2));
    assert!(!rig.relay.takes());
    assert_eq!(rig.asked(), [1], "the rest waits for the first to be taken");
    assert!(rig.relay.takes());
    rig.answer(1, Ok(&[Value::bin(vec![0; MAX_WAITING])]));
    assert!(!rig.relay.hears());
    rig.told();
    assert!(rig.relay.hears());
}
