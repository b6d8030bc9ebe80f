//! Where an answer appears, piece by piece.

use std::io::{self, ErrorKind, IsTerminal, Write};

use corelane::types::printable::printable;

use super::client::Piece;

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Standard output. A terminal obeys nothing in a text, and shows reasoning in a dim colour; a pipe or a file gets the
/// bytes of the answer alone.
pub struct Screen {
    out: io::Stdout,
    is_terminal: bool,
    has_colours: bool,
    /// Whether the last piece was reasoning.
    reasons: bool,
    /// Whether the last byte ended a line.
    at_line_start: bool,
    failed: Option<io::Error>,
}

impl Screen {
    pub fn new() -> Self {
        let out = io::stdout();
        let is_terminal = out.is_terminal();
        let has_colours =
            is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { out, is_terminal, has_colours, reasons: false, at_line_start: true, failed: None }
    }

    /// Shows a piece of an answer. Returns false if nobody reads on.
    pub fn show(&mut self, piece: Piece<'_>) -> bool {
        match piece {
            Piece::Reasoning(text) if self.is_terminal => {
                self.turn(true);
                self.write(text);
            }
            Piece::Reasoning(_) => {}
            Piece::Text(text) => {
                self.turn(false);
                self.write(text);
            }
        }
        self.failed.is_none()
    }

    /// Ends the answer's last line.
    ///
    /// # Errors
    /// If the text could not be written. A reader that has gone is no error.
    pub fn end(&mut self) -> Result<(), String> {
        self.turn(false);
        if !self.at_line_start {
            self.write("\n");
        }
        match self.failed.take() {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(format!("cannot write the answer: {error}"))
            }
            _ => Ok(()),
        }
    }

    /// Begins or ends reasoning.
    fn turn(&mut self, reasons: bool) {
        if reasons == self.reasons {
            return;
        }
        if self.has_colours {
            self.write_raw(if reasons { DIM } else { PLAIN });
        }
        if self.reasons && !self.at_line_start {
            self.write("\n");
        }
        self.reasons = reasons;
    }

    fn write(&mut self, text: &str) {
        self.at_line_start = text.ends_with('\n');
        if self.is_terminal {
            // Tabulators stay, as code needs them.
            let shown: Vec<String> = text.split('\t').map(printable).collect();
            self.write_raw(&shown.join("\t"));
        } else {
            self.write_raw(text);
        }
    }

    fn write_raw(&mut self, text: &str) {
        if self.failed.is_none() {
            let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
            self.failed = written.err();
        }
    }
}
