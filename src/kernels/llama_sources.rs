//! Finds llama.cpp's sources. Both build scripts use it.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// llama.cpp's sources, and the settings that cmake had for them. `llama-cpp-sys-2` publishes only
/// cmake's install folder; the cache in the build folder beside it names the source folder.
pub fn llama_sources() -> (PathBuf, String) {
    let installed = env::var("DEP_LLAMA_GGML_CMAKE_DIR").expect(
        "llama-cpp-sys-2 tells where it installed ggml's cmake files (its `links` metadata)",
    );
    let out = Path::new(&installed).ancestors().nth(2).expect("they lie in OUT_DIR/lib/cmake");
    let cache = out.join("build/CMakeCache.txt");
    let text = fs::read_to_string(&cache)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", cache.display()));
    let home = text.lines().find_map(|line| line.strip_prefix("CMAKE_HOME_DIRECTORY:INTERNAL="));
    let home = home.unwrap_or_else(|| panic!("no home directory in {}", cache.display()));
    (PathBuf::from(home), text)
}
