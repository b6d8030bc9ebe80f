//! Rewrites a template's source so that minijinja reads it as Jinja2 does.
//!
//! In: the source. Out: the source with the same lines, and three changes:
//!
//! - `{% generation %}`, with which transformers marks the assistant's text, becomes `{% with %}`:
//!   a block with its own scope.
//! - `x[a:b:c]` becomes `x._slice(a,b,c)`, a method in `python.rs`. minijinja's own slices (3.0.5)
//!   panic on `[][::-1]`, treat `x[:0:-1]` as `x[::-1]`, and return lists without an index.
//! - Lines end with `\n`.
//!
//! Unknown syntax is left alone: minijinja reports it.

use super::python::SLICE;

/// Rewrites a source for minijinja.
pub fn translate(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len() + source.len() / 8);
    let mut rest = source.as_str();
    while let Some(start) = rest.find('{') {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let length = match rest.as_bytes().get(1) {
            Some(b'#') => through(rest, "#}"),
            Some(b'{') => expression(rest, "}}", &mut out),
            Some(b'%') => statement(rest, &mut out),
            _ => Some(1),
        };
        let Some(length) = length else { break };
        // Expressions and statements are already written. Copy other tags.
        if !matches!(rest.as_bytes().get(1), Some(b'{' | b'%')) {
            out.push_str(&rest[..length]);
        }
        rest = &rest[length..];
    }
    out.push_str(rest);
    out
}

/// The length of `text` up to the end of the first `end`.
fn through(text: &str, end: &str) -> Option<usize> {
    text.find(end).map(|at| at + end.len())
}

/// Writes the tag `{% ... %}` at the start of `text`, and returns its length.
fn statement(text: &str, out: &mut String) -> Option<usize> {
    let inside = text[2..].trim_start_matches(['-', '+']).trim_start();
    let word_end = inside.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let word = &inside[..word_end.unwrap_or(inside.len())];
    let word_start = text.len() - inside.len();
    let after = word_start + word.len();
    match word {
        "generation" | "endgeneration" => {
            let length = through(text, "%}")?;
            out.push_str(&text[..word_start]);
            out.push_str(if word == "generation" { "with" } else { "endwith" });
            out.push_str(&text[after..length]);
            Some(length)
        }
        "raw" => {
            let mut end = through(text, "%}")?;
            loop {
                end += text[end..].find("{%")? + 2;
                let tag = text[end..].trim_start_matches(['-', '+']).trim_start();
                if tag.starts_with("endraw") {
                    break;
                }
            }
            end += through(&text[end..], "%}")?;
            out.push_str(&text[..end]);
            Some(end)
        }
        _ => expression(text, "%}", out),
    }
}

/// An open bracket, and the translated text since.
struct Open {
    bracket: char,
    /// The pieces between the colons of a `[`. Other brackets have one piece.
    pieces: Vec<String>,
}

impl Open {
    fn new(bracket: char) -> Self {
        Self { bracket, pieces: vec![String::new()] }
    }

    fn text(&mut self) -> &mut String {
        self.pieces.last_mut().expect("there is always a piece")
    }

    /// The whole text, closed by `close`.
    fn closed(self, close: char) -> String {
        if self.pieces.len() == 1 {
            return format!("{}{}{close}", self.bracket, self.pieces[0]);
        }
        let given = |piece: &String| match piece.trim().is_empty() {
            true => format!("{piece}none"), // keeps line ends
            false => piece.clone(),
        };
        let arguments: Vec<String> = self.pieces.iter().map(given).collect();
        format!(".{SLICE}({})", arguments.join(","))
    }
}

/// Writes the tag from the start of `text` to `end`, and returns its length. Writes nothing if the
/// tag does not end.
fn expression(text: &str, end: &str, out: &mut String) -> Option<usize> {
    // The tag is the outermost bracket: `end` counts only outside other brackets.
    let mut open = vec![Open::new(' ')];
    let mut at = 2; // after `{{` or `{%`
    loop {
        let rest = &text[at..];
        if open.len() == 1 && rest.starts_with(end) {
            out.push_str(&text[..2]);
            out.push_str(open[0].text());
            out.push_str(end);
            return Some(at + end.len());
        }
        let next = rest.chars().next()?;
        let length = if matches!(next, '\'' | '"') { string(rest)? } else { next.len_utf8() };
        let inside = open.last().map(|open| open.bracket);
        match next {
            '[' | '(' | '{' => open.push(Open::new(next)),
            ']' | ')' | '}' if open.len() > 1 => {
                let inner = open.pop().expect("there are two").closed(next);
                innermost(&mut open).text().push_str(&inner);
            }
            ':' if inside == Some('[') => innermost(&mut open).pieces.push(String::new()),
            _ => innermost(&mut open).text().push_str(&rest[..length]),
        }
        at += length;
    }
}

fn innermost(open: &mut [Open]) -> &mut Open {
    open.last_mut().expect("the tag itself is open")
}

/// The length of the string literal at the start of `text`.
fn string(text: &str) -> Option<usize> {
    let quote = text.chars().next()?;
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_no_translation_stays_as_it_is() {
        for source in [
            "",
            "plain { text } [1:2] %}",
            "{{ a[0]['b'] }}{% for x in [1, {'a': 2}] %}{{ {'k': {'l': (1)}}['k'] }}{% endfor %}",
            "{# x[1:] {% generation %} #}{{ \"it's [1:2] }}\" ~ '\\'[:]' }}",
            "{% raw %}{{ x[1:] }}{% generation %}{%- endraw -%}",
            "{{ unclosed[1:",
            "{% unclosed",
            "{{ a) }}{",
            "{% set generation = 1 %}{% generations %}",
        ] {
            assert_eq!(translate(source), source);
        }
    }

    #[test]
    fn slices_become_calls() {
        for (slice, call) in [
            ("{{ a[1:] }}", "{{ a._slice(1,none) }}"),
            ("{% for m in messages[::-1] -%}", "{% for m in messages._slice(none,none,-1) -%}"),
            (
                "{{- a[b[:-1]: c + 1 :]['x'] }}",
                "{{- a._slice(b._slice(none,-1), c + 1 ,none)['x'] }}",
            ),
            ("{{ f(a[:\n2]) }}", "{{ f(a._slice(none,\n2)) }}"),
            ("{{ {'a': b[1:]}['a'] }}", "{{ {'a': b._slice(1,none)}['a'] }}"),
            ("{{ 'é]'[:1] }}ü", "{{ 'é]'._slice(none,1) }}ü"),
        ] {
            assert_eq!(translate(slice), call);
        }
    }

    #[test]
    fn generation_blocks_become_scopes() {
        assert_eq!(
            translate("{%- generation -%}{{ a[1:] }}{% endgeneration %}\r\n{%generation%}\r"),
            "{%- with -%}{{ a._slice(1,none) }}{% endwith %}\n{%with%}\n"
        );
    }
}
