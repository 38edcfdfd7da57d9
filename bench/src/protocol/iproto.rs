//! IPROTO: a tube of Lycosa, or of Tarantool with the queue module.
//!
//! Everything is a CALL of `queue.tube.<name>:<method>`. The `sync` of a request is its slot and its operation, so that
//! an answer says by itself whether its state (`r`, `t`, `-`) is the one to expect.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::greeting::{GREETING_SIZE, Greeting};
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::{self, Body};
use lycosa_tuple::mp::{self, MpError, Reader};

use super::{Answer, Dialogue, Heard, Operation, Protocol, Request, Shown};
use crate::connect;

/// The tube that is measured, dropped and made anew by each run.
const TUBE: &str = "lycosa_bench";
/// Where Lycosa listens for its administrator, in its data folder.
const ADMIN_SOCKET: &str = "admin.sock";
/// Seconds that a waiting take waits: longer than any run.
const FOREVER: u64 = 1_000_000;

/// A tube.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[clap(rename_all = "lower")]
pub(crate) enum TubeType {
    Fifo,
    FifoTtl,
    LimFifoTtl,
    Utube,
    UtubeTtl,
}

impl TubeType {
    pub(crate) const ALL: [Self; 5] =
        [Self::Fifo, Self::FifoTtl, Self::LimFifoTtl, Self::Utube, Self::UtubeTtl];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::FifoTtl => "fifottl",
            Self::LimFifoTtl => "limfifottl",
            Self::Utube => "utube",
            Self::UtubeTtl => "utubettl",
        }
    }
}

/// A tube of one type.
#[derive(Debug)]
pub(crate) struct Iproto {
    pub(crate) tube_type: TubeType,
}

impl Protocol for Iproto {
    fn prepare(&self, address: SocketAddr) -> Result<()> {
        let mut caller = Caller::connect(address)?;
        if caller.tube_exists()? {
            caller.call(&method("drop"), &[0x90])?.context("cannot drop the tube of an earlier run")?;
        }
        let mut arguments = Vec::new();
        mp::write_array(&mut arguments, 2);
        mp::write_str(&mut arguments, TUBE.as_bytes());
        mp::write_str(&mut arguments, self.tube_type.name().as_bytes());
        // The Lua module makes the tube and then fails to send it, so the answer alone does not tell.
        let created = caller.call("queue.create_tube", &arguments)?;
        if !caller.tube_exists()? {
            created.context("cannot create the tube")?;
            bail!("the server says that it made the tube `{TUBE}`, but has no such tube");
        }
        Ok(())
    }

    fn count_tasks(&self, address: SocketAddr) -> Result<u64> {
        let values = Caller::connect(address)?.call("queue.statistics", &tube_name())??;
        waiting_tasks(&values).context("the statistics of the tube are not understood")
    }

    fn write_snapshot(&self, address: SocketAddr, data: &Path) -> Result<()> {
        // Lycosa lets nobody do so over the network; the user of Tarantool may do anything.
        let answer = match UnixStream::connect(data.join(ADMIN_SOCKET)) {
            Ok(stream) => Caller::new(stream)?.call("box.snapshot", &[0x90])?,
            Err(_) => Caller::connect(address)?.call("box.snapshot", &[0x90])?,
        };
        answer.map(drop)
    }

    fn open(&self, stream: &mut TcpStream, _index: usize, _slots: usize) -> Result<Box<dyn Dialogue>> {
        read_greeting(stream)?;
        Ok(Box::new(IprotoDialogue::new()))
    }
}

/// The tube's name as the only argument of a call.
fn tube_name() -> Vec<u8> {
    let mut arguments = Vec::new();
    mp::write_array(&mut arguments, 1);
    mp::write_str(&mut arguments, TUBE.as_bytes());
    arguments
}

/// The sum of `ready` and `delayed` under `tasks` in what `queue.statistics` answered.
fn waiting_tasks(values: &[u8]) -> Result<u64, MpError> {
    let mut reader = Reader::new(values);
    let mut sum = 0;
    reader.array()?;
    for _ in 0..reader.map()? {
        if reader.str()? != b"tasks" {
            reader.skip()?;
            continue;
        }
        for _ in 0..reader.map()? {
            match reader.str()? {
                b"ready" | b"delayed" => sum += reader.uint()?,
                _ => reader.skip()?,
            }
        }
    }
    Ok(sum)
}

fn method(name: &str) -> String {
    format!("queue.tube.{TUBE}:{name}")
}

fn read_greeting(stream: &mut impl Read) -> Result<()> {
    let mut bytes = [0; GREETING_SIZE];
    stream.read_exact(&mut bytes).context("the server sends no greeting")?;
    Greeting::decode(&bytes)?;
    Ok(())
}

/// A connection for one call after the other.
struct Caller<S> {
    stream: S,
    input: Vec<u8>,
}

impl Caller<TcpStream> {
    fn connect(address: SocketAddr) -> Result<Self> {
        Self::new(connect(address)?)
    }
}

impl<S: Read + Write> Caller<S> {
    fn new(mut stream: S) -> Result<Self> {
        read_greeting(&mut stream)?;
        Ok(Self { stream, input: Vec::new() })
    }

    fn tube_exists(&mut self) -> Result<bool> {
        // Without a tube of that name the Lua module answers nil or an error, depending on its version.
        let Ok(values) = self.call("queue.statistics", &tube_name())? else { return Ok(false) };
        let mut values = Reader::new(&values);
        Ok(values.array()? > 0 && values.map().is_ok_and(|count| count > 0))
    }

    /// Calls `name` with an array of arguments and gives the array of values; the inner error is the server's.
    fn call(&mut self, name: &str, arguments: &[u8]) -> Result<Result<Vec<u8>>> {
        let mut out = Vec::new();
        request::encode(&mut out, 0, &Body::Call { name: name.as_bytes(), args: arguments });
        self.stream.write_all(&out)?;
        self.input.clear();
        loop {
            let missing = match frame::split(&self.input, frame::DEFAULT_LIMIT)? {
                Split::Frame { content, .. } => {
                    return Ok(match reply::decode(content)?.content {
                        Content::Ok { data, .. } | Content::Push { data } => Ok(data.to_vec()),
                        Content::Error(error) => Err(anyhow::anyhow!("{name}: {}", error.message)),
                    });
                }
                Split::NeedMore(missing) => missing,
            };
            let filled = self.input.len();
            self.input.resize(filled + missing, 0);
            self.stream.read_exact(&mut self.input[filled..]).context("the server closed the connection")?;
        }
    }
}

/// The dialogue of one connection.
#[derive(Debug)]
struct IprotoDialogue {
    put: String,
    take: String,
    ack: String,
    arguments: Vec<u8>,
}

impl IprotoDialogue {
    fn new() -> Self {
        Self { put: method("put"), take: method("take"), ack: method("ack"), arguments: Vec::new() }
    }
}

impl Dialogue for IprotoDialogue {
    fn ask(&mut self, slot: usize, request: &Request<'_>, out: &mut Vec<u8>) {
        let arguments = &mut self.arguments;
        arguments.clear();
        let name = match *request {
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
                &self.put
            }
            Request::Take { waits } => {
                mp::write_array(arguments, 1);
                mp::write_uint(arguments, if waits { FOREVER } else { 0 });
                &self.take
            }
            Request::Ack { receipt } => {
                mp::write_array(arguments, 1);
                arguments.extend_from_slice(receipt);
                &self.ack
            }
        };
        let sync = sync_of(slot, request.operation());
        request::encode(out, sync, &Body::Call { name: name.as_bytes(), args: arguments });
    }

    fn hear<'a>(&mut self, input: &'a [u8], _out: &mut Vec<u8>) -> Result<Heard<'a>> {
        let Split::Frame { content, consumed } = frame::split(input, frame::DEFAULT_LIMIT)? else {
            return Ok(Heard::NeedMore);
        };
        let reply = reply::decode(content)?;
        let (slot, operation) = slot_of(reply.sync)?;
        let answer = match reply.content {
            Content::Ok { data, .. } => answer_of(operation, data)?,
            Content::Push { .. } => return Ok(Heard::Skipped { consumed }),
            Content::Error(error) => Answer::Refused(error.message),
        };
        Ok(Heard::Answer { consumed, slot, answer })
    }
}

const OPERATION_BITS: u32 = 2;

fn sync_of(slot: usize, operation: Operation) -> u64 {
    (slot as u64) << OPERATION_BITS | operation as u64
}

fn slot_of(sync: u64) -> Result<(usize, Operation)> {
    let operation = Operation::ALL.get((sync & ((1 << OPERATION_BITS) - 1)) as usize);
    let operation = operation.with_context(|| format!("a reply to request {sync}, which was never sent"))?;
    Ok(((sync >> OPERATION_BITS) as usize, *operation))
}

/// What the values of a successful call say.
fn answer_of(operation: Operation, values: &[u8]) -> Result<Answer<'_>> {
    let mut reader = Reader::new(values);
    if reader.array()? == 0 || reader.nil().is_ok() {
        return Ok(Answer::NoTask);
    }
    let task = Task::read(&mut reader)
        .with_context(|| format!("the answer to {} is not a task: {}", operation.name(), Shown(values)))?;
    let expected: &[&[u8]] = match operation {
        Operation::Put => &[b"r", b"~"],
        Operation::Take => &[b"t"],
        Operation::Ack => &[b"-"],
    };
    ensure!(
        expected.contains(&task.state),
        "the answer to {} shows a task in state `{}`",
        operation.name(),
        Shown(task.state)
    );
    Ok(Answer::Task { receipt: task.id, payload: task.payload })
}

/// A task as the queue shows it.
struct Task<'a> {
    /// A whole MessagePack value.
    id: &'a [u8],
    state: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Task<'a> {
    /// Reads `[id, state, payload]`.
    fn read(reader: &mut Reader<'a>) -> Result<Self, MpError> {
        if reader.array()? != 3 {
            return Err(reader.mismatch("an array of 3"));
        }
        Ok(Self { id: reader.raw()?, state: reader.str()?, payload: reader.str_or_bin()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::PutOptions;

    /// Bytes from hexadecimal digits and blanks.
    fn bytes(text: &str) -> Vec<u8> {
        let digits = text.split_whitespace().collect::<String>();
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    }

    fn asked(slot: usize, request: &Request<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        IprotoDialogue::new().ask(slot, request, &mut out);
        out
    }

    fn heard(input: &[u8]) -> Result<Heard<'_>> {
        IprotoDialogue::new().hear(input, &mut Vec::new())
    }

    #[test]
    fn requests_are_calls() {
        let name = "22 bb 71756575652e747562652e6c79636f73615f62656e63683a";
        assert_eq!(
            asked(5, &Request::Put { payload: b"x", options: PutOptions::default() }),
            bytes(&format!("ce00000027 82 000a 0114 82 {name} 707574 21 91 a178"))
        );
        let options = PutOptions { priority: Some(7), delay_seconds: Some(3600), sub_queue: Some(1) };
        let put = asked(0, &Request::Put { payload: b"x", options });
        assert!(put.ends_with(&bytes("21 92 a178 83 a3707269 07 a564656c6179 cd0e10 a57574756265 01")));
        assert!(asked(0, &Request::Take { waits: false }).ends_with(&bytes("74616b65 21 9100")));
        assert!(asked(0, &Request::Take { waits: true }).ends_with(&bytes("21 91 ce000f4240")));
        let ack = asked(1, &Request::Ack { receipt: &bytes("cd0100") });
        assert!(ack.ends_with(&bytes("61636b 21 91 cd0100")));
        assert_eq!(ack[5..10], bytes("82 000a 0106"));
    }

    #[test]
    fn replies_are_tasks() {
        let header = "8300ce0000000001cf000000000000001505ce00000061";
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
    fn statistics_are_summed_up() {
        let tasks = "83 a57265616479 03 a574616b656e 07 a764656c61796564 02";
        let values = bytes(&format!("91 82 a563616c6c73 80 a57461736b73 {tasks}"));
        assert_eq!(waiting_tasks(&values), Ok(5));
        assert!(waiting_tasks(&bytes("91 c0")).is_err());
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
