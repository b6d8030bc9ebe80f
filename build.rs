//! Compiles our C++ against the sources of the llama.cpp that is linked.

#[path = "src/kernels/llama_sources.rs"]
mod llama_sources;

use std::env;

fn main() {
    let (llama, settings) = llama_sources::llama_sources();
    compile_baseline(&settings);
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/kernels/llama_sources.rs");
    println!("cargo:rerun-if-changed=src/model/guard.cpp");
    // A test compares the page of the API with llama-server's README.
    println!("cargo:rustc-env=LLAMA_SOURCES={}", llama.display());
    let ggml = llama.join("ggml");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .file("src/model/guard.cpp")
        .include(llama.join("include"))
        .include(ggml.join("include"))
        .include(ggml.join("src"))
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
