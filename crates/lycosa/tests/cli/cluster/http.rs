//! HTTP at members that do not lead: the leader makes the calls.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value as Json, json};

use super::{Group, LIMIT, lycosa, text};
use crate::http::client::{self, Answer};
use crate::support::wait_until;

/// What the log says before the address of HTTP.
const OPENED: &str = "HTTP on http://";

struct Doors {
    group: Group,
    token: String,
}

impl Doors {
    fn open(role: &str) -> Self {
        let group = Group::with(3, "", &["--http-listen", "127.0.0.1:0"]);
        assert_eq!(group.put(0, "first"), 1);
        let folder = group.members[group.leader()].folder.to_str().unwrap();
        let token = lycosa(&["token", "add", "web", "--role", role, "--tube", "*", "--data-dir", folder]);
        assert!(token.status.success(), "{}", text(&token));
        Self { token: String::from_utf8(token.stdout).unwrap().trim().to_owned(), group }
    }

    /// Starts a member again, and waits until its door is open.
    fn restart(&mut self, number: usize) {
        let opened = |group: &Group| group.log(number).matches(OPENED).count();
        let before = opened(&self.group);
        self.group.start(number);
        wait_until("the door to open", || opened(&self.group) > before);
    }

    /// Where the HTTP of a member is, since its last start.
    fn address(&self, number: usize) -> String {
        let log = self.group.log(number);
        let last = log.lines().rev().find_map(|line| line.split_once(OPENED)).unwrap().1;
        last.split([',', ' ']).next().unwrap().trim().to_owned()
    }

    fn ask(&self, number: usize, line: &str, fields: &str, body: &Json) -> Answer {
        let fields = format!("Content-Type: application/json\r\n{fields}");
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        client::ask(&self.address(number), line, &self.token, &fields, &body)
    }

    /// Waits until the probe of a member has this status. Returns its reasons.
    fn ready(&self, number: usize, status: u16) -> Vec<String> {
        let began = Instant::now();
        loop {
            let answer = self.ask(number, "GET /readyz", "", &Json::Null);
            if answer.status == status {
                let reasons = answer.json()["reasons"].as_array().unwrap().clone();
                return reasons.iter().map(|one| one["reason"].as_str().unwrap().to_owned()).collect();
            }
            assert!(began.elapsed() < LIMIT, "{answer:?}");
        }
    }

    fn put(&self, number: usize, payload: &str, fields: &str) -> Answer {
        self.ask(number, "POST /v1/tubes/mail/tasks", fields, &json!({"payload": payload}))
    }

    /// Puts at a member, again where that was refused or is not known to have happened.
    fn insist(&self, number: usize, payload: &str, fields: &str) -> Json {
        let began = Instant::now();
        loop {
            let answer = self.put(number, payload, fields);
            if answer.status == 201 {
                return answer.json();
            }
            assert!([503, 504].contains(&answer.status), "{answer:?}");
            assert!(began.elapsed() < LIMIT, "no put: {answer:?}");
        }
    }

    fn take(&self, number: usize, query: &str) -> Vec<Json> {
        let answer = self.ask(number, &format!("POST /v1/tubes/mail/take{query}"), "", &Json::Null);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["tasks"].as_array().unwrap().clone()
    }

    fn settle(&self, number: usize, task: &Json) {
        let body = json!({"acks": [task["lease"].clone()]});
        let began = Instant::now();
        // A busy machine may elect another leader meanwhile: the outcome is not known then, and settling again tells it.
        while {
            let answer = self.ask(number, "POST /v1/tubes/mail/settle", "", &body);
            assert!([200, 503, 504].contains(&answer.status), "{answer:?}");
            answer.status != 200
        } {
            assert!(began.elapsed() < LIMIT, "the task is not settled");
        }
    }

    /// Waits until a member says that this number of takes wait.
    fn until_waiting(&self, number: usize, count: u64) {
        let began = Instant::now();
        loop {
            let status = self.ask(number, "GET /v1/tubes/mail/status", "", &Json::Null).json();
            if status["waiting_takes"] == count {
                return;
            }
            assert!(began.elapsed() < LIMIT, "{count} waiting takes: {status}");
        }
    }
}

#[test]
fn every_member_serves_http() {
    let mut doors = Doors::open("operator");
    let leader = doors.group.leader();
    let (one, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let first = doors.take(one, "?max=5&lease=60");
    assert_eq!(first.len(), 1, "{first:?}");
    doors.settle(other, &first[0]);
    for number in 0..3 {
        let put = doors.put(number, &format!("task {number}"), "");
        assert_eq!(put.status, 201, "{put:?}");
    }
    let counted = |number| {
        let metrics = doors.ask(number, "GET /metrics", "", &Json::Null);
        let text = String::from_utf8(metrics.body).unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("lycosa_group_forwarded_requests_total "));
        count.unwrap().parse::<u64>().unwrap()
    };
    let began = Instant::now();
    // A member shows new counts with the next news of its group.
    while counted(one) == 0 {
        assert!(began.elapsed() < LIMIT, "the orders are not counted");
    }
    let status = doors.group.order(one, &["status"]);
    assert!(text(&status).contains("this member's clients: "), "{status:?}");
    let taken = doors.take(other, "?max=5&lease=60");
    assert_eq!(taken.len(), 3);
    taken.iter().for_each(|task| doors.settle(one, task));
    let unknown = doors.ask(one, "GET /v1/tubes/none", "", &Json::Null);
    assert_eq!((unknown.status, unknown.problem().as_str()), (404, "no-such-tube"));
    let stranger = client::ask(&doors.address(one), "GET /v1/tubes", "wrong", "", b"");
    assert_eq!((stranger.status, stranger.problem().as_str()), (401, "invalid-token"));
    // A take waits at the leader, and ends with its client.
    let address = doors.address(one);
    let line = "POST /v1/tubes/mail/take?wait=600&lease=60";
    let mut gone = TcpStream::connect(&address).unwrap();
    gone.write_all(&client::request(&address, line, &doors.token, "", b"")).unwrap();
    doors.until_waiting(leader, 1);
    drop(gone);
    doors.until_waiting(leader, 0);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| doors.take(one, "?wait=600&lease=60"));
        doors.until_waiting(other, 1);
        assert_eq!(doors.put(other, "awaited", "").status, 201);
        assert_eq!(waiting.join().unwrap()[0]["payload"], "awaited");
    });
    // A put that is repeated after a change of the leader is the same put.
    let key = "Idempotency-Key: once\r\n";
    let id = doors.insist(one, "kept", key)["id"].clone();
    doors.group.kill(leader);
    assert_eq!(doors.insist(other, "kept", key)["id"], id);
    doors.insist(one, "after", "");
    // Without a majority nothing is done, and the answer says so.
    let next = doors.group.leader();
    let last = if next == one { other } else { one };
    doors.group.kill(next);
    doors.group.until(last, "no leader is known", |status| status["leader"].is_null());
    let refused = doors.put(last, "lost", "");
    assert_eq!((refused.status, refused.problem().as_str()), (503, "unavailable"));
    assert!(refused.json()["detail"].as_str().unwrap().contains("no leader"), "{refused:?}");
}

#[test]
fn a_member_repeats_what_a_frozen_leader_has_not_answered_where_that_does_nothing() {
    let doors = Doors::open("operator");
    let attempts = |number: usize| {
        doors.group.status(number).map(|status| status["forwarded"]["repeated"].as_u64().unwrap())
    };
    let freeze = |round: usize, ask: &dyn Fn(usize) -> Answer| {
        let leader = doors.group.leader();
        let other = (leader + 1) % 3;
        // Behind this put the member keeps its connection to the leader, so the request is sent at once.
        doors.insist(other, &format!("before {round}"), &format!("Idempotency-Key: before {round}\r\n"));
        let before = attempts(other);
        doors.group.signal(leader, Signal::STOP);
        let answer = ask(other);
        let is_repeated = attempts(other) > before;
        doors.group.signal(leader, Signal::CONT);
        doors.group.until_agreed();
        (answer, is_repeated)
    };
    let began = Instant::now();
    // A busy machine may have no leader for some seconds, or another one: then the round counts for nothing.
    let asks = |status: u16, ask: &dyn Fn(usize) -> Answer| {
        for round in 0.. {
            let (answer, is_repeated) = freeze(round, ask);
            if answer.status == status && is_repeated {
                break;
            }
            assert!([status, 503, 504].contains(&answer.status) && began.elapsed() < LIMIT, "{answer:?}");
        }
    };
    asks(201, &|other| doors.put(other, "once", "Idempotency-Key: once\r\n"));
    asks(200, &|other| doors.ask(other, "GET /v1/tubes/mail/status", "", &Json::Null));
    let leader = doors.group.leader();
    let payloads = doors.group.payloads((leader + 1) % 3);
    assert_eq!(payloads.iter().filter(|payload| payload.contains("once")).count(), 1, "{payloads:?}");
}

/// Takes wait at some doors while `changes` has another member lead. Returns how often each was asked.
fn takes_wait_on(doors: &Doors, at: &[usize], payload: &str, changes: &dyn Fn()) -> Vec<usize> {
    let began = Instant::now();
    let take = |door: usize| {
        for attempt in 1.. {
            let line = "POST /v1/tubes/mail/take?wait=600&lease=60";
            let answer = doors.ask(door, line, "", &Json::Null);
            if answer.status == 200 {
                assert_eq!(answer.json()["tasks"][0]["payload"], payload, "{answer:?}");
                return attempt;
            }
            assert!([503, 504].contains(&answer.status) && began.elapsed() < LIMIT, "{answer:?}");
        }
        unreachable!("a loop without an end")
    };
    let last = *at.last().unwrap();
    thread::scope(|scope| {
        let take = &take;
        let waiting: Vec<_> = at.iter().map(|&door| scope.spawn(move || take(door))).collect();
        doors.until_waiting(last, at.len() as u64);
        changes();
        doors.until_waiting(last, at.len() as u64);
        for number in 0..at.len() {
            doors.insist(last, payload, &format!("Idempotency-Key: {payload}-{number}\r\n"));
        }
        waiting.into_iter().map(|waiting| waiting.join().unwrap()).collect()
    })
}

#[test]
fn a_take_waits_on_when_another_member_leads() {
    let mut doors = Doors::open("operator");
    doors.take(0, "?max=9&lease=60").iter().for_each(|task| doors.settle(0, task));
    let began = Instant::now();
    // A busy machine may have no leader for some seconds: takes are refused then, and the round counts for nothing.
    for round in 0.. {
        let leader = doors.group.leader();
        let other = (leader + 1) % 3;
        let hand_over = || {
            while doors.group.leader() != other {
                doors.group.order(leader, &["transfer", &(other + 1).to_string()]);
                assert!(began.elapsed() < LIMIT, "node {} does not lead", other + 1);
            }
        };
        // At the leader's own door, and at another member's.
        if takes_wait_on(&doors, &[leader, other], &format!("handed-over-{round}"), &hand_over) == [1, 1] {
            break;
        }
        assert!(began.elapsed() < LIMIT, "takes are refused");
    }
    for round in 0.. {
        let leader = doors.group.leader();
        let dies = || {
            doors.group.signal(leader, Signal::KILL);
            while doors.group.leader() == leader {
                assert!(began.elapsed() < LIMIT, "nobody leads");
            }
        };
        let asked = takes_wait_on(&doors, &[(leader + 1) % 3], &format!("killed-{round}"), &dies);
        doors.group.kill(leader);
        doors.restart(leader);
        if asked == [1] {
            break;
        }
        assert!(began.elapsed() < LIMIT, "takes are refused");
    }
}

#[test]
fn the_members_are_told_and_an_administrator_hands_over() {
    let doors = Doors::open("administrator");
    let leader = doors.group.leader();
    let other = (leader + 1) % 3;
    let began = Instant::now();
    let successor = loop {
        // Members that do not lead pass the question on, so every page shows the leader's view.
        let election = doors.ask(other, "GET /v1/info", "", &Json::Null).json()["election"].clone();
        let members = election["members"].as_array().unwrap().clone();
        assert_eq!((members.len(), &election["node"]), (3, &election["leader"]), "{election}");
        let is_whole = |member: &&Json| member["is_connected"] == true && member["standing"] == "voter";
        let follows = |member: &&Json| member["node"] != election["leader"] && member["lag"] == 0;
        if members.iter().filter(is_whole).count() == 3 && members.iter().filter(follows).count() == 2 {
            break members.iter().find(follows).unwrap()["node"].clone();
        }
        assert!(began.elapsed() < LIMIT, "{election}");
    };
    let refused = doors.ask(other, "POST /v1/cluster/transfer", "", &json!({"node": 9}));
    assert!(
        refused.status >= 400 && refused.json()["detail"].as_str().unwrap().contains("node 9 cannot lead")
    );
    let body = json!({"node": successor, "reason": "new kernel"});
    let asked = loop {
        let asked = doors.ask(other, "POST /v1/cluster/transfer", "", &body);
        // On a busy machine a member may not have answered the leader lately.
        if asked.status != 400 || began.elapsed() > LIMIT {
            break asked;
        }
    };
    assert_eq!((asked.status, asked.json()), (200, json!({"successor": successor})), "{asked:?}");
    let next = usize::try_from(successor.as_u64().unwrap()).unwrap() - 1;
    doors.group.until(next, "the successor leads", |status| status["leads"] == true);
    let entries = doors.ask(other, "GET /v1/audit?limit=1", "", &Json::Null).json()["entries"].clone();
    assert_eq!(entries[0]["operation"], format!("transfer to node {successor}"), "{entries}");
    assert_eq!(
        (&entries[0]["reason"], &entries[0]["token"]),
        (&json!("new kernel"), &json!("web")),
        "{entries}"
    );
    // The leader's own page, and another member's: the answer arrives before the leader changes.
    for is_leaders_own in [true, false, true] {
        let leader = doors.group.leader();
        let door = if is_leaders_own { leader } else { (leader + 1) % 3 };
        let successor = (leader + 2) % 3 + 1;
        let asked = loop {
            let asked = doors.ask(door, "POST /v1/cluster/transfer", "", &json!({"node": successor}));
            if asked.status != 400 || began.elapsed() > LIMIT {
                break asked;
            }
        };
        assert_eq!((asked.status, asked.json()), (200, json!({"successor": successor})), "{asked:?}");
        doors.group.until(successor - 1, "the successor leads", |status| status["leads"] == true);
    }
}

#[test]
fn a_member_is_ready_while_it_knows_the_leader() {
    let mut doors = Doors::open("operator");
    for number in 0..3 {
        assert!(doors.ready(number, 200).is_empty());
    }
    let leader = doors.group.leader();
    let (other, last) = ((leader + 1) % 3, (leader + 2) % 3);
    doors.group.kill(leader);
    doors.group.kill(other);
    assert_eq!(doors.ready(last, 503), ["no_leader"]);
    doors.restart(other);
    assert!(doors.ready(last, 200).is_empty());
}
