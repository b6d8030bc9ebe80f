//! Builds the prompt for filling a gap in a text, with the model's tokens for this purpose.
//!
//! The order of its parts is that of the Qwen2.5-Coder report (Hui et al., 2024), which
//! llama-server documents: other files, the text before the gap, the text after it, and last the
//! beginning of the gap.
//!
//! An editor asks again and again while its user types. So the line with the cursor is the
//! beginning of the gap, and stands last in the prompt. Everything before it stays the same while
//! the user types in that line, and is found in the KV cache. (For `/infill`, the client sends that
//! line as `prompt`.)

use super::model::ServedModel;
use super::prompt::{check_prompt_text, check_text, tokenize, tokens_in};
use crate::api::error::ApiError;
use crate::api::prompts::{Part, Prompt};
use crate::api::request::{Excerpt, Gap, Infill, Length};
use crate::model::vocab::FillIn;
use crate::types::TokenId;

/// The names of the repository and of the file, as in llama-server. Requests do not have them.
const REPOSITORY: &str = "myproject\n";
const FILE: &str = "filename\n";
/// The text before each excerpt if the model has no token for files, as in llama-server.
const SNIPPET: &str = "\n\n--- snippet ---\n\n";
/// The number of tokens that mark a gap.
const MARKS: usize = 3;
/// If the texts do not fit, the text after the gap may take at least 1/4 of the room.
const SUFFIX_SHARE: usize = 4;
/// When texts are cut, their sizes are rounded up to a multiple of 1/8 of the room. Typing changes
/// the sizes by a few tokens, so the cut mostly stays at the same token, and the KV cache has the
/// prompt's beginning.
const CUT_SHARE: usize = 8;
/// The room for the beginning of the gap is a multiple of this number of tokens, for the same
/// reason.
const BEGUN_STEP: usize = 64;

/// The tokens of a prompt with a gap, and whether a text was cut to fit. `prefix` is the text
/// before the gap.
///
/// # Errors
/// 400 for a model that has no tokens for a gap, and for texts that are too long or that the
/// model's tokeniser cannot read.
pub fn tokens_around(
    gap: &Gap,
    prefix: &Prompt,
    length: Length,
    model: &ServedModel,
) -> Result<(Vec<TokenId>, bool), ApiError> {
    let Some(marks) = model.vocab.fill_in() else {
        let message = "this model cannot fill in text: its vocabulary has no tokens for a gap";
        let param = if gap.infill.is_some() { "input_suffix" } else { "suffix" };
        return Err(ApiError::unsupported(param, message));
    };
    match &gap.infill {
        Some(infill) => of_infill(infill, prefix, &gap.suffix, marks, length, model),
        None => of_suffix(prefix, &gap.suffix, marks, model).map(|ids| (ids, false)),
    }
}

/// The prompt for OpenAI's `suffix`.
fn of_suffix(
    prefix: &Prompt,
    suffix: &str,
    marks: FillIn,
    model: &ServedModel,
) -> Result<Vec<TokenId>, ApiError> {
    let vocab = &model.vocab;
    check_prompt_text(suffix, "suffix", model)?;
    let suffix = tokenize(vocab, "suffix", suffix, false, false)?;
    let (prefix, begun) = split_at_line(prefix);
    let begins_with_tokens = match &prefix {
        Prompt::Parts(parts) => matches!(parts.first(), Some(Part::Tokens(_))),
        one => matches!(one, Prompt::Tokens(_)),
    };
    // A prompt that begins with token ids gets no token for the start of a text.
    let begin =
        if begins_with_tokens { vec![] } else { tokenize(vocab, "prompt", "", true, false)? };
    let prefix = tokens_in("prompt", &prefix, false, model)?;
    let begun = tokens_in("prompt", &begun, false, model)?;
    Ok(join(begin, marks, prefix, suffix, begun, model.spm_infill))
}

/// Splits a text before its last line. A prompt with token ids is not split.
fn split_at_line(prompt: &Prompt) -> (Prompt, Prompt) {
    match prompt {
        Prompt::Text(text) => {
            let (before, line) = text.split_at(text.rfind('\n').map_or(0, |at| at + 1));
            (Prompt::Text(before.into()), Prompt::Text(line.into()))
        }
        other => (other.clone(), Prompt::Tokens(Vec::new())),
    }
}

/// The prompt for llama-server's `/infill`. If the texts do not fit, whole excerpts are left out,
/// the first ones first. If the prefix and the suffix do not fit without excerpts, the prefix is
/// cut at its start and the suffix at its end.
fn of_infill(
    infill: &Infill,
    prefix: &Prompt,
    suffix: &str,
    marks: FillIn,
    length: Length,
    model: &ServedModel,
) -> Result<(Vec<TokenId>, bool), ApiError> {
    let Prompt::Text(prefix) = prefix else {
        return Err(ApiError::field("input_prefix", "input_prefix must be a text"));
    };
    let text = |param, text: &str| {
        check_text(param, text)?;
        tokenize(&model.vocab, param, text, false, false)
    };
    let mut prefix = text("input_prefix", prefix)?;
    let mut suffix = text("input_suffix", suffix)?;
    let begun = text("prompt", &infill.begun)?;
    let mut begin = tokenize(&model.vocab, "input_prefix", "", true, false)?;
    if let Some(repository) = marks.repository {
        begin.push(repository);
        begin.extend(text("input_extra", REPOSITORY)?);
    }
    let mut file = Vec::new();
    if let Some(mark) = marks.file {
        file.push(mark);
        file.extend(text("input_extra", FILE)?);
    }
    let begun_room = (begun.len() + 1).next_multiple_of(BEGUN_STEP);
    let taken = begin.len() + file.len() + MARKS + begun_room + room_for_text(length, model);
    let room = (model.sequence_tokens as usize).saturating_sub(taken);
    let whole = prefix.len() + suffix.len();
    let mut room = cut(&mut prefix, &mut suffix, room);
    let mut excerpts = Vec::new();
    for excerpt in infill.extra.iter().rev() {
        let ids = of_excerpt(excerpt, marks, model)?;
        if ids.len() > room {
            break;
        }
        room -= ids.len();
        excerpts.push(ids);
    }
    let is_cut = prefix.len() + suffix.len() < whole || excerpts.len() < infill.extra.len();
    begin.extend(excerpts.into_iter().rev().flatten());
    begin.extend(file);
    Ok((join(begin, marks, prefix, suffix, begun, model.spm_infill), is_cut))
}

/// The number of tokens to reserve for the generated text.
fn room_for_text(length: Length, model: &ServedModel) -> usize {
    let some = model.sequence_tokens / 4;
    let tokens = match length {
        // The number is reduced to fit, so at most a quarter of a sequence is reserved.
        Length::AtMost(tokens) => tokens.min(some),
        Length::Default(default) => model.n_predict.or(default).unwrap_or(some).min(some),
        Length::Fit => some,
        Length::PromptOnly => 0,
    };
    tokens as usize
}

/// Cuts both texts to fit into `room` tokens together. Returns the room that is left for excerpts.
fn cut(prefix: &mut Vec<TokenId>, suffix: &mut Vec<TokenId>, room: usize) -> usize {
    let piece = (room / CUT_SHARE).max(1);
    let pieces = |tokens: usize| tokens.next_multiple_of(piece);
    let suffix_room = (room / SUFFIX_SHARE).max(room.saturating_sub(pieces(prefix.len())));
    suffix.truncate(suffix_room);
    let prefix_room = room - pieces(suffix.len()).min(suffix_room);
    let excess = prefix.len().saturating_sub(prefix_room);
    prefix.drain(..pieces(excess).min(prefix.len()));
    if excess > 0 { 0 } else { prefix_room.saturating_sub(pieces(prefix.len())) }
}

fn of_excerpt(
    excerpt: &Excerpt,
    marks: FillIn,
    model: &ServedModel,
) -> Result<Vec<TokenId>, ApiError> {
    const PARAM: &str = "input_extra";
    let text = |text: &str| {
        check_text(PARAM, text)?;
        tokenize(&model.vocab, PARAM, text, false, false)
    };
    let mut ids = Vec::new();
    match marks.file {
        Some(file) => {
            ids.push(file);
            ids.extend(text(&format!("{}\n", excerpt.filename))?);
        }
        None => ids.extend(text(SNIPPET)?),
    }
    ids.extend(text(&excerpt.text)?);
    Ok(ids)
}

/// Joins the parts in the order prefix, suffix, middle. If `suffix_first`, the suffix comes before
/// the prefix.
fn join(
    begin: Vec<TokenId>,
    marks: FillIn,
    prefix: Vec<TokenId>,
    suffix: Vec<TokenId>,
    begun: Vec<TokenId>,
    suffix_first: bool,
) -> Vec<TokenId> {
    let mut ids = begin;
    let mut parts = [(marks.prefix, prefix), (marks.suffix, suffix), (marks.middle, begun)];
    if suffix_first {
        parts.swap(0, 1);
    }
    for (mark, part) in parts {
        ids.push(mark);
        ids.extend(part);
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_cut_at_the_far_ends() {
        let sizes = |prefix: usize, suffix: usize, room| {
            let (mut before, mut after): (Vec<_>, Vec<_>) =
                ((0..prefix as i32).collect(), (0..suffix as i32).collect());
            let left = cut(&mut before, &mut after, room);
            assert!(before.last().is_none_or(|last| *last == prefix as i32 - 1));
            assert!(after.first().is_none_or(|first| *first == 0));
            assert!(before.len() + after.len() + left <= room);
            (before.len(), after.len(), left)
        };
        // With room for 80 tokens, sizes are rounded up to a multiple of 10.
        assert_eq!(sizes(10, 10, 80), (10, 10, 60));
        assert_eq!(sizes(11, 11, 80), (11, 11, 40));
        assert_eq!(sizes(10, 1000, 80), (10, 70, 0));
        assert_eq!(sizes(1000, 10, 80), (70, 10, 0));
        assert_eq!(sizes(1001, 10, 80), (61, 10, 0));
        assert_eq!(sizes(1000, 1000, 80), (60, 20, 0));
        assert_eq!(sizes(1000, 1000, 0), (0, 0, 0));
    }

    /// While the user types, the first token of the cut prefix and the room for excerpts seldom
    /// change.
    #[test]
    fn a_growing_prefix_is_cut_seldom() {
        let mut starts = Vec::new();
        for length in 900..1100 {
            let (mut prefix, mut suffix) = ((0..length).collect(), vec![0; 1100 - length as usize]);
            let left = cut(&mut prefix, &mut suffix, 400);
            starts.push((prefix[0], left));
        }
        starts.dedup();
        assert!(starts.len() <= 8, "{starts:?}");
    }

    #[test]
    fn the_line_with_the_cursor_belongs_to_the_gap() {
        let split = |text: &str| match split_at_line(&Prompt::Text(text.into())) {
            (Prompt::Text(before), Prompt::Text(line)) => (before, line),
            other => panic!("{other:?}"),
        };
        assert_eq!(split("a\n  b"), ("a\n".into(), "  b".into()));
        assert_eq!(split("a\n"), ("a\n".into(), String::new()));
        assert_eq!(split("ab"), (String::new(), "ab".into()));
        let tokens = Prompt::Tokens(vec![1, 2]);
        assert_eq!(split_at_line(&tokens), (tokens, Prompt::Tokens(Vec::new())));
    }
}
