//! Reads a JSON body into typed fields. Errors name the field, its value and the accepted values.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use super::error::ApiError;
use super::value::{Object, Value};
use crate::limits::JSON_MARKS_MAX;
use crate::types::digits;

/// Deepest nesting of JSON in a request's values: schemas, tools, arguments.
const JSON_DEPTH_MAX: usize = 64;

/// Fields of one object in a request.
const FIELDS_MAX: usize = 1024;

/// Longest string and number that an error shows.
const SHOWN_BYTES_MAX: usize = 40;

/// Bodies up to this size are copied before simd-json parses them. simd-json rewrites strings in
/// place, so only the copy can tell the exact byte of an error.
const EXACT_ERROR_BYTES_MAX: usize = 64 * 1024;

/// Parses `body` and passes its fields to `read`.
///
/// # Errors
/// 400 if the body is not JSON (with the byte offset), is not an object, or if `read` fails.
pub fn read_object<T>(
    body: &mut [u8],
    read: impl FnOnce(&Fields<'_, '_>) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    // Some editors and scripts begin a file with a byte order mark.
    let body = match body {
        [0xef, 0xbb, 0xbf, rest @ ..] => rest,
        body => body,
    };
    let marks = body.iter().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
    if marks > JSON_MARKS_MAX {
        return Err(ApiError::invalid(format!(
            "the body has {marks} commas, colons and opening brackets; it may have {JSON_MARKS_MAX}"
        )));
    }
    let Some(mut marked) = digits::mark(body) else { return read_marked(body, &|at| at, read) };
    read_marked(&mut marked, &|at| digits::unmarked_offset(body, at), read)
}

/// Reads a body that has only numbers that simd-json keeps. `offset_of` converts an offset in it to
/// one in the client's body.
fn read_marked<T>(
    body: &mut [u8],
    offset_of: &dyn Fn(usize) -> usize,
    read: impl FnOnce(&Fields<'_, '_>) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    let copy = (body.len() <= EXACT_ERROR_BYTES_MAX).then(|| body.to_vec());
    let tape = match simd_json::to_tape(body) {
        Ok(tape) => tape,
        Err(error) => return Err(syntax_error(&error, copy.as_deref(), offset_of)),
    };
    let value = Value::new(tape.as_value());
    let Some(object) = value.as_object() else {
        let kind = kind_of(&value);
        return Err(ApiError::invalid(format!("the body must be a JSON object, not {kind}")));
    };
    read(&Fields::new(object)?)
}

fn syntax_error(
    error: &simd_json::Error,
    copy: Option<&[u8]>,
    offset_of: &dyn Fn(usize) -> usize,
) -> ApiError {
    let exact = copy.and_then(|body| {
        let exact = serde_json::from_slice::<serde_json::Value>(body).err()?;
        let lines_before = body.split_inclusive(|byte| *byte == b'\n').take(exact.line() - 1);
        let offset = lines_before.map(<[u8]>::len).sum::<usize>() + exact.column();
        let reason = exact.to_string();
        let reason = reason.split(" at line ").next().unwrap_or_default().to_owned();
        // serde_json counts bytes from 1. It stops at the wrong byte, or at the end.
        let offset = if exact.is_eof() { body.len() } else { offset.saturating_sub(1) };
        Some((offset.min(body.len()), reason))
    });
    let (offset, reason) = exact.unwrap_or_else(|| (error.index(), format!("{:?}", error.error())));
    let offset = offset_of(offset);
    ApiError::invalid(format!("the body is not valid JSON: {reason} at byte {offset}"))
}

#[cfg(test)]
thread_local! {
    /// The field names read so far. A test compares them with `openapi.json`.
    pub(crate) static ASKED: std::cell::RefCell<std::collections::BTreeSet<&'static str>> =
        std::cell::RefCell::default();
}

/// The fields of a request. Unknown fields are ignored; `null` means absent.
pub struct Fields<'tape, 'input> {
    object: Object<'tape, 'input>,
}

impl<'tape, 'input> Fields<'tape, 'input> {
    /// Bounds the number of fields: every lookup scans all of them.
    pub(super) fn new(object: Object<'tape, 'input>) -> Result<Self, ApiError> {
        if object.len() > FIELDS_MAX {
            let message =
                format!("an object has {} fields; it may have {FIELDS_MAX}", object.len());
            return Err(ApiError::invalid(message));
        }
        Ok(Self { object })
    }

    /// The value of a field, unless it is absent or `null`.
    ///
    /// # Errors
    /// 400 if the field is given twice.
    pub fn get(&self, name: &'static str) -> Result<Option<Value<'tape, 'input>>, ApiError> {
        #[cfg(test)]
        ASKED.with_borrow_mut(|asked| asked.insert(name));
        self.find(name)
    }

    /// Like [`Fields::get`], but does not count as reading the field: for fields that are only
    /// refused.
    ///
    /// # Errors
    /// 400 if the field is given twice.
    pub(super) fn find(
        &self,
        name: &'static str,
    ) -> Result<Option<Value<'tape, 'input>>, ApiError> {
        let mut found = None;
        for (key, value) in self.object.iter() {
            if key == name && found.replace(value).is_some() {
                return Err(ApiError::field(name, format!("{name} is given twice")));
            }
        }
        Ok(found.filter(|value| !value.is_null()))
    }

    /// A number within `range`.
    pub fn number(
        &self,
        name: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.get(name)? else { return Ok(None) };
        match value.cast_f64() {
            Some(number) if number.is_finite() && range.contains(&number) => Ok(Some(number)),
            _ => {
                let (low, high) = (range.start(), range.end());
                Err(wrong(name, &format!("a number from {low} to {high}"), &value))
            }
        }
    }

    /// A whole number within `range`.
    pub fn integer(
        &self,
        name: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name)? else { return Ok(None) };
        // Some clients write every number as a float: 5.0.
        let whole = value.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9e15).map(|f| f as i64);
        match value.as_i64().or(whole) {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => {
                let (low, high) = (range.start(), range.end());
                Err(wrong(name, &format!("a whole number from {low} to {high}"), &value))
            }
        }
    }

    /// `true` or `false`.
    pub fn boolean(&self, name: &'static str) -> Result<Option<bool>, ApiError> {
        let Some(value) = self.get(name)? else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| wrong(name, "true or false", &value))
    }

    /// A string.
    pub fn string(&self, name: &'static str) -> Result<Option<String>, ApiError> {
        let Some(value) = self.get(name)? else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| wrong(name, "a string", &value))?;
        Ok(Some(text.to_owned()))
    }

    /// An object.
    pub fn object(&self, name: &'static str) -> Result<Option<Fields<'tape, 'input>>, ApiError> {
        let Some(value) = self.get(name)? else { return Ok(None) };
        let object = value.as_object().ok_or_else(|| wrong(name, "an object", &value))?;
        Fields::new(object).map(Some)
    }
}

/// Refuses these fields, unless they have their harmless value.
pub fn refuse(
    fields: &Fields<'_, '_>,
    unsupported: &[(&'static str, &str)],
) -> Result<(), ApiError> {
    for (name, harmless) in unsupported {
        let Some(value) = fields.find(name)? else { continue };
        let given = value.encode();
        // Compare numbers by value: 1.0 equals 1.
        let same_number = value.cast_f64().is_some_and(|n| harmless.parse() == Ok(n));
        if given != *harmless && !same_number {
            let message = format!("{name} is not supported here");
            return Err(ApiError::unsupported(name, message));
        }
    }
    Ok(())
}

/// The objects of an array.
///
/// # Errors
/// 400 if it is not an array of objects, or has more than `most` elements.
pub fn objects<'tape, 'input>(
    name: &'static str,
    value: &Value<'tape, 'input>,
    most: usize,
) -> Result<Vec<Fields<'tape, 'input>>, ApiError> {
    let array = value.as_array().ok_or_else(|| wrong(name, "an array of objects", value))?;
    if array.len() > most {
        let message = format!("{name} has {} elements; it may have {most}", array.len());
        return Err(ApiError::field(name, message));
    }
    let object = |element: Value<'tape, 'input>| match element.as_object() {
        Some(object) => Fields::new(object),
        None => Err(wrong(name, "an array of objects", &element)),
    };
    array.iter().map(object).collect()
}

/// Copies a value out of the body, with its fields in their order. A number that only its text can
/// hold is kept as a marked string: see [`digits`].
///
/// # Errors
/// 400 if it is nested deeper than `JSON_DEPTH_MAX`.
pub fn keep(name: &'static str, value: &Value<'_, '_>) -> Result<serde_json::Value, ApiError> {
    keep_at(value, 0).ok_or_else(|| {
        ApiError::field(name, format!("{name} nests deeper than {JSON_DEPTH_MAX} levels"))
    })
}

fn keep_at(value: &Value<'_, '_>, depth: usize) -> Option<serde_json::Value> {
    if depth > JSON_DEPTH_MAX {
        return None;
    }
    if let Some(array) = value.as_array() {
        return array.iter().map(|element| keep_at(&element, depth + 1)).collect();
    }
    if let Some(object) = value.as_object() {
        let field = |(key, value): (&str, Value<'_, '_>)| {
            Some((key.to_owned(), keep_at(&value, depth + 1)?))
        };
        return object.iter().map(field).collect::<Option<_>>().map(serde_json::Value::Object);
    }
    Some(match (value.raw_str(), value.as_i64(), value.as_u64(), value.as_f64()) {
        (Some(text), ..) => text.into(),
        (_, Some(number), ..) => number.into(),
        (_, _, Some(number), _) => number.into(),
        (_, _, _, Some(number)) => number.into(),
        _ => value.as_bool().map_or(serde_json::Value::Null, Into::into),
    })
}

/// An error of the form "`name` must be X, not Y".
pub fn wrong(name: &'static str, expected: &str, value: &Value<'_, '_>) -> ApiError {
    ApiError::field(name, format!("{name} must be {expected}, not {}", kind_of(value)))
}

/// Describes a value for an error message.
pub fn kind_of(value: &Value<'_, '_>) -> Cow<'static, str> {
    if value.is_number() {
        return number_of(value).into();
    }
    match value.as_str() {
        Some(text) if text.len() <= SHOWN_BYTES_MAX => format!("the string {text:?}").into(),
        Some(text) => format!("a string of {} bytes", text.len()).into(),
        None if value.is_null() => "null".into(),
        None if value.is_bool() => value.as_bool().unwrap_or_default().to_string().into(),
        None if value.is_array() => "an array".into(),
        None => "an object".into(),
    }
}

/// A number as the client wrote it, or with its value.
fn number_of(value: &Value<'_, '_>) -> String {
    match (value.digits(), value.as_i64(), value.as_u64()) {
        (Some(digits), ..) if digits.len() <= SHOWN_BYTES_MAX => digits.to_owned(),
        (Some(digits), ..) => format!("a number of {} bytes", digits.len()),
        (_, Some(number), _) => number.to_string(),
        (_, _, Some(number)) => number.to_string(),
        _ => {
            let number = value.cast_f64().unwrap_or_default();
            let is_plain = number == 0.0 || (1e-6..1e16).contains(&number.abs());
            if is_plain { number.to_string() } else { format!("{number:e}") }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &str) -> String {
        let mut body = body.as_bytes().to_vec();
        let error = read_object(&mut body, |_| Ok(())).expect_err("not an object");
        assert_eq!(error.status, 400);
        error.message
    }

    #[test]
    fn a_body_of_many_marks_is_not_parsed() {
        for (marks, count) in [(",", 1), ("[", 1), ("{:", 2)] {
            let mut body = marks.repeat(JSON_MARKS_MAX / count + 1).into_bytes();
            let error = read_object(&mut body, |_| Ok(())).unwrap_err();
            assert!(error.message.contains("it may have 1048576"), "{}", error.message);
        }
    }

    #[test]
    fn a_syntax_error_names_its_byte() {
        assert_eq!(message(r#"{"a": 1,}"#), "the body is not valid JSON: trailing comma at byte 8");
        assert_eq!(
            message("{\"a\":\n \"\\q\"}"),
            "the body is not valid JSON: invalid escape at byte 9"
        );
        assert!(message("").ends_with("EOF while parsing a value at byte 0"));
        assert!(
            message(&format!("{{\"a\": \"{}\" x", "y".repeat(100_000))).contains("at byte 1000")
        );
        assert!(message(&"[".repeat(1_000_000)).contains("at byte"));
        assert_eq!(message("[1]"), "the body must be a JSON object, not an array");
    }

    const LONG: &str = "123456789012345678901234567890";

    #[test]
    fn an_error_beside_long_numbers_names_its_byte() {
        let body = format!(r#"{{"a": [1e400, {LONG}], "b": 1,}}"#);
        let at = body.len() - 1;
        assert_eq!(
            message(&body),
            format!("the body is not valid JSON: trailing comma at byte {at}")
        );
        let long = format!(r#"{{"a": 1e400, "b": "{}" x"#, "y".repeat(100_000));
        assert!(
            message(&long).ends_with(&format!("at byte {}", long.len() - 1)),
            "{}",
            message(&long)
        );
        for number in ["01e400", "1.e400", "+1e400", "1e", "1e400x"] {
            assert!(
                message(&format!("{{\"a\": {number}}}")).contains("is not valid JSON"),
                "{number}"
            );
        }
        assert!(message("{1e400: 1}").contains("is not valid JSON"));
        assert_eq!(message("1e400"), "the body must be a JSON object, not 1e400");
    }

    #[test]
    fn a_number_of_any_length_is_kept_and_shown_as_it_was_written() {
        let json = format!(r#"{{"a":[1e400,{LONG},"x"],"b":-0.1234567890123456789,"c":1.5}}"#);
        let mut body =
            format!(r#"{{"unknown": 1e400, "v": {json}, "n": {LONG}, "t": 1e400}}"#).into_bytes();
        read_object(&mut body, |fields| {
            let value = fields.get("v")?.unwrap();
            assert_eq!(digits::spelled(keep("v", &value)?.to_string()), json);
            let error = fields.integer("n", 0..=9).unwrap_err();
            assert_eq!(error.message, format!("n must be a whole number from 0 to 9, not {LONG}"));
            let error = fields.number("t", 0.0..=2.0).unwrap_err();
            assert_eq!(error.message, "t must be a number from 0 to 2, not 1e400");
            let error = fields.string("t").unwrap_err();
            assert_eq!(error.message, "t must be a string, not 1e400");
            assert!(fields.object("n").is_err());
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn a_number_with_many_digits_is_rounded_where_it_is_read() {
        let mut body = br#"{"t": 0.7000000000000000000001, "n": 5.000000000000000000000,
            "e": 1e300, "u": 18446744073709551615}"#
            .to_vec();
        read_object(&mut body, |fields| {
            assert_eq!(fields.number("t", 0.0..=2.0)?, Some(0.7));
            assert_eq!(fields.integer("n", 0..=9)?, Some(5));
            assert!(fields.number("e", 0.0..=2.0).unwrap_err().message.ends_with("not 1e300"));
            let error = fields.integer("u", 0..=9).unwrap_err();
            assert!(error.message.ends_with("not 18446744073709551615"), "{}", error.message);
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn wrong_fields_say_what_would_be_right() {
        let mut body =
            br#"{"t": "hot", "n": 5.0, "m": 2.5, "b": 1, "d": 1, "d": 2, "z": null}"#.to_vec();
        read_object(&mut body, |fields| {
            let error = fields.number("t", 0.0..=2.0).unwrap_err();
            assert_eq!(error.message, "t must be a number from 0 to 2, not the string \"hot\"");
            assert_eq!(error.param, Some("t"));
            assert_eq!(fields.integer("n", 0..=9).unwrap(), Some(5));
            let error = fields.integer("n", 6..=9).unwrap_err();
            assert_eq!(error.message, "n must be a whole number from 6 to 9, not 5");
            assert!(fields.integer("m", 0..=9).is_err());
            assert_eq!(fields.boolean("b").unwrap_err().message, "b must be true or false, not 1");
            assert_eq!(fields.get("d").unwrap_err().message, "d is given twice");
            assert_eq!(fields.string("z").unwrap(), None);
            Ok(())
        })
        .unwrap();
    }
}
