//! `programs`: what code in Lua costs the processor here and in a Tarantool. The same program runs under both; functions of it
//! are called by one client, and the server's processor time is divided by the calls.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lycosa_iproto::request::Body;
use serde_json::json;

use crate::arguments::ProgramsArguments;
use crate::comparison::Spread;
use crate::connect;
use crate::contender::Program;
use crate::machine::processor_time;
use crate::protocol::iproto::{Caller, TubeType};
use crate::report::{spread, table};
use crate::server::Server;
use crate::trial::Ground;

/// The program of both.
const SCRIPT: &str = include_str!("programs.lua");
/// Requests under way.
const DEPTH: u64 = 64;
/// So long may the program take to define its functions after it listens.
const LONGEST_LOAD: Duration = Duration::from_secs(600);

/// A function of the program: its name, a description of a call, and how many calls take about as long as those of the next.
struct Case {
    name: &'static str,
    about: &'static str,
    calls: u64,
}

const CASES: [Case; 11] = [
    Case { name: "noop", about: "nothing", calls: 40_000 },
    Case { name: "get", about: "`space:get`", calls: 30_000 },
    Case { name: "select", about: "`space:select` of 10 rows", calls: 15_000 },
    Case { name: "insert", about: "`space:insert`", calls: 20_000 },
    Case { name: "update", about: "`space:update`", calls: 20_000 },
    Case { name: "queue", about: "a queue in Lua: insert, min, update, delete", calls: 8_000 },
    Case { name: "gets", about: "100 × `space:get`", calls: 3_000 },
    Case { name: "walk", about: "`space:pairs` over 50 rows on average", calls: 4_000 },
    Case { name: "loop", about: "a loop of 10 000 steps", calls: 2_000 },
    Case { name: "fibers", about: "10 fibers that pause once and answer over a channel", calls: 3_000 },
    Case { name: "transaction", about: "100 × `space:update` in one transaction", calls: 1_500 },
];

const PROGRAMS: [(&str, Program); 2] =
    [("lycosa", Program::Lycosa(TubeType::FifoTtl)), ("tarantool", Program::TarantoolLua)];

pub(crate) fn programs(arguments: &ProgramsArguments, server: Option<&Path>) -> Result<()> {
    let ground = arguments.servers.ground(arguments.servers.files(server))?;
    let is_wanted =
        |case: &&Case| arguments.cases.is_empty() || arguments.cases.iter().any(|name| name == case.name);
    let cases: Vec<&Case> = CASES.iter().filter(is_wanted).collect();
    // By program and case, microseconds of each round.
    let mut found = vec![vec![Vec::new(); cases.len()]; PROGRAMS.len()];
    for round in 0..arguments.rounds {
        // Who begins changes, so that no disturbance hits always the same one.
        for place in 0..PROGRAMS.len() {
            let place = (place + round as usize) % PROGRAMS.len();
            let (name, program) = PROGRAMS[place];
            let costs = measure(&ground, program, &cases, arguments.scale);
            let costs = costs.with_context(|| format!("{name} cannot be measured"))?;
            for (times, cost) in found[place].iter_mut().zip(costs) {
                times.push(cost);
            }
        }
    }
    if arguments.json {
        for (place, case) in cases.iter().enumerate() {
            println!(
                "{}",
                json!({ "case": case.name, "lycosa_us": found[0][place], "tarantool_us": found[1][place] })
            );
        }
        return Ok(());
    }
    let mut rows = vec![["function", "Lycosa, µs", "Tarantool, µs", "Tarantool's CPU is"].map(str::to_owned)];
    for (place, case) in cases.iter().enumerate() {
        let [ours, theirs] = [&found[0][place], &found[1][place]];
        let ratios: Vec<f64> = theirs.iter().zip(ours).map(|(theirs, ours)| theirs / ours).collect();
        let shown = |values: &[f64]| {
            Spread::of(values.iter().copied()).map_or_else(|| "–".to_owned(), |found| spread(found, 2))
        };
        rows.push([case.about.to_owned(), shown(ours), shown(theirs), format!("× {}", shown(&ratios))]);
    }
    print!("{}", table(&rows));
    Ok(())
}

/// Microseconds of the processor for a call of each case.
fn measure(ground: &Ground, program: Program, cases: &[&Case], scale: f64) -> Result<Vec<f64>> {
    let start = |place: crate::server::ServerLocation<'_>| {
        let script = place.data.with_file_name("programs.lua");
        std::fs::write(&script, SCRIPT)?;
        let mut command = program.script(&ground.files, &script)?;
        command.arg(place.address.to_string());
        Ok(command)
    };
    let mut server = Server::start(start, &ground.folder, ground.cores)?;
    let measured = measure_on(&server, cases, scale);
    let measured = measured.map_err(|error| server.explain(error))?;
    server.stop_process()?;
    Ok(measured)
}

fn measure_on(server: &Server, cases: &[&Case], scale: f64) -> Result<Vec<f64>> {
    let mut caller = Caller::new(connect(server.address())?, None)?;
    let begun = Instant::now();
    while caller.call("bench.noop", &[0x90])?.is_err() {
        ensure!(begun.elapsed() < LONGEST_LOAD, "the program is not loaded");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut costs = Vec::new();
    for case in cases {
        let name = format!("bench.{}", case.name);
        let calls = ((case.calls as f64 * scale) as u64).max(1);
        let mut call = |calls: u64| -> Result<()> {
            let mut left = calls;
            while left > 0 {
                let count = left.min(DEPTH);
                caller.many((0..count).map(|_| Body::Call { name: name.as_bytes(), args: &[0x90] }))?;
                left -= count;
            }
            Ok(())
        };
        // Until it is compiled.
        call((calls / 10).clamp(1, 1000))?;
        let before = processor_time(server.pid())?;
        call(calls)?;
        let used = processor_time(server.pid())?.since(before).total();
        costs.push(used.as_secs_f64() * 1e6 / calls as f64);
    }
    Ok(costs)
}
