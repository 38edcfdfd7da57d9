//! `run`: one contender, once.

use std::env;

use anyhow::{Context, Result};
use rustix::process::Pid;
use serde_json::json;

use crate::arguments::{RunArguments, ServerArguments};
use crate::contender::Contender;
use crate::load::{Bound, Load, Plan, Putting};
use crate::machine;
use crate::measurement::Measurement;
use crate::program::Files;
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
    let named = arguments.contender;
    let contender = arguments.tube_type.map_or(named, |tube_type| named.with_tube_type(tube_type));
    Contender { durability: arguments.wal_mode.unwrap_or(contender.durability), ..contender }
}

fn start(contender: Contender, arguments: &ServerArguments) -> Result<Server> {
    let files = Files { lycosa: arguments.server.clone(), queue_module: arguments.queue_module.clone() };
    let folder = arguments.folder.clone().unwrap_or_else(env::temp_dir);
    if machine::is_in_memory(&folder)? {
        eprintln!("{} is in memory: syncing costs nothing there (see --folder)", folder.display());
    }
    Server::start(|place| contender.command(&files, place), &folder, Cores::choose()?)
}

/// Runs `plan` and notes what it cost the server.
fn measure(load: &mut Load, plan: Plan, pid: Option<Pid>) -> Result<Measurement> {
    let before = pid.map(machine::processor_time).transpose()?;
    let outcome = load.run(plan)?;
    let after = pid.map(machine::processor_time).transpose()?;
    let processor_time = after.zip(before).map(|(after, before)| after.saturating_sub(before));
    Ok(Measurement { outcome, processor_time })
}
