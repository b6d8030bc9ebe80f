//! Computes a whole product with the threads of a team.

use std::ops::Range;

use super::ahead::Ahead;
use super::format::STRIP_ROWS;
use super::kernel::{Kernel, ROWS_MAX};
use super::product::{Work, lines, prefetch_near};
use super::team::Team;

/// Most bytes of weights in a piece of work. A thread that is interrupted delays the others by at
/// most one piece.
const PIECE_BYTES: usize = 256 * 1024;

/// Least number of pieces for each thread, so that all threads finish at about the same time.
const PIECES: usize = 4;

/// Most bytes of activations that stay in the second-level cache while all strips of a piece are
/// multiplied with them: half of that cache.
const ACTIVATIONS_BYTES: usize = 512 * 1024;

/// A product of weights `[rows, columns]` with quantised activations `[inputs, columns]`.
#[derive(Clone, Copy)]
pub struct Strips {
    /// The kernel of the weights' type.
    pub kernel: Kernel,
    /// The packed weights.
    pub weights: *const u8,
    /// Rows of weights.
    pub rows: usize,
    /// Columns of both.
    pub columns: usize,
    /// Rows of activations.
    pub inputs: usize,
    /// `[inputs, rows]`, with rows `output_stride` floats apart.
    pub output: *mut f32,
    /// Floats from one row of `output` to the next.
    pub output_stride: usize,
    /// The quantised activations: [`work_bytes`].
    pub work: *mut u8,
}

/// A product of weights with activations that are not quantised yet.
pub struct Product<I> {
    /// See [`Strips`].
    pub strips: Strips,
    /// Returns a pointer to a row of activations.
    pub input: I,
}

/// Bytes of work memory for `inputs` rows of activations.
pub fn work_bytes(kernel: &Kernel, columns: usize, inputs: usize) -> usize {
    inputs * (kernel.layout)(columns).stride
}

impl<I: Fn(usize) -> *const f32> Product<I> {
    /// Computes this thread's part of the product. All threads of the team call it.
    ///
    /// # Safety
    /// The processor has the kernel's instruction set, and all pointers are valid for the sizes
    /// given beside them.
    pub unsafe fn run(&self, team: &Team) {
        // SAFETY: the caller guarantees it. Each thread writes its own blocks of the work memory
        // and its own strips of the output. No thread reads activations before all of them are
        // written.
        unsafe {
            let strips = &self.strips;
            let (count, piece) = (strips.count(), strips.piece(team.threads));
            let pieces = count.div_ceil(piece);
            let mut index = team.thread;
            // Load weights while activations are quantised.
            strips.prefetch(index * piece);
            self.quantise(team);
            team.begin_pieces();
            while index < pieces {
                strips.multiply(index * piece..((index + 1) * piece).min(count));
                index = team.next_piece(index);
                strips.prefetch(index * piece);
            }
        }
    }

    /// Quantises this thread's share of the activations.
    ///
    /// # Safety
    /// As for [`Product::run`].
    pub unsafe fn quantise(&self, team: &Team) {
        let Strips { kernel, columns, inputs, work, .. } = &self.strips;
        let layout = (kernel.layout)(*columns);
        let blocks = columns / kernel.block_columns;
        for index in team.share(inputs * blocks) {
            let (row, block) = (index / blocks, index % blocks);
            // SAFETY: the block lies in the row, the row in the work memory.
            unsafe {
                let to = work.add(row * layout.stride);
                (kernel.quantise)((self.input)(row), block, to, layout);
            }
        }
    }
}

impl Strips {
    /// Number of strips.
    pub fn count(&self) -> usize {
        self.rows.div_ceil(STRIP_ROWS)
    }

    /// Bytes of a strip.
    pub fn bytes(&self) -> usize {
        (self.kernel.strip_bytes)(self.columns)
    }

    /// Prefetches the start of a strip. The kernel itself prefetches only data further ahead.
    pub fn prefetch(&self, strip: usize) {
        let start = self.weights.wrapping_add(strip * self.bytes());
        lines(start, Ahead::Near.bytes()).for_each(prefetch_near);
    }

    /// Number of strips in a piece of work, if `threads` threads share the product.
    fn piece(&self, threads: usize) -> usize {
        let most = (PIECE_BYTES / self.bytes()).max(1);
        self.count().div_ceil(threads * PIECES).min(most)
    }

    /// Multiplies some strips with all activations.
    ///
    /// # Safety
    /// As for [`Product::run`]; the activations are quantised.
    pub unsafe fn multiply(&self, strips: Range<usize>) {
        let ahead = Ahead::of_this_machine();
        let layout = (self.kernel.layout)(self.columns);
        let strip_bytes = self.bytes();
        let rows_max = self.kernel.multiply.len();
        let inputs_max = (ACTIVATIONS_BYTES / layout.stride).max(rows_max);
        for inputs in even_parts(0..self.inputs, inputs_max) {
            for strip in strips.clone() {
                for rows in even_parts(inputs.clone(), rows_max) {
                    let offset = rows.start * self.output_stride + strip * STRIP_ROWS;
                    // SAFETY: the strip lies in the weights, the rows in the work memory.
                    unsafe {
                        self.multiply_strip(
                            &Work {
                                strip: self.weights.add(strip * strip_bytes),
                                columns: self.columns,
                                activations: self.work.add(rows.start * layout.stride),
                                layout,
                                // The output of some strips may begin in the middle of its memory.
                                out: self.output.wrapping_add(offset),
                                out_stride: self.output_stride,
                                ahead,
                            },
                            rows.len(),
                            strip,
                        );
                    }
                }
            }
        }
    }

    /// Multiplies a strip with some rows of activations.
    unsafe fn multiply_strip(&self, work: &Work, inputs: usize, strip: usize) {
        let kernel = self.kernel.multiply[inputs - 1];
        let rows = STRIP_ROWS.min(self.rows - strip * STRIP_ROWS);
        // SAFETY: the caller guarantees it. An incomplete last strip is computed outside the
        // output, which has no room for the strip's rows of zeros.
        unsafe {
            if rows == STRIP_ROWS {
                return kernel(work);
            }
            let mut out = [0.0; STRIP_ROWS * ROWS_MAX];
            kernel(&Work { out: out.as_mut_ptr(), out_stride: STRIP_ROWS, ..*work });
            for (input, out) in out.chunks_exact(STRIP_ROWS).take(inputs).enumerate() {
                let to = work.out.add(input * work.out_stride);
                to.copy_from_nonoverlapping(out.as_ptr(), rows);
            }
        }
    }
}

/// Splits a range into the fewest parts of at most `most`. Their lengths differ by at most 1.
fn even_parts(range: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = range.len().div_ceil(most);
    let at = move |part: usize| range.start + range.len() * part / parts;
    (0..parts).map(move |part| at(part)..at(part + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_even_and_leave_nothing_out() {
        let parts =
            |len: usize, most| even_parts(3..3 + len, most).map(|p| p.len()).collect::<Vec<_>>();
        assert_eq!(parts(8, 8), [8]);
        assert_eq!(parts(9, 8), [4, 5]);
        assert_eq!(parts(20, 8), [6, 7, 7]);
        assert!(parts(0, 8).is_empty());
        assert_eq!(even_parts(3..12, 8).collect::<Vec<_>>(), [3..7, 7..12]);
    }
}
