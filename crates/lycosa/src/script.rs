//! `lycosa init.lua`: Lua programs on the command line, with the arguments that `tarantool` takes.

use std::os::unix::fs::FileTypeExt;
use std::process::ExitCode;

use lycosa_server::config::LogFormat;
use lycosa_server::logging;
use lycosa_server::program::{self, Console, Script};

use crate::arguments::ConsoleArguments;
use crate::outcome;
use crate::session::password_of;

/// The program that the arguments ask for; `None` if they name a subcommand.
///
/// A program is a file whose name ends with `.lua` or `.t` or has a folder in it, and `-e`, `-l`, `-i`,
/// `--no-native-queue` before it.
pub(crate) fn of(arguments: impl Iterator<Item = String>) -> Option<Script> {
    let mut script = Script::default();
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-e" => script.expressions.push(arguments.next()?),
            "-l" => script.modules.push(arguments.next()?),
            "-i" => script.interactive = true,
            "--no-native-queue" => script.no_native_queue = true,
            file if is_program(file) => {
                script.file = Some(file.into());
                script.arguments = arguments.collect();
                return Some(script);
            }
            _ => return None,
        }
    }
    (script.interactive || !script.expressions.is_empty() || !script.modules.is_empty()).then_some(script)
}

fn is_program(name: &str) -> bool {
    !name.starts_with('-') && (name.ends_with(".lua") || name.ends_with(".t") || name.contains('/'))
}

/// Runs the program; prints what keeps it from running.
pub(crate) fn run(script: Script) -> ExitCode {
    let run = || {
        logging::init("info", LogFormat::Text)?;
        program::run(script)
    };
    report(crate::on_a_thread(run))
}

/// Prints what has kept a program from running.
fn report(code: anyhow::Result<ExitCode>) -> ExitCode {
    code.unwrap_or_else(|error| {
        eprintln!("lycosa: {error:#}");
        ExitCode::from(outcome::code_of(&error))
    })
}

/// The absolute path of a socket of which a relative one is given; any other address as it is.
fn whole_path(address: &str) -> String {
    let is_socket = std::fs::metadata(address).is_ok_and(|metadata| metadata.file_type().is_socket());
    let whole = std::path::absolute(address).ok().filter(|_| is_socket);
    whole.and_then(|path| path.into_os_string().into_string().ok()).unwrap_or_else(|| address.to_owned())
}

/// Runs `lycosa console`.
pub(crate) fn run_console(arguments: &ConsoleArguments) -> ExitCode {
    let run = || {
        logging::init("warn", LogFormat::Text)?;
        let file = arguments.password_file.as_deref();
        let password = arguments.user.as_deref().map(|user| password_of(user, file)).transpose()?;
        let address = arguments.address.as_deref().map(whole_path).unwrap_or_default();
        let user = arguments.user.clone();
        program::run(Script { console: Some(Console { address, user, password }), ..Script::default() })
    };
    report(run())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Script> {
        of(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn programs_are_told_from_subcommands() {
        assert!(parse("serve --listen 127.0.0.1:1").is_none());
        assert!(parse("").is_none());
        assert!(parse("put t x.lua").is_none());
        let script = parse("-l log -e x=1 init.lua a -b").expect("a program");
        assert_eq!(script.file, Some("init.lua".into()));
        assert_eq!(script.arguments, ["a", "-b"]);
        assert_eq!((script.modules, script.expressions), (vec!["log".to_owned()], vec!["x=1".to_owned()]));
        assert!(parse("-i").expect("a console").interactive);
    }

    #[test]
    fn the_path_of_a_socket_may_be_relative() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("admin.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        let depth = std::env::current_dir().expect("a folder").components().count() - 1;
        let relative =
            format!("{}{}", "../".repeat(depth), path.strip_prefix("/").expect("absolute").display());
        assert!(whole_path(&relative).ends_with("/admin.sock") && whole_path(&relative).starts_with('/'));
        assert!(!relative.starts_with('/'));
        for other in ["127.0.0.1:3301", "nowhere/admin.sock", "ann:secret@host:3301"] {
            assert_eq!(whole_path(other), other);
        }
    }
}
