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
mod hand_over;
mod info;
mod issues;
mod schema;
mod sessions;
mod stat;
mod status;
mod tokens;

use lycosa_iproto::error::ErrorObject;
use lycosa_store::{Access, UserId};

use crate::{Caller, Instance};

macro_rules! functions {
    ($( $variant:ident = $name:literal; )*) => {
        /// A function of `box`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Function {
            $( #[doc = $name] $variant, )*
        }

        /// The function with that name.
        pub(crate) fn resolve(name: &[u8]) -> Option<Function> {
            let is_own = [&b"box."[..], b"lycosa."].iter().any(|own| name.starts_with(own));
            if !is_own && name != b"queue.sessions" && name != b"queue.status" {
                return None;
            }
            $( if name == $name.as_bytes() { return Some(Function::$variant); } )*
            None
        }
    };
}

functions! {
    Info = "box.info";
    InfoMemory = "box.info.memory";
    Stat = "box.stat";
    StatNet = "box.stat.net";
    SlabInfo = "box.slab.info";
    Cfg = "box.cfg";
    Snapshot = "box.snapshot";
    Promote = "box.ctl.promote";
    Demote = "box.ctl.demote";
    SessionUser = "box.session.user";
    SessionId = "box.session.id";
    UserCreate = "box.schema.user.create";
    UserDrop = "box.schema.user.drop";
    UserExists = "box.schema.user.exists";
    UserPasswd = "box.schema.user.passwd";
    UserGrant = "box.schema.user.grant";
    UserRevoke = "box.schema.user.revoke";
    UserInfo = "box.schema.user.info";
    RoleCreate = "box.schema.role.create";
    RoleDrop = "box.schema.role.drop";
    RoleExists = "box.schema.role.exists";
    RoleGrant = "box.schema.role.grant";
    RoleRevoke = "box.schema.role.revoke";
    RoleInfo = "box.schema.role.info";
    FuncCreate = "box.schema.func.create";
    FuncDrop = "box.schema.func.drop";
    FuncExists = "box.schema.func.exists";
    Sessions = "queue.sessions";
    SessionRelease = "lycosa.session.release";
    SessionDisconnect = "lycosa.session.disconnect";
    TokenAdd = "lycosa.token.add";
    TokenRevoke = "lycosa.token.revoke";
    TokenList = "lycosa.token.list";
    ClusterTransfer = "lycosa.cluster.transfer";
    QueueStatus = "queue.status";
}

impl Function {
    /// Describes the server alone, so a user of the queue may call it.
    pub(crate) fn is_harmless(self) -> bool {
        matches!(
            self,
            Self::Info
                | Self::InfoMemory
                | Self::Stat
                | Self::StatNet
                | Self::SlabInfo
                | Self::Cfg
                | Self::SessionUser
                | Self::SessionId
                | Self::Sessions
                | Self::QueueStatus
        )
    }

    /// What the code of a program may call on behalf of every user, as in Tarantool, where these functions are Lua: each
    /// change needs rights to the rows that it makes.
    pub(crate) fn is_of_programs(self) -> bool {
        matches!(
            self,
            Self::Snapshot
                | Self::UserCreate
                | Self::UserDrop
                | Self::UserExists
                | Self::UserPasswd
                | Self::UserGrant
                | Self::UserRevoke
                | Self::UserInfo
                | Self::RoleCreate
                | Self::RoleDrop
                | Self::RoleExists
                | Self::RoleGrant
                | Self::RoleRevoke
                | Self::RoleInfo
                | Self::FuncCreate
                | Self::FuncDrop
                | Self::FuncExists
        )
    }

    /// Reads or changes what the journal keeps, in contrast to what the process knows about itself.
    pub(crate) fn touches_data(self) -> bool {
        !self.is_harmless()
    }
}

impl Instance {
    /// Calls a function; appends its values to `out` and returns how many they are.
    pub(crate) fn execute_box(
        &mut self,
        caller: &Caller,
        function: Function,
        args: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<u32, ErrorObject> {
        let value = match function {
            Function::Info => self.box_info(),
            Function::InfoMemory => self.box_info_memory(),
            Function::Stat => self.box_stat(args)?,
            Function::StatNet => self.box_stat_net(),
            Function::SlabInfo => self.box_slab_info(),
            Function::Cfg => return self.box_cfg(caller, args, out),
            Function::Promote | Function::Demote => {
                self.shard.check_universe(caller.effective, Access::WRITE)?;
                let now = self.shard.now();
                match function {
                    Function::Promote => self.shard.promote(now)?,
                    _ => self.shard.demote(now)?,
                }
                return Ok(0);
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
