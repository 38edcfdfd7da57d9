//! `lycosa init.lua`: Lua programs on the command line, with the arguments that `tarantool` takes.

use std::os::unix::fs::FileTypeExt;
use std::process::ExitCode;

use lycosa_server::config::LogFormat;
use lycosa_server::logging;
use lycosa_server::program;
use lycosa_server::script::{Console, First, Script};

use crate::arguments::ConsoleArguments;
use crate::outcome::{self, Usage};
use crate::session::password_of;

/// The program that the arguments ask for; `None` if they name a subcommand or are the server's.
///
/// A program is a file whose name ends with `.lua` or `.t` or has a folder in it, or `-`, which is standard input. Before it
/// stand `-e TEXT`, `-l MODULE` and `-i`, also as `-lMODULE` and `-ie TEXT`, and `--no-native-queue`; behind one of the short
/// options a file may have any name. Everything after the file is the program's.
///
/// # Errors
/// An option lacks its argument, or is unknown among all options.
pub(crate) fn of(mut arguments: impl Iterator<Item = String>) -> Result<Option<Script>, Usage> {
    let mut script = Script::default();
    let mut is_program = false;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--no-native-queue" => script.no_native_queue = true,
            "--" if is_program => {
                script.file = arguments.next();
                break;
            }
            file if names_program(file) || is_program && !file.starts_with('-') => {
                script.file = Some(argument);
                break;
            }
            options if is_program || begins_program(options) => {
                read_options(&mut script, &options[1..], &mut arguments)?;
                is_program = true;
            }
            _ => return Ok(None),
        }
    }
    script.arguments = arguments.collect();
    Ok((is_program || script.file.is_some()).then_some(script))
}

/// Options of one letter, several in one argument, as `getopt` reads them.
fn read_options(
    script: &mut Script,
    options: &str,
    rest: &mut impl Iterator<Item = String>,
) -> Result<(), Usage> {
    for (place, option) in options.char_indices() {
        if option == 'i' {
            script.interactive = true;
            continue;
        }
        if !matches!(option, 'e' | 'l') {
            let which =
                "a program has the options -e TEXT, -l MODULE, -i and --no-native-queue before its file";
            return Err(Usage(format!("unknown option '{option}' in '-{options}': {which}")));
        }
        let joined = &options[place + 1..];
        let value = if joined.is_empty() { rest.next() } else { Some(joined.to_owned()) };
        let Some(value) = value else {
            let wanted = if option == 'e' { "-e TEXT" } else { "-l MODULE" };
            return Err(Usage(format!("option '-{option}' requires an argument: {wanted}")));
        };
        script.first.push(if option == 'e' { First::Text(value) } else { First::Module(value) });
        break;
    }
    Ok(())
}

fn begins_program(options: &str) -> bool {
    options.strip_prefix('-').is_some_and(|options| options.starts_with(['e', 'l', 'i']))
}

fn names_program(name: &str) -> bool {
    name == "-"
        || !name.starts_with('-') && (name.ends_with(".lua") || name.ends_with(".t") || name.contains('/'))
}

/// Runs the program; prints what keeps it from running.
pub(crate) fn run(script: Script) -> ExitCode {
    let run = || {
        logging::init_for_program()?;
        program::run(script)
    };
    report(crate::on_a_thread(run))
}

/// Prints the error that has kept a program from running.
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
        of(line.split_whitespace().map(str::to_owned)).expect("a right line")
    }

    #[test]
    fn programs_are_told_from_subcommands() {
        assert!(parse("serve --listen 127.0.0.1:1").is_none());
        assert!(parse("").is_none());
        assert!(parse("put t x.lua").is_none());
        let script = parse("-l log -e x=1 init.lua a -b").expect("a program");
        assert_eq!(script.file, Some("init.lua".into()));
        assert_eq!(script.arguments, ["a", "-b"]);
        assert_eq!(script.first, [First::Module("log".into()), First::Text("x=1".into())]);
        assert!(parse("-i").expect("a console").interactive);
        for line in ["-ie x=1 -llog prog - -e", "-e x=1 -i -l log -- prog - -e"] {
            let script = parse(line).expect("a program");
            assert_eq!(script.first, [First::Text("x=1".into()), First::Module("log".into())]);
            assert!(script.interactive);
            assert_eq!((script.file, script.arguments), (Some("prog".into()), vec!["-".into(), "-e".into()]));
        }
        assert_eq!(parse("- x").expect("standard input").file, Some("-".into()));
        assert!(parse("-c lycosa.toml").is_none() && parse("--no-native-queue serve").is_none());
    }

    #[test]
    fn an_option_without_its_argument_is_refused() {
        for (line, wanted) in [
            ("-e", "option '-e' requires an argument: -e TEXT"),
            ("-i -l", "option '-l' requires an argument: -l MODULE"),
            ("-ix a.lua", "unknown option 'x' in '-ix': "),
            ("-i --verbose a.lua", "unknown option '-' in '--verbose': "),
        ] {
            let refused = of(line.split_whitespace().map(str::to_owned)).expect_err(line);
            assert!(refused.0.starts_with(wanted), "{line}: {refused}");
        }
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
