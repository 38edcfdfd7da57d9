//! What a web page, a client with another protocol, or another account of the machine may try at a door, and gets nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use libtest_mimic::Trial;

use crate::connection::{self, Connection, GREETING_SIZE, key, kind};
use crate::server::{Peer, Server, Setup};
use crate::value::{self, Value};

const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Result<Vec<Trial>, String> {
    let trial = |name: &str, run: fn() -> Result<(), String>| {
        Trial::test(format!("hostile::{name}"), move || run().map_err(Into::into))
    };
    Ok(vec![
        trial("a-web-page-cannot-drive-the-queue", a_web_page_cannot_drive_the_queue),
        trial("every-http-method-is-answered-in-http", every_http_method_is_answered_in_http),
        trial("tls-on-a-plain-port-is-closed-and-logged", tls_on_a_plain_port_is_closed_and_logged),
        trial("strangers-cannot-fill-the-log", strangers_cannot_fill_the_log),
        trial("half-requests-have-one-bound", half_requests_have_one_bound),
        trial("files-are-the-server-s-alone", files_are_the_server_s_alone),
        trial("a-frame-full-of-values-is-answered", a_frame_full_of_values_is_answered),
        trial("options-of-a-tube-are-not-compared-pairwise", options_of_a_tube_are_not_compared_pairwise),
    ])
}

fn start() -> Result<Server, String> {
    Server::start(Peer::Lycosa, Setup::default())
}

fn call(connection: &mut Connection, name: &str, arguments: Vec<Value>) -> Result<Value, String> {
    let reply = connection.ask(kind::CALL, &connection::call(name, arguments), LIMIT)?;
    if reply.error == 0 { Ok(reply.data()) } else { Err(reply.describe()) }
}

/// Sends the bytes piece by piece and returns the answer after the greeting until the server closes the connection.
fn exchange(server: &Server, pieces: &[&[u8]]) -> Result<Vec<u8>, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(server.address()).map_err(text)?;
    stream.set_read_timeout(Some(LIMIT)).map_err(text)?;
    let mut greeting = [0; GREETING_SIZE];
    stream.read_exact(&mut greeting).map_err(text)?;
    for piece in pieces {
        // The server may have closed the connection before the last piece.
        if stream.write_all(piece).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut received = Vec::new();
    stream.read_to_end(&mut received).map_err(|error| format!("the connection is not closed: {error}"))?;
    Ok(received)
}

fn expect_http(received: &[u8], sent: &str) -> Result<(), String> {
    let answer = String::from_utf8_lossy(received);
    if !answer.starts_with("HTTP/1.1 400 Bad Request\r\n")
        || !answer.contains("\r\nConnection: close\r\n")
        || !answer.contains("binary protocol")
    {
        return Err(format!("{sent:?} is answered by {answer:?}"));
    }
    Ok(())
}

/// A form of a page posts bytes of the binary protocol; none of them is taken for a request, after any first bytes.
fn a_web_page_cannot_drive_the_queue() -> Result<(), String> {
    let server = start()?;
    let mut client = Connection::open(server.address()).map_err(|error| error.to_string())?;
    call(&mut client, "queue.create_tube", vec![Value::str("mail"), Value::str("fifo")])?;
    call(&mut client, "queue.tube.mail:put", vec![Value::str("precious")])?;
    let truncate = value::encode(&connection::call("queue.tube.mail:truncate", Vec::new()));
    // Empty frames bring any reader of frames into step with what follows them.
    let payload = [vec![0; 256], connection::frame(kind::CALL, 1, &truncate).repeat(3)].concat();
    for method in ["POST", "PUT", "GET", "OPTIONS"] {
        let head = format!(
            "{method} / HTTP/1.1\r\nHost: {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
            server.address(),
            payload.len()
        );
        let at_once = [head.as_bytes(), &payload].concat();
        expect_http(&exchange(&server, &[&at_once])?, method)?;
        expect_http(&exchange(&server, &[head.as_bytes(), &payload])?, method)?;
    }
    let left = call(&mut client, "queue.statistics", vec![Value::str("mail")])?.to_string();
    if !left.contains("\"total\": 1") && !left.contains("total: 1") {
        return Err(format!("the page has changed the tube: {left}"));
    }
    Ok(())
}

fn every_http_method_is_answered_in_http() -> Result<(), String> {
    let server = start()?;
    let requests = [
        "GET / HTTP/1.1\r\n\r\n",
        "HEAD / HTTP/1.1\r\n\r\n",
        "POST /a HTTP/1.0\r\n\r\n",
        "PUT / HTTP/1.1\r\n\r\n",
        "DELETE / HTTP/1.1\r\n\r\n",
        "PATCH / HTTP/1.1\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\n\r\n",
        "PROPFIND / HTTP/1.1\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    for request in requests {
        let bytes = request.as_bytes();
        expect_http(&exchange(&server, &[bytes])?, request)?;
        // Cut in the middle, and after bytes that begin a frame.
        expect_http(&exchange(&server, &[&bytes[..1], &bytes[1..]])?, request)?;
        expect_http(&exchange(&server, &[&[&[0xce, 0x00][..], bytes].concat()])?, request)?;
    }
    // A connection that was a client's before is no better.
    let ping = connection::frame(kind::PING, 1, &[0x80]);
    let received = exchange(&server, &[&ping, requests[0].as_bytes()])?;
    let answer = received.windows(5).position(|window| window == b"HTTP/").unwrap_or(0);
    expect_http(&received[answer..], requests[0])
}

fn tls_on_a_plain_port_is_closed_and_logged() -> Result<(), String> {
    let server = start()?;
    let mut hello = vec![0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03];
    hello.resize(517, 0x5a);
    let received = exchange(&server, &[&hello])?;
    if !received.is_empty() {
        return Err(format!("TLS is answered by {received:x?}"));
    }
    expect_log(&server, "it began with TLS, and this port speaks plain text", 1)
}

fn strangers_cannot_fill_the_log() -> Result<(), String> {
    let server = start()?;
    for _ in 0..200 {
        let mut stream = TcpStream::connect(server.address()).map_err(|error| error.to_string())?;
        stream.write_all(&[0xc1; 64]).map_err(|error| error.to_string())?;
    }
    exchange(&server, &[&[0xc1; 64]])?;
    let text = "what no client of the binary protocol sends";
    expect_log(&server, text, 1)?;
    let lines = server.log().lines().filter(|line| line.contains(text)).count();
    // A slow machine takes more than one period for them.
    if (1..=100).contains(&lines) { Ok(()) } else { Err(format!("201 strangers made {lines} lines")) }
}

/// Clients that hold back the rest of a large request are closed when all of them hold too much, and no other client is.
fn half_requests_have_one_bound() -> Result<(), String> {
    const HELD: usize = 1_000_000;
    let options = vec![r#"max_frame_size = "1MiB""#.to_owned(), r#"max_input_total = "4MiB""#.to_owned()];
    let server = Server::start(Peer::Lycosa, Setup { options, ..Setup::default() })?;
    let open = || Connection::open(server.address()).map_err(|error| error.to_string());
    let mut honest = open()?;
    call(&mut honest, "queue.create_tube", vec![Value::str("t"), Value::str("fifo")])?;
    let body = value::encode(&connection::call("queue.tube.t:put", vec![Value::str(&"x".repeat(HELD))]));
    let request = connection::frame(kind::CALL, 1, &body);
    let mut attackers = Vec::new();
    for _ in 0..8 {
        let mut attacker = open()?;
        // The server may close it before all of it has arrived.
        let _ = attacker.write(&request[..request.len() - 1]);
        attackers.push(attacker);
    }
    expect_log(&server, "it held back the rest of a request", 1)?;
    let mut input = |key: &str| -> Result<i128, String> {
        let net = call(&mut honest, "box.stat.net", vec![])?;
        let under = |value: &Value, key: &str| match value {
            Value::Map(pairs) => {
                pairs.iter().find(|(k, _)| *k == Value::str(key)).map(|(_, found)| found.clone())
            }
            _ => None,
        };
        let first = net.as_array().and_then(|values| values.first().cloned());
        let input = first.and_then(|net| under(&under(&net, "INPUT")?, key)?.as_int());
        input.ok_or_else(|| format!("box.stat.net has no INPUT.{key}: {net}"))
    };
    let deadline = std::time::Instant::now() + LIMIT;
    while input("closed")? < 4 {
        if std::time::Instant::now() > deadline {
            return Err("fewer than four of eight were closed".to_owned());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let (current, limit) = (input("current")?, input("limit")?);
    if limit != 4 << 20 || current > limit {
        return Err(format!("{current} bytes of {limit} wait"));
    }
    // It has less than any of them, so it is not the one that is closed.
    call(&mut honest, "queue.tube.t:put", vec![Value::str(&"x".repeat(300_000))])?;
    Ok(())
}

/// MessagePack of `count` values, whose header has 32 bits: an array, or a map of half as many pairs.
fn many(first: u8, count: u32, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    bytes.extend_from_slice(&(if first == 0xdf { count / 2 } else { count }).to_be_bytes());
    bytes.extend(value.repeat(count as usize));
    bytes
}

/// A body of one key.
fn with_key(key: i128, value: &[u8]) -> Vec<u8> {
    [&[0x81, key as u8][..], value].concat()
}

/// Any request whose keys, arguments or tuples are a million values gets one answer, and so does a client beside it. The server
/// keeps nothing of them: its memory grows by a few frames at most, however many it has had.
fn a_frame_full_of_values_is_answered() -> Result<(), String> {
    const REQUEST: u32 = 1_000_000;
    /// Fewer for each function: there are many functions, and a debug build takes some 20 ns for a value.
    const CALL: u32 = 50_000;
    /// Bytes of memory that the whole test may add: four frames of the largest size, each read into a buffer that doubles.
    const GROWTH: u64 = 128 << 20;
    let server = start()?;
    let open = || Connection::open(server.address()).map_err(|error| error.to_string());
    let mut beside = open()?;
    for tube_type in ["fifo", "fifottl", "limfifottl", "utube", "utubettl"] {
        call(&mut beside, "queue.create_tube", vec![Value::str(tube_type), Value::str(tube_type)])?;
    }
    let before = peak_memory(&server)?;
    let values = |count: u32| {
        [
            many(0xdd, count, &[0xc0]),
            many(0xdd, count, &[0xa3, b'a', b'b', b'c']),
            many(0xdd, count, &[0x91, 0x01]),
            many(0xdf, count, &[0x01]),
            [vec![0x91; count as usize], vec![0xc0]].concat(),
        ]
    };
    let mut attempt = |what: &str, request: u32, body: &[u8]| -> Result<(), String> {
        // A connection of its own, because some requests change what a connection is.
        let mut client = open()?;
        let sync = client.send_raw(request, body).map_err(|error| format!("{what}: {error}"))?;
        let answer = client.reply(sync, std::time::Instant::now() + LIMIT);
        // A replica's requests are answered without a sync.
        if let Err(error) = answer
            && !(REPLICATION.contains(&request) && error.contains("no sync"))
        {
            return Err(format!("{what}, {} bytes: {error}", body.len()));
        }
        let reply = beside.ask(kind::PING, &Value::Map(Vec::new()), LIMIT)?;
        if reply.error == 0 { Ok(()) } else { Err(format!("after {what}: {}", reply.describe())) }
    };
    for value in &values(REQUEST) {
        for kind in (1..=14).chain(64..=73) {
            attempt(&format!("request {kind}"), kind, &with_key(0x7f, value))?;
            attempt(&format!("request {kind}, tuple"), kind, &with_key(key::TUPLE, value))?;
        }
    }
    let mut names = FUNCTIONS.map(str::to_owned).to_vec();
    for tube in ["fifottl", "utubettl", "absent"] {
        names.extend(METHODS.map(|method| format!("queue.tube.{tube}:{method}")));
    }
    let values = values(CALL);
    for name in &names {
        // A `take` that is given nil waits for a task.
        for value in &values[usize::from(name.ends_with(":take"))..4] {
            let is_array = value[0] == 0xdd;
            // As the arguments, as the only argument, and behind another one.
            let lists = [value.clone(), [&[0x91][..], value].concat(), [&[0x92, 0x01][..], value].concat()];
            for arguments in &lists[usize::from(!is_array)..] {
                let begin = [&[0x82, key::FUNCTION as u8][..], &value::encode(&Value::str(name))].concat();
                let body = [&begin, &[key::TUPLE as u8][..], arguments].concat();
                attempt(name, kind::CALL, &body)?;
            }
        }
    }
    let grown = peak_memory(&server)?.saturating_sub(before);
    if grown > GROWTH { Err(format!("the server's memory grew by {grown} bytes")) } else { Ok(()) }
}

/// A map of options is the third argument of `create_tube`: its work grows with the number of options, not with the square, so
/// the answer comes long before the limit.
fn options_of_a_tube_are_not_compared_pairwise() -> Result<(), String> {
    const OPTIONS: i128 = 400_000;
    let server = start()?;
    let mut client = Connection::open(server.address()).map_err(|error| error.to_string())?;
    let options =
        (0..OPTIONS).map(|number| (Value::str(&format!("k{number}")), Value::Int(number))).collect();
    let arguments = vec![Value::str("mail"), Value::str("fifo"), Value::Map(options)];
    let reply = client.ask(kind::CALL, &connection::call("queue.create_tube", arguments), LIMIT)?;
    if reply.error == 0 {
        return Err("the row of such a tube is larger than a tuple may be".to_owned());
    }
    let ping = client.ask(kind::PING, &Value::Map(Vec::new()), LIMIT)?;
    if ping.error == 0 { Ok(()) } else { Err(ping.describe()) }
}

const METHODS: [&str; 34] = [
    "put",
    "take",
    "touch",
    "ack",
    "release",
    "peek",
    "list",
    "recount",
    "status",
    "bury",
    "kick",
    "delete",
    "truncate",
    "release_all",
    "put_many",
    "take_many",
    "ack_many",
    "release_many",
    "bury_many",
    "kick_many",
    "delete_many",
    "grant",
    "grant_role",
    "pause",
    "resume",
    "explain",
    "find",
    "count",
    "apply",
    "job",
    "jobs",
    "control",
    "undo",
    "absent",
];

const FUNCTIONS: [&str; 16] = [
    "queue.create_tube",
    "queue.cfg",
    "queue.identify",
    "queue.state",
    "queue.statistics",
    "queue.tube",
    "queue.tubes",
    "queue.grant",
    "queue.audit",
    "queue.status",
    "queue.sessions",
    "box.info",
    "box.stat",
    "box.schema.user.create",
    "expiration.start",
    "expiration.statistics",
];

/// JOIN, SUBSCRIBE, FETCH_SNAPSHOT and REGISTER.
const REPLICATION: [u32; 4] = [65, 66, 69, 70];

/// Most memory that the server's process has had at a time, in bytes.
fn peak_memory(server: &Server) -> Result<u64, String> {
    let path = format!("/proc/{}/status", server.pid().ok_or("the server does not run")?);
    let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number =
        line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|number| number.parse::<u64>().ok());
    Ok(number.ok_or_else(|| format!("{path} has no VmHWM"))? << 10)
}

/// Other accounts of the machine can neither read a file of the data folder nor reach the administrator's socket.
fn files_are_the_server_s_alone() -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;

    let server = start()?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(server.data_folder()).map_err(|error| error.to_string())? {
        let entry = entry.map_err(|error| error.to_string())?;
        let mode = entry.metadata().map_err(|error| error.to_string())?.permissions().mode();
        let name = entry.file_name().to_string_lossy().into_owned();
        if mode & 0o077 != 0 {
            return Err(format!("{name} has mode {:o}", mode & 0o777));
        }
        names.push(name);
    }
    if !names.iter().any(|name| name.ends_with(".xlog")) || !names.contains(&"admin.sock".to_owned()) {
        return Err(format!("the data folder has {names:?}"));
    }
    // The harness made the folder with its own umask.
    expect_log(&server, "other accounts can enter the data folder", 1)
}

/// Waits until the log has lines with this text.
pub(crate) fn expect_log(server: &Server, text: &str, lines: usize) -> Result<(), String> {
    let deadline = std::time::Instant::now() + LIMIT;
    loop {
        let log = server.log();
        if log.lines().filter(|line| line.contains(text)).count() >= lines {
            return Ok(());
        }
        if std::time::Instant::now() > deadline {
            return Err(format!("{text:?} is not {lines} times in the log:\n{log}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
