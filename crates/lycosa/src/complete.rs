//! Completion in shells: the script of a shell, and the names of tubes and users that it asks for.
//!
//! `clap_complete` makes the scripts from the command line's definition. They know commands and flags. Where a tube or a user
//! stands, the parts at the end of this module ask `lycosa complete-names`, which finds out from the words so far which
//! argument the cursor is in, and asks the server that these words name.
//!
//! Absent: questions. A password comes from the file or the environment, and without a server nothing is completed.

use std::io::{self, Write};
use std::time::Duration;

use clap::{ArgAction, FromArgMatches};
use clap_complete::Shell;

use crate::arguments::{self, Arguments, Command};
use crate::outcome::Outcome;
use crate::session::Session;
use crate::user;

/// How long a shell waits for names.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Flags about the server, which hold for the question too.
const OF_THE_SERVER: [&str; 7] =
    ["address", "user", "password_file", "tls_ca", "tls_certificate", "tls_key", "tls_server_name"];

/// The kind of name that is completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    Tubes,
    Users,
}

/// What the words before the cursor say.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    names: Names,
    /// The flags about the server, as they were typed.
    server: Vec<String>,
    data_dir: Option<String>,
}

/// Writes the script of a shell.
pub(crate) fn script(shell: Shell) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut arguments::command(), "lycosa", &mut script);
    let script = String::from_utf8(script)?;
    let script = match shell {
        Shell::Bash => script + BASH,
        Shell::Fish => script + FISH,
        Shell::Zsh => with_names_in_zsh(&script),
        _ => script,
    };
    // A reader that has seen enough, such as head, is no error.
    io::stdout().write_all(script.as_bytes())?;
    Ok(Outcome::Done)
}

/// Prints the names that the last of the words may become, one a line. Prints nothing if it is no name, or no server answers.
pub(crate) fn names(words: &[String]) -> anyhow::Result<Outcome> {
    let Some((current, before)) = words.split_last() else { return Ok(Outcome::Done) };
    let Some(place) = place(before, current) else { return Ok(Outcome::Done) };
    // The command itself names the fault, once it is typed.
    let mut found = ask(&place).unwrap_or_default();
    found.sort_unstable();
    let mut out = io::stdout().lock();
    for name in found.iter().filter(|name| name.starts_with(current) && !name.contains(char::is_control)) {
        writeln!(out, "{name}")?;
    }
    Ok(Outcome::Done)
}

fn ask(place: &Place) -> anyhow::Result<Vec<String>> {
    let session = match &place.data_dir {
        Some(folder) => Session::open_admin(folder.as_ref())?,
        None => {
            let words = ["lycosa", "ping"].map(str::to_owned).into_iter().chain(place.server.iter().cloned());
            let matches = arguments::command().try_get_matches_from(words)?;
            let Command::Ping(mut client) = Arguments::from_arg_matches(&matches)?.command else {
                return Ok(Vec::new());
            };
            client.request_timeout = TIMEOUT;
            Session::open(&client)?
        }
    };
    match place.names {
        Names::Users => user::names(&session),
        Names::Tubes => Ok(session.tubes()?),
    }
}

/// Which argument stands behind these words, if it is a name.
fn place(before: &[String], current: &str) -> Option<Place> {
    let mut root = arguments::command();
    root.build();
    let mut command = &root;
    let mut path = Vec::new();
    let mut place = Place { names: Names::Tubes, server: Vec::new(), data_dir: None };
    let (mut positionals, mut of_flag) = (0, None);
    let mut words = before.iter().skip(1);
    while let Some(word) = words.next() {
        if word == "--" {
            // What follows is a command of its own, or a payload.
            return None;
        }
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) if word.starts_with("--") => (flag, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        let argument = match flag.strip_prefix("--") {
            Some(long) => command.get_arguments().find(|argument| argument.get_long() == Some(long)),
            None => flag.strip_prefix('-').and_then(|short| {
                let short = short.chars().next()?;
                command.get_arguments().find(|argument| argument.get_short() == Some(short))
            }),
        };
        if let Some(argument) = argument {
            if !matches!(argument.get_action(), ArgAction::Set | ArgAction::Append) {
                continue;
            }
            let id = argument.get_id().as_str();
            let Some(value) = value.or_else(|| words.next().cloned()) else {
                of_flag = Some(id.to_owned());
                break;
            };
            if OF_THE_SERVER.contains(&id) {
                place.server.push(format!("--{}={value}", argument.get_long().unwrap_or(id)));
            } else if id == "data_dir" {
                place.data_dir = Some(value);
            }
        } else if flag.starts_with('-') && flag.len() > 1 {
            continue;
        } else if let Some(below) = command.find_subcommand(word).filter(|_| positionals == 0) {
            command = below;
            path.push(below.get_name());
        } else {
            positionals += 1;
        }
    }
    let id = match of_flag {
        Some(id) => id,
        None if current.starts_with('-') => return None,
        None => {
            let mut known = command.get_positionals();
            known.find(|argument| argument.get_index() == Some(positionals + 1))?.get_id().to_string()
        }
    };
    place.names = match (path.as_slice(), id.as_str()) {
        // Names that are made.
        (["tube", "create"], "tube") | (["user", "add"], "name") => return None,
        (["user", ..], "name") => Names::Users,
        (_, "tube" | "archive_tube") => Names::Tubes,
        _ => return None,
    };
    if path.first() == Some(&"user") && place.data_dir.is_none() {
        place.data_dir = std::env::var("LYCOSA_DATA_DIR").ok().or_else(|| Some("data".to_owned()));
    }
    Some(place)
}

/// Names first, then what the generated function completes.
const BASH: &str = r#"
_lycosa_with_names() {
    local name
    COMPREPLY=()
    while IFS= read -r name; do
        COMPREPLY+=("$(printf '%q' "$name")")
    done < <("${COMP_WORDS[0]}" complete-names -- "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} -gt 0 ]] || _lycosa "$@"
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _lycosa_with_names -o nosort -o bashdefault -o default lycosa
else
    complete -F _lycosa_with_names -o bashdefault -o default lycosa
fi
"#;

const FISH: &str = r#"
function __fish_lycosa_names
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    lycosa complete-names -- $words "$current" 2>/dev/null
end

complete -c lycosa -n 'test (count (commandline -opc)) -ge 2' -a '(__fish_lycosa_names)'
"#;

const ZSH: &str = r#"
_lycosa_names() {
    local -a names
    names=(${(f)"$(lycosa complete-names -- ${(Q)${(z)${LBUFFER%$PREFIX}}} "$PREFIX" 2>/dev/null)"})
    compadd -a names
}

"#;

/// Where the generated script of zsh begins to complete.
const ZSH_END: &str = "if [ \"$funcstack[1]\" = \"_lycosa\" ]; then";

/// In zsh an argument has an action of its own: that of tubes and users asks for names.
fn with_names_in_zsh(script: &str) -> String {
    let is_name = |line: &str| {
        ["tube", "name"].iter().any(|id| {
            [format!("':{id} -- "), format!("'::{id} -- ")].iter().any(|begin| line.starts_with(begin))
        }) || ["'*--tube=[", "'--archive-tube=["].iter().any(|begin| line.starts_with(begin))
    };
    let mut out = String::with_capacity(script.len() + ZSH.len());
    for line in script.lines() {
        if line == ZSH_END {
            out.push_str(ZSH);
        }
        match line.strip_suffix(":_default' \\").filter(|_| is_name(line)) {
            Some(begin) => out.extend([begin, ":_lycosa_names' \\\n"]),
            None => out.extend([line, "\n"]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<(Names, Vec<String>, Option<String>)> {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let current = words.pop().unwrap_or_default();
        place(&words, &current).map(|place| (place.names, place.server, place.data_dir))
    }

    #[test]
    fn the_words_before_the_cursor_tell_what_it_is_in() {
        let tubes = |server: &[&str]| {
            Some((Names::Tubes, server.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), None))
        };
        assert_eq!(of("lycosa put "), tubes(&[]));
        assert_eq!(of("lycosa put ma"), tubes(&[]));
        assert_eq!(of("lycosa ack "), tubes(&[]));
        assert_eq!(of("lycosa tube drop m"), tubes(&[]));
        assert_eq!(of("lycosa stats "), tubes(&[]));
        assert_eq!(of("lycosa work --jobs 4 "), tubes(&[]));
        assert_eq!(of("lycosa put --json -a h:1 --user=ann "), tubes(&["--address=h:1", "--user=ann"]));
        let users = |folder: &str| Some((Names::Users, Vec::new(), Some(folder.to_owned())));
        assert_eq!(of("lycosa user drop --data-dir /d "), users("/d"));
        assert_eq!(of("lycosa user passwd --data-dir=/d a"), users("/d"));
        assert_eq!(
            of("lycosa user grant ann --data-dir /d --tube "),
            Some((Names::Tubes, Vec::new(), Some("/d".to_owned())))
        );
        for line in [
            "lycosa ",
            "lycosa pu",
            "lycosa put mail ",
            "lycosa ack mail ",
            "lycosa put -",
            "lycosa put --delay ",
            "lycosa tube create ",
            "lycosa user add ",
            "lycosa user drop ann ",
            "lycosa work mail -- ",
            "lycosa nothing ",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn the_script_of_zsh_asks_for_names_where_they_stand() {
        let mut script = Vec::new();
        clap_complete::generate(Shell::Zsh, &mut arguments::command(), "lycosa", &mut script);
        let script = with_names_in_zsh(&String::from_utf8(script).expect("text"));
        assert_eq!(script.matches("_lycosa_names() {").count(), 1);
        let asked: Vec<&str> = script.lines().filter(|line| line.ends_with(":_lycosa_names' \\")).collect();
        assert!(asked.iter().any(|line| line.starts_with("':tube -- ")), "{asked:?}");
        assert!(asked.iter().any(|line| line.starts_with("'*--tube=[")), "{asked:?}");
        assert!(asked.iter().any(|line| line.starts_with("':name -- ")), "{asked:?}");
        assert!(!script.lines().any(|line| line.starts_with("':tube -- ") && line.contains("_default")));
    }
}
