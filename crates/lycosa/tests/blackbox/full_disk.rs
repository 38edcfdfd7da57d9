//! A disk that the queue has filled itself gets free again, without an operator.
//!
//! The data folder is a small disk in memory. Tasks that do not compress are put until the server refuses them. They
//! are taken and acknowledged until nothing is left; where the rest of the disk is kept for the journal, the client asks
//! again. Then the server has to free space and take tasks again. This happens several times, the last time after a
//! restart on the full disk.

use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Completion, Trial};

use crate::connection::{self, Connection, kind};
use crate::server::{Peer, Server, Setup, may_mount};
use crate::value::Value;

const DISK: u64 = 40 << 20;
const RESERVE: &str = r#"disk_reserve = "8MiB""#;
const PAYLOAD: usize = 60_000;
/// Number of the error with which a server that is short of space refuses.
const WAL_IO: u32 = 40;
const REPLY_LIMIT: Duration = Duration::from_secs(60);
/// For how long the server may take to free space. Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn trials() -> Result<Vec<Trial>, String> {
    let trial = |name: &str, run: fn() -> Result<(), String>| {
        Trial::ignorable_test(format!("full_disk::{name}"), move || {
            if !may_mount() {
                return Ok(Completion::ignored_with("no right to mount a disk"));
            }
            run().map(|()| Completion::Completed).map_err(Into::into)
        })
    };
    Ok(vec![trial("made-free-by-draining", drained), trial("tasks-that-stay-are-kept", kept)])
}

struct Client(Connection);

impl Client {
    fn open(server: &Server) -> Result<Self, String> {
        Connection::open(server.address()).map(Self).map_err(|error| error.to_string())
    }

    /// The values of a call; `None` if the disk has no space for it.
    fn call(&mut self, name: &str, arguments: Vec<Value>) -> Result<Option<Vec<Value>>, String> {
        let reply = self.0.ask(kind::CALL, &connection::call(name, arguments), REPLY_LIMIT)?;
        match reply.error {
            0 => match reply.data() {
                Value::Array(values) => Ok(Some(values)),
                other => Err(format!("{name} is answered {other}")),
            },
            WAL_IO if reply.message().contains("disk_reserve") => Ok(None),
            _ => Err(format!("{name}: {}", reply.describe())),
        }
    }

    /// Puts tasks until the disk has no space; returns how many.
    ///
    /// Payloads are pieces of one noise, each at a place of its own, as making noise anew for each took most of the test's
    /// time. A snapshot compresses what lies close together, and finds nothing that repeats there.
    fn fill(&mut self, seed: u32) -> Result<u64, String> {
        const NOISE: usize = 40 * PAYLOAD;
        let mut state = seed;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b' ' + (state >> 24) as u8 % 95)
        });
        let noise = noise.take(NOISE).collect::<String>();
        for count in 0..10_000 {
            let at = count as usize * PAYLOAD % (NOISE - PAYLOAD);
            let payload = Value::str(&noise[at..at + PAYLOAD]);
            if self.call("queue.tube.t:put", vec![payload])?.is_none() {
                return Ok(count);
            }
        }
        Err("the disk is never full".to_owned())
    }

    /// Fills the disk again and again until it holds `least` tasks: the files of the round before may go while it is filled.
    fn fill_with_patience(&mut self, seed: u32, least: u64) -> Result<u64, String> {
        let (deadline, mut put) = (Instant::now() + PATIENCE, 0);
        loop {
            put += self.fill(seed)?;
            if put >= least {
                return Ok(put);
            }
            if Instant::now() > deadline {
                return Err(format!("the disk takes {put} tasks only"));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// The values of a call that is repeated until the disk has space for it: while a snapshot is written, the rest
    /// of the disk may be kept for the journal.
    fn call_with_patience(&mut self, name: &str, arguments: &[Value]) -> Result<Vec<Value>, String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(values) = self.call(name, arguments.to_vec())? {
                return Ok(values);
            }
            if Instant::now() > deadline {
                return Err(format!("{name}: the disk stays full"));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Takes and acknowledges up to `limit` tasks; returns how many.
    fn drain(&mut self, limit: u64) -> Result<u64, String> {
        for count in 0..limit {
            let taken = self.call_with_patience("queue.tube.t:take", &[Value::Int(0)])?;
            let Some(id) = taken.first().and_then(|task| task.as_array()?.first()?.as_int()) else {
                return Ok(count);
            };
            self.call_with_patience("queue.tube.t:ack", &[Value::Int(id)])?;
        }
        Ok(limit)
    }

    /// Waits until a task is taken again, and removes it.
    fn wait_for_room(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while self.call("queue.tube.t:put", vec![Value::str("small")])?.is_none() {
            if Instant::now() > deadline {
                return Err("the disk stays full".to_owned());
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

fn start() -> Result<Server, String> {
    let setup = Setup { options: vec![RESERVE.to_owned()], disk: Some(DISK), ..Setup::default() };
    let server = Server::start(Peer::Lycosa, setup)?;
    let created =
        Client::open(&server)?.call("queue.create_tube", vec![Value::str("t"), Value::str("fifo")])?;
    created.map(|_| server).ok_or_else(|| "there is no room for a tube".to_owned())
}

fn drained() -> Result<(), String> {
    let mut server = start()?;
    for round in 0..4 {
        let mut client = Client::open(&server)?;
        let put = client.fill_with_patience(7, 20).map_err(|reason| format!("round {round}: {reason}"))?;
        if round == 3 {
            server.kill();
            server.launch()?;
            client = Client::open(&server)?;
        }
        let drained = client.drain(u64::MAX)?;
        if drained < put {
            return Err(format!("round {round}: {drained} of {put} tasks could be finished"));
        }
        client.wait_for_room().map_err(|reason| format!("round {round}: {reason}"))?;
        server.check_alive()?;
    }
    server.stop()
}

/// Half of the tasks stay: the snapshot that frees space holds them.
fn kept() -> Result<(), String> {
    let mut server = start()?;
    let mut client = Client::open(&server)?;
    let put = client.fill(8)?;
    let left = put / 4;
    client.drain(put - left)?;
    client.wait_for_room()?;
    server.kill();
    server.launch()?;
    let mut client = Client::open(&server)?;
    let found = client.drain(u64::MAX)?;
    if found != left + 1 {
        return Err(format!("{found} tasks are left of {left} and one"));
    }
    server.stop()
}
