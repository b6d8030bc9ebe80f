//! The arguments of a kernel call: some queries, and a block of cells.

use super::super::formats::LINE;
use super::super::product::prefetch_line;
use super::cached::{Cached, row_bytes};

/// Cells of a block.
pub const BLOCK_CELLS: usize = 32;

/// Floats of [`SoftmaxState::sums`] for a query: one for each lane.
pub const SUM_LANES: usize = 16;

/// Queries computed together in registers.
pub const TILE_QUERIES: usize = 4;

/// Arguments of one kernel call.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    /// The cells, 1 to [`BLOCK_CELLS`].
    pub cells: &'a [u32],
    /// Cells whose keys and values are prefetched for the next kernel call.
    pub next: &'a [u32],
    /// The next head's keys in cell 0.
    pub next_keys: *const u8,
    /// The next head's values in cell 0.
    pub next_values: *const u8,
    /// The head's keys in cell 0.
    pub keys: *const u8,
    /// Bytes from one cell's keys to the next one's.
    pub key_stride: usize,
    /// The head's values in cell 0.
    pub values: *const u8,
    /// Bytes from one cell's values to the next one's.
    pub value_stride: usize,
    /// Numbers of a query and of a key.
    pub key_numbers: usize,
    /// Numbers of a value.
    pub value_numbers: usize,
    /// `[count][query_floats(key_numbers)]`, already scaled. For quantised keys, each is a
    /// [`QuantisedQuery`](super::cached::QuantisedQuery).
    pub queries: *const f32,
    /// Number of queries.
    pub count: usize,
    /// `[count][BLOCK_CELLS]`, added to the scores; null for none.
    pub bias: *const f32,
    /// The bound of scores, applied by a hyperbolic tangent; 0 for none.
    pub softcap: f32,
    /// The state of the softmax so far.
    pub state: SoftmaxState,
    /// Memory for this call only.
    pub scratch: Scratch,
}

/// The state of the softmax of some queries. Initially, `maxima` are [`NO_MAXIMUM`], and the others
/// 0.
#[derive(Clone, Copy)]
pub struct SoftmaxState {
    /// `[count]`: the largest score.
    pub maxima: *mut f32,
    /// `[count][SUM_LANES]`: partial sums of `exp(score - maximum)`.
    pub sums: *mut f32,
    /// `[count][value_numbers]`: the values, each times `exp(score - maximum)`.
    pub outputs: *mut f32,
}

/// Below any score, and finite: minus infinity minus this is not NaN.
pub const NO_MAXIMUM: f32 = f32::MIN;

/// Memory for a kernel call.
#[derive(Clone, Copy)]
pub struct Scratch {
    /// `[count][BLOCK_CELLS]`
    pub scores: *mut f32,
    /// `[BLOCK_CELLS][max(key_numbers, value_numbers)]`
    pub converted: *mut f32,
}

/// The keys or values of a block.
pub struct Rows {
    /// A row for each cell. The last one is repeated up to the end.
    pub rows: [*const u8; BLOCK_CELLS],
    /// The rows to prefetch meanwhile, a few lines at a time: a core stalls when it has requested
    /// more lines than it has buffers.
    pub ahead: [*const u8; BLOCK_CELLS],
    /// Bytes of a row in the cache.
    bytes: usize,
    /// Lines that [`Rows::prefetch_lines`] has prefetched so far.
    prefetched: usize,
}

impl Rows {
    #[inline(always)]
    /// The rows of these cells. `first` is the row of cell 0. Rows of neighbouring cells are
    /// `stride` bytes apart.
    pub fn of<C: Cached>(cells: &[u32], first: *const u8, stride: usize, numbers: usize) -> Self {
        let last = cells.len() - 1;
        let mut rows = [first; BLOCK_CELLS];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = first.wrapping_add(cells[i.min(last)] as usize * stride);
        }
        Self { rows, ahead: rows, bytes: row_bytes::<C>(numbers), prefetched: 0 }
    }

    /// Sets the rows to prefetch: those of these cells.
    #[inline(always)]
    pub fn ahead(&mut self, cells: &[u32], first: *const u8, stride: usize) {
        for (ahead, cell) in self.ahead.iter_mut().zip(cells) {
            *ahead = first.wrapping_add(*cell as usize * stride);
        }
    }

    /// Notes that all rows have been read, and the rows ahead prefetched with them.
    #[inline(always)]
    pub fn were_read(&mut self) {
        self.ahead = self.rows;
    }

    /// Prefetches the next `count` lines of the rows ahead, or the rest.
    #[inline(always)]
    pub fn prefetch_lines(&mut self, count: usize) {
        for _ in 0..count {
            let (line, row) = (self.prefetched / BLOCK_CELLS, self.prefetched % BLOCK_CELLS);
            if line * LINE < self.bytes {
                prefetch_line(self.ahead[row].wrapping_add(line * LINE));
                self.prefetched += 1;
            }
        }
    }

    /// Spreads the prefetch of all lines over `calls` calls: every n-th call prefetches one line.
    /// Returns n, a power of two.
    #[inline(always)]
    pub fn calls_of_line(&self, calls: usize) -> usize {
        1 << (calls / self.lines()).max(1).ilog2()
    }

    /// The lines of all rows.
    #[inline(always)]
    pub fn lines(&self) -> usize {
        BLOCK_CELLS * self.bytes.div_ceil(LINE)
    }
}
