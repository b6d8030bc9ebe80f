//! The processor time that a control group allows.

use crate::cgroup::{Group, groups};

/// The processor time that this process may use, in cores, if its control group or a parent limits
/// it: `docker --cpus=2` allows 2.
pub fn cpu_quota() -> Option<f64> {
    least_of(&groups("cpu"))
}

fn least_of(groups: &[Group]) -> Option<f64> {
    groups.iter().filter_map(quota_of).reduce(f64::min)
}

/// In version 2, `200000 100000` allows 200,000 us of processor time in each 100,000 us; `max
/// 100000` sets no limit.
fn quota_of(group: &Group) -> Option<f64> {
    if group.is_v1 {
        return ratio(group.number("cpu.cfs_quota_us")?, group.number("cpu.cfs_period_us")?);
    }
    let text = group.read("cpu.max")?;
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    ratio(numbers.next()?.ok()?, numbers.next()?.ok()?)
}

fn ratio(quota: f64, period: f64) -> Option<f64> {
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cgroup::groups_in;

    #[test]
    fn the_least_quota_counts() {
        let root = std::env::temp_dir().join(format!("corelane-quota-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/cpu.max", "150000 100000\n");
        write("a/b/cpu.max", "400000 100000\n");
        write("c/cpu.max", "max 100000\n");
        write("cpu/d/cpu.cfs_quota_us", "50000\n");
        write("cpu/d/cpu.cfs_period_us", "100000\n");
        write("cpu/e/cpu.cfs_quota_us", "-1\n");
        write("cpu/e/cpu.cfs_period_us", "100000\n");
        for (groups, expected) in [
            ("0::/a/b\n", Some(1.5)),
            ("0::/c\n", None),
            ("0::/not/visible\n", None),
            ("5:memory:/x\n4:cpu,cpuacct:/d\n", Some(0.5)),
            ("4:cpu,cpuacct:/e\n", None),
            ("", None),
        ] {
            assert_eq!(least_of(&groups_in(groups, "cpu", &root)), expected, "{groups}");
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
