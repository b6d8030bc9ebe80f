//! Tokens that came late, by cause.

use super::value::Counter;

/// The cause of a late token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Prompts of other requests, computed in the same steps.
    Prompt,
    /// The request's own prompt, computed again after it lost its slot or a step failed.
    OwnPrompt,
    /// A mask of a constrained text.
    Mask,
    /// Page faults: memory that was used for the first time, or read from a disk.
    PageFault,
    /// A compute thread without a core: another program, another virtual machine or the control
    /// group's limit took it.
    CoreTaken,
    /// Sampling, without masks.
    Sampling,
    /// The front lane, or a decode lane without a batch.
    Server,
    /// A client that did not read its stream.
    SlowReader,
    /// None of these: the steps took longer than expected.
    Model,
}

/// The number of causes.
pub const CAUSES: usize = 9;

impl Cause {
    /// All of them, in their order.
    pub const ALL: [Self; CAUSES] = [
        Self::Prompt,
        Self::OwnPrompt,
        Self::Mask,
        Self::PageFault,
        Self::CoreTaken,
        Self::Sampling,
        Self::Server,
        Self::SlowReader,
        Self::Model,
    ];

    /// Its name in metrics and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::OwnPrompt => "own_prompt",
            Self::Mask => "mask",
            Self::PageFault => "page_fault",
            Self::CoreTaken => "core_taken",
            Self::Sampling => "sampling",
            Self::Server => "server",
            Self::SlowReader => "slow_reader",
            Self::Model => "model",
        }
    }
}

/// Counters of late tokens.
#[derive(Debug, Default)]
pub struct LateTokens([Counter; CAUSES]);

impl LateTokens {
    /// The counter of a cause.
    pub fn of(&self, cause: Cause) -> &Counter {
        &self.0[cause as usize]
    }
}

/// Tokens of a whole request that came late, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LateCount([u32; CAUSES]);

impl LateCount {
    /// Counts a late token.
    pub fn count(&mut self, cause: Cause) {
        self.0[cause as usize] += 1;
    }

    /// All of them.
    pub fn all(&self) -> u32 {
        self.0.iter().sum()
    }

    /// The late tokens of each cause.
    pub fn by_cause(&self) -> impl Iterator<Item = (Cause, u32)> {
        Cause::ALL.into_iter().zip(self.0)
    }

    /// The cause of most late tokens; `None` without any.
    pub fn main_cause(&self) -> Option<Cause> {
        self.by_cause()
            .filter(|(_, count)| *count > 0)
            .max_by_key(|(_, count)| *count)
            .map(|most| most.0)
    }
}
