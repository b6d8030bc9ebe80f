//! Penalties on tokens that the text already has. Their time is linear in the text's tokens, not in
//! the vocabulary.

use super::history::History;
use crate::types::{Sampling, TokenId};

/// Applies the repetition penalty over the last `repeat_last_n` tokens (Keskar et al., 2019), and
/// the presence and frequency penalties: `logit -= frequency * count + presence`. The latter two
/// count the tokens of the same window, as in llama.cpp (`penalise_window`), or all generated
/// tokens, as in OpenAI's API. `counts` is all zeroes before and after the call, `[n_vocab]` like
/// `logits`.
pub(super) fn apply_penalties(
    counts: &mut [u32],
    logits: &mut [f32],
    s: &Sampling,
    history: History<'_>,
) {
    let window = s.repeat_last_n as usize;
    let seen = &history.tokens[history.tokens.len().saturating_sub(window)..];
    if s.repeat_penalty != 1.0 {
        for_each_distinct(counts, seen, |token, _| {
            let logit = &mut logits[token];
            *logit =
                if *logit > 0.0 { *logit / s.repeat_penalty } else { *logit * s.repeat_penalty };
        });
    }
    if s.presence_penalty != 0.0 || s.frequency_penalty != 0.0 {
        let generated = &history.tokens[history.prompt_tokens.min(history.tokens.len())..];
        let penalised = if s.penalise_window { seen } else { generated };
        for_each_distinct(counts, penalised, |token, count| {
            logits[token] -= s.frequency_penalty * count as f32 + s.presence_penalty;
        });
    }
}

/// Calls `apply(token, count)` once for each distinct token, in linear time. `counts` is all zeroes
/// before and after the call.
fn for_each_distinct(counts: &mut [u32], tokens: &[TokenId], mut apply: impl FnMut(usize, u32)) {
    for token in tokens {
        counts[*token as usize] += 1;
    }
    for token in tokens {
        let count = std::mem::take(&mut counts[*token as usize]);
        if count > 0 {
            apply(*token as usize, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn penalties_count_what_they_should() {
        let history = History { tokens: &[1, 2, 3, 3, 4], prompt_tokens: 2 };
        let s = Sampling {
            repeat_penalty: 2.0,
            repeat_last_n: 2, // tokens 3 and 4
            presence_penalty: 0.5,
            frequency_penalty: 0.25, // tokens 3 (twice) and 4
            ..Sampling::greedy()
        };
        let mut logits = [1.0f32, 1.0, 1.0, 1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let mut counts = [0; 10];
        apply_penalties(&mut counts, &mut logits, &s, history);
        assert_eq!(logits[..5], [1.0, 1.0, 1.0, 0.5 - 0.5 - 0.5, -2.0 - 0.25 - 0.5]);
        assert_eq!(counts, [0; 10], "the table is clean again");
        let s = Sampling { repeat_penalty: 1.0, penalise_window: true, ..s };
        let mut logits = [0.0f32; 10];
        apply_penalties(&mut counts, &mut logits, &s, history);
        assert_eq!(logits[..5], [0.0, 0.0, 0.0, -0.75, -0.75], "the last two tokens");
    }
}
