#!/bin/sh
# Runs a command, such as cargo, in a Debian 11 that has nothing but a compiler. What is built there needs glibc 2.30
# and the libstdc++ of GCC 9, or later ones: Debian 11, Ubuntu 20.04, RHEL 9. (RHEL 8 has glibc 2.28. Debian 10, which has
# that too, is no longer on Debian's mirrors. musl has no C++ compiler in Debian.)
#
#   sudo WITHIN=packaging/old-debian.sh packaging/dist.sh
#
# It needs debootstrap, a mirror of Debian, and the Rust toolchain of this machine, which it lends to that Debian. The
# system is made once, in target/debian-11; the sources and target are those outside.
set -eu
# Whatever is mounted here, nobody else sees, and it is gone when this ends, however it ends.
[ -n "${PRIVATE_MOUNTS:-}" ] || exec env PRIVATE_MOUNTS=1 unshare --mount --propagation private "$0" "$@"
cd "$(dirname "$0")/.."
root=$PWD/target/debian-11
rustup=${RUSTUP_HOME:-$HOME/.rustup}
cargo=${CARGO_HOME:-$HOME/.cargo}

if [ ! -e "$root/ready" ]; then
    rm -rf "$root"
    mkdir -p "$root"
    mirror=$(apt-get indextargets --format '$(REPO_URI)' | head -n 1)
    debootstrap --variant=minbase bullseye "$root" "$mirror"
    chroot "$root" apt-get update -qq
    chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        binutils ca-certificates clang cmake g++ libclang-dev make pkg-config
    touch "$root/ready"
fi

for folder in "$PWD" "$rustup" "$cargo" /proc /dev; do
    mkdir -p "$root$folder"
    mount --bind "$folder" "$root$folder"
done

# The compiler is a stable one: a wrapper of rustup would try to ask the network for the toolchain of a file.
toolchain=$(rustup show active-toolchain | cut -d' ' -f1)
chroot "$root" env HOME=/root CARGO_HOME="$cargo" RUSTUP_HOME="$rustup" \
    PATH="$rustup/toolchains/$toolchain/bin:$cargo/bin:/usr/bin:/bin:/usr/sbin:/sbin" \
    sh -c 'cd "$1"; shift; exec "$@"' sh "$PWD" "$@"
