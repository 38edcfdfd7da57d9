//! `compare`: contenders under workloads, in rounds; tables, JSON, a chart.

use std::fs;

use anyhow::{Context, Result, bail, ensure};

use crate::arguments::CompareArguments;
use crate::comparison::Comparison;
use crate::contender::Contender;
use crate::program::{self, Files};
use crate::{chart, report};

/// Who is compared if nobody is named, as far as it is installed.
const USUAL: [&str; 14] = [
    "lycosa:fifottl:fsync",
    "lycosa:fifottl:write",
    "lycosa:fifottl:none",
    "lycosa:fifo:fsync",
    "tarantool:fifottl:fsync",
    "tarantool:fifottl:write",
    "tarantool:fifo:fsync",
    "redis-list:fsync",
    "redis-list:write",
    "redis-stream:fsync",
    "redis-stream:write",
    "nats:write",
    "beanstalkd:fsync",
    "beanstalkd:none",
];

pub(crate) fn compare(arguments: &CompareArguments) -> Result<()> {
    if arguments.install {
        program::install()?;
    }
    let files = arguments.servers.files();
    let contenders =
        if arguments.contenders.is_empty() { usual(&files)? } else { arguments.contenders.clone() };
    for contender in &contenders {
        contender.program.check(&files)?;
    }
    let workloads = arguments.workloads()?;
    let ground = arguments.servers.ground()?;
    let rounds = arguments.rounds.into();
    let said = |line: &str| eprintln!("{line}");
    let comparison = Comparison::hold(&ground, &contenders, workloads, rounds, arguments.length(), said)?;
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

/// Those of the usual contenders that can be started; says of the others why not.
fn usual(files: &Files) -> Result<Vec<Contender>> {
    let mut found = Vec::new();
    let mut said = Vec::new();
    for name in USUAL {
        let contender = name.parse::<Contender>()?;
        match contender.program.check(files) {
            Ok(()) => found.push(contender),
            Err(error) => {
                let text = format!("without {}: {error}", name.split(':').next().unwrap_or_default());
                if !said.contains(&text) {
                    eprintln!("{text}");
                    said.push(text);
                }
            }
        }
    }
    if found.is_empty() {
        bail!("there is nothing to compare");
    }
    Ok(found)
}
