//! Rows to a result: groups, DISTINCT, the order, OFFSET and LIMIT.
//!
//! Bounds: a result has at most [`Limits::bytes`], with sort keys and the memory of DISTINCT and of groups.

use std::cmp::Ordering;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;

use lycosa_tuple::collation::Collation;
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::scalar;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;

use crate::aggregate::Group;
use crate::effort::Effort;
use crate::eval::Row;
use crate::limits::{Limits, OVERHEAD, Share};
use crate::tree::{Expr, Select};
use crate::{SqlFault, strings, value};

/// Rows of a sorted result, or groups, that are collected in one step.
pub(crate) const COLLECTED: usize = 1024;

/// Comparisons of a row with others when it finds its place in a sorted result.
pub(crate) const DEPTH: u64 = 20;

/// Where a row stands in a sorted result: the values of ORDER BY, encoded back to back, and the row's number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SortKey {
    pub(crate) values: Vec<u8>,
    pub(crate) descending: Rc<[bool]>,
    /// The orders of strings; none for values that are all ordered by their bytes.
    pub(crate) collations: Rc<[Collation]>,
    pub(crate) number: u64,
}

impl Ord for SortKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut left, mut right) = (Reader::new(&self.values), Reader::new(&other.values));
        for (place, descending) in self.descending.iter().enumerate() {
            let values = (left.raw().unwrap_or(&[0xc0]), right.raw().unwrap_or(&[0xc0]));
            let collation = self.collations.get(place).unwrap_or(&Collation::Binary);
            let found = scalar::compare(values.0, values.1, collation);
            if found != Ordering::Equal {
                return if *descending { found.reverse() } else { found };
            }
        }
        self.number.cmp(&other.number)
    }
}

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The rows of a SELECT that have been taken so far.
pub(crate) struct Collector {
    limits: Limits,
    /// The rows come in the order that was asked for.
    is_ordered: bool,
    descending: Rc<[bool]>,
    collations: Rc<[Collation]>,
    /// A term of GROUP BY has no direction.
    ascending: Rc<[bool]>,
    group_collations: Rc<[Collation]>,
    /// Of the columns, for DISTINCT.
    column_collations: Rc<[Collation]>,
    limit: u64,
    offset: u64,
    /// Rows that passed the filter and DISTINCT.
    passed: u64,
    /// Rows of the result, back to back, and their number.
    rows: Vec<u8>,
    count: u32,
    /// Rows that wait for their places.
    sorted: BTreeMap<SortKey, Vec<u8>>,
    /// Rows of the sorted result that were passed over for OFFSET.
    skipped: u64,
    seen: HashSet<Vec<u8>>,
    /// In the place of `seen`, if a column has a collation.
    seen_in_order: BTreeSet<SortKey>,
    groups: BTreeMap<SortKey, Group>,
    pub(crate) share: Share,
}

impl Collector {
    /// A collector without a row. `is_ordered`: rows come in the order of ORDER BY.
    pub(crate) fn new(
        select: Option<&Select>,
        (limit, offset): (u64, u64),
        limits: Limits,
        is_ordered: bool,
        share: Share,
    ) -> Collector {
        let is_grouped = select.is_some_and(Select::is_grouped);
        let order = select.map_or(&[][..], |select| &select.order[..]);
        let groups = select.map_or(&[][..], |select| &select.groups[..]);
        let mut collector = Collector {
            limits,
            is_ordered: if is_grouped { order.is_empty() } else { is_ordered },
            descending: order.iter().map(|order| order.descending).collect(),
            collations: strings::collations_of(order.iter().map(|term| &term.order)),
            ascending: groups.iter().map(|_| false).collect(),
            group_collations: strings::collations_of(groups.iter().map(|(_, order)| order)),
            column_collations: match select.filter(|select| select.distinct) {
                Some(select) => strings::collations_of(select.columns.iter().map(|column| &column.order)),
                None => Rc::default(),
            },
            limit,
            offset,
            passed: 0,
            rows: Vec::new(),
            count: 0,
            sorted: BTreeMap::new(),
            skipped: 0,
            seen: HashSet::new(),
            seen_in_order: BTreeSet::new(),
            groups: BTreeMap::new(),
            share,
        };
        if let Some(select) = select {
            collector.begin_groups(select);
        }
        collector
    }

    /// A collector of rows that are made elsewhere; [`Self::take_made`] takes them.
    pub(crate) fn of_rows(
        (descending, collations): (Rc<[bool]>, Rc<[Collation]>),
        bounds: (u64, u64),
        limits: Limits,
        share: Share,
    ) -> Collector {
        Collector { descending, collations, ..Collector::new(None, bounds, limits, false, share) }
    }

    fn group_key(&self, values: Vec<u8>) -> SortKey {
        SortKey {
            values,
            descending: Rc::clone(&self.ascending),
            collations: Rc::clone(&self.group_collations),
            number: 0,
        }
    }

    /// The group of all rows exists without a row, too.
    fn begin_groups(&mut self, select: &Select) {
        self.groups.clear();
        if select.is_grouped() && select.groups.is_empty() {
            self.groups.insert(self.group_key(Vec::new()), Group::of(select));
        }
    }

    /// Forgets all rows.
    pub(crate) fn restart(&mut self, select: Option<&Select>) {
        self.rows.clear();
        self.sorted.clear();
        self.seen.clear();
        self.seen_in_order.clear();
        self.groups.clear();
        if let Some(select) = select {
            self.begin_groups(select);
        }
        (self.count, self.passed) = (0, 0);
        self.share.shrink(usize::MAX);
    }

    /// Whether no further row can change the result.
    pub(crate) fn has_enough(&self, select: &Select) -> bool {
        !select.is_grouped()
            && (self.limit == 0 || self.is_ordered && self.passed >= self.offset.saturating_add(self.limit))
    }

    /// Takes a row that passes the filter. `tuple` is what a group keeps of it.
    pub(crate) fn take(&mut self, select: &Select, row: &Row<'_>, tuple: &[u8]) -> Result<(), SqlFault> {
        if !select.is_grouped() {
            return self.take_row(select, row);
        }
        let mut keys = Vec::new();
        for (term, _) in &select.groups {
            row.evaluate(term)?.write(&mut keys);
            self.check_free(keys.len())?;
        }
        row.effort.spend(DEPTH * (select.groups.len() + keys.len() / 256) as u64)?;
        let weight = keys.len() + OVERHEAD * (1 + select.aggregates.len());
        let key = self.group_key(keys);
        let (group, mut grown) = match self.groups.entry(key) {
            Entry::Occupied(known) => (known.into_mut(), 0),
            Entry::Vacant(free) => (free.insert(Group::of(select)), weight),
        };
        grown += group.add(select, row, tuple)?;
        self.grow(grown)
    }

    fn take_row(&mut self, select: &Select, row: &Row<'_>) -> Result<(), SqlFault> {
        let mut values = Vec::new();
        mp::write_array(&mut values, u32::try_from(select.columns.len()).unwrap_or(0));
        for column in &select.columns {
            write_column(row, &column.expr, &mut values)?;
            self.check_free(values.len())?;
        }
        if select.distinct {
            row.effort.spend(1 + (values.len() / 16) as u64)?;
            if !self.column_collations.is_empty() {
                row.effort.spend(DEPTH * (1 + (values.len() / 16) as u64))?;
                let key = self.row_key(select, &values);
                if self.seen_in_order.contains(&key) {
                    return Ok(());
                }
                self.grow(values.len() + OVERHEAD)?;
                self.seen_in_order.insert(key);
            } else if self.seen.contains(&values) {
                return Ok(());
            } else {
                self.grow(values.len() + OVERHEAD)?;
                self.seen.insert(values.clone());
            }
        }
        self.passed += 1;
        if self.is_ordered {
            return if self.passed > self.offset { self.append(&values) } else { Ok(()) };
        }
        let mut keys = Vec::new();
        for order in &select.order {
            row.evaluate(&order.expr)?.write(&mut keys);
            self.check_free(values.len() + keys.len())?;
        }
        // It is compared with the keys between it and the root of the tree.
        row.effort.spend(DEPTH * (select.order.len() + keys.len() / 256) as u64)?;
        self.place(keys, values)
    }

    /// A row of the result as DISTINCT compares it.
    fn row_key(&self, select: &Select, row: &[u8]) -> SortKey {
        SortKey {
            values: TupleRef::trusted(row).fields().collect::<Vec<_>>().concat(),
            descending: select.columns.iter().map(|_| false).collect(),
            collations: Rc::clone(&self.column_collations),
            number: 0,
        }
    }

    /// Gives a row its place in the sorted result.
    fn place(&mut self, keys: Vec<u8>, values: Vec<u8>) -> Result<(), SqlFault> {
        self.grow(keys.len() + values.len() + 2 * OVERHEAD)?;
        let key = SortKey {
            values: keys,
            descending: Rc::clone(&self.descending),
            collations: Rc::clone(&self.collations),
            number: self.passed,
        };
        self.sorted.insert(key, values);
        // Rows behind the last that is wanted are never shown.
        if self.sorted.len() as u64 > self.offset.saturating_add(self.limit)
            && let Some((key, row)) = self.sorted.pop_last()
        {
            self.share.shrink(key.values.len() + row.len() + 2 * OVERHEAD);
        }
        Ok(())
    }

    /// Takes a row that was made elsewhere.
    pub(crate) fn take_made(&mut self, keys: Vec<u8>, values: Vec<u8>) -> Result<(), SqlFault> {
        self.passed += 1;
        self.place(keys, values)
    }

    /// The next group, to be taken as a row of the result.
    pub(crate) fn pop_group(&mut self) -> Option<Group> {
        self.groups.pop_first().map(|(_, group)| group)
    }

    /// Takes a group as a row of the result. `row` has its results.
    pub(crate) fn take_group(&mut self, select: &Select, row: &Row<'_>) -> Result<(), SqlFault> {
        let is_over = self.is_ordered && self.passed >= self.offset.saturating_add(self.limit);
        match row.passes(select.having.as_ref().filter(|_| !is_over))? {
            true if !is_over => self.take_row(select, row),
            _ => Ok(()),
        }
    }

    /// Whether groups are left.
    pub(crate) fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Collects a part of the sorted result. Returns whether that was the last one.
    pub(crate) fn collect(&mut self) -> Result<bool, SqlFault> {
        for _ in 0..COLLECTED {
            let Some((key, row)) = self.sorted.pop_first() else { return Ok(true) };
            self.share.shrink(key.values.len() + row.len() + 2 * OVERHEAD);
            if self.skipped < self.offset {
                self.skipped += 1;
            } else if u64::from(self.count) < self.limit {
                self.append(&row)?;
            }
        }
        Ok(self.sorted.is_empty())
    }

    fn append(&mut self, row: &[u8]) -> Result<(), SqlFault> {
        self.grow(row.len())?;
        self.rows.extend_from_slice(row);
        self.count += 1;
        Ok(())
    }

    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), SqlFault> {
        self.share.grow(bytes, self.limits.bytes)
    }

    /// Refuses this number of further bytes before they are counted.
    fn check_free(&mut self, bytes: usize) -> Result<(), SqlFault> {
        self.grow(bytes)?;
        self.share.shrink(bytes);
        Ok(())
    }

    /// The rows of the result: their number, and MessagePack arrays back to back.
    pub(crate) fn rows(&self) -> (u32, &[u8]) {
        (self.count, &self.rows)
    }

    /// The rows, their number, and the bytes that are counted for them.
    pub(crate) fn into_rows(self) -> (u32, Vec<u8>, Share) {
        (self.count, self.rows, self.share)
    }
}

/// A column of any type is copied as it stands.
fn write_column(row: &Row<'_>, expr: &Expr, out: &mut Vec<u8>) -> Result<(), SqlFault> {
    let (tuple, field) = match expr {
        Expr::Column(field) => (row.tuple, *field),
        Expr::Slot(slot, field) => (row.slot(*slot), *field),
        Expr::Tuple(slot) => {
            let bytes = row.slot(*slot).map_or(&[0xc0][..], |tuple| tuple.bytes());
            row.effort.spend(1 + (bytes.len() / 128) as u64)?;
            out.extend_from_slice(bytes);
            return Ok(());
        }
        expr => {
            row.evaluate(expr)?.write(out);
            return Ok(());
        }
    };
    let bytes = tuple.and_then(|tuple| tuple.field(field)).unwrap_or(&[0xc0]);
    row.effort.spend(1 + u64::from(field / 8) + (bytes.len() / 128) as u64)?;
    out.extend_from_slice(bytes);
    Ok(())
}

/// LIMIT and OFFSET of a query.
///
/// # Errors
/// One that is no whole number.
pub(crate) fn bounds_of(
    limit: Option<&Expr>,
    offset: Option<&Expr>,
    parameters: &[Value],
) -> Result<(u64, u64), SqlFault> {
    Ok((
        count_of(limit, "LIMIT", parameters)?.unwrap_or(u64::MAX),
        count_of(offset, "OFFSET", parameters)?.unwrap_or(0),
    ))
}

fn count_of(expr: Option<&Expr>, name: &str, parameters: &[Value]) -> Result<Option<u64>, SqlFault> {
    let Some(expr) = expr else { return Ok(None) };
    match Row::nothing(parameters, &Effort::default()).evaluate(expr)? {
        Value::Uint(count) => Ok(Some(count)),
        _ => Err(value::execution(&format!("Only positive integers are allowed in the {name} clause"))),
    }
}
