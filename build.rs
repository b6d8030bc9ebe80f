//! Compiles our C++ against the sources of the llama.cpp that is linked.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let (llama, settings) = llama_sources();
    compile_baseline(&settings);
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/kernels/ggml.cpp");
    println!("cargo:rerun-if-changed=src/model/guard.cpp");
    // A test compares the page of the API with llama-server's README.
    println!("cargo:rustc-env=LLAMA_SOURCES={}", llama.display());
    let ggml = llama.join("ggml");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .files(["src/kernels/ggml.cpp", "src/model/guard.cpp"])
        .include(llama.join("include"))
        .include(ggml.join("include"))
        .include(ggml.join("src"))
        .include(ggml.join("src/ggml-cpu"))
        // Headers of ggml define functions that not every file uses.
        .flag_if_supported("-Wno-unused-function")
        .compile("corelane_cpp");
}

/// A program for a newer processor than the oldest one says so where it does not run.
fn compile_baseline(settings: &str) {
    println!("cargo:rerun-if-changed=src/baseline.c");
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    let oldest = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") if features.split(',').any(|feature| feature == "avx2") => "x86-64",
        // As packaging/aarch64.cmake has it.
        Ok("aarch64") if settings.contains("GGML_CPU_ARM_ARCH:STRING=armv8.2-a") => "armv8-a",
        _ => return,
    };
    cc::Build::new()
        .file("src/baseline.c")
        .flag(format!("-march={oldest}"))
        .link_lib_modifier("+whole-archive") // nothing calls it
        .compile("corelane_baseline");
}

/// llama.cpp's sources, and the settings that cmake had for them. `llama-cpp-sys-2` publishes only
/// cmake's install folder; the cache in the build folder beside it names the source folder.
fn llama_sources() -> (PathBuf, String) {
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
