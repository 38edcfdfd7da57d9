//! The screens of one tube, of tasks, of a task and of sessions.

use std::time::{Duration, UNIX_EPOCH};

use lycosa_metrics::{Histogram, SubQueue};

use ratatui::style::Style;
use ratatui::text::Line;

use super::{Canvas, Column, Lines, Theme, curves_of, list, plain, styled, table, wrapped};
use crate::listing::one_line;
use crate::top::ask::{SessionLine, TaskDetail, TaskLine, TubeDetail};
use crate::top::model::Model;
use crate::top::place::TasksView;
use crate::top::words::visible;
use crate::values::{bytes, cell, count, lapse, rate};

/// Lines of the curves of a tube.
const CURVES: usize = 13;
/// Columns of the longest bar of a histogram.
const BAR: f64 = 30.0;

fn span(span: Option<f64>) -> String {
    cell(span, lapse)
}

/// A moment by the server's clock.
pub(super) fn relative(model: &Model, at: f64) -> String {
    let ahead = at - model.now();
    match ahead {
        ahead if ahead > 50.0 * 365.0 * 86_400.0 => "never".to_owned(),
        ahead if ahead.abs() < 1.0 => "now".to_owned(),
        ahead if ahead > 0.0 => format!("in {}", lapse(ahead.floor())),
        ahead => format!("{} ago", lapse((-ahead).floor())),
    }
}

pub(super) fn tube(canvas: Canvas<'_>, name: &str, detail: Option<&TubeDetail>, is_gone: bool) -> Lines {
    let Canvas { model, theme, width, .. } = canvas;
    let Some(detail) = detail else {
        let text =
            if is_gone { "does not exist, or this user may not look at it" } else { "is asked for…" };
        return vec![plain(format!("Tube {} {text}", visible(name)))];
    };
    let tube = &detail.status;
    let tasks = tube.tasks;
    let rates = tube.rates.unwrap_or_default();
    let paused = if tube.paused { "  PAUSED" } else { "" };
    let states = tasks.named().map(|(state, number)| format!("{state} {}", count(number))).join("  ");
    let [put, take, ack] = [rates.puts, rates.takes, rates.acks].map(|rates| rate(rates[0]));
    let [ready, taken] = [tube.oldest_ready_age, tube.oldest_taken_age].map(span);
    let waiting = count(tube.waiting_takes);
    let first = format!("{}{paused}  {states}  in {}", tube.kind, bytes(tube.bytes));
    let second = format!(
        "put {put}  take {take}  ack {ack}  waiting takes {waiting}  oldest ready {ready}  longest taken {taken}"
    );
    let mut lines: Lines = [first, second].iter().map(|text| plain(one_line(text, width))).collect();
    for reason in &detail.reasons {
        lines.extend(wrapped(reason, width).into_iter().map(plain));
    }
    lines.push(Line::default());
    let first = lines.len();
    lines.extend(curves_of(Canvas { height: CURVES, ..canvas }, name, tasks, tube.history.as_ref()));
    lines.push(Line::default());
    let (wait, work) = (tube.wait.as_ref(), tube.work.as_ref());
    for (title, histogram) in [("Wait", wait), ("Work", work)] {
        lines.extend(bars(title, histogram, theme));
    }
    if !detail.blocked.is_empty() {
        lines.push(styled("Busiest sub-queues", Theme::bold()));
        let sub_queues: Vec<_> = tube.sub_queues.iter().zip(&detail.blocked).collect();
        let columns: [Column<'_, (&SubQueue, &(String, String))>; 6] = [
            Column("sub-queue", false, 0, &|(one, _)| visible(&one.name)),
            Column("ready", true, 1, &|(one, _)| count(one.tasks.ready)),
            Column("taken", true, 1, &|(one, _)| count(one.tasks.taken)),
            Column("delayed", true, 3, &|(one, _)| count(one.tasks.delayed)),
            Column("buried", true, 3, &|(one, _)| count(one.tasks.buried)),
            Column("why no task is handed out", false, 2, &|(_, (_, why))| why.clone()),
        ];
        lines.extend(table((width, sub_queues.len() + 1), None, &sub_queues, &columns));
    }
    let at = model.stop().at.min(lines.len().saturating_sub(1));
    if at > 0 { lines.split_off(at.min(first + CURVES + 40)) } else { lines }
}

/// A histogram of durations: a bar for each bucket that has any.
fn bars(title: &str, histogram: Option<&Histogram>, theme: Theme) -> Lines {
    let Some(histogram) = histogram.filter(|histogram| histogram.count() > 0) else {
        return vec![plain(format!("{title}: nothing measured yet"))];
    };
    let [median, high] = [0.5, 0.99].map(|part| span(histogram.quantile(part)));
    let heading = format!("{title}: p50 {median}, p99 {high}, {} measured", count(histogram.count()));
    let largest = histogram.filled().map(|(_, number)| number).max().unwrap_or(1) as f64;
    let mut lines = vec![styled(heading, Theme::bold())];
    for (bound, number) in histogram.filled() {
        let until = bound.map_or_else(|| "longer".to_owned(), |seconds| format!("≤ {}", lapse(seconds)));
        let bar = "█".repeat(((number as f64 / largest * BAR).round() as usize).max(1));
        lines.push(styled(format!("{until:>10} {bar} {}", count(number)), theme.kind("put")));
    }
    lines
}

pub(super) fn tasks(canvas: Canvas<'_>, view: &TasksView) -> Lines {
    let Canvas { model, width, height, .. } = canvas;
    let filter = if view.typed.is_empty() { "all tasks".to_owned() } else { visible(&view.typed) };
    let Some(found) = &view.found else { return vec![plain(format!("{filter}: asked for…"))] };
    let more = match (&found.next, view.cursors.len()) {
        (Some(_), page) => format!(", page {page}, n: next page"),
        (None, 1) => String::new(),
        (None, page) => format!(", page {page}, the last one"),
    };
    let [shown, scanned, total] = [found.tasks.len() as u64, found.scanned, found.total].map(count);
    let tally = format!("{filter}: {shown} shown, scanned {scanned} of {total}{more}");
    let mut lines = vec![plain(one_line(&tally, width))];
    if view.is_all {
        lines.push(styled("Actions are about ALL tasks that match (a: about the chosen one)", Theme::bold()));
    } else if !view.marked.is_empty() {
        let marked = crate::top::change::tasks(view.marked.len() as u64);
        let text = format!("{marked} marked: actions are about these (Esc unmarks them)");
        lines.push(styled(text, Theme::bold()));
    }
    if found.tasks.is_empty() {
        lines.push(plain(match (&found.next, view.typed.is_empty()) {
            (Some(_), _) => "None so far: n looks at further tasks.",
            (None, true) => "The tube has no task.",
            (None, false) => "No task matches this filter; / changes it, s shows other states.",
        }));
        return lines;
    }
    let moment = |at: Option<f64>| cell(at, |at| relative(model, at));
    let text = |text: &Option<String>| cell(text.as_deref(), visible);
    let mark = |task: &TaskLine| if view.marked.contains_key(&task.id) { "*" } else { "" }.to_owned();
    let columns: [Column<'_, TaskLine>; 10] = [
        Column("", false, 0, &mark),
        Column("id", true, 0, &|task| task.id.to_string()),
        Column("state", false, 0, &|task| task.state.clone()),
        Column("tries", true, 2, &|task| count(task.attempts)),
        Column("pri", true, 5, &|task| cell(task.priority, |priority| priority.to_string())),
        Column("put", false, 3, &|task| moment(task.created)),
        Column("due", false, 4, &|task| moment(task.due)),
        Column("sub-queue", false, 4, &|task| text(&task.utube)),
        Column("last error", false, 2, &|task| text(&task.error)),
        Column("payload", false, 1, &|task| visible(&task.payload)),
    ];
    let columns = &columns[usize::from(view.marked.is_empty())..];
    let space = height.saturating_sub(lines.len());
    lines.extend(table((width, space), Some(model.stop().at), &found.tasks, columns));
    lines
}

pub(super) fn task(canvas: Canvas<'_>, detail: Option<&TaskDetail>, is_gone: bool) -> Lines {
    let Canvas { model, theme, width, .. } = canvas;
    let Some(detail) = detail else {
        return vec![plain(match is_gone {
            true => "The task does not exist: it is finished or deleted, or it never was.",
            false => "Asked for…",
        })];
    };
    let mut lines =
        vec![styled(format!("{}  ", detail.line.state), theme.kind(&detail.line.state).patch(Theme::bold()))];
    lines.push(styled("Why it does not run", Theme::bold()));
    let reasons = detail.reasons.iter().flat_map(|reason| wrapped(reason, width.saturating_sub(2)));
    lines.extend(reasons.map(|line| plain(format!("  {line}"))));
    lines.push(Line::default());
    let moments = detail.moments.iter().map(|(name, at)| {
        let date = u64::try_from((*at * 1e3) as i64).ok().map(Duration::from_millis);
        let date = date.filter(|date| date.as_secs() < 4_000_000_000);
        let date = date.map(|date| format!(", {}", humantime::format_rfc3339_seconds(UNIX_EPOCH + date)));
        (*name, format!("{}{}", relative(model, *at), date.unwrap_or_default()))
    });
    let facts = detail.facts.iter().map(|(name, fact)| (*name, fact.clone()));
    for (name, fact) in moments.chain(facts) {
        for (at, line) in wrapped(&fact, width.saturating_sub(13)).into_iter().enumerate() {
            lines.push(plain(format!("{:<12} {line}", if at == 0 { name } else { "" })));
        }
    }
    lines.push(Line::default());
    lines.push(styled(format!("Payload, {} of MessagePack", bytes(detail.bytes as u64)), Theme::bold()));
    for text in &detail.text {
        lines.extend(text_lines(text, width));
    }
    let at = model.stop().at.min(lines.len().saturating_sub(1));
    lines.split_off(at)
}

/// A line of a payload with its indentation.
fn text_lines(text: &str, width: usize) -> Lines {
    let indent = text.len() - text.trim_start().len();
    let pad = " ".repeat(indent.min(width / 2));
    let lines = wrapped(text.trim_start(), width.saturating_sub(pad.len()));
    lines.into_iter().map(|line| styled(format!("{pad}{line}"), Style::new())).collect()
}

pub(super) fn sessions(canvas: Canvas<'_>, sessions: &[SessionLine]) -> Lines {
    let head = plain(format!("{} sessions", count(sessions.len() as u64)));
    let tubes = |session: &SessionLine| {
        let tubes = session.tubes.iter().map(|(tube, held)| format!("{} {}", count(*held), visible(tube)));
        let tubes: Vec<_> = tubes.collect();
        cell(Some(tubes).filter(|tubes| !tubes.is_empty()), |tubes| tubes.join(", "))
    };
    let columns: [Column<'_, SessionLine>; 5] = [
        Column("user", false, 0, &|session| visible(&session.user)),
        Column("holds", true, 1, &|session| count(session.held)),
        Column("longest", false, 1, &|session| cell(session.since, |at| relative(canvas.model, at))),
        Column("of", false, 2, &tubes),
        Column("connections", false, 3, &|session| visible(&session.connections)),
    ];
    list(canvas, head, sessions, &columns)
}
