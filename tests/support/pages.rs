//! The pages and the sources of this repository, as texts.

use std::path::{Path, PathBuf};

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The pages that a user reads.
pub fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md"]
            .map(PathBuf::from)
            .to_vec();
    pages.extend(
        ["perf", "flamegraphs", "examples"].map(|folder| Path::new(folder).join("README.md")),
    );
    for entry in std::fs::read_dir(root().join("docs")).unwrap() {
        let page = Path::new("docs").join(entry.unwrap().file_name());
        pages.extend((page.extension() == Some("md".as_ref())).then_some(page));
    }
    pages
}

/// The texts in backticks of a page.
pub fn quoted(page: &str) -> impl Iterator<Item = &str> {
    page.split('`').skip(1).step_by(2)
}
