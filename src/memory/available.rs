//! Reads how much memory is available, and chooses the size of a KV cache that fits.

use std::fs;

use crate::cgroup::{Group, groups};
use crate::limits::{
    CONTEXT_TOKENS_MAX, REQUEST_MEMORY_BYTES, REQUEST_MEMORY_BYTES_MIN, SEQUENCE_TOKENS_MAX,
};
use crate::types::ModelInfo;

/// Default tokens of context for each sequence.
const USUAL_SEQUENCE_TOKENS: u32 = 2048;

/// Chooses the KV cache's size in tokens: the size `asked` for, or else the default for `slots`
/// sequences, or as much of that as fits into `available_bytes`.
///
/// The weights are already in memory and are not part of `available_bytes`. Set aside first: the
/// logits and the token history of each slot with its index, the memory of requests
/// (`request_bytes`), and a tenth for llama.cpp's compute buffers and everything else.
///
/// # Errors
/// A sentence with the memory needed, the memory available, and a size that would fit.
pub fn choose_context(
    asked: Option<u32>,
    slots: u32,
    info: &ModelInfo,
    request_bytes: u64,
    available_bytes: u64,
) -> Result<u32, String> {
    let trained = info.context_trained.clamp(1, SEQUENCE_TOKENS_MAX as u32);
    // Four bytes for the history, and up to twelve for the index in which guesses are looked up.
    let slot_bytes = info.n_vocab as u64 * 4 + u64::from(trained) * 16;
    let set_aside = u64::from(slots) * slot_bytes + request_bytes + available_bytes / 10;
    let for_cache = available_bytes.saturating_sub(set_aside);
    let fits = for_cache / info.kv_bytes_per_token.max(1);
    let usual = trained.min(USUAL_SEQUENCE_TOKENS).saturating_mul(slots);
    let usual = u64::from(usual).min(fits).min(CONTEXT_TOKENS_MAX as u64) as u32; // of a u32
    let tokens = asked.unwrap_or(usual);
    if u64::from(tokens) > fits {
        return Err(format!(
            "--ctx-size {tokens} needs {:.1} GiB of memory for the KV cache; of the {:.1} GiB \
             available, {:.1} are left for it: at most {fits} tokens fit",
            gib(u64::from(tokens) * info.kv_bytes_per_token),
            gib(available_bytes),
            gib(for_cache),
        ));
    }
    if tokens < 2 * slots {
        return Err(format!(
            "memory has room for {tokens} tokens of context, too few for {slots} sequences; \
             lower --parallel"
        ));
    }
    Ok(tokens)
}

/// The bytes for requests outside the KV cache: as `asked`, or else the default, or an eighth of
/// the available bytes if that is less. At least [`REQUEST_MEMORY_BYTES_MIN`] unless `asked`.
pub fn request_bytes(asked: Option<usize>, available_bytes: u64) -> usize {
    let eighth = usize::try_from(available_bytes / 8).unwrap_or(usize::MAX);
    asked.unwrap_or(eighth.clamp(REQUEST_MEMORY_BYTES_MIN, REQUEST_MEMORY_BYTES))
}

/// The bytes that this process may still use: `MemAvailable`, or less if a control group limits it.
/// `u64::MAX / 2` if the kernel reports neither.
pub fn available_bytes() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_available(&text));
    let group = least_left(&groups("memory"));
    machine.unwrap_or(u64::MAX / 2).min(group.unwrap_or(u64::MAX / 2))
}

fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The least memory left in these control groups. Cached pages of files (such as a model's file
/// that was just read) count as left, because the kernel drops them first.
fn least_left(groups: &[Group]) -> Option<u64> {
    let left = |group: &Group| {
        let (max, used, prefix) = if group.is_v1 {
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        } else {
            ("memory.max", "memory.current", "")
        };
        let (max, used): (u64, u64) = (group.number(max)?, group.number(used)?);
        let stat = group.read("memory.stat").unwrap_or_default();
        Some(max.saturating_sub(used.saturating_sub(cached(&stat, prefix))))
    };
    groups.iter().filter_map(left).min()
}

/// Bytes of file pages in a control group's `memory.stat`.
fn cached(stat: &str, prefix: &str) -> u64 {
    let of = |line: &str, name: &str| {
        line.strip_prefix(prefix)?.strip_prefix(name)?.trim().parse::<u64>().ok()
    };
    let files = |line| of(line, "active_file ").or_else(|| of(line, "inactive_file "));
    stat.lines().filter_map(files).sum()
}

/// Converts bytes to GiB.
pub fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::groups_in;

    const GIB: u64 = 1 << 30;

    fn info() -> ModelInfo {
        ModelInfo {
            n_vocab: 1000,
            context_trained: 40_960,
            kv_bytes_per_token: 100_000,
            ..ModelInfo::default()
        }
    }

    #[test]
    fn a_context_too_large_for_memory_is_refused_with_what_fits() {
        assert_eq!(choose_context(Some(10_000), 8, &info(), 0, 4 * GIB), Ok(10_000));
        let error = choose_context(Some(1_000_000), 8, &info(), 0, 4 * GIB).unwrap_err();
        assert!(error.starts_with("--ctx-size 1000000 needs 93.1 GiB"), "{error}");
        let fits: u32 =
            error.split("at most ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert_eq!(choose_context(Some(fits), 8, &info(), 0, 4 * GIB), Ok(fits));
        assert!(choose_context(Some(fits + 1), 8, &info(), 0, 4 * GIB).is_err());
        assert!(
            choose_context(Some(fits), 8, &info(), 1_000_000, 4 * GIB).is_err(),
            "requests need room"
        );
    }

    #[test]
    fn the_default_is_the_usual_length_as_far_as_memory_goes() {
        assert_eq!(choose_context(None, 8, &info(), 0, 64 * GIB), Ok(8 * 2048));
        let less = choose_context(None, 8, &info(), 0, GIB).unwrap();
        assert!((1_000..16_000).contains(&less), "{less}");
        let short = ModelInfo { context_trained: 512, ..info() };
        assert_eq!(choose_context(None, 8, &short, 0, 64 * GIB), Ok(8 * 512));
        assert!(
            choose_context(None, 8, &info(), 0, GIB / 1024)
                .unwrap_err()
                .contains("lower --parallel")
        );
    }

    #[test]
    fn limits_of_control_groups_count() {
        let root = std::env::temp_dir().join(format!("corelane-cgroup-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/memory.max", "max\n");
        write("a/memory.current", "5\n");
        write("a/b/memory.max", "1000\n");
        write("a/b/memory.current", "300\n");
        write("a/b/memory.stat", "anon 150\ninactive_file 100\nactive_file 20\nshmem 7\n");
        write("memory/c/memory.limit_in_bytes", "500\n");
        write("memory/c/memory.usage_in_bytes", "100\n");
        write("memory/c/memory.stat", "active_file 9\ntotal_active_file 30\n");
        let left = |lines: &str| least_left(&groups_in(lines, "memory", &root));
        assert_eq!(left("0::/a/b\n"), Some(820));
        assert_eq!(left("0::/a\n"), None);
        assert_eq!(left("5:cpu:/x\n4:memory:/c\n"), Some(430));
        assert_eq!(left(""), None);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(
            mem_available("MemFree: 1 kB\nMemAvailable:   2048 kB\n"),
            Some(2 * 1024 * 1024)
        );
    }
}
