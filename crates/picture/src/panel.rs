//! A panel: several series over one span of time, and its text.

use crate::lane::lane;
use crate::round_up;

/// How the series of a panel are scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// All by the largest value, so that their heights compare.
    Shared,
    /// Each by its own largest value, so that small ones are seen beside large ones.
    Own,
}

/// Values over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// One word.
    pub name: String,
    /// At equal distances, the oldest first; `None` is a gap.
    pub points: Vec<Option<f64>>,
}

/// Several series over one span of time.
#[derive(Debug, Clone)]
pub struct Panel {
    /// The name of the numbers, and by which step.
    pub title: String,
    /// Where the curves begin: "1h ago".
    pub begin: String,
    /// Where they end: "now".
    pub end: String,
    /// How values are scaled.
    pub scale: Scale,
    /// The curves.
    pub series: Vec<Series>,
    /// Writes a value.
    pub show: fn(f64) -> String,
}

/// Columns of a name, a value and a top, with a blank behind each.
const MARGIN: usize = 8 + 10 + 10;

impl Panel {
    /// The value at which each series reaches the upper edge.
    #[must_use]
    pub fn tops(&self) -> Vec<f64> {
        let largest = |series: &Series| series.points.iter().flatten().copied().fold(0.0, f64::max);
        match self.scale {
            Scale::Own => self.series.iter().map(|series| round_up(largest(series))).collect(),
            Scale::Shared => {
                let top = round_up(self.series.iter().map(largest).fold(0.0, f64::max));
                vec![top; self.series.len()]
            }
        }
    }

    /// The last known value of a series, or a dash.
    #[must_use]
    pub fn last(&self, series: &Series) -> String {
        series.points.iter().rev().find_map(|point| *point).map_or_else(|| "-".to_owned(), self.show)
    }

    /// The panel as lines of at most `columns`: a title, a lane of `height` lines for each series with its last value and its
    /// top, and the ends of the time. No line ends with a blank.
    #[must_use]
    pub fn text(&self, columns: usize, height: usize) -> Vec<String> {
        let width = columns.saturating_sub(MARGIN).max(1);
        let heading = format!("{:<8}{:>9} {:>9}", "", "last", "top");
        let mut lines = vec![self.title.clone(), heading];
        for (series, top) in self.series.iter().zip(self.tops()) {
            let lane = lane(&series.points, width, height, top);
            let (last, top) = (self.last(series), (self.show)(top));
            for (line, drawn) in lane.into_iter().enumerate() {
                let margin = if line + 1 == height {
                    format!("{:<8}{last:>9} {top:>9} ", series.name)
                } else {
                    " ".repeat(MARGIN)
                };
                lines.push(format!("{margin}{drawn}"));
            }
        }
        let space = width.saturating_sub(self.begin.chars().count() + self.end.chars().count());
        lines.push(format!("{}{}{}{}", " ".repeat(MARGIN), self.begin, " ".repeat(space), self.end));
        lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn panel(scale: Scale) -> Panel {
        let series = |name: &str, points: [f64; 4]| Series {
            name: name.to_owned(),
            points: points.into_iter().map(Some).collect(),
        };
        Panel {
            title: "Tasks by 10 s".to_owned(),
            begin: "1m ago".to_owned(),
            end: "now".to_owned(),
            scale,
            series: vec![series("ready", [0.0, 50.0, 80.0, 100.0]), series("buried", [0.0, 0.0, 1.0, 1.0])],
            show: |value| format!("{value:.0}"),
        }
    }

    #[test]
    fn small_curves_are_seen_beside_large_ones() {
        assert_eq!(panel(Scale::Shared).tops(), [100.0, 100.0]);
        assert_eq!(
            panel(Scale::Own).text(MARGIN + 12, 1),
            [
                "Tasks by 10 s",
                "             last       top",
                "ready         100       100 ···▄▄▄▆▆▆███",
                "buried          1         1 ······██████",
                "                            1m ago   now",
            ]
        );
    }

    #[test]
    fn a_lane_of_two_lines_has_its_words_on_the_lower_one() {
        let text = panel(Scale::Own).text(MARGIN + 4, 2);
        assert_eq!(
            text[2..4],
            [format!("{}  ▅█", " ".repeat(MARGIN)), "ready         100       100 ·███".to_owned()]
        );
        assert!(text.iter().all(|line| line.chars().count() <= MARGIN + 9), "{text:?}");
    }

    #[test]
    fn without_a_point_there_is_a_dash() {
        let mut panel = panel(Scale::Own);
        panel.series[0].points.clear();
        assert!(panel.text(60, 1)[2].starts_with("ready           -         1"));
    }
}
