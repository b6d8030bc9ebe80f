//! Reuse: a sequence starts with a prefix that the KV cache holds.

use super::books::Books;
use super::cost::Rows;
use super::sequence::Stage;
use super::times;
use super::tuning::{CELLS_COPIED_PER_TOKEN, FOLLOW_TOKENS_MIN, REUSE_TOKENS_MIN};
use crate::ring::message::Batch;
use crate::types::{Owner, SequenceId, SlotId, TokenId};

/// The longest prefixes of a sequence in the KV cache, each with its number of tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prefix {
    /// The slot that holds the prefix.
    pub ready: Option<(SlotId, usize)>,
    /// The running sequence that will compute a longer prefix, if waiting for it is faster.
    pub coming: Option<(SequenceId, usize)>,
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
        let (slot, found) = match running_slot(books, leader) {
            Some((slot, planned)) if planned >= tokens => (slot, tokens),
            Some(_) => continue,
            None => {
                let prefix = find_prefix(books, id);
                if let Some((leader, tokens)) = prefix.coming {
                    let state = Stage::Following { owner, leader, tokens };
                    books.sequences.get_mut(id).state = state;
                    continue;
                }
                prefix.ready.unwrap_or((owner.slot, 0))
            }
        };
        if slot != owner.slot && !may_copy(books) {
            continue; // in the next step
        }
        let owner = books.slots.renew(owner);
        start_running(books, batch, id, owner, slot, found);
    }
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

/// Starts a sequence with its first `tokens` tokens from `slot`.
pub(super) fn start_running(
    books: &mut Books,
    batch: &mut Batch,
    id: SequenceId,
    owner: Owner,
    slot: SlotId,
    mut tokens: usize,
) {
    books.slots.touch(slot, books.step); // the source of a copy must not be evicted
    if slot != owner.slot {
        if books.cells.are_own() {
            let rows = books.held.iter().filter(|id| books.decodes(**id)).count();
            books.evict(batch, tokens + rows);
            if books.cells.left() < tokens + rows {
                tokens = 0; // no room for a copy
            }
            books.copied |= tokens > 0;
        }
        books.cells.copy(slot, owner.slot, tokens);
    }
    let sequence = books.sequences.get_mut(id);
    // Reserved now, so that no token allocates.
    sequence.tokens.reserve_exact(sequence.asked.max_tokens as usize - sequence.generated());
    sequence.state = Stage::Running(owner);
    sequence.planned = tokens;
    sequence.cached = tokens.min(sequence.prompt_tokens);
    books.tally.cached_tokens += tokens as u64;
    sequence.push_start(batch, slot, tokens);
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
/// sequence's own scope. It is never the whole sequence: the last token must run to sample the
/// next one, and tokens whose logits give scores must run, too.
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
    for (slot, kept) in books.slots.kept(scope) {
        let tokens = common(wanted, kept);
        let in_place = 2 * tokens >= kept.len();
        let least = if in_place { REUSE_TOKENS_MIN } else { copy_least };
        let is_usable = tokens == kept.len() || !books.capacity.reuses_whole;
        if is_usable && tokens >= least && tokens > most {
            most = tokens;
            prefix.ready = Some((slot, tokens));
        }
    }
    if books.capacity.reuses_whole {
        return prefix;
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
        if let Stage::Running(owner) = ahead.state {
            let ready = shared.min(ahead.planned);
            if ready >= copy_least && ready > most {
                most = ready;
                prefix.ready = Some((owner.slot, ready));
            }
        }
        // Two sequences that follow each other would never start.
        let follows = matches!(ahead.state, Stage::Following { leader, .. } if leader == id);
        if is_before && !follows && shared >= copy_least && shared > coming {
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
