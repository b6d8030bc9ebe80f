//! Rules of the design that the source alone shows: which module imports which, where `unsafe`
//! stands, which modules read a clock, and that nothing is locked.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// The floor: plain data, bounds, time, memory and counters, which everybody may use.
const FLOOR: &[&str] = &[
    "types", "limits", "clock", "abort", "fair", "cgroup", "memory", "metrics", "pressure",
    "random",
];

/// The modules that each module may import, besides the floor and itself.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("sampling", &["constraint"]),
    ("limits", &[]),
    ("clock", &[]),
    ("abort", &[]),
    ("fair", &[]),
    ("cgroup", &[]),
    ("memory", &[]),
    ("pressure", &["placement"]), // in tests
    ("metrics", &[]),
    ("random", &[]),
    ("placement", &["kernels::compute"]),
    ("keys", &[]),
    ("config", &["keys", "placement", "kernels", "traces::Endpoint"]),
    ("http", &[]),
    ("hub", &[]),
    ("page", &[]),
    ("api", &["http", "model::vocab", "chat", "constraint", "sampling"]),
    ("scheduler", &["ring::message", "ring::files", "sampling", "constraint::Compiled"]),
    ("ring", &["sampling", "constraint"]),
    ("text", &["model::vocab"]),
    ("chat", &[]),
    ("constraint", &["model::vocab"]),
    ("model", &["kernels"]),
    ("decode", &["ring::message", "ring::LaneLink", "model", "constraint", "sampling"]),
    ("disk", &["ring::files", "ring::LaneLink"]),
    ("engine", &["api", "chat::output", "scheduler", "ring", "text", "model::vocab"]),
    (
        "prepare",
        &[
            "api",
            "chat",
            "constraint",
            "engine::job",
            "http::head::Method", // in tests
            "model::vocab",
            "ring",
            "sampling",
            "scheduler::NewSequence",
        ],
    ),
    (
        "server",
        &[
            "keys",
            "http",
            "api",
            "engine",
            "prepare",
            "ring",
            "scheduler::Capacity",
            "scheduler::SlotTask",
            "constraint::stop_long_work",
            "page",
            "systemd",
            "traces",
        ],
    ),
    ("profile", &[]),
    ("traces", &["http::trace_context"]),
    ("ops", &["profile"]),
    ("systemd", &[]),
    (
        "lanes",
        &[
            "config",
            "placement",
            "server",
            "systemd",
            "prepare",
            "decode",
            "disk",
            "ring",
            "scheduler",
            "model",
            "ops",
            "page",
            "profile",
            "traces",
            "api",
            "chat",
        ],
    ),
    ("tune", &["config", "decode::calibrate", "lanes", "model"]),
    ("flags", &["config", "hub", "kernels", "model", "placement", "systemd"]),
];

fn sources() -> Vec<(PathBuf, String)> {
    sources_in("src")
}

fn sources_in(folder: &str) -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push((path.clone(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found = Vec::new();
    walk(&root, &mut found);
    assert!(found.len() > 25, "the sources are there");
    let strip =
        |(path, text): (PathBuf, String)| (path.strip_prefix(&root).unwrap().to_owned(), text);
    found.into_iter().map(strip).collect()
}

/// The module of a file: its folder under `src`, or its own name.
fn module(path: &Path) -> String {
    let first = path.components().next().unwrap().as_os_str().to_str().unwrap();
    first.strip_suffix(".rs").unwrap_or(first).to_owned()
}

/// The code of a file: without its tests and its comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let tests = ["#[cfg(test)]\nmod tests {", "#[cfg(test)]\npub(super) mod tests {"];
    let end = tests.iter().filter_map(|tests| text.find(tests)).min().unwrap_or(text.len());
    let lines = text[..end].lines().enumerate();
    lines.map(|(i, line)| (i + 1, line.split("//").next().unwrap_or_default()))
}

/// The paths after `crate::` in one line: `crate::a::{b, c}` gives `a::b`, `a::c`.
fn imports(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in line.split("crate::").skip(1) {
        let end = part.find(|c: char| !(c.is_alphanumeric() || "_:".contains(c)));
        let path = &part[..end.unwrap_or(part.len())];
        match part[path.len()..].strip_prefix('{') {
            Some(list) => {
                let list = list.split('}').next().unwrap_or_default();
                let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
                found.extend(names.map(|name| match name {
                    "self" => path.trim_end_matches("::").to_owned(),
                    name => format!("{path}{name}"),
                }));
            }
            None => found.push(path.to_owned()),
        }
    }
    found
}

#[test]
fn modules_import_only_what_the_design_lets_them() {
    for (path, text) in sources() {
        let module = module(&path);
        if matches!(module.as_str(), "lib" | "main" | "cli" | "doctor" | "secrets" | "kernels") {
            continue;
        }
        let rule = MAY_IMPORT.iter().find(|(name, _)| *name == module);
        let (_, allowed) = rule.unwrap_or_else(|| panic!("{module} is not in the table"));
        // Imports may be broken over lines.
        let joined: String = code(&text).map(|(_, line)| line).collect::<Vec<_>>().join(" ");
        for statement in joined.split(';') {
            for import in imports(statement) {
                let first = import.split("::").next().unwrap_or_default();
                let ok = first == module
                    || FLOOR.contains(&first)
                    || allowed
                        .iter()
                        .any(|a| import == *a || import.starts_with(&format!("{a}::")));
                assert!(ok, "{}: {module} may not import {import}", path.display());
            }
        }
    }
}

/// The file of each module path: `["api", "json"]` is `api/json.rs`.
fn files_by_module(sources: &[(PathBuf, String)]) -> HashMap<Vec<String>, usize> {
    let module = |path: &Path| {
        let mut parts: Vec<String> =
            path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        let last = parts.pop().unwrap();
        match last.strip_suffix(".rs").unwrap() {
            "mod" | "lib" => {}
            name => parts.push(name.to_owned()),
        }
        parts
    };
    sources.iter().enumerate().map(|(index, (path, _))| (module(path), index)).collect()
}

/// The paths that a file names: those of its imports, and those in its code that begin with
/// `crate`, or, at the beginning of a line, `super`. (Further in, `super` is of a module within
/// the file.)
fn paths_named(text: &str, module: &[String], children: &[&String]) -> Vec<Vec<String>> {
    let joined: String = code(text).map(|(_, line)| format!("{line}\n")).collect();
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, first) in joined.match_indices(|c: char| c.is_alphabetic()) {
        let before = joined[..at].chars().next_back().unwrap_or(' ');
        if word(before) || ".:".contains(before) || first.is_empty() {
            continue;
        }
        let line_start = joined[..at].rfind('\n').map_or(0, |end| end + 1);
        let is_outermost = !joined[line_start..].starts_with(' ');
        let mut base = module.to_vec();
        let mut rest = &joined[at..];
        if let Some(after) = rest.strip_prefix("crate::") {
            (base, rest) = (Vec::new(), after);
        } else if rest.starts_with("super::") && is_outermost {
            while let Some(after) = rest.strip_prefix("super::") {
                base.pop();
                rest = after;
            }
        } else if !children.iter().any(|child| rest.starts_with(&format!("{child}::"))) {
            continue;
        }
        for path in tree(rest).0 {
            found.push(base.iter().cloned().chain(path).collect());
        }
    }
    found
}

/// The paths of a tree of imports, and the text behind it: `a::{b, c::D}` gives `[a, b]` and
/// `[a, c, D]`.
fn tree(text: &str) -> (Vec<Vec<String>>, &str) {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    let name = (name != "self" && !name.is_empty()).then(|| name.to_owned());
    let mut paths = Vec::new();
    if let Some(after) = rest.strip_prefix("::") {
        (paths, rest) = tree(after);
    } else if let Some(mut after) = rest.strip_prefix('{').filter(|_| name.is_none()) {
        while !after.trim_start().starts_with('}') && !after.is_empty() {
            let (more, behind) = tree(after);
            paths.extend(more);
            let end = behind.find([',', '}']).unwrap_or(behind.len());
            after = behind[end..].strip_prefix(',').unwrap_or(&behind[end..]);
        }
        rest = after.trim_start().strip_prefix('}').unwrap_or(after);
    }
    if paths.is_empty() {
        paths.push(Vec::new());
    }
    let named = |path: Vec<String>| name.iter().cloned().chain(path).collect();
    (paths.into_iter().map(named).collect(), rest)
}

/// No two files import each other, directly or through others. So a reader who goes from the bottom
/// up never meets an unknown name.
#[test]
fn no_files_import_each_other_in_a_circle() {
    for (folder, least) in [("src", 300), ("src/kernels", 50), ("perf/lab/src", 50)] {
        let (imports, in_circles) = circles(folder);
        assert!(imports > least, "imports are found in {folder}: {imports}");
        assert!(in_circles.is_empty(), "files of {folder} in circles: {in_circles:#?}");
    }
}

/// The number of imports between a folder's files, and the files that import each other in circles.
fn circles(folder: &str) -> (usize, Vec<String>) {
    // `src/kernels` is a crate of its own.
    let is_other = |path: &Path| folder == "src" && path.starts_with("kernels");
    let is_program = |path: &Path| path == Path::new("main.rs") || is_other(path);
    let sources: Vec<_> =
        sources_in(folder).into_iter().filter(|(path, _)| !is_program(path)).collect();
    let by_module = files_by_module(&sources);
    let mut imported = vec![BTreeSet::new(); sources.len()];
    for (module, index) in &by_module {
        let is_child = |other: &&Vec<String>| {
            other.len() == module.len() + 1 && other.starts_with(module.as_slice())
        };
        let children = by_module.keys().filter(is_child).filter_map(|child| child.last());
        let children: Vec<&String> = children.collect();
        for path in paths_named(&sources[*index].1, module, &children) {
            let target = (0..=path.len()).rev().find_map(|n| by_module.get(&path[..n]));
            imported[*index].extend(target.filter(|target| *target != index));
        }
    }
    // A file that imports no other that is left cannot be in a circle.
    let mut left: BTreeSet<usize> = (0..sources.len()).collect();
    while let Some(free) = left.iter().copied().find(|file| imported[*file].is_disjoint(&left)) {
        left.remove(&free);
    }
    // Nor can one that no other one imports.
    let is_imported = |file: usize, left: &BTreeSet<usize>| {
        left.iter().any(|other| imported[*other].contains(&file))
    };
    while let Some(free) = left.iter().copied().find(|file| !is_imported(*file, &left)) {
        left.remove(&free);
    }
    let names = left.iter().map(|file| sources[*file].0.display().to_string());
    (imported.iter().map(BTreeSet::len).sum(), names.collect())
}

#[test]
fn trees_of_imports_are_understood() {
    let paths = |text| tree(text).0.iter().map(|path| path.join("::")).collect::<Vec<_>>();
    assert_eq!(paths("a::b;"), ["a::b"]);
    assert_eq!(paths("a::{self, b, c::{D, E}};"), ["a", "a::b", "a::c::D", "a::c::E"]);
    assert_eq!(paths("a::{\n    b as c,\n    d,\n};"), ["a::b", "a::d"]);
}

/// `needle` stands in code only where `allowed` says.
fn only_in(needle: &str, allowed: impl Fn(&str) -> bool) {
    only_in_these(sources(), needle, allowed);
}

fn only_in_lab(needle: &str, allowed: impl Fn(&str) -> bool) {
    only_in_these(sources_in("perf/lab/src"), needle, allowed);
}

fn only_in_these(sources: Vec<(PathBuf, String)>, needle: &str, allowed: impl Fn(&str) -> bool) {
    for (path, text) in sources {
        let path = path.to_str().unwrap();
        for (number, line) in code(&text) {
            let found = line.contains(needle);
            assert!(!found || allowed(path), "{path}:{number}: {needle} may not stand here");
        }
    }
}

#[test]
fn outside_libraries_stay_where_they_belong() {
    only_in("glommio", |path| path.starts_with("server/io/"));
    only_in("llama_cpp", |path| path.starts_with("model/"));
    only_in("httparse", |path| path.starts_with("http/"));
    only_in("simd_json", |path| path.starts_with("api/"));
    // And where grammars that are written for it are tried.
    only_in("llguidance", |path| {
        let tests = ["chat/output/accepted.rs", "chat/output/walks.rs"];
        path.starts_with("constraint/") || tests.contains(&path)
    });
    only_in("arc_swap", |path| ["constraint/watch.rs", "server/control.rs"].contains(&path));
    only_in("sd_notify", |path| path == "systemd.rs");
    only_in("minijinja", |path| path.starts_with("chat/"));
    for name in ["may::", "may_minihttp", "prometheus_client"] {
        only_in(name, |path| path.starts_with("ops/"));
    }
    for name in ["perf_event::", "blazesym", "inferno", "object::"] {
        only_in(name, |path| path.starts_with("profile/"));
    }
    only_in("ureq", |path| {
        let files = ["cli/profile.rs", "cli/chat/client.rs"];
        path.starts_with("traces/") || path.starts_with("hub/") || files.contains(&path)
    });
    only_in("rustyline", |path| path == "cli/chat/editor.rs");
    only_in("ring::digest", |path| {
        let files = ["keys/key.rs", "lanes/disk.rs", "types/file_id.rs"];
        path.starts_with("hub/") || path.starts_with("disk/") || files.contains(&path)
    });
    only_in("ring::aead", |path| path == "disk/format.rs");
    only_in("libc::", |path| path.starts_with("ops/") || path.starts_with("memory/"));
    // A second I/O stack is in perf/lab alone, and nothing here uses that.
    for name in ["hyper", "plotters", "corelane_bench"] {
        only_in(name, |_| false);
    }
    only_in("tokio", |path| path.starts_with("server/io/"));
    // Under this name the table of imports would not see it.
    only_in("corelane_kernels::", |_| false);
    only_in_lab("llama_cpp", |path| path.starts_with("synth/"));
}

#[test]
fn unsafe_stands_in_few_places() {
    // Sockets are handed over to a runtime and looked at, the service manager gives some; the kernel is asked for a ring; the ops lane's connections are watched through theirs, and its
    // runtime's signal handlers are put back.
    let allowed = |path: &str| {
        path.starts_with("model/")
            || path.starts_with("kernels/")
            || path.starts_with("memory/")
            || path.starts_with("server/io/")
            || ["server/kernel.rs", "systemd.rs", "ops/workarounds.rs"].contains(&path)
    };
    for needle in ["unsafe {", "unsafe fn", "unsafe impl"] {
        only_in(needle, allowed);
        // A model's file is written with llama.cpp's own library.
        only_in_lab(needle, |path| path.starts_with("synth/"));
    }
}

/// `engine`, `scheduler`, `http`, `api` and `text` do no I/O and read no clock.
#[test]
fn the_pure_modules_are_pure() {
    let words = ["Instant", "SystemTime", "std::io::Read", "std::net", "std::fs", "std::thread"];
    for word in words.into_iter().chain(["clock::Clock", "unix_seconds"]) {
        only_in(word, |path| {
            let pure = ["engine/", "scheduler/", "http/", "api/", "text/"];
            !pure.iter().any(|pure| path.starts_with(pure))
        });
    }
}

/// No locks. (`.clippy.toml` refuses the types; this, the words.)
#[test]
fn nothing_is_locked() {
    for word in ["Mutex", "RwLock", "Condvar", "mpsc", "parking_lot", "crossbeam", "LazyLock"] {
        only_in(word, |_| false);
    }
}

#[test]
fn imports_are_understood() {
    assert_eq!(imports("use crate::a::{b, c::D, self}"), ["a::b", "a::c::D", "a"]);
    assert_eq!(imports("x: &crate::model::StepError,"), ["model::StepError"]);
    assert_eq!(imports("use crate::{a, b::c}"), ["a", "b::c"]);
}

/// One form of module files: `foo/mod.rs`, and no `foo.rs` beside `foo`.
#[test]
fn a_module_with_a_folder_is_in_that_folder() {
    for folder in ["src", "perf/lab/src"] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for (path, _) in sources_in(folder) {
            assert!(!root.join(path.with_extension("")).is_dir(), "{}", path.display());
        }
    }
}
