//! The model inside the binary, for first runs, tests and demos. It was trained for corelane;
//! `tools/builtin-model/README.md` describes it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};

/// The GGUF file.
pub const GGUF: &[u8] = include_bytes!("builtin.gguf");

/// The file in memory, under a path that llama.cpp can open.
pub struct Image {
    file: File,
}

impl Image {
    /// Copies the model into an anonymous file.
    ///
    /// # Errors
    /// If the kernel refuses a memory file.
    pub fn new() -> io::Result<Self> {
        let mut file = File::from(memfd_create("corelane-builtin.gguf", MemfdFlags::CLOEXEC)?);
        file.write_all(GGUF)?;
        Ok(Self { file })
    }

    /// A path to the anonymous file, valid while this value lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}
