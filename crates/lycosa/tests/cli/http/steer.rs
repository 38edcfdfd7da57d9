//! Steering and administration over HTTP.

use serde_json::{Value as Json, json};

use super::client::Door;

fn door() -> (Door, String) {
    let door = Door::open(&[]);
    door.server.ok(&["tube", "create", "mail", "--type", "utubettl"]);
    let token = door.token("boss", "administrator", "*");
    (door, token)
}

fn get(door: &Door, token: &str, path: &str) -> Json {
    let answer = door.ask(&format!("GET {path}"), token, "", b"");
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json()
}

#[test]
fn tubes_are_paused_resumed_and_explained_and_the_log_says_who() {
    let (door, token) = door();
    let put =
        json!([{"payload": 1, "utube": "a"}, {"payload": 2, "utube": "a"}, {"payload": 3, "delay": 60}]);
    assert_eq!(door.ask_json("POST /v1/tubes/mail/tasks", &token, &put).status, 201);
    let pause = json!({"reason": "repair"});
    assert_eq!(door.ask_json("POST /v1/tubes/mail/pause", &token, &pause).json(), json!({"changed": true}));
    assert_eq!(door.ask_json("POST /v1/tubes/mail/pause", &token, &pause).json(), json!({"changed": false}));
    let explained = get(&door, &token, "/v1/tubes/mail/explain?id=0");
    assert_eq!((&explained["id"], &explained["reasons"][0]["reason"]), (&json!("0"), &json!("paused")));
    assert_eq!(
        door.ask_json("POST /v1/tubes/mail/resume", &token, &json!({})).json(),
        json!({"changed": true})
    );
    assert_eq!(door.ask("POST /v1/tubes/mail/take", &token, "", b"").json()["tasks"][0]["id"], "0");
    let explained = get(&door, &token, "/v1/tubes/mail/explain?id=1");
    assert_eq!(
        (&explained["reasons"][0]["reason"], &explained["reasons"][0]["by"]),
        (&json!("blocked"), &json!("0"))
    );
    assert_eq!(get(&door, &token, "/v1/tubes/mail/explain?utube=a")["subject"], "sub_queue");
    assert_eq!(get(&door, &token, "/v1/tubes/mail/explain")["subject"], "tube");
    let both = door.ask("GET /v1/tubes/mail/explain?id=1&utube=a", &token, "", b"");
    assert_eq!(both.problem(), "malformed");
    let entries = get(&door, &token, "/v1/audit?tube=mail");
    let entries = entries["entries"].as_array().unwrap();
    let operations: Vec<_> = entries.iter().map(|entry| entry["operation"].as_str().unwrap()).collect();
    assert_eq!(operations, ["resume", "pause"]);
    assert_eq!(entries[1]["reason"], "repair");
    assert_eq!(get(&door, &token, "/v1/audit?limit=1")["entries"].as_array().unwrap().len(), 1);
}

#[test]
fn tubes_are_created_emptied_and_dropped() {
    let (door, token) = door();
    let create = |options: Json| {
        door.ask_json("PUT /v1/tubes/small", &token, &json!({"type": "limfifottl", "options": options}))
            .status
    };
    assert_eq!(create(json!({"capacity": 1})), 200);
    assert_eq!(create(json!({"capacity": 1})), 200);
    let put = || door.ask_json("POST /v1/tubes/small/tasks", &token, &json!({"payload": 1})).status;
    assert_eq!((put(), put()), (201, 429));
    assert_eq!(door.ask("POST /v1/tubes/small/truncate", &token, "", b"").status, 200);
    assert_eq!(put(), 201);
    assert_eq!(door.ask("POST /v1/tubes/small/take", &token, "", b"").status, 200);
    assert_eq!(door.ask("DELETE /v1/tubes/small", &token, "", b"").problem(), "conflict");
    assert_eq!(door.ask("POST /v1/tubes/small/truncate", &token, "", b"").status, 200);
    assert_eq!(door.ask("DELETE /v1/tubes/small", &token, "", b"").status, 200);
    assert_eq!(door.ask("GET /v1/tubes/small", &token, "", b"").problem(), "no-such-tube");
    assert_eq!(door.ask("GET /v1/tubes/small/status", &token, "", b"").problem(), "no-such-tube");
    let wrong = door.ask_json("PUT /v1/tubes/other", &token, &json!({"type": "lifo"}));
    assert_eq!((wrong.status, wrong.problem().as_str()), (400, "refused"));
}

#[test]
fn the_server_is_looked_at_and_its_role_changed() {
    let (door, token) = door();
    assert_eq!(get(&door, &token, "/v1/info")["ro"], false);
    assert_eq!(get(&door, &token, "/v1/status?limit=1&history=true")["tubes"][0]["name"], "mail");
    assert_eq!(get(&door, &token, "/v1/tubes/mail/status")["name"], "mail");
    let overview = get(&door, &token, "/v1/overview");
    assert_eq!((&overview["faulty"], &overview["tubes"]), (&json!(0), &json!([])));
    assert_eq!(
        (&overview["info"]["ro"], &overview["instance"]["queue"]["tubes"]),
        (&json!(false), &json!(1))
    );
    assert!(overview["instance"]["queue"]["history"].is_object(), "{overview}");
    assert!(get(&door, &token, "/v1/sessions")["sessions"].is_array());
    let snapshot = door.ask("POST /v1/checkpoint", &token, "", b"");
    assert_eq!((snapshot.status, snapshot.json()["last"].is_object()), (200, true));
    let expire = json!({"space": "mail", "options": {"field": 1, "dry": true}});
    assert_eq!(door.ask_json("PUT /v1/expiration/old", &token, &expire).status, 400);
    assert!(
        get(&door, &token, "/v1/expiration")["statistics"].is_object()
            || get(&door, &token, "/v1/expiration")["statistics"].is_array()
    );
    assert_eq!(door.ask("POST /v1/demote", &token, "", b"").json()["read_only"], true);
    let put = || door.ask_json("POST /v1/tubes/mail/tasks", &token, &json!({"payload": 1}));
    assert_eq!((put().status, put().problem().as_str()), (503, "read-only"));
    assert_eq!(door.ask("POST /v1/tubes/mail/take", &token, "", b"").problem(), "read-only");
    assert_eq!(door.ask("POST /v1/promote", &token, "", b"").json()["read_only"], false);
    assert_eq!(put().status, 201);
}

#[test]
fn an_administrator_makes_and_revokes_tokens() {
    let (door, token) = door();
    let new = json!({"name": "page", "role": "viewer", "tubes": ["mail"], "ttl": 3600});
    let made = door.ask_json("POST /v1/tokens", &token, &new);
    assert_eq!(made.status, 201);
    let secret = made.json()["secret"].as_str().unwrap().to_owned();
    assert_eq!(door.ask("GET /v1/tubes", &secret, "", b"").status, 200);
    assert_eq!(door.ask("GET /v1/tokens", &secret, "", b"").problem(), "forbidden");
    assert_eq!(door.ask_json("POST /v1/tokens", &secret, &new).problem(), "forbidden");
    assert_eq!(door.ask_json("POST /v1/tokens", &token, &new).problem(), "conflict");
    let listed = get(&door, &token, "/v1/tokens");
    assert_eq!(listed["tokens"].as_array().unwrap().len(), 2);
    assert!(!listed.to_string().contains(&secret));
    assert_eq!(door.ask("DELETE /v1/tokens/page", &token, "", b"").status, 200);
    assert_eq!(door.ask("GET /v1/tubes", &secret, "", b"").problem(), "invalid-token");
    assert_eq!(door.ask("DELETE /v1/tokens/page", &token, "", b"").problem(), "no-such-token");
}

#[test]
fn tasks_are_found_and_all_that_match_are_changed_and_brought_back() {
    let (door, token) = door();
    let put: Vec<Json> = (0..5).map(|number| json!({"payload": {"n": number}, "delay": 600})).collect();
    assert_eq!(door.ask_json("POST /v1/tubes/mail/tasks", &token, &put.into()).status, 201);
    let find = |body: Json| door.ask_json("POST /v1/tubes/mail/find", &token, &body).json();
    let page = find(json!({"filter": {"field": "n", "equals": 3}}));
    assert_eq!((&page["tasks"][0]["id"], &page["tasks"][0]["payload"]), (&json!("3"), &json!({"n": 3})));
    let first = find(json!({"limit": 2}));
    assert_eq!(first["tasks"].as_array().unwrap().len(), 2);
    let next = find(json!({"limit": 2, "cursor": first["cursor"]}));
    assert_eq!(next["tasks"][0]["id"], "2");
    let begin = |job: &Json| door.ask_json("POST /v1/tubes/mail/jobs", &token, job);
    let done = |job: &Json| {
        let path = format!("/v1/tubes/mail/jobs/{}", job["id"]);
        let mut last = Json::Null;
        crate::support::wait_until("the job to be done", || {
            last = get(&door, &token, &path);
            last["state"] == "done"
        });
        last
    };
    assert_eq!(begin(&json!({"operation": "delete", "filter": {}})).status, 400);
    assert_eq!(begin(&json!({"operation": "count", "filter": {}, "pri": 1})).status, 400);
    let filter = json!({"id_from": "1", "id_to": "3"});
    let counted = begin(&json!({"operation": "count", "filter": filter}));
    assert_eq!((counted.status, done(&counted.json())["matched"].as_u64()), (202, Some(3)));
    // A count is no dry run of a deletion.
    for counted in [Json::Null, counted.json()["id"].clone()] {
        let job = json!({"operation": "delete", "filter": filter, "counted": counted});
        assert_eq!(begin(&job).status, 400);
    }
    let dry = begin(&json!({"operation": "delete", "filter": filter, "dry_run": true})).json();
    assert_eq!(done(&dry)["matched"], 3);
    let job = json!({"operation": "delete", "filter": filter, "counted": dry["id"], "reason": "spam"});
    let job = begin(&job).json();
    assert_eq!(done(&job)["changed"], 3);
    let total = || get(&door, &token, "/v1/tubes/mail")["tasks"]["total"].as_u64();
    assert_eq!(total(), Some(2));
    let path = format!("POST /v1/tubes/mail/jobs/{}/undo", job["id"]);
    let undo = door.ask_json(&path, &token, &json!({})).json();
    assert_eq!(done(&undo)["undone"], 3);
    assert_eq!(total(), Some(5));
    assert_eq!(get(&door, &token, "/v1/tubes/mail/jobs")["jobs"].as_array().unwrap().len(), 4);
    let schedule = json!({"operation": "reschedule", "filter": {"all": true}, "delay": 0.5, "pri": u64::MAX});
    let schedule = begin(&schedule).json();
    let done_schedule = done(&schedule);
    assert_eq!((&done_schedule["delay"], &done_schedule["pri"]), (&json!(0.5), &json!(u64::MAX)));
    assert_eq!(done_schedule["changed"], 5);
    let refused = begin(&json!({"operation": "reschedule", "filter": {"all": true}, "delay": -1}));
    assert_eq!(refused.status, 400);
    let path = format!("POST /v1/tubes/mail/jobs/{}/control", job["id"]);
    assert_eq!(door.ask_json(&path, &token, &json!({"action": "explode"})).status, 400);
}

/// A client that waits over the binary protocol: its session is released and its connection ended, by HTTP and by the command.
#[test]
fn sessions_are_released_and_connections_ended() {
    let (door, token) = door();
    let viewer = door.token("viewer", "viewer", "*");
    let operator = door.token("operator", "operator", "*");
    let connection = |door: &Door| {
        let sessions = get(door, &token, "/v1/sessions");
        let sessions = sessions["sessions"].as_array().unwrap().clone();
        let waiting = sessions.into_iter().find(|one| one["connections"][0]["address"].is_string())?;
        waiting["connections"][0]["id"].as_u64()
    };
    for by_command in [false, true] {
        // It has a session once it has taken the first task, and waits for the second.
        assert_eq!(door.ask_json("POST /v1/tubes/mail/tasks", &token, &json!({"payload": 1})).status, 201);
        let take = ["take", "mail", "--timeout", "600", "--count", "2", "--ack"];
        let mut child = door.server.command(&take);
        child.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut child = child.spawn().unwrap();
        // Before that it may hold the first: to release this one would end the client.
        crate::support::wait_until("the client to wait", || door.waiting_takes(&token, "mail") == 1);
        let id = connection(&door).unwrap();
        let release = format!("POST /v1/sessions/{id}/release");
        let disconnect = format!("POST /v1/sessions/{id}/disconnect");
        let reason = json!({"reason": "stuck"});
        assert_eq!(door.ask_json(&release, &viewer, &reason).problem(), "forbidden");
        assert_eq!(door.ask_json(&disconnect, &operator, &reason).problem(), "forbidden");
        assert_eq!(door.ask_json(&release, &operator, &reason).json(), json!({"changed": true}));
        assert!(child.try_wait().unwrap().is_none(), "it waits on");
        if by_command {
            let (id, data) = (id.to_string(), door.server.data.path().to_str().unwrap());
            let done =
                door.server.ok(&["session", "disconnect", &id, "--reason", "stuck", "--data-dir", data]);
            assert!(done.contains(&format!("disconnected connection {id}")), "{done}");
        } else {
            assert_eq!(door.ask_json(&disconnect, &token, &reason).json(), json!({"changed": true}));
        }
        // Exit code 4: no connection.
        assert_eq!(child.wait().unwrap().code(), Some(4));
        crate::support::wait_until("its session to end", || connection(&door).is_none());
        door.server.expect_log("an administrator has ended it");
    }
    let nothing = door.ask_json("POST /v1/sessions/4711/release", &token, &json!({}));
    assert_eq!((nothing.status, nothing.problem().as_str()), (404, "no-such-session"));
    assert_eq!(door.ask_json("POST /v1/sessions/x/release", &token, &json!({})).problem(), "no-such-session");
    let entries = get(&door, &token, "/v1/audit?limit=1");
    assert_eq!(entries["entries"][0]["reason"], "stuck");
}

#[test]
fn settings_and_log_are_for_administrators_and_answers_are_not_sent_twice() {
    let (door, token) = door();
    let operator = door.token("operator", "operator", "*");
    let one = door.token("one", "administrator", "mail");
    for path in ["/v1/settings", "/v1/log"] {
        for other in [&operator, &one] {
            assert_eq!(door.ask(&format!("GET {path}"), other, "", b"").problem(), "forbidden", "{path}");
        }
    }
    let settings = get(&door, &token, "/v1/settings");
    let of = |key: &str| {
        let settings = settings["settings"].as_array().unwrap();
        settings.iter().find(|setting| setting["key"] == key).unwrap().clone()
    };
    assert_eq!(
        (&of("http.listen")["source"], &of("wal_mode")["source"]),
        (&json!("--http-listen"), &json!("default"))
    );
    let all = get(&door, &token, "/v1/log?limit=1000");
    let lines = all["lines"].as_array().unwrap();
    assert!(lines.iter().any(|line| line["text"].as_str().unwrap().contains("HTTP on")), "{all}");
    let last = lines.last().unwrap()["number"].as_u64().unwrap();
    let newer = get(&door, &token, &format!("/v1/log?after={last}"));
    assert!(newer["lines"].as_array().unwrap().iter().all(|line| line["number"].as_u64() > Some(last)));
    let first = door.ask("GET /v1/token", &token, "", b"");
    let tag = first.field("etag").expect("an ETag").to_owned();
    let again = door.ask("GET /v1/token", &token, &format!("If-None-Match: {tag}\r\n"), b"");
    assert_eq!((again.status, again.field("etag"), again.body.len()), (304, Some(&*tag), 0));
    // The answer of another token is another one.
    let other = door.ask("GET /v1/token", &operator, &format!("If-None-Match: {tag}\r\n"), b"");
    assert_eq!(other.status, 200);
    let refused = door.ask("GET /v1/token", "lycosa_wrong", &format!("If-None-Match: {tag}\r\n"), b"");
    assert_eq!(refused.status, 401);
}
