//! `run`: one contender under one workload, once.

use anyhow::{Context, Result};
use rustix::process::Pid;
use serde_json::json;

use crate::arguments::RunArguments;
use crate::trial::Subject;

pub(crate) fn run(arguments: &RunArguments) -> Result<()> {
    let workload = arguments.workload()?;
    let named = arguments.contender();
    let contender =
        workload.applied_to(named).with_context(|| format!("{} is not for {named}", workload.name))?;
    let length = arguments.length.length();
    let measurement = match arguments.address {
        Some(address) => {
            let pid = arguments
                .server_pid
                .map(|pid| Pid::from_raw(pid).context("0 is no process id"))
                .transpose()?;
            Subject { contender, address, pid }.measure(&workload, length)?
        }
        None => arguments.servers.ground()?.hold_trial(contender, &workload, length)?,
    };
    if arguments.json {
        let mut json = measurement.json();
        json["contender"] = json!(contender.to_string());
        json["workload"] = json!(workload.name);
        json["connections"] = json!(workload.shape.connections);
        json["depth"] = json!(workload.shape.depth);
        json["payload"] = json!(workload.payload);
        println!("{json}");
    } else {
        println!("{contender}: {}\n{}", workload.about, measurement.text());
    }
    Ok(())
}
