//! `lycosa top`: one screen and one status for scripts; on a terminal of tmux a person looks, filters and acts.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::support::{LIMIT, Server};

/// `lycosa top` in a terminal of this size.
struct Pane {
    socket: String,
}

impl Pane {
    fn open(server: &Server, size: (u16, u16), arguments: &[&str]) -> Self {
        Self::of(server, size, &server.command(&[&["top"], arguments].concat()))
    }

    /// Of another address, beside the data of this server.
    fn to(server: &Server, address: &str, size: (u16, u16)) -> Self {
        let mut command = crate::support::command();
        command.args(["top", "--address", address]);
        Self::of(server, size, &command)
    }

    fn of(server: &Server, (width, height): (u16, u16), command: &Command) -> Self {
        // One server of tmux for each test, so that none sees another's.
        let pane = Self { socket: server.data.path().join("tmux.sock").to_str().unwrap().to_owned() };
        let mut tmux = Command::new("tmux");
        tmux.args([
            "-S",
            &pane.socket,
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &width.to_string(),
            "-y",
        ]);
        tmux.arg(height.to_string());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => tmux.env(name, value),
                None => tmux.env_remove(name),
            };
        }
        // The shell stays when the program ends, so that its last words and its exit code can be read.
        let script = r#"env TERM=screen-256color "$@"; echo "exit code $?"; exec sleep 600"#;
        tmux.args(["sh", "-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
        tmux.args([";", "set-option", "status", "off"]);
        let begun = tmux.stdin(Stdio::null()).output().unwrap();
        assert!(begun.status.success(), "{begun:?}");
        pane
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let run = Command::new("tmux").args(["-S", &self.socket]).args(arguments).output().unwrap();
        assert!(run.status.success(), "{arguments:?}: {run:?}");
        String::from_utf8(run.stdout).unwrap()
    }

    /// Keys by tmux's names: `Enter`, `Escape`, `Space`, or letters.
    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn type_in(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen has all these texts; what it shows then.
    #[track_caller]
    fn expect(&self, texts: &[&str]) -> String {
        let begun = Instant::now();
        loop {
            let shown = self.screen();
            if texts.iter().all(|text| shown.contains(text)) {
                return shown;
            }
            assert!(begun.elapsed() < LIMIT, "the screen lacks {texts:?}:\n{shown}");
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        // It has ended already if the test got that far.
        let _ = Command::new("tmux").args(["-S", &self.socket, "kill-server"]).output();
    }
}

/// Buried tasks 0 to 3 of `mail`, and 20 ready ones.
fn server() -> Server {
    let server = Server::start();
    server.ok(&["tube", "create", "mail", "--type", "fifottl"]);
    server.ok(&["tube", "create", "thumbnails", "--type", "fifo"]);
    let payloads: Vec<String> = (0..24).map(|number| format!(r#"{{"to": "user {number}"}}"#)).collect();
    let put = server.run_with(&["put", "mail", "--as", "json", "--lines"], &payloads.join("\n"));
    assert_eq!(put.code, 0, "{put:?}");
    let bury = ["apply", "mail", "bury", "--id-to", "3", "--yes", "--reason", "no such host"];
    server.ok(&bury);
    server
}

fn states(server: &Server) -> (u64, u64, u64) {
    let tube: Json = serde_json::from_str(&server.ok(&["explain", "mail", "--json"])).unwrap();
    let count = |state: &str| tube["tasks"][state].as_u64().unwrap();
    (count("ready"), count("buried"), count("taken"))
}

#[test]
fn one_screen_and_one_status_are_for_scripts() {
    let server = server();
    let screen = server.run(&["top", "--once"]);
    assert_eq!((screen.code, screen.stderr.as_str()), (0, ""), "{screen:?}");
    assert!(screen.stdout.contains("! mail: 4 buried tasks."), "{screen:?}");
    assert!(!screen.stdout.contains('\u{1b}'), "a pipe gets no colors: {screen:?}");
    assert!(screen.stdout.lines().all(|line| line.chars().count() <= 100), "{screen:?}");
    let tube = server.run(&["top", "mail", "--once"]);
    assert!(tube.code == 0 && tube.stdout.contains("ready 20  taken 0  delayed 0  buried 4"), "{tube:?}");
    let missing = server.run(&["top", "nowhere", "--once"]);
    assert!(missing.code == 1 && missing.stdout.contains("Tube nowhere does not exist"), "{missing:?}");
    let status: Json = serde_json::from_str(&server.ok(&["top", "--json"])).unwrap();
    assert_eq!(status["instance"]["state"], "running", "{status}");
    let names: Vec<&str> =
        status["tubes"].as_array().unwrap().iter().map(|tube| tube["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mail", "thumbnails"]);
    // The machine may have issues of its own, such as a slow disk.
    let issues = status["issues"].as_array().unwrap();
    let of_tubes = issues.iter().filter(|issue| !issue["tube"].is_null()).collect::<Vec<_>>();
    let wanted = serde_json::json!({
        "kind": "buried", "gravity": "warn", "tube": "mail", "title": "4 buried tasks",
        "means": "Workers gave these tasks up. They wait until a kick, or until their ttl is over.",
        "act": "Look at their last errors, mend the cause, then kick or delete them.",
        "command": "lycosa find mail --state buried"
    });
    assert_eq!(of_tubes, [&wanted]);
    assert_eq!(status["tubes"][0].get("issues"), None, "they stand in one place");
    let piped = server.run(&["top"]);
    assert!(
        piped.code == 2 && piped.stderr.contains("needs a terminal; --once prints one screen"),
        "{piped:?}"
    );
    let refused = crate::support::lycosa(&["top", "--once", "--address", "127.0.0.1:1"]);
    assert!(refused.code == 4 && refused.stderr.contains("127.0.0.1:1"), "{refused:?}");
}

#[test]
fn a_person_finds_the_failed_tasks_kicks_them_and_takes_it_back() {
    let server = server();
    let pane = Pane::open(&server, (80, 24), &[]);
    pane.expect(&["! mail: 4 buried tasks", "1 Overview  2 Tubes  3 Sessions  4 Jobs  5 Audit  ? keys"]);
    pane.press(&["Enter"]);
    pane.expect(&["2 of 2 tubes", "thumbnails"]);
    pane.type_in("/mai");
    pane.expect(&["1 of 2 tubes that match \"mai\"", "/mai_"]);
    pane.press(&["Enter", "Enter"]);
    pane.expect(&["Tubes › mail", "buried 4"]);
    pane.press(&["b"]);
    pane.expect(&["state=buried: 4 shown, scanned 4 of 4", "no such host"]);
    pane.type_in("/ attempts_from=9");
    pane.press(&["Enter"]);
    pane.expect(&["No task matches this filter"]);
    pane.press(&["s"]);
    pane.expect(&["all tasks: 24 shown"]);
    pane.type_in("/state=buried");
    pane.press(&["Enter"]);
    pane.expect(&["state=buried: 4 shown"]);
    // The chosen task, and why it does not run.
    pane.press(&["Enter"]);
    let shown = pane.expect(&["Why it does not run", "no such host", "\"to\": \"user 0\""]);
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    pane.press(&["Escape"]);
    // All that match: counted, then confirmed.
    pane.expect(&["state=buried: 4 shown"]);
    pane.press(&["a", "K"]);
    pane.type_in("relay is back");
    pane.expect(&["Kick: all tasks that match state=buried of mail", "relay is back_"]);
    pane.press(&["Enter"]);
    pane.expect(&["4 tasks would be changed, of 4 looked at. y does it"]);
    assert_eq!(states(&server), (20, 4, 0), "nothing is changed before y");
    pane.press(&["y"]);
    pane.expect(&["4 changed; U undoes 4"]);
    assert_eq!(states(&server), (24, 0, 0));
    // One of them is taken since: the undo says so.
    server.ok(&["take", "mail", "--lease", "1h"]);
    pane.press(&["U", "Enter"]);
    pane.expect(&["3 tasks undone; 1 changed or taken since, 0 no longer there"]);
    assert_eq!(states(&server), (20, 3, 1));
    pane.press(&["5"]);
    let shown = pane.expect(&["Audit", "undo", "relay is back"]);
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    pane.press(&["q"]);
    pane.expect(&["exit code 0"]);
}

#[test]
fn marked_tasks_are_deleted_by_one_job_and_jobs_are_steered() {
    let server = server();
    let pane = Pane::open(&server, (200, 50), &["mail"]);
    pane.expect(&["Tubes › mail", "Wait: "]);
    pane.press(&["r"]);
    pane.expect(&["state=ready: 20 shown"]);
    pane.press(&["Space", "Space", "j", "Space"]);
    pane.expect(&["3 tasks marked", "*   4", "*   5", "*   7", "Esc unmarks"]);
    pane.press(&["D", "Enter"]);
    pane.expect(&["Delete: 3 tasks marked of mail", "3 tasks would be changed, of 3 looked at"]);
    pane.press(&["y"]);
    pane.expect(&["(delete): 3 changed; U undoes 3"]);
    assert_eq!(states(&server), (17, 4, 0));
    pane.press(&["U", "Enter"]);
    pane.expect(&["(undo): 3 tasks undone", "20 shown"]);
    assert_eq!(states(&server), (20, 4, 0));
    // At one task a second the job has minutes of work: it runs until it is cancelled.
    let put = server.run_with(&["put", "mail", "--as", "json", "--lines"], &"{}\n".repeat(1000));
    assert_eq!(put.code, 0, "{put:?}");
    let slow = ["apply", "mail", "delete", "--all", "--yes", "--rate", "1", "--no-wait", "--json"];
    let begun: Json = serde_json::from_str(&server.ok(&slow)).unwrap();
    let id = begun["id"].as_u64().unwrap();
    pane.press(&["4"]);
    pane.expect(&["1 unfinished", "changed so far"]);
    pane.press(&["P"]);
    // The answer to the key: the list alone may tell it earlier, from a look of its own.
    pane.expect(&[&format!("job {id} (delete): "), "changed, paused"]);
    pane.press(&["P"]);
    pane.expect(&["changed so far"]);
    pane.press(&["C"]);
    pane.expect(&[&format!("Cancel job {id} of mail"), "Enter does it"]);
    pane.press(&["Enter"]);
    pane.expect(&["0 unfinished", "cancelled"]);
    let (ready, buried, taken) = states(&server);
    assert!(ready + buried + taken > 0, "the job was cancelled before its end");
}

/// Passes everything on, but for the name of an option, which the server does not know then.
fn without_option(address: String, option: &'static [u8], unknown: &'static [u8]) -> String {
    assert_eq!(option.len(), unknown.len());
    let exchanged = |bytes: &[u8], from: &[u8], to: &[u8]| {
        let mut bytes = bytes.to_vec();
        for at in 0..bytes.len() {
            if bytes[at..].starts_with(from) {
                bytes[at..at + to.len()].copy_from_slice(to);
            }
        }
        bytes
    };
    let pass = move |mut from: TcpStream, mut to: TcpStream, (old, new): (&'static [u8], &'static [u8])| {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if to.write_all(&exchanged(&buffer[..read], old, new)).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect(&address).unwrap();
            let (back, onward) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || pass(client, server, (option, unknown)));
            std::thread::spawn(move || pass(back, onward, (unknown, option)));
        }
    });
    own
}

#[test]
fn a_server_that_finds_no_issues_is_shown_without_them() {
    let server = server();
    let older = without_option(server.address.clone(), b"issues", b"issuez");
    let asked = |arguments: &[&str]| crate::support::lycosa(&[arguments, &["--address", &older]].concat());
    const SAID: &str = "the server is older than this `lycosa` and finds no issues itself";

    let screen = asked(&["top", "--once"]);
    assert_eq!((screen.code, screen.stderr.as_str()), (0, ""), "{screen:?}");
    assert!(screen.stdout.contains(&format!("? {SAID}.")), "{screen:?}");
    assert!(!screen.stdout.contains("Nothing is wrong"), "{screen:?}");
    assert!(screen.stdout.contains("waiting calls 0"), "the rest of the screen is there: {screen:?}");

    let status = asked(&["top", "--json"]);
    assert_eq!((status.code, status.stderr), (0, format!("lycosa: {SAID}: `issues` is null\n")));
    let status: Json = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!((&status["issues"], status["tubes"].as_array().unwrap().len()), (&Json::Null, 2));

    let pane = Pane::to(&server, &older, (100, 30));
    pane.expect(&["? the server is older", "tubes 2"]);
}

#[test]
fn what_a_server_lacks_is_named() {
    let server = server();
    let lacks = |what: &str| {
        format!("the server has no {what}: it is older than this `lycosa`, or it runs the Lua module")
    };
    let of = |option, unknown, arguments: &[&str]| {
        let older = without_option(server.address.clone(), option, unknown);
        crate::support::lycosa(&[arguments, &["--address", &older]].concat())
    };
    for (option, unknown, arguments, what) in [
        (&b"history"[..], &b"histerie"[..7], &["stats", "--history"][..], "option history"),
        (b"queue.audit", b"queue.tidua", &["audit"], "function queue.audit"),
        (b"mail:explain", b"mail:niaplxe", &["explain", "mail"], "function queue.tube.mail:explain"),
        (b"mail:find", b"mail:dnif", &["find", "mail", "--state", "ready"], "function queue.tube.mail:find"),
        (b"queue.status", b"queue.sutats", &["top", "--once"], "function queue.status"),
        (b"queue.status", b"queue.sutats", &["metrics"], "function queue.status"),
    ] {
        let run = of(option, unknown, arguments);
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.stderr.contains(&lacks(what)), "{run:?}");
    }
}
