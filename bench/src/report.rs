//! A comparison as text: Markdown tables that can be read as they are.

use std::fmt::Write as _;

use crate::comparison::{Comparison, Entry, Group, Spread};
use crate::measurement::PERCENTILES;
use crate::protocol::Operation;

/// The whole comparison.
pub(crate) fn markdown(comparison: &Comparison) -> String {
    let machine = &comparison.machine;
    let mut text = format!(
        "{}, {} cores, {}; median of {} rounds, least and greatest in parentheses\n",
        machine.processor,
        machine.cores,
        machine.kernel,
        comparison.rounds()
    );
    for (name, version) in &comparison.versions {
        let _ = writeln!(text, "- {name}: {version}");
    }
    if let Some(others) = comparison.other_cores() {
        let _ = writeln!(text, "- others used {} of the cores meanwhile", spread(others, 2));
    }
    for group in &comparison.groups {
        let _ = write!(
            text,
            "\n### {}\n\n{}\n\n{}",
            group.workload.name,
            group.workload.about,
            group_table(group)
        );
        for entry in &group.entries {
            if let Some(failure) = entry.failure() {
                let _ = writeln!(text, "\n{} failed: {failure}", entry.contender);
            }
        }
    }
    let costs = comparison.costs();
    if !costs.is_empty() {
        let mut rows =
            vec![["workload", "contender", "the server's processor time for each round"].map(str::to_owned)];
        rows.extend(costs.into_iter().map(|cost| {
            let ratio = format!("× {} of {}", spread(cost.ratio, 2), cost.baseline);
            [cost.workload.name.to_owned(), cost.contender.to_string(), ratio]
        }));
        let _ = write!(text, "\n### Cost compared with the baseline\n\n{}", table(&rows));
    }
    text
}

fn group_table(group: &Group) -> String {
    let with_latencies = Operation::ALL
        .into_iter()
        .filter(|&operation| group.entries.iter().any(|entry| entry.latencies(operation).is_some()))
        .collect::<Vec<_>>();
    let has_memory = group.entries.iter().any(|entry| entry.memory().is_some());
    let has_advantage = group.entries.iter().any(|entry| group.advantage_over(entry).is_some());
    let percentiles = PERCENTILES.map(|(name, _)| name).join("/");
    let mut head = vec!["contender".to_owned(), "per second".to_owned(), "CPU µs".to_owned()];
    head.extend(with_latencies.iter().map(|operation| format!("{} µs {percentiles}", operation.name())));
    head.extend(has_memory.then(|| "bytes per task".to_owned()));
    head.extend(has_advantage.then(|| "Lycosa is".to_owned()));
    let row = |entry: &Entry| {
        let mut row =
            vec![entry.contender.to_string(), optional(entry.rate(), 0), optional(entry.processor_time(), 2)];
        row.extend(with_latencies.iter().map(|&operation| {
            let values = entry.latencies(operation);
            values.map_or(String::new(), |values| values.map(|value| format!("{value:.0}")).join("/"))
        }));
        row.extend(has_memory.then(|| optional(entry.memory(), 0)));
        row.extend(has_advantage.then(|| match group.advantage_over(entry) {
            Some(advantage) => format!("× {}", spread(advantage, 2)),
            None => String::new(),
        }));
        row
    };
    let mut rows = vec![head];
    rows.extend(group.entries.iter().map(row));
    table(&rows)
}

fn optional(value: Option<Spread>, digits: usize) -> String {
    value.map_or("–".to_owned(), |value| spread(value, digits))
}

/// `10.1 (9.8–10.6)`; a single value alone.
fn spread(Spread { median, least, greatest }: Spread, digits: usize) -> String {
    if least == greatest {
        return format!("{median:.digits$}");
    }
    format!("{median:.digits$} ({least:.digits$}–{greatest:.digits$})")
}

/// A Markdown table; the first row is its head. All columns but the first are aligned to the right.
fn table<R: AsRef<[String]>>(rows: &[R]) -> String {
    let columns = rows.first().map_or(0, |row| row.as_ref().len());
    let width =
        |column: usize| rows.iter().map(|row| row.as_ref()[column].chars().count()).max().unwrap_or_default();
    let widths = (0..columns).map(width).collect::<Vec<_>>();
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        for (column, (cell, &width)) in row.as_ref().iter().zip(&widths).enumerate() {
            let _ = if column == 0 {
                write!(text, "| {cell:<width$} ")
            } else {
                write!(text, "| {cell:>width$} ")
            };
        }
        text.push_str("|\n");
        if at == 0 {
            for (column, &width) in widths.iter().enumerate() {
                let line = "-".repeat(width + 1);
                let _ = if column == 0 { write!(text, "|{line}-") } else { write!(text, "|{line}:") };
            }
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned() {
        let rows = [["a", "bcd"], ["long", "1"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), "| a    | bcd |\n|------|----:|\n| long |   1 |\n");
    }

    #[test]
    fn spreads() {
        assert_eq!(spread(Spread { median: 2.0, least: 1.5, greatest: 2.26 }, 1), "2.0 (1.5–2.3)");
        assert_eq!(spread(Spread { median: 2.0, least: 2.0, greatest: 2.0 }, 0), "2");
    }
}
