//! Connects our kernels to ggml's operations: the functions that `ggml.cpp` calls.

mod attention;
mod delta;

use std::cell::Cell;
use std::ffi::c_void;
use std::slice;
use std::sync::OnceLock;

use attention::GgmlAttention;
pub use attention::{reserve_attention, use_attention};
use delta::GgmlDelta;

use super::ahead::Ahead;
use super::choose_ahead;
use super::experts::{Choices, table_bytes};
use super::formats::{LINE, STRIP_ROWS};
use super::kernel::{InstructionSet, Kernel};
use super::led;
use super::matmul::{Product, Strips, work_bytes};
use super::team::Team;

/// Most threads that pack weights when a model is loaded. More threads would only wait for memory.
const PACK_THREADS_MAX: usize = 16;

/// Least bytes of packed weights for each packing thread.
const PACK_BYTES_MIN: usize = 256 * 1024;

/// The instruction set of ggml's operations. It never changes: packed weights stay in memory as
/// long as their model.
static CHOSEN: OnceLock<InstructionSet> = OnceLock::new();

thread_local! {
    /// The totals so far, while this thread loads a model and packs its weights.
    static LOADING: Cell<Option<Packed>> = const { Cell::new(None) };
}

/// The totals of packed weights of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Number of matrices of each type, by ggml's number.
    pub matrices: [usize; TYPES_MAX],
    /// Their size in the file.
    pub file_bytes: usize,
    /// Their size in memory.
    pub bytes: usize,
}

/// More than ggml's number of any type.
pub const TYPES_MAX: usize = 64;

impl Default for Packed {
    fn default() -> Self {
        Self { matrices: [0; TYPES_MAX], file_bytes: 0, bytes: 0 }
    }
}

/// Makes ggml ask for our kernels. Nothing is packed until [`packing`] is called.
///
/// # Safety
/// Called once in a process, before llama.cpp loads a model or computes anything: this changes the
/// list of buffer types, which other threads read later.
pub unsafe fn install() {
    let hooks = Hooks {
        is_wanted,
        packed_bytes,
        pack,
        work_bytes: work,
        multiply,
        get_rows,
        plan_attention: attention::plan,
        attend: attention::attend,
        has_delta: delta::has_kernel,
        run_delta: delta::run,
    };
    // SAFETY: the hooks have the types that ggml.cpp declares, and live as long as the process; the
    // caller guarantees the rest.
    unsafe { corelane_ggml_install(&raw const hooks) };
}

/// Chooses the instruction set, and measures the best prefetch distance. Only the first call has an
/// effect. Returns the chosen set.
pub fn choose(set: InstructionSet) -> InstructionSet {
    *CHOSEN.get_or_init(|| {
        assert!(set.is_here(), "this processor has no {}", set.name());
        Ahead::choose(|| choose_ahead::measure(set));
        set
    })
}

/// Runs `load`, which loads a model on this thread, and packs the weights that have a kernel.
pub fn packing<T>(load: impl FnOnce() -> T) -> (T, Packed) {
    LOADING.set(Some(Packed::default()));
    let result = load();
    (result, LOADING.take().unwrap_or_default())
}

/// A pointer to ggml's buffer type of packed weights.
pub fn buffer_type() -> *mut c_void {
    // SAFETY: no preconditions.
    unsafe { corelane_ggml_buffer_type() }
}

/// `corelane_matrix` in ggml.cpp.
#[repr(C)]
struct Matrix {
    ggml_type: i32,
    rows: i64,
    columns: i64,
    experts: i64,
    packed: *const u8,
}

/// `corelane_product` in ggml.cpp.
#[repr(C)]
struct GgmlProduct {
    weights: Matrix,
    input: *const u8,
    input_rows: [i64; 3],
    input_strides: [usize; 3],
    ids: *const i32,
    chosen: i64,
    id_strides: [usize; 2],
    output: *mut f32,
    work: *mut u8,
    work_bytes: usize,
    thread: i32,
    threads: i32,
    pool: *mut c_void,
}

/// `corelane_rows` in ggml.cpp.
#[repr(C)]
struct GgmlRows {
    weights: Matrix,
    indices: *const i32,
    count: i64,
    output: *mut f32,
    thread: i32,
    threads: i32,
}

/// `corelane_hooks` in ggml.cpp.
#[repr(C)]
struct Hooks {
    is_wanted: unsafe extern "C" fn(*const Matrix) -> bool,
    packed_bytes: unsafe extern "C" fn(*const Matrix) -> usize,
    pack: unsafe extern "C" fn(*const Matrix, *const u8, *mut u8),
    work_bytes: unsafe extern "C" fn(*const Matrix, i64, i64) -> usize,
    multiply: unsafe extern "C" fn(*const GgmlProduct),
    get_rows: unsafe extern "C" fn(*const GgmlRows),
    plan_attention: unsafe extern "C" fn(*const GgmlAttention, i32, *mut usize) -> *const c_void,
    attend: unsafe extern "C" fn(*const GgmlAttention),
    has_delta: unsafe extern "C" fn(i64) -> i32,
    run_delta: unsafe extern "C" fn(*const GgmlDelta),
}

unsafe extern "C" {
    fn corelane_ggml_install(hooks: *const Hooks);
    fn corelane_ggml_buffer_type() -> *mut c_void;
}

impl Matrix {
    /// The kernel for the matrix, if there is one.
    fn kernel(&self) -> Option<Kernel> {
        let kernel = CHOSEN.get()?.kernel(self.ggml_type)?;
        let is_whole = self.columns().is_multiple_of(kernel.block_columns);
        let is_empty = self.columns() == 0 || self.rows() == 0 || self.experts() == 0;
        (is_whole && !is_empty).then_some(kernel)
    }

    /// The kernel that the matrix was packed for.
    fn its_kernel(&self) -> Kernel {
        self.kernel().expect("only matrices with a kernel are packed")
    }

    fn rows(&self) -> usize {
        self.rows as usize // ggml's sizes are signed and never negative
    }

    fn columns(&self) -> usize {
        self.columns as usize // never negative
    }

    /// Number of matrices: 1, or that of a mixture's experts.
    fn experts(&self) -> usize {
        self.experts as usize // never negative
    }

    /// Bytes in memory.
    fn packed_bytes(&self, kernel: &Kernel) -> usize {
        self.experts() * kernel.packed_bytes(self.rows(), self.columns())
    }
}

unsafe extern "C" fn is_wanted(matrix: *const Matrix) -> bool {
    // SAFETY: ggml.cpp passes a live matrix.
    let matrix = unsafe { &*matrix };
    LOADING.get().is_some() && matrix.kernel().is_some()
}

unsafe extern "C" fn packed_bytes(matrix: *const Matrix) -> usize {
    // SAFETY: ggml.cpp passes a live matrix.
    let matrix = unsafe { &*matrix };
    matrix.packed_bytes(&matrix.its_kernel())
}

unsafe extern "C" fn pack(matrix: *const Matrix, from: *const u8, to: *mut u8) {
    // SAFETY: ggml.cpp passes a live matrix.
    let matrix = unsafe { &*matrix };
    let kernel = matrix.its_kernel();
    let row_bytes = matrix.columns() / kernel.block_columns * kernel.block_bytes;
    let file_bytes = matrix.experts() * matrix.rows() * row_bytes;
    let bytes = matrix.packed_bytes(&kernel);
    // SAFETY: ggml passes the whole matrix in its file's form, and memory of the size that
    // `packed_bytes` returned.
    let (from, to) =
        unsafe { (slice::from_raw_parts(from, file_bytes), slice::from_raw_parts_mut(to, bytes)) };
    // Whole strips of all experts lie one behind the other, as in a single matrix.
    let is_one = matrix.rows().is_multiple_of(STRIP_ROWS);
    let matrices = if is_one { 1 } else { matrix.experts() };
    let parts = from.chunks(file_bytes / matrices).zip(to.chunks_mut(bytes / matrices));
    parts.for_each(|(from, to)| pack_together(&kernel, matrix.columns(), from, to));
    if let Some(mut packed) = LOADING.get() {
        packed.matrices[matrix.ggml_type as usize] += 1; // a type with a kernel
        packed.file_bytes += file_bytes;
        packed.bytes += bytes;
        LOADING.set(Some(packed));
    }
}

/// Packs a matrix with several threads; each packs some strips. Half of the time is spent on page
/// faults: the operating system clears a page when it is first written.
fn pack_together(kernel: &Kernel, columns: usize, from: &[u8], to: &mut [u8]) {
    let strip_bytes = (kernel.strip_bytes)(columns);
    let rows_bytes = columns / kernel.block_columns * kernel.block_bytes * STRIP_ROWS;
    let strips = to.len() / strip_bytes;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads = cores.min(PACK_THREADS_MAX).min(to.len() / PACK_BYTES_MIN).max(1);
    let share = strips.div_ceil(threads);
    let mut shares = from.chunks(share * rows_bytes).zip(to.chunks_mut(share * strip_bytes));
    let own = shares.next();
    std::thread::scope(|scope| {
        for (from, to) in shares {
            scope.spawn(move || (kernel.pack)(columns, from, to));
        }
        if let Some((from, to)) = own {
            (kernel.pack)(columns, from, to);
        }
    });
}

unsafe extern "C" fn work(matrix: *const Matrix, inputs: i64, choices: i64) -> usize {
    // SAFETY: ggml.cpp passes a live matrix.
    let matrix = unsafe { &*matrix };
    // ggml's counts are signed and never negative.
    let activations = work_bytes(&matrix.its_kernel(), matrix.columns(), inputs as usize);
    let table = if choices > 0 { table_bytes(matrix.experts(), choices as usize) } else { 0 };
    table + activations + LINE // room to align
}

unsafe extern "C" fn multiply(product: *const GgmlProduct) {
    // SAFETY: ggml.cpp passes a live product, and the same one to each of its threads.
    let p = unsafe { &*product };
    let kernel = p.weights.its_kernel();
    let [inputs, more, most] = p.input_rows.map(|rows| rows as usize); // never negative
    let experts = (!p.ids.is_null()).then(|| Choices {
        experts: p.weights.experts(),
        tokens: more,
        chosen: p.chosen as usize, // never negative
        inputs,
        ids: p.ids,
        strides: p.id_strides,
    });
    let offset = p.work.align_offset(LINE);
    let table = experts.map_or(0, |choices| choices.table_bytes());
    let inputs_all = inputs * more * most;
    let needed = offset + table + work_bytes(&kernel, p.weights.columns(), inputs_all);
    assert!(needed <= p.work_bytes, "{needed} bytes of work memory, {} are there", p.work_bytes);
    let memory = p.work.wrapping_add(offset);
    let product = Product {
        strips: Strips {
            kernel,
            weights: p.weights.packed,
            rows: p.weights.rows(),
            columns: p.weights.columns(),
            inputs: inputs_all,
            from: std::ptr::null(),
            to: std::ptr::null(),
            output: p.output,
            output_stride: p.weights.rows(),
            work: memory.wrapping_add(table),
        },
        experts: experts.map(|choices| (choices, memory)),
        input: |row: usize| {
            let at = [row % inputs, row / inputs % more, row / inputs / more];
            let bytes: usize = at.iter().zip(p.input_strides).map(|(at, stride)| at * stride).sum();
            p.input.wrapping_add(bytes).cast()
        },
    };
    // SAFETY: choosing the instruction set checked that the processor has it. ggml's tensors have
    // the sizes that they state, and the work memory is large enough. ggml's threads run the same
    // operations in the same order. (Thread numbers are never negative.)
    unsafe {
        led::run(&product, &Team::new(p.thread as usize, p.threads as usize, p.pool));
    }
}

unsafe extern "C" fn get_rows(rows: *const GgmlRows) {
    // SAFETY: ggml.cpp passes live rows.
    let r = unsafe { &*rows };
    let kernel = r.weights.its_kernel();
    let columns = r.weights.columns();
    let count = r.count as usize; // never negative, like the thread numbers
    // SAFETY: ggml packed the weights here, there are `count` indices, and each thread has its own
    // rows of the output.
    unsafe {
        let bytes = r.weights.packed_bytes(&kernel);
        let packed = slice::from_raw_parts(r.weights.packed, bytes);
        let indices = slice::from_raw_parts(r.indices, count);
        for index in (r.thread as usize..count).step_by(r.threads as usize) {
            let row = usize::try_from(indices[index]).expect("an index is not below 0");
            assert!(row < r.weights.rows(), "row {row} of {}", r.weights.rows());
            let to = slice::from_raw_parts_mut(r.output.add(index * columns), columns);
            (kernel.unpack_row)(packed, row, to);
        }
    }
}
