//! Connects our gated delta net to ggml's: the functions that `ggml.cpp` calls.

use std::ffi::c_void;

use super::super::delta::Head;
use super::super::kernel::InstructionSet;
use super::super::team::Team;
use super::attention::{GgmlTensor, ours};

/// `corelane_delta` in ggml.cpp.
#[repr(C)]
pub(super) struct GgmlDelta {
    queries: GgmlTensor,
    keys: GgmlTensor,
    values: GgmlTensor,
    gates: GgmlTensor,
    betas: GgmlTensor,
    states: *const f32,
    rows: *const i32,
    row_stride: usize,
    to: *mut f32,
    to_stride: usize,
    snapshot_stride: usize,
    snapshots: i64,
    output: *mut f32,
    kernel: i32,
    thread: i32,
    threads: i32,
    pool: *mut c_void,
}

/// The number of the kernel for states with `numbers` numbers in a row, from 1; 0 if there is none.
pub(super) unsafe extern "C" fn has_kernel(numbers: i64) -> i32 {
    let set = ours().filter(|set| set.delta(numbers as usize).is_some()); // never negative
    let place = |set| InstructionSet::ALL.iter().position(|known| *known == set);
    set.and_then(place).map_or(0, |place| place as i32 + 1) // a few
}

/// Computes a thread's part.
pub(super) unsafe extern "C" fn run(delta: *const GgmlDelta) {
    // SAFETY: ggml.cpp passes a live operation, and the same one to each of ggml's threads, which make
    // the same calls in the same order. (Numbers and sizes are never negative.)
    let (d, team) = unsafe {
        let d = &*delta;
        (d, Team::new(d.thread as usize, d.threads as usize, d.pool))
    };
    let set = InstructionSet::ALL[d.kernel as usize - 1];
    let [numbers, heads, tokens, sequences] = std::array::from_fn(|at| d.values.size(at));
    let run = set.delta(numbers).expect("a kernel that was planned");
    team.begin_pieces();
    let mut piece = team.thread;
    while piece < heads * sequences {
        let (sequence, head) = (piece / heads, piece % heads);
        // SAFETY: choosing the instruction set checked that the processor has it. ggml's tensors have
        // the sizes that they state, and each piece has its own part of the states and of the output.
        unsafe {
            let row = d.rows.add(sequence).read() as usize;
            let state = head * numbers * numbers;
            run(&Head {
                numbers,
                tokens,
                from: d.states.byte_add(row * d.row_stride).add(state),
                to: d.to.byte_add(sequence * d.to_stride).add(state),
                snapshots: d.snapshots as usize,
                snapshot_stride: d.snapshot_stride,
                queries: d.queries.rows_of(head, sequence),
                keys: d.keys.rows_of(head, sequence),
                values: d.values.rows_of(head, sequence),
                gates: d.gates.rows_of(head, sequence),
                betas: d.betas.rows_of(head, sequence),
                output: d.output.add((sequence * tokens * heads + head) * numbers),
                output_stride: heads * numbers,
            });
        }
        piece = team.next_piece(piece);
    }
}
