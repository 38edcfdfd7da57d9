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
use axum::extract::{FromRequest, FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use axum::middleware::Next;
use axum::response;
use axum::response::IntoResponse;
use axum::routing::MethodRouter;
use lycosa_instance::{Instance, TokenRole};
use lycosa_queue::QueueState;
use lycosa_tuple::mp::{self, Reader};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::access::Access;
use super::bridge::{Call, Repetition, Returns, Values};
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
    /// Name of the schema of its answer with the status 200; empty for no such answer.
    pub(crate) ok: &'static str,
    /// Its further answers: status and name of the schema.
    pub(crate) answers: &'static [(u16, &'static str)],
    /// Attaches the handler.
    pub(crate) attach: fn() -> MethodRouter<Shared>,
}

impl Route {
    /// A route without parameters, bodies and further answers; it accepts no request before [`Self::attach`].
    const fn new(
        method: &'static str,
        path: &'static str,
        operation: &'static str,
        role: Option<TokenRole>,
        ok: &'static str,
    ) -> Self {
        let attach = MethodRouter::new;
        Self {
            method,
            path,
            operation,
            summary: "",
            role,
            query: &[],
            headers: &[],
            bodies: &[],
            ok,
            answers: &[],
            attach,
        }
    }

    const fn summary(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    const fn query(self, query: &'static [(&'static str, &'static str, &'static str)]) -> Self {
        Self { query, ..self }
    }

    const fn headers(self, headers: &'static [(&'static str, &'static str)]) -> Self {
        Self { headers, ..self }
    }

    /// Requests may share the answers.
    const fn shared(self) -> Self {
        self.headers(&[(
            "Cache-Control",
            "max-age=N, up to 5: the answer may be one that another request with the token got within the last N seconds",
        )])
    }

    const fn bodies(self, bodies: &'static [(&'static str, &'static str)]) -> Self {
        Self { bodies, ..self }
    }

    const fn answers(self, answers: &'static [(u16, &'static str)]) -> Self {
        Self { answers, ..self }
    }

    const fn attach(self, attach: fn() -> MethodRouter<Shared>) -> Self {
        Self { attach, ..self }
    }
}

/// Roles of tokens that routes need.
const VIEWER: Option<TokenRole> = Some(TokenRole::Viewer);
const OPERATOR: Option<TokenRole> = Some(TokenRole::Operator);
const ADMINISTRATOR: Option<TokenRole> = Some(TokenRole::Administrator);

/// All routes, for the handler that describes them.
#[derive(Clone, Copy)]
pub(crate) struct Table(pub(crate) &'static [&'static [Route]]);

/// Parameters of the path.
struct Named<T>(T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = Path::<T>::from_request_parts(parts, state).await;
        read.map(|Path(named)| Self(named)).map_err(|error| malformed(error.body_text()))
    }
}

/// Parameters of the query.
struct Params<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = Query::<T>::from_request_parts(parts, state).await;
        read.map(|Query(params)| Self(params)).map_err(|error| malformed(reader_text(&error.body_text())))
    }
}

/// Why something is done: the audit log keeps it.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Reasoned {
    reason: Option<String>,
}

/// A body in JSON.
struct Posted<T>(T);

impl<T: DeserializeOwned> FromRequest<Shared> for Posted<T> {
    type Rejection = Problem;

    async fn from_request(request: Request<Body>, state: &Shared) -> Result<Self, Problem> {
        let (Parts { headers, .. }, body) = request.into_parts();
        let content = content_type(&headers);
        if !media_type(content).eq_ignore_ascii_case("application/json") {
            let detail = format!("Content-Type is {content:?}: use application/json");
            return Err(Problem::new(Kind::WrongType, detail));
        }
        let body = body::read(state, &headers, body).await?;
        let read = serde_json::from_slice(&body);
        read.map(Self).map_err(|error| malformed(reader_text(&error.to_string())))
    }
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(header::CONTENT_TYPE).and_then(|content| content.to_str().ok()).unwrap_or_default()
}

/// A content type without its parameters.
fn media_type(content: &str) -> &str {
    content.split(';').next().unwrap_or_default().trim()
}

/// A whole number in a path; `what` says of what it is one.
fn whole_number(text: &str, kind: Kind, what: &str) -> Result<u64, Problem> {
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| Problem::new(kind, format!("{text:?} is no {what} are whole numbers")))
}

/// The number of a task in a path.
fn task_id(text: &str) -> Result<u64, Problem> {
    whole_number(text, Kind::NoSuchTask, "id of a task: ids")
}

fn malformed(detail: impl Into<String>) -> Problem {
    Problem::new(Kind::Malformed, detail)
}

/// Refuses a time that is no number of seconds from now on.
fn check_seconds(place: &str, name: &str, seconds: Option<f64>) -> Result<(), Problem> {
    match seconds {
        Some(seconds) if !seconds.is_finite() || seconds < 0.0 => {
            Err(malformed(format!("{place}{name} is {seconds}: use seconds, 0 or more")))
        }
        _ => Ok(()),
    }
}

/// The name of a method of a tube.
fn method(tube: &str, method: &str) -> String {
    format!("queue.tube.{tube}:{method}")
}

/// Arguments of a call.
#[derive(Clone)]
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

    fn json(mut self, value: impl Into<Json>) -> Self {
        json::to_msgpack(&value.into(), &mut self.bytes);
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

/// The response to a request, or its refusal.
type Reply = Result<response::Response, Problem>;

/// An answer with a body.
fn answer(status: StatusCode, body: &Json) -> response::Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The members of a request that are not null, as options of a function.
fn given(members: &impl Serialize) -> Map<String, Json> {
    let Json::Object(mut given) = json!(members) else { return Map::new() };
    given.retain(|_, value| !value.is_null());
    given
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
    let kind = response.headers().get(header::CONTENT_TYPE).cloned();
    let is_of = |wanted: &str| kind.as_ref().is_some_and(|kind| kind == wanted);
    let is_json = is_of("application/json");
    if response.status() != StatusCode::OK || !(is_json || is_of(lycosa_metrics::CONTENT_TYPE)) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // A body of this door is whole: nothing is waited for.
    let Ok(body) = axum_body::to_bytes(body, usize::MAX).await else {
        return unexpected("the answer").into_response();
    };
    compression::vary(&mut parts.headers);
    let is_packed = compression::pays(body.len(), peer.as_ref()) && compression::is_accepted(&known);
    // Each scrape has numbers of its own: no client has them.
    if is_json {
        let tag = parts.headers.remove(header::ETAG).unwrap_or_else(|| etag::of(&body));
        let is_known = etag::is_known(&known, &tag);
        let shown = if is_packed && !is_known { etag::weak(&tag) } else { tag };
        parts.headers.insert(header::ETAG, shown);
        if is_known {
            parts.status = StatusCode::NOT_MODIFIED;
            parts.headers.remove(header::CONTENT_TYPE);
            return Response::from_parts(parts, Body::empty());
        }
    }
    if !is_packed {
        return Response::from_parts(parts, Body::from(body));
    }
    compression::mark(&mut parts.headers);
    parts.headers.remove(header::CONTENT_LENGTH);
    let packed = parts.extensions.remove::<Packed>().unwrap_or_default().of(&body);
    Response::from_parts(parts, Body::from(packed))
}

/// The client of a request: its token, and the state that all handlers share.
#[derive(Clone)]
struct Client {
    state: Shared,
    access: Access,
    /// How old an answer the client takes, if it says so.
    age: Option<Duration>,
    /// How long the loop may take to answer.
    limit: Duration,
    /// The request reads, by its method.
    reads: bool,
}

impl FromRequestParts<Shared> for Client {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Shared) -> Result<Self, Problem> {
        let access = <Access as FromRequestParts<Shared>>::from_request_parts(parts, state).await?;
        let (age, limit) = (readings::accepted_age(&parts.headers), state.config.http_timeout);
        Ok(Self { state: state.clone(), access, age, limit, reads: parts.method.is_safe() })
    }
}

impl Client {
    /// Looks at the instance.
    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Instance) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        self.state.bridge.look(self.limit, look).await
    }

    /// Refuses a token without that role over the whole server: for what this door shows without a call of a function.
    async fn admit(&self, role: TokenRole, what: &'static str) -> Result<(), Problem> {
        let digest = self.access.0.clone();
        let look = move |instance: &mut Instance| {
            instance.set_now(now());
            let caller = instance.token_caller(&digest, 0)?;
            instance.check_token_role(&caller, role, what)
        };
        self.look(look).await?.map_err(Problem::from)
    }

    /// Calls a function.
    async fn call(&self, function: &str, args: Args) -> Result<Values, Problem> {
        let repetition = if self.reads { Repetition::Reads } else { Repetition::ActsAgain };
        self.call_with(function, args, (repetition, None)).await
    }

    /// The same with a repetition of its own, and with the tube to which leased tasks of an unread answer return.
    async fn call_with(
        &self,
        function: &str,
        args: Args,
        further: (Repetition, Returns),
    ) -> Result<Values, Problem> {
        let call = Call { function: function.to_owned(), args: args.finish() };
        self.state.bridge.call(&self.access, call, further, self.limit).await
    }

    /// The response with the report of a function.
    async fn answer(&self, function: &str, args: Args) -> Reply {
        Ok(answer(StatusCode::OK, &self.report(function, args).await?))
    }

    /// The same as the only member of an object.
    async fn answer_as(&self, member: &str, function: &str, args: Args) -> Reply {
        let report = self.report(function, args).await?;
        Ok(answer(StatusCode::OK, &json!({ member: report })))
    }

    /// Calls a function that answers a report: one value, or none.
    async fn report(&self, function: &str, args: Args) -> Result<Json, Problem> {
        let values = self.call(function, args).await?;
        if values.count == 0 {
            return Ok(Json::Null);
        }
        json::from_report(&mut Reader::new(&values.bytes)).ok_or_else(|| unexpected(function))
    }

    /// The response with a report in the form that `shape` gives it, which other requests may share ([`readings`]).
    async fn reported(
        &self,
        function: &'static str,
        args: Args,
        shape: impl FnOnce(Json) -> Result<Json, Problem>,
    ) -> Reply {
        let token = Some(self.access.0.clone());
        if self.age.is_some() {
            let digest = self.access.0.clone();
            let look = move |instance: &mut Instance| {
                instance.set_now(now());
                instance.token_caller(&digest, 0).map(drop)
            };
            self.look(look).await?.map_err(Problem::from)?;
        }
        let subject = Subject { token, function, args: args.bytes.clone() };
        let make = async { shape(self.report(function, args).await?) };
        shared(&self.state, self.age, subject, make).await
    }
}

/// The response with the answer that `make` makes; with an `age`, or that another request got so long ago.
async fn shared(
    state: &Shared,
    age: Option<Duration>,
    subject: Subject,
    make: impl Future<Output = Result<Json, Problem>>,
) -> Reply {
    let Some(age) = age else { return Ok(answer(StatusCode::OK, &make.await?)) };
    let make = async { Ok(make.await?.to_string()) };
    Ok(state.readings.get(subject, age, make).await?.response())
}

/// Why the queue answers a put or take with null, if the reason is not the tube's: it does not run.
async fn silent(client: &Client) -> Result<Option<Problem>, Problem> {
    let look = |instance: &mut Instance| (instance.is_read_only(), instance.queue().state());
    let (is_read_only, queue) = client.look(look).await?;
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
