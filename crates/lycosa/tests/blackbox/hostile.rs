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
        trial("random-requests-hold-no-turn", random_requests_hold_no_turn),
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
    expect_log(&server, "of its requests had not come as a whole", 1)?;
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

/// Requests of any kind and any sense, from several connections at once: no turn of the loop takes 50 ms of the processor, so no
/// client waits longer for the request of another. Lua programs have a budget of their own and are left out.
fn random_requests_hold_no_turn() -> Result<(), String> {
    const CONNECTIONS: u64 = 4;
    const ROUNDS: u64 = 12;
    /// Requests of a connection between two answers that are waited for.
    const AT_ONCE: u64 = 250;
    /// Tasks of each tube.
    const TASKS: i128 = 3_000;
    /// Microseconds of the processor.
    const TURN: i128 = 50_000;
    let server = start()?;
    let open = || Connection::open(server.address()).map_err(|error| error.to_string());
    let mut operator = open()?;
    for tube_type in TYPES {
        call(&mut operator, "queue.create_tube", vec![Value::str(tube_type), Value::str(tube_type)])?;
        let tasks = (0..TASKS).map(Value::Int).collect();
        call(&mut operator, &format!("queue.tube.{tube_type}:put_many"), vec![Value::Array(tasks)])?;
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut clients = (0..CONNECTIONS).map(|_| open()).collect::<Result<Vec<_>, _>>()?;
    for _ in 0..ROUNDS {
        let mut last = Vec::new();
        for client in &mut clients {
            client.cork();
            for _ in 0..AT_ONCE {
                let (kind, body) = random_request(&mut random);
                client.send(kind, &body).map_err(|error| error.to_string())?;
            }
            last.push(client.send(kind::PING, &Value::Map(Vec::new())).map_err(|error| error.to_string())?);
            client.uncork().map_err(|error| error.to_string())?;
        }
        for (client, sync) in clients.iter_mut().zip(last) {
            let answer = client.reply(sync, std::time::Instant::now() + LIMIT);
            answer.map_err(|error| format!("{error}\n{}", server.log()))?;
        }
    }
    let info = call(&mut operator, "box.info", Vec::new())?;
    let info = info.as_array().and_then(|values| values.first()).ok_or("box.info has no value")?;
    let turn = member(info, "longest_turn_cpu").ok_or("no longest turn")?;
    let held = member(turn, "cpu_us").and_then(Value::as_int).ok_or("no time of the processor")?;
    if held < TURN { Ok(()) } else { Err(format!("a turn took {held} µs of the processor: {turn}")) }
}

fn member<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let Value::Map(pairs) = map else { return None };
    pairs.iter().find(|(key, _)| *key == Value::str(name)).map(|(_, value)| value)
}

const TYPES: [&str; 5] = ["fifo", "fifottl", "limfifottl", "utube", "utubettl"];

/// Numbers that look random, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn pick<'a, T: ?Sized>(&mut self, among: &[&'a T]) -> &'a T {
        among[self.below(among.len())]
    }
}

/// A value as a client might send it in any place.
fn random_value(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth > 2 { 8 } else { 10 }) {
        0 => Value::Nil,
        1 => Value::Bool(true),
        2 => Value::Int(random.below(20) as i128),
        3 => Value::Int(i128::from(u64::MAX)),
        4 => Value::Int(-(random.below(1_000) as i128)),
        5 => {
            Value::str(random.pick(&["ready", "buried", "delete", "", "x", "all", "mail", "guest", "r", "t"]))
        }
        6 => Value::str(&"x".repeat(random.below(5_000))),
        7 => Value::Array(vec![Value::Int(random.below(100) as i128); random.below(200)]),
        8 => Value::Array((0..random.below(6)).map(|_| random_value(random, depth + 1)).collect()),
        _ => {
            let names = [
                "all", "state", "limit", "delay", "ttl", "utube", "pri", "field", "equals", "dry_run",
                "lease", "extended",
            ];
            let pair =
                |random: &mut Random| (Value::str(random.pick(&names)), random_value(random, depth + 1));
            Value::Map((0..random.below(5)).map(|_| pair(random)).collect())
        }
    }
}

fn random_request(random: &mut Random) -> (u32, Value) {
    let arguments = |random: &mut Random| (0..random.below(4)).map(|_| random_value(random, 0)).collect();
    let space = |random: &mut Random| {
        Value::Int([280, 281, 288, 289, 304, 305, 312, 320, 512 + random.below(8) as i128][random.below(9)])
    };
    match random.below(10) {
        0..4 => {
            let name = format!("queue.tube.{}:{}", random.pick(&TYPES), random.pick(&METHODS));
            // A take of no limit waits.
            let given = if name.contains(":take") {
                vec![Value::Int(random.below(2) as i128), Value::Int(0)]
            } else {
                arguments(random)
            };
            (kind::CALL, connection::call(&name, given))
        }
        4 => (kind::CALL, connection::call(random.pick(&FUNCTIONS), arguments(random))),
        5 | 6 => {
            let key = Value::Array(arguments(random));
            let pairs = [
                (key::SPACE, space(random)),
                (key::INDEX, Value::Int(random.below(3) as i128)),
                (key::LIMIT, Value::Int(i128::from(u32::MAX))),
                (key::OFFSET, Value::Int(random.below(3) as i128)),
                (key::ITERATOR, Value::Int(random.below(12) as i128)),
                (key::KEY, key),
            ];
            (kind::SELECT, connection::body(pairs))
        }
        7 => {
            let request =
                [kind::INSERT, kind::REPLACE, kind::UPDATE, kind::DELETE, kind::UPSERT][random.below(5)];
            let pairs = [
                (key::SPACE, space(random)),
                (key::INDEX, Value::Int(0)),
                (key::KEY, Value::Array(arguments(random))),
                (key::TUPLE, Value::Array(arguments(random))),
                (key::OPERATIONS, Value::Array(arguments(random))),
            ];
            (request, connection::body(pairs))
        }
        8 => {
            let columns =
                (0..random.below(400)).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
            let text = random.pick(&[
                "SELECT *",
                "SELECT",
                "VALUES",
                "SELECT count(*)",
                "EXPLAIN SELECT",
                "DELETE",
                "(",
            ]);
            let end = random.pick(&["FROM \"_space\"", "FROM fifo", "FROM \"_index\" ORDER BY 1, 2, 3", ""]);
            let statement = format!("{text} {columns} {end}");
            (
                kind::EXECUTE,
                connection::body([
                    (key::SQL_TEXT, Value::str(&statement)),
                    (key::SQL_BIND, Value::Array(arguments(random))),
                ]),
            )
        }
        _ => (kind::PING, Value::Map(Vec::new())),
    }
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
