//! The functions of `box` by name, and what each of them is allowed to.

/// What a function is allowed to.
#[derive(PartialEq, Eq)]
enum Class {
    /// See [`Function::is_harmless`].
    Harmless,
    /// See [`Function::is_of_programs`].
    OfPrograms,
    Other,
}

macro_rules! functions {
    ($( $variant:ident = $name:literal: $class:ident; )*) => {
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

        impl Function {
            const fn class(self) -> Class {
                match self {
                    $( Self::$variant => Class::$class, )*
                }
            }
        }
    };
}

functions! {
    Info = "box.info": Harmless;
    InfoMemory = "box.info.memory": Harmless;
    Stat = "box.stat": Harmless;
    StatNet = "box.stat.net": Harmless;
    SlabInfo = "box.slab.info": Harmless;
    Cfg = "box.cfg": Harmless;
    Snapshot = "box.snapshot": OfPrograms;
    Promote = "box.ctl.promote": Other;
    Demote = "box.ctl.demote": Other;
    SessionUser = "box.session.user": Harmless;
    SessionId = "box.session.id": Harmless;
    UserCreate = "box.schema.user.create": OfPrograms;
    UserDrop = "box.schema.user.drop": OfPrograms;
    UserExists = "box.schema.user.exists": OfPrograms;
    UserPasswd = "box.schema.user.passwd": OfPrograms;
    UserGrant = "box.schema.user.grant": OfPrograms;
    UserRevoke = "box.schema.user.revoke": OfPrograms;
    UserInfo = "box.schema.user.info": OfPrograms;
    RoleCreate = "box.schema.role.create": OfPrograms;
    RoleDrop = "box.schema.role.drop": OfPrograms;
    RoleExists = "box.schema.role.exists": OfPrograms;
    RoleGrant = "box.schema.role.grant": OfPrograms;
    RoleRevoke = "box.schema.role.revoke": OfPrograms;
    RoleInfo = "box.schema.role.info": OfPrograms;
    FuncCreate = "box.schema.func.create": OfPrograms;
    FuncDrop = "box.schema.func.drop": OfPrograms;
    FuncExists = "box.schema.func.exists": OfPrograms;
    Sessions = "queue.sessions": Harmless;
    SessionRelease = "lycosa.session.release": Other;
    SessionDisconnect = "lycosa.session.disconnect": Other;
    TokenAdd = "lycosa.token.add": Other;
    TokenRevoke = "lycosa.token.revoke": Other;
    TokenList = "lycosa.token.list": Other;
    ClusterTransfer = "lycosa.cluster.transfer": Other;
    QueueStatus = "queue.status": Harmless;
}

impl Function {
    /// Describes the server alone, so a user of the queue may call it.
    pub(crate) fn is_harmless(self) -> bool {
        self.class() == Class::Harmless
    }

    /// What the code of a program may call on behalf of every user, as in Tarantool, where these functions are Lua: each
    /// change needs rights to the rows that it makes.
    pub(crate) fn is_of_programs(self) -> bool {
        self.class() == Class::OfPrograms
    }
}
