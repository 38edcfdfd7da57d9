//! The loop: drives turns ([`lycosa_engine::turn`]) with the sockets and threads of the server.
//!
//! Connections' tasks read and hand requests to the instance; each asks for the turn to be ended. Its end writes every
//! connection's ready replies with one call each.
//!
//! Absent: handing rows over in the middle of a turn, so that the disk begins earlier. It was measured (8×32 and 50×1, on a
//! disk that syncs in 130 µs): clients fall into two groups of which one is synced while the other is served, with or
//! without it.
//!
//! Invariants: only code of this module's thread touches the [`Instance`]; at most one batch is at the journal thread;
//! the instance is never borrowed across an await.

use std::cell::{Cell, RefCell, RefMut};
use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lycosa_engine::journal::News as JournalNews;
use lycosa_engine::snapshots::{self, Outcome};
use lycosa_engine::turn::{self, Host, Parts, TurnState};
use lycosa_instance::{Caller, CheckpointOrder, ConnectionSlot, Excess, FreeSpace, Instance, Lsn};
use lycosa_queue::sampled::{Sampled, with_held_back};
use lycosa_queue::{LogLevel, LogLine};
use lycosa_replication::lineage::TermMark;
use lycosa_tls::rustls::ServerConfig;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinHandle, spawn_local};

use crate::appender::Unclosed;
use crate::checkpoint_thread::CheckpointSender;
use crate::clock::{self, micros, now};
use crate::cluster::member::Member;
use crate::http::Door;
use crate::journal::ServerJournal;
use crate::logging::one_line;
use crate::replication::Hub;
use crate::replication::fence;
use crate::slow_lane::SlowLane;
use crate::socket::Writer;

/// The longest sleep without a deadline; bounds how late a step of the system's clock is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The resolution of timers. For shorter waits the loop polls.
const FINEST_SLEEP: Duration = Duration::from_millis(1);

/// Microseconds of the processor that the calling thread has had.
fn processor_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let [seconds, nanoseconds] =
        [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or_default());
    seconds * 1_000_000 + nanoseconds / 1000
}

/// The loop's state of one connection's socket.
pub(crate) struct Link {
    pub(crate) writer: Writer,
    /// Wakes the connection's task: it may read again, has to wait for the socket, or has to end.
    pub(crate) wake: Notify,
    /// The kernel took less than it was given; the task waits until it takes more.
    pub(crate) blocked: Cell<bool>,
    /// The task stopped reading because the instance asked for a pause.
    pub(crate) paused: Cell<bool>,
    /// The client has closed its sending side: the task ends once all replies are written.
    pub(crate) lingering: Cell<bool>,
    /// The task has to end.
    pub(crate) closing: Cell<bool>,
    /// In a group: another node leads, and the task ends once all replies are written.
    pub(crate) dismissed: Cell<bool>,
}

impl Link {
    pub(crate) fn new(writer: Writer) -> Rc<Link> {
        Rc::new(Link {
            writer,
            wake: Notify::new(),
            blocked: Cell::new(false),
            paused: Cell::new(false),
            lingering: Cell::new(false),
            closing: Cell::new(false),
            dismissed: Cell::new(false),
        })
    }
}

impl Link {
    /// Asks the task to end.
    fn close(&self) {
        self.closing.set(true);
        self.wake.notify_one();
    }
}

/// The instance and the sockets around it.
pub(crate) struct Core {
    pub(crate) instance: RefCell<Instance>,
    pub(crate) end: Notify,
    /// When [`Core::run`] ends a turn though nothing happens.
    planned: Cell<Option<tokio::time::Instant>>,
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// Where connections wait whose requests hold the loop.
    pub(crate) slow_lane: SlowLane,
    links: RefCell<Vec<Option<Rc<Link>>>>,
    /// Connections whose tasks have stopped reading.
    paused: RefCell<Vec<ConnectionSlot>>,
    journal: RefCell<ServerJournal>,
    turn: RefCell<TurnState>,
    checkpoints: CheckpointSender,
    pub(crate) hub: Hub,
    /// Which connections of strangers are logged.
    strangers: RefCell<Sampled>,
    /// Which failures to accept a connection are logged.
    accept_errors: RefCell<Sampled>,
    /// Which closed readers are logged.
    slow_readers: RefCell<Sampled>,
    slow_senders: RefCell<Sampled>,
    /// HTTP, where it is served.
    pub(crate) door: RefCell<Option<Door>>,
    /// The certificate that is presented to clients that speak TLS.
    pub(crate) tls: RefCell<Option<Arc<ServerConfig>>>,
    /// Connections whose TLS handshake is under way.
    pub(crate) handshakes: Cell<usize>,
    /// Hears of every turn, if a program runs beside the instance.
    program: RefCell<Option<Rc<dyn Listener>>>,
    /// The code with which a program has ended the server, and the channel that waits for that.
    pub(crate) exit_code: Cell<Option<i32>>,
    pub(crate) told_to_exit: Notify,
    /// How many pieces of work the loop has done: requests, and news of the journal.
    work: Cell<u64>,
    /// Notified at the end of each turn.
    turned: Notify,
    /// In a group: the snapshot that is about to be completed.
    sealed: Cell<Option<u64>>,
    /// In a group: this node leads since the last turn, and makes what the configuration declares.
    pub(crate) has_to_declare: Cell<bool>,
    /// In a group: this node leads, or has led until this turn.
    has_led: Cell<bool>,
}

/// The events of the server for a program.
pub(crate) trait Listener {
    /// A turn has ended.
    fn turn_ended(&self, instance: &mut Instance);
    /// A connection was accepted.
    fn connected(&self, caller: Caller, peer: &str);
    /// A connection has ended.
    fn disconnected(&self, caller: Caller, peer: &str);
}

/// The outcome of a turn.
struct Ended {
    /// When the next one has to be, if nothing happens before.
    wake_in: Duration,
    /// It did a step of a checkpoint: other work has the next turn.
    was_long: bool,
    /// The next turn has to follow at once: something is due already, or rows wait for more to be given to the journal with
    /// them, and not for long. Timers are too coarse for either.
    follows: bool,
}

/// Bytes that one read takes at most.
const READ_SIZE: usize = 64 << 10;

impl Core {
    /// A master or a replica knows of a term.
    pub(crate) fn hear_term(&self, mark: TermMark) {
        if self.instance.borrow_mut().hear_term(mark, now()) {
            self.end.notify_one();
        }
    }

    pub(crate) fn new(
        mut instance: Instance,
        journal: ServerJournal,
        checkpoints: CheckpointSender,
        hub: Hub,
    ) -> Rc<Core> {
        let began = Instant::now();
        instance.set_elapsed(Box::new(move || micros(began.elapsed())));
        instance.set_processor_time(Box::new(processor_time));
        Rc::new(Core {
            instance: RefCell::new(instance),
            end: Notify::new(),
            planned: Cell::new(None),
            scratch: RefCell::new(vec![0; READ_SIZE]),
            slow_lane: SlowLane::default(),
            links: RefCell::default(),
            paused: RefCell::default(),
            turn: RefCell::default(),
            journal: RefCell::new(journal),
            checkpoints,
            hub,
            strangers: RefCell::default(),
            accept_errors: RefCell::default(),
            slow_readers: RefCell::default(),
            slow_senders: RefCell::default(),
            door: RefCell::default(),
            tls: RefCell::default(),
            handshakes: Cell::default(),
            program: RefCell::default(),
            exit_code: Cell::new(None),
            told_to_exit: Notify::new(),
            work: Cell::default(),
            turned: Notify::new(),
            sealed: Cell::default(),
            has_to_declare: Cell::default(),
            has_led: Cell::default(),
        })
    }

    /// Lets a program hear of turns and connections; `None` once it has ended. It holds this core, which would otherwise hold it, and
    /// the lock on the data folder, for ever.
    pub(crate) fn listen(&self, program: Option<Rc<dyn Listener>>) {
        *self.program.borrow_mut() = program;
    }

    /// Hands requests for programs out from now on.
    pub(crate) fn allow_programs(&self) {
        self.instance.borrow_mut().set_lua(true);
    }

    /// The program that hears of turns and connections.
    pub(crate) fn program(&self) -> Option<Rc<dyn Listener>> {
        self.program.borrow().clone()
    }

    /// The socket of a new connection.
    pub(crate) fn attach(&self, slot: ConnectionSlot, link: Rc<Link>) {
        let mut links = self.links.borrow_mut();
        if links.len() <= slot.index() {
            links.resize_with(slot.index() + 1, || None);
        }
        links[slot.index()] = Some(link);
    }

    /// The connection is gone.
    pub(crate) fn detach(&self, slot: ConnectionSlot) {
        self.links.borrow_mut()[slot.index()] = None;
    }

    /// Asks every connection's task to end.
    pub(crate) fn close_all(&self) {
        self.links.borrow().iter().flatten().for_each(|link| link.close());
    }

    /// Whether all rows are durable and all replies written.
    pub(crate) fn is_drained(&self) -> bool {
        self.journal_is_idle() && self.instance.borrow().is_drained()
    }

    /// Whether the journal thread has nothing to do.
    pub(crate) fn journal_is_idle(&self) -> bool {
        self.turn.borrow().is_idle()
    }

    /// The node of the group, if this server belongs to one.
    pub(crate) fn member(&self) -> Option<Rc<Member>> {
        self.journal.borrow().member().cloned()
    }

    /// Ends the journal cleanly if no thread does.
    ///
    /// # Errors
    /// As [`Appender::close`](crate::appender::Appender::close).
    pub(crate) fn close_journal(&self) -> Result<(), Unclosed> {
        self.journal.borrow_mut().close()
    }

    /// Spawns the tasks of the loop itself: one ends turns, one admits connections to the slow lane. `done` as for [`Self::run`].
    pub(crate) fn spawn(
        self: &Rc<Self>,
        done: Option<UnboundedReceiver<JournalNews>>,
        checkpoint_news: UnboundedReceiver<snapshots::News>,
    ) -> [JoinHandle<()>; 2] {
        let core = self.clone();
        let admissions = async move { core.slow_lane.admit().await };
        [spawn_local(self.clone().run(done, checkpoint_news)), spawn_local(admissions)]
    }

    /// Ends turns until the task is dropped. `done` is what the journal thread says, if there is one.
    async fn run(
        self: Rc<Self>,
        mut done: Option<UnboundedReceiver<JournalNews>>,
        mut checkpoint_news: UnboundedReceiver<snapshots::News>,
    ) {
        let sleep = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(sleep);
        let mut follows = false;
        loop {
            tokio::select! {
                biased;
                news = next(&mut done) => {
                    self.worked(1);
                    self.journal.borrow_mut().tell(news);
                }
                () = self.end.notified() => {}
                // A thread that has ended says nothing; who sends it an order finds out.
                Some(news) = checkpoint_news.recv() => self.checkpoint_news(news),
                () = &mut sleep => {}
                () = tokio::task::yield_now(), if follows => {}
            }
            let wake_in;
            let was_long;
            Ended { wake_in, was_long, follows } = self.end_turn();
            let until = tokio::time::Instant::now() + wake_in;
            if sleep.is_elapsed() || until < sleep.deadline() || sleep.deadline() + LONGEST_SLEEP < until {
                sleep.as_mut().reset(until);
            }
            self.planned.set(Some(sleep.deadline()));
            if was_long {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Ends a turn for a program, whose fibers need not wait for [`Core::run`] then. That loop is woken if it has to do more, or
    /// to end a turn earlier than planned.
    pub(crate) fn end_turn_at_once(self: &Rc<Self>) {
        let Ended { wake_in, was_long, follows } = self.end_turn();
        let is_earlier = || {
            let until = tokio::time::Instant::now() + wake_in;
            self.planned.get().is_none_or(|planned| until < planned)
        };
        if follows || was_long || (wake_in < LONGEST_SLEEP && is_earlier()) {
            self.end.notify_one();
        }
    }

    /// The connection's task has stopped reading; it is woken when the instance takes its requests again.
    pub(crate) fn pause(&self, slot: ConnectionSlot, link: &Link) {
        if !link.paused.replace(true) {
            self.paused.borrow_mut().push(slot);
        }
    }

    /// Wakes the paused connections whose requests the instance takes again.
    fn resume(&self, instance: &Instance) {
        let links = self.links.borrow();
        self.paused.borrow_mut().retain(|&slot| {
            let Some(link) = links.get(slot.index()).and_then(Option::as_ref) else { return false };
            if link.paused.get() && !instance.is_paused(slot) {
                link.paused.set(false);
                link.wake.notify_one();
            }
            link.paused.get()
        });
    }

    fn checkpoint_news(&self, news: snapshots::News) {
        if let (snapshots::News::Done { .. }, Some(signature)) = (&news, self.sealed.get())
            && let Some(member) = self.journal.borrow().member()
        {
            self.sealed.set(None);
            member.call(|journal| journal.snapshot_taken(signature));
        }
        match snapshots::tell(&mut self.instance.borrow_mut(), news, now()) {
            Outcome::Quiet | Outcome::Written { excess: None, .. } => {}
            Outcome::Written { written, excess: Some(excess) } => tracing::warn!(
                "the data folder took {} bytes until old files were removed, {excess} more than twice the live data and 4 times checkpoint_wal_threshold",
                written.peak
            ),
            Outcome::Failed { cause, is_first } => log_failed_checkpoint(&cause, is_first),
            Outcome::Lost { replicas, limit } => {
                for (replica, id) in replicas {
                    tracing::warn!(
                        "replica {id} ({replica}) is further behind than the {limit} bytes of journal that are kept for \
                         replicas (replication_journal_limit): it has to join again"
                    );
                }
            }
        }
    }

    fn end_turn(self: &Rc<Self>) -> Ended {
        let now = now();
        if let Some(ahead) = clock::adjust(now) {
            self.instance.borrow_mut().set_clock_ahead(ahead);
        }
        self.note_held_back(now);
        let mut surroundings = Surroundings {
            core: self,
            instance: self.instance.borrow_mut(),
            turn: self.turn.borrow_mut(),
            journal: self.journal.borrow_mut(),
        };
        let Ok(ended) = turn::end(&mut surroundings, now, Instant::now());
        let mut instance = surroundings.instance;
        self.resume(&instance);
        if let Some(mark) = instance.take_heard_term() {
            fence::keep(&self.hub.config.borrow().data_dir, instance.identity().cluster, mark);
        }
        if let Some(program) = &*self.program.borrow() {
            program.turn_ended(&mut instance);
        }
        let turn::Ended { next, waits, was_long } = ended;
        let wake_in = match next {
            Some(next) => Duration::from_micros(next.saturating_sub(now)).min(LONGEST_SLEEP),
            None => LONGEST_SLEEP,
        };
        let follows = wake_in.is_zero() || waits.is_some_and(|waits| waits <= FINEST_SLEEP);
        let wake_in = waits.map_or(wake_in, |waits| wake_in.min(waits));
        self.turned.notify_waiters();
        Ended { wake_in, was_long, follows }
    }

    /// Whether another connection fits beside the open connections and the handshakes under way.
    pub(crate) fn may_accept(&self) -> bool {
        self.instance.borrow().has_room_for(self.handshakes.get())
    }

    /// Logs that the connection of a client that does not speak the port's protocol was closed, unless many were lately.
    pub(crate) fn note_stranger(&self, peer: &str, cause: &str) {
        warn(&self.strangers, || format!("connection from {peer} closed: {}", one_line(cause)));
    }

    /// Ends the connection of the client with the most bytes of unserved requests.
    pub(crate) fn close_sender(&self, excess: &Excess) {
        self.close_link(excess);
        let Excess { peer, bytes, .. } = excess;
        warn(&self.slow_senders, || {
            format!(
                "connection from {peer} closed: {bytes} bytes of its requests had not come as a whole or waited for \
                 programs, and all connections together had more than max_input_total"
            )
        });
    }

    fn close_link(&self, excess: &Excess) {
        let links = self.links.borrow();
        links.get(excess.slot.index()).and_then(Option::as_ref).into_iter().for_each(|link| link.close());
    }

    /// Ends the connection of a client that does not read, or that an administrator has ended.
    fn close_reader(&self, excess: &Excess) {
        self.close_link(excess);
        if excess.is_dismissed {
            tracing::info!("connection from {} closed: an administrator has ended it", excess.peer);
            return;
        }
        let Excess { peer, bytes, .. } = excess;
        warn(&self.slow_readers, || {
            format!(
                "connection from {peer} closed: it does not read. {bytes} bytes of replies waited for it, and those of \
                 all connections had more than max_output_total"
            )
        });
    }

    /// Logs that a connection could not be accepted, unless many could not lately.
    pub(crate) fn note_accept_error(&self, error: &io::Error) {
        warn(&self.accept_errors, || format!("cannot accept a connection: {error}"));
    }

    /// Logs how many such lines were held back, once no further one is.
    fn note_held_back(&self, now: u64) {
        for (lines, what) in [
            (&self.strangers, "connections were closed at once"),
            (&self.slow_senders, "connections were closed whose unserved requests had the most bytes"),
            (&self.slow_readers, "connections were closed that do not read"),
            (&self.accept_errors, "connections could not be accepted"),
        ] {
            if let Some(count) = lines.borrow_mut().overdue(now) {
                tracing::warn!("{count} more {what}");
            }
        }
    }

    /// Requests were handled.
    #[inline]
    pub(crate) fn received(&self, requests: u64) {
        self.worked(requests);
        self.turn.borrow_mut().received(requests);
    }

    /// Resolves at the end of the next turn.
    pub(crate) fn turned(&self) -> Notified<'_> {
        self.turned.notified()
    }

    #[inline]
    fn worked(&self, pieces: u64) {
        self.work.set(self.work.get().wrapping_add(pieces));
    }

    /// Lets the loop serve its sockets and the journal until nothing is left to do there, for `share` at most. A program calls
    /// it after a long function: a client that has sent a request meanwhile has its reply before the next function runs.
    pub(crate) async fn settle(&self, share: Duration) {
        let until = tokio::time::Instant::now() + share;
        loop {
            let work = self.work.get();
            // The loop reads sockets and handles requests; it ends the turn after the next pass of this loop.
            tokio::task::yield_now().await;
            if tokio::time::Instant::now() >= until {
                return;
            }
            if self.work.get() != work {
                continue;
            }
            let has_work = |instance: &Instance| instance.has_open_batch() || instance.has_ready();
            if self.journal_is_idle() && !has_work(&self.instance.borrow()) {
                return;
            }
            let turned = self.turned.notified();
            if tokio::time::timeout_at(until, turned).await.is_err() {
                return;
            }
        }
    }

    /// The socket takes bytes again: writes once, and asks for the end of a turn, which writes the rest.
    pub(crate) fn writable(&self, slot: ConnectionSlot, link: &Link) {
        link.blocked.set(false);
        write(&mut self.instance.borrow_mut(), slot, link);
        self.end.notify_one();
    }
}

/// The surroundings of the instance while a turn ends.
struct Surroundings<'a> {
    core: &'a Core,
    instance: RefMut<'a, Instance>,
    turn: RefMut<'a, TurnState>,
    journal: RefMut<'a, ServerJournal>,
}

impl Host for Surroundings<'_> {
    type Journal = ServerJournal;
    type Stop = Infallible;

    fn parts(&mut self) -> Parts<'_, ServerJournal> {
        Parts { instance: &mut self.instance, turn: &mut self.turn, journal: &mut self.journal }
    }

    fn order(&mut self, order: CheckpointOrder) -> Result<(), Infallible> {
        let number = order.number();
        self.core.hub.hold_journals(&self.instance);
        let state = match (self.journal.member(), &order) {
            (Some(member), CheckpointOrder::Complete { .. }) => {
                let number = self.instance.checkpoint_signature();
                let state = number.and_then(|number| member.journal().base_of(number).cloned());
                self.core.sealed.set(state.as_ref().map(|state| state.signature));
                state
            }
            _ => None,
        };
        if !self.core.checkpoints.send(order, state) {
            let cause = "the checkpoint's thread does not answer";
            log_failed_checkpoint(cause, self.instance.handle_checkpoint_failed(number, cause, now()));
        }
        Ok(())
    }

    fn write(&mut self, slot: ConnectionSlot) -> Result<(), Infallible> {
        if let Some(link) = self.core.links.borrow().get(slot.index()).and_then(Option::as_ref) {
            write(&mut self.instance, slot, link);
        }
        Ok(())
    }

    fn durable(&mut self, lsn: Lsn, rows: &[u8]) -> Result<(), Infallible> {
        if let Some(vclock) = self.instance.batch_vclock(lsn) {
            self.core.hub.durable(rows, vclock);
        }
        Ok(())
    }

    fn leads(&mut self, ahead: i64) -> Result<(), Infallible> {
        if ahead.unsigned_abs() > clock::NOTABLE_DIFFERENCE {
            let seconds = ahead as f64 / 1e6;
            tracing::warn!(
                "the time of the leader before differs from this machine's by {seconds:+.1} s: deadlines go on with it"
            );
        }
        clock::go_on_from(ahead);
        tracing::info!("this node leads the group and takes writes");
        self.core.has_to_declare.set(true);
        self.core.has_led.set(true);
        Ok(())
    }

    fn follows(&mut self, leader: Option<u64>) -> Result<(), Infallible> {
        if self.core.has_led.replace(false) {
            self.dismiss();
        }
        match leader {
            Some(leader) => tracing::info!("node {leader} leads the group"),
            None => tracing::info!("the group has no leader that this node knows"),
        }
        Ok(())
    }

    fn failed(&mut self, cause: &str) -> Result<(), Infallible> {
        // The journal of a single server has said so itself.
        if self.journal.member().is_some() {
            tracing::error!("this member has left the service of its group: {cause}");
        }
        Ok(())
    }

    fn free_space_changed(&mut self, room: FreeSpace, is_scarce: bool) {
        let free = room.free;
        if is_scarce {
            tracing::error!(
                "only {free} bytes are free on the disk, which is less than disk_reserve: no new tasks are \
                 taken until there is room; ack, release, bury and delete still work"
            );
        } else {
            tracing::info!("{free} bytes are free on the disk: new tasks are taken again");
        }
    }

    fn displaced(&mut self, displaced: Option<&str>) {
        match displaced {
            Some(displaced) => tracing::error!(
                "{displaced} under the running server: changes are refused, reading goes on. Put it back, or \
                 save the data with `lycosa export` before this process ends"
            ),
            None => tracing::info!("the data folder is in its place again: changes are taken"),
        }
    }

    fn close(&mut self, excess: &Excess) {
        self.core.close_reader(excess);
    }

    fn log(&mut self, line: &LogLine) {
        log(line);
    }
}

impl Surroundings<'_> {
    /// Another node leads: each connection ends once its replies are written. Its client connects again, and is served by the
    /// leader.
    fn dismiss(&mut self) {
        let links = self.core.links.borrow();
        let open = links.iter().flatten().filter(|link| !link.writer.is_local());
        for link in open {
            link.lingering.set(true);
            link.dismissed.set(true);
            link.wake.notify_one();
        }
    }
}

/// What the journal thread says next, its end last; nothing without such a thread.
async fn next(done: &mut Option<UnboundedReceiver<JournalNews>>) -> JournalNews {
    let Some(receiver) = done else { return std::future::pending().await };
    let news = receiver.recv().await;
    news.unwrap_or_else(|| {
        *done = None;
        JournalNews::Failed("the journal's thread has ended".to_owned())
    })
}

/// Logs a line, unless many of its kind were logged lately.
fn warn(lines: &RefCell<Sampled>, text: impl FnOnce() -> String) {
    if let Some(held_back) = lines.borrow_mut().event(now()) {
        tracing::warn!("{}", with_held_back(text(), held_back));
    }
}

fn log_failed_checkpoint(cause: &str, is_first: bool) {
    if is_first {
        tracing::error!("no checkpoint could be taken, another attempt follows in a minute: {cause}");
    } else {
        tracing::debug!("a checkpoint was given up again: {cause}");
    }
}

/// Writes released replies, once; wakes the connection's task if that changes what the task has to wait for.
fn write(instance: &mut Instance, slot: ConnectionSlot, link: &Link) {
    if link.blocked.get() || link.closing.get() {
        return;
    }
    let ready = instance.output(slot);
    if !ready.is_empty() || link.writer.has_backlog() {
        let length = ready.len();
        match link.writer.try_write(ready) {
            Ok(count) => {
                instance.consume(slot, count);
                link.blocked.set(count < length || link.writer.has_backlog());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => link.blocked.set(true),
            Err(_) => link.closing.set(true),
        }
        if link.blocked.get() || link.closing.get() {
            link.wake.notify_one();
        }
    }
    let is_to_end = link.lingering.get() || instance.wants_close(slot);
    if is_to_end && instance.pending_bytes(slot) == 0 && !link.writer.has_backlog() {
        link.close();
    }
}

fn log(line: &LogLine) {
    let text = one_line(&line.text);
    match line.level {
        LogLevel::Error => tracing::error!("{text}"),
        LogLevel::Warning => tracing::warn!("{text}"),
        LogLevel::Info => tracing::info!("{text}"),
    }
}
