//! A value that one path has changed in one place.
//!
//! The usual operation by path is alone in its field. It is kept as the containers along the path and the edit at its end:
//! nothing else of the value is looked at, and containers keep the headers they came with unless their count changes.
//! When a second path parts from the first in some container, the trail ends there ([`Trail::above`]) and may go on
//! inside ([`Trail::below`]).

use std::ops::Range;

use super::container::Opened;
use super::draft::{Edit, Node, Piece};
use super::operation::{Action, Computation, Operation};
use super::steps::Steps;
use super::{FieldFault, UpdateError};
use crate::mp::{self, Kind, Reader};
use crate::path::{Lexer, PathError, Step};

/// The trail of one path through a value.
#[derive(Debug)]
pub(super) struct Trail<'a> {
    /// Where the path begins.
    value: &'a [u8],
    /// The containers on the way, at least one: each begins inside of the one before it. The edit changes the last.
    pub(super) stations: Vec<Station<'a>>,
    /// Bytes of the last container that the edit takes the place of; empty where it inserts.
    place: Range<usize>,
    pub(super) edit: Edit<'a>,
}

/// A container along a path. Its end is searched only on demand: a path into a deep
/// value costs what stands before it, not that again for each of its steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Station<'a> {
    /// Where the path goes from here.
    pub(super) step: Step<'a>,
    /// The trail's value from the container on. (Of a trail that is only tried, any value stands there.)
    container: &'a [u8],
    /// Where the container begins in the trail's value.
    offset: usize,
}

/// Where a step leads to in a container.
enum Found {
    At {
        /// Where the element or the value begins.
        value: usize,
        /// Where the element or the pair begins.
        begin: usize,
    },
    /// Right behind the last element of an array, which ends here.
    End(usize),
    Nowhere,
}

impl<'a> Trail<'a> {
    /// The trail of the first operation by path into `value`; the path is not at its end. What a computation makes of
    /// the old value is `compute`'s answer.
    pub(super) fn start(
        value: &'a [u8],
        mut path: Lexer<'a>,
        operation: &Operation<'a>,
        steps: &Steps,
        compute: impl FnOnce(&Computation<'a>, &'a [u8]) -> Result<Node<'a>, UpdateError>,
    ) -> Result<Self, UpdateError> {
        let target = &operation.target;
        let mut stations = Vec::with_capacity(1);
        let (mut container, mut offset) = (value, 0);
        let mut step = path.step().map_err(|error| target.fault(error))?.ok_or_else(|| target.not_found())?;
        let mut characters = path.position();
        // Tarantool takes a step after it has read the one behind it, but only where something may be put.
        let reads_ahead = matches!(operation.action, Action::Set(_) | Action::Insert(_));
        loop {
            if step == Step::Any {
                // The asterisk is the last character but one.
                return Err(target.fault(PathError { position: characters - 1 }));
            }
            let station = Station { step, container, offset };
            stations.push(station);
            let found = station.find(steps)?;
            if !reads_ahead && !matches!(found, Found::At { .. }) {
                return Err(target.not_found());
            }
            let ahead = path.step().map_err(|error| target.fault(error))?;
            characters = path.position();
            let Some(next) = ahead else {
                let (place, edit) = station.edit(found, operation, steps, compute)?;
                return Ok(Self { value, stations, place, edit });
            };
            let Found::At { value: element, .. } = found else {
                return Err(target.not_found());
            };
            offset += element;
            container = &container[element..];
            step = next;
        }
    }

    /// The trail up to station number `at`, which is not the first, with `node` in the place of that container.
    pub(super) fn above(&self, at: usize, node: Node<'a>, steps: &Steps) -> Result<Self, UpdateError> {
        let (cut, parent) = (self.stations[at], self.stations[at - 1]);
        let start = cut.offset - parent.offset;
        let length = cut.value(steps)?.len();
        steps.take(at as u64)?;
        Ok(Self {
            value: self.value,
            stations: self.stations[..at].to_vec(),
            place: start..start + length,
            edit: Edit::Replace(node),
        })
    }

    /// The trail from the element on that station number `at` leads to; `None` if that is the last.
    pub(super) fn below(&self, at: usize, steps: &Steps) -> Result<Option<Self>, UpdateError> {
        let Some(first) = self.stations.get(at + 1) else {
            return Ok(None);
        };
        let value = first.value(steps)?;
        steps.take((self.stations.len() - at) as u64)?;
        let mut stations = self.stations[at + 1..].to_vec();
        for station in &mut stations {
            station.offset -= first.offset;
            station.container = &value[station.offset..];
        }
        Ok(Some(Self { value, stations, place: self.place.clone(), edit: self.edit }))
    }

    /// Appends the bytes before the changed place to `out`, and puts the rest on the list of parts still to be
    /// written, last first.
    pub(super) fn write(&self, out: &mut Vec<u8>, pending: &mut Vec<Piece<'a>>) {
        let (Some(station), place) = (self.stations.last(), &self.place) else {
            return;
        };
        let container = station.container;
        let Some(opened) = Opened::new(container) else {
            return;
        };
        let header_length = container.len() - opened.content.len();
        let write_header = if opened.is_map { mp::write_map } else { mp::write_array };
        out.extend_from_slice(&self.value[..station.offset]);
        pending.push(Piece::Bytes(&container[place.end..]));
        match self.edit {
            Edit::Replace(node) => {
                out.extend_from_slice(&container[..place.start]);
                pending.push(Piece::Node(node));
            }
            Edit::Insert(bytes) => {
                write_header(out, opened.count.saturating_add(1));
                out.extend_from_slice(&container[header_length..place.start]);
                if let Step::Key(name) = station.step {
                    mp::write_str(out, name);
                }
                out.extend_from_slice(bytes);
            }
            Edit::Delete(count) => {
                write_header(out, opened.count - count);
                out.extend_from_slice(&container[header_length..place.start]);
            }
        }
    }
}

impl<'a> Station<'a> {
    /// The container and no more.
    pub(super) fn value(&self, steps: &Steps) -> Result<&'a [u8], UpdateError> {
        steps.raw(&mut Reader::new(self.container))
    }

    /// Whether the container is a map.
    pub(super) fn is_map(&self) -> bool {
        Reader::new(self.container).kind() == Ok(Kind::Map)
    }

    /// Looks for what the step means.
    fn find(&self, steps: &Steps) -> Result<Found, UpdateError> {
        let mut reader = Reader::new(self.container);
        match (reader.kind()?, self.step) {
            (Kind::Array, Step::Index(index)) => {
                let count = reader.array()?;
                if index > count {
                    return Ok(Found::Nowhere);
                }
                for _ in 0..index {
                    steps.skip(&mut reader)?;
                }
                let begin = reader.position();
                Ok(if index == count { Found::End(begin) } else { Found::At { value: begin, begin } })
            }
            (Kind::Map, Step::Index(_) | Step::Key(_)) => {
                for _ in 0..reader.map()? {
                    let begin = reader.position();
                    let key = steps.raw(&mut reader)?;
                    if self.step.matches_key(key) {
                        return Ok(Found::At { value: reader.position(), begin });
                    }
                    steps.skip(&mut reader)?;
                }
                Ok(Found::Nowhere)
            }
            _ => Ok(Found::Nowhere),
        }
    }

    /// What an operation does where the step has led it.
    fn edit(
        &self,
        found: Found,
        operation: &Operation<'a>,
        steps: &Steps,
        compute: impl FnOnce(&Computation<'a>, &'a [u8]) -> Result<Node<'a>, UpdateError>,
    ) -> Result<(Range<usize>, Edit<'a>), UpdateError> {
        let target = &operation.target;
        let opened = Opened::new(self.container);
        let is_map = opened.is_some_and(|opened| opened.is_map);
        // This number of values, starting with one.
        let extent = |begin: usize, count: u32| {
            let mut reader = Reader::new(&self.container[begin..]);
            (0..count).try_for_each(|_| steps.skip(&mut reader))?;
            Ok::<_, UpdateError>(begin..begin + reader.position())
        };
        Ok(match (&operation.action, found) {
            (Action::Set(bytes), Found::At { value, .. }) => {
                (extent(value, 1)?, Edit::Replace(Node::Assigned(bytes)))
            }
            (Action::Insert(_), Found::At { .. }) if is_map => {
                return Err(target.fault(FieldFault::KeyExists));
            }
            (Action::Insert(bytes), Found::At { begin: at, .. })
            | (Action::Set(bytes) | Action::Insert(bytes), Found::End(at)) => (at..at, Edit::Insert(bytes)),
            (Action::Set(bytes) | Action::Insert(bytes), Found::Nowhere) => match (self.step, opened) {
                (Step::Key(_), Some(Opened { is_map: true, content, .. })) => {
                    let front = self.container.len() - content.len();
                    (front..front, Edit::Insert(bytes))
                }
                (Step::Key(_), _) => return Err(target.fault(FieldFault::NotAMap)),
                (_, Some(Opened { is_map: false, .. })) => return Err(target.not_found()),
                _ => return Err(target.fault(FieldFault::NotAnArray)),
            },
            (Action::Delete(_) | Action::Compute(_), Found::End(_) | Found::Nowhere) => {
                return Err(target.not_found());
            }
            (Action::Delete(count), Found::At { begin, .. }) if is_map => match count {
                1 => (extent(begin, 2)?, Edit::Delete(1)),
                _ => return Err(target.fault(FieldFault::DeleteManyKeys)),
            },
            (Action::Delete(count), Found::At { begin, .. }) => {
                let index = if let Step::Index(index) = self.step { index } else { 0 };
                let deleted = opened.map_or(0, |opened| opened.count - index).min(*count);
                (extent(begin, deleted)?, Edit::Delete(deleted))
            }
            (Action::Compute(computation), Found::At { value, .. }) => {
                let place = extent(value, 1)?;
                let node = compute(computation, &self.container[place.clone()])?;
                (place, Edit::Replace(node))
            }
        })
    }
}
