//! Requests: what a client asks, decoded from the content of a frame and borrowed from it.
//!
//! Decoding is as strict and as lax as Tarantool 2.6.0's, which clients rely on in both directions: an unknown key in
//! the header is an error, one in the body is not; a request type counts modulo 256; an absent body is an empty one.
//! A broken body costs an error reply with the request's `sync`, and the connection lives on. A broken header, or one
//! without a type, is an error of its own ([`RequestError::ends_stream`]): no client sends such a header, so the bytes around it
//! are another protocol's. Tarantool goes on there, which lets a web page's POST drive it.
//!
//! Whether names, spaces and users exist is not looked at here.

mod encoding;

use lycosa_tuple::mp::{Kind, MpError, Reader};

pub use self::encoding::encode;
use crate::auth::Hash;
use crate::body::{Fields, Missing, array, map};
use crate::error::{ErrorCode, ErrorObject};
use crate::greeting::SCRAMBLE_SIZE;
use crate::keys::{self, RequestType};

/// What stands for the arguments of a CALL or EVAL that has none: an empty array.
pub const NO_ARGUMENTS: &[u8] = &[0x90];

/// `sync` of requests whose answers a client of ours does not read, above all of a PING that asks whether the server still serves. No
/// other request has it.
pub const SIGN_OF_LIFE: u64 = u64::MAX;

/// What stands for an absent body: an empty map.
const NO_FIELDS: &[u8] = &[0x80];

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// What all requests have.
    pub header: Header,
    /// The request's type and its body.
    pub body: Body<'a>,
}

/// What a request says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Number of the request's type, modulo 256.
    pub kind: u32,
    /// Chosen by the client and repeated in the reply; 0 if absent.
    pub sync: u64,
    /// The schema version that the client believes in; 0 for any.
    pub schema_version: u64,
}

/// The body. Tuples, keys, arguments and operations are whole MessagePack arrays, names are bytes as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields carry the names of the protocol's keys, see `crate::keys`")]
pub enum Body<'a> {
    /// Reads up to `limit` tuples after passing over `offset` ones.
    Select { space: u32, index: u32, limit: u32, offset: u32, iterator: u32, key: &'a [u8] },
    /// Adds a tuple.
    Insert { space: u32, tuple: &'a [u8] },
    /// Puts a tuple in place of the one with its primary key.
    Replace { space: u32, tuple: &'a [u8] },
    /// Changes the tuple with a key. `base` is subtracted from field numbers that are not negative.
    Update { space: u32, index: u32, base: i64, key: &'a [u8], operations: &'a [u8] },
    /// Inserts a tuple, or applies operations to the existing one.
    Upsert { space: u32, base: i64, tuple: &'a [u8], operations: &'a [u8] },
    /// Removes the tuple with a key.
    Delete { space: u32, index: u32, key: &'a [u8] },
    /// Calls a function.
    Call { name: &'a [u8], args: &'a [u8] },
    /// Calls a function whose values are to come back as tuples.
    Call16 { name: &'a [u8], args: &'a [u8] },
    /// Runs a program text.
    Eval { text: &'a [u8], args: &'a [u8] },
    /// Runs an SQL statement with the values of its parameters, a MessagePack array.
    Execute(Sql<'a>, &'a [u8]),
    /// Prepares an SQL statement (text), or forgets one (id).
    Prepare(Sql<'a>),
    /// Changes the connection's user.
    Auth { user: &'a [u8], scramble: AuthTuple<'a> },
    /// Answers at once.
    Ping,
    /// Tells the client's protocol version and features, an array of numbers; asks for the server's.
    Id { version: u64, features: &'a [u8] },
    /// Asks for the vclock, in the way of Tarantool 1.9.
    VoteDeprecated,
    /// Asks for the ballot.
    Vote,
    /// Asks for all data and an id in the replica set.
    Join { instance_uuid: Option<&'a [u8]> },
    /// Asks for the log.
    Subscribe(Subscribe<'a>),
    /// Asks for all data without an id.
    FetchSnapshot,
    /// Makes an anonymous replica a named one. `vclock` is a MessagePack map.
    Register { instance_uuid: Option<&'a [u8]>, vclock: Option<&'a [u8]> },
    /// A type that is not a request: its number. To be answered by [`RequestError::unknown_type`].
    Unknown(u32),
}

/// An SQL statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sql<'a> {
    /// Its text.
    Text(&'a [u8]),
    /// The id under which it was prepared.
    Prepared(u32),
}

/// Where a replica is and what it wants. A field that is missing is for the receiver to refuse, after it has checked
/// that the peer may ask at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subscribe<'a> {
    /// The replica's instance, as text.
    pub instance_uuid: Option<&'a [u8]>,
    /// The replica set that it believes to be in, as text.
    pub cluster_uuid: Option<&'a [u8]>,
    /// The replica's progress: a MessagePack map.
    pub vclock: Option<&'a [u8]>,
    /// Version of its program, packed; 0 if it does not say.
    pub version: u32,
    /// Whether it has no id in the replica set.
    pub is_anonymous: bool,
    /// The ids of instances whose rows it does not want: a MessagePack array.
    pub id_filter: Option<&'a [u8]>,
    /// The epochs and the term that it knows: MessagePack. Only Lycosa sends it.
    pub lineage: Option<&'a [u8]>,
}

/// The second part of an AUTH. It is not judged when the request is decoded, because `guest` may come with less than
/// others and an unknown user is to be told first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthTuple<'a> {
    /// An empty array: how a connection goes back to `guest`.
    Empty,
    /// No scramble; the reason as Tarantool words it.
    Malformed(&'static str),
    /// A scramble; the name of its method is never looked at.
    ChapSha1(&'a Hash),
}

impl<'a> AuthTuple<'a> {
    /// The scramble that everyone but `guest` needs.
    ///
    /// # Errors
    /// The fault, in the words of the error [`ErrorCode::InvalidMsgpack`].
    pub fn scramble(self) -> Result<&'a Hash, &'static str> {
        match self {
            Self::Empty => Err("Invalid MsgPack - authentication request body"),
            Self::Malformed(reason) => Err(reason),
            Self::ChapSha1(scramble) => Ok(scramble),
        }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, MpError> {
        let mut parts = Reader::new(array(reader)?);
        let count = parts.array()?;
        if count == 0 {
            return Ok(Self::Empty);
        }
        if count == 1 {
            return Ok(Self::Malformed("Invalid MsgPack - authentication request body"));
        }
        parts.skip()?;
        let Ok(bytes) = parts.str_or_bin() else {
            return Ok(Self::Malformed("Invalid MsgPack - authentication scramble"));
        };
        let scramble = <&[u8; SCRAMBLE_SIZE]>::try_from(bytes);
        Ok(scramble.map_or(Self::Malformed("Invalid MsgPack - invalid scramble size"), Self::ChapSha1))
    }
}

/// A request that cannot be taken: the error and the `sync` to reply with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// `sync` of the request as far as it could be read, else 0.
    pub sync: u64,
    /// The code of the answer.
    pub code: ErrorCode,
    /// Its text.
    pub message: String,
    /// The header is none that a client sends: the connection has to be closed.
    pub ends_stream: bool,
}

impl RequestError {
    /// The answer to a request of a type that does not exist.
    pub fn unknown_type(sync: u64, kind: u32) -> Self {
        let code = ErrorCode::UnknownRequestType;
        Self { sync, code, message: format!("Unknown request type {kind}"), ends_stream: false }
    }

    /// The answer's error object.
    pub fn object(self) -> ErrorObject {
        ErrorObject::client(self.code, self.message)
    }
}

/// Why a body could not be taken.
enum Refusal {
    MsgPack(&'static str),
    Missing(&'static str),
}

impl From<MpError> for Refusal {
    fn from(_: MpError) -> Self {
        Self::MsgPack("packet body")
    }
}

impl From<Missing> for Refusal {
    fn from(Missing(field): Missing) -> Self {
        Self::Missing(field)
    }
}

impl Refusal {
    fn into_error(self, sync: u64) -> RequestError {
        match self {
            Self::MsgPack(what) => {
                let message = format!("Invalid MsgPack - {what}");
                RequestError { sync, code: ErrorCode::InvalidMsgpack, message, ends_stream: false }
            }
            Self::Missing(field) => {
                let message = format!("Missing mandatory field '{field}' in request");
                RequestError { sync, code: ErrorCode::MissingRequestField, message, ends_stream: false }
            }
        }
    }
}

/// Header, name and arguments of a CALL as nearly every client writes it. Nothing is said about any other frame: see
/// [`decode`].
#[inline]
pub fn decode_plain_call(frame: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let (header, reader) = plain_header(frame)?;
    if header.kind != RequestType::Call as u32 {
        return None;
    }
    let (name, args) = plain_call(reader.rest())?;
    Some((header, name, args))
}

/// Decodes the content of a frame.
///
/// # Errors
/// See [`RequestError`]; codes are [`ErrorCode::InvalidMsgpack`] and [`ErrorCode::MissingRequestField`].
#[inline]
pub fn decode(frame: &[u8]) -> Result<Request<'_>, RequestError> {
    let (header, mut reader) = match plain_header(frame) {
        Some(plain) => plain,
        None => decode_header(frame)?,
    };
    let body = match RequestType::from_u32(header.kind) {
        Some(RequestType::Call) if !reader.is_empty() => decode_call(&mut reader),
        kind => decode_body(&mut reader, kind, header.kind),
    };
    match body {
        Ok(body) => Ok(Request { header, body }),
        Err(refusal) => Err(refusal.into_error(header.sync)),
    }
}

/// Reads the header as nearly every client writes it: type, `sync` and perhaps the schema version, in this order. Nothing
/// is said about any other.
#[expect(clippy::inline_always, reason = "measured: each request comes here")]
#[inline(always)]
fn plain_header(frame: &[u8]) -> Option<(Header, Reader<'_>)> {
    let &[fields @ (0x82 | 0x83), keys::REQUEST_TYPE, kind @ 0..=0x7f, keys::SYNC, ref rest @ ..] = frame
    else {
        return None;
    };
    let mut reader = Reader::new(rest);
    let sync = reader.uint().ok()?;
    let mut schema_version = 0;
    if fields == 0x83 {
        let &[keys::SCHEMA_VERSION, ref rest @ ..] = reader.rest() else { return None };
        reader = Reader::new(rest);
        schema_version = reader.uint().ok()?;
    }
    Some((Header { kind: u32::from(kind), sync, schema_version }, reader))
}

/// Reads any header; returns the reader of what follows.
fn decode_header(frame: &[u8]) -> Result<(Header, Reader<'_>), RequestError> {
    let mut header = Header { kind: 0, sync: 0, schema_version: 0 };
    let mut reader = Reader::new(frame);
    match read_header(&mut reader, &mut header) {
        Ok(true) => Ok((header, reader)),
        Ok(false) => Err(RequestError { ends_stream: true, ..RequestError::unknown_type(header.sync, 0) }),
        Err(_) => {
            // A header that is cut has no sync, wherever the cut is.
            let is_whole = map(&mut Reader::new(frame)).is_ok();
            let sync = if is_whole { header.sync } else { 0 };
            let error = Refusal::MsgPack("packet header").into_error(sync);
            Err(RequestError { ends_stream: true, ..error })
        }
    }
}

/// Whether the header names the request's type.
fn read_header(reader: &mut Reader<'_>, header: &mut Header) -> Result<bool, MpError> {
    let mut has_type = false;
    for _ in 0..reader.map()? {
        match u8::try_from(reader.uint()?) {
            Ok(keys::REQUEST_TYPE) => {
                header.kind = u32::from(reader.uint()? as u8);
                has_type = true;
            }
            Ok(keys::SYNC) => header.sync = reader.uint()?,
            Ok(keys::SCHEMA_VERSION) => header.schema_version = reader.uint()?,
            Ok(keys::TIMESTAMP) => {
                reader.double()?;
            }
            // Header keys of rows, and the stream id (0a) that newer clients may send.
            Ok(0x00..=0x1f) => {
                reader.uint()?;
            }
            _ => return Err(reader.mismatch("a key of a header")),
        }
    }
    Ok(has_type)
}

#[inline]
fn decode_call<'a>(body: &mut Reader<'a>) -> Result<Body<'a>, Refusal> {
    if let Some((name, args)) = plain_call(body.rest()) {
        return Ok(Body::Call { name, args });
    }
    let (name, args) = whole(body, Procedure::read)?.call()?;
    Ok(Body::Call { name, args })
}

/// Reads the body of a CALL as nearly every client writes it: name and arguments, in this order. Nothing is said about any
/// other.
#[inline]
fn plain_call(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let &[0x82, keys::FUNCTION_NAME, ref rest @ ..] = body else { return None };
    let mut reader = Reader::new(rest);
    let name = reader.str().ok()?;
    let &[keys::TUPLE, ref rest @ ..] = reader.rest() else { return None };
    reader = Reader::new(rest);
    let args = array(&mut reader).ok()?;
    reader.is_empty().then_some((name, args))
}

fn decode_body<'a>(
    reader: &mut Reader<'a>,
    kind: Option<RequestType>,
    number: u32,
) -> Result<Body<'a>, Refusal> {
    let has_body = !reader.is_empty();
    let mut absent = Reader::new(NO_FIELDS);
    let body = if has_body { reader } else { &mut absent };
    Ok(match kind {
        Some(RequestType::Call) => decode_call(body)?,
        Some(RequestType::Call16) => {
            let (name, args) = whole(body, Procedure::read)?.call()?;
            Body::Call16 { name, args }
        }
        Some(RequestType::Eval) => {
            let procedure = whole(body, Procedure::read)?;
            let text = procedure.expression.ok_or(Missing("expression"))?;
            Body::Eval { text, args: procedure.args }
        }
        Some(RequestType::Select) => {
            let fields = whole(body, Fields::read)?;
            Body::Select {
                space: fields.space()?,
                index: fields.index,
                limit: fields.limit()?,
                offset: fields.offset,
                iterator: fields.iterator,
                key: fields.key()?,
            }
        }
        Some(RequestType::Insert) => {
            let fields = whole(body, Fields::read)?;
            Body::Insert { space: fields.space()?, tuple: fields.tuple()? }
        }
        Some(RequestType::Replace) => {
            let fields = whole(body, Fields::read)?;
            Body::Replace { space: fields.space()?, tuple: fields.tuple()? }
        }
        Some(RequestType::Update) => {
            let fields = whole(body, Fields::read)?;
            Body::Update {
                space: fields.space()?,
                index: fields.index,
                base: fields.base,
                key: fields.key()?,
                operations: fields.tuple()?,
            }
        }
        Some(RequestType::Upsert) => {
            let fields = whole(body, Fields::read)?;
            Body::Upsert {
                space: fields.space()?,
                base: fields.base,
                tuple: fields.tuple()?,
                operations: fields.operations()?,
            }
        }
        Some(RequestType::Delete) => {
            let fields = whole(body, Fields::read)?;
            Body::Delete { space: fields.space()?, index: fields.index, key: fields.key()? }
        }
        Some(RequestType::Execute) => {
            let fields = whole(body, SqlFields::read)?;
            Body::Execute(fields.statement()?, fields.parameters.unwrap_or(&[0x90]))
        }
        Some(RequestType::Prepare) => Body::Prepare(whole(body, SqlFields::read)?.statement()?),
        other => decode_other(body, other, (number, has_body))?,
    })
}

/// Reads the body of a request that is about neither data nor programs.
fn decode_other<'a>(
    body: &mut Reader<'a>,
    kind: Option<RequestType>,
    (number, has_body): (u32, bool),
) -> Result<Body<'a>, Refusal> {
    Ok(match kind {
        Some(RequestType::Auth) => {
            let (user, scramble) = whole(body, read_auth)?;
            Body::Auth {
                user: user.ok_or(Missing("user name"))?,
                scramble: scramble.ok_or(Missing("tuple"))?,
            }
        }
        Some(RequestType::Id) => {
            let (version, features) = whole(body, read_id)?;
            Body::Id { version, features }
        }
        Some(RequestType::Join) => Body::Join { instance_uuid: replica(body)?.instance_uuid },
        Some(RequestType::Subscribe) => Body::Subscribe(replica(body)?),
        Some(RequestType::Register) => {
            let Subscribe { instance_uuid, vclock, .. } = replica(body)?;
            Body::Register { instance_uuid, vclock }
        }
        // Tarantool finds fault with the body of a NOP before it does with the type.
        Some(RequestType::Nop) if has_body => return Err(Refusal::MsgPack("packet body")),
        other => {
            whole(body, Reader::skip)?;
            match other {
                Some(RequestType::Ping) => Body::Ping,
                Some(RequestType::Vote) => Body::Vote,
                Some(RequestType::VoteDeprecated) => Body::VoteDeprecated,
                Some(RequestType::FetchSnapshot) => Body::FetchSnapshot,
                _ => Body::Unknown(number),
            }
        }
    })
}

/// Reads a body after which nothing may follow.
#[inline]
fn whole<'a, T>(
    body: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, MpError>,
) -> Result<T, MpError> {
    let value = read(body)?;
    if body.is_empty() { Ok(value) } else { Err(MpError::Trailing { at: body.position() }) }
}

fn replica<'a>(body: &mut Reader<'a>) -> Result<Subscribe<'a>, Refusal> {
    let mut fields = *body;
    whole(body, Reader::skip)?;
    Subscribe::read(&mut fields).map_err(|_| Refusal::MsgPack("request body"))
}

/// The fields of a CALL or EVAL. Unlike in requests for data, keys may have any width and must be integers.
struct Procedure<'a> {
    name: Option<&'a [u8]>,
    expression: Option<&'a [u8]>,
    args: &'a [u8],
}

impl<'a> Procedure<'a> {
    fn read(body: &mut Reader<'a>) -> Result<Self, MpError> {
        let mut procedure = Self { name: None, expression: None, args: NO_ARGUMENTS };
        for _ in 0..body.map()? {
            match u8::try_from(body.uint()?) {
                Ok(keys::FUNCTION_NAME) => procedure.name = Some(body.str()?),
                Ok(keys::EXPRESSION) => procedure.expression = Some(body.str()?),
                Ok(keys::TUPLE) => procedure.args = array(body)?,
                _ => body.skip()?,
            }
        }
        Ok(procedure)
    }

    fn call(&self) -> Result<(&'a [u8], &'a [u8]), Missing> {
        Ok((self.name.ok_or(Missing("function name"))?, self.args))
    }
}

type AuthFields<'a> = (Option<&'a [u8]>, Option<AuthTuple<'a>>);

fn read_auth<'a>(body: &mut Reader<'a>) -> Result<AuthFields<'a>, MpError> {
    let mut user = None;
    let mut scramble = None;
    for _ in 0..body.map()? {
        match u8::try_from(body.uint()?) {
            Ok(keys::USER_NAME) => user = Some(body.str()?),
            Ok(keys::TUPLE) => scramble = Some(AuthTuple::read(body)?),
            _ => body.skip()?,
        }
    }
    Ok((user, scramble))
}

fn read_id<'a>(body: &mut Reader<'a>) -> Result<(u64, &'a [u8]), MpError> {
    let mut version = 0;
    let mut features = NO_ARGUMENTS;
    for _ in 0..body.map()? {
        match u8::try_from(body.uint()?) {
            Ok(keys::VERSION) => version = body.uint()?,
            Ok(keys::FEATURES) => features = array(body)?,
            _ => body.skip()?,
        }
    }
    Ok((version, features))
}

/// The fields of an EXECUTE or PREPARE; keys as in requests for data.
#[derive(Default)]
struct SqlFields<'a> {
    text: Option<&'a [u8]>,
    prepared: Option<u32>,
    has_odd_parameters: bool,
    parameters: Option<&'a [u8]>,
}

impl<'a> SqlFields<'a> {
    fn read(body: &mut Reader<'a>) -> Result<Self, MpError> {
        let mut fields = Self::default();
        for _ in 0..body.map()? {
            let key = body.rest().first().copied();
            body.skip()?;
            match key {
                Some(keys::SQL_TEXT) => fields.text = Some(body.str()?),
                Some(keys::STATEMENT_ID) => fields.prepared = Some(body.uint()? as u32),
                Some(keys::SQL_BIND) => {
                    fields.has_odd_parameters = body.kind()? != Kind::Array;
                    fields.parameters = Some(body.raw()?);
                }
                _ => body.skip()?,
            }
        }
        Ok(fields)
    }

    fn statement(&self) -> Result<Sql<'a>, Refusal> {
        if self.has_odd_parameters {
            return Err(Refusal::MsgPack("SQL parameter list"));
        }
        match (self.text, self.prepared) {
            (Some(text), None) => Ok(Sql::Text(text)),
            (None, Some(id)) => Ok(Sql::Prepared(id)),
            (None, None) => Err(Refusal::Missing("SQL text or stmt id")),
            (Some(_), Some(_)) => Err(Refusal::MsgPack(
                "SQL text and statement id are incompatible options in one request: choose one",
            )),
        }
    }
}

impl<'a> Subscribe<'a> {
    fn read(body: &mut Reader<'a>) -> Result<Self, MpError> {
        let mut subscribe = Self::default();
        for _ in 0..body.map()? {
            match u8::try_from(body.uint()?) {
                Ok(keys::INSTANCE_UUID) => subscribe.instance_uuid = Some(body.str()?),
                Ok(keys::CLUSTER_UUID) => subscribe.cluster_uuid = Some(body.str()?),
                Ok(keys::VCLOCK) => subscribe.vclock = Some(map(body)?),
                Ok(keys::SERVER_VERSION) => subscribe.version = body.uint()? as u32,
                Ok(keys::REPLICA_ANON) => subscribe.is_anonymous = body.bool()?,
                Ok(keys::ID_FILTER) => subscribe.id_filter = Some(array(body)?),
                Ok(keys::LINEAGE) => subscribe.lineage = Some(body.raw()?),
                _ => body.skip()?,
            }
        }
        Ok(subscribe)
    }
}

#[cfg(test)]
mod tests;
