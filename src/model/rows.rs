//! The rows of a step, as llama.cpp takes them.

use std::ptr;

use llama_cpp_sys_2 as sys;

use super::DecodeRow;
use crate::types::Logits;

/// The arrays that a `llama_batch` points to. They are allocated once.
pub(super) struct RowArrays {
    token: Box<[sys::llama_token]>,            // [step_rows]
    pos: Box<[sys::llama_pos]>,                // [step_rows]
    n_seq_id: Box<[i32]>,                      // [step_rows], all 1
    seq_id: Box<[sys::llama_seq_id]>,          // [step_rows]
    seq_id_ptr: Box<[*mut sys::llama_seq_id]>, // [step_rows], each into `seq_id`
    logits: Box<[i8]>,                         // [step_rows]
}

impl RowArrays {
    /// Room for `rows` rows.
    pub fn new(rows: usize) -> Self {
        let mut seq_id = vec![0; rows].into_boxed_slice();
        let seq_id_ptr = seq_id.iter_mut().map(ptr::from_mut).collect();
        Self {
            token: vec![0; rows].into(),
            pos: vec![0; rows].into(),
            n_seq_id: vec![1; rows].into(),
            seq_id,
            seq_id_ptr,
            logits: vec![0; rows].into(),
        }
    }

    /// The batch of `rows`. It points into these arrays.
    pub fn fill(&mut self, rows: &[DecodeRow]) -> sys::llama_batch {
        assert!(
            rows.len() <= self.token.len(),
            "{} rows, room for {}",
            rows.len(),
            self.token.len()
        );
        for (index, row) in rows.iter().enumerate() {
            self.token[index] = row.token;
            self.pos[index] = row.position.0 as i32; // below SEQUENCE_TOKENS_MAX
            self.seq_id[index] = i32::from(row.slot.0);
            self.logits[index] = i8::from(row.logits != Logits::None);
        }
        sys::llama_batch {
            n_tokens: rows.len() as i32, // at most STEP_ROWS_MAX
            token: self.token.as_mut_ptr(),
            embd: ptr::null_mut(),
            pos: self.pos.as_mut_ptr(),
            n_seq_id: self.n_seq_id.as_mut_ptr(),
            seq_id: self.seq_id_ptr.as_mut_ptr(),
            logits: self.logits.as_mut_ptr(),
        }
    }
}
