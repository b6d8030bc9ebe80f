//! Recorded texts, and a model whose next token is that of a record.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use std::ops::Range;

use corelane::model::vocab::Vocab;
use corelane::model::{Backend, DecodeRow, StepError};
use corelane::random::mix;
use corelane::types::{Position, SlotId, TokenId};

/// A prompt, and the answer that a model gave to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Tokens of the prompt, at least one.
    pub prompt: Vec<TokenId>,
    /// All tokens of prompt and answer.
    pub tokens: Vec<TokenId>,
}

/// Reads a file with a record in each line: `{"prompt": …, "answer": …}`, both of them texts or
/// arrays of token ids.
///
/// # Errors
/// A sentence with the number of the line.
pub fn read(path: &Path, vocab: &Vocab) -> Result<Vec<Record>, String> {
    let file = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {file}: {e}"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let records: Result<Vec<Record>, String> = lines
        .map(|(index, line)| {
            record(line, vocab).map_err(|error| format!("line {} of {file}: {error}", index + 1))
        })
        .collect();
    let records = records?;
    if records.is_empty() {
        return Err(format!("{file} has no record; it must have one in each line"));
    }
    Ok(records)
}

fn record(line: &str, vocab: &Vocab) -> Result<Record, String> {
    let fields: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let prompt = tokens(&fields, "prompt", vocab)?;
    let answer = tokens(&fields, "answer", vocab)?;
    Ok(Record { tokens: [prompt.as_slice(), &answer].concat(), prompt })
}

fn tokens(fields: &Value, name: &str, vocab: &Vocab) -> Result<Vec<TokenId>, String> {
    let wrong = || format!("{name} must be a text, or an array of token ids");
    let count = vocab.n_tokens();
    let tokens: Vec<TokenId> = match &fields[name] {
        Value::String(text) => vocab.tokenize(text, false, false).map_err(|e| e.to_string())?,
        Value::Array(ids) => {
            let id = |id: &Value| TokenId::try_from(id.as_i64()?).ok();
            ids.iter().map(id).collect::<Option<_>>().ok_or_else(wrong)?
        }
        _ => return Err(wrong()),
    };
    match tokens.iter().find(|token| !(0..count as TokenId).contains(*token)) {
        Some(token) => Err(format!("{name} has the token {token}; the model has {count}")),
        None if tokens.is_empty() => Err(format!("{name} is empty")),
        None => Ok(tokens),
    }
}

/// A model that computes every row, and then says what a record says.
pub struct Replayed<B> {
    model: B,
    records: Arc<[Record]>,
    /// The part of tokens in which it is right. In the others it says the next id.
    right: f64,
    slots: Box<[Slot]>,
    /// The rows of the last call.
    rows: Vec<DecodeRow>,
}

#[derive(Clone, Default)]
struct Slot {
    tokens: Vec<TokenId>,
    /// The record that it follows, once it has said something.
    record: Option<usize>,
}

impl<B: Backend> Replayed<B> {
    /// `model`, which says what `records` say, in `slots` slots.
    pub fn new(model: B, records: Arc<[Record]>, slots: usize) -> Self {
        let slots = vec![Slot::default(); slots].into();
        Self { model, records, right: 1.0, slots, rows: Vec::new() }
    }

    /// The same model, which is right in this part of the tokens only, the same ones each time.
    #[must_use]
    pub fn right_in(self, right: f64) -> Self {
        Self { right, ..self }
    }

    /// The token that follows a row.
    fn next(&mut self, row: DecodeRow) -> TokenId {
        let Slot { tokens, record } = &mut self.slots[row.slot.index()];
        let end = row.position.index() + 1;
        let begins = |record: &Record| record.prompt == tokens[..record.prompt.len().min(end)];
        let found = || self.records.iter().position(begins).expect("only records are asked for");
        let record = &self.records[*record.get_or_insert_with(found)];
        let token = record.tokens.get(end).copied().unwrap_or_default(); // behind its last token
        let place = mix(mix(end as u64) ^ u64::from(token.cast_unsigned()));
        let is_right = place as f64 / u64::MAX as f64 <= self.right;
        if is_right { token } else { (token + 1) % self.model.n_vocab() as TokenId }
    }
}

impl<B: Backend> Backend for Replayed<B> {
    fn n_vocab(&self) -> usize {
        self.model.n_vocab()
    }

    fn begin_step(&mut self, step: u64) {
        self.model.begin_step(step);
    }

    fn decode(&mut self, rows: &[DecodeRow]) -> Result<(), StepError> {
        for row in rows {
            let tokens = &mut self.slots[row.slot.index()].tokens;
            tokens.truncate(row.position.index());
            tokens.push(row.token);
        }
        self.rows.clear();
        self.rows.extend_from_slice(rows);
        self.model.decode(rows)
    }

    fn logits(&mut self, row: usize) -> &mut [f32] {
        let next = self.next(self.rows[row]);
        let logits = self.model.logits(row);
        logits.fill(0.0);
        // A draft model may lack some of the tokens.
        if let Some(logit) = logits.get_mut(next as usize) {
            *logit = 1.0;
        }
        logits
    }

    fn runs_ragged(&self) -> bool {
        self.model.runs_ragged()
    }

    fn copy(&mut self, from: SlotId, to: SlotId, tokens: Position, with_state: bool) -> bool {
        self.model.copy(from, to, tokens, with_state)
    }

    fn truncate(&mut self, slot: SlotId, from: Position) -> bool {
        if from == Position(0) {
            self.slots[slot.index()].record = None;
        }
        self.model.truncate(slot, from)
    }

    fn store_page(&mut self, slot: SlotId, positions: Range<Position>, page: &mut [u8]) -> usize {
        self.model.store_page(slot, positions, page)
    }

    fn load_page(&mut self, slot: SlotId, page: &[u8]) -> bool {
        self.model.load_page(slot, page)
    }

    fn save(&mut self, slot: SlotId, state: &mut [u8]) -> usize {
        self.model.save(slot, state)
    }

    fn restore(&mut self, slot: SlotId, state: &[u8], tokens: Position) -> bool {
        self.model.restore(slot, state, tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelane::decode::sampler::argmax;
    use corelane::model::fake::{FakeModel, FakeOptions};
    use corelane::types::Logits;

    fn of(line: &str) -> Result<Record, String> {
        record(line, &Vocab::of_fake())
    }

    #[test]
    fn records_are_texts_or_tokens() {
        let expected = Record { prompt: vec![97], tokens: vec![97, 98, 99] };
        assert_eq!(of(r#"{"prompt": "a", "answer": "bc"}"#), Ok(expected.clone()));
        assert_eq!(of(r#"{"prompt": [97], "answer": [98, 99]}"#), Ok(expected));
        for (line, message) in [
            (r#"{"prompt": "a"}"#, "answer must be a text, or an array of token ids"),
            (r#"{"prompt": [1.5], "answer": "b"}"#, "prompt must be a text, or an array of"),
            (r#"{"prompt": "", "answer": "b"}"#, "prompt is empty"),
            (r#"{"prompt": [257], "answer": "b"}"#, "prompt has the token 257; the model has 257"),
            ("{", "EOF while parsing"),
        ] {
            assert!(of(line).unwrap_err().starts_with(message), "{line}");
        }
    }

    #[test]
    fn the_model_says_what_the_record_says() {
        let records =
            [of(r#"{"prompt": "ab", "answer": "cd"}"#), of(r#"{"prompt": "ax", "answer": "yz"}"#)];
        let records: Vec<Record> = records.into_iter().map(Result::unwrap).collect();
        let fake = FakeModel::new(2, 100, 8, FakeOptions::default());
        let mut model = Replayed::new(fake, records.into(), 2);
        let row = |slot, position, token: u8| DecodeRow {
            token: token.into(),
            position: Position(position),
            slot: SlotId(slot),
            logits: Logits::Sample,
        };
        // The second slot has a wrong guess.
        let rows = [
            row(0, 0, b'a'),
            row(0, 1, b'b'),
            row(0, 2, b'c'),
            row(1, 0, b'a'),
            row(1, 1, b'x'),
            row(1, 2, b'!'),
        ];
        model.decode(&rows).unwrap();
        let mut said = |index| argmax(model.logits(index)) as u8;
        assert_eq!([said(1), said(2), said(4), said(5)], *b"cdyz");
        let mut model = model.right_in(0.0);
        assert_eq!(argmax(model.logits(1)) as u8, b'd', "never right");
    }
}
