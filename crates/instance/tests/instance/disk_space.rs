//! Scarce disk space: refused changes, and checkpoints that free space.

use lycosa_instance::{CheckpointOrder, Chunk, Files, FreeSpace, Keep};
use lycosa_iproto::error::ErrorCode;
use lycosa_store::Budget;

use crate::rig::{Rig, options, refused, values};

const RESERVE: u64 = 64 << 20;

fn room(free: u64) -> Option<FreeSpace> {
    Some(FreeSpace::new(free, RESERVE))
}

fn begun(rig: &mut Rig) -> Option<Keep> {
    rig.advance(2_000_000);
    match rig.instance.poll_checkpoint(Budget::new(100, 1 << 20)) {
        Some(CheckpointOrder::Begin { keep, .. }) => Some(keep),
        _ => None,
    }
}

#[test]
fn the_shorter_the_space_the_less_is_done() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifottl");
    let mut client = rig.admin();
    for _ in 0..3 {
        rig.call(&mut client, "queue.tube.t:put", &values!["x"]).expect("put");
    }
    assert!(rig.instance.handle_free_space(room(RESERVE - 1)));
    assert!(!rig.instance.handle_free_space(room(RESERVE / 2)), "it was short before");
    let (code, text) = refused(rig.call(&mut client, "queue.tube.t:put", &values!["x"]));
    assert!(code == ErrorCode::WalIo && text.contains("less than disk_reserve"), "{text}");
    let (code, _) = refused(rig.call(&mut client, "queue.create_tube", &values!["u", "fifo"]));
    assert_eq!(code, ErrorCode::WalIo);
    rig.call(&mut client, "queue.tube.t:take", &values![0_u64]).expect("taken");
    rig.call(&mut client, "queue.tube.t:ack", &values![0_u64]).expect("finished");

    rig.instance.handle_free_space(room(RESERVE / 4 - 1));
    for (name, args) in [("take", values![0_u64]), ("bury", values![1_u64]), ("delete", values![1_u64])] {
        let (code, text) = refused(rig.call(&mut client, &format!("queue.tube.t:{name}"), &args));
        assert!(code == ErrorCode::WalIo && text.contains("a quarter of disk_reserve"), "{name}: {text}");
    }
    rig.call(&mut client, "queue.tube.t:peek", &values![1_u64]).expect("looked at");
    rig.call(&mut client, "queue.tube.t:truncate", &values![]).expect("truncated");
    assert!(rig.instance.handle_free_space(None));
    rig.call(&mut client, "queue.tube.t:put", &values!["x"]).expect("put");
}

#[test]
fn a_checkpoint_begins_when_it_makes_space_and_fits() {
    let mut rig = Rig::new();
    rig.create_space(600, "s", options! {});
    let files = |total| Files { snapshot: 1 << 20, journal: total - (1 << 20), total, ..Files::default() };
    rig.instance.set_checkpoint_base(0, files(200 << 20));
    let mut client = rig.admin();
    rig.insert(&mut client, 600, &values![1_u64]).expect("inserted");
    assert!(begun(&mut rig).is_none(), "there is space");
    rig.instance.handle_free_space(room(RESERVE / 2));
    let keep = begun(&mut rig).expect("the journal can go");
    assert_eq!((keep.snapshots, keep.bytes), (1, 0));
    let expected = keep.scarce.expect("the disk is short");
    assert!((1..1 << 20).contains(&expected), "{expected}");

    let now = rig.now;
    rig.instance.handle_checkpoint_failed(1, "it does not fit", now);
    rig.instance.poll_checkpoint(Budget::new(100, 1 << 20));
    rig.instance.handle_free_space(room(expected));
    assert!(begun(&mut rig).is_none(), "the snapshot does not fit beside what the journal keeps");
    rig.instance.handle_free_space(room(expected + RESERVE / 8));
    assert!(begun(&mut rig).is_some(), "without the pause after a failure");
}

#[test]
fn a_disk_that_others_have_filled_gets_no_checkpoints() {
    let mut rig = Rig::new();
    rig.create_space(600, "s", options! {});
    let files = Files { snapshot: 1 << 20, journal: 1 << 20, total: 2 << 20, ..Files::default() };
    rig.instance.set_checkpoint_base(0, files);
    rig.instance.handle_free_space(room(RESERVE / 2));
    assert!(begun(&mut rig).is_none());
}

#[test]
fn what_a_snapshot_takes_meanwhile_refuses_no_finishing() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifottl");
    let mut client = rig.admin();
    let payload = "x".repeat(2_000);
    rig.call(&mut client, "queue.tube.t:put", &values![payload.as_str()]).expect("put");
    let files = Files { snapshot: 1 << 20, journal: 199 << 20, total: 200 << 20, ..Files::default() };
    rig.instance.set_checkpoint_base(0, files);
    rig.instance.handle_free_space(room(RESERVE / 2));
    assert!(begun(&mut rig).is_some());
    let low = room(RESERVE / 4 - 1_000);
    rig.instance.handle_free_space(low);
    assert_eq!(refused(rig.call(&mut client, "queue.tube.t:take", &values![0_u64])).0, ErrorCode::WalIo);

    rig.instance.handle_checkpoint_wants(1, Chunk::default());
    let order = rig.instance.poll_checkpoint(Budget::new(1_000, 1 << 20));
    assert!(matches!(order, Some(CheckpointOrder::Rows { .. })), "the snapshot has taken what is missing");
    rig.instance.handle_free_space(low);
    rig.call(&mut client, "queue.tube.t:take", &values![0_u64]).expect("taken");
    rig.call(&mut client, "queue.tube.t:ack", &values![0_u64]).expect("finished");
    rig.instance.handle_free_space(room(RESERVE / 8 - 1));
    assert_eq!(refused(rig.call(&mut client, "queue.tube.t:take", &values![0_u64])).0, ErrorCode::WalIo);
}
