//! The targets of Lycosa beside each peer, and whether a result reaches them: the report names a target beside every result
//! and marks each missed one.

use std::fmt::Write as _;

use crate::comparison::Comparison;
use crate::contender::{Contender, Durability, Program};
use crate::protocol::iproto::TubeType;
use crate::report::{spread, table};

/// How many times as fast as the peer Lycosa should be, at the same durability: 8 × 32 and 50 × 1.
fn of(peer: Contender) -> Option<[f64; 2]> {
    match (peer.program, peer.durability) {
        (Program::Tarantool(TubeType::FifoTtl), _) => Some([10.0, 3.0]),
        (Program::Tarantool(TubeType::Fifo), _) => Some([8.0, 3.0]),
        (Program::RedisList, Durability::Fsync) => Some([2.0, 2.0]),
        (Program::RedisList, Durability::Write) => Some([1.0, 1.0]),
        (Program::RedisStream, Durability::Fsync) => Some([3.0, 3.0]),
        (Program::RedisStream, Durability::Write) => Some([2.0, 2.0]),
        (Program::Nats, Durability::Write) => Some([2.5, 2.5]),
        (Program::Beanstalkd, Durability::Fsync) => Some([50.0, 50.0]),
        (Program::Beanstalkd, Durability::None) => Some([10.0, 10.0]),
        _ => None,
    }
}

/// A table of the targets that were measured; empty if none was.
pub(crate) fn results(comparison: &Comparison) -> String {
    let mut rows = vec![["workload", "contender", "Lycosa is", "target", ""].map(str::to_owned)];
    let mut missed = 0;
    for group in &comparison.groups {
        let place = match group.workload.name {
            "8x32" => 0,
            "50x1" => 1,
            _ => continue,
        };
        for entry in &group.entries {
            let (Some(targets), Some(is)) = (of(entry.contender), group.advantage_over(entry)) else {
                continue;
            };
            let target = targets[place];
            let verdict = if is.median >= target { "met" } else { "**missed**" };
            missed += usize::from(is.median < target);
            let [workload, contender] = [group.workload.name.to_owned(), entry.contender.to_string()];
            rows.push([
                workload,
                contender,
                format!("× {}", spread(is, 2)),
                format!("× {target}"),
                verdict.into(),
            ]);
        }
    }
    let count = rows.len() - 1;
    if count == 0 {
        return String::new();
    }
    let mut text = "\n### Targets\n\n".to_owned();
    let _ = writeln!(text, "{} of {count} targets are met, by the median of the rounds.\n", count - missed);
    text + &table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lycosa_itself_has_no_target() {
        let target = |name: &str| of(name.parse().expect("a contender"));
        assert_eq!(target("lycosa:fifottl:fsync"), None);
        assert_eq!(target("tarantool:fifottl:fsync"), Some([10.0, 3.0]));
        assert_eq!(target("redis-list:write"), Some([1.0, 1.0]));
    }
}
