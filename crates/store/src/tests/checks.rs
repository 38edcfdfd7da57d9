//! Check constraints: their rows, and the statements that they refuse. The expressions belong to a small language:
//! `N < number` is true of tuples whose second field is below it, and `?` cannot be compiled.

use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;

use super::{delete, insert, new_store, replace, row, run};
use crate::{
    Error, Origin, RowCheck, Settings, Space, SqlFault, SqlKnowledge, SqlText, Statement, Store, system, user,
};

#[derive(Debug)]
struct Below(u64);

impl RowCheck for Below {
    fn passes(&self, tuple: &[u8], spent: &mut u64) -> Result<bool, SqlFault> {
        *spent += 1;
        match TupleRef::trusted(tuple).field(1).map(|field| Reader::new(field).uint()) {
            Some(Ok(number)) => Ok(number < self.0),
            Some(Err(_)) => Err(SqlFault::new(171, "no number")),
            None => Ok(true),
        }
    }
}

fn compile(_: &Store, space: &Space, text: &str) -> Result<Box<dyn RowCheck>, SqlFault> {
    let missing = || SqlFault::new(176, format!("Can’t resolve field in '{text}'"));
    let (field, limit) = text.split_once(" < ").ok_or_else(missing)?;
    space.field_by_name(field).ok_or_else(missing)?;
    Ok(Box::new(Below(limit.parse().map_err(|_| missing())?)))
}

const SQL: SqlKnowledge =
    SqlKnowledge { check: |_, _| Ok(()), spaces_of_view: |_, _| Vec::new(), compile_check: compile };

/// A store with the space 512 of two fields, whose second one has a unique index.
fn store() -> Store {
    let mut store = new_store();
    store.set_sql(SQL);
    define(&mut store);
    store
}

fn define(store: &mut Store) {
    let fields = r#"[{"name": "id", "type": "unsigned"}, {"name": "N", "type": "any", "is_nullable": true}]"#;
    insert(store, 280, &format!(r#"[512, 1, "t", "memtx", 0, {{}}, {fields}]"#)).unwrap();
    insert(store, 288, r#"[512, 0, "pk", "tree", {"unique": true}, [[0, "unsigned"]]]"#).unwrap();
}

fn check(name: &str, text: &str, is_enabled: bool) -> String {
    format!(r#"[512, "{name}", false, "SQL", "{text}", {is_enabled}]"#)
}

fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.expect_err("a refusal").to_string()
}

#[test]
fn each_statement_is_checked_after_the_indexes() {
    let mut store = store();
    insert(&mut store, 364, &check("c", "N < 10", true)).unwrap();
    insert(&mut store, 512, "[1, 9]").unwrap();
    insert(&mut store, 512, "[2]").unwrap();
    let failed = "Check constraint failed 'c': N < 10";
    assert_eq!(refused(insert(&mut store, 512, "[3, 10]")), failed);
    assert_eq!(refused(replace(&mut store, 512, "[1, 10]")), failed);
    assert_eq!(
        refused(insert(&mut store, 512, "[1, 10]")),
        "Duplicate key exists in unique index 'pk' in space 't'"
    );
    assert_eq!(refused(insert(&mut store, 512, r#"[3, "x"]"#)), "no number");
    let (key, operations) = (row("[1]"), row(r#"[["=", 1, 11]]"#));
    let update = Statement::Update { space: 512, index: 0, key: &key, operations: &operations, base: 0 };
    assert_eq!(refused(run(&mut store, &update)), failed);
    let (tuple, operations) = (row("[1, 1]"), row(r#"[["+", 1, 1]]"#));
    let upsert = Statement::Upsert { space: 512, tuple: &tuple, operations: &operations, base: 0 };
    assert_eq!(refused(run(&mut store, &upsert)), failed);
    let tuple = row("[5, 50]");
    let upsert = Statement::Upsert { space: 512, tuple: &tuple, operations: &operations, base: 0 };
    assert_eq!(refused(run(&mut store, &upsert)), failed);
    // A refused statement has changed nothing.
    let space = store.space(512).unwrap();
    assert_eq!((space.len(), space.bytes()), (2, 5));
    assert_eq!(store.get(512, 0, &row("[1]")).unwrap(), Some(row("[1, 9]").as_slice()));
    replace(&mut store, 512, "[1, 8]").unwrap();
    delete(&mut store, 512, 0, "[1]").unwrap();
}

/// A rollback brings back the check that a row had, and whether it was enabled.
#[test]
fn a_check_follows_its_row_back_and_forth() {
    let mut store = store();
    insert(&mut store, 364, &check("c", "N < 10", true)).unwrap();
    let is_refused = |store: &mut Store| {
        let refused = insert(store, 512, "[1, 11]").is_err();
        if !refused {
            delete(store, 512, 0, "[1]").unwrap();
        }
        refused
    };
    for (undone, meanwhile) in [
        (check("c", "N < 10", false), false),
        (check("c", "N < 100", true), false),
        (check("c", "N < 5", true), true),
    ] {
        store.begin(user::ADMIN);
        store.execute(&Statement::Replace { space: system::CK_CONSTRAINT, tuple: &row(&undone) }).unwrap();
        let put = store.execute(&Statement::Insert { space: 512, tuple: &row("[1, 11]") }).map(drop);
        assert_eq!(put.is_err(), meanwhile, "{undone}");
        store.rollback();
        assert!(is_refused(&mut store), "{undone}");
    }
    store.begin(user::ADMIN);
    let key = row(r#"[512, "c"]"#);
    store.execute(&Statement::Delete { space: system::CK_CONSTRAINT, index: 0, key: &key }).unwrap();
    store.rollback();
    assert!(is_refused(&mut store));
    replace(&mut store, 364, &check("c", "N < 10", false)).unwrap();
    assert!(!is_refused(&mut store));
    // An enabled check does not look back.
    insert(&mut store, 512, "[1, 11]").unwrap();
    replace(&mut store, 364, &check("c", "N < 10", true)).unwrap();
    assert_eq!(refused(replace(&mut store, 512, "[1, 12]")), "Check constraint failed 'c': N < 10");
    let (count, tuple, error) =
        store.misfits(store.space(512).unwrap()).expect("a Tarantool does not start on it");
    assert_eq!(
        (count, tuple, error.to_string().as_str()),
        (1, row("[1, 11]").as_slice(), "Check constraint failed 'c': N < 10")
    );
    delete(&mut store, 364, 0, r#"[512, "c"]"#).unwrap();
    replace(&mut store, 512, "[1, 12]").unwrap();
}

#[test]
fn wrong_rows_are_refused_as_in_tarantool() {
    let mut store = store();
    for (text, reason) in [
        (check("c", "M < 1", true), "Failed to create check constraint 'c': Can’t resolve field in 'M < 1'"),
        (check("pk", "N < 1", true), "PRIMARY KEY constraint 'pk' already exists in space 't'"),
        (r#"[600, "c", false, "SQL", "N < 1", true]"#.to_owned(), "Space '600' does not exist"),
        (
            r#"[512, "c", true, "SQL", "N < 1", true]"#.to_owned(),
            "Tarantool does not support deferred ck constraints",
        ),
        (
            r#"[512, "c", false, "LUA", "N < 1", true]"#.to_owned(),
            "Unsupported language 'LUA' specified for function 'c'",
        ),
        (
            r#"[284, "c", false, "SQL", "id < 1", true]"#.to_owned(),
            "Lycosa does not support check constraints of system spaces",
        ),
    ] {
        assert_eq!(refused(insert(&mut store, 364, &text)), reason, "{text}");
    }
    insert(&mut store, 364, &check("c", "N < 10", true)).unwrap();
    insert(&mut store, 512, "[1, 1]").unwrap();
    let full = "Failed to create check constraint 'd': referencing space must be empty";
    assert_eq!(refused(insert(&mut store, 364, &check("d", "N < 1", true))), full);
    let index = r#"[512, 1, "c", "tree", {"unique": true}, [[0, "unsigned"]]]"#;
    assert_eq!(refused(insert(&mut store, 288, index)), "CHECK constraint 'c' already exists in space 't'");
    let key =
        |name: &str| format!(r#"["{name}", 512, 512, false, "simple", "no_action", "no_action", [0], [0]]"#);
    delete(&mut store, 512, 0, "[1]").unwrap();
    assert_eq!(
        refused(insert(&mut store, 356, &key("c"))),
        "CHECK constraint 'c' already exists in space 't'"
    );
    assert_eq!(
        refused(insert(&mut store, 356, &key("pk"))),
        "PRIMARY KEY constraint 'pk' already exists in space 't'"
    );
    insert(&mut store, 356, &key("f")).unwrap();
    let taken = "FOREIGN KEY constraint 'f' already exists in space 't'";
    assert_eq!(refused(insert(&mut store, 364, &check("f", "N < 1", true))), taken);
    delete(&mut store, 356, 0, r#"["f", 512]"#).unwrap();
    insert(&mut store, 512, "[1, 1]").unwrap();
    insert(&mut store, 288, r#"[512, 1, "c", "tree", {"unique": false}, [[0, "unsigned"]]]"#).unwrap();
    delete(&mut store, 288, 0, "[512, 1]").unwrap();
    let renamed = r#"[512, 1, "t", "memtx", 0, {}, [{"name": "id", "type": "unsigned"}, {"name": "M", "type": "any", "is_nullable": true}]]"#;
    assert_eq!(
        refused(replace(&mut store, 280, renamed)),
        "Failed to create check constraint 'c': Can’t resolve field in 'N < 10'"
    );
    assert_eq!(refused(replace(&mut store, 512, "[1, 10]")), "Check constraint failed 'c': N < 10");
    delete(&mut store, 512, 0, "[1]").unwrap();
    delete(&mut store, 288, 0, "[512, 0]").unwrap();
    assert_eq!(
        refused(delete(&mut store, 280, 0, "[512]")),
        "Can't drop space 't': the space has check constraints"
    );
    delete(&mut store, 364, 0, r#"[512, "c"]"#).unwrap();
    delete(&mut store, 280, 0, "[512]").unwrap();
}

/// Rows of a master are not checked, and a text that SQL does not understand refuses changes.
#[test]
fn history_is_not_checked_and_unknown_texts_refuse_changes() {
    let mut store = Store::new(Settings::default());
    store.bootstrap(super::CLUSTER, super::INSTANCE).unwrap();
    define(&mut store);
    let apply = |store: &mut Store, space, tuple: &str| {
        store.begin(user::ADMIN);
        store.execute_of(Origin::Master, &Statement::Insert { space, tuple: &row(tuple) }).unwrap();
        store.commit();
    };
    apply(&mut store, 364, &check("c", "N < 10", true));
    apply(&mut store, 512, "[1, 11]");
    assert_eq!(
        refused(insert(&mut store, 512, "[2, 1]")),
        "Lycosa does not support check constraint 'c' of space 't' (this process has no SQL): disable or drop it to change the space"
    );
    let former = store.lift_limit(true);
    insert(&mut store, 512, "[5, 50]").unwrap();
    store.lift_limit(former);
    store.set_sql(SQL);
    assert_eq!(store.unknown_checks().count(), 0);
    insert(&mut store, 512, "[2, 1]").unwrap();
    assert_eq!(refused(insert(&mut store, 512, "[3, 11]")), "Check constraint failed 'c': N < 10");
    apply(&mut store, 512, "[3, 11]");
    apply(&mut store, 364, &check("d", "?", true));
    let unknown: Vec<_> =
        store.unknown_checks().map(|(space, name, _)| (space.id(), name.to_owned())).collect();
    assert_eq!(unknown, [(512, "d".to_owned())]);
    assert!(refused(insert(&mut store, 512, "[4, 1]")).contains("does not support check constraint 'd'"));
    replace(&mut store, 364, &check("d", "?", false)).unwrap();
    insert(&mut store, 512, "[4, 1]").unwrap();
}

/// A bound on the work of a transaction's checks ends with the transaction.
#[test]
fn the_work_of_a_transaction_has_a_bound() {
    let mut store = store();
    insert(&mut store, 364, &check("c", "N < 10", true)).unwrap();
    store.limit_check_work(1);
    store.begin(user::ADMIN);
    store.limit_check_work(2);
    store.limit_check_work(100);
    let put = |store: &mut Store, tuple: &str| {
        store.execute(&Statement::Insert { space: 512, tuple: &row(tuple) }).map(drop)
    };
    put(&mut store, "[1, 1]").unwrap();
    put(&mut store, "[2, 2]").unwrap();
    assert!(
        refused(put(&mut store, "[3, 3]")).contains("take too long: change fewer rows with each statement")
    );
    store.commit();
    insert(&mut store, 512, "[3, 3]").unwrap();
    assert_eq!(store.space(512).unwrap().len(), 3);
}

/// The newest check is asked first; an altered space asks the oldest first, as in Tarantool.
#[test]
fn checks_are_asked_in_tarantools_order() {
    let mut store = store();
    insert(&mut store, 364, &check("a", "N < 10", true)).unwrap();
    insert(&mut store, 364, &check("b", "N < 9", true)).unwrap();
    assert_eq!(refused(insert(&mut store, 512, "[1, 11]")), "Check constraint failed 'b': N < 9");
    let renamed = r#"[512, 1, "u", "memtx", 0, {}, [{"name": "id", "type": "unsigned"}, {"name": "N", "type": "any", "is_nullable": true}]]"#;
    replace(&mut store, 280, renamed).unwrap();
    assert_eq!(refused(insert(&mut store, 512, "[1, 11]")), "Check constraint failed 'a': N < 10");
}

/// A folder of another server may have views and triggers whose texts this process does not understand.
#[test]
fn texts_that_are_not_understood_are_named() {
    let mut store = store();
    let view = |name: &str, id: u32, text: &str| {
        format!(r#"[{id}, 1, "{name}", "memtx", 0, {{"view": true, "sql": "{text}"}}, []]"#)
    };
    let trigger = |name: &str, text: &str| format!(r#"["{name}", 512, {{"sql": "{text}"}}]"#);
    for (space, text) in [
        (280, view("sound", 600, "a view")),
        (280, view("odd", 601, "what")),
        (328, trigger("fires", "a trigger")),
        (328, trigger("silent", "what")),
    ] {
        insert(&mut store, space, &text).unwrap();
    }
    let check = |_: &Store, text: SqlText<'_>| match text {
        SqlText::View { text: "what" } | SqlText::Trigger { text: "what", .. } => {
            Err("no such word".to_owned())
        }
        _ => Ok(()),
    };
    store.set_sql(SqlKnowledge { check, ..SQL });
    let found: Vec<_> =
        store.unknown_texts().into_iter().map(|(what, error)| format!("{what}: {error}")).collect();
    assert_eq!(
        found,
        [
            "the view 'odd': Lycosa does not support SQL views from this text: no such word",
            "the trigger 'silent': Lycosa does not support SQL triggers from this text: no such word",
        ]
    );
}
