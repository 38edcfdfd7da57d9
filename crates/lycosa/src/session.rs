//! One connection of a command, used from synchronous code.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use lycosa_client::{Array, ConnectOptions, Connection, Error, Response, TlsOptions, Value};
use lycosa_iproto::request::Body;
use tokio::runtime::Runtime;

use crate::arguments::{ClientArguments, ServerArguments, SessionArguments};
use crate::payload::hexadecimal;
use crate::{explain, folded};

/// The environment variable with the password.
pub(crate) const PASSWORD_VARIABLE: &str = "LYCOSA_PASSWORD";

/// Environment variables that hold passwords; the commands of a worker do not get them.
pub(crate) const SECRETS: [&str; 2] = [PASSWORD_VARIABLE, "LYCOSA_REPLICATION"];

/// Added to the wait of a call, for the way there and back.
const REPLY_MARGIN: Duration = Duration::from_secs(5);

/// The values of a reply.
pub(crate) type Values = Result<Vec<Value>, Error>;

/// A connected command.
pub(crate) struct Session {
    runtime: Runtime,
    connection: Connection,
    peer: Peer,
}

/// Where the server is.
enum Peer {
    /// As clients connect, and as which user.
    Client(Box<ConnectOptions>),
    /// The administrator's socket.
    Admin(PathBuf),
}

/// How long a server that has not answered is asked whether it waits for replicas.
const VOTE_LIMIT: Duration = Duration::from_secs(2);

/// The name under which a method of a tube is called.
pub(crate) fn method(tube: &str, method: &str) -> String {
    format!("queue.tube.{tube}:{method}")
}

/// A runtime for one command.
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// What the client needs to connect.
pub(crate) fn connect_options(arguments: &ClientArguments) -> anyhow::Result<ConnectOptions> {
    let timeout = arguments.request_timeout;
    let mut options: ConnectOptions = arguments.address.parse()?;
    // A long wait for a task notices a dead server as quickly as the user wants replies. Zero would mean never.
    options.keep_alive = options.keep_alive.min(timeout.max(Duration::from_secs(1)));
    let options = with_tls(options.connect_timeout(timeout).request_timeout(timeout), arguments)?;
    let Some(user) = &arguments.user else { return Ok(options) };
    let password = password_of(user, arguments.password_file.as_deref())?;
    Ok(options.credentials(user, password))
}

/// The password of a user who connects: out of the file, else of the environment.
pub(crate) fn password_of(user: &str, file: Option<&Path>) -> anyhow::Result<String> {
    given_password(file)?.with_context(|| {
        format!("--user {user} needs a password: set {PASSWORD_VARIABLE} or name a file with --password-file")
    })
}

/// The options with what the arguments say about TLS.
fn with_tls(options: ConnectOptions, arguments: &ClientArguments) -> anyhow::Result<ConnectOptions> {
    let ClientArguments { tls_ca, tls_certificate, tls_key, tls_server_name, address, .. } = arguments;
    if options.tls.is_none() {
        // A certificate may be the server's, in an environment that the command shares.
        anyhow::ensure!(
            tls_ca.is_none() && tls_server_name.is_none(),
            "{address} would be connected to without TLS, yet --tls-ca or --tls-server-name is given: \
             write --address tls://{address}"
        );
        return Ok(options);
    }
    anyhow::ensure!(
        tls_ca.is_some(),
        "{address} needs --tls-ca FILE: the certificates to trust, as PEM. For a self-signed server it is the \
         server's own certificate"
    );
    let identity = match (tls_certificate, tls_key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        (Some(_), None) => anyhow::bail!("--tls-certificate needs --tls-key FILE: its private key"),
        (None, Some(_)) => anyhow::bail!("--tls-key needs --tls-certificate FILE: the key's certificate"),
    };
    Ok(options.tls(TlsOptions { ca: tls_ca.clone(), identity, server_name: tls_server_name.clone() }))
}

/// The password in the first line of the file, else of the environment.
pub(crate) fn given_password(file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let Some(file) = file else { return Ok(std::env::var(PASSWORD_VARIABLE).ok()) };
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the password from {}", file.display()))?;
    Ok(Some(text.lines().next().unwrap_or_default().to_owned()))
}

/// A password that is typed on the terminal.
pub(crate) fn typed_password(prompt: &str) -> anyhow::Result<String> {
    write!(io::stderr(), "{prompt}: ")?;
    io::stderr().flush()?;
    Ok(rpassword::read_password()?)
}

impl Session {
    /// Connects to the server that the arguments name.
    pub(crate) fn open(arguments: &ClientArguments) -> anyhow::Result<Session> {
        Session::connect(&connect_options(arguments)?)
    }

    /// The same, in the queue session that the arguments name.
    pub(crate) fn open_joined(client: &ClientArguments, session: &SessionArguments) -> anyhow::Result<Self> {
        let opened = Session::open(client)?;
        let Some(hex) = &session.session else { return Ok(opened) };
        let uuid =
            parse_hex(hex).with_context(|| format!("--session {hex}: expected 32 hexadecimal digits"))?;
        opened.call("queue.identify", vec![Value::Bin(uuid)])?;
        Ok(opened)
    }

    pub(crate) fn connect(options: &ConnectOptions) -> anyhow::Result<Session> {
        let runtime = runtime()?;
        let connection = runtime.block_on(Connection::connect(options)).map_err(explain::connect)?;
        Ok(Session { runtime, connection, peer: Peer::Client(Box::new(options.clone())) })
    }

    /// Connects as administrator, over the socket in the server's data folder.
    pub(crate) fn open_admin(data_dir: &Path) -> anyhow::Result<Session> {
        let runtime = runtime()?;
        let path = data_dir.join(lycosa_server::ADMIN_SOCKET);
        let connection = runtime.block_on(connect_admin(&path)).map_err(|error| match error {
            Error::Connect { .. } => anyhow::Error::new(error).context(format!(
                "no server with its data in {}; name its folder with --data-dir",
                data_dir.display()
            )),
            error => error.into(),
        })?;
        Ok(Session { runtime, connection, peer: Peer::Admin(path) })
    }

    /// Connects as administrator if the arguments name a data folder, else as their user.
    pub(crate) fn open_server(arguments: &ServerArguments) -> anyhow::Result<Session> {
        match &arguments.data_dir {
            Some(folder) => Session::open_admin(folder),
            None => Session::open(&arguments.client),
        }
    }

    /// Whether the queue runs. One that does not answers many calls with nothing.
    pub(crate) fn is_queue_running(&self) -> Result<bool, Error> {
        let state = self.call("queue.state", Vec::new())?;
        Ok(state.first().and_then(Value::as_str) == Some("RUNNING"))
    }

    /// The queue session of this connection as 32 hexadecimal digits.
    pub(crate) fn identify(&self) -> anyhow::Result<String> {
        let values = self.call("queue.identify", Vec::new())?;
        let uuid = values.first().and_then(Value::as_bytes).context("the server names no session")?;
        Ok(hexadecimal(uuid))
    }

    /// Waits for the reply to a call of `procedure`; its values.
    fn values(&self, procedure: &str, reply: impl Future<Output = Result<Response, Error>>) -> Values {
        let values = self.runtime.block_on(reply).and_then(|response| folded::values(&response));
        values.map_err(|error| self.explain(procedure, error))
    }

    /// Calls a function; its values.
    pub(crate) fn call(&self, name: &str, arguments: Vec<Value>) -> Values {
        self.values(name, self.connection.call(name, arguments))
    }

    /// Calls a function that returns one value. `missing` is the error if it returns none.
    pub(crate) fn ask(&self, name: &str, given: Vec<Value>, missing: &'static str) -> anyhow::Result<Value> {
        self.call(name, given)?.into_iter().next().context(missing)
    }

    /// Calls a function that returns one array.
    pub(crate) fn list(&self, name: &str, arguments: Vec<Value>) -> Values {
        match self.call(name, arguments)?.into_iter().next() {
            Some(Value::Array(items)) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    /// The names of the tubes that the user may see.
    pub(crate) fn tubes(&self) -> Result<Vec<String>, Error> {
        let tubes = self.list("queue.tube", Vec::new())?;
        Ok(tubes.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// `queue.statistics` of one tube or of all.
    pub(crate) fn statistics(&self, tube: Option<&str>) -> Values {
        let name = "queue.statistics";
        let reply = self.connection.call(name, tube.map(Value::from).into_iter().collect::<Vec<_>>());
        match tube {
            Some(tube) => self.values(&method(tube, "statistics"), reply),
            None => self.values(name, reply),
        }
    }

    /// An error of a call of `procedure` in words for a person.
    pub(crate) fn explain(&self, procedure: &str, error: Error) -> Error {
        if matches!(error, Error::Timeout(_)) {
            let longer = match self.peer {
                Peer::Client(_) => "; --request-timeout waits longer",
                Peer::Admin(_) => "",
            };
            let open = || format!("the server may still execute the request{longer}");
            let reason = self.runtime.block_on(self.missing_replicas()).unwrap_or_else(open);
            eprintln!("lycosa: {reason}");
        }
        self.runtime.block_on(explain::call(&self.connection, procedure, error))
    }

    /// Why no answer comes, if that is for want of replicas. Asked on a connection of its own: on this one the answer would
    /// come after the one that waits.
    async fn missing_replicas(&self) -> Option<String> {
        let asked = async {
            let connection = match &self.peer {
                Peer::Client(options) => Connection::connect(options).await.ok()?,
                Peer::Admin(path) => connect_admin(path).await.ok()?,
            };
            explain::missing_replicas(&connection).await
        };
        tokio::time::timeout(VOTE_LIMIT, asked).await.ok()?
    }

    /// Calls a function that may wait for `wait` before it answers; its values.
    pub(crate) fn call_waiting(&self, name: &str, arguments: Vec<Value>, wait: Duration) -> Values {
        let arguments = Array::from(arguments);
        let body = Body::Call { name: name.as_bytes(), args: arguments.as_bytes() };
        self.values(name, self.connection.request_within(&body, Some(wait + REPLY_MARGIN)))
    }

    /// Evaluates a text of Lua; its values.
    pub(crate) fn eval(&self, text: &str) -> Values {
        self.values("EVAL", self.connection.eval(text, ()))
    }

    /// The runtime and the connection, for commands that keep many calls under way.
    pub(crate) fn parts(&self) -> (&Runtime, &Connection) {
        (&self.runtime, &self.connection)
    }
}

async fn connect_admin(path: &Path) -> Result<Connection, Error> {
    let stream = tokio::net::UnixStream::connect(path)
        .await
        .map_err(|cause| Error::Connect { address: path.display().to_string(), cause })?;
    Connection::over(stream, &ConnectOptions::new(path.display().to_string())).await
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.replace('-', "");
    if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_hexadecimal() {
        assert_eq!(parse_hex("000102030405060708090a0b0c0d0eff").map(|bytes| bytes[15]), Some(255));
        assert_eq!(parse_hex("00010203-0405-0607-0809-0a0b0c0d0e0f").map(|bytes| bytes.len()), Some(16));
        assert_eq!(parse_hex("0001"), None);
        assert_eq!(parse_hex("zz0102030405060708090a0b0c0d0e0f"), None);
        assert_eq!(parse_hex("äöäöäöäöäöäöäöäö"), None);
    }
}
