//! The turn: everything between two waits of a loop, in the server, in the simulator and in a program that embeds
//! Lycosa).
//!
//! Inputs come between two turns: connections, requests, transactions of programs, news of the writer of snapshots. Then
//! [`end`] does everything else, in this order:
//!
//! 1. news of the journal are told to the instance, which releases replies;
//! 2. expired deadlines fire ([`Instance::tick`]);
//! 3. a checkpoint goes on by one step ([`Host::order`]);
//! 4. rows go to the journal, or wait for more;
//! 5. replies that may leave are written ([`Host::write`]), at most [`MAX_WRITTEN`] bytes, readers that do not read are closed,
//!    lines are logged.
//!
//! The surroundings of the instance are a [`Host`]: its journal, its sockets, its writer of snapshots. Its other methods hear
//! of events and need not do anything.
//!
//! Invariants: no more batches are unconfirmed than the journal's [`Pace`] allows; meanwhile rows gather for
//! the next one (group commit); a journal that is [`Pace::Immediate`] gets every batch at once.

use std::time::{Duration, Instant};

use lycosa_instance::{
    Batch, CheckpointOrder, ConnectionSlot, Excess, Followed, FreeSpace, Instance, Lsn, Released, TurnPart,
};
use lycosa_queue::LogLine;
use lycosa_store::{Breaks, Budget};

use crate::group::{OWNERS_LEVEL, entry};
use crate::group_commit::GroupCommit;
use crate::journal::{Journal, Membership, News, Pace};

/// What one turn does for a checkpoint: some tenths of a millisecond.
pub const CHECKPOINT_STEP: Budget<'static> = Budget::new(512, 64 << 10);

/// Bytes of replies that one turn writes, but for the last write. The other connections follow in the next turn, which
/// [`Ended::next`] then asks for at once.
pub const MAX_WRITTEN: usize = 512 << 10;

/// Entries of the group that a member applies between two breaks: about as many changes as a busy leader has in a turn of 0.1 ms.
const ENTRIES_BETWEEN_BREAKS: u32 = 2;

/// A write counts as at least this many bytes: the system call takes as long as copying 8 KiB.
const WRITE_COST: usize = 8 << 10;

/// What a loop remembers from turn to turn.
#[derive(Debug, Default)]
pub struct TurnState {
    /// Unconfirmed batches.
    in_flight: usize,
    /// The data are suspended, and the journal was not asked for others yet.
    awaits_memory: bool,
    /// The instance takes no more writes, and the journal was not told yet that the earlier ones are confirmed.
    hands_over: bool,
    group_commit: GroupCommit,
}

impl TurnState {
    /// Requests have arrived.
    #[inline]
    pub fn received(&mut self, requests: u64) {
        self.group_commit.received(requests);
    }

    /// Whether no batch is unconfirmed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// The batch that goes to the journal now, or for how long the rows wait for more.
    fn next_batch(&mut self, instance: &mut Instance, pace: Pace, clock: Instant) -> Result<Batch, Duration> {
        const NOTHING: Duration = Duration::MAX;
        if let Pace::Pipelined(limit) = pace {
            let until = self.group_commit.waits(clock);
            if self.in_flight >= limit.max(1) {
                return Err(NOTHING);
            }
            if let Some(until) = until.filter(|_| limit <= 1 && instance.has_open_batch()) {
                return Err(until - clock);
            }
        }
        let batch = instance.poll_append().ok_or(NOTHING)?;
        self.in_flight += 1;
        self.group_commit.handed_over(clock);
        Ok(batch)
    }

    fn durable(&mut self, pace: Pace, released: Released, clock: Instant) {
        self.in_flight = self.in_flight.checked_sub(1).expect("a batch becomes durable once");
        if pace != Pace::Immediate {
            self.group_commit.durable(clock, released.answered, released.waiting);
        }
    }
}

/// The three that a turn moves.
#[allow(missing_debug_implementations, reason = "an instance has no text")]
pub struct Parts<'a, J> {
    /// The instance.
    pub instance: &'a mut Instance,
    /// State kept from turn to turn.
    pub turn: &'a mut TurnState,
    /// The journal.
    pub journal: &'a mut J,
}

/// The surroundings of an instance.
pub trait Host {
    /// What makes rows durable.
    type Journal: Journal;
    /// Why a turn ends in the middle; [`std::convert::Infallible`] where it never does.
    type Stop;

    /// What the turn moves.
    fn parts(&mut self) -> Parts<'_, Self::Journal>;

    /// Hands an order to the writer of snapshots.
    ///
    /// # Errors
    /// Ends the turn.
    fn order(&mut self, order: CheckpointOrder) -> Result<(), Self::Stop>;

    /// Writes what a connection's client may be told, once ([`Instance::output`], [`Instance::consume`]).
    ///
    /// # Errors
    /// Ends the turn.
    fn write(&mut self, slot: ConnectionSlot) -> Result<(), Self::Stop>;

    /// What a checkpoint may do in this turn.
    fn checkpoint_step(&mut self) -> Budget<'static> {
        CHECKPOINT_STEP
    }

    /// Expired deadlines have fired; the next one is at `next`.
    ///
    /// # Errors
    /// Ends the turn.
    fn ticked(&mut self, next: Option<u64>) -> Result<(), Self::Stop> {
        let _ = next;
        Ok(())
    }

    /// A batch goes to the journal.
    ///
    /// # Errors
    /// Ends the turn.
    fn submits(&mut self, batch: &Batch) -> Result<(), Self::Stop> {
        let _ = batch;
        Ok(())
    }

    /// Rows wait for those of clients that were just answered.
    fn waits(&mut self, duration: Duration) {
        let _ = duration;
    }

    /// The batch that ends with `lsn` is durable; the instance hears of it next.
    ///
    /// # Errors
    /// Ends the turn.
    fn durable(&mut self, lsn: Lsn, rows: &[u8]) -> Result<(), Self::Stop> {
        let _ = (lsn, rows);
        Ok(())
    }

    /// Everything behind `from` was lost, and the instance goes back to it, in the next turns too. Who feeds
    /// [`Instance::apply`] asks its master again, from the present vclock on, once [`Instance::is_rebuilding`] is over.
    ///
    /// # Errors
    /// Ends the turn.
    fn lost(&mut self, from: Lsn) -> Result<(), Self::Stop> {
        let _ = from;
        Ok(())
    }

    /// This node leads its group, and the instance takes writes. The time of the leader before it is `ahead` microseconds ahead
    /// of the time that the turns were given: they continue it, so that no deadline notices a jump.
    ///
    /// # Errors
    /// Ends the turn.
    fn leads(&mut self, ahead: i64) -> Result<(), Self::Stop> {
        let _ = ahead;
        Ok(())
    }

    /// This node follows the leader of its group, if it knows one; the instance takes no writes.
    ///
    /// # Errors
    /// Ends the turn.
    fn follows(&mut self, leader: Option<u64>) -> Result<(), Self::Stop> {
        let _ = leader;
        Ok(())
    }

    /// The data were loaded anew, perhaps from a snapshot that this node has received: the writer of snapshots is to know it
    /// ([`Snapshots::set_sound`](crate::snapshots::Snapshots::set_sound)), and the instance its files
    /// ([`Instance::set_checkpoint_base`]).
    ///
    /// # Errors
    /// Ends the turn.
    fn restored(&mut self) -> Result<(), Self::Stop> {
        Ok(())
    }

    /// The journal has failed, and the instance knows.
    ///
    /// # Errors
    /// Ends the turn.
    fn failed(&mut self, cause: &str) -> Result<(), Self::Stop> {
        let _ = cause;
        Ok(())
    }

    /// The disk has become short of free space, or has ceased to be.
    fn free_space_changed(&mut self, room: FreeSpace, is_scarce: bool) {
        let _ = (room, is_scarce);
    }

    /// The data folder is not in its place any more, or is again.
    fn displaced(&mut self, displaced: Option<&str>) {
        let _ = displaced;
    }

    /// The replies of a reader that does not read were dropped; its connection ends.
    fn close(&mut self, excess: &Excess) {
        let _ = excess;
    }

    /// A line for the log.
    fn log(&mut self, line: &LogLine) {
        let _ = line;
    }
}

/// What came of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// When the next thing is due, in microseconds since the epoch; now, if replies are left to be written.
    pub next: Option<u64>,
    /// For how long at most rows wait to be submitted. Nothing wakes the loop for them.
    pub waits: Option<Duration>,
    /// A checkpoint has made a step: a turn that is as long as others are altogether.
    pub was_long: bool,
}

/// Ends a turn. `now` is the time in microseconds since the epoch; `clock` never goes back. Where the turn hears that this node
/// leads its group, it goes on with the time of the leader before ([`Host::leads`]), and so do the turns that follow.
///
/// # Errors
/// Of the host.
pub fn end<H: Host>(host: &mut H, now: u64, clock: Instant) -> Result<Ended, H::Stop> {
    let mut now = now;
    host.parts().instance.begin_turn(now);
    hear(host, &mut now, clock)?;
    host.parts().instance.end_part(TurnPart::Journal);
    let next = host.parts().instance.tick(now);
    host.ticked(next)?;
    let Parts { instance, turn, journal } = host.parts();
    if turn.awaits_memory && instance.is_vacated() {
        turn.awaits_memory = false;
        membership(journal).restore();
    }
    let was_long = advance_checkpoint(host)?;
    if was_long {
        host.parts().instance.end_part(TurnPart::Snapshot);
    }
    let waits = submit(host, &mut now, clock)?;
    host.parts().instance.end_part(TurnPart::Journal);
    let Parts { instance, turn, journal } = host.parts();
    if turn.hands_over && turn.is_idle() && !instance.has_open_batch() {
        turn.hands_over = false;
        membership(journal).hand_over();
    }
    let has_output = write_replies(host)?;
    host.parts().instance.end_part(TurnPart::Replies);
    while let Some(excess) = host.parts().instance.poll_excess() {
        host.close(&excess);
    }
    while let Some(line) = host.parts().instance.poll_log() {
        host.log(&line);
    }
    let Parts { instance, .. } = host.parts();
    instance.end_part(TurnPart::Log);
    instance.end_turn();
    let next = if has_output { Some(now) } else { next };
    Ok(Ended { next, waits, was_long })
}

/// # Panics
/// The journal has news that a member of a group alone has, and is no member's.
fn membership<J: Journal>(journal: &mut J) -> &mut J::Membership {
    journal.membership().expect("a journal with news of a group has a membership")
}

/// Writes what may leave, each connection's once. Whether there is more.
fn write_replies<H: Host>(host: &mut H) -> Result<bool, H::Stop> {
    let mut written = 0;
    while written < MAX_WRITTEN {
        let instance = host.parts().instance;
        let Some(slot) = instance.poll_ready() else { return Ok(false) };
        written += instance.output(slot).len().max(WRITE_COST);
        host.write(slot)?;
    }
    Ok(host.parts().instance.has_ready())
}

fn advance_checkpoint<H: Host>(host: &mut H) -> Result<bool, H::Stop> {
    if !host.parts().instance.has_checkpoint() {
        return Ok(false);
    }
    let budget = host.checkpoint_step();
    let Some(order) = host.parts().instance.poll_checkpoint(budget) else { return Ok(false) };
    host.order(order)?;
    Ok(true)
}

/// Submits batches as far as the journal takes them. If rows wait for more: for how long.
fn submit<H: Host>(host: &mut H, now: &mut u64, clock: Instant) -> Result<Option<Duration>, H::Stop> {
    loop {
        let Parts { instance, turn, journal } = host.parts();
        match turn.next_batch(instance, journal.pace(), clock) {
            Ok(batch) => {
                host.submits(&batch)?;
                host.parts().journal.submit(batch);
                hear(host, now, clock)?;
            }
            Err(Duration::MAX) => {
                if let Some(lsn) = instance.begin_read() {
                    membership(journal).read(lsn);
                    hear(host, now, clock)?;
                }
                return Ok(None);
            }
            Err(duration) => {
                host.waits(duration);
                return Ok(Some(duration));
            }
        }
    }
}

fn next_news<J: Journal>(Parts { instance, journal, .. }: Parts<'_, J>) -> Option<News> {
    if let Some(membership) = journal.membership() {
        membership.pause(instance.is_rebuilding());
    }
    journal.poll()
}

/// Hears what the journal has to say.
fn hear<H: Host>(host: &mut H, now: &mut u64, clock: Instant) -> Result<(), H::Stop> {
    let breaks = Breaks::every(ENTRIES_BETWEEN_BREAKS);
    loop {
        let Some(news) = next_news(host.parts()) else { return Ok(()) };
        match news {
            News::Entry { data } => {
                if let Err(cause) = apply(host.parts().instance, &data, *now) {
                    fail(host, &cause)?;
                }
                breaks.step();
            }
            News::Read { lsn } => host.parts().instance.handle_read(lsn),
            News::Level(level) => host.parts().instance.note_owners(level >= OWNERS_LEVEL),
            News::GoesOn => {
                let Parts { instance, turn, .. } = host.parts();
                turn.hands_over = false;
                instance.handle_goes_on(*now);
            }
            News::Leads => {
                let ahead = host.parts().instance.handle_leads(*now);
                *now = now.saturating_add_signed(ahead);
                host.leads(ahead)?;
            }
            News::HandsOver => {
                let Parts { instance, turn, .. } = host.parts();
                turn.hands_over = true;
                instance.handle_hands_over(*now);
            }
            News::Follows { leader } => follow(host, leader, *now)?,
            News::Suspended => {
                let Parts { instance, turn, .. } = host.parts();
                (turn.in_flight, turn.awaits_memory) = (0, true);
                instance.handle_suspended(*now);
            }
            News::Restored { confirmed } => {
                let Parts { instance, turn, .. } = host.parts();
                turn.in_flight = 0;
                instance.handle_restored(*confirmed, *now);
                host.restored()?;
            }
            News::SnapshotWanted => {
                let Parts { instance, journal, .. } = host.parts();
                // Told in each turn until a snapshot meets the need: a checkpoint under way may.
                if !instance.has_checkpoint() && !instance.request_checkpoint() {
                    membership(journal).restate(instance.durable_vclock().signature());
                }
            }
            News::Durable { lsn, buffers } => {
                host.durable(lsn, &buffers.rows)?;
                let Parts { instance, turn, journal } = host.parts();
                let released = instance.handle_durable(lsn, buffers);
                turn.durable(journal.pace(), released, clock);
            }
            News::Lost { from, confirmed } => {
                let Parts { instance, turn, .. } = host.parts();
                turn.in_flight = 0;
                instance.handle_lost(from, *confirmed, *now);
                host.lost(from)?;
            }
            News::Failed(cause) => fail(host, &cause)?,
            News::Displaced(displaced) => {
                if host.parts().instance.handle_displaced(displaced.as_deref()) {
                    host.displaced(displaced.as_deref());
                }
            }
            News::FreeSpace { room, is_scarce } => {
                if host.parts().instance.handle_free_space(is_scarce.then_some(room)) {
                    host.free_space_changed(room, is_scarce);
                }
            }
        }
    }
}

/// Another member leads the group.
fn follow<H: Host>(host: &mut H, leader: Option<u64>, now: u64) -> Result<(), H::Stop> {
    let Parts { instance, turn, journal } = host.parts();
    turn.hands_over = false;
    match instance.handle_follows(now) {
        Followed::Unchanged => {}
        Followed::Clean => turn.in_flight = 0,
        Followed::Ahead => {
            (turn.in_flight, turn.awaits_memory) = (0, true);
            membership(journal).suspend();
        }
    }
    host.follows(leader)
}

/// Applies an entry of the group's log.
fn apply(instance: &mut Instance, data: &[u8], now: u64) -> Result<(), String> {
    let entry = entry::decode(data).map_err(|error| error.to_string())?;
    instance.apply_entry(&entry.transactions, entry.owners, now).map_err(|error| {
        format!("an entry that the group has confirmed cannot be applied: {}", error.message)
    })
}

fn fail<H: Host>(host: &mut H, cause: &str) -> Result<(), H::Stop> {
    let Parts { instance, turn, .. } = host.parts();
    turn.in_flight = 0;
    instance.handle_failed(cause);
    host.failed(cause)
}
