//! Products that one thread leads, with the help of other threads that have a core.
//!
//! When threads share an operation in ggml's way, each computes its part, and all wait for the last
//! one. On a busy machine, the last one may have lost its core. Here the leader computes the whole
//! graph, and puts each product on a [`Board`]. It does not wait for a helper without a core.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ptr;

use super::experts::listed;
use super::formats::{LINE, STRIP_ROWS};
use super::matmul::{Pieces, Product, Strips, work_bytes};
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

/// The board of a pool's products, and the memory of each slot: activations, and the table of experts'
/// rows.
pub struct Led {
    board: Board<Pieces>,
    memory: [UnsafeCell<Vec<Line>>; BOARD_SLOTS],
}

/// Memory with the alignment that the kernels need.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; LINE],
}

// SAFETY: the leader alone writes the memory of a slot, while no helper reads it.
unsafe impl Sync for Led {}
// SAFETY: it owns its memory.
unsafe impl Send for Led {}

// SAFETY: the pointers are used as `Task` says.
unsafe impl Send for Pieces {}
// SAFETY: as above.
unsafe impl Sync for Pieces {}

// SAFETY: `compute` writes the rows of the piece's strips.
unsafe impl Task for Pieces {
    type Aside = Vec<f32>; // [inputs, rows of a piece]

    fn pieces(&self) -> usize {
        self.count()
    }

    unsafe fn compute(&self, piece: usize) {
        // SAFETY: the caller guarantees it.
        unsafe {
            let (strips, range) = self.get(piece);
            strips.multiply(range);
        }
    }

    unsafe fn compute_aside(&self, piece: usize, aside: &mut Vec<f32>) {
        let stride = self.piece * STRIP_ROWS;
        // SAFETY: the weights live as long as the model, and the activations and the table of groups
        // as the slot. The output has room for the piece's strips.
        unsafe {
            let (strips, range) = self.get(piece);
            if aside.len() < stride * strips.inputs {
                aside.resize(stride * strips.inputs, 0.0);
            }
            let output = aside.as_mut_ptr().wrapping_sub(range.start * STRIP_ROWS);
            let strips = Strips { output, output_stride: stride, to: ptr::null(), ..strips };
            strips.multiply(range);
        }
    }

    unsafe fn write(&self, piece: usize, aside: &Vec<f32>) {
        // SAFETY: the task has not ended, so its table of groups is alive.
        let (strips, range) = unsafe { self.get(piece) };
        let first = range.start * STRIP_ROWS;
        let rows = (range.end * STRIP_ROWS).min(strips.rows) - first;
        let stride = self.piece * STRIP_ROWS;
        for (input, row) in aside.chunks_exact(stride).take(strips.inputs).enumerate() {
            // SAFETY: the rows of the piece lie in the output.
            unsafe {
                let of_row = listed(strips.to, input) * strips.output_stride;
                let to = strips.output.add(of_row + first);
                to.copy_from_nonoverlapping(row.as_ptr(), rows);
            }
        }
    }
}

impl Led {
    /// A board for the helpers of a pool.
    pub fn new(helpers: usize) -> Self {
        Self { board: Board::new(helpers), memory: Default::default() }
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
        let matrices =
            product.experts.map_or(1, |(choices, _)| choices.rows().min(choices.experts));
        let piece = product.strips.whole((PIECE_BYTES / product.strips.bytes()).clamp(1, count));
        let is_small = product.strips.bytes() * count * matrices < SHARED_BYTES_MIN
            || piece == count * matrices;
        let slot = if is_small { None } else { self.board.free_slot() };
        // SAFETY: the caller guarantees it. No helper reads the slot before it is posted.
        unsafe {
            let Some(slot) = slot else { return product.run(&Team::alone()) };
            let memory = &mut *self.memory[slot].get();
            let table = product.experts.map_or(0, |(choices, _)| choices.table_bytes());
            let lines = (table + work_bytes(&kernel, columns, inputs)).div_ceil(LINE);
            if memory.len() < lines {
                memory.resize(lines, Line { _bytes: [0; LINE] });
            }
            let memory: *mut u8 = memory.as_mut_ptr().cast();
            let product = Product {
                strips: Strips { work: memory.add(table), ..product.strips },
                experts: product.experts.map(|(choices, _)| (choices, memory)),
                input: &product.input,
            };
            product.arrange();
            product.quantise(&Team::alone());
            let groups = product.groups();
            let piece = piece.max(count.div_ceil(PIECES_MAX / groups.count()));
            let piece = product.strips.whole(piece);
            let task = Pieces { strips: product.strips, groups, piece };
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
