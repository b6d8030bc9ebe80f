//! The flags for requests that leave a field of their sampling, or the system prompt, out.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args};
use corelane::flags::settle_text;
use corelane::limits::{LLAMA_SAMPLING_MAX, SEQUENCE_TOKENS_MAX, SYSTEM_PROMPT_BYTES_MAX};
use corelane::types::defaults::SamplingDefaults;

/// Values that requests may replace.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Generation")]
pub struct SamplingArgs {
    /// Temperature of requests that give none; 0 always takes the most probable token [default: the file's, or
    /// that of the API]
    #[arg(
        long,
        visible_alias = "temperature",
        value_name = "T",
        allow_negative_numbers = true,
        value_parser = |text: &str| float(text, 0.0, LLAMA_SAMPLING_MAX as f32)
    )]
    temp: Option<f32>,
    /// As many of the most probable tokens are drawn from; 0 for all. For requests that give none, as all of these
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    top_k: Option<i32>,
    /// The most probable tokens that reach this probability together are drawn from; 1 for all
    #[arg(long, allow_negative_numbers = true, value_name = "P", value_parser = |text: &str| float(text, 0.0, 1.0))]
    top_p: Option<f32>,
    /// Tokens at least this probable beside the most probable one are drawn from; 0 for all
    #[arg(long, allow_negative_numbers = true, value_name = "P", value_parser = |text: &str| float(text, 0.0, 1.0))]
    min_p: Option<f32>,
    /// Divides the logits of tokens among the last ones; 1 for none
    #[arg(long, allow_negative_numbers = true, value_name = "X", value_parser = |text: &str| float(text, 0.01, 10.0))]
    repeat_penalty: Option<f32>,
    /// As many tokens count as the last ones; -1 for all
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    repeat_last_n: Option<i32>,
    /// Subtracted from the logits of tokens that came before
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = penalty)]
    presence_penalty: Option<f32>,
    /// Subtracted from the logits of tokens for each time that they came before
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = penalty)]
    frequency_penalty: Option<f32>,
    /// System message of chats that begin with none (also -sys)
    #[arg(long, value_name = "TEXT")]
    system_prompt: Option<String>,
    /// File with that message
    #[arg(long, value_name = "FILE")]
    system_prompt_file: Option<PathBuf>,
}

fn penalty(text: &str) -> Result<f32, String> {
    float(text, -LLAMA_SAMPLING_MAX as f32, LLAMA_SAMPLING_MAX as f32)
}

fn float(text: &str, low: f32, high: f32) -> Result<f32, String> {
    let number = text.parse().ok().filter(|number| (low..=high).contains(number));
    number.ok_or_else(|| format!("it must be a number from {low} to {high}"))
}

impl SamplingArgs {
    /// The values of the flags.
    pub fn defaults(&self) -> SamplingDefaults {
        SamplingDefaults {
            temperature: self.temp,
            top_k: self.top_k.map(|k| k.max(0).cast_unsigned()), // -1 is all, as in vLLM
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            repeat_last_n: self.repeat_last_n.map(|n| match n {
                ..0 => SEQUENCE_TOKENS_MAX as u32,
                n => n.cast_unsigned(),
            }),
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
        }
    }

    /// Decides between the system message and its file.
    ///
    /// # Errors
    /// See [`settle_text`].
    pub fn settle(&mut self, matches: &ArgMatches) -> Result<(), String> {
        let Self { system_prompt, system_prompt_file, .. } = self;
        let file = ("system_prompt_file", system_prompt_file);
        settle_text(("system_prompt", system_prompt), file, matches)
    }

    /// The system message, if the flags give one.
    ///
    /// # Errors
    /// A sentence for the user, if its file cannot be read, or it is too long.
    pub fn system_prompt(&self) -> Result<Option<String>, String> {
        let text = match &self.system_prompt_file {
            None => self.system_prompt.clone(),
            Some(path) => Some(read_text(path).map_err(|error| {
                format!("cannot read the system prompt from {}: {error}", path.display())
            })?),
        };
        let bytes = text.as_ref().map_or(0, String::len);
        if bytes > SYSTEM_PROMPT_BYTES_MAX {
            return Err(format!(
                "the system prompt has {bytes} bytes; it may have {SYSTEM_PROMPT_BYTES_MAX}"
            ));
        }
        Ok(text.filter(|text| !text.trim().is_empty()))
    }
}

/// Reads a text file, but no more than a byte above the bound, and without the line break at its end.
fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(SYSTEM_PROMPT_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    let length = text.trim_end_matches(['\r', '\n']).len();
    text.truncate(length);
    Ok(text)
}
