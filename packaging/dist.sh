#!/bin/sh
# Builds the programs to give away: corelane, and corelane-bench, which measures it.
#
#   packaging/dist.sh            target/dist/corelane, for every x86-64 processor with AVX2 (x86-64-v3)
#   packaging/dist.sh aarch64    target/dist-aarch64/corelane, for ARM processors with dot products (ARMv8.2)
#
# llama.cpp is compiled for that baseline. On x86-64, corelane's own kernels choose AVX-512 VNNI, AVX-VNNI or AVX2
# when they start; on ARM, llama.cpp's compute. Beside the programs lie their debug symbols, manual pages and
# completions, and a bill of materials in SPDX. The same sources give the same bytes, wherever they lie.
#
# WITHIN is a program that runs the compilers elsewhere: packaging/old-debian.sh.
set -eu
cd "$(dirname "$0")/.."
arch=${1:-x86_64}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8 TZ=UTC

case $arch in
    x86_64) out=target/dist baseline="-C target-cpu=x86-64-v3" ;;
    aarch64) out=target/dist-aarch64 baseline= CMAKE_PROJECT_INCLUDE=$PWD/packaging/aarch64.cmake
        export CMAKE_PROJECT_INCLUDE ;;
    *) echo "packaging/dist.sh: the processor is x86_64 or aarch64, not $arch" >&2; exit 1 ;;
esac

# For another processor than this machine's: Debian's cross compiler, and qemu to print the manual.
target=$arch-unknown-linux-gnu built=target/portable/release run= objcopy=objcopy
[ "$arch" = "$(uname -m)" ] || {
    name=$(echo "$target" | tr - _)
    NAME=$(echo "$name" | tr '[:lower:]' '[:upper:]')
    export "CARGO_TARGET_${NAME}_LINKER=$arch-linux-gnu-gcc"
    export "CC_$name=$arch-linux-gnu-gcc" "CXX_$name=$arch-linux-gnu-g++"
    export "BINDGEN_EXTRA_CLANG_ARGS_$name=-I/usr/$arch-linux-gnu/include"
    CARGO_BUILD_TARGET=$target
    export CARGO_BUILD_TARGET
    built=target/portable/$target/release
    run="qemu-$arch-static -L /usr/$arch-linux-gnu"
    objcopy=$arch-linux-gnu-objcopy
}

# Neither language writes the names of this machine's folders into the program.
rust_names="--remap-path-prefix=$PWD=/corelane --remap-path-prefix=$cargo_home=/cargo"
c_names="-ffile-prefix-map=$PWD=/corelane -ffile-prefix-map=$cargo_home=/cargo"
export RUSTFLAGS="$baseline -C force-frame-pointers=yes $rust_names"
export CFLAGS="$c_names" CXXFLAGS="$c_names"
${WITHIN:-} ${CARGO:-cargo} build --release --locked --target-dir target/portable

rm -rf "$out"
mkdir -p "$out/man" "$out/completions"
for program in corelane corelane-bench; do
    "$objcopy" --only-keep-debug --compress-debug-sections "$built/$program" "$out/$program.debug"
    "$objcopy" --strip-all "$built/$program" "$out/$program"
    (cd "$out" && "$objcopy" --add-gnu-debuglink="$program.debug" "$program")
    # corelane-bench comes last: its own pages replace those of `corelane bench`.
    $run "$out/$program" man "$out/man"
    for shell in bash:$program.bash zsh:_$program fish:$program.fish; do
        $run "$out/$program" completions "${shell%%:*}" > "$out/completions/${shell#*:}"
    done
done
python3 packaging/sbom.py "$target" > "$out/corelane.spdx.json"
(cd "$out" && sha256sum corelane corelane-bench ./*.debug corelane.spdx.json | tee SHA256SUMS)
