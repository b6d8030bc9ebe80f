//! Translates GBNF, llama.cpp's grammar format, to llguidance's Lark.
//!
//! GBNF describes characters. Lark describes words (terminals): a lexer cuts the longest possible
//! word off the text before the parser sees it. Words make llguidance fast; with a grammar of
//! single characters, its parser would run for each character of each token. Four steps:
//!
//! - [`parse`] reads the grammar and reports errors with their line.
//! - [`unroll`] turns rules that are recursive only at their end into repetitions.
//! - [`words`] turns parts without recursion into words, as large as possible. Where the lexer
//!   could take more than the grammar allows, because a word can run on into the text after it,
//!   the word is split, down to single characters.
//! - [`lark`] writes the result.
//!
//! The result allows exactly the grammar's texts. A grammar with many split words costs more for
//! each token, and may reach `limits::CONSTRAINT_STEP_ITEMS_MAX`.

mod automaton;
mod grammar;
mod lark;
mod parse;
mod unroll;
mod words;

use llguidance::toktrie::TokTrie;

use crate::constraint::error::ConstraintError;

/// Translates a grammar. `tokens` has the tokens that it may name (`<think>`, `<[42]>`).
pub(super) fn to_lark(source: &str, tokens: &TokTrie) -> Result<String, ConstraintError> {
    let grammar = unroll::unroll(parse::parse(source, tokens)?);
    let worded = words::choose(&grammar)?;
    Ok(lark::write(&grammar, &worded))
}

#[cfg(test)]
mod tests;
