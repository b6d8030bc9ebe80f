#!/bin/sh
# Builds the program to give away: target/dist/corelane, for every x86-64 processor with AVX2 (x86-64-v3).
#
# llama.cpp is compiled for that baseline. corelane's own kernels choose AVX-512 VNNI, AVX-VNNI or AVX2 when
# they start. Beside the program lie its debug symbols, its manual pages, its completions and a bill of
# materials in SPDX. The same sources give the same bytes, wherever they lie.
set -eu
cd "$(dirname "$0")/.."
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
out=target/dist
export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8 TZ=UTC

# Neither language writes the names of this machine's folders into the program.
rust_names="--remap-path-prefix=$PWD=/corelane --remap-path-prefix=$cargo_home=/cargo"
c_names="-ffile-prefix-map=$PWD=/corelane -ffile-prefix-map=$cargo_home=/cargo"
export RUSTFLAGS="-C target-cpu=x86-64-v3 -C force-frame-pointers=yes $rust_names"
export CFLAGS="$c_names" CXXFLAGS="$c_names"
${CARGO:-cargo} build --release --locked --target-dir target/portable

rm -rf "$out"
mkdir -p "$out/man" "$out/completions"
built=target/portable/release/corelane
objcopy --only-keep-debug --compress-debug-sections "$built" "$out/corelane.debug"
objcopy --strip-all "$built" "$out/corelane"
(cd "$out" && objcopy --add-gnu-debuglink=corelane.debug corelane)

"$out/corelane" man "$out/man"
"$out/corelane" completions bash > "$out/completions/corelane.bash"
"$out/corelane" completions zsh > "$out/completions/_corelane"
"$out/corelane" completions fish > "$out/completions/corelane.fish"
python3 packaging/sbom.py > "$out/corelane.spdx.json"
(cd "$out" && sha256sum corelane corelane.debug corelane.spdx.json | tee SHA256SUMS)
