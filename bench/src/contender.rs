//! What is measured: a server program, its durability, and for tubes the type.
//!
//! Written `lycosa:fifottl:fsync`, `redis-list:write`. The three durabilities mean the same for every program, so that
//! like is compared with like; what each program calls its own stands in its command line ([`Contender::command`]).

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::protocol::Protocol;
use crate::protocol::iproto::{Iproto, TubeType};
use crate::server::Place;

/// A server program together with the way in which it is used as a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// A tube.
    Lycosa(TubeType),
}

/// When a reply leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Durability {
    /// When the change is synced to the disk.
    Fsync,
    /// When the change is handed to the operating system, or soon will be.
    Write,
    /// When the change is made in memory.
    None,
}

impl Durability {
    pub(crate) const ALL: [Self; 3] = [Self::Fsync, Self::Write, Self::None];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Write => "write",
            Self::None => "none",
        }
    }
}

/// One line of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contender {
    pub(crate) program: Program,
    pub(crate) durability: Durability,
}

/// The files that are needed to start programs.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    /// The `lycosa` binary.
    pub(crate) lycosa: PathBuf,
}

impl Contender {
    /// How to speak to it.
    pub(crate) fn protocol(self) -> Box<dyn Protocol> {
        match self.program {
            Program::Lycosa(tube_type) => Box::new(Iproto { tube_type }),
        }
    }

    /// The command that runs it.
    pub(crate) fn command(self, files: &Files, place: Place<'_>) -> Command {
        match self.program {
            Program::Lycosa(_) => lycosa(&files.lycosa, self.durability, place),
        }
    }
}

/// Room for every workload; a limit costs nothing until it is reached.
const MEMORY_LIMIT: &str = "16GiB";

fn lycosa(binary: &Path, durability: Durability, place: Place<'_>) -> Command {
    let mut command = Command::new(binary);
    command.arg("serve");
    command.arg("--listen").arg(place.address.to_string());
    command.arg("--data-dir").arg(place.folder.join("data"));
    command.arg("--wal-mode").arg(durability.name());
    command.arg("--memory-limit").arg(MEMORY_LIMIT);
    command
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.program {
            Program::Lycosa(tube_type) => write!(f, "lycosa:{}", tube_type.name())?,
        }
        write!(f, ":{}", self.durability.name())
    }
}

impl FromStr for Contender {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split(':');
        let program = match words.next() {
            Some("lycosa") => Program::Lycosa(words.next().map_or(Ok(TubeType::FifoTtl), tube_type)?),
            _ => bail!("`{text}` does not begin with the name of a program: lycosa"),
        };
        let durability = words.next().map_or(Ok(Durability::Fsync), durability)?;
        if let Some(word) = words.next() {
            bail!("`{word}` is too much in `{text}`");
        }
        Ok(Self { program, durability })
    }
}

fn tube_type(name: &str) -> Result<TubeType> {
    let known = TubeType::ALL.into_iter().find(|tube_type| tube_type.name() == name);
    known.with_context(|| format!("there is no tube type `{name}`"))
}

fn durability(name: &str) -> Result<Durability> {
    let known = Durability::ALL.into_iter().find(|durability| durability.name() == name);
    known.with_context(|| format!("there is no durability `{name}`: it is fsync, write or none"))
}
