//! AVX-512 with VNNI: 16 lanes, 32 registers, and four products of bytes a lane in one
//! instruction.

use std::arch::x86_64::*;

use super::Simd;

/// See the module's description. Needs F, BW, DQ, VL and VNNI.
#[derive(Clone, Copy)]
pub struct Avx512;

impl Simd for Avx512 {
    const LANES: usize = 16;
    const CODE_MAX: u8 = 255;
    type Int = __m512i;
    type Float = __m512;

    intrinsics! {
        fn load(from: *const u8) -> __m512i { _mm512_loadu_si512(from.cast()) }
        fn splat(from: *const u8) -> __m512i { _mm512_set1_epi32(from.cast::<i32>().read_unaligned()) }
        fn splat_byte(value: u8) -> __m512i { _mm512_set1_epi8(value.cast_signed()) }
        fn splat_lane(value: u32) -> __m512i { _mm512_set1_epi32(value.cast_signed()) }
        fn zero() -> __m512i { _mm512_setzero_si512() }
        fn and(a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
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
        fn store_f32(to: *mut f32, value: __m512) { _mm512_storeu_ps(to, value) }
        fn splat_f32(value: f32) -> __m512 { _mm512_set1_ps(value) }
        fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
        fn neg_mul_add(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fnmadd_ps(a, b, c) }
        fn max_abs(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(_mm512_abs_ps(b), a) }
        fn largest(a: __m512) -> f32 { _mm512_reduce_max_ps(a) }
    }
}
