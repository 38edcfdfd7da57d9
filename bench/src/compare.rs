//! `compare`: contenders under workloads, in rounds; tables, JSON, a chart.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::arguments::CompareArguments;
use crate::comparison::{Comparison, Field};
use crate::contender::Contender;
use crate::program::{self, Files};
use crate::{chart, report};

/// The contenders if none is named, as far as each is installed.
const USUAL: [&str; 20] = [
    "lycosa:fifottl:fsync",
    "lycosa:fifottl:write",
    "lycosa:fifottl:none",
    "lycosa:fifo:fsync",
    "lycosa:fifo:write",
    "tarantool:fifottl:fsync",
    "tarantool:fifottl:write",
    "tarantool:fifo:fsync",
    "tarantool:fifo:write",
    "tarantool-lua:fsync",
    "tarantool-lua:write",
    "tutorial:fsync",
    "tutorial:write",
    "redis-list:fsync",
    "redis-list:write",
    "redis-stream:fsync",
    "redis-stream:write",
    "nats:write",
    "beanstalkd:fsync",
    "beanstalkd:none",
];

pub(crate) fn compare(arguments: &CompareArguments, server: Option<&Path>) -> Result<()> {
    if arguments.install {
        program::install()?;
    }
    let files = arguments.servers.files(server);
    let field = if arguments.contenders.is_empty() { usual(&files)? } else { named(arguments, &files)? };
    let workloads = arguments.workloads()?;
    let ground = arguments.servers.ground(files)?;
    let rounds = arguments.rounds.into();
    let said = |line: &str| eprintln!("{line}");
    let comparison = Comparison::hold(&ground, &field, workloads, rounds, arguments.length(), said)?;
    if arguments.json {
        println!("{:#}", comparison.json());
    } else {
        print!("{}", report::markdown(&comparison));
    }
    if let Some(path) = &arguments.svg {
        fs::write(path, chart::svg(&comparison))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let failures = comparison.failures();
    ensure!(failures == 0, "{failures} runs failed");
    Ok(())
}

/// The contenders that the command line names; each must be installed.
fn named(arguments: &CompareArguments, files: &Files) -> Result<Field> {
    for contender in &arguments.contenders {
        contender.program.check(files)?;
    }
    Ok(Field { contenders: arguments.contenders.clone(), ..Field::default() })
}

/// Those of the usual contenders that can be started; prints the reason for each other one.
pub(crate) fn usual(files: &Files) -> Result<Field> {
    let contenders = USUAL.into_iter().map(str::parse).collect::<Result<Vec<Contender>>>()?;
    let field = Field::of(contenders, files);
    for (program, reason) in &field.skipped {
        eprintln!("skipped: {program}: {reason}");
    }
    if field.contenders.is_empty() {
        bail!("there is nothing to compare");
    }
    Ok(field)
}
