//! `src/ring/sync.rs`, by loom.

pub(super) use loom::sync::atomic::{AtomicBool, Ordering, fence};
pub(super) use loom::thread::{Thread, current, park};

use loom::cell::UnsafeCell;

/// As much of the standard library's `OnceLock` as bells use, for one thread that initialises it.
/// Like that one, it shows its value to whoever sees, with Acquire, that it is there.
#[derive(Debug)]
pub(super) struct OnceLock<T> {
    is_set: AtomicBool,
    value: UnsafeCell<Option<T>>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self { is_set: AtomicBool::new(false), value: UnsafeCell::new(None) }
    }
}

impl<T> OnceLock<T> {
    pub fn get(&self) -> Option<&T> {
        if !self.is_set.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: it was written before `is_set`, and is never written again.
        self.value.with(|value| unsafe { (*value).as_ref() })
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if !self.is_set.load(Ordering::Relaxed) {
            // SAFETY: only one thread initialises it, and nobody reads it before `is_set`.
            self.value.with_mut(|value| unsafe { *value = Some(make()) });
            self.is_set.store(true, Ordering::Release);
        }
        self.get().expect("it was just set")
    }
}
