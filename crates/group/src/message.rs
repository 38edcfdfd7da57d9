//! The codec of messages between nodes and of entries in the log: MessagePack arrays.
//!
//! `raft` has types that protobuf generates, with a parser whose recursion has no bound (RUSTSEC-2024-0437). So no bytes
//! from a network or a disk reach that parser: they are read here, field by field, with a bound on everything, and
//! become the same types.
//!
//! An entry that changes the members carries a [`Change`](crate::members::Change) as its context. The protobuf form that
//! `raft` makes of it on the leader is never written and never sent; the other nodes do without.
//!
//! Invariants:
//! - only messages that nodes send each other are read. Messages that `raft` uses inside a node are refused, and so are messages by
//!   which a follower would forward requests to its leader;
//! - entries of a message follow each other and the message's index, and no entry is of a later term than the message.
//!
//! Absent: frames and connections ([`crate::link`]), and what an entry's data mean.

use lycosa_tuple::mp::{self, Reader};
use raft::eraftpb::{Entry, EntryType, Message, MessageType, Snapshot};

use crate::base::Base;
use crate::codec::{CodecError, exhausted, fields};

/// The longest context of a message or an entry, in bytes.
const MAX_CONTEXT_BYTES: usize = 4096;
const ENTRY_FIELDS: u32 = 5;
const MESSAGE_FIELDS: u32 = 14;
/// The most bytes of an entry without its context and its data, and of a message without context, snapshot and entries.
const ENTRY_BYTES: usize = 32;
const MESSAGE_BYTES: usize = 128;

fn context<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], CodecError> {
    let bytes = reader.bin()?;
    if bytes.len() <= MAX_CONTEXT_BYTES { Ok(bytes) } else { Err(CodecError::Text(MAX_CONTEXT_BYTES)) }
}

/// The messages that nodes send each other, with their codes.
const MESSAGES: [(u64, MessageType); 10] = [
    (1, MessageType::MsgAppend),
    (2, MessageType::MsgAppendResponse),
    (3, MessageType::MsgRequestVote),
    (4, MessageType::MsgRequestVoteResponse),
    (5, MessageType::MsgRequestPreVote),
    (6, MessageType::MsgRequestPreVoteResponse),
    (7, MessageType::MsgHeartbeat),
    (8, MessageType::MsgHeartbeatResponse),
    (9, MessageType::MsgSnapshot),
    (10, MessageType::MsgTimeoutNow),
];

/// Appends an entry to `out`.
pub(crate) fn write_entry(out: &mut Vec<u8>, entry: &Entry) {
    let is_change = entry.get_entry_type() != EntryType::EntryNormal;
    mp::write_array(out, ENTRY_FIELDS);
    mp::write_uint(out, is_change.into());
    mp::write_uint(out, entry.term);
    mp::write_uint(out, entry.index);
    mp::write_bin(out, &entry.context);
    mp::write_bin(out, if is_change { &[] } else { &entry.data });
}

/// Reads an entry.
pub(crate) fn read_entry(reader: &mut Reader<'_>) -> Result<Entry, CodecError> {
    fields(reader, ENTRY_FIELDS)?;
    let kind = match reader.uint()? {
        0 => EntryType::EntryNormal,
        1 => EntryType::EntryConfChangeV2,
        other => return Err(CodecError::Value("kind of an entry", other)),
    };
    let mut entry = Entry::default();
    entry.set_entry_type(kind);
    entry.term = reader.uint()?;
    entry.index = reader.uint()?;
    entry.context = context(reader)?.to_vec().into();
    entry.data = reader.bin()?.to_vec().into();
    Ok(entry)
}

/// Appends a message to `out`. False, with nothing appended, if nodes do not send each other messages of its kind.
#[must_use]
pub(crate) fn write_message(out: &mut Vec<u8>, message: &Message) -> bool {
    let kind = message.get_msg_type();
    let Some(&(code, _)) = MESSAGES.iter().find(|(_, known)| *known == kind) else { return false };
    let entries =
        message.get_entries().iter().map(|entry| ENTRY_BYTES + entry.context.len() + entry.data.len());
    out.reserve(
        MESSAGE_BYTES + message.context.len() + message.get_snapshot().data.len() + entries.sum::<usize>(),
    );
    mp::write_array(out, MESSAGE_FIELDS);
    for field in [
        code,
        message.from,
        message.to,
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.reject_hint,
        message.request_snapshot,
    ] {
        mp::write_uint(out, field);
    }
    mp::write_bool(out, message.reject);
    mp::write_bin(out, &message.context);
    mp::write_array(
        out,
        u32::try_from(message.entries.len()).expect("the window bounds a message's entries"),
    );
    for entry in message.get_entries() {
        write_entry(out, entry);
    }
    mp::write_bin(out, &message.get_snapshot().data);
    true
}

/// Reads a message, which is all of `bytes`. With a snapshot comes the state that it carries.
pub(crate) fn read_message(bytes: &[u8]) -> Result<(Message, Option<Base>), CodecError> {
    let mut reader = Reader::new(bytes);
    let reader = &mut reader;
    fields(reader, MESSAGE_FIELDS)?;
    let mut message = Message::default();
    let code = reader.uint()?;
    let kind = MESSAGES.iter().find(|(known, _)| *known == code);
    let &(_, kind) = kind.ok_or(CodecError::Value("kind of a message", code))?;
    message.set_msg_type(kind);
    for field in [
        &mut message.from,
        &mut message.to,
        &mut message.term,
        &mut message.log_term,
        &mut message.index,
        &mut message.commit,
        &mut message.commit_term,
        &mut message.reject_hint,
        &mut message.request_snapshot,
    ] {
        *field = reader.uint()?;
    }
    if message.from == 0 || message.to == 0 || message.term == 0 {
        return Err(CodecError::Value("node or term", 0));
    }
    message.reject = reader.bool()?;
    message.context = context(reader)?.to_vec().into();
    let (mut after, mut term) = (message.index, message.log_term);
    for _ in 0..reader.array()? {
        let entry = read_entry(reader)?;
        if Some(entry.index) != after.checked_add(1)
            || entry.term < term
            || entry.term > message.term
            || entry.term == 0
        {
            return Err(CodecError::Order { index: entry.index, term: entry.term, after });
        }
        (after, term) = (entry.index, entry.term);
        message.mut_entries().push(entry);
    }
    let state = reader.bin()?;
    let base = match kind {
        MessageType::MsgSnapshot => {
            let base = Base::decode(state)?;
            message.set_snapshot(snapshot(&base));
            Some(base)
        }
        _ if state.is_empty() => None,
        _ => return Err(CodecError::Value("snapshot in a message of kind", code)),
    };
    exhausted(reader).map(|()| (message, base))
}

/// A snapshot as `raft` has it.
pub(crate) fn snapshot(base: &Base) -> Snapshot {
    let mut snapshot = Snapshot { data: base.encode().into(), ..Snapshot::default() };
    let metadata = snapshot.mut_metadata();
    metadata.index = base.index;
    metadata.term = base.term;
    metadata.set_conf_state(base.members.conf_state());
    snapshot
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::members::Members;

    fn entries(first: u64, terms: &[u64], payload: &[u8]) -> Vec<Entry> {
        let entry = |(at, &term): (usize, &u64)| {
            let index = first + at as u64;
            Entry { index, term, data: payload.to_vec().into(), ..Entry::default() }
        };
        terms.iter().enumerate().map(entry).collect()
    }

    fn append(index: u64, entries: Vec<Entry>) -> Message {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgAppend);
        (message.from, message.to, message.term, message.index, message.log_term) = (1, 2, 9, index, 1);
        message.set_entries(entries.into());
        message
    }

    fn encoded(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        assert!(write_message(&mut bytes, message));
        bytes
    }

    #[test]
    fn messages_inside_a_node_are_neither_written_nor_read() {
        let mut message = append(4, Vec::new());
        for kind in [
            MessageType::MsgHup,
            MessageType::MsgBeat,
            MessageType::MsgPropose,
            MessageType::MsgUnreachable,
            MessageType::MsgSnapStatus,
            MessageType::MsgCheckQuorum,
            MessageType::MsgTransferLeader,
            MessageType::MsgReadIndex,
            MessageType::MsgReadIndexResp,
        ] {
            message.set_msg_type(kind);
            let mut bytes = Vec::new();
            assert!(!write_message(&mut bytes, &message) && bytes.is_empty(), "{kind:?}");
        }
        let mut bytes = encoded(&append(4, Vec::new()));
        bytes[1] = 0;
        assert_eq!(read_message(&bytes), Err(CodecError::Value("kind of a message", 0)));
    }

    #[test]
    fn the_protobuf_form_of_a_change_stays_at_home() {
        let mut entry = Entry::default();
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        (entry.index, entry.term) = (5, 2);
        entry.data = b"protobuf".to_vec().into();
        entry.context = b"ours".to_vec().into();
        let (read, _) = read_message(&encoded(&append(4, vec![entry.clone()]))).expect("a message");
        entry.data = Vec::new().into();
        assert_eq!(read.get_entries(), [entry]);
    }

    #[test]
    fn entries_that_do_not_follow_are_refused() {
        let read = |index, entries| read_message(&encoded(&append(index, entries))).map(|_| ());
        assert_eq!(read(4, entries(5, &[1, 1, 3], b"x")), Ok(()));
        assert_eq!(read(4, entries(6, &[1], b"x")), Err(CodecError::Order { index: 6, term: 1, after: 4 }));
        assert_eq!(
            read(4, entries(5, &[3, 2], b"x")),
            Err(CodecError::Order { index: 6, term: 2, after: 5 })
        );
        assert_eq!(read(4, entries(5, &[10], b"x")), Err(CodecError::Order { index: 5, term: 10, after: 4 }));
        assert!(read(u64::MAX, entries(5, &[1], b"x")).is_err());
    }

    #[test]
    fn a_snapshot_comes_with_the_members_of_its_state() {
        let members = Members::first("a:1".to_owned());
        let base = Base { group: Uuid::from_u128(5), index: 7, term: 3, signature: 40, level: 1, members };
        let mut message = append(0, Vec::new());
        message.set_msg_type(MessageType::MsgSnapshot);
        message.set_snapshot(snapshot(&base));
        let (read, state) = read_message(&encoded(&message)).expect("a message");
        assert_eq!((read, state), (message.clone(), Some(base)));
        // No other message carries one.
        message.set_msg_type(MessageType::MsgAppend);
        assert!(read_message(&encoded(&message)).is_err());
    }

    proptest! {
        #[test]
        fn a_message_reads_back(
            kind in 0_usize..10,
            numbers in proptest::collection::vec(1_u64.., 7),
            reject in any::<bool>(),
            context in proptest::collection::vec(any::<u8>(), 0..40),
            payload in proptest::collection::vec(any::<u8>(), 0..300),
            terms in proptest::collection::vec(1_u64..9, 0..5),
        ) {
            let mut terms = terms;
            terms.sort_unstable();
            let mut message = append(numbers[0] >> 1, entries((numbers[0] >> 1) + 1, &terms, &payload));
            let kind = MESSAGES[kind].1;
            prop_assume!(kind != MessageType::MsgSnapshot);
            message.set_msg_type(kind);
            (message.from, message.to, message.commit, message.commit_term) =
                (numbers[1], numbers[2], numbers[3], numbers[4]);
            (message.reject_hint, message.request_snapshot, message.reject) = (numbers[5], numbers[6], reject);
            message.context = context.into();
            prop_assert_eq!(read_message(&encoded(&message)), Ok((message, None)));
        }

        #[test]
        fn nothing_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            at in 0_usize..200,
            flip in 1_u8..,
        ) {
            let _ = read_message(&bytes);
            let mut whole = encoded(&append(4, entries(5, &[1, 2], b"some data")));
            let at = at % whole.len();
            whole[at] ^= flip;
            let _ = read_message(&whole);
            let _ = read_message(&whole[..at]);
        }
    }
}
