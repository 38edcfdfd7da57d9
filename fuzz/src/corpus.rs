//! Inputs to begin with: the recorded bytes of `corpus/`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use lycosa_iproto::greeting::GREETING_SIZE;
use lycosa_iproto::request::{self, Body};
use lycosa_journal::disk::{Disk, LocalDisk};
use lycosa_journal::meta::FileKind;
use lycosa_journal::reader::{FileReader, Step};
use lycosa_tuple::value::Value;
use serde_json::Value as Json;

use crate::targets::{FILE, ROWS, update_seed};
use crate::world::{ADMIN, CHECKPOINT, GUEST, SECOND_GUEST, SYNC};

/// Longer inputs are left out: changes of them do little.
const MAX_SEED: usize = 16 << 10;

/// Bytes at the start of a file that are enough for its text header.
const HEADER_BYTES: usize = 300;

/// Folders of `corpus/files` whose journals are sound.
const FOLDERS: [&str; 5] = ["plain", "queue-single", "raw-bodies", "synchro", "corrupt/0-sound"];

/// A file or folder of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The data that the recorded sessions began with: a snapshot.
///
/// # Errors
/// The file cannot be read.
pub fn recorded_data() -> Result<Vec<u8>> {
    read(&repository("corpus/wire/data/00000000000000000225.snap"))
}

/// A snapshot of a new instance.
///
/// # Errors
/// The file cannot be read.
pub fn new_instance() -> Result<Vec<u8>> {
    read(&repository("corpus/files/empty/00000000000000000000.snap"))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

/// A frame of a recorded session.
struct Recorded {
    connection: i64,
    from_client: bool,
    /// The whole frame, its length included.
    bytes: Vec<u8>,
}

fn sessions() -> Result<Vec<Vec<Recorded>>> {
    let folder = repository("corpus/wire");
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".json") && name.starts_with(|first: char| first.is_ascii_digit()) {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| session(path)).collect()
}

fn session(path: &Path) -> Result<Vec<Recorded>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let json: Json = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let frames = json["frames"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(frames.iter().filter(|frame| frame.get("hex_cut_at").is_none()).filter_map(recorded).collect())
}

fn recorded(frame: &Json) -> Option<Recorded> {
    let bytes = hexadecimal(frame["hex"].as_str()?)?;
    let from_client = match frame["d"].as_str()? {
        ">" => true,
        "<" if bytes.len() != GREETING_SIZE => false,
        _ => return None,
    };
    Some(Recorded { connection: frame["c"].as_i64()?, from_client, bytes })
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Recorded frames, one at a time, and greetings.
pub(crate) fn frames() -> Result<Vec<Vec<u8>>> {
    let mut frames: Vec<_> = sessions()?.into_iter().flatten().map(|recorded| recorded.bytes).collect();
    let greeting = "Tarantool 2.6.0 (Binary) e9af5baf-c3a3-4d3d-b079-23966f11467e  \n\
                    zKrGEDjXByDu6P/3CSkDENIHSSYfqX6uEq/etuLg1kY=                   \n";
    frames.push(greeting.into());
    frames.sort();
    frames.dedup();
    frames.retain(|frame| frame.len() <= MAX_SEED);
    Ok(frames)
}

/// What the recorded clients sent, connection by connection, as steps of `admin` and of `guest`; and calls of the queue.
pub(crate) fn steps() -> Result<Vec<Vec<u8>>> {
    let mut seeds = calls();
    for session in sessions()? {
        let mut connections: Vec<_> = session.iter().map(|recorded| recorded.connection).collect();
        connections.sort_unstable();
        connections.dedup();
        for connection in connections {
            for who in [ADMIN, GUEST] {
                let mut input = Vec::new();
                let sent = session.iter().filter(|recorded| recorded.from_client);
                for recorded in sent.filter(|recorded| recorded.connection == connection) {
                    if input.len() + recorded.bytes.len() < MAX_SEED / 2 {
                        input.push(who | SYNC);
                        input.extend_from_slice(&recorded.bytes);
                    }
                }
                seeds.push(input);
            }
        }
    }
    Ok(seeds)
}

/// What one does with tubes of every type.
fn calls() -> Vec<Vec<u8>> {
    let options = |pairs: &[(&str, f64)]| Value::map(pairs.iter().copied());
    ["fifo", "fifottl", "limfifottl", "utube", "utubettl"]
        .map(|tube| {
            let mut input = Vec::new();
            let mut call = |who: u8, method: &str, args: &[Value]| {
                let name = format!("queue.tube.{tube}:{method}");
                let args = Value::from(args.to_vec()).encode();
                input.push(who);
                request::encode(&mut input, 1, &Body::Call { name: name.as_bytes(), args: &args });
            };
            let data = Value::from("data");
            call(GUEST, "put", &[data.clone(), options(&[("ttl", 9.0), ("ttr", 0.5), ("pri", 1.0)])]);
            call(GUEST, "put", &[data.clone(), options(&[("delay", 0.5), ("utube", 1.0)])]);
            call(GUEST | SYNC, "put", &[data.clone(), options(&[("timeout", 2.0)])]);
            call(ADMIN | CHECKPOINT, "kick", &[Value::from(0)]);
            call(SECOND_GUEST, "take", &[Value::from(0.1)]);
            call(SECOND_GUEST, "take", &[]);
            call(SECOND_GUEST, "take", &[Value::from(5)]);
            call(SECOND_GUEST, "touch", &[Value::from(0), Value::from(1.5)]);
            call(SECOND_GUEST, "release", &[Value::from(0), options(&[("delay", 1.0)])]);
            call(SECOND_GUEST | SYNC, "ack", &[Value::from(1)]);
            call(GUEST, "bury", &[Value::from(0)]);
            call(GUEST, "kick", &[Value::from(3)]);
            call(GUEST, "peek", &[Value::from(0)]);
            call(GUEST, "delete", &[Value::from(2)]);
            call(ADMIN, "release_all", &[]);
            call(ADMIN, "grant", &[Value::from("tester"), Value::map([("call", true), ("truncate", true)])]);
            call(ADMIN, "truncate", &[]);
            call(ADMIN | SYNC, "drop", &[]);
            input.push(ADMIN);
            request::encode(&mut input, 1, &Body::Call { name: b"box.snapshot", args: &[0x90] });
            input
        })
        .into()
}

/// Every journal file that is not too long, whole; and the rows of sound ones.
pub(crate) fn files() -> Result<Vec<Vec<u8>>> {
    let mut seeds = Vec::new();
    for path in journal_files(&repository("corpus/files"))? {
        let bytes = read(&path)?;
        if bytes.len() < MAX_SEED {
            seeds.push([&[FILE], bytes.as_slice()].concat());
        }
    }
    for rows in rows()? {
        seeds.push([&[ROWS], rows.as_slice()].concat());
    }
    Ok(seeds)
}

/// Text headers.
pub(crate) fn headers() -> Result<Vec<Vec<u8>>> {
    let mut headers = Vec::new();
    for path in journal_files(&repository("corpus/files"))? {
        let bytes = read(&path)?;
        headers.push(bytes[..bytes.len().min(HEADER_BYTES)].to_vec());
    }
    headers.sort();
    headers.dedup();
    Ok(headers)
}

fn journal_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            paths.extend(journal_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "xlog" || extension == "snap") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Rows of journals, back to back, each journal from its beginning.
pub(crate) fn rows() -> Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    for folder in FOLDERS {
        let path = repository("corpus/files").join(folder);
        let disk = LocalDisk::open(&path).with_context(|| path.display().to_string())?;
        for path in journal_files(&path)? {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let kind = if name.ends_with(".snap") { FileKind::Snapshot } else { FileKind::Xlog };
            let mut reader = FileReader::open(disk.open(name)?, kind)?;
            let mut rows = Vec::new();
            while let Step::Block(block) = reader.next_block()? {
                rows.extend_from_slice(block.rows);
                if rows.len() > MAX_SEED {
                    break;
                }
            }
            rows.truncate(MAX_SEED);
            all.push(rows);
        }
    }
    Ok(all)
}

/// Tuples with operations on them: recorded ones, and those whose outcome a real Tarantool was asked for.
pub(crate) fn updates() -> Result<Vec<Vec<u8>>> {
    let mut seeds = Vec::new();
    let golden = repository("crates/tuple/src/update/golden.txt");
    let text = fs::read_to_string(&golden).with_context(|| golden.display().to_string())?;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<_> = line.split(' ').collect();
        if let [mode, base, _, tuple, operations, ..] = words[..]
            && let (Some(tuple), Some(operations)) = (hexadecimal(tuple), hexadecimal(operations))
        {
            let (base, is_upsert) = (base.parse().unwrap_or(0), mode == "upsert");
            seeds.push(update_seed(base, is_upsert, &tuple, &operations));
        }
    }
    Ok(seeds)
}

/// The steps of a script that the tests of this crate run.
#[cfg(test)]
pub(crate) fn script(steps: &[(u8, Body<'_>)]) -> Vec<u8> {
    let mut input = Vec::new();
    for (control, body) in steps {
        input.push(*control);
        request::encode(&mut input, 1, body);
    }
    input
}
