//! Admission: sequences enter the queue, or are refused.

use super::books::Books;
use super::capacity::Refusal;
use super::sequence::NewSequence;
use super::shares::Shares;
use crate::types::SequenceId;

/// Admits all of `new`, or none of them. `assign` is called with the index of each in `new` and
/// its id.
///
/// # Errors
/// [`Refusal`] says why there is no room.
pub(super) fn admit(
    books: &mut Books,
    new: Vec<NewSequence>,
    mut assign: impl FnMut(usize, SequenceId),
) -> Result<(), Refusal> {
    let limit = books.capacity.queue_sequences;
    let ever = limit + books.capacity.slots;
    if new.len() > ever {
        return Err(Refusal::TooMany { sequences: new.len(), limit: ever });
    }
    let Some(key) = new.first().map(|first| first.key) else { return Ok(()) };
    let Shares { sequences, tokens, .. } = &books.shares;
    // Sequences that would start at once do not count against the queue.
    if sequences.held() + new.len() > sequences.limit(key) + books.slots.free_count() {
        let (waiting, limit) = (sequences.held_by(key), sequences.most(key));
        return Err(Refusal::QueueFull { waiting, limit });
    }
    let tokens_behind = |started: usize| -> usize {
        new.iter().skip(started).map(|sequence| sequence.prompt.len()).sum()
    };
    let limit = books.capacity.queue_tokens;
    let behind = tokens_behind(books.capacity.slots + 1);
    if behind > limit {
        return Err(Refusal::TooManyTokens { tokens: behind, limit });
    }
    // Sequences that would start at once do not count here, either. An empty queue also takes one
    // prompt of any length. If other sequences wait already, the free slots are theirs.
    let at_once = if sequences.held() == 0 { books.slots.free_count() + 1 } else { 0 };
    if tokens.held() + tokens_behind(at_once) > tokens.limit(key) {
        let (waiting, limit) = (tokens.held_by(key), tokens.most(key));
        return Err(Refusal::TokensFull { waiting, limit });
    }
    books.shares.arrive(key);
    for (index, sequence) in new.into_iter().enumerate() {
        assert_possible(books, &sequence);
        assert_eq!(sequence.key, key, "the sequences of one request have one key");
        books.shares.wait(key, sequence.prompt.len());
        let id = books.sequences.insert(sequence);
        books.waiting.push(id);
        assign(index, id);
    }
    Ok(())
}

/// Asserts that a sequence fits. Requests that can never run were refused when they were read.
fn assert_possible(books: &Books, sequence: &NewSequence) {
    let (prompt, max_tokens) = (sequence.prompt.len() as u64, u64::from(sequence.max_tokens));
    let limit = u64::from(books.capacity.sequence_tokens);
    assert!(prompt > 0, "an empty prompt was admitted");
    assert!(prompt + max_tokens <= limit, "{prompt} + {max_tokens} tokens; {limit} may be");
}
