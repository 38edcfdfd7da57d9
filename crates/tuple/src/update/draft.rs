//! The tuple while it changes.
//!
//! A draft is a tree of the containers that paths have led into. Its nodes are in vectors and name each other by number:
//! nothing recurses, however deep a path or a tuple is, and dropping a draft is flat. What no operation has touched
//! stays a slice of the old tuple, as long as possible: a run of fields, not field by field.
//!
//! A field enters the tree in three stages, and the difference shows outside (see the oddities of the module above):
//!
//! 1. [`Node::Plain`]: bytes. A path that comes in makes it
//! 2. a [`Trail`]: the one place that one path has changed. A path that parts from it in some container makes that
//!    container
//! 3. an [`Array`] or a [`Map`], where paths are free to come and go.

use super::arithmetic::Scalar;
use super::container::{Array, Map, Opened, Run};
use super::operation::{Action, Computation, Operation, UpdatePath};
use super::steps::Steps;
use super::trail::Trail;
use super::{FieldFault, UpdateError};
use crate::field::FieldType;
use crate::format::Format;
use crate::mp::{self, Reader};
use crate::path::{Lexer, Step};
use crate::tuple::TupleRef;

/// What stands in a place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Node<'a> {
    /// Bytes of the old tuple, or inserted: any operation may come.
    Plain(&'a [u8]),
    /// Bytes set by `=`: only `=` and `#` may come.
    Assigned(&'a [u8]),
    /// A number in the draft's list of scalars: only `=` and `#` may come.
    Computed(usize),
    /// A number in the draft's list of containers.
    Inner(usize),
}

/// A change to a container.
#[derive(Debug, Clone, Copy)]
pub(super) enum Edit<'a> {
    /// The element or value is another one.
    Replace(Node<'a>),
    /// An element is inserted, or a key and its value at the front of a map.
    Insert(&'a [u8]),
    /// Deletes this number of elements, or one key with its value.
    Delete(u32),
}

/// Something that is still to be written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Piece<'a> {
    Bytes(&'a [u8]),
    Node(Node<'a>),
    /// A map's key.
    Name(&'a [u8]),
}

#[derive(Debug)]
enum Container<'a> {
    Array(Array<'a>),
    Map(Map<'a>),
    Trail(Trail<'a>),
}

/// A node's position: its container, and the run of an array or a map in there; a trail has only position 0.
#[derive(Debug, Clone, Copy)]
struct NodePosition {
    container: usize,
    position: usize,
}

/// The tuple's own fields are the first container.
const ROOT: usize = 0;

/// A tuple with changes.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    containers: Vec<Container<'a>>,
    scalars: Vec<Scalar>,
    steps: &'a Steps,
}

impl<'a> Draft<'a> {
    pub(super) fn new(tuple: TupleRef<'a>, steps: &'a Steps) -> Result<Self, UpdateError> {
        let mut reader = Reader::new(tuple.bytes());
        let count = reader.array()?;
        let fields = Array::new(reader.rest(), count);
        Ok(Self { containers: vec![Container::Array(fields)], scalars: Vec::new(), steps })
    }

    /// Applies one operation. One that fails changes nothing that [`Self::finish`] would show, but the headers of
    /// containers that it parted from.
    pub(super) fn apply(&mut self, operation: &mut Operation<'a>) -> Result<(), UpdateError> {
        let count = i64::from(self.array(ROOT).count);
        if operation.target.field < 0 {
            // Behind the last field is −1 for an insertion.
            let field =
                operation.target.field + count + i64::from(matches!(operation.action, Action::Insert(_)));
            if field < 0 {
                return Err(operation.target.not_found());
            }
            operation.target.field = field;
        }
        let target = &operation.target;
        let path = target.path;
        let index = u32::try_from(target.field).map_err(|_| target.not_found())?;
        if path.is_at_end() {
            return self.edit_array(ROOT, index, operation);
        }
        let steps = self.steps;
        let position = self.array(ROOT).isolate(index, steps)?.ok_or_else(|| target.not_found())?;
        self.apply_inside(NodePosition { container: ROOT, position }, path, operation)
    }

    /// Applies an operation whose path goes on below `position`.
    fn apply_inside(
        &mut self,
        mut position: NodePosition,
        mut path: Lexer<'a>,
        operation: &Operation<'a>,
    ) -> Result<(), UpdateError> {
        let target = &operation.target;
        loop {
            let id = match self.node(position) {
                Node::Plain(value) => {
                    let trail = Trail::start(value, path, operation, self.steps, |computation, old| {
                        compute(&mut self.scalars, computation, old, target)
                    })?;
                    let node = Node::Inner(self.adopt(Container::Trail(trail)));
                    self.put(position, node);
                    return Ok(());
                }
                Node::Assigned(_) | Node::Computed(_) => return Err(target.fault(FieldFault::DoubleUpdate)),
                Node::Inner(id) => id,
            };
            let next = if let Container::Trail(_) = self.containers[id] {
                self.apply_to_trail(id, &mut path, operation)?
            } else {
                let step = path.step().map_err(|error| target.fault(error))?;
                self.apply_to_container(id, step, path, operation)?
            };
            match next {
                Some(below) => position = below,
                None => return Ok(()),
            }
        }
    }

    /// Applies an operation to a trail, or returns the position below that it has to go on with.
    fn apply_to_trail(
        &mut self,
        id: usize,
        path: &mut Lexer<'a>,
        operation: &Operation<'a>,
    ) -> Result<Option<NodePosition>, UpdateError> {
        let target = &operation.target;
        let trail = self.trail(id);
        for (at, station) in trail.stations.iter().enumerate() {
            let step = path.step().map_err(|error| target.fault(error))?;
            if step == Some(station.step) {
                continue;
            }
            return match (step, station.is_map(), station.step) {
                (Some(Step::Index(_)), false, _) | (Some(Step::Key(_)), true, Step::Key(_)) => {
                    let parted = self.part(id, at, target)?;
                    self.apply_to_container(parted, step, *path, operation)
                }
                (_, false, _) => Err(target.fault(FieldFault::NotAnIndex)),
                (_, true, _) => Err(target.fault(FieldFault::NotAKey)),
            };
        }
        match trail.edit {
            Edit::Replace(Node::Inner(_)) => Ok(Some(NodePosition { container: id, position: 0 })),
            _ if path.is_at_end() => Err(target.fault(FieldFault::DoubleUpdate)),
            _ => Err(path.step().map_or_else(|error| target.fault(error), |_| target.not_found())),
        }
    }

    /// Ends trail `id` at a station, and returns the number of the array or map that takes that container's place.
    fn part(&mut self, id: usize, at: usize, target: &UpdatePath<'_>) -> Result<usize, UpdateError> {
        let trail = self.trail(id);
        let station = trail.stations[at];
        let (below, own_edit) = (trail.below(at, self.steps)?, trail.edit);
        let edit = match below {
            Some(below) => Edit::Replace(Node::Inner(self.adopt(Container::Trail(below)))),
            None => own_edit,
        };
        let opened = Opened::new(station.value(self.steps)?).ok_or_else(|| target.not_found())?;
        let container = match station.step {
            Step::Key(key) => {
                let mut map = Map::new(opened.content, opened.count);
                map.edit(key, edit, self.steps)?;
                Container::Map(map)
            }
            Step::Index(index) => {
                let mut array = Array::new(opened.content, opened.count);
                array.edit(index, edit, self.steps)?;
                Container::Array(array)
            }
            Step::Any => return Err(target.not_found()),
        };
        if at == 0 {
            self.containers[id] = container;
            return Ok(id);
        }
        let parted = self.adopt(container);
        let above = self.trail(id).above(at, Node::Inner(parted), self.steps)?;
        self.containers[id] = Container::Trail(above);
        Ok(parted)
    }

    /// Applies an operation to an array or a map, or returns the position below that it has to go on with. `step` is where
    /// its path goes from here, `path` the rest.
    fn apply_to_container(
        &mut self,
        id: usize,
        step: Option<Step<'a>>,
        path: Lexer<'a>,
        operation: &Operation<'a>,
    ) -> Result<Option<NodePosition>, UpdateError> {
        let (target, steps) = (&operation.target, self.steps);
        let found = match (&mut self.containers[id], step) {
            (Container::Array(_), Some(Step::Index(index))) if path.is_at_end() => {
                return self.edit_array(id, index, operation).map(|()| None);
            }
            (Container::Map(_), Some(Step::Key(key))) if path.is_at_end() => {
                return self.edit_map(id, key, operation).map(|()| None);
            }
            (Container::Array(array), Some(Step::Index(index))) => array.isolate(index, steps)?,
            (Container::Map(map), Some(Step::Key(key))) => map.isolate(key, steps)?,
            (Container::Array(_), Some(_)) => return Err(target.fault(FieldFault::KeyInArray)),
            (Container::Map(_), Some(_)) => return Err(target.fault(FieldFault::IndexInMap)),
            (_, None) | (Container::Trail(_), _) => None,
        };
        match found {
            Some(position) => Ok(Some(NodePosition { container: id, position })),
            None => Err(target.not_found()),
        }
    }

    fn edit_array(&mut self, id: usize, index: u32, operation: &Operation<'a>) -> Result<(), UpdateError> {
        let (target, steps) = (&operation.target, self.steps);
        let array = self.array(id);
        let edit = match operation.action {
            _ if index > array.count => return Err(target.not_found()),
            Action::Set(value) if index == array.count => Edit::Insert(value),
            Action::Insert(value) => Edit::Insert(value),
            _ if index == array.count => return Err(target.not_found()),
            Action::Set(value) => Edit::Replace(Node::Assigned(value)),
            Action::Delete(count) => Edit::Delete(count),
            Action::Compute(ref computation) => {
                let position = array.isolate(index, steps)?.ok_or_else(|| target.not_found())?;
                return self.compute(NodePosition { container: id, position }, computation, target);
            }
        };
        array.edit(index, edit, steps)
    }

    fn edit_map(&mut self, id: usize, key: &'a [u8], operation: &Operation<'a>) -> Result<(), UpdateError> {
        let (target, steps) = (&operation.target, self.steps);
        let map = self.map(id);
        let edit = match (&operation.action, map.isolate(key, steps)?) {
            (Action::Set(value) | Action::Insert(value), None) => Edit::Insert(value),
            (Action::Insert(_), Some(_)) => return Err(target.fault(FieldFault::KeyExists)),
            (Action::Set(value), Some(_)) => Edit::Replace(Node::Assigned(value)),
            // Tarantool does not mind if the key is not there.
            (Action::Delete(1), _) => Edit::Delete(1),
            (Action::Delete(_), _) => return Err(target.fault(FieldFault::DeleteManyKeys)),
            (Action::Compute(computation), Some(position)) => {
                return self.compute(NodePosition { container: id, position }, computation, target);
            }
            (Action::Compute(_), None) => return Err(target.not_found()),
        };
        map.edit(key, edit, steps)
    }

    fn compute(
        &mut self,
        position: NodePosition,
        computation: &Computation<'a>,
        target: &UpdatePath<'_>,
    ) -> Result<(), UpdateError> {
        let Node::Plain(old) = self.node(position) else {
            return Err(target.fault(FieldFault::DoubleUpdate));
        };
        let node = compute(&mut self.scalars, computation, old, target)?;
        self.put(position, node);
        Ok(())
    }

    fn adopt(&mut self, container: Container<'a>) -> usize {
        self.containers.push(container);
        self.containers.len() - 1
    }

    fn array(&mut self, id: usize) -> &mut Array<'a> {
        match &mut self.containers[id] {
            Container::Array(array) => array,
            other => unreachable!("the caller knows that this is an array: {other:?}"),
        }
    }

    fn map(&mut self, id: usize) -> &mut Map<'a> {
        match &mut self.containers[id] {
            Container::Map(map) => map,
            other => unreachable!("the caller knows that this is a map: {other:?}"),
        }
    }

    fn trail(&self, id: usize) -> &Trail<'a> {
        match &self.containers[id] {
            Container::Trail(trail) => trail,
            other => unreachable!("the caller knows that this is a trail: {other:?}"),
        }
    }

    fn node(&self, position: NodePosition) -> Node<'a> {
        match &self.containers[position.container] {
            Container::Array(array) => array.runs[position.position].node(),
            Container::Map(map) => map.runs[position.position].node,
            Container::Trail(trail) => match trail.edit {
                Edit::Replace(node) => node,
                Edit::Insert(bytes) => Node::Plain(bytes),
                Edit::Delete(_) => Node::Assigned(&[]),
            },
        }
    }

    fn put(&mut self, position: NodePosition, node: Node<'a>) {
        match &mut self.containers[position.container] {
            Container::Array(array) => array.runs[position.position] = Run::Touched(node),
            Container::Map(map) => map.runs[position.position].node = node,
            Container::Trail(trail) => trail.edit = Edit::Replace(node),
        }
    }

    /// The new tuple. `capacity` is a guess at its size.
    pub(super) fn finish(mut self, format: &Format, capacity: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(capacity);
        let fields = std::mem::take(self.array(ROOT));
        mp::write_array(&mut out, fields.count);
        let mut number = 0_u32;
        for run in fields.runs {
            match run {
                Run::Touched(Node::Computed(scalar)) => {
                    let is_double = format.field_type(number) == FieldType::Double;
                    self.scalars[scalar].write(&mut out, is_double);
                }
                _ => self.write(run.node(), &mut out),
            }
            number = number.saturating_add(run.count());
        }
        out
    }

    /// Appends a node and all below it.
    fn write(&self, node: Node<'a>, out: &mut Vec<u8>) {
        let mut pending = Vec::new();
        let mut next = Some(Piece::Node(node));
        while let Some(piece) = next {
            match piece {
                Piece::Bytes(bytes) | Piece::Node(Node::Plain(bytes) | Node::Assigned(bytes)) => {
                    out.extend_from_slice(bytes);
                }
                Piece::Name(name) => mp::write_str(out, name),
                Piece::Node(Node::Computed(scalar)) => self.scalars[scalar].write(out, false),
                Piece::Node(Node::Inner(id)) => match &self.containers[id] {
                    Container::Array(array) => array.write(out, &mut pending),
                    Container::Map(map) => map.write(out, &mut pending),
                    Container::Trail(trail) => trail.write(out, &mut pending),
                },
            }
            next = pending.pop();
        }
    }
}

/// Keeps what a computation makes of an old value.
fn compute<'a>(
    scalars: &mut Vec<Scalar>,
    computation: &Computation<'_>,
    old: &[u8],
    target: &UpdatePath<'_>,
) -> Result<Node<'a>, UpdateError> {
    scalars.push(computation.of(old, target)?);
    Ok(Node::Computed(scalars.len() - 1))
}
