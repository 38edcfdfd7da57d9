//! One journal file under any name, in any state.

use std::io;
use std::path::{Path, PathBuf};

use lycosa_journal::directory::{Directory, DirectoryError, file_name};
use lycosa_journal::meta::FileKind;
use lycosa_journal::reader::{FileReader, OpenError};

use crate::journal_walk::Walk;

/// Bytes of the first line of a journal file.
const XLOG: &[u8; 5] = b"XLOG\n";
const SNAPSHOT: &[u8; 5] = b"SNAP\n";

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
    /// Opens a file. Its first line says whether it is an xlog or a snapshot; where that line is missing, the name does.
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
        let mut title = [0; 5];
        let read = file.read_at(&mut title, 0)?;
        let kind = match &title {
            SNAPSHOT if read == title.len() => FileKind::Snapshot,
            title if title != XLOG && name.contains(FileKind::Snapshot.suffix()) => FileKind::Snapshot,
            _ => FileKind::Xlog,
        };
        let reader = FileReader::open(file, kind)?;
        Ok(Self { path: path.to_owned(), directory, reader, walk: Walk::default() })
    }

    /// The path of the xlog that continues this one, if there is one.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn next(&self) -> io::Result<Option<PathBuf>> {
        let signature = self.reader.meta().vclock.signature();
        let xlogs = self.directory.list()?.xlogs;
        let next = xlogs.into_iter().find(|&xlog| xlog > signature);
        Ok(next.map(|xlog| self.directory.path(&file_name(FileKind::Xlog, xlog))))
    }
}
