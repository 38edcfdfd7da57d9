//! The example of an embedding program, run.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(unreachable_pub, reason = "an example has a main of its own")]
#[path = "../examples/embed.rs"]
mod embed;

use lycosa_tuple::value::Value;

fn task(id: u32, text: &str) -> Vec<Value> {
    vec![Value::Array(vec![id.into(), "t".into(), text.into()])]
}

#[test]
fn tasks_of_an_embedding_program_survive_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = embed::Program::open(folder.path(), u64::MAX).unwrap();
    program.call("queue.create_tube", &["mail".into(), "fifo".into()]).unwrap();
    program.call("queue.tube.mail:put", &["first".into()]).unwrap();
    assert_eq!(program.call("queue.tube.mail:take", &[0_u32.into()]).unwrap(), task(0, "first"));
    // It is killed while it holds the task.
    drop(program);
    assert_eq!(embed::run(folder.path(), "second").unwrap(), task(0, "first"));
    assert_eq!(embed::run(folder.path(), "third").unwrap(), task(1, "second"));
    assert_eq!(embed::run(folder.path(), "fourth").unwrap(), task(2, "third"));
}

#[test]
fn a_folder_has_one_program_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let program = embed::Program::open(folder.path(), u64::MAX).unwrap();
    assert!(embed::Program::open(folder.path(), u64::MAX).is_err());
    program.close().unwrap();
    embed::Program::open(folder.path(), u64::MAX).unwrap();
}

/// Names of the files that end so, in the order of their signatures.
fn names(folder: &std::path::Path, ending: &str) -> Vec<String> {
    let names =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.ends_with(ending)).collect();
    names.sort();
    names
}

#[test]
fn an_embedding_program_takes_snapshots_and_removes_old_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = embed::Program::open(folder.path(), 4096).unwrap();
    program.call("queue.create_tube", &["mail".into(), "fifo".into()]).unwrap();
    let payload = "x".repeat(1000);
    program.call("queue.tube.mail:put", &["stays".into()]).unwrap();
    for id in 1..100_u32 {
        program.call("queue.tube.mail:put", &[payload.as_str().into()]).unwrap();
        program.call("queue.tube.mail:delete", &[id.into()]).unwrap();
    }
    let (snapshots, xlogs) = (names(folder.path(), ".snap"), names(folder.path(), ".xlog"));
    assert!(snapshots.first().unwrap() > &"00000000000000000000.snap".to_owned(), "{snapshots:?}");
    assert!(xlogs.first().unwrap() > &"00000000000000000000.xlog".to_owned(), "{xlogs:?}");
    drop(program);
    let mut program = embed::Program::open(folder.path(), u64::MAX).unwrap();
    assert_eq!(program.call("queue.tube.mail:take", &[0_u32.into()]).unwrap(), task(0, "stays"));
    program.close().unwrap();
}
