//! Writes a grammar of words in Lark.
//!
//! Each compound expression becomes a rule of its own: `T1` for the lexer, `n1` for the parser.
//! Nothing is nested, because llguidance limits nesting.

use std::collections::HashMap;
use std::fmt::Write;

use super::grammar::{Expr, Grammar};
use super::words::{Node, Worded};

/// The grammar in Lark.
pub(super) fn write(grammar: &Grammar, worded: &Worded) -> String {
    let mut writer =
        Writer { grammar, worded, lark: String::new(), terminals: HashMap::new(), names: 0 };
    writer.line("start", &rule_name(grammar.root));
    for (number, node) in &worded.rules {
        let body = writer.body(node);
        writer.line(&rule_name(*number), &body);
    }
    writer.lark
}

struct Writer<'a> {
    grammar: &'a Grammar,
    worded: &'a Worded,
    lark: String,
    /// The names of expressions written so far.
    terminals: HashMap<&'a Expr, String>,
    /// The number of names given.
    names: usize,
}

fn rule_name(number: usize) -> String {
    format!("r{number}")
}

/// Writes a repetition, such as `{2,5}`.
fn times(least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => "*".into(),
        (1, None) => "+".into(),
        (0, Some(1)) => "?".into(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

/// Writes the empty text as `""`, where an item is required.
fn or_empty(text: String) -> String {
    if text.is_empty() { "\"\"".into() } else { text }
}

impl<'a> Writer<'a> {
    fn line(&mut self, name: &str, body: &str) {
        writeln!(self.lark, "{name}: {body}").expect("a string takes everything");
    }

    /// The right side of a rule.
    fn body(&mut self, node: &'a Node) -> String {
        match node {
            Node::Seq(nodes) => {
                let atoms: Vec<String> = nodes.iter().map(|node| self.atom(node)).collect();
                or_empty(atoms.join(" "))
            }
            Node::Any(nodes) => {
                let atoms: Vec<String> = nodes.iter().map(|node| self.atom(node)).collect();
                atoms.join(" | ")
            }
            Node::Repeat(node, least, most) => self.atom(node) + &times(*least, *most),
            _ => self.atom(node),
        }
    }

    /// A node as one name.
    fn atom(&mut self, node: &'a Node) -> String {
        match node {
            Node::Word(word) => {
                let worded = self.worded;
                self.terminal(&worded.words[*word])
            }
            Node::Token { id, negated: false } => format!("<[{id}]>"),
            Node::Token { id, negated: true } => format!("<[^{id}]>"),
            Node::Rule(number) => rule_name(*number),
            Node::Seq(_) | Node::Any(_) | Node::Repeat(..) => {
                self.names += 1;
                let name = format!("n{}", self.names);
                let body = self.body(node);
                self.line(&name, &body);
                name
            }
        }
    }

    /// The name of the terminal for this expression.
    fn terminal(&mut self, expr: &'a Expr) -> String {
        if let Some(name) = self.terminals.get(expr) {
            return name.clone();
        }
        let body = match expr {
            Expr::Chars(ranges) => class(ranges),
            Expr::Text(text) => quoted(text),
            Expr::Rule(number) => {
                let grammar = self.grammar;
                self.terminal(&grammar.rules[*number])
            }
            Expr::Seq(items) => {
                let names: Vec<String> = items.iter().map(|item| self.terminal(item)).collect();
                or_empty(names.join(" "))
            }
            Expr::Any(options) => {
                let names: Vec<String> = options.iter().map(|one| self.terminal(one)).collect();
                names.join(" | ")
            }
            Expr::Repeat(inner, least, most) => self.terminal(inner) + &times(*least, *most),
            Expr::Token { .. } => unreachable!("a word has no tokens in it"),
        };
        self.names += 1;
        let name = format!("T{}", self.names);
        self.line(&name, &body);
        self.terminals.insert(expr, name.clone());
        name
    }
}

fn class(ranges: &[(char, char)]) -> String {
    let mut class = String::from("/[");
    for (first, last) in ranges {
        let (first, last) = (u32::from(*first), u32::from(*last));
        write!(class, "\\x{{{first:x}}}-\\x{{{last:x}}}").expect("a string takes everything");
    }
    class + "]/"
}

fn quoted(text: &str) -> String {
    let quoted = serde_json::to_string(text).expect("a text is JSON");
    // Lark's lexer does not accept this character as it is.
    quoted.replace('\u{7f}', "\\u007f")
}
