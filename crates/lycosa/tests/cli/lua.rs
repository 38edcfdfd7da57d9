//! Lua beside the configured server: who may use it, how it is switched off, and what cannot end the server.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::{Server, lycosa, wait_until};
use lycosa_client::{ConnectOptions, Connection, Value};

/// What a console at the server's port, whose user is `guest`, shows of a statement, or says instead.
fn as_guest(server: &Server, statement: &str) -> String {
    on_console(server, &server.address, statement)
}

fn on_console(server: &Server, address: &str, statement: &str) -> String {
    let run = server.run_with(&["console", address], &format!("{statement}\n"));
    run.stdout + &run.stderr
}

/// The same as `admin`.
fn as_admin(server: &Server, statement: &str) -> String {
    let socket = format!("unix://{}", server.data.path().join("admin.sock").display());
    on_console(server, &socket, statement)
}

#[test]
fn guest_runs_no_code_though_lua_is_on() {
    let server = Server::start();
    server.ok(&["tube", "create", "mail"]);
    for statement in ["1", "io.open('/etc/passwd'):read()", "os.execute('true')", "box.session.su('admin')"] {
        let shown = as_guest(&server, statement);
        assert!(shown.contains("Execute access to universe '' is denied for user 'guest'"), "{shown}");
    }
    // What guest may do without Lua it still may.
    server.ok(&["put", "mail", "x"]);
    // A function that an administrator has defined is not for every user.
    assert!(as_admin(&server, "rawset(_G, 'secret', function() return 7 end)").contains("..."));
    assert!(as_admin(&server, "secret()").contains("- 7"));
    assert!(as_guest(&server, "secret()").contains("is denied for user 'guest'"));
    assert!(as_admin(&server, "box.session.user()").contains("- admin"));
}

/// What a console that listens answers to bytes, until it closes the connection.
fn sent_to_console(port: u16, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut greeting = [0; 128];
    stream.read_exact(&mut greeting).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // Unread bytes reset the connection when it is closed.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_web_page_runs_nothing_in_a_console_that_listens() {
    let server = Server::start();
    let listen =
        "local s = require('console').listen('127.0.0.1:0') rawset(_G, 'door', s) return s:name().port";
    let shown = as_admin(&server, listen);
    let port: u16 = shown.lines().find_map(|line| line.strip_prefix("- ")?.parse().ok()).expect(&shown);
    let body = "rawset(_G, 'pwned', 1)\n".repeat(3);
    for head in [
        "POST / HTTP/1.1\r\nHost: x\r\n\r\n",
        "OPTIONS /a?b=1 HTTP/1.1\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\n",
        "post / http/1.1\r\n\r\n",
        "\r\nPOST / HTTP/1.1\r\n\r\n",
    ] {
        let answer = sent_to_console(port, format!("{head}{body}").as_bytes());
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}: {answer}");
    }
    let hello = [b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\n".as_slice(), body.as_bytes()].concat();
    assert_eq!(sent_to_console(port, &hello), "");
    // The beginning of a frame, cut by a byte that ends a line.
    assert_eq!(sent_to_console(port, &[b"\xce\n".as_slice(), body.as_bytes()].concat()), "");
    assert!(as_admin(&server, "rawget(_G, 'pwned')").contains("- null"));
    let answer = sent_to_console(port, b"rawset(_G, 'pwned', 2)\n\\quit\n");
    assert!(!answer.starts_with("HTTP"), "{answer}");
    assert!(as_admin(&server, "pwned").contains("- 2"), "text is run");
}

#[test]
fn nothing_of_lua_runs_where_it_is_off() {
    let server = Server::configured(&["--lua", "false"]);
    let shown = as_admin(&server, "1");
    assert!(shown.contains("this server runs no Lua"), "{shown}");
    server.ok(&["tube", "create", "mail"]);

    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let run = lycosa(&["serve", "--data-dir", data, "--lua", "false", "--app", "init.lua"]);
    assert_ne!(run.code, 0, "{run:?}");
    assert!(run.stderr.contains("lua = false, but app = \"init.lua\" is a Lua program"), "{run:?}");
}

#[test]
fn recursion_and_loops_without_end_leave_the_server_running() {
    let server = Server::configured(&["--lua-time-budget", "0"]);
    server.ok(&["tube", "create", "mail"]);
    let programs = [
        "local function f() string.gsub('a', 'a', f) end f()",
        "local function f() error(select(2, coroutine.resume(coroutine.create(f))), 0) end f()",
        "local function f() table.sort({2, 1}, f) end f()",
        "local t = setmetatable({}, {__serialize = function(t) return require('json').encode(t) end}) \
         return require('json').encode(t)",
    ];
    for program in programs {
        let shown = as_admin(&server, program);
        assert!(shown.contains("stack overflow"), "{program}: {shown}");
    }
    server.ok(&["put", "mail", "x"]);
    assert!(as_admin(&server, "1 + 1").contains("- 2"));

    let server = Server::configured(&["--lua-time-budget", "1"]);
    server.ok(&["tube", "create", "mail"]);
    let shown = as_admin(&server, "while true do end");
    assert!(shown.contains("this code ran for more than 1000 ms"), "{shown}");
    let shown = as_admin(&server, "local t = {} for i = 1, 1e9 do t[i] = {i} end");
    assert!(shown.contains("not enough memory") || shown.contains("without a pause"), "{shown}");
    server.ok(&["put", "mail", "x"]);
    assert!(as_admin(&server, "1 + 1").contains("- 2"));
}

#[test]
fn os_exit_ends_the_server_with_its_code() {
    let mut server = Server::start();
    server.ok(&["tube", "create", "mail"]);
    server.ok(&["put", "mail", "x"]);
    as_admin(&server, "os.exit(3)");
    assert_eq!(server.wait_for_end(), Some(3), "{}", server.log());
    server.expect_log("os.exit(3) in Lua: no new connections, finishing what is under way");
    // Every acknowledged task exists.
    let server = server.restart(&[]);
    assert!(server.ok(&["take", "mail"]).contains('x'));
}

#[test]
fn failing_triggers_and_fibers_cannot_fill_the_log() {
    let server = Server::start();
    as_admin(
        &server,
        "s = box.schema.space.create('s') s:create_index('pk') \
         rawset(_G, 'fail', function() error('no such luck') end) s:on_replace(function() end) \
         box.session.on_disconnect(fail)",
    );
    let shown = as_admin(
        &server,
        "for i = 1, 100 do box.begin() box.on_commit(fail) s:replace({i}) box.commit() \
         require('fiber').create(fail) end return s:len()",
    );
    assert!(shown.contains("- 100"), "{shown}");
    for _ in 0..20 {
        server.ok(&["ping"]);
    }
    wait_until("the counts are told", || {
        let log = server.log();
        log.contains("more triggers or callbacks failed") && log.contains("more fibers ended with an error")
    });
    let lines = server.log().lines().filter(|line| line.contains("no such luck")).count();
    // Ten of each kind in ten seconds; a busy machine may take several periods.
    assert!((20..200).contains(&lines), "{lines}");
}

/// While a hundred clients call a function that works for 5 ms, a native request waits for the running function, not for
/// the hundred that are ready; and each client has its turn. Functions are counted, not milliseconds: `slow` numbers its calls.
#[test]
fn a_native_request_waits_for_one_function_and_not_for_all_that_are_ready() {
    const CLIENTS: usize = 100;
    const SPACE: u32 = 700;
    let server = Server::configured(&["--wal-mode", "none"]);
    server.ok(&["tube", "create", "mail"]);
    let define = "local turns = box.schema.space.create('turns', {id = 700, temporary = true}) turns:create_index('pk') \
        turns:insert{1, 0} \
        rawset(_G, 'slow', function() local till = require('clock').monotonic() + 0.005 \
        while require('clock').monotonic() < till do end box.space.turns:update(1, {{'+', 2, 1}}) end) \
        box.schema.func.create('slow', {setuid = true}) \
        for _, right in ipairs{{'execute', 'function', 'slow'}, {'read', 'space', 'turns'}} do \
        box.schema.user.grant('guest', unpack(right)) end return 'defined'";
    let shown = as_admin(&server, define);
    assert!(shown.contains("defined"), "{shown}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = ConnectOptions::new(&server.address);
        let mut clients = tokio::task::JoinSet::new();
        let (called, calls) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..CLIENTS {
            let connection = Connection::connect(&options).await.unwrap();
            let called = called.clone();
            clients.spawn(async move {
                loop {
                    connection.call("slow", ()).await.unwrap();
                    called.send(number).unwrap();
                }
            });
        }
        let mut calls = calls;
        let native = Connection::connect(&options).await.unwrap();
        let turns = async || {
            let found = native.select(SPACE, 0, 0, [Value::from(1)], 0, 1).await.unwrap();
            let Value::Array(row) = found.first_value().unwrap() else { panic!("a row is an array") };
            row[1].as_u64().unwrap()
        };
        let mut waited = Vec::new();
        while turns().await < 2 * CLIENTS as u64 || waited.len() < 30 {
            let before = turns().await;
            native.call("queue.tube.mail:put", [Value::from("x")]).await.unwrap();
            waited.push(turns().await - before);
        }
        // The test itself may be slow to send its next request, and then more functions run between two of them.
        waited.sort_unstable();
        assert!(waited[waited.len() / 4] <= 3, "functions between two native requests: {waited:?}");
        let mut each = [0; CLIENTS];
        while each.contains(&0) {
            each[calls.recv().await.unwrap()] += 1;
        }
    });
}
