//! What others have put is shown on a terminal without its power over it, and goes into a pipe as it is.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs::OpenOptions;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use support::{Server, finish};

const TITLE: &str = "\u{1b}]0;gotcha\u{7}";

/// Runs a command whose output is a terminal; what the terminal is sent.
fn on_a_terminal(server: &Server, arguments: &[&str]) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let slave: OwnedFd = OpenOptions::new().read(true).write(true).open(name).unwrap().into();
    let mut command = server.command(arguments);
    command.stdout(Stdio::from(slave.try_clone().unwrap())).stderr(Stdio::from(slave));
    let mut child = command.spawn().unwrap();
    // The command holds the last ends: the terminal ends with it.
    drop(command);
    let mut bytes = Vec::new();
    // Linux ends it with EIO.
    let _ = std::fs::File::from(master).read_to_end(&mut bytes);
    child.wait().unwrap();
    String::from_utf8(bytes).unwrap()
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
        let shown = on_a_terminal(&server, arguments);
        let is_control = |character: char| character.is_control() && !"\r\n\t".contains(character);
        assert!(!shown.contains(is_control), "{arguments:?}: {shown:?}");
    }
    assert!(on_a_terminal(&server, &["take", "t", "--timeout", "0"]).contains("\\u001b]0;gotcha\\u0007"));
    let piped = finish(server.command(&["take", "t", "--timeout", "0"]), "");
    assert_eq!(piped.stdout, format!("0\tt\t{TITLE}\n"), "a pipe gets the bytes");
}
