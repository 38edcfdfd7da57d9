//! The server's history as curves, for `lycosa stats --history` and `lycosa top`; what `lycosa stats --history` prints.

use std::fs;
use std::io::IsTerminal;

use anyhow::{Context, bail};
use lycosa_client::Value;
use lycosa_metrics::{History, Point, Snapshot, Tasks};
use lycosa_picture::{Panel, Scale, Series, svg};
use serde_json::json;

use crate::arguments::{HistorySpan, StatsArguments};
use crate::listing::one_line;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::values::{count, now, rate};
use crate::{output, terminal};

/// Columns of a curve that does not go to a terminal.
const PIPED_COLUMNS: usize = 100;
/// Lines of a curve.
const HEIGHT: usize = 3;
/// Operations of a curve, in the order of a [`Point`] behind the states.
const FLOW: [&str; 3] = ["put", "take", "ack"];
/// States of a curve, in the order of a [`Point`].
pub(crate) const STATES: [&str; 4] = ["ready", "taken", "delayed", "buried"];

impl HistorySpan {
    /// Seconds of a period, periods of the span, what stands below the beginning of a curve, and by which step it is drawn.
    const fn shape(self) -> (u64, usize, &'static str, &'static str) {
        match self {
            Self::Hour => (10, 360, "1h ago", "by 10 s"),
            Self::Day => (300, 288, "1d ago", "by 5 min"),
        }
    }

    fn points(self, history: &History) -> &[Point] {
        match self {
            Self::Hour => &history.fine,
            Self::Day => &history.coarse,
        }
    }
}

/// The periods of a span that ends at `now` (seconds since the epoch): operations a second, and tasks by state.
///
/// A history ends with the last operation. Its own last period may be open, so the first one behind it is unknown; in later
/// ones nothing has happened, and tasks are as they are now. Before its beginning everything is unknown.
fn periods(history: &History, tasks: Tasks, now: f64, span: HistorySpan) -> Vec<[Option<f64>; 7]> {
    let (period, wanted, ..) = span.shape();
    let points = span.points(history);
    let present = now.max(0.0) as u64 / period;
    let behind =
        usize::try_from(present.saturating_sub(history.until / period)).unwrap_or(wanted).min(wanted);
    let known = points.iter().rev().take(wanted - behind).rev();
    let known = known.map(|point| {
        let mut values = point.map(|number| Some(f64::from(number)));
        values[4..].iter_mut().for_each(|value| *value = value.map(|count| count / period as f64));
        values
    });
    let mut idle = [Some(0.0); 7];
    for (place, (_, count)) in idle.iter_mut().zip(tasks.named()) {
        *place = Some(count as f64);
    }
    let mut open = idle;
    open[4..].fill(None);
    let is_empty = points.is_empty();
    let later = (0..behind).map(|at| match at {
        _ if is_empty => [None; 7],
        0 => open,
        _ => idle,
    });
    let seen: Vec<[Option<f64>; 7]> = known.chain(later).collect();
    let mut all = vec![[None; 7]; wanted - seen.len()];
    all.extend(seen);
    all
}

/// The flow and the tasks of a history up to `now` (seconds since the epoch); `tasks` are the present ones.
pub(crate) fn panels(history: &History, tasks: Tasks, now: f64, span: HistorySpan) -> [Panel; 2] {
    let periods = periods(history, tasks, now, span);
    let (_, _, begin, step) = span.shape();
    panels_of(&format!(" {step}"), begin, |at| periods.iter().map(|period| period[at]).collect())
}

/// The panels of the flow and of the tasks. `title` stands behind their names, and `points` gives a series by its place in a [`Point`].
pub(crate) fn panels_of(title: &str, begin: &str, points: impl Fn(usize) -> Vec<Option<f64>>) -> [Panel; 2] {
    let series = |(name, at): (&str, usize)| Series { name: name.to_owned(), points: points(at) };
    let panel = |name: &str, scale, series, show| Panel {
        title: format!("{name}{title}"),
        begin: begin.to_owned(),
        end: "now".to_owned(),
        scale,
        series,
        show,
    };
    let states: Vec<Series> = STATES.into_iter().zip(0..).map(series).collect();
    let flow: Vec<Series> = FLOW.into_iter().zip(STATES.len()..).map(series).collect();
    [
        panel("Flow", Scale::Shared, flow, rate),
        panel("Tasks", Scale::Own, states, |tasks| count(tasks.round() as u64)),
    ]
}

/// `lycosa stats --history`
pub(crate) fn run(arguments: &StatsArguments, span: HistorySpan) -> anyhow::Result<Outcome> {
    let session = Session::open_server(&arguments.server)?;
    let (snapshot, subject) = (ask(&session, arguments.tube.as_deref())?, arguments.tube.as_deref());
    let now = snapshot.instance.as_ref().map_or_else(|| now().as_secs_f64(), |instance| instance.now);
    let (history, tasks) = match subject {
        Some(name) => match snapshot.tubes.into_iter().next() {
            Some(tube) => (tube.history, tube.tasks),
            None => bail!(
                "tube {name:?} does not exist, or the user may not look at it (`lycosa tube list` shows the tubes)"
            ),
        },
        None => {
            let queue = snapshot.instance.context("the server returned no status of itself")?.queue;
            (queue.history, queue.tasks)
        }
    };
    let Some(history) = history else {
        let name = subject.unwrap_or_default();
        bail!(
            "the server has no history of tube {name:?} yet, or keeps none: it keeps those of the 100 busiest tubes"
        );
    };
    let title = match subject {
        Some(name) => format!("Tube {}", one_line(name, 60)),
        None => "All tubes".to_owned(),
    };
    let panels = panels(&history, tasks, now, span);
    if let Some(file) = &arguments.svg {
        let failed = || format!("cannot write the drawing to {}", file.display());
        fs::write(file, svg(&title, &panels)).with_context(failed)?;
    }
    if arguments.server.client.json {
        let (length, count, ..) = span.shape();
        return output::lines(periods(&history, tasks, now, span).iter().zip(1..), |(period, number)| {
            let mut object = json!({ "ago": (count - number) as u64 * length });
            let names = STATES.iter().chain(&FLOW).zip(period);
            names.for_each(|(name, value)| object[*name] = json!(value));
            object
        });
    }
    let columns = columns();
    output::line(title)?;
    for panel in &panels {
        output::line("")?;
        panel.text(columns, HEIGHT).iter().try_for_each(output::line)?;
    }
    Ok(Outcome::Done)
}

/// Columns of standard output.
fn columns() -> usize {
    let width = std::io::stdout().is_terminal().then(terminal::size).flatten();
    width.map_or(PIPED_COLUMNS, |(columns, _)| columns.into())
}

/// The status of the instance, or of one tube, with its history.
fn ask(session: &Session, tube: Option<&str>) -> anyhow::Result<Snapshot> {
    let which = tube.map_or(("limit", Value::from(1_u64)), |tube| ("tube", Value::from(tube)));
    let options = Value::map([("history", Value::Bool(true)), which]);
    let page = session.ask("queue.status", vec![options], "the server returned no status")?;
    let mut snapshot = Snapshot::default();
    snapshot.add_page(&page.encode())?;
    Ok(snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASKS: Tasks = Tasks { ready: 7, taken: 0, delayed: 0, buried: 1 };

    fn last<const N: usize>(periods: &[[Option<f64>; 7]], column: usize) -> [Option<f64>; N] {
        let values: Vec<Option<f64>> = periods.iter().map(|period| period[column]).collect();
        *values.last_chunk().expect("a span has more periods")
    }

    #[test]
    fn a_history_ends_now() {
        let fine = vec![[1, 0, 0, 0, 20, 10, 10], [2, 0, 0, 0, 50, 0, 0]];
        let history = History { until: 1_000, fine, coarse: Vec::new() };
        let periods = periods(&history, TASKS, 1_037.5, HistorySpan::Hour);
        assert_eq!(periods.len(), 360);
        assert_eq!(last(&periods, 4), [None, Some(2.0), Some(5.0), None, Some(0.0), Some(0.0)]);
        assert_eq!(last(&periods, 0), [None, Some(1.0), Some(2.0), Some(7.0), Some(7.0), Some(7.0)]);
    }

    #[test]
    fn a_full_history_loses_its_beginning() {
        let fine = (0..360).map(|number| [number, 0, 0, 0, 0, 0, 0]).collect();
        let history = History { until: 10_000, fine, coarse: Vec::new() };
        let periods = periods(&history, TASKS, 10_010.0, HistorySpan::Hour);
        assert_eq!(
            (periods.len(), periods[0][0], last(&periods, 0)),
            (360, Some(1.0), [Some(359.0), Some(7.0)])
        );
    }

    #[test]
    fn without_a_period_nothing_is_known() {
        let history = History { until: 10, ..History::default() };
        let periods = periods(&history, TASKS, 5_000.0, HistorySpan::Day);
        assert!(periods.iter().flatten().all(Option::is_none));
    }
}
