//! Start, stop and restart in every order, with every wrong argument.

use lycosa_expiration::{MAX_TASKS, capped_kill, capped_start};
use lycosa_store::{IndexKind, ddl};
use lycosa_tuple::value::Value;

use crate::rig::{Rig, SECOND, definition, field_3};

#[track_caller]
fn refused(done: Result<(), lycosa_expiration::Error>, part: &str) {
    let text = done.expect_err("an error").to_string();
    assert!(text.contains(part), "{text:?} lacks {part:?}");
}

#[test]
fn wrong_arguments_say_what_is_wrong() {
    let mut rig = Rig::new();
    let space = rig.space("emails", IndexKind::Tree, Some("unsigned"));
    let cases: Vec<(Vec<(&str, Value)>, &str)> = vec![
        (vec![], "field is missing"),
        (vec![("field", 0_u32.into())], "counted from 1"),
        (vec![("field", Value::Bool(true))], "field is a number from 1 or a name, not true"),
        (vec![("field", "dedline".into())], "the format of space 'emails' has no field 'dedline'"),
        (vec![field_3(), ("unit", "h".into())], "unit is s, ms or us, not 'h'"),
        (vec![field_3(), ("unit", 1_u32.into())], "unit is a string, not 1"),
        (vec![field_3(), ("index", "ex".into())], "no index 'ex' (did you mean 'exp'?)"),
        (vec![field_3(), ("index", 7_u32.into())], "No index #7 is defined in space 'emails'"),
        (vec![field_3(), ("delete_by", "exp".into())], "index 'exp' of space 'emails' is not unique"),
        (vec![field_3(), ("scan_size", Value::Double(1.5))], "scan_size is a whole number, not 1.5"),
        (vec![field_3(), ("scan_time", (-1_i64).into())], "scan_time is a whole number, not -1"),
        (vec![field_3(), ("scan_time", u64::MAX.into())], "scan_time is 0 to 3153600000"),
        (vec![field_3(), ("budget_rows", 0_u32.into())], "budget_rows is 1 to 100000, not 0"),
        (vec![field_3(), ("budget_us", 1000_u32.into())], "budget_us is 10 to 800, not 1000"),
        (vec![field_3(), ("share", 101_u32.into())], "share is 1 to 100, not 101"),
        (vec![field_3(), ("lag_limit", (-2_i64).into())], "lag_limit is 0 to 1000000000000 seconds, not -2"),
        (
            vec![field_3(), ("lag_limit", Value::Double(1e300))],
            "lag_limit is 0 to 1000000000000 seconds, not 1e300",
        ),
        (vec![("field", Value::Str(vec![0xff]))], r"not the bytes '\xff', which are no UTF-8"),
        (vec![field_3(), ("transient", 1_u32.into())], "transient is true or false, not 1"),
        (vec![field_3(), ("scansize", 1_u32.into())], "no option 'scansize' (did you mean 'scan_size'?)"),
        (vec![field_3(), field_3()], "option 'field' is given twice"),
        (vec![field_3(), ("archive_space", "emails".into())], "cannot be the archive of its own tuples"),
        (vec![field_3(), ("archive_space", "nope".into())], "space 'nope' does not exist"),
        (vec![field_3(), ("archive_space", 280_u32.into())], "'_space' is the server's own"),
        (
            vec![field_3(), ("archive_space", 280_u32.into()), ("archive_tube", "t".into())],
            "exclude each other",
        ),
    ];
    for (options, part) in cases {
        refused(rig.start("t", space, &options), part);
    }
    refused(rig.start("", space, &[field_3()]), "1 to 255 bytes, not 0");
    refused(rig.start(&"x".repeat(256), space, &[field_3()]), "not 256");
    refused(rig.start("t", 280, &[field_3()]), "space '_space' is the server's own");
    refused(rig.start("t", 9999, &[field_3()]), "Space '9999' does not exist");
    assert!(rig.expiration.is_empty(), "no name is left taken");
    rig.start("tokens", space, &[field_3()]).unwrap();
    refused(rig.start("tokens", space, &[field_3()]), "expiration task 'tokens' already exists");
    assert!(rig.expiration.unknown("token", &|_| Ok(())).to_string().contains("did you mean 'tokens'?"));
}

#[test]
fn start_stop_and_restart_in_every_order() {
    let mut rig = Rig::new();
    let space = rig.space("s", IndexKind::Tree, None);
    for _ in 0..3 {
        rig.stop("t");
        rig.stop("t");
        rig.start("t", space, &[field_3()]).unwrap();
        rig.run_until_idle();
        rig.restart();
        rig.put(space, 1, 1_u64);
        rig.advance(2 * SECOND);
        assert_eq!(rig.ids(space), [0_u64; 0], "a task goes on after a restart");
        refused(rig.start("t", space, &[field_3()]), "already exists");
        rig.stop("t");
        rig.restart();
        rig.put(space, 1, 1_u64);
        rig.advance(20 * SECOND);
        assert_eq!(rig.ids(space), [1], "a task that was stopped does not");
        rig.start("t", space, &[field_3(), ("transient", Value::Bool(true))]).unwrap();
        rig.advance(2 * SECOND);
        assert_eq!(rig.ids(space), [0_u64; 0]);
        rig.restart();
        rig.run_until_idle();
        assert!(rig.expiration.is_empty(), "a transient task ends with the process");
    }
}

#[test]
fn a_task_ends_with_its_space_and_not_with_its_name() {
    for is_transient in [false, true] {
        let mut rig = Rig::new();
        let space = rig.space("s", IndexKind::Tree, Some("unsigned"));
        rig.start("t", space, &[field_3(), ("transient", Value::Bool(is_transient))]).unwrap();
        rig.run_until_idle();
        rig.transaction(|store| ddl::rename_space(store, space, "renamed").unwrap());
        rig.put(space, 1, 1_u64);
        rig.run_until_idle();
        assert_eq!(rig.ids(space), [0_u64; 0], "the task survives an alter");
        // Dropped, and another space made with the number, before the task sees it.
        rig.transaction(|store| {
            ddl::drop_space(store, space).unwrap();
            let spec = ddl::SpaceSpec { id: Some(space), ..ddl::SpaceSpec::new("other", &[]) };
            ddl::create_space(store, &spec).unwrap();
            let parts = [ddl::PartSpec::new(0, "unsigned")];
            ddl::create_index(store, space, &ddl::IndexSpec::new("pk", &parts)).unwrap();
        });
        rig.put(space, 1, 1_u64);
        rig.advance(100 * SECOND);
        assert_eq!(rig.ids(space), [1], "the new space is not the task's");
        assert!(rig.expiration.is_empty());
        rig.restart();
        rig.run_until_idle();
        assert!(rig.expiration.is_empty(), "its row is gone too");
    }
}

#[test]
fn rows_are_the_tasks_whoever_writes_them() {
    let mut rig = Rig::new();
    let space = rig.space("s", IndexKind::Tree, None);
    rig.start("t", space, &[field_3()]).unwrap();
    let rows = rig.store.space_by_name("_expiration").unwrap().id();
    assert!(rows > lycosa_store::system::MAX);
    let options = Value::map([("field", Value::from(3_u32)), ("unit", "ms".into())]);
    rig.replace(rows, &Value::Array(vec!["u".into(), space.into(), options]));
    rig.replace(rows, &Value::Array(vec!["bad".into(), space.into(), Value::Map(vec![])]));
    rig.run_until_idle();
    assert_eq!(rig.expiration.len(), 2);
    let (_, line) = rig.expiration.poll_log().expect("a line");
    assert!(line.contains("task 'bad'") && line.contains("field is missing"), "{line}");
    rig.transaction(|store| ddl::truncate(store, rows).unwrap());
    rig.run_until_idle();
    assert!(rig.expiration.is_empty());
    refused(rig.start("v", rows, &[field_3()]), "the server's own");
}

#[test]
fn there_is_a_limit() {
    let mut rig = Rig::new();
    let space = rig.space("s", IndexKind::Tree, None);
    for number in 0..MAX_TASKS {
        let name = number.to_string();
        rig.expiration.begin(&rig.store, definition(&name, space), rig.now).unwrap();
    }
    let one_more = rig.expiration.begin(&rig.store, definition("x", space), rig.now);
    refused(one_more, "which is the most");
}

#[test]
fn archives_do_not_lead_back() {
    let mut rig = Rig::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| rig.space(name, IndexKind::Tree, None));
    rig.start("ab", a, &[field_3(), ("archive_space", "b".into())]).unwrap();
    rig.start("bc", b, &[field_3(), ("archive_space", c.into())]).unwrap();
    refused(rig.start("ca", c, &[field_3(), ("archive_space", "a".into())]), "would come back");
    rig.put(a, 1, 1_u64);
    rig.advance(10 * SECOND);
    assert_eq!((rig.ids(a), rig.ids(b), rig.ids(c)), (vec![], vec![], vec![1]));
    // By a second task of one space, too.
    let [d, e] = ["d", "e"].map(|name| rig.space(name, IndexKind::Tree, None));
    rig.start("ad", a, &[field_3(), ("archive_space", "d".into())]).unwrap();
    rig.start("de", d, &[field_3(), ("archive_space", "e".into())]).unwrap();
    refused(rig.start("ea", e, &[field_3(), ("archive_space", "a".into())]), "would come back");
}

#[test]
fn an_archive_takes_tuples() {
    let mut rig = Rig::new();
    let space = rig.space("s", IndexKind::Tree, None);
    let bare = rig.transaction(|store| ddl::create_space(store, &ddl::SpaceSpec::new("bare", &[])).unwrap());
    refused(
        rig.start("t", space, &[field_3(), ("archive_space", "bare".into())]),
        "the archive, space 'bare', has no primary index and takes no tuples: create an index first",
    );
    refused(rig.start("t", bare, &[field_3()]), "No index #0 is defined in space 'bare'");
    assert!(rig.expiration.is_empty(), "no name is left taken");
}

#[test]
fn a_row_that_came_beside_a_transient_task_is_read_after_it() {
    let mut rig = Rig::new();
    let space = rig.space("s", IndexKind::Tree, None);
    rig.start("other", space, &[field_3()]).unwrap();
    rig.start("t", space, &[field_3(), ("transient", Value::Bool(true))]).unwrap();
    let rows = rig.store.space_by_name("_expiration").unwrap().id();
    let options = Value::map([("field", Value::from(3_u32)), ("scan_size", 7_u32.into())]);
    rig.replace(rows, &Value::Array(vec!["t".into(), space.into(), options]));
    rig.run_until_idle();
    assert!(rig.expiration.definition("t").unwrap().transient, "the task that runs goes on");
    rig.expiration.end("t");
    rig.run_until_idle();
    assert_eq!(rig.expiration.definition("t").unwrap().scan_size, 7);
    rig.stop("t");
    rig.run_until_idle();
    assert_eq!(rig.expiration.len(), 1);
}

#[test]
fn a_dry_run_counts_and_deletes_nothing() {
    for ty in [None, Some("unsigned")] {
        let mut rig = Rig::new();
        let space = rig.space("s", IndexKind::Tree, ty);
        for id in 0..100 {
            rig.put(space, id, rig.seconds() - 50 + id);
        }
        let options = [field_3(), ("dry_run", Value::Bool(true)), ("budget_rows", 7_u32.into())];
        rig.start("d", space, &options).unwrap();
        rig.run_until_idle();
        assert_eq!(rig.ids(space).len(), 100);
        assert_eq!(rig.number("d", "due"), 51, "{ty:?}");
        assert_eq!(rig.number("d", "oldest_us"), rig.now - 50 * SECOND);
        assert_eq!(rig.number("d", "newest_us"), rig.now);
        assert_eq!(rig.state("d"), "done");
        rig.now += 61 * SECOND;
        rig.run_until_idle();
        assert!(rig.expiration.is_empty(), "nobody has to clean up after a dry run");
    }
}

/// An index as `net.box` sends it.
fn index(id: u32, unique: bool) -> Value {
    Value::map([
        ("unique", Value::Bool(unique)),
        ("parts", Value::Array(vec![])),
        ("id", id.into()),
        ("type", "TREE".into()),
        ("name", "primary".into()),
    ])
}

fn seven(space: u32, changes: &[(usize, Value)]) -> Vec<Value> {
    let mut arguments = vec![
        "capped".into(),
        space.into(),
        index(0, true),
        index(1, false),
        3_u32.into(),
        1024_u32.into(),
        3600_u32.into(),
    ];
    for (position, value) in changes {
        arguments[*position] = value.clone();
    }
    arguments
}

#[test]
fn the_seven_arguments_of_the_article() {
    let mut rig = Rig::new();
    let space = rig.space("tester", IndexKind::Tree, Some("unsigned"));
    let definition = capped_start(&rig.store, &seven(space, &[]), &|_| Ok(())).unwrap();
    assert_eq!((definition.index, definition.delete_by, definition.scan_size), (1, 0, 1024));
    assert_eq!(definition.scan_time, 3600);
    let without = Value::Map(vec![]);
    let definition =
        capped_start(&rig.store, &seven(space, &[(2, without.clone()), (3, without)]), &|_| Ok(())).unwrap();
    assert_eq!((definition.index, definition.delete_by), (0, 0), "a missing id is 0");

    let cases: &[(usize, Value, &str)] = &[
        (0, 5_u32.into(), "a string, not 5"),
        (0, "".into(), "1 to 255 bytes"),
        (1, "tester".into(), "the space id is a whole number, not 'tester'"),
        (1, 9999_u32.into(), "does not exist"),
        (1, 280_u32.into(), "the server's own"),
        (2, 0_u32.into(), "the index to delete by is a map"),
        (2, index(1, false), "the index to delete by is not unique"),
        (2, index(1, true), "index 'exp' of space 'tester' is not unique"),
        (2, index(9, true), "No index #9"),
        (2, Value::Map(vec![(1_u32.into(), 2_u32.into())]), "has the key 1, which is no string"),
        (2, Value::map([("unique", "yes")]), "unique of the index to delete by is true or false"),
        (3, Value::map([("id", "exp")]), "the id of the index to walk is a whole number"),
        (3, Value::map([("space_id", 513_u32)]), "belongs to space 513"),
        (4, 0_u32.into(), "counted from 1"),
        (4, "exp".into(), "the field number is a whole number"),
        (5, (-1_i64).into(), "the scan size is a whole number, not -1"),
        (6, Value::Double(0.5), "the scan time is a whole number, not 0.5"),
    ];
    for (position, value, part) in cases {
        refused(
            capped_start(&rig.store, &seven(space, &[(*position, value.clone())]), &|_| Ok(())).map(drop),
            part,
        );
    }
    refused(capped_start(&rig.store, &seven(space, &[])[..6], &|_| Ok(())).map(drop), "expected 7 arguments");
    refused(capped_kill(&[]).map(drop), "expected 1 argument (name), got 0");
    refused(capped_kill(&[1_u32.into()]).map(drop), "a string, not 1");
    assert_eq!(capped_kill(&["x".into()]), Ok("x"));
}

#[test]
fn a_scan_size_of_zero_looks_at_nothing() {
    let mut rig = Rig::new();
    let space = rig.space("tester", IndexKind::Tree, Some("unsigned"));
    rig.put(space, 1, 1_u64);
    let definition = capped_start(&rig.store, &seven(space, &[(5, 0_u32.into())]), &|_| Ok(())).unwrap();
    rig.start_definition(definition).unwrap();
    rig.advance(100 * SECOND);
    assert_eq!(rig.ids(space), [1]);
    assert_eq!(rig.state("capped"), "idle");
}
