//! The prompt for a gap in a text, by the model's own tokens for it.
//!
//! Its order is that of the Qwen2.5-Coder report (Hui et al., 2024), which llama-server documents:
//! other files, the text before the gap, the text after it, and last the beginning of the gap.
//!
//! An editor asks again and again while its cursor moves on. So the line with the cursor belongs to
//! the gap: while somebody types in it, all before the gap's beginning is found in the KV cache.

use super::model::ServedModel;
use super::prompt::{check_prompt_text, check_text, tokenize, tokens_in};
use crate::api::error::ApiError;
use crate::api::prompts::{Part, Prompt};
use crate::api::request::{Excerpt, Gap, Infill, Length};
use crate::model::vocab::FillIn;
use crate::types::TokenId;

/// The names of the repository and of the file, which no request says. llama-server's.
const REPOSITORY: &str = "myproject\n";
const FILE: &str = "filename\n";
/// Separates excerpts for a model that knows no files. llama-server's.
const SNIPPET: &str = "\n\n--- snippet ---\n\n";
/// The tokens that mark a gap.
const MARKS: usize = 3;
/// The part of the room that the text after a gap may take if there is more text than room.
const SUFFIX_SHARE: usize = 4;
/// Texts count in pieces of this part of the room when they are cut. A cursor that moves on changes
/// their sizes by a few tokens, and the cut mostly stays where it was. So the KV cache has the
/// beginning of the prompt.
const CUT_SHARE: usize = 8;
/// The room for the beginning of the gap comes in pieces of this size, for the same reason.
const BEGUN_STEP: usize = 64;

/// The tokens of a prompt with a gap, and whether a text was cut. `prefix` is the text before the
/// gap.
///
/// # Errors
/// 400 for a model that has no tokens for a gap, and for texts that are too long or that it cannot
/// read.
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
    // Tokens are used as they are.
    let begin =
        if begins_with_tokens { vec![] } else { tokenize(vocab, "prompt", "", true, false)? };
    let prefix = tokens_in("prompt", &prefix, false, model)?;
    let begun = tokens_in("prompt", &begun, false, model)?;
    Ok(join(begin, marks, prefix, suffix, begun, model.spm_infill))
}

/// Splits a text before its last line.
fn split_at_line(prompt: &Prompt) -> (Prompt, Prompt) {
    match prompt {
        Prompt::Text(text) => {
            let (before, line) = text.split_at(text.rfind('\n').map_or(0, |at| at + 1));
            (Prompt::Text(before.into()), Prompt::Text(line.into()))
        }
        other => (other.clone(), Prompt::Tokens(Vec::new())),
    }
}

/// The prompt for llama-server's `/infill`. Texts without room are cut: first the excerpts, from the
/// first one on, then the prefix at its start and the suffix at its end.
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

/// The tokens to leave room for: those that the request wants to generate.
fn room_for_text(length: Length, model: &ServedModel) -> usize {
    let some = model.sequence_tokens / 4;
    let tokens = match length {
        Length::AtMost(tokens) => tokens,
        // These are cut to what fits.
        Length::UpTo(tokens) => tokens.min(some),
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

/// Joins the parts: prefix, suffix, middle, or the suffix first.
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
        // Room for 80 tokens comes in pieces of 10.
        assert_eq!(sizes(10, 10, 80), (10, 10, 60));
        assert_eq!(sizes(11, 11, 80), (11, 11, 40));
        assert_eq!(sizes(10, 1000, 80), (10, 70, 0));
        assert_eq!(sizes(1000, 10, 80), (70, 10, 0));
        assert_eq!(sizes(1001, 10, 80), (61, 10, 0));
        assert_eq!(sizes(1000, 1000, 80), (60, 20, 0));
        assert_eq!(sizes(1000, 1000, 0), (0, 0, 0));
    }

    /// While the cursor moves on, the prefix begins at the same place for a while, and no excerpt
    /// comes or goes.
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
