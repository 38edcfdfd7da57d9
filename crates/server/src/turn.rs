//! The turn: what happens between two waits of the loop.
//!
//! Connections' tasks read and hand requests to the instance; each asks for the turn to be ended. Ending it does what is
//! due, appends the turn's rows or gives them to the journal thread if that is idle (else they wait and grow: group
//! commit; and sometimes they wait for those who were just answered: [`gathering`](crate::gathering)), and writes every
//! connection's ready replies with one call each.
//!
//! Absent: handing rows over in the middle of a turn, so that the disk begins earlier. It was measured (8×32 and 50×1, on a
//! disk that syncs in 130 µs): clients fall into two groups of which one is synced while the other is served, with or
//! without it.
//!
//! Invariants: only code of this module's thread touches the [`Instance`]; at most one batch is at the journal thread;
//! the instance is never borrowed across an await.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lycosa_instance::{Caller, Instance, Released, Slot};
use lycosa_queue::{LogLevel, LogLine};
use lycosa_store::Budget;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::checkpoint_thread::{CheckpointSender, News};
use crate::gathering::Gathering;
use crate::journal::{Done, Journal};
use crate::replication::Hub;
use crate::socket::Writer;
use crate::strangers::Sampled;

/// The longest sleep without a deadline; bounds how late a jump of the system clock is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Timers are not more exact than this; who must not sleep longer asks again and again.
const FINEST_SLEEP: Duration = Duration::from_millis(1);

/// Microseconds since the epoch, by the system clock.
pub(crate) fn now() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

/// What the loop knows of one connection's socket.
pub(crate) struct Link {
    pub(crate) writer: Writer,
    /// Wakes the connection's task: it may read again, has to wait for the socket, or has to end.
    pub(crate) wake: Notify,
    /// The kernel took less than it was given; the task waits until it takes more.
    pub(crate) blocked: Cell<bool>,
    /// The task stopped reading because the instance asked for a pause.
    pub(crate) paused: Cell<bool>,
    /// The client has closed its sending side: the task ends once everything that is on its way is written.
    pub(crate) lingering: Cell<bool>,
    /// The task has to end.
    pub(crate) closing: Cell<bool>,
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
        })
    }
}

/// The instance and the sockets around it.
pub(crate) struct Core {
    pub(crate) instance: RefCell<Instance>,
    pub(crate) end: Notify,
    pub(crate) scratch: RefCell<Vec<u8>>,
    links: RefCell<Vec<Option<Rc<Link>>>>,
    /// Connections whose tasks have stopped reading.
    paused: RefCell<Vec<Slot>>,
    journal: Journal,
    journal_busy: Cell<bool>,
    gathering: RefCell<Gathering>,
    checkpoints: CheckpointSender,
    pub(crate) hub: Hub,
    /// Which connections of strangers are logged.
    pub(crate) strangers: RefCell<Sampled>,
    /// Hears of every turn, if a program runs beside the instance.
    program: RefCell<Option<Rc<dyn Listener>>>,
}

/// What a program hears of the server.
pub(crate) trait Listener {
    /// A turn has ended.
    fn turn_ended(&self, instance: &mut Instance);
    /// A connection has come.
    fn connected(&self, caller: Caller, peer: &str);
    /// A connection has ended.
    fn disconnected(&self, caller: Caller, peer: &str);
}

/// What came of a turn.
struct Turn {
    /// When the next one has to be, if nothing happens before.
    wake_in: Duration,
    /// It did a step of a checkpoint: the others come first now.
    was_long: bool,
    /// Rows wait for more to be given to the journal with them, and not for long: the next turn has to follow at once.
    gathers: bool,
}

/// What one turn may do for a checkpoint: some tenths of a millisecond.
const CHECKPOINT_STEP: Budget = Budget { rows: 512, bytes: 64 << 10 };

/// Bytes that one read takes at most.
const READ_SIZE: usize = 64 << 10;

impl Core {
    pub(crate) fn new(
        mut instance: Instance,
        journal: Journal,
        checkpoints: CheckpointSender,
        hub: Hub,
    ) -> Rc<Core> {
        let began = Instant::now();
        instance
            .set_elapsed(Box::new(move || u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)));
        Rc::new(Core {
            instance: RefCell::new(instance),
            end: Notify::new(),
            scratch: RefCell::new(vec![0; READ_SIZE]),
            links: RefCell::default(),
            paused: RefCell::default(),
            journal,
            journal_busy: Cell::new(false),
            gathering: RefCell::default(),
            checkpoints,
            hub,
            strangers: RefCell::default(),
            program: RefCell::default(),
        })
    }

    /// Lets a program hear of turns and connections.
    pub(crate) fn listen(&self, program: Rc<dyn Listener>) {
        *self.program.borrow_mut() = Some(program);
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
    pub(crate) fn attach(&self, slot: Slot, link: Rc<Link>) {
        let mut links = self.links.borrow_mut();
        if links.len() <= slot.index() {
            links.resize_with(slot.index() + 1, || None);
        }
        links[slot.index()] = Some(link);
    }

    /// The connection is gone.
    pub(crate) fn detach(&self, slot: Slot) {
        self.links.borrow_mut()[slot.index()] = None;
    }

    /// Asks every connection's task to end.
    pub(crate) fn close_all(&self) {
        for link in self.links.borrow().iter().flatten() {
            link.closing.set(true);
            link.wake.notify_one();
        }
    }

    /// Whether no row and no reply is on its way.
    pub(crate) fn is_drained(&self) -> bool {
        self.journal_is_idle() && self.instance.borrow().is_drained()
    }

    /// Whether the journal thread has nothing to do.
    pub(crate) fn journal_is_idle(&self) -> bool {
        !self.journal_busy.get()
    }

    /// Ends the journal cleanly if no thread does.
    pub(crate) fn close_journal(&self) {
        if let Journal::Here(appender) = &self.journal {
            appender.borrow_mut().close();
        }
    }

    /// Ends turns until the task is dropped. `done` is what the journal thread says, if there is one.
    pub(crate) async fn run(
        self: Rc<Self>,
        mut done: Option<UnboundedReceiver<Done>>,
        mut checkpoint_news: UnboundedReceiver<News>,
    ) {
        let sleep = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(sleep);
        let mut gathers = false;
        loop {
            tokio::select! {
                biased;
                Some(received) = next(&mut done) => match received {
                    Some(news) => self.journal_news(&mut self.instance.borrow_mut(), news),
                    None => {
                        done = None;
                        let news = Done::Failed("the journal's thread has ended".to_owned());
                        self.journal_news(&mut self.instance.borrow_mut(), news);
                    }
                },
                () = self.end.notified() => {}
                // A thread that has ended says nothing; who sends it an order finds out.
                Some(news) = checkpoint_news.recv() => self.checkpoint_news(news),
                () = &mut sleep => {}
                () = tokio::task::yield_now(), if gathers => {}
            }
            let wake_in;
            let was_long;
            Turn { wake_in, was_long, gathers } = self.end_turn();
            let until = tokio::time::Instant::now() + wake_in;
            if sleep.is_elapsed() || until < sleep.deadline() || sleep.deadline() + LONGEST_SLEEP < until {
                sleep.as_mut().reset(until);
            }
            if was_long {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The connection's task has stopped reading; it is woken when the instance takes its requests again.
    pub(crate) fn pause(&self, slot: Slot, link: &Link) {
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

    fn journal_news(&self, instance: &mut Instance, done: Done) {
        match done {
            Done::Durable { lsn, buffers } => {
                self.journal_busy.set(false);
                if let Some(vclock) = instance.batch_vclock(lsn) {
                    self.hub.durable(&buffers.rows, vclock);
                }
                let Released { answered, waiting } = instance.handle_durable(lsn, buffers);
                self.gathering.borrow_mut().durable(Instant::now(), answered, waiting);
            }
            Done::Failed(cause) => {
                self.journal_busy.set(false);
                instance.handle_failed(&cause);
            }
            Done::Room { room, is_scarce } => {
                let free = room.free;
                if !instance.handle_room(is_scarce.then_some(room)) {
                    return;
                }
                if is_scarce {
                    tracing::error!(
                        "only {free} bytes are free on the disk, which is less than disk_reserve: no new tasks are \
                         taken until there is room; ack, release, bury and delete still work"
                    );
                } else {
                    tracing::info!("{free} bytes are free on the disk: new tasks are taken again");
                }
            }
        }
    }

    fn checkpoint_news(&self, news: News) {
        let mut instance = self.instance.borrow_mut();
        match news {
            News::Wants { number, buffer } => instance.handle_checkpoint_wants(number, buffer),
            News::Done { number, written } => {
                if let Some(excess) = instance.handle_checkpoint_done(number, &written, now()) {
                    tracing::warn!(
                        "the data folder took {} bytes until old files were removed, {excess} more than twice the live data and 4 times checkpoint_wal_threshold",
                        written.peak
                    );
                }
            }
            News::Failed { number, cause } => checkpoint_failed(&mut instance, number, &cause),
        }
    }

    /// Lets a checkpoint go on by one step. Whether there was one to do.
    fn advance_checkpoint(&self, instance: &mut Instance) -> bool {
        if !instance.has_checkpoint() {
            return false;
        }
        let began = Instant::now();
        let Some(order) = instance.poll_checkpoint(CHECKPOINT_STEP) else { return false };
        let microseconds = began.elapsed().as_micros();
        instance.note_checkpoint_pause(u64::try_from(microseconds).unwrap_or(u64::MAX));
        let number = order.number();
        if !self.checkpoints.send(order) {
            checkpoint_failed(instance, number, "the checkpoint's thread does not answer");
        }
        true
    }

    /// Appends the rows that there are, or gives them to the journal thread if that is idle. If they wait for others although it
    /// is: how long still.
    fn hand_over(&self, instance: &mut Instance) -> Option<Duration> {
        match &self.journal {
            Journal::Thread(sender) => {
                let now = Instant::now();
                let mut gathering = self.gathering.borrow_mut();
                let until = gathering.waits(now);
                if self.journal_busy.get() {
                    return None;
                }
                if let Some(until) = until.filter(|_| instance.has_open_batch()) {
                    return Some(until - now);
                }
                if let Some(batch) = instance.poll_append() {
                    gathering.handed_over(now);
                    self.journal_busy.set(true);
                    sender.send(batch);
                }
            }
            Journal::Here(appender) => {
                let mut appender = appender.borrow_mut();
                while let Some(batch) = instance.poll_append() {
                    let (done, room) = appender.append(batch);
                    self.journal_news(instance, done);
                    room.into_iter().for_each(|room| self.journal_news(instance, room));
                }
                appender.look().into_iter().for_each(|room| self.journal_news(instance, room));
            }
        }
        None
    }

    fn end_turn(&self) -> Turn {
        let now = now();
        let mut instance = self.instance.borrow_mut();
        let next = instance.tick(now);
        let was_long = self.advance_checkpoint(&mut instance);
        let waits = self.hand_over(&mut instance);
        while let Some(slot) = instance.poll_ready() {
            if let Some(link) = self.links.borrow().get(slot.index()).and_then(Option::as_ref) {
                write(&mut instance, slot, link);
            }
        }
        self.resume(&instance);
        if let Some(program) = &*self.program.borrow() {
            program.turn_ended(&mut instance);
        }
        while let Some(line) = instance.poll_log() {
            log(&line);
        }
        let wake_in = match next {
            Some(next) => Duration::from_micros(next.saturating_sub(now)).min(LONGEST_SLEEP),
            None => LONGEST_SLEEP,
        };
        let gathers = waits.is_some_and(|waits| waits <= FINEST_SLEEP);
        let wake_in = waits.map_or(wake_in, |waits| wake_in.min(waits));
        Turn { wake_in, was_long, gathers }
    }

    /// Requests were handled.
    #[inline]
    pub(crate) fn received(&self, requests: u64) {
        self.gathering.borrow_mut().received(requests);
    }

    /// The socket takes bytes again.
    pub(crate) fn writable(&self, slot: Slot, link: &Link) {
        link.blocked.set(false);
        write(&mut self.instance.borrow_mut(), slot, link);
    }
}

/// What the journal thread says next, which is nothing when it has ended; never if there is none.
async fn next(done: &mut Option<UnboundedReceiver<Done>>) -> Option<Option<Done>> {
    match done {
        Some(done) => Some(done.recv().await),
        None => std::future::pending().await,
    }
}

fn checkpoint_failed(instance: &mut Instance, number: u64, cause: &str) {
    if instance.handle_checkpoint_failed(number, cause, now()) {
        tracing::error!("no checkpoint could be taken, another attempt follows in a minute: {cause}");
    } else {
        tracing::debug!("a checkpoint was given up again: {cause}");
    }
}

/// Writes what is ready, once; wakes the connection's task if that changes what the task has to wait for.
fn write(instance: &mut Instance, slot: Slot, link: &Link) {
    if link.blocked.get() || link.closing.get() {
        return;
    }
    let ready = instance.output(slot);
    if !ready.is_empty() {
        let length = ready.len();
        match link.writer.try_write(ready) {
            Ok(count) => {
                instance.consume(slot, count);
                link.blocked.set(count < length);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => link.blocked.set(true),
            Err(_) => link.closing.set(true),
        }
        if link.blocked.get() || link.closing.get() {
            link.wake.notify_one();
        }
    }
    if (link.lingering.get() || instance.wants_close(slot)) && instance.pending_bytes(slot) == 0 {
        link.closing.set(true);
        link.wake.notify_one();
    }
}

fn log(line: &LogLine) {
    match line.level {
        LogLevel::Error => tracing::error!("{}", line.text),
        LogLevel::Warning => tracing::warn!("{}", line.text),
        LogLevel::Info => tracing::info!("{}", line.text),
    }
}
