//! Vectors of 8 lanes and 16 registers: AVX2, and AVX2 with AVX-VNNI, which has the dot
//! products as instructions.

use std::arch::x86_64::*;

use super::Simd;

/// AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub struct Avx2;

/// AVX2, FMA, F16C and AVX-VNNI.
#[derive(Clone, Copy)]
pub struct AvxVnni;

/// The methods of both.
macro_rules! common {
    () => {
        const LANES: usize = 8;
        type Int = __m256i;
        type Float = __m256;

        intrinsics! {
            fn load(from: *const u8) -> __m256i { _mm256_loadu_si256(from.cast()) }
            fn load_i8(from: *const u8) -> __m256i {
                _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()))
            }
            fn load_u8(from: *const u8) -> __m256i {
                _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()))
            }
            fn load_u16(from: *const u8) -> __m256i {
                _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()))
            }
            fn look_up(table: &[u8; 16], indices: __m256i) -> __m256i {
                _mm256_shuffle_epi8(
                    _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())),
                    indices,
                )
            }
            fn gather(table: *const u32, indices: __m256i) -> __m256i {
                _mm256_i32gather_epi32::<4>(table.cast(), indices)
            }
            fn mirror(bytes: __m256i, signs: __m256i, twice: __m256i) -> __m256i {
                _mm256_blendv_epi8(bytes, _mm256_sub_epi8(twice, bytes), signs)
            }
            fn load_blocks(first: *const u8, _second: *const u8) -> __m256i {
                _mm256_loadu_si256(first.cast())
            }
            fn splat(from: *const u8) -> __m256i {
                _mm256_set1_epi32(from.cast::<i32>().read_unaligned())
            }
            fn splat_byte(value: u8) -> __m256i { _mm256_set1_epi8(value.cast_signed()) }
            fn splat_lane(value: u32) -> __m256i { _mm256_set1_epi32(value.cast_signed()) }
            fn zero() -> __m256i { _mm256_setzero_si256() }
            fn and(a: __m256i, b: __m256i) -> __m256i { _mm256_and_si256(a, b) }
            fn xor(a: __m256i, b: __m256i) -> __m256i { _mm256_xor_si256(a, b) }
            fn or(a: __m256i, b: __m256i) -> __m256i { _mm256_or_si256(a, b) }
            // The count is a constant, so these become shifts by an immediate.
            fn left<const BITS: u32>(a: __m256i) -> __m256i {
                _mm256_sll_epi32(a, _mm_cvtsi32_si128(BITS.cast_signed()))
            }
            fn right<const BITS: u32>(a: __m256i) -> __m256i {
                _mm256_srl_epi32(a, _mm_cvtsi32_si128(BITS.cast_signed()))
            }
            fn right_signed<const BITS: u32>(a: __m256i) -> __m256i {
                _mm256_sra_epi32(a, _mm_cvtsi32_si128(BITS.cast_signed()))
            }
            fn add(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi32(a, b) }
            fn total(a: __m256i) -> i32 {{
                let half = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
                let pair = _mm_add_epi32(half, _mm_shuffle_epi32::<0b01_00_11_10>(half));
                _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32::<0b10_11_00_01>(pair)))
            }}
            fn store_bytes(to: *mut i8, a: __m256i) {{
                let halves = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
                _mm_storel_epi64(to.cast(), _mm_packs_epi16(halves, halves))
            }}
            fn float(a: __m256i) -> __m256 { _mm256_cvtepi32_ps(a) }
            fn round(a: __m256) -> __m256i { _mm256_cvtps_epi32(a) }
            fn load_f32(from: *const f32) -> __m256 { _mm256_loadu_ps(from) }
            fn load_f16(from: *const u8) -> __m256 { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
            fn load_bf16(from: *const u8) -> __m256 {
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(
                    _mm_loadu_si128(from.cast()),
                )))
            }
            fn load_scale(from: *const u8) -> __m256 {
                _mm256_cvtph_ps(_mm_set1_epi16(from.cast::<i16>().read_unaligned()))
            }
            fn load_scales(first: *const u8, _second: *const u8) -> __m256 {
                Self::load_scale(first)
            }
            fn from_bits(bits: __m256i) -> __m256 { _mm256_castsi256_ps(bits) }
            fn store_f32(to: *mut f32, value: __m256) { _mm256_storeu_ps(to, value) }
            fn splat_f32(value: f32) -> __m256 { _mm256_set1_ps(value) }
            fn add_f32(a: __m256, b: __m256) -> __m256 { _mm256_add_ps(a, b) }
            fn mul(a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
            fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fmadd_ps(a, b, c) }
            fn neg_mul_add(a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fnmadd_ps(a, b, c) }
            fn max(a: __m256, b: __m256) -> __m256 { _mm256_max_ps(a, b) }
            fn max_abs(a: __m256, b: __m256) -> __m256 {
                _mm256_max_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0), b), a)
            }
            fn largest(a: __m256) -> f32 {{
                let half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
                let pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
                _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)))
            }}
            fn total_f32(a: __m256) -> f32 {{
                let half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
                let pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
                _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)))
            }}
            fn totals(vectors: &[__m256; 16]) -> __m256 {{
                // Three times, two vectors become one that holds sums of two lanes of each.
                let mut four = [_mm256_setzero_ps(); 2];
                for (i, four) in four.iter_mut().enumerate() {
                    let v = &vectors[4 * i..4 * i + 4];
                    let a = _mm256_add_ps(_mm256_unpacklo_ps(v[0], v[1]), _mm256_unpackhi_ps(v[0], v[1]));
                    let b = _mm256_add_ps(_mm256_unpacklo_ps(v[2], v[3]), _mm256_unpackhi_ps(v[2], v[3]));
                    let [a, b] = [_mm256_castps_pd(a), _mm256_castps_pd(b)];
                    let (low, high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
                    *four = _mm256_add_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high));
                }
                let low = _mm256_permute2f128_ps::<0x20>(four[0], four[1]);
                let high = _mm256_permute2f128_ps::<0x31>(four[0], four[1]);
                _mm256_add_ps(low, high)
            }}
        }
    };
}

impl Simd for Avx2 {
    const CODE_MAX: u8 = 127;
    const ADDS_PAIRS: bool = true;
    common!();
    intrinsics! {
        fn add_pairs(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
            _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b))
        }
        fn dot8_signed(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
            Self::dot8(sum, _mm256_abs_epi8(a), _mm256_sign_epi8(b, a))
        }
        // The sum of two products saturates at 16 bits, which CODE_MAX avoids.
        fn dot8(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
            _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)))
        }
        fn dot16(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
            _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
        }
    }
}

impl Simd for AvxVnni {
    const CODE_MAX: u8 = 255;
    const ADDS_PAIRS: bool = false;
    common!();
    intrinsics! {
        fn dot8(sum: __m256i, a: __m256i, b: __m256i) -> __m256i { _mm256_dpbusd_avx_epi32(sum, a, b) }
        fn dot16(sum: __m256i, a: __m256i, b: __m256i) -> __m256i { _mm256_dpwssd_avx_epi32(sum, a, b) }
    }
}
