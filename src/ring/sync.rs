//! The primitives with which bells and links synchronise. `tests/loom` replaces this file by a
//! version that tries all interleavings.

pub(super) use std::os::unix::net::UnixStream;
pub(super) use std::sync::OnceLock;
pub(super) use std::sync::atomic::{AtomicBool, Ordering, fence};
pub(super) use std::thread::{Thread, current, park};

pub(super) use rtrb::{Consumer, Producer, RingBuffer};
