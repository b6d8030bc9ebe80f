//! Finds the kernel for an instruction set and the types of a model.

use super::attention::AttentionKernel;
use super::attention::cached::{self, Bf16, Cached, F16, F32};
use super::delta;
use super::formats::Format;
use super::formats::floats::Floats;
use super::formats::iq2_s::Iq2S;
use super::formats::iq2_xs::Iq2Xs;
use super::formats::iq2_xxs::Iq2Xxs;
use super::formats::iq3_s::Iq3S;
use super::formats::iq3_xxs::Iq3Xxs;
use super::formats::iq4_nl::Iq4Nl;
use super::formats::iq4_xs::Iq4Xs;
use super::formats::mxfp4::Mxfp4;
use super::formats::q2_k::Q2K;
use super::formats::q3_k::Q3K;
use super::formats::q4_0::Q4_0;
use super::formats::q4_1::Q4_1;
use super::formats::q4_k::Q4K;
use super::formats::q5_0::Q5_0;
use super::formats::q5_1::Q5_1;
use super::formats::q5_k::Q5K;
use super::formats::q6_k::Q6K;
use super::formats::q8_0::Q8_0;
use super::kernel::{InstructionSet, Kernel};
#[cfg(target_arch = "x86_64")]
use super::x86;

/// The types with a kernel, by ggml's numbers.
pub const TYPES: [i32; 20] = [
    Q4_0::GGML_TYPE,
    Q4_1::GGML_TYPE,
    Q5_0::GGML_TYPE,
    Q5_1::GGML_TYPE,
    Q8_0::GGML_TYPE,
    Q2K::GGML_TYPE,
    Q3K::GGML_TYPE,
    Q4K::GGML_TYPE,
    Q5K::GGML_TYPE,
    Q6K::GGML_TYPE,
    Iq2Xxs::GGML_TYPE,
    Iq2Xs::GGML_TYPE,
    Iq2S::GGML_TYPE,
    Iq3Xxs::GGML_TYPE,
    Iq3S::GGML_TYPE,
    Iq4Nl::GGML_TYPE,
    Iq4Xs::GGML_TYPE,
    Mxfp4::GGML_TYPE,
    F16::GGML_TYPE,
    Bf16::GGML_TYPE,
];

impl InstructionSet {
    /// Whether this processor supports it.
    pub fn is_here(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return x86::is_here(self);
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// The best instruction set of this processor.
    pub fn best() -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.is_here())
    }

    /// The kernel for a type of weights, by ggml's number.
    pub fn kernel(self, ggml_type: i32) -> Option<Kernel> {
        match ggml_type {
            Q4_0::GGML_TYPE => self.kernel_of::<Q4_0>(),
            Q4_1::GGML_TYPE => self.kernel_of::<Q4_1>(),
            Q5_0::GGML_TYPE => self.kernel_of::<Q5_0>(),
            Q5_1::GGML_TYPE => self.kernel_of::<Q5_1>(),
            Q8_0::GGML_TYPE => self.kernel_of::<Q8_0>(),
            Q2K::GGML_TYPE => self.kernel_of::<Q2K>(),
            Q3K::GGML_TYPE => self.kernel_of::<Q3K>(),
            Q4K::GGML_TYPE => self.kernel_of::<Q4K>(),
            Q5K::GGML_TYPE => self.kernel_of::<Q5K>(),
            Q6K::GGML_TYPE => self.kernel_of::<Q6K>(),
            Iq2Xxs::GGML_TYPE => self.kernel_of::<Iq2Xxs>(),
            Iq2Xs::GGML_TYPE => self.kernel_of::<Iq2Xs>(),
            Iq2S::GGML_TYPE => self.kernel_of::<Iq2S>(),
            Iq3Xxs::GGML_TYPE => self.kernel_of::<Iq3Xxs>(),
            Iq3S::GGML_TYPE => self.kernel_of::<Iq3S>(),
            Iq4Nl::GGML_TYPE => self.kernel_of::<Iq4Nl>(),
            Iq4Xs::GGML_TYPE => self.kernel_of::<Iq4Xs>(),
            Mxfp4::GGML_TYPE => self.kernel_of::<Mxfp4>(),
            F16::GGML_TYPE => self.float_kernel::<F16>(),
            Bf16::GGML_TYPE => self.float_kernel::<Bf16>(),
            _ => None,
        }
    }

    /// The attention kernel for types of cached keys and values, by ggml's numbers.
    pub fn attention(self, keys: i32, values: i32) -> Option<AttentionKernel> {
        match keys {
            F32::GGML_TYPE => self.attention_to::<F32>(values),
            F16::GGML_TYPE => self.attention_to::<F16>(values),
            Bf16::GGML_TYPE => self.attention_to::<Bf16>(values),
            cached::Q8_0::GGML_TYPE => self.attention_to::<cached::Q8_0>(values),
            _ => None,
        }
    }

    /// The kernel of a gated delta net whose states have `numbers` numbers in a row.
    pub fn delta(self, numbers: usize) -> Option<delta::Run> {
        #[cfg(target_arch = "x86_64")]
        return x86::delta(self, numbers);
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = numbers;
            None
        }
    }

    fn attention_to<K: Cached>(self, values: i32) -> Option<AttentionKernel> {
        match values {
            F32::GGML_TYPE => self.attention_of::<K, F32>(),
            F16::GGML_TYPE => self.attention_of::<K, F16>(),
            Bf16::GGML_TYPE => self.attention_of::<K, Bf16>(),
            cached::Q8_0::GGML_TYPE => self.attention_of::<K, cached::Q8_0>(),
            _ => None,
        }
    }

    fn attention_of<K: Cached, V: Cached>(self) -> Option<AttentionKernel> {
        #[cfg(target_arch = "x86_64")]
        return Some(x86::attention::<K, V>(self));
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    fn float_kernel<W: Floats>(self) -> Option<Kernel> {
        #[cfg(target_arch = "x86_64")]
        return Some(x86::float_kernel::<W>(self));
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    fn kernel_of<F: Format>(self) -> Option<Kernel> {
        #[cfg(target_arch = "x86_64")]
        return Some(x86::kernel::<F>(self));
        #[cfg(not(target_arch = "x86_64"))]
        None
    }
}
