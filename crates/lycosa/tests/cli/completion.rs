//! Completion in shells, and colors on a terminal.

use std::process::Command;

use crate::support::{Server, lycosa};

/// What bash has completed for a line, which ends where the cursor is.
fn completed(server: &Server, line: &str) -> Vec<String> {
    let script = lycosa(&["completions", "bash"]);
    assert_eq!(script.code, 0, "{script:?}");
    let program = format!(
        "source ./lycosa.bash\ncomplete -p lycosa | grep -q _lycosa_with_names || exit 9\n\
         COMP_WORDS=({line} ''); [[ '{line}' == *' ' ]] || unset 'COMP_WORDS[-1]'\n\
         COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\nCOMP_WORDS[0]={}\n\
         _lycosa_with_names \"${{COMP_WORDS[0]}}\" \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        env!("CARGO_BIN_EXE_lycosa")
    );
    std::fs::write(server.data.path().join("lycosa.bash"), script.stdout).expect("a file");
    // The address and the folder of the server, as every command gets them.
    let told = server.command(&[]);
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &program]).current_dir(server.data.path());
    bash.envs(told.get_envs().filter_map(|(name, value)| Some((name, value?))));
    bash.env("LYCOSA_DATA_DIR", server.data.path());
    let output = bash.output().expect("bash runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_names_of_tubes_and_users() {
    let server = Server::start();
    for tube in ["mail", "maps", "crawl"] {
        server.ok(&["tube", "create", tube]);
    }
    let folder = server.data.path().display().to_string();
    let secret = server.data.path().join("secret");
    std::fs::write(&secret, "x").expect("a file");
    let secret = secret.display().to_string();
    server.ok(&["user", "add", "ann", "--password-file", &secret, "--data-dir", &folder]);
    assert_eq!(completed(&server, "lycosa put "), ["crawl", "mail", "maps"]);
    assert_eq!(completed(&server, "lycosa put ma"), ["mail", "maps"]);
    assert_eq!(completed(&server, "lycosa tube drop c"), ["crawl"]);
    assert_eq!(completed(&server, "lycosa user drop an"), ["ann"]);
    assert_eq!(completed(&server, "lycosa user grant ann --tube cr"), ["crawl"]);
    // Where no name stands, commands and flags are completed as before.
    assert_eq!(completed(&server, "lycosa rest"), ["restore"]);
    assert!(completed(&server, "lycosa put --de").contains(&"--delay".to_owned()));
}

#[test]
fn names_need_a_server_and_nothing_is_said_without() {
    let run = lycosa(&["complete-names", "--", "lycosa", "put", "-a", "127.0.0.1:1", ""]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""), "{run:?}");
}

#[test]
fn colors_are_for_terminals_and_for_who_asks() {
    let server = Server::start();
    server.ok(&["tube", "create", "mail"]);
    let plain = server.ok(&["tube", "list"]);
    assert!(!plain.contains('\u{1b}'), "{plain}");
    let always = server.ok(&["tube", "list", "--color", "always"]);
    let (heading, rest) = always.split_once('\n').expect("a heading");
    assert!(heading.starts_with("\u{1b}[1m") && heading.ends_with("\u{1b}[0m"), "{always}");
    assert_eq!(plain.split_once('\n').expect("a heading").1, rest);
    assert_eq!(server.ok(&["--color=never", "tube", "list"]), plain);
    let wrong = lycosa(&["put", "--color=always", "--hlep"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.stderr.contains('\u{1b}') && wrong.stderr.contains("--help"), "{wrong:?}");
    assert!(!lycosa(&["put", "--color=never", "--hlep"]).stderr.contains('\u{1b}'));
}

/// Scripts tell usage that is wrong from what a server refuses.
#[test]
fn wrong_usage_is_exit_code_2_and_needs_no_server() {
    let lines: [&[&str]; 12] = [
        &["--hlep"],
        &["nothing"],
        &["put"],
        &["put", "mail", "--delay", "soon"],
        &["put", "mail", "--dealy", "1"],
        &["take", "mail", "--timeout", "-1"],
        &["ack", "mail"],
        &["ack", "mail", "one"],
        &["user", "grant", "ann"],
        &["completions", "cmd"],
        &["list", "mail", "--color", "loud"],
        &["stats", "--request-timeout", "1x"],
    ];
    for line in lines {
        let run = lycosa(line);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{line:?}: {run:?}");
        assert!(!run.stderr.is_empty(), "{line:?}");
    }
    let meant = lycosa(&["--hlep"]);
    assert!(meant.stderr.contains("a similar argument exists: '--help'"), "{meant:?}");
}
