//! The dialogue of one connection.
//!
//! The `sync` of a request is its slot and its kind, so that an answer alone tells whether its state is the
//! one to expect.

use anyhow::{Context, Result, ensure};
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::{self, Body};
use lycosa_tuple::mp::{self, MpError, Reader};

use crate::protocol::{Answer, Batch, Dialogue, Given, Heard, Operation, Request, Shown};

/// Seconds that a waiting take waits: longer than any run.
const FOREVER: u64 = 1_000_000;

/// How a queue shows a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `[id, state, data]`.
    Row,
    /// `{id: …, status: …, data: …}`.
    Map,
}

impl Form {
    /// The states in which a task may be after an operation.
    fn expected(self, operation: Operation) -> &'static [&'static [u8]] {
        match (self, operation) {
            (Self::Row, Operation::Put) => &[b"r", b"~"],
            (Self::Row, Operation::Take) => &[b"t"],
            (Self::Row, Operation::Ack) => &[b"-"],
            (Self::Map, Operation::Put) => &[b"R", b"W"],
            // What an acknowledgement removed is shown as it was.
            (Self::Map, Operation::Take | Operation::Ack) => &[b"T"],
        }
    }
}

/// The dialogue of one connection.
#[derive(Debug)]
pub(super) struct IprotoDialogue {
    form: Form,
    /// Names of the functions, by [`Operation`].
    names: [String; 3],
    /// The same for requests about many tasks.
    batch_names: [String; 3],
    arguments: Vec<u8>,
}

impl IprotoDialogue {
    /// `prefix` stands before the name of each function.
    pub(super) fn new(prefix: &str, form: Form) -> Self {
        Self {
            form,
            names: Operation::ALL.map(|operation| format!("{prefix}{}", operation.name())),
            batch_names: Operation::ALL.map(|operation| format!("{prefix}{}_many", operation.name())),
            arguments: Vec::new(),
        }
    }

    /// What the values of a successful call say.
    fn answer_of<'a>(&self, question: Question, values: &'a [u8]) -> Result<Answer<'a>> {
        let Question { operation, is_batch } = question;
        let name = operation.name();
        let not_understood = || format!("the answer to {name} is not understood: {}", Shown(values));
        let mut reader = Reader::new(values);
        if reader.array().with_context(not_understood)? == 0 || reader.nil().is_ok() {
            return Ok(Answer::NoTask);
        }
        let read = |reader: &mut Reader<'a>| {
            let task = Task::read(reader, self.form).with_context(not_understood)?;
            ensure!(
                self.form.expected(operation).contains(&task.state),
                "the answer to {name} shows a task in state `{}`",
                Shown(task.state)
            );
            Ok(task)
        };
        if !is_batch {
            let Task { id, payload, .. } = read(&mut reader)?;
            return Ok(Answer::Task { receipt: id, payload });
        }
        let count = reader.array().with_context(not_understood)?;
        let given = (0..count).map(|_| {
            let Task { id, payload, .. } = read(&mut reader)?;
            Ok(Given { receipt: id, payload })
        });
        Ok(Answer::Tasks(given.collect::<Result<_>>()?))
    }
}

impl Dialogue for IprotoDialogue {
    fn ask(&mut self, slot: usize, request: &Request<'_>, out: &mut Vec<u8>) {
        let arguments = &mut self.arguments;
        arguments.clear();
        match *request {
            Request::Put { payload, options } => {
                let given = [options.priority, options.delay_seconds.map(u64::from), options.sub_queue];
                let count = given.iter().flatten().count() as u32;
                mp::write_array(arguments, 1 + u32::from(count > 0));
                mp::write_str(arguments, payload);
                if count > 0 {
                    mp::write_map(arguments, count);
                    for (name, value) in ["pri", "delay", "utube"].into_iter().zip(given) {
                        let Some(value) = value else { continue };
                        mp::write_str(arguments, name.as_bytes());
                        mp::write_uint(arguments, value);
                    }
                }
            }
            Request::Take { waits } => {
                mp::write_array(arguments, 1);
                mp::write_uint(arguments, if waits { FOREVER } else { 0 });
            }
            Request::Ack { receipt } => {
                mp::write_array(arguments, 1);
                arguments.extend_from_slice(receipt);
            }
        }
        let operation = request.operation();
        let name = self.names[operation as usize].as_bytes();
        let sync = Question { operation, is_batch: false }.sync(slot);
        request::encode(out, sync, &Body::Call { name, args: arguments });
    }

    fn ask_batch(&mut self, slot: usize, batch: &Batch<'_>, out: &mut Vec<u8>) -> Result<()> {
        let arguments = &mut self.arguments;
        arguments.clear();
        match *batch {
            Batch::Put { payloads, size } => {
                mp::write_array(arguments, 1);
                mp::write_array(arguments, (payloads.len() / size) as u32);
                for payload in payloads.chunks_exact(size) {
                    mp::write_str(arguments, payload);
                }
            }
            Batch::Take { limit } => {
                mp::write_array(arguments, 2);
                mp::write_uint(arguments, limit.into());
                mp::write_uint(arguments, 0);
            }
            Batch::Ack { receipts, count } => {
                mp::write_array(arguments, 1);
                mp::write_array(arguments, count);
                arguments.extend_from_slice(receipts);
            }
        }
        let operation = batch.operation();
        let name = self.batch_names[operation as usize].as_bytes();
        let sync = Question { operation, is_batch: true }.sync(slot);
        request::encode(out, sync, &Body::Call { name, args: arguments });
        Ok(())
    }

    fn hear<'a>(&mut self, input: &'a [u8], _out: &mut Vec<u8>) -> Result<Heard<'a>> {
        let Split::Frame { content, consumed } = frame::split(input, frame::DEFAULT_LIMIT)? else {
            return Ok(Heard::NeedMore);
        };
        let reply = reply::decode(content)?;
        let (slot, question) = Question::of(reply.sync)?;
        let answer = match reply.content {
            Content::Ok { data, .. } => self.answer_of(question, data)?,
            Content::Push { .. } => return Ok(Heard::Skipped { consumed }),
            Content::Error(error) => Answer::Refused(error.message),
        };
        Ok(Heard::Answer { consumed, slot, answer })
    }
}

/// What a request asked for.
#[derive(Debug, Clone, Copy)]
struct Question {
    operation: Operation,
    is_batch: bool,
}

impl Question {
    const OPERATION_BITS: u32 = 2;
    const BITS: u32 = Self::OPERATION_BITS + 1;

    fn sync(self, slot: usize) -> u64 {
        (slot as u64) << Self::BITS | u64::from(self.is_batch) << Self::OPERATION_BITS | self.operation as u64
    }

    fn of(sync: u64) -> Result<(usize, Self)> {
        let operation = Operation::ALL.get((sync & ((1 << Self::OPERATION_BITS) - 1)) as usize);
        let operation =
            *operation.with_context(|| format!("a reply to request {sync}, which was never sent"))?;
        let is_batch = sync >> Self::OPERATION_BITS & 1 == 1;
        Ok(((sync >> Self::BITS) as usize, Self { operation, is_batch }))
    }
}

/// A task as the queue shows it.
struct Task<'a> {
    /// A whole MessagePack value.
    id: &'a [u8],
    state: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Task<'a> {
    fn read(reader: &mut Reader<'a>, form: Form) -> Result<Self, MpError> {
        match form {
            Form::Row => {
                if reader.array()? != 3 {
                    return Err(reader.mismatch("an array of 3"));
                }
                Ok(Self { id: reader.raw()?, state: reader.str()?, payload: reader.str_or_bin()? })
            }
            Form::Map => {
                let mut task = Self { id: &[], state: &[], payload: &[] };
                for _ in 0..reader.map()? {
                    match reader.str()? {
                        b"id" => task.id = reader.raw()?,
                        b"status" => task.state = reader.str()?,
                        b"data" => task.payload = reader.str_or_bin()?,
                        _ => reader.skip()?,
                    }
                }
                Ok(task)
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::protocol::PutOptions;

    /// Bytes from hexadecimal digits and blanks.
    pub(in crate::protocol::iproto) fn bytes(text: &str) -> Vec<u8> {
        let digits = text.split_whitespace().collect::<String>();
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    }

    fn asked(slot: usize, request: &Request<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        IprotoDialogue::new("queue.tube.lycosa_bench:", Form::Row).ask(slot, request, &mut out);
        out
    }

    fn heard(input: &[u8]) -> Result<Heard<'_>> {
        IprotoDialogue::new("queue.tube.lycosa_bench:", Form::Row).hear(input, &mut Vec::new())
    }

    #[test]
    fn requests_are_calls() {
        let name = "22 bb 71756575652e747562652e6c79636f73615f62656e63683a";
        assert_eq!(
            asked(5, &Request::Put { payload: b"x", options: PutOptions::default() }),
            bytes(&format!("ce00000027 82 000a 0128 82 {name} 707574 21 91 a178"))
        );
        let options = PutOptions { priority: Some(7), delay_seconds: Some(3600), sub_queue: Some(1) };
        let put = asked(0, &Request::Put { payload: b"x", options });
        assert!(put.ends_with(&bytes("21 92 a178 83 a3707269 07 a564656c6179 cd0e10 a57574756265 01")));
        assert!(asked(0, &Request::Take { waits: false }).ends_with(&bytes("74616b65 21 9100")));
        assert!(asked(0, &Request::Take { waits: true }).ends_with(&bytes("21 91 ce000f4240")));
        let ack = asked(1, &Request::Ack { receipt: &bytes("cd0100") });
        assert!(ack.ends_with(&bytes("61636b 21 91 cd0100")));
        assert_eq!(ack[5..10], bytes("82 000a 010a"));
    }

    #[test]
    fn replies_are_tasks() {
        let header = "8300ce0000000001cf000000000000002905ce00000061";
        let take = bytes(&format!("ce00000026{header} 8130dd00000001 93cd0100a174a178"));
        let answer = Answer::Task { receipt: &bytes("cd0100"), payload: b"x" };
        assert_eq!(heard(&take).unwrap(), Heard::Answer { consumed: take.len(), slot: 5, answer });
        assert_eq!(heard(&take[..take.len() - 1]).unwrap(), Heard::NeedMore);

        let empty = bytes(&format!("ce0000001e{header} 8130dd00000000"));
        let none = Heard::Answer { consumed: empty.len(), slot: 5, answer: Answer::NoTask };
        assert_eq!(heard(&empty).unwrap(), none);
        let nil = bytes(&format!("ce0000001f{header} 8130dd00000001c0"));
        assert!(matches!(heard(&nil).unwrap(), Heard::Answer { answer: Answer::NoTask, .. }));

        let ready = bytes(&format!("ce00000024{header} 8130dd00000001 9300a172a178"));
        let error = heard(&ready).unwrap_err();
        assert_eq!(error.to_string(), "the answer to take shows a task in state `r`");
    }

    #[test]
    fn batches_are_arrays() {
        let asked = |batch: &Batch<'_>| {
            let mut out = Vec::new();
            IprotoDialogue::new("queue.tube.lycosa_bench:", Form::Row).ask_batch(5, batch, &mut out).unwrap();
            out
        };
        let put = asked(&Batch::Put { payloads: b"abcd", size: 2 });
        assert!(put.ends_with(&bytes("7075745f6d616e79 21 91 92 a26162 a26364")));
        assert_eq!(put[5..10], bytes("82 000a 012c"));
        assert!(asked(&Batch::Take { limit: 100 }).ends_with(&bytes("74616b655f6d616e79 21 92 64 00")));
        let ack = asked(&Batch::Ack { receipts: &bytes("07 cd0100"), count: 2 });
        assert!(ack.ends_with(&bytes("61636b5f6d616e79 21 91 92 07 cd0100")));

        let header = "8300ce0000000001cf000000000000002d05ce00000061";
        let take = bytes(&format!("ce0000002d{header} 8130dd00000001 92 9300a174a178 93cd0100a174a179"));
        let [first, second] = [(&[0][..], b"x"), (&[0xcd, 1, 0][..], b"y")]
            .map(|(receipt, payload)| Given { receipt, payload });
        let answer = Answer::Tasks(vec![first, second]);
        assert_eq!(heard(&take).unwrap(), Heard::Answer { consumed: take.len(), slot: 5, answer });
    }

    #[test]
    fn the_tutorial_shows_maps() {
        let mut dialogue = IprotoDialogue::new("queue.", Form::Map);
        let mut out = Vec::new();
        dialogue.ask(0, &Request::Take { waits: false }, &mut out);
        assert!(out.ends_with(&bytes("22 aa 71756575652e74616b65 21 91 00")));
        let header = "8300ce0000000001cf000000000000002905ce00000061";
        let task = "84 a6737461747573 a154 a4 64617461 a178 a5 72756e6174 00 a26964 cd0100";
        let take = bytes(&format!("ce0000003c{header} 8130dd00000001 {task}"));
        let answer = Answer::Task { receipt: &bytes("cd0100"), payload: b"x" };
        let expected = Heard::Answer { consumed: take.len(), slot: 5, answer };
        assert_eq!(dialogue.hear(&take, &mut Vec::new()).unwrap(), expected);
    }

    #[test]
    fn errors_are_refusals() {
        let error = "ce0000002c 83 00ce00008020 01cf0000000000000002 05ce00000061
            81 31 b2 5461736b20776173206e6f742074616b656e";
        let answer = Answer::Refused("Task was not taken".to_owned());
        let error = bytes(error);
        assert_eq!(heard(&error).unwrap(), Heard::Answer { consumed: error.len(), slot: 0, answer });
    }
}
