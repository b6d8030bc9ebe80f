//! The flags of a chat template, for every command that serves chats.

use std::path::PathBuf;

use clap::{ArgMatches, Args};
use corelane::flags::settle_text;

/// A chat template in place of the model's own.
#[derive(Clone, Debug, Args)]
pub struct TemplateArgs {
    /// Chat template: in Jinja, or a name that llama.cpp knows, like chatml [default: the model's own]
    #[arg(long, value_name = "JINJA", help_heading = "Model")]
    chat_template: Option<String>,
    /// File with a chat template in Jinja
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    chat_template_file: Option<PathBuf>,
}

impl TemplateArgs {
    /// Decides between the template and its file.
    ///
    /// # Errors
    /// See [`settle_text`].
    pub fn settle(&mut self, matches: &ArgMatches) -> Result<(), String> {
        let Self { chat_template, chat_template_file } = self;
        let file = ("chat_template_file", chat_template_file);
        settle_text(("chat_template", chat_template), file, matches)
    }

    /// The template, if the flags give one.
    ///
    /// # Errors
    /// A sentence for the user, if its file cannot be read.
    pub fn read(&self) -> Result<Option<String>, String> {
        let Some(path) = &self.chat_template_file else { return Ok(self.chat_template.clone()) };
        let text = std::fs::read_to_string(path);
        text.map(Some).map_err(|error| {
            format!("cannot read the chat template from {}: {error}", path.display())
        })
    }
}
