//! Text of others in cells of a terminal, and a sentence that several faces say.

use lycosa_server::logging::is_harmless;

/// In place of the issues of a server that refuses to be asked for them.
pub(super) const NO_ISSUES: &str = "the server is older than this `lycosa` and finds no issues itself";

/// A text in one line, with each character that a terminal would not show as itself spelled out: `\u202e`.
pub(super) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let is_invisible = matches!(character, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        match character {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("  "),
            character if is_harmless(character) && !is_invisible => shown.push(character),
            character => shown.push_str(&format!("\\u{:04x}", u32::from(character))),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_spelled_out() {
        assert_eq!(visible("a\u{1b}[2J\u{202e}b\u{200b}\n任务"), "a\\u001b[2J\\u202eb\\u200b\\n任务");
    }
}
