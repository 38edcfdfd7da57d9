//! A comparison as text: Markdown tables that can be read as they are.

use std::fmt::Write as _;

use crate::comparison::{Comparison, ContenderRuns, Cost, Group, Spread};
use crate::contender::Program;
use crate::measurement::PERCENTILES;
use crate::protocol::Operation;

/// The whole comparison.
pub(crate) fn markdown(comparison: &Comparison) -> String {
    format!("{}{}", circumstances(comparison), results(comparison))
}

/// So much of a core may others use on a machine that counts as idle.
const IDLE: f64 = 0.15;

/// Where and of what it was made.
pub(crate) fn circumstances(comparison: &Comparison) -> String {
    let machine = &comparison.machine;
    let rounds = rounds(comparison);
    let mut text = format!("{}, {} cores, {}; {rounds}\n", machine.processor, machine.cores, machine.kernel);
    for (name, version) in &comparison.versions {
        let _ = writeln!(text, "- {name}: {version}");
    }
    for (program, reason) in &comparison.skipped {
        let _ = writeln!(text, "- skipped: {program}: {reason}");
    }
    if let Some(noise) = comparison.noise() {
        let percent = |share: f64| (100.0 * share).round();
        let _ = writeln!(
            text,
            "- noise: from round to round the rate of one contender differs by {} % (median; {} to {} %), so ratios are formed \
             within a round, between neighbors in time",
            percent(noise.median),
            percent(noise.least),
            percent(noise.greatest)
        );
    }
    if let Some(others) = comparison.other_cores() {
        let _ = writeln!(text, "- others used {} of the cores meanwhile", spread(others, 2));
        if others.median > IDLE {
            text.push_str("- **the machine was not idle**: rates and latencies are indications, the CPU's time is more than that\n");
        }
    }
    text
}

/// From how many rounds the numbers are.
pub(crate) fn rounds(comparison: &Comparison) -> String {
    match comparison.rounds() {
        1 => "one round".to_owned(),
        rounds => format!("median of {rounds} rounds, least and greatest in parentheses"),
    }
}

/// A table for each workload, and one for the comparison with a baseline.
pub(crate) fn results(comparison: &Comparison) -> String {
    let mut text = String::new();
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
            if let Some(warning) = entry.warning() {
                let _ = writeln!(text, "\n{}: {warning}", entry.contender);
            }
        }
    }
    let costs = comparison.costs();
    if !costs.is_empty() {
        let mut rows =
            vec![["workload", "contender", "baseline", "CPU for each", "per second"].map(str::to_owned)];
        rows.extend(costs.into_iter().map(|cost| {
            let [workload, baseline] = [cost.workload.name, cost.baseline].map(str::to_owned);
            let [cpu, rate] = [cost.cost, cost.rate].map(|ratio| format!("× {}", spread(ratio, 2)));
            [workload, cost.contender.to_string(), baseline, cpu, rate]
        }));
        let _ = write!(text, "\n### Compared with the baseline\n\n{}", table(&rows));
    }
    text
}

/// One table with a row for each contender under each workload, for workloads that compare no speed.
pub(crate) fn overview(comparison: &Comparison) -> String {
    let costs = comparison.costs();
    let entries =
        || comparison.groups.iter().flat_map(|group| group.entries.iter().map(move |entry| (group, entry)));
    let has_memory = entries().any(|(_, entry)| entry.memory().is_some());
    let has_takes = entries().any(|(_, entry)| entry.latencies(Operation::Take).is_some());
    let percentiles = PERCENTILES.map(|(name, _)| name).join("/");
    let mut head = ["workload", "contender", "per second", "CPU µs", "kernel"].map(str::to_owned).to_vec();
    head.extend(has_takes.then(|| format!("take µs {percentiles}")));
    head.extend(has_memory.then(|| "bytes per task".to_owned()));
    if !costs.is_empty() {
        head.extend(["baseline", "CPU", "per second"].map(str::to_owned));
    }
    let mut rows = vec![head];
    for (group, entry) in entries() {
        let mut row = vec![
            group.workload.name.to_owned(),
            entry.contender.to_string(),
            optional(entry.rate(), 0),
            optional(entry.processor_time(), 2),
            percent(entry.kernel_share()),
        ];
        row.extend(has_takes.then(|| latencies(entry, Operation::Take)));
        row.extend(has_memory.then(|| optional(entry.memory(), 0)));
        if !costs.is_empty() {
            let is_of_entry =
                |cost: &&Cost| cost.workload.name == group.workload.name && cost.contender == entry.contender;
            row.extend(match costs.iter().find(is_of_entry) {
                Some(cost) => {
                    let [cpu, rate] = [cost.cost, cost.rate].map(|ratio| format!("× {:.2}", ratio.median));
                    [cost.baseline.to_owned(), cpu, rate]
                }
                None => [const { String::new() }; 3],
            });
        }
        rows.push(row);
    }
    table(&rows)
}

/// Where the processor time of Lycosa goes: for each thread the microseconds of a round in user mode and in the kernel.
pub(crate) fn threads(comparison: &Comparison) -> String {
    const NEGLIGIBLE: f64 = 0.005;
    let mut rows = vec![["workload", "contender", "thread", "user µs", "kernel µs"].map(str::to_owned)];
    for group in &comparison.groups {
        for entry in &group.entries {
            let threads =
                entry.threads().into_iter().filter(|_| matches!(entry.contender.program, Program::Lycosa(_)));
            let threads = threads.filter(|(_, user, kernel)| user.median + kernel.median > NEGLIGIBLE);
            rows.extend(threads.map(|(name, user, kernel)| {
                let [user, kernel] = [user, kernel].map(|time| format!("{:.2}", time.median));
                [group.workload.name.to_owned(), entry.contender.to_string(), name, user, kernel]
            }));
        }
    }
    table(&rows)
}

fn percent(share: Option<Spread>) -> String {
    share.map_or("–".to_owned(), |share| format!("{:.0} %", share.median * 100.0))
}

/// Percentiles in microseconds; nothing if the operation did not happen.
fn latencies(entry: &ContenderRuns, operation: Operation) -> String {
    let values = entry.latencies(operation);
    values.map_or(String::new(), |values| values.map(|value| format!("{value:.0}")).join("/"))
}

fn group_table(group: &Group) -> String {
    let with_latencies = Operation::ALL
        .into_iter()
        .filter(|&operation| group.entries.iter().any(|entry| entry.latencies(operation).is_some()))
        .collect::<Vec<_>>();
    let has_memory = group.entries.iter().any(|entry| entry.memory().is_some());
    let has_advantage = group.entries.iter().any(|entry| group.advantage_over(entry).is_some());
    let percentiles = PERCENTILES.map(|(name, _)| name).join("/");
    let mut head = ["contender", "per second", "CPU µs", "kernel"].map(str::to_owned).to_vec();
    head.extend(with_latencies.iter().map(|operation| format!("{} µs {percentiles}", operation.name())));
    head.extend(has_memory.then(|| "bytes per task".to_owned()));
    if has_advantage {
        head.extend(["Lycosa is", "its CPU is"].map(str::to_owned));
    }
    let row = |entry: &ContenderRuns| {
        let mut row = vec![
            entry.contender.to_string(),
            optional(entry.rate(), 0),
            optional(entry.processor_time(), 2),
            percent(entry.kernel_share()),
        ];
        row.extend(with_latencies.iter().map(|&operation| latencies(entry, operation)));
        row.extend(has_memory.then(|| optional(entry.memory(), 0)));
        if has_advantage {
            let shown = |ratio: Option<Spread>| {
                ratio.map_or(String::new(), |ratio| format!("× {}", spread(ratio, 2)))
            };
            row.extend([group.advantage_over(entry), group.cost_of(entry)].map(shown));
        }
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
pub(crate) fn spread(Spread { median, least, greatest }: Spread, digits: usize) -> String {
    if least == greatest {
        return format!("{median:.digits$}");
    }
    format!("{median:.digits$} ({least:.digits$}–{greatest:.digits$})")
}

/// Heads of columns that hold words.
const WORDS: [&str; 4] = ["contender", "thread", "baseline", "workload"];

/// A Markdown table; the first row is its head. The first column and those with words are aligned to the left, the
/// others to the right.
pub(crate) fn table<R: AsRef<[String]>>(rows: &[R]) -> String {
    let Some(head) = rows.first().map(AsRef::as_ref) else { return String::new() };
    let width =
        |column: usize| rows.iter().map(|row| row.as_ref()[column].chars().count()).max().unwrap_or_default();
    let is_left = |column: usize| column == 0 || WORDS.contains(&head[column].as_str());
    let columns = (0..head.len()).map(|column| (width(column), is_left(column))).collect::<Vec<_>>();
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        for (cell, &(width, is_left)) in row.as_ref().iter().zip(&columns) {
            let _ =
                if is_left { write!(text, "| {cell:<width$} ") } else { write!(text, "| {cell:>width$} ") };
        }
        text.push_str("|\n");
        if at == 0 {
            for &(width, is_left) in &columns {
                let line = "-".repeat(width + 1);
                let _ = if is_left { write!(text, "|{line}-") } else { write!(text, "|{line}:") };
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
