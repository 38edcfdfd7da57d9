//! Requests as bytes: a client that sends what a test wants, well-formed or not.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use serde_json::Value as Json;

use crate::support::{LIMIT, Server, finish};

/// A server with HTTP, and where that is.
pub(crate) struct Door {
    pub(crate) server: Server,
    pub(crate) address: String,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Status line and fields.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.head, String::from_utf8_lossy(&self.body)))
    }

    /// The end of the problem's type.
    pub(crate) fn problem(&self) -> String {
        assert!(self.head.contains("application/problem+json"), "{self:?}");
        let kind = self.json()["type"].as_str().unwrap().to_owned();
        kind.strip_prefix("urn:lycosa:problem:").unwrap().to_owned()
    }

    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Door {
    pub(crate) fn open(flags: &[&str]) -> Self {
        let all = [&["--http-listen", "127.0.0.1:0"], flags].concat();
        Self::of(Server::configured(&all))
    }

    /// The door of a server that was started with one.
    pub(crate) fn of(server: Server) -> Self {
        server.expect_log("HTTP on http://");
        let log = server.log();
        let address = log.lines().find_map(|line| line.split_once("HTTP on http://")).unwrap().1;
        let address = address.split([',', ' ']).next().unwrap().trim().to_owned();
        Self { server, address }
    }

    /// How many calls of `take` wait at this tube.
    pub(crate) fn waiting_takes(&self, token: &str, tube: &str) -> u64 {
        let status = self.ask(&format!("GET /v1/tubes/{tube}/status"), token, "", b"").json();
        status["waiting_takes"].as_u64().unwrap()
    }

    /// Makes a token; returns its secret.
    pub(crate) fn token(&self, name: &str, role: &str, tube: &str) -> String {
        let data = self.server.data.path().to_str().unwrap();
        let arguments = ["token", "add", name, "--role", role, "--tube", tube, "--data-dir", data];
        let run = finish(self.server.command(&arguments), "");
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout.trim().to_owned()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(&self.address)
    }

    /// Sends bytes on a new connection; returns all bytes until the server closes it.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        // The server may refuse before it has read everything.
        let _ = stream.write_all(bytes);
        read_all(&mut stream)
    }

    /// A request on a connection of its own, with a token unless that is empty, and other fields as lines.
    pub(crate) fn ask(&self, request: &str, token: &str, fields: &str, body: &[u8]) -> Answer {
        ask(&self.address, request, token, fields, body)
    }

    /// The same with a JSON body.
    pub(crate) fn ask_json(&self, request: &str, token: &str, body: &Json) -> Answer {
        self.ask(request, token, "Content-Type: application/json\r\n", body.to_string().as_bytes())
    }
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// A connection from this address of the machine.
pub(crate) fn connect_from(source: &str, address: &str) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{source}:0").parse().unwrap()).unwrap();
        socket.connect(address.parse().unwrap()).await.unwrap()
    });
    let stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// The bytes of a request, after which the connection ends.
pub(crate) fn request(address: &str, request: &str, token: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let authorization =
        if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    let head = format!(
        "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n{authorization}{fields}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// A request to the server at `address`, as [`Door::ask`].
pub(crate) fn ask(address: &str, line: &str, token: &str, fields: &str, body: &[u8]) -> Answer {
    let mut stream = connect(address);
    // The server may refuse before it has read everything.
    let _ = stream.write_all(&request(address, line, token, fields, body));
    let bytes = read_all(&mut stream);
    let mut answers = answers(&bytes);
    assert_eq!(answers.len(), 1, "{line}: {}", String::from_utf8_lossy(&bytes));
    answers.remove(0)
}

/// Reads until the server closes the connection.
pub(crate) fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        // Closed with bytes of ours unread.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => bytes,
        Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&bytes)),
    }
}

/// The answers in these bytes, each with its length.
pub(crate) fn answers(mut bytes: &[u8]) -> Vec<Answer> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head") + 4;
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, body: Vec::new() };
        let length = answer.field("content-length").map_or(0, |length| length.parse().unwrap());
        answer.body = bytes[end..end + length].to_vec();
        bytes = &bytes[end + length..];
        found.push(answer);
    }
    found
}
