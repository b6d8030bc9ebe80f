//! A grammar under construction: its rules, and the texts and tokens in them.

use std::fmt::Write;

use serde_json::Value;

use crate::chat::output::form::{INNER_TOKENS, Syntax};
use crate::chat::output::reasoning::ReasoningSyntax;
use crate::limits::CONSTRAINT_BYTES_MAX;

/// A grammar under construction.
pub(super) struct Grammar<'a> {
    pub(super) row: &'static Syntax,
    pub(super) reasoning: Option<ReasoningSyntax>,
    pub(super) token: &'a dyn Fn(&str) -> Option<u32>,
    pub(super) rules: String,
    /// The names of the rules that several others use, of those that were added.
    pub(super) shared: Vec<&'static str>,
}

impl Grammar<'_> {
    pub(super) fn rule(&mut self, name: &str, body: &str) {
        writeln!(self.rules, "{name}: {body}").expect("a String takes all");
    }

    /// Whether the grammar has more text than a constraint may have, so that it will be refused.
    pub(super) fn is_too_long(&self) -> bool {
        self.rules.len() > CONSTRAINT_BYTES_MAX
    }

    /// Adds a rule that several others use.
    pub(super) fn rule_once(&mut self, name: &'static str, body: &str) {
        if self.is_first(name) {
            self.rule(name, body);
        }
    }

    /// Whether this is the first question about the rule `name`, which several others use.
    pub(super) fn is_first(&mut self, name: &'static str) -> bool {
        let is_first = !self.shared.contains(&name);
        self.shared.extend(is_first.then_some(name));
        is_first
    }

    /// The rule of a key that the schema does not name.
    pub(super) fn key(&mut self) -> &'static str {
        self.rule_once("KEY", "/[A-Za-z_][A-Za-z0-9_.-]*/");
        "KEY"
    }

    /// Matches any text up to the first `marker`, and that marker.
    pub(super) fn until(&mut self, name: &str, marker: &str) -> String {
        self.after(name, "TEXT", marker)
    }

    /// Like `until`, for a name and a marker that several rules use.
    pub(super) fn until_shared(&mut self, name: &'static str, marker: &str) -> String {
        let is_first = self.is_first(name);
        let length = self.rules.len();
        let body = self.until(name, marker);
        if !is_first {
            self.rules.truncate(length);
        }
        body
    }

    /// Matches `marker` after `before`. A marker that has a token is matched by the token. Another
    /// is matched as text by a lazy rule with this name, which ends at the first marker.
    pub(super) fn after(&mut self, name: &str, before: &str, marker: &str) -> String {
        let mut parts = self.parts(marker);
        let is_token = |part: &String| part.starts_with('<');
        match parts.iter().position(is_token) {
            None => {
                self.rule(&format!("{name}[lazy]"), &format!("{before} ( {} )", literal(marker)));
                name.to_owned()
            }
            Some(0) => format!("{before} {}", parts.join(" ")),
            // The text before the token is of one lexeme with the text before the marker.
            Some(_) => {
                let begin = parts.remove(0);
                let lexeme = format!("{}_BEGIN", name.to_uppercase());
                self.rule(&lexeme, &format!("{before} {begin}"));
                format!("{lexeme} {}", parts.join(" "))
            }
        }
    }

    pub(super) fn one_token(&self, marker: &str) -> Option<String> {
        (self.token)(marker).map(|id| format!("<[{id}]>"))
    }

    /// A text as written. The row's markers are tokens where the vocabulary has them.
    pub(super) fn text(&self, text: &str) -> String {
        self.parts(text).join(" ")
    }

    /// The literals and the tokens of a text.
    pub(super) fn parts(&self, text: &str) -> Vec<String> {
        let row = self.row;
        let mut markers = [row.open, row.separators, row.close, row.noise, INNER_TOKENS].concat();
        markers.extend(row.form.texts());
        let reasoning = self.reasoning.map(|syntax| [syntax.opening_token(), syntax.closer()]);
        markers.extend(reasoning.into_iter().flatten());
        markers.retain(|marker| !marker.is_empty());
        let mut parts = Vec::new();
        let (mut plain, mut rest) = (String::new(), text);
        while let Some(c) = rest.chars().next() {
            let mut begun = markers.iter().filter(|marker| rest.starts_with(**marker));
            let token = begun.find_map(|marker| Some((marker, self.one_token(marker)?)));
            let Some((marker, token)) = token else {
                plain.push(c);
                rest = &rest[c.len_utf8()..];
                continue;
            };
            if !plain.is_empty() {
                parts.push(literal(&std::mem::take(&mut plain)));
            }
            parts.push(token);
            rest = &rest[marker.len()..];
        }
        if !plain.is_empty() {
            parts.push(literal(&plain));
        }
        parts
    }
}

/// Quotes a text for Lark, which quotes like JSON.
pub(super) fn literal(text: &str) -> String {
    Value::from(text).to_string()
}
