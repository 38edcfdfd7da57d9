//! The command line, run as a person runs it: `cat`, `check`, `export`, `import`, and tasks in batches.
//!
//! Data folders are copies of `corpus/files`, which a real Tarantool wrote; `expected.json` is what it says is in them.

mod backup;
mod batches;
mod cat;
mod check;
mod transfer;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::support::{Run, Server, command, finish, lycosa, wait_until};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

fn corpus(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/files").join(folder)
}

/// A copy of a folder of the corpus.
fn copy(folder: &str) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(corpus(folder)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if path.is_file() && !name.to_string_lossy().ends_with(".json") {
            fs::copy(&path, copy.path().join(name)).unwrap();
        }
    }
    copy
}

/// What the real server found in a folder: tuples by name of the space.
fn expected_counts(folder: &str) -> BTreeMap<String, u64> {
    let text = fs::read(corpus(folder).join("expected.json")).unwrap();
    let expected: Json = serde_json::from_slice(&text).unwrap();
    let spaces = expected["spaces"].as_array().unwrap().iter();
    spaces
        .map(|space| (space["name"].as_str().unwrap().to_owned(), space["count"].as_u64().unwrap()))
        .collect()
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

fn folder(folder: &TempDir) -> &str {
    folder.path().to_str().unwrap()
}
