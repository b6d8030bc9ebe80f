//! The control groups of this process, whose limits on memory and processor time hold for it.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of a control group.
pub struct Group {
    /// The folder.
    pub folder: PathBuf,
    /// Version 1, in which each controller has a tree of its own.
    pub is_v1: bool,
}

/// The groups of this process that a controller works in: its own and its parents. `controller` is
/// `memory` or `cpu`. Empty if the kernel reports none.
pub fn groups(controller: &str) -> Vec<Group> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    groups_in(&groups, controller, Path::new("/sys/fs/cgroup"))
}

/// [`groups`] of the lines in `/proc/self/cgroup`: `0::/path` in version 2, and
/// `4:cpu,cpuacct:/path` in version 1. `root` is where the trees are mounted.
pub fn groups_in(lines: &str, controller: &str, root: &Path) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in lines.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let is_v1 = controllers.split(',').any(|name| name == controller);
        if !is_v1 && !controllers.is_empty() {
            continue;
        }
        let root = if is_v1 { root.join(controller) } else { root.to_owned() };
        let own = root.join(path.trim_start_matches('/'));
        // Inside a container the path may not be visible; then the root is our group.
        let folders = own.ancestors().take_while(|folder| folder.starts_with(&root));
        groups.extend(folders.map(|folder| Group { folder: folder.to_owned(), is_v1 }));
    }
    groups
}

impl Group {
    /// The text of a file in the folder.
    pub fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(file)).ok()
    }

    /// A file that has one number.
    pub fn number<T: std::str::FromStr>(&self, file: &str) -> Option<T> {
        self.read(file)?.trim().parse().ok()
    }
}
