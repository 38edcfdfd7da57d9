//! The functions of `box` by name, and what each of them is allowed to.

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
