//! One kernel for each weight type and instruction set.

use super::activations::RowLayout;
use super::formats::STRIP_ROWS;
use super::many::Many;
use super::product::Work;

/// An instruction set with kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSet {
    /// AMX with its products of bytes, for many rows of activations; AVX-512 with VNNI for few.
    Amx,
    /// AVX-512 with VNNI: F, BW, DQ, VL and VNNI.
    Avx512Vnni,
    /// AVX2 with AVX-VNNI.
    AvxVnni,
    /// AVX2 with FMA and F16C.
    Avx2,
}

/// The functions for one weight type on one instruction set.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// The type's name in a GGUF file.
    pub name: &'static str,
    /// Columns of a block. A matrix must have whole blocks.
    pub block_columns: usize,
    /// Bytes of a block in a GGUF file.
    pub block_bytes: usize,
    /// Bytes of a packed strip of `columns` columns.
    pub strip_bytes: fn(columns: usize) -> usize,
    /// See [`pack`](super::formats::pack).
    pub pack: fn(columns: usize, from: &[u8], to: &mut [u8]),
    /// See [`unpack_row`](super::formats::unpack_row).
    pub unpack_row: fn(packed: &[u8], row: usize, weights: &mut [f32]),
    /// The layout of a row of activations.
    pub layout: fn(columns: usize) -> RowLayout,
    /// See [`quantise`](super::activations::quantise).
    pub quantise: unsafe fn(from: *const f32, block: usize, to: *mut u8, layout: RowLayout),
    /// See [`multiply`](super::product::multiply): the functions for 1 row of activations, 2 rows,
    /// and so on.
    pub multiply: &'static [unsafe fn(&Work)],
    /// Multiplies with many rows of activations.
    pub many: Option<Many>,
}

impl Kernel {
    /// Bytes of a packed matrix.
    pub fn packed_bytes(&self, rows: usize, columns: usize) -> usize {
        rows.div_ceil(STRIP_ROWS) * (self.strip_bytes)(columns)
    }
}

impl InstructionSet {
    /// All instruction sets, the fastest first.
    pub const ALL: [Self; 4] = [Self::Amx, Self::Avx512Vnni, Self::AvxVnni, Self::Avx2];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amx => "amx",
            Self::Avx512Vnni => "avx512-vnni",
            Self::AvxVnni => "avx-vnni",
            Self::Avx2 => "avx2",
        }
    }
}
