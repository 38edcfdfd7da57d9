//! The journal as the loop sees it: batches go in, and it hears when they are durable.
//!
//! With `wal_mode` `fsync` a [thread](crate::journal_thread) waits for the disk while the loop goes on. In the other modes
//! nothing waits: a batch is a `write` into the system's cache, which costs less than waking a thread and being woken by
//! it, so the loop appends the batch itself. (Where the system's cache is full of bytes that the disk has not taken yet,
//! that `write` waits; no reply could leave before it anyway.)
//!
//! After a failure it says so once and answers every later batch with the same failure: a journal that failed never
//! writes again.

use std::collections::VecDeque;
use std::rc::Rc;

use lycosa_engine::journal::{self, News, Pace};
use lycosa_instance::Batch;

use crate::appender::{Appender, Unclosed};
use crate::cluster::member::{Member, MemberJournal};
use crate::journal_thread::JournalSender;

/// The journal: who appends, and what the turn has not heard yet.
pub(crate) struct ServerJournal {
    appends: Appends,
    news: VecDeque<News>,
}

/// The thread that appends.
pub(crate) enum Appends {
    /// The journal thread.
    Thread(JournalSender),
    /// The loop.
    Here(Box<Appender>),
    /// The group.
    Group(MemberJournal),
}

impl ServerJournal {
    pub(crate) fn new(appends: Appends) -> ServerJournal {
        ServerJournal { appends, news: VecDeque::new() }
    }

    /// The journal thread has said something: the next turn hears it.
    pub(crate) fn tell(&mut self, news: News) {
        self.news.push_back(news);
    }

    /// Ends the log cleanly if no thread does.
    ///
    /// # Errors
    /// As [`Appender::close`].
    pub(crate) fn close(&mut self) -> Result<(), Unclosed> {
        match &mut self.appends {
            Appends::Here(appender) => appender.close(),
            Appends::Thread(_) | Appends::Group(_) => Ok(()),
        }
    }

    /// The node of the group whose journal this is.
    pub(crate) fn member(&self) -> Option<&Rc<Member>> {
        match &self.appends {
            Appends::Group(member) => Some(&member.0),
            _ => None,
        }
    }
}

impl journal::Journal for ServerJournal {
    type Membership = MemberJournal;

    fn pace(&self) -> Pace {
        match self.appends {
            Appends::Thread(_) => Pace::Pipelined(1),
            Appends::Here(_) => Pace::Immediate,
            Appends::Group(ref member) => member.pace(),
        }
    }

    fn submit(&mut self, batch: Batch) {
        match &mut self.appends {
            Appends::Thread(sender) => sender.send(batch),
            Appends::Here(appender) => self.news.extend(appender.append(batch).into_iter().flatten()),
            Appends::Group(member) => member.submit(batch),
        }
    }

    fn poll(&mut self) -> Option<News> {
        let heard = self.news.pop_front();
        match &mut self.appends {
            Appends::Here(appender) if heard.is_none() => appender.watch.look(),
            Appends::Group(member) if heard.is_none() => member.poll(),
            _ => heard,
        }
    }

    fn membership(&mut self) -> Option<&mut MemberJournal> {
        match &mut self.appends {
            Appends::Group(member) => Some(member),
            Appends::Thread(_) | Appends::Here(_) => None,
        }
    }
}
