//! Options that only some types of tubes heed: all further types would ignore them, so the command line refuses them.

use lycosa_client::{TubeType, Value};

use crate::listing;
use crate::outcome::Usage;
use crate::session::Session;
use crate::values::pairs;

/// The types that heed an option, by its name in requests; `None` if all do.
fn heeding(option: &str) -> Option<&'static [&'static str]> {
    match option {
        "ttl" | "ttr" | "pri" | "pri_from" | "pri_to" | "delay" | "older_than" | "younger_than"
        | "retry_delay" | "max_retry_delay" | "touch_interval" => {
            Some(&["fifottl", "limfifottl", "utubettl"])
        }
        "utube" => Some(&["utube", "utubettl"]),
        "capacity" | "timeout" => Some(&["limfifottl"]),
        _ => None,
    }
}

/// Refuses the first of the options that a tube of the type `kind` would ignore. A type of a server's program heeds what it likes.
pub(crate) fn check_type(kind: &str, of: &str, options: &Value) -> Result<(), Usage> {
    if matches!(TubeType::from(kind), TubeType::Custom(_)) {
        return Ok(());
    }
    for name in pairs(Some(options)).iter().filter_map(|(name, _)| name.as_str()) {
        if let Some(types) = heeding(name).filter(|types| !types.contains(&kind)) {
            let (option, names) = (name.replace('_', "-"), types.join(", "));
            return Err(Usage(format!("--{option} means nothing to {of} of type {kind}: only to {names}")));
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
pub(crate) fn check(session: &Session, tube: &str, options: &Value) -> anyhow::Result<()> {
    let is_free = |(name, _): &(Value, Value)| name.as_str().and_then(heeding).is_none();
    if pairs(Some(options)).iter().all(is_free) {
        return Ok(());
    }
    let tubes = listing::tubes(session).unwrap_or_default();
    match tubes.iter().find(|line| line.name == tube && !line.kind.is_empty()) {
        Some(line) => Ok(check_type(&line.kind, &format!("tube \"{tube}\""), options)?),
        None => Ok(()),
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
        let refused = |kind, option| {
            let options = Value::map([("if_not_exists", true), (option, true)]);
            check_type(kind, "a tube", &options).err().map(|error| error.to_string())
        };
        assert_eq!(
            refused("fifo", "ttl").as_deref(),
            Some("--ttl means nothing to a tube of type fifo: only to fifottl, limfifottl, utubettl")
        );
        assert_eq!(
            refused("fifottl", "utube").as_deref(),
            Some("--utube means nothing to a tube of type fifottl: only to utube, utubettl")
        );
        assert_eq!(
            refused("utube", "older_than").as_deref(),
            Some("--older-than means nothing to a tube of type utube: only to fifottl, limfifottl, utubettl")
        );
        assert_eq!(refused("utubettl", "utube"), None);
        assert_eq!(refused("my_own", "utube"), None);
        assert_eq!(refused("fifo", "temporary"), None);
    }
}
