//! The functions of `box` that a client without Lua can CALL.
//!
//! Pools and health checks ask `box.info`, `box.stat` and `box.cfg`; administrators and the command line make users with
//! `box.schema.user.create` and grant with `box.schema.user.grant`. Names, arguments and answers are those of
//! Tarantool. Absent: everything that returns an object with methods (`box.schema.space.create` and spaces
//! themselves): spaces are made by INSERT into `_space` and `_index`.
//!
//! `queue.sessions` and `queue.status` stand here too: only the instance knows the addresses of connections, and its own numbers.
//! So do the functions of tokens, `lycosa.token.add` and others, of sessions, `lycosa.session.release` and
//! `lycosa.session.disconnect`, and of groups, `lycosa.cluster.transfer`.

mod arguments;
mod cfg;
pub(crate) mod function;
mod hand_over;
mod info;
mod issues;
mod schema;
mod sessions;
mod stat;
mod status;
mod tokens;

use lycosa_store::{Access, UserId};

pub(crate) use function::{Function, resolve};

use crate::{Caller, Instance, Result};

impl Instance {
    /// Calls a function; appends its values to `out` and returns how many they are.
    pub(crate) fn execute_box(
        &mut self,
        caller: &Caller,
        function: Function,
        args: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<u32> {
        let value = match function {
            Function::Info => self.box_info(),
            Function::InfoMemory => info::memory_value(&self.status()),
            Function::Stat => self.box_stat(args)?,
            Function::StatNet => self.box_stat_net(),
            Function::SlabInfo => self.box_slab_info(),
            Function::Cfg => return self.box_cfg(caller, args, out),
            Function::Promote | Function::Demote => {
                self.shard.check_universe(caller.effective, Access::WRITE)?;
                let now = self.shard.now();
                let is_promotion = function == Function::Promote;
                let done = if is_promotion { self.shard.promote(now) } else { self.shard.demote(now) };
                return done.map(|()| 0);
            }
            Function::SessionUser => self.user_name(caller.user).into(),
            Function::SessionId => caller.session.into(),
            Function::Sessions => self.queue_sessions(caller)?,
            Function::SessionRelease => self.release_session(caller, args)?,
            Function::SessionDisconnect => self.dismiss_connection(caller, args)?,
            Function::TokenAdd => self.add_token(caller, args)?,
            Function::TokenRevoke => self.revoke_token(caller, args)?,
            Function::TokenList => self.list_tokens(caller)?,
            Function::ClusterTransfer => self.transfer(caller, args)?,
            Function::QueueStatus => return self.queue_status(caller, args, out),
            _ => return self.box_schema(caller, function, args, out),
        };
        value.write(out);
        Ok(1)
    }

    /// The name of a user.
    pub(crate) fn user_name(&self, id: UserId) -> String {
        self.shard.store().user(id).map_or_else(|| id.to_string(), |user| user.name.clone())
    }
}
