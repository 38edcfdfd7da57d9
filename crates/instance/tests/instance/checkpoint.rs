//! Checkpoints: their schedule, their content, their reports.

use lycosa_instance::{Batch, CheckpointOrder, Chunk, Files, Settings, Trust, Written};
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::request::Body;
use lycosa_iproto::row::{RowBody, decode_row};
use lycosa_store::{Budget, Statement, Store};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;

use crate::rig::{Client, Rig, SECOND, options, refused, values};

const SPACE: u32 = 600;
const STEP: Budget<'static> = Budget::new(64, 4096);
const MINUTE: u64 = 60 * SECOND;

fn rig(settings: Settings) -> Rig {
    let mut rig = Rig::with(settings);
    rig.create_space(SPACE, "s", options! {});
    rig
}

fn replace(rig: &mut Rig, client: &mut Client, id: u64, text: &str) {
    rig.ask(client, &Body::Replace { space: SPACE, tuple: &values![id, text].encode() }).expect("a tuple");
}

/// A writer of snapshots that only remembers.
#[derive(Default)]
struct Writer {
    number: u64,
    signature: u64,
    rows: Vec<Vec<u8>>,
    is_complete: bool,
    was_abandoned: bool,
}

impl Writer {
    /// Does what the instance orders next. False if it orders nothing.
    fn step(&mut self, rig: &mut Rig) -> bool {
        match rig.instance.poll_checkpoint(STEP) {
            Some(CheckpointOrder::Begin { number, vclock, .. }) => {
                *self = Writer { number, signature: vclock.signature(), ..Writer::default() };
                rig.instance.handle_checkpoint_wants(number, Chunk::default());
            }
            Some(CheckpointOrder::Rows { number, chunk }) => {
                assert_eq!(number, self.number);
                let mut begin = 0;
                for &end in &chunk.ends {
                    self.rows.push(chunk.rows[begin..end as usize].to_vec());
                    begin = end as usize;
                }
                assert_eq!(begin, chunk.rows.len());
                rig.instance.handle_checkpoint_wants(number, chunk);
            }
            Some(CheckpointOrder::Complete { .. }) => self.is_complete = true,
            Some(CheckpointOrder::Abandon { number, .. }) => {
                assert_eq!(number, self.number);
                self.was_abandoned = true;
            }
            None => return false,
        }
        true
    }

    fn run(&mut self, rig: &mut Rig) {
        while self.step(rig) {}
    }

    fn done(&self, rig: &mut Rig) {
        let files = Files { snapshot: 1000, journal: 0, total: 2000, ..Files::default() };
        let written = Written { bytes: 1000, peak: 2000, files };
        assert_eq!(rig.instance.handle_checkpoint_done(self.number, &written, rig.now), None);
    }

    /// A store that was loaded from the snapshot.
    fn loaded(&self) -> Store {
        let mut store = Store::new(lycosa_store::Settings::default());
        for (number, row) in (0..).zip(&self.rows) {
            let (header, body) = decode_row(&mut Reader::new(row)).expect("a row");
            assert_eq!(header.lsn, number);
            let RowBody::Insert { space, tuple } = body else { panic!("{body:?}") };
            store.recover(&Statement::Insert { space, tuple }).expect("a row that fits");
        }
        store.finish_recovery().expect("consistent data");
        store
    }
}

fn start_snapshot(rig: &mut Rig, client: &mut Client) -> u64 {
    rig.start_call(client, "box.snapshot", &values![])
}

#[test]
fn a_snapshot_holds_the_data_of_its_moment() {
    let mut rig = rig(Settings::default());
    let mut client = rig.admin();
    for id in 0..500 {
        replace(&mut rig, &mut client, id, "old");
    }
    let sync = start_snapshot(&mut rig, &mut client);
    let mut writer = Writer::default();
    assert!(writer.step(&mut rig));
    let digest = rig.instance.store().digest();
    let signature = rig.instance.standing().signature;
    let mut changes = 0;
    while writer.step(&mut rig) {
        changes += 1;
        replace(&mut rig, &mut client, 499 - changes, "new");
        replace(&mut rig, &mut client, 1000 + changes, "late");
    }
    assert!(changes > 5 && writer.is_complete && !writer.was_abandoned);
    assert_eq!((writer.loaded().digest(), writer.signature), (digest, signature));
    assert_ne!(rig.instance.store().digest(), digest);
    assert_eq!(rig.replies(&client), vec![], "the call waits");
    writer.done(&mut rig);
    let replies = rig.replies(&client);
    assert_eq!((replies[0].sync, &replies[0].answer), (sync, &Ok(vec![Value::from("ok")])));
    let status = rig.instance.status().checkpoint;
    let last = status.last.expect("a checkpoint");
    assert_eq!((status.state, status.count, last.rows), ("idle", 1, writer.rows.len() as u64));
    assert_eq!(last.vclock.signature(), signature);
}

#[test]
fn the_journal_file_ends_at_the_snapshot() {
    let mut rig = rig(Settings::default());
    let mut client = rig.admin();
    rig.send(&mut client, &Body::Replace { space: SPACE, tuple: &values![1].encode() });
    start_snapshot(&mut rig, &mut client);
    let mut writer = Writer::default();
    writer.run(&mut rig);
    rig.send(&mut client, &Body::Replace { space: SPACE, tuple: &values![2].encode() });
    assert!(!writer.is_complete, "its rows are not durable");
    let first = rig.batch();
    let second = rig.batch();
    assert!(first.ends_file && first.lsn == writer.signature && !first.rows.is_empty());
    assert!(!second.ends_file && second.lsn == first.lsn + 1);
    rig.make_durable(first);
    writer.run(&mut rig);
    assert!(writer.is_complete, "only what came before its moment counts");
    rig.make_durable(second);
    writer.done(&mut rig);

    // Everything is durable already: the batch that ends the file is empty.
    start_snapshot(&mut rig, &mut client);
    writer.run(&mut rig);
    let Batch { rows, lsn, ends_file, .. } = rig.batch();
    assert!(rows.is_empty() && lsn == writer.signature && ends_file && writer.is_complete);
}

#[test]
fn calls_are_answered_as_tarantool_answers_them() {
    let mut rig = rig(Settings::default());
    rig.create_user("other", "x");
    let mut other = rig.login("other", "x");
    let answer = rig.call(&mut other, "box.snapshot", &values![]);
    assert_eq!(refused(answer).0, ErrorCode::AccessDenied);
    let mut guest = rig.connect(Trust::Loopback);
    assert_eq!(refused(rig.call(&mut guest, "box.snapshot", &values![])).0, ErrorCode::AccessDenied);
    rig.grant("other", "execute", "universe", "");
    let mut admin = rig.admin();
    start_snapshot(&mut rig, &mut other);
    let answer = rig.call(&mut admin, "box.snapshot", &values![]);
    let busy = (ErrorCode::CheckpointInProgress, "Snapshot is already in progress".to_owned());
    assert_eq!(refused(answer), busy);
    let mut writer = Writer::default();
    writer.run(&mut rig);
    assert_eq!(refused(rig.call(&mut admin, "box.snapshot", &values![])), busy);
    rig.sync_journal();
    writer.run(&mut rig);
    writer.done(&mut rig);
    assert_eq!(rig.replies(&other).len(), 1);
    // Nothing has changed since.
    assert_eq!(rig.call(&mut other, "box.snapshot", &values![]), Ok(vec![Value::from("ok")]));
    assert!(!writer.step(&mut rig));
}

#[test]
fn one_is_due_when_the_interval_has_passed_and_something_has_changed() {
    let settings = Settings { checkpoint_interval: 10 * MINUTE, ..Settings::default() };
    let mut rig = rig(settings);
    let mut client = rig.admin();
    let mut writer = Writer::default();
    assert_eq!(rig.advance(9 * MINUTE), Some(rig.now + MINUTE));
    assert!(!writer.step(&mut rig));
    rig.advance(MINUTE);
    writer.run(&mut rig);
    assert!(writer.is_complete);
    writer.done(&mut rig);
    rig.advance(100 * MINUTE);
    assert!(!writer.step(&mut rig), "nothing has changed");
    replace(&mut rig, &mut client, 1, "x");
    rig.advance(1);
    assert!(writer.step(&mut rig));
}

#[test]
fn one_is_due_when_the_journal_has_grown() {
    const THRESHOLD: u64 = 200_000;
    let settings = Settings { checkpoint_wal_threshold: THRESHOLD, ..Settings::default() };
    let mut rig = rig(settings);
    let mut client = rig.admin();
    rig.instance.set_checkpoint_base(
        0,
        Files { snapshot: 10_000, journal: 50_000, total: 60_000, ..Files::default() },
    );
    let mut writer = Writer::default();
    for round in 0..3 {
        let mut written = if round == 0 { 50_000 } else { 0 };
        let text = "x".repeat(1000);
        loop {
            rig.advance(1);
            if writer.step(&mut rig) {
                break;
            }
            replace(&mut rig, &mut client, 1, &text);
            written += 1000;
        }
        assert!((150_000..210_000).contains(&written), "round {round}: after {written} bytes");
        let status = rig.instance.status().checkpoint;
        assert_eq!((status.state, status.journal_limit), ("running", THRESHOLD));
        assert!(status.journal_bytes >= THRESHOLD, "{status:?}");
        writer.run(&mut rig);
        rig.sync_journal();
        writer.run(&mut rig);
        writer.done(&mut rig);
        assert!(rig.instance.status().checkpoint.journal_bytes < 1000);
    }
}

#[test]
fn one_is_due_when_files_take_more_than_they_may() {
    let settings = Settings { checkpoint_wal_threshold: 1 << 20, ..Settings::default() };
    let mut rig = rig(settings);
    let mut client = rig.admin();
    let mut writer = Writer::default();
    replace(&mut rig, &mut client, 1, "x");
    let files = Files { snapshot: 100 << 20, journal: 0, total: 100 << 20, ..Files::default() };
    rig.instance.set_checkpoint_base(0, files.clone());
    rig.advance(2 * SECOND);
    writer.run(&mut rig);
    rig.sync_journal();
    writer.run(&mut rig);
    assert!(writer.is_complete);
    let written = Written { bytes: 1000, peak: files.total + 1000, files: Files { snapshot: 1000, ..files } };
    let excess = rig.instance.handle_checkpoint_done(writer.number, &written, rig.now);
    assert!(excess.is_some_and(|excess| excess > 90 << 20), "{excess:?}");
    assert_eq!(rig.instance.status().checkpoint.disk_excesses, 1);
}

#[test]
fn a_failure_is_told_and_tried_again_later() {
    let settings = Settings { checkpoint_interval: MINUTE, ..Settings::default() };
    let mut rig = rig(settings);
    let mut client = rig.admin();
    rig.advance(MINUTE);
    let mut writer = Writer::default();
    let sync = start_snapshot(&mut rig, &mut client);
    writer.step(&mut rig);
    writer.step(&mut rig);
    let first = writer.number;
    assert!(rig.instance.handle_checkpoint_failed(first, "No space left on device", rig.now));
    writer.run(&mut rig);
    assert!(writer.was_abandoned && !writer.is_complete);
    let replies = rig.replies(&client);
    assert_eq!(replies[0].sync, sync);
    let wanted = "the checkpoint was given up: No space left on device";
    assert_eq!(refused(replies[0].answer.clone()), (ErrorCode::System, wanted.to_owned()));
    let status = rig.instance.status().checkpoint;
    assert_eq!((status.state, status.failures), ("failed", 1));
    assert_eq!(status.failure.as_deref(), Some("No space left on device"));
    // The next attempt comes after a while, not at once; late reports about the first one do not count.
    rig.advance(SECOND);
    assert!(!writer.step(&mut rig));
    rig.advance(MINUTE);
    assert!(writer.step(&mut rig) && writer.number == first + 1);
    assert!(!rig.instance.handle_checkpoint_failed(first, "late", rig.now));
    rig.instance.handle_checkpoint_wants(first, Chunk::default());
    writer.run(&mut rig);
    assert!(writer.is_complete);
    assert!(!rig.instance.handle_checkpoint_failed(writer.number, "again", rig.now), "that is no news");
    writer.run(&mut rig);
    // A requested checkpoint does not wait for the pause.
    start_snapshot(&mut rig, &mut client);
    writer.run(&mut rig);
    writer.done(&mut rig);
    assert_eq!(rig.instance.status().checkpoint.state, "idle");
}

#[test]
fn a_journal_that_fails_takes_the_checkpoint_with_it() {
    let mut rig = rig(Settings::default());
    let mut client = rig.admin();
    rig.send(&mut client, &Body::Replace { space: SPACE, tuple: &values![1].encode() });
    start_snapshot(&mut rig, &mut client);
    let mut writer = Writer::default();
    writer.step(&mut rig);
    writer.step(&mut rig);
    rig.instance.handle_failed("the disk is gone");
    writer.run(&mut rig);
    assert!(writer.was_abandoned && !writer.is_complete);
    let replies = rig.replies(&client);
    assert_eq!(replies.len(), 2);
    for reply in replies {
        assert_eq!(refused(reply.answer).0, ErrorCode::WalIo);
    }
    let answer = rig.call(&mut client, "box.snapshot", &values![]);
    assert_eq!(refused(answer).0, ErrorCode::WalIo);
    assert!(!writer.step(&mut rig));
}

#[test]
fn a_forced_one_has_a_moment_of_its_own() {
    let mut rig = rig(Settings::default());
    let signature = rig.instance.standing().signature;
    rig.instance.set_checkpoint_base(signature, Files::default());
    assert!(!rig.instance.request_checkpoint());
    rig.instance.force_checkpoint();
    let mut writer = Writer::default();
    writer.step(&mut rig);
    assert_eq!(writer.signature, signature + 1);
    rig.sync_journal();
    writer.run(&mut rig);
    assert!(writer.is_complete);
    writer.done(&mut rig);
    assert!(!rig.instance.request_checkpoint() && !rig.instance.has_checkpoint());
}

#[test]
fn one_that_was_wanted_while_another_was_written_is_not_begun_for_nothing() {
    let mut rig = rig(Settings::default());
    let mut client = rig.admin();
    replace(&mut rig, &mut client, 1, "old");
    assert!(rig.instance.request_checkpoint());
    let mut writer = Writer::default();
    assert!(writer.step(&mut rig));
    assert!(rig.instance.request_checkpoint(), "nobody knows yet whether the one under way succeeds");
    rig.sync_journal();
    writer.run(&mut rig);
    writer.done(&mut rig);
    let sync = start_snapshot(&mut rig, &mut client);
    assert!(!writer.step(&mut rig), "a second snapshot of one moment would take the place of the first");
    assert!(!rig.instance.has_checkpoint());
    let replies = rig.replies(&client);
    assert_eq!((replies[0].sync, &replies[0].answer), (sync, &Ok(vec![Value::from("ok")])));
    replace(&mut rig, &mut client, 2, "new");
    assert!(rig.instance.request_checkpoint() && writer.step(&mut rig));
}

#[test]
fn a_snapshot_that_is_being_completed_is_not_given_up() {
    let mut rig = rig(Settings::default());
    let mut client = rig.admin();
    replace(&mut rig, &mut client, 1, "kept");
    assert!(rig.instance.request_checkpoint());
    let mut writer = Writer::default();
    writer.run(&mut rig);
    assert!(writer.is_complete);
    rig.instance.abandon_checkpoint("the server ends");
    assert!(!writer.step(&mut rig) && rig.instance.has_checkpoint());
    writer.done(&mut rig);
    assert!(!rig.instance.has_checkpoint() && !rig.instance.request_checkpoint(), "all is in the snapshot");
}
