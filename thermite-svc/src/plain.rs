//! Text of others made safe to show: names, commands and output may hold anything, a terminal and a page obey some of it.

/// The text on one line: everything that a terminal obeys or that reorders what is read is written as an escape.
pub fn plain(text: &str) -> String {
    escaped(text, false)
}

/// The same with its line breaks kept, and tabs as spaces.
pub fn plain_lines(text: &str) -> String {
    escaped(text, true)
}

fn escaped(text: &str, keeps_lines: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' if keeps_lines => shown.push('\n'),
            '\t' if keeps_lines => shown.push_str("    "),
            letter if letter.is_control() || is_hidden(letter) => shown.extend(letter.escape_default()),
            letter => shown.push(letter),
        }
    }
    shown
}

/// Marks of direction, joiners and separators: invisible, and able to make one name look like another.
fn is_hidden(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        let hostile = "a\x1b[2J\u{9b}31m\rb\u{202e}c\u{7f}\0\n";

        let shown = plain(hostile);

        assert_eq!(shown, "a\\u{1b}[2J\\u{9b}31m\\rb\\u{202e}c\\u{7f}\\u{0}\\n");
        assert!(!shown.chars().any(char::is_control));
    }

    #[test]
    fn words_of_any_language_stay_as_they_are() {
        assert_eq!(plain("größer 速い <b>"), "größer 速い <b>");
    }

    #[test]
    fn lines_may_be_kept_and_nothing_else() {
        assert_eq!(plain_lines("one\ttwo\r\nthree"), "one    two\\r\nthree");
    }
}
