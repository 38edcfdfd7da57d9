//! Lua programs under the built binary: what they print is what Tarantool prints; the tutorial's queue works.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn lycosa() -> &'static str {
    env!("CARGO_BIN_EXE_lycosa")
}

fn run(program: &str, script: &Path, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(program);
    command.arg(script).args(arguments).current_dir(folder.path()).stdin(std::process::Stdio::null());
    command.output().expect("the program runs")
}

fn has_tarantool() -> bool {
    Command::new("tarantool").arg("--version").output().is_ok()
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// The same program under both prints the same and ends the same.
fn compare(name: &str, arguments: &[&str]) {
    let script = programs().join(name);
    let ours = run(lycosa(), &script, arguments);
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ours.stderr).into_owned();
    assert!(ours.status.code().is_some(), "{errors}");
    if !has_tarantool() {
        return;
    }
    let theirs = run("tarantool", &script, arguments);
    let (ours_text, theirs_text) = (text(&ours), text(&theirs));
    let mut differences = Vec::new();
    for (number, (our, their)) in ours_text.lines().zip(theirs_text.lines()).enumerate() {
        if our != their {
            differences.push(format!("line {}\n  ours      {our}\n  tarantool {their}", number + 1));
        }
    }
    assert!(differences.is_empty(), "{}\n{errors}", differences.join("\n"));
    assert_eq!(ours_text.lines().count(), theirs_text.lines().count(), "{ours_text}\n{errors}");
    assert_eq!(ours.status.code(), theirs.status.code(), "{errors}");
}

#[test]
fn a_program_sees_the_box_that_it_knows() {
    compare("box.lua", &["one", "two"]);
}

/// A port that nobody listens on.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// The bytes of an answer that has to be one.
fn data(answer: Result<lycosa_client::Response, lycosa_client::Error>) -> Vec<u8> {
    answer.expect("an answer").data().to_vec()
}

/// A program that serves, ended by its own id.
struct Served(std::process::Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_program_s_own_queue_serves_clients() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let own = "local queue = {}\n\
               function queue.stats() return {own = box.space.kept:len()} end\n\
               function queue.put(x) return box.space.kept:insert{x} end\n\
               function queue.wait() require('fiber').sleep(0.01) return 'done' end\n\
               return queue\n";
    let init = format!(
        "box.cfg{{listen = '127.0.0.1:{port}'}}\n\
         box.schema.create_space('kept'):create_index('pk')\n\
         box.schema.user.grant('guest', 'super', nil, nil, {{if_not_exists = true}})\n\
         queue = require 'queue'\n\
         connected = 0\n\
         box.session.on_connect(function() connected = connected + 1 end)\n"
    );
    std::fs::write(folder.path().join("queue.lua"), own).expect("a file");
    std::fs::write(folder.path().join("init.lua"), init).expect("a file");
    let mut command = Command::new(lycosa());
    command.arg("init.lua").current_dir(folder.path()).stderr(std::process::Stdio::null());
    let _served = Served(command.spawn().expect("the program runs"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let address = format!("127.0.0.1:{port}");
        let mut connection = None;
        for _ in 0..200 {
            let options = lycosa_client::ConnectOptions::new(&address);
            if let Ok(found) = lycosa_client::Connection::connect(&options).await {
                connection = Some(found);
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let connection = connection.expect("the program listens");
        let mut stats = connection.call("queue.stats", ()).await;
        for _ in 0..200 {
            // It listens before the program's next line has defined the queue.
            if matches!(&stats, Ok(answer) if answer.data().ends_with(&[0]) && answer.data().len() > 6) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            stats = connection.call("queue.stats", ()).await;
        }
        let text = |answer| String::from_utf8_lossy(&data(answer)).into_owned();
        assert!(text(stats).contains("own"));
        let waited = connection.call("queue.wait", ()).await;
        assert!(text(waited).contains("done"));
        // Its triggers stand now, so that a new connection finds them.
        let options = lycosa_client::ConnectOptions::new(&address);
        let second = lycosa_client::Connection::connect(&options).await.expect("it listens");
        let counted = second.eval("return connected > 0", ()).await;
        assert_eq!(data(counted).last(), Some(&0xc3));
    });
}
