//! Finds the cells that each row sees. Reads the mask once per step, and forms groups of rows with
//! a list of cells for each group.
//!
//! ```text
//! mask [rows, cells]                       ranges of a row       groups
//! row 0 (decodes)        ....xxxx...x      4..8, 11              rows 0..1: 4 5 6 7 11
//! row 1 (of a prompt)    xxx.........      0..3                  rows 1..4: 0 1 2 3 8
//! row 2 (of that prompt) xxxx........      0..4
//! row 3 (of that prompt) xxxx....x...      0..4, 8
//! ```
//!
//! Consecutive rows that see the same cells, except for one cell, form a group, like the rows of a
//! prompt. Keys and values are read once per group. If some rows of a group do not see a block's
//! cells, the block needs the mask while it is computed.

use std::ops::Range;

use super::cached::HIDDEN;
use super::tile::BLOCK_CELLS;

/// Cells whose scores and values are added up separately, and merged in order. A row's sums then
/// depend only on its own cells, and not on the number of threads.
const CHUNK_CELLS: usize = 256;

/// Most chunks of a group. If a group has more cells, its chunks are larger.
pub const CHUNKS_MAX: usize = 16;

/// Most queries of a KV head in a group, unless a single row has more.
pub const GROUP_QUERIES_MAX: usize = 128;

/// Most queries of a KV head in a piece of work that covers all heads. Such a piece reads keys and
/// values in memory order. With more queries, computing takes longer than reading; a piece then
/// covers one head, whose state stays in the cache.
pub const FEW_QUERIES: usize = 8;

/// Least number of pieces for each thread.
const PIECES: usize = 4;

/// Most ranges of a row that a plan reserves room for.
const RANGES_RESERVED: usize = 16 * 1024;

/// Pieces that a plan reserves room for.
const PIECES_RESERVED: usize = 1024;

/// A mask of ggml: 16-bit floats, minus infinity for cells that a row does not see.
#[derive(Clone, Copy)]
pub struct Mask {
    /// Row 0 of stream 0.
    pub data: *const u8,
    /// Rows of each stream.
    pub rows: usize,
    /// Cells of each stream.
    pub cells: usize,
    /// KV caches computed together.
    pub streams: usize,
    /// Bytes from one row to the next.
    pub row_stride: usize,
    /// Bytes from one stream to the next.
    pub stream_stride: usize,
}

impl Mask {
    /// The mask's values of a row, `[cells]`.
    ///
    /// # Safety
    /// The mask is alive, and has the row.
    pub unsafe fn row(&self, stream: usize, row: usize) -> &[u16] {
        // SAFETY: the caller guarantees it.
        unsafe {
            let from = self.data.add(stream * self.stream_stride + row * self.row_stride);
            std::slice::from_raw_parts(from.cast(), self.cells)
        }
    }
}

/// The heads and threads that a [`Partition`] is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of the keys and values.
    pub kv_heads: usize,
    /// Threads that compute.
    pub threads: usize,
}

impl Shape {
    /// Query heads that share a KV head.
    pub fn group_heads(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Most rows of a group.
    fn rows_max(&self) -> usize {
        (GROUP_QUERIES_MAX / self.group_heads()).max(1)
    }

    /// Number of pieces that keeps all threads busy to the end.
    pub fn pieces_wanted(&self) -> usize {
        if self.threads == 1 { 1 } else { PIECES * self.threads }
    }
}

/// Rows of a stream that are computed together.
#[derive(Clone, Debug)]
pub struct Group {
    /// The stream.
    pub stream: usize,
    /// Its rows.
    pub rows: Range<usize>,
    /// The range of its cells in the plan's list.
    pub cells: Range<usize>,
    /// The offset of its blocks' flags in the plan's list.
    first_block: usize,
    /// The first slot for the chunks' states, if the chunks are separate pieces.
    pub slots: Option<usize>,
}

impl Group {
    /// Cells in a chunk.
    fn chunk_cells(&self) -> usize {
        self.cells.len().div_ceil(CHUNKS_MAX).next_multiple_of(CHUNK_CELLS)
    }

    /// The number of chunks; 0 if the rows see no cell.
    pub fn chunks(&self) -> usize {
        if self.cells.is_empty() { 0 } else { self.cells.len().div_ceil(self.chunk_cells()) }
    }

    /// The blocks of a chunk.
    pub fn blocks(&self, chunk: usize) -> Range<usize> {
        let of_chunk = self.chunk_cells() / BLOCK_CELLS;
        let all = self.cells.len().div_ceil(BLOCK_CELLS);
        chunk * of_chunk..((chunk + 1) * of_chunk).min(all)
    }
}

/// A piece of work for one thread.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Index of the group.
    pub group: usize,
    /// The range of its chunks.
    pub chunks: Range<usize>,
    /// Part `part` of `parts` of the KV heads.
    pub part: usize,
    /// Number of parts.
    pub parts: usize,
}

/// The groups and pieces for a mask.
#[derive(Default)]
pub struct Partition {
    /// The groups, in the order of streams and rows.
    pub groups: Vec<Group>,
    /// The pieces, largest first.
    pub pieces: Vec<Piece>,
    /// The cells of all groups.
    cells: Vec<u32>,
    /// For each block of each group: whether all rows see all cells, with a mask of 0.
    plain: Vec<bool>,
    /// Number of slots in use.
    pub slots: usize,
    found: Found,
}

/// Ranges of cells during the search.
#[derive(Default)]
struct Found {
    row: Vec<Range<u32>>,
    before: Vec<Range<u32>>,
    /// Cells that any row of the group sees, and cells that all rows see.
    union: Vec<Range<u32>>,
    common: Vec<Range<u32>>,
    spare: Vec<Range<u32>>,
}

impl Partition {
    /// A partition with room for steps of `rows` rows that see `cells` cells in total. Planning them
    /// does not allocate.
    pub fn with_capacity(rows: usize, cells: usize) -> Self {
        let ranges = || Vec::with_capacity(cells.min(RANGES_RESERVED));
        Self {
            groups: Vec::with_capacity(rows),
            pieces: Vec::with_capacity(PIECES_RESERVED.max(rows)),
            cells: Vec::with_capacity(cells),
            plain: Vec::with_capacity(rows + cells / BLOCK_CELLS),
            slots: 0,
            found: Found {
                row: ranges(),
                before: ranges(),
                union: ranges(),
                common: ranges(),
                spare: ranges(),
            },
        }
    }

    /// Reads a mask and plans the work.
    ///
    /// # Safety
    /// The mask is alive.
    pub unsafe fn update(&mut self, mask: &Mask, shape: Shape, slots_max: usize) {
        self.groups.clear();
        self.cells.clear();
        self.plain.clear();
        for stream in 0..mask.streams {
            // SAFETY: the caller guarantees it.
            unsafe { self.find_groups(mask, stream, shape.rows_max()) };
        }
        self.plan_pieces(shape, slots_max);
    }

    /// The cells of a block of a group.
    pub fn block(&self, group: &Group, block: usize) -> &[u32] {
        let cells = &self.cells[group.cells.clone()];
        let first = (block * BLOCK_CELLS).min(cells.len());
        &cells[first..(first + BLOCK_CELLS).min(cells.len())]
    }

    /// Whether all rows of a group see all cells of a block, with a mask of 0.
    pub fn is_plain(&self, group: &Group, block: usize) -> bool {
        self.plain[group.first_block + block]
    }

    /// Groups the rows of a stream.
    unsafe fn find_groups(&mut self, mask: &Mask, stream: usize, rows_max: usize) {
        let mut found = std::mem::take(&mut self.found);
        let mut first = 0;
        let mut is_plain = true;
        for row in 0..mask.rows {
            std::mem::swap(&mut found.row, &mut found.before);
            // SAFETY: the caller guarantees it.
            let row_is_plain = find_visible(unsafe { mask.row(stream, row) }, &mut found.row);
            let is_new = row == first
                || row - first == rows_max
                || !are_neighbours(&found.before, &found.row);
            if is_new {
                if row > first {
                    self.add_group(stream, first..row, &found, is_plain);
                }
                (first, is_plain) = (row, row_is_plain);
                found.union.clone_from(&found.row);
                found.common.clone_from(&found.row);
            } else {
                is_plain &= row_is_plain;
                let Found { row, union, common, spare, .. } = &mut found;
                unite(union, row, spare);
                std::mem::swap(union, spare);
                intersect(common, row, spare);
                std::mem::swap(common, spare);
            }
        }
        if mask.rows > first {
            self.add_group(stream, first..mask.rows, &found, is_plain);
        }
        self.found = found;
    }

    fn add_group(&mut self, stream: usize, rows: Range<usize>, found: &Found, is_plain: bool) {
        let (first_cell, first_block) = (self.cells.len(), self.plain.len());
        self.cells.extend(found.union.iter().cloned().flatten());
        let mut common = found.common.iter().cloned().flatten().peekable();
        for block in self.cells[first_cell..].chunks(BLOCK_CELLS) {
            let mut seen = 0;
            while common.next_if(|cell| *cell <= block[block.len() - 1]).is_some() {
                seen += 1;
            }
            self.plain.push(is_plain && seen == block.len());
        }
        let cells = first_cell..self.cells.len();
        self.groups.push(Group { stream, rows, cells, first_block, slots: None });
    }

    /// Cuts the groups into pieces.
    fn plan_pieces(&mut self, shape: Shape, slots_max: usize) {
        self.pieces.clear();
        self.slots = 0;
        let work = |group: &Group| group.rows.len() * group.cells.len();
        let total: usize = self.groups.iter().map(work).sum();
        let most = total.div_ceil(shape.pieces_wanted());
        for (index, group) in self.groups.iter_mut().enumerate() {
            let chunks = group.chunks();
            let few =
                group.rows.len() * shape.group_heads() <= FEW_QUERIES.max(shape.group_heads());
            let piece = |chunks, part, parts| Piece { group: index, chunks, part, parts };
            if !few {
                let parts = shape.kv_heads;
                self.pieces.extend((0..parts).map(|part| piece(0..chunks, part, parts)));
            } else if group.rows.len() == 1
                && chunks > 1
                && work(group) > most
                && self.slots + chunks <= slots_max
            {
                group.slots = Some(self.slots);
                self.slots += chunks;
                self.pieces.extend((0..chunks).map(|chunk| piece(chunk..chunk + 1, 0, 1)));
            } else {
                self.pieces.push(piece(0..chunks, 0, 1));
            }
        }
        self.divide_pieces(shape);
        let groups = &self.groups;
        let cost = |piece: &Piece| {
            let group = &groups[piece.group];
            let blocks: usize = piece.chunks.clone().map(|chunk| group.blocks(chunk).len()).sum();
            group.rows.len() * blocks * shape.kv_heads / piece.parts
        };
        self.pieces.sort_unstable_by_key(|piece| std::cmp::Reverse(cost(piece)));
    }

    /// Divides pieces by heads if there are fewer than the threads need.
    fn divide_pieces(&mut self, shape: Shape) {
        let pieces = self.pieces.len().max(1);
        let parts = shape.pieces_wanted().div_ceil(pieces).min(shape.kv_heads);
        for index in 0..pieces.min(self.pieces.len()) {
            if parts > 1 && self.pieces[index].parts == 1 {
                self.pieces[index].parts = parts;
                let whole = self.pieces[index].clone();
                self.pieces.extend((1..parts).map(|part| Piece { part, ..whole.clone() }));
            }
        }
    }
}

/// Finds the cells that a row sees. Returns whether the mask is 0 for all of them.
fn find_visible(mask: &[u16], ranges: &mut Vec<Range<u32>>) -> bool {
    /// Values examined together.
    const VALUES: usize = 64;
    ranges.clear();
    let mut is_plain = true;
    let mut push = |range: Range<usize>| {
        let range = range.start as u32..range.end as u32; // cells: below CONTEXT_TOKENS_MAX
        match ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range),
        }
    };
    for (index, values) in mask.chunks(VALUES).enumerate() {
        let first = index * VALUES;
        let all = |wanted| values.iter().fold(true, |all, value| all & (*value == wanted));
        if all(HIDDEN) {
            continue;
        }
        if all(0) {
            push(first..first + values.len());
            continue;
        }
        for (index, value) in values.iter().enumerate() {
            if *value != HIDDEN {
                is_plain &= *value == 0;
                push(first + index..first + index + 1);
            }
        }
    }
    is_plain
}

fn count(ranges: &[Range<u32>]) -> usize {
    ranges.iter().map(|range| range.len()).sum()
}

/// Whether two rows see the same cells, except for at most one cell of each.
fn are_neighbours(a: &[Range<u32>], b: &[Range<u32>]) -> bool {
    let (of_a, of_b) = (count(a), count(b));
    if of_a.abs_diff(of_b) > 1 {
        return false;
    }
    let (mut only_a, mut only_b) = (of_a, of_b);
    for_common(a, b, |range| {
        only_a -= range.len();
        only_b -= range.len();
    });
    only_a <= 1 && only_b <= 1
}

/// Calls `each` for the intersections of the ranges.
fn for_common(a: &[Range<u32>], b: &[Range<u32>], mut each: impl FnMut(Range<u32>)) {
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let common = a[i].start.max(b[j].start)..a[i].end.min(b[j].end);
        if !common.is_empty() {
            each(common);
        }
        if a[i].end < b[j].end { i += 1 } else { j += 1 }
    }
}

fn intersect(a: &[Range<u32>], b: &[Range<u32>], out: &mut Vec<Range<u32>>) {
    out.clear();
    for_common(a, b, |range| out.push(range));
}

fn unite(a: &[Range<u32>], b: &[Range<u32>], out: &mut Vec<Range<u32>>) {
    out.clear();
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        let from_a = j == b.len() || i < a.len() && a[i].start <= b[j].start;
        let range = if from_a { a[i].clone() } else { b[j].clone() };
        *(if from_a { &mut i } else { &mut j }) += 1;
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
}
