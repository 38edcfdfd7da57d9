//! `lycosa follow`: a server that joins a master as its read-only replica. A front over `lycosa serve`.
//!
//! `--shadow` runs such a server, in a process of its own, until it is in sync, and asks it what [`shadow`] asks of any
//! replica.

use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use lycosa_client::Value;
use lycosa_server::config::Config;
use rustix::process::{Pid, Signal, kill_process};

use crate::arguments::{FollowArguments, ServeArguments};
use crate::outcome::{Outcome, Usage};
use crate::peer::Peer;
use crate::role::info;
use crate::session::Session;
use crate::shadow;
use crate::values::{array_of, text_of};

/// Pause between two looks at the server.
const POLL: Duration = Duration::from_millis(50);

/// The setting with the master's address. In a variable of the environment the password is hidden from other accounts.
const REPLICATION: &str = "replication";
const REPLICATION_VARIABLE: &str = "LYCOSA_REPLICATION";
const READ_ONLY: &str = "read-only";

/// The arguments of `lycosa serve`; prints the next steps.
pub(crate) fn arguments(arguments: FollowArguments) -> anyhow::Result<ServeArguments> {
    let (peer, serve) = settings(&arguments.master, arguments.serve)?;
    announce(&peer, &serve);
    Ok(serve)
}

/// `--shadow`: the rehearsal of a server that follows the master, running already or for this.
pub(crate) fn rehearse(arguments: FollowArguments) -> anyhow::Result<Outcome> {
    let FollowArguments { master, horizon, json, serve, .. } = arguments;
    let (peer, serve) = settings(&master, serve)?;
    let config = Config::load(serve.file.as_deref(), std::env::vars(), &serve.flags)?;
    let data = config.data_dir.clone();
    if let Ok(session) = Session::open_admin(&data) {
        let info = info(&session)?;
        if !follows(&info, &peer) {
            bail!(
                "the server in {} does not follow {peer}: `box.info().masters` lists its masters",
                data.display()
            );
        }
        return shadow::run(&session, &info, horizon, json);
    }
    eprintln!(
        "lycosa: following {peer} until this server is in sync, for a rehearsal; its data stay in {}",
        data.display()
    );
    let mut server = Server::start(&serve)?;
    let (session, info) = loop {
        if let Some(status) = server.0.try_wait()? {
            bail!("the server that was to follow {peer} has ended ({status})");
        }
        if let Ok(session) = Session::open_admin(&data) {
            let info = info(&session)?;
            if text_of(&info, "status") == "running" {
                break (session, info);
            }
        }
        thread::sleep(POLL);
    };
    let told = shadow::run(&session, &info, horizon, json);
    drop(session);
    server.stop()?;
    told
}

/// Whether the server has `peer` for a master.
fn follows(info: &Value, peer: &Peer) -> bool {
    let is_peer = |master: &Value| text_of(master, "peer").rsplit('@').next() == Some(peer.address.as_str());
    array_of(info, "masters").iter().any(is_peer)
}

/// A server of this command, which ends with it.
struct Server(Child);

impl Server {
    fn start(serve: &ServeArguments) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program's own file is not known")?;
        let mut command = Command::new(program);
        command.arg("serve");
        if let Some(file) = &serve.file {
            command.arg("--config").arg(file);
        }
        for (flag, value) in &serve.flags {
            if flag == REPLICATION {
                command.env(REPLICATION_VARIABLE, value);
            } else {
                command.arg(format!("--{flag}={value}"));
            }
        }
        Ok(Self(command.spawn().context("cannot start the server")?))
    }

    fn stop(mut self) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.0), Signal::TERM).context("cannot stop the server")?;
        self.0.wait().context("the server's end")?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already where all went well.
        if let Ok(None) = self.0.try_wait() {
            let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
            let _ = self.0.wait();
        }
    }
}

/// The master, and what `lycosa serve` is to be given to follow it.
fn settings(master: &str, mut serve: ServeArguments) -> anyhow::Result<(Peer, ServeArguments)> {
    let own = |(flag, _): &&(String, String)| [REPLICATION, READ_ONLY].contains(&flag.as_str());
    if let Some((flag, _)) = serve.flags.iter().find(own) {
        bail!(Usage(format!(
            "--{flag} does not go with follow, which sets it: use `lycosa serve` with --replication and --read-only"
        )));
    }
    let peer = Peer::parse("MASTER", master)?;
    let password = peer.password(None)?;
    serve.flags.push((REPLICATION.to_owned(), peer.uri(&password)));
    serve.flags.push((READ_ONLY.to_owned(), "true".to_owned()));
    Ok((peer, serve))
}

/// The next steps.
fn announce(peer: &Peer, serve: &ServeArguments) {
    let flag = |name: &str, default: &str| {
        let given = serve.flags.iter().rev().find(|(flag, _)| flag == name);
        given.map_or_else(|| default.to_owned(), |(_, value)| value.clone())
    };
    let (data, listen) = (flag("data-dir", "data"), flag("listen", "127.0.0.1:3301"));
    eprintln!(
        "lycosa: following {peer} as a read-only replica: this server joins with all data, then receives every change, and \
         serves reads"
    );
    let here = if peer.is_guest() { listen } else { format!("{}@{listen}", peer.user) };
    eprintln!("lycosa: next: `lycosa compare {peer} {here}` tells whether both hold the same");
    eprintln!(
        "lycosa: `lycosa promote --data-dir {data} --shadow` tells what the first seconds as the master would do, without \
         doing it"
    );
    eprintln!(
        "lycosa: then: make {peer} read-only, and `lycosa promote --data-dir {data}` lets this server take writes; start \
         it with `lycosa serve` from then on"
    );
}
