//! A comparison as a drawing. For each workload there is a panel; in it, for each durability, a bar for each contender,
//! the fastest first, as long as its median is great, with a line from the least to the greatest value.
//!
//! It has a ground of its own, light or dark as the reader's system is, so that it can be read on any page.

use std::fmt::Write as _;

use crate::comparison::{Comparison, ContenderRuns, Group, Spread};
use crate::contender::{Durability, Program};

/// All lengths in pixels.
const WIDTH: f64 = 900.0;
const MARGIN: f64 = 24.0;
/// Where bars begin.
const BARS: f64 = 190.0;
/// Where the longest of them ends; what stands behind it needs the rest.
const BARS_END: f64 = 690.0;
const BAR: f64 = 15.0;
const ROW: f64 = 23.0;
/// From a line of small text to the next.
const LINE: f64 = 17.0;

const STYLE: &str = "\
text { font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #24292f }
.ground { fill: #ffffff }
.title { font-size: 16px; font-weight: 600 }
.muted { fill: #656d76; font-size: 12px }
.heading { font-size: 12px; font-weight: 600; fill: #424a53 }
.heading, .value { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round }
.value { font-variant-numeric: tabular-nums }
.our-name { font-weight: 600 }
.ours { fill: #0f8a5f }
.peer { fill: #afb8c1 }
.spread { stroke: #24292f; stroke-width: 1.25; opacity: .75 }
.grid { stroke: #d8dee4; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .ground { fill: #0d1117 }
  .muted { fill: #8b949e }
  .heading { fill: #c9d1d9 }
  .heading, .value { stroke: #0d1117 }
  .ours { fill: #2ea87a }
  .peer { fill: #57606a }
  .spread { stroke: #f0f6fc }
  .grid { stroke: #262c36 }
}";

/// The drawing, as SVG.
pub(crate) fn svg(comparison: &Comparison) -> String {
    let mut body = String::new();
    let mut top = MARGIN;
    for group in &comparison.groups {
        top = draw_group(group, top, &mut body) + MARGIN;
    }
    let machine = &comparison.machine;
    let rounds = match comparison.rounds() {
        1 => "one round".to_owned(),
        rounds => format!("median of {rounds} interleaved rounds, line from the least to the greatest"),
    };
    let place = format!("{}, {} cores, {}", machine.processor, machine.cores, machine.kernel);
    text(&mut body, "muted", MARGIN, top, &place);
    text(&mut body, "muted", MARGIN, top + LINE, &format!("server and load on a core each; {rounds}"));
    let height = top + LINE + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\">\n<title>Rounds for each second, by contender</title>\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n{body}</svg>\n"
    )
}

/// Draws a workload from `top` on and gives where it ends.
fn draw_group(group: &Group, mut top: f64, body: &mut String) -> f64 {
    let rates = group.entries.iter().filter_map(ContenderRuns::rate);
    let greatest = rates.map(|rate| rate.greatest).fold(f64::MIN_POSITIVE, f64::max);
    text(body, "title", MARGIN, top + 14.0, &format!("{}, for each second", group.workload.about));
    top += 30.0;
    // The lines of the grid are as long as the bars over them.
    let mut bars = String::new();
    let first = top;
    for (durability, meaning) in [
        (Durability::Fsync, "fsync: a reply leaves when its change is synced to the disk"),
        (Durability::Write, "write: when the operating system has it"),
        (Durability::None, "none: in memory only"),
    ] {
        let mut entries =
            group.entries.iter().filter(|entry| entry.contender.durability == durability).collect::<Vec<_>>();
        if entries.is_empty() {
            continue;
        }
        entries.sort_by(|a, b| median(b).total_cmp(&median(a)));
        text(&mut bars, "heading", MARGIN, top + 15.0, meaning);
        top += ROW;
        for entry in entries {
            draw_bar(group, entry, greatest, top, &mut bars);
            top += ROW;
        }
        top += 6.0;
    }
    let step = grid_step(greatest);
    for at in (0..).map(|line| f64::from(line) * step).take_while(|&at| at <= greatest) {
        let x = place(at, greatest);
        let _ =
            writeln!(body, "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{first}\" y2=\"{top}\"/>");
        let _ = writeln!(
            body,
            "<text class=\"muted\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            top + 15.0,
            short(at)
        );
    }
    body.push_str(&bars);
    top + 20.0
}

fn draw_bar(group: &Group, entry: &ContenderRuns, greatest: f64, top: f64, body: &mut String) {
    let is_ours = matches!(entry.contender.program, Program::Lycosa(_));
    let (bar, name) = if is_ours { ("ours", "our-name") } else { ("peer", "name") };
    let base = top + BAR - 3.0;
    let label = escaped(&entry.contender.tube_name().replace(':', " "));
    let x = BARS - 10.0;
    let _ =
        writeln!(body, "<text class=\"{name}\" x=\"{x}\" y=\"{base}\" text-anchor=\"end\">{label}</text>");
    let Some(Spread { median, least, greatest: most }) = entry.rate() else {
        return text(body, "muted", BARS + 6.0, base, "failed");
    };
    let length = (place(median, greatest) - BARS).max(1.0);
    let (from, to, middle) = (place(least, greatest), place(most, greatest), top + BAR / 2.0);
    let _ = writeln!(
        body,
        "<rect class=\"{bar}\" x=\"{BARS}\" y=\"{top}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"2\"/>\n\
         <line class=\"spread\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>"
    );
    text(body, "value", to.max(BARS + length) + 8.0, base, &thousands(median));
    if let Some(advantage) = group.advantage_over(entry) {
        let x = WIDTH - MARGIN;
        let _ = writeln!(
            body,
            "<text class=\"muted value\" x=\"{x}\" y=\"{base}\" text-anchor=\"end\">Lycosa is × {:.1}</text>",
            advantage.median
        );
    }
}

fn median(entry: &ContenderRuns) -> f64 {
    entry.rate().map_or(0.0, |rate| rate.median)
}

/// Where a value stands if `greatest` is at the end.
fn place(value: f64, greatest: f64) -> f64 {
    BARS + value / greatest * (BARS_END - BARS)
}

/// A round number of which `greatest` has from two to six.
fn grid_step(greatest: f64) -> f64 {
    let magnitude = 10_f64.powf(greatest.log10().floor());
    let steps = [0.2, 0.5, 1.0].map(|part| part * magnitude);
    steps.into_iter().find(|step| greatest / step <= 6.0).unwrap_or(2.0 * magnitude)
}

fn text(body: &mut String, class: &str, x: f64, y: f64, text: &str) {
    let _ = writeln!(body, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(text));
}

/// A round number: `0`, `200`, `50 k`.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{} M", value / 1e6),
        value if value >= 1e3 => format!("{} k", value / 1e3),
        value => format!("{value}"),
    }
}

/// `1234.5` as `1.23 k`: three digits.
fn thousands(value: f64) -> String {
    let (value, unit) = match value {
        value if value >= 999_500.0 => (value / 1e6, " M"),
        value if value >= 999.5 => (value / 1e3, " k"),
        value => (value, ""),
    };
    let digits = match value {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{unit}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        for (value, text) in [
            (0.0, "0.00"),
            (12.34, "12.3"),
            (999.4, "999"),
            (999.6, "1.00 k"),
            (152_300.0, "152 k"),
            (999_600.0, "1.00 M"),
            (3_700_000.0, "3.70 M"),
        ] {
            assert_eq!(thousands(value), text);
        }
    }

    #[test]
    fn grids_have_round_steps() {
        for (greatest, step) in [(980_000.0, 200_000.0), (145_000.0, 50_000.0), (250.0, 50.0), (600.0, 100.0)]
        {
            assert_eq!(grid_step(greatest), step, "{greatest}");
        }
        assert_eq!([0.0, 200.0, 50_000.0, 1_500_000.0].map(short), ["0", "200", "50 k", "1.5 M"]);
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("a<b>&c"), "a&lt;b&gt;&amp;c");
    }
}
