//! Continuous batching: chooses the tokens of the next step.
//!
//! [`Scheduler::admit`] takes sequences in. [`Scheduler::schedule`] plans the next step.
//! [`Scheduler::complete`] takes the answers of a step. A step is planned while the previous one
//! runs, so a decode row has no token yet. It refers to the sample of the previous step instead.
//!
//! `Books` (`books.rs`) is the state. The policy is functions over it, one file for each question,
//! and [`Scheduler::schedule`] calls them in the order in which they apply.
//!
//! **Invariant:** pure. Nothing here does I/O, reads a clock or draws a random number.
//! **Invariant:** two live sequences never hold the same slot. When a sequence starts in a slot,
//! the tokens in the slot are a prefix of that sequence.

mod admit;
mod books;
mod capacity;
mod cells;
mod checkpoints;
mod claims;
mod complete;
mod constrained;
pub mod cost;
mod curve;
mod decode;
mod disk;
mod disk_state;
mod event;
mod files;
mod guesses;
mod luck;
mod masks;
mod moves;
mod prefill;
mod pressure;
mod queue;
mod reuse;
mod sequence;
mod shares;
mod slot_files;
mod slot_state;
mod slots;
mod start;
mod stops;
mod store;
mod tally;
mod thread_choice;
mod times;
pub mod tuning;
mod view;
mod windows;

use crate::clock::Micros;
use crate::ring::files::FileTask;
use crate::ring::message::{Batch, MaskTask};
pub use crate::types::SequenceId;
use crate::types::{Calibration, KeyId};
use books::Books;
pub use capacity::{Capacity, FileSizes, Pages, Refusal, States};
pub use event::{Event, Finish};
pub use sequence::NewSequence;
pub use slot_state::{SlotOutcome, SlotRefusal, SlotTask};
pub use tally::{Phase, SlotView, Tally};
pub use times::Lateness;

/// See the module's description.
pub struct Scheduler {
    books: Books,
}

impl Scheduler {
    /// A scheduler with nothing to do.
    pub fn new(capacity: Capacity) -> Self {
        Self { books: Books::new(capacity) }
    }

    /// Learns from the steps that ran at the start, before the first request.
    pub fn calibrate(&mut self, calibration: &Calibration) {
        self.books.cost.calibrate(calibration);
    }

    /// Admits all of `new`, or none of them. `assign` is called with the index of each in `new` and
    /// its id.
    ///
    /// # Errors
    /// [`Refusal`] says why there is no room.
    pub fn admit(
        &mut self,
        new: Vec<NewSequence>,
        assign: impl FnMut(usize, SequenceId),
    ) -> Result<(), Refusal> {
        admit::admit(&mut self.books, new, assign)
    }

    /// Plans the next step into an empty batch. Returns false if there is nothing to do; the batch
    /// is then still empty.
    ///
    /// This is the whole policy, in the order in which it applies:
    /// 1. Every decoding sequence (its prompt is computed, or lacks one row) needs a cell for its
    ///    next token. If cells run out, kept prefixes are evicted first. Then sequences are
    ///    preempted.
    /// 2. A waiting key that has less than its part of the slots, and no more than its part of the
    ///    cells, takes them from a key that has more. The sequence that gets them is the claimant.
    /// 3. Sequences that failed restart where they stand, or go back to the queue.
    /// 4. Sequences that wait for a common prefix start when it is computed.
    /// 5. Waiting sequences start while there are slots and cells.
    /// 6. Every decoding sequence gets a row.
    /// 7. Decode rows get guesses behind them, if these raise the tokens per second.
    /// 8. Pages of the prefix store are copied for sequences that start with them.
    /// 9. Prompts get as many rows as the bound on the time between two tokens leaves.
    /// 10. If unfinished prompts have all the cells and none can go on, one is preempted.
    /// 11. Texts that ended are copied into the prefix store.
    pub fn schedule(&mut self, batch: &mut Batch) -> bool {
        let books = &mut self.books;
        books.begin_step(batch);
        pressure::make_room_to_decode(books, batch);
        let claimant = claims::settle(books, batch);
        start::restart_failed(books, batch);
        reuse::end_following(books, batch);
        start::start_waiting(books, batch, claimant);
        decode::plan(books, batch);
        guesses::grant(books, batch);
        moves::load(books, batch);
        prefill::plan(books, batch);
        pressure::end_a_standstill(books, batch);
        moves::store(books, batch);
        books.end_step(batch)
    }

    /// Takes the answers of a step. Calls `event` with the outcome for each sequence.
    pub fn complete(&mut self, batch: &mut Batch, event: impl FnMut(Event)) {
        complete::complete(&mut self.books, batch, event);
    }

    /// The next task for the mask lane, if there is one.
    pub fn next_mask(&mut self) -> Option<Box<MaskTask>> {
        constrained::next_task(&mut self.books)
    }

    /// Takes a task that came back from the mask lane. Returns its sequence and the bytes that the
    /// state of its constraint holds.
    pub fn masked(&mut self, task: Box<MaskTask>) -> Option<(SequenceId, u32)> {
        constrained::masked(&mut self.books, task)
    }

    /// Lets sequences that have just come wait for files of the prefix store, if that saves them
    /// time, and ends the waits that have taken too long. Returns the time at which to call this
    /// again, even if nothing comes back until then.
    pub fn look_up(&mut self, now: Micros) -> Option<Micros> {
        disk::look_up(&mut self.books, now);
        disk::next_end(&self.books, now)
    }

    /// The next job for the disk lane, if there is one and the lane has room for it.
    pub fn next_file_task(&mut self, now: Micros) -> Option<FileTask> {
        disk::next_task(&mut self.books, now)
    }

    /// Whether texts still have to be written to files, and writing works.
    pub fn has_to_write(&self, now: Micros) -> bool {
        disk::has_to_write(&self.books, now)
    }

    /// Takes a job that came back from the disk lane.
    pub fn filed(&mut self, task: FileTask, now: Micros) {
        disk::done(&mut self.books, task, now);
    }

    /// Takes a task of a client with a slot. [`Scheduler::slot_outcomes`] tells its outcome later.
    pub fn ask_slot(&mut self, task: SlotTask) {
        slot_files::ask(&mut self.books, task);
    }

    /// Goes on with the tasks of clients with slots. Returns whether they need a step that copies or
    /// clears something.
    pub fn advance_slots(&mut self) -> bool {
        slot_files::advance(&mut self.books);
        std::mem::take(&mut self.books.slot_tasks.needs_step)
    }

    /// The outcomes of these tasks since the last call.
    pub fn slot_outcomes(&mut self) -> Vec<SlotOutcome> {
        self.books.slot_tasks.take_outcomes()
    }

    /// Whether a client waits for a task with a slot, or for its outcome.
    pub fn has_slot_tasks(&self) -> bool {
        !self.books.slot_tasks.is_idle()
    }

    /// Ends a sequence on behalf of the caller. Does nothing if it has ended already.
    pub fn cancel(&mut self, id: SequenceId) {
        if self.books.sequences.contains(id) {
            self.books.release(id);
        }
    }

    /// Forgets a removed key, so that the next key at its place starts afresh: drops its charges,
    /// its recently held slots and, if `has_own_cache`, its kept prefixes. Its live sequences go
    /// on, but keep no prefix when they end. `has_own_cache` is false if all keys share one prefix
    /// cache.
    pub fn forget(&mut self, key: KeyId, has_own_cache: bool) {
        self.books.forget(key, has_own_cache);
    }
}
