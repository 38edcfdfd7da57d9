//! `[[tube]]` and `[[user]]` of the configuration: strict, checked against what exists, applied by SIGHUP.

use std::fs;
use std::path::Path;

use crate::support::{Run, Server, lycosa, wait_until};
use rustix::process::Signal;

const MAIL: &str = "[[tube]]\nname = \"mail\"\ntype = \"fifottl\"\nttr = \"1m\"\n";

fn config(file: &Path, text: &str) -> Run {
    fs::write(file, text).unwrap();
    lycosa(&["config", "--config", file.to_str().unwrap()])
}

#[test]
fn what_a_table_cannot_say_is_refused_with_what_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lycosa.toml");
    assert_eq!(config(&file, MAIL).code, 0);
    for (text, part) in [
        ("[[tube]]\nname = \"t\"\ntype = \"fifotl\"", "there is no type 'fifotl'; did you mean fifottl?"),
        ("[[tube]]\nname = \"t\"\ntll = 5", "there is no option tll; did you mean ttl?"),
        ("[[tube]]\nname = \"t\"\ntype = \"fifo\"\nttl = 5", "ttl means nothing to a tube of type fifo"),
        ("[[tube]]\nname = \"a.b\"", "no client can reach it"),
        ("[[tube]]\nname = \"t\"\nttl = 0", "expected a time, more than 0"),
        ("[[tube]]\nname = \"t\"\npri = -1", "pri = -1 is not valid: expected a whole number, 0 or more"),
        ("[[tube]]\nname = \"t\"\n[[tube]]\nname = \"t\"", "'t' is declared twice"),
        ("[[user]]\nname = \"u\"\npasword = \"x\"", "pasword"),
        ("log_level = \"loud\"", "expected one of error, warn, info"),
        ("checkpoint_interval = 1e-9", "expected 0, or a time from 0.1"),
        ("checkpoint_count = 0", "expected a whole number from 1 to 1000"),
        ("memory_limit = \"1\"", "expected a size from 1MiB"),
        ("queue.ttr = -5", "expected seconds, 0 or more"),
    ] {
        let run = config(&file, text);
        assert_eq!(run.code, 1, "{text}: {run:?}");
        assert!(run.stderr.contains(part), "{text}: {run:?}");
    }
}

#[test]
fn what_exists_otherwise_is_said_and_sighup_makes_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lycosa.toml");
    fs::write(&file, MAIL).unwrap();
    let flags = ["--config", file.to_str().unwrap()];
    let server = Server::configured(&flags);
    assert!(server.ok(&["tube", "list"]).contains("mail"));
    let more =
        "[[tube]]\nname = \"crawl\"\ntype = \"utube\"\n[[user]]\nname = \"app\"\ntubes = [\"crawl\"]\n";
    fs::write(&file, format!("{}{more}", MAIL.replace("1m", "2m"))).unwrap();
    server.signal(Signal::HUP);
    wait_until("the tube is made", || server.ok(&["tube", "list"]).contains("crawl"));
    wait_until("the user is made", || server.ok(&["user", "list"]).contains("app"));
    wait_until("the difference is said", || server.log().contains("ttr is 60, declared 120"));

    // Another type is an error: at SIGHUP in the log, at a start the end.
    fs::write(&file, MAIL.replace("fifottl", "utubettl")).unwrap();
    server.signal(Signal::HUP);
    wait_until("the type is refused", || server.log().contains("it exists with the type fifottl"));
    server.signal(Signal::TERM);
    wait_until("the server ends", || server.run(&["ping"]).code == 4);
    let start = server.command(&["serve", "--listen", "127.0.0.1:0", "--config", file.to_str().unwrap()]);
    let start = crate::support::finish(start, "");
    assert_eq!(start.code, 1, "{start:?}");
    assert!(start.stderr.contains("`lycosa export mail -o mail.jsonl`"), "{start:?}");
}

#[test]
fn a_user_of_a_tube_that_is_not_there_is_not_added() {
    let server = Server::start();
    let add = |arguments: &[&str]| {
        let mut add = server.command(arguments);
        add.env("LYCOSA_PASSWORD", "pw");
        crate::support::finish(add, "")
    };
    let run = add(&["user", "add", "app", "--tube", "mail"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stderr.contains("`lycosa tube create mail`") && run.stderr.contains("nothing was changed"),
        "{run:?}"
    );
    assert!(!server.ok(&["user", "list"]).contains("app"));
    server.ok(&["tube", "create", "mail"]);
    assert_eq!(add(&["user", "add", "app", "--tube", "mail"]).code, 0);
}

/// The list shows tubes by their names and marks users that can become `admin`; `revoke` takes grants away again, also from a
/// user who had every tube from an older version.
#[test]
fn users_are_listed_with_their_tubes_and_lose_them_again() {
    let server = Server::start();
    server.ok(&["tube", "create", "mail"]);
    server.ok(&["tube", "create", "jobs"]);
    let add = |arguments: &[&str]| {
        let mut add = server.command(&[&["user", "add"], arguments].concat());
        add.env("LYCOSA_PASSWORD", "pw");
        assert_eq!(crate::support::finish(add, "").code, 0, "{arguments:?}");
    };
    add(&["ann", "--tube", "mail", "--tube", "jobs"]);
    add(&["ops", "--tube", "*"]);
    add(&["boss", "--role", "super"]);
    add(&["old"]);
    let former = r#"box.schema.user.grant("old", "read,write,execute,create,drop,alter", "universe")"#;
    let socket = format!("unix://{}", server.data.path().join("admin.sock").display());
    let granted = server.run_with(&["console", &socket], &format!("{former}\n"));
    assert_eq!(granted.code, 0, "{granted:?}");
    let listed = |name: &str| {
        let run = server.run(&["user", "list", "--json"]);
        let user = run.lines().into_iter().find(|user| user["user"] == name).unwrap();
        let tubes =
            user["tubes"].as_array().unwrap().iter().map(|tube| tube.as_str().unwrap().to_owned()).collect();
        (user["can_become_admin"].as_bool().unwrap(), tubes)
    };
    let tubes = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<String>>();
    assert_eq!(listed("ann"), (false, tubes(&["jobs", "mail"])));
    assert_eq!(listed("ops"), (false, tubes(&["*"])));
    for (name, can) in [
        ("boss", true),
        ("old", true),
        ("admin", true),
        ("guest", false),
        ("public", false),
        ("replication", false),
    ] {
        assert_eq!(listed(name), (can, tubes(&[])), "{name}");
    }
    let table = server.ok(&["user", "list"]);
    assert!(
        table.contains("tubes: jobs, mail")
            && table.contains("tubes: every tube")
            && table.contains("roles: super"),
        "{table}"
    );

    let run = server.run(&["user", "grant", "old", "--tube", "*"]);
    assert!(run.code == 0 && run.stderr.contains("rights to everything"), "{run:?}");
    assert_eq!(listed("old"), (false, tubes(&["*"])));
    server.ok(&["user", "revoke", "old", "--tube", "*"]);
    server.ok(&["user", "revoke", "ann", "--tube", "jobs"]);
    server.ok(&["user", "revoke", "boss", "--role", "super"]);
    assert_eq!(listed("old"), (false, tubes(&[])));
    assert_eq!(listed("ann"), (false, tubes(&["mail"])));
    assert_eq!(listed("boss"), (false, tubes(&[])));
    let run = server.run(&["user", "revoke", "ann", "--tube", "jobs"]);
    assert!(run.code == 1 && run.stderr.contains("ann has no grant on tube"), "{run:?}");
    let take = |tube: &str| {
        let mut take = server.command(&["take", tube]);
        take.env("LYCOSA_USER", "ann").env("LYCOSA_PASSWORD", "pw");
        crate::support::finish(take, "").code
    };
    assert_eq!((take("mail"), take("jobs")), (3, 1), "nothing to take, and no right");
}

/// Connections of others use up neither the places nor the file descriptors that the administrator needs, a snapshot included.
#[test]
fn the_administrator_gets_in_when_others_have_taken_everything() {
    let server = Server::with_files(200);
    let mut held = Vec::new();
    for _ in 0..300 {
        held.extend(std::net::TcpStream::connect(&server.address));
    }
    wait_until("connections are turned away", || server.log().contains("max_connections"));
    assert_eq!(server.run(&["ping"]).code, 4, "no place is left for others");
    server.ok(&["user", "list"]);
    server.ok(&["checkpoint", "--data-dir", server.data.path().to_str().unwrap()]);
    drop(held);
    wait_until("there are places again", || server.run(&["ping"]).code == 0);
}
