//! Commands on files: export, import, backup, restore, cat, check.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::values::positive;

use super::{AdminArguments, ServerArguments};

pub(super) const EXPORT_EXAMPLES: &str = "\
Reading takes the right to read the tubes' spaces. On the server's machine --data-dir needs no rights.

Examples:
  lycosa export --data-dir /var/lib/lycosa -o tubes.jsonl     all tubes, with a progress bar
  lycosa export mail crawl --user boss > two-tubes.jsonl      two tubes, over the network
  lycosa export --data-dir data | lycosa import --address other:3301";

pub(super) const IMPORT_EXAMPLES: &str = "\
A line is a tube or a task; only `tube` and `data` are needed:
  {\"tube\": \"mail\", \"type\": \"fifottl\", \"options\": {\"ttl\": 86400}}
  {\"tube\": \"mail\", \"data\": {\"to\": \"ann\"}, \"pri\": 1, \"ttl\": 3600, \"delay\": 60}

Examples:
  lycosa import tubes.jsonl
  zcat tubes.jsonl.gz | lycosa import --address 127.0.0.1:3302";

pub(super) const CAT_EXAMPLES: &str = "\
Exit codes: 0 read to the end, a torn tail included; 65 damaged; 66 no such file; 74 disk error; 78 another version.

Examples:
  lycosa cat data/*.xlog                                  all changes
  lycosa cat data/00000000000000000277.xlog --space mail --type update,delete
  lycosa cat data/*.snap --json --space _user | jq .tuple
  lycosa cat data/00000000000000000277.xlog --follow      changes as they come, until Ctrl-C
  lycosa cat data/*.grouplog                              entries, votes and truncations of a group's member";

pub(super) const CHECK_EXAMPLES: &str = "\
Takes no lock and changes nothing: beside a running server its last rows may still be on the way. Two folders with
the same digest hold the same data.

Exit codes: 0 all is sound; 65 damaged; 66 files are missing; 74 disk error; 78 of another instance or version.

Examples:
  lycosa check /var/lib/lycosa
  lycosa check backup --json | jq -r 'select(.digest).digest'";

pub(super) const BACKUP_EXAMPLES: &str = "\
The copy is verified before it gets its name: each checksum, each row. FOLDER must not exist, or be empty. A server may
run on the data folder or not; it is not held up. --checkpoint makes the copy small, and takes the server's disk.
The copy of a member of a group is that of a single server: `lycosa cluster init` on the restored folder begins a new group.

Examples:
  lycosa backup /backup/mon --data-dir /var/lib/lycosa
  lycosa backup \"/backup/$(date +%F)\" --checkpoint && rsync -a /backup/ elsewhere:/backup/
  lycosa check /backup/mon                               look at it again later";

pub(super) const RESTORE_EXAMPLES: &str = "\
The data folder must not exist, or be empty: stop the server and move its folder away first. Tasks that were taken are
ready again, so work that was done after the backup is done twice.

Examples:
  lycosa restore /backup/mon --data-dir /var/lib/lycosa && lycosa serve --data-dir /var/lib/lycosa
  sudo -u lycosa lycosa restore /backup/mon --data-dir /var/lib/lycosa     as the account of the server";

#[derive(Debug, Args)]
pub(crate) struct BackupArguments {
    /// Folder to make
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// Write a snapshot first, so that few xlogs are left to copy; the server must run
    #[arg(long)]
    pub(crate) checkpoint: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArguments,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// Folder that `lycosa backup` made, or any copy of a data folder
    #[arg(value_name = "FOLDER")]
    pub(crate) backup: PathBuf,
    /// The data folder to make
    #[arg(long, value_name = "DIR", env = "LYCOSA_DATA_DIR")]
    pub(crate) data_dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// Tubes; all of them if none is named
    pub(crate) tubes: Vec<String>,
    /// File to write; standard output if absent
    #[arg(long, short = 'o', value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// File to read; standard input if absent
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

/// What a row does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowType {
    /// Adds a tuple
    Insert,
    /// Puts a tuple in the place of another
    Replace,
    /// Changes a tuple
    Update,
    /// Removes a tuple
    Delete,
    /// Adds or changes a tuple
    Upsert,
    /// Nothing
    Nop,
    /// Makes synchronous rows final
    Confirm,
    /// Makes synchronous rows void
    Rollback,
    /// Something that this version does not know
    Unknown,
}

#[derive(Debug, Args)]
pub(crate) struct CatArguments {
    /// Files, in any state: .xlog, .snap, .grouplog, .group, .inprogress, .corrupted
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Only rows of this space, by number or name; may be repeated
    #[arg(long, short = 's', value_name = "SPACE")]
    pub(crate) space: Vec<String>,
    /// Only rows from this LSN on
    #[arg(long, value_name = "LSN")]
    pub(crate) from: Option<u64>,
    /// Only rows up to this LSN, which is included
    #[arg(long, value_name = "LSN")]
    pub(crate) to: Option<u64>,
    /// Only rows of these types
    #[arg(long = "type", short = 't', value_enum, value_delimiter = ',', value_name = "TYPE")]
    pub(crate) types: Vec<RowType>,
    /// End after COUNT rows
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = positive, allow_negative_numbers = true)]
    pub(crate) limit: Option<u64>,
    /// Print the text header of each file first
    #[arg(long)]
    pub(crate) header: bool,
    /// Wait for more rows, in this file and in those after it, until Ctrl-C
    #[arg(long)]
    pub(crate) follow: bool,
    /// Go on after damage, with the next block that is sound
    #[arg(long)]
    pub(crate) force: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// The data folder
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Also say what a Tarantool 2.6 would refuse of it; exit code 78 if there is anything
    #[arg(long)]
    pub(crate) for_tarantool: bool,
    /// Count the tasks of the server that runs on the folder again, and compare: nothing else is checked
    ///
    /// The server goes on meanwhile. Needs the administrator's socket, on the server's machine.
    #[arg(long, conflicts_with = "for_tarantool")]
    pub(crate) recount: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}
