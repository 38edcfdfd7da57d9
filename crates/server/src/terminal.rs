//! The console's side of the terminal: a line editor in a thread of its own, for a terminal may wait for ever.
//!
//! The thread reads a line when it is asked for one. While the user types, it asks the loop what completes a word. Where
//! standard input is no terminal, lines are read as they are and the prompt is printed.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use lycosa_lua::Input;
use lycosa_lua::fiber::Ticket;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{FileHistory, History};
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The history, in the user's home.
const HISTORY: &str = ".lycosa_history";
/// Statements that the history keeps.
const MAX_HISTORY: usize = 1000;
/// The longest wait for completions: the program may be busy.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1);

/// Where a completed word begins, and what it may become.
type Completions = (usize, Vec<String>);

/// Messages of the thread to the loop.
pub(crate) enum Event {
    /// A request to the terminal.
    Input(Input),
    /// The user wants a word completed.
    Complete {
        /// The line.
        line: String,
        /// The cursor's place in it, in bytes.
        place: usize,
        /// The fiber that waits for the answer.
        answer: Sender<Completions>,
    },
}

/// A message to the thread.
enum Order {
    /// Read a line, with this prompt.
    Read(String),
    /// Keep a statement in the history.
    Remember(String),
}

/// The loop's handle of the thread, which starts with the first line that is asked for.
#[derive(Default)]
pub(crate) struct Terminal {
    orders: RefCell<Option<Sender<Order>>>,
    events: OnceCell<UnboundedSender<Event>>,
    lines: RefCell<VecDeque<Input>>,
    reader: Cell<Option<Ticket>>,
    is_reading: Cell<bool>,
}

impl Terminal {
    /// Messages of the thread, for the loop. Without this call the thread does not start.
    pub(crate) fn events(&self) -> UnboundedReceiver<Event> {
        let (events, receiver) = unbounded_channel();
        let _ = self.events.set(events);
        receiver
    }

    /// A line that was read before; else a ticket, which [`Terminal::receive`] gives back with the next line.
    pub(crate) fn read_line(&self, ticket: Ticket, prompt: &str) -> Option<Input> {
        if let Some(input) = self.lines.borrow_mut().pop_front() {
            return Some(input);
        }
        self.reader.set(Some(ticket));
        if !self.is_reading.replace(true) {
            self.order(Order::Read(prompt.to_owned()));
        }
        None
    }

    pub(crate) fn remember(&self, statement: &str) {
        self.order(Order::Remember(statement.to_owned()));
    }

    /// Takes what the thread has read; the fiber that waits for it.
    pub(crate) fn receive(&self, input: Input) -> Option<Ticket> {
        self.is_reading.set(false);
        self.lines.borrow_mut().push_back(input);
        self.reader.take()
    }

    fn order(&self, order: Order) {
        let Some(events) = self.events.get() else { return };
        let mut orders = self.orders.borrow_mut();
        let sender = orders.get_or_insert_with(|| {
            let (sender, receiver) = channel();
            let events = events.clone();
            let spawned = std::thread::Builder::new().name("terminal".to_owned()).spawn(move || {
                serve(&receiver, &events);
            });
            if let Err(error) = spawned {
                tracing::error!("standard input cannot be read: {error}");
            }
            sender
        });
        // A thread that has ended has told the end of the input.
        let _ = sender.send(order);
    }
}

/// The thread: obeys until the input or the program ends.
fn serve(orders: &Receiver<Order>, events: &UnboundedSender<Event>) {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let mut editor = if is_terminal { open_editor(events.clone()) } else { None };
    let mut is_over = false;
    for order in orders {
        let input = match (order, &mut editor) {
            (Order::Read(_), _) if is_over => Input::End,
            (Order::Read(prompt), None) => read_plain(&prompt),
            (Order::Read(prompt), Some(editor)) => match editor.readline(&prompt) {
                Ok(line) => Input::Line(line),
                Err(ReadlineError::Interrupted) => Input::Interrupted,
                Err(_) => Input::End,
            },
            (Order::Remember(statement), Some(editor)) => {
                let added = editor.add_history_entry(statement).unwrap_or(false);
                if let Some(path) = history_path().filter(|_| added) {
                    // A home that cannot be written to keeps no history.
                    let _ = editor.history_mut().append(&path);
                }
                continue;
            }
            (Order::Remember(_), None) => continue,
        };
        is_over = input == Input::End;
        // The loop has ended.
        if events.send(Event::Input(input)).is_err() {
            return;
        }
    }
}

fn read_plain(prompt: &str) -> Input {
    print!("{prompt}");
    let _ = std::io::stdout().flush();
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) | Err(_) => Input::End,
        Ok(_) => Input::Line(line.trim_end_matches(['\n', '\r']).to_owned()),
    }
}

fn history_path() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("HOME")?).join(HISTORY))
}

type LineEditor = Editor<Completing, FileHistory>;

fn open_editor(events: UnboundedSender<Event>) -> Option<LineEditor> {
    let config = Config::builder().completion_type(CompletionType::List).auto_add_history(false);
    let config = config.max_history_size(MAX_HISTORY).ok()?.build();
    let mut editor = LineEditor::with_config(config).ok()?;
    editor.set_helper(Some(Completing { events }));
    if let Some(path) = history_path() {
        // A first console has no history.
        let _ = editor.load_history(&path);
    }
    Some(editor)
}

/// Questions of the line editor while the user types.
struct Completing {
    events: UnboundedSender<Event>,
}

impl Completer for Completing {
    type Candidate = String;

    fn complete(&self, line: &str, place: usize, _: &Context<'_>) -> rustyline::Result<Completions> {
        let (answer, answers) = channel();
        let asked = self.events.send(Event::Complete { line: line.to_owned(), place, answer });
        let answer = asked.ok().and_then(|()| answers.recv_timeout(COMPLETION_TIMEOUT).ok());
        Ok(answer.unwrap_or((place, Vec::new())))
    }
}

impl Hinter for Completing {
    type Hint = String;
}

impl Highlighter for Completing {}
impl Validator for Completing {}
impl Helper for Completing {}

/// How the terminal was before the line editor changed it.
pub(crate) struct Modes(Option<Termios>);

impl Modes {
    pub(crate) fn of_terminal() -> Modes {
        Modes(tcgetattr(std::io::stdin()).ok())
    }

    /// A process that ends while a line is read leaves the terminal as it was.
    pub(crate) fn restore(&self) {
        if let Some(modes) = &self.0 {
            // A terminal that was closed needs nothing.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, modes);
        }
    }
}
