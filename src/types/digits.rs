//! JSON numbers that a parser would refuse or change: `1e400`, or an integer of thirty digits.
//!
//! In: the bytes of a JSON text. Out: a copy in which each such number is a string: a mark and the
//! number as it was written. The copy is parsed, and values are kept in that form. Every place that
//! writes a kept value calls [`spelled`], every place that needs a machine's number calls [`rounded`],
//! and chat templates get the digits.
//!
//! A client may send the mark itself. A string that begins with it is a number if the rest is one,
//! and an ordinary string otherwise, so nothing but a number can be written in this way.

use std::ops::Range;

use serde_json::{Number, Value};

/// Begins the string that stands for a number. A Unicode noncharacter, which no real text has.
const MARK: char = '\u{10FFFE}';

/// Bytes by which a marked number is longer: the mark and two quotes.
const GROWTH: usize = MARK.len_utf8() + 2;

/// Numbers of up to this many bytes, without an exponent, survive: a double has 15 exact digits.
const SHORT_BYTES: usize = 15;

/// Significant digits that tell any two doubles apart.
const DOUBLE_DIGITS: usize = 17;

/// The number that a parsed string stands for, as it was written.
pub fn marked(text: &str) -> Option<&str> {
    let number = text.strip_prefix(MARK)?;
    (!number.is_empty() && number_length(number.as_bytes()) == number.len()).then_some(number)
}

/// A copy of a JSON text in which the numbers that would not survive are marked. `None` if there
/// are none. This takes one scan, in which short numbers without an exponent cost nothing. Each
/// marked number adds 6 bytes, so the copy has at most 2.5 times the bytes of the text. An invalid
/// text stays invalid.
pub fn mark(json: &[u8]) -> Option<Vec<u8>> {
    let mut found = Found { json, at: 0 };
    let first = found.next()?;
    let mut marked = Vec::with_capacity(json.len() + json.len() / 8);
    let mut copied = 0;
    for place in std::iter::once(first).chain(found) {
        marked.extend_from_slice(&json[copied..place.start]);
        marked.push(b'"');
        marked.extend_from_slice(MARK.encode_utf8(&mut [0; 4]).as_bytes());
        marked.extend_from_slice(&json[place.clone()]);
        marked.push(b'"');
        copied = place.end;
    }
    marked.extend_from_slice(&json[copied..]);
    Some(marked)
}

/// Converts an offset in the copy that [`mark`] made to one in the text itself.
pub fn unmarked_offset(json: &[u8], offset: usize) -> usize {
    let grown = (Found { json, at: 0 }).scan(0, |grown, place| {
        *grown += GROWTH;
        (place.end + *grown <= offset).then_some(*grown)
    });
    offset - grown.last().unwrap_or(0)
}

/// Parses a JSON text. Numbers that would not survive are strings with the mark.
///
/// # Errors
/// Those of serde_json.
pub fn parse(json: &str) -> Result<Value, serde_json::Error> {
    match mark(json.as_bytes()) {
        Some(marked) => serde_json::from_slice(&marked),
        None => serde_json::from_str(json),
    }
}

/// Writes the numbers in a JSON text without spaces, made of a kept value, as they were written.
pub fn spelled(json: String) -> String {
    if !json.contains(MARK) {
        return json;
    }
    let mut spelled = String::with_capacity(json.len());
    let mut rest = json.as_str();
    while let Some(at) = rest.find(MARK) {
        let (before, after) = (&rest[..at], &rest[at + MARK.len_utf8()..]);
        let (number, end) = after.split_at(number_length(after.as_bytes()));
        // An escaped quote stands inside of a string, and a name is no number.
        let begins = before.strip_suffix('"').filter(|before| !before.ends_with('\\'));
        let ends = end.strip_prefix('"').filter(|end| !end.starts_with(':'));
        match (begins, ends) {
            (Some(before), Some(end)) if !number.is_empty() => {
                spelled.push_str(before);
                spelled.push_str(number);
                rest = end;
            }
            _ => {
                spelled.push_str(&rest[..at + MARK.len_utf8()]);
                rest = after;
            }
        }
    }
    spelled.push_str(rest);
    spelled
}

/// Replaces each marked number in a value by the nearest double.
pub fn rounded(mut value: Value) -> Value {
    round(&mut value);
    value
}

fn round(value: &mut Value) {
    match value {
        Value::String(text) => {
            let Some(number) = marked(text) else { return };
            let double: f64 = number.parse().expect("JSON's numbers are Rust's, too");
            let double = Number::from_f64(double.clamp(f64::MIN, f64::MAX));
            *value = Value::Number(double.expect("it is finite"));
        }
        Value::Array(values) => values.iter_mut().for_each(round),
        Value::Object(fields) => fields.values_mut().for_each(round),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Finds the numbers in a JSON text that must be marked.
struct Found<'a> {
    json: &'a [u8],
    at: usize,
}

impl Iterator for Found<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let json = self.json;
        loop {
            let start = self.at;
            match json.get(start)? {
                b'"' => self.at = end_of_string(json, start + 1),
                b'-' | b'+' | b'.' | b'0'..=b'9' => {
                    let in_number =
                        |byte: &&u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                    self.at += json[start..].iter().take_while(in_number).count();
                    let number = &json[start..self.at];
                    if !survives(number) && !is_name(&json[self.at..]) {
                        return Some(start..self.at);
                    }
                }
                _ => self.at += 1,
            }
        }
    }
}

/// The end of a string whose text begins at `at`.
fn end_of_string(json: &[u8], mut at: usize) -> usize {
    while let Some(found) = json.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        match json[at + found] {
            b'"' => return at + found + 1,
            _ => at += found + 2,
        }
    }
    json.len()
}

/// Whether a number before `rest` stands in the place of a name. As a string, it would be a valid
/// one.
fn is_name(rest: &[u8]) -> bool {
    rest.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

/// Whether parsers keep a number's value, or refuse it because it is no JSON.
fn survives(number: &[u8]) -> bool {
    let has_exponent = || number.iter().any(|byte| matches!(byte, b'e' | b'E'));
    if number.len() <= SHORT_BYTES && !has_exponent() {
        return true;
    }
    if number_length(number) != number.len() {
        return true;
    }
    let text = str::from_utf8(number).expect("digits are ASCII");
    if !text.contains(['.', 'e', 'E']) {
        return text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok();
    }
    let Some(decimal) = Decimal::of(text) else { return false };
    let double: f64 = text.parse().expect("JSON's numbers are Rust's, too");
    if decimal.digits.is_empty() || double == 0.0 || !double.is_finite() {
        return decimal.digits.is_empty();
    }
    // Programs write doubles with the fewest digits that tell them apart, or with all of them.
    let is_same = |spelling: String| Decimal::of(&spelling).as_ref() == Some(&decimal);
    let places = DOUBLE_DIGITS - 1;
    is_same(format!("{double:e}")) || is_same(format!("{double:.places$e}"))
}

/// A number's significant digits without zeros at the end, and the exponent of the first one.
#[derive(Debug, PartialEq)]
struct Decimal {
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// `None` if there are more digits than a double has, or the exponent is too large. Zeros in the
    /// fraction count.
    fn of(number: &str) -> Option<Self> {
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let mantissa = mantissa.trim_start_matches('-');
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = || whole.bytes().chain(fraction.bytes());
        let zeros = all().take_while(|digit| *digit == b'0').count();
        let significant = whole.len() + fraction.len() - zeros;
        let written = if fraction.is_empty() { whole.trim_matches('0').len() } else { significant };
        if significant == 0 {
            return Some(Self { digits: String::new(), exponent: 0 });
        }
        if written > DOUBLE_DIGITS {
            return None;
        }
        let digits: String = all().skip(zeros).map(char::from).collect();
        let exponent = exponent.parse::<i64>().ok()?;
        let first = i64::try_from(whole.len()).ok()? - i64::try_from(zeros).ok()? - 1;
        let exponent = exponent.checked_add(first)?;
        Some(Self { digits: digits.trim_end_matches('0').to_owned(), exponent })
    }
}

/// The length of the longest JSON number that `text` begins with; 0 if there is none.
fn number_length(text: &[u8]) -> usize {
    let digits =
        |at: usize| text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count() + at;
    let start = usize::from(text.first() == Some(&b'-'));
    let mut end = match text.get(start) {
        Some(b'0') => start + 1,
        Some(b'1'..=b'9') => digits(start),
        _ => return 0,
    };
    if text.get(end) == Some(&b'.') && digits(end + 1) > end + 1 {
        end = digits(end + 1);
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        let from = end + 1 + sign;
        if from < text.len() && digits(from) > from {
            end = digits(from);
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn survive(number: &str) -> bool {
        survives(number.as_bytes())
    }

    #[test]
    fn numbers_of_machines_stay_as_they_are() {
        for number in [
            "0",
            "-0",
            "1.0",
            "1e5",
            "1E+5",
            "0e999",
            "0.1",
            "-2.5e-300",
            "1.7976931348623157e308",
            "5e-324",
            "4.9406564584124654e-324",
            "18446744073709551615",
            "-9223372036854775808",
            "9007199254740993",
            "0.10000000000000001",
            "1e300",
            "0.000000000000000000000000000001",
        ] {
            assert!(survive(number), "{number}");
        }
    }

    #[test]
    fn numbers_that_would_change_do_not_survive() {
        for number in [
            "1e400",
            "-1e400",
            "1e309",
            "1E99999999999999999999999",
            "1e-400",
            "18446744073709551616",
            "-9223372036854775809",
            "123456789012345678901234567890",
            "3.141592653589793238462643",
            "9007199254740993.0",
            "1.0000000000000000000000",
            "1.23456789e-320",
        ] {
            assert!(!survive(number), "{number}");
        }
    }

    #[test]
    fn only_valid_numbers_are_marked() {
        for text in [
            "01e400",
            "1.e400",
            "+1e400",
            "1e400e",
            "-e400",
            ".1e400",
            "1e",
            "--1e400",
            "1e+",
            r#"{"1e400": "1e400", "a\"1e400": 1}"#,
            "{1e400 : 1}",
            "\"1e400",
            "\"\\",
        ] {
            assert_eq!(mark(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_is_parsed_is_spelled_as_it_was_written() {
        let json =
            r#"{"a":[1e400,-1E-400,{"b":123456789012345678901234567890}],"c":"1e400","d":2}"#;
        let value = parse(json).unwrap();
        assert_eq!(value["a"][0].as_str().and_then(marked), Some("1e400"));
        assert_eq!(spelled(value.to_string()), json);
        let rounded = rounded(value);
        assert_eq!(rounded["a"], json!([f64::MAX, -0.0, {"b": 1.2345678901234568e29}]));
    }

    #[test]
    fn the_mark_of_a_client_is_a_number_or_a_text() {
        for text in ["", "1e", "01", "1,\"a\":2", " 1", "x\u{10FFFE}1", "\u{10FFFE}1", "1\"", "\""]
        {
            let given = format!("{MARK}{text}");
            assert_eq!(marked(&given), None, "{text}");
            let json = json!([given, {given.clone(): "\\"}]).to_string();
            assert_eq!(spelled(json.clone()), json, "{text}");
        }
        let named = json!({format!("{MARK}1"): format!("\"{MARK}1"), "a": format!("{MARK}1")});
        assert_eq!(spelled(named.to_string()), format!("{{\"{MARK}1\":\"\\\"{MARK}1\",\"a\":1}}"));
    }

    #[test]
    fn an_offset_is_that_of_the_text_itself() {
        let json = b"[1e400, 1e400 x";
        let marked = mark(json).unwrap();
        for (offset, byte) in json.iter().enumerate().filter(|(_, byte)| b"[,x".contains(byte)) {
            let moved = marked.iter().position(|other| other == byte).unwrap();
            assert_eq!(unmarked_offset(json, moved), offset);
        }
    }

    proptest! {
        #[test]
        fn any_number_passes_through(
            number in "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,40})?([eE][+-]?[0-9]{1,5})?",
        ) {
            let json = format!("[{number}]");
            let value = parse(&json).unwrap();
            let written = spelled(value.to_string());
            let same = written == json;
            let (a, b): (f64, f64) = (number.parse().unwrap(), written[1..written.len() - 1].parse().unwrap());
            prop_assert!(same || a == b && a.is_finite(), "{json} {written}");
        }

        #[test]
        fn marking_changes_no_validity(json in "[-+0-9.eE\\[\\]{}:,\" a]{0,40}") {
            if let Some(marked) = mark(json.as_bytes()) {
                let valid = |json: &[u8]| serde_json::from_slice::<serde::de::IgnoredAny>(json).is_ok();
                prop_assert_eq!(valid(json.as_bytes()), valid(&marked), "{}", json);
            }
        }

        #[test]
        fn a_text_without_long_numbers_is_not_copied(value in any::<f64>()) {
            prop_assume!(value.is_finite());
            prop_assert_eq!(mark(format!("[{value:e},{value:?}]").as_bytes()), None);
        }
    }
}
