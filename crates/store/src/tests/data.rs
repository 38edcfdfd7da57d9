//! Statements and reads against the recorded answers of a real server: iproto.md, sections 6 to 9.

use super::*;
use crate::ddl::{self, FieldSpec, FunctionSpec, IndexSpec, PartSpec, SequenceUse, SpaceSpec};
use crate::schema::user::base64;
use crate::{IndexKind, system};

/// The spaces of the transcripts.
pub(crate) fn with_wire_data() -> Store {
    let mut store = new_store();
    let field = |name, ty| FieldSpec { name, ty, nullable: false };
    let part = PartSpec::new;
    commit(&mut store, |store| {
        let nullable_n = FieldSpec { nullable: true, ..field("n", "number") };
        let tree = [field("id", "unsigned"), field("name", "string"), nullable_n];
        let id = ddl::create_space(store, &SpaceSpec::new("tree", &tree))?;
        ddl::create_index(store, id, &IndexSpec::new("pk", &[part(0, "unsigned")]))?;
        ddl::create_index(store, id, &IndexSpec::new("name", &[part(1, "string")]))?;
        let n = PartSpec { nullable: true, ..part(2, "number") };
        ddl::create_index(store, id, &IndexSpec { unique: false, ..IndexSpec::new("n", &[n]) })?;
        let hash = [field("id", "unsigned"), field("name", "string")];
        let id = ddl::create_space(store, &SpaceSpec::new("hash", &hash))?;
        for (name, part) in [("pk", part(0, "unsigned")), ("name", part(1, "string"))] {
            let spec = IndexSpec::new(name, std::slice::from_ref(&part));
            ddl::create_index(store, id, &IndexSpec { kind: IndexKind::Hash, ..spec })?;
        }
        let multi = [field("a", "unsigned"), field("b", "string"), field("c", "integer")];
        let id = ddl::create_space(store, &SpaceSpec::new("multi", &multi))?;
        ddl::create_index(store, id, &IndexSpec::new("pk", &[part(0, "unsigned"), part(1, "string")]))?;
        let cb = [part(2, "integer"), part(1, "string")];
        ddl::create_index(store, id, &IndexSpec { unique: false, ..IndexSpec::new("cb", &cb) })?;
        let id = ddl::create_space(store, &SpaceSpec::new("ops", &[]))?;
        ddl::create_index(store, id, &IndexSpec::new("pk", &[part(0, "unsigned")]))?;
        let strict =
            [field("id", "unsigned"), field("s", "string"), field("d", "double"), field("i", "integer")];
        let id =
            ddl::create_space(store, &SpaceSpec { field_count: 4, ..SpaceSpec::new("strict", &strict) })?;
        ddl::create_index(store, id, &IndexSpec::new("pk", &[part(0, "unsigned")]))?;
        ddl::create_index(
            store,
            id,
            &IndexSpec { unique: false, ..IndexSpec::new("d", &[part(2, "double")]) },
        )?;
        let id = ddl::create_space(store, &SpaceSpec::new("void", &[]))?;
        ddl::create_index(store, id, &IndexSpec::new("pk", &[part(0, "unsigned")]))?;
        ddl::create_space(store, &SpaceSpec::new("no_index", &[]))?;
        let id = ddl::create_space(store, &SpaceSpec::new("scalars", &[]))?;
        ddl::create_index(store, id, &IndexSpec::new("pk", &[part(0, "unsigned")]))?;
        ddl::create_index(
            store,
            id,
            &IndexSpec { unique: false, ..IndexSpec::new("v", &[part(1, "scalar")]) },
        )?;
        let id = ddl::create_space(store, &SpaceSpec::new("auto", &[]))?;
        let sequence = Some(SequenceUse::Generate);
        ddl::create_index(store, id, &IndexSpec { sequence, ..IndexSpec::new("pk", &[part(0, "unsigned")]) })
    });
    let names = ["ten", "nine", "eight", "seven", "six", "five", "four", "three", "two", "one"];
    for (number, name) in (1..).zip(names) {
        let n = if number % 3 == 0 { "null".to_owned() } else { (number % 4).to_string() };
        insert(&mut store, 512, &format!(r#"[{}, "{name}", {n}]"#, number * 10)).unwrap();
    }
    for id in 1..=5 {
        insert(&mut store, 513, &format!(r#"[{id}, "h{id}"]"#)).unwrap();
    }
    for a in 1..=3 {
        for b in ["x", "y", "z"] {
            insert(&mut store, 514, &format!(r#"[{a}, "{b}", {}]"#, a - 2)).unwrap();
        }
    }
    for id in 1..=120 {
        insert(&mut store, 515, &format!(r#"[{id}, 10, "hello", [1, 2, [3]], {{"a": 1}}]"#)).unwrap();
    }
    // [1, "one", 1.5, -1]
    let strict = b"\x94\x01\xa3one\xcb\x3f\xf8\0\0\0\0\0\0\xff";
    run(&mut store, &Statement::Insert { space: 516, tuple: strict }).unwrap();
    commit(&mut store, add_wire_users);
    store
}

/// The users of the transcripts, with the hashes of their passwords, and what they may do.
fn add_wire_users(store: &mut Store) -> Result<(), Error> {
    let users = [
        ("tester", Some("FOZVZ6vbUTXQz9mnCzAywXmknuc=")),
        ("reader", Some("kICi488PXWiU6KKwfKO5z0s3+tg=")),
        ("writer", Some("Og3icix+YXuC60F/vmKTxddObRk=")),
        ("owner", Some("HQNDPSMZDPRl7mJq76KqSb/ACJQ=")),
        ("nothing", Some("7TImgV258UJ9VizZlrXwF+jCKbw=")),
        ("no_password", None),
        ("no_session", Some("tpAn1E9uXtwH8a6tFHeWexbygic=")),
        ("no_usage", Some("tpAn1E9uXtwH8a6tFHeWexbygic=")),
        ("repl", Some("xJh/KVJup3Z5hhZ73UzwMOlLS14=")),
    ];
    for (name, hash2) in users {
        let hash2 = hash2.map(|hash2: &str| base64::decode(hash2.as_bytes()));
        ddl::create_user(store, name, hash2, false)?;
    }
    ddl::grant(store, "tester", "read,write,execute", "universe", "", false)?;
    ddl::grant(store, "reader", "read", "space", "tree", false)?;
    ddl::grant(store, "writer", "write", "space", "tree", false)?;
    ddl::grant(store, "owner", "execute", "role", "super", false)?;
    ddl::revoke(store, "no_session", "session", "universe", "", false)?;
    ddl::revoke(store, "no_usage", "usage", "universe", "", false)?;
    ddl::grant(store, "repl", "execute", "role", "replication", false)?;
    for (name, body) in [("persistent_sum", "function(a, b) return a + b end"), ("registered_only", "")] {
        let spec = FunctionSpec { name, setuid: false, language: "LUA", body };
        ddl::create_function(store, &spec, "2026-01-01 00:00:00", false)?;
    }
    ddl::grant(store, "reader", "execute", "function", "persistent_sum", false)
}

#[test]
fn the_schema_version_is_that_of_the_transcripts() {
    assert_eq!(with_wire_data().schema_version(), 101);
}

#[test]
fn inserts_and_replaces() {
    let mut store = with_wire_data();
    let s = &mut store;
    assert_eq!(insert(s, 512, r#"[5, "five!", 1]"#).unwrap().unwrap(), r#"[5, "five!", 1]"#);
    for (space, tuple, expected) in [
        (512, r#"[5, "other", 1]"#, "Duplicate key exists in unique index 'pk' in space 'tree'"),
        (512, r#"[6, "five!", 1]"#, "Duplicate key exists in unique index 'name' in space 'tree'"),
        (
            512,
            r#"["x", "y", 1]"#,
            "Tuple field 1 type does not match one required by operation: expected unsigned",
        ),
        (512, "[8, 8, 1]", "Tuple field 2 type does not match one required by operation: expected string"),
        (512, "[8]", "Tuple field 2 required by space format is missing"),
        (512, "[8, null]", "Tuple field 2 type does not match one required by operation: expected string"),
        (
            512,
            r#"[8, "m", "1"]"#,
            "Tuple field 3 type does not match one required by operation: expected number",
        ),
        (516, r#"[2, "s", 1]"#, "Tuple field count 3 does not match space field count 4"),
        (512, "[]", "Tuple field 1 required by space format is missing"),
        (512, "{}", "Tuple/Key must be MsgPack array"),
        (9999, "[1]", "Space '9999' does not exist"),
        (518, "[1]", "No index #0 is defined in space 'no_index'"),
        (281, "[1]", "View '_vspace' is read-only"),
    ] {
        let before = s.digest();
        assert_eq!(refusal(insert(s, space, tuple)), expected, "{tuple}");
        assert_eq!(s.digest(), before);
    }
    replace(s, 512, r#"[7, "seven!", null]"#).unwrap();
    replace(s, 512, r#"[7, "seven!!", 2, "extra", [1]]"#).unwrap();
    let duplicate = "Duplicate key exists in unique index 'name' in space 'tree'";
    assert_eq!(refusal(replace(s, 512, r#"[7, "five!", 1]"#)), duplicate);
    assert_eq!(walk(s, 512, 1, IteratorType::Eq, r#"["seven!!"]"#), r#"[7, "seven!!", 2, "extra", [1]]"#);
    assert_eq!(walk(s, 512, 1, IteratorType::Eq, r#"["seven!"]"#), "");
    let duplicate = "Duplicate key exists in unique index 'name' in space 'hash'";
    assert_eq!(refusal(replace(s, 513, r#"[9, "h1"]"#)), duplicate);
    let large = vec![b'x'; 1_048_576];
    let mut tuple = vec![0x92, 0x01];
    lycosa_tuple::mp::write_str(&mut tuple, &large);
    let too_large = "Failed to allocate 1048597 bytes for tuple: tuple is too large. Check \
                     'memtx_max_tuple_size' configuration option.";
    assert_eq!(refusal(run(s, &Statement::Insert { space: 515, tuple: &tuple })), too_large);
}

#[test]
fn deletes() {
    let mut store = with_wire_data();
    let s = &mut store;
    assert_eq!(delete(s, 512, 0, "[10]").unwrap().unwrap(), r#"[10, "ten", 1]"#);
    assert_eq!(delete(s, 512, 0, "[10]").unwrap(), None);
    assert_eq!(delete(s, 512, 1, r#"["nine"]"#).unwrap().unwrap(), r#"[20, "nine", 2]"#);
    for (space, index, key, expected) in [
        (512, 2, "[1]", "Get() doesn't support partial keys and non-unique indexes"),
        (514, 0, "[1]", "Invalid key part count in an exact match (expected 2, got 1)"),
        (512, 0, "[]", "Invalid key part count in an exact match (expected 1, got 0)"),
        (512, 0, r#"["x"]"#, "Supplied key type of part 0 does not match index part type: expected unsigned"),
        (512, 0, "[1, 2]", "Invalid key part count in an exact match (expected 1, got 2)"),
        (512, 9, "[1]", "No index #9 is defined in space 'tree'"),
    ] {
        assert_eq!(refusal(delete(s, space, index, key)), expected);
    }
    assert_eq!(s.space(512).unwrap().len(), 8);
}

#[test]
fn updates() {
    let mut store = with_wire_data();
    let s = &mut store;
    let changed = update(s, 512, 1, r#"["ten"]"#, r#"[["=", 1, "zehn"], ["+", 2, 5]]"#).unwrap().unwrap();
    assert_eq!(changed, r#"[10, "zehn", 6]"#);
    assert_eq!(update(s, 512, 0, "[11]", r#"[["=", 1, "x"]]"#).unwrap(), None);
    for (key, operations, expected) in [
        (
            "[10]",
            r#"[["=", 0, 11]]"#,
            "Attempt to modify a tuple field which is part of index 'pk' in space 'tree'",
        ),
        ("[10]", r#"[["=", 0, 20]]"#, "Duplicate key exists in unique index 'pk' in space 'tree'"),
        ("[10]", r#"[["=", 1, "nine"]]"#, "Duplicate key exists in unique index 'name' in space 'tree'"),
        (
            "[10]",
            r#"[["=", 1, 5]]"#,
            "Tuple field 2 type does not match one required by operation: expected string",
        ),
        ("[10]", r#"[["?", 1, 5]]"#, "Unknown UPDATE operation #1: \"?\""),
    ] {
        let before = s.digest();
        assert_eq!(refusal(update(s, 512, 0, key, operations)), expected);
        assert_eq!(s.digest(), before);
    }
    assert_eq!(update(s, 512, 0, "[10]", r#"[["=", 0, 10]]"#).unwrap().unwrap(), r#"[10, "zehn", 6]"#);
    assert_eq!(walk(s, 512, 2, IteratorType::Eq, "[6]"), r#"[10, "zehn", 6]"#);
}

#[test]
fn upserts() {
    let mut store = with_wire_data();
    let s = &mut store;
    let read = |s: &Store, id: u32| walk(s, 515, 0, IteratorType::Eq, &format!("[{id}]"));
    upsert(s, 515, "[200, 1]", r#"[["+", 1, 5]]"#).unwrap();
    assert_eq!(read(s, 200), "[200, 1]");
    upsert(s, 515, "[200, 99]", r#"[["+", 1, 5]]"#).unwrap();
    assert_eq!(read(s, 200), "[200, 6]");
    upsert(s, 515, "[1, 0]", r#"[["+", 2, 5], ["=", 1, "applied"]]"#).unwrap();
    assert!(read(s, 1).starts_with(r#"[1, "applied", "hello""#));
    upsert(s, 515, "[5, 0]", r#"[["=", 0, 500]]"#).unwrap();
    assert!(read(s, 5).starts_with("[5, 10"));
    let unknown = "Unknown UPDATE operation #1: \"?\"";
    assert_eq!(refusal(upsert(s, 515, "[300, 0]", r#"[["?", 1, 1]]"#)), unknown);
    let duplicate = "Duplicate key exists in unique index 'name' in space 'tree'";
    assert_eq!(refusal(upsert(s, 512, r#"[20, "x", 1]"#, r#"[["=", 1, "ten"]]"#)), duplicate);
    let missing = "Tuple field 2 required by space format is missing";
    assert_eq!(refusal(upsert(s, 512, "[21]", r#"[["=", 1, "t"]]"#)), missing);
    let wrong = "Tuple field 2 type does not match one required by operation: expected string";
    assert_eq!(refusal(upsert(s, 512, r#"[20, "x", 1]"#, r#"[["=", 1, 5]]"#)), wrong);
}

#[test]
fn walks() {
    use IteratorType::*;
    let store = with_wire_data();
    let ids = |iterator, key: &str| {
        let tuples = walk(&store, 514, 0, iterator, key);
        tuples
            .split("] [")
            .map(|t| t.trim_matches(['[', ']']).replace(['"', ','], ""))
            .collect::<Vec<_>>()
            .join("|")
    };
    assert_eq!(ids(Eq, "[2]"), "2 x 0|2 y 0|2 z 0");
    assert_eq!(ids(Req, "[2]"), "2 z 0|2 y 0|2 x 0");
    assert_eq!(ids(Lt, "[2]"), "1 z -1|1 y -1|1 x -1");
    assert_eq!(ids(Gt, "[2]"), "3 x 1|3 y 1|3 z 1");
    assert_eq!(ids(Le, r#"[2, "x"]"#), "2 x 0|1 z -1|1 y -1|1 x -1");
    assert_eq!(ids(All, r#"[3, "y"]"#), "3 y 1|3 z 1");
    assert_eq!(store.count(514, 0, Ge, &row("[2]")).unwrap(), 6);
    assert_eq!(store.count(514, 1, Eq, &row("[0]")).unwrap(), 3);
    let nils = walk(&store, 512, 2, Eq, "[null]");
    assert_eq!(nils, r#"[30, "eight", null] [60, "five", null] [90, "two", null]"#);
    let mut some = Vec::new();
    store.select(1, 512, 0, Ge, &row("[30]"), 2, 2, &mut |tuple| some.push(text(tuple))).unwrap();
    assert_eq!(some, [r#"[50, "six", 1]"#, r#"[60, "five", null]"#]);
    assert_eq!(store.first(512, 0, Le, &row("[]")).unwrap().map(text).unwrap(), r#"[100, "one", 2]"#);
    let refused = |space, index, iterator, key: &str| refusal(store.first(space, index, iterator, &row(key)));
    assert_eq!(
        refused(512, 0, BitsAllSet, "[1]"),
        "Index 'pk' (TREE) of space 'tree' (memtx) does not support requested iterator type"
    );
    assert_eq!(
        refused(513, 0, Req, "[3]"),
        "Index 'pk' (HASH) of space 'hash' (memtx) does not support requested iterator type"
    );
    assert_eq!(
        refused(513, 0, Eq, "[]"),
        "HASH index  does not support selects via a partial key (expected 1 parts, got 0). Please Consider changing \
         index type to TREE."
    );
    assert_eq!(refused(512, 0, Eq, "[1, 2]"), "Invalid key part count (expected [0..1], got 2)");
    assert_eq!(refused(512, 7, Eq, "[1]"), "No index #7 is defined in space 'tree'");
    assert_eq!(refusal(IteratorType::try_from(12)), "Illegal parameters, Invalid iterator type");
}

#[test]
fn sequences_fill_fields() {
    let mut store = with_wire_data();
    let s = &mut store;
    assert_eq!(insert(s, 520, r#"[null, "a"]"#).unwrap().unwrap(), r#"[1, "a"]"#);
    assert_eq!(insert(s, 520, r#"[100, "b"]"#).unwrap().unwrap(), r#"[100, "b"]"#);
    assert_eq!(insert(s, 520, r#"[null, "c"]"#).unwrap().unwrap(), r#"[101, "c"]"#);
    assert_eq!(refusal(insert(s, 520, "[]")), "Tuple field 1 required by space format is missing");
    let wrong = "Tuple field 1 type does not match one required by operation: expected unsigned";
    assert_eq!(refusal(insert(s, 520, r#"["x"]"#)), wrong);
    assert_eq!(refusal(upsert(s, 520, "[null, 2]", "[]")), wrong);
    commit(s, |s| ddl::truncate(s, 520));
    assert_eq!(replace(s, 520, "[null]").unwrap().unwrap(), "[102]");
    s.begin(user::ADMIN);
    s.execute(&Statement::Insert { space: 520, tuple: &row("[null]") }).unwrap();
    s.rollback();
    assert_eq!(insert(s, 520, "[null]").unwrap().unwrap(), "[103]");
    // No row says how far inserts have moved the sequence, and a DELETE of the row lets it begin anew.
    let id = s.space(520).unwrap().sequence().unwrap();
    assert_eq!(s.sequence(id).unwrap().value, Some(103));
    delete(s, 285, 0, &format!("[{id}]")).unwrap();
    assert_eq!(s.sequence(id).unwrap().value, None);
}

#[test]
fn a_sequence_fills_a_part_of_a_field() {
    let mut store = new_store();
    let s = &mut store;
    let parts = [PartSpec { path: "a.b", ..PartSpec::new(1, "unsigned") }];
    let space = commit(s, |s| {
        let space = ddl::create_space(s, &SpaceSpec::new("inside", &[]))?;
        let sequence = Some(SequenceUse::Generate);
        ddl::create_index(s, space, &IndexSpec { sequence, ..IndexSpec::new("pk", &parts) })?;
        Ok(space)
    });
    let mut put = |tuple: &str| insert(s, space, tuple).map(Option::unwrap_or_default);
    assert_eq!(put(r#"[0, {"a": {"c": [], "b": null}}, 7]"#).unwrap(), r#"[0, {"a": {"c": [], "b": 1}}, 7]"#);
    assert_eq!(put(r#"[0, {"a": {"b": 300}}]"#).unwrap(), r#"[0, {"a": {"b": 300}}]"#);
    assert_eq!(put(r#"[0, {"a": {"b": null}}]"#).unwrap(), r#"[0, {"a": {"b": 301}}]"#);
    assert!(put(r#"[0, {"a": {}}]"#).is_err());
    let id = s.space(space).unwrap().sequence().unwrap();
    assert_eq!(s.sequence(id).unwrap().value, Some(301));
    // The primary key keeps the part.
    let other = [PartSpec::new(0, "unsigned")];
    s.begin(user::ADMIN);
    let refused = ddl::create_index(s, space, &IndexSpec { id: Some(0), ..IndexSpec::new("pk", &other) });
    assert!(refused.is_err());
    s.rollback();
}

#[test]
fn sequences_are_taken_set_and_reset() {
    let mut store = new_store();
    let s = &mut store;
    let id = commit(s, |s| {
        ddl::create_sequence(s, &ddl::SequenceSpec { max: Some(3), ..ddl::SequenceSpec::new("ok") })
    });
    commit(s, |s| {
        assert_eq!(s.sequence_next(id), Ok(1));
        assert_eq!(s.sequence_next(id), Ok(2));
        assert_eq!(s.sequence_next(id), Ok(3));
        assert_eq!(refusal(s.sequence_next(id)), "Sequence 'ok' has overflowed");
        s.sequence_set(id, 1)?;
        assert_eq!(s.sequence_next(id), Ok(2));
        s.sequence_reset(id)
    });
    assert_eq!(s.sequence(id).unwrap().value, None);
    commit(s, |s| s.sequence_set(id, 2));
    assert_eq!(all(s, 285), "[1, 2]");
    s.begin(user::ADMIN);
    s.sequence_reset(id).unwrap();
    ddl::drop_sequence(s, id).unwrap();
    assert!(s.sequence(id).is_none());
    s.rollback();
    assert_eq!(s.sequence(id).unwrap().value, Some(2));
    assert_eq!(refusal(delete(s, 284, 0, "[1]")), "Can't drop sequence 'ok': the sequence has data");
}

#[test]
fn nils_do_not_conflict_in_a_unique_index() {
    let mut store = new_store();
    let s = &mut store;
    let id = commit(s, |s| {
        let id = ddl::create_space(s, &SpaceSpec::new("n", &[]))?;
        ddl::create_index(s, id, &IndexSpec::new("pk", &[PartSpec::new(0, "unsigned")]))?;
        let part = PartSpec { nullable: true, ..PartSpec::new(1, "unsigned") };
        ddl::create_index(s, id, &IndexSpec::new("u", &[part]))?;
        Ok(id)
    });
    for tuple in ["[1, null]", "[2]", "[3, 7]", "[4, null]"] {
        insert(s, id, tuple).unwrap();
    }
    assert_eq!(refusal(insert(s, id, "[5, 7]")), "Duplicate key exists in unique index 'u' in space 'n'");
    replace(s, id, "[3, 7, 1]").unwrap();
    assert_eq!(walk(s, id, 1, IteratorType::All, "[]"), "[1, null] [2] [4, null] [3, 7, 1]");
    assert_eq!(delete(s, id, 1, "[7]").unwrap().unwrap(), "[3, 7, 1]");
}

/// A journal holds a transaction as a whole, and a group sends one as a whole.
#[test]
fn a_transaction_has_a_bound_and_what_waits_to_be_journaled_does_not_count() {
    let mut store = with_wire_data();
    let s = &mut store;
    s.drain_committed(&mut |_| {});
    s.settings.transaction_limit = 3 << 20;
    let space = 515;
    let tuple = |id: u32| row(&format!(r#"[{id}, "{}"]"#, "w".repeat(1_000_000)));
    let put = |s: &mut Store, id: u32| s.execute(&Statement::Replace { space, tuple: &tuple(id) }).map(drop);
    let before = s.space(space).unwrap().len();
    for id in 900..905 {
        commit(s, |s| put(s, id));
    }
    commit(s, |s| {
        (910..913).try_for_each(|id| put(s, id)).expect("within the bound");
        let too_much =
            "Lycosa does not support a transaction with more than 3 MiB of rows here: make several of it";
        assert_eq!(put(s, 913).unwrap_err().to_string(), too_much);
        let operations = row(&format!(r#"[["=", 1, "{}"]]"#, "x".repeat(1_000_001)));
        let longer =
            Statement::Update { space, index: 0, key: &row("[910]"), operations: &operations, base: 0 };
        assert_eq!(s.execute(&longer).unwrap_err().to_string(), too_much);
        s.execute(&Statement::Delete { space, index: 0, key: &row("[911]") }).expect("nothing grows");
        let former = s.lift_limit(true);
        put(s, 914).expect("rows of a leader are taken");
        s.lift_limit(former);
        Ok(())
    });
    assert_eq!(s.space(space).unwrap().len(), before + 5 + 3);
    commit(s, |s| put(s, 915));
}

#[test]
fn nothing_grows_over_the_memory_limit() {
    let mut store = with_wire_data();
    let s = &mut store;
    let limit = s.memory().used;
    s.set_memory_limit(limit);
    let refused = refusal(insert(s, 517, "[1]"));
    assert_eq!(refused, "Failed to allocate 16 bytes in slab allocator for memtx_tuple");
    let word = "w".repeat(200);
    let grown = format!(r#"[1, 10, "{word}"]"#);
    assert!(refusal(replace(s, 515, &grown)).starts_with("Failed to allocate"));
    assert!(
        refusal(update(s, 515, 0, "[1]", &format!(r#"[["=", 1, "{word}"]]"#)))
            .starts_with("Failed to allocate")
    );
    update(s, 515, 0, "[1]", r#"[["=", 1, "a few bytes more"]]"#).unwrap();
    replace(s, 515, r#"[2, "another"]"#).unwrap();
    // An administrator's rows.
    insert(s, system::SCHEMA, r#"["term", 1]"#).unwrap();
    insert(s, system::USER, r#"[50, 1, "late", "user", {}]"#).unwrap();
    insert(s, system::CLUSTER, r#"[2, "00000000-0000-0000-0000-000000000007"]"#).unwrap();
    for id in 3..100 {
        delete(s, 515, 0, &format!("[{id}]")).unwrap();
    }
    insert(s, 517, "[1]").unwrap();
}
