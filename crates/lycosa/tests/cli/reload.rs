//! A program beside a server is loaded again, by SIGHUP and by `lycosa reload`: connections, waiting takes, owned tasks and
//! delayed tasks stay; a program that fails leaves the former one running and says why.

use std::time::{Duration, Instant};

use crate::support::{LIMIT, Server};
use lycosa_client::{ConnectOptions, Connection, Value};
use rustix::process::Signal;

/// The program in its version `version`, which its function `version` tells.
fn program(version: u32) -> String {
    format!(
        "queue = require('queue')\n\
         box.schema.user.grant('guest', 'super', nil, nil, {{ if_not_exists = true }})\n\
         queue.create_tube('mail', 'fifottl', {{ if_not_exists = true }})\n\
         function version() return {version} end\n"
    )
}

async fn call(connection: &Connection, text: &str) -> Value {
    let answer = connection.eval(text, ()).await;
    let answer = answer.unwrap_or_else(|error| panic!("{text}: {error}"));
    answer.first_value().unwrap()
}

async fn version(connection: &Connection) -> Option<Value> {
    connection.call("version", ()).await.ok().map(|answer| answer.first_value().unwrap())
}

async fn wait_for_version(connection: &Connection, wanted: u64) {
    let begun = Instant::now();
    while version(connection).await != Some(Value::from(wanted)) {
        assert!(begun.elapsed() < LIMIT, "version {wanted} does not run");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn a_program_beside_a_server_is_loaded_again_and_nothing_is_lost() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(reload());
}

async fn reload() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("init.lua");
    std::fs::write(&file, program(1)).unwrap();
    let server = Server::configured(&["--app", file.to_str().unwrap()]);
    let options = ConnectOptions::new(&server.address);
    let consumer = Connection::connect(&options).await.unwrap();
    let waiting = Connection::connect(&options).await.unwrap();
    wait_for_version(&consumer, 1).await;

    call(&consumer, "return queue.tube.mail:put('owned')").await;
    let owned = call(&consumer, "return queue.tube.mail:take(0)[1]").await;
    call(&consumer, "return queue.tube.mail:put('delayed', {delay = 3600})").await;
    let take = tokio::spawn(async move { call(&waiting, "return queue.tube.mail:take(600)[3]").await });
    let begun = Instant::now();
    while call(&consumer, "return box.space._queue_consumers:len()").await == Value::from(0) {
        assert!(begun.elapsed() < LIMIT, "nobody waits");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    // By a signal, then by the command.
    std::fs::write(&file, program(2)).unwrap();
    server.signal(Signal::HUP);
    wait_for_version(&consumer, 2).await;
    std::fs::write(&file, program(3)).unwrap();
    server.ok(&["reload"]);
    wait_for_version(&consumer, 3).await;

    // One that fails, and one that is no Lua.
    std::fs::write(&file, "error('this version is broken')\n").unwrap();
    server.signal(Signal::HUP);
    server.expect_log("this version is broken");
    assert_eq!(version(&consumer).await, Some(Value::from(3)));
    std::fs::write(&file, "this is no Lua\n").unwrap();
    server.signal(Signal::HUP);
    server.expect_log("init.lua:1:");
    assert_eq!(version(&consumer).await, Some(Value::from(3)));

    let tasks = "local tasks = queue.statistics('mail').tasks return tasks.taken * 10 + tasks.delayed";
    assert_eq!(call(&consumer, tasks).await, Value::from(11), "nothing was released");
    call(&consumer, "return queue.tube.mail:put('awaited')").await;
    assert_eq!(take.await.unwrap(), Value::from("awaited"), "a waiting take gets the task");
    let acknowledged =
        consumer.eval("return queue.tube.mail:ack(...)", [owned]).await.expect("the owner stays");
    assert!(!acknowledged.is_empty());
}
