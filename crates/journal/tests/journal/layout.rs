//! The layout of a folder: names, headers and blocks, byte for byte as a real Tarantool writes them.

use lycosa_iproto::vclock::Vclock;
use lycosa_journal::decision::Mode;
use lycosa_journal::log::{Batch, WalMode};
use lycosa_journal::memory::MemoryDisk;
use lycosa_journal::meta::FileKind;
use lycosa_journal::reader::{End, Step};
use lycosa_journal::snap::SnapshotWriter;
use lycosa_journal::suite::Workload;
use lycosa_journal::transaction::{Next, Transactions};
use lycosa_journal::writer::{Settings, WRITTEN_BY, XlogWriter};
use uuid::Uuid;

use crate::support::{directory, disk, files, recover, without_checksum};

const INSTANCE: Uuid = Uuid::from_u128(7);

fn create(disk: &MemoryDisk, settings: Settings) -> XlogWriter {
    XlogWriter::create(directory(disk), settings, INSTANCE, Vclock::new()).unwrap()
}

/// The number of transactions in each block of an xlog, and how it ends.
fn blocks(disk: &MemoryDisk, signature: u64) -> (Vec<usize>, End) {
    let mut reader = directory(disk).read(FileKind::Xlog, signature).unwrap();
    let mut blocks = Vec::new();
    loop {
        match reader.next_block().unwrap() {
            Step::Block(block) => {
                let (mut transactions, mut rows) = (Transactions::new(block.rows), Vec::new());
                let whole = std::iter::from_fn(|| match transactions.next(&mut rows).unwrap() {
                    Next::Transaction(_) => Some(()),
                    Next::End => None,
                    Next::Partial(at) => panic!("a transaction spans blocks at byte {at}"),
                });
                blocks.push(whole.count());
            }
            Step::End(end) => return (blocks, end),
            Step::Damage(damage) => panic!("{damage}"),
        }
    }
}

#[test]
fn a_real_xlog_is_reproduced_byte_for_byte() {
    let name = "00000000000000000000.xlog";
    let real = files("synchro").remove(name).unwrap();
    let source = disk("synchro");
    let mut reader = directory(&source).read(FileKind::Xlog, 0).unwrap();
    let written_by = reader.meta().written_by.clone();

    let disk = MemoryDisk::new();
    let instance = reader.meta().instance;
    // Only in mode `fsync` blocks say how much of the file is synced.
    let settings = Settings { mode: WalMode::Write, ..Settings::default() };
    let mut log = XlogWriter::create(directory(&disk), settings, instance, Vclock::new()).unwrap();
    while let Step::Block(block) = reader.next_block().unwrap() {
        let mut rows = Vec::new();
        let mut batch = Batch { rows: block.rows.to_vec(), ..Batch::default() };
        batch.end_transaction();
        let last = Transactions::new(block.rows).next(&mut rows).map(|_| rows.last().unwrap().header.lsn);
        batch.vclock.set(1, last.unwrap()).unwrap();
        log.append(&batch).unwrap();
    }
    log.rotate().unwrap();
    let ours = without_checksum(&disk.files().remove(name).unwrap());
    let header = |by: &str| format!("XLOG\n0.13\nVersion: {by}\n").into_bytes();
    assert_eq!(ours.strip_prefix(&header(WRITTEN_BY)[..]), real.strip_prefix(&header(&written_by)[..]));
}

#[test]
fn files_are_named_by_the_clock_before_their_first_row() {
    let disk = MemoryDisk::new();
    SnapshotWriter::create(directory(&disk), INSTANCE, &Vclock::new(), 1.5).unwrap().finish().unwrap();
    let mut log = create(&disk, Settings::default());
    let mut workload = Workload::default();
    assert_eq!(disk.files().len(), 1, "no xlog before the first row");
    for _ in 0..3 {
        log.append(&workload.batch(&[&[10], &[10, 10]])).unwrap();
        log.rotate().unwrap();
    }
    log.close().unwrap();
    let header = |signature| {
        let reader = directory(&disk).read(FileKind::Xlog, signature).unwrap();
        let meta = reader.meta();
        format!("{} {}", meta.vclock, meta.prev_vclock.as_ref().map_or("-".to_owned(), Vclock::to_string))
    };
    assert_eq!(directory(&disk).list().unwrap().xlogs, [0, 3, 6, 9]);
    assert_eq!([0, 3, 6, 9].map(header), ["{} -", "{1: 3} {}", "{1: 6} {1: 3}", "{1: 9} {1: 6}"]);
    assert_eq!(blocks(&disk, 6), (vec![2], End::Marker));
    assert_eq!(blocks(&disk, 9), (vec![], End::Marker));
}

#[test]
fn a_file_without_rows_is_written_on_and_one_with_rows_is_not() {
    let disk = disk("empty");
    let start = || {
        let (recovered, _) = recover(&disk, Mode::Strict).unwrap();
        XlogWriter::resume(directory(&disk), Settings::default(), &recovered).unwrap()
    };
    let xlogs = || directory(&disk).list().unwrap().xlogs;
    start().close().unwrap();
    assert_eq!(xlogs(), [0]);
    start().append(&Workload::default().batch(&[&[10]])).unwrap();
    assert_eq!((xlogs(), blocks(&disk, 0)), (vec![0], (vec![1], End::Open)));
    let mut log = start();
    log.append(&Workload::after(1).batch(&[&[10]])).unwrap();
    assert_eq!(xlogs(), [0, 1]);
    log.close().unwrap();
    assert_eq!((xlogs(), blocks(&disk, 1)), (vec![0, 1, 2], (vec![1], End::Marker)));
}

#[test]
fn a_batch_is_one_write_of_blocks_closed_at_128_kib() {
    let disk = MemoryDisk::new();
    let mut log = create(&disk, Settings::default());
    let mut workload = Workload::default();
    log.append(&workload.batch(&[&[10]])).unwrap();
    let before = disk.operations();
    log.append(&workload.batch(&[&[10][..]; 200])).unwrap();
    log.append(&workload.batch(&[&[60_000][..]; 4])).unwrap();
    log.append(&workload.batch(&[&[100_000, 100_000, 100_000], &[10]])).unwrap();
    assert_eq!(disk.operations() - before, 3);
    assert_eq!(blocks(&disk, 0).0, [1, 200, 3, 1, 1, 1]);
}

#[test]
fn a_file_past_its_size_is_followed_by_the_next() {
    let disk = MemoryDisk::new();
    let mut log = create(&disk, Settings { max_file_bytes: 1000, ..Settings::default() });
    let mut workload = Workload::default();
    for _ in 0..30 {
        log.append(&workload.batch(&[&[100]])).unwrap();
    }
    let xlogs = directory(&disk).list().unwrap().xlogs;
    assert!(xlogs.len() > 3, "{xlogs:?}");
    let (last, full) = xlogs.split_last().unwrap();
    for signature in full {
        let bytes = disk.files()[&format!("{signature:020}.xlog")].len();
        assert!((1000..1200).contains(&bytes), "{bytes}");
        assert_eq!(blocks(&disk, *signature).1, End::Marker);
    }
    assert_eq!(blocks(&disk, *last).1, End::Open);
}

#[test]
fn a_snapshot_reads_back_and_is_not_overwritten() {
    let disk = MemoryDisk::new();
    let mut vclock = Vclock::new();
    vclock.set(1, 5).unwrap();
    let mut snapshot = SnapshotWriter::create(directory(&disk), INSTANCE, &vclock, 1.5).unwrap();
    for id in 0..20_000_u32 {
        let [_, high, middle, low] = id.to_be_bytes();
        snapshot.add(u32::from(id % 7 == 0), 512, &[0x91, 0xce, 0, high, middle, low]).unwrap();
    }
    let written = snapshot.finish().unwrap();
    assert_eq!((written.name.as_str(), written.rows), ("00000000000000000005.snap", 20_000));
    assert_eq!(written.bytes, disk.files()[&written.name].len() as u64);
    let (recovered, collected) = recover(&disk, Mode::Strict).unwrap();
    assert_eq!((recovered.vclock, recovered.instance), (vclock.clone(), INSTANCE));
    assert_eq!(collected.snapshot_rows, 20_000);
    assert_eq!(collected.ids, (0..20_000).collect::<Vec<_>>());
    let again = SnapshotWriter::create(directory(&disk), INSTANCE, &vclock, 1.5).unwrap_err();
    assert!(again.to_string().contains("00000000000000000005.snap"), "{again}");
}

#[test]
fn a_transaction_over_the_limit_of_a_block_is_refused_and_nothing_else() {
    let disk = MemoryDisk::new();
    let mut log = create(&disk, Settings { compression_level: None, ..Settings::default() });
    let limit = usize::try_from(lycosa_journal::block::MAX_BODY_BYTES).unwrap();
    let mut batch = Batch { rows: vec![0; limit + 1], ..Batch::default() };
    batch.end_transaction();
    let error = log.append(&batch).unwrap_err();
    assert!(error.to_string().contains("over the journal's limit"), "{error}");
    log.append(&Workload::default().batch(&[&[10]])).unwrap();
    assert_eq!(blocks(&disk, 0).0, [1]);
}
