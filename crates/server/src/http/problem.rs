//! Refusals in the form of RFC 9457: `application/problem+json` with a stable type.
//!
//! A problem's `type` is `urn:lycosa:problem:KIND`. Kinds, their statuses and titles stand in [`Kind`] alone, which
//! `docs/http.md` and the OpenAPI document list; `detail` is for people and may change.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use serde_json::json;

macro_rules! kinds {
    ($( $variant:ident = $name:literal, $status:ident, $title:literal; )*) => {
        /// Kinds of refusals.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Kind {
            $( #[doc = $title] $variant, )*
        }

        impl Kind {
            /// All kinds.
            pub(crate) const ALL: &[Kind] = &[$( Kind::$variant ),*];

            /// The end of the problem's type.
            pub(crate) fn name(self) -> &'static str {
                match self { $( Kind::$variant => $name, )* }
            }

            pub(crate) fn status(self) -> StatusCode {
                match self { $( Kind::$variant => StatusCode::$status, )* }
            }

            pub(crate) fn title(self) -> &'static str {
                match self { $( Kind::$variant => $title, )* }
            }
        }
    };
}

kinds! {
    Malformed = "malformed", BAD_REQUEST, "The request is malformed";
    Refused = "refused", BAD_REQUEST, "The queue refuses the arguments";
    NoToken = "no-token", UNAUTHORIZED, "A bearer token is needed";
    InvalidToken = "invalid-token", UNAUTHORIZED, "The token is unknown, revoked or expired";
    Forbidden = "forbidden", FORBIDDEN, "The token may not do this";
    CrossSite = "cross-site", FORBIDDEN, "The request comes from another web site";
    WrongHost = "wrong-host", MISDIRECTED_REQUEST, "The server is not reached under this name";
    NoSuchPath = "no-such-path", NOT_FOUND, "There is nothing at this path";
    NoSuchTube = "no-such-tube", NOT_FOUND, "The tube does not exist";
    NoSuchTask = "no-such-task", NOT_FOUND, "The task does not exist";
    NoSuchToken = "no-such-token", NOT_FOUND, "The token does not exist";
    NoSuchSession = "no-such-session", NOT_FOUND, "The connection has no session";
    WrongMethod = "wrong-method", METHOD_NOT_ALLOWED, "The path has no such method";
    TooSlow = "too-slow", REQUEST_TIMEOUT, "The request did not come in time";
    NotTaken = "not-taken", CONFLICT, "The task is not held by the caller";
    StaleLease = "stale-lease", CONFLICT, "The lease has ended";
    Conflict = "conflict", CONFLICT, "What exists stands against the request";
    TooLarge = "too-large", PAYLOAD_TOO_LARGE, "The body is too large";
    WrongType = "wrong-type", UNSUPPORTED_MEDIA_TYPE, "The body's type is not understood";
    OtherRequest = "other-request", UNPROCESSABLE_ENTITY, "The idempotency key was used for another request";
    Full = "full", TOO_MANY_REQUESTS, "A bound is met: try again later";
    Busy = "busy", TOO_MANY_REQUESTS, "Too many requests are on their way";
    ReadOnly = "read-only", SERVICE_UNAVAILABLE, "This server takes no writes";
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "The server cannot answer now";
    OutcomeUnknown = "outcome-unknown", GATEWAY_TIMEOUT, "Whether the request was done is not known";
}

impl Kind {
    /// The problem's type.
    pub(crate) fn urn(self) -> String {
        format!("urn:lycosa:problem:{}", self.name())
    }
}

/// A refusal.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    kind: Kind,
    detail: String,
    /// Seconds after which a try makes sense.
    retry_after: Option<u64>,
    /// The code of the binary protocol's error.
    code: Option<u32>,
    closes: bool,
}

impl Problem {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let retry_after = matches!(kind, Kind::Full | Kind::Busy).then_some(1);
        Self { kind, detail: detail.into(), retry_after, code: None, closes: false }
    }

    /// The same, with the seconds after which a try makes sense.
    #[must_use]
    pub(crate) fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// The same, after which the connection ends: what the client still sends is not read.
    #[must_use]
    pub(crate) fn closing(self) -> Self {
        Self { closes: true, ..self }
    }

    #[cfg(test)]
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// As a value: for the result of one item among several.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let mut shown = json!({
            "type": self.kind.urn(),
            "title": self.kind.title(),
            "status": self.kind.status().as_u16(),
            "detail": self.detail,
        });
        if let Some(code) = self.code {
            shown["code"] = code.into();
        }
        shown
    }
}

/// The problem for an error of the binary protocol.
impl From<ErrorObject> for Problem {
    fn from(error: ErrorObject) -> Self {
        let name = error.name();
        let is = |code: ErrorCode| error.code == u32::from(code);
        let kind = match name {
            Some("TOKEN_INVALID") => Kind::InvalidToken,
            Some("TOKEN_DENIED") => Kind::Forbidden,
            Some("NO_SUCH_TUBE") => Kind::NoSuchTube,
            Some("NO_SUCH_TASK") => Kind::NoSuchTask,
            Some("NO_SUCH_TOKEN") => Kind::NoSuchToken,
            Some("NO_SUCH_SESSION") => Kind::NoSuchSession,
            Some("TASK_NOT_TAKEN") => Kind::NotTaken,
            Some("OTHER_REQUEST") => Kind::OtherRequest,
            Some("STALE_LEASE") => Kind::StaleLease,
            Some("TASK_NOT_BURIED" | "TUBE_EXISTS" | "TUBE_IN_USE" | "TOKEN_EXISTS") => Kind::Conflict,
            Some("READ_ONLY") => Kind::ReadOnly,
            Some(lycosa_instance::OUTCOME_UNKNOWN) => Kind::OutcomeUnknown,
            Some(lycosa_instance::HANDING_OVER) => Kind::Unavailable,
            _ if is(ErrorCode::Readonly) => Kind::ReadOnly,
            _ if is(ErrorCode::AccessDenied) => Kind::Forbidden,
            _ if is(ErrorCode::MemoryIssue) => Kind::Full,
            _ if is(ErrorCode::WalIo) && error.message.contains("disk_reserve") => Kind::Full,
            _ if is(ErrorCode::WalIo) || is(ErrorCode::Loading) => Kind::Unavailable,
            _ if is(ErrorCode::SyncQuorumTimeout) => Kind::OutcomeUnknown,
            _ => Kind::Refused,
        };
        let is_memory = is(ErrorCode::MemoryIssue) && error.message.ends_with("for memtx_tuple");
        let memory =
            || "the server's memory for tasks is used up (memory_limit): tasks can still be finished";
        let detail = is_memory.then(memory).map(str::to_owned).or_else(|| missing_tube(&error.message));
        let detail = detail.unwrap_or(error.message);
        Self { code: Some(error.code), ..Self::new(kind, detail) }
    }
}

/// What an error says of a method of a tube that does not exist, in the words of this door, which has no methods.
fn missing_tube(message: &str) -> Option<String> {
    let (method, _) = message.strip_prefix("Procedure 'queue.tube.")?.split_once("' is not defined")?;
    let (tube, _) = method.rsplit_once(':')?;
    Some(format!("tube {tube:?} does not exist"))
}

/// The text of an error about JSON or a query, for clients that do not know the names of types in Rust.
pub(crate) fn reader_text(error: &str) -> String {
    const WORDS: [(&str, &str); 8] = [
        ("Failed to deserialize query string: ", ""),
        ("invalid float literal", "expected a number"),
        ("cannot parse float from empty string", "expected a number"),
        ("cannot parse integer from empty string", "expected a whole number, 0 or more"),
        ("invalid digit found in string", "expected a whole number, 0 or more"),
        ("number too large to fit in target type", "expected a whole number below 2^64"),
        ("expected u64", "expected a whole number, 0 or more"),
        ("expected f64", "expected a number"),
    ];
    WORDS.iter().fold(error.to_owned(), |text, (from, to)| text.replace(from, to))
}

impl IntoResponse for Problem {
    fn into_response(self) -> axum::response::Response {
        let body = self.to_json().to_string();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.kind.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.kind.status() == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"lycosa\""));
        }
        if self.closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
