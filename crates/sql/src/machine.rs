//! What runs a statement of several sources: nested loops, subqueries, compound queries.
//!
//! The work is one `async` function after the other, and nothing wakes it: [`Machine::step`] polls it. A future that wants
//! rows leaves a [`Request`] and waits; the step reads the rows, which the process lends it, and polls again. A future that has
//! worked for [`effort::STEP`] units waits without a request, which ends the step. So loops keep their places on the heap, at
//! any depth of queries, and other statements run in between.
//!
//! Bounds: work of a step; work of all steps for clients ([`Limits::total`]); bytes of everything that the statement keeps;
//! [`MAX_RESTARTS`].
//!
//! Absent: names and types, which are resolved; the choice of the order of loops, see [`crate::join`].

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use lycosa_store::{Budget, Cursor, Progress, Store};
use lycosa_tuple::collation::Collation;
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::scalar;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;

use crate::collect::{COLLECTED, Collector, DEPTH, bounds_of};
use crate::effort::{self, Effort};
use crate::eval::Row;
use crate::join::{Level, levels, source_of};
use crate::limits::{Limits, OVERHEAD, Share};
use crate::query::{General, Joined, Origin, Part, Query, Recursion, SetOperation, Term, Wanted};
use crate::run::TOO_LONG_AT_ONCE;
use crate::strings;
use crate::subquery::{Answer, Set, Slots};
use crate::tree::{Comparison, Expr};
use crate::walk::{self, Ends, Walk};
use crate::{Advance, Error, Rows, SqlFault, value};

/// How often a statement begins again because an index that it reads was built anew.
const MAX_RESTARTS: u32 = 16;

/// Errors of a client's statement that looks at too many rows.
const TOO_LONG: &str = "it looks at too many rows: compare fields of an index with those of the other spaces, and narrow \
                        the query by a key or a range of keys";

/// Rows that a scan reads at first, and at most, in one request.
const FIRST_ROWS: u32 = 8;
const MAX_ROWS: u32 = 512;

/// Bytes that a scan reads in one request.
const MAX_BYTES: usize = 64 << 10;

/// Rows of a result, back to back.
struct Found {
    count: u32,
    bytes: Vec<u8>,
    share: Share,
}

/// What a future asks of the step.
enum Request {
    /// Rows of a space that pass these comparisons.
    Open(u32, Vec<walk::Term>),
    /// Rows of a space, found by an index; a value that no index takes is in no row.
    Find(u32, Vec<walk::Term>),
    Next(Cursor, Ends),
}

/// What the step has read.
#[derive(Default)]
struct Read {
    /// `None`: these are the last rows.
    next: Option<(Cursor, Ends)>,
    bytes: Vec<u8>,
}

/// The rows of a source, as a level reads them.
enum Scan {
    Nothing,
    Space { read: Box<Read>, at: usize, lookup: Option<Box<Lookup>> },
    Derived { rows: Rc<Vec<u8>>, at: usize },
}

/// The values of a field that a scan looks up, one after the other.
struct Lookup {
    space: u32,
    field: u32,
    values: Rc<Vec<Value>>,
    /// The value that comes next, and the encoded one that the rows have now.
    next: usize,
    current: Vec<u8>,
    /// Comparisons that every row passes, too.
    compared: Vec<walk::Term>,
}

/// A statement under way.
pub(crate) struct Machine {
    shared: Rc<Shared>,
    work: Pin<Box<dyn Future<Output = Result<Found, SqlFault>>>>,
    found: Option<Found>,
    restarts: u32,
}

impl Machine {
    /// A machine as a user.
    ///
    /// # Errors
    /// A space that does not exist any more.
    pub(crate) fn new(
        general: &Rc<General>,
        store: &Store,
        user: u32,
        parameters: &[Value],
        limits: Limits,
    ) -> Result<Machine, Error> {
        for space in &general.spaces {
            store.space(*space)?;
        }
        let read = general.queries.iter().map(|query| query.slots.clone()).collect();
        let shared = Rc::new(Shared {
            general: Rc::clone(general),
            levels: general.joined.iter().map(|joined| levels(joined, &general.queries, store)).collect(),
            parameters: parameters.to_vec(),
            limits,
            user,
            bound: match (limits.whole, limits.total) {
                (Some((limit, _)), _) if general.change.is_some() => Some((limit, TOO_LONG_AT_ONCE)),
                (_, total) => total.map(|limit| (limit, TOO_LONG)),
            },
            slots: RefCell::new(Slots::new(general.slots, read)),
            request: RefCell::new(None),
            read: RefCell::new(None),
            bytes: Rc::default(),
            rows_wanted: Cell::new(FIRST_ROWS),
            enough: Cell::new(None),
            spent: Cell::new(0),
            paused_at: Cell::new(0),
        });
        let work = Machine::begin(&shared);
        Ok(Machine { shared, work, found: None, restarts: 0 })
    }

    fn begin(shared: &Rc<Shared>) -> Pin<Box<dyn Future<Output = Result<Found, SqlFault>>>> {
        let shared = Rc::clone(shared);
        Box::pin(async move { shared.query(&shared.general.root, u64::MAX).await })
    }

    /// Goes on.
    ///
    /// # Errors
    /// What an expression or the process refuses; the statement takes too long or its result too much.
    pub(crate) fn step<R: Rows>(&mut self, rows: &mut R) -> Result<Progress, R::Refusal> {
        self.shared.paused_at.set(self.shared.spent.get());
        if self.found.is_some() {
            return Ok(Progress::End);
        }
        loop {
            let polled = self.work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(found) = polled {
                self.found = Some(found.map_err(Error::from)?);
                return Ok(Progress::End);
            }
            let Some(request) = self.shared.request.take() else { return Ok(Progress::More) };
            match self.shared.serve(request, rows) {
                Ok(read) => *self.shared.read.borrow_mut() = Some(read),
                Err(Advance::Refused(refusal)) => return Err(refusal),
                Err(Advance::IndexAltered) => {
                    self.restarts += 1;
                    if self.restarts > MAX_RESTARTS {
                        let text = "an index that it reads was built anew again and again";
                        return Err(Error::from(value::execution(text)).into());
                    }
                    let general = &self.shared.general;
                    let read = general.queries.iter().map(|query| query.slots.clone()).collect();
                    *self.shared.slots.borrow_mut() = Slots::new(general.slots, read);
                    self.work = Machine::begin(&self.shared);
                }
            }
        }
    }

    /// The rows of a statement that has ended: their number, and MessagePack arrays back to back.
    pub(crate) fn rows(&self) -> (u32, &[u8]) {
        self.found.as_ref().map_or((0, &[]), |found| (found.count, &found.bytes))
    }
}

/// What the futures of a statement share with its steps.
struct Shared {
    general: Rc<General>,
    /// Of each SELECT.
    levels: Vec<Vec<Level>>,
    parameters: Vec<Value>,
    limits: Limits,
    user: u32,
    /// Units of all steps, and the error of a statement that needs more.
    bound: Option<(u64, &'static str)>,
    slots: RefCell<Slots>,
    request: RefCell<Option<Request>>,
    read: RefCell<Option<Read>>,
    /// Bytes of all shares of the statement.
    bytes: Rc<Cell<usize>>,
    /// Rows that the next request reads at most.
    rows_wanted: Cell<u32>,
    /// A recursive query, and how many of its rows are enough.
    enough: Cell<Option<(usize, u64)>>,
    /// Units of work, in all steps and up to the last pause.
    spent: Cell<u64>,
    paused_at: Cell<u64>,
}

/// A future whose size does not depend on its callers.
type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T, SqlFault>> + 'a>>;

impl Shared {
    /// Reads what a future asks for.
    fn serve<R: Rows>(&self, request: Request, rows: &mut R) -> Result<Read, Advance<R::Refusal>> {
        let refused = |error: Error| Advance::Refused(error.into());
        let finds = matches!(request, Request::Find(..));
        let (mut cursor, ends) = match request {
            Request::Next(cursor, ends) => (cursor, ends),
            Request::Open(id, terms) | Request::Find(id, terms) => {
                let space = rows.store().space(id).map_err(|error| refused(error.into()))?;
                let walk = Walk::best(space, &terms);
                if finds && walk.is_whole() {
                    return Ok(Read { next: None, bytes: Vec::new() });
                }
                let cursor = Cursor::new(self.user, id, walk.index, walk.iterator, &walk.encoded_key());
                (cursor, walk.ends)
            }
        };
        let key = if ends.is_some() {
            let space = rows.store().space(cursor.space()).ok();
            space.and_then(|space| space.index(cursor.index())).map(|index| index.key().clone())
        } else {
            None
        };
        let (mut bytes, mut is_over) = (Vec::new(), false);
        let budget = Budget::new(self.rows_wanted.get(), MAX_BYTES);
        let progress = rows.advance_while(&mut cursor, budget, &mut |tuple: &[u8]| {
            if key.as_ref().is_some_and(|key| ends.are_before(key, tuple)) {
                is_over = true;
                return ControlFlow::Break(());
            }
            bytes.extend_from_slice(tuple);
            ControlFlow::Continue(())
        })?;
        let is_last = is_over || progress == Progress::End;
        Ok(Read { next: (!is_last).then_some((cursor, ends)), bytes })
    }

    /// Lets the step go on, and waits for the next poll.
    async fn hand_over(&self) {
        let mut has_waited = false;
        poll_fn(|_| match std::mem::replace(&mut has_waited, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Waits for the rows of a request.
    async fn read(&self, request: Request, rows: u32) -> Read {
        self.rows_wanted.set(rows);
        self.request.replace(Some(request));
        self.hand_over().await;
        self.read.take().unwrap_or(Read { next: None, bytes: Vec::new() })
    }

    /// Counts work, and ends the step if it has done enough.
    async fn work(&self, units: u64) -> Result<(), SqlFault> {
        let spent = self.spent.get() + units;
        self.spent.set(spent);
        if let Some((limit, text)) = self.bound
            && spent > limit
        {
            return Err(value::execution(text));
        }
        if spent - self.paused_at.get() > effort::STEP {
            self.hand_over().await;
        }
        Ok(())
    }

    fn share(&self) -> Share {
        Share::of(&self.bytes)
    }

    /// Evaluates with the current rows. `None`: the subquery has to be answered first.
    fn attempt<T>(
        &self,
        aggregates: &[Value],
        evaluate: &mut dyn FnMut(&Row<'_>) -> Result<T, SqlFault>,
    ) -> Result<Result<T, usize>, SqlFault> {
        let slots = self.slots.borrow();
        let effort = Effort::default();
        let row = Row {
            tuple: None,
            parameters: &self.parameters,
            aggregates,
            effort: &effort,
            slots: Some(&slots),
        };
        let done = evaluate(&row);
        self.spent.set(self.spent.get() + effort.spent());
        match (done, slots.take_wanted()) {
            (Ok(done), _) => Ok(Ok(done)),
            (Err(_), Some(query)) => Ok(Err(query)),
            (Err(failure), None) => Err(failure),
        }
    }

    /// Evaluates with the current rows, and runs the subqueries that this needs.
    async fn evaluate<T>(
        &self,
        aggregates: &[Value],
        evaluate: &mut dyn FnMut(&Row<'_>) -> Result<T, SqlFault>,
    ) -> Result<T, SqlFault> {
        loop {
            match self.attempt(aggregates, evaluate)? {
                Ok(done) => return Ok(done),
                Err(query) => self.find_answer(query).await?,
            }
        }
    }

    /// Answers the subqueries of expressions.
    async fn settle(&self, exprs: &[Expr], aggregates: &[Value]) -> Result<(), SqlFault> {
        for expr in exprs {
            self.evaluate(aggregates, &mut |row| row.evaluate(expr).map(drop)).await?;
        }
        Ok(())
    }

    /// Runs a subquery for the current rows.
    fn find_answer(&self, number: usize) -> Work<'_, ()> {
        Box::pin(async move {
            let general = &self.general;
            let Some(query) = general.queries.get(number) else { return Err(missing()) };
            self.work(effort::ROW).await?;
            let most = match query.wanted {
                Wanted::Scalar => 2,
                Wanted::Exists => 1,
                Wanted::Set | Wanted::Rows => u64::MAX,
            };
            let Found { count, bytes, share } = self.query(query, most).await?;
            let first = |row: &[u8]| {
                let field = TupleRef::trusted(row).field(0).unwrap_or(&[0xc0]);
                Value::read(&mut Reader::new(field)).unwrap_or(Value::Nil)
            };
            let answer = match query.wanted {
                Wanted::Scalar if count > 1 => {
                    return Err(value::execution("Expression subquery returned more than 1 row"));
                }
                Wanted::Scalar => Answer::Scalar(first(&bytes)),
                Wanted::Exists => Answer::Exists(count > 0),
                Wanted::Rows => Answer::Rows(Rc::new(bytes)),
                Wanted::Set => {
                    let mut rows = Reader::new(&bytes);
                    let mut values = Vec::new();
                    while let Ok(row) = rows.raw() {
                        values.push(first(row));
                        self.work(DEPTH).await?;
                    }
                    Answer::Set(Set::of(
                        values,
                        query.columns.first().and_then(|column| column.ty),
                        query.compared.clone(),
                    ))
                }
            };
            self.slots.borrow_mut().answer(number, answer, share);
            Ok(())
        })
    }

    /// The rows of a query, at most `most`.
    async fn query(&self, query: &Query, most: u64) -> Result<Found, SqlFault> {
        if let Some(recursion) = &query.recursion {
            return self.recurse(query, recursion).await;
        }
        if let (Part::Select(number), true) = (&query.first, query.others.is_empty()) {
            return self.select(*number, most).await;
        }
        let mut found = self.part(&query.first).await?;
        let collations = strings::collations_of(query.columns.iter().map(|column| &column.order));
        for (operation, part) in &query.others {
            let right = self.part(part).await?;
            found = self.combine(found, *operation, right, &collations).await?;
        }
        let bounds = bounds_of(query.limit.as_ref(), query.offset.as_ref(), &self.parameters)?;
        let bounds = (bounds.0.min(most), bounds.1);
        if query.order.is_empty() && bounds == (u64::MAX, 0) {
            return Ok(found);
        }
        let descending = query.order.iter().map(|(_, descending, _)| *descending).collect();
        let collations = strings::collations_of(query.order.iter().map(|(_, _, order)| order));
        let mut collector = Collector::of_rows((descending, collations), bounds, self.limits, self.share());
        let mut rows = Reader::new(&found.bytes);
        while let Ok(row) = rows.raw() {
            let mut keys = Vec::new();
            for (column, ..) in &query.order {
                keys.extend_from_slice(TupleRef::trusted(row).field(*column).unwrap_or(&[0xc0]));
            }
            self.work(DEPTH * (1 + query.order.len() + keys.len() / 256) as u64).await?;
            collector.take_made(keys, row.to_vec())?;
        }
        self.collected(collector).await
    }

    /// The rows of a recursive query. The recursive part is run for the rows found last, until it finds none.
    async fn recurse(&self, query: &Query, recursion: &Recursion) -> Result<Found, SqlFault> {
        let bounds = bounds_of(query.limit.as_ref(), query.offset.as_ref(), &self.parameters)?;
        let most = bounds.0.saturating_add(bounds.1);
        let most = match self.enough.take() {
            Some((number, enough)) if number == recursion.number => most.min(bounds.1.saturating_add(enough)),
            _ => most,
        };
        let collations = strings::collations_of(query.columns.iter().map(|column| &column.order));
        let mut found = Found { count: 0, bytes: Vec::new(), share: self.share() };
        let mut seen = BTreeSet::new();
        let mut batch = self.part(&query.first).await?;
        for (operation, part) in &query.others {
            let right = self.part(part).await?;
            batch = self.combine(batch, *operation, right, &collations).await?;
        }
        while batch.count > 0 && u64::from(found.count) < most {
            let (mut fresh, mut rows) = (Vec::new(), Reader::new(&batch.bytes));
            while let Ok(row) = rows.raw() {
                self.work(DEPTH * (1 + row.len() / 64) as u64).await?;
                if recursion.is_distinct {
                    let key = RowKey { row: row.to_vec(), collations: Rc::clone(&collations) };
                    found.share.grow(row.len() + OVERHEAD, self.limits.bytes)?;
                    if !seen.insert(key) {
                        continue;
                    }
                }
                found.share.grow(2 * row.len(), self.limits.bytes)?;
                found.count = found.count.saturating_add(1);
                fresh.extend_from_slice(row);
            }
            found.bytes.extend_from_slice(&fresh);
            let answer = Answer::Rows(Rc::new(fresh));
            self.slots.borrow_mut().answer(recursion.number, answer, self.share());
            batch = self.part(&recursion.part).await?;
        }
        if bounds == (u64::MAX, 0) {
            return Ok(found);
        }
        let mut collector =
            Collector::of_rows((Rc::default(), Rc::default()), bounds, self.limits, self.share());
        let mut rows = Reader::new(&found.bytes);
        while let Ok(row) = rows.raw() {
            self.work(DEPTH).await?;
            collector.take_made(Vec::new(), row.to_vec())?;
        }
        self.collected(collector).await
    }

    async fn collected(&self, mut collector: Collector) -> Result<Found, SqlFault> {
        while !collector.collect()? {
            self.work(2 * COLLECTED as u64).await?;
        }
        let (count, bytes, share) = collector.into_rows();
        Ok(Found { count, bytes, share })
    }

    /// The rows of a part of a query.
    async fn part(&self, part: &Part) -> Result<Found, SqlFault> {
        let rows = match part {
            Part::Select(number) => return self.select(*number, u64::MAX).await,
            Part::Values(rows) => rows,
        };
        let mut found = Found { count: 0, bytes: Vec::new(), share: self.share() };
        for row in rows {
            let before = found.bytes.len();
            mp::write_array(&mut found.bytes, u32::try_from(row.len()).unwrap_or(0));
            for expr in row {
                let value = self.evaluate(&[], &mut |row| row.evaluate(expr)).await?;
                value.write(&mut found.bytes);
            }
            found.share.grow(found.bytes.len() - before, self.limits.bytes)?;
            found.count += 1;
            self.work(effort::ROW).await?;
        }
        Ok(found)
    }

    /// The rows of a compound query of two parts. All operators but UNION ALL sort the rows and drop duplicates.
    async fn combine(
        &self,
        mut left: Found,
        operation: SetOperation,
        right: Found,
        collations: &Rc<[Collation]>,
    ) -> Result<Found, SqlFault> {
        if operation == SetOperation::UnionAll {
            left.share.grow(right.bytes.len(), self.limits.bytes)?;
            left.bytes.extend_from_slice(&right.bytes);
            left.count = left.count.saturating_add(right.count);
            return Ok(left);
        }
        let mut share = self.share();
        let mut sets = [BTreeSet::new(), BTreeSet::new()];
        for (set, found) in [(0, &left), (1, &right)] {
            let mut rows = Reader::new(&found.bytes);
            while let Ok(row) = rows.raw() {
                self.work(DEPTH * (2 + row.len() / 64) as u64).await?;
                let row = RowKey { row: row.to_vec(), collations: Rc::clone(collations) };
                // Of equal rows of a union the last one stays, as in Tarantool.
                let into = if operation == SetOperation::Union { 0 } else { set };
                if set == 0 || into == 0 || sets[0].contains(&row) {
                    share.grow(row.row.len() + OVERHEAD, self.limits.bytes)?;
                    sets[into].replace(row);
                }
            }
        }
        let [mut first, second] = sets;
        let chosen = match operation {
            SetOperation::Intersect => second,
            SetOperation::Except => {
                first.retain(|row| !second.contains(row));
                first
            }
            SetOperation::Union | SetOperation::UnionAll => first,
        };
        let mut found = Found { count: 0, bytes: Vec::new(), share: self.share() };
        for RowKey { row, .. } in chosen {
            found.share.grow(row.len(), self.limits.bytes)?;
            found.bytes.extend_from_slice(&row);
            found.count += 1;
            self.work(2).await?;
        }
        Ok(found)
    }

    /// The rows of a SELECT, at most `most`.
    async fn select(&self, number: usize, most: u64) -> Result<Found, SqlFault> {
        let joined = self.general.joined.get(number).ok_or_else(missing)?;
        let select = &joined.select;
        let bounds = bounds_of(select.limit.as_ref(), select.offset.as_ref(), &self.parameters)?;
        let bounds = (bounds.0.min(most), bounds.1);
        let is_ordered = select.order.is_empty();
        self.enough.set(self.enough_of(number, bounds.0.saturating_add(bounds.1)));
        let mut collector = Collector::new(Some(select), bounds, self.limits, is_ordered, self.share());
        self.nest(joined, &self.levels[number], &mut collector).await?;
        while let Some(group) = collector.pop_group() {
            self.work(effort::ROW).await?;
            let mut rows = TupleRef::trusted(&group.tuple).fields();
            for source in &joined.sources {
                let row = rows.next().filter(|row| *row != [0xc0]).unwrap_or_default();
                self.slots.borrow_mut().put(source.slot, row);
            }
            let results = group.results(select)?;
            self.settle(&joined.of_result, &results).await?;
            self.attempt(&results, &mut |row| collector.take_group(select, row))?.map_err(|_| missing())?;
        }
        self.collected(collector).await
    }

    /// The recursive query whose rows a SELECT shows as they come and no other SELECT reads, and how many rows are enough.
    fn enough_of(&self, number: usize, most: u64) -> Option<(usize, u64)> {
        let joined = self.general.joined.get(number)?;
        let select = &joined.select;
        let is_plain = joined.terms.is_empty() && !select.is_grouped() && !select.distinct;
        let [source] = &joined.sources[..] else { return None };
        let Origin::Query(query) = source.origin else { return None };
        let recursion = self.general.queries.get(query)?.recursion.as_ref()?;
        let reads = self.general.joined.iter().enumerate().filter(|(other, joined)| {
            let is_own = matches!(recursion.part, Part::Select(part) if part == *other);
            let mut sources = joined.sources.iter();
            !is_own && sources.any(|source| matches!(source.origin, Origin::Query(of) if of == query))
        });
        (is_plain && select.order.is_empty() && reads.count() == 1).then_some((query, most))
    }

    /// The nest of loops of a SELECT: gives each row that passes to the collector.
    async fn nest(
        &self,
        joined: &Joined,
        levels: &[Level],
        collector: &mut Collector,
    ) -> Result<(), SqlFault> {
        let Some(outermost) = levels.first() else {
            return match self.pass(joined.terms.iter()).await? {
                true => self.take(joined, collector).await,
                false => Ok(()),
            };
        };
        // Each with whether a row has passed the condition of a LEFT JOIN.
        let mut scans = vec![(self.open(joined, outermost).await?, false)];
        loop {
            let depth = scans.len().saturating_sub(1);
            let (Some((scan, has_matched)), Some(level)) = (scans.last_mut(), levels.get(depth)) else {
                return Ok(());
            };
            if collector.has_enough(&joined.select) {
                return Ok(());
            }
            let source = source_of(joined, level);
            self.work(effort::ROW).await?;
            if self.next_row(scan, source.slot).await? {
                if let Some(condition) = &source.outer {
                    if !self.pass(condition.iter()).await? {
                        continue;
                    }
                    *has_matched = true;
                }
            } else if source.outer.is_some() && !*has_matched {
                (*scan, *has_matched) = (Scan::Nothing, true);
                self.slots.borrow_mut().put(source.slot, &[]);
            } else {
                scans.pop();
                continue;
            }
            if !self.pass(level.terms.iter().map(|number| &joined.terms[*number])).await? {
                continue;
            }
            match levels.get(depth + 1) {
                Some(inner) => scans.push((self.open(joined, inner).await?, false)),
                None => self.take(joined, collector).await?,
            }
        }
    }

    /// Whether the current rows pass all these terms.
    async fn pass(&self, terms: impl Iterator<Item = &Term>) -> Result<bool, SqlFault> {
        for term in terms {
            if !self.evaluate(&[], &mut |row| row.passes(Some(&term.expr))).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Begins to read a source, for the current rows of the levels above.
    async fn open(&self, joined: &Joined, level: &Level) -> Result<Scan, SqlFault> {
        self.work(2 * effort::ROW).await?;
        let id = match source_of(joined, level).origin {
            Origin::Space(id) => id,
            Origin::Query(number) => loop {
                if let Some(Answer::Rows(rows)) = self.slots.borrow().known(number) {
                    return Ok(Scan::Derived { rows: Rc::clone(rows), at: 0 });
                }
                self.slots.borrow().take_wanted();
                self.find_answer(number).await?;
            },
        };
        let mut compared = Vec::with_capacity(level.comparisons.len());
        for (field, comparison, expr) in &level.comparisons {
            // The term itself is evaluated too: it fails with a value that cannot be computed.
            match self.attempt(&[], &mut |row| row.evaluate(expr)) {
                Ok(Ok(Value::Nil)) => return Ok(Scan::Nothing),
                Ok(Ok(value)) => compared.push((*field, *comparison, value)),
                _ => {}
            }
        }
        if let Some((field, query)) = level.within {
            let values = self.values_of(query).await?;
            let lookup =
                Some(Box::new(Lookup { space: id, field, values, next: 0, current: Vec::new(), compared }));
            return Ok(Scan::Space { read: Box::default(), at: 0, lookup });
        }
        let rows = if compared.is_empty() { 8 * FIRST_ROWS } else { FIRST_ROWS };
        let read = Box::new(self.read(Request::Open(id, compared), rows).await);
        Ok(Scan::Space { read, at: 0, lookup: None })
    }

    /// The values of a set.
    async fn values_of(&self, query: usize) -> Result<Rc<Vec<Value>>, SqlFault> {
        loop {
            if let Some(Answer::Set(set)) = self.slots.borrow().known(query) {
                return Ok(set.values());
            }
            self.slots.borrow().take_wanted();
            self.find_answer(query).await?;
        }
    }

    /// Makes the next row of a scan the current row of its source. Returns whether one is left.
    async fn next_row(&self, scan: &mut Scan, slot: u32) -> Result<bool, SqlFault> {
        loop {
            let (bytes, at, lookup) = match scan {
                Scan::Nothing => return Ok(false),
                Scan::Space { read, at, lookup } => (&read.bytes, at, lookup.as_deref()),
                Scan::Derived { rows, at } => (&**rows, at, None),
            };
            if let Ok(row) = Reader::new(bytes.get(*at..).unwrap_or_default()).raw() {
                *at += row.len();
                if lookup.is_some_and(|lookup| !lookup.fits(row)) {
                    continue;
                }
                self.slots.borrow_mut().put(slot, row);
                return Ok(true);
            }
            let Scan::Space { read, at, lookup } = scan else { return Ok(false) };
            let request = match (read.next.take(), lookup) {
                (Some((cursor, ends)), _) => Request::Next(cursor, ends),
                (None, Some(lookup)) => match lookup.next_request() {
                    Some(request) => request,
                    None => return Ok(false),
                },
                (None, None) => return Ok(false),
            };
            let rows = if matches!(request, Request::Find(..)) { FIRST_ROWS } else { MAX_ROWS };
            **read = self.read(request, rows).await;
            *at = 0;
            self.work(2 * effort::ROW).await?;
        }
    }

    /// Gives the current rows to the collector.
    async fn take(&self, joined: &Joined, collector: &mut Collector) -> Result<(), SqlFault> {
        self.settle(&joined.of_row, &[]).await?;
        let mut tuple = Vec::new();
        if joined.select.is_grouped() {
            mp::write_array(&mut tuple, u32::try_from(joined.sources.len()).unwrap_or(0));
            let slots = self.slots.borrow();
            for source in &joined.sources {
                tuple.extend_from_slice(slots.tuple(source.slot).map_or(&[0xc0], TupleRef::bytes));
            }
        }
        let taken = self.attempt(&[], &mut |row| collector.take(&joined.select, row, &tuple))?;
        taken.map_err(|_| missing())
    }
}

impl Lookup {
    /// Whether a row has the value, and not only one that an index takes for it: `'1'` finds 1.
    fn fits(&self, row: &[u8]) -> bool {
        let field = TupleRef::trusted(row).field(self.field).unwrap_or(&[0xc0]);
        scalar::compare(field, &self.current, &Collation::Binary) == Ordering::Equal
    }

    /// The request for the rows with the next value.
    fn next_request(&mut self) -> Option<Request> {
        let value = self.values.get(self.next)?.clone();
        self.next += 1;
        self.current = value.encode();
        let mut terms = self.compared.clone();
        terms.push((self.field, Comparison::Equal, value));
        Some(Request::Find(self.space, terms))
    }
}

/// An expression that was evaluated before has no new subquery.
fn missing() -> SqlFault {
    value::execution("a subquery is missing")
}

/// A row in the order of its values.
struct RowKey {
    row: Vec<u8>,
    /// The orders of strings; none if all are ordered by their bytes.
    collations: Rc<[Collation]>,
}

impl Ord for RowKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let (left, right) = (TupleRef::trusted(&self.row).fields(), TupleRef::trusted(&other.row).fields());
        let mut orders = left.zip(right).enumerate().map(|(place, (left, right))| {
            scalar::compare(left, right, self.collations.get(place).unwrap_or(&Collation::Binary))
        });
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for RowKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RowKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for RowKey {}

#[cfg(test)]
mod tests;
