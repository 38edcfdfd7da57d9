//! Every door asks the same before it changes data: whether the data folder is in its place, replicas are connected, the
//! instance takes writes, the disk has free space.

use lycosa_instance::{Caller, FreeSpace, Settings};
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::row::{RowBody, RowHeader};
use lycosa_store::{Statement, user};
use lycosa_tuple::value::Value;
use uuid::Uuid;

use crate::rig::{Answer, Client, Rig, SECOND, options, refused, values};

const SPACE: u32 = 600;
const ARCHIVE: u32 = 601;

const MOVED: &str = "the data folder /d was moved";

/// A row of `_user`, by INSERT.
fn user_row(id: u32, name: &str) -> Value {
    values![id, 1, name, "user", options! {}]
}

/// An instance with a tube, a task, a user, a role, a function, and an expiration task.
fn rig() -> (Rig, Client) {
    let mut rig = Rig::with(Settings { refuses_without_replicas: true, ..Settings::default() });
    rig.create_space(SPACE, "dated", Value::Map(vec![]));
    rig.create_space(ARCHIVE, "kept", Value::Map(vec![]));
    rig.create_tube("t", "fifo");
    let mut client = rig.admin();
    let calls = [
        ("queue.tube.t:put", values!["x"]),
        ("box.schema.user.create", values!["old"]),
        ("box.schema.role.create", values!["r"]),
        ("box.schema.func.create", values!["f"]),
        ("box.schema.user.grant", values!["old", "read", "universe"]),
        ("expiration.start", values!["e", SPACE, options! { field: 2, transient: false }]),
    ];
    for (name, args) in calls {
        rig.call(&mut client, name, &args).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
    (rig, client)
}

/// Native functions that change data, with growing effects: those at the end only make the data smaller.
fn changes() -> [(&'static str, Value); 20] {
    [
        ("queue.tube.t:put", values!["y"]),
        ("queue.create_tube", values!["u", "fifo"]),
        ("box.schema.func.create", values!["g"]),
        ("expiration.start", values!["n", SPACE, options! { field: 2 }]),
        ("box.schema.user.create", values!["new"]),
        ("box.schema.role.create", values!["s"]),
        ("box.schema.user.grant", values!["old", "write", "universe"]),
        ("box.schema.role.grant", values!["r", "read", "universe"]),
        ("queue.tube.t:take", values![0]),
        ("queue.tube.t:bury", values![0]),
        ("box.schema.user.passwd", values!["old", "secret"]),
        ("box.schema.user.passwd", values!["own secret"]),
        ("expiration.stop", values!["e"]),
        ("box.schema.func.drop", values!["f"]),
        ("queue.tube.t:delete", values![0]),
        ("box.schema.user.revoke", values!["old", "read", "universe"]),
        ("box.schema.role.drop", values!["r"]),
        ("box.schema.user.drop", values!["old"]),
        ("queue.tube.t:truncate", values![]),
        ("queue.tube.t:drop", values![]),
    ]
}

/// The calls that add something, of [`changes`].
const ADDING: usize = 3;
/// The calls of [`changes`] behind which all calls only remove something.
const REMOVING: usize = 15;

#[track_caller]
fn assert_moved(answer: Answer, door: &str) {
    let (code, text) = refused(answer);
    assert!(code == ErrorCode::WalIo && text.contains(MOVED), "{door}: {code:?} {text}");
}

/// What stands in the journal and in the spaces, to be compared.
fn rows(rig: &Rig) -> (u64, u128) {
    (rig.instance.awaited(), rig.instance.store().digest())
}

#[test]
fn a_displaced_folder_takes_no_change_through_any_door() {
    let (mut rig, mut client) = rig();
    rig.sync_journal();
    let before = rows(&rig);
    rig.instance.handle_displaced(Some(MOVED));
    assert_moved(rig.insert(&mut client, 304, &user_row(50, "x")), "INSERT into _user");
    for (name, args) in changes() {
        assert_moved(rig.call(&mut client, name, &args), name);
    }
    let registered = rig.instance.register_replica(Uuid::from_u128(7), rig.now);
    assert_moved(registered.map(|_| vec![]), "a replica that joins");
    let done = rig.instance.transaction(user::ADMIN, |store| {
        let tuple = values![1, 1].encode();
        let done = store.execute(&Statement::Insert { space: SPACE, tuple: &tuple }).map(drop);
        done.map_err(|error| lycosa_instance::store_error(&error))
    });
    assert_moved(done.map(|()| vec![]), "a program's transaction");
    let mut out = Vec::new();
    let called =
        rig.instance.call(&Caller::internal(), b"box.schema.user.create", &values!["p"].encode(), &mut out);
    assert_moved(called.map(|_| vec![]), "a program's call");
    assert_eq!(rows(&rig), before, "nothing has changed");

    rig.call(&mut client, "queue.tube.t:peek", &values![0]).expect("reading goes on");
    rig.call(&mut client, "box.schema.user.exists", &values!["old"]).expect("reading goes on");
    rig.instance.handle_displaced(None);
    for (name, args) in changes() {
        rig.call(&mut client, name, &args).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
    assert_eq!(rig.instance.register_replica(Uuid::from_u128(7), rig.now), Ok(2));
}

#[test]
fn a_read_only_instance_takes_no_change_through_native_functions() {
    let (mut rig, mut client) = rig();
    rig.instance.set_read_only(true, rig.now);
    let before = rows(&rig);
    for (name, args) in changes() {
        if name.starts_with("box.") || name.starts_with("expiration.") {
            assert_eq!(refused(rig.call(&mut client, name, &args)).0, ErrorCode::Readonly, "{name}");
        } else {
            // The queue answers for itself, as in Tarantool: a success that says nothing.
            rig.call(&mut client, name, &args).expect(name);
        }
    }
    assert_eq!(rows(&rig), before, "nothing has changed");
}

#[test]
fn a_short_disk_refuses_what_adds_through_native_functions() {
    let (mut rig, mut client) = rig();
    let reserve = 64 << 20;
    rig.instance.handle_free_space(Some(FreeSpace::new(reserve - 1, reserve)));
    for (name, args) in &changes()[..ADDING] {
        let (code, text) = refused(rig.call(&mut client, name, args));
        assert!(code == ErrorCode::WalIo && text.contains("less than disk_reserve"), "{name}: {text}");
    }
    // An administrator acts: a new user, a replica in the place of a dead one.
    rig.insert(&mut client, 304, &user_row(50, "x")).expect("INSERT into _user");
    rig.call(&mut client, "box.schema.user.create", &values!["late"]).expect("a user");
    assert_eq!(rig.instance.register_replica(Uuid::from_u128(7), rig.now), Ok(2));
    rig.instance.handle_free_space(Some(FreeSpace::new(reserve / 4 - 1, reserve)));
    for (name, args) in &changes()[ADDING..REMOVING] {
        let (code, text) = refused(rig.call(&mut client, name, args));
        assert!(code == ErrorCode::WalIo && text.contains("a quarter of disk_reserve"), "{name}: {text}");
    }
    let registered = rig.instance.register_replica(Uuid::from_u128(8), rig.now);
    assert_eq!(registered.map_err(|error| error.code), Err(u32::from(ErrorCode::WalIo)));
    for (name, args) in &changes()[REMOVING..] {
        rig.call(&mut client, name, args).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
}

#[test]
fn an_administrator_acts_at_the_memory_limit() {
    let (mut rig, mut client) = rig();
    rig.instance.reconfigure(rig.settings.clone(), 1);
    let refuses_memory = |answer: Answer| refused(answer).0 == ErrorCode::MemoryIssue;
    for (name, args) in &changes()[..ADDING] {
        assert!(refuses_memory(rig.call(&mut client, name, args)), "{name}");
    }
    let administered = [
        ("queue.grant", values!["old", "t"]),
        ("queue.tube.t:grant", values!["old", options! { call: true, truncate: true }]),
        ("queue.grant", values!["old", "*"]),
        ("queue.revoke", values!["old", "*"]),
        ("queue.revoke", values!["old", "t"]),
    ];
    for (name, args) in administered.iter().chain(&changes()[ADDING..]) {
        rig.call(&mut client, name, args).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
    rig.insert(&mut client, 304, &user_row(50, "x")).expect("INSERT into _user");
    assert_eq!(rig.instance.register_replica(Uuid::from_u128(7), rig.now), Ok(2));
    assert!(refuses_memory(rig.insert(&mut client, SPACE, &values![1, 1])));
}

#[test]
fn missing_replicas_refuse_native_functions_but_not_a_replica_that_joins() {
    let (mut rig, mut client) = rig();
    let settings = Settings { replicas_before_reply: 1, ..rig.settings.clone() };
    rig.instance.reconfigure(settings, u64::MAX);
    rig.advance(0);
    for (name, args) in changes() {
        assert_eq!(refused(rig.call(&mut client, name, &args)).0, ErrorCode::SyncQuorumTimeout, "{name}");
    }
    assert_eq!(rig.instance.register_replica(Uuid::from_u128(7), rig.now), Ok(2));
}

/// Starts an expiration task with an archive over a tuple that is due a second later; then the folder is gone.
fn displaced_archive(archive: Value) -> (Rig, Client) {
    let (mut rig, mut client) = rig();
    let due = rig.now / SECOND + 1;
    rig.call(&mut client, "expiration.stop", &values!["e"]).expect("a task");
    rig.insert(&mut client, SPACE, &values![1, due]).expect("a tuple");
    rig.call(&mut client, "expiration.start", &values!["a", SPACE, archive]).expect("a task");
    rig.sync_journal();
    rig.instance.handle_displaced(Some(MOVED));
    (0..4).for_each(|_| _ = rig.advance(SECOND));
    (rig, client)
}

fn count(rig: &Rig, space: u32) -> u64 {
    rig.instance.store().space(space).expect("a space").len()
}

#[test]
fn an_archive_takes_nothing_that_no_start_would_find() {
    let tube = options! { field: 2, archive_tube: "t" };
    let (mut rig, mut client) = displaced_archive(tube);
    let stats = rig.call(&mut client, "expiration.stats", &values!["a"]).expect("statistics").remove(0);
    let error = stats.get("error").and_then(Value::as_str).unwrap_or_default();
    assert!(error.contains(MOVED), "{stats}");
    assert_eq!(count(&rig, SPACE), 1, "the tuple waits for its archive");
    assert_eq!(rig.call(&mut client, "queue.tube.t:peek", &values![1]).map_err(|_| ()), Err(()));
    rig.instance.handle_displaced(None);
    (0..4).for_each(|_| _ = rig.advance(60 * SECOND));
    assert_eq!(count(&rig, SPACE), 0);
    rig.call(&mut client, "queue.tube.t:peek", &values![1]).expect("archived");

    let (mut rig, _) = displaced_archive(options! { field: 2, archive_space: "kept" });
    assert_eq!((count(&rig, SPACE), count(&rig, ARCHIVE)), (1, 0));
    rig.instance.handle_displaced(None);
    (0..4).for_each(|_| _ = rig.advance(60 * SECOND));
    assert_eq!((count(&rig, SPACE), count(&rig, ARCHIVE)), (0, 1));
}

#[test]
fn rows_of_a_master_need_the_folder_but_neither_replicas_nor_a_writable_instance() {
    let (mut rig, mut client) = rig();
    rig.instance.set_read_only(true, rig.now);
    assert_eq!(refused(rig.insert(&mut client, SPACE, &values![9, 9])).0, ErrorCode::Readonly);
    let tuple = values![9, 9].encode();
    let stamp = RowHeader { replica_id: 2, group_id: 0, lsn: 1, timestamp: 1e9, tsn: 1, is_commit: true };
    let rows = [(stamp, RowBody::Insert { space: SPACE, tuple: &tuple })];
    rig.instance.handle_displaced(Some(MOVED));
    assert_moved(rig.instance.apply(&rows, rig.now).map(|_| vec![]), "a master's row");
    rig.instance.handle_displaced(None);
    rig.instance.apply(&rows, rig.now).expect("applied");
    assert_eq!(count(&rig, SPACE), 1);
}
