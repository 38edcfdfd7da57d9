//! Steps of long SELECTs: each reads a slice, and the reply leaves when it is complete.

use super::LongSelect;
use crate::front::Front;
use crate::front::call::too_many_waiting;
use crate::front::caller::{FrameReply, ParkedCall, ReplyTo};
use crate::front::waits_for::WaitsFor;
use crate::shard::Shard;
use crate::shard::data::{MAX_SELECTED, Select, too_much_selected};
use crate::shard::wire_error;
use crate::{Instance, Result, WalkError};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::reply;
use lycosa_store::{Budget, Cursor, CursorError, Error as StoreError, Progress};

/// The tuples and bytes that a SELECT may read in one step.
const SLICE: Budget<'static> = Budget::new(1024, 256 << 10);

/// Microseconds after which a step ends, too.
const SLICE_MICROSECONDS: u64 = 200;

/// Bytes of a chunk, but for the tuple that reaches them.
const CHUNK: usize = 256 << 10;

/// How long a reply waits for its connection to have no reply that waits for the journal, in microseconds. Then it is
/// copied behind them.
const MAX_ADOPTION: u64 = 1_000_000;

impl Instance {
    /// SELECT on a connection.
    pub(crate) fn handle_select(&mut self, to: FrameReply, select: &Select<'_>) -> Result<()> {
        let Some(caller) = self.front.caller(to.slot) else { return Ok(()) };
        let mut cursor = select.cursor(caller.effective);
        let Some(connection) = self.front.connections.get_mut(to.slot) else { return Ok(()) };
        let out = connection.replies.buffer();
        let undo = out.len();
        let start = reply::begin_data(out, to.sync);
        let values = out.len();
        let advanced =
            self.shard.data().advance(&mut cursor, SLICE, &mut |tuple| out.extend_from_slice(tuple));
        match advanced {
            Ok(Progress::End) => {
                reply::finish_data(out, start, count_of(&cursor), self.shard.store().schema_version());
                self.front.finish_reply(&self.shard, to.slot);
            }
            Ok(Progress::More) => {
                let chunk = out.split_off(values);
                out.truncate(undo);
                if !caller.may_wait {
                    return Err(too_many_waiting(self.front.settings.max_waiting));
                }
                let request = self.front.parked.next_request(caller.session);
                let reply = ReplyTo::Frame(to);
                self.front.park(request, ParkedCall { reply, waits_for: WaitsFor::Event });
                let (bytes, chunks) = (chunk.len(), vec![chunk]);
                let select = LongSelect { request, cursor, chunks, bytes, assembled_at: None };
                self.front.selects.queue.push_back(select);
            }
            Err(error) => {
                out.truncate(undo);
                return Err(select_error(error));
            }
        }
        Ok(())
    }

    /// Lets the next long SELECT go on. Whether there is one that can go on at once.
    pub(crate) fn step_selects(&mut self) -> bool {
        let Some(mut select) = self.front.selects.queue.pop_front() else { return false };
        let Some(&ParkedCall { reply: ReplyTo::Frame(to), .. }) = self.front.parked.get(select.request)
        else {
            return !self.front.selects.is_empty();
        };
        if select.assembled_at.is_none() {
            match self.advance_select(&mut select) {
                Ok(Progress::More) => {}
                Ok(Progress::End) => {
                    select.assembled_at = Some((self.shard.now(), self.shard.journaling().awaited()));
                }
                Err(error) => {
                    self.front.answer(&self.shard, select.request, Err(error));
                    return !self.front.selects.is_empty();
                }
            }
        }
        match select.assembled_at {
            None => self.front.selects.queue.push_back(select),
            Some((since, awaited)) => {
                let is_free = self.front.connections.get(to.slot).is_some_and(|connection| {
                    connection.replies.may_adopt() && awaited <= self.shard.journaling().released()
                });
                if is_free {
                    self.front.hand_over(&self.shard, to, select);
                } else if self.shard.now() >= since + MAX_ADOPTION {
                    let values = select.chunks.concat();
                    self.front.answer(&self.shard, select.request, Ok((count_of(&select.cursor), &values)));
                } else {
                    self.front.selects.queue.push_back(select);
                    // The journal's next answer is a turn too.
                    return self.front.selects.queue.iter().any(|select| select.assembled_at.is_none());
                }
            }
        }
        !self.front.selects.is_empty()
    }

    fn advance_select(&mut self, select: &mut LongSelect) -> Result<Progress> {
        let LongSelect { cursor, chunks, bytes, .. } = select;
        let mut keep = |tuple: &[u8]| {
            match chunks.last_mut() {
                Some(chunk) if chunk.len() < CHUNK => chunk.extend_from_slice(tuple),
                _ => {
                    let mut chunk = Vec::with_capacity(CHUNK);
                    chunk.extend_from_slice(tuple);
                    chunks.push(chunk);
                }
            }
            *bytes += tuple.len();
        };
        let (clocks, data) = (&self.loop_time.clocks, self.shard.data());
        let advanced =
            clocks.limit(SLICE, SLICE_MICROSECONDS, |budget| data.advance(cursor, budget, &mut keep));
        if *bytes > MAX_SELECTED {
            return Err(too_much_selected());
        }
        let limit = self.front.settings.max_output_total;
        if self.front.connections.unread() + self.front.selects.bytes() + *bytes > limit {
            return Err(too_much_unread(limit));
        }
        match advanced {
            Err(WalkError::Cursor(CursorError::IndexAltered { .. })) => {
                cursor.rewind();
                chunks.clear();
                *bytes = 0;
                Ok(Progress::More)
            }
            advanced => advanced.map_err(select_error),
        }
    }
}

impl Front {
    /// Gives an assembled reply to its connection, all of whose replies may leave.
    fn hand_over(&mut self, shard: &Shard, to: FrameReply, select: LongSelect) {
        let mut header = Vec::new();
        let count = count_of(&select.cursor);
        reply::data_header(&mut header, to.sync, count, select.bytes, shard.store().schema_version());
        self.unpark(select.request);
        let Some(connection) = self.connections.get_mut(to.slot) else { return };
        let mut chunks = select.chunks;
        chunks.insert(0, header);
        connection.replies.adopt(chunks);
        self.account_output(to.slot);
        self.connections.mark_ready(to.slot);
    }
}

/// The number of tuples in a reply. A reply has fewer than 2^32 bytes.
fn count_of(cursor: &Cursor) -> u32 {
    u32::try_from(cursor.handed_out()).unwrap_or(u32::MAX)
}

fn select_error(error: WalkError) -> ErrorObject {
    let error = match error {
        WalkError::Refused(error) => return error,
        WalkError::Cursor(error) => error,
    };
    wire_error::of_store(&match error {
        CursorError::Refused(error) => error,
        CursorError::SpaceDropped(space) => StoreError::NoSuchSpace(space.to_string()),
        CursorError::IndexDropped { space, index } => StoreError::NoSuchIndexId { index, space },
        CursorError::IndexAltered { space, .. } => StoreError::NoSuchSpace(space),
    })
}

fn too_much_unread(limit: usize) -> ErrorObject {
    let message = format!(
        "Failed to allocate a reply for select: with it, replies that wait to be read by clients would have more \
than max_output_total ({limit} bytes); ask for fewer tuples at a time with limit, or try again"
    );
    ErrorObject::client(ErrorCode::MemoryIssue, message)
}
