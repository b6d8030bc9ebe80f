//! AMX's tile registers, and the permission to use them.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::OnceLock;

use super::formats::LINE;

/// Rows of a smaller tile, for the last rows.
pub const FEW_ROWS: usize = 8;

/// The tile registers of this thread, configured as long as this lives.
pub struct Tiles(());

/// Register of sums. Two of each kind take turns; those of a few rows have their own.
pub const SUMS: u8 = 0;
/// Register of activations.
pub const ACTIVATIONS: u8 = 2;
/// Register of weights.
pub const WEIGHTS: u8 = 4;
/// Register of the sums of a few rows.
pub const FEW_SUMS: u8 = 6;
/// Register of a few rows of activations.
pub const FEW_ACTIVATIONS: u8 = 7;

impl Tiles {
    /// Configures the registers for a format whose scales have `group` columns.
    ///
    /// # Safety
    /// The processor has AMX, and the process the permission to use it: [`is_here`].
    pub unsafe fn configure(group: usize) -> Self {
        /// What LDTILECFG reads.
        #[repr(C, align(64))]
        struct Configuration {
            palette: u8,
            start_row: u8,
            reserved: [u8; 14],
            row_bytes: [u16; 16],
            rows: [u8; 16],
        }
        const { assert!(size_of::<Configuration>() == LINE) };
        let (columns, quarter) = (group as u16, group as u8 / 4); // 16 or 32
        let few = FEW_ROWS as u8;
        let line = LINE as u16;
        let tiles = Configuration {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [
                line, line, columns, columns, line, line, line, columns, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
            rows: [16, 16, 16, 16, quarter, quarter, few, few, 0, 0, 0, 0, 0, 0, 0, 0],
        };
        // SAFETY: the caller guarantees that the instruction is there; it reads the 64 bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const tiles, options(nostack)) };
        Self(())
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: `configure` needed the same.
        unsafe { asm!("tilerelease", options(nomem, nostack)) };
    }
}

/// Computes the products of two tiles of signed bytes in memory. The rows of activations are `stride` bytes
/// apart.
///
/// # Safety
/// The registers are configured, and all tiles lie in valid memory.
#[inline(always)]
pub unsafe fn multiply_tiles<const C: u8, const A: u8, const B: u8>(
    activations: *const u8,
    stride: usize,
    weights: *const u8,
    to: *mut u8,
) {
    // SAFETY: the caller guarantees it.
    unsafe {
        asm!(
            "tileloadd tmm{a}, [{activations} + {stride}*1]",
            "tileloadd tmm{b}, [{weights} + {line}*1]",
            "tilezero tmm{c}",
            "tdpbssd tmm{c}, tmm{a}, tmm{b}",
            "tilestored [{to} + {line}*1], tmm{c}",
            a = const A, b = const B, c = const C,
            activations = in(reg) activations, stride = in(reg) stride,
            weights = in(reg) weights, line = in(reg) LINE, to = in(reg) to,
            options(nostack, preserves_flags));
    }
}

/// Whether the processor has AMX for bytes, and Linux lets this process use it. The first call asks.
pub fn is_here() -> bool {
    static IS_HERE: OnceLock<bool> = OnceLock::new();
    *IS_HERE.get_or_init(|| {
        const LEAF: u32 = 7;
        const HAS_TILES: u32 = 1 << 24;
        const HAS_BYTES: u32 = 1 << 25;
        let has = __cpuid(0).eax >= LEAF;
        let features = if has { __cpuid_count(LEAF, 0).edx } else { 0 };
        features & HAS_TILES != 0 && features & HAS_BYTES != 0 && is_permitted()
    })
}

/// Asks Linux for the permission, which holds for all threads of the process.
fn is_permitted() -> bool {
    const ARCH_PRCTL: usize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XFEATURE_XTILEDATA: usize = 18;
    let mut result = ARCH_PRCTL;
    // SAFETY: the call takes numbers only. An unknown one is refused.
    unsafe {
        asm!("syscall", inlateout("rax") result, in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA, out("rcx") _, out("r11") _, options(nostack));
    }
    if result != 0 {
        tracing::info!("Linux does not let this process use AMX: error {}", result.wrapping_neg());
    }
    result == 0
}
