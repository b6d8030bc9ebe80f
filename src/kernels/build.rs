//! Compiles our operations of ggml against the sources of the llama.cpp that is linked.

mod llama_sources;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=llama_sources.rs");
    println!("cargo:rerun-if-changed=ggml.cpp");
    let ggml = llama_sources::llama_sources().0.join("ggml");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .file("ggml.cpp")
        .include(ggml.join("include"))
        .include(ggml.join("src"))
        .include(ggml.join("src/ggml-cpu"))
        // Headers of ggml define functions that not every file uses.
        .flag_if_supported("-Wno-unused-function")
        .compile("corelane_kernels_cpp");
}
