//! Changes of the queue's state, and of its configuration: `queue.cfg` and a change of `read_only`.

use lycosa_tuple::mp::{Kind, Reader};

use crate::arguments::{Arguments, Number, kind, string};
use crate::error::{Error, Result};
use crate::state::QueueState;
use crate::system::SystemSpaces;
use crate::time::Seconds;
use crate::transaction::Undo;
use crate::turn::{Common, ConfigurationTurn, Turn};
use crate::{Caller, LogLevel, lua_text};

/// Options of one call of `queue.cfg`; absent options stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Request {
    ttr: Option<Seconds>,
    in_replicaset: Option<bool>,
}

impl Request {
    fn parse(value: Option<&[u8]>) -> Result<Self> {
        let mut request = Self::default();
        let Some(value) = value else { return Ok(request) };
        let mut reader = Reader::new(value);
        match kind(value) {
            Kind::Map => {}
            Kind::Array if reader.array() == Ok(0) => return Ok(request),
            Kind::Array => return Err(Error::UnknownOption("1".into())),
            _ => return Err(Error::OptionsType(lua_text::type_name(Some(value)))),
        }
        for _ in 0..reader.map().unwrap_or(0) {
            let (Ok(key), Ok(value)) = (reader.raw(), reader.raw()) else { break };
            match string(key) {
                Some(b"ttr") => {
                    let number = Number::parse(value).filter(|number| !number.is_negative());
                    let ttr = number.ok_or_else(|| invalid("ttr", value))?;
                    request.ttr = Some(ttr.seconds());
                }
                Some(b"in_replicaset") => {
                    let flag = Reader::new(value).bool().map_err(|_| invalid("in_replicaset", value))?;
                    request.in_replicaset = Some(flag);
                }
                _ => return Err(Error::UnknownOption(lua_text::text(Some(key)))),
            }
        }
        Ok(request)
    }
}

fn invalid(option: &'static str, value: &[u8]) -> Error {
    Error::InvalidOptionValue { option, value: lua_text::text(Some(value)) }
}

impl Common {
    /// Whether the queue accounts for changes of the store as it does while it runs.
    pub(crate) fn keeps_in_step(&self) -> bool {
        self.state == QueueState::Running || self.starts
    }

    pub(crate) fn log_temporary(&mut self, names: &[String]) {
        if !names.is_empty() {
            let names = names.join(", ");
            let text = format!("Queue: cannot set `in_replicaset = true`: temporary tube(s) exists: {names}");
            self.log(LogLevel::Warning, text);
        }
    }

    /// In a replica set sessions are in durable spaces, which cannot be written while the instance is read-only.
    pub(crate) fn refuse_if_read_only(&self) -> Result<()> {
        if self.configuration.in_replicaset { self.refuse_writes() } else { Ok(()) }
    }

    fn refuse_writes(&self) -> Result<()> {
        if self.keeps_in_step() { Ok(()) } else { Err(Error::ReadOnly) }
    }

    pub(crate) fn set_state(&mut self, state: QueueState) {
        if self.state == state {
            return;
        }
        if self.state != QueueState::Init {
            self.log(LogLevel::Info, format!("Queue state changed: {state}"));
        }
        self.state = state;
    }
}

impl ConfigurationTurn<'_> {
    /// `queue.cfg([options])`. Before the start the options are only kept.
    pub(crate) fn set(&mut self, caller: &Caller, arguments: Arguments<'_>) -> Result<()> {
        let request = Request::parse(arguments.get(0))?;
        let present = self.turn.common.configuration.in_replicaset;
        let in_replicaset = request.in_replicaset.unwrap_or(present);
        if in_replicaset != present && !self.is_bound_to_group(in_replicaset) {
            self.set_mode(caller, in_replicaset)?;
        }
        if let Some(ttr) = request.ttr {
            self.turn.common.configuration.ttr = Some(ttr);
        }
        Ok(())
    }

    /// Whether a group keeps sessions and owners durable; says so in the log.
    fn is_bound_to_group(&mut self, in_replicaset: bool) -> bool {
        let is_bound = self.turn.common.is_member && !in_replicaset;
        if is_bound {
            let text = "Queue: cannot set `in_replicaset = false` on a member of a group: a new leader needs the sessions";
            self.turn.common.log(LogLevel::Warning, text.to_owned());
        }
        is_bound
    }

    fn set_mode(&mut self, caller: &Caller, in_replicaset: bool) -> Result<()> {
        if self.turn.common.state == QueueState::Init {
            self.turn.common.configuration.in_replicaset = in_replicaset;
            return Ok(());
        }
        if in_replicaset && self.refuses_replicaset() {
            return Ok(());
        }
        self.turn.common.refuse_writes()?;
        self.turn.transact_as(caller.acting(), |turn| {
            let Turn { store, common, .. } = turn;
            let Common { owners, pending, configuration, spaces, .. } = &mut **common;
            let former = Undo::Mode { spaces: *spaces, in_replicaset: configuration.in_replicaset };
            owners.write_back_all(store, pending)?;
            let spaces = SystemSpaces::prepare(store, in_replicaset)?;
            pending.undo.push(former);
            common.use_spaces(spaces, in_replicaset);
            common.rewrite_sessions(store)
        })
    }

    /// Whether temporary tubes stand against replica set mode; says so in the log.
    fn refuses_replicaset(&mut self) -> bool {
        let temporary = self.turn.tubes.iter().filter(|tube| tube.options.temporary);
        let temporary: Vec<_> = temporary.map(|tube| tube.name.clone()).collect();
        self.turn.common.log_temporary(&temporary);
        !temporary.is_empty()
    }
}

impl Turn<'_> {
    pub(crate) fn set_read_only(&mut self, read_only: bool) -> Result<()> {
        match (self.common.state, read_only) {
            (QueueState::Running | QueueState::Startup, true) => {
                self.common.set_state(QueueState::Ending);
                self.long_calls().stop();
                self.common.set_state(QueueState::Waiting);
                Ok(())
            }
            (QueueState::Init, true) => {
                self.catalog().follow();
                Ok(())
            }
            (QueueState::Waiting | QueueState::Startup, false) => self.start().map(drop),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lycosa_tuple::value::Value;

    fn request(value: &Value) -> Result<Request, String> {
        Request::parse(Some(&value.encode())).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_checked_before_they_are_applied() {
        let ttr = |value: Value| Value::map([("ttr", value)]);
        assert_eq!(request(&ttr(Value::from(-1_i64))), Err("Invalid value of ttr: -1".into()));
        assert_eq!(request(&ttr(Value::str("x"))), Err("Invalid value of ttr: x".into()));
        assert_eq!(request(&ttr(Value::Nil)), Err("Invalid value of ttr: cdata<void *>: NULL".into()));
        let mode = Value::map([("in_replicaset", Value::from(1_u64))]);
        assert_eq!(request(&mode), Err("Invalid value of in_replicaset: 1".into()));
        assert_eq!(request(&Value::map([("foo", Value::from(1_u64))])), Err("Unknown option foo".into()));
        assert_eq!(request(&Value::array([Value::str("ttr")])), Err("Unknown option 1".into()));
        let wanted = Request { ttr: Some(Seconds::from_double(1.5)), in_replicaset: None };
        assert_eq!(request(&ttr(Value::from(1.5))), Ok(wanted));
        assert_eq!(
            request(&Value::map([("in_replicaset", Value::from(true))])).map(|r| r.in_replicaset),
            Ok(Some(true))
        );
    }
}
