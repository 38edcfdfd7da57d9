//! Text for terminals: text of clients loses its power over the terminal.
//!
//! Payloads, names and error texts are written by any user that may put a task. An escape sequence in them could change the
//! window's title, hide lines, or make the terminal send bytes as if they were typed. So on a terminal control characters
//! are shown as escapes (`\u001b`), and bytes that are no UTF-8 as `\xff`. Into a pipe or a file everything goes as it
//! is.

use std::io::{self, IsTerminal, StderrLock, StdoutLock, Write};
use std::sync::OnceLock;

use clap::ColorChoice;

use lycosa_server::logging::is_harmless;

/// Standard output, as long as it is held.
pub(crate) type Stdout = Output<StdoutLock<'static>>;

/// What `--color` says.
static COLOR: OnceLock<ColorChoice> = OnceLock::new();

/// The choice of `--color` in a command line that is not parsed yet, because its errors have colors too. What stands
/// behind `--` is for another command.
pub(crate) fn color_of(arguments: impl Iterator<Item = std::ffi::OsString>) -> ColorChoice {
    let mut words = arguments.map(|word| word.to_string_lossy().into_owned()).take_while(|word| word != "--");
    let mut choice = None;
    while let Some(word) = words.next() {
        let value =
            if word == "--color" { words.next() } else { word.strip_prefix("--color=").map(str::to_owned) };
        choice = value.and_then(|value| value.parse().ok()).or(choice);
    }
    choice.unwrap_or(ColorChoice::Auto)
}

/// Sets what `--color` says, once.
pub(crate) fn set_color(choice: ColorChoice) {
    let _ = COLOR.set(choice);
}

/// Columns and lines of the terminal that standard output is.
pub(crate) fn size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Whether standard output gets colors. Without the option it does on a terminal that knows them, unless NO_COLOR is set.
pub(crate) fn has_color(is_terminal: bool) -> bool {
    match COLOR.get().copied().unwrap_or(ColorChoice::Auto) {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
            is_terminal && !is_set("NO_COLOR") && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
        }
    }
}

/// Standard output.
pub(crate) fn stdout() -> Stdout {
    let stdout = io::stdout();
    Output { escapes: stdout.is_terminal(), inner: stdout.lock(), cut: Vec::new() }
}

/// Standard error, as long as it is held.
pub(crate) fn stderr() -> Output<StderrLock<'static>> {
    let stderr = io::stderr();
    Output { escapes: stderr.is_terminal(), inner: stderr.lock(), cut: Vec::new() }
}

/// Prints a line about what happens to standard error.
pub(crate) fn say(text: std::fmt::Arguments<'_>) {
    let mut out = stderr();
    // A closed standard error is no reason to end.
    let _ = writeln!(out, "{text}");
}

/// Writes to a terminal what cannot do harm there, and elsewhere what it is given.
pub(crate) struct Output<W: Write> {
    inner: W,
    escapes: bool,
    /// The beginning of a character whose rest comes with the next write.
    cut: Vec<u8>,
}

impl Stdout {
    /// Writes the heading of a table as a line of its own, bold where there are colors.
    pub(crate) fn heading(&mut self, text: &str) -> io::Result<()> {
        if !has_color(self.escapes) {
            return writeln!(self, "{text}");
        }
        self.flush()?;
        self.inner.write_all(b"\x1b[1m")?;
        write!(self, "{text}")?;
        self.flush()?;
        self.inner.write_all(b"\x1b[0m\n")
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.escapes {
            return self.inner.write(bytes);
        }
        let joined = [std::mem::take(&mut self.cut).as_slice(), bytes].concat();
        let mut shown = Vec::with_capacity(joined.len());
        let mut chunks = joined.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            escape(chunk.valid(), &mut shown);
            let wrong = chunk.invalid();
            let is_cut = std::str::from_utf8(wrong).is_err_and(|error| error.error_len().is_none());
            if is_cut && chunks.peek().is_none() {
                self.cut.extend_from_slice(wrong);
                break;
            }
            for byte in wrong {
                write!(shown, "\\x{byte:02x}")?;
            }
        }
        self.inner.write_all(&shown)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        for byte in std::mem::take(&mut self.cut) {
            write!(self.inner, "\\x{byte:02x}")?;
        }
        self.inner.flush()
    }
}

impl<W: Write> Drop for Output<W> {
    fn drop(&mut self) {
        // An error of a write has no reader: it is dropped.
        let _ = self.flush();
    }
}

fn escape(text: &str, out: &mut Vec<u8>) {
    for character in text.chars() {
        match is_harmless(character) {
            true => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            false => out.extend_from_slice(format!("\\u{:04x}", u32::from(character)).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_of_colors_stands_anywhere_before_another_command() {
        let choice = |line: &str| color_of(line.split(' ').map(Into::into));
        assert_eq!(choice("lycosa list mail"), ColorChoice::Auto);
        assert_eq!(choice("lycosa list --color never mail"), ColorChoice::Never);
        assert_eq!(choice("lycosa --color=always list"), ColorChoice::Always);
        assert_eq!(choice("lycosa list --color=loud"), ColorChoice::Auto);
        assert_eq!(choice("lycosa work mail -- ls --color=always"), ColorChoice::Auto);
    }

    fn shown(escapes: bool, pieces: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut out = Output { inner: &mut bytes, escapes, cut: Vec::new() };
        pieces.iter().for_each(|piece| out.write_all(piece).unwrap());
        drop(out);
        bytes
    }

    #[test]
    fn a_terminal_gets_no_control_characters() {
        let cases: &[(&[&[u8]], &str)] = &[
            (&[b"plain\ttext\n"], "plain\ttext\n"),
            (&[b"\x1b]0;title\x07"], "\\u001b]0;title\\u0007"),
            (&[b"over\rwritten\x08\x7f\0"], "over\\u000dwritten\\u0008\\u007f\\u0000"),
            (&["\u{9b}2J".as_bytes()], "\\u009b2J"),
            (&["a\u{202e}b\u{2066}".as_bytes()], "a\\u202eb\\u2066"),
            (&[b"\xff\xfe", b"\xc3"], "\\xff\\xfe\\xc3"),
            (&["grüß ".as_bytes(), "🕷".as_bytes()], "grüß 🕷"),
            (&[b"gr\xc3", b"\xbc\xc3\x9f"], "grüß"),
            (&[b"\xc2", b"\x9b"], "\\u009b"),
        ];
        for (pieces, wanted) in cases {
            assert_eq!(String::from_utf8(shown(true, pieces)).unwrap(), *wanted);
            assert_eq!(shown(false, pieces), pieces.concat(), "a pipe gets the bytes");
        }
    }
}
