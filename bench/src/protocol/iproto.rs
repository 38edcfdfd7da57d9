//! IPROTO: a tube of Lycosa, or of Tarantool with a queue module; or the queue of the tutorial.
//!
//! Everything is a CALL. A tube is served by `queue.tube.<name>:<method>`, the tutorial's only queue by
//! `queue.<method>`. [`caller`] is for the preparations, [`dialogue`] for the measured requests.

mod caller;
mod dialogue;

use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lycosa_tuple::mp::{self, MpError, Reader};

use super::{Dialogue, Protocol};
use crate::wire::{Tls, Wire};
pub(crate) use caller::Caller;
use caller::introduce;
use dialogue::{Form, IprotoDialogue};

/// The tube that is measured.
pub(crate) const TUBE: &str = "lycosa_bench";
/// Where Lycosa listens for its administrator, in its data folder.
pub(crate) const ADMIN_SOCKET: &str = "admin.sock";
/// An empty array: no arguments.
const NOTHING: &[u8] = &[0x90];

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

/// Who we are to a server.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Whose server it is, which decides what may be done there.
#[derive(Debug, Clone, Default)]
pub(crate) enum Access {
    /// The benchmark has started it, for itself alone.
    #[default]
    Own,
    /// The server belongs to its operator: only a missing tube is made, and it is dropped in the end.
    Guest {
        /// `None` for guest.
        credentials: Option<Credentials>,
        /// `None` for plain text.
        tls: Option<Tls>,
    },
}

impl Access {
    pub(crate) fn is_own(&self) -> bool {
        matches!(self, Self::Own)
    }

    fn credentials(&self) -> Option<&Credentials> {
        match self {
            Self::Own => None,
            Self::Guest { credentials, .. } => credentials.as_ref(),
        }
    }

    fn tls(&self) -> Option<&Tls> {
        match self {
            Self::Own => None,
            Self::Guest { tls, .. } => tls.as_ref(),
        }
    }
}

/// A tube of one type.
#[derive(Debug)]
pub(crate) struct Tube {
    pub(crate) tube_type: TubeType,
    pub(crate) access: Access,
}

impl Tube {
    fn caller(&self, address: SocketAddr) -> Result<Caller<Wire<TcpStream>>> {
        Caller::connect(address, &self.access)
    }
}

impl Protocol for Tube {
    fn prepare(&self, address: SocketAddr) -> Result<()> {
        let mut caller = self.caller(address)?;
        if tube_exists(&mut caller)? {
            ensure!(
                self.access.is_own(),
                "the server has a tube `{TUBE}` already: somebody else measures it, or an earlier run was \
                 interrupted; `lycosa tube drop {TUBE}` removes it"
            );
            caller.call(&method("drop"), NOTHING)?.context("cannot drop the tube of an earlier run")?;
        }
        let mut arguments = Vec::new();
        mp::write_array(&mut arguments, 2);
        mp::write_str(&mut arguments, TUBE.as_bytes());
        mp::write_str(&mut arguments, self.tube_type.name().as_bytes());
        // The Lua module makes the tube and then fails to send it, so the answer alone does not tell.
        let created = caller.call("queue.create_tube", &arguments)?;
        if !tube_exists(&mut caller)? {
            created.context("cannot create the tube")?;
            bail!("the server says that it made the tube `{TUBE}`, but has no such tube");
        }
        Ok(())
    }

    fn leave(&self, address: SocketAddr) -> Result<()> {
        const LONGEST: Duration = Duration::from_secs(60);
        let began = Instant::now();
        let mut caller = self.caller(address)?;
        // Until the server has noticed that the other connections are gone, their tasks are taken.
        loop {
            match caller.call(&method("drop"), NOTHING)? {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > LONGEST => {
                    return Err(error.context(format!("cannot drop the tube `{TUBE}`, which is left behind")));
                }
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn count_tasks(&self, address: SocketAddr) -> Result<u64> {
        let values = self.caller(address)?.call("queue.statistics", &tube_name())??;
        waiting_tasks(&values).context("the statistics of the tube are not understood")
    }

    fn write_snapshot(&self, address: SocketAddr, data: &Path) -> Result<()> {
        // Lycosa refuses it to clients of the network; the user of Tarantool may do anything.
        let answer = match UnixStream::connect(data.join(ADMIN_SOCKET)) {
            Ok(stream) => Caller::new(stream, None)?.call("box.snapshot", NOTHING)?,
            Err(_) => self.caller(address)?.call("box.snapshot", NOTHING)?,
        };
        answer.map(drop)
    }

    fn tls(&self) -> Option<&Tls> {
        self.access.tls()
    }

    fn open(&self, stream: &mut Wire<TcpStream>, _index: usize, _slots: usize) -> Result<Box<dyn Dialogue>> {
        introduce(stream, self.access.credentials())?;
        Ok(Box::new(IprotoDialogue::new(&method(""), Form::Row)))
    }
}

/// The queue that a tutorial builds, on a server of our own.
#[derive(Debug)]
pub(crate) struct Tutorial;

impl Protocol for Tutorial {
    fn prepare(&self, address: SocketAddr) -> Result<()> {
        let mut caller = Caller::connect(address, &Access::Own)?;
        caller.call("box.space.queue:truncate", NOTHING)?.map(drop)
    }

    fn count_tasks(&self, address: SocketAddr) -> Result<u64> {
        let values = Caller::connect(address, &Access::Own)?.call("queue.stats", NOTHING)??;
        let mut reader = Reader::new(&values);
        let sum = reader.array().and_then(|_| sum_of(&mut reader, &[b"ready", b"waiting"]));
        sum.context("the statistics of the queue are not understood")
    }

    fn open(&self, stream: &mut Wire<TcpStream>, _index: usize, _slots: usize) -> Result<Box<dyn Dialogue>> {
        introduce(stream, None)?;
        Ok(Box::new(IprotoDialogue::new("queue.", Form::Map)))
    }
}

fn tube_exists(caller: &mut Caller<Wire<TcpStream>>) -> Result<bool> {
    // Without a tube of that name the Lua module answers nil or an error, depending on its version.
    let Ok(values) = caller.call("queue.statistics", &tube_name())? else { return Ok(false) };
    let mut values = Reader::new(&values);
    Ok(values.array()? > 0 && values.map().is_ok_and(|count| count > 0))
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
        if reader.str()? == b"tasks" {
            sum += sum_of(&mut reader, &[b"ready", b"delayed"])?;
        } else {
            reader.skip()?;
        }
    }
    Ok(sum)
}

/// The sum of the members of a map that have one of these names.
fn sum_of(reader: &mut Reader<'_>, names: &[&[u8]]) -> Result<u64, MpError> {
    let mut sum = 0;
    for _ in 0..reader.map()? {
        if names.contains(&reader.str()?) {
            sum += reader.uint()?;
        } else {
            reader.skip()?;
        }
    }
    Ok(sum)
}

fn method(name: &str) -> String {
    format!("queue.tube.{TUBE}:{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::iproto::dialogue::tests::bytes;

    #[test]
    fn statistics_are_summed_up() {
        let tasks = "83 a57265616479 03 a574616b656e 07 a764656c61796564 02";
        let values = bytes(&format!("91 82 a563616c6c73 80 a57461736b73 {tasks}"));
        assert_eq!(waiting_tasks(&values), Ok(5));
        assert!(waiting_tasks(&bytes("91 c0")).is_err());
    }

    #[test]
    fn passwords_are_not_shown() {
        let access = Access::Guest {
            credentials: Some(Credentials { user: "ann".into(), password: "secret".into() }),
            tls: None,
        };
        let shown = format!("{access:?}");
        assert!(shown.contains("ann") && !shown.contains("secret"), "{shown}");
    }
}
