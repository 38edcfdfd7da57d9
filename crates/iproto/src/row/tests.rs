use lycosa_tuple::mp;
use proptest::prelude::*;

use super::*;
use crate::samples::bytes;

fn encoded(header: &RowHeader, body: &RowBody<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode_row(&mut out, header, body);
    if *header == RowHeader::single(header.replica_id, header.lsn, header.timestamp) {
        let mut single = Vec::new();
        encode_single_row(&mut single, header.replica_id, header.lsn, header.timestamp, body);
        assert_eq!(single, out, "a row alone in its transaction has one form");
    }
    out
}

fn decoded(row: &[u8]) -> (RowHeader, RowBody<'_>) {
    let mut reader = Reader::new(row);
    let parts = decode_row(&mut reader).expect("a row");
    assert!(reader.is_empty());
    parts
}

/// A row of a real server's log: it is read as these parts, and they are written as that row.
fn golden(hex: &str, header: &RowHeader, body: &RowBody<'_>) {
    let row = bytes(hex);
    assert_eq!(decoded(&row), (*header, *body), "{hex}");
    assert_eq!(encoded(header, body), row, "{hex}");
}

fn seconds(bits: u64) -> f64 {
    f64::from_bits(bits)
}

#[test]
fn rows_that_are_transactions() {
    golden(
        "8400020201030704cb41dac006acd96688 8210cd0200219101",
        &RowHeader::single(1, 7, seconds(0x41da_c006_acd9_6688)),
        &RowBody::Insert { space: 512, tuple: &[0x91, 1] },
    );
    golden(
        "840003020103cd010004cb41dac00838694fb5 8210cd011d21920305",
        &RowHeader::single(1, 256, seconds(0x41da_c008_3869_4fb5)),
        &RowBody::Replace { space: 285, tuple: &[0x92, 3, 5] },
    );
    golden(
        "840004020103cd01ac04cb41dac008386b23b9 8510cd020f11031501209301a66e6f626f647901219193a13da165a178",
        &RowHeader::single(1, 428, seconds(0x41da_c008_386b_23b9)),
        &RowBody::Update {
            space: 527,
            index: 3,
            base: 1,
            key: &bytes("9301a66e6f626f647901"),
            operations: &bytes("9193a13da165a178"),
        },
    );
    golden(
        "840005020103cced04cb41dac0085e72ab34 8310cd020011012091a76e6f2073756368",
        &RowHeader::single(1, 237, seconds(0x41da_c008_5e72_ab34)),
        &RowBody::Delete { space: 512, index: 1, key: &bytes("91a76e6f2073756368") },
    );
    golden(
        "840009020103cd019f04cb41dac008386b1bbc 8410cd020f1501289193a12b020121922101",
        &RowHeader::single(1, 415, seconds(0x41da_c008_386b_1bbc)),
        &RowBody::Upsert { space: 527, base: 1, tuple: &[0x92, 0x21, 1], operations: &bytes("9193a12b0201") },
    );
    golden(
        "84000c020103cd148204cb41dac008386c1f34",
        &RowHeader::single(1, 5250, seconds(0x41da_c008_386c_1f34)),
        &RowBody::Nop,
    );
    golden(
        "8400280201030804cb41dac006acd96734 8202010307",
        &RowHeader::single(1, 8, seconds(0x41da_c006_acd9_6734)),
        &RowBody::Confirm { replica_id: 1, lsn: 7 },
    );
    golden(
        "8400290201031204cb41dac006acf98fc3 8202010311",
        &RowHeader::single(1, 18, seconds(0x41da_c006_acf9_8fc3)),
        &RowBody::Rollback { replica_id: 1, lsn: 17 },
    );
}

#[test]
fn rows_of_longer_transactions() {
    let tuple: &[u8] = &[0x91, 3];
    let first = RowHeader { is_commit: false, ..RowHeader::single(1, 12, seconds(0x41da_c006_acd9_6a19)) };
    golden(
        "8500020201030c04cb41dac006acd96a190800 8210cd0200219103",
        &first,
        &RowBody::Insert { space: 512, tuple },
    );
    golden(
        "8600020201030d04cb41dac006acd96a1908010901 8210cd0201219103",
        &RowHeader { lsn: 13, is_commit: true, ..first },
        &RowBody::Insert { space: 513, tuple },
    );
    golden(
        "86000c020103cd01b704cb41dac008386b27c408010901",
        &RowHeader {
            replica_id: 1,
            group_id: 0,
            lsn: 439,
            timestamp: seconds(0x41da_c008_386b_27c4),
            tsn: 438,
            is_commit: true,
        },
        &RowBody::Nop,
    );
}

#[test]
fn local_rows() {
    let timestamp = seconds(0x41da_c008_3869_5357);
    let single = RowHeader { group_id: keys::GROUP_LOCAL, ..RowHeader::single(0, 1, timestamp) };
    let tuple = bytes("9201a56c6f63616c");
    golden(
        "8400020701030104cb41dac00838695357 8210cd0208219201a56c6f63616c",
        &single,
        &RowBody::Insert { space: 520, tuple: &tuple },
    );
    // In a transaction whose first replicated row has LSN 433, the distance wraps around.
    let mixed = RowHeader { lsn: 2, tsn: 433, is_commit: false, ..single };
    golden(
        "8500020701030204cb41dac0083869535708cffffffffffffffe51 8210cd0208219201a56c6f63616c",
        &mixed,
        &RowBody::Insert { space: 520, tuple: &tuple },
    );
}

#[test]
fn rows_of_a_snapshot() {
    let timestamp = seconds(0x41da_c006_8b6e_dea5);
    let tuple = bytes("92a66d61785f6964cd01ff");
    let mut out = Vec::new();
    encode_snapshot_row(&mut out, 1, timestamp, 0, 272, &tuple);
    assert_eq!(out, bytes("830002030104cb41dac0068b6edea5 8210ce000001102192a66d61785f6964cd01ff"));
    assert_eq!(decoded(&out).1, RowBody::Insert { space: 272, tuple: &tuple });

    let mut first = Vec::new();
    encode_snapshot_row(&mut first, 0, timestamp, 0, 272, &tuple);
    assert!(first.starts_with(&bytes("82000204cb41dac0068b6edea5 8210ce00000110")));

    let mut local = Vec::new();
    encode_snapshot_row(&mut local, 751, seconds(0x41da_c008_3868_84ff), 1, 520, &bytes("9201a56c6f63616c"));
    let expected = "840002070103cd02ef04cb41dac008386884ff 8210ce00000208219201a56c6f63616c";
    assert_eq!(local, bytes(expected));
}

#[test]
fn the_longest_head_has_room() {
    let widest = RowHeader {
        replica_id: u32::MAX,
        group_id: u32::MAX,
        lsn: u64::MAX,
        timestamp: 1.5,
        tsn: 0,
        is_commit: true,
    };
    let array: &[u8] = &[0x90];
    let (space, index, base) = (u32::MAX, u32::MAX, -1);
    let bodies = [
        RowBody::Update { space, index, base, key: array, operations: array },
        RowBody::Upsert { space, base, tuple: array, operations: array },
        RowBody::Confirm { replica_id: u32::MAX, lsn: u64::MAX },
        RowBody::Unknown { kind: u32::MAX, body: array },
    ];
    for body in bodies {
        assert_eq!(decoded(&encoded(&widest, &body)), (widest, body));
    }
}

/// Integers of every width, where the general writer has them.
#[test]
fn integers_take_their_shortest_form() {
    for lsn in [1, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x1_0000, 0xffff_ffff, 1 << 32, u64::MAX] {
        let mut expected = vec![0x84, 0x00, 0x0c, 0x02, 0x01, 0x03];
        mp::write_uint(&mut expected, lsn);
        expected.push(0x04);
        mp::write_double(&mut expected, 1.5);
        assert_eq!(encoded(&RowHeader::single(1, lsn, 1.5), &RowBody::Nop), expected);
    }
}

#[test]
fn rows_follow_each_other() {
    let rows =
        bytes("84000c020103cd148204cb41dac008386c1f34 8400020201030704cb41dac006acd96688 8210cd0200219101");
    let mut reader = Reader::new(&rows);
    assert_eq!(decode_row(&mut reader).expect("a row").1, RowBody::Nop);
    assert_eq!(decode_row(&mut reader).expect("a row").1, RowBody::Insert { space: 512, tuple: &[0x91, 1] });
    assert!(reader.is_empty());
}

#[test]
fn what_is_not_canonical_is_read_all_the_same() {
    // Unknown keys, wide integers, another order, a needless key.
    let (header, body) = {
        let row = bytes(
            "85 63c0 0209 03cf0000000000000005 0002 04cb0000000000000000 84 2191c0 55a161 2090 10ce00000200",
        );
        let mut reader = Reader::new(&row);
        let (header, body) = decode_row(&mut reader).expect("a row");
        assert_eq!(body, RowBody::Insert { space: 512, tuple: &[0x91, 0xc0] });
        (header, body.kind())
    };
    assert_eq!((header, body), (RowHeader::single(9, 5, 0.0), 2));
    // The stream of a join: nothing but a type. A heartbeat: no body.
    let (header, body) = {
        let row = bytes("81 0002 82 10ce00000110 2190");
        let (header, body) = decode_row(&mut Reader::new(&row)).expect("a row");
        (header, body.space())
    };
    assert_eq!((header, body), (RowHeader::single(0, 0, 0.0), Some(272)));
    assert_eq!(decoded(&bytes("81 0000")).1, RowBody::Unknown { kind: 0, body: &[] });
    assert_eq!(
        decoded(&bytes("81 0000 81268101cd0100")).1,
        RowBody::Unknown { kind: 0, body: &bytes("81268101cd0100") }
    );
}

#[test]
fn what_is_no_row() {
    let error = |hex: &str| decode_row(&mut Reader::new(&bytes(hex))).expect_err("no row").to_string();
    for header in ["", "c0", "82", "90", "81 00", "81 00a0", "82 0002 0405", "81 a0 02", "81 c1 c1"] {
        assert_eq!(error(header), "Invalid MsgPack - packet header", "{header}");
    }
    for body in ["", "c0", "82 1005", "81 10a0", "82 1005 2180", "82 1005 2191"] {
        assert_eq!(error(&format!("81 0002 {body}")), "Invalid MsgPack - packet body", "{body}");
    }
    assert_eq!(error("81 0002 80"), "Missing mandatory field 'space id' in request");
    assert_eq!(error("81 0002 81 1005"), "Missing mandatory field 'tuple' in request");
    assert_eq!(error("81 0005 81 1005"), "Missing mandatory field 'key' in request");
}

fn arrays() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<i64>(), 0..20).prop_map(|numbers| {
        let mut out = Vec::new();
        mp::write_array(&mut out, numbers.len() as u32);
        numbers.iter().for_each(|&number| mp::write_int(&mut out, number));
        out
    })
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        (replica_id, group_id, lsn, tsn) in any::<(u32, u32, u64, u64)>(),
        timestamp in 0.0..4e9,
        is_commit in any::<bool>(),
        is_single in any::<bool>(),
        (space, index) in any::<(u32, u32)>(),
        base in any::<i32>().prop_map(i64::from),
        (key, tuple, operations) in (arrays(), arrays(), arrays()),
    ) {
        let single = RowHeader { group_id, ..RowHeader::single(replica_id, lsn, timestamp) };
        let header = if is_single { single } else { RowHeader { tsn, is_commit, ..single } };
        let (key, tuple, operations) = (&key[..], &tuple[..], &operations[..]);
        let bodies = [
            RowBody::Insert { space, tuple },
            RowBody::Replace { space, tuple },
            RowBody::Update { space, index, base, key, operations },
            RowBody::Delete { space, index, key },
            RowBody::Upsert { space, base, tuple, operations },
            RowBody::Nop,
            RowBody::Confirm { replica_id: index, lsn: tsn },
            RowBody::Rollback { replica_id: index, lsn: tsn },
            RowBody::Unknown { kind: 77, body: tuple },
        ];
        let mut all = Vec::new();
        for body in &bodies {
            let row = encoded(&header, body);
            prop_assert_eq!(decoded(&row), (header, *body));
            for length in 0..row.len() {
                let _ = decode_row(&mut Reader::new(&row[..length]));
            }
            all.extend_from_slice(&row);
        }
        let mut reader = Reader::new(&all);
        for body in bodies {
            prop_assert_eq!(decode_row(&mut reader), Ok((header, body)));
        }
        prop_assert!(reader.is_empty());
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), kind in any::<u8>()) {
        let _ = decode_row(&mut Reader::new(&bytes));
        let _ = decode_row(&mut Reader::new(&[&[0x81, 0x00, 0xcc, kind][..], &bytes].concat()));
    }
}
