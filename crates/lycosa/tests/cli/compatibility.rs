//! The compatibility tables of `docs/lua-compatibility.md`: which of Tarantool's functions, fields and constants exist here, and
//! which functions the tests compare with Tarantool.
//!
//! `programs/api.lua` lists the functions that a program can call. Tarantool's list is recorded in `programs/api.tarantool`, so
//! that the table needs no Tarantool; where one is installed, the record is checked too. `programs/fields.lua` and its record
//! do the same for what `pairs` shows beside functions. A function counts as compared if a
//! program that runs under both and has to print the same names it. `LYCOSA_TEST_UPDATE=1` writes record and table anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::addresses::free_address;
use crate::programs::{has_tarantool, programs};

/// Programs of `programs.rs` that run under both.
const COMPARED: [&str; 16] = [
    "before.lua",
    "box.lua",
    "error_objects.lua",
    "errors.lua",
    "fiber_order.lua",
    "indexes.lua",
    "informed.lua",
    "key_def.lua",
    "logs.lua",
    "named.lua",
    "net_box.lua",
    "schema.lua",
    "spaces.lua",
    "sql.lua",
    "triggers.lua",
    "tuples.lua",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn is_updating() -> bool {
    std::env::var_os("LYCOSA_TEST_UPDATE").is_some()
}

/// The lines that `fields.lua` writes under one of the two.
fn fields(binary: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(binary);
    command.arg(programs().join("fields.lua")).arg("list").current_dir(folder.path()).stdin(Stdio::null());
    let output = command.output().expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    fs::read_to_string(folder.path().join("list")).unwrap_or_else(|_| panic!("{binary}: {errors}"))
}

/// The table of fields: a row for each field that one of the two does not have, or that is something else there.
fn field_table(theirs: &str, ours: &str) -> String {
    let parse = |text: &str| -> BTreeMap<String, String> {
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
    };
    let (theirs, ours) = (parse(theirs), parse(ours));
    let same = theirs.iter().filter(|(name, kind)| ours.get(*name) == Some(kind)).count();
    let mut text = format!(
        "\n## Fields and constants\n\n\
         What `pairs` shows of modules and of `box` beside functions, by type, and the values of constants. Of {} fields {same} are the\n\
         same in Lycosa. A dash stands for a field that does not exist.\n\n\
         | field | Tarantool 2.6 | Lycosa |\n|---|---|---|\n",
        theirs.len()
    );
    let names: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
    for name in names {
        let (their, our) = (theirs.get(name), ours.get(name));
        if their != our {
            let shown =
                |kind: Option<&String>| kind.map_or("–".to_owned(), |kind| kind.replace('|', "\\|"));
            let _ = writeln!(text, "| `{name}` | {} | {} |", shown(their), shown(our));
        }
    }
    text
}

/// What the program lists under one of the two.
fn list(binary: &str) -> BTreeSet<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_address().port().to_string();
    let mut command = Command::new(binary);
    command
        .arg(programs().join("api.lua"))
        .args([&port, "list"])
        .current_dir(folder.path())
        .stdin(Stdio::null());
    let output = command.output().expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    let text =
        fs::read_to_string(folder.path().join("list")).unwrap_or_else(|_| panic!("{binary}: {errors}"));
    text.lines().map(str::to_owned).collect()
}

/// The programs whose output is compared.
fn compared() -> Vec<String> {
    let scripts = fs::read_dir(root().join("crates/lua/tests/scripts")).expect("a folder of the project");
    let scripts = scripts.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    let scripts = scripts.filter(|text| text.starts_with("-- oracle"));
    let programs = COMPARED.iter().map(|name| fs::read_to_string(programs().join(name)).expect("a program"));
    scripts.chain(programs).collect()
}

/// A function's module or class, and its own name.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once([':', '.']).expect("a name has a module")
}

/// Whether a program names the function: behind a dot or a colon, where its module is known.
fn is_named(program: &str, name: &str) -> bool {
    let (module, own) = split(name);
    let is_object = name.contains(':');
    let library = matches!(
        module,
        "string" | "table" | "os" | "io" | "math" | "debug" | "bit" | "coroutine" | "package"
    );
    if !is_object && library {
        return program.contains(&format!("{module}.{own}"));
    }
    if module.starts_with("box") {
        return program.contains(name);
    }
    let first = module.split(' ').next().unwrap_or(module);
    let required = match first {
        "space" | "index" | "sequence" | "tuple" | "error" | "func" => "box.cfg".to_owned(),
        "channel" | "cond" => format!("fiber.{first}"),
        "connection" | "future" => "net.box".to_owned(),
        "file" => "'fio'".to_owned(),
        "ibuf" => "'buffer'".to_owned(),
        "iterator" => "'fun'".to_owned(),
        "http" => "'http.client'".to_owned(),
        other => format!(
            "'{}'",
            other.split_once('.').filter(|(head, _)| *head != "net").map_or(other, |(head, _)| head)
        ),
    };
    let required = if module == "http.client" { "'http.client'".to_owned() } else { required };
    let ends = |text: &str| !text.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_');
    program.contains(&required)
        && [".", ":"].iter().any(|before| {
            let wanted = format!("{before}{own}");
            program.match_indices(&wanted).any(|(at, _)| ends(&program[at + wanted.len()..]))
        })
}

fn table(theirs: &BTreeSet<String>, ours: &BTreeSet<String>) -> String {
    let programs = compared();
    let mut groups: BTreeMap<&str, [Vec<&str>; 3]> = BTreeMap::new();
    for name in theirs {
        let (module, own) = split(name);
        let place = match (ours.contains(name), programs.iter().any(|program| is_named(program, name))) {
            (false, _) => 2,
            (true, true) => 0,
            (true, false) => 1,
        };
        groups.entry(module).or_default()[place].push(own);
    }
    let sum = |place: usize| groups.values().map(|group| group[place].len()).sum::<usize>();
    let mut text = format!(
        "# Functions and fields of Tarantool 2.6 and of Lycosa\n\n\
         A test writes these tables (`crates/lycosa/tests/cli/compatibility.rs`). *Compared*: a program that names the function runs under both\n\
         servers and has to print the same. *Present*: the function exists, and no such program names it. *Absent*: it does not exist\n\
         here. Of {} functions and methods {} are compared, {} are present and {} are absent. What differs on purpose stands in\n\
         [lua.md](lua.md#what-a-program-finds).\n\n\
         | module or object | compared | present | absent |\n|---|---|---|---|\n",
        theirs.len(),
        sum(0),
        sum(1),
        sum(2)
    );
    for (module, [compared, present, absent]) in &groups {
        let shown = |names: &[&str]| match names.len() {
            0 => "–".to_owned(),
            _ => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
        };
        let _ =
            writeln!(text, "| `{module}` | {} | {} | {} |", shown(compared), shown(present), shown(absent));
    }
    text
}

#[test]
fn the_tables_are_up_to_date() {
    let record = programs().join("api.tarantool");
    let field_record = programs().join("fields.tarantool");
    if has_tarantool() {
        let text: String = list("tarantool").iter().map(|name| format!("{name}\n")).collect();
        if is_updating() {
            fs::write(&record, &text).expect("the record can be written");
        }
        assert_eq!(
            text,
            fs::read_to_string(&record).expect("the record"),
            "set LYCOSA_TEST_UPDATE=1 to record it"
        );
        let text = fields("tarantool");
        if is_updating() {
            fs::write(&field_record, &text).expect("the record can be written");
        }
        assert_eq!(
            text,
            fs::read_to_string(&field_record).expect("the record"),
            "set LYCOSA_TEST_UPDATE=1 to record it"
        );
    }
    let recorded = fs::read_to_string(&record).expect("the record");
    let theirs = recorded.lines().map(str::to_owned).collect();
    let their_fields = fs::read_to_string(&field_record).expect("the record");
    let own = env!("CARGO_BIN_EXE_lycosa");
    let wanted = table(&theirs, &list(own)) + &field_table(&their_fields, &fields(own));
    let path = root().join("docs/lua-compatibility.md");
    if is_updating() {
        fs::write(&path, &wanted).expect("the table can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        written, wanted,
        "docs/lua-compatibility.md is out of date: run this test with LYCOSA_TEST_UPDATE=1"
    );
}
