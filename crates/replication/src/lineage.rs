//! Lineage, which tells where histories part: an LSN says which row is meant only together with the epoch in which it was handed out.
//!
//! A master that lost its newest rows (an old backup, `force_recovery`, a power cut with `wal_mode = write`) hands their LSNs
//! out again. A vclock cannot tell the two rows of one LSN apart, so instances that replicate keep two things in `_schema`,
//! which reach every replica and every snapshot like other rows, through a Tarantool too:
//!
//! | row of `_schema` | written by | content |
//! |---|---|---|
//! | `lycosa.epochs.ID` | instance ID, before its first row of each process | a random mark and a begin (an LSN) for each of its newest epochs |
//! | `lycosa.term` | the instance that is promoted (first row) or demoted (last row) | number and owner of the term, and the vclock at its begin |
//!
//! Two instances fit together if for each component one history is a prefix of the other: the last epoch that the one knows
//! is known to the other one too, and did not end there before. This holds however many LSNs are equal.
//!
//! A term makes its owner the only master. A row of another instance behind the term's vclock is *void*, unless it begins a
//! later term. An instance that holds a void row has to join anew; one that hears of a later term takes no writes. A demotion
//! ends the term: it begins one that is *open*, in which no row is void.
//!
//! A peer that says nothing of epochs (a Tarantool) is judged by LSNs alone: it may not be ahead of the master in the master's
//! own component.
//!
//! Invariants: an instance's epochs begin at LSNs that never fall; a mark is random and is not used twice; of two terms the
//! one with the greater (number, owner) is the later one.

use std::collections::BTreeMap;

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::row::{RowBody, RowHeader};
use lycosa_iproto::vclock::{VCLOCK_MAX, Vclock};
use lycosa_tuple::mp::{self, MpError, Reader};

/// The space that the rows are in.
pub const SPACE: u32 = 272;
/// The owner of a term without an owner: its master was demoted, and any instance may be the next one.
pub const OPEN: u32 = 0;
/// Newest epochs of an instance that are kept.
pub const MAX_EPOCHS: usize = 64;
/// What the text of a refusal begins with that says that two histories have parted.
pub const PARTED: &str = "Split-Brain discovered: ";

const TERM_KEY: &[u8] = b"lycosa.term";
const EPOCHS_KEY: &str = "lycosa.epochs.";

/// Rows of an instance that one history has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    /// Random; 0 is no epoch's.
    pub mark: u64,
    /// The instance's LSN behind which it begins.
    pub begin: u64,
}

/// Which term it is. Terms are ordered by number, then by owner; the default one is before all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TermMark {
    /// Counts promotions; 0 if there was none.
    pub number: u64,
    /// The only master, by its number in `_cluster`, or [`OPEN`].
    pub owner: u32,
}

/// A promotion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// Which one.
    pub mark: TermMark,
    /// What the owner had then.
    pub vclock: Vclock,
}

/// What a replica tells with each ACK, so that the master counts rows and not numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Confirmation {
    /// The latest term that the replica has heard of.
    pub term: TermMark,
    /// The mark of the last epoch of the master's own rows that the replica knows; 0 for none.
    pub epoch: u64,
}

/// Why two instances do not fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Divergence {
    /// The replica has rows of the master that the master lost.
    #[error(
        "{PARTED}the replica has rows of its master, instance {id}, up to LSN {theirs}, and the master itself up to {own}: it \
         has lost its newest rows (an old backup, force_recovery, or a power cut with wal_mode = write). To keep them, make \
         the replica the master (`lycosa promote` there) and let the old one join it with an empty data folder. To give them \
         up, move the replica's data folder away and start it: it joins again"
    )]
    Ahead {
        /// The master.
        id: u32,
        /// What the master has of its own rows.
        own: u64,
        /// What the replica has of them.
        theirs: u64,
    },
    /// An LSN was handed out twice, and each side has another row under it.
    #[error(
        "{PARTED}the two instances have different rows of instance {id} behind LSN {common}: it lost rows (an old backup, \
         force_recovery, or a power cut with wal_mode = write) and handed their LSNs out again. Decide which of the two keeps its data (`lycosa compare --any-vclock` shows what differs, `lycosa export` \
         saves tasks), move the data folder of the other one away and start it: it joins again"
    )]
    Parted {
        /// Whose rows.
        id: u32,
        /// The last LSN that may be the same row for both.
        common: u64,
    },
    /// Rows that a promotion has made void.
    #[error(
        "{PARTED}the master changed at LSN {limit} of instance {id} (term {number}), and the {side} has rows of that instance up \
         to {lsn}: {} of them are void. Save what is needed of them (`lycosa export`), move the data folder of the \
         {side} away and start it: it joins again", lsn - limit
    )]
    Void {
        /// Which end has the rows.
        side: Side,
        /// Whose rows.
        id: u32,
        /// Up to where that end has them.
        lsn: u64,
        /// Up to where they are valid.
        limit: u64,
        /// The number of the term.
        number: u64,
    },
}

/// An end of a connection on which a log is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The instance that asks for the log.
    Replica,
    /// The instance that sends it.
    Master,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Replica => "replica",
            Self::Master => "master",
        })
    }
}

impl Divergence {
    /// The answer to a replica.
    #[must_use]
    pub fn object(&self) -> ErrorObject {
        ErrorObject::client(ErrorCode::Protocol, self.to_string())
    }
}

/// Whether an error says that two histories have parted.
#[must_use]
pub fn is_divergence(error: &ErrorObject) -> bool {
    error.message.starts_with(PARTED)
}

/// The epochs of all instances and the term, as one instance knows them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lineage {
    epochs: BTreeMap<u32, Vec<Epoch>>,
    term: Option<Term>,
}

impl Lineage {
    /// Takes a row of `_schema`; other rows than those of this module change nothing, nor do malformed ones.
    pub fn read(&mut self, tuple: &[u8]) {
        match entry(tuple) {
            Some(Entry::Epochs(id, epochs)) => _ = self.epochs.insert(id, epochs),
            Some(Entry::Term(term)) => self.term = Some(*term),
            None => {}
        }
    }

    /// The newest epoch of an instance.
    #[must_use]
    pub fn epoch(&self, id: u32) -> Option<Epoch> {
        self.epochs.get(&id).and_then(|epochs| epochs.last().copied())
    }

    /// The term that is in force as far as rows tell.
    #[must_use]
    pub fn term(&self) -> Option<&Term> {
        self.term.as_ref()
    }

    /// Its mark; the default one if there was no promotion.
    #[must_use]
    pub fn term_mark(&self) -> TermMark {
        self.term.as_ref().map_or_else(TermMark::default, |term| term.mark)
    }

    /// The row of `_schema` with which instance `id` begins an epoch behind `begin`, its last LSN.
    #[must_use]
    pub fn begin_epoch(&self, id: u32, mark: u64, begin: u64) -> Vec<u8> {
        let known = self.epochs.get(&id).map_or(&[][..], Vec::as_slice);
        let kept = &known[(known.len() + 1).saturating_sub(MAX_EPOCHS)..];
        let mut out = Vec::new();
        mp::write_array(&mut out, 2);
        mp::write_str(&mut out, format!("{EPOCHS_KEY}{id}").as_bytes());
        let epochs: Vec<_> = kept.iter().copied().chain([Epoch { mark, begin }]).collect();
        write_epochs(&mut out, &epochs);
        out
    }

    /// Whether the histories of two instances fit together, so that the one can follow the other. `own` and `replica` are the
    /// number and the vclock of the master, which is this instance, and of the replica. `theirs` is absent if the replica
    /// knows nothing of epochs.
    ///
    /// # Errors
    /// They do not.
    pub fn check_replica(
        &self,
        own: (u32, &Vclock),
        theirs: Option<&Self>,
        replica: (u32, &Vclock),
    ) -> Result<(), Divergence> {
        if let Some(theirs) = theirs {
            self.check_term(theirs, replica.1, Side::Replica)?;
            theirs.check_term(self, own.1, Side::Master)?;
            for id in 1..VCLOCK_MAX as u32 {
                self.check_component(theirs, id, own.1.get(id), replica.1.get(id))?;
            }
        }
        let (mine, theirs) = (own.1.get(own.0), replica.1.get(own.0));
        if own.0 != 0 && theirs > mine {
            return Err(Divergence::Ahead { id: own.0, own: mine, theirs });
        }
        Ok(())
    }

    /// Rows of `other`, at `clock`, behind the vclock of a term that it does not know are void.
    fn check_term(&self, other: &Self, clock: &Vclock, side: Side) -> Result<(), Divergence> {
        match &self.term {
            Some(term) if other.term_mark() < term.mark => term.check(clock, side),
            _ => Ok(()),
        }
    }

    fn check_component(&self, theirs: &Self, id: u32, mine: u64, reached: u64) -> Result<(), Divergence> {
        let histories = [self, theirs].map(|lineage| lineage.epochs.get(&id).map_or(&[][..], Vec::as_slice));
        if is_prefix(histories[1], reached, histories[0]) || is_prefix(histories[0], mine, histories[1]) {
            return Ok(());
        }
        let shared = histories[0].iter().rev().find(|epoch| histories[1].contains(epoch));
        // What both know of the last epoch that they share; without one, what both have of the first.
        let end = |epochs: &[Epoch], reached: u64| {
            let next = match shared {
                Some(shared) => epochs.iter().skip_while(|epoch| *epoch != shared).nth(1),
                None => epochs.first(),
            };
            next.map_or(reached, |next| next.begin)
        };
        Err(Divergence::Parted { id, common: end(histories[0], mine).min(end(histories[1], reached)) })
    }

    /// Whether a transaction of another instance belongs to the history of this one, whose vclock is `own`. `is_known`: the
    /// vclock has all its LSNs already.
    ///
    /// # Errors
    /// It does not: nothing of it may be applied.
    pub fn check_rows(
        &self,
        own: &Vclock,
        rows: &[(RowHeader, RowBody<'_>)],
        is_known: bool,
    ) -> Result<(), Divergence> {
        let Some((last, _)) = rows.last() else { return Ok(()) };
        let (id, lsn) = (last.replica_id, last.lsn);
        let mut begins_term = false;
        for entry in rows.iter().filter_map(|(_, body)| entry_of_row(body)) {
            match entry {
                Entry::Epochs(of, epochs) => self.check_epochs(of, &epochs, own.get(of), is_known)?,
                Entry::Term(term) if term.mark > self.term_mark() && !is_known => {
                    term.check(own, Side::Replica)?;
                    begins_term = true;
                }
                Entry::Term(_) => {}
            }
        }
        match &self.term {
            Some(term) if !is_known && !begins_term && term.voids(id) && lsn > term.vclock.get(id) => {
                Err(term.void(Side::Master, id, lsn))
            }
            _ => Ok(()),
        }
    }

    fn check_epochs(
        &self,
        id: u32,
        epochs: &[Epoch],
        reached: u64,
        is_known: bool,
    ) -> Result<(), Divergence> {
        let known = self.epochs.get(&id).map_or(&[][..], Vec::as_slice);
        let (older, newer, at) = if is_known { (epochs, known, 0) } else { (known, epochs, reached) };
        if is_prefix(older, at, newer) {
            return Ok(());
        }
        let common = epochs.iter().rev().find(|epoch| known.contains(epoch)).map_or(0, |epoch| epoch.begin);
        Err(Divergence::Parted { id, common })
    }

    /// Appends everything, for a SUBSCRIBE.
    pub fn encode(&self, out: &mut Vec<u8>) {
        mp::write_array(out, 2);
        mp::write_map(out, self.epochs.len() as u32);
        for (&id, epochs) in &self.epochs {
            mp::write_uint(out, id.into());
            write_epochs(out, epochs);
        }
        match &self.term {
            None => mp::write_nil(out),
            Some(term) => term.encode(out),
        }
    }

    /// Reads what [`Self::encode`] writes.
    ///
    /// # Errors
    /// It is something else.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, MpError> {
        let mut lineage = Self::default();
        reader.array()?;
        for _ in 0..reader.map()? {
            let id = read_id(reader)?;
            lineage.epochs.insert(id, read_epochs(reader)?);
        }
        lineage.term = if reader.kind()? == mp::Kind::Nil { None } else { Some(Term::decode(reader)?) };
        Ok(lineage)
    }
}

impl Term {
    /// The row of `_schema` that says so.
    #[must_use]
    pub fn row(&self) -> Vec<u8> {
        let mut out = Vec::new();
        mp::write_array(&mut out, 2);
        mp::write_str(&mut out, TERM_KEY);
        self.encode(&mut out);
        out
    }

    fn encode(&self, out: &mut Vec<u8>) {
        mp::write_array(out, 3);
        mp::write_uint(out, self.mark.number);
        mp::write_uint(out, self.mark.owner.into());
        self.vclock.replicated().encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, MpError> {
        reader.array()?;
        let number = reader.uint()?;
        let owner = u32::try_from(reader.uint()?).ok().filter(|owner| (*owner as usize) < VCLOCK_MAX);
        let mark =
            TermMark { number, owner: owner.ok_or_else(|| reader.mismatch("the number of an instance"))? };
        let vclock = Vclock::decode(reader).map_err(|_| reader.mismatch("a vclock"))?;
        Ok(Self { mark, vclock })
    }

    /// Whether an instance that does not know the term holds nothing that is void.
    fn check(&self, clock: &Vclock, side: Side) -> Result<(), Divergence> {
        let found = clock.iter().find(|&(id, lsn)| id != 0 && lsn > self.vclock.get(id));
        found.map_or(Ok(()), |(id, lsn)| Err(self.void(side, id, lsn)))
    }

    /// Whether rows of an instance behind the vclock are void.
    fn voids(&self, id: u32) -> bool {
        ![id, OPEN].contains(&self.mark.owner)
    }

    fn void(&self, side: Side, id: u32, lsn: u64) -> Divergence {
        Divergence::Void { side, id, lsn, limit: self.vclock.get(id), number: self.mark.number }
    }
}

impl Confirmation {
    /// Appends it, for an ACK.
    pub fn encode(&self, out: &mut Vec<u8>) {
        mp::write_array(out, 3);
        mp::write_uint(out, self.term.number);
        mp::write_uint(out, self.term.owner.into());
        mp::write_uint(out, self.epoch);
    }

    /// Reads what [`Self::encode`] writes.
    ///
    /// # Errors
    /// It is something else.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, MpError> {
        reader.array()?;
        let term = TermMark { number: reader.uint()?, owner: reader.uint()? as u32 };
        Ok(Self { term, epoch: reader.uint()? })
    }
}

/// The term that a transaction begins, if it does.
#[must_use]
pub fn term_in(rows: &[(RowHeader, RowBody<'_>)]) -> Option<TermMark> {
    rows.iter().find_map(|(_, body)| match entry_of_row(body)? {
        Entry::Term(term) => Some(term.mark),
        Entry::Epochs(..) => None,
    })
}

enum Entry {
    Epochs(u32, Vec<Epoch>),
    Term(Box<Term>),
}

fn entry_of_row(body: &RowBody<'_>) -> Option<Entry> {
    match *body {
        RowBody::Replace { space: SPACE, tuple } | RowBody::Insert { space: SPACE, tuple } => entry(tuple),
        _ => None,
    }
}

fn entry(tuple: &[u8]) -> Option<Entry> {
    let mut reader = Reader::new(tuple);
    reader.array().ok()?;
    let key = reader.str().ok()?;
    if key == TERM_KEY {
        return Term::decode(&mut reader).ok().map(|term| Entry::Term(Box::new(term)));
    }
    let id = std::str::from_utf8(key).ok()?.strip_prefix(EPOCHS_KEY)?.parse().ok()?;
    Some(Entry::Epochs(id, read_epochs(&mut reader).ok()?))
}

/// Whether the history with these epochs, whose last LSN is `reached`, is the beginning of the one with the epochs `whole`.
fn is_prefix(epochs: &[Epoch], reached: u64, whole: &[Epoch]) -> bool {
    let next = match epochs.last() {
        // Rows before the first epoch; a list that is full does not reach back to them.
        None => whole.first(),
        Some(last) => match whole.iter().position(|epoch| epoch == last) {
            Some(place) => whole.get(place + 1),
            // It was too long ago to be known.
            None if whole.len() == MAX_EPOCHS => whole.first().filter(|first| last.begin < first.begin),
            None => return false,
        },
    };
    next.is_none_or(|next| reached <= next.begin)
}

fn write_epochs(out: &mut Vec<u8>, epochs: &[Epoch]) {
    mp::write_array(out, epochs.len() as u32 * 2);
    for epoch in epochs {
        mp::write_uint(out, epoch.mark);
        mp::write_uint(out, epoch.begin);
    }
}

fn read_epochs(reader: &mut Reader<'_>) -> Result<Vec<Epoch>, MpError> {
    let numbers = reader.array()?;
    if numbers as usize > 2 * MAX_EPOCHS || !numbers.is_multiple_of(2) {
        return Err(reader.mismatch("a list of epochs"));
    }
    (0..numbers / 2).map(|_| Ok(Epoch { mark: reader.uint()?, begin: reader.uint()? })).collect()
}

fn read_id(reader: &mut Reader<'_>) -> Result<u32, MpError> {
    let id = u32::try_from(reader.uint()?).ok().filter(|id| (1..VCLOCK_MAX as u32).contains(id));
    id.ok_or_else(|| reader.mismatch("the number of an instance"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A row of instance 1: one that begins an epoch, or any other.
    #[derive(Debug, Clone, PartialEq)]
    enum Made {
        Epoch(Vec<u8>),
        Other(u64),
    }

    /// What one instance has of the rows of instance 1.
    type History = Vec<Made>;

    fn lineage(history: &[Made]) -> Lineage {
        let mut lineage = Lineage::default();
        for row in history {
            if let Made::Epoch(tuple) = row {
                lineage.read(tuple);
            }
        }
        lineage
    }

    fn clock(components: &[(u32, u64)]) -> Vclock {
        let mut clock = Vclock::new();
        components.iter().for_each(|&(id, lsn)| clock.set(id, lsn).expect("an id below 32"));
        clock
    }

    fn fit(master: &[Made], replica: &[Made]) -> Result<(), Divergence> {
        let [mine, theirs] = [master, replica].map(|history| clock(&[(1, history.len() as u64)]));
        lineage(master).check_replica((5, &mine), Some(&lineage(replica)), (2, &theirs))
    }

    fn term(number: u64, owner: u32, components: &[(u32, u64)]) -> Term {
        Term { mark: TermMark { number, owner }, vclock: clock(components) }
    }

    fn row(replica_id: u32, lsn: u64) -> RowHeader {
        RowHeader::single(replica_id, lsn, 1.0)
    }

    proptest! {
        /// An instance writes, loses rows and writes again. Two instances that have some of its rows fit together exactly if
        /// the rows of the one are the beginning of the rows of the other one.
        #[test]
        fn histories_fit_if_one_is_the_beginning_of_the_other(
            steps in prop::collection::vec((0_u8..6, any::<prop::sample::Index>()), 1..120),
        ) {
            let (mut history, mut copies, mut unique) = (History::new(), vec![History::new()], 0);
            for (step, index) in steps {
                unique += 1;
                match step {
                    0..3 => history.push(Made::Other(unique)),
                    3 => copies.push(history[..index.index(history.len() + 1)].to_vec()),
                    // A start, after a loss or without one.
                    _ => {
                        if step == 4 {
                            history.truncate(index.index(history.len() + 1));
                        }
                        let begin = history.len() as u64;
                        history.push(Made::Epoch(lineage(&history).begin_epoch(1, unique, begin)));
                    }
                }
            }
            copies.push(history);
            for (master, replica) in copies.iter().flat_map(|master| copies.iter().map(move |copy| (master, copy))) {
                let is_one_history = master.starts_with(replica) || replica.starts_with(master);
                let found = fit(master, replica);
                prop_assert_eq!(found.is_ok(), is_one_history, "{:?} of {:?} and {:?}", found, master, replica);
                if let Err(Divergence::Parted { common, .. }) = found {
                    let same = master.iter().zip(replica).take_while(|(mine, theirs)| mine == theirs).count();
                    prop_assert_eq!(common, same as u64);
                }
            }
        }

        #[test]
        fn what_is_written_is_read(
            epochs in prop::collection::btree_map(1_u32..32, prop::collection::vec((1_u64.., any::<u64>()), 1..70), 0..5),
            named in prop::option::of((1_u64.., 1_u32..32, any::<u64>())),
        ) {
            let mut lineage = Lineage::default();
            for (id, marks) in epochs {
                marks.into_iter().for_each(|(mark, begin)| lineage.read(&lineage.clone().begin_epoch(id, mark, begin)));
            }
            if let Some((number, owner, lsn)) = named {
                lineage.read(&term(number, owner, &[(1, lsn)]).row());
            }
            let mut out = Vec::new();
            lineage.encode(&mut out);
            prop_assert_eq!(Lineage::decode(&mut Reader::new(&out)), Ok(lineage));
        }

        #[test]
        fn no_bytes_are_misread(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Lineage::decode(&mut Reader::new(&bytes));
            let mut lineage = Lineage::default();
            lineage.read(&bytes);
            prop_assert_eq!(lineage, Lineage::default());
        }
    }

    #[test]
    fn a_replica_that_has_more_of_its_master_than_the_master_is_ahead() {
        let lineage = Lineage::default();
        let ahead = |theirs| lineage.check_replica((1, &clock(&[(1, 30)])), theirs, (2, &clock(&[(1, 31)])));
        assert_eq!(ahead(Some(&lineage)), Err(Divergence::Ahead { id: 1, own: 30, theirs: 31 }));
        assert_eq!(ahead(None), Err(Divergence::Ahead { id: 1, own: 30, theirs: 31 }));
        let others = clock(&[(1, 30), (2, 9), (3, 7)]);
        assert_eq!(lineage.check_replica((1, &clock(&[(1, 30)])), None, (2, &others)), Ok(()));
        let text = ahead(None).expect_err("ahead").to_string();
        assert!(text.contains("`lycosa promote` there") && text.contains("up to LSN 31"), "{text}");
    }

    #[test]
    fn rows_behind_a_promotion_are_void() {
        let (mut new, old) = (Lineage::default(), Lineage::default());
        new.read(&term(1, 2, &[(1, 40), (3, 5)]).row());
        let void = |side, id, lsn, limit| Divergence::Void { side, id, lsn, limit, number: 1 };
        // The old master comes back with rows that only it has, or without.
        let (had, has) = (clock(&[(1, 40), (2, 8), (3, 5)]), clock(&[(1, 43)]));
        let found = new.check_replica((2, &had), Some(&old), (1, &has));
        assert_eq!(found, Err(void(Side::Replica, 1, 43, 40)));
        let found = old.check_replica((1, &has), Some(&new), (2, &had));
        assert_eq!(found, Err(void(Side::Master, 1, 43, 40)));
        assert_eq!(old.check_replica((1, &clock(&[(1, 40)])), Some(&new), (2, &had)), Ok(()));
        // Other instances send its rows.
        let nop = |id, lsn| [(row(id, lsn), RowBody::Nop)];
        assert_eq!(new.check_rows(&had, &nop(1, 41), false), Err(void(Side::Master, 1, 41, 40)));
        assert_eq!(new.check_rows(&clock(&[(1, 39)]), &nop(1, 40), false), Ok(()));
        assert_eq!(new.check_rows(&had, &nop(2, 9), false), Ok(()));
        // The next promotion.
        let next = term(2, 1, &[(1, 40), (2, 8), (3, 5)]).row();
        let promotion = [(row(1, 41), RowBody::Replace { space: SPACE, tuple: &next })];
        assert_eq!(new.check_rows(&had, &promotion, false), Ok(()));
        assert_eq!(term_in(&promotion), Some(TermMark { number: 2, owner: 1 }));
        let more = clock(&[(1, 40), (2, 9), (3, 5)]);
        let behind = Divergence::Void { side: Side::Replica, id: 2, lsn: 9, limit: 8, number: 2 };
        assert_eq!(new.check_rows(&more, &promotion, false), Err(behind));
        // A demotion: the instance that writes next is the master.
        let open = term(2, OPEN, &[(1, 40), (2, 8), (3, 5)]).row();
        let demotion = [(row(2, 9), RowBody::Replace { space: SPACE, tuple: &open })];
        assert_eq!(new.check_rows(&had, &demotion, false), Ok(()));
        let mut ended = new.clone();
        ended.read(&open);
        assert_eq!(ended.check_rows(&more, &nop(3, 6), false), Ok(()));
        // One that is not the latest begins nothing.
        let same = term(1, 1, &[(1, 40), (2, 8), (3, 5)]).row();
        let late = [(row(1, 41), RowBody::Replace { space: SPACE, tuple: &same })];
        assert_eq!(new.check_rows(&had, &late, false), Err(void(Side::Master, 1, 41, 40)));
    }

    #[test]
    fn a_known_lsn_with_another_row_is_noticed() {
        let mut mine = Lineage::default();
        mine.read(&mine.clone().begin_epoch(1, 7, 10));
        let other = Lineage::default().begin_epoch(1, 8, 20);
        let rows = [(row(1, 21), RowBody::Replace { space: SPACE, tuple: &other })];
        assert_eq!(
            mine.check_rows(&clock(&[(1, 30)]), &rows, true),
            Err(Divergence::Parted { id: 1, common: 0 })
        );
        let same = Lineage::default().begin_epoch(1, 7, 10);
        let rows = [(row(1, 11), RowBody::Replace { space: SPACE, tuple: &same })];
        assert_eq!(mine.check_rows(&clock(&[(1, 30)]), &rows, true), Ok(()));
        let next = mine.begin_epoch(1, 9, 30);
        let rows = [(row(1, 31), RowBody::Replace { space: SPACE, tuple: &next })];
        assert_eq!(mine.check_rows(&clock(&[(1, 30)]), &rows, false), Ok(()));
    }
}
