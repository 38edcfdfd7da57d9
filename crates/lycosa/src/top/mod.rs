//! `lycosa top`: a server on a terminal, once a second: issues, the flow, tubes, tasks, sessions, jobs, and actions.
//!
//! [`model`] is what the program knows and where its person is: keys and answers go in, questions come out. [`draw`] makes lines
//! of it, [`ask`] asks the server over one connection. Invariants: only `ask` knows the server; drawing changes nothing; each
//! action on tasks counts them first; text of others is spelled out before it is drawn.

mod ask;
mod change;
mod dialog;
mod draw;
mod filter;
mod model;
mod place;
#[cfg(test)]
mod tests;
mod words;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lycosa_client::{Client, Link};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::text::Line;
use serde_json::Value as Json;
use tokio::sync::mpsc::unbounded_channel;

use crate::arguments::{HistorySpan, TopArguments};
use crate::outcome::{Outcome, Usage};
use crate::{explain, output, payload, session, terminal};
use ask::Ask;
use draw::Theme;
use model::Model;
use place::Place;

/// Columns and lines of `--once` without a terminal.
const PIPED: (u16, u16) = (100, 40);

/// `lycosa top`
pub(crate) fn run(arguments: &TopArguments) -> anyhow::Result<Outcome> {
    let options = session::connect_options(&arguments.client)?;
    let is_interactive = !arguments.once && !arguments.client.json;
    if is_interactive && !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
        let text = "`lycosa top` needs a terminal; --once prints one screen, --json one status";
        anyhow::bail!(Usage(text.to_owned()));
    }
    let model = Model::new(&arguments.client.address, arguments.tube.as_deref());
    session::runtime()?.block_on(async {
        let client = Client::connect(options).await.map_err(explain::connect)?;
        if arguments.client.json {
            return print_json(&client).await;
        }
        if arguments.once {
            return print_screen(&client, model).await;
        }
        let mut terminal = ratatui::try_init()?;
        let outcome = interact(&client, model, arguments.interval, &mut terminal).await;
        ratatui::restore();
        outcome
    })
}

/// The error, or the function or option that the server lacks.
fn explained(error: anyhow::Error) -> anyhow::Error {
    match explain::missing(&error) {
        Some(text) => anyhow::Error::msg(text),
        None => error,
    }
}

async fn print_json(client: &Client) -> anyhow::Result<Outcome> {
    let (status, has_issues) = ask::whole_status(client).await.map_err(explained)?;
    let mut object = payload::to_json(&status);
    object["issues"] = if has_issues { gather_issues(&mut object).into() } else { Json::Null };
    if !has_issues {
        eprintln!("lycosa: {}: `issues` is null", words::NO_ISSUES);
    }
    output::done(object)
}

/// Takes the issues out of the instance and of the tubes, each with the name of its tube; the gravest first.
fn gather_issues(status: &mut Json) -> Vec<Json> {
    let mut found = Vec::new();
    let mut take = |owner: &mut Json| {
        let Some(owner) = owner.as_object_mut() else { return };
        let tube = owner.get("name").cloned().unwrap_or_default();
        let Some(Json::Array(issues)) = owner.remove("issues") else { return };
        found.extend(issues.into_iter().map(|mut issue| {
            issue["tube"] = tube.clone();
            issue
        }));
    };
    take(&mut status["instance"]);
    status["tubes"].as_array_mut().into_iter().flatten().for_each(take);
    // The names of gravities, the gravest first.
    let rank = |issue: &Json| ["bad", "warn"].iter().position(|gravity| issue["gravity"] == *gravity);
    found.sort_by_key(|issue| rank(issue).unwrap_or(2));
    found
}

async fn print_screen(client: &Client, mut model: Model) -> anyhow::Result<Outcome> {
    model.span = Some(HistorySpan::Hour);
    let (send, _) = unbounded_channel();
    for ask in model.tick() {
        let answer = ask::answer(client, ask, &send).await.map_err(explained)?;
        model.answer(answer);
    }
    let is_missing = matches!(&model.stop().place, Place::Tube { is_gone: true, .. });
    let (columns, lines) = terminal::size().filter(|_| std::io::stdout().is_terminal()).unwrap_or(PIPED);
    let screen = draw::screen(&model, Theme { has_color: false }, columns.into(), lines.into());
    let shown = screen.iter().map(text_of).collect::<Vec<_>>();
    let end = shown.len().saturating_sub(1);
    output::line(shown[..end].join("\n").trim_end())?;
    Ok(if is_missing { Outcome::Refused } else { Outcome::Done })
}

/// A line without its styles.
fn text_of(line: &Line<'_>) -> String {
    let text: String = line.spans.iter().map(|piece| piece.content.as_ref()).collect();
    text.trim_end().to_owned()
}

/// Carries questions out in the background; `looks` counts questions that change nothing.
fn begin(client: &Client, asks: Vec<Ask>, answers: &ask::Answers, looks: &Arc<AtomicUsize>) {
    for ask in asks {
        let (client, answers, looks) = (client.clone(), answers.clone(), Arc::clone(looks));
        let is_look = ask.is_look();
        looks.fetch_add(usize::from(is_look), Ordering::SeqCst);
        tokio::spawn(async move {
            ask::carry_out(&client, ask, &answers).await;
            looks.fetch_sub(usize::from(is_look), Ordering::SeqCst);
        });
    }
}

async fn interact(
    client: &Client,
    mut model: Model,
    interval: Duration,
    terminal: &mut DefaultTerminal,
) -> anyhow::Result<Outcome> {
    let (events, mut read) = unbounded_channel();
    // The thread ends with the process: a read of the terminal cannot be called off.
    std::thread::spawn(move || while event::read().is_ok_and(|event| events.send(event).is_ok()) {});
    let (send, mut answers) = unbounded_channel();
    let looks = Arc::new(AtomicUsize::new(0));
    let theme = Theme { has_color: terminal::has_color(true) };
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !model.is_over {
        model.lost = match client.status().link {
            Link::Connected => None,
            Link::Connecting { last_error } => Some(last_error.to_string()),
            Link::Closed => Some("closed".to_owned()),
        };
        draw_on(terminal, &model, theme)?;
        let asks = tokio::select! {
            event = read.recv() => match event {
                Some(event) => on_event(&mut model, &event),
                None => return Ok(Outcome::Done),
            },
            Some(answer) = answers.recv() => model.answer(answer),
            // Answers that are late, as without a connection, are waited for.
            _ = ticks.tick() => if looks.load(Ordering::SeqCst) == 0 { model.tick() } else { Vec::new() },
        };
        begin(client, asks, &send, &looks);
    }
    Ok(Outcome::Done)
}

fn on_event(model: &mut Model, event: &Event) -> Vec<Ask> {
    let Event::Key(key) = event else { return Vec::new() };
    if key.kind == KeyEventKind::Release {
        return Vec::new();
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        model.is_over |= matches!(key.code, KeyCode::Char('c' | 'd'));
        return Vec::new();
    }
    model.key(key.code)
}

fn draw_on<B: ratatui::backend::Backend>(
    terminal: &mut ratatui::Terminal<B>,
    model: &Model,
    theme: Theme,
) -> Result<(), B::Error> {
    terminal.draw(|frame| {
        let area = frame.area();
        let lines = draw::screen(model, theme, area.width.into(), area.height.into());
        for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
            frame.buffer_mut().set_line(area.left(), y, line, area.width);
        }
    })?;
    Ok(())
}
