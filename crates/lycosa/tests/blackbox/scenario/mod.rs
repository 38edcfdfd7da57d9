//! Golden scripts of requests and replies, read from `scenarios/` at the top of the repository.
//!
//! Each file is a test of its own on a fresh server: `scenario::fifo/life` against our binary, and, for files that a
//! plain Tarantool can run too (`# oracle`), `oracle::scenario/own/dml` against that. `scenarios/README.md` has the format.

mod calm;
mod parse;
mod request;
mod run;
mod want;

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::Trial;

use self::want::Captures;
use crate::server::{Peer, Server, queue_module, tarantool_is_installed};
use crate::value::Value;

/// A scenario that fails is run this often, if the machine stalls each time.
const MAX_RUNS: u32 = 8;

/// JSON as the scenarios write it (`{"$bin": …}` and so on), as a value to send.
pub(crate) fn value_of(json: &serde_json::Value) -> Result<Value, String> {
    want::to_send(json, &Captures::new())
}

/// A file of `scenarios/`.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    /// `fifo/life`.
    pub(crate) name: String,
    text: String,
    only: Option<Peer>,
    oracle: bool,
    needs: String,
}

impl Script {
    /// Why it cannot run there; `None` if it can.
    pub(crate) fn hindrance(&self, peer: Peer) -> Option<String> {
        if self.only.is_some_and(|only| only != peer) {
            return Some("the other server's".into());
        }
        match peer {
            Peer::Lycosa => Some(format!("needs {}", self.needs))
                .filter(|_| !matches!(self.needs.as_str(), "" | "lua" | "drivers")),
            Peer::Tarantool if !tarantool_is_installed() => Some("no tarantool".into()),
            Peer::Tarantool => {
                Some("needs the module queue".into()).filter(|_| !self.oracle && queue_module().is_none())
            }
        }
    }

    /// Plays it on a server of its own and gives that server, for a look at what it left behind.
    ///
    /// Scenarios have times of tenths of a second. Where a run fails and the machine stalled meanwhile, the run says
    /// nothing: it is repeated once the machine is calm, at most [`MAX_RUNS`] times.
    pub(crate) fn play(&self, peer: Peer) -> Result<Server, String> {
        let shown = format!("scenarios/{}.txt", self.name);
        let scenario = parse::parse(&self.text, peer).map_err(|reason| format!("{shown}:{reason}"))?;
        for count in 1.. {
            match run::run(&shown, &self.text, &scenario, peer) {
                Ok(server) => return Ok(server),
                Err(broken) if broken.stall < calm::STALL || count == MAX_RUNS => {
                    return Err(format!("{}(run {count}, stalled for {:?})", broken.message, broken.stall));
                }
                Err(_) => calm::wait(),
            }
        }
        unreachable!("the last run returns")
    }
}

/// Every file of `scenarios/`, in the order of their names.
pub(crate) fn scripts() -> Result<Vec<Script>, String> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut files = Vec::new();
    collect(&top, &mut files).map_err(|error| format!("{}: {error}", top.display()))?;
    files.sort();
    let script = |file: &PathBuf| {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let parse::Reach { only, oracle, needs } =
            parse::reach(&text).map_err(|reason| format!("{}: {reason}", file.display()))?;
        let name =
            file.strip_prefix(&top).expect("collected below it").with_extension("").display().to_string();
        Ok(Script { name, text, only, oracle, needs: needs.join(", ") })
    };
    files.iter().map(script).collect()
}

/// Every file as a test against our server, and as one against a real Tarantool: ignored, and so counted as skipped,
/// where that lacks what the file needs (most need the queue module, which is in no package).
pub(crate) fn trials() -> Result<Vec<Trial>, String> {
    let mut trials = Vec::new();
    for script in scripts()? {
        for (peer, prefix) in [(Peer::Lycosa, "scenario::"), (Peer::Tarantool, "oracle::scenario/")] {
            let hindrance = script.hindrance(peer);
            if script.only.is_none_or(|only| only == peer) {
                let script = script.clone();
                let name = format!("{prefix}{}", script.name);
                let trial = Trial::test(name, move || Ok(script.play(peer).map(drop)?));
                trials.push(match hindrance {
                    Some(reason) => trial.with_ignored_flag(true).with_kind(reason),
                    None => trial,
                });
            }
        }
    }
    Ok(trials)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "txt") {
            files.push(path);
        }
    }
    Ok(())
}
