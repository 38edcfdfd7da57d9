//! Routes: the path, the handler and the role of each.
//!
//! [`table::TABLE`] is the one list of routes: the router is made of it, and so is the OpenAPI document, so neither knows a path
//! that the other does not. Handlers turn a request into the call of a native function and its values into JSON; rights,
//! limits and everything durable are behind that call.

mod administer;
mod leases;
mod metrics;
mod overview;
mod probes;
mod steer;
pub(crate) mod table;
mod tasks;
mod token;
mod tubes;

use std::time::Duration;

use axum::body::{self as axum_body, Body};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use axum::middleware::Next;
use axum::response;
use axum::response::IntoResponse;
use axum::routing::MethodRouter;
use lycosa_instance::{Instance, TokenRole};
use lycosa_queue::QueueState;
use lycosa_tuple::mp::{self, Reader};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use super::access::Access;
use super::problem::{Kind, Problem, reader_text};
use super::readings::{self, Packed, Subject};
use super::{Peer, Shared, body, compression, etag, json};
use crate::clock::now;

/// A route: a method at a path.
pub(crate) struct Route {
    /// In small letters, as OpenAPI has it.
    pub(crate) method: &'static str,
    /// With parameters in braces.
    pub(crate) path: &'static str,
    /// Names the operation for generated clients.
    pub(crate) operation: &'static str,
    /// One line.
    pub(crate) summary: &'static str,
    /// The role of the token that it needs; `None`: no token.
    pub(crate) role: Option<TokenRole>,
    /// Parameters of the query: name, type of its schema, what it means.
    pub(crate) query: &'static [(&'static str, &'static str, &'static str)],
    /// Header fields: name, what it means.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// Bodies that it takes: media type and name of the schema.
    pub(crate) bodies: &'static [(&'static str, &'static str)],
    /// Its answers: status and name of the schema, empty for no body.
    pub(crate) answers: &'static [(u16, &'static str)],
    /// Attaches the handler.
    pub(crate) attach: fn() -> MethodRouter<Shared>,
}

/// All routes, for the handler that describes them.
#[derive(Clone, Copy)]
pub(crate) struct Table(pub(crate) &'static [&'static [Route]]);

/// Of routes whose answers requests may share.
const SHARED_HEADERS: &[(&str, &str)] = &[(
    "Cache-Control",
    "max-age=N, up to 5: the answer may be one that another request with the token got within the last N seconds",
)];

/// Parameters of the path.
struct Named<T>(T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = Path::<T>::from_request_parts(parts, state).await;
        read.map(|Path(named)| Self(named)).map_err(|error| Problem::new(Kind::Malformed, error.body_text()))
    }
}

/// Parameters of the query.
struct Params<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = Query::<T>::from_request_parts(parts, state).await;
        read.map(|Query(params)| Self(params))
            .map_err(|error| Problem::new(Kind::Malformed, reader_text(&error.body_text())))
    }
}

/// Why something is done: the audit log keeps it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reasoned {
    reason: Option<String>,
}

/// Reads a JSON body.
async fn read_json<T: DeserializeOwned>(
    state: &Shared,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Problem> {
    let content =
        headers.get(header::CONTENT_TYPE).and_then(|content| content.to_str().ok()).unwrap_or_default();
    let media = content.split(';').next().unwrap_or_default().trim();
    if !media.eq_ignore_ascii_case("application/json") {
        return Err(Problem::new(
            Kind::WrongType,
            format!("Content-Type is {content:?}: use application/json"),
        ));
    }
    let body = body::read(state, headers, body).await?;
    serde_json::from_slice(&body)
        .map_err(|error| Problem::new(Kind::Malformed, reader_text(&error.to_string())))
}

/// The number of a task in a path.
fn task_id(text: &str) -> Result<u64, Problem> {
    let missing =
        || Problem::new(Kind::NoSuchTask, format!("{text:?} is no id of a task: ids are whole numbers"));
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(missing());
    }
    text.parse().map_err(|_| missing())
}

/// Refuses a time that is no number of seconds from now on.
fn check_seconds(place: &str, name: &str, seconds: Option<f64>) -> Result<(), Problem> {
    match seconds {
        Some(seconds) if !seconds.is_finite() || seconds < 0.0 => {
            Err(Problem::new(Kind::Malformed, format!("{place}{name} is {seconds}: use seconds, 0 or more")))
        }
        _ => Ok(()),
    }
}

/// The name of a method of a tube.
fn method(tube: &str, method: &str) -> String {
    format!("queue.tube.{tube}:{method}")
}

/// Arguments of a call.
struct Args {
    bytes: Vec<u8>,
    count: u32,
}

impl Args {
    fn new() -> Self {
        Self { bytes: Vec::new(), count: 0 }
    }

    /// Adds one MessagePack value.
    fn raw(mut self, value: &[u8]) -> Self {
        self.bytes.extend_from_slice(value);
        self.count += 1;
        self
    }

    fn json(mut self, value: &Json) -> Self {
        json::to_msgpack(value, &mut self.bytes);
        self.count += 1;
        self
    }

    /// The array of all.
    fn finish(self) -> Vec<u8> {
        let mut args = Vec::with_capacity(self.bytes.len() + 5);
        mp::write_array(&mut args, self.count);
        args.extend_from_slice(&self.bytes);
        args
    }
}

/// An answer with a body.
fn answer(status: StatusCode, body: &Json) -> response::Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An object of the members that are not null.
fn given<const N: usize>(members: [(&str, Json); N]) -> Json {
    let there = members.into_iter().filter(|(_, value)| !value.is_null());
    there.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>().into()
}

/// Refuses a token without that role over the whole server: for what this door shows without a call of a function.
async fn admit(state: &Shared, access: &Access, role: TokenRole, what: &'static str) -> Result<(), Problem> {
    let digest = access.0.clone();
    let look = move |instance: &mut Instance| {
        instance.set_now(now());
        let caller = instance.token_caller(&digest, 0)?;
        instance.check_token_role(&caller, role, what)
    };
    state.bridge.look(state.limits.timeout, look).await?.map_err(Problem::from)
}

/// Gives the answer to a GET an ETag of its body, and answers nothing but "not modified" to a client that has it. Large answers
/// are compressed where that pays, metrics too.
async fn tag(request: Request<Body>, next: Next) -> Response<Body> {
    let known = match *request.method() {
        Method::GET => request.headers().clone(),
        _ => return next.run(request).await,
    };
    let peer = request.extensions().get::<Peer>().copied();
    let response = next.run(request).await;
    let (is_json, is_metrics) = match response.headers().get(header::CONTENT_TYPE) {
        Some(kind) => (kind == "application/json", kind == lycosa_metrics::CONTENT_TYPE),
        None => (false, false),
    };
    if response.status() != StatusCode::OK || !(is_json || is_metrics) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // A body of this door is whole: nothing is waited for.
    let Ok(body) = axum_body::to_bytes(body, usize::MAX).await else {
        return unexpected("the answer").into_response();
    };
    if is_metrics {
        // Each scrape has numbers of its own: no client has them.
        compression::vary(&mut parts.headers);
        if compression::pays(body.len(), peer.as_ref()) && compression::is_accepted(&known) {
            compression::mark(&mut parts.headers);
            parts.headers.remove(header::CONTENT_LENGTH);
            return Response::from_parts(parts, Body::from(compression::fast(&body)));
        }
        return Response::from_parts(parts, Body::from(body));
    }
    let tag = parts.headers.remove(header::ETAG).unwrap_or_else(|| etag::of(&body));
    let is_known = etag::is_known(&known, &tag);
    parts.headers.insert(header::ETAG, tag.clone());
    compression::vary(&mut parts.headers);
    if is_known {
        parts.status = StatusCode::NOT_MODIFIED;
        parts.headers.remove(header::CONTENT_TYPE);
        return Response::from_parts(parts, Body::empty());
    }
    if compression::pays(body.len(), peer.as_ref()) && compression::is_accepted(&known) {
        compression::mark(&mut parts.headers);
        parts.headers.remove(header::CONTENT_LENGTH);
        // The tag is that of the text, so it is a weak one of the compressed bytes.
        let weak = [b"W/", tag.as_bytes()].concat();
        parts
            .headers
            .insert(header::ETAG, HeaderValue::from_bytes(&weak).expect("a tag with a prefix is a header"));
        let packed = match parts.extensions.remove::<Packed>() {
            Some(packed) => packed.of(&body),
            None => compression::fast(&body).into(),
        };
        return Response::from_parts(parts, Body::from(packed));
    }
    Response::from_parts(parts, Body::from(body))
}

/// Calls a function that answers a report: one value, or none.
async fn report(
    state: &Shared,
    access: &Access,
    function: &str,
    args: Args,
    limit: Duration,
) -> Result<Json, Problem> {
    report_of(state, access, function, args.finish(), limit).await
}

async fn report_of(
    state: &Shared,
    access: &Access,
    function: &str,
    args: Vec<u8>,
    limit: Duration,
) -> Result<Json, Problem> {
    let values = state.bridge.call(access, function.to_owned(), args, limit).await?;
    if values.count == 0 {
        return Ok(Json::Null);
    }
    json::from_report(&mut Reader::new(&values.bytes)).ok_or_else(|| unexpected(function))
}

/// The response with a report in the form that `shape` gives it, which other requests may share ([`readings`]).
async fn reported(
    state: &Shared,
    access: Access,
    headers: &HeaderMap,
    function: &'static str,
    args: Args,
    shape: impl FnOnce(Json) -> Result<Json, Problem>,
) -> Result<response::Response, Problem> {
    let (args, limit) = (args.finish(), state.limits.timeout);
    let Some(age) = readings::accepted_age(headers) else {
        let report = report_of(state, &access, function, args, limit).await?;
        return Ok(answer(StatusCode::OK, &shape(report)?));
    };
    let digest = access.0.clone();
    let look = move |instance: &mut Instance| {
        instance.set_now(now());
        instance.token_caller(&digest, 0).map(drop)
    };
    state.bridge.look(limit, look).await?.map_err(Problem::from)?;
    let subject = Subject { token: Some(access.0.clone()), function, args: args.clone() };
    let make = async { Ok(shape(report_of(state, &access, function, args, limit).await?)?.to_string()) };
    Ok(state.readings.get(subject, age, make).await?.response())
}

/// Why the queue answers a put or take with null, if the reason is not the tube's: it does not run.
async fn silent(state: &Shared) -> Result<Option<Problem>, Problem> {
    let look = |instance: &mut Instance| (instance.is_read_only(), instance.queue().state());
    let (is_read_only, queue) = state.bridge.look(state.limits.timeout, look).await?;
    Ok(match (is_read_only, queue) {
        (true, _) => Some(Problem::new(Kind::ReadOnly, "this server takes no writes")),
        (false, QueueState::Running) => None,
        (false, other) => Some(Problem::new(Kind::Unavailable, format!("the queue is in {other} state"))),
    })
}

/// Turns members with these names into texts, at every depth: ids of tasks.
fn ids_as_texts(value: &mut Json, names: &[&str]) {
    match value {
        Json::Object(members) => {
            for (name, member) in members {
                match member {
                    Json::Number(number) if names.contains(&&**name) => *member = number.to_string().into(),
                    member => ids_as_texts(member, names),
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(|item| ids_as_texts(item, names)),
        _ => {}
    }
}

/// What a function of this program has answered makes no sense: a fault of this program.
fn unexpected(function: &str) -> Problem {
    Problem::new(Kind::Unavailable, format!("{function} has answered something unexpected"))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use axum::{Router, middleware};
    use tower_service::Service;

    use super::*;

    /// The answer with metrics to a client at an address, and its body.
    fn scraped(peer: &str, accepted: &str) -> (HeaderMap, Vec<u8>) {
        let metrics =
            || async { ([(header::CONTENT_TYPE, lycosa_metrics::CONTENT_TYPE)], "a 1\n".repeat(1000)) };
        let mut router: Router =
            Router::new().route("/metrics", get(metrics)).layer(middleware::from_fn(tag));
        let request = Request::builder().uri("/metrics").header(header::ACCEPT_ENCODING, accepted);
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(Peer(peer.parse::<SocketAddr>().unwrap()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (parts, body) = router.call(request).await.unwrap().into_parts();
            (parts.headers, axum_body::to_bytes(body, usize::MAX).await.unwrap().to_vec())
        })
    }

    #[test]
    fn metrics_are_compressed_for_scrapers_of_other_machines() {
        let text = "a 1\n".repeat(1000).into_bytes();
        let (headers, body) = scraped("192.0.2.7:1", "gzip");
        assert_eq!(headers[header::CONTENT_ENCODING], "gzip");
        assert_eq!(headers[header::CONTENT_TYPE], lycosa_metrics::CONTENT_TYPE);
        assert_eq!(headers[header::VARY], "accept-encoding");
        assert!(body.len() < text.len() / 10 && compression::tests::unpacked(&body) == text);
        assert!(!headers.contains_key(header::ETAG), "no scrape has the numbers of another one");
        for (peer, accepted) in
            [("192.0.2.7:1", "identity"), ("192.0.2.7:1", "gzip;q=0"), ("127.0.0.1:1", "gzip")]
        {
            let (headers, body) = scraped(peer, accepted);
            assert!(!headers.contains_key(header::CONTENT_ENCODING), "{peer} {accepted}");
            assert_eq!(body, text);
        }
    }
}
