//! What a person typed: a question, or a command.

use std::path::PathBuf;

/// The marker around text of several lines.
const BLOCK: &str = "\"\"\"";

/// For each command, its usage and its purpose, as /help shows them.
pub const COMMANDS: [(&str, &str); 8] = [
    ("/help", "list the commands"),
    ("/system [TEXT]", "set the system prompt; without TEXT, remove it"),
    ("/model [NAME]", "list the server's models, or change to one"),
    ("/regen", "answer the last question again"),
    ("/clear", "begin a new conversation"),
    ("/save FILE", "write the conversation as JSON, a body for /v1/chat/completions"),
    ("/load FILE", "go on with a saved conversation"),
    ("/exit", "end (also Ctrl-D)"),
];

/// What a person wants.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// Nothing: an empty line.
    Nothing,
    /// An answer to this text.
    Ask(String),
    /// Another answer to the last question.
    Again,
    /// The list of commands.
    Help,
    /// This system prompt, or none.
    System(Option<String>),
    /// The list of models, or this one.
    Model(Option<String>),
    /// A new conversation.
    Clear,
    /// The conversation in this file.
    Save(PathBuf),
    /// The conversation of this file.
    Load(PathBuf),
    /// The end.
    Exit,
    /// A command that does not exist, or lacks something. The sentence says which exist.
    Unknown(String),
}

impl Input {
    /// Reads a whole text. [`is_complete`] says whether it is whole.
    pub fn of(typed: &str) -> Self {
        let text = text_of(typed);
        let is_typed_as_text = typed.trim_start().starts_with(BLOCK);
        if text.is_empty() {
            return Self::Nothing;
        }
        if is_typed_as_text || !text.starts_with('/') || is_path(&text) {
            return Self::Ask(text);
        }
        let (command, rest) = text.split_once(char::is_whitespace).unwrap_or((&text, ""));
        let rest = rest.trim();
        let some = || (!rest.is_empty()).then(|| rest.to_owned());
        let file = |of: fn(PathBuf) -> Self| match some() {
            Some(path) => of(PathBuf::from(path)),
            None => Self::Unknown(format!("{command} needs the name of a file")),
        };
        match command {
            "/help" | "/?" => Self::Help,
            "/system" => Self::System(some()),
            "/model" | "/models" => Self::Model(some()),
            "/regen" => Self::Again,
            "/clear" => Self::Clear,
            "/save" => file(Self::Save),
            "/load" => file(Self::Load),
            "/exit" | "/quit" | "/bye" => Self::Exit,
            _ => Self::Unknown(format!(
                "there is no command {command}; /help lists them, and text between {BLOCK} may begin with /"
            )),
        }
    }
}

/// Whether text that begins with a slash is of a file, as in `/etc/hosts is what?`.
fn is_path(text: &str) -> bool {
    text.split_whitespace().next().is_some_and(|first| first[1..].contains('/'))
}

/// Whether a text ends here. It goes on behind a backslash at its end, and until a block is closed.
pub fn is_complete(typed: &str) -> bool {
    match typed.trim_start().strip_prefix(BLOCK) {
        Some(block) => block.contains(BLOCK),
        None => !typed.ends_with('\\'),
    }
}

/// The text without the signs that let it have several lines.
fn text_of(typed: &str) -> String {
    match typed.trim_start().strip_prefix(BLOCK) {
        Some(block) => {
            let (inside, behind) = block.rsplit_once(BLOCK).unwrap_or((block, ""));
            format!("{inside}{behind}").trim().to_owned()
        }
        None => typed.replace("\\\n", "\n").trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_may_have_several_lines() {
        assert!(is_complete("a"));
        assert!(!is_complete("a\\"));
        assert!(!is_complete("\"\"\"a\nb"));
        assert!(is_complete("\"\"\"a\nb\"\"\""));
        assert_eq!(Input::of("a\\\nb"), Input::Ask("a\nb".into()));
        assert_eq!(Input::of("\"\"\"\n/a\\\nb\n\"\"\""), Input::Ask("/a\\\nb".into()));
    }

    #[test]
    fn commands_are_read() {
        assert_eq!(Input::of("  "), Input::Nothing);
        assert_eq!(Input::of("/system  Be brief. "), Input::System(Some("Be brief.".into())));
        assert_eq!(Input::of("/system"), Input::System(None));
        assert_eq!(Input::of("/save a b.json"), Input::Save("a b.json".into()));
        assert_eq!(Input::of("/bye"), Input::Exit);
        assert!(matches!(Input::of("/save"), Input::Unknown(_)));
        assert!(matches!(Input::of("/stystem x"), Input::Unknown(_)));
        assert!(matches!(Input::of("/etc/hosts is what?"), Input::Ask(_)));
        assert!(matches!(Input::of("//"), Input::Ask(_)));
    }

    #[test]
    fn every_listed_command_exists() {
        for (usage, _) in COMMANDS {
            let typed = usage.replace("[", "").replace("]", "");
            assert!(!matches!(Input::of(&typed), Input::Unknown(_) | Input::Ask(_)), "{usage}");
        }
    }
}
