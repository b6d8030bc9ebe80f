# Sourced by packaging/test-*.sh: a Debian that has nothing else, in which a package is installed and asked. The base is
# made once, in target/clean-SUITE; each test has a copy of its own, which is thrown away.
#
#   SUITE    the Debian [default: this machine's]
#
# It needs root, debootstrap and a mirror of Debian.

# Whatever is mounted here, nobody else sees, and it is gone when the test ends, however it ends.
[ -n "${PRIVATE_MOUNTS:-}" ] || exec env PRIVATE_MOUNTS=1 unshare --mount --propagation private "$0" "$@"

tree=$(realpath "$(dirname "$0")/..")
suite=${SUITE:-$(. /etc/os-release; echo "$VERSION_CODENAME")}
base=$tree/target/clean-$suite
work=$(mktemp -d)
root=$work/root
server=
# Only files of the copy are removed: what is mounted in it is another file system.
finish() {
    if [ -n "$server" ]; then
        kill "$server" 2> /dev/null || true
        wait "$server" || true
    fi
    umount --lazy "$root/proc" "$root/sys" "$root/dev" "$root" 2> /dev/null || true
    rm -rf --one-file-system "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
fail() { echo "FAILED: $*" >&2; exit 1; }
in_root() { chroot "$root" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }

# Makes the root, with these packages of Debian.
make_root() {
    [ -e "$base/ready" ] || {
        rm -rf "$base"
        mkdir -p "$base"
        mirror=$(apt-get indextargets --format '$(REPO_URI)' | head -n 1)
        debootstrap --variant=minbase "$suite" "$base" "$mirror" > "$work/log" 2>&1 || { tail "$work/log"; fail debootstrap; }
        touch "$base/ready"
    }
    mkdir -p "$root" "$work/upper" "$work/workdir"
    mount -t overlay overlay -o "lowerdir=$base,upperdir=$work/upper,workdir=$work/workdir" "$root"
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount --bind /dev "$root/dev"
    if [ $# -gt 0 ]; then
        in_root apt-get update -qq > "$work/log" 2>&1 && in_root apt-get install -y -qq --no-install-recommends "$@" >> "$work/log" 2>&1 \
            || { tail "$work/log"; fail "$*"; }
    fi
}

since() { echo "$1 $(date +%s.%N)" | awk '{printf "%.1f", $2 - $1}'; }

# Installs by these words, asks with the program `ask_with`, and says how long both took.
timed() {
    began=$(date +%s.%N)
    in_root "$@" > "$work/log" 2>&1 || { cat "$work/log"; fail "$*"; }
    answer=$(in_root "$ask_with" run --temp 0 "Once upon a time" 2> "$work/log") || { cat "$work/log"; fail "no answer"; }
    took=$(since "$began")
    [ -n "$answer" ] || fail "the answer is empty"
    echo "$suite: $took s to the first answer, $(du -sh --apparent-size "$package" | cut -f1) ($*)"
}
