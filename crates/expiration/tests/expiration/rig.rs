//! A store, tasks, and what drives them.

use lycosa_expiration::{Definition, Error, Expiration, Field, Host, Start};
use lycosa_store::ddl::{self, FieldSpec, IndexSpec, PartSpec, SpaceSpec};
use lycosa_store::{IndexKind, IteratorType, SpaceId, Statement, Store, user};
use lycosa_tuple::value::Value;

pub(crate) const SECOND: u64 = 1_000_000;

/// A host whose clock moves by a fixed number of µs at each look, and whose tubes are lists.
#[derive(Default)]
pub(crate) struct FakeHost {
    pub(crate) step: u64,
    /// Of 100 µs of a slice, how many its thread had the processor.
    pub(crate) processor: u64,
    elapsed: u64,
    pub(crate) archived: Vec<(String, Vec<u8>)>,
    pub(crate) refuses: Option<String>,
}

impl Host for FakeHost {
    fn elapsed(&mut self) -> u64 {
        self.elapsed += self.step;
        self.elapsed
    }

    fn put(&mut self, _: &mut Store, tube: &str, payload: &[u8]) -> Result<(), String> {
        match &self.refuses {
            Some(reason) => Err(reason.clone()),
            None => {
                self.archived.push((tube.to_owned(), payload.to_vec()));
                Ok(())
            }
        }
    }

    fn keep(&mut self, store: &mut Store, space: SpaceId, tuple: &[u8]) -> Result<(), String> {
        let kept = store.execute(&Statement::Replace { space, tuple });
        kept.map(drop).map_err(|error| error.to_string())
    }
}

pub(crate) struct Rig {
    pub(crate) store: Store,
    pub(crate) expiration: Expiration,
    pub(crate) host: FakeHost,
    /// µs since the epoch.
    pub(crate) now: u64,
    /// Largest number of tuples that one transaction has deleted.
    pub(crate) largest: usize,
    pub(crate) slices: u64,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let mut store = Store::new(lycosa_store::Settings::default());
        let uuid = "11111111-1111-1111-1111-111111111111";
        store.bootstrap(uuid, uuid).expect("a new store");
        let now = 1_700_000_000 * SECOND;
        Self {
            store,
            expiration: Expiration::new(),
            host: FakeHost { processor: 100, ..FakeHost::default() },
            now,
            largest: 0,
            slices: 0,
        }
    }

    pub(crate) fn seconds(&self) -> u64 {
        self.now / SECOND
    }

    pub(crate) fn transaction<T>(&mut self, body: impl FnOnce(&mut Store) -> T) -> T {
        self.store.begin(user::ADMIN);
        let value = body(&mut self.store);
        self.store.commit();
        self.store.drain_committed(&mut |_| {});
        value
    }

    /// A space `[id, name, deadline]` with a primary index of this kind, and on request one over the deadline.
    pub(crate) fn space(&mut self, name: &str, kind: IndexKind, deadline: Option<&str>) -> SpaceId {
        self.transaction(|store| {
            let fields = [
                FieldSpec { name: "id", ty: "unsigned", nullable: false },
                FieldSpec { name: "name", ty: "any", nullable: true },
                FieldSpec { name: "deadline", ty: "any", nullable: true },
            ];
            let fields = if deadline.is_some() { &fields[..1] } else { &fields[..] };
            let space = ddl::create_space(store, &SpaceSpec::new(name, fields)).expect("a space");
            let parts = [PartSpec::new(0, "unsigned")];
            let primary = IndexSpec { kind, ..IndexSpec::new("primary", &parts) };
            ddl::create_index(store, space, &primary).expect("a primary index");
            if let Some(ty) = deadline {
                let parts = [PartSpec { nullable: true, ..PartSpec::new(2, ty) }];
                let spec = IndexSpec { unique: false, ..IndexSpec::new("exp", &parts) };
                ddl::create_index(store, space, &spec).expect("an index over the deadline");
            }
            space
        })
    }

    pub(crate) fn replace(&mut self, space: SpaceId, tuple: &Value) {
        let tuple = tuple.encode();
        self.transaction(|store| {
            store.execute(&Statement::Replace { space, tuple: &tuple }).expect("the tuple fits");
        });
    }

    pub(crate) fn put(&mut self, space: SpaceId, id: u64, deadline: impl Into<Value>) {
        self.replace(space, &Value::Array(vec![id.into(), "x".into(), deadline.into()]));
    }

    pub(crate) fn delete(&mut self, space: SpaceId, id: u64) {
        let key = Value::Array(vec![id.into()]).encode();
        self.transaction(|store| {
            store.execute(&Statement::Delete { space, index: 0, key: &key }).expect("a delete");
        });
    }

    pub(crate) fn ids(&self, space: SpaceId) -> Vec<u64> {
        let mut ids: Vec<u64> = self
            .store
            .range(space, 0, IteratorType::All, &[0x90], 0)
            .expect("the space")
            .map(|tuple| {
                Value::decode(tuple).expect("a tuple").as_array().expect("an array")[0]
                    .as_u64()
                    .expect("an id")
            })
            .collect();
        ids.sort_unstable();
        ids
    }

    /// `expiration.start(name, space, options)`.
    pub(crate) fn start(
        &mut self,
        name: &str,
        space: SpaceId,
        options: &[(&str, Value)],
    ) -> Result<(), Error> {
        let options = options.iter().map(|(name, value)| ((*name).into(), value.clone())).collect();
        let arguments = [name.into(), space.into(), Value::Map(options)];
        let start = Start::read(&self.store, &arguments, &|_| Ok(()))?;
        self.start_definition(start.definition)
    }

    pub(crate) fn start_definition(&mut self, definition: Definition) -> Result<(), Error> {
        if definition.transient || definition.dry_run {
            return self.expiration.begin(&self.store, definition, self.now);
        }
        self.store.begin(user::ADMIN);
        match self.expiration.keep(&mut self.store, &definition) {
            Ok(()) => self.store.commit(),
            Err(error) => {
                self.store.rollback();
                return Err(error);
            }
        }
        self.expiration.refresh(&mut self.store, self.now);
        Ok(())
    }

    pub(crate) fn stop(&mut self, name: &str) {
        self.transaction(|store| Expiration::forget(store, name).expect("a row"));
        self.expiration.end(name);
        self.expiration.refresh(&mut self.store, self.now);
    }

    /// The process ends and another one begins on the same data.
    pub(crate) fn restart(&mut self) {
        self.expiration = Expiration::new();
    }

    /// One turn: at most one slice.
    pub(crate) fn turn(&mut self) -> bool {
        self.expiration.refresh(&mut self.store, self.now);
        for name in self.expiration.take_ended() {
            self.transaction(|store| Expiration::forget(store, &name).expect("a row"));
        }
        let Some(id) = self.expiration.due(self.now) else { return false };
        self.slices += 1;
        self.host.elapsed = 0;
        self.store.begin(user::ADMIN);
        let done = self.expiration.slice(id, &mut self.store, self.now, &mut self.host);
        let done = match done {
            Ok(()) => {
                self.largest = self.largest.max(self.store.changes().count());
                self.store.commit();
                self.store.drain_committed(&mut |_| {});
                Ok(())
            }
            Err(error) => {
                self.store.rollback();
                Err(error.to_string())
            }
        };
        let elapsed = self.host.elapsed;
        let processor = elapsed * self.host.processor / 100;
        self.expiration.finish(
            id,
            &mut self.store,
            self.now,
            done,
            lycosa_expiration::Held { elapsed, processor, commit: 0 },
        );
        true
    }

    /// Turns while something is due.
    pub(crate) fn run_until_idle(&mut self) {
        for _ in 0..100_000 {
            if !self.turn() {
                return;
            }
        }
        panic!("the tasks never come to rest");
    }

    /// Time passes, and every deadline in between is kept.
    pub(crate) fn advance(&mut self, microseconds: u64) {
        let until = self.now + microseconds;
        loop {
            self.run_until_idle();
            match self.expiration.next() {
                Some(next) if next <= until => self.now = self.now.max(next),
                _ => break,
            }
        }
        self.now = until;
        self.run_until_idle();
    }

    /// A number of a task's statistics.
    pub(crate) fn number(&self, task: &str, name: &str) -> u64 {
        self.text(task, name).as_u64().unwrap_or_else(|| panic!("{name} of {task} is a number"))
    }

    pub(crate) fn text(&self, task: &str, name: &str) -> Value {
        let statistics = self.expiration.statistics(&self.store, task, self.now).expect("the task");
        statistics.get(name).cloned().unwrap_or(Value::Nil)
    }

    pub(crate) fn state(&self, task: &str) -> String {
        self.text(task, "state").as_str().expect("a state").to_owned()
    }
}

/// A task over the field `deadline`, number 3.
pub(crate) fn field_3() -> (&'static str, Value) {
    ("field", 3_u32.into())
}

pub(crate) fn definition(name: &str, space: SpaceId) -> Definition {
    Definition::new(name, space, Field::Number(3))
}
