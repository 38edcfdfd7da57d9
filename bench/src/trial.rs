//! A trial: one contender under one workload, from the start of its server to the end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, getpid};

use crate::contender::Contender;
use crate::load::{Bound, Load, Outcome, Plan, Putting, Shape};
use crate::machine::{self, ProcessorTime};
use crate::measurement::Measurement;
use crate::program::Files;
use crate::protocol::Protocol;
use crate::protocol::iproto::{Access, TubeType};
use crate::server::{Cores, Server, ServerLocation};
use crate::workload::{Measured, Source, Workload};

/// How long cycles are measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Length {
    /// Cycles before the measurement.
    pub(crate) warmup: Bound,
    pub(crate) measured: Bound,
}

/// Where servers run.
#[derive(Debug, Clone)]
pub(crate) struct Ground {
    pub(crate) files: Files,
    /// Folder in which servers have theirs.
    pub(crate) folder: PathBuf,
    pub(crate) cores: Cores,
    /// A program with its first arguments under which servers run; empty for none.
    pub(crate) wrapper: Vec<OsString>,
}

impl Ground {
    /// Starts the contender's server, puts it through `workload` and stops it.
    pub(crate) fn hold_trial(
        &self,
        contender: Contender,
        workload: &Workload,
        length: Length,
    ) -> Result<Measurement> {
        let mut server = Server::start(|place| self.command(contender, place), &self.folder, self.cores)?;
        let (address, pid) = (server.address(), Some(server.pid()));
        let subject = Subject { contender, address, pid, access: Access::Own };
        let measured = match workload.measured {
            Measured::Start(source) => self.measure_start(&subject, &mut server, workload, source),
            Measured::Cycles(_) | Measured::Batches(_) | Measured::Plan(_) => {
                subject.measure(workload, length)
            }
        };
        let measurement = measured.map_err(|error| server.explain(error))?;
        server.stop_process()?;
        Ok(measurement)
    }

    /// The command that runs the contender.
    pub(crate) fn command(&self, contender: Contender, place: ServerLocation<'_>) -> Result<Command> {
        let command = contender.command(&self.files, place)?;
        let Some((program, arguments)) = self.wrapper.split_first() else { return Ok(command) };
        let mut wrapped = Command::new(program);
        wrapped.args(arguments).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        Ok(wrapped)
    }

    fn measure_start(
        &self,
        subject: &Subject,
        server: &mut Server,
        workload: &Workload,
        source: Source,
    ) -> Result<Measurement> {
        drop(subject.prepare(workload)?);
        let protocol = subject.protocol();
        if source == Source::Snapshot {
            protocol.write_snapshot(subject.address, &server.data())?;
        }
        let tasks = protocol.count_tasks(subject.address)?;
        server.stop_process()?;
        let began = Instant::now();
        server.start_again(|place| self.command(subject.contender, place), self.cores)?;
        wait_for_tasks(&*protocol, subject, tasks)?;
        let outcome = Outcome::without_requests(tasks, began.elapsed())?;
        // The process has done nothing but to start.
        let processor_time = Some(machine::processor_time(server.pid())?);
        Ok(Measurement {
            outcome,
            processor_time,
            threads: machine::thread_times(server.pid())?,
            load_time: Duration::ZERO,
            other_time: None,
            memory_per_round: None,
        })
    }
}

/// Asks until the server counts `tasks`. While it starts it may refuse to answer.
fn wait_for_tasks(protocol: &dyn Protocol, subject: &Subject, tasks: u64) -> Result<()> {
    const LONGEST_START: Duration = Duration::from_secs(300);
    let deadline = Instant::now() + LONGEST_START;
    loop {
        match protocol.count_tasks(subject.address) {
            Ok(count) if count == tasks => return Ok(()),
            other => {
                ensure!(Instant::now() < deadline, "after a restart {other:?} tasks are there, not {tasks}");
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) contender: Contender,
    pub(crate) address: SocketAddr,
    /// Its process, if that is known.
    pub(crate) pid: Option<Pid>,
    pub(crate) access: Access,
}

impl Subject {
    fn protocol(&self) -> Box<dyn Protocol> {
        self.contender.protocol(&self.access)
    }

    /// Does the preparations.
    fn prepare(&self, workload: &Workload) -> Result<Load> {
        self.protocol().prepare(self.address).context("cannot make the queue ready")?;
        self.load(workload)
    }

    /// Connects, and does the preparations in a queue that is ready.
    fn load(&self, workload: &Workload) -> Result<Load> {
        let protocol = self.protocol();
        let mut load = Load::connect(&*protocol, self.address, workload.connected(), workload.payload)?;
        for &plan in &workload.before {
            load.run_shown("preparing", self.adapted(plan), workload.connected())
                .context("the preparation failed")?;
        }
        if self.access.is_own() && !workload.before.is_empty() {
            // What the preparation has written must not go to the disk while something else is measured.
            rustix::fs::sync();
        }
        Ok(load)
    }

    /// Puts the server through `workload`, and checks in the end that it has the tasks that it should have. A server that
    /// is not ours is left as it was.
    pub(crate) fn measure(&self, workload: &Workload, length: Length) -> Result<Measurement> {
        if self.access.is_own() {
            return self.measure_prepared(workload, length, self.prepare(workload)?);
        }
        let protocol = self.protocol();
        protocol.prepare(self.address)?;
        let measured = self.load(workload).and_then(|load| self.measure_prepared(workload, length, load));
        let left = protocol.leave(self.address);
        measured.and_then(|measurement| left.map(|()| measurement))
    }

    fn measure_prepared(&self, workload: &Workload, length: Length, mut load: Load) -> Result<Measurement> {
        let (warmup, plan) = match workload.measured {
            Measured::Cycles(putting) => {
                let plan = |bound| self.adapted(Plan::Cycles { bound, putting });
                (Some(plan(length.warmup)), plan(length.measured))
            }
            Measured::Batches(size) => {
                let plan = |bound| Plan::Batches { bound, size };
                (Some(plan(length.warmup)), plan(length.measured))
            }
            Measured::Plan(plan) => (None, self.adapted(plan)),
            Measured::Start(_) => bail!("`{}` needs a server that can be started anew", workload.name),
        };
        if let Some(warmup) = warmup {
            load.run_shown("warming up", warmup, workload.shape).context("the warm-up failed")?;
        }
        let measurement = self.measure_plan(&mut load, plan, workload.shape)?;
        self.check_count(load.account().waiting())?;
        Ok(measurement)
    }

    /// Checks that this number of tasks waits. Servers that finish work after their reply get a moment for it.
    fn check_count(&self, expected: u64) -> Result<()> {
        const LONGEST: Duration = Duration::from_secs(60);
        let protocol = self.protocol();
        let began = Instant::now();
        loop {
            let found = protocol.count_tasks(self.address)?;
            if found == expected {
                return Ok(());
            }
            ensure!(began.elapsed() < LONGEST, "{found} tasks wait in the end, {expected} should");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn threads(&self) -> Result<BTreeMap<String, ProcessorTime>> {
        self.pid.map_or_else(|| Ok(BTreeMap::new()), machine::thread_times)
    }

    fn measure_plan(&self, load: &mut Load, plan: Plan, shape: Shape) -> Result<Measurement> {
        let before = Reading::take(self.pid)?;
        let threads_before = self.threads()?;
        let outcome = load.run_shown("measuring", plan, shape)?;
        let spent = Reading::take(self.pid)?.since(before);
        let mut threads = self.threads()?;
        for (name, time) in &mut threads {
            *time = time.since(threads_before.get(name).copied().unwrap_or_default());
        }
        let is_fill = matches!(plan, Plan::Fill { .. });
        let memory = spent.server_memory.filter(|_| is_fill);
        Ok(Measurement {
            processor_time: spent.server,
            threads,
            load_time: spent.load,
            other_time: spent.server.map(|server| spent.all.saturating_sub(server.total() + spent.load)),
            memory_per_round: memory.map(|memory| memory as f64 / outcome.rounds.max(1) as f64),
            outcome,
        })
    }

    /// The plan with sub-queues where the tube has some: in a single one nothing could go on at the same time.
    fn adapted(&self, plan: Plan) -> Plan {
        let has_sub_queues = matches!(self.contender.tube_type(), Some(TubeType::Utube | TubeType::UtubeTtl));
        match plan {
            Plan::Cycles { bound, putting: Putting::Plain } if has_sub_queues => {
                Plan::Cycles { bound, putting: Putting::OwnSubQueue(0) }
            }
            Plan::Fill { count, putting: Putting::Plain } if has_sub_queues => {
                Plan::Fill { count, putting: Putting::SubQueues(count) }
            }
            plan => plan,
        }
    }
}

/// Resources used up to one time, or between two times.
#[derive(Debug, Clone, Copy)]
struct Reading {
    server: Option<ProcessorTime>,
    /// Bytes of memory of the server.
    server_memory: Option<u64>,
    /// Processor time of this process.
    load: Duration,
    /// Processor time of the whole machine.
    all: Duration,
}

impl Reading {
    fn take(server: Option<Pid>) -> Result<Self> {
        Ok(Self {
            server: server.map(machine::processor_time).transpose()?,
            server_memory: server.map(machine::resident_memory).transpose()?,
            load: machine::processor_time(getpid())?.total(),
            all: machine::total_processor_time()?,
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            server: self.server.zip(before.server).map(|(now, before)| now.since(before)),
            server_memory: self
                .server_memory
                .zip(before.server_memory)
                .map(|(now, before)| now.saturating_sub(before)),
            load: self.load.saturating_sub(before.load),
            all: self.all.saturating_sub(before.all),
        }
    }
}
