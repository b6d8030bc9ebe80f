//! Measures the best prefetch distance for weights on this machine.

use std::time::{Duration, Instant};

use super::ahead::Ahead;
use super::formats::{LINE, STRIP_ROWS};
use super::kernel::{InstructionSet, Kernel};
use super::product::{ROWS_MAX, Work};

/// The choices, in the order in which they are measured.
const ALL: [Ahead; 2] = [Ahead::Far, Ahead::Near];

/// ggml's number of Q4_K, the type that is measured.
const MEASURED_TYPE: i32 = 12;
const COLUMNS: usize = 1024;
const STRIPS: usize = 64;

/// Passes of each choice; the choices take turns. The fastest pass counts, because other programs
/// only make a pass slower.
const PASSES: usize = 25;

/// Near is chosen if its time is below this part of far's time. A disturbed measurement shows both
/// as equal.
const CLEARLY: f64 = 0.95;

/// Measures which of the two reads weights from memory faster. Takes about 30 ms.
pub fn measure(set: InstructionSet) -> Ahead {
    let Some(kernel) = set.kernel(MEASURED_TYPE) else { return Ahead::Far };
    let [far, near] = times(&kernel);
    let is_near = near.as_secs_f64() < CLEARLY * far.as_secs_f64();
    let chosen = if is_near { Ahead::Near } else { Ahead::Far };
    tracing::debug!(
        "weights are prefetched {} KiB ahead: {far:?} for the second-level cache, {near:?} for the first",
        chosen.bytes() >> 10
    );
    chosen
}

/// The fastest pass of each choice over 0.6 MiB of weights that no cache holds.
fn times(kernel: &Kernel) -> [Duration; ALL.len()] {
    let layout = (kernel.layout)(COLUMNS);
    let strip_bytes = (kernel.strip_bytes)(COLUMNS);
    // The values do not matter; zeros would share one page of memory.
    let weights = vec![1_u8; STRIPS * strip_bytes];
    let activations = vec![0_f32; layout.stride.div_ceil(size_of::<f32>())];
    let mut out = [0.0; STRIP_ROWS];
    let mut best = [Duration::MAX; ALL.len()];
    for _ in 0..PASSES {
        for (ahead, best) in ALL.into_iter().zip(&mut best) {
            flush(&weights);
            let began = Instant::now();
            for strip in weights.chunks_exact(strip_bytes) {
                let work = Work {
                    strip: strip.as_ptr(),
                    columns: COLUMNS,
                    activations: [activations.as_ptr().cast(); ROWS_MAX],
                    layout,
                    out: [out.as_mut_ptr(); ROWS_MAX],
                    ahead,
                };
                // SAFETY: the caller's kernel is one for this processor; the pointers are those of
                // a strip, of one row of activations and of its 16 products.
                unsafe { kernel.multiply[0](&work) };
            }
            *best = began.elapsed().min(*best);
        }
    }
    best
}

/// Removes memory from all caches.
fn flush(memory: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in memory.chunks(LINE) {
        // SAFETY: every x86-64 processor has the instruction; the address is one of the slice.
        unsafe { std::arch::x86_64::_mm_clflush(line.as_ptr()) };
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        std::arch::x86_64::_mm_mfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (memory, LINE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_timed_on_this_processor() {
        for set in InstructionSet::ALL.into_iter().filter(|set| set.is_here()) {
            let Some(kernel) = set.kernel(MEASURED_TYPE) else { continue };
            let times = times(&kernel);
            assert!(times.iter().all(|time| !time.is_zero() && *time < Duration::MAX), "{times:?}");
        }
    }
}
