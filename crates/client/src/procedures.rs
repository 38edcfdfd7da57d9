//! The names under which a tube's methods are called.

use std::sync::Arc;

macro_rules! methods {
    ($($variant:ident $name:literal,)*) => {
        /// A method of a tube.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Method {
            $($variant,)*
        }

        const METHODS: &[(Method, &str)] = &[$((Method::$variant, $name),)*];
    };
}

methods! {
    Put "put",
    Take "take",
    Ack "ack",
    Release "release",
    Touch "touch",
    Bury "bury",
    Kick "kick",
    Peek "peek",
    Delete "delete",
    Truncate "truncate",
    Drop "drop",
    ReleaseAll "release_all",
    PutMany "put_many",
    TakeMany "take_many",
    AckMany "ack_many",
    ReleaseMany "release_many",
    BuryMany "bury_many",
    KickMany "kick_many",
    DeleteMany "delete_many",
}

/// The full names of a tube's methods, made once per tube.
#[derive(Debug)]
pub(crate) struct Procedures {
    names: Box<[Arc<str>]>,
}

impl Procedures {
    pub(crate) fn of(tube: &str) -> Self {
        Self { names: METHODS.iter().map(|(_, method)| procedure(tube, method).into()).collect() }
    }

    pub(crate) fn name(&self, method: Method) -> &Arc<str> {
        &self.names[method as usize]
    }
}

/// The full name of any method of a tube.
pub(crate) fn procedure(tube: &str, method: &str) -> String {
    format!("queue.tube.{tube}:{method}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_its_own_name() {
        let procedures = Procedures::of("my tube");
        for &(method, name) in METHODS {
            assert_eq!(**procedures.name(method), *format!("queue.tube.my tube:{name}"));
        }
    }
}
