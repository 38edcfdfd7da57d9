//! Rows of `_fk_constraint`, and the indexes that they refer to. The texts were seen on a real server.

use super::*;

/// A parent (600) with unique indexes of `a`, of `b` with `c`, and of `n`; and an empty child (601).
fn with_family() -> Store {
    let mut store = new_store();
    let rows = [
        r#"[600, 1, "parent", "memtx", 0, {}, [{"name": "a", "type": "unsigned"}, {"name": "b", "type": "unsigned"},
            {"name": "c", "type": "string", "collation": 2}, {"name": "n", "type": "number"}]]"#,
        r#"[601, 1, "child", "memtx", 0, {}, [{"name": "a", "type": "unsigned"}, {"name": "n", "type": "number"},
            {"name": "c", "type": "string", "collation": 2}, {"name": "binary", "type": "string"}]]"#,
    ];
    rows.into_iter().for_each(|row| drop(insert(&mut store, 280, row).unwrap()));
    for row in [
        r#"[600, 0, "pk", "tree", {"unique": true}, [[0, "unsigned"]]]"#,
        r#"[600, 1, "u", "tree", {"unique": true}, [{"field": 1, "type": "unsigned"}, {"field": 2, "type": "string", "collation": 2}]]"#,
        r#"[600, 2, "b", "tree", {"unique": false}, [[1, "unsigned"]]]"#,
        r#"[600, 3, "n", "tree", {"unique": true}, [[3, "number"]]]"#,
    ] {
        insert(&mut store, 288, row).unwrap();
    }
    store
}

fn key(name: &str, children: &str, parents: &str) -> String {
    format!(r#"["{name}", 601, 600, false, "simple", "no_action", "no_action", {children}, {parents}]"#)
}

#[test]
fn a_key_needs_fields_of_its_types_and_their_unique_index() {
    let mut store = with_family();
    for (children, parents, expected) in [
        ("[0]", "[1]", "referenced fields don't compose unique index"),
        ("[0, 2]", "[0, 2]", "referenced fields don't compose unique index"),
        ("[0, 0]", "[0, 0]", "referenced fields can not contain duplicates"),
        ("[1]", "[0]", "field type mismatch"),
        ("[0, 3]", "[1, 2]", "field collation mismatch"),
        ("[0]", "[4]", "foreign key refers to nonexistent field"),
    ] {
        let refused = refusal(insert(&mut store, 356, &key("k", children, parents)));
        let expected = format!("Failed to create foreign key constraint 'k': {expected}");
        assert_eq!(refused, expected, "{children} to {parents}");
    }
    for (name, children, parents) in [
        ("one", "[0]", "[0]"),
        ("wider", "[0]", "[3]"),
        ("two", "[0, 2]", "[1, 2]"),
        ("turned", "[2, 0]", "[2, 1]"),
    ] {
        insert(&mut store, 356, &key(name, children, parents)).unwrap();
    }
}

#[test]
fn the_index_of_a_key_stays_as_it_is() {
    let mut store = with_family();
    let s = &mut store;
    insert(s, 356, &key("k", "[0, 2]", "[1, 2]")).unwrap();
    let dropped = "Can't modify space 'parent': can not drop a referenced index";
    let altered = "Can't modify space 'parent': can not alter a referenced index";
    assert_eq!(refusal(delete(s, 288, 0, "[600, 1]")), dropped);
    // A Tarantool allows this one, and does not start afterwards.
    assert_eq!(refusal(update(s, 288, 0, "[600, 1]", r#"[["=", 4, {"unique": false}]]"#)), altered);
    let parts = r#"[["=", 5, [[1, "unsigned"]]]]"#;
    assert_eq!(refusal(update(s, 288, 0, "[600, 1]", parts)), altered);
    update(s, 288, 0, "[600, 1]", r#"[["=", 2, "renamed"]]"#).unwrap();
    let twin = r#"[600, 4, "twin", "tree", {"unique": true}, [{"field": 2, "type": "string", "collation": 2}, {"field": 1, "type": "unsigned"}]]"#;
    insert(s, 288, twin).unwrap();
    assert_eq!(refusal(delete(s, 288, 0, "[600, 1]")), dropped);
    delete(s, 288, 0, "[600, 4]").unwrap();
    delete(s, 288, 0, "[600, 2]").unwrap();
    delete(s, 356, 0, r#"["k", 601]"#).unwrap();
    delete(s, 288, 0, "[600, 1]").unwrap();
}

#[test]
fn a_folder_and_a_master_are_believed() {
    let mut store = with_family();
    insert(&mut store, 356, &key("k", "[0, 2]", "[1, 2]")).unwrap();
    store.take_as_history(true);
    insert(&mut store, 356, &key("without", "[0]", "[1]")).unwrap();
    delete(&mut store, 288, 0, "[600, 1]").unwrap();
}
