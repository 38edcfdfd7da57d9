//! What others have put is shown on a terminal without its power over it, and goes into a pipe as it is; a console on a
//! terminal completes and remembers.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::support::{Server, finish};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const TITLE: &str = "\u{1b}]0;gotcha\u{7}";

/// Both ends of a new terminal: the person's, and the program's.
fn terminal() -> (OwnedFd, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let slave = OpenOptions::new().read(true).write(true).open(name).unwrap();
    (master, slave.into())
}

/// Runs a command whose output is a terminal; what the terminal is sent.
fn on_a_terminal(server: &Server, arguments: &[&str]) -> String {
    let (master, slave) = terminal();
    let mut command = server.command(arguments);
    command.stdout(Stdio::from(slave.try_clone().unwrap())).stderr(Stdio::from(slave));
    let mut child = command.spawn().unwrap();
    // The command holds the last ends: the terminal ends with it.
    drop(command);
    let mut bytes = Vec::new();
    // Linux ends it with EIO.
    let _ = File::from(master).read_to_end(&mut bytes);
    child.wait().unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Runs a command on a terminal where a person answers its question; its exit code, and what the terminal shows.
fn answered(server: &Server, arguments: &[&str], answer: &str) -> (i32, String) {
    answered_after(server, arguments, answer, || {})
}

/// As [`answered`]; `meanwhile` runs between the question and the answer.
fn answered_after(
    server: &Server,
    arguments: &[&str],
    answer: &str,
    meanwhile: impl FnOnce(),
) -> (i32, String) {
    let (master, slave) = terminal();
    let mut master = File::from(master);
    let mut command = server.command(arguments);
    command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(Stdio::from(slave));
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut shown = Vec::new();
    while !shown.ends_with(b"[y/N] ") {
        let mut byte = [0];
        master.read_exact(&mut byte).unwrap_or_else(|error| {
            panic!("no question ({error}), but {}", String::from_utf8_lossy(&shown));
        });
        shown.extend(byte);
    }
    meanwhile();
    master.write_all(answer.as_bytes()).unwrap();
    let _ = master.read_to_end(&mut shown);
    (child.wait().unwrap().code().unwrap(), String::from_utf8(shown).unwrap())
}

#[test]
fn changes_of_many_tasks_ask_on_a_terminal_and_are_refused_without_one() {
    let server = Server::start();
    server.ok(&["tube", "create", "t"]);
    server.ok(&["put", "t", "a", "b"]);
    let total = || server.ok(&["find", "t", "--count"]);
    let commands: [&[&str]; 3] = [
        &["delete", "t", "--limit", "2"],
        &["bury", "t", "--state", "ready"],
        &["apply", "t", "delete", "--all"],
    ];
    for command in commands {
        let unasked = server.run(command);
        assert_eq!(unasked.code, 2, "a script does not go on: {unasked:?}");
        let verb = if command[0] == "apply" { command[2] } else { command[0] };
        let text = format!("nothing was changed: {verb} would change 2 tasks of tube \"t\"; --yes does it");
        assert!(unasked.stderr.contains(&text), "{unasked:?}");
        let (code, shown) = answered(&server, command, "n\n");
        assert_eq!(code, 1, "{shown}");
        assert!(
            shown.contains(&format!("{verb} would change 2 tasks of tube \"t\". Go on? [y/N]")),
            "{shown}"
        );
        assert!(shown.contains("nothing was changed"), "{shown}");
        assert_eq!(total(), "2\n");
        assert_eq!(server.ok(&["find", "t", "--state", "ready", "--count"]), "2\n");
    }
    let (code, shown) = answered(&server, &["bury", "t", "--state", "ready"], "y\n");
    assert!(code == 0 && shown.contains("buried 2 tasks of t"), "{code}: {shown}");
    let (code, shown) = answered(&server, &["apply", "t", "delete", "--all"], "yes\n");
    assert!(code == 0 && shown.contains("2 matched, 2 changed"), "{code}: {shown}");
    assert_eq!(total(), "0\n");
    let jobs = server.run(&["job", "t", "--json"]).lines();
    let job = jobs.iter().find(|job| job["changed"] == 2).unwrap()["id"].to_string();
    let unasked = server.run(&["undo", "t", &job]);
    assert_eq!(unasked.code, 2, "{unasked:?}");
    assert!(unasked.stderr.contains(&format!("undo of job {job} would change 2 tasks")), "{unasked:?}");
    let (code, shown) = answered(&server, &["undo", "t", &job], "y\n");
    assert!(code == 0 && shown.contains("2 of 2 undone"), "{code}: {shown}");
    assert_eq!(server.run(&["delete", "t", "--state", "taken"]).code, 0, "no task, no question");
}

/// A task that another client changes before the answer is counted as refused, in a batch of several tasks as in a batch of a single task.
#[test]
fn tasks_that_change_before_the_answer_are_refused_and_counted() {
    let server = Server::start();
    server.ok(&["tube", "create", "t"]);
    for (puts, changed) in [(&["a", "b", "c"][..], 2), (&["d"], 0)] {
        let ids = server.ok(&[&["put", "t", "--json"], puts].concat());
        let id = ids.lines().next().and_then(|line| line.parse::<serde_json::Value>().ok()).unwrap()["id"]
            .to_string();
        let meanwhile = || drop(server.ok(&["delete", "t", &id]));
        let (code, shown) = answered_after(&server, &["bury", "t", "--state", "ready"], "y\n", meanwhile);
        assert_eq!(code, 1, "{shown}");
        assert!(shown.contains(&format!("t {id}: ")), "{shown}");
        assert!(shown.contains("refused for changes since the count: 1 task"), "{shown}");
        assert!(shown.contains(&format!("buried {changed} tasks of t")), "{shown}");
    }
}

#[test]
fn payloads_names_and_errors_do_nothing_to_a_terminal() {
    let server = Server::start();
    server.ok(&["tube", "create", "t"]);
    server.ok(&["put", "t", TITLE]);
    server.ok(&["put", "t", &format!(r#"{{"to": "x{}"}}"#, "\u{9b}2J"), "--as", "json"]);
    let nowhere = format!("nowhere{TITLE}");
    let commands: &[&[&str]] = &[
        &["list", "t"],
        &["peek", "t", "0", "1"],
        &["peek", "t", "1", "--json"],
        &["tube", "list"],
        &["stats"],
        &["stats", "--json"],
        &["export", "t"],
        &["put", &nowhere, "x"],
        &["take", "t", "--limit", "2", "--timeout", "0"],
        &["list", "t", "--state", TITLE],
        &["ack", "t", TITLE],
        &[TITLE],
        &["console", TITLE],
    ];
    for arguments in commands {
        // The heading of a table is bold.
        let shown = on_a_terminal(&server, arguments).replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
        let is_control = |character: char| character.is_control() && !"\r\n\t".contains(character);
        assert!(!shown.contains(is_control), "{arguments:?}: {shown:?}");
    }
    assert!(on_a_terminal(&server, &["take", "t", "--timeout", "0"]).contains("\\u001b]0;gotcha\\u0007"));
    let piped = finish(server.command(&["take", "t", "--timeout", "0"]), "");
    assert_eq!(piped.stdout, format!("0\tt\t{TITLE}\n"), "a pipe gets the bytes");
}

/// A console on a terminal of 100 columns, and what it has written there.
struct Console {
    child: Child,
    keys: File,
    shown: Receiver<u8>,
}

impl Drop for Console {
    /// A test that has failed leaves nothing that runs.
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Console {
    fn start(server: &Server, home: &Path) -> Self {
        let (master, slave) = terminal();
        let size = Winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size).unwrap();
        let socket = server.data.path().join("admin.sock");
        let mut command = server.command(&["console", socket.to_str().unwrap()]);
        command.env("HOME", home).env("TERM", "xterm").stdin(Stdio::from(slave.try_clone().unwrap()));
        command.stdout(Stdio::from(slave.try_clone().unwrap())).stderr(Stdio::from(slave));
        let child = command.spawn().unwrap();
        let keys = File::from(master);
        let (sender, shown) = channel();
        let screen = keys.try_clone().unwrap();
        std::thread::spawn(move || {
            for byte in BufReader::new(screen).bytes().map_while(Result::ok) {
                if sender.send(byte).is_err() {
                    break;
                }
            }
        });
        Self { child, keys, shown }
    }

    /// The key that ends it, on an empty line.
    fn end(mut self) {
        self.keys.write_all(b"\x04").unwrap();
        assert!(self.child.wait().unwrap().success());
    }

    /// Types, and waits until the terminal shows the text; what it was sent until then.
    fn type_and_see(&mut self, keys: &str, text: &str) -> String {
        self.keys.write_all(keys.as_bytes()).unwrap();
        let mut shown = Vec::new();
        while !plain(&shown).contains(text) {
            match self.shown.recv_timeout(Duration::from_secs(60)) {
                Ok(byte) => shown.push(byte),
                Err(error) => panic!("after {keys:?} no {text:?} ({error}), but {:?}", plain(&shown)),
            }
        }
        plain(&shown)
    }
}

/// Without what moves the cursor and colours the text.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest));
    }
    plain
}

#[test]
fn a_console_completes_names_and_remembers_lines() {
    let server = Server::start();
    server.ok(&["tube", "create", "emails"]);
    let home = tempfile::tempdir().unwrap();
    let mut console = Console::start(&server, home.path());
    console.type_and_see("", "admin.sock> ");
    console.type_and_see("box.schema.space.create('accounts').name\r", "- accounts");
    console.type_and_see("", "admin.sock> ");
    // A global, a tube, its method; a space and its method.
    console.type_and_see("que\t", "queue");
    console.type_and_see(".tube.em\t", "emails");
    console.type_and_see(":put_m\t", "put_many(");
    console.type_and_see("{{'a'}, {'b'}})[2][3]\r", "- ['b']");
    console.type_and_see("", "admin.sock> ");
    console.type_and_see("box.space.acc\t", "accounts");
    console.type_and_see(":create_i\t", "create_index(");
    console.type_and_see("'pk').type\r", "- TREE");
    console.type_and_see("", "admin.sock> ");
    // Several fit: they are listed.
    let listed = console.type_and_see("box.space.accounts:re\t\t", "admin.sock> box.space.accounts:re");
    assert!(listed.contains("rename(") && listed.contains("replace("), "{listed}");
    // A line is given up; a text goes on over several lines; an earlier line is had again.
    console.type_and_see("\u{3}", "\n");
    console.type_and_see("", "admin.sock> ");
    console.type_and_see("for i = 1, 3 do\r", "\n");
    console.type_and_see("", " > ");
    console.type_and_see("sum = (sum or 0) + i end return sum\r", "- 6");
    console.type_and_see("", "admin.sock> ");
    console.type_and_see("\u{1b}[A\u{1b}[A\u{1b}[A", "box.space.accounts:create_index('pk').type");
    console.type_and_see("\u{3}", "\n");
    console.type_and_see("", "admin.sock> ");
    console.type_and_see("\u{12}emai", "queue.tube.emails:put_many");
    console.type_and_see("\r", "- ['b']");
    console.type_and_see("", "admin.sock> ");
    console.end();
    // The next console knows the lines.
    let mut console = Console::start(&server, home.path());
    console.type_and_see("", "admin.sock> ");
    console.type_and_see("\u{1b}[A", "put_many({{'a'}, {'b'}})[2][3]");
    console.type_and_see("\u{3}", "\n");
    console.type_and_see("", "admin.sock> ");
    console.end();
}
