//! The filter `tojson` of transformers: Python's `json.dumps`.
//!
//! In: a value. Out: JSON with `, ` and `: ` as separators. It escapes only the characters that
//! JSON requires, and writes floats like Python's `repr`.

use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::value::Digits;
use crate::types::GUARD;

/// Deepest nesting of JSON that a chat template writes: that of requests, and some levels that the
/// template adds.
const TEMPLATE_JSON_DEPTH_MAX: usize = 256;

/// `value | tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
pub fn tojson(
    value: &Value,
    ensure_ascii: Option<Value>,
    indent: Option<Value>,
    separators: Option<Value>,
    options: Kwargs,
) -> Result<String, Error> {
    let ensure_ascii = ensure_ascii.or(options.get("ensure_ascii")?);
    let indent = indent.or(options.get("indent")?);
    let separators = separators.or(options.get("separators")?);
    let sort_keys: Option<Value> = options.get("sort_keys")?;
    options.assert_all_used()?;

    let indent = match indent {
        Some(indent) => match indent.as_str() {
            Some(text) => Some(text.to_owned()),
            None => Some(" ".repeat(usize::from(u8::try_from(indent)?))),
        },
        None => None,
    };
    let (item, key) = match separators {
        Some(pair) => two_strings(&pair)?,
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let mut writer = Writer {
        out: String::new(),
        ensure_ascii: ensure_ascii.is_some_and(|value| value.is_true()),
        sort_keys: sort_keys.is_some_and(|value| value.is_true()),
        indent,
        item,
        key,
        depth: 0,
    };
    writer.value(value)?;
    Ok(writer.out)
}

fn two_strings(pair: &Value) -> Result<(String, String), Error> {
    let both: Vec<Value> = pair.try_iter()?.collect();
    match both.as_slice() {
        [item, key] => match (item.as_str(), key.as_str()) {
            (Some(item), Some(key)) => Ok((item.to_owned(), key.to_owned())),
            _ => Err(invalid("separators must be two strings")),
        },
        _ => Err(invalid("separators must be two strings")),
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadSerialization, message.into())
}

struct Writer {
    out: String,
    ensure_ascii: bool,
    sort_keys: bool,
    /// The indentation of one level; `None` writes everything on one line.
    indent: Option<String>,
    /// The separator of items.
    item: String,
    /// The separator of a key and its value.
    key: String,
    depth: usize,
}

impl Writer {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        if let Some(Digits(digits)) = value.downcast_object_ref() {
            self.out.push_str(digits);
            return Ok(());
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(boolean(value)),
            ValueKind::Number => self.out.push_str(&number(value)?),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                self.open('[')?;
                let mut empty = true;
                for item in value.try_iter()? {
                    self.begin(&mut empty);
                    self.value(&item)?;
                }
                self.close(']', empty);
            }
            ValueKind::Map => {
                self.open('{')?;
                let pairs = value.as_object().and_then(|object| object.try_iter_pairs());
                let mut pairs: Vec<(Value, Value)> = pairs.into_iter().flatten().collect();
                if self.sort_keys {
                    pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
                }
                let mut empty = true;
                for (key, value) in pairs {
                    self.begin(&mut empty);
                    self.key(&key)?;
                    self.out.push_str(&self.key);
                    self.value(&value)?;
                }
                self.close('}', empty);
            }
            kind => return Err(invalid(format!("{kind} is not JSON serializable"))),
        }
        Ok(())
    }

    fn key(&mut self, key: &Value) -> Result<(), Error> {
        let text = match key.kind() {
            ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
            ValueKind::Bool => boolean(key).to_owned(),
            ValueKind::None => "null".to_owned(),
            ValueKind::Number => number(key)?,
            kind => return Err(invalid(format!("{kind} cannot be a key in JSON"))),
        };
        self.string(&text);
        Ok(())
    }

    fn open(&mut self, bracket: char) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > TEMPLATE_JSON_DEPTH_MAX {
            return Err(invalid(format!(
                "more than {TEMPLATE_JSON_DEPTH_MAX} values inside of one another"
            )));
        }
        self.out.push(bracket);
        Ok(())
    }

    fn begin(&mut self, empty: &mut bool) {
        if !*empty {
            self.out.push_str(&self.item);
        }
        *empty = false;
        self.line();
    }

    fn close(&mut self, bracket: char, empty: bool) {
        self.depth -= 1;
        if !empty {
            self.line();
        }
        self.out.push(bracket);
    }

    /// Starts a new line if there is an indentation.
    fn line(&mut self) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..self.depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && c > '~' && c != GUARD) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        write!(self.out, "\\u{unit:04x}").expect("memory");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

fn boolean(value: &Value) -> &'static str {
    if value.is_true() { "true" } else { "false" }
}

fn number(value: &Value) -> Result<String, Error> {
    match value.is_integer() {
        true => Ok(value.to_string()),
        false => Ok(float(f64::try_from(value.clone())?)),
    }
}

/// Writes a float like `json.dumps`: the shortest digits that give the same number, with an
/// exponent below 1e-4 and from 1e16 on.
fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("`e` was asked for");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = value.to_string();
    if plain.contains('.') { plain } else { plain + ".0" }
}

#[cfg(test)]
mod tests {
    use minijinja::{Environment, context};

    use super::*;

    fn json(expression: &str) -> Result<String, Error> {
        let mut environment = Environment::new();
        environment.add_filter("tojson", tojson);
        let deep = (0..300).fold(Value::from(1), |inner, _| Value::from(vec![inner]));
        environment.render_str(&format!("{{{{ {expression} }}}}"), context! { deep })
    }

    #[test]
    fn floats_are_written_as_python_writes_them() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1.0 / 3.0, "0.3333333333333333"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (-2.5e100, "-2.5e+100"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn json_is_that_of_python() {
        for (expression, text) in [
            ("{'b': 1, 'a': [true, none]} | tojson", r#"{"b": 1, "a": [true, null]}"#),
            ("{'b': 1, 'a': 2} | tojson(sort_keys=true)", r#"{"a": 2, "b": 1}"#),
            ("'<>&\\'\"é\\n\\x01\\x7f' | tojson", "\"<>&'\\\"é\\n\\u0001\u{7f}\""),
            ("'é😀\\x7f' | tojson(ensure_ascii=true)", r#""\u00e9\ud83d\ude00\u007f""#),
            ("'é' | tojson(true)", r#""\u00e9""#),
            ("[1, {}] | tojson(separators=(',', ':'))", "[1,{}]"),
            (
                "{'a': [1, []], 'b': {}} | tojson(indent=2)",
                "{\n  \"a\": [\n    1,\n    []\n  ],\n  \"b\": {}\n}",
            ),
            ("[1] | tojson(indent='\\t')", "[\n\t1\n]"),
            ("{1: 2, none: 3} | tojson", r#"{"1": 2, "null": 3}"#),
            ("18446744073709551615 | tojson", "18446744073709551615"),
        ] {
            assert_eq!(json(expression).unwrap(), text, "{expression}");
        }
    }

    #[test]
    fn what_python_refuses_is_refused() {
        for expression in ["nothing | tojson", "1 | tojson(unknown=1)", "deep | tojson"] {
            assert!(json(expression).is_err(), "{expression}");
        }
    }
}
