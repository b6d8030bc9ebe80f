//! When a token is late.

use std::time::Duration;

/// What a step means for the times between two tokens.
pub struct Lateness {
    /// The part of its time in the model that prompts take, 0 to 1. 0 if it is not known.
    pub prompt_part: f64,
    /// The time after which a token is late: the target, or twice the time that a step of the texts
    /// alone takes alone on the machine. `None` without a target or a text, and before it is known.
    pub late_after: Option<Duration>,
}
