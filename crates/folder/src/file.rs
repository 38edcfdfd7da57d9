//! One journal file under any name, in any state.

use std::io;
use std::path::{Path, PathBuf};

use lycosa_journal::directory::{Directory, DirectoryError, file_name};
use lycosa_journal::meta::FileKind;
use lycosa_journal::reader::{FileReader, OpenError};

use crate::journal_walk::Walk;

/// The kinds of files, a longer suffix before a shorter one that it begins with.
const KINDS: [FileKind; 4] = [FileKind::Snapshot, FileKind::GroupLog, FileKind::GroupState, FileKind::Xlog];
/// Bytes of the longest first line of a file.
const MAX_TITLE: usize = 9;

/// Why a path names no file of a folder that can be looked into.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// The path ends without a name, or with one that is no UTF-8.
    #[error("{} is not the name of a file", .0.display())]
    NoName(PathBuf),
    /// The folder of the file cannot be looked into.
    #[error(transparent)]
    Folder(#[from] DirectoryError),
}

/// A file that is read from its first row on.
#[derive(Debug)]
pub struct JournalFile {
    /// Where it was opened.
    pub path: PathBuf,
    /// Its folder.
    pub directory: Directory,
    /// Its header and its blocks.
    pub reader: FileReader,
    /// The place in it.
    pub walk: Walk,
}

impl JournalFile {
    /// Opens a file. Its first line says what it is; where that line is missing, the name does. The walk is for rows: records of a
    /// group's log and its states are read by [`lycosa_engine::group::listing`] and [`lycosa_engine::group::Base`].
    ///
    /// # Errors
    /// [`PathError`]: nothing was looked at. The inner error is a fault of the file.
    pub fn open(path: &Path) -> Result<Result<Self, OpenError>, PathError> {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| PathError::NoName(path.to_owned()))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = match Directory::inspect(folder) {
            Ok(directory) => directory,
            Err(DirectoryError::Io { cause, .. }) => return Ok(Err(cause.into())),
            Err(error) => return Err(error.into()),
        };
        Ok(Self::open_in(path, name, directory))
    }

    fn open_in(path: &Path, name: &str, directory: Directory) -> Result<Self, OpenError> {
        let file = directory.disk().open(name)?;
        let mut begin = [0; MAX_TITLE];
        let read = file.read_at(&mut begin, 0)?;
        let titled = |kind: &FileKind| {
            let rest = begin[..read].strip_prefix(kind.title().as_bytes());
            rest.is_some_and(|rest| rest.first() == Some(&b'\n'))
        };
        let named = |kind: &FileKind| name.contains(kind.suffix());
        let kind = KINDS.into_iter().find(titled).or_else(|| KINDS.into_iter().find(named));
        let kind = kind.unwrap_or(FileKind::Xlog);
        let reader = FileReader::open(file, kind)?;
        Ok(Self { path: path.to_owned(), directory, reader, walk: Walk::default() })
    }

    /// The path of the log that continues this one, if there is one.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn next(&self) -> io::Result<Option<PathBuf>> {
        let signature = self.reader.meta().vclock.signature();
        let (kind, listing) = (self.reader.meta().kind, self.directory.list()?);
        let logs = match kind {
            FileKind::Xlog => listing.xlogs,
            FileKind::GroupLog => listing.group_logs,
            FileKind::Snapshot | FileKind::GroupState => return Ok(None),
        };
        let next = logs.into_iter().find(|&log| log > signature);
        Ok(next.map(|log| self.directory.path(&file_name(kind, log))))
    }
}
