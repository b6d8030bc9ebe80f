//! Writes values as JSON and as events. Nothing here allocates, besides the growth of the output.

use std::fmt::Display;
use std::io::{self, Write as _};

use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;

/// Appends a value as JSON.
pub fn push_json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    write_json(out, value).expect("writing to memory cannot fail");
}

/// Writes a value as JSON.
///
/// # Errors
/// Those of the writer.
pub fn write_json(
    out: impl io::Write,
    value: &(impl Serialize + ?Sized),
) -> Result<(), serde_json::Error> {
    value.serialize(&mut serde_json::Serializer::with_formatter(out, Compact))
}

/// Appends a server-sent event.
pub fn push_event(out: &mut Vec<u8>, value: &impl Serialize) {
    out.extend_from_slice(b"data: ");
    push_json(out, value);
    out.extend_from_slice(b"\n\n");
}

/// Appends a server-sent event with a name, which its JSON repeats as its `type`.
pub fn push_named_event(out: &mut Vec<u8>, name: &str, value: &impl Serialize) {
    #[derive(Serialize)]
    struct Named<'a, T> {
        r#type: &'a str,
        #[serde(flatten)]
        value: &'a T,
    }
    writeln!(out, "event: {name}").expect("memory");
    push_event(out, &Named { r#type: name, value });
}

/// JSON without spaces. Bytes are JSON already.
struct Compact;

impl Formatter for Compact {
    fn write_byte_array<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        value: &[u8],
    ) -> io::Result<()> {
        writer.write_all(value)
    }
}

/// A value that is JSON already. Only [`push_json`] and [`write_json`] understand it.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a>(pub &'a [u8]);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// A list whose elements are written when they come. Writing a long list at the end would delay the
/// lane.
#[derive(Clone, Debug, Default)]
pub struct WrittenList(Vec<u8>);

impl WrittenList {
    /// Appends an element.
    pub fn push(&mut self, element: &impl Serialize) {
        self.open();
        push_json(&mut self.0, element);
        self.0.push(b']');
    }

    /// Moves the elements of another list to the end of this one.
    pub fn append(&mut self, other: &mut Self) {
        if let Some(elements) = other.0.get(1..) {
            self.open();
            self.0.extend_from_slice(elements);
            other.clear();
        }
    }

    /// Forgets the elements. Their memory stays for the next ones.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Replaces the last bracket by a comma.
    fn open(&mut self) {
        let separator = if self.0.pop().is_some() { b',' } else { b'[' };
        self.0.push(separator);
    }
}

impl Serialize for WrittenList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Written(if self.0.is_empty() { b"[]" } else { &self.0 }).serialize(serializer)
    }
}

/// A value as a string, without memory for it.
#[derive(Clone, Copy, Debug)]
pub struct Spelled<T>(pub T);

impl<T: Display> Serialize for Spelled<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// The elements of an iterator as a list, without memory for them.
pub struct List<I>(pub I);

impl<I: Clone + IntoIterator<Item: Serialize>> Serialize for List<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

/// The names and values of an iterator as an object.
pub struct Object<I>(pub I);

impl<K: Serialize, V: Serialize, I: Clone + IntoIterator<Item = (K, V)>> Serialize for Object<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.clone())
    }
}

/// Rounds a time or a rate to thousandths.
pub fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// Bytes of a text in a JSON string, without the quotes.
pub fn bytes_inside(text: &str) -> usize {
    let bytes = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(value: &impl Serialize) -> String {
        let mut out = Vec::new();
        push_json(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_bytes_of_a_string_are_counted() {
        let all: String = (0..=0x7f).map(char::from).chain(['é']).collect();
        assert_eq!(bytes_inside(&all) + 2, json(&all).len());
        assert_eq!(json(&Spelled(format_args!("{}\"{}", 'a', '\n'))), r#""a\"\n""#);
    }

    #[test]
    fn a_list_is_whole_after_each_element() {
        let (mut list, mut more) = (WrittenList::default(), WrittenList::default());
        list.append(&mut more);
        assert_eq!(json(&list), "[]");
        list.push(&1);
        more.push(&"a");
        more.push(&Written(b"{}"));
        list.append(&mut more);
        assert_eq!((json(&list), json(&more)), (r#"[1,"a",{}]"#.into(), "[]".into()));
    }

    #[test]
    fn an_event_repeats_its_name() {
        #[derive(Serialize)]
        struct Body<'a> {
            list: &'a WrittenList,
        }
        let mut out = Vec::new();
        push_named_event(&mut out, "a.b", &Body { list: &WrittenList::default() });
        assert_eq!(out, b"event: a.b\ndata: {\"type\":\"a.b\",\"list\":[]}\n\n");
        assert_eq!(
            (json(&rounded(1.0005001)), json(&rounded(7.0))),
            ("1.001".into(), "7.0".into())
        );
    }
}
