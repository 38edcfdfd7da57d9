//! `run`: one contender, once.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use rustix::process::Pid;
use serde_json::json;

use crate::arguments::{RunArguments, ServerArguments};
use crate::contender::{Contender, Files, Program};
use crate::load::{Bound, Load, Plan, Putting};
use crate::machine;
use crate::measurement::Measurement;
use crate::server::{Cores, Server};

pub(crate) fn run(arguments: &RunArguments) -> Result<()> {
    let contender = chosen(arguments);
    let (address, pid, server) = match arguments.address {
        Some(address) => {
            let pid = arguments.server_pid.map(|pid| Pid::from_raw(pid).context("0 is no process id"));
            (address, pid.transpose()?, None)
        }
        None => {
            let server = start(contender, &arguments.servers)?;
            (server.address(), Some(server.pid()), Some(server))
        }
    };
    let protocol = contender.protocol();
    protocol.prepare(address)?;
    let shape = arguments.load.shape();
    let mut load = Load::connect(&*protocol, address, shape, arguments.load.payload)?;
    let bound = arguments.load.cycles.map_or(Bound::For(arguments.load.seconds), Bound::Rounds);
    load.run(Plan::Cycles { bound: Bound::For(arguments.load.warmup), putting: Putting::Plain })?;
    let measurement = measure(&mut load, Plan::Cycles { bound, putting: Putting::Plain }, pid)?;
    drop(load);
    if let Some(mut server) = server {
        server.stop_process()?;
    }
    if arguments.json {
        let mut json = measurement.json();
        json["contender"] = json!(contender.to_string());
        json["connections"] = json!(shape.connections);
        json["depth"] = json!(shape.depth);
        json["payload"] = json!(arguments.load.payload);
        println!("{json}");
    } else {
        println!("{contender}, {} × {}, {} bytes", shape.connections, shape.depth, arguments.load.payload);
        println!("{}", measurement.text());
    }
    Ok(())
}

/// The contender with what flags say instead.
fn chosen(arguments: &RunArguments) -> Contender {
    let mut contender = arguments.contender;
    if let (Program::Lycosa(tube_type), Some(chosen)) = (&mut contender.program, arguments.tube_type) {
        *tube_type = chosen;
    }
    contender.durability = arguments.wal_mode.unwrap_or(contender.durability);
    contender
}

fn start(contender: Contender, arguments: &ServerArguments) -> Result<Server> {
    let files = Files { lycosa: lycosa_binary(arguments)? };
    let folder = arguments.folder.clone().unwrap_or_else(env::temp_dir);
    if machine::is_in_memory(&folder)? {
        eprintln!("{} is in memory: syncing costs nothing there (see --folder)", folder.display());
    }
    Server::start(|place| contender.command(&files, place), &folder, Cores::choose()?)
}

fn lycosa_binary(arguments: &ServerArguments) -> Result<PathBuf> {
    let beside = || Some(env::current_exe().ok()?.with_file_name("lycosa"));
    let built = || Some(PathBuf::from("target/release/lycosa"));
    let candidates = match &arguments.server {
        Some(path) => vec![path.clone()],
        None => [beside(), built()].into_iter().flatten().collect(),
    };
    match candidates.iter().find(|path| path.is_file()) {
        Some(path) => path.canonicalize().with_context(|| format!("cannot find {}", path.display())),
        None => bail!("there is no {}: build it, or name it by --server", candidates[0].display()),
    }
}

/// Runs `plan` and notes what it cost the server.
fn measure(load: &mut Load, plan: Plan, pid: Option<Pid>) -> Result<Measurement> {
    let before = pid.map(machine::processor_time).transpose()?;
    let outcome = load.run(plan)?;
    let after = pid.map(machine::processor_time).transpose()?;
    let processor_time = after.zip(before).map(|(after, before)| after.saturating_sub(before));
    Ok(Measurement { outcome, processor_time })
}
