//! Where the masks of constrained texts come from, and the tasks for the mask lane. See
//! [`super::constrained`].

use crate::limits::{MASK_TASKS_MAX, SLOTS_MAX};
use crate::ring::message::MaskTask;
use crate::types::SlotId;

/// Where a sequence's masks come from.
#[derive(Debug)]
pub(super) enum MaskSource {
    /// From the decode lane, if a constraint asks for masks at all. The next one is expected to
    /// take `us` microseconds.
    DecodeLane { us: u32 },
    /// From the mask lane, which has not been asked for the next one yet. The task holds the state
    /// of the constraint, if there is one already.
    Unasked(Option<Box<MaskTask>>),
    /// From the mask lane, which computes the next one.
    Asked,
    /// From the mask lane. The next one is there.
    Ready(Box<MaskTask>),
    /// From the mask lane. The next one is on its way to the decode lane.
    Sent,
}

/// The masks of all sequences.
pub(super) struct Masks {
    /// Microseconds that the masks of the decode lane are expected to take in the step that is
    /// being planned.
    pub planned: u64,
    /// Fast masks that each key must have on the mask lane before its new constraints begin on the
    /// decode lane.
    pub distrust: Box<[u32]>,
    /// Slots whose state on the decode lane is to be freed.
    pub forgets: heapless::Vec<SlotId, { 2 * SLOTS_MAX }>,
    /// Tasks whose sequence has ended. The mask lane has to free their state.
    pub ended: heapless::Vec<Box<MaskTask>, MASK_TASKS_MAX>,
    /// Tasks without a sequence and without a state.
    pub spare: heapless::Vec<Box<MaskTask>, MASK_TASKS_MAX>,
    /// Tasks at the mask lane.
    pub asked: usize,
    /// Tasks in batches.
    pub sent: usize,
    /// Tasks that exist.
    pub made: usize,
}

impl Masks {
    /// No task exists, and no key is distrusted.
    pub fn new(keys: usize) -> Self {
        Self {
            planned: 0,
            distrust: vec![0; keys].into_boxed_slice(),
            forgets: heapless::Vec::new(),
            ended: heapless::Vec::new(),
            spare: heapless::Vec::new(),
            asked: 0,
            sent: 0,
            made: 0,
        }
    }

    /// A task without a sequence. `None` if all tasks are in use.
    pub fn spare(&mut self) -> Option<Box<MaskTask>> {
        self.spare.pop().or_else(|| {
            let may_make = self.made < MASK_TASKS_MAX;
            self.made += usize::from(may_make);
            may_make.then(Box::default)
        })
    }

    /// Takes a task whose sequence has ended, or goes on without it.
    pub fn end(&mut self, mut task: Box<MaskTask>) {
        task.sequence = None;
        assert!(self.ended.push(task).is_ok(), "no more tasks exist");
    }

    /// Takes a task that came back from the mask lane without a state.
    pub fn freed(&mut self, task: Box<MaskTask>) {
        assert!(self.spare.push(task).is_ok(), "no more tasks exist");
    }

    /// Frees the state of a sequence's constraint. The sequence has lost its slot.
    pub fn leave(&mut self, slot: SlotId, source: MaskSource) {
        match source {
            MaskSource::DecodeLane { .. } => self.forget(slot),
            MaskSource::Unasked(Some(task)) | MaskSource::Ready(task) => self.end(task),
            // Its task comes back and finds no sequence.
            MaskSource::Unasked(None) | MaskSource::Asked | MaskSource::Sent => {}
        }
    }

    /// Lets the decode lane free the constraint state of a slot. Its text has ended, or moves to
    /// the mask lane.
    pub fn forget(&mut self, slot: SlotId) {
        if !self.forgets.contains(&slot) {
            self.forgets.push(slot).expect("one for each slot");
        }
    }
}
