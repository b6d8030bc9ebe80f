//! The command line of `corelane-bench`.
#![deny(unsafe_code)]

mod cli;

use std::io::Write;
use std::process::ExitCode;

use corelane::constraint::trial::{self, TRIAL_ARGUMENT};
use corelane::{lanes, memory};

/// The ladder shows each lane's allocations; see `corelane::memory`.
#[global_allocator]
static ALLOCATOR: memory::CountingAllocator = memory::CountingAllocator;

fn main() -> ExitCode {
    // The ladder's server starts its program again to try a constraint, as `corelane` does.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == TRIAL_ARGUMENT) {
        return trial::run_helper();
    }
    memory::give_large_blocks_back();
    lanes::end_on_panic();
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "corelane-bench: {message}"); // it may be closed
            ExitCode::FAILURE
        }
    }
}
