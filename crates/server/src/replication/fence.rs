//! The file `fence`: a term that this instance has only heard of, so that a replaced master stays fenced when it is started
//! again before it has the row of the term.
//!
//! The file is one line, `term NUMBER owner ID replica set UUID`. A file of another replica set counts for nothing: the folder
//! has joined another set since. A term that is in the data is not looked for here.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use lycosa_replication::lineage::TermMark;
use uuid::Uuid;

/// The file in the data folder.
const NAME: &str = "fence";

/// The term that the folder has kept for this replica set; the default one if there is none.
///
/// # Errors
/// The file cannot be read, or says something else.
pub(crate) fn read(folder: &Path, cluster: Uuid) -> anyhow::Result<TermMark> {
    let path = folder.join(NAME);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(TermMark::default()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let words: Vec<_> = text.split_whitespace().collect();
    let &["term", number, "owner", owner, "replica", "set", set] = words.as_slice() else {
        bail!(malformed(&path));
    };
    let (Ok(number), Ok(owner), Ok(set)) = (number.parse(), owner.parse(), set.parse::<Uuid>()) else {
        bail!(malformed(&path));
    };
    Ok(if set == cluster { TermMark { number, owner } } else { TermMark::default() })
}

fn malformed(path: &Path) -> String {
    format!(
        "{} is damaged: it says which instance was promoted in place of this one. If this one is the master, remove the file; \
         else move the data folder away and join",
        path.display()
    )
}

/// Keeps a term on a thread of its own, which syncs the file before it takes the former one's place.
pub(crate) fn keep(folder: &Path, cluster: Uuid, mark: TermMark) {
    let path = folder.join(NAME);
    let written = std::thread::Builder::new().name("fence".to_owned()).spawn(move || {
        if let Err(error) = write(&path, cluster, mark) {
            tracing::error!(
                "{} cannot be written: after a restart this instance does not know at once that another one was promoted: {error}",
                path.display()
            );
        }
    });
    if let Err(error) = written {
        tracing::error!("the term of the new master cannot be kept: {error}");
    }
}

fn write(path: &Path, cluster: Uuid, mark: TermMark) -> io::Result<()> {
    let fresh: PathBuf = path.with_extension("inprogress");
    let mut file = File::create(&fresh)?;
    writeln!(file, "term {} owner {} replica set {cluster}", mark.number, mark.owner)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_kept_for_its_replica_set() {
        let folder = tempfile::tempdir().unwrap();
        let (set, mark) = (Uuid::from_u128(7), TermMark { number: 5, owner: 2 });
        assert_eq!(read(folder.path(), set).unwrap(), TermMark::default());
        write(&folder.path().join(NAME), set, TermMark { number: 4, owner: 3 }).unwrap();
        write(&folder.path().join(NAME), set, mark).unwrap();
        assert_eq!(read(folder.path(), set).unwrap(), mark);
        assert_eq!(read(folder.path(), Uuid::from_u128(8)).unwrap(), TermMark::default());
        for text in ["", "term 5 owner 2", "term x owner 2 replica set 00000000-0000-0000-0000-000000000007"]
        {
            fs::write(folder.path().join(NAME), text).unwrap();
            assert!(read(folder.path(), set).unwrap_err().to_string().contains("remove the file"));
        }
    }
}
