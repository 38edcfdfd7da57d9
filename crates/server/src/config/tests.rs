//! The layers, their order, and the errors for a wrong configuration.

use super::*;

fn write(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lycosa.toml");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn variables(pairs: &[(&str, &str)]) -> std::vec::IntoIter<(String, String)> {
    pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect::<Vec<_>>().into_iter()
}

fn flags(pairs: &[(&str, &str)]) -> Flags {
    variables(pairs).collect()
}

#[test]
fn later_layers_win_and_say_so() {
    let (_folder, path) =
        write("listen = \"127.0.0.1:1\"\nmemory_limit = \"1GiB\"\nmax_waiting = 7\n[queue]\nttr = 1.5\n");
    let config = Config::load(
        Some(&path),
        variables(&[("LYCOSA_LISTEN", "127.0.0.1:2"), ("LYCOSA_MEMORY_LIMIT", "2GiB"), ("PATH", "/bin")]),
        &flags(&[("listen", "127.0.0.1:3,127.0.0.1:4")]),
    )
    .unwrap();
    assert_eq!(config.listen.0, ["127.0.0.1:3", "127.0.0.1:4"]);
    assert_eq!(config.memory_limit.0, 2 << 30);
    assert_eq!(config.max_waiting, 7);
    assert_eq!(config.queue_ttr, Duration::from_millis(1500));
    let sources: BTreeMap<_, _> =
        config.effective().map(|(s, _, source)| (s.key, source.to_string())).collect();
    assert_eq!(sources["listen"], "--listen");
    assert_eq!(sources["memory_limit"], "$LYCOSA_MEMORY_LIMIT");
    assert!(sources["max_waiting"].ends_with("lycosa.toml"));
    assert_eq!(sources["wal_mode"], "default");
}

#[test]
fn every_default_is_valid_and_every_name_is_one() {
    let config = Config::load(None, variables(&[]), &Vec::new()).unwrap();
    assert_eq!(config.effective().count(), SETTINGS.len());
    let keys: std::collections::BTreeSet<_> = SETTINGS.iter().map(|s| s.key).collect();
    let flags: std::collections::BTreeSet<_> = SETTINGS.iter().map(Setting::flag).collect();
    assert_eq!((keys.len(), flags.len()), (SETTINGS.len(), SETTINGS.len()));
}

#[test]
fn wrong_configurations_say_what_where_and_what_is_right() {
    let cases: &[(&str, &[&str])] = &[
        ("memory_limit = \"lots\"", &["memory_limit", "lots", "a size such as"]),
        ("memory_limt = \"1GiB\"", &["no setting memory_limt", "did you mean memory_limit?"]),
        ("wal_mode = 5", &["wal_mode", "one of fsync, write, none"]),
        ("listen = ", &["lycosa.toml", "line 1"]),
        ("[user]\nname = \"x\"", &["[[user]]"]),
        ("[[user]]\npassword = \"x\"", &["[[user]]", "name"]),
        ("[[user]]\nname = \"x\"\nrole = \"super\"", &["unknown field `role`"]),
        ("[queue]\nttl = 5", &["no setting queue.ttl", "did you mean queue.ttr?"]),
        ("[expiration]\nname = \"x\"", &["double brackets: [[expiration]]"]),
        ("[[expiration]]\nname = \"x\"\nspace = \"s\"", &["[[expiration]]", "missing field `field`"]),
        (
            "[[expiration]]\nname = \"x\"\nspace = \"s\"\nfield = 3\nscansize = 1",
            &["unknown field `scansize`"],
        ),
        ("[[expiration]]\nname = \"x\"\nspace = \"s\"\nfield = 3\nscan_size = \"many\"", &["invalid type"]),
        (
            "[[expiration]]\nname = \"x\"\nspace = \"s\"\nfield = 3\n\
             [[expiration]]\nname = \"x\"\nspace = \"t\"\nfield = 3",
            &["'x' is declared twice"],
        ),
    ];
    for (text, wanted) in cases {
        let (_folder, path) = write(text);
        let message = Config::load(Some(&path), variables(&[]), &Vec::new()).unwrap_err().to_string();
        for part in *wanted {
            assert!(message.contains(part), "{text:?} gives {message:?}, which lacks {part:?}");
        }
    }
    let message =
        Config::load(None, variables(&[("LYCOSA_LISTN", "x")]), &Vec::new()).unwrap_err().to_string();
    assert!(message.contains("did you mean LYCOSA_LISTEN?"), "{message}");
}

#[test]
fn users_and_tubes_are_declared() {
    let (_folder, path) = write(
        "[[user]]\nname = \"alice\"\npassword = \"s\"\nroles = [\"super\"]\n\
         [[tube]]\nname = \"mail\"\ntype = \"fifottl\"\nttl = 60\n[[tube]]\nname = \"plain\"\n",
    );
    let config = Config::load(Some(&path), variables(&[]), &Vec::new()).unwrap();
    assert_eq!(config.declared.users[0].roles, ["super"]);
    assert_eq!(config.declared.tubes[0].kind, "fifottl");
    assert_eq!(config.declared.tubes[0].options["ttl"].as_integer(), Some(60));
    assert_eq!(config.declared.tubes[1].kind, "fifottl");
}

#[test]
fn expiration_tasks_are_declared_and_follow_a_reload() {
    let text = "[[expiration]]\nname = \"emails\"\nspace = \"emails\"\nfield = \"deadline\"\nunit = \"ms\"\n\
                index = \"exp\"\nscan_size = 512\narchive_tube = \"old\"\n";
    let (_folder, path) = write(text);
    let running = Config::load(Some(&path), variables(&[]), &Vec::new()).unwrap();
    let options = running.declared.expirations[0].options();
    assert_eq!(options.get("field").and_then(|field| field.as_str()), Some("deadline"));
    assert_eq!(options.get("scan_size").and_then(lycosa_tuple::value::Value::as_u64), Some(512));
    assert_eq!(options.get("scan_time"), None, "what nobody says is not said");
    std::fs::write(&path, text.replace("512", "64")).unwrap();
    let mut fresh = Config::load(Some(&path), variables(&[]), &Vec::new()).unwrap();
    fresh.keep_fixed(&running);
    assert_eq!(fresh.declared.expirations[0].scan_size, Some(64));
}

#[test]
fn every_setting_is_documented() {
    let page = include_str!("../../../../docs/configuration.md");
    for setting in SETTINGS {
        let reloads = if setting.reloads { "yes" } else { "no" };
        let row = format!("| `{}` | `{}` | {reloads} | {} |", setting.key, setting.default, setting.help);
        assert!(page.contains(&row), "docs/configuration.md lacks the row\n{row}");
    }
}

#[test]
fn no_password_is_shown() {
    let flags = vec![("replication".to_owned(), "repl:secret@10.0.0.1:3301,10.0.0.2:3301".to_owned())];
    let config = Config::load(None, std::iter::empty(), &flags).expect("a configuration");
    assert_eq!(config.replication.0[0].password, "secret");
    assert_eq!(config.text("replication"), "repl@10.0.0.1:3301,10.0.0.2:3301");
    assert!(config.effective().all(|(_, text, _)| !text.contains("secret")));
}
