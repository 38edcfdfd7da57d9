//! A contender: a server program, its durability, and for tubes the type.
//!
//! Written `lycosa:fifottl:fsync`, `redis-list:write`. The three durabilities mean the same for every program, so that
//! like is compared with like; what each program calls its own is in [`crate::program`].

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::protocol::Protocol;
use crate::protocol::beanstalk::Beanstalk;
use crate::protocol::iproto::{Access, Tube, TubeType, Tutorial};
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
    /// Tarantool with the least that can be called a queue, in Lua of our own.
    TarantoolLua,
    /// Tarantool with the queue that a tutorial builds.
    Tutorial,
    /// A tube of the Lua queue module, which runs on Lycosa's `box`.
    LycosaModule(TubeType),
    /// Lycosa with the queue of [`Self::TarantoolLua`].
    LycosaLua,
    /// Lycosa with the queue of [`Self::Tutorial`].
    LycosaTutorial,
    RedisList,
    RedisStream,
    /// JetStream.
    Nats,
    Beanstalkd,
}

impl Program {
    /// Everyone, by the names with which contenders begin; with tubes of the usual type.
    pub(crate) const ALL: [Self; 11] = [
        Self::Lycosa(TubeType::FifoTtl),
        Self::Tarantool(TubeType::FifoTtl),
        Self::TarantoolLua,
        Self::Tutorial,
        Self::LycosaModule(TubeType::FifoTtl),
        Self::LycosaLua,
        Self::LycosaTutorial,
        Self::RedisList,
        Self::RedisStream,
        Self::Nats,
        Self::Beanstalkd,
    ];

    /// The name with which contenders begin.
    pub(crate) fn shown(self) -> &'static str {
        match self {
            Self::Lycosa(_) => "lycosa",
            Self::Tarantool(_) => "tarantool",
            Self::TarantoolLua => "tarantool-lua",
            Self::Tutorial => "tutorial",
            Self::LycosaModule(_) => "lycosa-module",
            Self::LycosaLua => "lycosa-lua",
            Self::LycosaTutorial => "lycosa-tutorial",
            Self::RedisList => "redis-list",
            Self::RedisStream => "redis-stream",
            Self::Nats => "nats",
            Self::Beanstalkd => "beanstalkd",
        }
    }
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
    pub(crate) fn protocol(self, access: &Access) -> Box<dyn Protocol> {
        let tube = |tube_type| Box::new(Tube { tube_type, access: access.clone() });
        match self.program {
            Program::Lycosa(tube_type) | Program::Tarantool(tube_type) | Program::LycosaModule(tube_type) => {
                tube(tube_type)
            }
            Program::TarantoolLua | Program::LycosaLua => tube(TubeType::Fifo),
            Program::Tutorial | Program::LycosaTutorial => Box::new(Tutorial),
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
            Program::Lycosa(tube_type) | Program::Tarantool(tube_type) | Program::LycosaModule(tube_type) => {
                Some(tube_type)
            }
            _ => None,
        }
    }

    /// The tube of Lycosa that does what it does, or a little more.
    pub(crate) fn comparable_tube(self) -> TubeType {
        match self.program {
            Program::TarantoolLua | Program::LycosaLua => TubeType::Fifo,
            _ => self.tube_type().unwrap_or(TubeType::FifoTtl),
        }
    }

    /// The program and the type of its tube, without a durability.
    pub(crate) fn tube_name(self) -> String {
        let tube_type = self.tube_type().map(|tube_type| format!(":{}", tube_type.name()));
        format!("{}{}", self.program.shown(), tube_type.unwrap_or_default())
    }

    /// The same with a tube of another type; without a tube nothing changes.
    pub(crate) fn with_tube_type(self, tube_type: TubeType) -> Self {
        let program = match self.program {
            Program::Lycosa(_) => Program::Lycosa(tube_type),
            Program::Tarantool(_) => Program::Tarantool(tube_type),
            Program::LycosaModule(_) => Program::LycosaModule(tube_type),
            other => other,
        };
        Self { program, ..self }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.tube_name(), self.durability.name())
    }
}

impl FromStr for Contender {
    type Err = anyhow::Error;

    /// The default type is `fifottl`, the default durability the safest that the program has.
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
        let program = match Program::ALL.into_iter().find(|program| program.shown() == name) {
            Some(Program::Lycosa(_)) => Program::Lycosa(tube_type()),
            Some(Program::Tarantool(_)) => Program::Tarantool(tube_type()),
            Some(Program::LycosaModule(_)) => Program::LycosaModule(tube_type()),
            Some(other) => other,
            None => {
                let names = Program::ALL.map(Program::shown).join(", ");
                bail!("`{name}` is not one of {names}")
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
            ("tarantool-lua:write", "tarantool-lua:write"),
            ("tutorial", "tutorial:fsync"),
            ("lycosa-module:utube:write", "lycosa-module:utube:write"),
            ("lycosa-lua:write", "lycosa-lua:write"),
            ("lycosa-tutorial", "lycosa-tutorial:fsync"),
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
