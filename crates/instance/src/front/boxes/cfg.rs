//! `box.cfg`: without an argument the configuration; with one, the few options that a client may change.

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_replication::lineage::TermMark;
use lycosa_store::access::Access;
use lycosa_tuple::value::Value;

use super::arguments::Arguments;
use crate::shard::admission::Need;
use crate::{Caller, Instance, Result};

impl Instance {
    /// `box.cfg()` answers the configuration, `box.cfg({read_only = …})` changes it and answers nothing.
    pub(super) fn box_cfg(&mut self, caller: &Caller, args: &[u8], out: &mut Vec<u8>) -> Result<u32> {
        let arguments = Arguments::decode("box.cfg([{option = value}])", args)?;
        let Some(options) = arguments.get(0) else {
            self.configuration_value().write(out);
            return Ok(1);
        };
        let Value::Map(options) = options else { return Err(arguments.usage()) };
        self.shard.conditions().check(Need::Read)?;
        self.shard.check_universe(caller.effective, Access::WRITE)?;
        for (name, value) in options {
            let name = name.as_str().unwrap_or_default();
            match (name, value.as_bool()) {
                ("read_only", Some(_)) => {}
                ("read_only", None) => {
                    let message = "Incorrect value for option 'read_only': should be of type boolean";
                    return Err(ErrorObject::client(ErrorCode::Cfg, message));
                }
                _ => {
                    let message = format!(
                        "Can't set option '{name}' dynamically: change the configuration file and send SIGHUP, \
                         or restart the server"
                    );
                    return Err(ErrorObject::client(ErrorCode::ReloadCfg, message));
                }
            }
        }
        if !options.is_empty() {
            self.shard.check_elects_none("the option 'read_only'")?;
        }
        for (_, value) in options {
            if let Some(read_only) = value.as_bool() {
                if !read_only && self.is_fenced() {
                    let TermMark { number, owner } = self.latest_term();
                    let message = format!(
                        "Incorrect value for option 'read_only': instance {owner} was promoted (term {number}), and is the only \
                         master. `lycosa promote` makes this one the master in its place"
                    );
                    return Err(ErrorObject::client(ErrorCode::Cfg, message));
                }
                self.set_read_only(read_only, self.shard.now());
            }
        }
        Ok(0)
    }

    fn configuration_value(&self) -> Value {
        let mut pairs = self.front.configuration.clone();
        match pairs.iter_mut().find(|(name, _)| name == "read_only") {
            Some((_, value)) => *value = self.shard.is_read_only().into(),
            None => pairs.push(("read_only".to_owned(), self.shard.is_read_only().into())),
        }
        Value::map(pairs)
    }
}
