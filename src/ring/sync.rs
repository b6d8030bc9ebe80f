//! The parts that bells and links synchronise with. `tests/loom` has a version of this file that
//! tries all interleavings.

pub(super) use std::os::unix::net::UnixStream;
pub(super) use std::sync::OnceLock;
pub(super) use std::sync::atomic::{AtomicBool, Ordering, fence};
pub(super) use std::thread::{Thread, current, park};

pub(super) use rtrb::{Consumer, Producer, RingBuffer};
