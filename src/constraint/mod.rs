//! Constrained output. In: a schema, a regular expression or a grammar. Out: for each sample, the
//! tokens that may come next.
//!
//! A [`Compiler`] checks and compiles a [`Constraint`]. This may take milliseconds, so it runs on a
//! worker lane. All sequences with one constraint share its [`Compiled`] form. Each sequence has a
//! [`Walk`], which takes in its tokens: on the decode lane, or on the mask lane if its masks take
//! long.
//!
//! ```text
//! schema ---> schema/ (checked) --------------------------.
//! regex ----> regex.rs (checked) -------------------------+--> llguidance
//! Lark -----> lark.rs (its schemas checked) --------------|
//! GBNF -----> gbnf/ (translated) -> Lark -----------------'
//! ```
//!
//! **Invariant:** a constraint is obeyed as a whole or refused. The error names the unsupported
//! keyword. **Invariant:** control tokens are never allowed, except end tokens where the grammar
//! allows its text to end. **Invariant:** no request can cause a panic here. A choice whose grammar
//! fails midway ends there (see [`Matcher`]).
//!
//! # Why llguidance, and not llama.cpp's own grammar sampler
//!
//! Both compute the allowed tokens anew for each sample, in different ways:
//!
//! - llama.cpp decodes all 151,936 tokens of Qwen3's vocabulary to characters, and runs each token
//!   through every stack of a pushdown automaton. One user measured 85 ms of sampling per token
//!   with Llama 3's 128,256 tokens (llama.cpp's issue 7554). llama.cpp therefore samples first,
//!   and runs the grammar over everything only if the sampled token breaks it.
//! - llguidance walks a trie of the vocabulary and cuts a branch at its first wrong byte. Its
//!   lexer is a lazy automaton that remembers its states, and its Earley parser runs only at the
//!   end of a lexeme. Inside a JSON string, where most tokens are allowed, it uses a bit set made
//!   at start-up. Its authors measured about 50 µs per token for 128,000 tokens and JSON schemas,
//!   and 1.5 ms for a walk over the whole trie at 2 GHz.
//!
//! llama.cpp's schema converter silently drops unknown keywords (its README says so), and its
//! sampler aborts the process on an end token that the grammar forbids. llguidance refuses and
//! returns errors. It lacks GBNF, which `gbnf/` translates. `cargo bench --bench micro mask`
//! measures the masks.
//!
//! Not used: tokens that the grammar forces are still sampled (`forced.rs` only guesses them), and
//! the prompt's last token is not healed.

mod compiler;
mod cost;
mod error;
mod forced;
mod gbnf;
mod kind;
mod lark;
mod matcher;
mod regex;
mod schema;
mod tables;
pub mod trial;
mod walk;
mod watch;

pub use compiler::Compiler;
pub use error::{CompileError, ConstraintError};
pub use kind::Constraint;
pub use matcher::{Allowed, Matcher};
pub use schema::{SchemaBudget, check_schema, close_objects, loosened};
pub use tables::{Compiled, Tables};
pub use walk::Walk;
pub use watch::stop_long_work;

#[cfg(test)]
mod tests;
