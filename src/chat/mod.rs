//! Turns conversations into prompts with the model's own chat template.
//!
//! In: messages and tools from the API, as [`Value`]s whose maps keep their order. Out: the
//! prompt's text, or a [`TemplateError`] for a 400.
//!
//! - [`conversation`]: messages and tools of any dialect.
//! - [`prompt`]: turns a conversation into a prompt.
//! - `generic`: writes tools as text for templates that have none.
//! - `ids`: the ids of tool calls in the forms that some templates want.
//! - `mended`: conversations in the form that strict templates accept.
//! - [`named`]: llama.cpp's templates by name.
//! - [`output`]: splits the model's text into content, reasoning and tool calls.
//! - `probe`: what a template can do.
//! - `value`: JSON as the values that a template sees.
//! - [`template`]: the template, compiled once and rendered for each request.
//! - `translate`: rewrites a template's source so that minijinja reads it as Jinja2 does.
//! - `python`: methods of Python's strings, lists and dicts that minijinja lacks.
//! - `tojson` and `strftime`: Python's `json.dumps` and `strftime`.
//!
//! **Invariant:** nothing here reads a clock or a file; `strftime_now` shows the time that the
//! caller passes in.

mod branches;
pub mod chosen;
pub mod conversation;
mod generic;
mod ids;
mod mended;
pub mod named;
pub mod output;
mod probe;
pub mod prompt;
mod python;
mod size;
mod strftime;
pub mod template;
mod tojson;
mod translate;
mod value;

pub use minijinja::Value;
pub use template::{Chat, ChatTemplate, TemplateError, is_rendering};
