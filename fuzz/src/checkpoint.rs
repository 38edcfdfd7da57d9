//! A writer of snapshots that only remembers, and checks that what it got is the data of one moment.

use lycosa_instance::{CheckpointOrder, Chunk, Files, Instance, Written};
use lycosa_iproto::row::{RowBody, decode_row};
use lycosa_store::Budget;
use lycosa_tuple::mp::Reader;

use crate::replay::{SnapshotRows, loaded};

/// How much of a snapshot goes with one step: little, so that much happens while it is written.
pub(crate) const STEP: Budget<'static> = Budget::new(40, 4096);

/// The snapshot that is being written.
struct Snapshot {
    number: u64,
    /// Digest of the data at its moment.
    digest: u128,
    rows: SnapshotRows,
}

/// Does what an instance orders about snapshots.
#[derive(Default)]
pub(crate) struct Snapshots {
    running: Option<Snapshot>,
}

impl Snapshots {
    /// Executes the orders.
    pub(crate) fn obey(&mut self, order: CheckpointOrder, instance: &mut Instance, now: u64) {
        match order {
            CheckpointOrder::Begin { number, .. } => {
                let digest = instance.store().digest();
                self.running = Some(Snapshot { number, digest, rows: Vec::new() });
                instance.handle_checkpoint_wants(number, Chunk::default());
            }
            CheckpointOrder::Rows { number, chunk } => {
                let running = self.running.as_mut().expect("rows are of a checkpoint that was begun");
                assert_eq!(running.number, number);
                running.add(&chunk);
                instance.handle_checkpoint_wants(number, chunk);
            }
            CheckpointOrder::Complete { number, .. } => {
                let snapshot = self.running.take().expect("a checkpoint that ends was begun");
                snapshot.check();
                let files = Files::default();
                let written = Written { bytes: 0, peak: 0, files };
                instance.handle_checkpoint_done(number, &written, now);
            }
            CheckpointOrder::Abandon { .. } => {
                self.running = None;
            }
        }
    }

    /// The disk does not take the snapshot.
    pub(crate) fn fail(&mut self, instance: &mut Instance, now: u64) {
        if let Some(running) = &self.running {
            instance.handle_checkpoint_failed(running.number, "the disk is full", now);
        }
    }
}

impl Snapshot {
    fn add(&mut self, chunk: &Chunk) {
        let mut reader = Reader::new(&chunk.rows);
        for &end in &chunk.ends {
            let (header, body) = decode_row(&mut reader).expect("a row");
            assert_eq!((header.lsn, reader.position()), (self.rows.len() as u64, end as usize));
            let RowBody::Insert { space, tuple } = body else { panic!("a snapshot has INSERTs only") };
            self.rows.push((space, tuple.to_vec()));
        }
        assert!(reader.is_empty());
    }

    fn check(&self) {
        let replay = match loaded(&self.rows) {
            Ok(replay) => replay,
            Err(error) => panic!("a snapshot cannot be loaded: {error}"),
        };
        let store = replay.finish().expect("a snapshot is consistent");
        assert_eq!(store.digest(), self.digest, "a snapshot has the data of its moment");
    }
}
