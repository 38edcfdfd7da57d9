//! Lines for Graphite: `queue.stats.KEY VALUE TIME`.
//!
//! Keys are those of the article on `tarantool/queue`, `queue.stats.TUBE.tasks.ready` and `queue.stats.TUBE.calls.put`, and
//! some more. What separates parts of a key in Graphite becomes `_` in a tube's name.

use std::fmt::Write;

use crate::snapshot::Snapshot;

/// Appends the lines of all tubes at a time (seconds since the epoch). `prefix` is `queue.stats` for the article's keys.
pub fn lines(snapshot: &Snapshot, prefix: &str, time: u64, out: &mut String) {
    for tube in &snapshot.tubes {
        let name = sanitized(&tube.name);
        let mut line = |key: &str, value: f64| {
            let _ = writeln!(out, "{prefix}.{name}.{key} {value} {time}");
        };
        let mut total = 0;
        for (state, count) in tube.tasks.named() {
            line(&format!("tasks.{state}"), count as f64);
            total += count;
        }
        line("tasks.total", total as f64);
        line("tasks.done", (tube.operations.ack + tube.operations.delete) as f64);
        for (operation, count) in tube.operations.named() {
            line(&format!("calls.{operation}"), count as f64);
        }
        line("bytes", tube.bytes as f64);
        line("waiting.takes", tube.waiting_takes as f64);
        for (key, age) in [("age.ready", tube.oldest_ready_age), ("age.taken", tube.oldest_taken_age)] {
            age.into_iter().for_each(|age| line(key, age));
        }
    }
}

fn sanitized(name: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "-_".contains(character);
    name.chars().map(|character| if is_plain(character) { character } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Tube;

    #[test]
    fn a_line_has_a_key_a_value_and_a_time() {
        let mut tube = Tube { name: "a.b c".into(), ..Tube::default() };
        tube.tasks.ready = 7;
        tube.operations.put = 9;
        let snapshot = Snapshot { instance: None, tubes: vec![tube] };
        let mut text = String::new();
        lines(&snapshot, "queue.stats", 1_700_000_000, &mut text);
        assert!(text.lines().all(|line| line.split(' ').count() == 3), "{text}");
        assert!(text.starts_with("queue.stats.a_b_c.tasks.ready 7 1700000000\n"), "{text}");
        assert!(text.contains("\nqueue.stats.a_b_c.calls.put 9 1700000000\n"), "{text}");
        assert!(!text.contains("age"), "nothing is known of ages");
    }
}
