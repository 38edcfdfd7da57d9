//! A server under a service manager: what it says over `NOTIFY_SOCKET`, and the man pages that a package has.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

use crate::addresses::free_address;
use crate::support::{LIMIT, command, finish, lycosa};
use rustix::process::{Pid, Signal, kill_process};

/// The next message that satisfies `is_wanted`; those before it are watchdog messages.
fn message(socket: &UnixDatagram, is_wanted: impl Fn(&str) -> bool) -> String {
    let mut buffer = [0; 4096];
    loop {
        let length = match socket.recv(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            length => length.unwrap(),
        };
        let text = str::from_utf8(&buffer[..length]).unwrap();
        if is_wanted(text) {
            return text.to_owned();
        }
        assert_eq!(text, "WATCHDOG=1");
    }
}

#[test]
fn a_service_manager_hears_of_start_reload_life_and_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify.sock");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let address = free_address().to_string();
    let mut server = command();
    server.args(["serve", "--listen", &address, "--data-dir"]).arg(folder.path().join("data"));
    server.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    let mut server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = Pid::from_child(&server);

    let ready = message(&socket, |text| text.starts_with("READY=1"));
    assert_eq!(ready, format!("READY=1\nSTATUS=serving on {address}"));
    assert_eq!(lycosa(&["ping", "--address", &address]).code, 0, "ready means that clients are served");
    message(&socket, |text| text == "WATCHDOG=1");
    kill_process(pid, Signal::HUP).unwrap();
    let reloading = message(&socket, |text| text.starts_with("RELOADING=1"));
    let micros: u64 = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().parse().unwrap();
    assert!(micros > 0);
    message(&socket, |text| text.starts_with("READY=1"));
    kill_process(pid, Signal::TERM).unwrap();
    message(&socket, |text| text.starts_with("STOPPING=1"));
    assert!(server.wait().unwrap().success());
}

#[test]
fn there_is_a_man_page_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(lycosa(&["man", folder.path().to_str().unwrap()]).code, 0);
    for page in ["lycosa.1", "lycosa-put.1", "lycosa-tube-create.1", "lycosa-session-list.1"] {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(text.contains(".SH NAME"), "{page}: {text}");
    }
    let hidden = std::fs::read_dir(folder.path())
        .unwrap()
        .filter(|page| page.as_ref().unwrap().file_name().to_string_lossy().contains("guard"));
    assert_eq!(hidden.count(), 0);
}

#[test]
fn the_unit_runs_nothing_that_a_minimal_system_lacks() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/lycosa.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let programs: Vec<&str> = unit
        .lines()
        .filter_map(|line| line.strip_prefix("Exec")?.split_once('=')?.1.split_whitespace().next())
        .collect();
    assert_eq!(programs, ["/usr/bin/lycosa", "/bin/sh"]);
}

#[test]
fn the_allocator_has_its_settings_however_the_binary_was_built() {
    let mut printing = command();
    printing.arg("--version").env("_RJEM_MALLOC_CONF", "confirm_conf:true");
    let run = finish(printing, "");
    let mut lines = run.stderr.lines();
    let own = lines.find(|line| line.contains("global variable malloc_conf")).unwrap_or_default();
    for setting in
        ["background_thread:true", "oversize_threshold:0", "dirty_decay_ms:1000", "muzzy_decay_ms:1000"]
    {
        assert!(own.contains(setting), "{setting}: {run:?}");
    }
}
