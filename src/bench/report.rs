//! Tables, in the form of `vllm bench serve`'s, and the numbers in them.

use std::fmt::{Display, Write};

use serde_json::{Map, Value};

use super::failure::{self, Failures};

/// Characters of a table's line.
const WIDTH: usize = 50;
/// Characters of a row's name.
const NAME_WIDTH: usize = 40;

/// A table under construction.
#[derive(Debug, Default)]
pub struct Table {
    text: String,
}

impl Table {
    /// A table that begins with a title.
    pub fn new(title: &str) -> Self {
        let mut table = Self::default();
        table.line(&format!("{:=^WIDTH$}", format!(" {title} ")));
        table
    }

    /// A heading for what follows.
    pub fn heading(&mut self, text: &str) {
        self.line(&format!("{text:-^WIDTH$}"));
    }

    /// A name and a value.
    pub fn row(&mut self, name: &str, value: impl Display) {
        self.line(&format!("{:<NAME_WIDTH$} {value}", format!("{name}:")));
    }

    /// A number (see [`digits`]), or the word for one that could not be taken.
    pub fn number(&mut self, name: &str, value: Option<f64>) {
        match value {
            Some(value) => self.row(name, digits(value)),
            None => self.row(name, "not taken"),
        }
    }

    /// A line as it is.
    pub fn line(&mut self, text: &str) {
        writeln!(self.text, "{text}").expect("memory");
    }

    /// What went wrong, if anything did.
    pub fn failures(&mut self, failures: &Failures) {
        if !failures.is_empty() {
            self.heading("Failures");
        }
        for (count, example) in failures.values() {
            self.line(&format!("{count} x {example}"));
        }
    }

    /// What there is to say, if anything.
    pub fn notes(&mut self, notes: &Notes) {
        let lines = notes.lines();
        if !lines.is_empty() {
            self.heading("Notes");
        }
        for line in lines {
            self.line(&line);
        }
    }

    /// The table, with its last line.
    pub fn end(mut self) -> String {
        self.line(&"=".repeat(WIDTH));
        self.text
    }
}

/// A number with two decimals, or with four when it is less than one.
pub fn digits(value: f64) -> String {
    if value.abs() < 1.0 { format!("{value:.4}") } else { format!("{value:.2}") }
}

/// A number that can be compared between rounds and servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// Its key in a result file.
    pub key: String,
    /// Its name in a table, with the unit.
    pub name: String,
    /// The number; `None` when it could not be taken.
    pub value: Option<f64>,
}

impl Measure {
    /// A number with its key and name.
    pub fn new(key: impl Into<String>, name: impl Into<String>, value: Option<f64>) -> Self {
        Self { key: key.into(), name: name.into(), value }
    }
}

/// What a reader has to know about the numbers, as counts of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Sent again, since a used connection closed without an answer.
    pub resent: u64,
    /// Completed, and the server did not count their tokens.
    pub uncounted: usize,
    /// Completed with fewer tokens than they asked for.
    pub short: usize,
}

impl Notes {
    /// A sentence for each that is not zero.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.resent > 0 {
            let n = self.resent;
            lines.push(format!("{n} requests sent again: a used connection had been closed"));
        }
        if self.uncounted > 0 {
            let n = self.uncounted;
            lines.push(format!("{n} requests: no usage from the server, so events were counted"));
        }
        if self.short > 0 {
            let n = self.short;
            lines.push(format!("{n} requests ended before --random-output-len (see --ignore-eos)"));
        }
        lines
    }
}

/// What one run of a scenario against one server gave.
#[derive(Clone, Debug)]
pub struct Measured {
    /// For a person who ran it once.
    pub table: String,
    /// What can be compared.
    pub measures: Vec<Measure>,
    /// For a result file.
    pub json: Map<String, Value>,
    /// Requests that completed.
    pub completed: usize,
    /// What went wrong.
    pub failures: Failures,
    /// What a reader has to know about the numbers.
    pub notes: Notes,
    /// Tokens generated, all requests together; `None` where no number depends
    /// on them.
    pub output_tokens: Option<u64>,
}

/// A JSON object of numbers; one that was not taken is null.
pub fn numbers(measures: &[Measure]) -> Map<String, Value> {
    measures.iter().map(|measure| (measure.key.clone(), measure.value.into())).collect()
}

/// Measures as JSON, with what every scenario's result has.
pub fn scenario_json(
    measures: &[Measure],
    completed: usize,
    failures: &Failures,
) -> Map<String, Value> {
    let mut object = numbers(measures);
    object.insert("completed".into(), completed.into());
    object.insert("failed".into(), failure::count(failures).into());
    object.insert("failures".into(), failure::json(failures));
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_fifty_characters_wide() {
        let mut table = Table::new("Title");
        table.row("Requests", 40);
        table.heading("Latency");
        table.number("Mean TTFT (ms)", Some(1.005));
        table.number("P99 TTFT (ms)", None);
        table.number("Median ITL (ms)", Some(0.01234));
        let expected = "\
===================== Title ======================
Requests:                                40
---------------------Latency----------------------
Mean TTFT (ms):                          1.00
P99 TTFT (ms):                           not taken
Median ITL (ms):                         0.0123
==================================================
";
        assert_eq!(table.end(), expected);
    }

    #[test]
    fn what_was_not_taken_is_null() {
        let measures = [
            Measure::new("a", "A", Some(1.5)),
            Measure::new("b", "B", None),
            Measure::new("c", "C", Some(f64::NAN)),
        ];
        let json = Value::Object(numbers(&measures));
        assert_eq!(json, serde_json::json!({"a": 1.5, "b": null, "c": null}));
    }
}
