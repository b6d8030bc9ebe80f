//! Checks the values of keywords: types and bounds.

use serde_json::{Map, Value};

use crate::constraint::error::{ConstraintError, wrong_keyword};
use crate::limits::{SCHEMA_COUNT_MAX, SCHEMA_PROPERTIES_MAX, SCHEMA_VALUES_MAX};

/// The names of types.
const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// Above this number, a double cannot represent every integer.
const NUMBER_MAX: f64 = (1u64 << 53) as f64;

/// The largest `multipleOf`, in units of its last digit; llguidance computes in 32 bits.
const MULTIPLE_MAX: f64 = 65_535.0;

pub(super) fn object<'a>(
    at: &str,
    keyword: &str,
    value: &'a Value,
) -> Result<&'a Map<String, Value>, ConstraintError> {
    value.as_object().ok_or_else(|| wrong_keyword(at, keyword, "must be an object"))
}

pub(super) fn check_types(at: &str, value: &Value) -> Result<(), ConstraintError> {
    let names = match value {
        Value::Array(names) if !names.is_empty() && names.len() <= TYPES.len() => &names[..],
        one => std::slice::from_ref(one),
    };
    let known = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    if names.iter().all(known) {
        return Ok(());
    }
    Err(wrong_keyword(at, "type", format!("must be one or more of {}", TYPES.join(", "))))
}

pub(super) fn check_enum(at: &str, value: &Value) -> Result<(), ConstraintError> {
    let values = value.as_array().filter(|values| !values.is_empty());
    let values = values.ok_or_else(|| wrong_keyword(at, "enum", "must be a list of values"))?;
    if values.len() > SCHEMA_VALUES_MAX {
        let what = format!("has {} values; it may have {SCHEMA_VALUES_MAX}", values.len());
        return Err(wrong_keyword(at, "enum", what));
    }
    values.iter().try_for_each(|value| check_literal(at, "enum", value))
}

/// Checks a value of `const` or `enum`.
pub(super) fn check_literal(at: &str, keyword: &str, value: &Value) -> Result<(), ConstraintError> {
    match value {
        Value::Null | Value::Bool(_) => Ok(()),
        Value::Number(_) => check_number(at, keyword, value).map(|_| ()),
        Value::String(text) => match text.chars().find(|c| !can_be_written(*c)) {
            None => Ok(()),
            Some(c) => {
                let code = u32::from(c);
                Err(wrong_keyword(
                    at,
                    keyword,
                    format!("has the control character U+{code:04X} in it"),
                ))
            }
        },
        Value::Array(values) => values.iter().try_for_each(|v| check_literal(at, keyword, v)),
        Value::Object(map) => map.values().try_for_each(|v| check_literal(at, keyword, v)),
    }
}

/// Whether a character can be written in JSON without `\uXXXX`, which the layout does not allow.
fn can_be_written(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\t' | '\u{8}' | '\u{c}') || !c.is_ascii_control()
}

pub(super) fn check_names(at: &str, keyword: &str, value: &Value) -> Result<(), ConstraintError> {
    let names =
        value.as_array().ok_or_else(|| wrong_keyword(at, keyword, "must be a list of names"))?;
    if names.len() > SCHEMA_PROPERTIES_MAX {
        let what = format!("has {} names; it may have {SCHEMA_PROPERTIES_MAX}", names.len());
        return Err(wrong_keyword(at, keyword, what));
    }
    for (index, name) in names.iter().enumerate() {
        if !name.is_string() || names[..index].contains(name) {
            return Err(wrong_keyword(at, keyword, "must be a list of different names"));
        }
    }
    Ok(())
}

/// Checks a lower bound on a count.
pub(super) fn check_least(at: &str, keyword: &str, value: &Value) -> Result<(), ConstraintError> {
    let count = count(at, keyword, value)?;
    if count > SCHEMA_COUNT_MAX {
        return Err(wrong_keyword(
            at,
            keyword,
            format!("is {count}; it may be {SCHEMA_COUNT_MAX}"),
        ));
    }
    Ok(())
}

/// Checks an upper bound on a count. Returns false if no output can reach it.
pub(super) fn check_most(at: &str, keyword: &str, value: &Value) -> Result<bool, ConstraintError> {
    Ok(count(at, keyword, value)? <= SCHEMA_COUNT_MAX)
}

fn count(at: &str, keyword: &str, value: &Value) -> Result<u64, ConstraintError> {
    value
        .as_u64()
        .ok_or_else(|| wrong_keyword(at, keyword, "must be an integer that is not negative"))
}

pub(super) fn check_number(at: &str, keyword: &str, value: &Value) -> Result<f64, ConstraintError> {
    let number = value.as_f64().ok_or_else(|| wrong_keyword(at, keyword, "must be a number"))?;
    if number.abs() >= NUMBER_MAX {
        return Err(wrong_keyword(
            at,
            keyword,
            format!("must be between -{NUMBER_MAX} and {NUMBER_MAX}"),
        ));
    }
    Ok(number)
}

pub(super) fn check_multiple(at: &str, value: &Value) -> Result<(), ConstraintError> {
    let number = check_number(at, "multipleOf", value)?;
    // Counts decimals in the number's text, because 0.01 as a double is not exactly a hundredth.
    let text = number.to_string();
    let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let units = number * 10f64.powi(decimals as i32);
    if number > 0.0 && decimals <= 2 && units <= MULTIPLE_MAX {
        return Ok(());
    }
    let what = format!("must be positive, with at most 2 decimals, and {MULTIPLE_MAX} at most");
    Err(wrong_keyword(at, "multipleOf", what))
}
