//! Recorded sessions of a real Tarantool, replayed frame by frame from `corpus/wire/`.
//!
//! What the client sent is sent again, byte for byte (only AUTH scrambles are made anew for the salt at hand), and what
//! the server answered is compared: the bytes of the header, the bytes of the body where nothing in it depends on the
//! run, the decoded body otherwise. Where our server answers differently on purpose, `corpus/wire/differences.json`
//! says so with a reason; an entry that is no longer true fails too.
//!
//! The same sessions are replayed against a real Tarantool (`oracle::transcript/`), which checks this runner.

mod differences;
mod mask;
mod recording;
mod replay;

use std::path::{Path, PathBuf};

use libtest_mimic::Trial;

use self::differences::Differences;
use crate::server::{Peer, queue_module, tarantool_is_installed};

/// Every recording as a test against our server and, where possible, as one against a real Tarantool.
pub(crate) fn trials() -> Result<Vec<Trial>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/wire");
    let mut trials = Vec::new();
    for name in names(&folder)? {
        for (peer, prefix) in [(Peer::Lycosa, "transcript::"), (Peer::Tarantool, "oracle::transcript/")] {
            let differences = Differences::load(&folder, peer, &name)?;
            let reason = match peer {
                _ if differences.skip.is_some() => differences.skip.clone(),
                Peer::Tarantool if !tarantool_is_installed() => Some("no tarantool".to_owned()),
                Peer::Tarantool if differences.needs_queue && queue_module().is_none() => {
                    Some("needs the module queue".to_owned())
                }
                _ => None,
            };
            let file = folder.join(format!("{name}.json"));
            let data = folder.join("data");
            let trial = Trial::test(format!("{prefix}{name}"), move || {
                let recording = recording::Recording::load(&file)?;
                replay::replay(&recording, peer, &data, &differences)?;
                Ok(())
            });
            trials.push(match reason {
                Some(reason) => trial.with_ignored_flag(true).with_kind(reason),
                None => trial,
            });
        }
    }
    Ok(trials)
}

/// The recordings' names without their extension: the names that begin with their number.
fn names(folder: &PathBuf) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| error.to_string())?.file_name().to_string_lossy().into_owned();
        if let Some(name) =
            name.strip_suffix(".json").filter(|name| name.starts_with(|c: char| c.is_ascii_digit()))
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}
