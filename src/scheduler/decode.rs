//! Decode rows: every running sequence whose prompt is computed gets one row in every step. A
//! constrained text with slow masks gets its row only after the mask lane has computed its mask
//! ([`super::constrained`]).

use super::books::Books;
use super::cost::Rows;
use super::{constrained, stops};
use crate::ring::message::Batch;

pub(super) fn plan(books: &mut Books, batch: &mut Batch) {
    let mut decode = Rows::default();
    let decoding = books.held.iter().filter(|id| books.decodes(**id));
    decoding.for_each(|id| decode.add(books.sequences.get(*id).planned));
    books.evict(batch, decode.count);
    books.masks.planned = 0;
    batch.masks_max = constrained::masks_bound(books, decode);
    // There is room for all, except for sequences that started in this step.
    let mut room = books.cells.left().min(books.rows_max);
    for index in 0..books.held.len() {
        let id = books.held[index];
        if room > 0 && books.decodes(id) && constrained::take_mask(books, batch, id) {
            room -= 1;
            books.plan_row(batch, id);
            stops::keep_whole(books, batch, id);
        }
    }
}
