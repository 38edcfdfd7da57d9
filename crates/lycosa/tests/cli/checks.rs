//! Check constraints: statements, folders and replicas of both servers, and what `lycosa check` says.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::addresses::free_address;
use crate::programs::{self, compare, has_tarantool, lycosa, programs};

/// What the program of kept constraints prints in a folder.
fn in_folder(program: &str, folder: &Path, mode: &str) -> String {
    programs::in_folder("checks_kept.lua", program, folder, mode)
}

#[test]
fn check_constraints_hold_for_every_door() {
    compare("checks.lua", &[]);
}

/// Check constraints hold in a folder that the other server wrote, from its log and from its snapshot.
#[test]
fn check_constraints_change_hands() {
    let script = programs().join("checks_kept.lua");
    let handed_over = |from: &str, to: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        let written = in_folder(from, folder.path(), "write");
        let read = ["read", "snap", "read"].map(|mode| in_folder(to, folder.path(), mode));
        format!("{written}{}{}", read.concat(), in_folder(from, folder.path(), "snap"))
    };
    let ours = handed_over(lycosa(), lycosa());
    assert_eq!(ours.matches("Check constraint failed 'SMALL': a < 10").count(), 8, "{ours}");
    let replicated = |master: &str, replica: &str| {
        let (folder, port) = (tempfile::tempdir().expect("a folder"), free_address().port().to_string());
        let mut command = Command::new(master);
        command.arg(&script).args(["lead", &port]).current_dir(folder.path()).stdout(Stdio::null());
        let mut led = command.stdin(Stdio::null()).spawn().expect("the program runs");
        let mut command = Command::new(replica);
        command.arg(&script).args(["follow", &port]).current_dir(folder.path());
        let output = command.stdin(Stdio::null()).output().expect("the program runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            led.kill().expect("it runs");
        }
        assert!(led.wait().expect("it ends").success() && output.status.success(), "{errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let followed = replicated(lycosa(), lycosa());
    assert_eq!(followed.matches("Check constraint failed").count(), 5, "{followed}");
    if has_tarantool() {
        assert_eq!(ours, handed_over(lycosa(), "tarantool"));
        assert_eq!(ours, handed_over("tarantool", lycosa()));
        assert_eq!(followed, replicated(lycosa(), "tarantool"));
        assert_eq!(followed, replicated("tarantool", lycosa()));
    }
}

/// A constraint that was enabled over a tuple that fails it: the folder is sound here, and a Tarantool does not start on it.
#[test]
fn a_tuple_that_fails_an_enabled_check_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    in_folder(lycosa(), folder.path(), "late");
    let check = |arguments: &[&str]| {
        let output = Command::new(lycosa()).arg("check").arg(folder.path()).args(arguments).output();
        let output = output.expect("the command runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, text) = check(&[]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = check(&["--for-tarantool"]);
    let named = "1 tuple(s) of space 's', the first Array([Uint(2), Uint(2)]): Check constraint failed 'odd': \"n\" % 2 = 1";
    assert!(code == Some(78) && text.contains(named), "{code:?}: {text}");
    if has_tarantool() {
        let script = programs().join("checks_kept.lua");
        let mut command = Command::new("tarantool");
        command.arg(script).arg("read").current_dir(folder.path()).stdin(Stdio::null());
        let output = command.output().expect("the program runs");
        assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
