//! What the README and the pages of `docs` say about the sources is true.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::pages::{pages, quoted, read, root};

/// The text of each source below a folder.
fn sources(folder: &Path) -> Vec<String> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let texts = paths.flat_map(|path| {
        let end = path.extension().and_then(|end| end.to_str());
        match end {
            _ if path.is_dir() => sources(&path),
            Some("rs" | "py") => vec![std::fs::read_to_string(&path).unwrap()],
            _ => Vec::new(),
        }
    });
    texts.collect()
}

/// Every module of the crate has its line.
#[test]
fn every_module_has_its_line() {
    let (page, crate_root) = (read("docs/architecture.md"), read("src/lib.rs"));
    let modules = crate_root.lines().filter_map(|line| line.strip_prefix("pub mod "));
    let modules: Vec<&str> = modules.filter_map(|name| name.strip_suffix(';')).collect();
    assert!(modules.len() > 30, "{modules:?}");
    for module in modules {
        assert!(page.contains(&format!("[`{module}`](../src/{module}")), "{module}");
    }
}

/// The table of imports is the one that `layering.rs` holds the sources against.
#[test]
fn the_table_of_imports_is_that_of_the_test() {
    let source = read("tests/rules/layering.rs");
    let table = &source[source.find("const MAY_IMPORT").unwrap()..];
    let table: String = table[..table.find("\n];").unwrap()].split_whitespace().collect();
    let mut expected = BTreeMap::new();
    for entry in table.split("(\"").skip(1) {
        let mut words = entry.split('"').step_by(2);
        expected.insert(words.next().unwrap(), words.collect::<BTreeSet<&str>>());
    }
    let page = read("docs/architecture.md");
    let rows = page.split("## Import rules").nth(1).unwrap().split("| library |").next().unwrap();
    let mut shown = BTreeMap::new();
    for row in rows.lines().filter(|line| line.starts_with("| `")) {
        let (modules, imports) = row.split_once(" | ").unwrap();
        for module in quoted(modules) {
            let again = shown.insert(module, quoted(imports).collect::<BTreeSet<&str>>());
            assert!(again.is_none(), "{module} has two lines");
        }
    }
    assert_eq!(shown, expected);
}

/// The files that may have `unsafe` are named, and counted.
#[test]
fn files_with_unsafe_are_named() {
    let source = read("tests/rules/layering.rs");
    let rule = source.split("fn unsafe_stands_in_few_places").nth(1).unwrap();
    let words = rule.split("only_in(").next().unwrap().split('"').skip(1).step_by(2);
    let files: Vec<&str> = words.filter(|word| word.ends_with(".rs")).collect();
    let page = read("docs/architecture.md");
    assert!(files.len() == 3 && page.contains("and three files"), "{files:?}");
    for file in files {
        assert!(page.contains(&format!("`{file}`")), "{file}");
    }
}

/// The tests and the bounds that stand beside promises exist.
#[test]
fn promises_have_their_tests_and_bounds() {
    let sources = [sources(&root().join("src")), sources(&root().join("tests"))].concat();
    let sources: String = sources.concat();
    let page = read("docs/security.md");
    let mut found = 0;
    for name in quoted(&page).filter(|name| name.contains('_')) {
        let is_bound = name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        let is_test = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        if is_bound && !name.starts_with("HF_") {
            assert!(sources.contains(&format!("const {name}:")), "no bound {name}");
        } else if is_test && name.matches('_').count() > 2 && !name.starts_with("corelane_") {
            let forms = [format!("fn {name}("), format!("def {name}(")];
            assert!(forms.iter().any(|form| sources.contains(form)), "no test {name}");
        } else {
            continue;
        }
        found += 1;
    }
    assert!(found > 100, "{found} tests and bounds");
}

/// "Most have at most 300 lines", says CONTRIBUTING.md.
#[test]
fn most_files_are_short() {
    let files = sources(&root().join("src"));
    let short = files.iter().filter(|text| text.lines().count() <= 300).count();
    assert!(4 * short > 3 * files.len(), "{short} of {} files", files.len());
}

/// The list of invariants has names, and no numbers.
#[test]
fn no_comment_numbers_an_invariant() {
    let sources = [sources(&root().join("src")), sources(&root().join("tests"))].concat();
    for line in sources.iter().flat_map(|text| text.lines()) {
        let after = line.split("Invariant ").nth(1).unwrap_or_default();
        assert!(!after.starts_with(|c: char| c.is_ascii_digit()), "{line}");
    }
}

/// Files and folders that pages name are there.
#[test]
fn paths_that_are_named_exist() {
    let folders = ["src/", "tests/", "perf/", "docs/", "benches/", "packaging/", "tools/", "fuzz/"];
    let mut paths = 0;
    for page in pages() {
        let text = read(&page);
        let starts = |name: &&str| folders.iter().any(|start| name.starts_with(start));
        let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-@".contains(c);
        for path in quoted(&text).filter(starts) {
            if !path.chars().all(is_path) || path.contains("NAME") {
                continue;
            }
            paths += 1;
            assert!(root().join(path).exists(), "{} names {path}", page.display());
        }
    }
    assert!(paths > 100, "{paths} paths");
}

/// Links to files of this repository lead to files.
#[test]
fn links_lead_somewhere() {
    let mut links = 0;
    for page in pages() {
        let text = read(&page);
        // `[A]: target` defines what `[A]` leads to.
        let defined = text.lines().filter(|line| line.starts_with('['));
        let defined = defined.filter_map(|line| Some(line.split_once("]: ")?.1));
        for part in text.split("](").skip(1).chain(defined) {
            let target = part.split([')', '#']).next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            links += 1;
            let path = root().join(page.parent().unwrap()).join(target);
            assert!(path.exists(), "{} links to {target}", page.display());
        }
    }
    assert!(links > 50, "{links} links");
}

/// The anchors of a page's headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        text.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    };
    headings.map(anchor).collect()
}

/// Links to sections lead to headings.
#[test]
fn links_lead_to_headings() {
    let mut links = 0;
    for page in pages() {
        let text = read(&page);
        for part in text.split("](").skip(1) {
            let link = part.split(')').next().unwrap();
            let Some((target, anchor)) = link.split_once('#') else { continue };
            if target.contains("://") {
                continue;
            }
            links += 1;
            let beside = page.parent().unwrap();
            let path = if target.is_empty() { page.clone() } else { beside.join(target) };
            assert!(anchors(&read(path)).contains(anchor), "{} links to {link}", page.display());
        }
    }
    assert!(links > 50, "{links} links");
}
