//! The markers around a model's reasoning.
//!
//! Only the markers of the model's own template count. Those of another family are text. A grammar
//! must not offer them: a model that was not trained with them would reason in plain text until it
//! reaches its limit of tokens.

/// The markers of reasoning that has a limit, and how it ends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasoningEnd {
    /// The text that opens a block.
    pub opener: &'static str,
    /// The text that closes it.
    pub closer: &'static str,
    /// Whether a block may begin anywhere in the text.
    pub anywhere: bool,
    /// The text that is written at the limit. It closes the block.
    pub text: &'static str,
    /// The text that closes a further block.
    pub next: &'static str,
}

/// A family's markers around reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningSyntax {
    /// `<|START_THINKING|>` and `<|END_THINKING|>`: Command A.
    Cohere,
    /// `<|channel>thought` and `<channel|>`: Gemma 4.
    Gemma,
    /// `<seed:think>` and `</seed:think>`: Seed-OSS.
    Seed,
    /// `[THINK]` and `[/THINK]`: Magistral.
    Mistral,
    /// `<think>` and `</think>`: most models.
    Think,
}

impl ReasoningSyntax {
    /// All families, the rarer markers first.
    pub const ALL: [Self; 5] = [Self::Cohere, Self::Gemma, Self::Seed, Self::Mistral, Self::Think];

    /// Finds a chat template's family by the markers in its source. Some templates contain only the
    /// closing marker, with which they remove earlier reasoning from the prompt.
    pub fn of_template(source: &str) -> Option<Self> {
        let has =
            |syntax: &Self| source.contains(syntax.opener()) || source.contains(syntax.closer());
        Self::ALL.into_iter().find(has)
    }

    /// The opening marker.
    pub fn opener(self) -> &'static str {
        match self {
            Self::Cohere => "<|START_THINKING|>",
            Self::Gemma => "<|channel>thought",
            Self::Seed => "<seed:think>",
            Self::Mistral => "[THINK]",
            Self::Think => "<think>",
        }
    }

    /// The closing marker.
    pub fn closer(self) -> &'static str {
        match self {
            Self::Cohere => "<|END_THINKING|>",
            Self::Gemma => "<channel|>",
            Self::Seed => "</seed:think>",
            Self::Mistral => "[/THINK]",
            Self::Think => "</think>",
        }
    }

    /// How reasoning ends at a limit.
    pub(super) fn end(self) -> ReasoningEnd {
        let closer = self.closer();
        ReasoningEnd { opener: self.opener(), closer, anywhere: false, text: closer, next: closer }
    }

    /// The part of the opening marker that is a token in the family's own vocabulary.
    pub(super) fn opening_token(self) -> &'static str {
        match self {
            Self::Gemma => "<|channel>",
            _ => self.opener(),
        }
    }

    /// Whether a prompt ends inside a block of reasoning. Some templates, such as DeepSeek-R1's,
    /// open one for the model.
    pub fn is_open(self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(self.opener())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_is_open_after_its_opener_alone() {
        let is_open = |prompt| ReasoningSyntax::Think.is_open(prompt);
        assert!(is_open("<｜Assistant｜><think>\n"));
        assert!(!is_open("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
        assert!(!is_open("<|im_start|>assistant\n"));
        assert!(!is_open("[THINK]"), "another family's");
        assert!(ReasoningSyntax::Gemma.is_open("<|turn>model\n<|channel>thought\n"));
        assert!(!ReasoningSyntax::Gemma.is_open("<|turn>model\n<|channel>thought\n<channel|>"));
    }

    #[test]
    fn a_template_shows_its_markers() {
        use ReasoningSyntax::*;
        let cases = [
            ("{{ content.split('</think>')[-1] }}", Some(Think)),
            ("{{ '<think>\\n' }}", Some(Think)),
            ("{{ '[THINK]' }}", Some(Mistral)),
            ("<|START_THINKING|>{{ plan }}<|END_THINKING|>", Some(Cohere)),
            ("{{- '<|channel>thought\\n<channel|>' -}}", Some(Gemma)),
            ("{%- set think_end_token = '</seed:think>' -%}", Some(Seed)),
            ("<tool_call>", None),
        ];
        for (source, syntax) in cases {
            assert_eq!(ReasoningSyntax::of_template(source), syntax, "{source}");
        }
    }
}
