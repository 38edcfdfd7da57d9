//! Options that only some types of tubes heed: all further types would ignore them, so the command line refuses them.

use lycosa_client::TubeType;

use crate::listing;
use crate::outcome::Usage;
use crate::session::Session;

/// What an option asks of a tube's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Deadlines and priorities.
    Ttl,
    /// Sub-queues.
    SubQueues,
    /// A capacity.
    Capacity,
}

impl Needs {
    fn types(self) -> [TubeType; 3] {
        use TubeType::{FifoTtl, LimFifoTtl, Utube, UtubeTtl};
        match self {
            Self::Ttl => [FifoTtl, LimFifoTtl, UtubeTtl],
            Self::SubQueues => [Utube, UtubeTtl, UtubeTtl],
            Self::Capacity => [LimFifoTtl, LimFifoTtl, LimFifoTtl],
        }
    }
}

/// An option of the command line: its name, what it needs, and whether it was given.
pub(crate) type Given = (&'static str, Needs, bool);

/// Refuses the first option that a tube of the type `kind` would ignore. A type of a server's program heeds what it likes.
pub(crate) fn check_type(kind: &str, of: &str, options: &[Given]) -> Result<(), Usage> {
    if matches!(TubeType::from(kind), TubeType::Custom(_)) {
        return Ok(());
    }
    for &(option, needs, is_given) in options {
        let types = needs.types();
        if is_given && !types.iter().any(|heeding| heeding.name() == kind) {
            let mut names: Vec<&str> = types.iter().map(TubeType::name).collect();
            names.dedup();
            let names = names.join(", ");
            return Err(Usage(format!("{option} means nothing to {of} of type {kind}: only to {names}")));
        }
    }
    Ok(())
}

/// Refuses a name under which no client could call the tube: its methods are `queue.tube.NAME:METHOD`.
pub(crate) fn check_name(tube: &str) -> Result<(), Usage> {
    if tube.is_empty() {
        return Err(Usage("a tube's name cannot be empty".to_owned()));
    }
    match tube.chars().find(|letter| matches!(letter, '.' | ':') || letter.is_control()) {
        Some(letter) => Err(Usage(format!(
            "a tube cannot be called {tube:?}: with {letter:?} in its name no client can reach it; use letters, digits, \
             \"-\" and \"_\""
        ))),
        None => Ok(()),
    }
}

/// The same for an existing tube. Asks the server for the type if an option was given; a server that does not tell refuses
/// nothing.
pub(crate) fn check(session: &Session, tube: &str, options: &[Given]) -> anyhow::Result<()> {
    if !options.iter().any(|(_, _, is_given)| *is_given) {
        return Ok(());
    }
    let tubes = listing::tubes(session).unwrap_or_default();
    match tubes.iter().find(|line| line.name == tube) {
        Some(line) if !line.kind.is_empty() => {
            Ok(check_type(&line.kind, &format!("tube \"{tube}\""), options)?)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tube_has_a_name_that_clients_can_call() {
        for name in ["mail", "my mail", "ünï", "a-b_c/1"] {
            assert_eq!(check_name(name), Ok(()));
        }
        for name in ["", "a.b", "a:b", "a\nb"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn an_ignored_option_is_refused_with_the_types_that_heed_it() {
        let refused = |kind, option, needs| {
            check_type(kind, "a tube", &[(option, needs, true)]).err().map(|error| error.to_string())
        };
        assert_eq!(
            refused("fifo", "--ttl", Needs::Ttl).as_deref(),
            Some("--ttl means nothing to a tube of type fifo: only to fifottl, limfifottl, utubettl")
        );
        assert_eq!(
            refused("fifottl", "--utube", Needs::SubQueues).as_deref(),
            Some("--utube means nothing to a tube of type fifottl: only to utube, utubettl")
        );
        assert_eq!(refused("utubettl", "--utube", Needs::SubQueues), None);
        assert_eq!(refused("my_own", "--utube", Needs::SubQueues), None);
        assert_eq!(check_type("fifo", "a tube", &[("--ttl", Needs::Ttl, false)]), Ok(()));
    }
}
