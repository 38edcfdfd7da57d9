//! Ends, tears, wrong bytes.

use proptest::prelude::*;

use super::*;
use crate::block::Encoder;
use crate::disk::Disk;
use crate::memory::MemoryDisk;
use crate::suite::Workload;

const HEADER: &str = "XLOG\n0.13\nVersion: x\nInstance: 19fa1ff9-7297-49ca-bfc6-f1b6763f6bd8\nVClock: {}\n\n";

/// A file of blocks with rows of these many payload bytes, without an end.
fn file(blocks: &[usize]) -> Vec<u8> {
    let mut bytes = HEADER.as_bytes().to_vec();
    let (mut workload, mut encoder) = (Workload::default(), Encoder::new(Some(3)).unwrap());
    for &payload in blocks {
        encoder.encode(&workload.batch(&[&[payload]]).rows, &mut bytes).unwrap();
    }
    bytes
}

/// The number of blocks, and the end after them.
fn read(bytes: &[u8]) -> (usize, Step<'static>) {
    let mut reader = open(bytes).unwrap();
    let mut blocks = 0;
    loop {
        match reader.next_block().unwrap() {
            Step::Block(_) => blocks += 1,
            Step::End(end) => return (blocks, Step::End(end)),
            Step::Damage(damage) => return (blocks, Step::Damage(damage)),
        }
    }
}

fn open(bytes: &[u8]) -> Result<FileReader, OpenError> {
    let disk = MemoryDisk::with_files([("f".to_owned(), bytes.to_vec())]);
    FileReader::open(disk.open("f").unwrap(), FileKind::Xlog)
}

fn torn(bytes: &[u8]) -> Option<(usize, TornCause)> {
    match read(bytes) {
        (blocks, Step::End(End::Torn(torn))) => {
            assert_eq!(torn.offset + torn.bytes, bytes.len() as u64);
            Some((blocks, torn.cause))
        }
        _ => None,
    }
}

#[test]
fn every_cut_of_the_last_block_is_torn() {
    for payload in [10, 2500] {
        let (two, three) = (file(&[10, 10]), file(&[10, 10, payload]));
        assert!(matches!(read(&two), (2, Step::End(End::Open))));
        for cut in two.len() + 1..three.len() {
            let in_header = cut < two.len() + FIXED_HEADER_BYTES;
            let cause = if in_header { TornCause::Header } else { TornCause::Body };
            assert_eq!(torn(&three[..cut]), Some((2, cause)), "cut at {cut}");
            for zeros in [1, 600, 10_000] {
                let tail = [&three[..cut], &vec![0; zeros]].concat();
                // A few zeros in place of the block's last bytes look like any other wrong bytes.
                let tells = zeros > 1 || cut + zeros != three.len();
                assert_eq!(torn(&tail).is_some(), tells, "cut at {cut}, {zeros} zeros: {:?}", read(&tail));
            }
        }
    }
}

#[test]
fn the_end_marker_may_be_torn_and_zeros_may_follow_it() {
    let mut bytes = file(&[10]);
    for cut in 1..MAGIC_BYTES {
        assert_eq!(torn(&[&bytes, &MAGIC_END[..cut]].concat()), Some((1, TornCause::Header)));
    }
    bytes.extend_from_slice(&MAGIC_END);
    assert!(matches!(read(&bytes), (1, Step::End(End::Marker))));
    bytes.extend_from_slice(&[0; 4000]);
    assert!(matches!(read(&bytes), (1, Step::End(End::Marker))));
    bytes.push(1);
    let after = Damage { offset: bytes.len() as u64 - 4005, kind: DamageKind::AfterEnd(4001) };
    assert!(matches!(read(&bytes), (1, Step::Damage(damage)) if damage == after));
}

/// A file as the writer makes it in mode `fsync`, each block synced alone, with a preallocated tail of `zeros`
/// bytes behind its header.
fn reserved(blocks: &[usize], zeros: usize) -> Vec<u8> {
    let mut bytes = synced(blocks);
    bytes.extend_from_slice(&PREALLOCATED_HEADER);
    bytes.resize(bytes.len() + zeros, 0);
    bytes
}

fn synced(blocks: &[usize]) -> Vec<u8> {
    let plain = file(blocks);
    let header = HEADER.replace("VClock", "SyncedLength: 1\nVClock");
    let meta = Meta::decode(header.as_bytes(), FileKind::Xlog).unwrap().meta;
    let field = SyncedLength::new(meta.instance, &meta.vclock);
    let mut bytes = header.into_bytes();
    let mut rest = &plain[HEADER.len()..];
    while let Some(head) = rest.first_chunk() {
        let header = BlockHeader::decode(head).unwrap();
        let length = FIXED_HEADER_BYTES + header.length as usize;
        let offset = bytes.len() as u64;
        bytes.extend_from_slice(&field.write(header, offset, offset).encode());
        bytes.extend_from_slice(&rest[FIXED_HEADER_BYTES..length]);
        rest = &rest[length..];
    }
    bytes
}

#[test]
fn a_reserve_is_an_open_end() {
    for zeros in [0, 1, 10_000] {
        assert!(matches!(read(&reserved(&[10, 300], zeros)), (2, Step::End(End::Open))));
    }
    let length: [u8; 8] = *PREALLOCATED_HEADER[MAGIC_BYTES + 1..].first_chunk().unwrap();
    assert_eq!(u64::from_be_bytes(length), block::MAX_PREALLOCATED_BYTES);
    assert_eq!(
        BlockHeader::decode(&PREALLOCATED_HEADER),
        Err(HeaderError::Padding),
        "no block's header is like it"
    );
}

/// The sector in which the file ends may begin anywhere in the header that was being written.
#[test]
fn every_cut_of_a_header_is_torn_wherever_its_sector_ends() {
    for first in 0..512 {
        let (end, block, tail) = (synced(&[first]).len(), synced(&[first, 2500]), reserved(&[first], 10));
        for cut in end + 1..end + FIXED_HEADER_BYTES {
            for bytes in [&block[..cut], &tail[..cut]] {
                let blocks = torn(bytes).map(|(blocks, _)| blocks);
                assert_eq!(blocks, Some(1), "{first}: {:?}", &bytes[end..]);
            }
        }
    }
}

#[test]
fn what_is_lost_before_a_reserve_is_told_from_what_is_damaged() {
    let mut lost = reserved(&[10, 10, 3000], 5000);
    let sector = synced(&[10, 10]).len().next_multiple_of(512);
    lost[sector..sector + 512].fill(0);
    assert_eq!(torn(&lost), Some((2, TornCause::Sector)));
    let (end, small) = (synced(&[10, 10, 150]).len(), reserved(&[10, 10, 150], 200));
    for bit in 0..8 * small.len() {
        let mut wrong = small.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        if open(&wrong).is_err() {
            continue;
        }
        let in_blocks = bit / 8 < end;
        match read(&wrong) {
            (3, Step::End(_)) if !in_blocks => {}
            (_, Step::Damage(_)) => {}
            (3, Step::End(End::Open)) if bit / 8 < HEADER.len() => {}
            (blocks, step) => panic!("bit {bit} of {}: {blocks} blocks, {step:?}", 8 * end),
        }
    }
}

#[test]
fn what_a_later_batch_vouches_for_is_damage() {
    let three = reserved(&[10, 3000, 10], 5000);
    let sector = synced(&[10]).len().next_multiple_of(512);
    for length in [1, 512, 1024] {
        let mut wrong = three.clone();
        wrong[sector..sector + length].fill(0);
        assert!(matches!(read(&wrong), (1, Step::Damage(_))), "{length}");
        let mut moved = wrong.clone();
        let begin = synced(&[10, 3000]).len();
        // A block of another place vouches for nothing.
        moved.copy_within(begin..begin + 100, begin + 1);
        moved[begin] = 7;
        assert_eq!(read(&moved).0, 1);
        assert_eq!(matches!(read(&moved), (1, Step::End(_))), length >= 512);
    }
}

#[test]
fn a_reserve_gives_way_to_blocks_while_it_is_read() {
    let disk = MemoryDisk::with_files([("f".to_owned(), reserved(&[10], 8000))]);
    let mut reader = FileReader::open(disk.open("f").unwrap(), FileKind::Xlog).unwrap();
    assert!(matches!(reader.next_block().unwrap(), Step::Block(_)));
    let longer = reserved(&[10, 700], 7000);
    let from = synced(&[10]).len();
    disk.reopen("f").unwrap().write_at(&longer[from..], from as u64).unwrap();
    assert!(matches!(reader.next_block().unwrap(), Step::Block(_)));
    assert!(matches!(reader.next_block().unwrap(), Step::End(End::Open)));
    let closed = [&synced(&[10, 700, 20])[..], &MAGIC_END].concat();
    let mut file = disk.reopen("f").unwrap();
    file.truncate(closed.len() as u64).unwrap();
    file.write_at(&closed[from..], from as u64).unwrap();
    assert!(matches!(reader.next_block().unwrap(), Step::Block(_)));
    assert!(matches!(reader.next_block().unwrap(), Step::End(End::Marker)));
}

#[test]
fn a_sector_of_zeros_at_the_end_is_torn_and_in_the_middle_is_damage() {
    let lost = |mut bytes: Vec<u8>, sector: usize| {
        bytes[sector * 512..(sector + 1) * 512].fill(0);
        bytes
    };
    assert_eq!(torn(&lost(file(&[10, 3000]), 2)), Some((1, TornCause::Sector)));
    assert!(matches!(read(&lost(file(&[10, 3000, 10]), 2)), (1, Step::Damage(_))));
}

#[test]
fn a_wrong_byte_in_the_last_block_is_damage() {
    let bytes = file(&[10, 10, 700]);
    let begin = file(&[10, 10]).len();
    for at in begin..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[at] ^= 0x40;
        let found = read(&wrong);
        let is_unused = at == begin + 7 || (begin + 13..begin + FIXED_HEADER_BYTES).contains(&at);
        match found {
            (2, Step::Damage(_)) => {}
            (3, Step::End(End::Open)) if is_unused => {}
            (_, step) => panic!("byte {at}: {step:?}"),
        }
    }
}

#[test]
fn a_length_over_the_end_is_damage_if_sound_blocks_follow() {
    let mut bytes = file(&[10, 300, 10]);
    let begin = file(&[10]).len();
    bytes[begin + MAGIC_BYTES + 1] = 0x7f;
    let (blocks, step) = read(&bytes);
    assert_eq!(blocks, 1);
    assert!(matches!(step, Step::Damage(Damage { kind: DamageKind::Length, .. })), "{step:?}");
    let mut reader = open(&bytes).unwrap();
    assert!(matches!(reader.next_block().unwrap(), Step::Block(_)));
    assert_eq!(reader.skip_damage().unwrap(), Some(file(&[10, 300]).len() as u64));
    assert!(matches!(reader.next_block().unwrap(), Step::Block(_)));
}

#[test]
fn an_open_end_can_be_read_on() {
    let disk = MemoryDisk::with_files([("f".to_owned(), file(&[10]))]);
    let mut reader = FileReader::open(disk.open("f").unwrap(), FileKind::Xlog).unwrap();
    assert!(matches!(reader.next_block().unwrap(), Step::Block(_)));
    assert!(matches!(reader.next_block().unwrap(), Step::End(End::Open)));
    let longer = file(&[10, 5000]);
    let from = file(&[10]).len();
    disk.reopen("f").unwrap().write_at(&longer[from..from + 30], from as u64).unwrap();
    assert!(matches!(reader.next_block().unwrap(), Step::End(End::Torn(_))));
    disk.reopen("f").unwrap().write_at(&longer[from..], from as u64).unwrap();
    assert!(matches!(reader.next_block().unwrap(), Step::Block(block) if block.compressed));
    assert!(matches!(reader.next_block().unwrap(), Step::End(End::Open)));
}

#[test]
fn a_header_that_was_never_written_is_torn() {
    for cut in 0..HEADER.len() {
        for zeros in [0, 1, 5000] {
            let bytes = [&HEADER.as_bytes()[..cut], &vec![0; zeros]].concat();
            let found = open(&bytes);
            assert!(matches!(found, Err(OpenError::Torn(_))), "cut at {cut}, {zeros} zeros: {found:?}");
        }
    }
    assert!(matches!(open(b"XLOG\n0.13\nVersion: \0x"), Err(OpenError::Meta(MetaError::Unfinished))));
}

proptest! {
    #[test]
    fn no_bytes_panic(
        is_synced in any::<bool>(),
        sizes in proptest::collection::vec(0_usize..3000, 1..4),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        garbage in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut bytes = if is_synced { reserved(&sizes, 700) } else { file(&sizes) };
        bytes.truncate(cut.index(bytes.len()) + 1);
        bytes.extend_from_slice(&garbage);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(mut reader) = open(&bytes) {
            let mut before = 0;
            loop {
                match reader.next_block().unwrap() {
                    Step::Block(_) => {}
                    Step::End(_) => break,
                    Step::Damage(_) => {
                        reader.skip_damage().unwrap();
                    }
                }
                prop_assert!(reader.offset() > before);
                before = reader.offset();
            }
        }
    }
}
