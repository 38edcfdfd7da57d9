//! Random work on a master while a replica follows: rows, definitions, truncation, sequences, users, roles, tasks. Either side
//! is a Tarantool, or both are Lycosas.
//!
//! After each round both hold the same at the same vclock. Between rounds the replica or the master is stopped or killed, and
//! sometimes work goes on while the replica is away.
//!
//! `LYCOSA_TEST_ROUNDS` says how many rounds there are, of [`OPERATIONS`] each; the run in CI has [`ROUNDS`]. `LYCOSA_TEST_SEED`
//! is a number that chooses other work. A round with restarts takes about two seconds, so a day of work is 40 000 rounds.

use std::collections::BTreeMap;

use libtest_mimic::Trial;

use super::Result;
use super::pair::{Client, compare, start_master, start_replica};
use crate::connection::{self, key, kind};
use crate::exchange::if_possible;
use crate::server::{Peer, Server, tarantool_is_installed};
use crate::value::Value;

/// Rounds in a run of all tests.
const ROUNDS: u64 = 8;
/// Operations of a round.
const OPERATIONS: i128 = 250;
const PROGRAM: &str = include_str!("random_work.lua");

pub(super) fn trials() -> Vec<Trial> {
    use Peer::{Lycosa, Tarantool};
    let pairs = [
        (Lycosa, Lycosa, "replication::random-work"),
        (Lycosa, Tarantool, "oracle::replication/random-work/tarantool-follows"),
        (Tarantool, Lycosa, "oracle::replication/random-work/follows-tarantool"),
    ];
    let trials = pairs.map(|(master, replica, name)| {
        let is_possible = [master, replica].iter().all(|peer| *peer == Lycosa) || tarantool_is_installed();
        if_possible(Trial::test(name, move || Ok(random_work(master, replica)?)), is_possible)
    });
    trials.into()
}

fn knob(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Operations, by kind.
type Done = BTreeMap<String, i128>;

/// A round of work.
fn round(master: &Server, seed: u64, done: &mut Done) -> Result<()> {
    let has_queue = master.peer() == Peer::Lycosa;
    let arguments = vec![Value::Int(seed.into()), Value::Int(OPERATIONS), Value::Bool(has_queue)];
    let body =
        connection::body([(key::EXPRESSION, Value::str(PROGRAM)), (key::TUPLE, Value::Array(arguments))]);
    let reply = Client::open(master)?.0.ask(kind::EVAL, &body, super::pair::SYNC_LIMIT)?;
    if reply.error != 0 {
        return Err(reply.describe());
    }
    let data = reply.data();
    let counts = match data.as_array().and_then(<[Value]>::first) {
        Some(Value::Map(pairs)) => pairs.clone(),
        other => return Err(format!("the work answers {other:?}")),
    };
    for (name, count) in counts {
        *done.entry(name.as_text().unwrap_or_default()).or_default() += count.as_int().unwrap_or_default();
    }
    Ok(())
}

fn random_work(from: Peer, to: Peer) -> Result<()> {
    let mut master = start_master(from)?;
    let mut replica = start_replica(to, &master)?;
    let first = knob("LYCOSA_TEST_SEED", 1);
    let mut done = Done::new();
    for number in 0..knob("LYCOSA_TEST_ROUNDS", ROUNDS) {
        let told = |error: String| format!("round {number} of seed {first}: {error}");
        if std::env::var_os("LYCOSA_TEST_ROUNDS").is_some() {
            eprintln!("round {number}");
        }
        // The generator wants a number from 1 to 2^31 - 2.
        let seed = (first * 1_000_003 + number * 7919) % 2_147_483_646 + 1;
        round(&master, seed, &mut done).map_err(told)?;
        compare(&master, &mut replica).map_err(told)?;
        match number % 8 {
            1 | 6 => {
                if number % 2 == 0 {
                    replica.stop()?;
                } else {
                    replica.kill();
                }
                round(&master, seed / 2 + 1, &mut done).map_err(told)?;
                replica.launch()?;
            }
            3 => {
                master.stop()?;
                master.launch()?;
            }
            5 => {
                master.kill();
                master.launch()?;
            }
            7 => {
                replica.kill();
                master.kill();
                master.launch()?;
                replica.launch()?;
            }
            _ => continue,
        }
        compare(&master, &mut replica).map_err(told)?;
    }
    let kinds =
        ["create_space", "create_index", "truncate", "transaction", "sequence", "user", "role", "upsert"];
    let queue_kinds = ["create_tube", "put", "take", "ack", "bury"];
    let queue_kinds = queue_kinds.iter().filter(|_| from == Peer::Lycosa);
    match kinds.iter().chain(queue_kinds).find(|kind| !done.contains_key(**kind)) {
        Some(missing) => Err(format!("{missing} was never done: {done:?}")),
        None => Ok(()),
    }
}
