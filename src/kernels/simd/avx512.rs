//! AVX-512 with VNNI: 16 lanes, 32 registers, and one instruction for four products of bytes in
//! each lane.

use std::arch::x86_64::*;

use super::Simd;

/// AVX-512 with F, BW, DQ, VL and VNNI.
#[derive(Clone, Copy)]
pub struct Avx512;

impl Simd for Avx512 {
    const LANES: usize = 16;
    const CODE_MAX: u8 = 255;
    const ADDS_PAIRS: bool = false;
    type Int = __m512i;
    type Float = __m512;

    intrinsics! {
        fn load(from: *const u8) -> __m512i { _mm512_loadu_si512(from.cast()) }
        fn load_i8(from: *const u8) -> __m512i { _mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())) }
        fn load_u8(from: *const u8) -> __m512i { _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())) }
        fn load_u16(from: *const u8) -> __m512i {
            _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()))
        }
        fn look_up(table: &[u8; 16], indices: __m512i) -> __m512i {
            _mm512_shuffle_epi8(
                _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())),
                indices,
            )
        }
        fn gather(table: *const u32, indices: __m512i) -> __m512i {
            _mm512_i32gather_epi32::<4>(indices, table.cast())
        }
        fn mirror(bytes: __m512i, signs: __m512i, twice: __m512i) -> __m512i {
            _mm512_mask_sub_epi8(bytes, _mm512_movepi8_mask(signs), twice, bytes)
        }
        fn load_blocks(first: *const u8, second: *const u8) -> __m512i {
            _mm512_inserti64x4::<1>(
                _mm512_castsi256_si512(_mm256_loadu_si256(first.cast())),
                _mm256_loadu_si256(second.cast()),
            )
        }
        fn splat(from: *const u8) -> __m512i { _mm512_set1_epi32(from.cast::<i32>().read_unaligned()) }
        fn splat_byte(value: u8) -> __m512i { _mm512_set1_epi8(value.cast_signed()) }
        fn splat_lane(value: u32) -> __m512i { _mm512_set1_epi32(value.cast_signed()) }
        fn zero() -> __m512i { _mm512_setzero_si512() }
        fn and(a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
        fn xor(a: __m512i, b: __m512i) -> __m512i { _mm512_xor_si512(a, b) }
        fn or(a: __m512i, b: __m512i) -> __m512i { _mm512_or_si512(a, b) }
        fn left<const BITS: u32>(a: __m512i) -> __m512i { _mm512_slli_epi32::<BITS>(a) }
        fn right<const BITS: u32>(a: __m512i) -> __m512i { _mm512_srli_epi32::<BITS>(a) }
        fn right_signed<const BITS: u32>(a: __m512i) -> __m512i { _mm512_srai_epi32::<BITS>(a) }
        fn dot8(sum: __m512i, a: __m512i, b: __m512i) -> __m512i { _mm512_dpbusd_epi32(sum, a, b) }
        fn dot16(sum: __m512i, a: __m512i, b: __m512i) -> __m512i { _mm512_dpwssd_epi32(sum, a, b) }
        fn add(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
        fn total(a: __m512i) -> i32 { _mm512_reduce_add_epi32(a) }
        fn store_bytes(to: *mut i8, a: __m512i) {
            _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(a))
        }
        fn float(a: __m512i) -> __m512 { _mm512_cvtepi32_ps(a) }
        fn round(a: __m512) -> __m512i { _mm512_cvtps_epi32(a) }
        fn load_f32(from: *const f32) -> __m512 { _mm512_loadu_ps(from) }
        fn load_f16(from: *const u8) -> __m512 { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
        fn load_bf16(from: *const u8) -> __m512 {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(
                _mm256_loadu_si256(from.cast()),
            )))
        }
        fn load_scale(from: *const u8) -> __m512 {
            _mm512_cvtph_ps(_mm256_set1_epi16(from.cast::<i16>().read_unaligned()))
        }
        fn load_scales(first: *const u8, second: *const u8) -> __m512 {
            _mm512_cvtph_ps(_mm256_set_m128i(
                _mm_set1_epi16(second.cast::<i16>().read_unaligned()),
                _mm_set1_epi16(first.cast::<i16>().read_unaligned()),
            ))
        }
        fn from_bits(bits: __m512i) -> __m512 { _mm512_castsi512_ps(bits) }
        fn store_f32(to: *mut f32, value: __m512) { _mm512_storeu_ps(to, value) }
        fn splat_f32(value: f32) -> __m512 { _mm512_set1_ps(value) }
        fn add_f32(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
        fn neg_mul_add(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fnmadd_ps(a, b, c) }
        fn max(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }
        fn max_abs(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(_mm512_abs_ps(b), a) }
        fn largest(a: __m512) -> f32 { _mm512_reduce_max_ps(a) }
        fn total_f32(a: __m512) -> f32 { _mm512_reduce_add_ps(a) }
        fn totals(vectors: &[__m512; 16]) -> __m512 {{
            // Four times, two vectors become one that holds sums of two lanes of each.
            let mut four = [_mm512_setzero_ps(); 4];
            for (i, v) in vectors.as_chunks::<4>().0.iter().enumerate() {
                let mut two = [_mm512_setzero_ps(); 2];
                for (two, v) in two.iter_mut().zip(v.as_chunks::<2>().0) {
                    let (low, high) = (_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
                    *two = _mm512_add_ps(low, high);
                }
                let [a, b] = [_mm512_castps_pd(two[0]), _mm512_castps_pd(two[1])];
                let (low, high) = (_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
                four[i] = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
            }
            let half = [add_quarters(four[0], four[1]), add_quarters(four[2], four[3])];
            add_quarters(half[0], half[1])
        }}
    }
}

/// Adds neighbouring quarters of `a`, then those of `b`.
#[inline(always)]
unsafe fn add_quarters(a: __m512, b: __m512) -> __m512 {
    // SAFETY: the caller guarantees the instruction set.
    unsafe {
        let even = _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
        let odd = _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b);
        _mm512_add_ps(even, odd)
    }
}
