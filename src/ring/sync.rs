//! The parts of the standard library that bells synchronise with. `tests/loom` has a version of this
//! file that tries all interleavings.

pub(super) use std::sync::OnceLock;
pub(super) use std::sync::atomic::{AtomicBool, Ordering, fence};
pub(super) use std::thread::{Thread, current, park};
