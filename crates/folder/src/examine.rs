//! Examination of a data folder: verifies every file, then loads the data as a start does.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Duration, Instant};

use lycosa_engine::inspect::{self, Contents, Judge, SqlKnowledge, Unsupported};
use lycosa_engine::replay::LoadError;
use lycosa_journal::decision::Category;
use lycosa_journal::directory::{Directory, DirectoryError};
use lycosa_journal::recovery::RecoveryError;

use crate::verify::{self, Fault, FileReport};

/// End of the names of the files in which a Tarantool keeps tuples of vinyl spaces.
const RUN_FILE: &str = "run";

/// How often the loading begins anew at most because a running server has removed a file that was to be read.
const MAX_LOADS: usize = 5;

/// Why a folder cannot be examined.
#[derive(Debug, thiserror::Error)]
pub enum ExamineError {
    /// It cannot be looked into.
    #[error(transparent)]
    Folder(#[from] DirectoryError),
    /// Its names cannot be read.
    #[error("the folder cannot be listed")]
    List(#[from] io::Error),
    /// It holds no journal file.
    #[error("there are neither snapshots nor xlogs in {0}")]
    Empty(String),
}

/// A stage of an examination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Files are verified.
    Verifying,
    /// Rows are loaded.
    Loading,
}

/// How far an examination is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The stage that goes on.
    pub stage: Stage,
    /// Bytes of files that were read in this stage.
    pub bytes_done: u64,
    /// Bytes of files to read in this stage.
    pub bytes_total: u64,
    /// Rows of this stage so far.
    pub rows: u64,
}

/// What became of loading the data.
#[derive(Debug)]
pub enum Loaded {
    /// A start would go on from this.
    Contents(Box<Contents>),
    /// A start would find no data.
    Nothing,
    /// A start would be refused.
    Refused(LoadError),
}

/// The findings about a folder.
#[derive(Debug)]
pub struct Examination {
    /// Each file, in the order of the history.
    pub files: Vec<FileReport>,
    /// The data.
    pub loaded: Loaded,
    /// What a Tarantool 2.6 would refuse, if that was asked.
    pub objections: Vec<String>,
    /// Faults of the folder as a whole: a refused start, tuples that are not read, objections.
    pub faults: Vec<Fault>,
    /// How long the verification took.
    pub verified_in: Duration,
    /// How long the loading took.
    pub loaded_in: Duration,
}

impl Examination {
    /// Rows of all files.
    #[must_use]
    pub fn verified_rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }

    /// The data, if a start would go on from them.
    #[must_use]
    pub fn contents(&self) -> Option<&Contents> {
        match &self.loaded {
            Loaded::Contents(contents) => Some(contents),
            Loaded::Nothing | Loaded::Refused(_) => None,
        }
    }

    /// Everything for which the folder is not sound, faults of files first.
    pub fn all_faults(&self) -> impl Iterator<Item = &Fault> {
        self.files.iter().flat_map(|file| &file.faults).chain(&self.faults)
    }

    /// What the folder suffers from most; `None` if it is sound. The refusal of a start comes before all else.
    #[must_use]
    pub fn category(&self) -> Option<Category> {
        match &self.loaded {
            Loaded::Refused(error) => Some(error.category()),
            Loaded::Contents(_) | Loaded::Nothing => self.all_faults().next().map(|fault| fault.category),
        }
    }
}

/// Examines a folder; with `for_tarantool` also by the rules of a Tarantool 2.6, and by the check constraints of the data.
///
/// # Errors
/// [`ExamineError`]. Faults of single files, or of the data, are findings.
pub fn examine(
    folder: &Path,
    for_tarantool: Option<SqlKnowledge>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Examination, ExamineError> {
    let directory = Directory::inspect(folder)?;
    let listing = directory.list()?;
    if listing.snapshots.is_empty() && listing.xlogs.is_empty() {
        return Err(ExamineError::Empty(folder.display().to_string()));
    }
    let names = directory.disk().list()?;
    let bytes_total = names.iter().filter_map(|name| directory.disk().open(name).ok()?.size().ok()).sum();
    let began = Instant::now();
    let files = verify::verify(&directory, listing, &mut |bytes_done, rows| {
        progress(Progress { stage: Stage::Verifying, bytes_done, bytes_total, rows });
    })?;
    let verified_in = began.elapsed();

    let began = Instant::now();
    let (loaded, objections) = load(&directory, for_tarantool, progress);
    let loaded_in = began.elapsed();
    let loaded = match loaded {
        Ok(Some(contents)) => Loaded::Contents(Box::new(contents)),
        Ok(None) => Loaded::Nothing,
        Err(error) => Loaded::Refused(error),
    };
    let faults = match &loaded {
        Loaded::Refused(error) => {
            vec![Fault { category: error.category(), text: format!("a start would be refused: {error}") }]
        }
        Loaded::Contents(contents) => {
            let unread = contents.unsupported.iter().filter_map(|found| unread_tuples(folder, found));
            let refused = objections.iter().map(|text| format!("a Tarantool refuses {text}"));
            unread.chain(refused).map(|text| Fault { category: Category::Foreign, text }).collect()
        }
        Loaded::Nothing => Vec::new(),
    };
    Ok(Examination { files, loaded, objections, faults, verified_in, loaded_in })
}

/// Loads the data, anew where a running server has removed a file meanwhile.
fn load(
    directory: &Directory,
    for_tarantool: Option<SqlKnowledge>,
    progress: &mut dyn FnMut(Progress),
) -> (Result<Option<Contents>, LoadError>, Vec<String>) {
    let mut show = |read: lycosa_journal::recovery::Progress| {
        let lycosa_journal::recovery::Progress { bytes_done, bytes_total, rows, .. } = read;
        progress(Progress { stage: Stage::Loading, bytes_done, bytes_total, rows });
    };
    let mut once = || {
        let Some(sql) = for_tarantool else {
            return (inspect::load(directory, &mut show), Vec::new());
        };
        let mut judge = Judge::knowing(sql);
        let loaded = inspect::judge(directory, &mut judge, &mut show);
        (loaded, judge.objections())
    };
    let mut last = once();
    for _ in 1..MAX_LOADS {
        if !matches!(&last.0, Err(error) if is_gone(error)) {
            break;
        }
        last = once();
    }
    last
}

/// Whether a file was removed between two looks at the folder, as a running server does with old ones.
fn is_gone(error: &LoadError) -> bool {
    matches!(error, LoadError::Recovery(RecoveryError::Io { cause, .. }) if cause.kind() == ErrorKind::NotFound)
}

/// Says how many files with tuples of a vinyl space there are below the folder, which nothing here reads.
fn unread_tuples(folder: &Path, found: &Unsupported) -> Option<String> {
    let Unsupported::Vinyl { id, space } = found else { return None };
    let files = run_files(&folder.join(id.to_string()));
    (files > 0).then(|| format!("{files} .run file(s) in {id}/ with tuples of space '{space}' are not read"))
}

/// How many files with tuples of a vinyl space there are below its folder: one folder for each index.
fn run_files(folder: &Path) -> usize {
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let indexes = entries(folder).map(|entry| entry.path());
    let files = indexes.flat_map(|index| entries(&index).map(|entry| entry.path()).collect::<Vec<_>>());
    files.filter(|file| file.extension().is_some_and(|extension| extension == RUN_FILE)).count()
}
