//! Checks our kernels before they are used: compares small products (also of experts), attentions and
//! gated delta nets with llama.cpp's.

use std::sync::OnceLock;

use super::{attentions, deltas, products};
use crate::kernels::{InstructionSet, KernelChoice, TYPES, ggml};

/// Returns the instruction set of our kernels if `choice` asks for them and they compute correctly.
/// The first call in a process compares small products with llama.cpp's. If one is wrong, this is
/// logged, and llama.cpp's kernels are used from then on.
pub(super) fn kernels(choice: KernelChoice) -> Option<InstructionSet> {
    static WORKS: OnceLock<bool> = OnceLock::new();
    let wanted = choice.instruction_set()?;
    let set = ggml::choose(wanted);
    if set != wanted {
        let (set, wanted) = (set.name(), wanted.name());
        tracing::warn!("this process began with the kernels for {set}; {wanted} is not used");
    }
    let works = *WORKS.get_or_init(|| {
        let wrong: Vec<_> =
            TYPES.into_iter().filter(|of| !products::is_right(set, of.cast_unsigned())).collect();
        for ggml_type in &wrong {
            tracing::error!(
                "the {} kernel for ggml type {ggml_type} gives wrong results; llama.cpp's kernels \
                 compute everything",
                set.name()
            );
        }
        let others = [
            ("experts", products::has_right_experts()),
            ("attention", attentions::is_right(set)),
            ("gated delta nets", deltas::is_right(set)),
        ];
        for (name, _) in others.iter().filter(|(_, is_right)| !is_right) {
            tracing::error!(
                "the {} kernel for {name} gives wrong results; llama.cpp's kernels compute \
                 everything",
                set.name()
            );
        }
        wrong.is_empty() && others.iter().all(|(_, is_right)| *is_right)
    });
    works.then_some(set)
}
