//! `corelane chat` and `corelane run`: talk with a model in the terminal. Both ask over HTTP, as any client does: the
//! server at `--url`, or one that is started inside this process and listens on the loopback address alone.

mod client;
mod conversation;
mod editor;
mod input;
mod screen;
mod server;
mod talk;

use std::fs;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use corelane::flags::no_file;
use corelane::types::printable::one_line;

use self::client::{Answer, End, Interrupts};
use self::conversation::Conversation;
use self::editor::{Editor, Line};
use self::input::{COMMANDS, Input};
use self::screen::Screen;
use self::server::Server;
pub use self::talk::TalkArgs;

/// Most bytes that `corelane run` reads from its standard input: the most that a text of a request may have.
const STDIN_BYTES_MAX: u64 = 1024 * 1024;

/// The exit status behind Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

/// Most characters of a line of ours, which may have a server's words in it.
const LINE_CHARS_MAX: usize = 1000;

const CHAT_EXAMPLES: &str = "\
Examples:
  corelane chat -hf ggml-org/gemma-3-1b-it-GGUF       download the model, and talk with it
  corelane chat -m qwen3-0.6b-q4_k_m.gguf --system-prompt \"Answer in one sentence.\"
  corelane chat --url http://127.0.0.1:8080           talk with a server that runs

Enter sends; a line that ends with \\ goes on in the next one, as does text after \"\"\" until the next
\"\"\" (or press Alt-Enter). Ctrl-C stops an answer, Ctrl-D ends. /help lists the commands.";

const RUN_EXAMPLES: &str = "\
Examples:
  corelane run -hf ggml-org/gemma-3-1b-it-GGUF \"Why is the sky blue?\"
  cat notes.txt | corelane run -m model.gguf \"Summarise this in three sentences.\"
  git diff | corelane run --url http://127.0.0.1:8080 \"Write a commit message.\" > message.txt

The text of standard input stands before the question. The answer goes to standard output, unchanged if
that is no terminal; reasoning is shown in a terminal alone.";

/// Flags of `corelane chat`.
#[derive(Debug, Args)]
#[command(after_help = CHAT_EXAMPLES)]
pub struct ChatArgs {
    #[command(flatten)]
    pub talk: TalkArgs,
    /// Refused with an explanation
    #[arg(hide = true, value_name = "FILE", value_parser = no_file)]
    file: Option<String>,
}

/// Flags of `corelane run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    #[command(flatten)]
    pub talk: TalkArgs,
    /// The question; several words need no quotes
    #[arg(value_name = "QUESTION")]
    question: Vec<String>,
}

/// Decides between `--url` and a model: the one from the command line wins over the environment's.
///
/// # Errors
/// If the command line has both.
pub fn settle_url(talk: &mut TalkArgs, matches: &ArgMatches) -> Result<(), String> {
    let matches = matches.subcommand().map_or(matches, |(_, inner)| inner);
    let is_typed = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
    let model = ["model", "hf_repo"].into_iter().find(|id| is_typed(id));
    match (talk.url.is_some(), is_typed("url"), model) {
        (true, true, Some(flag)) => Err(format!(
            "--url and --{} were given; give --url for a server that runs, or a model to start one",
            flag.replace('_', "-")
        )),
        (true, false, Some(_)) => {
            talk.url = None;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Answers one question, and ends: with status 130 behind Ctrl-C.
pub fn run(args: &RunArgs) -> Result<ExitCode, String> {
    if let [path] = args.question.as_slice()
        && path.ends_with(".gguf")
    {
        return Err(format!(
            "{path:?} is no question; a model is named with -m: corelane run -m {path} \"Hello\""
        ));
    }
    let question = question(&args.question.join(" "))?;
    let interrupts = Interrupts::new()?;
    let server = args.talk.server()?;
    let mut conversation = Conversation::new(args.talk.system_prompt.clone());
    conversation.ask(question);
    let mut screen = Screen::new();
    let request = args.talk.request(&server, &conversation);
    let answer = server.client().answer(&request, &interrupts, &mut |piece| screen.show(piece));
    screen.end()?;
    server.end()?;
    match answer.end {
        End::Stop | End::Unread => Ok(ExitCode::SUCCESS),
        End::Length => {
            let cut = "corelane: the answer was cut at its most tokens; -n allows more";
            let _ = writeln!(std::io::stderr(), "{cut}");
            Ok(ExitCode::SUCCESS)
        }
        End::Stopped => Ok(ExitCode::from(INTERRUPTED)),
        End::Failed(error) => Err(error),
    }
}

/// The question of the command line, behind the text of standard input if that is a pipe or a file.
fn question(words: &str) -> Result<String, String> {
    let mut piped = Vec::new();
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        let read = stdin.lock().take(STDIN_BYTES_MAX + 1).read_to_end(&mut piped);
        read.map_err(|error| format!("cannot read standard input: {error}"))?;
    }
    if piped.len() as u64 > STDIN_BYTES_MAX {
        return Err(format!(
            "standard input has more than {STDIN_BYTES_MAX} bytes, the most that a request may have"
        ));
    }
    let piped = String::from_utf8(piped).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("standard input is no UTF-8 text: byte {at} is wrong")
    })?;
    match (piped.trim(), words.trim()) {
        ("", "") => {
            Err("there is no question; write it behind `corelane run`, as in: corelane run \
                         \"Why is the sky blue?\""
                .into())
        }
        (piped, "") => Ok(piped.to_owned()),
        ("", words) => Ok(words.to_owned()),
        (piped, words) => Ok(format!("{piped}\n\n{words}")),
    }
}

/// Talks until the user ends it.
pub fn chat(args: &ChatArgs) -> Result<(), String> {
    let interrupts = Interrupts::new()?;
    let server = args.talk.server()?;
    let mut chat = Chat {
        server,
        interrupts,
        args: &args.talk,
        conversation: Conversation::new(args.talk.system_prompt.clone()),
        own_file: None,
    };
    let mut editor = Editor::new()?;
    say(&format!(
        "{}. /help lists the commands; Ctrl-C stops an answer, Ctrl-D ends.",
        chat.server.model()
    ));
    loop {
        match editor.read()? {
            Line::End => break,
            Line::Dropped => continue,
            Line::Text(text) => match Input::of(&text) {
                Input::Nothing => {}
                Input::Exit => break,
                input => {
                    if let Err(error) = chat.obey(input) {
                        say(&error);
                    }
                }
            },
        }
    }
    chat.server.end()
}

/// A conversation with a server.
struct Chat<'a> {
    server: Server,
    interrupts: Interrupts,
    args: &'a TalkArgs,
    conversation: Conversation,
    /// The file to which this conversation was saved.
    own_file: Option<PathBuf>,
}

impl Chat<'_> {
    /// Does what the user wants.
    ///
    /// # Errors
    /// A sentence for the user, who may go on.
    fn obey(&mut self, input: Input) -> Result<(), String> {
        match input {
            Input::Nothing | Input::Exit => {}
            Input::Ask(text) => {
                let before = self.conversation.clone();
                self.conversation.ask(text);
                return self.answer(before);
            }
            Input::Again => {
                let before = self.conversation.clone();
                self.conversation.drop_answer()?;
                return self.answer(before);
            }
            Input::Help => {
                COMMANDS.iter().for_each(|(usage, does)| say(&format!("{usage:<18}{does}")))
            }
            Input::System(text) => {
                say(if text.is_some() {
                    "The system prompt is set."
                } else {
                    "There is no system prompt."
                });
                self.conversation.system = text;
            }
            Input::Model(None) => {
                for name in self.server.models()? {
                    let mark = if name == self.server.model() { "*" } else { " " };
                    say(&format!("{mark} {name}"));
                }
            }
            Input::Model(Some(name)) => self.server.choose(&name)?,
            Input::Clear => {
                self.conversation.messages.clear();
                self.own_file = None;
                say("The conversation is empty.");
            }
            Input::Save(path) => {
                self.save(&path)?;
                say(&format!("Saved to {}.", path.display()));
                self.own_file = Some(path);
            }
            Input::Load(path) => {
                let text = fs::read_to_string(&path);
                let text =
                    text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
                let loaded = Conversation::from_json(&text);
                self.conversation =
                    loaded.map_err(|error| format!("{}: {error}", path.display()))?;
                say(&format!("{} messages.", self.conversation.messages.len()));
                self.own_file = None; // it may have more in it than this conversation
            }
            Input::Unknown(sentence) => return Err(sentence),
        }
        Ok(())
    }

    /// Asks for the answer to the last message, and shows it. If no text comes, the conversation is what it was
    /// `before`.
    fn answer(&mut self, before: Conversation) -> Result<(), String> {
        let request = self.args.request(&self.server, &self.conversation);
        let mut screen = Screen::new();
        let client = self.server.client();
        let answer = client.answer(&request, &self.interrupts, &mut |piece| screen.show(piece));
        let shown = screen.end();
        let line = summary(&answer);
        match answer.text.is_empty() {
            true => self.conversation = before,
            false => self.conversation.answered(answer.text),
        }
        shown?;
        match answer.end {
            End::Failed(error) => Err(error),
            _ => {
                say(&line);
                Ok(())
            }
        }
    }

    /// Writes the conversation. A file that this conversation did not write is not overwritten.
    fn save(&self, path: &Path) -> Result<(), String> {
        let failed = |error| format!("cannot write {}: {error}", path.display());
        let json = self.conversation.to_json(self.server.model());
        if self.own_file.as_deref() != Some(path) {
            if path.exists() {
                return Err(format!("{} exists; name a new file", path.display()));
            }
            let file = fs::File::create_new(path);
            return file.and_then(|mut file| file.write_all(json.as_bytes())).map_err(failed);
        }
        // A full disk must not take the earlier version.
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let written = fs::write(&new, json).and_then(|()| fs::rename(&new, path));
        written.inspect_err(|_| drop(fs::remove_file(&new))).map_err(failed)
    }
}

/// What an answer took, in a line.
fn summary(answer: &Answer) -> String {
    let end = match answer.end {
        End::Stop | End::Unread | End::Failed(_) => "",
        End::Length => "; cut at its most tokens, -n allows more",
        End::Stopped => "; stopped",
    };
    let speed = answer
        .tokens_per_s()
        .map_or_else(String::new, |speed| format!(", then {speed:.1} tokens/s"));
    match answer.first {
        Some(first) => format!("[first token after {:.2} s{speed}{end}]", first.as_secs_f64()),
        None => format!("[no text{end}]"),
    }
}

/// Shows a line of ours. Nobody reads if standard output is closed.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{}", one_line(line, LINE_CHARS_MAX));
}
