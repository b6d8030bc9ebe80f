//! Rules that are broken on purpose.

use corelane::engine::job::Job;
use corelane::ring::message::Batch;
use corelane::types::SlotId;

use super::World;

/// A rule that is broken on purpose, to see that the simulation notices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// A connection is not woken when its reply has bytes.
    LostWakeUp,
    /// Both halves of a stop string are looked for, each alone.
    StopStringCutInTwo,
    /// A slot is cleared a second time, when another sequence has it.
    SlotFreedTwice,
    /// The engine is not told of a deadline.
    DeadlineIgnored,
    /// A prompt is counted with one token too many.
    UsageMiscounted,
    /// A response is kept with the conversation of another one.
    OtherTurnKept,
    /// A new key is the tenant of the key that had its place before.
    KeyIsItsPlace,
}

impl World {
    pub(super) fn break_job(&self, job: &mut Job) {
        match self.fault {
            Some(Fault::StopStringCutInTwo) => {
                let halves = |stop: &String| {
                    let middle = stop.char_indices().map(|(at, _)| at).nth(1);
                    let (head, tail) = stop.split_at(middle.unwrap_or(stop.len()));
                    [head.to_owned(), tail.to_owned()]
                };
                job.stops = job.stops.iter().flat_map(halves).filter(|s| !s.is_empty()).collect();
            }
            Some(Fault::DeadlineIgnored) => job.deadline = None,
            Some(Fault::UsageMiscounted) => job.prompt_tokens += 1,
            _ => {}
        }
    }

    pub(super) fn break_batch(&mut self, batch: &mut Batch) {
        if self.fault != Some(Fault::SlotFreedTwice) {
            return;
        }
        let runs = |slot: &SlotId| batch.rows.iter().any(|row| row.owner.slot == *slot);
        let starts = |slot: &SlotId| batch.starts.iter().any(|start| start.owner.slot == *slot);
        let again = self.cleared.iter().copied().find(|slot| runs(slot) && !starts(slot));
        self.cleared.extend(batch.starts.iter().map(|start| start.owner.slot));
        if let Some(slot) = again {
            self.cleared.clear();
            batch.clears.push(slot).unwrap();
        }
    }
}
