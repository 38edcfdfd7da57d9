//! `lycosa backup` and `lycosa restore`: a data folder copied while its server runs, and put back.
//!
//! A backup is the newest snapshot and every xlog since, copied in the order in which they were written. An xlog that is
//! still being written is copied as far as it is: what its last block lacks is a torn tail, which no start minds. A file
//! that a checkpoint removes meanwhile makes the copy begin anew.
//!
//! # Invariants
//! - A folder of the given name exists only when its files are complete, on the disk and verified: until then they lie in a
//!   folder beside it whose name ends with `.inprogress`.
//! - A backup has everything that the server had answered before the command began.
//! - A restore changes nothing that exists: it refuses a folder that holds anything.
//!
//! Absent: copies over the network, and incremental ones. A replica is a copy that stays up to date.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use indicatif::ProgressBar;
use lycosa_engine::inspect::{self, Contents};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::directory::{Directory, IN_PROGRESS, file_name};
use lycosa_journal::meta::FileKind;
use serde_json::{Value as Json, json};

use crate::arguments::{BackupArguments, RestoreArguments};
use crate::commands::progress_bar;
use crate::outcome::Outcome;
use crate::output::{self, line};
use crate::session::Session;
use crate::values::bytes;

/// How often a copy is begun at most because a checkpoint has removed a file under it.
const MAX_COPIES: usize = 10;
/// Bytes between two steps of the progress bar.
const CHUNK: usize = 1 << 20;
/// What the files of a backup held when they were copied; a restore compares.
const LABEL: &str = "backup.json";
/// Instances of a replica set, one in each row.
const CLUSTER: &str = "_cluster";

/// A file to copy, and its bytes when it was listed.
struct Source {
    name: String,
    size: u64,
}

/// `lycosa backup`
pub(crate) fn backup(arguments: &BackupArguments) -> anyhow::Result<Outcome> {
    let BackupArguments { folder, checkpoint, admin } = arguments;
    let staging = Staging::beside(folder, "back up into")?;
    if *checkpoint {
        let session = Session::open_admin(&admin.data_dir)?;
        session.call_waiting("box.snapshot", Vec::new(), crate::checkpoint::LONGEST)?;
    }
    let sources = copy(&admin.data_dir, &staging.path)?;
    let contents = verified(&staging.path, "the copy")?;
    let label = label(&contents);
    write_durably(&staging.path.join(LABEL), format!("{label}\n").as_bytes())
        .with_context(|| format!("cannot write {LABEL}"))?;
    staging.commit(folder)?;
    let size: u64 = sources.iter().map(|source| source.size).sum();
    if admin.json {
        line(json!({
            "backup": folder, "files": sources.len(), "bytes": size, "tubes": contents.tubes.len(), "label": label,
        }))?;
        return Ok(Outcome::Done);
    }
    line(format_args!(
        "backed up {} into {}: {} files, {}, vclock {}; every row was read back",
        admin.data_dir.display(),
        folder.display(),
        sources.len(),
        bytes(size),
        contents.vclock,
    ))?;
    line(format_args!(
        "to restore: stop the server, then `lycosa restore {} --data-dir FOLDER` and start it on FOLDER",
        folder.display()
    ))?;
    Ok(Outcome::Done)
}

/// `lycosa restore`
pub(crate) fn restore(arguments: &RestoreArguments) -> anyhow::Result<Outcome> {
    let RestoreArguments { backup, data_dir, json: as_json } = arguments;
    let staging = Staging::beside(data_dir, "restore into")?;
    let sources = copy(backup, &staging.path)?;
    let contents = verified(&staging.path, "the backup")?;
    match fs::read(backup.join(LABEL)) {
        Ok(text) => {
            let wanted: Json = serde_json::from_slice(&text)
                .with_context(|| format!("{} cannot be read", backup.join(LABEL).display()))?;
            let found = label(&contents);
            ensure!(
                wanted["digest"] == found["digest"] && wanted["instance"] == found["instance"],
                "{} does not hold what was backed up: its digest is {}, and {LABEL} says {}. Files were added or removed \
                 since; `lycosa check {}` shows them",
                backup.display(),
                found["digest"],
                wanted["digest"],
                backup.display()
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
            "instance": contents.instance.to_string(), "other_instances": others,
        }))?;
    } else {
        line(format_args!(
            "restored {} into {}: instance {}, vclock {}",
            backup.display(),
            data_dir.display(),
            contents.instance,
            contents.vclock
        ))?;
        line(format_args!("to start: `lycosa serve --data-dir {}`", data_dir.display()))?;
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

/// Loads a folder as a start does, and refuses one that a start would.
fn verified(folder: &Path, what: &str) -> anyhow::Result<Contents> {
    let directory = Directory::inspect(folder)?;
    let mut bar: Option<ProgressBar> = None;
    let loaded = inspect::load(&directory, &mut |progress| {
        let bar = bar.get_or_insert_with(|| progress_bar(Some(progress.bytes_total)));
        bar.set_message("verifying");
        bar.set_position(progress.bytes_done);
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let contents =
        loaded.with_context(|| format!("a start on {what} would be refused; `lycosa check` says where"))?;
    contents.with_context(|| format!("{what} holds neither a snapshot nor an xlog"))
}

/// Copies the newest snapshot and the xlogs since.
fn copy(from: &Path, to: &Path) -> anyhow::Result<Vec<Source>> {
    for _ in 0..MAX_COPIES {
        match copy_once(from, to)? {
            Some(sources) => return Ok(sources),
            None => {
                for entry in fs::read_dir(to)? {
                    fs::remove_file(entry?.path())?;
                }
            }
        }
    }
    bail!(
        "checkpoints removed files of {} {MAX_COPIES} times while they were copied: the disk of the copy is slower than the \
         server makes snapshots. Raise checkpoint_interval for the time of the backup",
        from.display()
    )
}

/// One attempt; `None` if a file was removed meanwhile.
fn copy_once(from: &Path, to: &Path) -> anyhow::Result<Option<Vec<Source>>> {
    let sources = sources(from)?;
    let bar = progress_bar(Some(sources.iter().map(|source| source.size).sum()));
    bar.set_message("copying");
    for source in &sources {
        match copy_file(&from.join(&source.name), &to.join(&source.name), &bar) {
            Ok(()) => {}
            Err(CopyError::Source(error)) if error.kind() == ErrorKind::NotFound => {
                bar.finish_and_clear();
                return Ok(None);
            }
            Err(CopyError::Source(error)) => {
                return Err(error)
                    .with_context(|| format!("cannot read {}", from.join(&source.name).display()));
            }
            Err(CopyError::Target(error)) => {
                return Err(error)
                    .with_context(|| format!("cannot write {}", to.join(&source.name).display()));
            }
        }
    }
    bar.finish_and_clear();
    // A file that begins after the listing holds rows that came after the command began.
    Ok(Some(sources))
}

/// What a start on the folder needs, in the order in which it was written.
fn sources(folder: &Path) -> anyhow::Result<Vec<Source>> {
    let directory = Directory::inspect(folder)?;
    let listing = directory.list().with_context(|| format!("cannot list {}", folder.display()))?;
    let snapshot = listing.snapshots.last().copied();
    ensure!(
        snapshot.is_some() || !listing.xlogs.is_empty(),
        "{} holds neither a snapshot nor an xlog: it is no data folder",
        folder.display()
    );
    // The xlog in which the snapshot's clock lies is the last one that does not begin after it.
    let first =
        snapshot.and_then(|snapshot| listing.xlogs.iter().copied().filter(|&xlog| xlog <= snapshot).max());
    let xlogs = listing.xlogs.iter().copied().filter(|&xlog| first.is_none_or(|first| xlog >= first));
    let snapshots = snapshot.into_iter().map(|signature| file_name(FileKind::Snapshot, signature));
    let names = snapshots.chain(xlogs.map(|signature| file_name(FileKind::Xlog, signature)));
    let size = |name: &str| fs::metadata(folder.join(name)).map_or(0, |metadata| metadata.len());
    Ok(names.map(|name| Source { size: size(&name), name }).collect())
}

enum CopyError {
    Source(io::Error),
    Target(io::Error),
}

fn copy_file(from: &Path, to: &Path, bar: &ProgressBar) -> Result<(), CopyError> {
    let mut source = File::open(from).map_err(CopyError::Source)?;
    let mut target = new_file(to).map_err(CopyError::Target)?;
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = source.read(&mut chunk).map_err(CopyError::Source)?;
        if read == 0 {
            break;
        }
        target.write_all(&chunk[..read]).map_err(CopyError::Target)?;
        bar.inc(read as u64);
    }
    target.sync_all().map_err(CopyError::Target)
}

fn new_file(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

fn write_durably(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = new_file(path)?;
    file.write_all(text)?;
    file.sync_all()
}

/// A folder that gets its name when it is complete, and is removed if that does not happen.
struct Staging {
    path: PathBuf,
    is_kept: bool,
}

impl Staging {
    /// Makes the folder beside `target`, which must not exist or be empty.
    fn beside(target: &Path, purpose: &str) -> anyhow::Result<Self> {
        match fs::read_dir(target) {
            Ok(mut entries) => ensure!(
                entries.next().is_none(),
                "cannot {purpose} {}: it is not empty. Name a folder that does not exist, or move what is there away",
                target.display()
            ),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot {purpose} {}", target.display()));
            }
        }
        let name = target.file_name().with_context(|| format!("cannot {purpose} {}", target.display()))?;
        let mut staged = OsString::from(name);
        staged.push(IN_PROGRESS);
        let path = target.with_file_name(staged);
        DirBuilder::new().mode(0o700).create(&path).with_context(|| match path.exists() {
            true => format!(
                "{} exists: another run is under way, or one was killed. Remove it if none runs",
                path.display()
            ),
            false => format!("cannot make {}", path.display()),
        })?;
        Ok(Self { path, is_kept: false })
    }

    /// Gives the folder its name. Afterwards it survives a loss of power.
    fn commit(mut self, target: &Path) -> anyhow::Result<()> {
        let sync = |folder: &Path| File::open(folder).and_then(|folder| folder.sync_all());
        let renamed = sync(&self.path).and_then(|()| fs::rename(&self.path, target));
        renamed
            .with_context(|| format!("cannot give {} the name {}", self.path.display(), target.display()))?;
        self.is_kept = true;
        let parent =
            target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        sync(parent).with_context(|| format!("cannot sync {}", parent.display()))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.is_kept {
            // The error that led here is the one to report.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
