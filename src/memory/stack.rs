//! Returns the memory of a deep stack to the kernel.

use std::ffi::c_void;

use rustix::mm::{Advice, madvise};

/// The stack of a thread.
#[derive(Debug)]
pub struct Stack {
    /// An address near its top.
    top: usize,
    bytes: usize,
}

/// Bytes that are kept at both ends: for the guard page and the frames above `top` at the low end,
/// and for the frames of running calls at the high end.
const MARGIN: usize = 1 << 20;

const PAGE: usize = 4096;

impl Stack {
    /// The stack of the calling thread. `bytes` is its size. Call it near the start of the thread.
    pub fn of_this_thread(bytes: usize) -> Self {
        Self { top: here(), bytes }
    }

    /// Returns the pages that deeper calls have touched and no running call uses. Must run on the
    /// same thread.
    pub fn give_back(&self) {
        let low = (self.top + MARGIN).saturating_sub(self.bytes).next_multiple_of(PAGE);
        let high = here().saturating_sub(MARGIN) / PAGE * PAGE;
        if low >= high {
            return;
        }
        // SAFETY: the range lies inside this thread's own stack, at least `MARGIN` below every live
        // frame. Its next use finds zeros, as on a new stack.
        let advised = unsafe { madvise(low as *mut c_void, high - low, Advice::LinuxDontNeed) };
        debug_assert!(advised.is_ok(), "{advised:?}");
    }
}

/// An address in the frame of the caller, or just below it.
#[inline(never)]
fn here() -> usize {
    let local = 0u8;
    std::ptr::from_ref(std::hint::black_box(&local)).addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: usize = 64 << 20;

    /// Uses `bytes` of the stack.
    #[inline(never)]
    fn dive(bytes: usize) -> u8 {
        let frame = std::hint::black_box([1u8; 64 * 1024]);
        let rest = bytes.saturating_sub(frame.len());
        if rest > 0 { dive(rest).wrapping_add(frame[bytes % frame.len()]) } else { frame[0] }
    }

    /// The resident bytes of the mapping that has this address.
    fn resident(address: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/thread-self/smaps").unwrap();
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            if let Some((Ok(from), Ok(to))) =
                range.map(|(a, b)| (usize::from_str_radix(a, 16), usize::from_str_radix(b, 16)))
            {
                inside = (from..to).contains(&address);
            } else if let (true, Some(rss)) = (inside, line.strip_prefix("Rss:")) {
                return 1024 * rss.trim().trim_end_matches(" kB").parse::<usize>().unwrap();
            }
        }
        panic!("no mapping has {address:x}");
    }

    #[test]
    fn what_a_deep_call_touched_is_given_back() {
        let run = || {
            let stack = Stack::of_this_thread(STACK);
            dive(32 << 20);
            let before = resident(stack.top);
            stack.give_back();
            let after = resident(stack.top);
            dive(32 << 20);
            (before, after)
        };
        let thread = std::thread::Builder::new().stack_size(STACK).spawn(run).unwrap();
        let (before, after) = thread.join().unwrap();
        assert!(before >= 30 << 20 && after <= 3 << 20, "{before} bytes before, {after} after");
    }
}
