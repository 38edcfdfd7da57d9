//! The node of this server: the group's journal on the loop, its disk in a thread, and messages to the links.
//!
//! After each call that may have given the journal something to do, [`Member::pump`] moves orders to the disk and messages
//! to the links. News for the instance wait for the next turn, which [`Member::wake`] asks for.
//!
//! Invariants: the journal is never borrowed across an await, and never while a link is called that calls back.

use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lycosa_engine::group::{
    Base, Done, GroupDisk, GroupJournal, GroupStatus, Incoming, MAX_HAND_OVER_LAG, NodeId, Order, Outgoing,
};
use lycosa_engine::journal::{Journal, Membership, News, Pace};
use lycosa_instance::{Batch, Forwarded, GroupMember, Lsn, MemberProgress};
use lycosa_journal::directory::Directory;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, watch};
use tokio::task::spawn_local;

use super::handshake::Purpose;
use super::links::Links;
use super::snapshots;
use crate::appender::{FREE_SPACE_INTERVAL, RoomWatch, Unclosed, Watch};
use crate::clock::{NOTABLE_DIFFERENCE, micros};
use crate::socket::Stream;

/// Messages of the loop to the disk's thread; `None` closes the log.
type Job = Option<Box<Order>>;

/// Messages of the disk's thread.
pub(crate) enum Said {
    Done(Done),
    News(News),
}

/// Where clients of this node are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Here: this node leads, and its instance takes writes.
    Here,
    /// At the leader.
    At(NodeId),
    /// No leader is known.
    Nowhere,
}

/// See the module.
pub(crate) struct Member {
    journal: RefCell<GroupJournal>,
    /// To the disk's thread.
    jobs: mpsc::Sender<Job>,
    thread: RefCell<Option<JoinHandle<Result<(), Unclosed>>>>,
    pub(crate) links: Rc<Links>,
    directory: Directory,
    /// News of the disk's space and of the folder.
    news: RefCell<VecDeque<News>>,
    /// Asks for a turn.
    pub(crate) wake: Notify,
    place: watch::Sender<Place>,
    /// The moment of the last change of `place`.
    placed: Cell<Instant>,
    /// By how many microseconds the leader's time was ahead of this node's, when the leader told it last. `None` where this node
    /// leads, or no leader has told it.
    pub(crate) leader_ahead: Cell<Option<i64>>,
    /// Requests of this node's clients that leaders have carried out.
    forwarded: Cell<Forwarded>,
    began: Instant,
}

impl Member {
    /// Starts the disk's thread. The caller runs [`live`] with what it says.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(
        mut journal: GroupJournal,
        disk: GroupDisk,
        mut room: RoomWatch,
        links: Rc<Links>,
    ) -> io::Result<(Rc<Self>, UnboundedReceiver<Said>)> {
        // A node that starts on a full disk takes no entry first.
        let news = room.look();
        journal.set_scarce(matches!(news, Some(News::FreeSpace { is_scarce: true, .. })));
        links.begin(journal.identity(), disk.incarnation(), journal.knows());
        let directory = disk.directory().clone();
        let watch = Watch::new(directory.clone(), room);
        let (jobs, inbox) = mpsc::channel();
        let (outbox, said) = unbounded_channel();
        let thread = thread::Builder::new()
            .name("group-log".to_owned())
            .spawn(move || work(disk, watch, &inbox, &outbox))?;
        let member = Self {
            journal: RefCell::new(journal),
            jobs,
            thread: RefCell::new(Some(thread)),
            links,
            directory,
            news: RefCell::new(news.into_iter().collect()),
            wake: Notify::new(),
            place: watch::channel(Place::Nowhere).0,
            placed: Cell::new(Instant::now()),
            leader_ahead: Cell::new(None),
            forwarded: Cell::default(),
            began: Instant::now(),
        };
        Ok((Rc::new(member), said))
    }

    fn now(&self) -> u64 {
        micros(self.began.elapsed())
    }

    /// Moves orders to the disk and messages to the links, and asks for a turn.
    fn pump(self: &Rc<Self>) {
        let (orders, messages, notes, members) = {
            let mut journal = self.journal.borrow_mut();
            let orders: Vec<Order> = std::iter::from_fn(|| journal.poll_order()).collect();
            let messages: Vec<Outgoing> = std::iter::from_fn(|| journal.poll_message()).collect();
            let notes: Vec<String> = std::iter::from_fn(|| journal.poll_note()).collect();
            (orders, messages, notes, journal.members().clone())
        };
        for note in notes {
            tracing::warn!("{note}");
        }
        for order in orders {
            if self.jobs.send(Some(Box::new(order))).is_err() {
                tracing::error!("the thread of the group's log is gone");
            }
        }
        self.links.follow(&members);
        for Outgoing { to, bytes, base } in messages {
            match base {
                None => self.links.send(to, bytes),
                Some(base) => drop(spawn_local(self.clone().ship(to, *base, bytes))),
            }
        }
        let journal = self.journal.borrow();
        let place = match journal.leader() {
            _ if journal.leads() => Place::Here,
            Some(leader) if leader != journal.identity().node => Place::At(leader),
            _ => Place::Nowhere,
        };
        drop(journal);
        if self.place.send_if_modified(|known| std::mem::replace(known, place) != place) {
            self.placed.set(Instant::now());
        }
        self.wake.notify_one();
    }

    /// Looks at the journal.
    pub(crate) fn journal(&self) -> Ref<'_, GroupJournal> {
        self.journal.borrow()
    }

    /// Sends a snapshot's file to a member, then the `message` that announces it.
    async fn ship(self: Rc<Self>, to: NodeId, base: Base, message: Vec<u8>) {
        let connection = self.links.connection(to);
        let sending = async {
            connection.ok_or(io::ErrorKind::NotConnected)?;
            let stream = self.dial(to, Purpose::Snapshot).await?;
            snapshots::send(stream, self.directory.clone(), &base).await
        };
        match sending.await {
            Ok(bytes) => {
                tracing::info!("sent snapshot {} of {bytes} bytes to node {to}", base.signature);
                if self.links.connection(to) == connection {
                    self.links.send(to, message);
                }
            }
            Err(error) => {
                tracing::warn!("snapshot {} did not reach node {to}: {error}", base.signature);
                self.link_lost(to);
            }
        }
    }

    /// Calls the journal, and moves its messages, rounds and events.
    pub(crate) fn call<T>(self: &Rc<Self>, call: impl FnOnce(&mut GroupJournal) -> T) -> T {
        let result = call(&mut self.journal.borrow_mut());
        self.pump();
        result
    }

    /// Lets time pass; the leader raises the group to the newest level that every member knows. Returns when to call again.
    fn tick(self: &Rc<Self>) -> u64 {
        let now = self.now();
        self.call(|journal| {
            journal.raise_to_known(|node| self.links.knows(node));
            journal.tick(now)
        })
    }

    /// Takes a message of another node.
    ///
    /// # Errors
    /// The message cannot be read, or the node refuses it: the connection that it came over is to be closed.
    pub(crate) fn receive(self: &Rc<Self>, bytes: &[u8]) -> Result<(), String> {
        let incoming = Incoming::decode(bytes).map_err(|error| {
            tracing::error!("a message of a member cannot be read: {error}");
            error.to_string()
        })?;
        let from = incoming.from();
        self.call(|journal| journal.receive(incoming)).map_err(|error| {
            tracing::error!("a message of node {from} is refused: {error}");
            error.to_string()
        })
    }

    /// Messages to a node were lost.
    pub(crate) fn link_lost(self: &Rc<Self>, node: NodeId) {
        self.call(|journal| journal.link_lost(node));
    }

    /// The members as this node sees them, for `box.info`.
    pub(crate) fn members(&self) -> Vec<GroupMember> {
        let GroupStatus { identity, node: status, members, .. } = self.journal().status();
        let seen = |member: &lycosa_engine::group::Member| {
            let &lycosa_engine::group::Member { node, standing, ref address, .. } = member;
            let progress = status.progress.iter().find(|progress| progress.node == node).map(|found| {
                let lag = status.last.saturating_sub(found.matched);
                let (is_close, awaits_snapshot) = (lag <= MAX_HAND_OVER_LAG, found.snapshot.is_some());
                MemberProgress { lag, is_close, is_active: found.is_active, awaits_snapshot }
            });
            let is_connected = node == identity.node || self.links.is_connected(node);
            GroupMember { node, address: address.clone(), standing: standing.name(), is_connected, progress }
        };
        members.iter().map(seen).collect()
    }

    /// Requests that were forwarded so far.
    pub(crate) fn forwarded(&self) -> Forwarded {
        self.forwarded.get()
    }

    /// Counts requests that were forwarded.
    pub(crate) fn count_forwarded(&self, more: Forwarded) {
        let mut forwarded = self.forwarded.get();
        forwarded += more;
        self.forwarded.set(forwarded);
    }

    /// Connects to another member.
    ///
    /// # Errors
    /// The node is no member, or cannot be reached.
    pub(crate) async fn dial(&self, node: NodeId, purpose: Purpose) -> io::Result<Stream> {
        let GroupStatus { identity, members, .. } = self.journal().status();
        let member = members.get(node).ok_or_else(|| io::Error::other("it is no member any more"))?;
        let opened = self.links.dialer().open(&member.address, purpose, identity.group).await;
        opened.map_err(io::Error::other)
    }

    /// Where clients are served, and news of it.
    pub(crate) fn place(&self) -> watch::Receiver<Place> {
        self.place.subscribe()
    }

    /// How long clients have been served where they are.
    pub(crate) fn in_place_for(&self) -> Duration {
        self.placed.get().elapsed()
    }

    /// The leader's time is `ahead` microseconds ahead of this node's; `None`: this node leads.
    pub(crate) fn set_leader_ahead(&self, ahead: Option<i64>) {
        let is_notable = |ahead: &i64| ahead.unsigned_abs() > NOTABLE_DIFFERENCE;
        let before = self.leader_ahead.replace(ahead).filter(is_notable);
        if let (None, Some(ahead)) = (before, ahead.filter(is_notable)) {
            let seconds = ahead as f64 / 1e6;
            tracing::warn!(
                "the leader's time differs from this machine's by {seconds:+.1} s: where this node leads, deadlines go on with \
                 the leader's"
            );
        }
    }

    fn hear(self: &Rc<Self>, said: Said) {
        match said {
            Said::Done(done) => self.call(|journal| journal.handle(done)),
            Said::News(news) => {
                if let News::FreeSpace { is_scarce, .. } = &news {
                    self.journal.borrow_mut().set_scarce(*is_scarce);
                }
                self.news.borrow_mut().push_back(news);
                self.wake.notify_one();
            }
        }
    }

    /// Ends the links and the log in order.
    ///
    /// # Errors
    /// The log was not closed cleanly.
    pub(crate) fn close(&self) -> Result<(), Unclosed> {
        self.links.end();
        // The thread is gone if it cannot be told.
        let _ = self.jobs.send(None);
        let thread = self.thread.borrow_mut().take();
        thread.map_or(Ok(()), |thread| {
            thread.join().unwrap_or_else(|_| Err(Unclosed("its thread panicked".to_owned())))
        })
    }
}

/// The member as the journal of the loop's turns.
pub(crate) struct MemberJournal(pub(crate) Rc<Member>);

impl Journal for MemberJournal {
    type Membership = Self;

    fn pace(&self) -> Pace {
        self.0.journal.borrow().pace()
    }

    fn submit(&mut self, batch: Batch) {
        self.0.call(|journal| journal.submit(batch));
    }

    fn poll(&mut self) -> Option<News> {
        if let Some(news) = self.0.news.borrow_mut().pop_front() {
            return Some(news);
        }
        let news = self.0.journal.borrow_mut().poll();
        if news.is_some() {
            self.0.pump();
        }
        news
    }

    fn membership(&mut self) -> Option<&mut Self> {
        Some(self)
    }
}

impl Membership for MemberJournal {
    fn read(&mut self, lsn: Lsn) {
        self.0.call(|journal| journal.read(lsn));
    }

    fn hand_over(&mut self) {
        self.0.call(Membership::hand_over);
    }

    fn suspend(&mut self) {
        self.0.call(Membership::suspend);
    }

    fn restore(&mut self) {
        self.0.call(Membership::restore);
    }

    fn pause(&mut self, is_paused: bool) {
        self.0.journal.borrow_mut().pause(is_paused);
    }

    fn restate(&mut self, signature: u64) {
        self.0.call(|journal| journal.restate(signature));
    }
}

/// Lets time pass for a node, and hears its disk, until the task is dropped.
pub(crate) async fn live(member: Rc<Member>, mut said: UnboundedReceiver<Said>) {
    let mut next = 0;
    loop {
        let until = tokio::time::Instant::from_std(member.began + Duration::from_micros(next));
        tokio::select! {
            heard = said.recv() => match heard {
                Some(heard) => member.hear(heard),
                None => {
                    let cause = "the thread of the group's log has ended".to_owned();
                    member.hear(Said::Done(Done::Failed(cause)));
                    return;
                }
            },
            () = tokio::time::sleep_until(until) => {
                next = member.tick().max(member.now() + 1);
            }
        }
    }
}

/// Carries out orders; one sync makes all that wait durable.
fn work(
    mut disk: GroupDisk,
    mut watch: Watch,
    inbox: &mpsc::Receiver<Job>,
    outbox: &UnboundedSender<Said>,
) -> Result<(), Unclosed> {
    let mut known = disk.status().stored_bytes;
    loop {
        let mut jobs = match inbox.recv_timeout(FREE_SPACE_INTERVAL) {
            Ok(job) => vec![job],
            Err(RecvTimeoutError::Timeout) => Vec::new(),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        jobs.extend(inbox.try_iter());
        let closes = jobs.iter().any(Option::is_none);
        let mut done = Vec::new();
        disk.carry_out(jobs.into_iter().flatten().map(|order| *order), &mut done);
        for done in done {
            // The loop has ended: nothing hears it.
            let _ = outbox.send(Said::Done(done));
        }
        let stored = disk.status().stored_bytes;
        if let Some(news) = watch.written(stored - std::mem::replace(&mut known, stored)) {
            let _ = outbox.send(Said::News(news));
        }
        if closes {
            return disk.close().map_err(Unclosed);
        }
    }
}
