//! Definitions as rows: refusals, immediate changes, and rollbacks. The texts were seen on a real
//! server; the transcripts have more of them.

use super::*;
use crate::ddl::{self, FieldSpec, IndexSpec, PartSpec, SequenceSpec, SequenceUse, SpaceSpec};
use crate::system;

/// A store with the space `d` (512) that has one tuple, and `e` (513) that has none and no index.
fn with_spaces() -> Store {
    let mut store = new_store();
    commit(&mut store, |s| {
        let id = ddl::create_space(s, &SpaceSpec::new("d", &[]))?;
        ddl::create_index(s, id, &IndexSpec::new("pk", &[PartSpec::new(0, "unsigned")]))?;
        ddl::create_space(s, &SpaceSpec::new("e", &[]))
    });
    insert(&mut store, 512, r#"[1, "a"]"#).unwrap();
    store
}

/// Each statement must be refused so, and change nothing.
fn check_refusals(
    refusals: &[(&str, &str)],
    mut statement: impl FnMut(&mut Store, &str) -> Result<Option<String>, Error>,
) {
    let mut store = with_spaces();
    let digest = store.digest();
    for (request, expected) in refusals {
        assert_eq!(refusal(statement(&mut store, request)), *expected, "{request}");
        assert_eq!(store.digest(), digest, "{request}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn spaces_are_refused() {
    let refusals = [
        (r#"[0, 1, "z", "memtx", 0, {}, []]"#, "Failed to create space 'z': space id 0 is reserved"),
        (
            r#"[600, 1, "z", "seventeen letters", 0, {}, []]"#,
            "Failed to create space 'z': space engine name is too long",
        ),
        (
            "[600, 1, \"\u{2028}\", \"memtx\", 0, {}, []]",
            "Invalid identifier '\u{2028}' (expected printable symbols only or it is too long)",
        ),
        (
            r#"[600, 1, "z", "", 0, {}, []]"#,
            "Invalid identifier '' (expected printable symbols only or it is too long)",
        ),
        (
            r#"[600, 1, "z", "memtx", 1, {}, [{"name": "a"}, {"name": "b"}]]"#,
            "Failed to create space 'z': exact_field_count must be either 0 or >= formatted field count",
        ),
        (r#"[600, 1, "z", "memtx", 0, {}, [1]]"#, "Failed to create space 'z': field 1 is not map"),
        (
            r#"[600, 1, "z", "memtx", 0, {}, [["a", "unsigned"]]]"#,
            "Failed to create space 'z': field 1 is not map",
        ),
        (
            r#"[600, 1, "z", "memtx", 0, {}, [{"name": 1}]]"#,
            "Wrong space format (field 1): 'name' must be string",
        ),
        (
            r#"[600, 1, "z", "memtx", 0, {}, [{"name": "a", "type": 1}]]"#,
            "Wrong space format (field 1): 'type' must be enum",
        ),
        (
            r#"[600, 1, "z", "memtx", 0, {}, [{"name": "a", "is_nullable": 1}]]"#,
            "Wrong space format (field 1): 'is_nullable' must be boolean",
        ),
        (
            r#"[600, 1, "z", "memtx", 0, {}, [{"name": "a", "nullable_action": "x"}]]"#,
            "Failed to create space 'z': field 1 has unknown field on conflict nullable action",
        ),
        (
            r#"[600, 1, "z", "memtx", 0, {}, [{"name": "a", "nullable_action": "none"}]]"#,
            "Failed to create space 'z': field 1 has conflicting nullability and nullable action properties",
        ),
        (
            r#"[600, 1, "z", "memtx", 0, {}, [{"name": "a", "collation": 9999, "type": "string"}]]"#,
            "Wrong collation options (field 1): collation was not found by ID",
        ),
        (
            r#"[600, 1, "z", "memtx", 0, {}, [{"name": "a", "collation": 1, "type": "unsigned"}]]"#,
            "Failed to create space 'z': collation is reasonable only for string, scalar and any fields",
        ),
        (
            r#"[600, 1, "z", "memtx", 0, {}, [{"name": ""}]]"#,
            "Failed to create space 'z': field 1 name is not specified",
        ),
        (r#"[600, 1, "z", "memtx", 0, {"group_id": 2}, []]"#, "Replication group '2' does not exist"),
        (
            r#"[600, 1, "z", "memtx", 0, {"group_id": "a"}, []]"#,
            "Wrong space options (field 5): 'group_id' must be unsigned",
        ),
        (
            r#"[600, 1, "z", "memtx", 0, {"view": true}, []]"#,
            "Space declared as a view must have SQL statement",
        ),
        (
            r#"[600, 1, "z", "vinyl", 0, {"temporary": true}, []]"#,
            "Can't modify space 'z': engine does not support temporary flag",
        ),
        (
            r#"[600, 1, "z", "memtx", 0, {"is_sync": true, "group_id": 1}, []]"#,
            "Failed to create space 'z': local space can't be synchronous",
        ),
        (
            r#"[600, 1, "z", "service", 0, {}, []]"#,
            "Tarantool does not support non-system space with 'service' engine.",
        ),
        (r#"[600, 1, "z", "MEMTX", 0, {}, []]"#, "Space engine 'MEMTX' does not exist"),
    ];
    check_refusals(&refusals, |s, row| insert(s, system::SPACE, row));
}

#[test]
fn alterations_of_spaces_are_refused() {
    let refusals = [
        (r#"[["=", 3, "vinyl"]]"#, "Can't modify space 'd': can not change space engine"),
        (r#"[["=", 5, {"group_id": 1}]]"#, "Can't modify space 'd': replication group is immutable"),
        (
            r#"[["=", 5, {"view": true, "sql": "x"}]]"#,
            "Can't modify space 'd': can not convert a space to a view and vice versa",
        ),
        (
            r#"[["=", 5, {"temporary": true}]]"#,
            "Can't modify space 'd': can not switch temporary flag on a non-empty space",
        ),
        (r#"[["=", 4, 3]]"#, "Tuple field count 2 does not match space field count 3"),
        (
            r#"[["=", 6, [{"name": "a", "type": "unsigned"}, {"name": "b", "type": "unsigned"}]]]"#,
            "Tuple field 2 type does not match one required by operation: expected unsigned",
        ),
        (
            r#"[["=", 6, [{"name": "a"}, {"name": "b"}, {"name": "c", "type": "string"}]]]"#,
            "Tuple field 3 required by space format is missing",
        ),
        (
            r#"[["=", 6, [{"name": "a", "type": "string"}]]]"#,
            "Field 1 has type 'string' in space format, but type 'unsigned' in index definition",
        ),
        (r#"[["=", 2, "_space"]]"#, "Duplicate key exists in unique index 'name' in space '_space'"),
    ];
    check_refusals(&refusals, |s, operations| update(s, system::SPACE, 0, "[512]", operations));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn indexes_are_refused() {
    let refusals = [
        (
            r#"[513, 1, "x", "tree", {}, [[0, "unsigned"]]]"#,
            "Can't modify space 'e': can not add a secondary key before primary",
        ),
        (
            r#"[512, 1, "pk", "tree", {}, [[0, "unsigned"]]]"#,
            "Duplicate key exists in unique index 'name' in space '_index'",
        ),
        (
            r#"[512, 1, "", "tree", {}, [[0, "unsigned"]]]"#,
            "Invalid identifier '' (expected printable symbols only or it is too long)",
        ),
        (
            r#"[512, 1, "a", "tree", {"foo": 1}, [[0, "unsigned"]]]"#,
            "Wrong index options (field 4): unexpected option 'foo'",
        ),
        (
            r#"[512, 1, "a", "tree", {"unique": 1}, [[0, "unsigned"]]]"#,
            "Wrong index options (field 4): 'unique' must be boolean",
        ),
        (
            r#"[512, 1, "a", "tree", {"distance": "foo"}, [[0, "unsigned"]]]"#,
            "Wrong index options (field 4): distance must be either 'euclid' or 'manhattan'",
        ),
        (
            r#"[512, 1, "a", "tree", {"bloom_fpr": 2}, [[0, "unsigned"]]]"#,
            "Wrong index options (field 4): bloom_fpr must be greater than 0 and less than or equal to 1",
        ),
        (
            r#"[512, 1, "a", "tree", {}, [[0]]]"#,
            "Wrong index parts: a field type is missing; expected field1 id (number), field1 type (string), ...",
        ),
        (
            r#"[512, 1, "a", "tree", {}, [["a", "unsigned"]]]"#,
            "Wrong index parts: field id must be an integer; expected field1 id (number), field1 type (string), ...",
        ),
        (
            r#"[512, 1, "a", "tree", {}, [[0, 5]]]"#,
            "Wrong index parts: field type must be a string; expected field1 id (number), field1 type (string), ...",
        ),
        (
            r#"[512, 1, "a", "tree", {}, [[4294967295, "unsigned"]]]"#,
            "Can't create or modify index 'a' in space 'd': field no is too big",
        ),
        (
            r#"[512, 1, "a", "tree", {}, [{"field": 0}]]"#,
            "Wrong index options (field 1): index part: unknown field type",
        ),
        (
            r#"[512, 1, "a", "tree", {}, [{"field": 0, "type": "unsigned", "foo": 1}]]"#,
            "Wrong index options (field 1): unexpected option 'foo'",
        ),
        (
            r#"[512, 1, "a", "tree", {}, [{"field": 0, "type": "unsigned", "collation": 1}]]"#,
            "Wrong index options (field 1): collation is reasonable only for string and scalar parts",
        ),
        (
            r#"[512, 1, "a", "tree", {}, [{"field": 1, "type": "string", "collation": 9999}]]"#,
            "Wrong index options (field 1): collation was not found by ID",
        ),
        (
            r#"[512, 1, "a", "tree", {}, [{"field": 1, "type": "string", "path": "[["}]]"#,
            "Wrong index options (field 1): invalid path",
        ),
        (
            r#"[512, 1, "a", "tree", {}, [{"field": 0, "nullable_action": "none", "type": "unsigned"}]]"#,
            "Wrong index options (field 1): index part: conflicting nullability and nullable action properties",
        ),
        (
            r#"[512, 1, "a", "tree", {}, [[0, "unsigned"], {"field": 1, "type": "string"}]]"#,
            "Wrong index parts: expected an array; expected field1 id (number), field1 type (string), ...",
        ),
        (
            r#"[512, 1, "a", "tree", {}, [{"field": 1, "type": "string"}, [0, "unsigned"]]]"#,
            "Wrong index options (field 2): index part is expected to be a map",
        ),
        (
            r#"[512, 1, "a", "hash", {}, [{"field": 4, "type": "unsigned", "is_nullable": true}]]"#,
            "HASH does not support nullable parts",
        ),
        (
            r#"[512, 1, "a", "rtree", {"unique": false}, [[3, "array"]]]"#,
            "Tuple field 4 required by space format is missing",
        ),
        (
            r#"[512, 1, "a", "rtree", {"unique": true}, [[3, "array"]]]"#,
            "Can't create or modify index 'a' in space 'd': RTREE index can not be unique",
        ),
        (
            r#"[512, 1, "a", "rtree", {"unique": false}, [[3, "unsigned"]]]"#,
            "Can't create or modify index 'a' in space 'd': RTREE index field type must be ARRAY",
        ),
        (
            r#"[512, 1, "a", "rtree", {"unique": false, "dimension": 21}, [[3, "array"]]]"#,
            "Index 'a' (RTREE) of space 'd' (memtx) does not support dimension (21): must belong to range [1, 20]",
        ),
        (
            r#"[512, 1, "a", "bitset", {"unique": false}, [[3, "integer"]]]"#,
            "Can't create or modify index 'a' in space 'd': BITSET index field type must be NUM or STR",
        ),
        (
            r#"[512, 1, "a", "bitset", {"unique": false}, [[3, "unsigned"], [4, "unsigned"]]]"#,
            "Can't create or modify index 'a' in space 'd': BITSET index key can not be multipart",
        ),
        (
            r#"[512, 1, "a", "hash", {}, [{"field": 3, "type": "string", "path": "[*]"}]]"#,
            "Can't create or modify index 'a' in space 'd': HASH index cannot be multikey",
        ),
        (
            r#"[512, 1, "a", "tree", {}, [{"field": 3, "type": "string", "path": "[*][*]"}]]"#,
            "Wrong index options (field 1): no more than one array index placeholder [*] is allowed in JSON path",
        ),
        (
            r#"[512, 1, "a", "tree", {"func": 9}, [[0, "unsigned"]]]"#,
            "Lycosa does not support functional indexes (this process runs no Lua)",
        ),
        (
            r#"[512, 1, "a", "tree", {}, [{"field": 4, "type": "string", "path": "[*]"}, {"field": 5, "type": "string", "path": "[*]"}]]"#,
            "Wrong index options (field 2): incompatable multikey index path",
        ),
        (
            r#"[512, 1, "a", "tree", {}, [[5, "unsigned"]]]"#,
            "Tuple field 6 required by space format is missing",
        ),
        (
            r#"[512, 1, "a", "tree", {}, [[1, "unsigned"]]]"#,
            "Tuple field 2 type does not match one required by operation: expected unsigned",
        ),
    ];
    check_refusals(&refusals, |s, row| insert(s, system::INDEX, row));
}

#[test]
fn ways_to_refuse_nil_agree() {
    let mut store = with_spaces();
    let field = r#"{"name": "a", "type": "unsigned", "nullable_action": "abort"}"#;
    let format = format!(r#"[600, 1, "z", "memtx", 0, {{}}, [{field}, {{"name": "m", "type": "map"}}]]"#);
    insert(&mut store, system::SPACE, &format).unwrap();
    let mismatch = |field: &str, first: &str, second: &str| {
        format!("Field {field} contains {first} on conflict action, but {second} in index parts")
    };
    let refused = [
        (r#"{"field": 0, "type": "unsigned", "nullable_action": "fail"}"#, mismatch("1", "abort", "fail")),
        (r#"{"field": 0, "type": "unsigned", "nullable_action": "x"}"#, mismatch("1", "abort", "(null)")),
        // The action comes before the type.
        (r#"{"field": 0, "type": "string", "nullable_action": "FAIL"}"#, mismatch("1", "abort", "fail")),
        (
            r#"{"field": 1, "type": "unsigned", "path": "q", "nullable_action": "abort"}"#,
            mismatch("[2][\"q\"]", "none", "abort"),
        ),
        (
            r#"{"field": 0, "type": "unsigned", "is_nullable": true, "nullable_action": "x"}"#,
            "Wrong index options (field 1): index part: conflicting nullability and nullable action properties".to_owned(),
        ),
    ];
    for (part, expected) in &refused {
        let row = format!(r#"[600, 0, "pk", "tree", {{}}, [{part}]]"#);
        assert_eq!(refusal(insert(&mut store, system::INDEX, &row)), *expected, "{part}");
    }
    let accepted = [
        r#"{"field": 0, "type": "unsigned"}"#,
        r#"{"field": 0, "type": "unsigned", "nullable_action": "abort"}"#,
        r#"{"field": 0, "type": "unsigned", "nullable_action": "DEFAULT"}"#,
        r#"{"field": 5, "type": "unsigned", "nullable_action": "x"}"#,
    ];
    for (id, part) in accepted.iter().enumerate() {
        let row = format!(r#"[600, {id}, "i{id}", "tree", {{}}, [{part}]]"#);
        insert(&mut store, system::INDEX, &row).unwrap_or_else(|error| panic!("{part}: {error}"));
    }
    // A field that no format declares refuses as the first part says.
    let nullable = r#"[600, 4, "i4", "tree", {}, [{"field": 5, "type": "unsigned", "is_nullable": true}]]"#;
    assert_eq!(refusal(insert(&mut store, system::INDEX, nullable)), mismatch("6", "(null)", "none"));
    // The definition of the space, too.
    let other = format.replace("abort", "fail");
    assert_eq!(refusal(replace(&mut store, system::SPACE, &other)), mismatch("1", "fail", "abort"));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn other_definitions_are_refused() {
    let refusals: [(SpaceId, &str, &str); 34] = [
        (
            276,
            r#"[302, "c", 1, "BINARY", "en_US", {"case_first": "x"}]"#,
            "Failed to initialize collation: ICU wrong case_first option setting, \
             expected OFF | UPPER_FIRST | LOWER_FIRST.",
        ),
        (
            276,
            r#"[302, "c", 1, "ICU", "", {"case_level": "default"}]"#,
            "Failed to initialize collation: ICU wrong case_level option setting, expected ON | OFF.",
        ),
        (304, r#"[50, 1, "x", "foo", {}]"#, "Failed to create user 'x': unknown user type"),
        (
            304,
            r#"[50, 1, "x", "user", {"chap-sha1": 5}]"#,
            "Failed to create user 'x': invalid user password",
        ),
        (
            304,
            r#"[50, 1, "x", "role", {"chap-sha1": "vhvewKp0tNyweZQ+cFKAlsyphfg="}]"#,
            "Failed to create role 'x': authentication data can not be set for a role",
        ),
        (312, r#"[1, 2, "foo", 0, 1]"#, "Unknown object type 'foo'"),
        (312, r#"[1, 999, "universe", 0, 1]"#, "User '999' is not found"),
        (312, r#"[999, 2, "universe", 0, 1]"#, "User '999' is not found"),
        (312, r#"[1, 2, "universe", 0, 0]"#, "Incorrect grant arguments: the grant tuple has no privileges"),
        (312, r#"[1, 0, "space", 9999, 1]"#, "Space '9999' does not exist"),
        (312, r#"[1, 0, "sequence", 9999, 1]"#, "Sequence '9999' does not exist"),
        (312, r#"[1, 0, "function", 9999, 1]"#, "Function '9999' does not exist"),
        (312, r#"[1, 0, "role", 9999, 4]"#, "Role '9999' is not found"),
        (312, r#"[1, 0, "role", 1, 4]"#, "Role 'admin' is not found"),
        (312, r#"[1, 0, "user", 2, 4]"#, "User 'public' is not found"),
        (
            312,
            r#"[1, 0, "space", "abc", 1]"#,
            "Tuple field 4 type does not match one required by operation: expected unsigned",
        ),
        (312, r#"[0, 2, "universe", 0, 1]"#, "Grant access to universe '' is denied for user 'guest'"),
        (312, r#"[0, 3, "space", 512, 1]"#, "Grant access to space 'd' is denied for user 'guest'"),
        (
            284,
            r#"[1, 1, "a", 0, 1, 10, 1, 0, false]"#,
            "Failed to create sequence 'a': step option must be non-zero",
        ),
        (
            284,
            r#"[1, 1, "a", 1, 10, 1, 1, 0, false]"#,
            "Failed to create sequence 'a': max must be greater than or equal to min",
        ),
        (
            284,
            r#"[1, 1, "a", 1, 1, 10, 11, 0, false]"#,
            "Failed to create sequence 'a': start must be between min and max",
        ),
        (285, "[77, 1]", "Sequence '77' does not exist"),
        (340, r#"[512, 99, false, 0, ""]"#, "Sequence '99' does not exist"),
        (340, r#"[9999, 99, false, 0, ""]"#, "Space '9999' does not exist"),
        (
            320,
            r#"[0, "00000000-0000-4000-8000-000000000001"]"#,
            "Can't initialize replica id with a reserved value 0",
        ),
        (
            320,
            r#"[2, "00000000-0000-0000-0000-000000000000"]"#,
            "Invalid UUID: 00000000-0000-0000-0000-000000000000",
        ),
        (272, r#"["cluster", "x"]"#, "Duplicate key exists in unique index 'primary' in space '_schema'"),
        (276, r#"[500, "x", 1, "foo", "", {}]"#, "Failed to initialize collation: unknown collation type."),
        (
            276,
            r#"[500, "unicode", 1, "ICU", "", {}]"#,
            "Duplicate key exists in unique index 'name' in space '_collation'",
        ),
        (330, "[9999, 1]", "Space '9999' does not exist"),
        (
            296,
            r#"[101, 1, "f", 1, "PERL", "", "function", [], "any", "none", "none", false, false, true, [], {}, "", "", ""]"#,
            "Unsupported language 'PERL' specified for function 'f'",
        ),
        (
            296,
            r#"[32001, 1, "f", 1, "LUA", "", "function", [], "any", "none", "none", false, false, true, [], {}, "", "", ""]"#,
            "Failed to create function 'f': function id is too big",
        ),
        (
            296,
            r#"[101, 1, "f", 1, "LUA", "", "proc", [], "any", "none", "none", false, false, true, [], {}, "", "", ""]"#,
            "Failed to create function 'f': unsupported routine_type value",
        ),
        (380, r#"["a", 1]"#, "Session_settings space does not support replace()"),
    ];
    let mut store = with_spaces();
    let digest = store.digest();
    for (space, request, expected) in refusals {
        assert_eq!(refusal(insert(&mut store, space, request)), expected, "{request}");
        assert_eq!(store.digest(), digest, "{request}");
    }
}

#[test]
fn an_insert_into_truncate_truncates_nothing() {
    let mut store = with_spaces();
    let s = &mut store;
    insert(s, 330, "[280, 1]").unwrap();
    insert(s, 330, "[512, 1]").unwrap();
    assert_eq!(s.space(512).unwrap().len(), 1);
    let refused = refusal(replace(s, 330, "[280, 2]"));
    assert_eq!(refused, "Can't truncate a system space, space '_space'");
    replace(s, 330, "[512, 2]").unwrap();
    assert_eq!(s.space(512).unwrap().len(), 0);
}

#[test]
fn who_was_granted_stays() {
    let mut store = with_spaces();
    let s = &mut store;
    insert(s, 304, r#"[40, 1, "r", "role", {}]"#).unwrap();
    insert(s, 304, r#"[41, 1, "u", "user", {}]"#).unwrap();
    insert(s, 304, r#"[42, 1, "w", "user", {}]"#).unwrap();
    insert(s, 312, r#"[1, 41, "role", 40, 4]"#).unwrap();
    insert(s, 312, r#"[1, 41, "user", 42, 4]"#).unwrap();
    assert_eq!(refusal(delete(s, 304, 0, "[40]")), "Failed to drop user or role 'r': the user has objects");
    assert_eq!(refusal(delete(s, 304, 0, "[42]")), "Failed to drop user or role 'w': the user has objects");
    commit(s, |s| ddl::drop_role(s, "r", false));
    commit(s, |s| ddl::drop_user(s, "w", false));
    commit(s, |s| ddl::drop_user(s, "u", false));
}

/// A Tarantool accepts the changes, and opens no snapshot that is taken then.
#[test]
fn who_granted_stays_the_owner() {
    let mut store = with_spaces();
    let s = &mut store;
    insert(s, 304, r#"[40, 1, "u", "user", {}]"#).unwrap();
    insert(s, 304, r#"[41, 1, "w", "user", {}]"#).unwrap();
    insert(s, 304, r#"[42, 40, "r", "role", {}]"#).unwrap();
    insert(s, 304, r#"[43, 40, "x", "user", {}]"#).unwrap();
    insert(s, 280, r#"[600, 40, "s", "memtx", 0, {}, []]"#).unwrap();
    insert(s, 284, r#"[7, 40, "q", 1, 1, 9, 1, 0, false]"#).unwrap();
    let objects = [
        ("space", 280, 600, 1, "s"),
        ("sequence", 284, 7, 1, "q"),
        ("role", 304, 42, 4, "r"),
        ("user", 304, 43, 256, "x"),
    ];
    for (kind, space, id, access, name) in objects {
        let (key, to_admin) = (format!("[{id}]"), r#"[["=", 1, 1]]"#);
        insert(s, 312, &format!(r#"[40, 41, "{kind}", {id}, {access}]"#)).unwrap();
        assert_eq!(
            refusal(update(s, space, 0, &key, to_admin)),
            format!(
                "Lycosa does not support another owner for the {kind} '{name}' while rights on it stand that 'u' \
                 granted (revoke them first)"
            )
        );
        update(s, space, 0, &key, r#"[["=", 1, 40]]"#).unwrap();
        // Another master's rows are taken as they are.
        s.take_as_history(true);
        update(s, space, 0, &key, to_admin).unwrap();
        replace(s, 312, &format!(r#"[40, 41, "{kind}", {id}, {access}]"#)).unwrap();
        s.take_as_history(false);
        delete(s, 312, 0, &format!(r#"[41, "{kind}", {id}]"#)).unwrap_err();
    }
}

#[test]
fn what_a_space_needs_stays() {
    let mut store = with_spaces();
    let s = &mut store;
    insert(s, 276, r#"[300, "mine", 1, "ICU", "", {}]"#).unwrap();
    insert(s, 276, r#"[301, "other", 1, "ICU", "", {}]"#).unwrap();
    insert(s, 280, r#"[600, 1, "c", "memtx", 0, {}, [{"name": "a", "type": "string", "collation": 300}]]"#)
        .unwrap();
    insert(s, 288, r#"[600, 0, "pk", "tree", {}, [{"field": 0, "type": "string", "collation": 301}]]"#)
        .unwrap();
    assert_eq!(refusal(delete(s, 276, 0, "[300]")), "Can't drop collation mine : space 'c' uses it");
    assert_eq!(refusal(delete(s, 276, 0, "[301]")), "Can't drop collation other : space 'c' uses it");
    delete(s, 288, 0, "[600, 0]").unwrap();
    delete(s, 280, 0, "[600]").unwrap();
    delete(s, 276, 0, "[300]").unwrap();
    delete(s, 276, 0, "[301]").unwrap();
}

#[test]
fn removals_and_changes_are_refused() {
    let mut store = with_spaces();
    let s = &mut store;
    commit(s, |s| {
        ddl::create_sequence(s, &SequenceSpec::new("q"))?;
        let (parts, sequence) = ([PartSpec::new(0, "unsigned")], Some(SequenceUse::Existing("q")));
        ddl::create_index(s, 513, &IndexSpec { sequence, ..IndexSpec::new("pk", &parts) })?;
        ddl::create_user(s, "u", None, false)
    });
    for (space, key, expected) in [
        (280, "[512]", "Can't drop space 'd': the space has indexes"),
        (280, "[257]", "Lycosa does not support changes of the system space '_vinyl_deferred_delete'"),
        (288, "[272, 0]", "Can't drop the primary key in a system space, space '_schema'"),
        (288, "[513, 0]", "Can't modify space 'e': can not drop primary key while space sequence exists"),
        (284, "[1]", "Can't drop sequence 'q': the sequence is in use"),
        (304, "[32]", "Failed to drop user or role 'u': the user has objects"),
        (296, "[1]", "Can't drop function 1: function has grants"),
        (320, "[1]", "The local instance id 1 is read-only"),
        (272, r#"["cluster"]"#, "Can't reset replica set UUID: it is already assigned"),
    ] {
        assert_eq!(refusal(delete(s, space, 0, key)), expected, "{key}");
    }
    let changed = r#"[["=", 1, "00000000-0000-4000-8000-000000000001"]]"#;
    assert_eq!(refusal(update(s, 320, 0, "[1]", changed)), "The local instance id 1 is read-only");
    let alter = "function does not support alter";
    assert_eq!(refusal(update(s, 296, 0, "[1]", r#"[["=", 2, "renamed"]]"#)), alter);
    assert_eq!(refusal(update(s, 296, 0, "[1]", r#"[["=", 16, "comment"]]"#)), alter);
    assert_eq!(update(s, 296, 0, "[1]", r#"[["=", 18, "now"]]"#).map(|_| ()), Ok(()));
    assert_eq!(refusal(update(s, 276, 0, "[1]", r#"[["=", 1, "y"]]"#)), "collation does not support alter");
    assert!(update(s, 272, 0, r#"["cluster"]"#, changed).is_ok());
}

#[test]
fn indexes_are_built_over_what_is_there() {
    let mut store = with_spaces();
    let s = &mut store;
    for tuple in [r#"[2, "a"]"#, r#"[3, "c"]"#, r#"[4, "b"]"#] {
        insert(s, 512, tuple).unwrap();
    }
    let duplicate = "Duplicate key exists in unique index 's' in space 'd'";
    assert_eq!(refusal(insert(s, 288, r#"[512, 1, "s", "tree", {}, [[1, "string"]]]"#)), duplicate);
    insert(s, 288, r#"[512, 1, "s", "tree", {"unique": false}, [[1, "string"]]]"#).unwrap();
    let by_name = r#"[1, "a"] [2, "a"] [4, "b"] [3, "c"]"#;
    assert_eq!(walk(s, 512, 1, IteratorType::All, "[]"), by_name);
    insert(s, 512, r#"[0, "b"]"#).unwrap();
    delete(s, 512, 0, "[1]").unwrap();
    assert_eq!(walk(s, 512, 1, IteratorType::All, "[]"), r#"[2, "a"] [0, "b"] [4, "b"] [3, "c"]"#);
    // Another primary key is another order of equal keys.
    replace(s, 288, r#"[512, 0, "pk", "hash", {}, [[0, "unsigned"]]]"#).unwrap();
    assert_eq!(s.space(512).unwrap().index(0).unwrap().kind(), crate::IndexKind::Hash);
    assert_eq!(walk(s, 512, 1, IteratorType::Eq, r#"["b"]"#), r#"[0, "b"] [4, "b"]"#);
    insert(s, 512, r#"[9, "b"]"#).unwrap();
    assert_eq!(s.space(512).unwrap().len(), 5);
}

/// A field that only an index makes part of the format must hold what may be in a field of type any, as in a Tarantool.
#[test]
fn fields_before_that_of_an_index_are_of_type_any() {
    let mut store = new_store();
    let s = &mut store;
    insert(s, 280, r#"[600, 1, "s", "memtx", 0, {}, []]"#).unwrap();
    insert(s, 288, r#"[600, 0, "pk", "tree", {}, [[0, "unsigned"]]]"#).unwrap();
    // Extensions of type 0 mean nothing.
    let tuple = [0x93, 0x01, 0xd4, 0x00, 0x07, 0xa1, b'x'];
    commit(s, |s| s.execute(&Statement::Insert { space: 600, tuple: &tuple }).map(drop));
    let expected = "Tuple field 2 type does not match one required by operation: expected any";
    let second = r#"[600, 1, "s", "tree", {}, [[2, "string"]]]"#;
    assert_eq!(refusal(insert(s, 288, second)), expected);
    let format = r#"[["=", 6, [{"name": "a"}, {"name": "b"}]]]"#;
    assert_eq!(refusal(update(s, 280, 0, "[600]", format)), expected);
    let gone = row("[1]");
    commit(s, |s| s.execute(&Statement::Delete { space: 600, index: 0, key: &gone }).map(drop));
    insert(s, 288, second).unwrap();
}

#[test]
fn what_vinyl_sorts_by_stays_while_there_are_tuples() {
    let mut store = with_spaces();
    let s = &mut store;
    insert(s, 280, r#"[600, 1, "v", "vinyl", 0, {}, []]"#).unwrap();
    insert(s, 288, r#"[600, 0, "pk", "tree", {}, [[0, "unsigned"]]]"#).unwrap();
    replace(s, 288, r#"[600, 0, "pk", "tree", {}, [[1, "string"]]]"#).unwrap();
    replace(s, 288, r#"[600, 0, "pk", "tree", {}, [[0, "unsigned"]]]"#).unwrap();
    insert(s, 600, r#"[1, "a"]"#).unwrap();
    let expected = "Vinyl does not support rebuilding the primary index of a non-empty space";
    for parts in [r#"[[1, "string"]]"#, r#"[[0, "unsigned"], [1, "string"]]"#] {
        let row = format!(r#"[600, 0, "pk", "tree", {{}}, {parts}]"#);
        assert_eq!(refusal(replace(s, 288, &row)), expected, "{parts}");
    }
    // A wider type keeps the order, a narrower one might not.
    replace(s, 288, r#"[600, 0, "renamed", "tree", {}, [[0, "scalar"]]]"#).unwrap();
    assert_eq!(refusal(replace(s, 288, r#"[600, 0, "pk", "tree", {}, [[0, "unsigned"]]]"#)), expected);
    insert(s, 288, r#"[600, 1, "s", "tree", {}, [[1, "string"]]]"#).unwrap();
    commit(s, |s| ddl::truncate(s, 600));
    replace(s, 288, r#"[600, 0, "pk", "tree", {}, [[1, "string"]]]"#).unwrap();
}

/// One word of a script for the space of vinyl 600.
fn vinyl_step(s: &mut Store, word: &str) {
    match word {
        "insert" => drop(insert(s, 600, r#"[1, "a"]"#).unwrap()),
        "delete" => drop(delete(s, 600, 0, "[1]").unwrap()),
        "update" => drop(update(s, 600, 0, "[1]", r#"[["=", 1, "b"]]"#).unwrap()),
        "upsert" => upsert(s, 600, r#"[1, "a"]"#, "[]").unwrap(),
        "truncate" => commit(s, |s| ddl::truncate(s, 600)),
        "drop-index" => drop(delete(s, 288, 0, "[600, 0]").unwrap()),
        "create-index" => drop(insert(s, 288, r#"[600, 0, "pk", "tree", {}, [[0, "unsigned"]]]"#).unwrap()),
        "widen" => drop(replace(s, 288, r#"[600, 0, "pk", "tree", {}, [[0, "integer"]]]"#).unwrap()),
        "begin-snapshot" => s.open_read_view(),
        "end-snapshot" => {
            s.close_read_view();
            s.snapshot_completed();
        }
        "give-snapshot-up" => drop(s.close_read_view()),
        "insert-undone" => {
            s.begin(user::ADMIN);
            s.execute(&Statement::Insert { space: 600, tuple: &row(r#"[1, "a"]"#) }).unwrap();
            s.rollback();
        }
        "truncate-undone" => {
            s.begin(user::ADMIN);
            ddl::truncate(s, 600).unwrap();
            s.rollback();
        }
        _ => panic!("{word}"),
    }
}

/// What a Tarantool 2.6 says to each script, tried one by one.
#[test]
fn a_space_of_vinyl_that_was_written_is_not_empty_before_a_snapshot() {
    const REFUSED: &str = "Vinyl does not support rebuilding the primary index of a non-empty space";
    for (script, is_allowed) in [
        ("", true),
        ("insert", false),
        ("insert delete", false),
        ("delete", false),
        ("update", true),
        ("upsert delete", false),
        ("insert-undone", true),
        ("insert delete truncate", true),
        ("truncate insert delete", false),
        ("insert delete truncate-undone", false),
        ("insert delete drop-index create-index", true),
        ("insert delete widen", false),
        ("insert delete begin-snapshot end-snapshot", true),
        ("insert begin-snapshot end-snapshot delete", false),
        ("insert begin-snapshot end-snapshot delete begin-snapshot end-snapshot", true),
        ("insert delete begin-snapshot give-snapshot-up", false),
        ("insert delete begin-snapshot give-snapshot-up begin-snapshot end-snapshot", true),
        ("begin-snapshot insert delete end-snapshot", false),
    ] {
        let mut store = with_spaces();
        let s = &mut store;
        insert(s, 280, r#"[600, 1, "v", "vinyl", 0, {}, []]"#).unwrap();
        vinyl_step(s, "create-index");
        script.split_whitespace().for_each(|word| vinyl_step(s, word));
        let altered = replace(s, 288, r#"[600, 0, "pk", "tree", {}, [[0, "string"]]]"#);
        let expected = if is_allowed { Ok(()) } else { Err(REFUSED.to_owned()) };
        assert_eq!(altered.map(drop).map_err(|error| error.to_string()), expected, "{script}");
    }
}

#[test]
fn a_blackhole_counts_fields_if_its_format_has_some() {
    let mut store = with_spaces();
    let s = &mut store;
    insert(s, 280, r#"[600, 1, "b", "blackhole", 2, {}, []]"#).unwrap();
    insert(s, 600, "[1, 2, 3]").unwrap();
    insert(s, 280, r#"[601, 1, "c", "blackhole", 2, {}, [{"name": "a"}]]"#).unwrap();
    let expected = "Tuple field count 3 does not match space field count 2";
    assert_eq!(refusal(insert(s, 601, "[1, 2, 3]")), expected);
    assert_eq!(refusal(replace(s, 601, "[1, 2, 3]")), expected);
    insert(s, 601, "[1, 2]").unwrap();
}

#[test]
fn what_a_transaction_defined_ends_with_it() {
    let mut store = with_spaces();
    let s = &mut store;
    let digest = s.digest();
    let memory = s.memory().tuples;
    s.begin(user::ADMIN);
    let fields = [FieldSpec { name: "id", ty: "unsigned", nullable: false }];
    let id = ddl::create_space(s, &SpaceSpec::new("new", &fields)).unwrap();
    let parts = [PartSpec::new(0, "unsigned")];
    ddl::create_index(
        s,
        id,
        &IndexSpec { sequence: Some(SequenceUse::Generate), ..IndexSpec::new("pk", &parts) },
    )
    .unwrap();
    s.execute(&Statement::Insert { space: id, tuple: &row("[null]") }).unwrap();
    ddl::create_index(s, 512, &IndexSpec::new("second", &[PartSpec::new(1, "string")])).unwrap();
    s.execute(&Statement::Insert { space: 512, tuple: &row(r#"[2, "b"]"#) }).unwrap();
    ddl::rename_index(s, 512, 1, "renamed").unwrap();
    ddl::set_format(s, 512, &[fields[0], FieldSpec { name: "text", ty: "string", nullable: false }]).unwrap();
    ddl::truncate(s, 512).unwrap();
    assert_eq!(s.space(512).unwrap().len(), 0);
    s.execute(&Statement::Insert { space: 512, tuple: &row(r#"[3, "c"]"#) }).unwrap();
    let inside = s.savepoint();
    ddl::rename_space(s, 512, "renamed").unwrap();
    ddl::drop_space(s, 512).unwrap();
    assert!(s.space(512).is_err());
    let again = ddl::create_space(s, &SpaceSpec { id: Some(512), ..SpaceSpec::new("d", &[]) }).unwrap();
    ddl::create_index(s, again, &IndexSpec::new("pk", &[PartSpec::new(0, "string")])).unwrap();
    s.execute(&Statement::Insert { space: 512, tuple: &row(r#"["x"]"#) }).unwrap();
    s.rollback_to(inside);
    assert_eq!(all(s, 512), r#"[3, "c"]"#);
    assert_eq!(s.space(512).unwrap().index(1).unwrap().name(), "renamed");
    s.rollback();
    assert_eq!((s.digest(), s.memory().tuples), (digest, memory));
    let space = s.space_by_name("d").unwrap();
    assert_eq!((space.id(), space.indexes().len(), space.len(), space.bytes()), (512, 1, 1, 4));
    assert!(s.space_by_name("new").is_none() && s.sequence_by_name("new_seq").is_none());
    insert(s, 512, "[7]").unwrap();
    assert_eq!(all(s, 512), r#"[1, "a"] [7]"#);
}

#[test]
fn what_is_dropped_gives_its_memory_back() {
    let mut store = with_spaces();
    let s = &mut store;
    let word = "w".repeat(100);
    let before = s.memory().tuples;
    for id in 10..200 {
        insert(s, 512, &format!(r#"[{id}, "{word}"]"#)).unwrap();
    }
    commit(s, |s| ddl::truncate(s, 512));
    let after = s.memory().tuples;
    assert!(after < before + 100, "{before} {after}");
    for id in 10..200 {
        insert(s, 512, &format!(r#"[{id}, "{word}"]"#)).unwrap();
    }
    commit(s, |s| ddl::drop_space(s, 512));
    assert!(s.memory().tuples < after);
}

#[test]
fn much_that_is_dropped_is_freed_in_portions() {
    let mut store = with_spaces();
    let s = &mut store;
    let before = s.memory().tuples;
    for id in 10..1010 {
        insert(s, 512, &format!("[{id}]")).unwrap();
    }
    let full = s.memory().tuples;
    s.begin(user::ADMIN);
    ddl::truncate(s, 512).unwrap();
    s.rollback();
    assert_eq!(s.memory().tuples, full);
    commit(s, |s| ddl::truncate(s, 512));
    let portion = s.memory().tuples;
    assert!(before < portion && portion < full, "{before} {portion} {full}");
    assert!(s.collect_garbage(500));
    assert!(!s.collect_garbage(500));
    assert!(s.memory().tuples <= before + 16);
    for id in 10..1010 {
        insert(s, 512, &format!("[{id}]")).unwrap();
    }
    let limit = s.memory().used;
    s.set_memory_limit(limit);
    assert!(insert(s, 512, "[5000]").is_err());
    commit(s, |s| ddl::truncate(s, 512));
    s.set_memory_limit(limit - 8 * 1000);
    insert(s, 512, "[5000]").unwrap();
}

#[test]
fn what_is_full_can_be_truncated() {
    let mut store = with_spaces();
    let s = &mut store;
    s.set_memory_limit(0);
    assert!(insert(s, 512, "[5000]").is_err());
    commit(s, |s| ddl::truncate(s, 512));
    assert_eq!(s.space(512).unwrap().len(), 0);
}
