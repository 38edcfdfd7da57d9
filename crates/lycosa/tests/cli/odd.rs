//! Odd arguments: every function of a program is called with them under Tarantool and here (`programs/odd.lua`), and does the
//! same: it raises the same error or returns values of the same types.
//!
//! Differences that stay are in `docs/lua-differences.md`, each with its reason. The test refuses a difference that the page
//! does not list. If all pairs of arguments are tried, it also refuses a line of the page that stands for no difference.
//! Without a Tarantool only the calls are made, none of which may end the process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::programs::has_tarantool;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// With `LYCOSA_TEST_ALL=1` each function gets all pairs of arguments, a third of them else.
fn has_all_pairs() -> bool {
    std::env::var_os("LYCOSA_TEST_ALL").is_some()
}

/// What became of each call.
fn outcomes(program: &str) -> BTreeMap<String, String> {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(program);
    command.arg(programs.join("odd.lua")).arg(programs.join("api.tarantool")).arg("results");
    if has_all_pairs() {
        command.arg("all");
    }
    let output = command.current_dir(folder.path()).stdin(Stdio::null()).output().expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program}: {}\n{errors}", output.status);
    let results = fs::read(folder.path().join("results")).expect("the program writes them");
    let results = String::from_utf8_lossy(&results).into_owned();
    let split = results.lines().filter_map(|line| line.split_once('\t'));
    split.map(|(call, outcome)| (call.to_owned(), outcome.to_owned())).collect()
}

/// The calls that the page lists, with `*` for any text.
fn listed() -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/lua-differences.md")).expect("the page");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    rows.map(|(calls, _)| calls.replace("\\|", "|")).collect()
}

/// Whether the text is one that the pattern stands for.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(head) else { return false };
    text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| fits(rest, &text[at..]))
}

#[test]
fn odd_arguments_do_what_they_do_there() {
    const MIN_CALLS: usize = 38_000;
    let ours = outcomes(env!("CARGO_BIN_EXE_lycosa"));
    assert!(ours.len() > MIN_CALLS, "{}", ours.len());
    if !has_tarantool() {
        return;
    }
    let theirs = outcomes("tarantool");
    assert!(theirs.len() > MIN_CALLS, "{}", theirs.len());
    let mut listed: Vec<(String, usize)> = listed().into_iter().map(|calls| (calls, 0)).collect();
    let mut surprises = Vec::new();
    for (call, their) in &theirs {
        let our = ours.get(call).map_or("the function is absent", String::as_str);
        if our == their {
            continue;
        }
        let known = listed.iter_mut().filter(|(pattern, _)| fits(pattern, call));
        if known.map(|(_, count)| *count += 1).count() == 0 {
            surprises.push(format!("{call}\n  ours      {our}\n  tarantool {their}"));
        }
    }
    let stale: Vec<_> = listed.iter().filter(|(_, count)| *count == 0).map(|(pattern, _)| pattern).collect();
    let shown = surprises.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(
        surprises.is_empty(),
        "{} differences are not in docs/lua-differences.md:\n{shown}",
        surprises.len()
    );
    assert!(
        stale.is_empty() || !has_all_pairs(),
        "docs/lua-differences.md lists what does not differ: {stale:?}"
    );
}

#[test]
fn patterns_of_calls() {
    for (pattern, text, fit) in [
        ("a(*)", "a(1, 2)", true),
        ("a(*)", "b(1)", false),
        ("*(7LL*)", "tuple:find(7LL, nil)", true),
        ("*(7LL*)", "tuple:find(nil, 7LL)", false),
        ("a", "a", true),
        ("*", "", true),
    ] {
        assert_eq!(fits(pattern, text), fit, "{pattern} {text}");
    }
}
