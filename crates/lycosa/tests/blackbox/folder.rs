//! What becomes of a server whose data folder or disk fails it: it says so, and its end is no success.
//!
//! The folder is removed, moved away or replaced under the running server, whose journal cannot be closed then; the disk is
//! full at the start; the first block of a file is damaged and the start is forced.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Completion, Trial};

use crate::connection::{self, Connection, Reply, kind};
use crate::server::{Peer, Server, Setup, may_mount, mount_disk};
use crate::value::Value;

const REPLY_LIMIT: Duration = Duration::from_secs(120);
/// For how long the server may take to notice. Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of the error with which a server refuses what it cannot keep.
const WAL_IO: u32 = 40;
/// Exit code of `sysexits.h` for a disk that does not read or write.
const EX_IOERR: i32 = 74;
const EX_DATAERR: i32 = 65;

pub(crate) fn trials() -> Result<Vec<Trial>, String> {
    let trial = |name: &str, run: fn() -> Result<(), String>| {
        Trial::test(format!("folder::{name}"), move || run().map_err(Into::into))
    };
    let on_disk = |name: &str, run: fn() -> Result<(), String>| {
        Trial::ignorable_test(format!("folder::{name}"), move || {
            if !may_mount() {
                return Ok(Completion::ignored_with("no right to mount a disk"));
            }
            run().map(|()| Completion::Completed).map_err(Into::into)
        })
    };
    Ok(vec![
        trial("removed", removed),
        trial("moved-away-and-back", moved),
        trial("replaced", replaced),
        trial("forced-over-a-damaged-first-block", forced),
        trial("forced-over-a-damaged-snapshot", forced_snapshot),
        on_disk("full-at-the-start", full_at_start),
    ])
}

fn ask(server: &Server, name: &str, arguments: Vec<Value>) -> Result<Reply, String> {
    let mut connection = Connection::open(server.address()).map_err(|error| error.to_string())?;
    connection.ask(kind::CALL, &connection::call(name, arguments), REPLY_LIMIT)
}

fn call(server: &Server, name: &str, arguments: Vec<Value>) -> Result<Value, String> {
    let reply = ask(server, name, arguments)?;
    if reply.error == 0 { Ok(reply.data()) } else { Err(format!("{name}: {}", reply.describe())) }
}

fn start() -> Result<Server, String> {
    let server = Server::start(Peer::Lycosa, Setup::default())?;
    call(&server, "queue.create_tube", vec![Value::str("t"), Value::str("fifo")])?;
    put(&server)?;
    Ok(server)
}

fn put(server: &Server) -> Result<(), String> {
    call(server, "queue.tube.t:put", vec![Value::str("x")]).map(drop)
}

fn wait_until(what: &str, mut holds: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while !holds()? {
        if Instant::now() > deadline {
            return Err(format!("never: {what}"));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Waits until puts are refused for that reason, then looks whether reading goes on.
fn refuses(server: &Server, reason: &str) -> Result<(), String> {
    wait_until("a put is refused", || {
        let reply = ask(server, "queue.tube.t:put", vec![Value::str("x")])?;
        match reply.error {
            0 => Ok(false),
            WAL_IO if reply.message().contains(reason) => Ok(true),
            _ => Err(reply.describe()),
        }
    })?;
    call(server, "queue.tube.t:peek", vec![Value::Int(0)])?;
    let status = call(server, "box.info", Vec::new())?.to_string();
    if !status.contains("failed") || !status.contains(reason) {
        return Err(format!("box.info does not say it: {status}"));
    }
    wait_until("a line in the log", || Ok(server.log().contains(reason)))
}

/// The end of a server that could not keep its data is an error.
fn ends_badly(server: &mut Server) -> Result<(), String> {
    let code = server.stop_for_code()?;
    let log = server.log();
    if code == Some(EX_IOERR) && log.contains("the journal was not closed cleanly") {
        return Ok(());
    }
    Err(format!("exit code {code:?}; its log:\n{log}"))
}

fn removed() -> Result<(), String> {
    let mut server = start()?;
    fs::remove_dir_all(server.data_folder()).map_err(|error| error.to_string())?;
    refuses(&server, "was removed")?;
    ends_badly(&mut server)?;
    if server.data_folder().exists() { Err("the folder is there again".to_owned()) } else { Ok(()) }
}

fn moved() -> Result<(), String> {
    let mut server = start()?;
    let elsewhere = server.data_folder().with_file_name("elsewhere");
    let rename = |from: &Path, to: &Path| fs::rename(from, to).map_err(|error| error.to_string());
    rename(&server.data_folder(), &elsewhere)?;
    refuses(&server, "was moved away")?;
    rename(&elsewhere, &server.data_folder())?;
    wait_until("a put is taken again", || {
        Ok(ask(&server, "queue.tube.t:put", vec![Value::str("x")])?.error == 0)
    })?;
    server.stop()?;
    server.launch()?;
    call(&server, "queue.tube.t:peek", vec![Value::Int(1)])?;
    server.stop()
}

/// Nothing is written into the other folder, and its socket stays.
fn replaced() -> Result<(), String> {
    let mut server = start()?;
    let folder = server.data_folder();
    fs::rename(&folder, folder.with_file_name("elsewhere")).map_err(|error| error.to_string())?;
    fs::create_dir(&folder).map_err(|error| error.to_string())?;
    fs::write(folder.join("admin.sock"), "somebody else's").map_err(|error| error.to_string())?;
    refuses(&server, "was replaced")?;
    // A snapshot goes where the journal is.
    call(&server, "box.snapshot", Vec::new())?;
    ends_badly(&mut server)?;
    let entries = fs::read_dir(&folder).map_err(|error| error.to_string())?;
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    if names == ["admin.sock"] { Ok(()) } else { Err(format!("the other folder holds {names:?}")) }
}

/// Runs a server that is expected to end without a signal.
fn serve(folder: &Path, options: &[&str]) -> Result<Output, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lycosa"));
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--http-listen", "", "--data-dir"])
        .arg(folder)
        .args(options);
    command.env("NO_COLOR", "1").output().map_err(|error| error.to_string())
}

fn flip(file: &Path, back: usize) -> Result<(), String> {
    let mut bytes = fs::read(file).map_err(|error| error.to_string())?;
    let text = bytes.windows(2).position(|two| two == b"\n\n").ok_or("no text header")?;
    bytes[text + back] ^= 0x20;
    fs::write(file, bytes).map_err(|error| error.to_string())
}

fn newest(folder: &Path, suffix: &str) -> Result<std::path::PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|error| error.to_string())?;
    let paths = entries.flatten().map(|entry| entry.path());
    let with_rows = |path: &std::path::PathBuf| fs::metadata(path).is_ok_and(|file| file.len() > 400);
    let mut files: Vec<_> =
        paths.filter(|path| path.to_string_lossy().ends_with(suffix)).filter(with_rows).collect();
    files.sort();
    files.pop().ok_or_else(|| format!("no {suffix}"))
}

/// The first block of the xlog makes a tube and is lost; another tube, made before, is served by a forced start.
fn forced() -> Result<(), String> {
    let setup = Setup { options: vec!["wal_compression = false".to_owned()], ..Setup::default() };
    let mut server = Server::start(Peer::Lycosa, setup)?;
    call(&server, "queue.create_tube", vec![Value::str("old"), Value::str("fifo")])?;
    call(&server, "queue.tube.old:put", vec![Value::str("kept")])?;
    call(&server, "box.snapshot", Vec::new())?;
    call(&server, "queue.create_tube", vec![Value::str("t"), Value::str("fifo")])?;
    (0..30).try_for_each(|_| put(&server))?;
    server.kill();
    let folder = server.data_folder();
    // Past the text header and the block's own.
    flip(&newest(&folder, ".xlog")?, 60)?;
    let strict = serve(&folder, &[])?;
    if strict.status.code() != Some(EX_DATAERR) {
        return Err(format!("a strict start: {strict:?}"));
    }
    server.force();
    server.launch()?;
    call(&server, "queue.tube.old:peek", vec![Value::Int(0)])?;
    put(&server).map_or(Ok(()), |()| Err("the tube is there".to_owned()))?;
    let log = server.log();
    if !log.contains("can't apply the transaction of LSN") || !log.contains("more transaction(s)") {
        return Err(format!("the log does not name what is lost:\n{log}"));
    }
    server.stop()
}

fn forced_snapshot() -> Result<(), String> {
    let mut server = start()?;
    server.stop()?;
    let folder = server.data_folder();
    flip(&newest(&folder, ".snap")?, 60)?;
    let forced = serve(&folder, &["--force-recovery"])?;
    let text = String::from_utf8_lossy(&forced.stderr);
    let advises = text.contains("put a sound copy back") && text.contains("lycosa cat");
    if forced.status.code() == Some(EX_DATAERR) && advises { Ok(()) } else { Err(format!("{forced:?}")) }
}

/// A new instance finds no space for its first snapshot.
fn full_at_start() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    mount_disk(folder.path(), 64 << 10)?;
    let filled = fs::write(folder.path().join("fill"), vec![0; 64 << 10]);
    let ended = serve(folder.path(), &[]);
    // The folder's removal says so if it is still there.
    let _ = Command::new("umount").arg(folder.path()).status();
    let ended = ended?;
    if ended.status.code() == Some(EX_IOERR) {
        return Ok(());
    }
    Err(format!("filled: {filled:?}; {ended:?}"))
}
