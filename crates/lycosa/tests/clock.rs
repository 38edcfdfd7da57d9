//! The system's clock is set while a server runs: nothing that waits takes part in that.
//!
//! The steps are made by Debian's `libfaketime`, which lies to one process about the time of day and leaves its steady
//! clocks alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};

use support::{Server, wait_until};

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
    server.ok(&["put", "t", "mortal", "--ttl", "1h"]);
    server.ok(&["put", "t", "held", "--pri", "0", "--ttr", "1h"]);

    set_clock(&file, "+2d");
    wait_until("the step is logged", || server.log().contains("the system's clock was set by +172800"));
    assert!(server.ok(&["peek", "t", "0"]).contains("delayed"), "a delay does not end");
    assert!(server.ok(&["peek", "t", "1"]).contains("ready"), "a time to live does not end");

    set_clock(&file, "-2d");
    wait_until("the step back is logged", || server.log().contains("the system's clock was set by -345600"));
    server.ok(&["put", "t", "soon", "--delay", "0.5"]);
    wait_until("a short delay ends", || server.ok(&["peek", "t", "3"]).contains("ready"));
    assert_eq!(server.run(&["take", "t", "--timeout", "0", "--ack"]).code, 0);
}
