//! What each request does: the door through which every client comes.
//!
//! A request is answered at once (its reply is parked on the LSN of everything it has seen) or, if it is a call that has
//! to wait, when it is woken. Statements of one request are one transaction.

use lycosa_iproto::auth::{self, Hash};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::request::{AuthTuple, Body, Header, Request, RequestError, Sql};
use lycosa_iproto::{keys, reply};
use lycosa_store::{Access, IteratorType, Space, Statement, UserKind, user};
use lycosa_tuple::mp;

use crate::wire_error;
use crate::{Instance, Slot};

/// Largest reply to one SELECT, in bytes.
const MAX_SELECT_REPLY: usize = 512 << 20;

impl Instance {
    /// Does what a request asks. Its reply is among the connection's output, now or later.
    pub fn handle_request(&mut self, slot: Slot, request: &Request<'_>, now: u64) {
        self.now = now;
        let header = &request.header;
        self.counts.count(header.kind);
        if let Err(error) = self.admit(slot, request) {
            return self.reply_error(slot, header.sync, &error);
        }
        let done = match request.body {
            Body::Call { name, args } => return self.call(slot, header.sync, name, args, false),
            Body::Call16 { name, args } => return self.call(slot, header.sync, name, args, true),
            Body::Select { space, index, limit, offset, iterator, key } => {
                self.select(slot, header, space, index, iterator, key, offset, limit)
            }
            Body::Insert { space, tuple } => self.change(slot, header, &Statement::Insert { space, tuple }),
            Body::Replace { space, tuple } => self.change(slot, header, &Statement::Replace { space, tuple }),
            Body::Update { space, index, base, key, operations } => {
                self.change(slot, header, &Statement::Update { space, index, key, operations, base })
            }
            Body::Upsert { space, base, tuple, operations } => {
                self.change(slot, header, &Statement::Upsert { space, tuple, operations, base })
            }
            Body::Delete { space, index, key } => {
                self.change(slot, header, &Statement::Delete { space, index, key })
            }
            Body::Ping => self.reply_empty(slot, header),
            Body::Auth { user, scramble } => self.authenticate(slot, header, user, scramble),
            Body::Vote => self.reply_ballot(slot, header),
            Body::VoteDeprecated => self.reply_vclock(slot, header),
            Body::Eval { .. } => self.refuse_eval(slot),
            Body::Execute(sql) | Body::Prepare(sql) => Err(refuse_sql(&sql)),
            Body::Join { .. } | Body::Subscribe(_) | Body::FetchSnapshot | Body::Register { .. } => {
                self.refuse_replication(slot)
            }
            Body::Id { .. } | Body::Unknown(_) => {
                Err(RequestError::unknown_type(header.sync, header.kind).object())
            }
        };
        if let Err(error) = done {
            self.reply_error(slot, header.sync, &error);
        }
    }

    /// What has to hold before a request is looked at.
    fn admit(&mut self, slot: Slot, request: &Request<'_>) -> Result<(), ErrorObject> {
        let version = self.journaling.system_version();
        let connection = self.connections.get_mut(slot);
        let is_admitted = connection.is_some_and(|connection| {
            connection.is_proven = true;
            connection.admitted == Some(version)
        });
        let wanted = request.header.schema_version;
        let current = u64::from(self.store.schema_version());
        if wanted != 0 && wanted != current && !matches!(request.body, Body::Unknown(_)) {
            return Err(ErrorObject::client(
                ErrorCode::WrongSchemaVersion,
                format!("Wrong schema version, current: {current}, in request: {wanted}"),
            ));
        }
        if self.failure.is_none() && is_admitted {
            return Ok(());
        }
        if self.failure.is_some() && touches_data(&request.body) {
            return Err(self.failure_error());
        }
        let needs_usage = !matches!(
            request.body,
            Body::Ping
                | Body::Auth { .. }
                | Body::Vote
                | Body::VoteDeprecated
                | Body::Id { .. }
                | Body::Unknown(_)
        );
        if needs_usage
            && !is_admitted
            && let Some(connection) = self.connections.get(slot)
        {
            self.check_universe(connection.user, Access::USAGE)?;
            if let Some(connection) = self.connections.get_mut(slot) {
                connection.admitted = Some(version);
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "these are the fields of the request")]
    fn select(
        &mut self,
        slot: Slot,
        header: &Header,
        space: u32,
        index: u32,
        iterator: u32,
        key: &[u8],
        offset: u32,
        limit: u32,
    ) -> Result<(), ErrorObject> {
        let iterator = IteratorType::try_from(iterator).map_err(|error| wire_error::of_store(&error))?;
        self.show(space)?;
        self.store.catch_up(space, index);
        let schema_version = self.store.schema_version();
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        let user = connection.user;
        let out = connection.replies.buffer();
        let undo = out.len();
        let start = reply::begin_data(out, header.sync);
        let mut count = 0;
        let selected =
            self.store.select(user, space, index, iterator, key, offset.into(), limit.into(), &mut |tuple| {
                count += 1;
                if out.len() - undo <= MAX_SELECT_REPLY {
                    out.extend_from_slice(tuple);
                }
            });
        if let Err(error) = selected {
            out.truncate(undo);
            return Err(wire_error::of_store(&error));
        }
        if out.len() - undo > MAX_SELECT_REPLY {
            out.truncate(undo);
            out.shrink_to(undo);
            return Err(ErrorObject::client(
                ErrorCode::MemoryIssue,
                format!(
                    "Failed to allocate a reply of more than {MAX_SELECT_REPLY} bytes for select: \
                     ask for fewer tuples at a time with limit"
                ),
            ));
        }
        reply::finish_data(out, start, count, schema_version);
        self.finish_reply(slot);
        Ok(())
    }

    /// One statement as a transaction of its own.
    fn change(&mut self, slot: Slot, header: &Header, statement: &Statement<'_>) -> Result<(), ErrorObject> {
        if self.read_only && !self.is_temporary(statement.space()) {
            return Err(read_only_error());
        }
        if let Statement::Insert { .. } | Statement::Replace { .. } | Statement::Upsert { .. } = statement {
            self.check_room()?;
        }
        self.show(statement.space())?;
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        let out = connection.replies.buffer();
        let undo = out.len();
        self.store.begin(connection.user);
        let start = reply::begin_data(out, header.sync);
        let count = match self.store.execute(statement) {
            Ok(tuple) => {
                out.extend_from_slice(tuple.unwrap_or_default());
                u32::from(tuple.is_some())
            }
            Err(error) => {
                out.truncate(undo);
                self.rollback();
                return Err(wire_error::of_store(&error));
            }
        };
        reply::finish_data(out, start, count, self.store.schema_version());
        if let Err(error) = self.commit() {
            if let Some(connection) = self.connections.get_mut(slot) {
                connection.replies.buffer().truncate(undo);
            }
            return Err(error);
        }
        self.finish_reply(slot);
        Ok(())
    }

    /// Lets the queue bring a space up to date before a request reads or changes it.
    fn show(&mut self, space: u32) -> Result<(), ErrorObject> {
        self.queue.show(&mut self.store, space).map_err(|error| wire_error::of_queue(&error))
    }

    /// Commits the open transaction: lets the queue see it, moves its rows to the journal's batch and answers the calls
    /// that waited for it. If the queue cannot keep in step, the transaction is rolled back.
    pub(crate) fn commit(&mut self) -> Result<(), ErrorObject> {
        if let Err(error) = self.queue.on_commit(&mut self.store) {
            self.rollback();
            return Err(wire_error::of_queue(&error));
        }
        self.store.commit();
        self.queue.after_commit(&mut self.store, self.now);
        self.settle(self.now);
        Ok(())
    }

    /// Rolls the open transaction back.
    pub(crate) fn rollback(&mut self) {
        self.store.rollback();
        self.queue.on_rollback(&self.store);
    }

    fn is_temporary(&self, space: u32) -> bool {
        self.store.space(space).is_ok_and(Space::is_temporary)
    }

    fn authenticate(
        &mut self,
        slot: Slot,
        header: &Header,
        name: &[u8],
        scramble: AuthTuple<'_>,
    ) -> Result<(), ErrorObject> {
        let Some(connection) = self.connections.get(slot) else { return Ok(()) };
        let shown = String::from_utf8_lossy(name).into_owned();
        let known = std::str::from_utf8(name).ok().and_then(|name| self.store.user_by_name(name));
        let Some(account) = known.filter(|account| account.kind == UserKind::User) else {
            return Err(ErrorObject::client(ErrorCode::NoSuchUser, format!("User '{shown}' is not found")));
        };
        let id = account.id;
        let is_right = match (scramble, account.hash2) {
            (AuthTuple::Empty, _) if id == user::GUEST => true,
            (scramble, hash2) => {
                let scramble: &Hash = scramble
                    .scramble()
                    .map_err(|reason| ErrorObject::client(ErrorCode::InvalidMsgpack, reason))?;
                hash2.is_some_and(|hash2| auth::check(scramble, &connection.salt, &hash2))
            }
        };
        if !is_right {
            self.counts.failed_logins += 1;
            return Err(ErrorObject::client(
                ErrorCode::PasswordMismatch,
                format!("Incorrect password supplied for user '{shown}'"),
            ));
        }
        self.check_universe(id, Access::SESSION)?;
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.user = id;
            connection.forget_names();
        }
        self.reply_empty(slot, header)
    }

    fn refuse_eval(&self, slot: Slot) -> Result<(), ErrorObject> {
        if let Some(connection) = self.connections.get(slot) {
            self.check_universe(connection.user, Access::EXECUTE)?;
        }
        let message = "Lycosa does not support EVAL: this server runs no Lua; \
                       CALL the functions of queue and box instead, e.g. queue.create_tube";
        Err(ErrorObject::client(ErrorCode::Unsupported, message))
    }

    fn refuse_replication(&self, slot: Slot) -> Result<(), ErrorObject> {
        if let Some(connection) = self.connections.get(slot) {
            self.check_universe(connection.user, Access::READ)?;
        }
        Err(ErrorObject::client(ErrorCode::Unsupported, "Lycosa does not support replication requests"))
    }

    fn reply_with(
        &mut self,
        slot: Slot,
        header: &Header,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), ErrorObject> {
        let schema_version = self.store.schema_version();
        if let Some(connection) = self.connections.get_mut(slot) {
            let out = connection.replies.buffer();
            let start = reply::begin(out, keys::CODE_OK, header.sync, schema_version);
            body(out);
            reply::finish(out, start);
            self.finish_reply(slot);
        }
        Ok(())
    }

    fn reply_empty(&mut self, slot: Slot, header: &Header) -> Result<(), ErrorObject> {
        self.reply_with(slot, header, |out| mp::write_map(out, 0))
    }

    fn reply_ballot(&mut self, slot: Slot, header: &Header) -> Result<(), ErrorObject> {
        let vclock = self.journaling.vclock().clone();
        let oldest = self.oldest_vclock.clone();
        let read_only = self.read_only;
        self.reply_with(slot, header, |out| {
            mp::write_map(out, 1);
            mp::write_uint(out, u64::from(keys::BALLOT));
            mp::write_map(out, 4);
            mp::write_uint(out, u64::from(keys::ballot::IS_READ_ONLY_CONFIGURED));
            mp::write_bool(out, read_only);
            mp::write_uint(out, u64::from(keys::ballot::IS_READ_ONLY));
            mp::write_bool(out, read_only);
            mp::write_uint(out, u64::from(keys::ballot::VCLOCK));
            vclock.encode(out);
            mp::write_uint(out, u64::from(keys::ballot::OLDEST_VCLOCK));
            oldest.encode(out);
        })
    }

    fn reply_vclock(&mut self, slot: Slot, header: &Header) -> Result<(), ErrorObject> {
        let vclock = self.journaling.vclock().clone();
        self.reply_with(slot, header, |out| {
            mp::write_map(out, 1);
            mp::write_uint(out, u64::from(keys::VCLOCK));
            vclock.encode(out);
        })
    }

    /// Ends the reply that was just encoded. It may leave when everything that is in the journal's batches so far is
    /// durable, because it may have seen any of it.
    pub(crate) fn finish_reply(&mut self, slot: Slot) {
        self.connections.finish_reply(slot, self.journaling.awaited(), self.journaling.durable());
    }
}

/// The answer to a change while the instance is read-only.
pub(crate) fn read_only_error() -> ErrorObject {
    let message = "Can't modify data because this instance is in read-only mode.";
    ErrorObject::client(ErrorCode::Readonly, message)
}

fn touches_data(body: &Body<'_>) -> bool {
    matches!(
        body,
        Body::Select { .. }
            | Body::Insert { .. }
            | Body::Replace { .. }
            | Body::Update { .. }
            | Body::Upsert { .. }
            | Body::Delete { .. }
    )
}

fn refuse_sql(_: &Sql<'_>) -> ErrorObject {
    let message =
        "Lycosa does not support SQL (EXECUTE, PREPARE): use SELECT, INSERT, UPDATE and CALL requests";
    ErrorObject::client(ErrorCode::Unsupported, message)
}
