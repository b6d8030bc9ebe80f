//! Products that one thread leads, with the help of other threads that have a core.
//!
//! When threads share an operation in ggml's way, each computes its part, and all wait for the last
//! one. On a busy machine, the last one may have lost its core. Here the leader computes the whole
//! graph, and puts each product on a [`Board`]. It does not wait for a helper without a core.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ops::Range;

use super::format::{LINE, STRIP_ROWS};
use super::matmul::{Product, Strips, work_bytes};
use super::team::Team;
use crate::compute::{BOARD_SLOTS, Board, Helped, PIECES_MAX, Pool, Task};

/// Least bytes of weights in a product for which helpers are called. Less takes only some
/// microseconds.
const SHARED_BYTES_MIN: usize = 64 * 1024;

/// Bytes of weights in a piece. A helper that loses its core costs the leader a piece.
const PIECE_BYTES: usize = 64 * 1024;

thread_local! {
    /// The leader of this thread's products, if it leads.
    static LEADER: Cell<Option<*const Led>> = const { Cell::new(None) };
    /// A helper's memory for the results of a piece.
    static ASIDE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// The board of a pool's products, and the activations of each slot.
pub struct Led {
    board: Board<Pieces>,
    activations: [UnsafeCell<Vec<Line>>; BOARD_SLOTS],
}

/// Memory with the alignment that the kernels need.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; LINE],
}

// SAFETY: the leader alone writes the activations of a slot, while no helper reads it.
unsafe impl Sync for Led {}
// SAFETY: it owns its memory.
unsafe impl Send for Led {}

/// A product in pieces.
#[derive(Clone, Copy)]
struct Pieces {
    strips: Strips,
    /// Strips of a piece.
    piece: usize,
}

// SAFETY: the pointers are used as `Task` says.
unsafe impl Send for Pieces {}
// SAFETY: as above.
unsafe impl Sync for Pieces {}

impl Pieces {
    /// The strips of a piece.
    fn range(&self, piece: usize) -> Range<usize> {
        piece * self.piece..((piece + 1) * self.piece).min(self.strips.count())
    }
}

// SAFETY: `compute` writes the rows of the piece's strips.
unsafe impl Task for Pieces {
    type Aside = Vec<f32>; // [inputs, rows of a piece]

    fn pieces(&self) -> usize {
        self.strips.count().div_ceil(self.piece)
    }

    unsafe fn compute(&self, piece: usize) {
        // SAFETY: the caller guarantees it.
        unsafe { self.strips.multiply(self.range(piece)) };
    }

    unsafe fn compute_aside(&self, piece: usize, aside: &mut Vec<f32>) {
        let (stride, range) = (self.piece * STRIP_ROWS, self.range(piece));
        if aside.len() < stride * self.strips.inputs {
            aside.resize(stride * self.strips.inputs, 0.0);
        }
        let output = aside.as_mut_ptr().wrapping_sub(range.start * STRIP_ROWS);
        let strips = Strips { output, output_stride: stride, ..self.strips };
        // SAFETY: the weights live as long as the model, and the activations as the slot. The
        // output has room for the piece's strips.
        unsafe { strips.multiply(range) };
    }

    unsafe fn write(&self, piece: usize, aside: &Vec<f32>) {
        let (stride, range) = (self.piece * STRIP_ROWS, self.range(piece));
        let first = range.start * STRIP_ROWS;
        let rows = (range.end * STRIP_ROWS).min(self.strips.rows) - first;
        for (input, row) in aside.chunks_exact(stride).take(self.strips.inputs).enumerate() {
            // SAFETY: the rows of the piece lie in the output.
            unsafe {
                let to = self.strips.output.add(input * self.strips.output_stride + first);
                to.copy_from_nonoverlapping(row.as_ptr(), rows);
            }
        }
    }
}

impl Led {
    /// A board for the helpers of a pool.
    pub fn new(helpers: usize) -> Self {
        Self { board: Board::new(helpers), activations: Default::default() }
    }

    /// Runs `calls` on this thread, which leads its products meanwhile.
    pub fn lead<T>(&self, calls: impl FnOnce() -> T) -> T {
        LEADER.set(Some(self));
        let result = calls();
        LEADER.set(None);
        result
    }

    /// Waits until no helper reads a product. Weights may then be freed.
    ///
    /// Only the leader calls this.
    pub fn settle(&self) {
        self.board.settle();
    }

    /// Computes a product on this thread, with the help of others.
    ///
    /// # Safety
    /// As for [`Product::run`]. Only the leader calls this.
    unsafe fn run<I: Fn(usize) -> *const f32>(&self, product: &Product<I>) {
        let Strips { kernel, columns, inputs, .. } = product.strips;
        let count = product.strips.count();
        let piece = (PIECE_BYTES / product.strips.bytes()).clamp(1, count);
        let piece = piece.max(count.div_ceil(PIECES_MAX));
        let is_small = product.strips.bytes() * count < SHARED_BYTES_MIN || piece == count;
        let slot = if is_small { None } else { self.board.free_slot() };
        // SAFETY: the caller guarantees it. No helper reads the slot before it is posted.
        unsafe {
            let Some(slot) = slot else { return product.run(&Team::alone()) };
            let activations = &mut *self.activations[slot].get();
            let lines = work_bytes(&kernel, columns, inputs).div_ceil(LINE);
            if activations.len() < lines {
                activations.resize(lines, Line { _bytes: [0; LINE] });
            }
            let work = activations.as_mut_ptr().cast();
            let product =
                Product { strips: Strips { work, ..product.strips }, input: &product.input };
            product.quantise(&Team::alone());
            let task = Pieces { strips: product.strips, piece };
            self.board.post(slot, task);
            Pool::call_helpers_of_this_thread();
            self.board.finish(&task);
        }
    }
}

impl Helped for Led {
    fn help(&self, helper: usize) {
        // SAFETY: the pool numbers its helpers.
        ASIDE.with_borrow_mut(|aside| unsafe { self.board.help(helper, aside) });
    }
}

/// Computes a product: with helpers if this thread leads, else with its team.
///
/// # Safety
/// As for [`Product::run`].
pub unsafe fn run<I: Fn(usize) -> *const f32>(product: &Product<I>, team: &Team) {
    let leader = LEADER.get().filter(|_| team.threads == 1);
    // SAFETY: the caller guarantees it; the leader lives as long as the call of `lead`.
    unsafe {
        match leader {
            Some(led) => (*led).run(product),
            None => product.run(team),
        }
    }
}
