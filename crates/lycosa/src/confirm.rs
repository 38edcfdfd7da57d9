//! Questions before tasks are changed or lost.

use std::io::{self, IsTerminal, Write};

use crate::outcome::Usage;
use crate::terminal;
use crate::values::counted;

/// Whether a question can be asked: standard input and standard error are a terminal.
pub(crate) fn has_terminal() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks on the terminal. Anything but a yes is an error, which ends the command with exit code 1.
pub(crate) fn ask(question: &str) -> anyhow::Result<()> {
    let mut err = terminal::stderr();
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    anyhow::ensure!(matches!(answer.trim(), "y" | "Y" | "yes"), "nothing was changed");
    Ok(())
}

/// Asks before a change of many tasks. Without a terminal the change is refused with exit code 2, so that a script that
/// forgets `--yes` does not go on as if the tasks were changed.
pub(crate) fn may_change(verb: &str, tube: &str, count: u64) -> anyhow::Result<()> {
    let tasks = counted(count, "task");
    if !has_terminal() {
        let text =
            format!("nothing was changed: {verb} would change {tasks} of tube \"{tube}\"; --yes does it");
        anyhow::bail!(Usage(text));
    }
    ask(&format!("{verb} would change {tasks} of tube \"{tube}\". Go on?"))
}
