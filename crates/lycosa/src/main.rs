//! The `lycosa` command: the server and the tools around it.

mod arguments;
mod bench;
mod cat;
mod check;
mod checkpoint;
mod commands;
mod expiration;
mod explain;
mod look;
mod outcome;
mod output;
mod payload;
mod put;
mod script;
mod session;
mod tally;
mod transfer;
mod user;
mod values;
mod verify;
mod walk;
mod work;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use lycosa_server::config::Config;
use lycosa_server::{logging, serve};

use arguments::{Arguments, Command, ConfigArguments, ServeArguments};
use outcome::Outcome;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    if let Some(script) = script::of(std::env::args().skip(1)) {
        return script::run(script);
    }
    let outcome = match Arguments::parse_from(with_default_command(std::env::args_os())).command {
        Command::Serve(arguments) => run_server(arguments),
        Command::Config(arguments) => print_config(&arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "lycosa", &mut script);
            // A reader that has seen enough, such as head, is no error.
            std::io::Write::write_all(&mut std::io::stdout(), &script)
                .map(|()| Outcome::Done)
                .map_err(Into::into)
        }
        Command::Tube(command) => commands::tube(command),
        Command::Expiration(command) => expiration::run(command),
        Command::Put(arguments) => put::run(&arguments),
        Command::Take(arguments) => commands::take(&arguments),
        Command::Ack(arguments) => commands::each_task(&arguments, "ack", None),
        Command::Release(arguments) => commands::each_task(&arguments.task, "release", arguments.delay),
        Command::Bury(arguments) => commands::each_chosen(&arguments, "bury"),
        Command::Peek(arguments) => look::peek(&arguments.client, &arguments.tube, &arguments.ids),
        Command::List(arguments) => look::list(&arguments),
        Command::Delete(arguments) => commands::each_chosen(&arguments, "delete"),
        Command::Touch(arguments) => commands::touch(&arguments),
        Command::Kick(arguments) => commands::kick(&arguments),
        Command::Work(arguments) => work::run(arguments),
        Command::WorkGuard => work::guard::run(),
        Command::Stats(arguments) => commands::stats(&arguments),
        Command::Ping(arguments) => commands::ping(&arguments),
        Command::User(command) => user::run(command),
        Command::Checkpoint(arguments) => checkpoint::run(&arguments),
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
    let first = arguments.get(1).and_then(|first| first.to_str());
    let is_flag_of_serve = first
        .is_some_and(|first| first.starts_with('-') && !["-h", "--help", "-V", "--version"].contains(&first));
    if arguments.len() < 2 || is_flag_of_serve {
        arguments.insert(arguments.len().min(1), "serve".into());
    }
    arguments
}

fn run_server(arguments: ServeArguments) -> anyhow::Result<Outcome> {
    let config = load(&arguments)?;
    let log = logging::init(&config.log_level, config.log_format)?;
    let reload = serve::Reload { file: arguments.file, flags: arguments.flags };
    serve::run(config, reload, log)?;
    Ok(Outcome::Done)
}

fn load(arguments: &ServeArguments) -> anyhow::Result<Config> {
    Ok(Config::load(arguments.file.as_deref(), std::env::vars(), &arguments.flags)?)
}

fn print_config(arguments: &ConfigArguments) -> anyhow::Result<Outcome> {
    let config = load(&arguments.serve)?;
    output::config(&config, arguments.json)?;
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
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
