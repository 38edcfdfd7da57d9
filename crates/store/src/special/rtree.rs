//! RTREE indexes: points and boxes of up to 20 dimensions.
//!
//! An R-tree of boxes (Guttman) whose nodes are split as in an R*-tree: along the axis on which the two halves have the least
//! sum of margins. A node that runs low is dissolved and its entries are put in again. A point is a box of no extent. The
//! nearest tuples come in the order of their distance, found best first, so that the first of them cost O(log n).
//!
//! Coordinates are doubles, as in Tarantool; of two corners the lesser coordinate counts first.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use lycosa_tuple::field::FieldType;
use lycosa_tuple::format::{FieldPath, FormatError};
use lycosa_tuple::key::{KeyDef, KeyError};
use lycosa_tuple::mp::{Kind, Reader};

use crate::arena::Handle;
use crate::error::Error;
use crate::index::SelectError;
use crate::statement::IteratorType;

/// The largest dimension of an RTREE index.
pub const MAX_DIMENSION: u32 = 20;
/// Entries of a node, at most.
const FANOUT: usize = 24;
/// Entries of a node that is not the root, at least.
const LEAST: usize = 8;

/// How far a tuple is from a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// The length of the straight line.
    Euclid,
    /// The sum of the distances along the axes.
    Manhattan,
}

/// An interval on each axis: the least and the greatest coordinate.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rectangle(Box<[(f64, f64)]>);

impl Rectangle {
    /// The smallest rectangle around both.
    fn around(&self, other: &Self) -> Self {
        let both = self.0.iter().zip(&other.0);
        Self(both.map(|(a, b)| (a.0.min(b.0), a.1.max(b.1))).collect())
    }

    fn extend(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = (own.0.min(other.0), own.1.max(other.1));
        }
    }

    /// Whether a coordinate is not a number.
    fn is_odd(&self) -> bool {
        self.0.iter().any(|(low, high)| low.is_nan() || high.is_nan())
    }

    fn volume(&self) -> f64 {
        self.0.iter().map(|(low, high)| high - low).product()
    }

    fn margin(&self) -> f64 {
        self.0.iter().map(|(low, high)| high - low).sum()
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a.0 <= b.1 && b.0 <= a.1)
    }

    fn contains(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a.0 <= b.0 && b.1 <= a.1)
    }

    fn contains_strictly(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a.0 < b.0 && b.1 < a.1)
    }

    /// The distance of the nearest point of the rectangle to the first corner of `key`; of Euclid's its square, which orders
    /// alike.
    fn distance(&self, key: &Self, distance: Distance) -> f64 {
        let gaps = self.0.iter().zip(&key.0).map(|(own, key)| (own.0 - key.0).max(key.0 - own.1).max(0.0));
        match distance {
            Distance::Euclid => gaps.map(|gap| gap * gap).sum(),
            Distance::Manhattan => gaps.sum(),
        }
    }
}

/// Reads numbers as a point or box. `Ok(None)`: another number of coordinates than these have. `Err`: which of them is no
/// number.
fn read_rectangle(reader: &mut Reader<'_>, count: u32, dimension: u32) -> Result<Option<Rectangle>, u32> {
    let mut coordinates = Vec::with_capacity(count.min(2 * MAX_DIMENSION) as usize);
    for place in 0..count {
        coordinates.push(number(reader).ok_or(place)?);
    }
    let dimension = dimension as usize;
    let sides = if coordinates.len() == dimension {
        coordinates.iter().map(|&one| (one, one)).collect()
    } else if coordinates.len() == 2 * dimension {
        let (first, second) = coordinates.split_at(dimension);
        first.iter().zip(second).map(|(&one, &other)| (one.min(other), one.max(other))).collect()
    } else {
        return Ok(None);
    };
    Ok(Some(Rectangle(sides)))
}

/// The first of the numbers that no double is equal to. Tarantool keeps no such coordinates and looks for none.
fn first_inexact(reader: &mut Reader<'_>, count: u32) -> Option<u32> {
    (0..count).find(|_| match reader.kind() {
        Ok(Kind::Uint | Kind::Int) => reader.int().is_ok_and(|value| value as f64 as i128 != value),
        Ok(Kind::Ext) => true,
        _ => reader.skip().is_err(),
    })
}

fn not_a_number(coordinate: u32) -> Error {
    let field = FieldPath { field: coordinate, tokens: Vec::new() };
    Error::Format(FormatError::FieldType { field, expected: FieldType::Number })
}

fn number(reader: &mut Reader<'_>) -> Option<f64> {
    match reader.kind().ok()? {
        Kind::Uint | Kind::Int => reader.int().ok().map(|value| value as f64),
        Kind::Float => reader.float().ok().map(f64::from),
        Kind::Double => reader.double().ok(),
        _ => None,
    }
}

/// What a node holds beside the rectangles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Child {
    Node(u32),
    Tuple(Handle),
}

#[derive(Debug, Clone)]
struct Entry {
    rectangle: Rectangle,
    child: Child,
}

/// The entries of a node; all of a leaf are tuples, all of another node are nodes of one depth.
type Node = Vec<Entry>;

/// An RTREE index.
#[derive(Debug)]
pub(crate) struct Rtree {
    key: KeyDef,
    dimension: u32,
    distance: Distance,
    nodes: Vec<Node>,
    /// Places of `nodes` that are not used.
    free: Vec<u32>,
    root: u32,
    len: u64,
}

/// What a walk asks of a rectangle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    Equal,
    Overlapping,
    Inside { strictly: bool },
    Around { strictly: bool },
}

/// Something that is as far away as it says: a node, or a tuple.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Near {
    distance: f64,
    child: Child,
}

impl Eq for Near {}

impl Ord for Near {
    fn cmp(&self, other: &Self) -> Ordering {
        // Of equal distances nodes come first: they may hold a tuple that is as near.
        let rank = |near: &Self| matches!(near.child, Child::Tuple(_));
        self.distance.total_cmp(&other.distance).then_with(|| rank(self).cmp(&rank(other)))
    }
}

impl PartialOrd for Near {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A walk over an RTREE index.
#[derive(Debug, Clone)]
pub(crate) enum RtreeWalk<'a> {
    /// The tuples whose rectangles fit.
    Matching {
        rtree: &'a Rtree,
        wanted: Wanted,
        key: Rectangle,
        /// Nodes from the root on, each with its next entry.
        path: Vec<(u32, usize)>,
    },
    /// Tuples in the order of their distance.
    Nearest {
        rtree: &'a Rtree,
        key: Rectangle,
        /// Nodes and tuples that the walk has met and not handed out yet.
        ahead: BinaryHeap<Reverse<Near>>,
    },
}

impl Iterator for RtreeWalk<'_> {
    type Item = Handle;

    fn next(&mut self) -> Option<Handle> {
        match self {
            Self::Matching { rtree, wanted, key, path } => loop {
                let (node, place) = path.last_mut()?;
                let Some(entry) = rtree.nodes[*node as usize].get(*place) else {
                    path.pop();
                    continue;
                };
                *place += 1;
                match entry.child {
                    Child::Node(node) if wanted.may_be_in(&entry.rectangle, key) => path.push((node, 0)),
                    Child::Tuple(handle) if wanted.fits(&entry.rectangle, key) => return Some(handle),
                    Child::Node(_) | Child::Tuple(_) => {}
                }
            },
            Self::Nearest { rtree, key, ahead } => loop {
                let Reverse(Near { child, .. }) = ahead.pop()?;
                match child {
                    Child::Tuple(handle) => return Some(handle),
                    Child::Node(node) => ahead.extend(rtree.nodes[node as usize].iter().map(|entry| {
                        let distance = entry.rectangle.distance(key, rtree.distance);
                        Reverse(Near { distance, child: entry.child })
                    })),
                }
            },
        }
    }
}

impl Wanted {
    /// Whether a rectangle inside of this one may fit.
    fn may_be_in(self, node: &Rectangle, key: &Rectangle) -> bool {
        match self {
            Self::All => true,
            Self::Overlapping | Self::Inside { .. } => node.overlaps(key),
            Self::Equal | Self::Around { .. } => node.contains(key),
        }
    }

    fn fits(self, rectangle: &Rectangle, key: &Rectangle) -> bool {
        match self {
            Self::All => true,
            Self::Equal => rectangle == key,
            Self::Overlapping => rectangle.overlaps(key),
            Self::Inside { strictly: false } => key.contains(rectangle),
            Self::Inside { strictly: true } => key.contains_strictly(rectangle),
            Self::Around { strictly: false } => rectangle.contains(key),
            Self::Around { strictly: true } => rectangle.contains_strictly(key),
        }
    }
}

impl Rtree {
    /// An empty index of tuples whose field is an array of `dimension` or twice as many numbers.
    pub(crate) fn new(key: KeyDef, dimension: u32, distance: Distance) -> Self {
        Self { key, dimension, distance, nodes: vec![Node::new()], free: Vec::new(), root: 0, len: 0 }
    }

    /// The rectangle in a tuple.
    fn read(&self, tuple: &[u8]) -> Result<Rectangle, Error> {
        let mut value = Vec::new();
        self.key.extract(tuple, &mut value);
        let mut reader = Reader::new(&value);
        let count = reader.array().unwrap_or(0);
        let no_rectangle = Error::RtreeRect { what: "Field", dimension: self.dimension };
        if ![self.dimension, 2 * self.dimension].contains(&count) {
            return Err(no_rectangle);
        }
        let read = read_rectangle(&mut reader, count, self.dimension).map_err(not_a_number)?;
        read.ok_or(no_rectangle)
    }

    /// Checks whether the tuple has coordinates.
    pub(crate) fn check(&self, tuple: &[u8]) -> Result<(), Error> {
        let mut value = Vec::new();
        self.key.extract(tuple, &mut value);
        let mut reader = Reader::new(&value);
        let count = reader.array().unwrap_or(0);
        // The number of coordinates counts first.
        let inexact =
            [self.dimension, 2 * self.dimension].contains(&count).then(|| first_inexact(&mut reader, count));
        match inexact.flatten() {
            Some(place) => Err(not_a_number(place)),
            None => self.read(tuple).map(drop),
        }
    }

    /// The rectangle that a key is: one array of coordinates, or the coordinates themselves.
    pub(crate) fn read_key(&self, key: &[u8], part_count: u32) -> Result<Rectangle, Error> {
        let mut reader = Reader::new(key);
        let count = if part_count == 1 {
            let wrong = KeyError::PartType { part: 0, expected: FieldType::Array };
            reader.array().map_err(|_| wrong)?
        } else if part_count == self.dimension || part_count == 2 * self.dimension {
            part_count
        } else {
            return Err(KeyError::PartCount { expected: 2 * self.dimension, got: part_count }.into());
        };
        if let Some(place) = first_inexact(&mut reader.clone(), count) {
            return Err(not_a_number(place));
        }
        let read = read_rectangle(&mut reader, count, self.dimension)
            .map_err(|part| KeyError::PartType { part, expected: FieldType::Number })?;
        read.ok_or(Error::RtreeRect { what: "Key", dimension: self.dimension })
    }

    /// Adds a tuple that [`Rtree::check`] has admitted; another one is left out.
    pub(crate) fn insert(&mut self, tuple: &[u8], handle: Handle) {
        if let Ok(rectangle) = self.read(tuple) {
            self.add(Entry { rectangle, child: Child::Tuple(handle) });
            self.len += 1;
        }
    }

    /// Removes a tuple; nothing if it is not there.
    pub(crate) fn remove(&mut self, tuple: &[u8], handle: Handle) {
        let Ok(rectangle) = self.read(tuple) else { return };
        let mut orphans = Vec::new();
        if !self.take(self.root, &rectangle, handle, &mut orphans) {
            return;
        }
        self.len -= 1;
        // A root with one child gives way to it.
        while let [Entry { child: Child::Node(only), .. }] = self.nodes[self.root as usize][..] {
            self.release(self.root);
            self.root = only;
        }
        orphans.into_iter().for_each(|entry| self.add(entry));
    }

    fn add(&mut self, entry: Entry) {
        let Some(split) = self.add_below(self.root, entry) else { return };
        let old = Entry { rectangle: self.rectangle_of(self.root), child: Child::Node(self.root) };
        self.root = self.new_node(vec![old, split]);
    }

    /// Adds a tuple's entry below a node. Returns the node that was split off, if there was no space left.
    fn add_below(&mut self, node: u32, entry: Entry) -> Option<Entry> {
        let place = self.best_place(node, &entry.rectangle);
        let overflow = match place {
            None => Some(entry),
            Some(place) => {
                let below = &mut self.nodes[node as usize][place];
                below.rectangle.extend(&entry.rectangle);
                let Child::Node(child) = below.child else { return None };
                let split = self.add_below(child, entry);
                if split.is_some() {
                    self.nodes[node as usize][place].rectangle = self.rectangle_of(child);
                }
                split
            }
        };
        let entries = &mut self.nodes[node as usize];
        entries.push(overflow?);
        if entries.len() <= FANOUT {
            return None;
        }
        let rest = split(entries, self.dimension as usize);
        let new = self.new_node(rest);
        Some(Entry { rectangle: self.rectangle_of(new), child: Child::Node(new) })
    }

    /// The child that has to grow least to take the rectangle in; `None` in a leaf.
    fn best_place(&self, node: u32, rectangle: &Rectangle) -> Option<usize> {
        let entries = &self.nodes[node as usize];
        if !matches!(entries.first()?.child, Child::Node(_)) {
            return None;
        }
        let cost = |entry: &Entry| {
            let grown = entry.rectangle.around(rectangle);
            (grown.volume() - entry.rectangle.volume(), grown.margin())
        };
        let costs = entries.iter().map(cost).enumerate();
        let least = costs.min_by(|(_, a), (_, b)| a.0.total_cmp(&b.0).then_with(|| a.1.total_cmp(&b.1)));
        least.map(|(place, _)| place)
    }

    /// Takes a tuple out from below a node, and the entries of nodes that run low with it. Whether it was there.
    fn take(&mut self, node: u32, rectangle: &Rectangle, handle: Handle, orphans: &mut Vec<Entry>) -> bool {
        for place in 0..self.nodes[node as usize].len() {
            let entry = &self.nodes[node as usize][place];
            match entry.child {
                Child::Tuple(found) if found == handle => {
                    self.nodes[node as usize].swap_remove(place);
                    return true;
                }
                Child::Tuple(_) => {}
                Child::Node(child) => {
                    // Coordinates that are no numbers compare with nothing: no rectangle contains them.
                    let may_hold = entry.rectangle.contains(rectangle) || rectangle.is_odd();
                    if may_hold && self.take(child, rectangle, handle, orphans) {
                        if self.nodes[child as usize].len() < LEAST {
                            self.nodes[node as usize].swap_remove(place);
                            self.dissolve(child, orphans);
                        } else {
                            self.nodes[node as usize][place].rectangle = self.rectangle_of(child);
                        }
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Gives a node up with all nodes below it; its tuples are left over.
    fn dissolve(&mut self, node: u32, orphans: &mut Vec<Entry>) {
        for entry in self.release(node) {
            match entry.child {
                Child::Tuple(_) => orphans.push(entry),
                Child::Node(child) => self.dissolve(child, orphans),
            }
        }
    }

    fn rectangle_of(&self, node: u32) -> Rectangle {
        let mut rectangles = self.nodes[node as usize].iter().map(|entry| &entry.rectangle);
        let mut all = rectangles.next().cloned().unwrap_or_else(|| Rectangle(Box::new([])));
        rectangles.for_each(|one| all.extend(one));
        all
    }

    fn new_node(&mut self, entries: Node) -> u32 {
        if let Some(place) = self.free.pop() {
            self.nodes[place as usize] = entries;
            return place;
        }
        self.nodes.push(entries);
        u32::try_from(self.nodes.len() - 1).expect("a node has a tuple, and a tuple's handle has 32 bits")
    }

    fn release(&mut self, node: u32) -> Node {
        self.free.push(node);
        std::mem::take(&mut self.nodes[node as usize])
    }

    /// Walks what `iterator` asks for. The key fits the index.
    pub(crate) fn walk(
        &self,
        iterator: IteratorType,
        key: &[u8],
        part_count: u32,
    ) -> Result<RtreeWalk<'_>, SelectError> {
        let wanted = match iterator {
            IteratorType::All => Some(Wanted::All),
            IteratorType::Eq => Some(Wanted::Equal),
            IteratorType::Overlaps => Some(Wanted::Overlapping),
            IteratorType::Le => Some(Wanted::Inside { strictly: false }),
            IteratorType::Lt => Some(Wanted::Inside { strictly: true }),
            IteratorType::Ge => Some(Wanted::Around { strictly: false }),
            IteratorType::Gt => Some(Wanted::Around { strictly: true }),
            IteratorType::Neighbor => None,
            _ => return Err(SelectError::Iterator),
        };
        let key = self.read_key(key, part_count).unwrap_or_else(|_| Rectangle(Box::new([])));
        Ok(match wanted {
            Some(wanted) => RtreeWalk::Matching { rtree: self, wanted, key, path: vec![(self.root, 0)] },
            None => {
                let root = Near { distance: 0.0, child: Child::Node(self.root) };
                RtreeWalk::Nearest { rtree: self, key, ahead: BinaryHeap::from([Reverse(root)]) }
            }
        })
    }

    /// The number of tuples.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of the nodes, about.
    pub(crate) fn memory(&self) -> u64 {
        let entry = size_of::<Entry>() + self.dimension as usize * size_of::<(f64, f64)>();
        let entries: usize = self.nodes.iter().map(Vec::capacity).sum();
        (self.nodes.capacity() * size_of::<Node>() + entries * entry) as u64
    }
}

/// Leaves the half of a node's entries in it and returns the other one. The cut is made across the axis, and at the place, where
/// the margins of both halves are least.
fn split(entries: &mut Node, dimension: usize) -> Node {
    let mut best: Option<(f64, usize, usize)> = None;
    for axis in 0..dimension {
        sort_along(entries, axis);
        for place in LEAST..=entries.len() - LEAST {
            let (first, second) = entries.split_at(place);
            let margins = margin_of(first) + margin_of(second);
            if best.is_none_or(|(least, ..)| margins < least) {
                best = Some((margins, axis, place));
            }
        }
    }
    let (_, axis, place) = best.unwrap_or((0.0, 0, entries.len() / 2));
    sort_along(entries, axis);
    entries.split_off(place)
}

fn sort_along(entries: &mut Node, axis: usize) {
    entries.sort_by(|a, b| {
        let ((a_low, a_high), (b_low, b_high)) = (a.rectangle.0[axis], b.rectangle.0[axis]);
        a_low.total_cmp(&b_low).then_with(|| a_high.total_cmp(&b_high))
    });
}

fn margin_of(entries: &[Entry]) -> f64 {
    let mut rectangles = entries.iter().map(|entry| &entry.rectangle);
    let Some(mut all) = rectangles.next().cloned() else { return 0.0 };
    rectangles.for_each(|one| all.extend(one));
    all.margin()
}
