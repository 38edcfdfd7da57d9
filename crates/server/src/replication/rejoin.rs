//! Rejoin: a replica whose next rows are in no master's journals any more sets its files aside and joins again.
//!
//! The files go into a folder beside them, the newest first and xlogs before snapshots. A crash in between leaves an older
//! state of the same data, from which the next start goes on; the masters have the missing rows.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use lycosa_journal::directory::{Directory, DirectoryError, file_name};
use lycosa_journal::meta::FileKind;

/// How the folders are called that hold files of before a join; seconds since the epoch follow.
const ASIDE: &str = "before-join-";

/// Moves all snapshots and xlogs of `folder` into a new folder in it, whose path is returned. `seconds` since the epoch.
///
/// # Errors
/// Another process uses the folder, or the disk does not work.
pub(crate) fn set_aside(folder: &Path, seconds: u64) -> anyhow::Result<PathBuf> {
    let opened = Directory::open(folder).map_err(|error| match error {
        DirectoryError::Io { cause, .. } => cause,
        locked @ DirectoryError::Locked(_) => io::Error::other(locked.to_string()),
    });
    opened.and_then(|directory| move_files(folder, &directory, seconds)).map_err(|cause| {
        let folder = folder.display();
        anyhow::anyhow!(
            "cannot set the files in {folder} aside: {cause}; move them away by hand and start the server"
        )
    })
}

fn move_files(folder: &Path, directory: &Directory, seconds: u64) -> io::Result<PathBuf> {
    let listing = directory.list()?;
    let xlogs = listing.xlogs.iter().rev().map(|&signature| (FileKind::Xlog, signature));
    let snapshots = listing.snapshots.iter().rev().map(|&signature| (FileKind::Snapshot, signature));
    let aside = folder.join(format!("{ASIDE}{seconds}"));
    fs::create_dir_all(&aside)?;
    for (kind, signature) in xlogs.chain(snapshots) {
        let name = file_name(kind, signature);
        fs::rename(folder.join(&name), aside.join(&name))?;
    }
    File::open(&aside)?.sync_all()?;
    File::open(folder)?.sync_all()?;
    Ok(aside)
}

/// Removes the copies that were set aside before `newest`: one copy is kept.
pub(crate) fn remove_older(folder: &Path, newest: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| {
            name.strip_prefix(ASIDE).is_some_and(|seconds| seconds.bytes().all(|byte| byte.is_ascii_digit()))
        });
        if is_ours && entry.path() != newest {
            // It does not hinder the next join.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_moved_and_one_copy_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["00000000000000000005.snap", "00000000000000000005.xlog", "00000000000000000009.xlog"];
        files.iter().for_each(|name| fs::write(folder.path().join(name), name).unwrap());
        fs::write(folder.path().join("notes.txt"), "not ours").unwrap();
        fs::create_dir(folder.path().join("before-join-mine")).unwrap();
        let first = set_aside(folder.path(), 7).unwrap();
        assert_eq!(names(&first), files);
        assert_eq!(names(folder.path()), ["before-join-7", "before-join-mine", "notes.txt"]);
        fs::write(folder.path().join(files[0]), "again").unwrap();
        let second = set_aside(folder.path(), 8).unwrap();
        remove_older(folder.path(), &second);
        assert_eq!(names(folder.path()), ["before-join-8", "before-join-mine", "notes.txt"]);
        assert_eq!(names(&second), files[..1]);
    }
}
