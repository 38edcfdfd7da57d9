//! The documents agree with what the binary says of itself.

use std::path::Path;
use std::process::Command;

/// Runs the binary away from any configuration and gives what it printed.
fn lycosa(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_lycosa"));
    command.args(arguments).current_dir(folder.path());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LYCOSA_")) {
        command.env_remove(name);
    }
    let output = command.output().expect("the binary runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("help is UTF-8")
}

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names that a help text lists: under `Commands:`, or in groups between the usage and `Options:`.
fn commands(help: &str) -> Vec<&str> {
    let listed = match help.lines().any(|line| line == "Commands:") {
        true => help.split_once("Commands:\n").and_then(|(_, rest)| rest.split("\n\n").next()),
        false => help.split_once("\n\n").and_then(|(_, rest)| rest.split("\nOptions:").next()),
    };
    let is_top = help.contains("Usage: lycosa [OPTIONS] <COMMAND>");
    let listed = listed.filter(|_| is_top || help.contains("\nCommands:\n")).unwrap_or_default();
    // A line that is indented further goes on with the description of the command before it.
    let names = listed
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").collect()
}

#[test]
fn every_command_stands_in_the_command_line_s_document() {
    let text = document("cli.md");
    let help = lycosa(&["--help"]);
    let commands_at_top = commands(&help);
    assert!(commands_at_top.contains(&"serve"), "{help}");
    for command in commands_at_top {
        assert!(
            text.contains(&format!("`{command}`")) || text.contains(&format!("`lycosa {command}")),
            "docs/cli.md does not name `lycosa {command}`"
        );
        let help = lycosa(&[command, "--help"]);
        for inner in commands(&help) {
            assert!(
                text.contains(&format!("`{inner}`")) || text.contains(&format!("`lycosa {command} {inner}")),
                "docs/cli.md does not name `lycosa {command} {inner}`"
            );
        }
    }
}

#[test]
fn every_setting_stands_in_the_configuration_s_document_with_its_default() {
    let text = document("configuration.md");
    let mut count = 0;
    for line in lycosa(&["config", "--json"]).lines() {
        let setting: serde_json::Value = serde_json::from_str(line).expect("each line is JSON");
        let (key, value) =
            (setting["key"].as_str().expect("a key"), setting["value"].as_str().expect("a value"));
        let row = format!("| `{key}` | `{value}` |");
        assert!(text.contains(&row), "docs/configuration.md does not say `{key}` is `{value}` by default");
        count += 1;
    }
    assert!(count > 10, "only {count} settings");
}
