//! `lycosa compare`: whether two servers, Lycosa or Tarantool, hold the same at the same vclock.
//!
//! Both are read side by side, page by page, in the order of the primary key. A large space holds neither server up,
//! and the first tuple in which they differ is found on the way. Rows may be written meanwhile: a space that differs is
//! read again as long as a vclock has moved since both met. Equal is what two readings found equal.
//!
//! A HASH index has no order that both share: such a space is read whole, and sorted by the bytes of its keys.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use lycosa_client::{Array, Error, Kind, Value};
use lycosa_iproto::keys::ballot;
use lycosa_iproto::vclock::Vclock;
use serde_json::{Value as Json, json};
use sha1::{Digest, Sha1};

use crate::arguments::CompareArguments;
use crate::explain::{in_ballot, vote};
use crate::outcome::Outcome;
use crate::peer::Peer;
use crate::session::{Session, connect_options};
use crate::space_pages::{EQ, INDEXES, Pages, PrimaryKey, SPACES, number, select, tuples};
use crate::values::{cell, is_true, number_of, vclock};
use crate::{output, payload};

/// `_space`: who may read it sees every space.
const SPACE: u32 = 280;
/// `_sequence_data`: a Tarantool shows the value of a sequence there only after `next`, not after an insert that used it.
const SEQUENCE_DATA: u32 = 285;
/// `_truncate`: has rows of local spaces too, which stay on their instance.
const TRUNCATE: u32 = 330;
/// Pause between two looks at the vclocks.
const POLL: Duration = Duration::from_millis(20);
/// Characters of the digest that the table shows.
const SHOWN_DIGEST: usize = 12;

/// One of the two servers.
struct Server {
    /// `A` or `B`.
    letter: char,
    peer: Peer,
    session: Session,
}

/// A space as one server shows it.
#[derive(Debug, Clone)]
struct Space {
    name: String,
    /// The primary key, and whether its index is in order; `None` without an index.
    key: Option<(PrimaryKey, bool)>,
    /// Why replicas do not have it in common.
    left_out: Option<&'static str>,
}

/// The count and the digest of the rows of a space at one server.
type Summary = (u64, Sha1);

/// In which tuple two servers differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    Changed,
    OnlyIn(char),
}

/// How a space compares.
struct Comparison {
    name: String,
    /// Count and digest at A and at B; `None` where it cannot be read.
    sides: [Option<(u64, String)>; 2],
    first: Option<(Value, Difference)>,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Same,
    Different,
    /// Rows were written at each reading, so that a difference may be one of time.
    Moving,
    /// A user has no right to read it.
    Unread,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Different => "different",
            Self::Moving => "moving",
            Self::Unread => "not read",
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.letter, self.peer)
    }
}

pub(crate) fn run(arguments: &CompareArguments) -> anyhow::Result<Outcome> {
    let [a, b] = [Peer::parse("A", &arguments.a)?, Peer::parse("B", &arguments.b)?];
    let servers = [Server::open('A', a, arguments)?, Server::open('B', b, arguments)?];
    let compared = compare_until_same(&servers, arguments)?;
    report(&servers, &compared, arguments.client.json)
}

/// A space as both show it.
type Pair = [Option<Space>; 2];
/// The vclocks of both.
type Clocks = [Vclock; 2];
/// The spaces of both by their numbers.
type Spaces = BTreeMap<u32, Pair>;
/// Two summaries, and the first difference.
type Read = ([Option<Summary>; 2], Option<(Value, Difference)>);

/// The comparison of a space, and its time.
struct Compared {
    spaces: Spaces,
    verdicts: BTreeMap<u32, Comparison>,
    /// Before the last reading.
    clocks: Clocks,
    /// Behind it.
    later: Clocks,
}

/// Compares all spaces, and those with a difference again while rows are written and time is left.
fn compare_until_same(servers: &[Server; 2], arguments: &CompareArguments) -> anyhow::Result<Compared> {
    let deadline = Instant::now() + arguments.timeout;
    let mut done = BTreeMap::new();
    loop {
        let clocks = meet(servers, deadline, arguments)?;
        let spaces = both(servers)?;
        done.retain(|id, _| spaces.contains_key(id));
        for (&id, pair) in &spaces {
            let is_left_out = pair.iter().flatten().any(|space| space.left_out.is_some());
            let is_done = done.get(&id).is_some_and(|done: &Comparison| done.verdict == Verdict::Same);
            if !is_left_out && !is_done {
                done.insert(id, compare(servers, id, pair, &spaces)?);
            }
        }
        let now = [servers[0].vclock()?, servers[1].vclock()?];
        let differs = done.values().any(|space| space.verdict == Verdict::Different);
        let is_over = !differs || now == clocks || arguments.any_vclock;
        if is_over || Instant::now() >= deadline {
            let different = done.values_mut().filter(|space| !is_over && space.verdict == Verdict::Different);
            different.for_each(|space| space.verdict = Verdict::Moving);
            return Ok(Compared { spaces, verdicts: done, clocks, later: now });
        }
    }
}

/// Waits until both have the same vclock.
fn meet(servers: &[Server; 2], deadline: Instant, arguments: &CompareArguments) -> anyhow::Result<Clocks> {
    loop {
        let clocks = [servers[0].vclock()?, servers[1].vclock()?];
        if clocks[0] == clocks[1] || arguments.any_vclock {
            return Ok(clocks);
        }
        if Instant::now() >= deadline {
            let lacks = |who: &Server, has: &Vclock, other: &Vclock| {
                let rows = other.iter().filter(|(id, lsn)| *lsn > has.get(*id));
                let rows = rows.map(|(id, lsn)| format!("{} rows of instance {id}", lsn - has.get(id)));
                let rows: Vec<_> = rows.collect();
                (!rows.is_empty()).then(|| format!("{} lacks {}", who.letter, rows.join(", ")))
            };
            let ([a, b], [first, second], time) = (servers, &clocks, arguments.timeout.as_secs_f64());
            let lacks = [lacks(a, first, second), lacks(b, second, first)].into_iter().flatten();
            let lacks = lacks.collect::<Vec<_>>().join("; ");
            bail!(
                "the vclocks do not meet within {time} s: {a} is at {first}, {b} at {second}: {lacks}. Does one follow the other \
                 (see box.info().replication)? While rows are written without a pause, make the master read-only first; \
                 --any-vclock compares all the same"
            );
        }
        thread::sleep(POLL);
    }
}

impl Server {
    fn open(letter: char, mut peer: Peer, arguments: &CompareArguments) -> anyhow::Result<Self> {
        let mut client = arguments.client.clone();
        if let Some(user) = client.user.take().filter(|_| peer.is_guest()) {
            peer.user = user;
        }
        client.address = format!("{}{}", if peer.is_tls { "tls://" } else { "" }, peer.address);
        if !peer.is_tls {
            (client.tls_ca, client.tls_server_name) = (None, None);
        }
        let password = peer.password(client.password_file.as_deref())?;
        let mut options = connect_options(&client)?;
        if !peer.is_guest() {
            options = options.credentials(&peer.user, password);
        }
        let session = Session::connect(&options).with_context(|| format!("{letter} ({peer})"))?;
        Ok(Self { letter, peer, session })
    }

    /// The replicated part of its vclock. A VOTE needs no rights.
    fn vclock(&self) -> anyhow::Result<Vclock> {
        let (runtime, connection) = self.session.parts();
        let vote = runtime.block_on(vote(connection));
        let vote = vote.with_context(|| format!("{self} does not tell its vclock"))?;
        let clock = in_ballot(&vote, ballot::VCLOCK);
        vclock(clock.with_context(|| format!("{self}: its vote has no vclock"))?)
            .with_context(|| format!("{self}: its vclock"))
    }

    /// The spaces that the user may see, by their numbers.
    fn spaces(&self) -> anyhow::Result<BTreeMap<u32, Space>> {
        let mut spaces = BTreeMap::new();
        let mut pages = Pages::by_first_field(SPACES);
        while let Some(page) = pages.next(&self.session).with_context(|| format!("{self}: its spaces"))? {
            for row in tuples(&page) {
                let row = Value::decode(row.bytes())?;
                let fields = row.as_array().unwrap_or_default();
                let id = fields.first().and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
                let id = id.with_context(|| format!("{self}: a space is {row}"))?;
                let text = |field: usize| fields.get(field).and_then(Value::as_str).unwrap_or_default();
                let flags = fields.get(5).unwrap_or(&Value::Nil);
                let left_out = match text(3) {
                    "memtx" if id == SEQUENCE_DATA => Some("values of sequences"),
                    "memtx" if is_true(flags, "temporary") => Some("temporary"),
                    "memtx" if number_of(flags, "group_id") == 1 => Some("local"),
                    "memtx" => None,
                    "sysview" => Some("view"),
                    "service" => Some("settings of a session"),
                    "vinyl" => Some("vinyl"),
                    _ => Some("engine"),
                };
                let key = if left_out.is_some() { None } else { self.primary_key(id)? };
                spaces.insert(id, Space { name: text(2).to_owned(), key, left_out });
            }
        }
        Ok(spaces)
    }

    fn primary_key(&self, space: u32) -> anyhow::Result<Option<(PrimaryKey, bool)>> {
        let key = Array::from([Value::from(space), Value::from(0_u64)]);
        let index = select(&self.session, INDEXES, 0, EQ, key, 1)
            .with_context(|| format!("{self}: the primary index of space {space}"))?;
        if index.is_empty() {
            return Ok(None);
        }
        let index = index.first_value()?;
        let fields = index.as_array().unwrap_or_default();
        let kind = fields.get(3).and_then(Value::as_str).unwrap_or_default();
        let key = fields.get(5).and_then(PrimaryKey::read);
        let key = key.with_context(|| format!("{self}: the primary index of space {space} is {index}"))?;
        Ok(Some((key, kind.eq_ignore_ascii_case("tree"))))
    }
}

fn both(servers: &[Server; 2]) -> anyhow::Result<Spaces> {
    let mut spaces = Spaces::new();
    for (side, server) in servers.iter().enumerate() {
        for (id, space) in server.spaces()? {
            spaces.entry(id).or_default()[side] = Some(space);
        }
    }
    Ok(spaces)
}

/// The keys and tuples of a space, in an order that both servers share.
struct Rows<'a> {
    server: &'a Server,
    space: u32,
    pages: Option<Pages>,
    read: VecDeque<(Vec<u8>, Vec<u8>)>,
    /// Spaces whose rows of `_truncate` are not looked at.
    local: Vec<u64>,
}

impl<'a> Rows<'a> {
    fn new(server: &'a Server, id: u32, space: &Space, sorted: bool, local: &[u64]) -> anyhow::Result<Self> {
        let pages = space.key.clone().map(|(key, _)| Pages::new(id, key));
        let local = if id == TRUNCATE { local.to_vec() } else { Vec::new() };
        let mut rows = Self { server, space: id, pages, read: VecDeque::new(), local };
        if sorted {
            while rows.page()? {}
            rows.read.make_contiguous().sort_unstable();
        }
        Ok(rows)
    }

    /// Reads a page; whether there was one.
    fn page(&mut self) -> anyhow::Result<bool> {
        let Some(pages) = &mut self.pages else { return Ok(false) };
        let Some(page) = pages.next(&self.server.session)? else {
            self.pages = None;
            return Ok(false);
        };
        for tuple in tuples(&page) {
            if number(tuple, 0).is_some_and(|first| self.local.contains(&first)) {
                continue;
            }
            let key = pages.key.of(tuple).context("a tuple without a key")?;
            self.read.push_back((key, tuple.bytes().to_vec()));
        }
        Ok(true)
    }

    fn next(&mut self) -> anyhow::Result<Option<(Vec<u8>, Vec<u8>)>> {
        while self.read.is_empty() {
            if !self.page()? {
                return Ok(None);
            }
        }
        Ok(self.read.pop_front())
    }

    /// Whether the server has a tuple with this key.
    fn has(&self, key: &[u8]) -> anyhow::Result<bool> {
        let key = Array::from_bytes(key.to_vec())?;
        Ok(!select(&self.server.session, self.space, 0, EQ, key, 1)?.is_empty())
    }
}

/// Compares a space that at least one of the servers shows.
fn compare(servers: &[Server; 2], id: u32, pair: &Pair, spaces: &Spaces) -> anyhow::Result<Comparison> {
    let name = pair.iter().flatten().next().map(|space| space.name.clone()).unwrap_or_default();
    let unread = |verdict| Comparison { name: name.clone(), sides: [None, None], first: None, verdict };
    // Who may not read `_space` sees the spaces only that they may read.
    let sees_all = |side: usize| spaces.get(&SPACE).is_some_and(|pair| pair[side].is_some());
    if (0..2).any(|side| pair[side].is_none() && !sees_all(side)) {
        return Ok(unread(Verdict::Unread));
    }
    match read(servers, id, pair, spaces) {
        Ok((summaries, first)) => {
            let whole = |(tuples, digest): Summary| (tuples, payload::hexadecimal(&digest.finalize()));
            let sides = summaries.map(|side| side.map(whole));
            let verdict = if sides[0] == sides[1] { Verdict::Same } else { Verdict::Different };
            Ok(Comparison { name, sides, first, verdict })
        }
        Err(error) => match error.downcast_ref::<Error>().and_then(Error::kind) {
            Some(Kind::AccessDenied) => Ok(unread(Verdict::Unread)),
            // It was dropped, or another index was made, since the spaces were listed.
            Some(_) => Ok(unread(Verdict::Different)),
            None => Err(error.context(format!("space '{name}'"))),
        },
    }
}

/// What both have of a space, and the first difference.
fn read(servers: &[Server; 2], id: u32, pair: &Pair, spaces: &Spaces) -> anyhow::Result<Read> {
    let is_local = |pair: &Pair| pair.iter().flatten().any(|space| space.left_out.is_some());
    let local: Vec<u64> =
        spaces.iter().filter(|(_, pair)| is_local(pair)).map(|(id, _)| u64::from(*id)).collect();
    let sorted = pair.iter().flatten().any(|space| space.key.as_ref().is_some_and(|(_, in_order)| !in_order));
    let open = |side: usize| {
        pair[side].as_ref().map(|space| Rows::new(&servers[side], id, space, sorted, &local)).transpose()
    };
    let [mut a, mut b] = [open(0)?, open(1)?];
    let mut sides = [&a, &b].map(|rows| rows.as_ref().map(|_| (0, Sha1::new())));
    let mut first = None;
    loop {
        let next = |rows: &mut Option<Rows<'_>>| rows.as_mut().map_or(Ok(None), Rows::next);
        let rows = [next(&mut a)?, next(&mut b)?];
        for (row, side) in rows.iter().zip(&mut sides) {
            if let (Some((_, tuple)), Some((tuples, digest))) = (row, side) {
                *tuples += 1;
                digest.update(tuple);
            }
        }
        if rows == [None, None] {
            return Ok((sides, first));
        }
        if first.is_some() || rows[0] == rows[1] {
            continue;
        }
        let (key, difference) = match &rows {
            [Some((a, _)), Some((other, _))] if a == other => (a, Difference::Changed),
            [Some((key, _)), None] => (key, Difference::OnlyIn('A')),
            [None, Some((key, _))] => (key, Difference::OnlyIn('B')),
            [Some((ours, _)), Some((theirs, _))] => match b.as_ref().map_or(Ok(false), |b| b.has(ours))? {
                true => (theirs, Difference::OnlyIn('B')),
                false => (ours, Difference::OnlyIn('A')),
            },
            [None, None] => continue,
        };
        first = Some((Value::decode(key)?, difference));
    }
}

impl Comparison {
    /// The first key that differs, in words.
    fn difference(&self) -> String {
        match &self.first {
            Some((key, Difference::Changed)) => format!("{key} differs"),
            Some((key, Difference::OnlyIn(letter))) => format!("{key} only in {letter}"),
            None => match (self.verdict, &self.sides) {
                (Verdict::Different, [Some(_), None]) => "the space is only in A".to_owned(),
                (Verdict::Different, [None, Some(_)]) => "the space is only in B".to_owned(),
                (Verdict::Unread, _) => "no right to read it".to_owned(),
                (Verdict::Different | Verdict::Moving, _) => "its definition changed meanwhile".to_owned(),
                (Verdict::Same, _) => String::new(),
            },
        }
    }

    fn json(&self, id: u32) -> Json {
        let side = |side: &Option<(u64, String)>| {
            side.as_ref().map(|(tuples, digest)| json!({ "tuples": tuples, "digest": digest }))
        };
        let [a, b] = self.sides.each_ref().map(side);
        let first = self.first.as_ref().map(|(key, difference)| {
            let kind = match difference {
                Difference::Changed => "changed".to_owned(),
                Difference::OnlyIn(letter) => format!("only in {letter}"),
            };
            json!({ "key": payload::to_json(key), "difference": kind })
        });
        let verdict = self.verdict.name();
        json!({ "space": self.name, "id": id, "verdict": verdict, "a": a, "b": b, "first": first })
    }

    fn row(&self) -> Vec<String> {
        let [a, b] = self.sides.each_ref().map(|side| cell(side.as_ref(), |(tuples, _)| tuples.to_string()));
        let digest = self.sides[0].as_ref().map(|(_, digest)| digest[..SHOWN_DIGEST].to_owned());
        let detail = match self.verdict {
            Verdict::Same => digest.unwrap_or_default(),
            _ => self.difference(),
        };
        vec![self.name.clone(), a, b, self.verdict.name().to_owned(), detail]
    }
}

/// At which vclocks the spaces were read, in words.
fn at_vclocks(before: &Clocks, later: &Clocks) -> String {
    match (before[0] == before[1], before == later) {
        (true, true) => format!("at vclock {}", before[0]),
        (true, false) if later[0] == later[1] => format!("between vclocks {} and {}", before[0], later[0]),
        (true, false) => format!("from vclock {} on", before[0]),
        (false, _) => format!("with A at {} and B at {}", before[0], before[1]),
    }
}

fn report(servers: &[Server; 2], compared: &Compared, as_json: bool) -> anyhow::Result<Outcome> {
    let Compared { spaces, verdicts: compared, clocks, later } = compared;
    let count = |verdict: Verdict| compared.values().filter(|space| space.verdict == verdict).count();
    let (same, unread) = (count(Verdict::Same), count(Verdict::Unread));
    let is_same = same + unread == compared.len();
    let is_complete = compared.get(&SPACE).is_some_and(|space| space.verdict != Verdict::Unread);
    if same == 0 && is_same {
        let [first, second] = servers.each_ref().map(|server| &server.peer.user);
        let second = if first == second { "on both servers".to_owned() } else { format!("and {second}") };
        bail!("there is no space that both users may read: grant the role `replication` to {first} {second}");
    }
    if as_json {
        compared.iter().try_for_each(|(id, space)| output::line(space.json(*id)))?;
        let left_out = spaces.values().flat_map(|pair| pair.iter().flatten().next());
        let left_out = left_out.filter_map(|space| Some(json!([space.name, space.left_out?])));
        output::line(json!({
            "same": is_same, "complete": is_complete && unread == 0, "a": output::vclock(&clocks[0]),
            "b": output::vclock(&clocks[1]), "moved": later != clocks, "left_out": left_out.collect::<Vec<_>>(),
        }))?;
    } else {
        let heading = ["space", "in A", "in B", "", "digest, or first difference"];
        output::table(&heading, compared.values().map(Comparison::row))?;
        let whole = at_vclocks(clocks, later);
        let verdict = match compared.len() - same - unread {
            0 => "the same".to_owned(),
            count => format!("{count} differ"),
        };
        output::line(format_args!("{} spaces, {whole}: {verdict}", compared.len()))?;
    }
    if !is_complete || unread > 0 {
        eprintln!(
            "lycosa: only what both users may read was compared; a user with the role `replication` may read everything"
        );
    }
    if is_same && later != clocks {
        eprintln!(
            "lycosa: rows were written while the spaces were read, so each is the same at a moment of its own: make the \
             master read-only for an answer about one vclock"
        );
    }
    if count(Verdict::Moving) > 0 {
        eprintln!(
            "lycosa: rows were written while the spaces were read: make the master read-only, or give a longer --timeout"
        );
    }
    Ok(if is_same { Outcome::Done } else { Outcome::Different })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moving_vclock_is_not_told_as_one() {
        let clock = |lsn: u64| {
            let mut clock = Vclock::new();
            clock.set(1, lsn).expect("an id below 32");
            clock
        };
        let told = |before: [u64; 2], later: [u64; 2]| at_vclocks(&before.map(clock), &later.map(clock));
        assert_eq!(told([5, 5], [5, 5]), "at vclock {1: 5}");
        assert_eq!(told([5, 5], [9, 9]), "between vclocks {1: 5} and {1: 9}");
        assert_eq!(told([5, 5], [9, 8]), "from vclock {1: 5} on");
        assert_eq!(told([5, 4], [5, 5]), "with A at {1: 5} and B at {1: 4}");
    }
}
