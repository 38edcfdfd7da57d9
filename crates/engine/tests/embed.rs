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
    let mut program = embed::Program::open(folder.path()).unwrap();
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
    let program = embed::Program::open(folder.path()).unwrap();
    assert!(embed::Program::open(folder.path()).is_err());
    program.close().unwrap();
    embed::Program::open(folder.path()).unwrap();
}
