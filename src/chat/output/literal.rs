//! Reads values that are almost JSON, and writes them as JSON while they stream.
//!
//! In: the arguments of a call as LFM2 (`key="text", flag=True)`) or Gemma 4
//! (`key:<|"|>text<|"|>,flag:true}`) writes them, or a list or a dict of Python. Out: JSON. All of
//! these, and JSON itself, are read by the same rules: keys may be bare words, strings may have any
//! of three kinds of quotes, and Python's words and escapes are understood.

use serde::de::IgnoredAny;

use super::json::{push_escaped, push_string};
use super::marker::{Start, find, leading_space, start};
use super::step::Step;
use crate::limits::TOOL_HEAD_BYTES_MAX;

/// The quotes of strings. Between the first, a text stands as it is, without escapes.
const QUOTES: &[&str] = &[GEMMA_QUOTE, "\"", "'"];
pub(super) const GEMMA_QUOTE: &str = "<|\"|>";

/// The place in a value, and the brackets that are open.
#[derive(Debug)]
pub(super) struct Literal {
    open: Vec<Bracket>,
    state: State,
    /// A comma has been read, and no member after it.
    comma: bool,
}

/// What an open bracket holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bracket {
    /// `key=value` between parentheses: the arguments of a Python call.
    Call,
    /// `key:value` between braces.
    Object,
    List,
    /// A list between parentheses.
    Tuple,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Before a key, or the closing bracket.
    Key,
    /// Between a key and its value.
    Separator,
    /// Before a value or, in a list, the closing bracket.
    Value,
    /// In a string.
    Text { quote: &'static str, is_key: bool },
    /// After a value.
    After,
}

impl Literal {
    /// The arguments of a call, after their bracket. The caller writes the first brace.
    pub fn arguments(bracket: Bracket) -> Self {
        Self { open: vec![bracket], state: State::Key, comma: false }
    }

    /// A value that starts with a bracket.
    pub fn value() -> Self {
        Self { open: Vec::new(), state: State::Value, comma: false }
    }

    /// Reads a part of `text` and appends its JSON.
    pub fn step(&mut self, text: &str, json: &mut String) -> Step {
        if let State::Text { quote, is_key } = self.state {
            return self.text(text, quote, is_key, json);
        }
        let space = leading_space(text);
        if space > 0 {
            return Step::Taken(space);
        }
        let Some(byte) = text.bytes().next() else { return Step::More };
        if self.closes(byte) {
            self.comma = false;
            let bracket = self.open.pop().expect("an open bracket was compared");
            json.push(if bracket.has_keys() { '}' } else { ']' });
            return self.end_value(1);
        }
        match self.state {
            State::Key => self.key(text, json),
            State::Separator => {
                let separator = self.open.last().and_then(|bracket| bracket.separator());
                if separator != Some(byte) {
                    return Step::Broken;
                }
                json.push_str(": ");
                self.state = State::Value;
                Step::Taken(1)
            }
            State::Value => self.begin_value(text, byte, json),
            State::After if byte == b',' => {
                self.comma = true;
                self.state = match self.open.last() {
                    Some(bracket) if bracket.has_keys() => State::Key,
                    _ => State::Value,
                };
                Step::Taken(1)
            }
            State::After | State::Text { .. } => Step::Broken,
        }
    }

    /// Appends the JSON of `held`, the start of an item that was cut off.
    pub fn finish(&mut self, held: &str, json: &mut String) {
        match self.state {
            State::Text { .. } => push_escaped(json, held),
            State::Key | State::Value if !held.trim().is_empty() => {
                self.push_comma(json);
                match as_json(held.trim()) {
                    Some(value) if matches!(self.state, State::Value) => json.push_str(value),
                    _ => {
                        json.push('"');
                        push_escaped(json, held.trim_start());
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether this byte closes the innermost bracket here.
    fn closes(&self, byte: u8) -> bool {
        let Some(bracket) = self.open.last() else { return false };
        let may_close = match self.state {
            State::Key | State::After => true,
            State::Value => !bracket.has_keys(),
            State::Separator | State::Text { .. } => false,
        };
        may_close && byte == bracket.closer()
    }

    fn push_comma(&mut self, json: &mut String) {
        if std::mem::take(&mut self.comma) {
            json.push_str(", ");
        }
    }

    /// Ends a value that took `taken` bytes more.
    fn end_value(&mut self, taken: usize) -> Step {
        self.state = State::After;
        if self.open.is_empty() { Step::End(taken) } else { Step::Taken(taken) }
    }

    /// Reads a quote. Returns its step, or `None` if there is none.
    fn quote(&mut self, text: &str, is_key: bool, json: &mut String) -> Option<Step> {
        match start(text, QUOTES.iter().copied()) {
            Start::Marker(quote) => {
                self.push_comma(json);
                json.push('"');
                self.state = State::Text { quote, is_key };
                Some(Step::Taken(quote.len()))
            }
            Start::Begun => Some(Step::More),
            Start::Other => None,
        }
    }

    fn key(&mut self, text: &str, json: &mut String) -> Step {
        if let Some(step) = self.quote(text, true, json) {
            return step;
        }
        let separator = self.open.last().and_then(|bracket| bracket.separator());
        let is_end = |c: char| separator == u8::try_from(c).ok() || ",()[]{}<>\"'\n".contains(c);
        let Some(end) = text.find(is_end) else { return wait(text) };
        let key = text[..end].trim_end();
        if key.is_empty() || separator != Some(text.as_bytes()[end]) {
            return Step::Broken;
        }
        self.push_comma(json);
        push_string(json, key);
        self.state = State::Separator;
        Step::Taken(end)
    }

    fn begin_value(&mut self, text: &str, byte: u8, json: &mut String) -> Step {
        if let Some(step) = self.quote(text, false, json) {
            return step;
        }
        let bracket = match byte {
            b'{' => Some(Bracket::Object),
            b'[' => Some(Bracket::List),
            b'(' => Some(Bracket::Tuple),
            _ => None,
        };
        if let Some(bracket) = bracket {
            self.push_comma(json);
            json.push(if bracket.has_keys() { '{' } else { '[' });
            self.open.push(bracket);
            self.state = if bracket.has_keys() { State::Key } else { State::Value };
            return Step::Taken(1);
        }
        let is_end = |c: char| c.is_ascii_whitespace() || ",()[]{}<>\"'".contains(c);
        let Some(end) = text.find(is_end) else { return wait(text) };
        if end == 0 {
            return Step::Broken;
        }
        self.push_comma(json);
        match as_json(&text[..end]) {
            Some(value) => json.push_str(value),
            None => push_string(json, &text[..end]),
        }
        self.end_value(end)
    }

    /// Reads more of a string.
    fn text(&mut self, text: &str, quote: &'static str, is_key: bool, json: &mut String) -> Step {
        let (at, marker) = if quote == GEMMA_QUOTE {
            find(text, [quote].into_iter())
        } else {
            let at = text.find(['\\', quote.as_bytes()[0] as char]).unwrap_or(text.len());
            (at, text[at..].starts_with(quote).then_some(quote))
        };
        push_escaped(json, &text[..at]);
        if let Some(quote) = marker {
            json.push('"');
            let taken = at + quote.len();
            if is_key {
                self.state = State::Separator;
                return Step::Taken(taken);
            }
            return self.end_value(taken);
        }
        let escape = if quote == GEMMA_QUOTE { None } else { read_escape(&text[at..], json) };
        match at + escape.unwrap_or(0) {
            0 => Step::More,
            taken => Step::Taken(taken),
        }
    }
}

impl Bracket {
    fn has_keys(self) -> bool {
        matches!(self, Self::Call | Self::Object)
    }

    fn closer(self) -> u8 {
        match self {
            Self::Call | Self::Tuple => b')',
            Self::Object => b'}',
            Self::List => b']',
        }
    }

    fn separator(self) -> Option<u8> {
        match self {
            Self::Call => Some(b'='),
            Self::Object => Some(b':'),
            Self::List | Self::Tuple => None,
        }
    }
}

/// Waits for the end of a word that has a bound.
fn wait(text: &str) -> Step {
    if text.len() < TOOL_HEAD_BYTES_MAX { Step::More } else { Step::Broken }
}

/// A word as JSON, if it is a number, a truth value or null, in JSON or in Python.
pub(super) fn as_json(word: &str) -> Option<&str> {
    let word = match word {
        "True" => "true",
        "False" => "false",
        "None" => "null",
        word => word,
    };
    serde_json::from_str::<IgnoredAny>(word).is_ok().then_some(word)
}

/// Reads an escape of Python or JSON and appends JSON's. Returns its length, or `None` if the text
/// does not start with a whole escape.
fn read_escape(text: &str, json: &mut String) -> Option<usize> {
    let escaped = text.strip_prefix('\\')?.chars().next()?;
    let digits = match escaped {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => 0,
    };
    if digits > 0 {
        let number: String =
            text[2..].chars().take_while(char::is_ascii_hexdigit).take(digits).collect();
        if number.len() == digits {
            match escaped {
                'U' => {
                    let code = u32::from_str_radix(&number, 16).ok().and_then(char::from_u32);
                    json.push(code.unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                _ => {
                    json.push_str(if escaped == 'x' { "\\u00" } else { "\\u" });
                    json.push_str(&number);
                }
            }
            return Some(2 + digits);
        }
        if 2 + number.len() == text.len() {
            return None;
        }
    }
    match escaped {
        'n' | 't' | 'r' | 'b' | 'f' | '\\' | '"' | '/' => {
            json.push('\\');
            json.push(escaped);
        }
        '\'' => json.push('\''),
        'a' => json.push_str("\\u0007"),
        'v' => json.push_str("\\u000b"),
        '0' => json.push_str("\\u0000"),
        // A line that goes on.
        '\n' => {}
        // Python keeps the backslash of an escape that it does not know.
        _ => {
            json.push_str("\\\\");
            return Some(1);
        }
    }
    Some(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The JSON of a text, read in pieces of `size` characters, and the text that follows it.
    fn read(mut literal: Literal, text: &str, size: usize) -> (String, String) {
        let (mut json, mut held) = (String::new(), String::new());
        let mut pieces = text.split_inclusive(|_: char| true);
        loop {
            match literal.step(&held, &mut json) {
                Step::Taken(taken) => drop(held.drain(..taken)),
                Step::End(taken) => {
                    held.drain(..taken);
                    return (json, held + &pieces.collect::<String>());
                }
                Step::Broken => return (json, "broken".to_owned()),
                Step::More => {
                    let piece: String = pieces.by_ref().take(size).collect();
                    if piece.is_empty() {
                        literal.finish(&held, &mut json);
                        return (json, "more".to_owned());
                    }
                    held.push_str(&piece);
                }
            }
        }
    }

    #[test]
    fn python_and_gemma_become_json() {
        use Bracket::{Call, Object};
        let cases = [
            (Call, r#"a="x", b=3, c=True)!"#, r#"{"a": "x", "b": 3, "c": true}"#, "!"),
            (
                Call,
                r"a='it\'s \x41\u00e9\q', b=None)",
                r#"{"a": "it's \u0041\u00e9\\q", "b": null}"#,
                "",
            ),
            (Call, "a=[1, 'b', (2,), {'c': False}])", r#"{"a": [1, "b", [2], {"c": false}]}"#, ""),
            (Call, "a=\"tab\tline\n\\U0001F600\")", "{\"a\": \"tab\\tline\\n😀\"}", ""),
            (Call, ")]", "{}", "]"),
            (Call, "a = -1.5e3 , )", r#"{"a": -1.5e3}"#, ""),
            (Call, "a=Graz)", r#"{"a": "Graz"}"#, ""),
            (
                Call,
                r#"a={"b": [true, null], "c": "\"}"})"#,
                r#"{"a": {"b": [true, null], "c": "\"}"}}"#,
                "",
            ),
            (
                Object,
                r#"a:<|"|>x "y" \n }<|"|>,b:[1,<|"|>z<|"|>],c:{d:true}}"#,
                r#"{"a": "x \"y\" \\n }", "b": [1, "z"], "c": {"d": true}}"#,
                "",
            ),
            (Object, r#"<|"|>a b<|"|>: {},"c":[]}"#, r#"{"a b": {}, "c": []}"#, ""),
            // Broken and cut off.
            (Call, r#""x")"#, r#"{"x""#, "broken"),
            (Call, "a=1 b=2)", r#"{"a": 1"#, "broken"),
            (Call, "a=,", r#"{"a": "#, "broken"),
            (Object, "a}", "{", "broken"),
            (Call, "a='x", r#"{"a": "x"#, "more"),
            (Call, r"a='x\u00", r#"{"a": "x\\u00"#, "more"),
            (Object, r#"a:<|"|>x<|""#, r#"{"a": "x<|\""#, "more"),
            (Call, "a=12", r#"{"a": 12"#, "more"),
            (Call, "a=[Tru", r#"{"a": ["Tru"#, "more"),
            (Object, "a:1,key", r#"{"a": 1, "key"#, "more"),
        ];
        for (bracket, text, json, rest) in cases {
            for size in [1, 2, 3, 1000] {
                let (found, after) = read(Literal::arguments(bracket), text, size);
                assert_eq!((format!("{{{found}").as_str(), after.as_str()), (json, rest), "{text}");
            }
        }
        let (json, rest) = read(Literal::value(), "{'a': (1, 'b')}\n</parameter>", 2);
        assert_eq!((json.as_str(), rest.as_str()), (r#"{"a": [1, "b"]}"#, "\n</parameter>"));
    }
}
