//! TLS from end to end: every command speaks it, errors name the fault of a wrong file or peer, SIGHUP changes the
//! certificate.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::addresses::free_address;
use crate::support::{LIMIT, Run, Server, command, finish, lycosa, wait_until};
use rustix::process::Signal;

fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/test-files");
    folder.join(name).to_str().unwrap().to_owned()
}

/// A server with a TLS port beside its plain one.
struct Encrypted {
    server: Server,
    address: String,
}

impl Encrypted {
    fn start(certificate: &str, key: &str, more: &[&str]) -> Self {
        let address = free_address().to_string();
        let mut flags = vec!["--listen-tls", &address, "--tls-certificate", certificate, "--tls-key", key];
        flags.extend(more);
        let server = Server::configured(&flags);
        Self { address: address.clone(), server }
    }

    fn standard() -> Self {
        Self::start(&file("server.pem"), &file("server.key"), &[])
    }

    /// Runs a command over TLS, with these flags about it.
    fn run(&self, tls: &[&str], arguments: &[&str]) -> Run {
        let mut command = self.server.command(arguments);
        command.env("LYCOSA_ADDRESS", format!("tls://{}", self.address)).args(tls);
        finish(command, "")
    }
}

#[test]
fn every_command_speaks_tls() {
    let encrypted = Encrypted::standard();
    let ca = file("ca.pem");
    let ok = |arguments: &[&str]| {
        let run = encrypted.run(&["--tls-ca", &ca], arguments);
        assert_eq!(run.code, 0, "{arguments:?}: {run:?}");
        run.stdout
    };
    ok(&["ping"]);
    ok(&["tube", "create", "mail"]);
    let long = "x".repeat(300_000);
    ok(&["put", "mail", "hello", &long[..90_000]]);
    assert!(ok(&["peek", "mail", "0"]).contains("hello"));
    assert!(ok(&["list", "mail"]).contains("hello"));
    assert!(ok(&["stats"]).contains("mail"));
    assert!(ok(&["peek", "mail", "1"]).contains(&long[..90_000]), "an answer of many records arrives whole");
    assert!(ok(&["take", "mail", "--ack"]).contains("hello"));
    let worked = encrypted.run(&[], &["work", "mail", "--until-empty", "0", "--tls-ca", &ca, "--", "cat"]);
    assert_eq!((worked.code, worked.stdout.len()), (0, 90_000), "{}", worked.stderr);
    let mut command = encrypted.server.command(&["ping"]);
    command.env("LYCOSA_ADDRESS", format!("tls://{}", encrypted.address)).env("LYCOSA_TLS_CA", &ca);
    assert_eq!(finish(command, "").code, 0, "the environment names the file too");
    for (connections, payload) in [("1", "100"), ("4", "70000")] {
        let address = format!("tls://{}", encrypted.address);
        let shape = ["--connections", connections, "--depth", "8", "--payload", payload];
        let length = ["--cycles", "100", "--warmup", "0"];
        let bench = ["bench", "--address", &address, "--json"];
        let measured = ok(&[&bench[..], &shape, &length].concat());
        let measured: serde_json::Value = serde_json::from_str(&measured).unwrap();
        assert!(measured["rounds"].as_u64().is_some_and(|rounds| rounds >= 100), "{measured}");
    }
    let untrusted = file("self.pem");
    let address = format!("tls://{}", encrypted.address);
    let refused = encrypted.run(&[], &["bench", "--address", &address, "--tls-ca", &untrusted]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert_eq!(encrypted.server.run(&["ping"]).code, 0, "the plain port serves beside it");
}

#[test]
fn a_client_says_whom_it_does_not_trust() {
    let encrypted = Encrypted::standard();
    let cases: &[(&[&str], &str)] = &[
        (&[], "needs --tls-ca FILE"),
        (&["--tls-ca", &file("stranger.pem")], "not signed by an authority in the CA file"),
        (&["--tls-ca", &file("server.key")], "holds a private key and no certificate"),
        (&["--tls-ca", "/nowhere/ca.pem"], "cannot read the CA file /nowhere/ca.pem"),
        (&["--tls-ca", &file("ca.pem"), "--tls-server-name", "queue.example"], "is for another name"),
        (&["--tls-ca", &file("ca.pem"), "--tls-certificate", &file("client.pem")], "needs --tls-key FILE"),
    ];
    for (flags, wanted) in cases {
        let run = encrypted.run(flags, &["ping"]);
        assert!(run.code != 0 && run.stderr.contains(wanted), "{flags:?}: {run:?}");
    }
    let run = encrypted.server.run(&["ping", "--tls-ca", &file("ca.pem")]);
    assert!(run.code != 0 && run.stderr.contains("write --address tls://"), "{run:?}");
    wait_until("the refusals are logged", || encrypted.server.log().contains("no TLS handshake"));
}

#[test]
fn a_server_may_want_client_certificates() {
    let encrypted =
        Encrypted::start(&file("server.pem"), &file("server.key"), &["--tls-client-ca", &file("ca.pem")]);
    let ca = file("ca.pem");
    let with = |name: &str| {
        let (certificate, key) = (file(&format!("{name}.pem")), file(&format!("{name}.key")));
        encrypted.run(&["--tls-ca", &ca, "--tls-certificate", &certificate, "--tls-key", &key], &["ping"])
    };
    assert_eq!(with("client").code, 0);
    let stranger = with("unknown");
    assert_eq!(stranger.code, 4, "{stranger:?}");
    let nobody = encrypted.run(&["--tls-ca", &ca], &["ping"]);
    assert!(nobody.code == 4 && nobody.stderr.contains("wants a client certificate"), "{nobody:?}");
    encrypted.server.expect_log("it presented no client certificate");
}

#[test]
fn sighup_reads_the_certificate_again_and_keeps_it_if_the_new_one_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("tls.pem"), folder.path().join("tls.key"));
    let install = |name: &str| {
        std::fs::copy(file(&format!("{name}.pem")), &certificate).unwrap();
        std::fs::copy(file(&format!("{name}.key")), &key).unwrap();
    };
    install("server");
    let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
    let encrypted = Encrypted::start(&text(&certificate), &text(&key), &[]);
    let trusts = |ca: &str| encrypted.run(&["--tls-ca", &file(ca)], &["ping"]).code == 0;
    assert!(trusts("ca.pem") && !trusts("self.pem"));
    install("self");
    encrypted.server.signal(Signal::HUP);
    wait_until("the new certificate is presented", || trusts("self.pem"));
    assert!(!trusts("ca.pem"));
    install("expired");
    encrypted.server.signal(Signal::HUP);
    encrypted.server.expect_log("holds a certificate that has expired at 2020-01-31T00:00:00Z");
    let refused = encrypted.run(&["--tls-ca", &file("expired.pem")], &["ping"]);
    assert!(refused.code == 4 && refused.stderr.contains("has expired at 2020-01-31"), "{refused:?}");
    install("self");
    encrypted.server.signal(Signal::HUP);
    wait_until("the certificate is renewed", || trusts("self.pem"));
    std::fs::write(&key, "no key").unwrap();
    encrypted.server.signal(Signal::HUP);
    encrypted.server.expect_log("the certificates stay as they are");
    assert!(trusts("self.pem"));
    encrypted.server.expect_log("holds no private key");
}

#[test]
fn a_server_with_wrong_files_does_not_start_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let listen = free_address().to_string();
    let cases: &[(&[&str], &str)] = &[
        (&[], "needs a certificate: name the files with tls.certificate and tls.key"),
        (&["--tls-certificate", &file("server.pem")], "tls.key is not"),
        (
            &["--tls-certificate", &file("server.pem"), "--tls-key", &file("client.key")],
            "client.key does not belong to the certificate",
        ),
        (
            &["--tls-certificate", "/nowhere.pem", "--tls-key", &file("client.key")],
            "cannot read the certificate file /nowhere.pem",
        ),
        (&["--tls-certificate", &file("server.pem"), "--tls-key", &file("encrypted.key")], "is encrypted"),
    ];
    for (flags, wanted) in cases {
        let mut arguments = vec!["serve", "--listen", "", "--listen-tls", &listen, "--data-dir"];
        arguments.push(data.to_str().unwrap());
        arguments.extend(*flags);
        let run = lycosa(&arguments);
        assert!(run.code != 0 && run.stderr.contains(wanted), "{flags:?}: {run:?}");
    }
    let run = lycosa(&["serve", "--listen", "", "--data-dir", data.to_str().unwrap()]);
    assert!(run.code != 0 && run.stderr.contains("there is no address to listen on"), "{run:?}");
}

/// What a peer reads until the connection ends.
fn read_all(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut bytes = Vec::new();
    // A reset is an end as well.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn who_speaks_otherwise_is_told_and_logged() {
    let encrypted = Encrypted::standard();
    let send = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(&encrypted.address).unwrap();
        stream.write_all(bytes).unwrap();
        read_all(stream)
    };
    assert!(send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 400 Bad Request\r\n"));
    let ping = [0xce, 0, 0, 0, 6, 0x82, 0, 0x40, 1, 1, 0x80];
    assert!(send(&ping).starts_with("Lycosa: this port speaks TLS"));
    // Who only looks whether the port is open.
    drop(TcpStream::connect(&encrypted.address).unwrap());
    send(&[0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5]);
    // A client that waits for a greeting in plain text.
    assert!(
        read_all(TcpStream::connect(&encrypted.address).unwrap()).starts_with("Lycosa: this port speaks TLS")
    );
    let mut command = encrypted.server.command(&["ping"]);
    command.env("LYCOSA_ADDRESS", &encrypted.address);
    let plain = finish(command, "");
    assert!(plain.code == 4 && plain.stderr.contains("this port speaks TLS"), "{plain:?}");
    let mut command = encrypted.server.command(&["ping", "--tls-ca", &file("ca.pem")]);
    command.env("LYCOSA_ADDRESS", format!("tls://{}", encrypted.server.address));
    let over_plain = finish(command, "");
    assert!(over_plain.code == 4 && over_plain.stderr.contains("does not speak TLS"), "{over_plain:?}");
    for wanted in [
        "it sent an HTTP request to a port for TLS",
        "it sent something else than TLS",
        "it began no TLS",
        "no TLS handshake",
        "it began with TLS, and this port speaks plain text",
    ] {
        encrypted.server.expect_log(wanted);
    }
    let log = encrypted.server.log();
    let closed = log.matches(" closed: ").count();
    assert_eq!(closed, 6, "a look at the port is not logged: {log}");
    assert_eq!(encrypted.run(&["--tls-ca", &file("ca.pem")], &["ping"]).code, 0);
}

#[test]
fn listening_for_other_machines_in_plain_text_is_said() {
    let warning = "can be reached from other machines without encryption";
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let port = free_address().to_string().rsplit_once(':').unwrap().1.to_owned();
    let mut serve = command();
    serve.args(["serve", "--listen", &format!("0.0.0.0:{port}"), "--data-dir"]).arg(folder.path());
    let mut child = serve.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    let said = || std::fs::read_to_string(&log).unwrap();
    wait_until("the server is ready", || said().contains("ready: listening on"));
    wait_until("the server warns", || said().contains(warning));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!Server::start().log().contains(warning));
}

#[test]
fn a_replica_follows_over_tls() {
    let master = Encrypted::standard();
    let mut add = master.server.command(&["user", "add", "repl", "--role", "replication"]);
    add.env("LYCOSA_PASSWORD", "secret");
    assert_eq!(finish(add, "").code, 0);
    master.server.ok(&["tube", "create", "mail"]);
    let uri = format!("tls://repl:secret@{}", master.address);
    let replica = Server::configured(&["--replication", &uri, "--tls-ca", &file("ca.pem")]);
    master.server.ok(&["put", "mail", "hello"]);
    wait_until("the task arrives", || replica.run(&["stats"]).stdout.contains("mail"));
    wait_until("the replica follows", || replica.log().contains("following instance"));
    assert!(!replica.log().contains("secret"));
    let mistrusting = lycosa(&[
        "serve",
        "--listen",
        &free_address().to_string(),
        "--data-dir",
        tempfile::tempdir().unwrap().path().to_str().unwrap(),
        "--replication",
        &uri,
        "--tls-ca",
        &file("stranger.pem"),
        "--replication-connect-timeout",
        "1",
    ]);
    assert!(mistrusting.code != 0, "{mistrusting:?}");
    assert!(mistrusting.stderr.contains("not signed by an authority in the CA file"), "{mistrusting:?}");
}

/// A web server over TLS that answers `hello` with the body of the request.
const WEB_SERVER: &str = "
import http.server, ssl, sys
class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_POST(self):
        body = b'hello ' + self.rfile.read(int(self.headers['Content-Length']))
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments): pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Answers)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(server.server_address[1], flush=True)
server.serve_forever()
";

/// [`WEB_SERVER`] with the certificate of this name.
struct Web {
    process: Child,
    port: u16,
}

impl Web {
    fn start(name: &str) -> Self {
        let files = [file(&format!("{name}.pem")), file(&format!("{name}.key"))];
        let mut command = Command::new("python3");
        let mut process = command
            .args(["-c", WEB_SERVER])
            .args(files)
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { process, port: line.trim().parse().unwrap() }
    }

    /// What a program's `http.client` gets for a POST of `size` bytes with these options.
    fn asked(&self, size: usize, options: &str) -> String {
        let program = format!(
            "local body = ('x'):rep({size}) \
             local url = 'https://127.0.0.1:{port}/' \
             local answer = require('http.client').post(url, body, {{timeout = 60, {options}}}) \
             print(answer.status, answer.body == 'hello ' .. body or answer.reason) os.exit()",
            port = self.port
        );
        lycosa(&["-e", &program]).stdout
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn programs_speak_https() {
    let web = Web::start("server");
    let trusting = |name: &str| format!("ca_file = '{}'", file(name));
    assert_eq!(web.asked(5, &trusting("ca.pem")), "200\ttrue\n");
    assert_eq!(web.asked(300_000, &trusting("ca.pem")), "200\ttrue\n", "a body of many records");
    assert_eq!(web.asked(5, "verify_peer = false"), "200\ttrue\n");
    let shown = web.asked(5, &trusting("stranger.pem"));
    assert!(shown.starts_with("495") && shown.contains("not signed by an authority"), "{shown}");
    let shown = web.asked(5, "ca_file = '/nowhere'");
    assert!(shown.starts_with("495") && shown.contains("cannot read the CA file /nowhere"), "{shown}");
    let elsewhere = Web::start("elsewhere");
    let shown = elsewhere.asked(5, &trusting("ca.pem"));
    assert!(shown.starts_with("495") && shown.contains("for another name"), "{shown}");
    assert_eq!(elsewhere.asked(5, &format!("{}, verify_host = 0", trusting("ca.pem"))), "200\ttrue\n");
}
