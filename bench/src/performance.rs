//! `report`: everything that `docs/performance.md` says in numbers, measured anew by one command.
//!
//! The document belongs to people; the part between two marks belongs to this command. The comparison with the peers
//! is drawn as well.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value as Json, json};

use crate::arguments::{ReportArguments, named};
use crate::comparison::{Comparison, Field};
use crate::contender::Contender;
use crate::count::{self, Counted};
use crate::trial::Ground;
use crate::{chart, compare, program, report, target};

const DOCUMENT: &str = "performance.md";
const CHART: &str = "performance.svg";
const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";
/// Cycles whose instructions are counted.
const COUNTED_CYCLES: u64 = 20_000;

/// A part of the document.
struct Section {
    title: &'static str,
    about: &'static str,
    /// None for all contenders.
    contenders: &'static [&'static str],
    workloads: &'static [&'static str],
}

const PEERS: Section = Section {
    title: "Against other queues",
    about: "Cycles of put, take and acknowledge. *Lycosa is* is Lycosa's rate divided by the contender's, *its CPU is* the contender's \
            processor time divided by Lycosa's, at the same durability.",
    contenders: &[],
    workloads: &["8x32", "50x1"],
};

const BY_ITSELF: &[Section] = &[
    Section {
        title: "Types of tubes",
        about: "The same cycles in each type of tube; in utube and utubettl every slot has a sub-queue of its own.",
        contenders: &["lycosa:fifottl:fsync", "tarantool:fifottl:fsync"],
        workloads: &["fifo", "fifottl", "limfifottl", "utube", "utubettl"],
    },
    Section {
        title: "As work grows",
        about: "The last two columns compare with the baseline: what a cycle costs the server, and how many there are. \
                Without syncs, whose time would hide the difference.",
        contenders: &["lycosa:fifottl:write"],
        workloads: &[
            "fifottl",
            "backlog-10k",
            "backlog-1m",
            "backlog-10m",
            "delayed-10m",
            "priorities-1",
            "priorities-10",
            "priorities-10k",
            "utube-1",
            "utube-1k",
            "utube-1m",
            "utube",
            "utube-1m-8x32",
        ],
    },
    Section {
        title: "Connections and payloads",
        about: "From one request at a time to five hundred, from 10 bytes to 64 KiB.",
        contenders: &["lycosa:fifottl:fsync", "redis-list:fsync"],
        workloads: &["1x1", "500x1", "payload-10", "payload-1k", "payload-64k"],
    },
    Section {
        title: "Batches",
        about: "`put_many`, `take_many` and `ack_many`; a round is still one task's cycle.",
        contenders: &["lycosa:fifottl:fsync", "lycosa:fifottl:write"],
        workloads: &["8x32", "batch-10", "batch-100"],
    },
    Section {
        title: "Memory, filling and draining",
        about: "A million tasks of 100 bytes.",
        contenders: &[
            "lycosa:fifo:write",
            "lycosa:fifottl:write",
            "tarantool:fifo:write",
            "tarantool:fifottl:write",
            "tarantool-lua:write",
            "redis-list:write",
        ],
        workloads: &["fill", "drain"],
    },
    Section {
        title: "Start",
        about: "Tasks recovered in a second, from the log and from a snapshot.",
        contenders: &[
            "lycosa:fifottl:write",
            "lycosa:fifo:write",
            "tarantool:fifottl:write",
            "tarantool-lua:write",
            "redis-list:write",
        ],
        workloads: &["start-log", "start-snapshot"],
    },
    Section {
        title: "Waiting consumers",
        about: "Ten thousand waiting takes, woken one by one; *take* counts from the put.",
        contenders: &["lycosa:fifottl:fsync", "lycosa:fifottl:none"],
        workloads: &["wake"],
    },
];

/// The workloads measured again with a server that may use two cores.
const TWO_CORES: Section = Section {
    title: "A server on two cores",
    about: "The same cycles with a server that may run on the load's core too, when the load leaves it free: the journal's thread \
            then waits for the disk beside the loop. Everywhere else the server has one core.",
    contenders: &["lycosa:fifottl:fsync", "lycosa:fifottl:write"],
    workloads: &["8x32", "50x1"],
};

/// Whose instructions are counted.
const COUNTED: [&str; 5] = [
    "lycosa:fifo:write",
    "lycosa:fifottl:write",
    "lycosa:limfifottl:write",
    "lycosa:utube:write",
    "lycosa:utubettl:write",
];

pub(crate) fn write(arguments: &ReportArguments, server: Option<&Path>) -> Result<()> {
    let document = arguments.docs.join(DOCUMENT);
    let shown = document.display();
    let before = fs::read_to_string(&document).with_context(|| format!("cannot read {shown}"))?;
    replaced(&before, "").with_context(|| format!("{shown} has no `{BEGIN}` with an `{END}` behind it"))?;
    if arguments.install {
        program::install()?;
    }
    let ground = arguments.servers.ground(arguments.servers.files(server))?;
    let (text, chart, json) = measure(arguments, &ground)?;
    // People may have changed the document meanwhile: a report takes long.
    let now = fs::read_to_string(&document).with_context(|| format!("cannot read {shown}"))?;
    let text = replaced(&now, &text).with_context(|| format!("the marks in {shown} are gone"))?;
    fs::write(&document, text).with_context(|| format!("cannot write {shown}"))?;
    let path = arguments.docs.join(CHART);
    fs::write(&path, chart).with_context(|| format!("cannot write {}", path.display()))?;
    if let Some(path) = &arguments.json {
        fs::write(path, format!("{json:#}\n")).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The text between the marks, the chart, and everything as JSON.
fn measure(arguments: &ReportArguments, ground: &Ground) -> Result<(String, String, Json)> {
    let parts = 3 + BY_ITSELF.len();
    let on = |ground: &Ground, part: usize, section: &Section, field: &Field, rounds: u8| {
        let said = |line: &str| eprintln!("part {part} of {parts}, {line}");
        let workloads = section.workloads.iter().map(|name| named(name, arguments.size()));
        let workloads = workloads.collect::<Result<_>>()?;
        let comparison = Comparison::hold(ground, field, workloads, rounds.into(), arguments.length(), said)?;
        let failures = comparison.failures();
        ensure!(failures == 0, "{failures} runs failed: nothing is written");
        anyhow::Ok(comparison)
    };
    let hold =
        |part: usize, section: &Section, field: &Field, rounds: u8| on(ground, part, section, field, rounds);
    let mut json = Map::new();
    let comparison = hold(1, &PEERS, &compare::usual(&ground.files)?, arguments.rounds)?;
    json.insert(PEERS.title.to_owned(), comparison.json());
    let chart = chart::svg(&comparison);
    let mut text = format!(
        "{}\n![Cycles for each second, by contender]({CHART})\n\n## {}\n\n{}\n{}{}",
        report::circumstances(&comparison),
        PEERS.title,
        PEERS.about,
        report::results(&comparison),
        target::results(&comparison)
    );
    for (at, section) in BY_ITSELF.iter().enumerate() {
        let contenders = section.contenders.iter().map(|name| name.parse::<Contender>());
        let field = Field::of(contenders.collect::<Result<Vec<_>>>()?, &ground.files);
        let comparison = hold(2 + at, section, &field, arguments.rounds.min(arguments.own_rounds))?;
        json.insert(section.title.to_owned(), comparison.json());
        text.push_str(&overview(section, &comparison));
    }
    let _ = write!(
        text,
        "\n## Threads and kernel\n\nMicroseconds of the server's processor time for each cycle, by thread: in our code, and in the kernel on its behalf.\n\n{}",
        report::threads(&comparison)
    );
    let contenders = TWO_CORES.contenders.iter().map(|name| name.parse::<Contender>());
    let field = Field::of(contenders.collect::<Result<Vec<_>>>()?, &ground.files);
    let free = Ground { cores: ground.cores.with_free_server(), ..ground.clone() };
    let comparison = on(&free, parts - 1, &TWO_CORES, &field, arguments.rounds)?;
    json.insert(TWO_CORES.title.to_owned(), comparison.json());
    text.push_str(&overview(&TWO_CORES, &comparison));
    if !arguments.small {
        let workload = named("8x32", arguments.size())?;
        let mut counted = Vec::new();
        for name in COUNTED {
            eprintln!("part {parts} of {parts}, instructions: {name}");
            counted.push(Counted::hold(ground, name.parse()?, &workload, COUNTED_CYCLES)?);
        }
        json.insert("Instructions".to_owned(), count::json_of(&counted));
        let _ = write!(
            text,
            "\n## Instructions\n\nInstructions of the server for each cycle at 8 × 32, the kernel's not counted, by crate.\n\n{}",
            count::table(&counted, &BTreeMap::new())
        );
    }
    Ok((text, chart, json!(json)))
}

/// The part of the document about a section: its title, what it is, and its table.
fn overview(section: &Section, comparison: &Comparison) -> String {
    format!(
        "\n## {}\n\n{} ({}.)\n\n{}",
        section.title,
        section.about,
        report::rounds(comparison),
        report::overview(comparison)
    )
}

/// The document with `text` between its marks; `None` without marks.
fn replaced(document: &str, text: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Size;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let document = format!("# A\n\n{BEGIN}\nold\n{END}\n\nB\n");
        let new = replaced(&document, "new\n").unwrap();
        assert_eq!(new, format!("# A\n\n{BEGIN}\n\nnew\n\n{END}\n\nB\n"));
        assert_eq!(replaced(&new, "new").unwrap(), new);
        assert_eq!(replaced(&format!("{END} {BEGIN}"), ""), None);
    }

    #[test]
    fn every_name_is_known_and_every_baseline_stands_in_its_section() {
        for section in BY_ITSELF.iter().chain([&PEERS, &TWO_CORES]) {
            assert!(section.contenders.iter().all(|name| name.parse::<Contender>().is_ok()));
            for name in section.workloads {
                let workload = named(name, Size::Full).unwrap();
                let stands = |baseline: &str| section.workloads.contains(&baseline);
                assert!(workload.baseline.is_none_or(stands), "{name}");
            }
        }
        assert!(COUNTED.iter().all(|name| name.parse::<Contender>().is_ok()));
    }
}
