//! A data folder copied while its server runs, and the proof that a start goes on from the copy.
//!
//! A copy is the newest snapshot and every xlog since, in the order in which they were written. An xlog that is still being
//! written is copied as far as it is: what its last block lacks is a torn tail, which no start minds. A file that a checkpoint
//! removes meanwhile makes the copy begin anew.
//!
//! Of a member of a group the copy is the newest snapshot, its state and the group's log, and [`extract`] makes a single server's folder
//! of them. A member that started from a copy would have forgotten its later votes and confirmations.
//!
//! Invariants:
//! - a folder of the given name exists only when its files are complete, on the disk and verified: until then they lie in a
//!   [`Staging`] folder beside it whose name ends with `.inprogress`;
//! - a copy has everything that was in the files before it began;
//! - nothing that exists is changed: a folder that holds anything is refused.
//!
//! Absent: copies over the network, and incremental ones. A replica is a copy that stays up to date.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use lycosa_engine::group::folder::Extracted;
use lycosa_engine::group::{self, Base, BaseError, BeginError};
use lycosa_engine::inspect::{self, Contents};
use lycosa_engine::replay::LoadError;
use lycosa_journal::directory::{Directory, DirectoryError, IN_PROGRESS, file_name};
use lycosa_journal::meta::FileKind;
use lycosa_journal::recovery::Progress;
use lycosa_journal::writer::Settings;

/// How often a copy is begun at most because a checkpoint has removed a file under it.
pub const MAX_COPIES: usize = 10;
/// Bytes between two calls of a copy's progress.
const CHUNK: usize = 1 << 20;

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The source cannot be looked into.
    #[error("the folder cannot be looked into")]
    Folder(#[from] DirectoryError),
    /// The source has no data.
    #[error("{} holds neither a snapshot nor an xlog: it is no data folder", .0.display())]
    NoData(PathBuf),
    /// The target has something in it.
    #[error("it is not empty. Name a folder that does not exist, or move what is there away")]
    NotEmpty,
    /// The target has no name, as `/` and `..`.
    #[error("{} is not the name of a folder", .0.display())]
    NoName(PathBuf),
    /// The staging folder exists.
    #[error("{} exists: another run is under way, or one was killed. Remove it if none runs", .0.display())]
    UnderWay(PathBuf),
    /// Checkpoints were faster.
    #[error(
        "checkpoints removed files of {} {MAX_COPIES} times while they were copied: the disk of the copy is slower than the \
         server makes snapshots. Raise checkpoint_interval for the time of the backup",
        .0.display()
    )]
    Outrun(PathBuf),
    /// A start on the copy would be refused.
    #[error("a start on it would be refused; `lycosa check` says where")]
    Refused(#[source] LoadError),
    /// The state of a member cannot be read.
    #[error(transparent)]
    Group(#[from] BaseError),
    /// A member's copy does not become a single server's.
    #[error("the data of a member of a group cannot be read")]
    Member(#[from] BeginError),
    /// A start on the copy would find nothing.
    #[error("it holds neither a snapshot nor an xlog")]
    Empty,
    /// A disk refuses.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// The failed operation, as "read".
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
}

/// Makes an [`BackupError::Io`].
fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |cause| BackupError::Io { what, path, cause }
}

/// A copied file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedFile {
    /// Its name, in both folders.
    pub name: String,
    /// Its bytes when it was listed.
    pub size: u64,
}

/// Copies the newest snapshot and the xlogs since. `progress` gets bytes done, and bytes in all.
///
/// # Errors
/// [`BackupError`]; files may be left in `to`.
pub fn copy(
    from: &Path,
    to: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<CopiedFile>, BackupError> {
    for _ in 0..MAX_COPIES {
        let sources = sources(from)?;
        if copy_all(&sources, from, to, progress)? {
            return Ok(sources);
        }
        let entries = fs::read_dir(to).map_err(failed("list", to))?;
        for entry in entries {
            let path = entry.map_err(failed("list", to))?.path();
            fs::remove_file(&path).map_err(failed("remove", &path))?;
        }
    }
    Err(BackupError::Outrun(from.to_owned()))
}

/// One attempt. Whether no file was removed meanwhile.
fn copy_all(
    sources: &[CopiedFile],
    from: &Path,
    to: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<bool, BackupError> {
    let total = sources.iter().map(|source| source.size).sum();
    let mut done = 0;
    for source in sources {
        let (from, to) = (from.join(&source.name), to.join(&source.name));
        let mut show = |bytes| {
            done += bytes;
            progress(done, total);
        };
        match copy_file(&from, &to, &mut show) {
            Ok(()) => {}
            Err(BackupError::Io { path, cause, .. })
                if path == from && cause.kind() == ErrorKind::NotFound =>
            {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
    }
    // A file that begins after the listing holds rows that came after the copy began.
    Ok(true)
}

/// What a start on the folder needs, in the order in which it was written.
fn sources(folder: &Path) -> Result<Vec<CopiedFile>, BackupError> {
    let directory = Directory::inspect(folder)?;
    let listing = directory.list().map_err(failed("list", folder))?;
    let size = |name: &str| fs::metadata(folder.join(name)).map_or(0, |metadata| metadata.len());
    if !listing.group_logs.is_empty() {
        let Some((base, _)) = Base::newest(&directory)? else {
            return Err(BackupError::NoData(folder.to_owned()));
        };
        let files = [(FileKind::Snapshot, base.signature), (FileKind::GroupState, base.index)];
        let logs = listing.group_logs.iter().map(|&log| (FileKind::GroupLog, log));
        let names = files.into_iter().chain(logs).map(|(kind, signature)| file_name(kind, signature));
        return Ok(names.map(|name| CopiedFile { size: size(&name), name }).collect());
    }
    let snapshot = listing.snapshots.last().copied();
    if snapshot.is_none() && listing.xlogs.is_empty() {
        return Err(BackupError::NoData(folder.to_owned()));
    }
    // The xlog in which the snapshot's clock lies is the last one that does not begin after it.
    let first =
        snapshot.and_then(|snapshot| listing.xlogs.iter().copied().filter(|&xlog| xlog <= snapshot).max());
    let xlogs = listing.xlogs.iter().copied().filter(|&xlog| first.is_none_or(|first| xlog >= first));
    let snapshots = snapshot.into_iter().map(|signature| file_name(FileKind::Snapshot, signature));
    let names = snapshots.chain(xlogs.map(|signature| file_name(FileKind::Xlog, signature)));
    Ok(names.map(|name| CopiedFile { size: size(&name), name }).collect())
}

fn copy_file(from: &Path, to: &Path, progress: &mut dyn FnMut(u64)) -> Result<(), BackupError> {
    let mut source = File::open(from).map_err(failed("read", from))?;
    let mut target = new_file(to).map_err(failed("write", to))?;
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = source.read(&mut chunk).map_err(failed("read", from))?;
        if read == 0 {
            return target.sync_all().map_err(failed("write", to));
        }
        target.write_all(&chunk[..read]).map_err(failed("write", to))?;
        progress(read as u64);
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// Makes the copy of a member's folder that of a single server, with everything that the member's log holds. `None`: it is one
/// already.
///
/// # Errors
/// [`BackupError`].
pub fn extract(folder: &Path) -> Result<Option<Extracted>, BackupError> {
    let directory = Directory::open(folder)?;
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX);
    Ok(group::folder::extract(&directory, Settings::default(), now)?)
}

/// Loads a copy as a start does, and refuses one that a start would.
///
/// # Errors
/// [`BackupError`].
pub fn prove(folder: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Contents, BackupError> {
    let directory = Directory::inspect(folder)?;
    let loaded = inspect::load(&directory, progress).map_err(BackupError::Refused)?;
    loaded.ok_or(BackupError::Empty)
}

/// A folder that gets its name when it is complete, and is removed if that does not happen.
#[derive(Debug)]
pub struct Staging {
    path: PathBuf,
    is_kept: bool,
}

impl Staging {
    /// Makes the folder beside `target`, which must not exist or be empty.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn beside(target: &Path) -> Result<Self, BackupError> {
        match fs::read_dir(target) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(BackupError::NotEmpty);
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed("look into", target)(error)),
        }
        let name = target.file_name().ok_or_else(|| BackupError::NoName(target.to_owned()))?;
        let mut staged = OsString::from(name);
        staged.push(IN_PROGRESS);
        let path = target.with_file_name(staged);
        DirBuilder::new().mode(0o700).create(&path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => BackupError::UnderWay(path.clone()),
            _ => failed("make", &path)(error),
        })?;
        Ok(Self { path, is_kept: false })
    }

    /// Where the files belong meanwhile.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a file of its own to the copy. It is on the disk when the call returns.
    ///
    /// # Errors
    /// [`BackupError::Io`].
    pub fn add(&self, name: &str, text: &[u8]) -> Result<(), BackupError> {
        let path = self.path.join(name);
        let write = |mut file: File| file.write_all(text).and_then(|()| file.sync_all());
        new_file(&path).and_then(write).map_err(failed("write", &path))
    }

    /// Gives the folder its name. Afterwards it survives a loss of power.
    ///
    /// # Errors
    /// [`BackupError::Io`].
    pub fn commit(mut self, target: &Path) -> Result<(), BackupError> {
        let sync = |folder: &Path| File::open(folder).and_then(|folder| folder.sync_all());
        sync(&self.path).map_err(failed("sync", &self.path))?;
        fs::rename(&self.path, target).map_err(failed("give its name to", target))?;
        self.is_kept = true;
        let parent =
            target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        sync(parent).map_err(failed("sync", parent))
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
