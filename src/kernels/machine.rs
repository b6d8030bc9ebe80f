//! Measures the machine's limits: how fast it reads memory, and how fast it multiplies bytes. A
//! product with weights takes at least the longer of two times: that of its bytes at the first
//! rate, and that of its multiply-adds at the second (the roofline model).

use std::hint::black_box;
use std::time::Instant;

use super::InstructionSet;
use super::ahead::Ahead;
use super::choose_ahead;
use super::product::prefetch;
use super::simd::Simd;
use super::simd::avx2::{Avx2, AvxVnni};
use super::simd::avx512::Avx512;

/// The machine's limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Bytes of memory read in a second.
    pub bytes_per_s: f64,
    /// Products of two bytes, added to sums of 32 bits, in a second.
    pub multiply_adds_per_s: f64,
}

/// Measures the limits of these cores together. Each reads `bytes`, which should be more than its
/// share of the last-level cache. Takes about a second.
///
/// # Panics
/// If the processor does not have `set`.
pub fn rates(set: InstructionSet, cores: &[usize], bytes: usize) -> Rates {
    assert!(set.is_here(), "the processor has {}", set.name());
    Ahead::choose(|| choose_ahead::measure(set));
    let loops = Loops { set };
    Rates {
        bytes_per_s: together(cores, || loops.bytes_per_s(bytes)),
        multiply_adds_per_s: together(cores, || loops.multiply_adds_per_s()),
    }
}

/// The sum of the rates of all threads, each on a core of its own.
fn together(cores: &[usize], per_s: impl Fn() -> f64 + Sync) -> f64 {
    std::thread::scope(|scope| {
        let on_core = |core: usize| {
            let mut cores = rustix::thread::CpuSet::new();
            cores.set(core);
            let _ = rustix::thread::sched_setaffinity(None, &cores); // a failure leaves it unpinned
            per_s()
        };
        let started: Vec<_> =
            cores.iter().map(|core| scope.spawn(move || on_core(*core))).collect();
        started.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

/// The median time of a pass, in seconds.
fn median_s(passes: usize, pass: impl Fn()) -> f64 {
    let time = |_| {
        let began = Instant::now();
        pass();
        began.elapsed().as_secs_f64()
    };
    let mut times: Vec<f64> = (0..passes).map(time).collect();
    times.sort_by(f64::total_cmp);
    times[passes / 2]
}

/// The two loops.
#[derive(Clone, Copy)]
struct Loops {
    set: InstructionSet,
}

/// A loop for each instruction set.
macro_rules! for_each_set {
    ($name:ident($($arg:ident: $type:ty),*), $body:ident) => {
        unsafe fn $name(&self, $($arg: $type),*) {
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            unsafe fn avx512($($arg: $type),*) {
                // SAFETY: enabled above.
                unsafe { $body::<Avx512>($($arg),*) }
            }
            #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
            unsafe fn avx_vnni($($arg: $type),*) {
                // SAFETY: enabled above.
                unsafe { $body::<AvxVnni>($($arg),*) }
            }
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2($($arg: $type),*) {
                // SAFETY: enabled above.
                unsafe { $body::<Avx2>($($arg),*) }
            }
            // SAFETY: `set` is one that this processor has.
            unsafe {
                match self.set {
                    InstructionSet::Amx | InstructionSet::Avx512Vnni => avx512($($arg),*),
                    InstructionSet::AvxVnni => avx_vnni($($arg),*),
                    InstructionSet::Avx2 => avx2($($arg),*),
                }
            }
        }
    };
}

const DOTS: usize = 12; // independent sums, which hide their latency

#[inline(always)]
unsafe fn dots<S: Simd>(loops: usize) {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let mut sums = [S::zero(); DOTS];
        let a = S::splat_byte(black_box(1));
        for _ in 0..loops {
            // Each adds products with another sum, so that none can be computed before the loop.
            let before = sums;
            for (at, sum) in sums.iter_mut().enumerate() {
                let b = before[(at + 1) % DOTS];
                // What the kernels of most types do.
                *sum = if S::ADDS_PAIRS {
                    S::add_pairs(before[at], a, b)
                } else {
                    S::dot8(before[at], a, b)
                };
            }
            // Keeps the compiler from replacing the loop by a product.
            std::hint::black_box(loops);
        }
        for sum in sums {
            black_box(S::total(sum));
        }
    }
}

#[inline(always)]
unsafe fn reads<S: Simd>(memory: &[u8]) {
    // SAFETY: the caller has the instruction set; all reads lie in the slice.
    unsafe {
        let mut sums = [S::zero(); 4];
        for part in memory.chunks_exact(4 * 64) {
            prefetch(Ahead::of_this_machine(), part.as_ptr(), part.len());
            for (i, sum) in sums.iter_mut().enumerate() {
                for half in 0..16 / S::LANES {
                    *sum = S::or(*sum, S::load(part.as_ptr().add(64 * i + 32 * half)));
                }
            }
        }
        for sum in sums {
            black_box(S::total(sum));
        }
    }
}

impl Loops {
    for_each_set!(dots(loops: usize), dots);
    for_each_set!(reads(memory: &[u8]), reads);

    /// Multiply-adds per second of one thread, with all operands in registers.
    fn multiply_adds_per_s(&self) -> f64 {
        const LOOPS: usize = 1_000_000;
        let lanes = if matches!(self.set, InstructionSet::Amx | InstructionSet::Avx512Vnni) {
            16
        } else {
            8
        };
        // SAFETY: `set` is one that this processor has.
        let pass = || unsafe { self.dots(LOOPS) };
        (LOOPS * DOTS * lanes * 4) as f64 / median_s(9, pass)
    }

    /// Bytes per second that one thread reads.
    fn bytes_per_s(&self, bytes: usize) -> f64 {
        let memory = vec![1; bytes];
        // SAFETY: as above.
        let pass = || unsafe { self.reads(&memory) };
        bytes as f64 / median_s(15, pass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_of_this_processor_is_measured() {
        for set in InstructionSet::ALL.into_iter().filter(|set| set.is_here()) {
            let rates = rates(set, &[0], 1 << 16);
            assert!(rates.bytes_per_s > 1e6 && rates.multiply_adds_per_s > 1e6, "{rates:?}");
        }
    }
}
