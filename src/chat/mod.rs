//! Conversations to prompts: the model's own chat template, rendered.
//!
//! In: messages and tools as the API read them, as [`Value`]s whose maps keep
//! their order. Out: the text of the prompt, or a [`TemplateError`] for a 400.
//!
//! - [`conversation`]: messages and tools, whatever the dialect.
//! - [`prompt`]: a conversation to a prompt.
//! - [`output`]: what the model then says, taken apart.
//! - [`template`]: the template itself: compiled once, rendered for each request.
//! - `translate`: the source, put so that minijinja reads it as Jinja2 does.
//! - `python`: the methods of Python's strings, lists and dicts.
//! - `tojson` and `strftime`: Python's `json.dumps` and `strftime`.
//!
//! **Invariant:** nothing here reads a clock or a file; `strftime_now` shows
//! the time that is passed in.

pub mod conversation;
pub mod output;
pub mod prompt;
mod python;
mod strftime;
pub mod template;
mod tojson;
mod translate;

pub use minijinja::Value;
pub use template::{Chat, ChatTemplate, TemplateError, is_rendering};
