//! Attention: each query's average of the values, weighted by the softmax of its products
//! with the keys (ggml's `FLASH_ATTN_EXT`).
//!
//! ```text
//! once a step    visible   mask -> groups of rows, their cells, pieces of work
//! each layer     each thread takes pieces; a piece is a group's queries of some KV heads
//!                  for chunk of 256 cells and more:
//!                    for block of 32 cells, for KV head:   block::attend
//!                    merge with the chunks before
//!                where one row sees much, its chunks are pieces, too, and are merged at the
//!                end
//! ```
//!
//! Keys and values are read once for all heads and rows of a group, in memory order, because in
//! decode steps a core mostly waits for memory.
//!
//! **Invariant:** a row's output is the same, bit by bit, for the same query and the same cells of
//! its group in the same order in the cache. It depends neither on other rows nor on how the work
//! is shared.

pub mod block;
pub mod cached;
mod dots;
mod softmax;
pub mod tile;
mod values;
pub mod visible;

use std::ops::Range;

use cached::{
    HEAD_NUMBERS_MAX, HEAD_NUMBERS_STEP, HIDDEN, QuantisedQuery, mask_value, query_floats,
};
use tile::{BLOCK_CELLS, Block, NO_MAXIMUM, SUM_LANES, Scratch, SoftmaxState};
use visible::{CHUNKS_MAX, FEW_QUERIES, GROUP_QUERIES_MAX, Group, Mask, Partition, Piece, Shape};

use super::formats::LINE;
use super::team::Team;

/// The functions for one pair of cached types on one instruction set.
#[derive(Clone, Copy)]
pub struct AttentionKernel {
    /// See [`block::attend`].
    pub attend: unsafe fn(&Block),
    /// Whether queries are rounded to 8 bits, see [`QuantisedQuery`].
    pub is_quantised: bool,
    /// Block lengths of the keys' type and of the values' type.
    pub block_numbers: [usize; 2],
}

impl AttentionKernel {
    /// Whether the kernel supports heads with these lengths of keys and values.
    pub fn has_heads(&self, key_numbers: usize, value_numbers: usize) -> bool {
        [key_numbers, value_numbers].into_iter().zip(self.block_numbers).all(|(numbers, block)| {
            let step = block.max(HEAD_NUMBERS_STEP);
            (step..=HEAD_NUMBERS_MAX).contains(&numbers) && numbers.is_multiple_of(step)
        })
    }
}

/// A tensor `[streams, heads, rows, numbers]`, possibly with gaps, like ggml's views.
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// The first number.
    pub data: *const u8,
    /// Bytes from one row (of queries) or cell (of keys, values) to the next.
    pub row_stride: usize,
    /// Bytes from one head to the next.
    pub head_stride: usize,
    /// Bytes from one stream to the next.
    pub stream_stride: usize,
}

impl Tensor {
    fn at(&self, stream: usize, head: usize, row: usize) -> *const u8 {
        let bytes = stream * self.stream_stride + head * self.head_stride + row * self.row_stride;
        self.data.wrapping_add(bytes)
    }
}

/// The sizes of an attention.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Heads and threads.
    pub shape: Shape,
    /// Rows of queries in each stream.
    pub rows: usize,
    /// Numbers of a query and of a key.
    pub key_numbers: usize,
    /// Numbers of a value.
    pub value_numbers: usize,
}

/// One attention of a layer.
pub struct Attention<'a> {
    /// The kernel for the cached types.
    pub kernel: AttentionKernel,
    /// The sizes.
    pub sizes: Sizes,
    /// 32-bit floats.
    pub queries: Tensor,
    /// The keys, of the cached type.
    pub keys: Tensor,
    /// The values, of the cached type.
    pub values: Tensor,
    /// The cells that each row sees.
    pub mask: Mask,
    /// The groups and pieces for this mask.
    pub plan: &'a Partition,
    /// Factor of the products of queries and keys.
    pub scale: f32,
    /// See [`Block::softcap`].
    pub softcap: f32,
    /// The slope bound of ALiBi; 0 without ALiBi. The mask is multiplied by a slope for each head.
    pub max_bias: f32,
    /// For each head, a score that joins the softmax with a value of 0; may be null.
    pub sinks: *const f32,
    /// `[streams, rows, heads, value_numbers]`
    pub output: *mut f32,
    /// [`work_bytes`] of memory, aligned to [`LINE`].
    pub work: *mut u8,
}

/// Bytes of work memory for all threads.
pub fn work_bytes(sizes: &Sizes) -> usize {
    let parts = Parts::of(sizes);
    sizes.shape.threads * parts.bytes() + slots_max(sizes) * slot_floats(sizes) * size_of::<f32>()
}

/// Number of slots for the states of chunks that are separate pieces. A row with such chunks has
/// more work than an average piece, so there are at most as many such rows as wanted pieces.
pub fn slots_max(sizes: &Sizes) -> usize {
    if sizes.shape.threads == 1 {
        return 0;
    }
    sizes.rows.min(sizes.shape.pieces_wanted()) * CHUNKS_MAX
}

/// Floats of a slot: maximum, sum and output of each head of a row.
fn slot_floats(sizes: &Sizes) -> usize {
    sizes.shape.heads * (2 + sizes.value_numbers)
}

/// The sizes of the parts of a thread's own memory, in floats.
struct Parts {
    /// Most queries of a piece, over all heads.
    vectors: usize,
    queries: usize,
    maxima: usize,
    sums: usize,
    outputs: usize,
    merged: usize,
    scores: usize,
    bias: usize,
    converted: usize,
}

impl Parts {
    fn of(sizes: &Sizes) -> Self {
        let shape = sizes.shape;
        let of_head = GROUP_QUERIES_MAX.max(shape.group_heads());
        let of_all_heads = FEW_QUERIES.max(shape.group_heads()) * shape.kv_heads;
        let vectors = of_head.max(of_all_heads);
        Self {
            vectors,
            queries: vectors * query_floats(sizes.key_numbers),
            maxima: vectors,
            sums: vectors * SUM_LANES,
            outputs: vectors * sizes.value_numbers,
            merged: vectors * (2 + sizes.value_numbers),
            scores: of_head * BLOCK_CELLS,
            bias: of_head * BLOCK_CELLS,
            converted: BLOCK_CELLS * sizes.key_numbers.max(sizes.value_numbers),
        }
    }

    fn bytes(&self) -> usize {
        let parts = [
            self.queries,
            self.maxima,
            self.sums,
            self.outputs,
            self.merged,
            self.scores,
            self.bias,
            self.converted,
        ];
        parts.into_iter().map(|floats| (floats * size_of::<f32>()).next_multiple_of(LINE)).sum()
    }
}

/// A thread's own memory. Its vectors are ordered by KV head, then row, then head of the group.
struct Memory {
    queries: *mut f32, // [vectors][query_floats]
    state: SoftmaxState,
    merged: *mut f32, // [vectors][2 + value_numbers]: maximum, sum, output
    scratch: Scratch,
    bias: *mut f32, // [vectors of a head][BLOCK_CELLS]
}

impl Memory {
    /// The memory of a thread.
    ///
    /// # Safety
    /// `work` points to [`work_bytes`].
    unsafe fn of(work: *mut u8, thread: usize, parts: &Parts) -> Self {
        // SAFETY: the caller guarantees it.
        let mut at = unsafe { work.add(thread * parts.bytes()) };
        let mut take = |floats: usize| {
            let part: *mut f32 = at.cast();
            at = at.wrapping_add((floats * size_of::<f32>()).next_multiple_of(LINE));
            part
        };
        Self {
            queries: take(parts.queries),
            state: SoftmaxState {
                maxima: take(parts.maxima),
                sums: take(parts.sums),
                outputs: take(parts.outputs),
            },
            merged: take(parts.merged),
            scratch: Scratch { scores: take(parts.scores), converted: take(parts.converted) },
            bias: take(parts.bias),
        }
    }
}

impl Attention<'_> {
    /// Computes this thread's part. All threads of the team call it after [`Team::begin_pieces`].
    ///
    /// # Safety
    /// The processor has the kernel's instruction set, and all pointers are valid for the sizes
    /// given beside them.
    pub unsafe fn run(&self, team: &Team) {
        // SAFETY: the caller guarantees it. Each piece has its own part of the output or its own
        // slot, and each thread its own memory.
        unsafe {
            let memory = Memory::of(self.work, team.thread, &Parts::of(&self.sizes));
            let mut index = team.thread;
            while index < self.plan.pieces.len() {
                self.run_piece(&self.plan.pieces[index], &memory);
                index = team.next_piece(index);
            }
            if self.plan.slots > 0 {
                team.barrier();
                self.merge_slots(team);
            }
        }
    }

    /// KV heads of a piece.
    fn heads(&self, piece: &Piece) -> Range<usize> {
        let at = |part| self.sizes.shape.kv_heads * part / piece.parts;
        at(piece.part)..at(piece.part + 1)
    }

    unsafe fn run_piece(&self, piece: &Piece, memory: &Memory) {
        let group = &self.plan.groups[piece.group];
        let heads = self.heads(piece);
        let of_head = group.rows.len() * self.sizes.shape.group_heads();
        let vectors = heads.len() * of_head;
        debug_assert!(vectors <= Parts::of(&self.sizes).vectors, "{vectors} vectors");
        // SAFETY: the plan made sure that the vectors fit in the memory; the caller guarantees the
        // rest.
        unsafe {
            self.load_queries(group, heads.clone(), memory);
            for chunk in piece.chunks.clone() {
                self.attend_chunk(group, chunk, heads.clone(), memory);
                for vector in 0..vectors {
                    self.take_state(vector, chunk > piece.chunks.start, memory);
                }
            }
            if piece.chunks.is_empty() {
                memory.merged.write_bytes(0, vectors * (2 + self.sizes.value_numbers));
            }
            for vector in 0..vectors {
                let (kv_head, row, head) = self.vector(group, heads.start, vector);
                let head = kv_head * self.sizes.shape.group_heads() + head;
                let merged = memory.merged.add(vector * (2 + self.sizes.value_numbers));
                match group.slots {
                    Some(first) => {
                        let slot = self.slot(first + piece.chunks.start, head);
                        slot.copy_from_nonoverlapping(merged, 2 + self.sizes.value_numbers);
                    }
                    None => self.finish(merged, group.stream, row, head),
                }
            }
        }
    }

    /// The KV head, the row, and the head within the KV head's group, of a vector of a piece.
    fn vector(&self, group: &Group, first_head: usize, vector: usize) -> (usize, usize, usize) {
        let group_heads = self.sizes.shape.group_heads();
        let of_head = group.rows.len() * group_heads;
        let row = group.rows.start + vector % of_head / group_heads;
        (first_head + vector / of_head, row, vector % group_heads)
    }

    /// Copies the queries of a piece, scaled.
    unsafe fn load_queries(&self, group: &Group, heads: Range<usize>, memory: &Memory) {
        let group_heads = self.sizes.shape.group_heads();
        let vectors = heads.len() * group.rows.len() * group_heads;
        let stride = query_floats(self.sizes.key_numbers);
        for index in 0..vectors {
            let (kv_head, row, head) = self.vector(group, heads.start, index);
            let from = self.queries.at(group.stream, kv_head * group_heads + head, row);
            // SAFETY: the caller guarantees it.
            unsafe {
                let to = memory.queries.add(index * stride);
                for i in 0..self.sizes.key_numbers {
                    to.add(i).write(from.cast::<f32>().add(i).read() * self.scale);
                }
                if self.kernel.is_quantised {
                    QuantisedQuery::quantise(to, self.sizes.key_numbers);
                }
            }
        }
    }

    /// Attends a chunk of cells with the loaded queries, starting from an empty state.
    unsafe fn attend_chunk(
        &self,
        group: &Group,
        chunk: usize,
        heads: Range<usize>,
        memory: &Memory,
    ) {
        let count = group.rows.len() * self.sizes.shape.group_heads();
        let vectors = heads.len() * count;
        let (key_numbers, value_numbers) = (self.sizes.key_numbers, self.sizes.value_numbers);
        // SAFETY: the caller guarantees it; the cells are those of the mask.
        unsafe {
            std::slice::from_raw_parts_mut(memory.state.maxima, vectors).fill(NO_MAXIMUM);
            memory.state.sums.write_bytes(0, vectors * SUM_LANES);
            memory.state.outputs.write_bytes(0, vectors * value_numbers);
            for index in group.blocks(chunk) {
                let cells = self.plan.block(group, index);
                let next = self.plan.block(group, index + 1);
                let is_plain = self.plan.is_plain(group, index);
                for (nth, kv_head) in heads.clone().enumerate() {
                    if !is_plain {
                        self.load_bias(group, kv_head, cells, memory);
                    }
                    let first = nth * count;
                    let is_last = kv_head + 1 == heads.end;
                    let next_head = if is_last { heads.start } else { kv_head + 1 };
                    (self.kernel.attend)(&Block {
                        cells,
                        next: if is_last { next } else { cells },
                        next_keys: self.keys.at(group.stream, next_head, 0),
                        next_values: self.values.at(group.stream, next_head, 0),
                        keys: self.keys.at(group.stream, kv_head, 0),
                        key_stride: self.keys.row_stride,
                        values: self.values.at(group.stream, kv_head, 0),
                        value_stride: self.values.row_stride,
                        key_numbers,
                        value_numbers,
                        queries: memory.queries.add(first * query_floats(key_numbers)),
                        count,
                        bias: if is_plain { std::ptr::null() } else { memory.bias },
                        softcap: self.softcap,
                        state: SoftmaxState {
                            maxima: memory.state.maxima.add(first),
                            sums: memory.state.sums.add(first * SUM_LANES),
                            outputs: memory.state.outputs.add(first * value_numbers),
                        },
                        scratch: memory.scratch,
                    });
                }
            }
        }
    }

    /// Sets the bias of a KV head's queries from the mask.
    unsafe fn load_bias(&self, group: &Group, kv_head: usize, cells: &[u32], memory: &Memory) {
        let group_heads = self.sizes.shape.group_heads();
        for (index, row) in group.rows.clone().enumerate() {
            // SAFETY: the caller guarantees it; the bias has one row for each query of the head.
            unsafe {
                let mask = self.mask.row(group.stream, row);
                for head in 0..group_heads {
                    let slope = self.slope(kv_head * group_heads + head);
                    let to = memory.bias.add((index * group_heads + head) * BLOCK_CELLS);
                    for (i, cell) in cells.iter().enumerate() {
                        let bits = mask[*cell as usize];
                        // Infinity times a slope of 0 would be NaN.
                        let value = mask_value(bits);
                        to.add(i).write(if bits == HIDDEN { value } else { slope * value });
                    }
                    for i in cells.len()..BLOCK_CELLS {
                        to.add(i).write(f32::NEG_INFINITY);
                    }
                }
            }
        }
    }

    /// The factor of the mask for a head: ALiBi's slope (arXiv 2108.12409), or 1 without ALiBi.
    fn slope(&self, head: usize) -> f32 {
        if self.max_bias <= 0.0 {
            return 1.0;
        }
        let heads = self.sizes.shape.heads;
        let power_of_two = 1 << heads.ilog2();
        let exponent = if head < power_of_two {
            (head + 1) as f32
        } else {
            (2 * (head - power_of_two) + 1) as f32 / 2.0
        };
        (-self.max_bias / power_of_two as f32 * exponent).exp2()
    }

    /// Merges the state of a chunk into the piece's result; the first chunk's state is the result.
    unsafe fn take_state(&self, vector: usize, is_merged: bool, memory: &Memory) {
        let numbers = self.sizes.value_numbers;
        // SAFETY: the vector lies in the memory.
        unsafe {
            let maximum = memory.state.maxima.add(vector).read();
            let sums =
                std::slice::from_raw_parts(memory.state.sums.add(vector * SUM_LANES), SUM_LANES);
            let sum: f32 = sums.iter().sum();
            let output =
                std::slice::from_raw_parts(memory.state.outputs.add(vector * numbers), numbers);
            let merged = memory.merged.add(vector * (2 + numbers));
            let merged = std::slice::from_raw_parts_mut(merged, 2 + numbers);
            if is_merged {
                merge(merged, maximum, sum, output);
            } else {
                (merged[0], merged[1]) = (maximum, sum);
                merged[2..].copy_from_slice(output);
            }
        }
    }

    /// A head's part of a slot.
    unsafe fn slot(&self, slot: usize, head: usize) -> *mut f32 {
        let parts = Parts::of(&self.sizes);
        // SAFETY: the slots lie after the threads' own memory.
        unsafe {
            let slots: *mut f32 = self.work.add(self.sizes.shape.threads * parts.bytes()).cast();
            slots.add(slot * slot_floats(&self.sizes) + head * (2 + self.sizes.value_numbers))
        }
    }

    /// Merges the chunks of rows whose chunks were separate pieces. Each thread merges some heads.
    unsafe fn merge_slots(&self, team: &Team) {
        let heads = self.sizes.shape.heads;
        for group in self.plan.groups.iter() {
            let Some(first) = group.slots else { continue };
            for head in team.share(heads) {
                let floats = 2 + self.sizes.value_numbers;
                // SAFETY: these are the slots of the group's chunks, all written before the
                // barrier.
                unsafe {
                    let merged = self.slot(first, head);
                    let into = std::slice::from_raw_parts_mut(merged, floats);
                    for chunk in 1..group.chunks() {
                        let from =
                            std::slice::from_raw_parts(self.slot(first + chunk, head), floats);
                        merge(into, from[0], from[1], &from[2..]);
                    }
                    self.finish(merged, group.stream, group.rows.start, head);
                }
            }
        }
    }

    /// Writes the output of a row and head. `merged` has its maximum, sum and output.
    unsafe fn finish(&self, merged: *mut f32, stream: usize, row: usize, head: usize) {
        let Sizes { shape, rows, value_numbers, .. } = self.sizes;
        // SAFETY: the caller guarantees it.
        unsafe {
            let merged = std::slice::from_raw_parts_mut(merged, 2 + value_numbers);
            if !self.sinks.is_null() {
                let sink = self.sinks.add(head).read();
                let maximum = merged[0].max(sink);
                let shrink = (merged[0] - maximum).exp();
                merged[1] = merged[1] * shrink + (sink - maximum).exp();
                merged[2..].iter_mut().for_each(|output| *output *= shrink);
            }
            // A row that sees no cell has zeros.
            let inverse = if merged[1] == 0.0 { 0.0 } else { 1.0 / merged[1] };
            let to = self.output.add(((stream * rows + row) * shape.heads + head) * value_numbers);
            for (i, output) in merged[2..].iter().enumerate() {
                to.add(i).write(output * inverse);
            }
        }
    }
}

/// Merges the maximum, sum and output of a later chunk into those of the earlier chunks.
fn merge(merged: &mut [f32], maximum: f32, sum: f32, output: &[f32]) {
    let both = merged[0].max(maximum);
    let (before, after) = ((merged[0] - both).exp(), (maximum - both).exp());
    merged[0] = both;
    merged[1] = merged[1] * before + sum * after;
    for (merged, output) in merged[2..].iter_mut().zip(output) {
        *merged = *merged * before + output * after;
    }
}
