//! The screens, as lines. Issues stand on top, then the flow.

mod detail;
mod lists;

use lycosa_metrics::{Gravity, History, Instance, Tasks, Tube};
use lycosa_picture::{Panel, lane};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span as Piece};
use unicode_width::UnicodeWidthStr;

use super::ask::Ask;
use super::change::{Counted, tasks};
use super::dialog::{Dialog, Stage};
use super::model::{Model, SAMPLES, SORTS};
use super::place::Place;
use super::words::{NO_ISSUES, visible};
use crate::curves::{self, STATES};
use crate::listing::one_line;
use crate::values::{bytes, cell, count, lapse, rate};

/// Issues of the overview.
const MAX_ISSUES: usize = 5;
/// Places that a long text gets before columns are left out.
const LEAST_TEXT: usize = 24;
/// Columns of a spark-line.
const SPARK: usize = 20;

/// Styles; without colors only weight and reversal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Theme {
    pub(super) has_color: bool,
}

impl Theme {
    fn color(self, color: Color) -> Style {
        if self.has_color { Style::new().fg(color) } else { Style::new() }
    }

    fn bold() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn dim(self) -> Style {
        self.color(Color::DarkGray)
    }

    fn chosen() -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn gravity(self, gravity: Gravity) -> Style {
        match gravity {
            Gravity::Bad => self.color(Color::Red).add_modifier(Modifier::BOLD),
            Gravity::Warn => self.color(Color::Yellow),
            Gravity::Note => self.color(Color::Cyan),
        }
    }

    /// A state or a flow.
    fn kind(self, name: &str) -> Style {
        match name {
            "ready" | "ack" => self.color(Color::Green),
            "taken" | "take" => self.color(Color::Yellow),
            "delayed" | "put" => self.color(Color::Cyan),
            "buried" => self.color(Color::Red),
            _ => Style::new(),
        }
    }
}

/// A column of a table: its title, whether numbers stand to the right, its rank, and the cell of an item. Columns of the largest
/// rank go first.
struct Column<'a, T>(&'static str, bool, u8, &'a dyn Fn(&T) -> String);

type Lines = Vec<Line<'static>>;

fn plain(text: impl Into<String>) -> Line<'static> {
    Line::from(text.into())
}

fn styled(text: impl Into<String>, style: Style) -> Line<'static> {
    Line::from(Piece::styled(text.into(), style))
}

/// A text in one line of at most `width` columns.
fn fit(text: &str, width: usize, style: Style) -> Line<'static> {
    styled(one_line(text, width), style)
}

/// What a screen shows, how, and the space for it in columns and lines.
#[derive(Clone, Copy)]
struct Canvas<'a> {
    model: &'a Model,
    theme: Theme,
    width: usize,
    height: usize,
}

/// A line, and below it the items of the place in front: the page in which the chosen one is.
fn list<T>(canvas: Canvas<'_>, head: Line<'static>, items: &[T], columns: &[Column<'_, T>]) -> Lines {
    let size = (canvas.width, canvas.height.saturating_sub(1));
    let rows = table(size, Some(canvas.model.stop().at), items, columns);
    std::iter::once(head).chain(rows).collect()
}

/// Items under a heading, at most `height` lines: the page of items in which the chosen one is. The first column gets what
/// further columns leave; columns of high rank are left out where there is no space for them.
fn table<T>(size: (usize, usize), chosen: Option<usize>, items: &[T], columns: &[Column<'_, T>]) -> Lines {
    let (width, height) = size;
    let page = height.saturating_sub(1).max(1);
    let first = chosen.unwrap_or(0) / page * page;
    let shown = items[first.min(items.len())..items.len().min(first + page)].iter();
    let shown: Vec<Vec<String>> =
        shown.map(|item| columns.iter().map(|column| (column.3)(item)).collect()).collect();
    let wide = |at: usize| {
        let cells = shown.iter().map(|row| row[at].width());
        cells.chain([columns[at].0.width()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(wide).collect();
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let least = widths[0].min(20);
    let needed =
        |kept: &[usize]| least + kept.iter().skip(1).map(|at| widths[*at].min(LEAST_TEXT) + 2).sum::<usize>();
    while needed(&kept) > width && kept.len() > 1 {
        let worst = kept.iter().skip(1).max_by_key(|at| columns[**at].2).copied();
        kept.retain(|at| Some(*at) != worst);
    }
    // The last text column may be long: it gets the spare columns, else the first one does.
    let is_long = |at: usize| !columns[at].1 && widths[at] > LEAST_TEXT;
    let long = kept.iter().rev().copied().find(|at| *at > 0 && is_long(*at));
    let spare = width.saturating_sub(needed(&kept));
    let limit = |at: usize| match (at, long) {
        (at, Some(long)) if at == long => LEAST_TEXT + spare,
        (0, None) => widths[0].min(least + spare),
        (0, Some(_)) => least,
        (at, _) => widths[at].min(LEAST_TEXT),
    };
    let line = |row: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for at in &kept {
            let cell = one_line(&row(*at), limit(*at));
            let pad = " ".repeat(limit(*at).saturating_sub(cell.width()));
            text += if *at == kept[0] { "" } else { "  " };
            text += &if columns[*at].1 { format!("{pad}{cell}") } else { format!("{cell}{pad}") };
        }
        one_line(&text, width)
    };
    let mut lines = vec![styled(line(&|at| columns[at].0.to_owned()), Theme::bold())];
    for (number, row) in shown.iter().enumerate() {
        let style = if chosen == Some(first + number) { Theme::chosen() } else { Style::new() };
        lines.push(styled(line(&|at| row[at].clone()), style));
    }
    lines
}

/// The whole screen: exactly `height` lines of at most `width` columns.
pub(super) fn screen(model: &Model, theme: Theme, width: usize, height: usize) -> Lines {
    let mut lines = header(model, theme, width);
    let foot = footer(model, theme, width);
    let space = height.saturating_sub(lines.len() + foot.len());
    let mut body = match (&model.dialog, model.is_help) {
        (_, true) => help(),
        (Some(dialog), _) => dialog_lines(dialog, theme, width),
        _ => body(Canvas { model, theme, width, height: space }),
    };
    body.truncate(space);
    body.resize(space, Line::default());
    lines.append(&mut body);
    lines.extend(foot);
    lines
}

fn header(model: &Model, theme: Theme, width: usize) -> Lines {
    let state = match (&model.lost, &model.snapshot.instance) {
        (Some(why), _) => format!("NO CONNECTION, trying again: {}", visible(why)),
        (None, None) => "asking…".to_owned(),
        (None, Some(instance)) => {
            let role = if instance.read_only { "takes no writes" } else { "takes writes" };
            format!("{}, {role}, up {}", visible(&instance.state), lapse(instance.uptime.floor()))
        }
    };
    let frozen = if model.is_frozen { "  FROZEN (f goes on)" } else { "" };
    let style = if model.lost.is_some() { theme.gravity(Gravity::Bad) } else { Style::new() };
    let title = one_line(&format!("Lycosa {}  {state}{frozen}", model.address), width);
    let place = match &model.stop().place {
        Place::Overview => "Overview".to_owned(),
        Place::Tubes => "Tubes".to_owned(),
        Place::Tube { name, .. } => format!("Tubes › {}", visible(name)),
        Place::Tasks(view) => format!("Tubes › {} › tasks", visible(&view.tube)),
        Place::Task { tube, id, .. } => format!("Tubes › {} › task {id}", visible(tube)),
        Place::Sessions(_) => "Sessions".to_owned(),
        Place::Jobs { tube: Some(tube), .. } => format!("Tubes › {} › jobs", visible(tube)),
        Place::Jobs { tube: None, .. } => "Jobs".to_owned(),
        Place::Audit(_) => "Audit".to_owned(),
        Place::Group => "Group".to_owned(),
    };
    let group = if model.election().is_some() { "  6 Group" } else { "" };
    let named = format!("1 Overview  2 Tubes  3 Sessions  4 Jobs  5 Audit{group}  ? keys");
    let fits = place.width() + named.width() + 2 <= width;
    let last = if group.is_empty() { 5 } else { 6 };
    let tabs = if fits { named } else { format!("1-{last} screens  ? keys") };
    let room = width.saturating_sub(tabs.width() + 2);
    let place = one_line(&place, room);
    let pad = " ".repeat(width.saturating_sub(place.width() + tabs.width()));
    let below = [Piece::styled(place, Theme::bold()), Piece::raw(pad), Piece::styled(tabs, theme.dim())];
    vec![styled(title, style), Line::from(below.to_vec())]
}

fn footer(model: &Model, theme: Theme, width: usize) -> Lines {
    let bad = |fault: &String| fit(&visible(fault), width, theme.gravity(Gravity::Bad));
    if let Some(prompt) = &model.prompt {
        let line = fit(&format!("/{}_", visible(&prompt.text)), width, Theme::bold());
        return prompt.fault.iter().map(bad).chain([line]).collect();
    }
    let keys = match (&model.dialog, &model.stop().place) {
        (Some(_), _) => "Esc leaves",
        (_, Place::Overview) => "Enter tubes  h span  f freeze  q quit",
        (_, Place::Tubes) => "Enter tube  / filter  s S sort  r t d b tasks  P pause  J jobs  q quit",
        (_, Place::Tube { .. }) => "Enter tasks  r t d b by state  P pause  J jobs  h span  Esc back",
        (_, Place::Tasks(view)) if !view.marked.is_empty() => {
            "Space mark  m all of the page  Esc unmarks  K R N S B D M act  n p page  ? keys"
        }
        (_, Place::Tasks(_)) => {
            "Enter task  / filter  s state  n p page  Space mark  a all  KRNSBDM act  U undo"
        }
        (_, Place::Task { .. }) => {
            "K kick R release N run now S reschedule B bury D delete M move U undo Esc back"
        }
        (_, Place::Sessions(_)) => "Enter tasks that it holds  Esc back",
        (_, Place::Jobs { .. }) => "Enter tube  P pause, resume  C cancel  U undo  Esc back",
        (_, Place::Audit(_)) => "Enter tube  n p page  Esc back",
        (_, Place::Group) => "T transfer: the chosen voter leads  Esc back",
    };
    let notice = model.notice.iter().map(|notice| fit(notice, width, Theme::bold()));
    model.fault.iter().map(bad).chain(notice).chain([fit(keys, width, theme.dim())]).collect()
}

fn body(canvas: Canvas<'_>) -> Lines {
    match &canvas.model.stop().place {
        Place::Overview => overview(canvas),
        Place::Tubes => tubes(canvas),
        Place::Tube { name, detail, is_gone } => detail::tube(canvas, name, detail.as_deref(), *is_gone),
        Place::Tasks(view) => detail::tasks(canvas, view),
        Place::Task { detail, is_gone, .. } => detail::task(canvas, detail.as_deref(), *is_gone),
        Place::Sessions(sessions) => detail::sessions(canvas, sessions),
        Place::Jobs { tube, jobs } => lists::jobs(canvas, tube.as_deref(), jobs),
        Place::Audit(view) => lists::audit(canvas, view),
        Place::Group => lists::group(canvas),
    }
}

fn overview(canvas: Canvas<'_>) -> Lines {
    let Canvas { model, theme, width, height } = canvas;
    let Some(instance) = &model.snapshot.instance else { return Vec::new() };
    let found = model.snapshot.issues();
    let mut lines = Vec::new();
    if !model.has_issues {
        lines.push(fit(&format!("? {NO_ISSUES}."), width, theme.gravity(Gravity::Warn)));
    } else if found.is_empty() {
        lines.push(styled("Nothing is wrong that this screen can see.", theme.color(Color::Green)));
    }
    for (tube, issue) in found.iter().take(MAX_ISSUES) {
        let tube = tube.map_or(String::new(), |tube| format!("{}: ", visible(tube)));
        let text = format!("! {tube}{}. {}", visible(&issue.title), visible(&issue.act));
        lines.push(fit(&text, width, theme.gravity(issue.gravity)));
    }
    if found.len() > MAX_ISSUES {
        lines.push(styled(format!("  and {} more", found.len() - MAX_ISSUES), theme.dim()));
    }
    lines.push(Line::default());
    lines.extend(figures(instance, model, width));
    lines.push(Line::default());
    let below = Canvas { height: height.saturating_sub(lines.len()), ..canvas };
    lines.extend(curves_of(below, "", instance.queue.tasks, model.history.as_ref()));
    lines
}

/// The numbers of the instance, in as many lines as they need.
fn figures(instance: &Instance, model: &Model, width: usize) -> Lines {
    let queue = &instance.queue;
    let oldest = model.snapshot.tubes.iter().filter_map(|tube| tube.oldest_ready_age).reduce(f64::max);
    let span = |span: Option<f64>| cell(span, lapse);
    let rates = queue.rates;
    let all = [
        format!("put {}", rate(rates.puts[0])),
        format!("take {}", rate(rates.takes[0])),
        format!("ack {}", rate(rates.acks[0])),
        format!("waiting calls {}", count(queue.waiting)),
        format!("oldest ready {}", span(oldest)),
        format!("tubes {}", count(queue.tubes)),
        format!("connections {}", count(instance.connections)),
        format!("sync p99 {}", span(instance.journal_sync.quantile(0.99))),
        format!("turn p99 {}", span(instance.turn.quantile(0.99))),
        format!("memory {} of {}", bytes(instance.memory_used), bytes(instance.memory_limit)),
        format!("disk {}", bytes(instance.checkpoint.disk_used)),
    ];
    let mut lines: Vec<String> = Vec::new();
    for figure in all {
        match lines.last_mut() {
            Some(last) if last.width() + 3 + figure.width() <= width => *last = format!("{last}   {figure}"),
            _ => lines.push(figure),
        }
    }
    lines.into_iter().map(plain).collect()
}

/// What the program itself has seen in the last minute.
fn seen(model: &Model, name: &str) -> [Panel; 2] {
    let samples: Vec<_> = model.samples.get(name).into_iter().flatten().copied().collect();
    let pad = |mut points: Vec<Option<f64>>| {
        let missing = SAMPLES.saturating_sub(points.len());
        points.splice(0..0, vec![None; missing]);
        points
    };
    let level =
        |at: usize| pad(samples.iter().skip(1).map(|sample| Some(sample.numbers[at] as f64)).collect());
    // A counter that falls is that of a new process.
    let flow = |at: usize| {
        let rates = samples.windows(2).map(|pair| {
            let grown = pair[1].numbers[at].checked_sub(pair[0].numbers[at])?;
            Some(grown as f64 / (pair[1].time - pair[0].time))
        });
        pad(rates.collect())
    };
    let points = |at: usize| if at < STATES.len() { level(at) } else { flow(at) };
    curves::panels_of(", as seen since the start of this program", "1m ago", points)
}

/// Curves of a tube, or of all under the empty name.
fn curves_of(canvas: Canvas<'_>, name: &str, tasks: Tasks, history: Option<&History>) -> Lines {
    let Canvas { model, theme, width, height } = canvas;
    let found = match model.span {
        None => Some(seen(model, name)),
        Some(span) => history.map(|history| curves::panels(history, tasks, model.now(), span)),
    };
    let Some(panels) = found else {
        let text = "The server keeps no history of this tube: it keeps those of the 100 busiest ones.";
        return vec![plain(text)];
    };
    let beside = width >= 140;
    // Seven lanes, and a title, a heading and a time for each panel.
    let (fixed, lanes, each) = if beside { (3, 4, (width - 4) / 2) } else { (6, 7, width) };
    let tall = (height.saturating_sub(fixed) / lanes).clamp(1, 6);
    let [flow, levels] = panels.map(|panel| colored(&panel, theme, each, tall));
    if !beside {
        return flow.into_iter().chain(levels).collect();
    }
    let row = |row: usize| {
        let [left, right] = [&flow, &levels].map(|lines| lines.get(row).cloned().unwrap_or_default());
        let pad = " ".repeat((each + 4).saturating_sub(left.width()));
        Line::from([left.spans, vec![Piece::raw(pad)], right.spans].concat())
    };
    (0..flow.len().max(levels.len())).map(row).collect()
}

/// The lines of a panel, each lane in the color of its series.
fn colored(panel: &Panel, theme: Theme, width: usize, tall: usize) -> Lines {
    let text = panel.text(width, tall);
    let last = text.len() - 1;
    let style = |at: usize| match at {
        0 => Theme::bold(),
        at if at == 1 || at == last => theme.dim(),
        at => panel.series.get((at - 2) / tall).map_or(Style::new(), |series| theme.kind(&series.name)),
    };
    text.into_iter().enumerate().map(|(at, line)| styled(line, style(at))).collect()
}

fn tubes(Canvas { model, width, height, .. }: Canvas<'_>) -> Lines {
    let shown = model.shown_tubes();
    let (column, is_reversed) = model.sort;
    let all = model.snapshot.tubes.len();
    let filter = match model.tubes_filter.as_str() {
        "" => String::new(),
        text => format!(" that match {:?} (/ changes it)", visible(text)),
    };
    let order = if is_reversed { "falling" } else { "rising" };
    let (few, of) = (count(shown.len() as u64), count(all as u64));
    let tally = format!("{few} of {of} tubes{filter}, by {}, {order}", SORTS[column]);
    let mut lines = vec![plain(one_line(&tally, width))];
    if all == 0 {
        let text = "There is no tube that this user may look at. `lycosa tube create NAME` makes one.";
        lines.push(plain(text));
        return lines;
    }
    let size = (width, height.saturating_sub(1));
    let span = |span: Option<f64>| cell(span, lapse);
    let flow = |flow: Option<f64>| cell(flow, |flow| rate(flow).replace("/s", ""));
    let quantile = |tube: &Tube, part| span(tube.wait.as_ref().and_then(|wait| wait.quantile(part)));
    let columns: [Column<'_, &Tube>; 16] = [
        Column("tube", false, 0, &|tube| {
            format!("{}{}", visible(&tube.name), if tube.paused { " (paused)" } else { "" })
        }),
        Column("type", false, 6, &|tube| tube.kind.clone()),
        Column("ready", true, 1, &|tube| count(tube.tasks.ready)),
        Column("taken", true, 1, &|tube| count(tube.tasks.taken)),
        Column("delayed", true, 4, &|tube| count(tube.tasks.delayed)),
        Column("buried", true, 1, &|tube| count(tube.tasks.buried)),
        Column("put/s", true, 2, &|tube| flow(tube.rates.map(|rates| rates.puts[0]))),
        Column("take/s", true, 5, &|tube| flow(tube.rates.map(|rates| rates.takes[0]))),
        Column("ack/s", true, 2, &|tube| flow(tube.rates.map(|rates| rates.acks[0]))),
        Column("oldest", true, 2, &|tube| span(tube.oldest_ready_age)),
        Column("waiting", true, 3, &|tube| count(tube.waiting_takes)),
        Column("ready, last minute", false, 8, &|tube| spark(model, tube)),
        Column("wait p50", true, 7, &|tube| quantile(tube, 0.5)),
        Column("p99", true, 7, &|tube| quantile(tube, 0.99)),
        Column("drained in", true, 7, &|tube| span(tube.drain)),
        Column("capacity", true, 9, &|tube| cell(tube.capacity.filter(|capacity| *capacity > 0), count)),
    ];
    lines.extend(table(size, Some(model.stop().at), &shown, &columns));
    lines
}

/// The ready tasks of a tube in the last minute.
fn spark(model: &Model, tube: &Tube) -> String {
    let samples = model.samples.get(&tube.name).into_iter().flatten();
    let ready: Vec<Option<f64>> = samples.map(|sample| Some(sample.numbers[0] as f64)).collect();
    let top = ready.iter().flatten().copied().fold(1.0, f64::max);
    lane(&ready, SPARK, 1, top).concat()
}

fn dialog_lines(dialog: &Dialog, theme: Theme, width: usize) -> Lines {
    let mut lines = vec![
        Line::default(),
        fit(&dialog.title, width, Theme::bold()),
        plain(one_line(dialog.says, width)),
        Line::default(),
    ];
    for (at, (name, text)) in dialog.fields.iter().enumerate() {
        let is_focus = at == dialog.focus && dialog.stage == Stage::Form;
        let cursor = if is_focus { "_" } else { "" };
        let style = if is_focus { Theme::bold() } else { Style::new() };
        lines.push(fit(&format!("{name}: {}{cursor}", visible(text)), width, style));
    }
    lines.push(Line::default());
    let (text, gravity) = match &dialog.stage {
        Stage::Form if matches!(dialog.ask, Ask::Count(_)) => {
            ("Enter counts the tasks first; nothing is changed yet. Esc leaves.".to_owned(), None)
        }
        Stage::Form => ("Enter does it. Esc leaves.".to_owned(), None),
        Stage::Waiting => ("The server was asked…".to_owned(), None),
        Stage::Counted(Counted { matched: 0, scanned, .. }) => {
            (format!("No task would be changed, of {} looked at. Esc leaves.", count(*scanned)), None)
        }
        Stage::Counted(Counted { matched, scanned, .. }) => {
            let (matched, scanned) = (tasks(*matched), count(*scanned));
            let text = format!("{matched} would be changed, of {scanned} looked at. y does it, Esc leaves.");
            (text, Some(Gravity::Warn))
        }
        Stage::Running { job, scanned, total, .. } => {
            (format!("Job {job}: {} of {} looked at. Esc cancels it.", count(*scanned), count(*total)), None)
        }
        Stage::Refused(why) => (format!("Refused: {}. Esc leaves.", visible(why)), Some(Gravity::Bad)),
    };
    let style = gravity.map_or(Style::new(), |gravity| theme.gravity(gravity));
    lines.extend(wrapped(&text, width).into_iter().map(|line| styled(line, style)));
    if let Some(notice) = &dialog.notice {
        lines.push(fit(notice, width, theme.gravity(Gravity::Bad)));
    }
    lines
}

/// A text in lines of at most `width` columns, broken at blanks where there are any.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word = word.to_owned();
        loop {
            let last = lines.last_mut().expect("there is a line");
            let blank = usize::from(!last.is_empty());
            if last.width() + blank + word.width() <= width {
                *last += if blank == 1 { " " } else { "" };
                *last += &word;
                break;
            }
            if !last.is_empty() {
                lines.push(String::new());
                continue;
            }
            let mut places = 0;
            let cut = word.char_indices().find(|(_, letter)| {
                places += letter.to_string().width();
                places > width.max(2)
            });
            let rest = word.split_off(cut.map_or(word.len(), |(at, _)| at));
            lines.last_mut().expect("there is a line").push_str(&word);
            word = rest;
        }
    }
    lines
}

fn help() -> Lines {
    let text = "\
Everywhere
  1 2 3        overview, tubes, sessions       Enter →   go in
  4 5 6        jobs, audit log, group          q         quit
  Esc ←        back                            ↑ ↓ j k   choose, scroll
  h            curves of a minute, hour, day   f         freeze and go on
  U            undo the last change, or the chosen job
Tubes
  /  s  S      filter, sort by the next column, turn the order
  r t d b      tasks that are ready, taken, delayed, buried
  P  J         pause or resume; jobs
Tasks
  /            filter: state=buried older_than=10m error=\"no such host\" utube=a
               id_from id_to pri_from pri_to attempts_from field=a.b equals=5
  s  n  p      next state, next page, page before
  Space  m     mark a task, all of this page   a         all tasks that match
  K R N S B D M   kick, release, run now, reschedule, bury, delete, move
Jobs           P pause, resume  C cancel       Group     T another member leads
Actions are about the chosen task, the marked ones, or all that match. Each
says first how many tasks it would change.
Any key closes this.";
    text.lines().map(plain).collect()
}
