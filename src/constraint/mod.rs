//! Constrained output: a schema, a regular expression or a grammar in, for each
//! sample the tokens that may come next out.
//!
//! A [`Compiler`] checks and compiles a [`Constraint`], off the lanes that must
//! not wait: it may take milliseconds. Its [`Compiled`] is shared by everybody
//! who asked for the same. A [`Matcher`], one for each sequence, walks it token
//! by token on the decode lane.
//!
//! ```text
//! schema ---> schema/ (checked) --------------------------.
//! regex ----> lark.rs (checked) --> Lark -----------------+--> llguidance
//! Lark -----> lark.rs (its schemas and regexes checked) --|
//! GBNF -----> gbnf/ (translated) -> Lark -----------------'
//! ```
//!
//! **Invariant:** what a request constrains is obeyed as a whole or refused: a
//! keyword that cannot be kept is an error that names it.
//! **Invariant:** control tokens are never allowed, except the tokens that end
//! a generation where the grammar allows its text to end.
//! **Invariant:** whatever a request says, nothing here panics, and a choice
//! whose grammar fails in the middle ends there (see [`Matcher`]).
//!
//! # Why llguidance, and not llama.cpp's own grammar sampler
//!
//! Both compute the allowed tokens anew for each sample. What each has to do:
//!
//! - llama.cpp decodes all 151,936 tokens of Qwen3's vocabulary to characters,
//!   and runs each of them against every stack of a pushdown automaton, with a
//!   fresh list of candidates for each character of depth. A user of theirs
//!   measured 85 ms of sampling a token with Llama 3's 128,256 tokens (their
//!   issue 7554); they live with it by sampling first, and running the grammar
//!   over everything only when the sampled token breaks it.
//! - llguidance walks a trie of the vocabulary, and cuts a branch at its first
//!   wrong byte. Its lexer is a lazy automaton that remembers its states; the
//!   Earley parser behind it runs where a lexeme ends. The inside of a JSON
//!   string, where most tokens are right, is a bit set made at start-up. Its
//!   authors measured about 50 µs a token, for 128,000 tokens and JSON schemas,
//!   and 1.5 ms for a walk over the whole trie at 2 GHz.
//!
//! Measured on two cores of a 2.5 GHz Xeon, with the schema of `benches/micro/mask.rs` and
//! 151,936 tokens: llama-server, on the shape of Qwen3-0.6B and tried by hand, takes 10 to
//! 25 ms a token more than without it. A mask here takes 0.04 to 0.08 ms in the middle of all; at the 99th
//! percentile 1.3 to 2.1 ms, which are those within a string that has a `pattern`: there
//! the whole trie is walked. A regular expression whose `\w` is all of Unicode's walks it
//! for each token, in up to 10 ms.
//!
//! Beyond speed: llama.cpp's schema converter drops what it does not know
//! without a word (its README says so), and its sampler aborts the process on
//! an end token that the grammar does not allow; llguidance refuses, and returns
//! errors. What llguidance lacks is GBNF: `gbnf/` translates it.
//!
//! Not used: tokens that the grammar forces are sampled like others, and the
//! prompt's last token is not healed.

mod compile;
mod error;
mod gbnf;
mod kind;
mod lark;
mod matcher;
mod regex;
mod schema;

pub use compile::{Compiled, Compiler};
pub use error::ConstraintError;
pub use kind::Constraint;
pub use matcher::Matcher;

#[cfg(test)]
mod tests;
