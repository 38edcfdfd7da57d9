//! Tasks against a plain model: nothing alive is deleted, every expired tuple is deleted within its bound, under any changes of
//! the space meanwhile.

use std::collections::BTreeMap;

use lycosa_expiration::{Unit, deadline};
use lycosa_store::{IndexKind, ddl};
use lycosa_tuple::value::Value;
use proptest::prelude::*;

use crate::rig::{Rig, SECOND, field_3};

/// Something that happens.
#[derive(Debug, Clone)]
enum Step {
    /// A tuple is put or changed; the deadline is this number of ms from now.
    Put(u64, i32),
    /// As a fraction of seconds.
    PutDouble(u64, i32),
    /// A tuple without a deadline.
    PutUndated(u64),
    Delete(u64),
    /// ms pass.
    Pass(u64),
    /// One slice, if one is due.
    Turn,
    Restart,
    Truncate,
    /// The task is stopped and started again.
    Again,
    /// A slice fails for want of an archive, or works again.
    Rename,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = 0_u64..64;
    let step = prop_oneof![
        8 => (id.clone(), -5_000..20_000_i32).prop_map(|(id, ms)| Step::Put(id, ms)),
        4 => (id.clone(), -5_000..20_000_i32).prop_map(|(id, ms)| Step::PutDouble(id, ms)),
        1 => id.clone().prop_map(Step::PutUndated),
        2 => id.prop_map(Step::Delete),
        6 => (0_u64..5_000).prop_map(Step::Pass),
        10 => Just(Step::Turn),
        1 => Just(Step::Restart),
        1 => Just(Step::Truncate),
        1 => Just(Step::Again),
        1 => Just(Step::Rename),
    ];
    prop::collection::vec(step, 1..120)
}

/// The task's options.
#[derive(Debug, Clone, Copy)]
struct Setup {
    is_hash: bool,
    is_ordered: bool,
    scan_size: u32,
    scan_time: u32,
    budget: u32,
    /// µs for each look at the clock.
    step: u64,
}

fn setups() -> impl Strategy<Value = Setup> {
    (any::<bool>(), any::<bool>(), 1_u32..20, 0_u32..10, 1_u32..40, prop_oneof![Just(0_u64), Just(90)])
        .prop_map(|(is_hash, is_ordered, scan_size, scan_time, budget, step)| Setup {
            is_hash,
            is_ordered,
            scan_size,
            scan_time,
            budget,
            step,
        })
}

struct Checked {
    rig: Rig,
    setup: Setup,
    space: u32,
    /// Tuples that were put, by id, each with the time of the put.
    model: BTreeMap<u64, (Value, u64)>,
}

impl Checked {
    fn start(&mut self) {
        let Setup { scan_size, scan_time, budget, .. } = self.setup;
        let options = [
            field_3(),
            ("unit", "ms".into()),
            ("scan_size", scan_size.into()),
            ("scan_time", scan_time.into()),
            ("budget_rows", budget.into()),
            ("budget_us", 200_u32.into()),
        ];
        self.rig.start("t", self.space, &options).expect("a task");
    }

    fn put(&mut self, id: u64, value: Value) {
        self.rig.put(self.space, id, value.clone());
        self.model.insert(id, (value, self.rig.now));
    }

    fn is_due(&self, value: &Value) -> bool {
        deadline(&value.encode(), Unit::Milliseconds).is_some_and(|deadline| deadline <= self.rig.now)
    }

    /// Deleted tuples had expired, and all other tuples exist.
    fn compare(&mut self) -> Result<(), TestCaseError> {
        let there = self.rig.ids(self.space);
        for id in &there {
            prop_assert!(self.model.contains_key(id), "tuple {id} came from nowhere");
        }
        let gone: Vec<_> = self.model.keys().copied().filter(|id| there.binary_search(id).is_err()).collect();
        for id in gone {
            let (value, _) = self.model.remove(&id).expect("a tuple of the model");
            prop_assert!(self.is_due(&value), "tuple {id} was deleted alive: {value:?} at {}", self.rig.now);
        }
        Ok(())
    }

    /// Time passes as it does for a server that is never busy for long: each turn comes when it is due.
    fn pass(&mut self, microseconds: u64) -> Result<(), TestCaseError> {
        let until = self.rig.now + microseconds;
        loop {
            for _ in 0..10_000 {
                if !self.rig.turn() {
                    break;
                }
                self.compare()?;
            }
            match self.rig.expiration.next() {
                Some(next) if next <= until => self.rig.now = self.rig.now.max(next),
                _ => break,
            }
        }
        self.rig.now = until;
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let in_ms = |now: u64, ms: i32| (now / 1000).saturating_add_signed(ms.into());
        match *step {
            Step::Put(id, ms) => self.put(id, in_ms(self.rig.now, ms).into()),
            Step::PutDouble(id, ms) => {
                let moment = in_ms(self.rig.now, ms) as f64 + 0.25;
                self.put(id, Value::Double(moment));
            }
            Step::PutUndated(id) => self.put(id, Value::Nil),
            Step::Delete(id) => {
                self.rig.delete(self.space, id);
                self.model.remove(&id);
            }
            Step::Pass(ms) => self.pass(ms * 1000)?,
            Step::Turn => {
                self.rig.turn();
            }
            Step::Restart => self.rig.restart(),
            Step::Truncate => {
                let space = self.space;
                self.rig.transaction(|store| ddl::truncate(store, space).expect("a space"));
                self.model.clear();
            }
            Step::Again => {
                self.rig.stop("t");
                self.start();
            }
            Step::Rename => {
                let (space, name) = (self.space, format!("s{}", self.rig.now));
                self.rig.transaction(|store| ddl::rename_space(store, space, &name).expect("a new name"));
            }
        }
        self.compare()
    }

    /// When a tuple that is due has to be gone: at once by an ordered index if slices take no time, else within two
    /// passes and what small spaces wait at the most.
    fn bound(&self) -> u64 {
        match self.setup {
            Setup { is_ordered: true, step: 0, .. } => 0,
            // The task leaves most of the time to others.
            Setup { is_ordered: true, .. } => SECOND,
            Setup { scan_time, .. } => (2 * u64::from(scan_time) + 2) * SECOND,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn nothing_alive_is_deleted_and_everything_due_is(setup in setups(), steps in steps()) {
        let mut rig = Rig::new();
        rig.host.step = setup.step;
        let kind = if setup.is_hash { IndexKind::Hash } else { IndexKind::Tree };
        let space = rig.space("s", kind, setup.is_ordered.then_some("number"));
        let mut checked = Checked { rig, setup, space, model: BTreeMap::new() };
        checked.start();
        for step in &steps {
            checked.step(step)?;
        }
        let due: Vec<u64> = checked
            .model
            .iter()
            .filter(|(_, (value, _))| checked.is_due(value))
            .map(|(&id, _)| id)
            .collect();
        checked.pass(checked.bound())?;
        let there = checked.rig.ids(space);
        for id in due {
            prop_assert!(!there.contains(&id), "tuple {id} is overdue, and still there {} µs later", checked.bound());
        }
        prop_assert_eq!(checked.rig.number("t", "errors"), 0);
        prop_assert!(checked.rig.largest <= setup.budget.max(1) as usize, "{} in a transaction", checked.rig.largest);
    }
}
