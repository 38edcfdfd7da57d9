//! Random work on a store while a view of it is walked: the view must hand out exactly what there was.

use proptest::prelude::*;

use crate::budget::Budget;
use crate::ddl::{self, FieldSpec, IndexSpec, PartSpec, SequenceUse, SpaceSpec};
use crate::tests::{commit, new_store, row};
use crate::{Error, IndexKind, Savepoint, Settings, SpaceId, Statement, Store, system, user};

/// Spaces that the steps are about, by name; they come and go.
const NAMES: [&str; 5] = ["tree", "hash", "texts", "local", "temporary"];

#[derive(Debug, Clone)]
enum Step {
    Insert {
        space: usize,
        id: u8,
        value: u8,
    },
    Replace {
        space: usize,
        id: u8,
        value: u8,
    },
    Update {
        space: usize,
        id: u8,
        value: u8,
    },
    Delete {
        space: usize,
        id: u8,
    },
    Truncate(usize),
    Drop(usize),
    Create(usize),
    /// Adds or drops an index on the value.
    Secondary(usize),
    /// Gives the primary index another order.
    Reorder(usize),
    Rename(usize),
    /// Makes an empty space temporary, or persistent again.
    Temporary(usize),
    /// Takes the next value of a sequence of its own, makes and drops it.
    Sequence(u8),
    User(u8),
    Savepoint,
    RollbackTo,
    Commit,
    Rollback,
    /// Frees tuples of truncated and dropped spaces, so that their handles are used again.
    Free(u64),
    Next {
        rows: u32,
        bytes: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let change = || (0..NAMES.len(), 0..40_u8, 0..40_u8);
    let space = || 0..NAMES.len();
    prop_oneof![
        10 => change().prop_map(|(space, id, value)| Step::Insert { space, id, value }),
        10 => change().prop_map(|(space, id, value)| Step::Replace { space, id, value }),
        10 => change().prop_map(|(space, id, value)| Step::Update { space, id, value }),
        10 => change().prop_map(|(space, id, _)| Step::Delete { space, id }),
        2 => space().prop_map(Step::Truncate),
        2 => space().prop_map(Step::Drop),
        3 => space().prop_map(Step::Create),
        2 => space().prop_map(Step::Secondary),
        1 => space().prop_map(Step::Reorder),
        1 => space().prop_map(Step::Rename),
        1 => space().prop_map(Step::Temporary),
        3 => (0..12_u8).prop_map(Step::Sequence),
        2 => (0..4_u8).prop_map(Step::User),
        3 => Just(Step::Savepoint),
        3 => Just(Step::RollbackTo),
        6 => Just(Step::Commit),
        4 => Just(Step::Rollback),
        3 => (1..60_u64).prop_map(Step::Free),
        12 => (1..60_u32, prop_oneof![Just(1_usize << 20), 1..400_usize])
            .prop_map(|(rows, bytes)| Step::Next { rows, bytes }),
    ]
}

/// The tuple of a space: `[id, value]`, with text for the id in one of them and nil, for the sequence to fill, in another.
fn tuple(space: usize, id: u8, value: u8) -> Vec<u8> {
    match NAMES[space] {
        "texts" => row(&format!(r#"["{}", {value}]"#, "key".repeat(usize::from(id % 7)) + &id.to_string())),
        "local" if id < 20 => row(&format!("[null, {value}]")),
        _ => row(&format!("[{id}, {value}]")),
    }
}

fn key(space: usize, id: u8) -> Vec<u8> {
    match NAMES[space] {
        "texts" => row(&format!(r#"["{}"]"#, "key".repeat(usize::from(id % 7)) + &id.to_string())),
        _ => row(&format!("[{id}]")),
    }
}

fn create(store: &mut Store, space: usize) -> Result<(), Error> {
    let name = NAMES[space];
    let format = [FieldSpec { name: "id", ty: "scalar", nullable: false }];
    let spec = SpaceSpec {
        temporary: name == "temporary",
        local: name == "local",
        ..SpaceSpec::new(name, if name == "texts" { &format } else { &[] })
    };
    let id = ddl::create_space(store, &spec)?;
    let parts = [PartSpec::new(0, if name == "texts" { "string" } else { "unsigned" })];
    let primary = IndexSpec {
        kind: if name == "hash" { IndexKind::Hash } else { IndexKind::Tree },
        sequence: (name == "local").then_some(SequenceUse::Generate),
        ..IndexSpec::new("pk", &parts)
    };
    ddl::create_index(store, id, &primary).map(drop)
}

fn secondary(store: &mut Store, space: SpaceId) -> Result<(), Error> {
    if store.space(space)?.index(1).is_some() {
        return ddl::drop_index(store, space, 1);
    }
    let parts = [PartSpec::new(1, "unsigned")];
    ddl::create_index(store, space, &IndexSpec::new("value", &parts)).map(drop)
}

/// Replaces the row of the primary index: by value and id instead of by id, and back.
fn reorder(store: &mut Store, space: SpaceId) -> Result<(), Error> {
    let is_plain = store.space(space)?.primary()?.key().part_count() == 1;
    let ty = if store.space(space)?.name().starts_with("texts") { "string" } else { "unsigned" };
    let value = if is_plain { r#"[1, "unsigned"], "# } else { "" };
    let parts = format!(r#"[{value}[0, "{ty}"]]"#);
    let index = row(&format!(r#"[{space}, 0, "pk", "tree", {{"unique": true}}, {parts}]"#));
    store.execute(&Statement::Replace { space: system::INDEX, tuple: &index }).map(drop)
}

fn execute(store: &mut Store, step: &Step) -> Result<(), Error> {
    let id_of = |store: &Store, space: usize| {
        let names = [NAMES[space].to_owned(), format!("{}_renamed", NAMES[space])];
        let found = names.iter().find_map(|name| store.space_by_name(name).map(crate::Space::id));
        found.ok_or_else(|| Error::NoSuchSpace(NAMES[space].to_owned()))
    };
    match *step {
        Step::Insert { space, id, value } => {
            let (space, tuple) = (id_of(store, space)?, tuple(space, id, value));
            store.execute(&Statement::Insert { space, tuple: &tuple }).map(drop)
        }
        Step::Replace { space, id, value } => {
            let (space, tuple) = (id_of(store, space)?, tuple(space, id, value));
            store.execute(&Statement::Replace { space, tuple: &tuple }).map(drop)
        }
        Step::Update { space, id, value } => {
            let (key, operations) = (key(space, id), row(&format!(r#"[["=", 1, {value}]]"#)));
            let space = id_of(store, space)?;
            let (index, operations, base) = (0, &operations, 0);
            store.execute(&Statement::Update { space, index, key: &key, operations, base }).map(drop)
        }
        Step::Delete { space, id } => {
            let (space, key) = (id_of(store, space)?, key(space, id));
            store.execute(&Statement::Delete { space, index: 0, key: &key }).map(drop)
        }
        Step::Truncate(space) => ddl::truncate(store, id_of(store, space)?),
        Step::Drop(space) => ddl::drop_space(store, id_of(store, space)?),
        Step::Create(space) => create(store, space),
        Step::Secondary(space) => secondary(store, id_of(store, space)?),
        Step::Reorder(space) => reorder(store, id_of(store, space)?),
        Step::Rename(space) => {
            ddl::rename_space(store, id_of(store, space)?, &format!("{}_renamed", NAMES[space]))
        }
        Step::Temporary(space) => {
            let id = id_of(store, space)?;
            let flags = if store.space(id)?.is_temporary() { "{}" } else { r#"{"temporary": true}"# };
            let (key, operations) = (row(&format!("[{id}]")), row(&format!(r#"[["=", 5, {flags}]]"#)));
            let (space, index, base) = (system::SPACE, 0, 0);
            let update = Statement::Update { space, index, key: &key, operations: &operations, base };
            store.execute(&update).map(drop)
        }
        Step::Sequence(number) => {
            let name = format!("sequence{}", number % 3);
            match (store.sequence_by_name(&name).map(|sequence| sequence.id), number / 3) {
                (None, _) => ddl::create_sequence(store, &ddl::SequenceSpec::new(&name)).map(drop),
                (Some(id), 0) => ddl::drop_sequence(store, id),
                (Some(id), 1) => store.sequence_reset(id),
                (Some(id), _) => store.sequence_next(id).map(drop),
            }
        }
        Step::User(number) => {
            let name = format!("user{number}");
            match store.user_by_name(&name) {
                Some(_) => ddl::drop_user(store, &name, false),
                None => ddl::create_user(store, &name, None, false).map(drop),
            }
        }
        _ => Ok(()),
    }
}

type Rows = Vec<(SpaceId, Vec<u8>, bool)>;

fn rows_of(store: &Store) -> Rows {
    let mut rows = Vec::new();
    store.for_each_snapshot_row(&mut |space, tuple, local| rows.push((space, tuple.to_vec(), local)));
    rows
}

fn loaded(rows: &Rows) -> Store {
    let mut store = Store::new(Settings::default());
    for (space, tuple, _) in rows {
        store.recover(&Statement::Insert { space: *space, tuple }).unwrap();
    }
    store.finish_recovery().unwrap();
    store
}

/// Runs steps, some of them before the view is opened and the rest while it is; returns the rows that it handed out.
fn run(store: &mut Store, before: &[Step], steps: &[Step]) -> (Rows, Rows, u128) {
    let mut savepoints: Vec<Savepoint> = Vec::new();
    let mut work = |store: &mut Store, step: &Step| match *step {
        Step::Savepoint => savepoints.push(store.savepoint()),
        Step::RollbackTo => {
            if let Some(savepoint) = savepoints.pop() {
                store.rollback_to(savepoint);
            }
        }
        Step::Commit | Step::Rollback => {
            savepoints.clear();
            if matches!(step, Step::Commit) {
                store.commit();
            } else {
                store.rollback();
            }
            store.begin(user::ADMIN);
        }
        Step::Free(count) => {
            store.collect_garbage(count);
        }
        // A refusal is as good as a success: it must leave no trace.
        _ => drop(execute(store, step)),
    };
    store.begin(user::ADMIN);
    before.iter().for_each(|step| work(store, step));
    work(store, &Step::Commit);
    store.rollback();
    let (expected, digest) = (rows_of(store), store.digest());
    store.open_read_view();
    let mut handed_out = Rows::new();
    let mut take = |space, tuple: &[u8], local| handed_out.push((space, tuple.to_vec(), local));
    store.begin(user::ADMIN);
    for step in steps {
        if let Step::Next { rows, bytes } = *step {
            // Half of the steps come between transactions.
            let budget = Budget::new(rows, bytes);
            if rows % 2 == 0 {
                store.read_view_next(budget, &mut take);
                work(store, &Step::Commit);
            } else {
                work(store, &Step::Rollback);
            }
            store.rollback();
            store.read_view_next(budget, &mut take);
            store.begin(user::ADMIN);
        } else {
            work(store, step);
        }
    }
    store.rollback();
    while store.read_view_next(Budget::new(7, 1 << 20), &mut take) {}
    drop(store.close_read_view());
    (expected, handed_out, digest)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_view_hands_out_what_there_was(
        before in proptest::collection::vec(step(), 0..120),
        steps in proptest::collection::vec(step(), 1..160),
    ) {
        let mut store = new_store();
        commit(&mut store, |store| (0..NAMES.len()).try_for_each(|space| create(store, space)));
        let (expected, handed_out, digest) = run(&mut store, &before, &steps);
        prop_assert_eq!(&handed_out, &expected);
        prop_assert_eq!(store.snapshot_bytes(), store.recount_snapshot_bytes());
        prop_assert_eq!(loaded(&handed_out).digest(), digest);
        // Nothing is held for a view that is closed.
        let now = rows_of(&store);
        store.open_read_view();
        let mut again = Rows::new();
        store.read_view_next(Budget::of_rows(u32::MAX), &mut |space, tuple, local| {
            again.push((space, tuple.to_vec(), local));
        });
        prop_assert_eq!(again, now);
    }
}

fn numbered(store: &mut Store, count: u32) -> SpaceId {
    commit(store, |store| create(store, 0));
    let space = store.space_by_name("tree").unwrap().id();
    for id in 0..count {
        let tuple = row(&format!("[{id}, 0]"));
        commit(store, |store| store.execute(&Statement::Insert { space, tuple: &tuple }).map(drop));
    }
    space
}

#[test]
fn a_step_keeps_to_its_budget() {
    let mut store = new_store();
    let space = numbered(&mut store, 1000);
    store.open_read_view();
    let mut counts = Vec::new();
    loop {
        let (mut rows, mut bytes) = (0, 0);
        let has_more = store.read_view_next(Budget::new(50, 300), &mut |_, tuple, _| {
            rows += 1;
            assert!(bytes < 300);
            bytes += tuple.len();
        });
        counts.push(rows);
        if !has_more {
            break;
        }
    }
    assert!(counts.iter().all(|&rows| rows <= 50), "{counts:?}");
    // Rows that are passed over count too.
    store.close_read_view();
    store.open_read_view();
    for id in 1000..2000 {
        let tuple = row(&format!("[{id}, 0]"));
        commit(&mut store, |store| store.execute(&Statement::Insert { space, tuple: &tuple }).map(drop));
    }
    let mut steps = 0;
    while store.read_view_next(Budget::of_rows(50), &mut |_, _, _| {}) {
        steps += 1;
    }
    assert!(steps > 2000 / 50, "{steps}");
}

#[test]
fn spaces_are_passed_as_rows_are_and_none_costs_the_opening_anything() {
    const SPACES: u32 = 2_000;
    const BUDGET: u32 = 50;
    let mut store = new_store();
    for number in 0..SPACES {
        let (name, parts) = (format!("space{number}"), [PartSpec::new(0, "unsigned")]);
        let mut id = 0;
        commit(&mut store, |store| {
            id = ddl::create_space(store, &SpaceSpec::new(&name, &[]))?;
            ddl::create_index(store, id, &IndexSpec::new("pk", &parts)).map(drop)
        });
        if number % 2 == 0 {
            commit(&mut store, |store| {
                store.execute(&Statement::Insert { space: id, tuple: &row("[1]") }).map(drop)
            });
        }
    }
    let expected = rows_of(&store).len();
    store.open_read_view();
    assert!(store.view.as_ref().unwrap().walks.is_empty(), "no space is looked at");
    assert_eq!(store.read_view_memory(), 0);
    let (mut steps, mut rows) = (0, 0);
    loop {
        let mut handed_out = 0;
        let has_more = store.read_view_next(Budget::of_rows(BUDGET), &mut |_, _, _| handed_out += 1);
        let walks = &store.view.as_ref().unwrap().walks;
        assert!(walks.len() <= 1, "one space is being walked: {}", walks.len());
        assert!(handed_out <= BUDGET, "{handed_out}");
        (steps, rows) = (steps + 1, rows + handed_out as usize);
        if !has_more {
            break;
        }
    }
    assert_eq!(rows, expected);
    // Each space is passed at the cost of a row, whether it has tuples or not.
    assert!(steps * (BUDGET as usize + 1) >= rows + SPACES as usize, "{steps} steps of {rows} rows");
}

#[test]
fn what_a_view_holds_is_given_back() {
    let mut store = new_store();
    let space = numbered(&mut store, 2000);
    let empty = {
        let mut store = new_store();
        numbered(&mut store, 0);
        store.memory().tuples
    };
    let finish = |store: &mut Store| {
        while store.read_view_next(Budget::new(64, 1 << 20), &mut |_, _, _| {}) {}
    };
    // Kept tuples go with the walk.
    store.open_read_view();
    for id in 0..2000 {
        let tuple = row(&format!("[{id}, 1]"));
        commit(&mut store, |store| store.execute(&Statement::Replace { space, tuple: &tuple }).map(drop));
    }
    let peak = store.read_view_memory();
    finish(&mut store);
    assert!(store.read_view_memory() < peak / 2, "{} of {peak}", store.read_view_memory());
    store.close_read_view();
    assert_eq!(store.read_view_memory(), 0);
    // A truncated space's tuples wait for the walk, or for the end of the view.
    for is_finished in [true, false] {
        store.open_read_view();
        commit(&mut store, |store| ddl::truncate(store, space));
        store.collect_garbage(u64::MAX);
        assert!(store.memory().tuples > empty + 1000, "they are still there");
        if is_finished {
            finish(&mut store);
        }
        drop(store.close_read_view());
        store.collect_garbage(u64::MAX);
        assert!(store.memory().tuples < empty + 1000, "{} bytes", store.memory().tuples - empty);
        for id in 0..2000 {
            let tuple = row(&format!("[{id}, 1]"));
            commit(&mut store, |store| store.execute(&Statement::Insert { space, tuple: &tuple }).map(drop));
        }
    }
}

#[test]
fn the_size_of_a_snapshot_is_never_underestimated() {
    let mut store = new_store();
    numbered(&mut store, 300);
    let tuples: usize = rows_of(&store).iter().map(|(_, tuple, _)| tuple.len()).sum();
    assert!(store.snapshot_bytes() > tuples as u64 + 300 * 26);
}
