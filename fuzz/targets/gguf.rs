//! Model files: each is loaded, or refused with a sentence.
#![no_main]

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

use corelane::kernels::KernelChoice;
use corelane::model::load::{Source, load};

corelane_fuzz::target!(|bytes: &[u8]| {
    let name = format!("/dev/shm/corelane-fuzz-{}.gguf", std::process::id());
    let mut file = File::create(&name).expect("a file in memory");
    std::fs::remove_file(&name).expect("it was just made");
    file.write_all(bytes).expect("there is memory");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    if let Err(error) = load(&Source::File(path.into()), KernelChoice::Llama, |_| true) {
        assert!(!error.to_string().is_empty());
    }
});
