//! The markers around a model's reasoning.

/// The opening markers: of most models, of Mistral's, of Cohere's.
pub(super) const OPENERS: &[&str] = &["<think>", "[THINK]", "<|START_THINKING|>"];

/// The closing markers, in the order of the opening ones.
pub(super) const CLOSERS: &[&str] = &["</think>", "[/THINK]", "<|END_THINKING|>"];

/// Whether a prompt ends inside a block of reasoning. Some templates, such as DeepSeek-R1's, open
/// one for the model.
pub fn is_open(prompt: &str) -> bool {
    closer(prompt).is_some()
}

/// The closing marker of the block of reasoning that a prompt ends in, if any.
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
