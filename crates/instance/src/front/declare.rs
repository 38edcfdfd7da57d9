//! Users and tubes that the operator declares in the configuration: made at start if they are not there.

use lycosa_iproto::auth;
use lycosa_iproto::error::ErrorObject;
use lycosa_queue::{ALL_TUBES, EVERY_TUBE, grant_tubes};
use lycosa_store::{Store, ddl, user};
use lycosa_tuple::value::Value;

use crate::shard::admission::Growth;
use crate::shard::wire_error::OnWire;
use crate::{Called, Caller, Instance, Result};

/// A user that has to exist.
#[derive(Debug, Clone)]
pub struct DeclaredUser {
    /// Its name.
    pub name: String,
    /// Its password, in clear; `None` leaves the one it has.
    pub password: Option<String>,
    /// Roles that it has to have.
    pub roles: Vec<String>,
    /// Tubes that it may use; `*` stands for all of them.
    pub tubes: Vec<String>,
}

/// A tube that has to exist.
#[derive(Debug, Clone)]
pub struct DeclaredTube {
    /// Its name.
    pub name: String,
    /// `fifo`, `fifottl`, …
    pub kind: String,
    /// Options of `queue.create_tube`: a MessagePack map.
    pub options: Value,
}

/// The changes made by [`Instance::declare`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declared {
    /// Users that were created.
    pub users: Vec<String>,
    /// Tubes that were created.
    pub tubes: Vec<String>,
    /// Tubes that exist with other options than declared, and users whose rights were replaced: sentences for the log.
    pub differences: Vec<String>,
}

impl Instance {
    /// Makes the declared users and tubes where they are missing and sets what the declaration says about users.
    ///
    /// # Errors
    /// The first declaration that cannot be carried out, with the name it is about. What came before it is done.
    pub fn declare(&mut self, users: &[DeclaredUser], tubes: &[DeclaredTube], now: u64) -> Result<Declared> {
        self.input(now, |instance| instance.declare_all(users, tubes))
    }

    fn declare_all(&mut self, users: &[DeclaredUser], tubes: &[DeclaredTube]) -> Result<Declared> {
        self.shard.begin_epoch();
        let mut declared = Declared::default();
        for tube in tubes {
            if self.declare_tube(tube).map_err(|error| about("tube", &tube.name, error))? {
                declared.tubes.push(tube.name.clone());
            } else {
                declared.differences.extend(self.difference(tube));
            }
        }
        for user in users {
            let done = self.declare_user(user).map_err(|error| about("user", &user.name, error))?;
            declared.users.extend(done.0.then(|| user.name.clone()));
            declared.differences.extend(done.1);
        }
        Ok(declared)
    }

    /// Whether the user was created, and what the log is to say.
    fn declare_user(&mut self, declared: &DeclaredUser) -> Result<(bool, Option<String>)> {
        let existing = self.shard.store().user_by_name(&declared.name).map(|user| user.hash2);
        let hash2 = declared.password.as_ref().map(|password| auth::hash2(password.as_bytes()));
        self.shard.data().transaction(Growth::Finishes, user::ADMIN, |store| {
            match (existing, hash2) {
                (None, hash2) => ddl::create_user(store, &declared.name, hash2, false).map(drop),
                (Some(old), Some(new)) if old != Some(new) => ddl::set_password(store, &declared.name, new),
                (Some(_), _) => Ok(()),
            }
            .on_wire()?;
            for role in &declared.roles {
                ddl::grant(store, &declared.name, "execute", "role", role, true).on_wire()?;
            }
            Ok(())
        })?;
        let mut replaced = false;
        for tube in &declared.tubes {
            replaced |= self.grant_tube(&declared.name, tube)?;
        }
        let notice = format!(
            "user '{}' of the configuration had rights to everything, which an older version granted for tubes = [\"*\"]; now \
             it has the role {EVERY_TUBE}: every tube, creating and dropping them, and nothing else",
            declared.name
        );
        Ok((existing.is_none(), replaced.then_some(notice)))
    }

    /// What a tube that exists has other than declared. Options that are not declared may be anything.
    fn difference(&self, declared: &DeclaredTube) -> Option<String> {
        let store = self.shard.store();
        let space = store.space_by_name("_queue")?.id();
        let row = store.get(space, 0, &Value::array([declared.name.as_str()]).encode()).ok()??;
        let row = Value::decode(row).ok()?;
        let stored = row.as_array()?.get(4)?;
        let Value::Map(wanted) = &declared.options else { return None };
        let mut differing = Vec::new();
        for (name, value) in wanted {
            let name = name.as_str().unwrap_or_default();
            let is = stored.get(name).cloned().unwrap_or(Value::Nil);
            let is_unset = is == Value::Nil && matches!(value, Value::Bool(false));
            if name != "if_not_exists" && !is_unset && !is_same(&is, value) {
                differing.push(format!("{name} is {is}, declared {value}"));
            }
        }
        (!differing.is_empty()).then(|| {
            let (name, differing) = (&declared.name, differing.join("; "));
            format!(
                "tube '{name}' of the configuration exists with other options, which stay: {differing}. Options cannot \
                 change: declare what it has, or drop the tube and let it be created anew"
            )
        })
    }

    /// Lets a user use a tube, or with `*` every tube. Whether that took rights away that an older version had granted.
    fn grant_tube(&mut self, user: &str, tube: &str) -> Result<bool> {
        if tube == ALL_TUBES {
            let grant = |store: &mut Store| grant_tubes(store, user).on_wire();
            return self.shard.data().transaction(Growth::Finishes, user::ADMIN, grant);
        }
        if !self.shard.queue().tubes().any(|(name, _)| name == tube) {
            return Err(ErrorObject::lua(format!(
                "tube '{tube}' does not exist: declare it with [[tube]], or take it out of the user's tubes"
            )));
        }
        let options = Value::map([("call", true), ("truncate", true)]);
        let name = format!("queue.tube.{tube}:grant");
        self.call_as_admin(&name, &[user.into(), options]).map(|_| false)
    }

    fn declare_tube(&mut self, declared: &DeclaredTube) -> Result<bool> {
        let mut tubes = self.shard.queue().tubes();
        if let Some((_, kind)) = tubes.find(|(name, _)| *name == declared.name) {
            if kind == declared.kind {
                return Ok(false);
            }
            let DeclaredTube { name, kind: wanted, .. } = declared;
            return Err(ErrorObject::lua(format!(
                "it exists with the type {kind}, and the configuration says {wanted}. Write type = \"{kind}\", or move its \
                 tasks: without the declaration start the server, `lycosa export {name} -o {name}.jsonl`, `lycosa tube drop \
                 {name}`, then declare it again and import them"
            )));
        }
        drop(tubes);
        let DeclaredTube { name, kind, options } = declared;
        self.call_as_admin(
            "queue.create_tube",
            &[name.as_str().into(), kind.as_str().into(), options.clone()],
        )?;
        Ok(true)
    }

    /// Calls a function of the queue as `admin`; its values, back to back.
    fn call_as_admin(&mut self, name: &str, args: &[Value]) -> Result<Vec<u8>> {
        let (bytes, mut out) = (Value::Array(args.to_vec()).encode(), Vec::new());
        match self.call(&Caller::internal(), name.as_bytes(), &bytes, &mut out)? {
            Called::Done { .. } => Ok(out),
            Called::Parked(_) => Err(ErrorObject::lua(format!("{name} would wait"))),
        }
    }
}

/// Whether two numbers, texts or flags are the same; 60 and 60.0 are.
fn is_same(a: &Value, b: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::Double(number) => Some(*number),
        value => value.as_u64().map(|whole| whole as f64),
    };
    a == b || number(a).is_some_and(|a| number(b) == Some(a))
}

fn about(what: &str, name: &str, error: ErrorObject) -> ErrorObject {
    ErrorObject { message: format!("{what} '{name}' of the configuration: {}", error.message), ..error }
}
