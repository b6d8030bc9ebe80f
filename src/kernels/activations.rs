//! Activations in the form that the kernels read: rows of signed bytes, with a scale for each
//! block.
//!
//! ```text
//! a row of activations
//!   codes    [columns] i8, in blocks of F::COLUMNS, from -127 to 127
//!   sums     sums of the codes of each group of columns, see below
//!   scales   [columns / F::COLUMNS] f32: activation = scale * code
//! ```
//!
//! A block's scale is its largest absolute value / 127, as in ggml's Q8_K and Q8_0 (Q8_0 rounds it
//! to 16 bits).
//!
//! The sums correct a product for the offset (or the minima) of the weights' codes. There is one for
//! each scale of a weight. For formats whose minima are integers, they are 16-bit integers. For other
//! formats, they are 32-bit integers; without minima, already multiplied by `-F::OFFSET`.

use super::formats::{CHUNK, Format, LINE, Minima};
use super::simd::Simd;

/// The offsets of the parts of a row, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct RowLayout {
    /// The sums.
    pub sums: usize,
    /// The scales.
    pub scales: usize,
    /// The length of a row.
    pub stride: usize,
}

impl RowLayout {
    /// The layout of a row of `columns` activations.
    pub fn of<F: Format>(columns: usize) -> Self {
        let sums = columns;
        let scales = sums + columns / CHUNK * chunk_sums_bytes::<F>();
        let stride = (scales + columns / F::COLUMNS * size_of::<f32>()).next_multiple_of(LINE);
        Self { sums, scales, stride }
    }
}

/// Bytes of a chunk's sums.
pub const fn chunk_sums_bytes<F: Format>() -> usize {
    let bytes = match F::MINIMA {
        Minima::Integers => size_of::<i16>(),
        Minima::None | Minima::Float => size_of::<i32>(),
    };
    F::CHUNK_SCALES * bytes
}

/// Blocks whose largest absolute value is below this are stored as zeros, because 127 divided by
/// that value could overflow.
const LARGEST_MIN: f32 = 1e-36;

/// Quantises block number `block` of the row of activations `from` into the row `to`. A block with
/// a NaN has unspecified products.
///
/// # Safety
/// As [`Simd`] asks; `from` has that block, and `to` is a row of this `layout`.
#[inline(always)]
pub unsafe fn quantise<S: Simd, F: Format>(
    from: *const f32,
    block: usize,
    to: *mut u8,
    layout: RowLayout,
) {
    // SAFETY: the block's columns lie in `from`; its codes, sums and scale in `to`.
    unsafe {
        let from = from.add(block * F::COLUMNS);
        let mut largest = [S::splat_f32(0.0); 2];
        for at in (0..F::COLUMNS).step_by(2 * S::LANES) {
            for (half, largest) in largest.iter_mut().enumerate() {
                *largest = S::max_abs(*largest, S::load_f32(from.add(at + half * S::LANES)));
            }
        }
        let largest = S::largest(S::max_abs(largest[0], largest[1]));
        // The inverse of a smaller number would be infinite; store zeros.
        let largest = if largest < LARGEST_MIN { 0.0 } else { largest };
        to.add(layout.scales).cast::<f32>().add(block).write(largest / 127.0);
        let inverse = S::splat_f32(if largest > 0.0 { 127.0 / largest } else { 0.0 });

        let codes = to.cast::<i8>().add(block * F::COLUMNS);
        let group = CHUNK / F::CHUNK_SCALES;
        let groups = F::COLUMNS / group;
        for index in 0..groups {
            let mut sum = S::zero();
            for at in (index * group..(index + 1) * group).step_by(S::LANES) {
                let code = S::round(S::mul(S::load_f32(from.add(at)), inverse));
                S::store_bytes(codes.add(at), code);
                sum = S::add(sum, code);
            }
            let (sum, at) = (S::total(sum), block * groups + index);
            let sums = to.add(layout.sums);
            match F::MINIMA {
                // The sum is within 32 x 127, unless an activation is NaN.
                Minima::Integers => sums.cast::<i16>().add(at).write(sum as i16),
                Minima::Float => sums.cast::<i32>().add(at).write(sum),
                Minima::None => sums.cast::<i32>().add(at).write(sum.wrapping_mul(-F::OFFSET)),
            }
        }
    }
}
