//! Callers with tokens: what a token's role may call.
//!
//! A door whose clients present secrets asks [`Instance::token_caller`] for a [`Caller`] and calls as all other doors do.
//! That caller acts as `admin` inside, and [`Instance::call`] admits its calls by its token: the role decides which
//! functions, the token's tubes decide which tubes. A function that no rule names needs an administrator's token, and
//! programs' functions are out of reach. Functions about the whole instance need a token for every tube; lists of tubes
//! show a token its own ones.
//!
//! Invariant: each call asks the token's row again, so nothing outlasts a revocation.

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_tuple::value::Value;

use crate::front::names::not_defined;
use crate::shard::admission::leads_no_more_error;
use crate::shard::tokens;
use crate::{Called, Caller, CallerKind, Instance, Result, Token, TokenDigest, TokenId, TokenRole};

/// Whether a function about all tubes shows a token its own tubes only.
fn is_list(name: &str) -> bool {
    let own = name.strip_prefix("queue.");
    matches!(own, Some("tubes" | "tube" | "statistics" | "stats" | "status" | "audit" | "jobs"))
}

/// The role that a method of a tube needs.
fn needed_by_method(name: &str) -> TokenRole {
    match name {
        // They only look. A count leaves a job, which tells the numbers.
        "peek" | "list" | "find" | "count" | "explain" | "job" | "jobs" | "status" | "recount" => {
            TokenRole::Viewer
        }
        // They add, finish and steer tasks.
        "put" | "put_many" | "take" | "take_many" | "ack" | "ack_many" | "release" | "release_many"
        | "release_all" | "touch" | "bury" | "bury_many" | "kick" | "kick_many" | "delete"
        | "delete_many" | "apply" | "control" | "undo" | "pause" | "resume" => TokenRole::Operator,
        _ => TokenRole::Administrator,
    }
}

/// The need of a function's name from a token: the role, and the tube if the function is one tube's.
fn needed(name: &str) -> (TokenRole, Option<&str>) {
    if let Some((tube, method)) = name.strip_prefix("queue.tube.").and_then(|rest| rest.rsplit_once(':')) {
        return (needed_by_method(method), Some(tube));
    }
    let role = match name {
        // It steers tasks.
        "lycosa.session.release" => TokenRole::Operator,
        // They change nothing.
        "queue.state" | "queue.sessions" | "box.info" | "box.info.memory" | "box.stat" | "box.stat.net"
        | "box.slab.info" | "expiration.list" | "expiration.stats" => TokenRole::Viewer,
        name if is_list(name) => TokenRole::Viewer,
        _ => TokenRole::Administrator,
    };
    (role, None)
}

impl Instance {
    /// The caller behind a token's secret; `session` is one of [`Self::open_token_session`]. It may wait.
    ///
    /// # Errors
    /// No valid token has that secret: the error's `name` is `TOKEN_INVALID`.
    pub fn token_caller(&self, digest: &TokenDigest, session: u64) -> Result<Caller> {
        let token = tokens::by_digest(self.shard.store(), digest, self.shard.now());
        let token = token.ok_or_else(invalid)?;
        let token = Some(token.id);
        Ok(Caller { kind: CallerKind::Http, session, may_wait: true, token, ..Caller::internal() })
    }

    /// Opens a session for the callers of a token; the audit log and lists name them by it. Returns the session's number.
    pub fn open_token_session(&mut self, id: TokenId) -> u64 {
        let session = self.open_session();
        if let Some(token) = self.token(id) {
            self.shard.data().name_session(session, &token.name, token.role.name());
        }
        session
    }

    /// The valid token with that number.
    pub fn token(&self, id: TokenId) -> Option<Token> {
        tokens::by_id(self.shard.store(), id, self.shard.now())
    }

    /// The refusal of a token that is unknown, revoked or expired.
    #[must_use]
    pub fn invalid_token() -> ErrorObject {
        invalid()
    }

    /// The refusal of a call that was to be made while this instance leads its group, and comes when the instance leads no more.
    #[must_use]
    pub fn leads_no_more() -> ErrorObject {
        leads_no_more_error()
    }

    /// Changes when a token was added or revoked.
    pub fn token_revision(&self) -> Option<(u64, u64)> {
        tokens::revision(self.shard.store())
    }

    /// Refuses a caller whose token has a lesser role than `role`, or is not for every tube: for a door's own functions
    /// about the whole instance. A caller without a token passes.
    ///
    /// # Errors
    /// `TOKEN_INVALID`; no right.
    pub fn check_token_role(&self, caller: &Caller, role: TokenRole, what: &str) -> Result<()> {
        let Some(id) = caller.token else { return Ok(()) };
        let token = self.token(id).ok_or_else(invalid)?;
        admit_role(&token, role, what)?;
        admit_tube(&token, None, what)
    }

    /// Calls a function for a caller with a token.
    pub(crate) fn call_with_token(
        &mut self,
        id: TokenId,
        caller: &Caller,
        name: &[u8],
        args: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Called> {
        let restriction = self.admit_token(id, name, args)?;
        let target = self.front.find(&self.shard, name).ok_or_else(|| not_defined(name))?;
        let start = out.len();
        let called = self.call_admitted(caller, name, Some(target), args, out)?;
        if let (Some(token), Called::Done { .. }) = (restriction, called) {
            let shown = Value::decode(&out[start..]).map(|shown| restrict(shown, &token));
            out.truncate(start);
            shown.unwrap_or(Value::Nil).write(out);
        }
        Ok(called)
    }

    /// Whether a token admits a call. Returns the token if the answer is to be restricted to the token's tubes.
    pub(crate) fn admit_token(&self, id: TokenId, name: &[u8], args: &[u8]) -> Result<Option<Token>> {
        let token = self.token(id).ok_or_else(invalid)?;
        let text = String::from_utf8_lossy(name);
        let (role, tube) = needed(&text);
        admit_role(&token, role, &text)?;
        if tube.is_some() || !is_list(&text) {
            admit_tube(&token, tube, &text)?;
            // A move puts tasks into another tube, and its undo takes them out of there.
            let to = match &*text {
                _ if tube.is_none() => None,
                text if text.ends_with(":apply") => destination(args),
                text if text.ends_with(":undo") => {
                    let (queue, store) = (self.shard.queue(), self.shard.store());
                    first_number(args).and_then(|job| queue.destination_of_job(store, job))
                }
                _ => None,
            };
            if let Some(to) = to {
                admit_tube(&token, Some(&to), &text)?;
            }
            return Ok(None);
        }
        // A list about one tube names it; of all tubes it shows the token's.
        let named = Value::decode(args).ok();
        let named = named.as_ref().and_then(Value::as_array).and_then(<[Value]>::first);
        match named.and_then(|named| named.as_str().or_else(|| named.get("tube")?.as_str())) {
            Some(tube) => admit_tube(&token, Some(tube), &text).map(|()| None),
            None => Ok(Some(token).filter(|token| !token.is_of_every_tube())),
        }
    }
}

/// The first argument, if it is a number that the queue takes for an id.
fn first_number(args: &[u8]) -> Option<u64> {
    let args = Value::decode(args).ok()?;
    match args.as_array()?.first()? {
        Value::Double(number) => Some(*number as u64),
        number => number.as_u64(),
    }
}

/// The tube that the arguments of `apply` name as the destination. Of an option that is given twice the queue takes the last,
/// and binary strings are names, too.
fn destination(args: &[u8]) -> Option<String> {
    let args = Value::decode(args).ok()?;
    let Value::Map(options) = args.as_array()?.get(2)? else { return None };
    let text = |value: &Value| match value {
        Value::Str(bytes) | Value::Bin(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    let is_named =
        |(name, value): &&(Value, Value)| text(name).as_deref() == Some("to") && *value != Value::Nil;
    text(&options.iter().rfind(is_named)?.1)
}

fn admit_role(token: &Token, role: TokenRole, what: &str) -> Result<()> {
    if token.role >= role {
        return Ok(());
    }
    Err(denied(token, what, &format!("its role is {}, and {} is needed", token.role.name(), role.name())))
}

/// `tube`: `None` for the instance as a whole.
fn admit_tube(token: &Token, tube: Option<&str>, what: &str) -> Result<()> {
    match tube {
        Some(tube) if !token.covers(tube) => {
            Err(denied(token, what, &format!("it is not for the tube '{tube}'")))
        }
        None if !token.is_of_every_tube() => Err(denied(token, what, "it is not for every tube")),
        _ => Ok(()),
    }
}

fn denied(token: &Token, what: &str, reason: &str) -> ErrorObject {
    let message = format!("token '{}' may not call {what}: {reason}", token.name);
    ErrorObject::client(ErrorCode::AccessDenied, message).with_name("TOKEN_DENIED")
}

fn invalid() -> ErrorObject {
    let message = "the token is unknown, revoked or expired: `lycosa token add` makes one";
    ErrorObject::client(ErrorCode::AccessDenied, message).with_name("TOKEN_INVALID")
}

/// The part of a list about all tubes that a token may see: its own tubes.
fn restrict(shown: Value, token: &Token) -> Value {
    let covers = |tube: &Value| tube.as_str().is_some_and(|tube| token.covers(tube));
    // Names, or maps that name a tube.
    let is_own = |item: &Value| covers(item.get("tube").or_else(|| item.get("name")).unwrap_or(item));
    match shown {
        Value::Map(pairs) if pairs.iter().any(|(name, tubes)| is_page(name, tubes)) => {
            // The instance as a whole is for tokens of every tube.
            let pairs = pairs.into_iter().filter(|(name, _)| matches!(name.as_str(), Some("tubes" | "next")));
            let own = |value: Value| match value {
                Value::Array(tubes) => Value::Array(tubes.into_iter().filter(&is_own).collect()),
                next => next,
            };
            Value::Map(pairs.map(|(name, value)| (name, own(value))).collect())
        }
        Value::Map(pairs) => Value::Map(pairs.into_iter().filter(|(name, _)| covers(name)).collect()),
        Value::Array(items) => Value::Array(items.into_iter().filter(is_own).collect()),
        shown => shown,
    }
}

/// Whether a member of a map is the array of a page's tubes.
fn is_page(name: &Value, tubes: &Value) -> bool {
    name.as_str() == Some("tubes") && tubes.as_array().is_some()
}
