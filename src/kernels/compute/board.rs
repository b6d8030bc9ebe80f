//! A board with one task at a time, split into pieces. One thread leads; it and any helpers take
//! pieces.
//!
//! The leader does not wait for a helper that has lost its core to another program. When no pieces
//! are left and a helper still holds one, the leader computes that piece, too. A helper therefore
//! computes a piece into memory of its own, and writes the result only after it has claimed the
//! right to. The leader waits for a helper only while the helper copies its result, which is short
//! compared with the computation.
//!
//! ```text
//! piece of epoch e:   earlier epoch --(leader or helper, compare and swap)--> e, being written
//!                                   --(the same thread)--------------------> e, done
//! ```
//!
//! A task lies in a slot of the board. A helper that has lost its core may still read the slot long
//! after the task was done. So it announces the slot that it reads, and the leader does not reuse
//! an announced slot. (These are hazard pointers: Maged Michael, "Hazard Pointers: Safe Memory
//! Reclamation for Lock-Free Objects", 2004.)
//!
//! **Invariant:** the epoch of a piece never falls, and after a task has ended, all of its pieces
//! have its epoch or a later one. So a late helper never writes.

use std::time::Duration;

pub use super::sync::PIECES_MAX;
use super::sync::{AtomicU64, Ordering, Stopwatch, UnsafeCell, fence, give_way, relax};

/// Slots for tasks. While late helpers read all slots but the current one, the leader computes
/// alone.
pub const SLOTS: usize = 4;

/// The least time for which the leader leaves a piece to a helper.
const PATIENCE: Duration = Duration::from_micros(10);

/// Bits of the parts of a claim, below the epoch: the task's slot, and the next free piece.
const NEXT_BITS: u32 = 16;
const SLOT_BITS: u32 = 4;
const _: () = assert!(PIECES_MAX < 1 << NEXT_BITS && SLOTS <= 1 << SLOT_BITS);

/// A task of several pieces, which any thread may compute in any order.
///
/// # Safety
/// [`Task::compute`] writes nothing but the piece's part of the result.
pub unsafe trait Task: Copy {
    /// A helper's own memory, for the result of a piece.
    type Aside: Default;

    /// The number of pieces: 1 to [`PIECES_MAX`].
    fn pieces(&self) -> usize;

    /// Computes a piece and writes its result.
    ///
    /// # Safety
    /// No other thread writes this piece meanwhile, and the task has not ended.
    unsafe fn compute(&self, piece: usize);

    /// Computes a piece into `aside`.
    ///
    /// # Safety
    /// The task's inputs are alive. The task itself may have ended.
    unsafe fn compute_aside(&self, piece: usize, aside: &mut Self::Aside);

    /// Copies a piece's result from `aside` to its place.
    ///
    /// # Safety
    /// As for [`Task::compute`].
    unsafe fn write(&self, piece: usize, aside: &Self::Aside);
}

/// See the module's description.
pub struct Board<T> {
    claim: Line<AtomicU64>,
    /// For each piece, twice the last epoch in which it was claimed for writing, plus 1 once it is
    /// done.
    pieces: Box<[AtomicU64]>, // [PIECES_MAX]
    slots: [UnsafeCell<Option<T>>; SLOTS],
    /// For each helper, the slot that it reads plus 1, or 0 for none.
    reads: Box<[Line<AtomicU64>]>,
}

/// On a cache line of its own.
#[derive(Default)]
#[repr(align(128))] // processors fetch two lines of 64 bytes at once
struct Line<T>(T);

// SAFETY: a slot is written only while no helper announces it or finds it in the claim, see `post`.
unsafe impl<T: Send + Sync> Sync for Board<T> {}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Claim {
    epoch: u64,
    slot: usize,
    next: usize,
}

impl Claim {
    fn of(word: u64) -> Self {
        Self {
            epoch: word >> (NEXT_BITS + SLOT_BITS),
            slot: (word >> NEXT_BITS) as usize & ((1 << SLOT_BITS) - 1),
            next: word as usize & ((1 << NEXT_BITS) - 1),
        }
    }

    fn word(self) -> u64 {
        (self.epoch << SLOT_BITS | self.slot as u64) << NEXT_BITS | self.next as u64
    }
}

impl<T: Task> Board<T> {
    /// An empty board for `helpers` helpers.
    pub fn new(helpers: usize) -> Self {
        // Epoch 0 has a task of no pieces.
        Self {
            claim: Line::default(),
            pieces: (0..PIECES_MAX).map(|_| AtomicU64::default()).collect(),
            slots: std::array::from_fn(|_| UnsafeCell::new(None)),
            reads: (0..helpers).map(|_| Line::default()).collect(),
        }
    }

    /// A slot that no helper reads. `None` if all are read.
    ///
    /// Only the leader calls this.
    pub fn free_slot(&self) -> Option<usize> {
        let current = Claim::of(self.claim.0.load(Ordering::Relaxed)).slot;
        // A helper announces a slot, and then checks that the claim still has it. The leader has
        // changed the claim, and then looks for announcements. Both have a fence in between, so at
        // least one sees the other.
        fence(Ordering::SeqCst);
        let is_read = |slot: &usize| {
            self.reads.iter().any(|read| read.0.load(Ordering::Acquire) == *slot as u64 + 1)
        };
        (0..SLOTS).filter(|slot| *slot != current).find(|slot| !is_read(slot))
    }

    /// Puts a task on the board, in a free slot. Helpers may take pieces from now on.
    ///
    /// # Safety
    /// Only the leader calls this. All pieces of the last task are done, and [`Board::free_slot`]
    /// has returned `slot` since. The memory that [`Task::compute_aside`] reads lives until the
    /// slot is free again. The memory that the task's other functions use lives until
    /// [`Board::finish`] returns.
    pub unsafe fn post(&self, slot: usize, task: T) {
        assert!((1..=PIECES_MAX).contains(&task.pieces()), "{} pieces", task.pieces());
        // SAFETY: no helper reads it: none announces it, and the claim has another slot.
        self.slots[slot].with_mut(|slot| unsafe { *slot = Some(task) });
        let epoch = Claim::of(self.claim.0.load(Ordering::Relaxed)).epoch + 1;
        self.claim.0.store(Claim { epoch, slot, next: 0 }.word(), Ordering::Release);
    }

    /// Computes pieces of the task on the board: first those that are free, then those that a
    /// helper has held for longer than a piece takes. Returns when all pieces are done.
    ///
    /// # Safety
    /// Only the leader calls this, after [`Board::post`].
    pub unsafe fn finish(&self, task: &T) {
        let epoch = Claim::of(self.claim.0.load(Ordering::Relaxed)).epoch;
        let (taken, done) = (epoch << 1, epoch << 1 | 1);
        let watch = Stopwatch::start();
        let mut own = 0;
        while let Some(piece) = self.take(epoch, task.pieces()) {
            // SAFETY: this thread has taken it.
            unsafe { task.compute(piece) };
            self.pieces[piece].store(done, Ordering::Relaxed);
            own += 1;
        }
        let ran_out = watch.elapsed();
        // About the time of one piece. A helper that kept its core is done by then.
        let patience = ran_out / own.max(1) + PATIENCE;
        for (index, piece) in self.pieces[..task.pieces()].iter().enumerate() {
            loop {
                let state = piece.load(Ordering::Acquire);
                if state == done {
                    break;
                }
                if state == taken {
                    give_way(); // a helper is writing its result
                } else if watch.elapsed() < ran_out + patience {
                    relax();
                } else if piece
                    .compare_exchange(state, taken, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    // SAFETY: the claim succeeded, so its helper cannot claim it, and will not
                    // write.
                    unsafe { task.compute(index) };
                    piece.store(done, Ordering::Release);
                    break;
                }
            }
        }
    }

    /// Waits until no helper reads a task.
    ///
    /// Only the leader calls this, when the last task is done.
    pub fn settle(&self) {
        for read in &self.reads {
            // A helper that announces a slot later finds no free piece, and so reads no input.
            while read.0.load(Ordering::Acquire) != 0 {
                give_way();
            }
        }
    }

    /// Takes a free piece, if there is one and the board still has the task of this epoch.
    fn take(&self, epoch: u64, pieces: usize) -> Option<usize> {
        let mut word = self.claim.0.load(Ordering::Relaxed);
        loop {
            let claim = Claim::of(word);
            if claim.epoch != epoch || claim.next >= pieces {
                return None;
            }
            let next = Claim { next: claim.next + 1, ..claim }.word();
            match self.claim.0.compare_exchange_weak(
                word,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(claim.next),
                Err(other) => word = other,
            }
        }
    }

    /// Helps with the task on the board until it has no free pieces.
    ///
    /// # Safety
    /// Each helper has its own number, below the number given to [`Board::new`].
    pub unsafe fn help(&self, helper: usize, aside: &mut T::Aside) {
        let read = &self.reads[helper].0;
        let claim = loop {
            let claim = Claim::of(self.claim.0.load(Ordering::Relaxed));
            if claim.epoch == 0 {
                return;
            }
            read.store(claim.slot as u64 + 1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let now = Claim::of(self.claim.0.load(Ordering::Acquire));
            if (now.epoch, now.slot) == (claim.epoch, claim.slot) {
                break claim;
            }
        };
        // SAFETY: the leader does not write the slot while it is announced. It filled the slot
        // before it set the claim, and the claim was unchanged after the announcement.
        let task = self.slots[claim.slot].with(|slot| unsafe { *slot }).expect("it was posted");
        let (taken, done) = (claim.epoch << 1, claim.epoch << 1 | 1);
        while let Some(index) = self.take(claim.epoch, task.pieces()) {
            // SAFETY: the inputs live while the slot is announced.
            unsafe { task.compute_aside(index, aside) };
            let piece = &self.pieces[index];
            let state = piece.load(Ordering::Relaxed);
            let is_late = state >= taken;
            if is_late
                || piece
                    .compare_exchange(state, taken, Ordering::Acquire, Ordering::Relaxed)
                    .is_err()
            {
                break; // the leader computes this piece or has done so, so no free piece is left
            }
            // SAFETY: the leader waits for this piece, so the task has not ended.
            unsafe { task.write(index, aside) };
            piece.store(done, Ordering::Release);
        }
        read.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use super::*;

    /// Adds numbers to results; helpers stop in the middle of a piece while they are told to.
    #[derive(Clone, Copy)]
    struct Slow<'a> {
        number: usize,
        results: &'a [AtomicUsize],
        stops: &'a AtomicBool,
        stopped: &'a AtomicUsize,
    }

    // SAFETY: it writes the piece's result.
    unsafe impl Task for Slow<'_> {
        type Aside = usize;

        fn pieces(&self) -> usize {
            self.results.len()
        }

        unsafe fn compute(&self, piece: usize) {
            std::thread::sleep(Duration::from_micros(50)); // helpers get some
            self.results[piece].fetch_add(self.number, Ordering::Relaxed);
        }

        unsafe fn compute_aside(&self, _piece: usize, aside: &mut usize) {
            if self.stops.load(Ordering::Relaxed) {
                self.stopped.fetch_add(1, Ordering::Relaxed);
            }
            while self.stops.load(Ordering::Relaxed) {
                give_way();
            }
            *aside = self.number;
        }

        unsafe fn write(&self, piece: usize, aside: &usize) {
            self.results[piece].fetch_add(*aside, Ordering::Relaxed);
        }
    }

    /// Lets the helpers end, also when an assertion fails.
    struct End<'a> {
        stops: &'a AtomicBool,
        ends: &'a AtomicBool,
    }

    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.stops.store(false, Ordering::Relaxed);
            self.ends.store(true, Ordering::Relaxed);
        }
    }

    /// Each piece is written once, also while helpers have lost their cores. If these hold all
    /// slots, the leader is told to compute alone.
    #[test]
    fn helpers_that_stop_are_not_waited_for_and_write_nothing_later() {
        const HELPERS: usize = SLOTS;
        let results: [AtomicUsize; 16] = std::array::from_fn(|_| AtomicUsize::new(0));
        let (stops, stopped) = (AtomicBool::new(true), AtomicUsize::new(0));
        let ends = AtomicBool::new(false);
        let board = Board::new(HELPERS);
        std::thread::scope(|scope| {
            let _end = End { stops: &stops, ends: &ends };
            for helper in 0..HELPERS {
                let (board, ends) = (&board, &ends);
                scope.spawn(move || {
                    while !ends.load(Ordering::Relaxed) {
                        // SAFETY: each helper has its number.
                        unsafe { board.help(helper, &mut 0) };
                    }
                });
            }
            let mut expected = 0;
            let mut post = |number: usize| {
                let task = Slow { number, results: &results, stops: &stops, stopped: &stopped };
                let Some(slot) = board.free_slot() else { return false };
                // SAFETY: this thread is the leader, and what the task reads outlives the helpers.
                unsafe {
                    board.post(slot, task);
                    board.finish(&task);
                }
                expected += number;
                let found = results.each_ref().map(|result| result.load(Ordering::Relaxed));
                assert_eq!(found, [expected; 16], "task {number}");
                true
            };
            // Until each helper has stopped in a task, all of one or each in its own.
            let mut number = 1;
            while stopped.load(Ordering::Relaxed) < HELPERS && post(number) {
                number += 1;
            }
            stops.store(false, Ordering::Relaxed);
            board.settle();
            for number in number..number + 200 {
                while !post(number) {
                    give_way(); // helpers without a core read all slots
                }
            }
        });
    }
}
