//! Golden scripts of requests and replies, read from `scenarios/` at the top of the repository.
//!
//! Each file is a test of its own on a fresh server: `scenario::fifo/life` against our binary, and, for files that a
//! plain Tarantool can run too (`# oracle`), `oracle::scenario/own/dml` against that. `scenarios/README.md` has the format.

mod parse;
mod request;
mod run;
mod want;

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};

use self::want::Captures;
use crate::server::{Peer, queue_module, tarantool_is_installed};
use crate::value::Value;

/// JSON as the scenarios write it (`{"$bin": …}` and so on), as a value to send.
pub(crate) fn value_of(json: &serde_json::Value) -> Result<Value, String> {
    want::to_send(json, &Captures::new())
}

/// Every file as a test, in the order of their names.
pub(crate) fn trials() -> Result<Vec<Trial>, String> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut files = Vec::new();
    collect(&top, &mut files).map_err(|error| format!("{}: {error}", top.display()))?;
    files.sort();
    let oracle_is_missing = !tarantool_is_installed();
    let mut trials = Vec::new();
    for file in files {
        let name =
            file.strip_prefix(&top).expect("collected below it").with_extension("").display().to_string();
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let reach = parse::reach(&text).map_err(|reason| format!("{}: {reason}", file.display()))?;
        let shown = format!("scenarios/{name}.txt");
        if reach.only != Some(Peer::Tarantool) {
            let needs = reach.needs.join(", ");
            let (shown, text) = (shown.clone(), text.clone());
            let trial = Trial::test(format!("scenario::{name}"), move || play(&shown, &text, Peer::Lycosa));
            trials.push(if needs.is_empty() { trial } else { ignored(trial, &format!("needs {needs}")) });
        }
        if reach.only != Some(Peer::Lycosa) && (reach.oracle || queue_module().is_some()) {
            let trial =
                Trial::test(format!("oracle::scenario/{name}"), move || play(&shown, &text, Peer::Tarantool));
            trials.push(if oracle_is_missing { ignored(trial, "no tarantool") } else { trial });
        }
    }
    Ok(trials)
}

/// Listed and counted as ignored, with the reason before the name.
fn ignored(trial: Trial, reason: &str) -> Trial {
    trial.with_ignored_flag(true).with_kind(reason)
}

fn play(shown: &str, text: &str, peer: Peer) -> Result<(), Failed> {
    let scenario = parse::parse(text, peer).map_err(|reason| format!("{shown}:{reason}"))?;
    run::run(shown, text, &scenario, peer)?;
    Ok(())
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
