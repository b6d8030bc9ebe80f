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

use self::grammar::{Expr, Grammar};
use crate::constraint::error::ConstraintError;

/// Deepest nesting of a GBNF grammar after its rules are inserted in place of their names.
/// llguidance recurses once for each level, and each makes masks slower.
const GBNF_WHOLE_DEPTH_MAX: usize = 256;

/// Translates a grammar. It may name tokens of `tokens` (`<think>`, `<[42]>`).
pub(super) fn to_lark(source: &str, tokens: &TokTrie) -> Result<String, ConstraintError> {
    let grammar = parse::parse(source, tokens)?;
    check_depth(&grammar)?;
    let grammar = unroll::unroll(grammar);
    let worded = words::choose(&grammar)?;
    Ok(lark::write(&grammar, &worded))
}

/// Refuses a grammar that is nested deeper than [`GBNF_WHOLE_DEPTH_MAX`].
fn check_depth(grammar: &Grammar) -> Result<(), ConstraintError> {
    let mut heights = vec![None; grammar.rules.len()];
    match height(&Expr::Rule(grammar.root), grammar, &mut heights, GBNF_WHOLE_DEPTH_MAX) {
        Some(_) => Ok(()),
        None => Err(ConstraintError(format!(
            "the grammar is nested more than {GBNF_WHOLE_DEPTH_MAX} levels deep, if its rules stand \
             in the places of their names"
        ))),
    }
}

/// The number of levels of an expression; `None` if there are more than `most`. A recursive rule
/// counts once.
fn height(
    expr: &Expr,
    grammar: &Grammar,
    heights: &mut [Option<usize>],
    most: usize,
) -> Option<usize> {
    let below = most.checked_sub(1)?;
    let inner = match expr {
        Expr::Rule(number) => match heights[*number] {
            Some(height) => height,
            None => {
                heights[*number] = Some(0); // until it is known
                let height = height(&grammar.rules[*number], grammar, heights, below)?;
                heights[*number] = Some(height);
                height
            }
        },
        _ => {
            let parts = expr.parts().iter();
            parts
                .map(|part| height(part, grammar, heights, below))
                .try_fold(0, |most, height| Some(height?.max(most)))?
        }
    };
    (inner <= below).then_some(inner + 1)
}

#[cfg(test)]
mod tests;
