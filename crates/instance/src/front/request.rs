//! Requests: the effect and the reply of each kind, for every client.
//!
//! A request is answered at once (its reply is parked on the LSN of everything it has seen) or, if it is a call that has
//! to wait, when it is woken. Statements of one request are one transaction.

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::request::{Body, Header, Request, RequestError, Sql};
use lycosa_iproto::{keys, reply};
use lycosa_store::{Access, IteratorType, Object, SpaceId, Statement, UserId, system, user};
use lycosa_tuple::mp;
use lycosa_tuple::value::Value;

use crate::front::Front;
use crate::front::call::loading_error;
use crate::front::caller::{FrameReply, ReplyTo};
use crate::front::loop_time::Outside;
use crate::shard::Shard;
use crate::shard::data::{Data, Select};
use crate::shard::replication::vclock_value;
use crate::shard::wire_error::OnWire;
use crate::{Caller, ConnectionSlot, Instance, InvokeKind, OwnedStatement, Result};

impl Instance {
    /// Does what a request asks. Its reply is among the connection's output, now or later.
    pub fn handle_request(&mut self, slot: ConnectionSlot, request: &Request<'_>, now: u64) {
        self.input(now, |instance| instance.answer_request(slot, request));
    }

    fn answer_request(&mut self, slot: ConnectionSlot, request: &Request<'_>) {
        let header = &request.header;
        let to = FrameReply::new(slot, header.sync);
        match request.body {
            Body::Call { name, args } => return self.answer_call_rarely(to, header, name, args),
            Body::Call16 { name, args } => {
                return self.answer_call_rarely(FrameReply { is_call_16: true, ..to }, header, name, args);
            }
            _ => self.front.counts.count(header.kind),
        }
        use Body::{Auth, FetchSnapshot, Id, Join, Ping, Register, Subscribe, Unknown, Vote, VoteDeprecated};
        let is_of_replica =
            matches!(request.body, Join { .. } | Subscribe(_) | FetchSnapshot | Register { .. });
        let is_about_login = matches!(request.body, Ping | Auth { .. } | Vote | VoteDeprecated | Id { .. });
        let is_unknown = matches!(request.body, Unknown(_));
        let needs_usage = !is_about_login && !is_unknown;
        let wanted = if is_unknown { 0 } else { header.schema_version };
        if let Err(error) = self.front.admit(&self.shard, slot, wanted, needs_usage) {
            return match is_of_replica {
                true => self.front.refuse_replica(&self.shard, to, &error),
                false => self.front.refuse_request(&self.shard, to, &error),
            };
        }
        match self.measured(Outside::Request, |instance| instance.handle_body(to, request)) {
            Ok(()) => {}
            Err(error) if is_of_replica => self.front.refuse_replica(&self.shard, to, &error),
            Err(error) => {
                let error = self.front.without_foreign_tube(&self.shard, slot, error);
                self.front.refuse_request(&self.shard, to, &error);
            }
        }
    }

    /// As [`Self::answer_call`], for the rare callers.
    #[inline(never)]
    fn answer_call_rarely(&mut self, to: FrameReply, header: &Header, name: &[u8], args: &[u8]) {
        self.answer_call(to, header, name, args);
    }

    /// Answers a CALL; `call` is the function's name and its arguments, a MessagePack array.
    #[expect(clippy::inline_always, reason = "measured: nearly each request comes here")]
    #[inline(always)]
    pub(crate) fn answer_call(&mut self, to: FrameReply, header: &Header, name: &[u8], args: &[u8]) {
        self.front.counts.count(header.kind);
        match self.front.admit(&self.shard, to.slot, header.schema_version, true) {
            Ok(()) => self.handle_call(to.slot, to.sync, name, args, to.is_call_16),
            Err(error) => self.front.refuse_request(&self.shard, to, &error),
        }
    }

    /// Handles a request that calls nothing.
    fn handle_body(&mut self, to: FrameReply, request: &Request<'_>) -> Result<()> {
        match request.body {
            Body::Call { .. } | Body::Call16 { .. } => Ok(()),
            Body::Select { space, index, limit, offset, iterator, key } => {
                let (offset, limit) = (offset.into(), limit.into());
                let iterator = IteratorType::try_from(iterator).on_wire()?;
                let select = Select { space, index, iterator, key, offset, limit };
                match space == system::SESSION_SETTINGS && self.front.settings.lua {
                    true => self.select_settings(to, &select),
                    false => self.handle_select(to, &select),
                }
            }
            Body::Insert { space, tuple } => self.change(to, &Statement::Insert { space, tuple }),
            Body::Replace { space, tuple } => self.change(to, &Statement::Replace { space, tuple }),
            Body::Update { space, index, base, key, operations } => {
                self.change(to, &Statement::Update { space, index, key, operations, base })
            }
            Body::Upsert { space, base, tuple, operations } => {
                self.change(to, &Statement::Upsert { space, tuple, operations, base })
            }
            Body::Delete { space, index, key } => self.change(to, &Statement::Delete { space, index, key }),
            Body::Ping => {
                self.front.reply_ping(&self.shard, to);
                Ok(())
            }
            Body::Auth { user, scramble } => self.front.authenticate(&self.shard, to, user, scramble),
            Body::Vote => self.front.reply_ballot(&mut self.shard, to),
            Body::VoteDeprecated => self.front.reply_vclock(&self.shard, to),
            Body::Eval { text, args } => self.handle_eval(to, text, args),
            Body::Execute(sql, parameters) => self.handle_sql(to, false, &sql, parameters),
            Body::Prepare(sql) => self.handle_sql(to, true, &sql, &[0x90]),
            Body::Join { .. } | Body::Subscribe(_) | Body::FetchSnapshot | Body::Register { .. } => {
                self.take_replica_request(to.slot, &request.body)
            }
            Body::Id { .. } | Body::Unknown(_) => {
                Err(RequestError::unknown_type(to.sync, request.header.kind).object())
            }
        }
    }

    /// Answers a request with the values that `body` appends: it returns how many they are.
    fn reply_with_data(
        &mut self,
        to: FrameReply,
        body: impl FnOnce(&mut Data, UserId, &mut Vec<u8>) -> Result<u32>,
    ) -> Result<()> {
        let Some(connection) = self.front.connections.get_mut(to.slot) else { return Ok(()) };
        let user = connection.user;
        let out = connection.replies.buffer();
        let undo = out.len();
        let start = reply::begin_data(out, to.sync);
        match body(self.shard.data(), user, out) {
            Ok(count) => {
                reply::finish_data(out, start, count, self.shard.store().schema_version());
                self.front.finish_reply(&self.shard, to.slot);
                Ok(())
            }
            Err(error) => {
                out.truncate(undo);
                Err(error)
            }
        }
    }

    /// One statement as a transaction of its own.
    fn change(&mut self, to: FrameReply, statement: &Statement<'_>) -> Result<()> {
        let is_of_program = statement.space() == system::SESSION_SETTINGS
            || self.shard.store().hooks(statement.space()).any();
        if self.front.settings.lua && is_of_program {
            return self.change_with_triggers(to, statement);
        }
        self.reply_with_data(to, |data, user, out| data.execute(user, statement, out))
    }

    /// A statement on a space with triggers: a program executes it.
    fn change_with_triggers(&mut self, to: FrameReply, statement: &Statement<'_>) -> Result<()> {
        let Some(caller) = self.front.caller(to.slot) else { return Ok(()) };
        let kind = InvokeKind::Statement(OwnedStatement::of(statement));
        self.front.invoke(caller, kind, &[0x90], ReplyTo::Frame(to));
        Ok(())
    }

    /// A SELECT from `_session_settings`, whose rows are the session's own: the modules of Lua keep them.
    fn select_settings(&mut self, to: FrameReply, select: &Select<'_>) -> Result<()> {
        let Some(caller) = self.front.caller(to.slot) else { return Ok(()) };
        let readable = Object::Space(system::SESSION_SETTINGS);
        self.shard.store().check_access(caller.effective, readable, Access::READ).on_wire()?;
        let mut args = Vec::new();
        mp::write_array(&mut args, 4);
        for number in [u64::from(select.iterator as u32), select.offset, select.limit] {
            mp::write_uint(&mut args, number);
        }
        args.extend_from_slice(select.key);
        self.front.invoke(caller, InvokeKind::Settings, &args, ReplyTo::Frame(to));
        Ok(())
    }

    /// An SQL statement: a program runs it.
    fn handle_sql(&mut self, to: FrameReply, prepare: bool, sql: &Sql<'_>, parameters: &[u8]) -> Result<()> {
        if self.front.settings.loading {
            return Err(loading_error());
        }
        if !self.front.settings.lua {
            let message = "Lycosa does not support SQL (EXECUTE, PREPARE) on this server, which runs no Lua: \
                           use SELECT, INSERT, UPDATE and CALL requests";
            return Err(ErrorObject::client(ErrorCode::Unsupported, message));
        }
        let Some(caller) = self.front.caller(to.slot) else { return Ok(()) };
        self.front.check_sql(&self.shard, caller.user)?;
        let statement = match *sql {
            Sql::Text(text) => Ok(text.to_vec()),
            Sql::Prepared(id) => Err(id),
        };
        self.front.invoke(caller, InvokeKind::Sql { prepare, statement }, parameters, ReplyTo::Frame(to));
        Ok(())
    }

    /// Whether the caller must not learn that a space exists: it is a tube's, and the caller has no right to it.
    #[must_use]
    pub fn hides_space(&self, caller: &Caller, space: SpaceId) -> bool {
        !caller.trusted
            && self.shard.queue().is_tube_space(space)
            && !self.shard.store().may_know_space(caller.effective, space)
    }

    fn handle_eval(&mut self, to: FrameReply, expression: &[u8], args: &[u8]) -> Result<()> {
        let Some(caller) = self.front.caller(to.slot) else { return Ok(()) };
        self.eval_for(caller, expression, args, ReplyTo::Frame(to)).map(drop)
    }
}

impl Front {
    /// Sends a refusal to a replica at once: a reply that waited for replicas would wait for this one.
    fn refuse_replica(&mut self, shard: &Shard, to: FrameReply, error: &ErrorObject) {
        self.note_denied(to.slot, error);
        self.reply_error_when(shard, to, error, true);
    }

    /// A refusal about a space that the request has named by its number. Tarantool's text gives away the name; that of a
    /// tube of which the user may not know is replaced by the number.
    fn without_foreign_tube(&self, shard: &Shard, slot: ConnectionSlot, error: ErrorObject) -> ErrorObject {
        let Some(connection) = self.connections.get(slot) else { return error };
        let field = |wanted: &str| {
            let mut fields = error.fields.iter();
            fields.find(|(name, _)| name == wanted).map_or("", |(_, value)| value.as_str())
        };
        let (name, object_type, access) = (field("object_name"), field("object_type"), field("access_type"));
        if error.code != u32::from(ErrorCode::AccessDenied) || object_type != "space" {
            return error;
        }
        let (store, user) = (shard.store(), connection.user);
        let Some(space) = store.space_by_name(name).map(lycosa_store::Space::id) else { return error };
        let is_of_tube = shard.queue().is_tube_space(space);
        if !is_of_tube || connection.is_trusted(&self.settings) || store.may_know_space(user, space) {
            return error;
        }
        let user = store.user(user).map_or_else(|| user.to_string(), |user| user.name.clone());
        ErrorObject::access_denied(access, object_type, &space.to_string(), &user)
    }

    /// Conditions of every request. `wanted` is the schema version that the client believes in, 0 for any.
    #[expect(clippy::inline_always, reason = "measured: each request comes here")]
    #[inline(always)]
    fn admit(&mut self, shard: &Shard, slot: ConnectionSlot, wanted: u64, needs_usage: bool) -> Result<()> {
        let version = shard.journaling().system_version();
        let connection = self.connections.get_mut(slot);
        let (is_admitted, is_forwarded) = connection.map_or((false, false), |connection| {
            connection.is_proven = true;
            (connection.admitted == Some(version), connection.is_forwarded)
        });
        if is_forwarded {
            shard.check_leads()?;
        }
        let current = u64::from(shard.store().schema_version());
        if wanted != 0 && wanted != current {
            let message = format!("Wrong schema version, current: {current}, in request: {wanted}");
            return Err(ErrorObject::client(ErrorCode::WrongSchemaVersion, message));
        }
        if is_admitted {
            return Ok(());
        }
        if needs_usage && let Some(connection) = self.connections.get(slot) {
            shard.check_universe(connection.user, Access::USAGE)?;
            if let Some(connection) = self.connections.get_mut(slot) {
                connection.admitted = Some(version);
            }
        }
        Ok(())
    }

    /// SQL is for users who have logged in, and for `guest` if it was granted a right to data: a connection alone is
    /// no reason to parse and plan. A Tarantool 2.6 takes it from every user, later ones ask for a right of its own.
    fn check_sql(&self, shard: &Shard, user: UserId) -> Result<()> {
        if user != user::GUEST || shard.store().is_granted_data(user) {
            return Ok(());
        }
        Err(ErrorObject::access_denied("Execute", "sql", "", "guest"))
    }

    fn reply_with(&mut self, shard: &Shard, to: FrameReply, body: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        self.encode_reply(shard, to, body);
        self.finish_reply_about_instance(shard, to.slot);
        Ok(())
    }

    fn encode_reply(&mut self, shard: &Shard, to: FrameReply, body: impl FnOnce(&mut Vec<u8>)) {
        let Some(connection) = self.connections.get_mut(to.slot) else { return };
        let out = connection.replies.buffer();
        let start = reply::begin(out, keys::CODE_OK, to.sync, shard.store().schema_version());
        body(out);
        reply::finish(out, start);
    }

    /// A PING has seen no data: its answer waits for earlier ones of its connection alone, and not for rows of other clients. In a
    /// group it also says that the leader still leads, so there it waits as a read does.
    fn reply_ping(&mut self, shard: &Shard, to: FrameReply) {
        self.encode_reply(shard, to, |out| mp::write_map(out, 0));
        match shard.election() {
            Some(_) => self.finish_reply(shard, to.slot),
            None => self.connections.finish_reply(to.slot, 0, 0, u64::MAX),
        }
    }

    pub(crate) fn reply_empty(&mut self, shard: &Shard, to: FrameReply) -> Result<()> {
        self.reply_with(shard, to, |out| mp::write_map(out, 0))
    }

    fn reply_ballot(&mut self, shard: &mut Shard, to: FrameReply) -> Result<()> {
        let term = shard.latest_term();
        let mut ballot = vec![
            (keys::ballot::IS_READ_ONLY_CONFIGURED, Value::from(shard.is_read_only_configured())),
            (keys::ballot::IS_READ_ONLY, shard.is_read_only().into()),
            (keys::ballot::VCLOCK, vclock_value(shard.journaling().vclock())),
            (keys::ballot::OLDEST_VCLOCK, vclock_value(&shard.oldest_vclock())),
        ];
        let replicas = shard.replicas();
        let (following, wanted) = (replicas.following_count(), self.settings.replicas_before_reply);
        // The ballot of an instance without any replicas is that of a Tarantool, byte for byte.
        if wanted > 0 || replicas.iter().any(|peer| peer.id != 0) {
            ballot.push((keys::ballot::REPLICAS_FOLLOWING, (following as u64).into()));
            ballot.push((keys::ballot::REPLICAS_BEFORE_REPLY, (wanted as u64).into()));
        }
        if term.number > 0 {
            ballot.push((keys::ballot::TERM, Value::array([term.number, term.owner.into()])));
        }
        if let Some(election) = shard.election() {
            let is_forwarded =
                self.connections.get(to.slot).is_some_and(|connection| connection.is_forwarded);
            ballot.push((keys::ballot::ELECTION, vec![election.term.into(), is_forwarded.into()].into()));
        }
        let ballot = Value::map([(keys::BALLOT, Value::map(ballot))]);
        self.reply_with(shard, to, |out| ballot.write(out))
    }

    fn reply_vclock(&mut self, shard: &Shard, to: FrameReply) -> Result<()> {
        let body = Value::map([(keys::VCLOCK, vclock_value(shard.journaling().vclock()))]);
        self.reply_with(shard, to, |out| body.write(out))
    }

    /// Ends the reply that was just encoded. It may leave when everything that is in the journal's batches so far is
    /// durable, because it may have seen any of it.
    pub(crate) fn finish_reply(&mut self, shard: &Shard, slot: ConnectionSlot) {
        let journaling = shard.journaling();
        // Replicas confirm single rows: a reply that waits for one does not wait for those behind it.
        let batch = if self.settings.replicas_before_reply == 0 { journaling.batch() } else { u64::MAX };
        self.connections.finish_reply(slot, journaling.awaited(), journaling.released(), batch);
    }

    /// Ends a reply that tells about the instance and not about data, and that replicas and operators need: with
    /// [`Settings::replicas_before_reply`](crate::Settings::replicas_before_reply) it does not wait for replicas.
    pub(crate) fn finish_reply_about_instance(&mut self, shard: &Shard, slot: ConnectionSlot) {
        if self.settings.replicas_before_reply == 0 {
            return self.finish_reply(shard, slot);
        }
        self.connections.finish_reply(slot, 0, 0, u64::MAX);
    }
}
