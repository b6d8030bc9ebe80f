//! GBNF, llama.cpp's grammar format, to llguidance's Lark.
//!
//! GBNF is about characters; Lark is about words (terminals), which a lexer cuts
//! off the text before the parser sees it, each as long as it can be. Words make
//! llguidance fast, and a grammar of single characters would take its parser
//! through every character of every token. So:
//!
//! - [`parse`] reads the grammar, with the line of each error;
//! - [`unroll`] makes repetitions of rules that are recursive only at their end;
//! - [`words`] makes words of what is not recursive, as large as they can be
//!   without the lexer ever taking more than the grammar would: where a word could
//!   run on into what follows it, it is broken up, down to single characters;
//! - [`lark`] writes it down.
//!
//! The text that is allowed is the grammar's own, no more and no less. A grammar
//! whose words had to be broken up costs more for each token, and may reach
//! `limits::CONSTRAINT_STEP_ITEMS_MAX`.

mod automaton;
mod lark;
mod parse;
mod unroll;
mod words;

use llguidance::toktrie::TokTrie;

use super::ConstraintError;

/// Translates a grammar. `tokens` are those that it may name (`<think>`, `<[42]>`).
pub(super) fn to_lark(source: &str, tokens: &TokTrie) -> Result<String, ConstraintError> {
    let grammar = unroll::unroll(parse::parse(source, tokens)?);
    let worded = words::choose(&grammar)?;
    Ok(lark::write(&grammar, &worded))
}

/// A grammar: its rules, by number.
struct Grammar {
    rules: Vec<Expr>,
    root: usize,
}

/// What a rule, or a part of one, matches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Expr {
    /// One character of these ranges (inclusive, ascending, apart).
    Chars(Vec<(char, char)>),
    /// These characters, one at least.
    Text(String),
    /// The token with this id; or, negated, any other.
    Token { id: u32, negated: bool },
    /// A rule, by its number.
    Rule(usize),
    /// One after another. The empty text is a sequence of nothing.
    Seq(Vec<Expr>),
    /// Any one of them, two at least.
    Any(Vec<Expr>),
    /// So often at least, so often at most.
    Repeat(Box<Expr>, u32, Option<u32>),
}

impl Expr {
    /// The empty text.
    const EMPTY: Expr = Expr::Seq(Vec::new());

    /// A sequence; one of one expression is that expression.
    fn seq(items: impl IntoIterator<Item = Expr>) -> Expr {
        let mut flat = Vec::new();
        for item in items {
            match item {
                Expr::Seq(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        if flat.len() == 1 { flat.remove(0) } else { Expr::Seq(flat) }
    }

    /// Alternatives, of which there is one at least.
    fn any(options: impl IntoIterator<Item = Expr>) -> Expr {
        let mut flat = Vec::new();
        for option in options {
            match option {
                Expr::Any(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        assert!(!flat.is_empty(), "there is an alternative");
        if flat.len() == 1 { flat.remove(0) } else { Expr::Any(flat) }
    }

    fn repeat(self, least: u32, most: Option<u32>) -> Expr {
        match (least, most) {
            _ if self == Expr::EMPTY => self,
            (_, Some(0)) => Expr::EMPTY,
            (1, Some(1)) => self,
            _ => Expr::Repeat(Box::new(self), least, most),
        }
    }

    /// The expressions that it is made of.
    fn parts(&self) -> &[Expr] {
        match self {
            Expr::Seq(parts) | Expr::Any(parts) => parts,
            Expr::Repeat(part, ..) => std::slice::from_ref(part),
            Expr::Chars(_) | Expr::Text(_) | Expr::Token { .. } | Expr::Rule(_) => &[],
        }
    }
}

#[cfg(test)]
mod tests;
