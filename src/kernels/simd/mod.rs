//! The vector operations that the kernels are written in.
//!
//! A kernel is one function, generic over [`Simd`]. `x86.rs` compiles it once for
//! each instruction set, inside a function that enables that set's features. Every
//! method here is `#[inline(always)]`, so that it is compiled there, too.

/// Methods of [`Simd`] whose bodies are expressions of intrinsics.
#[cfg(target_arch = "x86_64")]
macro_rules! intrinsics {
    ($(fn $name:ident $(<const $bits:ident: u32>)? ($($arg:ident: $type:ty),*) $(-> $out:ty)? { $body:expr })*) => {
        $(
            #[inline(always)]
            unsafe fn $name $(<const $bits: u32>)? ($($arg: $type),*) $(-> $out)? {
                // SAFETY: the caller guarantees the instruction set and valid pointers, as `Simd`
                // asks.
                unsafe { $body }
            }
        )*
    };
}

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;

/// Vectors of one instruction set.
///
/// An [`Int`](Simd::Int) holds bytes, 16-bit or 32-bit integers, depending on the operation. A lane
/// has 32 bits.
///
/// # Safety
/// For all methods: the processor has the instruction set, and pointers are valid for the bytes
/// read or written. Alignment is not needed.
#[allow(clippy::missing_safety_doc)] // documented once, above
pub trait Simd: Copy {
    /// Lanes in a vector.
    const LANES: usize;
    /// The largest byte of `a` that [`dot8`](Simd::dot8) accepts.
    const CODE_MAX: u8;
    /// Whether [`dot8`](Simd::dot8) is several instructions, so that sums of pairs should be added
    /// up in 16 bits first ([`add_pairs`](Simd::add_pairs)).
    const ADDS_PAIRS: bool;

    /// A vector of integers.
    type Int: Copy;
    /// A vector of 32-bit floats.
    type Float: Copy;

    /// Reads a whole vector.
    unsafe fn load(from: *const u8) -> Self::Int;
    /// Reads a signed byte for each lane.
    unsafe fn load_i8(from: *const u8) -> Self::Int;
    /// Reads an unsigned byte for each lane.
    unsafe fn load_u8(from: *const u8) -> Self::Int;
    /// Reads an unsigned 16-bit integer for each lane.
    unsafe fn load_u16(from: *const u8) -> Self::Int;
    /// Replaces each byte, 0 to 15, by the byte of that number in `table`.
    unsafe fn look_up(table: &[u8; 16], indices: Self::Int) -> Self::Int;
    /// Reads for each lane the word of that number in `table`. Each index is below the table's length.
    unsafe fn gather(table: *const u32, indices: Self::Int) -> Self::Int;
    /// Where the highest bit of a byte of `signs` is 1: the byte of `twice` minus that of `bytes`. Elsewhere: that of
    /// `bytes`.
    unsafe fn mirror(bytes: Self::Int, signs: Self::Int, twice: Self::Int) -> Self::Int;
    /// Reads 32 bytes for each 8 lanes: first from `first`, then from `second`.
    unsafe fn load_blocks(first: *const u8, second: *const u8) -> Self::Int;
    /// Four bytes, copied to every lane.
    unsafe fn splat(from: *const u8) -> Self::Int;
    /// A byte, copied to every byte.
    unsafe fn splat_byte(value: u8) -> Self::Int;
    /// A number, copied to every lane.
    unsafe fn splat_lane(value: u32) -> Self::Int;
    /// Zeros.
    unsafe fn zero() -> Self::Int;
    /// Bitwise and.
    unsafe fn and(a: Self::Int, b: Self::Int) -> Self::Int;
    /// Bitwise exclusive or.
    unsafe fn xor(a: Self::Int, b: Self::Int) -> Self::Int;
    /// Bitwise or.
    unsafe fn or(a: Self::Int, b: Self::Int) -> Self::Int;
    /// Shifts each lane left.
    unsafe fn left<const BITS: u32>(a: Self::Int) -> Self::Int;
    /// Shifts each lane right, filling with zeros.
    unsafe fn right<const BITS: u32>(a: Self::Int) -> Self::Int;
    /// Shifts each lane right, filling with its sign.
    unsafe fn right_signed<const BITS: u32>(a: Self::Int) -> Self::Int;
    /// In each lane, `sum` plus the four products of unsigned bytes of `a` and signed bytes of `b`.
    unsafe fn dot8(sum: Self::Int, a: Self::Int, b: Self::Int) -> Self::Int;
    /// In each half of a lane, `sum` plus two products of unsigned bytes of `a` and signed bytes of `b`,
    /// in 16 bits. Only where [`ADDS_PAIRS`](Simd::ADDS_PAIRS).
    unsafe fn add_pairs(_sum: Self::Int, _a: Self::Int, _b: Self::Int) -> Self::Int {
        unreachable!("dot8 is one instruction")
    }
    /// As [`dot8`](Simd::dot8), for signed bytes of `a`. Only for sets whose
    /// [`CODE_MAX`](Simd::CODE_MAX) is below 255; the others add 128 to the bytes.
    unsafe fn dot8_signed(_sum: Self::Int, _a: Self::Int, _b: Self::Int) -> Self::Int {
        unreachable!("unsigned bytes do")
    }
    /// In each lane, `sum` plus the two products of 16-bit integers.
    unsafe fn dot16(sum: Self::Int, a: Self::Int, b: Self::Int) -> Self::Int;
    /// The sum of each lane.
    unsafe fn add(a: Self::Int, b: Self::Int) -> Self::Int;
    /// The sum of all lanes.
    unsafe fn total(a: Self::Int) -> i32;
    /// Writes each lane as one signed byte. Each must be in the range of a signed byte.
    unsafe fn store_bytes(to: *mut i8, a: Self::Int);

    /// Converts 32-bit integers to floats.
    unsafe fn float(a: Self::Int) -> Self::Float;
    /// Rounds floats to the nearest integers, ties to even.
    unsafe fn round(a: Self::Float) -> Self::Int;
    /// Reads a whole vector.
    unsafe fn load_f32(from: *const f32) -> Self::Float;
    /// Reads a 16-bit float for each lane.
    unsafe fn load_f16(from: *const u8) -> Self::Float;
    /// Reads a bfloat16 for each lane.
    unsafe fn load_bf16(from: *const u8) -> Self::Float;
    /// Reads a 16-bit float and copies it to every lane.
    unsafe fn load_scale(from: *const u8) -> Self::Float;
    /// Reads a 16-bit float for each 8 lanes: first from `first`, then from `second`.
    unsafe fn load_scales(first: *const u8, second: *const u8) -> Self::Float;
    /// The floats with these bits.
    unsafe fn from_bits(bits: Self::Int) -> Self::Float;
    /// Writes a whole vector.
    unsafe fn store_f32(to: *mut f32, value: Self::Float);
    /// A number, copied to every lane.
    unsafe fn splat_f32(value: f32) -> Self::Float;
    /// The sum of each lane.
    unsafe fn add_f32(a: Self::Float, b: Self::Float) -> Self::Float;
    /// In each lane, the product.
    unsafe fn mul(a: Self::Float, b: Self::Float) -> Self::Float;
    /// `a * b + c`, rounded once.
    unsafe fn mul_add(a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float;
    /// `c - a * b`, rounded once.
    unsafe fn neg_mul_add(a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float;
    /// In each lane, the larger of `a` and `b`.
    unsafe fn max(a: Self::Float, b: Self::Float) -> Self::Float;
    /// In each lane, the larger of `a` and the absolute value of `b`.
    unsafe fn max_abs(a: Self::Float, b: Self::Float) -> Self::Float;
    /// The largest lane.
    unsafe fn largest(a: Self::Float) -> f32;
    /// The sum of all lanes.
    unsafe fn total_f32(a: Self::Float) -> f32;
    /// Lane `i` is the sum of all lanes of `vectors[i]`. All are added in the same order. Uses the
    /// first [`Self::LANES`] vectors.
    unsafe fn totals(vectors: &[Self::Float; 16]) -> Self::Float;
}
