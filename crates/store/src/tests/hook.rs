//! Hooks. What decisions lead to was observed on Tarantool 2.6.

use super::*;
use crate::ddl::{self, FieldSpec, IndexSpec, PartSpec, SequenceUse, SpaceSpec};
use crate::{Change, Decision, Hooks, OwnedChange, Proposal, Savepoint, StatementKind, Submitted, system};

fn hooked_space() -> (Store, SpaceId) {
    let mut store = new_store();
    let space = commit(&mut store, |s| {
        let space = ddl::create_space(s, &SpaceSpec::new("watched", &[]))?;
        ddl::create_index(s, space, &IndexSpec::new("pk", &[PartSpec::new(0, "unsigned")]))?;
        Ok(space)
    });
    store.set_hooks(space, Hooks { before: true, after: true }).unwrap();
    insert(&mut store, space, r#"[1, "a"]"#).unwrap();
    store.begin(user::ADMIN);
    (store, space)
}

fn proposed(store: &mut Store, statement: &Statement<'_>) -> Proposal {
    match store.submit(statement) {
        Ok(Submitted::Proposed(proposal)) => proposal,
        other => panic!("{statement:?}: {other:?}"),
    }
}

fn shown(tuple: Option<&[u8]>) -> Option<String> {
    tuple.map(text)
}

/// Submits and decides; what the reply shows.
fn decided(
    store: &mut Store,
    statement: &Statement<'_>,
    decision: Decision<'_>,
) -> Result<Option<String>, Error> {
    let proposal = proposed(store, statement);
    store.decide(statement, proposal, decision).map(shown)
}

fn changes(store: &Store, since: Option<Savepoint>) -> Vec<String> {
    let tuple = |tuple: &Option<Vec<u8>>| tuple.as_deref().map_or("-".to_owned(), text);
    let line =
        |change: OwnedChange| format!("{} {} {}", change.kind.name(), tuple(&change.old), tuple(&change.new));
    store.hooked_changes(since).map(|change: Change<'_>| change.into_owned()).map(line).collect()
}

/// One statement of each kind on the tuple 1, and what each proposes to put.
fn statements(space: SpaceId, work: &mut dyn FnMut(&Statement<'_>, Option<&str>)) {
    let (tuple, key, operations) = (row(r#"[1, "b"]"#), row("[1]"), row(r#"[["=", 1, "b"]]"#));
    let new = Some(r#"[1, "b"]"#);
    work(&Statement::Insert { space, tuple: &tuple }, new);
    work(&Statement::Replace { space, tuple: &tuple }, new);
    work(&Statement::Update { space, index: 0, key: &key, operations: &operations, base: 0 }, new);
    work(&Statement::Upsert { space, tuple: &tuple, operations: &operations, base: 0 }, new);
    work(&Statement::Delete { space, index: 0, key: &key }, None);
}

#[test]
fn a_proposal_shows_what_a_statement_would_do_and_changes_nothing() {
    let (mut store, space) = hooked_space();
    statements(space, &mut |statement, new| {
        let proposal = proposed(&mut store, statement);
        assert_eq!((proposal.space, proposal.kind), (space, statement.kind()));
        assert_eq!(shown(proposal.old.as_deref()).as_deref(), Some(r#"[1, "a"]"#), "{statement:?}");
        assert_eq!(shown(proposal.new.as_deref()).as_deref(), new, "{statement:?}");
        assert!(!store.has_changes());
        store.withdraw(proposal);
    });
    assert_eq!(all(&store, space), r#"[1, "a"]"#);
    let (key, operations) = (row("[7]"), row(r#"[["=", 1, "b"]]"#));
    for statement in [
        Statement::Delete { space, index: 0, key: &key },
        Statement::Update { space, index: 0, key: &key, operations: &operations, base: 0 },
    ] {
        assert!(matches!(store.submit(&statement), Ok(Submitted::Executed(None))), "{statement:?}");
    }
}

#[test]
fn a_statement_that_proceeds_does_what_it_does_without_hooks() {
    statements(512, &mut |statement, _| {
        let (mut store, space) = hooked_space();
        assert_eq!(statement.space(), space);
        let result = decided(&mut store, statement, Decision::Proceed);
        let after = all(&store, space);
        store.rollback();
        store.set_hooks(space, Hooks::default()).unwrap();
        store.begin(user::ADMIN);
        assert_eq!(
            store.submit(statement).map(|submitted| match submitted {
                Submitted::Executed(tuple) => shown(tuple),
                Submitted::Proposed(proposal) => panic!("{proposal:?}"),
            }),
            result
        );
        assert_eq!(all(&store, space), after);
    });
}

#[test]
fn hooks_put_another_tuple_remove_the_old_one_or_skip() {
    let other = row(r#"[1, "hook"]"#);
    let moved = row(r#"[9, "hook"]"#);
    statements(512, &mut |statement, _| {
        let (mut store, _) = hooked_space();
        let start = store.savepoint();
        assert_eq!(decided(&mut store, statement, Decision::Skip), Ok(None));
        assert!(!store.has_changes());
        assert_eq!(decided(&mut store, statement, Decision::Put(&other)), Ok(Some(text(&other))));
        assert_eq!(changes(&store, None), [r#"REPLACE [1, "a"] [1, "hook"]"#]);
        store.rollback_to(start);
        assert_eq!(decided(&mut store, statement, Decision::Remove), Ok(Some(r#"[1, "a"]"#.to_owned())));
        assert_eq!(changes(&store, None), [r#"DELETE [1, "a"] -"#]);
        store.rollback_to(start);
        for other in [&moved, &row(r#"[[1], "hook"]"#), &row(r#"["1", "hook"]"#)] {
            let refused = decided(&mut store, statement, Decision::Put(other)).unwrap_err();
            assert_eq!(
                refused.to_string(),
                "Attempt to modify a tuple field which is part of index 'pk' in space 'watched'"
            );
            assert!(!store.has_changes());
        }
    });
    let (mut store, space) = hooked_space();
    let fresh = row(r#"[3, "c"]"#);
    let insert = Statement::Insert { space, tuple: &fresh };
    assert_eq!(decided(&mut store, &insert, Decision::Remove), Ok(None));
    assert_eq!(decided(&mut store, &insert, Decision::Put(&moved)), Ok(Some(text(&moved))));
    assert_eq!(all(&store, space), r#"[1, "a"] [9, "hook"]"#);
    for bad in [r#"["x"]"#, "7"] {
        assert!(decided(&mut store, &insert, Decision::Put(&row(bad))).is_err());
    }
}

#[test]
fn what_a_hook_executes_is_kept_with_its_statement_and_undone_with_it() {
    let (mut store, space) = hooked_space();
    let (replaced, nested) = (row(r#"[1, "b"]"#), row(r#"[2, "nested"]"#));
    let replace = Statement::Replace { space, tuple: &replaced };
    let first = proposed(&mut store, &replace);
    store.execute(&Statement::Insert { space, tuple: &nested }).unwrap();
    store.withdraw(first);
    assert_eq!(all(&store, space), r#"[1, "a"]"#);

    let second = proposed(&mut store, &replace);
    store.execute(&Statement::Insert { space, tuple: &nested }).unwrap();
    let too_short = row("[]");
    assert!(store.decide(&replace, second, Decision::Put(&too_short)).is_err());
    assert_eq!(all(&store, space), r#"[1, "a"]"#);

    // The tuple itself may go in between.
    let third = proposed(&mut store, &replace);
    store.execute(&Statement::Delete { space, index: 0, key: &row("[1]") }).unwrap();
    assert_eq!(store.decide(&replace, third, Decision::Proceed).map(shown), Ok(Some(text(&replaced))));
    assert_eq!(changes(&store, None), [r#"DELETE [1, "a"] -"#, r#"REPLACE - [1, "b"]"#]);
    store.commit();
    assert_eq!(all(&store, space), r#"[1, "b"]"#);
}

#[test]
fn a_sequence_gives_its_number_before_the_hook_and_takes_it_back() {
    let (mut store, _) = hooked_space();
    let space = ddl::create_space(&mut store, &SpaceSpec::new("numbered", &[])).unwrap();
    let sequence = Some(SequenceUse::Generate);
    ddl::create_index(
        &mut store,
        space,
        &IndexSpec { sequence, ..IndexSpec::new("pk", &[PartSpec::new(0, "unsigned")]) },
    )
    .unwrap();
    store.set_hooks(space, Hooks { before: true, after: false }).unwrap();
    let tuple = row("[null]");
    let insert = Statement::Insert { space, tuple: &tuple };
    for _ in 0..2 {
        let proposal = proposed(&mut store, &insert);
        assert_eq!(shown(proposal.new.as_deref()).as_deref(), Some("[1]"));
        store.withdraw(proposal);
    }
    assert_eq!(decided(&mut store, &insert, Decision::Proceed), Ok(Some("[1]".to_owned())));
    assert_eq!(decided(&mut store, &insert, Decision::Proceed), Ok(Some("[2]".to_owned())));
    assert_eq!(changes(&store, None), [""; 0], "the space has no after hooks");
}

#[test]
fn after_hooks_see_each_change_whole_and_in_order() {
    let (mut store, space) = hooked_space();
    store.set_hooks(space, Hooks { before: false, after: true }).unwrap();
    let mut since = store.savepoint();
    let mut seen = Vec::new();
    for operations in [r#"[["=", 1, "x"]]"#, r#"[["=", 1, "y"]]"#] {
        let (key, operations) = (row("[1]"), row(operations));
        let update = Statement::Update { space, index: 0, key: &key, operations: &operations, base: 0 };
        assert!(matches!(store.submit(&update), Ok(Submitted::Executed(Some(_)))));
        seen.extend(changes(&store, Some(since)));
        since = store.savepoint();
        // No hook watches the system's spaces.
        let field = [FieldSpec { name: "id", ty: "unsigned", nullable: false }];
        ddl::set_format(&mut store, space, &field).unwrap();
    }
    let expected = [r#"UPDATE [1, "a"] [1, "x"]"#, r#"UPDATE [1, "x"] [1, "y"]"#];
    assert_eq!(
        (seen, changes(&store, None)),
        (expected.map(str::to_owned).to_vec(), expected.map(str::to_owned).to_vec())
    );
}

#[test]
fn hooks_end_with_their_space_and_need_one_that_has_tuples() {
    let (mut store, space) = hooked_space();
    ddl::truncate(&mut store, space).unwrap();
    assert_eq!(store.hooks(space), Hooks { before: true, after: true });
    store.rollback();
    commit(&mut store, |s| ddl::drop_space(s, space));
    assert_eq!(store.hooks(space), Hooks::default());
    let refused = [space, system::VSPACE].map(|space| refusal(store.set_hooks(space, Hooks::default())));
    assert_eq!(refused, ["Space '512' does not exist", "Space '_vspace' does not support triggers"]);
    assert_eq!(StatementKind::Upsert.name(), "UPSERT");
}

/// A blackhole keeps no tuple; its hooks see each INSERT and REPLACE, and may give another tuple.
#[test]
fn hooks_see_what_a_blackhole_swallows() {
    let mut store = new_store();
    let space = commit(&mut store, |s| {
        ddl::create_space(s, &SpaceSpec { engine: "blackhole", ..SpaceSpec::new("hole", &[]) })
    });
    store.set_hooks(space, Hooks { before: true, after: true }).unwrap();
    store.begin(user::ADMIN);
    let (tuple, other, operations) = (row("[1]"), row("[2, 3]"), row("[]"));
    for statement in [Statement::Insert { space, tuple: &tuple }, Statement::Replace { space, tuple: &tuple }]
    {
        for (decision, left) in [(Decision::Proceed, "[1]"), (Decision::Put(&other), "[2, 3]")] {
            let since = store.savepoint();
            assert_eq!(decided(&mut store, &statement, decision).unwrap().as_deref(), Some(left));
            let kind = if decision == Decision::Proceed { statement.kind() } else { StatementKind::Replace };
            assert_eq!(changes(&store, Some(since)), [format!("{} - {left}", kind.name())]);
        }
        for decision in [Decision::Skip, Decision::Remove] {
            let since = store.savepoint();
            assert_eq!(decided(&mut store, &statement, decision).unwrap(), None);
            assert!(changes(&store, Some(since)).is_empty());
        }
    }
    let upsert = Statement::Upsert { space, tuple: &tuple, operations: &operations, base: 0 };
    let refused = decided(&mut store, &upsert, Decision::Proceed).map(drop).unwrap_err();
    assert_eq!(refused.to_string(), "Blackhole does not support upsert()");
    assert_eq!(decided(&mut store, &upsert, Decision::Put(&other)).unwrap().as_deref(), Some("[2, 3]"));
    let refused = store.submit(&Statement::Delete { space, index: 0, key: &tuple }).map(drop).unwrap_err();
    assert!(refused.to_string().starts_with("No index #0 is defined in space"), "{refused}");
}

#[test]
fn rights_are_checked_before_hooks_are_asked() {
    let (mut store, space) = hooked_space();
    store.rollback();
    store.begin(user::GUEST);
    let tuple = row("[5]");
    let refused = store.submit(&Statement::Insert { space, tuple: &tuple }).unwrap_err();
    assert!(matches!(refused, Error::AccessDenied { .. }), "{refused}");
    store.rollback();
    let refused = store.submit(&Statement::Insert { space, tuple: &tuple }).unwrap_err();
    assert!(matches!(refused, Error::NoTransaction));
}

#[test]
fn a_proposal_ends_with_the_transaction_and_with_what_was_before_it() {
    let (mut store, space) = hooked_space();
    statements(space, &mut |statement, _| {
        for decision in [Decision::Proceed, Decision::Skip, Decision::Remove] {
            let start = store.savepoint();
            let other = row("[7]");
            store.execute(&Statement::Replace { space, tuple: &other }).unwrap();
            let proposal = proposed(&mut store, statement);
            store.rollback_to(start);
            let refused = store.decide(statement, proposal, decision).map(drop);
            assert!(matches!(refused, Err(Error::NoSuchSavepoint)), "{refused:?}");
            let proposal = proposed(&mut store, statement);
            store.rollback();
            assert!(matches!(store.decide(statement, proposal, decision), Err(Error::NoTransaction)));
            store.begin(user::ADMIN);
            let proposal = proposed(&mut store, statement);
            store.rollback();
            store.begin(user::ADMIN);
            store.execute(&Statement::Delete { space, index: 0, key: &row("[1]") }).unwrap();
            let place = store.savepoint();
            let refused = store.decide(statement, proposal, decision).map(drop);
            assert!(matches!(refused, Err(Error::NoSuchSavepoint)), "{refused:?}");
            assert_eq!(store.savepoint(), place);
            assert_eq!(all(&store, space), "");
            store.rollback();
            store.begin(user::ADMIN);
            assert_eq!(all(&store, space), r#"[1, "a"]"#);
        }
    });
}
