//! Hooks: what triggers on a space (`before_replace`, `on_replace`) need from the store, as values.
//!
//! The store never calls out of itself. A space carries two flags, [`Hooks`]; who runs programs keeps the functions.
//!
//! *Before hooks* decide about statements. [`Store::submit`] executes a statement like [`Store::execute`], unless the space
//! has before hooks: then it returns a [`Proposal`] (the old tuple, the new one, the kind of statement) and has changed no
//! tuple. [`Store::decide`] completes the statement as the hooks decided; [`Store::withdraw`] gives it up. Between the
//! two calls the same transaction may execute other statements, those of the hooks, also on the same space.
//! [`Store::execute`] asks no hooks: recovery, definitions of the schema and the queue's own operations use it.
//!
//! *After hooks* learn of changes. [`Store::hooked_changes`] yields the changes of the open transaction, or those since a
//! savepoint, in spaces that have such hooks: after each statement for `on_replace`, before the end of the transaction
//! for what runs behind it ([`Change::into_owned`](crate::Change::into_owned) outlives it).
//!
//! Tuples of a space with hooks are not overwritten in place, so that the old one can be shown whole. Other spaces pay one
//! branch for each statement.
//!
//! What a decision means was observed on Tarantool 2.6. One difference: a statement that is given up also takes back
//! the numbers that it had from a sequence.

use lycosa_tuple::field::FieldType;
use lycosa_tuple::key::KeyDef;
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::scalar;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::update;

use crate::access::{Access, Object};
use crate::arena::Handle;
use crate::error::Error;
use crate::execute::check_is_array;
use crate::space::Engine;
use crate::statement::{Statement, StatementKind};
use crate::transaction::{Change, OwnedChange, Savepoint};
use crate::{SpaceId, Store, user};

/// Which hooks a space has. They are not part of the schema and end with the space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hooks {
    /// Statements of [`Store::submit`] are proposed before they change anything.
    pub before: bool,
    /// Changes show in [`Store::hooked_changes`].
    pub after: bool,
}

impl Hooks {
    /// Whether there is one.
    #[must_use]
    pub fn any(self) -> bool {
        self.before || self.after
    }
}

/// What became of a submitted statement.
#[derive(Debug)]
pub enum Submitted<'a> {
    /// It was executed; the tuple that a reply shows, as [`Store::execute`] returns it.
    Executed(Option<&'a [u8]>),
    /// Hooks have to decide.
    Proposed(Proposal),
}

/// A statement about which hooks have to decide.
#[derive(Debug)]
#[must_use = "the statement is executed by Store::decide, or given up by Store::withdraw"]
pub struct Proposal {
    /// The space.
    pub space: SpaceId,
    /// The kind of statement.
    pub kind: StatementKind,
    /// The tuple with the primary key, if there is one.
    pub old: Option<Vec<u8>>,
    /// The tuple that would take its place, with what a sequence gave it; nothing for a DELETE.
    pub new: Option<Vec<u8>>,
    /// The state of the transaction before the statement.
    savepoint: Savepoint,
}

impl Proposal {
    /// The place in the transaction before the statement.
    #[must_use]
    pub fn savepoint(&self) -> Savepoint {
        self.savepoint
    }
}

/// What hooks decided about a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision<'a> {
    /// The statement is executed as it is.
    Proceed,
    /// Nothing changes.
    Skip,
    /// This tuple, a MessagePack array, takes the place of the old one. It has the same primary key, if there was an
    /// old one.
    Put(&'a [u8]),
    /// The old tuple is removed. Without one nothing changes.
    Remove,
}

impl Store {
    /// Says which hooks a space has from now on.
    ///
    /// # Errors
    /// No such space; [`Error::Unsupported`] for views, and for what a session keeps.
    pub fn set_hooks(&mut self, space: SpaceId, hooks: Hooks) -> Result<(), Error> {
        let engine = self.space(space)?.def.engine;
        if !engine.has_tuples() && engine != Engine::Blackhole {
            let object = format!("Space '{}'", self.space(space)?.name());
            return Err(Error::Unsupported { object, feature: "triggers".to_owned() });
        }
        if let Some(space) = self.catalog.get_mut(space) {
            let (had, has) = (space.hooks.any(), hooks.any());
            space.hooks = hooks;
            self.hooked_spaces = self.hooked_spaces + usize::from(has) - usize::from(had);
        }
        Ok(())
    }

    /// The hooks have already seen the open transaction's changes: its commit does not report them.
    pub fn mark_hooks_run(&mut self) {
        self.hooks_run = true;
    }

    /// The next committed change of a space with after hooks that was not marked with [`Store::mark_hooks_run`]: what the
    /// queue, deadlines, expiration, replicas and definitions of the schema do.
    pub fn poll_hooked(&mut self) -> Option<OwnedChange> {
        self.reported.pop_front()
    }

    /// Notes what hooks have to learn at the commit.
    #[cold]
    pub(crate) fn report_hooked(&mut self) {
        if std::mem::take(&mut self.hooks_run) {
            return;
        }
        let changes: Vec<OwnedChange> = self.hooked_changes(None).map(Change::into_owned).collect();
        self.reported.extend(changes);
    }

    /// Which hooks a space has; none if there is no such space.
    #[must_use]
    pub fn hooks(&self, space: SpaceId) -> Hooks {
        self.catalog.get(space).map(|space| space.hooks).unwrap_or_default()
    }

    /// Executes a statement in the open transaction, or proposes it to the before hooks of its space. An UPDATE or DELETE
    /// that hits no tuple is never proposed.
    ///
    /// # Errors
    /// As [`Store::execute`]. A refused statement has changed nothing.
    #[inline]
    pub fn submit(&mut self, statement: &Statement<'_>) -> Result<Submitted<'_>, Error> {
        if !self.hooks(statement.space()).before {
            return self.execute(statement).map(Submitted::Executed);
        }
        if !self.transaction.is_open {
            return Err(Error::NoTransaction);
        }
        let savepoint = self.savepoint();
        match self.propose(statement, savepoint) {
            Ok(Some(proposal)) => Ok(Submitted::Proposed(proposal)),
            Ok(None) => self.execute(statement).map(Submitted::Executed),
            Err(error) => {
                self.undo_since(savepoint);
                Err(error)
            }
        }
    }

    /// Completes a statement that [`Store::submit`] proposed. Returns the tuple that a reply shows, as [`Store::execute`]
    /// does; nothing if nothing changes.
    ///
    /// # Errors
    /// As [`Store::execute`]; [`Error::CantUpdatePrimaryKey`] for a tuple with another primary key than the old one. A
    /// refused statement has changed nothing, and the statements executed since it was submitted are undone with it.
    /// [`Error::NoSuchSavepoint`]: the transaction in which it was submitted has ended, or was rolled back to a place
    /// before; nothing is undone then.
    pub fn decide(
        &mut self,
        statement: &Statement<'_>,
        proposal: Proposal,
        decision: Decision<'_>,
    ) -> Result<Option<&[u8]>, Error> {
        if !self.transaction.is_open {
            return Err(Error::NoTransaction);
        }
        if !self.is_live(proposal.savepoint) {
            return Err(Error::NoSuchSavepoint);
        }
        match self.complete(statement, &proposal, decision) {
            Ok(shown) => Ok(shown.map(|handle| self.arena.get(handle))),
            Err(error) => {
                self.withdraw(proposal);
                Err(error)
            }
        }
    }

    /// Gives a proposed statement up, with all that was executed since it was submitted: a hook has failed. Nothing is left
    /// to undo if the transaction in which it was submitted has ended.
    #[expect(clippy::needless_pass_by_value, reason = "a proposal is withdrawn once")]
    pub fn withdraw(&mut self, proposal: Proposal) {
        if self.is_live(proposal.savepoint) {
            self.rollback_to(proposal.savepoint);
        }
    }

    /// The changes of the open transaction, or those since a savepoint, in spaces with after hooks, in order.
    pub fn hooked_changes(&self, since: Option<Savepoint>) -> impl DoubleEndedIterator<Item = Change<'_>> {
        self.changes_since(since).filter(|change| self.hooks(change.space).after)
    }

    /// Works out what a statement would do. Whether the new tuple fits the format is checked when it is completed, as in a
    /// Tarantool. `None` if it hits no tuple.
    fn propose(
        &mut self,
        statement: &Statement<'_>,
        savepoint: Savepoint,
    ) -> Result<Option<Proposal>, Error> {
        let id = statement.space();
        if self.transaction.user != user::ADMIN {
            self.check_access(self.transaction.user, Object::Space(id), Access::WRITE)?;
        }
        let propose = |old: Option<&[u8]>, new: Option<&[u8]>| {
            let (old, new) = (old.map(<[u8]>::to_vec), new.map(<[u8]>::to_vec));
            Ok(Some(Proposal { space: id, kind: statement.kind(), old, new, savepoint }))
        };
        match *statement {
            Statement::Insert { tuple, .. } | Statement::Replace { tuple, .. } => {
                check_is_array(tuple)?;
                let attached = self.space(id)?.sequence.clone();
                let mut filled = Vec::new();
                let tuple = match &attached {
                    Some(attached) if self.fill_sequence(attached, tuple, &mut filled)? => filled.as_slice(),
                    _ => tuple,
                };
                propose(self.proposed_old(id, tuple)?.map(|old| self.arena.get(old)), Some(tuple))
            }
            Statement::Upsert { tuple, operations, base, .. } => {
                check_is_array(tuple)?;
                let Some(old) = self.proposed_old(id, tuple)? else {
                    return propose(None, Some(tuple));
                };
                let space = self.space(id)?;
                update::check(operations, &space.format, base)?;
                let old = TupleRef::trusted(self.arena.get(old));
                let new = update::apply(
                    operations,
                    old,
                    &space.format,
                    base,
                    update::Mode::Upsert,
                    self.step_limit(),
                )?;
                propose(Some(old.bytes()), Some(&new))
            }
            Statement::Update { index, key, operations, base, .. } => {
                let space = self.space(id)?;
                let Some(old) = space.find(&self.arena, index, key)? else { return Ok(None) };
                let old = TupleRef::trusted(self.arena.get(old));
                let new = update::apply(
                    operations,
                    old,
                    &space.format,
                    base,
                    update::Mode::Update,
                    self.step_limit(),
                )?;
                propose(Some(old.bytes()), Some(&new))
            }
            Statement::Delete { index, key, .. } => {
                let Some(old) = self.space(id)?.find(&self.arena, index, key)? else { return Ok(None) };
                propose(Some(self.arena.get(old)), None)
            }
        }
    }

    /// The tuple with the primary key of `tuple`, whose key is checked and nothing else: the hooks see the tuple before its
    /// format is asked for, so that they may complete it. None in a space without an index, which refuses the statement later.
    fn proposed_old(&self, id: SpaceId, tuple: &[u8]) -> Result<Option<Handle>, Error> {
        let Ok(primary) = self.space(id)?.primary() else { return Ok(None) };
        primary.def.key.check_extracted(tuple)?;
        Ok(primary.index.find(&self.arena, tuple))
    }

    fn complete(
        &mut self,
        statement: &Statement<'_>,
        proposal: &Proposal,
        decision: Decision<'_>,
    ) -> Result<Option<Handle>, Error> {
        let id = proposal.space;
        match (decision, statement) {
            (Decision::Skip, _) => Ok(None),
            (Decision::Proceed, Statement::Insert { .. } | Statement::Replace { .. }) => {
                let tuple = proposal.new.as_deref().unwrap_or_default();
                self.apply_rarely(&match proposal.kind {
                    StatementKind::Insert => Statement::Insert { space: id, tuple },
                    _ => Statement::Replace { space: id, tuple },
                })
            }
            (Decision::Proceed, _) => self.apply_rarely(statement),
            (Decision::Put(tuple), _) => {
                check_is_array(tuple)?;
                if let Some(old) = &proposal.old {
                    let space = self.space(id)?;
                    let primary = space.primary()?;
                    // The keys are compared before the format is checked.
                    if !has_key_of(&primary.def.key, old, tuple) {
                        let (index, space) = (primary.def.name.clone(), space.def.name.clone());
                        return Err(Error::CantUpdatePrimaryKey { index, space });
                    }
                }
                self.apply_rarely(&Statement::Replace { space: id, tuple })
            }
            (Decision::Remove, _) => {
                let Some(old) = &proposal.old else { return Ok(None) };
                let primary = self.space(id)?.primary()?.key();
                let mut key = Vec::new();
                mp::write_array(&mut key, primary.part_count());
                primary.extract(old, &mut key);
                self.delete(id, 0, &key)
            }
        }
    }
}

/// Whether a tuple has the key of another one, as in Tarantool before it checks the format: a value of another type is another
/// value, but passes for `true` in a boolean part and for the old value in a decimal one. It is left to the format then.
fn has_key_of(key: &KeyDef, old: &[u8], new: &[u8]) -> bool {
    const TRUE: &[u8] = &[0xc3];
    let (mut olds, mut news) = (Vec::new(), Vec::new());
    key.extract(old, &mut olds);
    key.extract(new, &mut news);
    let (mut olds, mut news) = (Reader::new(&olds), Reader::new(&news));
    key.parts().iter().all(|part| match (olds.raw(), news.raw()) {
        (Ok(old), Ok(new)) if part.ty.accepts(new) => scalar::compare(old, new, &part.collation).is_eq(),
        (old, _) => part.ty == FieldType::Decimal || part.ty == FieldType::Boolean && old == Ok(TRUE),
    })
}
