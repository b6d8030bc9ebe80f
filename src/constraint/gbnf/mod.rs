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
mod grammar;
mod lark;
mod parse;
mod unroll;
mod words;

use llguidance::toktrie::TokTrie;

use crate::constraint::error::ConstraintError;

/// Translates a grammar. `tokens` are those that it may name (`<think>`, `<[42]>`).
pub(super) fn to_lark(source: &str, tokens: &TokTrie) -> Result<String, ConstraintError> {
    let grammar = unroll::unroll(parse::parse(source, tokens)?);
    let worded = words::choose(&grammar)?;
    Ok(lark::write(&grammar, &worded))
}

#[cfg(test)]
mod tests;
