//! The system's clock is set while a server runs: nothing that waits takes part in that.
//!
//! The steps are made by Debian's `libfaketime`, which lies to one process about the time of day and leaves its steady
//! clocks alone.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::support::{Server, wait_until};

/// Where Debian puts the library, by architecture.
fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().filter_map(Result::ok).map(|entry| entry.path());
    let mut found =
        folders.map(|folder| folder.join("faketime/libfaketime.so.1")).filter(|path| path.exists());
    found.next().expect("the package libfaketime: `cargo xtask install` installs it")
}

fn set_clock(file: &Path, offset: &str) {
    // Whole at every moment: the server may read it at any.
    let fresh = file.with_extension("new");
    std::fs::write(&fresh, offset).unwrap();
    std::fs::rename(fresh, file).unwrap();
}

/// A command that runs beside the test and is killed with it.
struct Running(Child);

impl Running {
    fn begin(server: &Server, arguments: &[&str]) -> Self {
        Self(server.command(arguments).stdout(Stdio::null()).spawn().unwrap())
    }

    fn is_over(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_step_of_the_clock_is_logged_and_moves_no_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("offset");
    set_clock(&file, "+0");
    let (library, file_text) = (library(), file.to_str().unwrap().to_owned());
    let server = Server::with_environment(&[
        ("LD_PRELOAD", library.to_str().unwrap()),
        ("FAKETIME_TIMESTAMP_FILE", &file_text),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ]);
    server.ok(&["tube", "create", "t", "--type", "fifottl"]);
    server.ok(&["put", "t", "later", "--delay", "1h"]);
    server.ok(&["put", "t", "mortal", "--pri", "9", "--ttl", "1h"]);
    server.ok(&["put", "t", "held", "--pri", "0", "--ttr", "1h"]);
    server.ok(&["tube", "create", "empty", "--type", "fifottl"]);
    // A call that waits for an hour, and a task that its connection holds for an hour.
    let mut waiting = Running::begin(&server, &["take", "empty", "--timeout", "3600"]);
    let holder = Running::begin(&server, &["work", "t", "--", "sleep", "600"]);
    wait_until("the worker holds the task", || server.ok(&["peek", "t", "2"]).contains("taken"));

    set_clock(&file, "+2d");
    wait_until("the step is logged", || server.log().contains("the system's clock was set by +172800"));
    assert!(server.ok(&["peek", "t", "0"]).contains("delayed"), "a delay does not end");
    assert!(server.ok(&["peek", "t", "1"]).contains("ready"), "a time to live does not end");
    assert!(server.ok(&["peek", "t", "2"]).contains("taken"), "a time to run does not end");
    assert!(!waiting.is_over(), "a wait does not end");

    set_clock(&file, "-2d");
    wait_until("the step back is logged", || server.log().contains("the system's clock was set by -345600"));
    assert!(!waiting.is_over(), "nor does it begin again");
    drop(holder);
    server.ok(&["put", "t", "soon", "--delay", "0.5"]);
    wait_until("a short delay ends", || server.ok(&["peek", "t", "3"]).contains("ready"));
    assert_eq!(server.run(&["take", "t", "--timeout", "0", "--ack"]).code, 0);
}
