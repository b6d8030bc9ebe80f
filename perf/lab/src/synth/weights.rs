//! Random weights: fast, bell-shaped, and independent of the number of threads and the sizes of the
//! pieces.
//!
//! Every number is a function of the seed, the tensor and the number's index (a counter-based
//! generator), so pieces can be drawn in any order. The sum of four bytes of a hash is close to
//! normal (Irwin-Hall), and has so few values that their 16-bit floats come from a table.

use llama_cpp_sys_2 as sys;

use corelane::random::{STEP, mix};

/// The values of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    /// f16, normal around 0.
    Random { deviation: f32 },
    /// f32, all equal.
    Constant(f32),
    /// f32, these values.
    Given(Vec<f32>),
}

/// Sums of four bytes are 0 to 1020. Rounded up, so that a mask bounds the index.
const SUMS: usize = 1024;

/// The standard deviation of a sum of four uniform bytes.
pub(super) const SUM_DEVIATION: f32 = 147.8; // sqrt(4 * (256^2 - 1) / 12)

/// The weights of one tensor.
pub(super) struct Weights {
    key: u64,
    table: Box<[u16; SUMS]>, // f16, indexed by the sum of four bytes
}

impl Weights {
    /// The weights of tensor number `tensor`.
    pub fn new(seed: u64, tensor: u64, deviation: f32) -> Self {
        let mut values = [0.0f32; SUMS];
        for (sum, value) in values.iter_mut().enumerate() {
            *value = (sum as f32 - 510.0) * (deviation / SUM_DEVIATION);
        }
        let mut table = Box::new([0u16; SUMS]);
        // SAFETY: both arrays have SUMS elements, and the call keeps neither pointer.
        unsafe {
            sys::ggml_fp32_to_fp16_row(values.as_ptr(), table.as_mut_ptr(), SUMS as i64);
        }
        Self { key: mix(mix(seed).wrapping_add(tensor)), table }
    }

    /// Writes the weights from index `first` on as little-endian f16. `first` is even, and `out`
    /// has two bytes per weight.
    pub fn fill(&self, first: u64, out: &mut [u8]) {
        assert!(first.is_multiple_of(2), "weights are drawn in pairs");
        let mut counter = first / 2;
        let mut pairs = out.chunks_exact_mut(4);
        for pair in &mut pairs {
            pair.copy_from_slice(&self.pair(counter));
            counter += 1;
        }
        let rest = pairs.into_remainder();
        let last = self.pair(counter);
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// Two weights from the eight bytes of one hash.
    fn pair(&self, counter: u64) -> [u8; 4] {
        let hash = mix(STEP.wrapping_mul(self.key.wrapping_add(counter)));
        // Adds neighbours in all lanes at once: 8 bytes, 4 sums, 2 sums.
        let twos = (hash & 0x00FF_00FF_00FF_00FF) + ((hash >> 8) & 0x00FF_00FF_00FF_00FF);
        let fours = (twos & 0x0000_FFFF_0000_FFFF) + ((twos >> 16) & 0x0000_FFFF_0000_FFFF);
        let weight = |sum: u64| u32::from(self.table[sum as usize & (SUMS - 1)]);
        (weight(fours) | weight(fours >> 32) << 16).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(bytes: &[u8]) -> Vec<f32> {
        let halves: Vec<u16> =
            bytes.chunks_exact(2).map(|half| u16::from_le_bytes([half[0], half[1]])).collect();
        let mut values = vec![0.0f32; halves.len()];
        // SAFETY: both slices have equal lengths, and the call keeps neither pointer.
        unsafe {
            sys::ggml_fp16_to_fp32_row(halves.as_ptr(), values.as_mut_ptr(), halves.len() as i64);
        }
        values
    }

    #[test]
    fn they_have_the_mean_and_deviation_asked_for() {
        let mut bytes = vec![0; 2 * 200_000];
        Weights::new(1, 2, 0.03).fill(0, &mut bytes);
        let values = values(&bytes);
        let n = values.len() as f64;
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
        let square = values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n;
        assert!(mean.abs() < 3e-4, "{mean}");
        assert!((square.sqrt() - 0.03).abs() < 3e-4, "{square}");
        let beyond = values.iter().filter(|v| v.abs() > 0.06).count() as f64 / n;
        assert!((0.035..0.055).contains(&beyond), "a bell has 4.6 % beyond two: {beyond}");
        // Neighbours share a hash, and tensors share a seed; neither may correlate.
        let mut other = vec![0; bytes.len()];
        Weights::new(1, 3, 0.03).fill(0, &mut other);
        let other = self::values(&other);
        let product = |a: &[f32], b: &[f32]| {
            a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>() / n / square
        };
        assert!(product(&values, &values[1..]).abs() < 0.01);
        assert!(product(&values, &other).abs() < 0.01);
    }

    #[test]
    fn cutting_changes_nothing() {
        let weights = Weights::new(7, 0, 1.0);
        let mut whole = vec![0; 2 * 1001];
        weights.fill(0, &mut whole);
        let mut parts = vec![0; 2 * 1001];
        for (start, end) in [(600, 1001), (0, 2), (2, 600)] {
            weights.fill(start, &mut parts[2 * start as usize..2 * end]);
        }
        assert_eq!(whole, parts);
    }
}
