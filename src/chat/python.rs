//! The parts of Python that chat templates use: methods of strings, lists and dicts, slices, and
//! the filters and tests in which minijinja differs.
//!
//! Most methods come from `minijinja-contrib`. This module has those that it lacks, and those that
//! differ from Python's there.

use std::borrow::Cow;

use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::tojson::tojson;
use super::value::Digits;

/// The method that `translate` writes for a slice: `(start, stop, step)`. Each argument may be
/// none, or absent at the end.
pub const SLICE: &str = "_slice";

/// Installs all methods, filters and tests of this module.
pub fn install(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(call_method);
    environment.add_filter("tojson", tojson);
    environment.add_filter("trim", trim);
    environment.add_test("number", is_number);
    environment.add_test("integer", is_integer);
    environment.add_test("float", is_float);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
}

fn call_method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if method == SLICE {
        return slice(value, args);
    }
    let found = match (value.kind(), value.as_str()) {
        (ValueKind::String, Some(text)) => string_method(text, method, args)?,
        (ValueKind::Map, _) if method == "items" => Some(items(value, args)?),
        _ => None,
    };
    found.map_or_else(|| pycompat::unknown_method_callback(state, value, method, args), Ok)
}

/// Jinja's `number`, also for a number that only its text can hold.
fn is_number(value: &Value) -> bool {
    minijinja::tests::is_number(value) || digits(value).is_some()
}

fn is_integer(value: &Value) -> bool {
    value.is_integer() || digits(value).is_some_and(Digits::is_integer)
}

fn is_float(value: &Value) -> bool {
    minijinja::tests::is_float(value) || digits(value).is_some_and(|digits| !digits.is_integer())
}

fn digits(value: &Value) -> Option<&Digits> {
    value.downcast_object_ref()
}

/// Jinja's `iterable`. minijinja also iterates over `none`; Python does not.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Jinja's `sequence`: a value with a length and an index, including a dict.
fn is_sequence(value: &Value) -> bool {
    use ValueKind::{Iterable, Map, Seq, String, Undefined};
    matches!(value.kind(), Undefined | String | Seq | Iterable | Map)
}

fn trim(value: Cow<'_, str>, chars: Option<Cow<'_, str>>) -> String {
    stripped(&value, chars.as_deref(), true, true).to_owned()
}

/// Calls a method of `str`. `None` leaves the method to `pycompat`.
fn string_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let found = match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            Value::from(stripped(text, chars, method != "rstrip", method != "lstrip"))
        }
        "split" | "rsplit" => {
            let (separator, limit, options): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
            let separator = separator.or(options.get("sep")?);
            let limit = limit.or(options.get("maxsplit")?).unwrap_or(-1);
            options.assert_all_used()?;
            split(text, separator, limit, method == "rsplit")?.into_iter().collect()
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            not_empty(separator)?;
            let parts = match method {
                "partition" => text.split_once(separator).map(|(a, b)| [a, separator, b]),
                _ => text.rsplit_once(separator).map(|(a, b)| [a, separator, b]),
            };
            let whole = if method == "partition" { [text, "", ""] } else { ["", "", text] };
            Value::from(Tuple::from(parts.unwrap_or(whole).map(Value::from)))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "index" | "rindex" => {
            let (what,): (&str,) = from_args(args)?;
            let at = if method == "index" { text.find(what) } else { text.rfind(what) };
            let at = at.ok_or_else(|| invalid("substring not found"))?;
            Value::from(text[..at].chars().count())
        }
        "title" => {
            let () = from_args(args)?;
            Value::from(title(text))
        }
        "isdecimal" => {
            let () = from_args(args)?;
            Value::from(!text.is_empty() && text.chars().all(char::is_numeric))
        }
        "isspace" => {
            let () = from_args(args)?;
            Value::from(!text.is_empty() && text.chars().all(is_space))
        }
        _ => return Ok(None),
    };
    Ok(Some(found))
}

/// `dict.items`: a list, which has a length; `pycompat` returns an iterator.
fn items(dict: &Value, args: &[Value]) -> Result<Value, Error> {
    let () = from_args(args)?;
    let pairs = dict.as_object().and_then(|object| object.try_iter_pairs());
    let pairs = pairs.into_iter().flatten();
    Ok(pairs.map(|(key, value)| Value::from(Tuple::from([key, value]))).collect())
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn not_empty(separator: &str) -> Result<(), Error> {
    if separator.is_empty() { Err(invalid("empty separator")) } else { Ok(()) }
}

/// Whether `str.isspace` accepts a character. Rust does not count four separators as spaces.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn stripped<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let goes = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if left { text.trim_start_matches(goes) } else { text };
    if right { text.trim_end_matches(goes) } else { text }
}

/// `str.split`, or `rsplit` from the right. A negative limit means no limit.
fn split<'a>(
    text: &'a str,
    separator: Option<&str>,
    limit: i64,
    from_right: bool,
) -> Result<Vec<&'a str>, Error> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let pieces = limit.saturating_add(1);
    let Some(separator) = separator else {
        return match from_right && limit < usize::MAX {
            true => Err(invalid("rsplit with maxsplit needs a separator")),
            false => Ok(split_at_spaces(text, limit)),
        };
    };
    not_empty(separator)?;
    if !from_right {
        return Ok(text.splitn(pieces, separator).collect());
    }
    let mut found: Vec<&str> = text.rsplitn(pieces, separator).collect();
    found.reverse();
    Ok(found)
}

/// Splits into words. After `limit` words, the rest is one piece.
fn split_at_spaces(text: &str, limit: usize) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let end = if words.len() == limit { None } else { rest.find(is_space) };
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        words.push(word);
        rest = after.trim_start_matches(is_space);
    }
    words
}

/// `str.title`: a letter is upper case if no letter precedes it.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_word = false;
    for c in text.chars() {
        if in_word {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        in_word = c.is_lowercase() || c.is_uppercase();
    }
    out
}

/// `value[start:stop:step]`: a list, a tuple or a string. As in Jinja2, undefined for other types.
fn slice(value: &Value, args: &[Value]) -> Result<Value, Error> {
    let (start, stop, step): (Option<i64>, Option<i64>, Option<i64>) = from_args(args)?;
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(invalid("slice step cannot be zero"));
    }
    match (value.kind(), value.as_str()) {
        (ValueKind::String, Some(text)) if step == 1 && text.is_ascii() => {
            // In ASCII text, a byte is a character: index it directly.
            let mut places = places(start, stop, step, text.len());
            let Some(first) = places.next() else { return Ok(Value::from("")) };
            let last = places.last().unwrap_or(first);
            Ok(Value::from(&text[first..=last]))
        }
        (ValueKind::String, Some(text)) => {
            let chars: Vec<char> = text.chars().collect();
            let sliced = places(start, stop, step, chars.len()).map(|at| chars[at]);
            Ok(Value::from(sliced.collect::<String>()))
        }
        (ValueKind::Seq | ValueKind::Iterable, _) => {
            let items: Vec<Value> = value.try_iter()?.collect();
            let sliced = places(start, stop, step, items.len()).map(|at| items[at].clone());
            Ok(match value.is_tuple() {
                true => Value::from(Tuple::new(sliced.collect())),
                false => sliced.collect(),
            })
        }
        (ValueKind::Undefined, _) => {
            Err(Error::new(ErrorKind::UndefinedError, "an undefined value has no slices"))
        }
        _ => Ok(Value::UNDEFINED),
    }
}

/// The indices that `[start:stop:step]` takes of `length` items. All are below `length`; `step` is
/// not 0. Follows CPython's `PySlice_AdjustIndices`.
fn places(
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
    length: usize,
) -> impl Iterator<Item = usize> {
    let length = i64::try_from(length).expect("no list has 2^63 items");
    let backwards = step < 0;
    // Going backwards, -1 is the position before the first item.
    let (lowest, highest) = if backwards { (-1, length - 1) } else { (0, length) };
    let place = |given: i64| {
        if given < 0 { (given + length).max(lowest) } else { given.min(highest) }
    };
    let (first, last) = if backwards { (highest, lowest) } else { (lowest, highest) };
    let (start, stop) = (start.map_or(first, place), stop.map_or(last, place));
    let way = if backwards { start - stop } else { stop - start };
    let count = way.max(0).cast_unsigned().div_ceil(step.unsigned_abs());
    // `count` keeps every index below `length`.
    (0..count.cast_signed()).map(move |index| (start + index * step) as usize)
}

#[cfg(test)]
mod tests {
    use super::super::translate::translate;
    use super::*;

    fn all(source: &str) -> String {
        let mut environment = Environment::new();
        install(&mut environment);
        environment.render_str(&translate(source), ()).unwrap()
    }

    #[test]
    fn places_are_those_of_python() {
        let places =
            |start, stop, step, length| places(start, stop, step, length).collect::<Vec<_>>();
        assert_eq!(places(None, None, 1, 3), [0, 1, 2]);
        assert_eq!(places(None, None, -1, 3), [2, 1, 0]);
        assert_eq!(places(None, Some(0), -1, 3), [2, 1]);
        assert_eq!(places(Some(1), None, 2, 6), [1, 3, 5]);
        assert_eq!(places(Some(-2), Some(9), 1, 3), [1, 2]);
        assert_eq!(places(Some(5), Some(-3), -2, 5), [4]);
        assert_eq!(places(Some(2), Some(1), 1, 5), [0; 0]);
        for step in [1, -1, 5, i64::MIN, i64::MAX] {
            assert_eq!(places(None, None, step, 0), [0; 0]);
            assert_eq!(places(Some(i64::MIN), Some(i64::MIN), step, 2), [0; 0]);
            assert!(places(Some(i64::MAX), Some(i64::MIN), step, 2).iter().all(|at| *at < 2));
        }
    }

    #[test]
    fn slices_are_lists_tuples_and_strings_again() {
        assert_eq!(all("{{ [1, 2, 3][1:] }}{{ [1, 2, 3][1:][-1] }}{{ [][::-1] }}"), "[2, 3]3[]");
        assert_eq!(all("{{ (1, 2, 3)[:1] }}{{ range(9)[2:8:3] }}"), "(1,)[2, 5]");
        assert_eq!(all("{{ 'abc'[1:] }}{{ 'abc'[2:1] }}{{ ''[1:] }}{{ 'äbc'[::-1] }}"), "bccbä");
        assert_eq!(all("{{ 'abc'[:9] }}{{ 'abc'[-9:1] }}{{ 'abc'[:-1] }}"), "abcaab");
        assert_eq!(all("{{ none[1:] is undefined }}{{ {'a': 1}[1:] is undefined }}"), "TrueTrue");
    }

    #[test]
    fn strings_split_as_in_python() {
        assert_eq!(
            all("{{ ' a  b c '.split() }}{{ ' a  b c '.split(none, 1) }}"),
            "['a', 'b', 'c']['a', 'b c ']"
        );
        assert_eq!(
            all("{{ 'a-b-c'.split('-', maxsplit=1) }}{{ ''.split('-') }}"),
            "['a', 'b-c']['']"
        );
        assert_eq!(all("{{ 'a-b-c'.rsplit('-', 1) }}{{ ''.split() }}"), "['a-b', 'c'][]");
        assert_eq!(
            all("{{ 'a=b=c'.partition('=') }}{{ 'a'.rpartition('=') }}"),
            "('a', '=', 'b=c')('', '', 'a')"
        );
    }

    #[test]
    fn searching_counts_characters_and_ends() {
        assert_eq!(all("{{ 'äöx'.find('x') }}{{ 'x'.find('y') }}{{ 'äxx'.rfind('x') }}"), "2-12");
        assert_eq!(all("{{ 'aaa'.count('a') }}{{ 'ab'.count('') }}{{ ''.count('') }}"), "331");
    }

    #[test]
    fn classes_hold_for_no_empty_string() {
        assert_eq!(
            all("{{ ''.isdigit() }}{{ '1'.isdigit() }}{{ 'A1'.isupper() }}{{ '1'.islower() }}"),
            "FalseTrueTrueFalse"
        );
    }

    #[test]
    fn methods_of_a_dict_are_not_hidden_by_its_keys() {
        assert_eq!(all("{{ {'items': 1}.items() }}{{ {'get': 1}.get('get') }}"), "[('items', 1)]1");
        assert_eq!(
            all("{{ {}.get('a', 'b') }}{{ {}.get('a') }}{{ {'a': none}.get('a', 1) }}"),
            "bNoneNone"
        );
    }

    #[test]
    fn none_cannot_be_walked_through_and_strings_can() {
        assert_eq!(
            all("{{ none is iterable }}{{ 'a' is iterable }}{{ [] is iterable }}"),
            "FalseTrueTrue"
        );
        assert_eq!(
            all("{{ 'a' is sequence }}{{ {} is sequence }}{{ 1 is sequence }}"),
            "TrueTrueFalse"
        );
    }

    #[test]
    fn whitespace_is_what_python_takes_for_it() {
        assert_eq!(all("[{{ '\\x1f\\u3000 a\\n'.strip() }}][{{ ' a\\x1c' | trim }}]"), "[a][a]");
        assert_eq!(all("{{ \"they're o'neill\".title() }}"), "They'Re O'Neill");
    }
}
