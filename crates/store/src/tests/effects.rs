//! Effects of a transaction for the journal: formats.md, sections 5 and 8.

use super::data::with_wire_data;
use super::*;
use crate::ddl::{self, IndexSpec, PartSpec, SequenceUse, SpaceSpec};
use crate::system;

/// The committed effects, one line for each transaction.
pub(crate) fn drained(store: &mut Store) -> Vec<String> {
    let mut lines = Vec::new();
    store.drain_committed(&mut |committed| {
        let effects: Vec<String> = committed
            .effects()
            .map(|effect| {
                let statement = match effect.statement {
                    Statement::Insert { space, tuple } => format!("insert {space} {}", text(tuple)),
                    Statement::Replace { space, tuple } => format!("replace {space} {}", text(tuple)),
                    Statement::Update { space, index, key, operations, base } => {
                        format!("update {space}/{index} {} {} base {base}", text(key), text(operations))
                    }
                    Statement::Upsert { space, tuple, operations, base } => {
                        format!("upsert {space} {} {} base {base}", text(tuple), text(operations))
                    }
                    Statement::Delete { space, index, key } => {
                        format!("delete {space}/{index} {}", text(key))
                    }
                };
                if effect.local { format!("local {statement}") } else { statement }
            })
            .collect();
        lines.push(effects.join("; "));
    });
    lines
}

#[test]
fn statements_are_logged_by_primary_key() {
    let mut store = with_wire_data();
    let s = &mut store;
    drained(s);
    update(s, 512, 1, r#"["ten"]"#, r#"[["=", 2, 7]]"#).unwrap();
    update(s, 512, 1, r#"["nobody"]"#, r#"[["=", 2, 7]]"#).unwrap();
    delete(s, 512, 1, r#"["ten"]"#).unwrap();
    delete(s, 512, 1, r#"["ten"]"#).unwrap();
    insert(s, 520, "[null]").unwrap();
    upsert(s, 515, "[1]", r#"[["+", 2, 5]]"#).unwrap();
    assert!(insert(s, 515, "[1]").is_err());
    replace(s, 513, r#"[1, "h"]"#).unwrap();
    assert_eq!(
        drained(s),
        [
            r#"update 512/0 [10] [["=", 2, 7]] base 0"#,
            r#"update 512/1 ["nobody"] [["=", 2, 7]] base 0"#,
            "delete 512/0 [10]",
            r#"delete 512/1 ["ten"]"#,
            "insert 520 [1]",
            r#"upsert 515 [1] [["+", 2, 5]] base 0"#,
            r#"replace 513 [1, "h"]"#,
        ]
    );
    assert!(s.nothing_committed());
}

#[test]
fn savepoints_cut_what_was_logged() {
    let mut store = with_wire_data();
    let s = &mut store;
    drained(s);
    s.begin(user::ADMIN);
    s.execute(&Statement::Insert { space: 515, tuple: &row("[500]") }).unwrap();
    let savepoint = s.savepoint();
    s.execute(&Statement::Insert { space: 515, tuple: &row("[501]") }).unwrap();
    assert!(s.execute(&Statement::Insert { space: 515, tuple: &row("[500]") }).is_err());
    s.rollback_to(savepoint);
    s.execute(&Statement::Delete { space: 515, index: 0, key: &row("[1]") }).unwrap();
    let changes: Vec<_> = s.changes().map(|c| (c.space, c.gone().is_some(), c.came().map(text))).collect();
    assert_eq!(changes, [(515, false, Some("[500]".to_owned())), (515, true, None)]);
    s.commit();
    s.begin(user::ADMIN);
    s.execute(&Statement::Insert { space: 515, tuple: &row("[502]") }).unwrap();
    s.rollback();
    s.begin(user::ADMIN);
    s.commit();
    assert_eq!(drained(s), ["insert 515 [500]; delete 515/0 [1]"]);
}

/// Savepoints against a plain list: one is live until its transaction ends or is rolled back to a place before it.
#[test]
fn a_savepoint_is_live_until_something_before_it_is_restored() {
    let mut store = with_wire_data();
    let s = &mut store;
    let mut random = 1_u64;
    let mut next = move |count: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % count
    };
    let mut former: Vec<crate::Savepoint> = Vec::new();
    for _ in 0..40 {
        s.begin(user::ADMIN);
        assert!(former.iter().all(|&savepoint| !s.is_live(savepoint)));
        // Each savepoint with the number of changes before it, and whether it is live.
        let (mut taken, mut changes) = (Vec::new(), 0_u32);
        for step in 0..60 {
            // A statement that hits nothing leaves an effect and no undo record; a refused one leaves neither.
            let key = row(&format!("[{}]", 900 + step));
            match next(6) {
                0 => {
                    s.execute(&Statement::Delete { space: 515, index: 0, key: &key }).unwrap();
                    changes += 1;
                }
                1 => changes += u32::from(s.execute(&Statement::Insert { space: 515, tuple: &key }).is_ok()),
                2 => drop(s.execute(&Statement::Insert { space: 515, tuple: &row("[1]") }).unwrap_err()),
                3 => taken.push((s.savepoint(), changes, true)),
                _ if taken.is_empty() => {}
                _ => {
                    let (savepoint, at, live) = taken[next(taken.len())];
                    if live {
                        s.rollback_to(savepoint);
                        changes = at;
                        taken.iter_mut().for_each(|(_, place, live)| *live = *live && *place <= at);
                    }
                }
            }
            for &(savepoint, _, live) in &taken {
                assert_eq!(s.is_live(savepoint), live);
            }
        }
        if next(2) == 0 {
            s.commit();
        } else {
            s.rollback();
        }
        assert!(taken.iter().all(|&(savepoint, _, _)| !s.is_live(savepoint)));
        drained(s);
        former = taken.into_iter().map(|(savepoint, _, _)| savepoint).collect();
    }
}

#[test]
fn temporary_and_local_spaces() {
    let mut store = new_store();
    let s = &mut store;
    let (temporary, local) = commit(s, |s| {
        let pk = [PartSpec::new(0, "unsigned")];
        let temporary = ddl::create_space(s, &SpaceSpec { temporary: true, ..SpaceSpec::new("tmp", &[]) })?;
        ddl::create_index(s, temporary, &IndexSpec::new("pk", &pk))?;
        let local = ddl::create_space(s, &SpaceSpec { local: true, ..SpaceSpec::new("loc", &[]) })?;
        ddl::create_index(s, local, &IndexSpec::new("pk", &pk))?;
        Ok((temporary, local))
    });
    assert_eq!(
        drained(s),
        [concat!(
            r#"update 272/0 ["max_id"] [["+", 2, 1]] base 1; "#,
            r#"insert 280 [512, 1, "tmp", "memtx", 0, {"temporary": true}, []]; "#,
            r#"insert 288 [512, 0, "pk", "tree", {"unique": true}, [[0, "unsigned"]]]; "#,
            r#"update 272/0 ["max_id"] [["+", 2, 1]] base 1; "#,
            r#"insert 280 [513, 1, "loc", "memtx", 0, {"group_id": 1}, []]; "#,
            r#"insert 288 [513, 0, "pk", "tree", {"unique": true}, [[0, "unsigned"]]]"#
        )]
    );
    insert(s, temporary, "[1]").unwrap();
    insert(s, local, "[1]").unwrap();
    let digest = s.digest();
    commit(s, |s| ddl::truncate(s, temporary));
    commit(s, |s| ddl::truncate(s, local));
    assert_eq!(s.digest(), digest, "replicas have neither data");
    assert_eq!(
        drained(s),
        [
            "local insert 513 [1]",
            r#"local upsert 330 [512, 1] [["+", 1, 1]] base 0"#,
            r#"local upsert 330 [513, 1] [["+", 1, 1]] base 0"#
        ]
    );
    assert_eq!(all(s, system::TRUNCATE), "[512, 1] [513, 1]");
}

#[test]
fn schema_functions_log_the_rows_of_the_original() {
    let mut store = new_store();
    let s = &mut store;
    let id = commit(s, |s| {
        let id = ddl::create_space(s, &SpaceSpec::new("t", &[]))?;
        let parts = [PartSpec::new(0, "unsigned")];
        let sequence = Some(SequenceUse::Generate);
        ddl::create_index(s, id, &IndexSpec { sequence, ..IndexSpec::new("pk", &parts) })?;
        let nullable =
            PartSpec { nullable: true, collation: Some("unicode_ci"), ..PartSpec::new(1, "string") };
        ddl::create_index(s, id, &IndexSpec { unique: false, ..IndexSpec::new("c", &[nullable]) })?;
        Ok(id)
    });
    assert_eq!(
        drained(s),
        [concat!(
            r#"update 272/0 ["max_id"] [["+", 2, 1]] base 1; "#,
            r#"insert 280 [512, 1, "t", "memtx", 0, {}, []]; "#,
            r#"insert 284 [1, 1, "t_seq", 1, 1, 9223372036854775807, 1, 0, false]; "#,
            r#"insert 288 [512, 0, "pk", "tree", {"unique": true}, [[0, "unsigned"]]]; "#,
            r#"insert 340 [512, 1, true, 0, ""]; "#,
            r#"insert 288 [512, 1, "c", "tree", {"unique": false}, "#,
            r#"[{"field": 1, "type": "string", "collation": 2, "is_nullable": true}]]"#
        )]
    );
    commit(s, |s| ddl::create_user(s, "u", Some([7; 20]), false));
    commit(s, |s| ddl::grant(s, "u", "read,write", "space", "t", false));
    commit(s, |s| ddl::revoke(s, "u", "write", "space", "t", false));
    commit(s, |s| ddl::rename_space(s, id, "t2"));
    assert_eq!(
        drained(s),
        [
            concat!(
                r#"insert 304 [32, 1, "u", "user", {"chap-sha1": "BwcHBwcHBwcHBwcHBwcHBwcHBwc="}]; "#,
                r#"replace 312 [1, 32, "role", 2, 4]; replace 312 [1, 32, "user", 32, 128]; "#,
                r#"replace 312 [1, 32, "universe", 0, 24]"#
            ),
            r#"replace 312 [1, 32, "space", 512, 3]"#,
            r#"replace 312 [1, 32, "space", 512, 1]"#,
            r#"update 280/0 [512] [["=", 3, "t2"]] base 1"#,
        ]
    );
    commit(s, |s| ddl::drop_space(s, id));
    commit(s, |s| ddl::drop_user(s, "u", false));
    assert_eq!(
        drained(s),
        [
            concat!(
                "delete 340/0 [512]; delete 285/0 [1]; delete 284/0 [1]; delete 288/0 [512, 1]; ",
                r#"delete 288/0 [512, 0]; delete 312/0 [32, "space", 512]; delete 330/0 [512]; delete 280/0 [512]"#
            ),
            concat!(
                r#"delete 312/0 [32, "universe", 0]; delete 312/0 [32, "role", 2]; "#,
                r#"delete 312/0 [32, "user", 32]; delete 304/0 [32]"#
            ),
        ]
    );
}

#[test]
fn a_blackhole_only_logs() {
    let mut store = new_store();
    let s = &mut store;
    let field = [ddl::FieldSpec { name: "a", ty: "unsigned", nullable: false }];
    let id = commit(s, |s| {
        ddl::create_space(s, &SpaceSpec { engine: "blackhole", ..SpaceSpec::new("bh", &field) })
    });
    drained(s);
    assert_eq!(insert(s, id, "[1, 2]").unwrap().unwrap(), "[1, 2]");
    let wrong = "Tuple field 1 type does not match one required by operation: expected unsigned";
    assert_eq!(refusal(insert(s, id, r#"["x"]"#)), wrong);
    assert_eq!(refusal(delete(s, id, 0, "[1]")), "Blackhole does not support delete()");
    assert_eq!(refusal(upsert(s, id, "[1]", "[]")), "Blackhole does not support upsert()");
    assert_eq!(drained(s), [format!("insert {id} [1, 2]")]);
    let tuples = s.memory().tuples;
    insert(s, id, "[1, 2]").unwrap();
    assert_eq!(s.memory().tuples, tuples);
}
