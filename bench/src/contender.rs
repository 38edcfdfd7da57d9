//! What is measured: a server program, its durability, and for tubes the type.
//!
//! Written `lycosa:fifottl:fsync`, `redis-list:write`. The three durabilities mean the same for every program, so that
//! like is compared with like; what each program calls its own is in [`crate::program`].

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::protocol::Protocol;
use crate::protocol::beanstalk::Beanstalk;
use crate::protocol::iproto::{Iproto, TubeType};
use crate::protocol::jetstream::{JetStream, Storage};
use crate::protocol::redis_list::RedisList;
use crate::protocol::redis_stream::RedisStream;

/// A server program together with the way in which it is used as a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// A tube.
    Lycosa(TubeType),
    /// A tube of the Lua queue module.
    Tarantool(TubeType),
    RedisList,
    RedisStream,
    /// JetStream.
    Nats,
    Beanstalkd,
}

/// When a reply leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// When the change is synced to the disk.
    Fsync,
    /// When the change is handed to the operating system, or soon will be.
    Write,
    /// When the change is made in memory.
    None,
}

impl Durability {
    const ALL: [Self; 3] = [Self::Fsync, Self::Write, Self::None];

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

impl Contender {
    /// How to speak to it.
    pub(crate) fn protocol(self) -> Box<dyn Protocol> {
        match self.program {
            Program::Lycosa(tube_type) | Program::Tarantool(tube_type) => Box::new(Iproto { tube_type }),
            Program::RedisList => Box::new(RedisList),
            Program::RedisStream => Box::new(RedisStream),
            Program::Nats => {
                let is_in_memory = self.durability == Durability::None;
                Box::new(JetStream { storage: if is_in_memory { Storage::Memory } else { Storage::File } })
            }
            Program::Beanstalkd => Box::new(Beanstalk),
        }
    }

    /// The type of its tube, if it has one.
    pub(crate) fn tube_type(self) -> Option<TubeType> {
        match self.program {
            Program::Lycosa(tube_type) | Program::Tarantool(tube_type) => Some(tube_type),
            _ => None,
        }
    }

    /// The same with a tube of another type; without a tube nothing changes.
    pub(crate) fn with_tube_type(self, tube_type: TubeType) -> Self {
        let program = match self.program {
            Program::Lycosa(_) => Program::Lycosa(tube_type),
            Program::Tarantool(_) => Program::Tarantool(tube_type),
            other => other,
        };
        Self { program, ..self }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.program {
            Program::Lycosa(_) => "lycosa",
            Program::Tarantool(_) => "tarantool",
            Program::RedisList => "redis-list",
            Program::RedisStream => "redis-stream",
            Program::Nats => "nats",
            Program::Beanstalkd => "beanstalkd",
        };
        f.write_str(name)?;
        if let Some(tube_type) = self.tube_type() {
            write!(f, ":{}", tube_type.name())?;
        }
        write!(f, ":{}", self.durability.name())
    }
}

impl FromStr for Contender {
    type Err = anyhow::Error;

    /// What is left out is `fifottl`, and the safest durability that the program has.
    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split(':').peekable();
        let name = words.next().unwrap_or_default();
        let mut tube_type = || {
            let known = |word: &&str| TubeType::ALL.into_iter().find(|tube_type| tube_type.name() == *word);
            let found = words.peek().and_then(known);
            if found.is_some() {
                words.next();
            }
            found.unwrap_or(TubeType::FifoTtl)
        };
        let program = match name {
            "lycosa" => Program::Lycosa(tube_type()),
            "tarantool" => Program::Tarantool(tube_type()),
            "redis-list" => Program::RedisList,
            "redis-stream" => Program::RedisStream,
            "nats" => Program::Nats,
            "beanstalkd" => Program::Beanstalkd,
            _ => {
                bail!("`{name}` is not one of lycosa, tarantool, redis-list, redis-stream, nats, beanstalkd")
            }
        };
        let durability = match words.next() {
            Some(word) => durability(word)?,
            None if program == Program::Nats => Durability::Write,
            None => Durability::Fsync,
        };
        ensure!(words.next().is_none(), "there is too much in `{text}`");
        ensure!(
            (program, durability) != (Program::Nats, Durability::Fsync),
            "this NATS cannot sync each message: take nats:write"
        );
        Ok(Self { program, durability })
    }
}

fn durability(name: &str) -> Result<Durability> {
    let known = Durability::ALL.into_iter().find(|durability| durability.name() == name);
    known.with_context(|| format!("`{name}` is neither a tube type nor one of fsync, write, none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_shown() {
        for (text, shown) in [
            ("lycosa", "lycosa:fifottl:fsync"),
            ("lycosa:utube", "lycosa:utube:fsync"),
            ("lycosa:none", "lycosa:fifottl:none"),
            ("tarantool:fifo:write", "tarantool:fifo:write"),
            ("redis-list", "redis-list:fsync"),
            ("redis-stream:write", "redis-stream:write"),
            ("nats", "nats:write"),
            ("nats:none", "nats:none"),
            ("beanstalkd:none", "beanstalkd:none"),
        ] {
            assert_eq!(text.parse::<Contender>().unwrap().to_string(), shown);
        }
        for wrong in ["", "redis", "lycosa:lifo", "redis-list:fifo", "lycosa:fifo:fsync:x", "nats:fsync"] {
            assert!(wrong.parse::<Contender>().is_err(), "{wrong}");
        }
    }
}
