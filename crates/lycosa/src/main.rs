//! The `lycosa` command: the server and the tools around it.

/// Every command prints to standard error like this: see [`terminal`].
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::terminal::say(format_args!($($text)*)) };
}

mod arguments;
mod backup;
mod bench;
mod cat;
mod change;
mod check;
mod checkpoint;
mod cluster;
mod commands;
mod compare;
mod complete;
mod confirm;
mod curves;
mod expiration;
mod explain;
mod folded;
mod follow;
mod holders;
mod line_tally;
mod listing;
mod metrics;
mod outcome;
mod output;
mod payload;
mod peer;
mod put;
mod reload;
mod role;
mod script;
mod session;
mod shadow;
mod space_pages;
mod stats;
mod steer;
mod terminal;
mod token;
mod top;
mod transfer;
mod tube_options;
mod user;
mod values;
mod work;

use std::process::ExitCode;

use anyhow::Context;
use clap::FromArgMatches;
use lycosa_server::config::Config;
use lycosa_server::{logging, serve};

use arguments::{Arguments, Command, ServeArguments};
use outcome::Outcome;

/// Bytes of the stack of the server's thread: as much as a main thread has.
const MAIN_STACK: usize = 8 << 20;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|first| first == work::launch::COMMAND) {
        return work::launch::run(std::env::args_os().skip(2));
    }
    match script::of(std::env::args().skip(1)) {
        Ok(Some(script)) => return script::run(script),
        Ok(None) => {}
        Err(usage) => return outcome::exit_code(Err(usage.into())),
    }
    let color = terminal::color_of(std::env::args_os());
    let parsed =
        arguments::command().color(color).try_get_matches_from(with_default_command(std::env::args_os()));
    let arguments = match parsed.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => return show_usage(&error),
    };
    terminal::set_color(arguments.color);
    let outcome = match arguments.command {
        Command::Serve(arguments) => run_server(arguments),
        Command::Config(given) => load(&given.serve).and_then(|config| output::config(&config, given.json)),
        Command::Man { folder } => write_man_pages(&folder),
        Command::Completions { shell } => complete::script(shell),
        Command::CompleteNames { words } => complete::names(&words),
        Command::Tube(command) => commands::tube(command),
        Command::Expiration(command) => expiration::run(command),
        Command::Put(arguments) => put::run(&arguments),
        Command::Take(arguments) => commands::take(&arguments),
        Command::Ack(arguments) => commands::ack(&arguments),
        Command::Release(arguments) => change::release(&arguments),
        Command::Bury(arguments) => change::bury(&arguments),
        Command::Peek(arguments) => listing::peek(&arguments.client, &arguments.tube, &arguments.ids),
        Command::List(arguments) => listing::list(&arguments),
        Command::Delete(arguments) => change::delete(&arguments),
        Command::Touch(arguments) => commands::touch(&arguments),
        Command::Kick(arguments) => change::kick(&arguments),
        Command::Work(arguments) => work::run(arguments),
        Command::WorkGuard => work::guard::run(),
        Command::Find(arguments) => steer::bulk::find(&arguments),
        Command::Apply(arguments) => steer::bulk::apply(&arguments),
        Command::Undo(arguments) => steer::bulk::undo(&arguments),
        Command::Job(arguments) => steer::bulk::job(&arguments),
        Command::Pause(arguments) => steer::set_paused(&arguments, true),
        Command::Resume(arguments) => steer::set_paused(&arguments, false),
        Command::Explain(arguments) => steer::explain(&arguments),
        Command::Audit(arguments) => steer::audit(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Metrics(arguments) => metrics::run(&arguments),
        Command::Session(command) => holders::run(&command),
        Command::Ping(arguments) => commands::ping(&arguments),
        Command::Console(arguments) => return script::run_console(&arguments),
        Command::User(command) => user::run(command),
        Command::Token(command) => token::run(command),
        Command::Cluster(command) => cluster::run(&command),
        Command::Checkpoint(arguments) => checkpoint::run(&arguments),
        Command::Backup(arguments) => backup::backup(&arguments),
        Command::Restore(arguments) => backup::restore(&arguments),
        Command::Reload(arguments) => reload::run(&arguments),
        Command::Promote(arguments) => role::promote(&arguments),
        Command::Demote(arguments) => role::demote(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Follow(arguments) if arguments.shadow => follow::rehearse(*arguments),
        Command::Follow(arguments) => follow::arguments(*arguments).and_then(run_server),
        Command::Cat(arguments) => cat::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Export(arguments) => transfer::export::run(&arguments),
        Command::Import(arguments) => transfer::import::run(&arguments),
    };
    outcome::exit_code(outcome)
}

/// `lycosa` and `lycosa --flag` mean `lycosa serve` and `lycosa serve --flag`.
fn with_default_command(arguments: impl Iterator<Item = std::ffi::OsString>) -> Vec<std::ffi::OsString> {
    let mut arguments: Vec<_> = arguments.collect();
    let mut place = 1;
    while let Some(word) = arguments.get(place).and_then(|word| word.to_str()) {
        match word {
            "--color" => place += 2,
            _ if word.starts_with("--color=") => place += 1,
            _ => break,
        }
    }
    let first = arguments.get(place).and_then(|first| first.to_str());
    let is_flag_of_serve = first
        .is_some_and(|first| first.starts_with('-') && !["-h", "--help", "-V", "--version"].contains(&first));
    if arguments.len() <= place || is_flag_of_serve {
        arguments.insert(arguments.len().min(place), "serve".into());
    }
    arguments
}

/// Rust's message about a text that is no number, and a hint for the user.
const NUMBERS: [(&str, &str); 5] = [
    ("invalid digit found in string", "expected a whole number, 0 or more"),
    ("cannot parse integer from empty string", "expected a whole number, 0 or more"),
    ("number too large to fit in target type", "the number is too large"),
    ("invalid float literal", "expected a number"),
    ("cannot parse float from empty string", "expected a number"),
];

/// Prints help, or the fault of the arguments. Without colors if the text is not clap's own, or if an argument,
/// which an error repeats, could drive the terminal.
fn show_usage(error: &clap::Error) -> ExitCode {
    let is_harmless = |argument: std::ffi::OsString| {
        argument.to_str().is_some_and(|text| text.chars().all(logging::is_harmless))
    };
    let text = error.render().to_string();
    let is_own = !NUMBERS.iter().any(|(words, _)| text.contains(words));
    if !error.use_stderr() || is_own && std::env::args_os().all(is_harmless) {
        error.exit();
    }
    let shown = NUMBERS.iter().fold(text, |text, (words, better)| text.replace(words, better));
    terminal::say(format_args!("{}", shown.trim_end()));
    ExitCode::from(outcome::EXIT_USAGE)
}

fn run_server(arguments: ServeArguments) -> anyhow::Result<Outcome> {
    let config = load(&arguments)?;
    let log = logging::init(&config.log_level, config.log_format)?;
    let reload = serve::Reload { file: arguments.file, flags: arguments.flags };
    match on_a_thread(|| serve::run(config, &reload, &log))? {
        0 => Ok(Outcome::Done),
        // The code that a program gave to `os.exit`; the server has stopped.
        code => std::process::exit(code),
    }
}

/// Runs the server on a thread of its own, and waits for its end.
///
/// The allocator serves the main thread from an arena that exists before the allocator has read its settings. That arena
/// gives every 8 MiB of neighboring free pages back to the system at once, inside the call that freed the last one, which
/// takes 1 to 5 ms. The arenas of other threads follow `oversize_threshold` (`.cargo/config.toml`) and leave that to the
/// allocator's own thread. `docs/performance.md` has the figures.
pub(crate) fn on_a_thread<T: Send>(server: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("lycosa".to_owned()).stack_size(MAIN_STACK);
        match thread.spawn_scoped(scope, server) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => panic!("the server's thread cannot be started: {error}"),
        }
    })
}

fn load(arguments: &ServeArguments) -> anyhow::Result<Config> {
    Ok(Config::load(arguments.file.as_deref(), std::env::vars(), &arguments.flags)?)
}

/// Writes `lycosa.1`, `lycosa-put.1`, `lycosa-tube-create.1` …
fn write_man_pages(folder: &std::path::Path) -> anyhow::Result<Outcome> {
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(arguments::command(), folder))
        .with_context(|| format!("cannot write man pages into {}", folder.display()))?;
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<std::ffi::OsString> {
        line.split_whitespace().map(Into::into).collect()
    }

    #[test]
    fn the_server_is_the_default() {
        let with_default = |line: &str| with_default_command(words(line).into_iter());
        assert_eq!(with_default("lycosa"), words("lycosa serve"));
        assert_eq!(with_default("lycosa --listen 127.0.0.1:1"), words("lycosa serve --listen 127.0.0.1:1"));
        assert_eq!(with_default("lycosa --help"), words("lycosa --help"));
        assert_eq!(with_default("lycosa put t x"), words("lycosa put t x"));
        assert_eq!(with_default("lycosa --color never put t"), words("lycosa --color never put t"));
        assert_eq!(
            with_default("lycosa --color=never --lua false"),
            words("lycosa --color=never serve --lua false")
        );
        assert_eq!(with_default("lycosa --color=never"), words("lycosa --color=never serve"));
    }

    #[test]
    fn the_command_line_is_consistent() {
        arguments::command().debug_assert();
    }

    /// Every command and subcommand that help shows, with its name as it is typed.
    fn shown(command: &clap::Command, path: &str) -> Vec<(String, clap::Command)> {
        let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
        let named = commands.map(|command| (format!("{path} {}", command.get_name()), command));
        named
            .flat_map(|(name, command)| {
                let below = shown(command, &name);
                std::iter::once((name, command.clone())).chain(below)
            })
            .collect()
    }

    #[test]
    fn each_command_stands_in_one_group_of_the_help() {
        let command = arguments::command();
        let mut grouped: Vec<&str> =
            arguments::GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let mut shown: Vec<&str> =
            command.get_subcommands().filter(|c| !c.is_hide_set()).map(clap::Command::get_name).collect();
        grouped.sort_unstable();
        shown.sort_unstable();
        assert_eq!(grouped, shown);
        let help = arguments::command().render_help().to_string();
        for (heading, names) in arguments::GROUPS {
            assert!(help.contains(&format!("\n{heading}:\n")), "{help}");
            assert!(names.iter().all(|name| help.contains(&format!("\n  {name} "))), "{help}");
        }
    }

    #[test]
    fn each_command_has_examples() {
        // The load generator has its own help, and its own test.
        let without: Vec<String> = shown(&arguments::command(), "lycosa")
            .into_iter()
            .filter(|(name, _)| !name.starts_with("lycosa bench"))
            .filter(|(_, command)| {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                !help.contains("Examples:\n") && !help.contains("Example:\n") && !help.contains("\n  lycosa ")
            })
            .map(|(name, _)| name)
            .collect();
        assert_eq!(without, Vec::<String>::new());
    }
}
