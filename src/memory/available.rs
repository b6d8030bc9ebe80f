//! Reads how much memory is available.

use std::fs;

use crate::cgroup::{Group, groups};
use crate::limits::{REQUEST_MEMORY_BYTES, REQUEST_MEMORY_BYTES_MIN};

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
