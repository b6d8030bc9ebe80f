//! The markers around what a model thinks before it answers.

/// What begins reasoning: of most models, of Mistral's, of Cohere's.
pub(super) const OPENERS: &[&str] = &["<think>", "[THINK]", "<|START_THINKING|>"];

/// What ends it, in the same order.
pub(super) const CLOSERS: &[&str] = &["</think>", "[/THINK]", "<|END_THINKING|>"];

/// True when a prompt ends within a block of reasoning: its template has opened one for
/// the model, as DeepSeek-R1's does.
pub fn is_open(prompt: &str) -> bool {
    closer(prompt).is_some()
}

/// What ends the block of reasoning within which a prompt ends, if it does.
pub fn closer(prompt: &str) -> Option<&'static str> {
    let at = OPENERS.iter().position(|opener| prompt.trim_end().ends_with(opener))?;
    Some(CLOSERS[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_is_open_after_its_opener_alone() {
        assert!(is_open("<｜Assistant｜><think>\n"));
        assert!(!is_open("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
        assert!(!is_open("<|im_start|>assistant\n"));
        assert_eq!(closer("[THINK]"), Some("[/THINK]"));
        assert_eq!(OPENERS.len(), CLOSERS.len());
    }
}
