//! Computes a whole product with the threads of a team.

use std::ops::Range;
use std::ptr;

use super::ahead::Ahead;
use super::experts::{Choices, Groups, Members, listed};
use super::formats::STRIP_ROWS;
use super::kernel::Kernel;
use super::many;
use super::product::{ROWS_MAX, Work, lines, prefetch_near};
use super::team::Team;

/// Most bytes of weights in a piece of work. A thread that is interrupted delays the others by at
/// most one piece.
const PIECE_BYTES: usize = 256 * 1024;

/// Least number of pieces for each thread, so that all threads finish at about the same time.
const PIECES: usize = 4;

/// Most bytes of activations that stay in the second-level cache while all strips of a piece are
/// multiplied with them: half of that cache.
const ACTIVATIONS_BYTES: usize = 512 * 1024;

/// A product of weights `[rows, columns]` with `inputs` rows of quantised activations.
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
    /// The number of each row of activations in `work`; null if they lie in their order.
    pub from: *const u32,
    /// The number of each row in `output`; null if they lie in their order.
    pub to: *const u32,
    /// Rows of `rows` floats, `output_stride` floats apart.
    pub output: *mut f32,
    /// Floats from one row of `output` to the next.
    pub output_stride: usize,
    /// The quantised activations, in memory of [`work_bytes`].
    pub work: *mut u8,
}

/// A product of weights with activations that are not quantised yet.
pub struct Product<I> {
    /// See [`Strips`]; with experts, its weights are those of the first one.
    pub strips: Strips,
    /// With experts: which rows belong to each, and the memory for their table.
    pub experts: Option<(Choices, *mut u8)>,
    /// Returns a pointer to a row of activations.
    pub input: I,
}

/// Bytes of work memory for `inputs` rows of activations.
pub fn work_bytes(kernel: &Kernel, columns: usize, inputs: usize) -> usize {
    let is_many = kernel.many.is_some() && inputs >= many::ROWS_MIN;
    let rows = if is_many { inputs.next_multiple_of(many::TILE_ROWS) } else { inputs };
    rows * (kernel.layout)(columns).stride
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
            let mut index = team.thread;
            if self.experts.is_none() {
                // Load weights while activations are quantised.
                let piece = self.strips.piece(1, team.threads);
                self.strips.prefetch(index * piece);
            } else if team.thread == 0 {
                self.arrange();
            }
            self.quantise(team);
            team.begin_pieces();
            let groups = self.groups();
            let piece = self.strips.piece(groups.count(), team.threads);
            let pieces = Pieces { strips: self.strips, groups, piece };
            while index < pieces.count() {
                let (strips, range) = pieces.get(index);
                strips.multiply(range);
                index = team.next_piece(index);
                if index < pieces.count() {
                    let (strips, range) = pieces.get(index);
                    strips.prefetch(range.start);
                }
            }
        }
    }

    /// Writes the table of the experts' rows.
    ///
    /// # Safety
    /// As for [`Product::run`], and one thread calls it.
    pub unsafe fn arrange(&self) {
        if let Some((choices, table)) = &self.experts {
            // SAFETY: the caller guarantees it.
            unsafe { choices.arrange(*table) };
        }
    }

    /// The groups of rows.
    ///
    /// # Safety
    /// As for [`Product::run`], after [`Product::arrange`].
    pub unsafe fn groups(&self) -> Groups {
        let Some((choices, table)) = &self.experts else { return Groups::ONE };
        // SAFETY: the caller guarantees it.
        unsafe { choices.groups(*table, self.strips.count() * self.strips.bytes()) }
    }

    /// Quantises this thread's share of the activations.
    ///
    /// # Safety
    /// As for [`Product::run`].
    pub unsafe fn quantise(&self, team: &Team) {
        let Strips { kernel, columns, inputs, work, .. } = self.strips;
        let layout = (kernel.layout)(columns);
        let blocks = columns / kernel.block_columns;
        if team.thread == 0 {
            // Rows that fill up the last tile are multiplied, too.
            let bytes = work_bytes(&kernel, columns, inputs) - inputs * layout.stride;
            // SAFETY: the work memory has room for them.
            unsafe { work.add(inputs * layout.stride).write_bytes(0, bytes) };
        }
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

    /// Number of strips in a piece of work, if `threads` threads share the products of all groups.
    fn piece(&self, groups: usize, threads: usize) -> usize {
        let most = (PIECE_BYTES / self.bytes()).max(1);
        let piece = (groups * self.count()).div_ceil(threads * PIECES);
        self.whole(piece.clamp(1, most.min(self.count())))
    }

    /// A number of strips, rounded up to what is multiplied at once. Many rows take so little time that a
    /// piece may then be larger than its bound.
    pub fn whole(&self, strips: usize) -> usize {
        match self.many() {
            Some(_) => strips.next_multiple_of(many::STRIPS).min(self.count()),
            None => strips,
        }
    }

    /// The kernel's function for many rows; `None` for fewer rows, and for kernels without one.
    fn many(&self) -> Option<many::Many> {
        self.kernel.many.filter(|_| self.inputs >= many::ROWS_MIN)
    }

    /// Multiplies some strips with all activations.
    ///
    /// # Safety
    /// As for [`Product::run`]; the activations are quantised.
    pub unsafe fn multiply(&self, strips: Range<usize>) {
        if let Some(multiply) = self.many() {
            // SAFETY: the caller guarantees it.
            return unsafe {
                multiply(&many::Work {
                    strips: self.weights.add(strips.start * self.bytes()),
                    strip_bytes: self.bytes(),
                    rows: (strips.end * STRIP_ROWS).min(self.rows) - strips.start * STRIP_ROWS,
                    columns: self.columns,
                    activations: self.work,
                    layout: (self.kernel.layout)(self.columns),
                    inputs: self.inputs,
                    from: self.from,
                    to: self.to,
                    output: self.output.wrapping_add(strips.start * STRIP_ROWS),
                    output_stride: self.output_stride,
                })
            };
        }
        let ahead = Ahead::of_this_machine();
        let layout = (self.kernel.layout)(self.columns);
        let strip_bytes = self.bytes();
        let rows_max = self.kernel.multiply.len();
        let inputs_max = (ACTIVATIONS_BYTES / layout.stride).max(rows_max);
        for inputs in even_parts(0..self.inputs, inputs_max) {
            for strip in strips.clone() {
                for rows in even_parts(inputs.clone(), rows_max) {
                    let mut activations = [ptr::null(); ROWS_MAX];
                    let mut out = [ptr::null_mut(); ROWS_MAX];
                    for (index, row) in rows.clone().enumerate() {
                        // SAFETY: the lists have all rows; these lie in the work memory.
                        unsafe {
                            let (from, to) = (listed(self.from, row), listed(self.to, row));
                            activations[index] = self.work.add(from * layout.stride).cast_const();
                            // The output of some strips may begin in the middle of its memory.
                            let offset = to * self.output_stride + strip * STRIP_ROWS;
                            out[index] = self.output.wrapping_add(offset);
                        }
                    }
                    // SAFETY: the strip lies in the weights.
                    unsafe {
                        let strip_at = self.weights.add(strip * strip_bytes);
                        let columns = self.columns;
                        let work =
                            Work { strip: strip_at, columns, activations, layout, out, ahead };
                        self.multiply_strip(&work, rows.len(), strip);
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
            let mut out = [[0.0; STRIP_ROWS]; ROWS_MAX];
            kernel(&Work { out: out.each_mut().map(|row| row.as_mut_ptr()), ..*work });
            for (out, to) in out.iter().zip(work.out).take(inputs) {
                to.copy_from_nonoverlapping(out.as_ptr(), rows);
            }
        }
    }
}

/// A product in pieces of some strips of a group.
#[derive(Clone, Copy)]
pub struct Pieces {
    /// See [`Product::strips`].
    pub strips: Strips,
    /// The groups of rows.
    pub groups: Groups,
    /// Strips of a piece.
    pub piece: usize,
}

impl Pieces {
    /// Number of pieces.
    pub fn count(&self) -> usize {
        self.groups.count() * self.of_group()
    }

    /// A piece: the product of its group, and its strips.
    ///
    /// # Safety
    /// There is such a piece, and the table of groups is alive.
    pub unsafe fn get(&self, piece: usize) -> (Strips, Range<usize>) {
        let (group, at) = (piece / self.of_group(), piece % self.of_group() * self.piece);
        // SAFETY: the caller guarantees it.
        let strips = match unsafe { self.groups.get(group) } {
            None => self.strips,
            Some(Members { weights_at, rows, from, to }) => Strips {
                weights: self.strips.weights.wrapping_add(weights_at),
                inputs: rows,
                from,
                to,
                ..self.strips
            },
        };
        (strips, at..(at + self.piece).min(strips.count()))
    }

    fn of_group(&self) -> usize {
        self.strips.count().div_ceil(self.piece)
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
