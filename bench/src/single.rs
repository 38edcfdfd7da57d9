//! `run`: one contender under one workload, once.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use lycosa_picture::svg;
use rustix::process::Pid;
use rustix::termios::tcgetwinsize;
use serde_json::json;

use crate::arguments::RunArguments;
use crate::contender::Program;
use crate::trial::Subject;

/// Columns of curves that do not go to a terminal.
const PIPED_COLUMNS: usize = 100;
/// Lines of a curve.
const CURVE_LINES: usize = 3;

/// Columns of standard output.
fn columns() -> usize {
    let output = io::stdout();
    let size = output.is_terminal().then(|| tcgetwinsize(&output).ok()).flatten();
    size.filter(|size| size.ws_col > 0).map_or(PIPED_COLUMNS, |size| size.ws_col.into())
}

pub(crate) fn run(arguments: &RunArguments, server: Option<&Path>) -> Result<()> {
    let workload = arguments.workload()?;
    let named = arguments.contender();
    let contender =
        workload.applied_to(named).with_context(|| format!("{} is not for {named}", workload.name))?;
    let length = arguments.length.length();
    let measurement = match arguments.guest()? {
        Some((address, access)) => {
            ensure!(
                matches!(contender.program, Program::Lycosa(_) | Program::Tarantool(_)),
                "--address is for servers with tubes: what the others have is not known, and might be damaged"
            );
            let pid = arguments.server_pid.map(|pid| Pid::from_raw(pid).context("0 is no process id"));
            Subject { contender, address, pid: pid.transpose()?, access }.measure(&workload, length)?
        }
        None => {
            let files = arguments.servers.files(server);
            arguments.servers.ground(files)?.hold_trial(contender, &workload, length)?
        }
    };
    // The configuration of a server that the benchmark did not start is unknown.
    let shown = if arguments.target().is_some() { named.tube_name() } else { contender.to_string() };
    let panels = measurement.panels();
    if let Some(file) = &arguments.svg {
        let title = format!("{shown}: {}", workload.about);
        fs::write(file, svg(&title, &panels))
            .with_context(|| format!("cannot write the drawing to {}", file.display()))?;
    }
    if arguments.json {
        let mut json = measurement.json();
        json["contender"] = json!(contender.to_string());
        json["workload"] = json!(workload.name);
        json["connections"] = json!(workload.shape.connections);
        json["depth"] = json!(workload.shape.depth);
        json["payload"] = json!(workload.payload);
        println!("{json}");
    } else {
        println!("{shown}: {}\n{}", workload.about, measurement.text());
        for panel in &panels {
            println!("\n{}", panel.text(columns(), CURVE_LINES).join("\n"));
        }
    }
    if let Some(warning) = measurement.warning() {
        eprintln!("{warning}");
    }
    Ok(())
}
