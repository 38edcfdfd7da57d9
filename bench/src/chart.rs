//! A comparison as a drawing: for each workload a bar for each contender, as long as its median is great, with a line
//! from the least to the greatest value.

use std::fmt::Write as _;

use crate::comparison::{Comparison, Entry, Group};
use crate::contender::Program;

/// All lengths in pixels.
const WIDTH: usize = 860;
const LABELS: usize = 220;
const VALUES: usize = 150;
const BAR: usize = 16;
const ROW: usize = 22;
const TITLE: usize = 34;
const MARGIN: usize = 16;

/// Colours for light and dark surroundings.
const STYLE: &str = "\
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 }
.ours { fill: #1a7f64 }
.peer { fill: #8a94a6 }
.spread { stroke: #1f2328; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .ours { fill: #3fb68b }
  .peer { fill: #6e7a8d }
  .spread { stroke: #e6edf3 }
}";

/// The drawing, as SVG.
pub(crate) fn svg(comparison: &Comparison) -> String {
    let mut body = String::new();
    let mut top = MARGIN;
    for group in &comparison.groups {
        top = draw(group, top, &mut body);
    }
    let height = top + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\">\n<title>Rounds per second</title>\n<style>{STYLE}</style>\n{body}</svg>\n"
    )
}

/// Draws a workload from `top` on and gives where it ends.
fn draw(group: &Group, mut top: usize, body: &mut String) -> usize {
    let title = escaped(&format!("{}: {}", group.workload.name, group.workload.about));
    let _ = writeln!(body, "<text class=\"title\" x=\"{MARGIN}\" y=\"{}\">{title}</text>", top + BAR);
    top += TITLE;
    let rates = group.entries.iter().filter_map(Entry::rate);
    let greatest = rates.map(|rate| rate.greatest).fold(f64::MIN_POSITIVE, f64::max);
    let room = (WIDTH - LABELS - VALUES - MARGIN) as f64;
    for entry in &group.entries {
        let label = escaped(&entry.contender.to_string());
        let base = top + BAR - 4;
        let _ = writeln!(body, "<text x=\"{}\" y=\"{base}\" text-anchor=\"end\">{label}</text>", LABELS - 8);
        let (end, value) = match entry.rate() {
            Some(rate) => {
                let at = |value: f64| LABELS as f64 + value / greatest * room;
                let class =
                    if matches!(entry.contender.program, Program::Lycosa(_)) { "ours" } else { "peer" };
                let (middle, length) = (top + BAR / 2, at(rate.median) - LABELS as f64);
                let _ = writeln!(
                    body,
                    "<rect class=\"{class}\" x=\"{LABELS}\" y=\"{top}\" width=\"{length:.1}\" height=\"{BAR}\"/>\n\
                     <line class=\"spread\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>",
                    at(rate.least),
                    at(rate.greatest)
                );
                let advantage = group.advantage_over(entry);
                let advantage = advantage.map(|ratio| format!(" (Lycosa × {:.1})", ratio.median));
                (at(rate.greatest), format!("{}{}", thousands(rate.median), advantage.unwrap_or_default()))
            }
            None => (LABELS as f64, "failed".to_owned()),
        };
        let _ = writeln!(body, "<text x=\"{:.1}\" y=\"{base}\">{}</text>", end + 6.0, escaped(&value));
        top += ROW;
    }
    top + MARGIN
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
    fn text_is_escaped() {
        assert_eq!(escaped("a<b>&c"), "a&lt;b&gt;&amp;c");
    }
}
