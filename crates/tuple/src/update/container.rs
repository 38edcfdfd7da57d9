//! Arrays and maps that several paths lead into.
//!
//! Both keep untouched elements, any number of them, as slices of the old tuple, and cut a slice only
//! where an operation needs a place of its own.

use super::UpdateError;
use super::draft::{Edit, Node, Piece};
use super::steps::Steps;
use crate::mp::{self, Kind, Reader};
use crate::path::Step;

/// An array or a map as it lies in bytes, its header read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opened<'a> {
    pub(super) is_map: bool,
    /// Elements or pairs.
    pub(super) count: u32,
    /// What follows the header, back to back.
    pub(super) content: &'a [u8],
}

impl<'a> Opened<'a> {
    /// `None` if the value is no container.
    pub(super) fn new(value: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(value);
        let (is_map, count) = match reader.kind().ok()? {
            Kind::Array => (false, reader.array().ok()?),
            Kind::Map => (true, reader.map().ok()?),
            _ => return None,
        };
        Some(Self { is_map, count, content: reader.rest() })
    }
}

/// The most elements that are stepped over in one run.
const STRIDE: u32 = 1024;

/// An array in runs.
#[derive(Debug, Default)]
pub(super) struct Array<'a> {
    pub(super) count: u32,
    pub(super) runs: Vec<Run<'a>>,
}

/// A piece of an array.
#[derive(Debug, Clone, Copy)]
pub(super) enum Run<'a> {
    /// A number of elements, back to back.
    Untouched { bytes: &'a [u8], count: u32 },
    /// One element.
    Touched(Node<'a>),
}

impl<'a> Run<'a> {
    /// The run as one node.
    pub(super) const fn node(self) -> Node<'a> {
        match self {
            Self::Untouched { bytes, .. } => Node::Plain(bytes),
            Self::Touched(node) => node,
        }
    }

    /// Number of elements.
    pub(super) const fn count(self) -> u32 {
        match self {
            Self::Untouched { count, .. } => count,
            Self::Touched(_) => 1,
        }
    }
}

impl<'a> Array<'a> {
    /// An array of `count` elements, back to back.
    pub(super) fn new(bytes: &'a [u8], count: u32) -> Self {
        Self { count, runs: vec![Run::Untouched { bytes, count }] }
    }

    /// Makes a run begin with element `index`, which is at most the count, and returns that run's number: that of the
    /// end, if there is no such element.
    fn cut(&mut self, index: u32, steps: &Steps) -> Result<usize, UpdateError> {
        let (mut at, mut left) = (0, index);
        while left > 0 && at < self.runs.len() {
            let count = self.runs[at].count();
            if count > left {
                // The elements stepped over now are in short runs the next time: many operations do not cost many long walks.
                let step = left.min(STRIDE);
                self.split(at, step, steps)?;
                left -= step;
            } else {
                left -= count;
            }
            at += 1;
        }
        steps.runs(at)?;
        Ok(at)
    }

    /// Splits a run of more than `count` elements behind the first `count`.
    fn split(&mut self, at: usize, count: u32, steps: &Steps) -> Result<(), UpdateError> {
        if let Run::Untouched { bytes, count: all } = self.runs[at] {
            let mut reader = Reader::new(bytes);
            for _ in 0..count {
                steps.skip(&mut reader)?;
            }
            steps.runs(self.runs.len() - at)?;
            let (before, after) = bytes.split_at(reader.position());
            self.runs[at] = Run::Untouched { bytes: before, count };
            self.runs.insert(at + 1, Run::Untouched { bytes: after, count: all - count });
        }
        Ok(())
    }

    /// Gives element `index` a run of its own, and returns that; `None` if there is no such element.
    pub(super) fn isolate(&mut self, index: u32, steps: &Steps) -> Result<Option<usize>, UpdateError> {
        if index >= self.count {
            return Ok(None);
        }
        let at = self.cut(index, steps)?;
        self.cut(index + 1, steps)?;
        if let Run::Untouched { bytes, .. } = self.runs[at] {
            self.runs[at] = Run::Touched(Node::Plain(bytes));
        }
        Ok(Some(at))
    }

    /// Changes the array at `index`, which is at most the count, and below it unless something is inserted.
    pub(super) fn edit(&mut self, index: u32, edit: Edit<'a>, steps: &Steps) -> Result<(), UpdateError> {
        match edit {
            Edit::Replace(node) => {
                if let Some(at) = self.isolate(index, steps)? {
                    self.runs[at] = Run::Touched(node);
                }
            }
            Edit::Insert(bytes) => {
                let at = self.cut(index, steps)?;
                steps.runs(self.runs.len() - at)?;
                self.runs.insert(at, Run::Touched(Node::Plain(bytes)));
                self.count = self.count.saturating_add(1);
            }
            Edit::Delete(count) => {
                let count = count.min(self.count - index);
                let begin = self.cut(index, steps)?;
                let end = self.cut(index + count, steps)?;
                steps.runs(self.runs.len() - begin)?;
                self.runs.drain(begin..end);
                self.count -= count;
            }
        }
        Ok(())
    }

    /// Appends the header to `out`, and the elements to the list of unwritten parts, last first.
    pub(super) fn write(&self, out: &mut Vec<u8>, pending: &mut Vec<Piece<'a>>) {
        mp::write_array(out, self.count);
        pending.extend(self.runs.iter().rev().map(|run| Piece::Node(run.node())));
    }
}

/// A map in runs.
///
/// The order of the pairs is Tarantool's. Runs come from front to back, first their own pairs, then their tails. A new
/// key makes a run at the front; so does an old key that is touched for the first time, and the pairs that followed it
/// become its tail. Only the first pair in the tail of a run without a key becomes that run's own.
#[derive(Debug, Default)]
pub(super) struct Map<'a> {
    count: u32,
    /// The front is the end of this list, so that runs keep their numbers.
    pub(super) runs: Vec<MapRun<'a>>,
}

/// A pair, and the untouched pairs that stood behind it.
#[derive(Debug)]
pub(super) struct MapRun<'a> {
    /// The string, which is written anew. `None`: the pair was deleted, or there has never been one.
    key: Option<&'a [u8]>,
    pub(super) node: Node<'a>,
    tail: &'a [u8],
    tail_count: u32,
}

impl<'a> Map<'a> {
    /// A map of `count` pairs, back to back.
    pub(super) fn new(bytes: &'a [u8], count: u32) -> Self {
        let all = MapRun { key: None, node: Node::Plain(&[]), tail: bytes, tail_count: count };
        Self { count, runs: vec![all] }
    }

    /// Gives a key's pair a run of its own, and returns that; `None` if there is no such key. Of equal keys a run's
    /// own goes first, then the one nearest to the front.
    pub(super) fn isolate(&mut self, name: &'a [u8], steps: &Steps) -> Result<Option<usize>, UpdateError> {
        if let Some(at) = self.runs.iter().rposition(|run| run.key == Some(name)) {
            return Ok(Some(at));
        }
        steps.runs(self.runs.len())?;
        for at in (0..self.runs.len()).rev() {
            let MapRun { tail, tail_count, .. } = self.runs[at];
            let mut reader = Reader::new(tail);
            for number in 0..tail_count {
                let begin = reader.position();
                let key = steps.raw(&mut reader)?;
                let value = steps.raw(&mut reader)?;
                if !Step::Key(name).matches_key(key) {
                    continue;
                }
                let found = MapRun {
                    key: Some(name),
                    node: Node::Plain(value),
                    tail: reader.rest(),
                    tail_count: tail_count - number - 1,
                };
                if number == 0 && self.runs[at].key.is_none() {
                    self.runs[at] = found;
                    return Ok(Some(at));
                }
                self.runs[at].tail = &tail[..begin];
                self.runs[at].tail_count = number;
                self.runs.push(found);
                return Ok(Some(self.runs.len() - 1));
            }
        }
        Ok(None)
    }

    /// Changes the map at a key. Nothing happens if that is not there, unless something is inserted.
    pub(super) fn edit(&mut self, name: &'a [u8], edit: Edit<'a>, steps: &Steps) -> Result<(), UpdateError> {
        match (edit, self.isolate(name, steps)?) {
            (Edit::Insert(bytes), _) => {
                let node = Node::Plain(bytes);
                self.runs.push(MapRun { key: Some(name), node, tail: &[], tail_count: 0 });
                self.count = self.count.saturating_add(1);
            }
            (Edit::Replace(node), Some(at)) => self.runs[at].node = node,
            (Edit::Delete(_), Some(at)) => {
                self.runs[at].key = None;
                self.count -= 1;
            }
            (Edit::Replace(_) | Edit::Delete(_), None) => {}
        }
        Ok(())
    }

    /// Appends the header to `out`, and the pairs to the list of unwritten parts, last first.
    pub(super) fn write(&self, out: &mut Vec<u8>, pending: &mut Vec<Piece<'a>>) {
        mp::write_map(out, self.count);
        pending.extend(self.runs.iter().map(|run| Piece::Bytes(run.tail)));
        for run in &self.runs {
            if let Some(name) = run.key {
                pending.push(Piece::Node(run.node));
                pending.push(Piece::Name(name));
            }
        }
    }
}
