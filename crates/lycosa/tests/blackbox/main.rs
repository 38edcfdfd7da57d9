//! Tests against the built binary, over real sockets, as a client would see it.
//!
//! | name begins with | what it is |
//! |---|---|
//! | `scenario::` | a golden script of `scenarios/` against our server |
//! | `transcript::` | a recorded session of `corpus/wire/` replayed against our server |
//! | `oracle::` | both against a real Tarantool, where it can; data folders that change hands with it; odd definitions sent to both |
//! | `own::` | rows of an administrator, and starts after them |
//! | `hostile::` | web pages, other protocols and other accounts at the server's doors |
//! | `folder::` | the data folder is taken away, its disk is full, its files are damaged |
//! | `full_disk::` | a queue that has filled its disk frees space on it |
//! | `replication::` | masters and replicas, killed and restarted; `oracle::replication/` with a real Tarantool |
//! | `crash::` | load, SIGKILL at a random time, and the account of acknowledged operations |
//!
//! `cargo test -p lycosa --test blackbox -- scenario::fifo` runs those whose name contains the word; `--list`,
//! `--exact`, `--skip` and `--test-threads` work as usual, and so does `cargo nextest`. Eight run at once unless told
//! otherwise, because most of their time is waiting.

#[path = "../shared/addresses.rs"]
mod addresses;
mod connection;
mod crash;
mod definitions;
mod exchange;
mod folder;
mod full_disk;
mod hostile;
mod replication;
mod scenario;
mod server;
mod transcript;
mod value;

use std::process::ExitCode;

use libtest_mimic::Arguments;

const AT_ONCE: usize = 8;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let sources = [
        scenario::trials,
        transcript::trials,
        exchange::trials,
        crash::trials,
        definitions::trials,
        folder::trials,
        full_disk::trials,
        hostile::trials,
        replication::trials,
    ];
    match sources.iter().map(|trials| trials()).collect::<Result<Vec<_>, _>>() {
        Ok(trials) => libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit_code(),
        Err(reason) => {
            eprintln!("cannot collect the tests: {reason}");
            ExitCode::FAILURE
        }
    }
}
