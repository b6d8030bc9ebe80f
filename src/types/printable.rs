//! Text of files and of other programs, made safe to show in a terminal or a log.

/// `text` with a space in place of each character that a terminal would obey rather than show:
/// control characters, and those that turn the direction of the text around them. Lines stay.
pub fn printable(text: &str) -> String {
    let is_shown = |c: char| c == '\n' || !(c.is_control() || turns(c));
    text.chars().map(|c| if is_shown(c) { c } else { ' ' }).collect()
}

/// As [`printable`], in one line of at most `chars_max` characters.
pub fn one_line(text: &str, chars_max: usize) -> String {
    printable(text).chars().take(chars_max).map(|c| if c == '\n' { ' ' } else { c }).collect()
}

/// JSON that says the same, with an escape in place of each such character. (A JSON writer escapes the control
/// characters below U+0020 alone.)
pub fn printable_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        // These stand within strings alone, and none needs a second unit of UTF-16.
        if turns(c) || (c.is_control() && c != '\n') {
            safe += &format!("\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Whether a character begins or ends text of another direction. (Unicode Standard Annex 9,
/// embeddings, overrides and isolates.)
fn turns(c: char) -> bool {
    matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_shows_all_and_obeys_nothing() {
        let text = "a\x1b[2J\x07b\u{9b}31m\u{202e}c\r\td\ne é 中";
        assert_eq!(printable(text), "a [2J b 31m c  d\ne é 中");
        let json = printable_json(&serde_json::to_string(text).unwrap());
        assert_eq!(printable(&json), json);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        assert_eq!(one_line(text, 17), "a [2J b 31m c  d ");
    }
}
