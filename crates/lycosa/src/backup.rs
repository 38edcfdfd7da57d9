//! `lycosa backup` and `lycosa restore`: a data folder copied while its server runs, and put back.
//!
//! The copy and its proof are `lycosa_folder::backup`'s. A label in the copy says what it held when it was made; a restore
//! compares.

use std::fs;
use std::io::ErrorKind;
use std::path::{self, Path};

use anyhow::{Context, ensure};
use indicatif::ProgressBar;
use lycosa_engine::group::folder::Extracted;
use lycosa_engine::inspect::Contents;
use lycosa_folder::backup::{self, BackupError, CopiedFile, Staging};
use lycosa_iproto::vclock::Vclock;
use serde_json::{Value as Json, json};

use crate::arguments::{BackupArguments, RestoreArguments};
use crate::commands::bytes_bar;
use crate::outcome::Outcome;
use crate::output::{self, done, line};
use crate::session::Session;
use crate::values::bytes;

/// What the files of a backup held when they were copied; a restore compares.
const LABEL: &str = "backup.json";
/// Instances of a replica set, one in each row.
const CLUSTER: &str = "_cluster";

/// `lycosa backup`
pub(crate) fn backup(arguments: &BackupArguments) -> anyhow::Result<Outcome> {
    let BackupArguments { folder, checkpoint, admin } = arguments;
    let (into, source) = (folder.display(), admin.data_dir.display());
    ensure!(
        !is_inside(folder, &admin.data_dir),
        "cannot back up into {into}: it is inside the data folder {source}, and is lost with it; name a folder elsewhere, best on \
         another disk"
    );
    let staging = Staging::beside(folder).with_context(|| format!("cannot back up into {into}"))?;
    if *checkpoint {
        let session = Session::open_admin(&admin.data_dir)?;
        session.call_waiting("box.snapshot", Vec::new(), crate::checkpoint::LONGEST)?;
    }
    let sources = copy(&admin.data_dir, staging.path())?;
    let member = extract(&admin.data_dir, staging.path())?;
    let contents = verified(staging.path(), "the copy")?;
    let label = label(&contents);
    staging.add(LABEL, format!("{label}\n").as_bytes())?;
    staging.commit(folder)?;
    let size: u64 = sources.iter().map(|source| source.size).sum();
    if admin.json {
        return done(json!({
            "backup": folder, "files": sources.len(), "bytes": size, "tubes": contents.tubes.len(), "label": label,
            "group": member.map(group_json),
        }));
    }
    let (size, vclock, count) = (bytes(size), &contents.vclock, sources.len());
    line(format_args!(
        "backed up {source} into {into}: {count} files, {size}, vclock {vclock}; every row was read back"
    ))?;
    done(format_args!(
        "to restore: stop the server, then `lycosa restore {into} --data-dir FOLDER` and start it on FOLDER"
    ))
}

/// Whether `folder`, which need not exist, is the other folder or below it.
fn is_inside(folder: &Path, outer: &Path) -> bool {
    let existing = path::absolute(folder)
        .ok()
        .and_then(|folder| folder.ancestors().find_map(|path| path.canonicalize().ok()));
    existing.zip(outer.canonicalize().ok()).is_some_and(|(folder, outer)| folder.starts_with(outer))
}

/// Makes the copy of a member's folder that of a single server, and says so.
fn extract(from: &Path, copy: &Path) -> anyhow::Result<Option<Extracted>> {
    let extracted = backup::extract(copy)?;
    if let Some(Extracted { member, unconfirmed }) = &extracted {
        let doubt = match unconfirmed {
            0 => String::new(),
            count => format!(". Its last {count} entries were not known to be committed"),
        };
        let (from, node, group) = (from.display(), member.node, member.group);
        eprintln!(
            "lycosa: {from} is of node {node} of group {group}: the copy is that of a single server, with all that the node's log \
             holds{doubt}. `lycosa cluster init` on a restored folder begins a new group with it"
        );
    }
    Ok(extracted)
}

fn group_json(extracted: Extracted) -> Json {
    let Extracted { member, unconfirmed } = extracted;
    json!({ "group": member.group.to_string(), "node": member.node, "unconfirmed": unconfirmed })
}

/// `lycosa restore`
pub(crate) fn restore(arguments: &RestoreArguments) -> anyhow::Result<Outcome> {
    let RestoreArguments { backup, data_dir, json: as_json } = arguments;
    let staging =
        Staging::beside(data_dir).with_context(|| format!("cannot restore into {}", data_dir.display()))?;
    let sources = copy(backup, staging.path())?;
    let member = extract(backup, staging.path())?;
    let contents = verified(staging.path(), "the backup")?;
    match fs::read(backup.join(LABEL)) {
        Ok(text) => {
            let wanted: Json = serde_json::from_slice(&text)
                .with_context(|| format!("{} cannot be read", backup.join(LABEL).display()))?;
            let found = label(&contents);
            let (digest, known, folder) = (&found["digest"], &wanted["digest"], backup.display());
            ensure!(
                known == digest && wanted["instance"] == found["instance"],
                "{folder} does not hold what was backed up: its digest is {digest}, and {LABEL} says {known}. Files were added or \
                 removed since; `lycosa check {folder}` shows them"
            );
        }
        // A copy that was made by hand.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", backup.join(LABEL).display()));
        }
    }
    staging.commit(data_dir)?;
    let others = other_instances(&contents);
    if *as_json {
        line(json!({
            "restored": data_dir, "files": sources.len(), "vclock": output::vclock(&contents.vclock),
            "instance": contents.instance.to_string(), "other_instances": others, "group": member.map(group_json),
        }))?;
    } else {
        let (backup, folder, Contents { instance, vclock, .. }) =
            (backup.display(), data_dir.display(), &contents);
        line(format_args!("restored {backup} into {folder}: instance {instance}, vclock {vclock}"))?;
        line(format_args!("to start: `lycosa serve --data-dir {folder}`"))?;
    }
    if others > 0 {
        eprintln!("{}", warning(&contents.vclock, others));
    }
    Ok(Outcome::Done)
}

fn warning(vclock: &Vclock, others: u64) -> String {
    format!(
        "lycosa: this instance has {others} other instances in its replica set. Those that have seen more than {vclock} are ahead of \
         it: if one of them has the newer tasks, promote it and let this server join with an empty folder instead. To go on from \
         the backup, let each of the others join again with an empty folder"
    )
}

/// Instances of the replica set beside this one.
fn other_instances(contents: &Contents) -> u64 {
    let cluster = contents.spaces.iter().find(|space| space.name == CLUSTER);
    cluster.map_or(0, |space| space.tuples.saturating_sub(1))
}

fn label(contents: &Contents) -> Json {
    json!({
        "instance": contents.instance.to_string(),
        "vclock": output::vclock(&contents.vclock),
        "digest": crate::check::digest(contents),
    })
}

/// Runs one step of a copy beside a progress bar, which begins with the first progress.
fn with_bar<T>(what: &'static str, step: impl FnOnce(&mut dyn FnMut(u64, u64)) -> T) -> T {
    let mut bar: Option<ProgressBar> = None;
    let result = step(&mut |done, total| {
        let bar = bar.get_or_insert_with(|| bytes_bar(Some(total)).with_message(what));
        bar.set_position(done);
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    result
}

fn copy(from: &Path, to: &Path) -> Result<Vec<CopiedFile>, BackupError> {
    with_bar("copying", |progress| backup::copy(from, to, progress))
}

/// Loads a folder as a start does, and refuses one that a start would.
fn verified(folder: &Path, what: &str) -> anyhow::Result<Contents> {
    let proof = with_bar("verifying", |show| {
        backup::prove(folder, &mut |read| show(read.bytes_done, read.bytes_total))
    });
    proof.with_context(|| format!("{what} is not sound"))
}
