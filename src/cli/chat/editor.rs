//! The line in which a person types: editing, history and completion, by rustyline.

use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Cmd, CompletionType, Config, Context, Helper, KeyCode, KeyEvent, Modifiers};

use super::input::{COMMANDS, is_complete};

/// Most texts in the history.
const HISTORY_MAX: usize = 1000;

/// What a person typed.
pub enum Line {
    /// A text, which may have several lines.
    Text(String),
    /// Nothing: the person dropped the line with Ctrl-C.
    Dropped,
    /// The end: Ctrl-D, or the end of the file.
    End,
}

/// The line.
pub struct Editor {
    line: rustyline::Editor<Rules, FileHistory>,
    /// The file of the history, if there is a home for it.
    history: Option<PathBuf>,
}

impl Editor {
    /// An editor with the history of earlier chats.
    ///
    /// # Errors
    /// A sentence for the user, if the terminal cannot be used.
    pub fn new() -> Result<Self, String> {
        let failed = |error| format!("cannot use the terminal: {error}");
        let config = Config::builder()
            .max_history_size(HISTORY_MAX)
            .map_err(failed)?
            .completion_type(CompletionType::List)
            .auto_add_history(true)
            .build();
        let mut line = rustyline::Editor::with_config(config).map_err(failed)?;
        line.set_helper(Some(Rules));
        line.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
        let history = history_file();
        if let Some(path) = &history {
            let _ = line.load_history(path); // the first chat has none
        }
        Ok(Self { line, history })
    }

    /// Reads a text.
    ///
    /// # Errors
    /// A sentence for the user, if the terminal is gone.
    pub fn read(&mut self) -> Result<Line, String> {
        match self.line.readline("> ") {
            Ok(text) => {
                if let Some(path) = &self.history {
                    let _ = self.line.append_history(path); // a full disk must not end the chat
                }
                Ok(Line::Text(text))
            }
            Err(ReadlineError::Interrupted) => Ok(Line::Dropped),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(error) => Err(format!("cannot read the terminal: {error}")),
        }
    }
}

/// `$XDG_STATE_HOME/corelane/history`. (XDG Base Directory Specification.) The library gives it mode 600.
fn history_file() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    let folder = state.join("corelane");
    fs::create_dir_all(&folder).ok()?;
    Some(folder.join("history"))
}

/// When a text is complete, and what the tabulator completes.
struct Rules;

impl Validator for Rules {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        Ok(match is_complete(context.input()) {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

impl Completer for Rules {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let names = COMMANDS.iter().filter_map(|(usage, _)| usage.split(' ').next());
        let typed = &line[..at];
        let begins = |name: &&str| typed.starts_with('/') && name.starts_with(typed);
        Ok((0, names.filter(begins).map(|name| format!("{name} ")).collect()))
    }
}

impl Highlighter for Rules {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        Cow::Borrowed(prompt)
    }
}

impl Hinter for Rules {
    type Hint = String;
}

impl Helper for Rules {}
