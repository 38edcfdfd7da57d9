//! Errors of the server in words for a person: the fault, the wrong value, and the way out.
//!
//! Decides by [`Kind`], never by the server's text. Where a text names an internal (`Procedure … is not defined`,
//! `memtx_max_tuple_size`) it is replaced; else the server's text stands.

use lycosa_client::{Connection, Error, Kind, Value};
use lycosa_iproto::keys::ballot;
use lycosa_iproto::request::Body;
use lycosa_server::config::nearest;

use crate::{stats, values};

/// The tube in the name of a procedure, `queue.tube.NAME:METHOD`.
fn tube_of(procedure: &str) -> Option<&str> {
    Some(procedure.strip_prefix("queue.tube.")?.rsplit_once(':')?.0)
}

/// An error of a call of `procedure`, explained; asks the server for what the explanation needs.
pub(crate) async fn call(connection: &Connection, procedure: &str, error: Error) -> Error {
    let Some(kind) = error.kind() else { return error };
    let text = match (kind, tube_of(procedure)) {
        (Kind::NoSuchTube | Kind::NoSuchProcedure, Some(tube)) => match tubes(connection).await {
            Some(tubes) if tubes.iter().any(|name| name == tube) => {
                let Some(text) = lacking(&error) else { return error };
                text
            }
            tubes => {
                let text = missing_tube(tube, tubes.unwrap_or_default());
                return replaced(error, text, Kind::NoSuchTube);
            }
        },
        (Kind::MemoryLimit, _) => {
            let advice = "Work tasks off, or raise memory_limit in lycosa.toml and send the server SIGHUP";
            let limit = limit(connection, "memory_limit").await;
            format!("the server's memory for tasks is used up: {limit}. {advice}")
        }
        (Kind::TupleTooLarge, _) => {
            let advice = "Raise max_tuple_size, or store the payload elsewhere and put a reference to it";
            let limit = limit(connection, "max_tuple_size").await;
            format!("the task is larger than the server accepts: {limit}. {advice}")
        }
        (Kind::FrameTooLarge, _) => {
            let advice =
                "Use smaller batches, or raise max_frame_size and, for a single task, max_tuple_size";
            let limit = limit(connection, "max_frame_size").await;
            format!("the request is larger than the server accepts: {limit}. {advice}")
        }
        (Kind::ReadOnly, _) => read_only(connection, &error.to_string()).await,
        (Kind::NotTaken, _) => format!(
            "{error}: this session does not hold it. A task that was taken goes back when the connection ends; to \
             settle it later give the server a queue.ttr and pass --session HEX on (`lycosa take --help`)"
        ),
        (Kind::TubeInUse, Some(tube)) => format!(
            "tube \"{tube}\" is in use: tasks are taken or calls wait for tasks. Stop its workers first (`lycosa \
             list {tube} --state taken` shows which connections hold what)"
        ),
        (Kind::AccessDenied, tube) => {
            let user = told(connection, "box.session.user").await;
            let user = user.and_then(|user| user.as_str().map(str::to_owned));
            let user = user.or_else(|| user_in(&error.to_string())).unwrap_or("USER".to_owned());
            match tube.filter(|tube| !tube.is_empty()) {
                Some(tube) if user == "guest" => format!(
                    "{error}. --user NAME authenticates as a user; on the server's machine `lycosa user add NAME --tube {tube}` makes \
                     one that may"
                ),
                Some(tube) => format!(
                    "{error}. On the server's machine `lycosa user grant {user} --tube {tube}` allows it; --user NAME \
                     authenticates as another user"
                ),
                None => format!("{error}. --user NAME authenticates as another user"),
            }
        }
        _ => {
            let Some(text) = lacking(&error) else { return error };
            text
        }
    };
    replaced(error, text, kind)
}

/// What follows the name of an option that a server does not know.
const UNEXPECTED: &str = "unexpected option '";

/// The option that the server does not know. A command sends only options that its own version knows.
pub(crate) fn refused_option(error: &anyhow::Error) -> Option<&str> {
    let Error::Server { message, .. } = error.downcast_ref()? else { return None };
    Some(message.split_once(UNEXPECTED)?.1.split_once('\'')?.0)
}

/// What the server lacks, if that is why it refuses.
pub(crate) fn missing(error: &anyhow::Error) -> Option<String> {
    lacking(error.downcast_ref()?)
}

/// Says that the server has no such function or option: it is of an older version, or a Tarantool.
fn lacking(error: &Error) -> Option<String> {
    let Error::Server { message, kind, .. } = error else { return None };
    let named = |begin: &str| Some(message.split_once(begin)?.1.split_once('\'')?.0);
    let what = match (kind, named(UNEXPECTED), named("Procedure '")) {
        (_, Some(option), _) => format!("no option {option}"),
        (Kind::NoSuchProcedure, None, Some(name)) if is_own(name) => format!("no function {name}"),
        _ => return None,
    };
    Some(format!(
        "the server has {what}: it is older than this `lycosa`, or it runs the Lua module. Upgrade it, or use the `lycosa` of its \
         version"
    ))
}

/// Whether a function is one of Lycosa's.
fn is_own(name: &str) -> bool {
    ["queue.", "lycosa.", "expiration."].iter().any(|space| name.starts_with(space))
}

/// Says so if the server of this new connection waits for replicas before it replies. `None`: it does not, or says nothing.
pub(crate) async fn missing_replicas(connection: &Connection) -> Option<String> {
    let vote = vote(connection).await.ok()?;
    let (following, wanted) = replicas(&vote).filter(|(following, wanted)| wanted > following)?;
    Some(format!(
        "replies wait for replicas: replicas_before_reply is {wanted}, and {following} follow. What was asked may have been done; \
         its answer leaves when more of them follow. To go on without them, set replicas_before_reply to {following} and send the \
         server SIGHUP"
    ))
}

/// The answer to VOTE, which needs no rights.
pub(crate) async fn vote(connection: &Connection) -> Result<Value, Error> {
    connection.request(&Body::Vote).await?.first_value()
}

/// What a ballot says of replicas: how many follow, and how many each reply waits for.
pub(crate) fn replicas(vote: &Value) -> Option<(u64, u64)> {
    let number = |key: u8| in_ballot(vote, key).and_then(Value::as_u64);
    number(ballot::REPLICAS_FOLLOWING).zip(number(ballot::REPLICAS_BEFORE_REPLY))
}

/// A field of the answer to VOTE.
pub(crate) fn in_ballot(vote: &Value, key: u8) -> Option<&Value> {
    values::pairs(Some(vote))
        .iter()
        .find(|(known, _)| known.as_u64() == Some(key.into()))
        .map(|(_, value)| value)
}

/// The same error with another text and kind.
pub(crate) fn replaced(error: Error, text: String, kind: Kind) -> Error {
    match error {
        Error::Server { code, .. } => Error::Server { code, kind, message: text },
        error => error,
    }
}

/// Why a server takes no writes, and which one does, as far as this one knows.
async fn read_only(connection: &Connection, refusal: &str) -> String {
    const MASTER: &str = "server takes no writes; its master is ";
    if let Some((_, master)) = refusal.split_once(MASTER) {
        return format!(
            "this server takes no writes; its master is {master}: run the command there, or with --address {master}"
        );
    }
    let Some(info) = told(connection, "box.info").await else {
        return "this server takes no writes: `lycosa stats` says why, in the line `role`".to_owned();
    };
    let advice = match stats::leader(&info) {
        None => "",
        Some(0) => ": `lycosa cluster status` shows which members are not connected",
        Some(_) => ". Run the command on its machine: `lycosa cluster status` shows the address",
    };
    format!("this server {}{advice}", stats::role(&info))
}

/// The value that a function without arguments returns, if the user may call it.
async fn told(connection: &Connection, function: &str) -> Option<Value> {
    connection.call(function, ()).await.ok()?.first_value().ok()
}

/// Says that there is no such tube, and which one may have been meant.
pub(crate) fn missing_tube(tube: &str, tubes: Vec<String>) -> String {
    let advice = match nearest(tube, tubes.into_iter()) {
        Some(nearest) => format!("did you mean \"{nearest}\"?"),
        None => format!("`lycosa tube list` shows the tubes, `lycosa tube create {tube}` makes this one"),
    };
    format!("tube \"{tube}\" does not exist ({advice})")
}

/// The names of the tubes, if the server tells them.
async fn tubes(connection: &Connection) -> Option<Vec<String>> {
    let values = told(connection, "queue.tube").await?;
    Some(values.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// `memory_limit is 256 MiB` for a setting that is a size, or its name alone if the server does not tell.
async fn limit(connection: &Connection, setting: &str) -> String {
    let size = |value: &Value| match value.as_u64() {
        Some(size) => Some(values::bytes(size)),
        None => value.as_str().map(str::to_owned),
    };
    let settings = told(connection, "box.cfg").await;
    let size = settings.as_ref().and_then(|settings| size(settings.get(setting)?));
    size.map_or_else(|| setting.to_owned(), |size| format!("{setting} is {size}"))
}

/// The user in a refusal. Users without a grant on `box.session.user` may not ask.
fn user_in(refusal: &str) -> Option<String> {
    let (_, name) = refusal.rsplit_once(" is denied for user '")?;
    name.strip_suffix('\'').filter(|name| !name.is_empty()).map(str::to_owned)
}

/// An error of connecting, with what to do about it.
pub(crate) fn connect(error: Error) -> anyhow::Error {
    let advice = match (&error, error.kind()) {
        (Error::Connect { address, .. }, _) => {
            format!("{error}. Is a server running at {address}? `lycosa` starts one here")
        }
        (Error::Timeout(_), _) => format!(
            "no connection, {error}: the address is not reachable, the server hangs, or it is not a Lycosa or Tarantool \
             (HTTP and TLS wait for the client to begin: with TLS the address begins with tls://)"
        ),
        (_, Some(kind @ Kind::WrongCredentials)) => {
            let text = "wrong user or password (--user, LYCOSA_PASSWORD or --password-file)".to_owned();
            return replaced(error, text, kind).into();
        }
        _ => return error.into(),
    };
    anyhow::Error::new(error).context(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tube_is_named_with_the_nearest_one() {
        let tubes = || vec!["mail".to_owned(), "crawl".to_owned()];
        assert_eq!(missing_tube("mial", tubes()), "tube \"mial\" does not exist (did you mean \"mail\"?)");
        assert!(missing_tube("orders", tubes()).contains("`lycosa tube create orders`"));
        assert_eq!(tube_of("queue.tube.a:take"), Some("a"));
        assert_eq!(tube_of("queue.statistics"), None);
    }
}
