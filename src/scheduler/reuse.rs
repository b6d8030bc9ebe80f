//! Reuse: a sequence starts with a prefix that the KV cache holds.

use super::books::Books;
use super::cost::Rows;
use super::sequence::Stage;
use super::times;
use super::tuning::{
    CELLS_COPIED_PER_TOKEN, CHECKPOINT_TOKENS_MIN, FOLLOW_TOKENS_MIN, REUSE_TOKENS_MIN,
};
use crate::ring::message::Batch;
use crate::types::{CheckpointId, Owner, SequenceId, SlotId, TokenId};

/// The longest prefixes of a sequence in the KV cache, each with its number of tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prefix {
    /// The prefix that a slot holds.
    pub ready: Option<Ready>,
    /// The running sequence that will compute a longer prefix, if waiting for it is faster.
    pub coming: Option<(SequenceId, usize)>,
    /// The most first tokens that the sequence shares with another one, even if no slot holds a
    /// state behind them.
    pub shared: usize,
}

/// A prefix that a slot holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub slot: SlotId,
    pub tokens: usize,
    /// The state behind it, if that is not the slot's own.
    pub checkpoint: Option<CheckpointId>,
    /// The logits behind it, if it is the whole sequence.
    pub logits: Option<CheckpointId>,
}

impl Ready {
    /// The first tokens of a slot, with its own state.
    pub fn of(slot: SlotId, tokens: usize) -> Self {
        Self { slot, tokens, checkpoint: None, logits: None }
    }
}

/// Starts the followers whose leader has computed enough. If the leader has ended, its first
/// follower starts with the tokens that the KV cache holds, and the other followers follow that
/// one.
pub(super) fn end_following(books: &mut Books, batch: &mut Batch) {
    for index in 0..books.held.len() {
        let id = books.held[index];
        let Stage::Following { owner, leader, tokens } = books.sequences.get(id).state else {
            continue;
        };
        let ready = match running_slot(books, leader) {
            Some((slot, planned)) if planned >= tokens => ready_in(books, id, slot, tokens),
            Some(_) => continue,
            None => {
                let prefix = find_prefix(books, id);
                if let Some((leader, tokens)) = prefix.coming {
                    follow(books, id, owner, leader, tokens);
                    continue;
                }
                prefix.ready
            }
        };
        let nothing = Ready::of(owner.slot, 0);
        let ready = ready.unwrap_or(nothing);
        if ready.slot != owner.slot && !may_copy(books) {
            continue; // in the next step
        }
        let owner = books.slots.renew(owner);
        start_running(books, batch, id, owner, ready);
    }
}

/// Lets a sequence wait until `leader` has computed the first `tokens` tokens, which both share.
pub(super) fn follow(
    books: &mut Books,
    id: SequenceId,
    owner: Owner,
    leader: SequenceId,
    tokens: usize,
) {
    books.sequences.get_mut(id).state = Stage::Following { owner, leader, tokens };
    stop_at(books, leader, tokens);
}

/// Lets a sequence save its state behind its first `tokens` tokens, if it has one.
pub(super) fn stop_at(books: &mut Books, id: SequenceId, tokens: usize) {
    let stops = &mut books.sequences.get_mut(id).shared;
    if books.capacity.states.is_some() && !stops.contains(&(tokens as u32)) {
        let _ = stops.push(tokens as u32); // if there is no room, the sequence saves it elsewhere
    }
}

/// The longest prefix of at most `tokens` tokens with which a sequence may start, of those that a
/// slot has.
fn ready_in(books: &Books, id: SequenceId, slot: SlotId, tokens: usize) -> Option<Ready> {
    let whole = Ready::of(slot, tokens);
    if books.capacity.states.is_none() {
        return Some(whole);
    }
    // Also where a saved state stands: the slot's own window reaches further back.
    if reaches(books, id, slot, tokens) {
        return Some(whole);
    }
    let checkpoints = &books.cells.checkpoints;
    let (checkpoint, tokens) = checkpoints.find_before(slot, tokens, books.step)?;
    Some(Ready { checkpoint: Some(checkpoint), ..Ready::of(slot, tokens) })
}

/// Whether a slot has a sliding window that can be cut to `tokens` tokens.
fn reaches(books: &Books, id: SequenceId, slot: SlotId, tokens: usize) -> bool {
    let avoids = books.sequences.get(id).avoids_windows;
    !avoids && books.capacity.has_windows() && books.windows.reaches(slot, tokens)
}

/// A start with all tokens of a sequence, if the text of a slot begins with them and the logits behind
/// them are kept. `shared` tokens are the same, not counting the last of the sequence.
fn all_in(
    books: &Books,
    id: SequenceId,
    slot: SlotId,
    text: &[TokenId],
    shared: usize,
) -> Option<Ready> {
    let sequence = books.sequences.get(id);
    let tokens = sequence.tokens.len();
    let is_all = shared + 1 == tokens && text.get(shared) == sequence.tokens.last();
    if !is_all || !sequence.may_start_whole() {
        return None;
    }
    let logits = Some(books.cells.logits.find_made(slot, tokens)?);
    if books.capacity.states.is_none() || reaches(books, id, slot, tokens) {
        return Some(Ready { logits, ..Ready::of(slot, tokens) });
    }
    let checkpoint = Some(books.cells.checkpoints.find_made(slot, tokens)?);
    Some(Ready { slot, tokens, checkpoint, logits })
}

/// The slot of a running sequence, and the number of its planned rows. 0 rows for a follower.
fn running_slot(books: &Books, id: SequenceId) -> Option<(SlotId, usize)> {
    if !books.sequences.contains(id) {
        return None;
    }
    let sequence = books.sequences.get(id);
    match sequence.state {
        Stage::Running(owner) => Some((owner.slot, sequence.planned)),
        Stage::Following { owner, .. } => Some((owner.slot, 0)),
        Stage::Waiting => None,
    }
}

/// Starts a sequence with a prefix.
pub(super) fn start_running(
    books: &mut Books,
    batch: &mut Batch,
    id: SequenceId,
    owner: Owner,
    ready: Ready,
) {
    let Ready { slot, mut tokens, mut checkpoint, mut logits } = ready;
    books.slots.touch(slot, books.step); // the source of a copy must not be evicted
    if slot != owner.slot {
        if books.cells.are_own() {
            let rows = books.held.iter().filter(|id| books.decodes(**id)).count();
            books.evict(batch, tokens + rows);
            if books.cells.left() < tokens + rows {
                (tokens, checkpoint, logits) = (0, None, None); // no room for a copy
            }
            books.copied |= tokens > 0;
        }
        books.cells.copy(slot, owner.slot, tokens);
    }
    if slot != owner.slot || checkpoint.is_some() {
        books.windows.replace(owner.slot, tokens, books.step);
    }
    let sequence = books.sequences.get_mut(id);
    // Reserved now, so that no token allocates.
    sequence.tokens.reserve_exact(sequence.asked.max_tokens as usize - sequence.generated());
    sequence.state = Stage::Running(owner);
    sequence.planned = tokens;
    sequence.cached = tokens.min(sequence.prompt_tokens);
    (sequence.restored, sequence.fetched) = (0, 0);
    books.tally.cached_tokens += tokens as u64;
    sequence.push_start(batch, slot, tokens, checkpoint, logits);
    if let Some(logits) = logits {
        books.cells.logits.touch(logits, books.step);
        (sequence.in_flight, sequence.sampled_in) = (1, books.step);
        books.shares.serve(sequence.asked.key, 1.0); // as for the row that it saves
    }
    if let Some(checkpoint) = checkpoint {
        books.tally.states_restored += 1;
        books.cells.checkpoints.touch(checkpoint, books.step);
    } else if tokens > 0 && books.capacity.states.is_some() {
        save_before_it_is_lost(books, batch, id, tokens);
    }
}

/// Saves the state of a slot behind its `tokens` tokens, before a sequence that goes on there moves
/// it, unless the sequence is about to save one that is as good.
fn save_before_it_is_lost(books: &mut Books, batch: &mut Batch, id: SequenceId, tokens: usize) {
    let sequence = books.sequences.get(id);
    let near = tokens..tokens + CHECKPOINT_TOKENS_MIN;
    let is_near = |branch: &u32| near.contains(&(*branch as usize));
    let is_worth = books.cells.checkpoints.is_worth(sequence.owner().slot, tokens);
    if is_worth && !sequence.asked.branches.iter().any(is_near) {
        books.save_state(batch, id);
    }
}

/// True if this step may still copy. A copy delays every decoding sequence, so a step has one
/// at most.
pub(super) fn may_copy(books: &Books) -> bool {
    !books.copied || !books.held.iter().any(|id| books.decodes(*id))
}

/// True if a copy fits into the bound on a step. If each slot has a cache of its own, a copy moves
/// the whole slot. If a copy does not fit, the prompt is computed instead.
fn may_take_a_copy(books: &Books) -> bool {
    let mut decode = Rows::default();
    let decoding = books.held.iter().filter(|id| books.decodes(**id));
    decoding.for_each(|id| decode.add(books.sequences.get(*id).planned));
    let left = times::bound(books, decode)
        .zip(books.cost.decode(decode))
        .map(|(b, d)| b.saturating_sub(d));
    match (books.cost.copy(), left) {
        (Some(copy), Some(left)) => decode.count == 0 || copy <= left,
        _ => true, // not known yet
    }
}

/// Finds the longest prefix of a sequence that the KV cache holds or will hold soon, in the
/// sequence's own scope. It is the whole sequence only if the logits behind it were kept: otherwise
/// the last token must run to sample the next one. Tokens whose logits give scores must run, too.
///
/// This compares the sequence with each slot, token by token. A tree would be faster to search,
/// but would have to be maintained.
pub(super) fn find_prefix(books: &Books, id: SequenceId) -> Prefix {
    let sequence = books.sequences.get(id);
    let Some(scope) = sequence.asked.cache.filter(|_| books.capacity.reuse) else {
        return Prefix::default();
    };
    let wanted = &sequence.tokens[..sequence.reusable()];
    let copy_least = if may_take_a_copy(books) {
        REUSE_TOKENS_MIN.max(books.capacity.copied_cells() / CELLS_COPIED_PER_TOKEN)
    } else {
        usize::MAX
    };
    let mut prefix = Prefix::default();
    let mut most = 0;
    for (slot, kept, is_all) in books.slots.kept(scope) {
        let shared = common(wanted, kept);
        prefix.shared = prefix.shared.max(shared);
        let whole = Ready::of(slot, shared);
        let is_whole = is_all && shared == kept.len();
        let ready = if is_whole { Some(whole) } else { ready_in(books, id, slot, shared) };
        let ready = all_in(books, id, slot, kept, shared).or(ready);
        let Some(ready) = ready else { continue };
        let in_place = 2 * ready.tokens >= kept.len();
        let least = if in_place { REUSE_TOKENS_MIN } else { copy_least };
        if ready.tokens >= least && ready.tokens > most {
            most = ready.tokens;
            prefix.ready = Some(ready);
        }
    }
    let mut coming = 0;
    // Only sequences that started earlier can lead, so no two wait for each other.
    let mut is_before = true;
    for other in &books.held {
        if *other == id {
            is_before = false;
            continue;
        }
        let ahead = books.sequences.get(*other);
        if ahead.asked.cache != Some(scope) {
            continue;
        }
        let shared = common(wanted, &ahead.tokens);
        prefix.shared = prefix.shared.max(shared);
        let computed = &ahead.tokens[..ahead.planned.min(ahead.tokens.len())];
        let held = shared.min(ahead.planned);
        if let Stage::Running(owner) = ahead.state
            && let Some(ready) = all_in(books, id, owner.slot, computed, held)
                .or_else(|| ready_in(books, id, owner.slot, held))
            && ready.tokens >= copy_least
            && ready.tokens > most
        {
            most = ready.tokens;
            prefix.ready = Some(ready);
        }
        // Two sequences that follow each other would never start.
        let follows = matches!(ahead.state, Stage::Following { leader, .. } if leader == id);
        let saves = books.capacity.states.is_none_or(|states| {
            // Its state behind the shared tokens is still to come, and there is a place to note it.
            let is_coming = ahead.planned < shared && shared < ahead.tokens.len();
            states.checkpoints > 0 && is_coming && !ahead.shared.is_full()
        });
        if is_before && !follows && saves && shared >= copy_least && shared > coming {
            coming = shared;
            prefix.coming = Some((*other, shared));
        }
    }
    if coming < most + FOLLOW_TOKENS_MIN {
        prefix.coming = None;
    }
    prefix
}

/// The length of the common prefix.
fn common(a: &[TokenId], b: &[TokenId]) -> usize {
    const BLOCK: usize = 64;
    let blocks = a.chunks_exact(BLOCK).zip(b.chunks_exact(BLOCK));
    let same = BLOCK * blocks.take_while(|(a, b)| a == b).count();
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}
