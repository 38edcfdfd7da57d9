//! Faults of a replica's disk: it is full, a sync fails, a file cannot be read; and a master's disk that cannot be read.
//!
//! In each case the replica stops or waits, and says so in its log and in `box.info()`; the master acknowledges as before. Once
//! the disk is mended, without help or after a restart or a new join, the replica has everything again.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use libtest_mimic::{Completion, Trial};

use super::Result;
use super::pair::{Client, compare, info, start_master, start_replica, start_replica_with, wait_for};
use crate::connection::{key, kind};
use crate::crash::disk::{ptrace_is_permitted, strace_is_installed, wait_traced};
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup, may_mount};
use crate::value::Value;

/// The replica's disk, and what of it is kept for the journal.
const DISK: u64 = 24 << 20;
const RESERVE: &str = "disk_reserve = \"8MiB\"";
/// Bytes that another program leaves free.
const LEFT: u64 = 6 << 20;

pub(super) fn trials() -> Vec<Trial> {
    let ignored = |reason: &str| Ok(Completion::ignored_with(reason.to_owned()));
    vec![
        Trial::ignorable_test("replication::disk-of-the-replica/full", move || match may_mount() {
            true => full().map(|()| Completion::Completed).map_err(Into::into),
            false => ignored("no right to mount a disk"),
        }),
        Trial::ignorable_test("replication::disk-of-the-replica/sync-fails", move || {
            if !strace_is_installed() || !ptrace_is_permitted()? {
                return ignored("no strace that may trace");
            }
            sync_fails().map(|()| Completion::Completed).map_err(Into::into)
        }),
        Trial::test("replication::disk-of-the-replica/unreadable", || Ok(unreadable()?)),
        Trial::test("replication::disk-of-the-master/reads-fail", || Ok(reads_fail()?)),
    ]
}

/// Puts tasks, each of which has to be acknowledged.
fn put(master: &Server, count: usize) -> Result<()> {
    let mut client = Client::open(master)?;
    for _ in 0..count {
        client.ask("queue.tube.jobs:put", vec![Value::str(&"task ".repeat(20))])?;
    }
    Ok(())
}

fn master_with_tube() -> Result<Server> {
    let master = start_master(Peer::Lycosa)?;
    Client::open(&master)?.ask("queue.create_tube", vec![Value::str("jobs"), Value::str("fifo")])?;
    put(&master, 50)?;
    Ok(master)
}

/// Waits until the replica tells of its master what a text says, while the master goes on. At the moment of the failure a
/// replica may answer with nothing but the failure.
fn wait_told(master: &Server, replica: &Server, text: &str) -> Result<()> {
    let told = || info(replica, "masters").map_or_else(|error| error, |masters| masters.to_string());
    let waited = wait_for(&format!("\"{text}\" in the replica's masters"), || {
        put(master, 5)?;
        Ok(told().contains(text) && info(replica, "masters").is_ok())
    });
    waited.map_err(|error| format!("{error}: {}; its log:\n{}", told(), replica.log()))
}

fn full() -> Result<()> {
    let master = master_with_tube()?;
    let uri = format!("admin:{}@{}", ADMIN_PASSWORD.replace(' ', "%20"), master.address());
    let options =
        [&format!("replication = \"{uri}\""), "replication_timeout = 0.2", "read_only = true", RESERVE];
    let setup = Setup {
        options: options.map(str::to_owned).into(),
        replicates: Some(uri.clone()),
        disk: Some(DISK),
        ..Setup::default()
    };
    let mut replica = Server::start(Peer::Lycosa, setup)?;
    compare(&master, &mut replica)?;

    // Another program fills the disk, but for a part of the reserve.
    let filler = replica.data_folder().join("filler");
    fs::write(&filler, vec![1_u8; (DISK - LEFT) as usize]).map_err(|error| error.to_string())?;
    wait_told(&master, &replica, "disk_reserve")?;
    if !replica.log().contains("trying again") {
        return Err(format!("the replica's log does not say why it waits:\n{}", replica.log()));
    }
    put(&master, 50)?;

    // It goes on without a restart.
    fs::remove_file(&filler).map_err(|error| error.to_string())?;
    compare(&master, &mut replica)
}

fn sync_fails() -> Result<()> {
    let master = master_with_tube()?;
    let mut replica = start_replica(Peer::Lycosa, &master)?;
    compare(&master, &mut replica)?;
    let pid = replica.pid().ok_or("the replica does not run")?;
    let mut saboteur = Command::new("strace")
        .args(["-f", "-qq", "-Y", "-e", "trace=fdatasync", "-e", "signal=none"])
        .args(["-e", "inject=fdatasync:error=EIO:when=2+", "-p", &pid.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let is_traced = wait_traced(pid, &mut saboteur);
    let failed = if is_traced { failed_sync(&master, &replica) } else { Err("no strace".to_owned()) };
    // It may have ended with the replica.
    let _ = saboteur.kill();
    let _ = saboteur.wait();
    failed?;

    // The rows that were not confirmed are asked for again after a restart.
    replica.kill();
    put(&master, 20)?;
    replica.launch()?;
    compare(&master, &mut replica)
}

fn failed_sync(master: &Server, replica: &Server) -> Result<()> {
    wait_told(master, replica, "takes no more rows")?;
    if info(replica, "status")? != Value::str("failed") {
        return Err("the replica does not say that it has failed".to_owned());
    }
    put(master, 50)?;
    let held = info(master, "replication")?.to_string();
    if !held.contains("\"behind\": ") {
        return Err(format!("the master does not tell how far the replica is behind: {held}"));
    }
    Ok(())
}

fn unreadable() -> Result<()> {
    let master = master_with_tube()?;
    let mut replica = start_replica_with(Peer::Lycosa, &master, Vec::new())?;
    compare(&master, &mut replica)?;
    replica.kill();
    put(&master, 20)?;
    let entries = fs::read_dir(replica.data_folder()).map_err(|error| error.to_string())?;
    let snapshot = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "snap"));
    let snapshot = snapshot.ok_or("the replica has no snapshot")?;
    let mut bytes = fs::read(&snapshot).map_err(|error| error.to_string())?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&snapshot, bytes).map_err(|error| error.to_string())?;

    // It does not serve unreadable data, and does not join over them without a command.
    if replica.launch().is_ok() {
        return Err(format!("a replica with a damaged snapshot has started; its log:\n{}", replica.log()));
    }
    let name = snapshot.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !replica.log().contains(&name) {
        return Err(format!("{name} is damaged, and the log does not name it:\n{}", replica.log()));
    }
    put(&master, 20)?;

    // As the guide says: the folder is moved away, and the instance joins anew.
    let number = info(&master, "replication")?;
    fs::remove_dir_all(replica.data_folder()).map_err(|error| error.to_string())?;
    fs::create_dir(replica.data_folder()).map_err(|error| error.to_string())?;
    replica.launch()?;
    compare(&master, &mut replica)?;
    let former = vec![(key::KEY, Value::Array(vec![Value::Int(2)]))];
    Client::open(&master)?.send(kind::DELETE, 320, former)?;
    if info(&master, "replication")? == number {
        return Err("the new replica has no number of its own".to_owned());
    }
    compare(&master, &mut replica)
}

const UNREADABLE: &str = "the data cannot be read for a replica";

/// Files of a server that cannot be read: each name leads to its process's memory, whose first page exists nowhere, so the
/// kernel answers a read there with EIO as for a bad sector.
struct BadFiles {
    /// The names, and where the files are meanwhile.
    files: Vec<(PathBuf, PathBuf)>,
}

impl BadFiles {
    /// Each snapshot and journal of a server.
    fn of(server: &Server) -> Result<Self> {
        let text = |error: std::io::Error| error.to_string();
        let mut files = Vec::new();
        for entry in fs::read_dir(server.data_folder()).map_err(text)? {
            let path = entry.map_err(text)?.path();
            let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
            if ["snap", "xlog"].contains(&extension) {
                let aside = path.with_extension(format!("{extension}.aside"));
                fs::rename(&path, &aside).map_err(text)?;
                symlink("/proc/self/mem", &path).map_err(text)?;
                files.push((path, aside));
            }
        }
        if files.len() < 2 { Err(format!("only {files:?} cannot be read")) } else { Ok(Self { files }) }
    }

    fn mend(self) -> Result<()> {
        let text = |error: std::io::Error| error.to_string();
        self.files.iter().try_for_each(|(path, aside)| fs::rename(aside, path)).map_err(text)
    }
}

/// The master's snapshots and journals cannot be read for a replica that joins, nor for one that was away. Each gets the reason,
/// and comes through once the disk works; the master takes tasks all the time.
fn reads_fail() -> Result<()> {
    let master = master_with_tube()?;
    let mut follower = start_replica(Peer::Lycosa, &master)?;
    compare(&master, &mut follower)?;
    follower.kill();
    // What it does not have is in no window, since there is no replica for which the master would keep one.
    wait_for("the end of the replica", || Ok(info(&master, "replication")?.to_string().contains("stopped")))?;
    put(&master, 50)?;
    let bad = BadFiles::of(&master)?;
    follower.launch()?;
    wait_told(&master, &follower, UNREADABLE)?;
    if !follower.log().contains("Input/output error") {
        return Err(format!("the replica's log does not name the cause:\n{}", follower.log()));
    }
    let joining = {
        let uri = format!("admin:{}@{}", ADMIN_PASSWORD.replace(' ', "%20"), master.address());
        let options = [
            &format!("replication = \"{uri}\""),
            "replication_timeout = 0.2",
            "read_only = true",
            "replication_connect_timeout = 300",
        ];
        let options = options.map(str::to_owned).into();
        let setup = Setup { options, replicates: Some(uri), ..Setup::default() };
        std::thread::spawn(move || Server::start(Peer::Lycosa, setup))
    };
    // The first one to join was the follower, which is refused all the time.
    wait_for("the refusal of the join", || {
        let log = master.log();
        let Some(joins) = log.lines().filter(|line| line.ends_with(" joins")).nth(1) else {
            return Ok(false);
        };
        let peer = joins.split("instance").next().and_then(|text| text.split("replica ").nth(1));
        let refusal = format!("{}{UNREADABLE}", peer.ok_or_else(|| format!("who joins here? {joins}"))?);
        Ok(log.contains(&refusal))
    })?;
    put(&master, 20)?;
    bad.mend()?;
    compare(&master, &mut follower)?;
    let mut joined = joining.join().map_err(|_| "the start of the new replica panicked")??;
    let log = joined.log();
    if !log.contains(UNREADABLE) || !log.contains("trying again") {
        return Err(format!("the new replica's log does not tell why it waited:\n{log}"));
    }
    put(&master, 20)?;
    compare(&master, &mut joined)
}
