//! Compiles our operations of ggml against the sources of the llama.cpp that is linked, and takes the grids
//! of the IQ2 and IQ3 types from them.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

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
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("grids.rs"), grids(&ggml.join("src/ggml-common.h")))
        .expect("the output folder can be written");
}

/// ggml's tables of sizes as constants, four sizes in a word.
fn grids(header: &Path) -> String {
    println!("cargo:rerun-if-changed={}", header.display());
    let text = fs::read_to_string(header)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", header.display()));
    let mut constants = String::new();
    for (table, rows, digits) in [
        ("iq2xxs_grid", 256, 16),
        ("iq2xs_grid", 512, 16),
        ("iq2s_grid", 1024, 16),
        ("iq3xxs_grid", 256, 8),
        ("iq3s_grid", 512, 8),
    ] {
        let begin = text.find(&format!(" {table}, {rows})")).unwrap_or_else(|| {
            panic!("{} has no table {table} with {rows} rows", header.display())
        });
        let (numbers, _) = text[begin..].split_once("GGML_TABLE_END()").expect("the table ends");
        let numbers = numbers.split(|letter: char| !letter.is_ascii_alphanumeric());
        let rows_found: Vec<&str> = numbers.filter_map(|word| word.strip_prefix("0x")).collect();
        assert_eq!(rows_found.len(), rows, "rows of {table}");
        if let Some(row) = rows_found.iter().find(|row| row.len() != digits) {
            panic!("{table} has the row {row}, which has not {digits} digits");
        }
        // The first column of a row is its lowest byte.
        let words =
            rows_found.iter().flat_map(|row| (0..digits / 8).rev().map(|at| &row[8 * at..][..8]));
        let words: String = words.map(|word| format!("0x{word},")).collect();
        let (name, count) = (table.to_uppercase(), rows * digits / 8);
        writeln!(constants, "const {name}: [u32; {count}] = [{words}];").expect("a string grows");
    }
    constants
}
