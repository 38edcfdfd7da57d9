//! Files that are right, files that are not, and the error texts about them.

use super::*;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("test-files").join(name)
}

fn identity(certificate: &str, key: &str) -> Identity {
    Identity { certificate: file(certificate), key: file(key) }
}

/// A whole handshake in memory; what each end says of it.
fn handshake(
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    name: &str,
) -> Result<(), (Option<String>, Option<String>)> {
    let mut server = rustls::ServerConnection::new(server).expect("a server");
    let mut client =
        rustls::ClientConnection::new(client, server_name(name).expect("a name")).expect("a client");
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let (mut of_server, mut of_client) = (None, None);
    for _ in 0..8 {
        while client.wants_write() {
            client.write_tls(&mut to_server).expect("memory");
        }
        let mut rest = to_server.as_slice();
        while !rest.is_empty() && of_server.is_none() {
            server.read_tls(&mut rest).expect("memory");
            of_server = server.process_new_packets().err().map(|error| explain(&error));
        }
        to_server.clear();
        while server.wants_write() {
            server.write_tls(&mut to_client).expect("memory");
        }
        let mut rest = to_client.as_slice();
        while !rest.is_empty() && of_client.is_none() {
            client.read_tls(&mut rest).expect("memory");
            of_client = client.process_new_packets().err().map(|error| explain(&error));
        }
        to_client.clear();
    }
    match (of_server, of_client) {
        (None, None) if !server.is_handshaking() && !client.is_handshaking() => Ok(()),
        said => Err(said),
    }
}

fn serving(certificate: &str, key: &str) -> Arc<ServerConfig> {
    server(&identity(certificate, key), None).expect("a server")
}

fn trusting(ca: &str) -> Arc<ClientConfig> {
    client(&file(ca), None).expect("a client")
}

#[test]
fn a_client_trusts_the_authority_in_its_file_and_the_names_in_the_certificate() {
    for name in ["localhost:3301", "127.0.0.1", "[::1]:3301"] {
        handshake(serving("server.pem", "server.key"), trusting("ca.pem"), name).expect(name);
    }
    let (_, said) = handshake(serving("server.pem", "server.key"), trusting("stranger.pem"), "localhost")
        .expect_err("another authority");
    assert_eq!(said.as_deref(), Some("its certificate is not signed by an authority in the CA file"));
    let (_, said) = handshake(serving("elsewhere.pem", "elsewhere.key"), trusting("ca.pem"), "localhost")
        .expect_err("another name");
    assert_eq!(
        said.as_deref(),
        Some("its certificate is for another name: for queue.example, not for localhost")
    );
    handshake(serving("elsewhere.pem", "elsewhere.key"), trusting("ca.pem"), "queue.example:3301").unwrap();
}

#[test]
fn a_self_signed_server_is_trusted_by_its_own_certificate_alone() {
    handshake(serving("self.pem", "self.key"), trusting("self.pem"), "localhost").unwrap();
    let (of_server, of_client) = handshake(serving("self.pem", "self.key"), trusting("ca.pem"), "localhost")
        .expect_err("another file");
    let of_client = of_client.expect("a refusal");
    assert!(
        of_client.starts_with("its certificate is ") && of_client.contains(" in the CA file"),
        "{of_client}"
    );
    let of_server = of_server.expect("an alert");
    assert!(of_server.starts_with("it does not trust"), "{of_server}");
    handshake(serving("self.pem", "self.key"), trusting("self.pem"), "queue.example").expect_err("a name");
    handshake(serving("server.pem", "server.key"), trusting("self.pem"), "localhost").expect_err("a server");
}

/// A clock of TLS that stands at a second since the epoch.
#[derive(Debug)]
struct At(u64);

impl rustls::time_provider::TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0)))
    }
}

/// Beyond the dates of all certificates here, and before them.
const OUTSIDE: [u64; 2] = [100_000_000_000, 86_400];

fn client_at(at: u64, ca: &str, identity: Option<&Identity>) -> Arc<ClientConfig> {
    let mut config = Arc::unwrap_or_clone(client(&file(ca), identity).expect("a client"));
    config.time_provider = Arc::new(At(at));
    Arc::new(config)
}

#[test]
fn a_certificate_counts_while_it_is_valid_wherever_it_stands() {
    let refused = |server: Arc<ServerConfig>, client: Arc<ClientConfig>| {
        let (_, said) = handshake(server, client, "localhost").expect_err("its dates are over");
        said.expect("a refusal")
    };
    // A certificate of the CA file itself, and one that an authority of the file has signed.
    for (server, ca) in [("self", "self.pem"), ("server", "ca.pem")] {
        let serve = || serving(&format!("{server}.pem"), &format!("{server}.key"));
        handshake(serve(), client_at(1_900_000_000, ca, None), "localhost").expect("it is valid");
        for (at, wanted) in OUTSIDE.into_iter().zip(["has expired at 2", "is not valid before 20"]) {
            let said = refused(serve(), client_at(at, ca, None));
            assert!(said.contains(wanted), "{server} at {at}: {said}");
        }
    }
    let said = refused(serving("expired.pem", "expired.key"), trusting("expired.pem"));
    assert!(said.contains("has expired at 2020-01-31T00:00:00Z"), "{said}");
    let said = handshake(
        serving("expired.pem", "expired.key"),
        client_at(1_578_500_000, "expired.pem", None),
        "localhost",
    );
    assert_eq!(said, Ok(()), "in January 2020");
}

/// `rustls` reads the dates of a chain and not those of the authority that it ends at.
#[test]
fn an_authority_counts_while_it_is_valid() {
    let ring = provider();
    let now = |at: u64| UnixTime::since_unix_epoch(Duration::from_secs(at));
    let both = [file("ca.pem"), file("expired.pem")]
        .map(|path| pem::certificates("CA", &path).expect("a file"))
        .concat();
    let found = trust::Authorities::new(both, &ring).expect("two authorities");
    assert_eq!(
        found.valid_roots(now(1_900_000_000)).expect("one is valid").map(|roots| roots.len()),
        Some(1)
    );
    for at in OUTSIDE {
        assert!(found.valid_roots(now(at)).is_err(), "{at}");
    }
    let client = pem::certificates("certificate", &file("client.pem")).expect("a file");
    let ca =
        || trust::Authorities::new(pem::certificates("CA", &file("ca.pem")).expect("a file"), &ring).unwrap();
    let clients = trust::Clients::new(ca()).expect("an authority");
    let verify = |at: u64| {
        rustls::server::danger::ClientCertVerifier::verify_client_cert(&clients, &client[0], &[], now(at))
    };
    assert!(verify(1_900_000_000).is_ok());
    assert!(OUTSIDE.into_iter().all(|at| verify(at).is_err()));
}

#[test]
fn files_whose_dates_are_over_are_named() {
    let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let named =
        |name: &str, seconds: u64| out_of_date("certificate", &file(name), at(seconds)).expect("a file");
    assert_eq!(named("server.pem", 1_900_000_000), None);
    let said = named("expired.pem", 1_900_000_000).expect("it is over");
    assert!(said.contains("expired.pem") && said.ends_with("has expired at 2020-01-31T00:00:00Z"), "{said}");
    let said = named("expired.pem", 1_500_000_000).expect("it has not begun");
    assert!(said.ends_with("is not valid before 2020-01-01T00:00:00Z"), "{said}");
}

#[test]
fn a_server_that_names_an_authority_wants_a_client_of_it() {
    let strict = || server(&identity("server.pem", "server.key"), Some(&file("ca.pem"))).expect("a server");
    let as_client = |certificate: &str, key: &str| {
        client(&file("ca.pem"), Some(&identity(certificate, key))).expect("a client")
    };
    handshake(strict(), as_client("client.pem", "client.key"), "localhost").unwrap();
    let (said, _) = handshake(strict(), trusting("ca.pem"), "localhost").expect_err("no certificate");
    assert_eq!(said.as_deref(), Some("it presented no client certificate"));
    handshake(strict(), as_client("unknown.pem", "unknown.key"), "localhost").expect_err("a stranger");
}

#[test]
fn wrong_files_are_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let damaged = folder.path().join("damaged.pem");
    std::fs::write(&damaged, "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n").unwrap();
    let nonsense = folder.path().join("nonsense.pem");
    std::fs::write(&nonsense, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let missing = folder.path().join("missing.pem");
    let cases: &[(PathBuf, PathBuf, &[&str])] = &[
        (
            missing.clone(),
            file("server.key"),
            &["cannot read the certificate file", "missing.pem", "No such"],
        ),
        (file("server.pem"), missing, &["cannot read the key file", "missing.pem"]),
        (file("server.key"), file("server.pem"), &["server.key", "holds a private key", "exchanged"]),
        (file("server.pem"), file("ca.pem"), &["ca.pem", "holds a certificate", "exchanged"]),
        (file("server.pem"), file("client.key"), &["client.key", "does not belong to", "server.pem"]),
        (file("server.pem"), file("encrypted.key"), &["encrypted.key", "is encrypted", "openssl pkey"]),
        (file("server.der"), file("server.key"), &["server.der", "DER", "openssl x509"]),
        (empty.clone(), file("server.key"), &["empty.pem", "holds no certificate", "BEGIN CERTIFICATE"]),
        (file("server.pem"), empty, &["empty.pem", "holds no private key"]),
        (file("old.pem"), file("old.key"), &["old.pem", "has X.509 version 1", "-extfile"]),
        (damaged, file("server.key"), &["damaged.pem", "is damaged"]),
        (nonsense, file("server.key"), &["nonsense.pem", "is damaged"]),
    ];
    for (certificate, key, wanted) in cases {
        let identity = Identity { certificate: certificate.clone(), key: key.clone() };
        let message = server(&identity, None).expect_err("a wrong file").to_string();
        for part in *wanted {
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
    }
    let message = client(&file("server.key"), None).expect_err("no CA").to_string();
    assert!(message.contains("CA file") && message.contains("server.key"), "{message}");
}

#[test]
fn names_are_those_of_hosts() {
    for (address, wanted) in [
        ("queue.example:3301", "queue.example"),
        ("queue.example", "queue.example"),
        ("10.0.0.1:3301", "10.0.0.1"),
        ("[::1]:3301", "::1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
    ] {
        assert_eq!(server_name(address).expect(address).to_str(), wanted);
    }
    for address in ["", "a b:3301", "host_?:1"] {
        assert!(matches!(server_name(address), Err(TlsError::Name(_))), "{address}");
    }
}
