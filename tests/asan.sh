#!/bin/sh
# Runs the Rust tests under AddressSanitizer, llama.cpp's code included. Takes half an hour on two
# cores, most of it to compile. Arguments go to `cargo test`, to choose tests.
#
# The sanitizer needs no nightly toolchain: the stable one ships its runtime and hides only the flag.
set -eu
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
name=$(echo "$host" | tr - _)
flags="-fsanitize=address -fno-omit-frame-pointer -g1"
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=address -C target-cpu=native -C force-frame-pointers=yes"
export "CFLAGS_$name=$flags" "CXXFLAGS_$name=$flags"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/asan"
# Leaks are for the soak to find: a process that ends leaves lanes' memory to the kernel.
export ASAN_OPTIONS="detect_leaks=0:detect_stack_use_after_return=0:${ASAN_OPTIONS:-}"
# With a target, the flags above do not reach build scripts and macros.
# The sanitizer switches core dumps off itself, because its processes map 20 TB. Its stack frames are
# larger than those that the stacks are made for.
exec cargo test --release --target "$host" "$@" -- --skip core_dumps_hold_no_keys \
    --skip a_long_word_does_not_overflow_a_stack
