#!/bin/sh
# Installs corelane for one user, without root: sh install.sh --help says more.
set -eu
say() { echo "corelane: $*"; }
fail() { echo "corelane: $*" >&2; exit 1; }

prefix=${PREFIX:-$HOME/.local}
list=$prefix/share/doc/corelane/files

# Nothing runs before the whole script has arrived.
main() {
    case ${1:-} in
        --uninstall) uninstall ;;
        -h | --help) help ;;
        -*) fail "there is no flag $1; --help shows what there is" ;;
        *) install "${1:-}" ;;
    esac
}

help() {
    cat << 'END'
Installs corelane for one user, without root, from the tar file of a release. It says what it does.

  sh install.sh                the tar file that lies beside this script
  sh install.sh URL            the one of a release, by the address of its folder
  sh install.sh --uninstall

PREFIX is the folder to install into [default: ~/.local]. The programs go to PREFIX/bin, manual pages and
completions to PREFIX/share. The tar file is checked against PACKAGES.sha256, which lies beside it.
END
}

uninstall() {
    [ -e "$list" ] || fail "nothing was installed into $prefix"
    while read -r file; do rm -f "$prefix/$file"; done < "$list"
    rm -f "$list"
    rmdir "$prefix/share/doc/corelane" 2> /dev/null || true
    say "removed from $prefix; models that were downloaded stay"
}

install() {
    [ "$(uname -s)" = Linux ] || fail "it runs on Linux, and this is $(uname -s)"
    machine=$(uname -m)
    case $machine in
        x86_64) grep -qw avx2 /proc/cpuinfo || fail "this processor has no AVX2, which the program needs" ;;
        aarch64) grep -qw asimddp /proc/cpuinfo || fail "this processor has no dot products (ARMv8.2), which the program needs" ;;
        *) fail "there is no program for $machine, only for x86_64 and aarch64" ;;
    esac

    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    if [ -n "$1" ]; then
        fetch "$1/PACKAGES.sha256" "$work/PACKAGES.sha256"
    else
        folder=$(dirname "$0")
        [ -e "$folder/PACKAGES.sha256" ] || fail "there is no PACKAGES.sha256 beside $0; name the release: sh install.sh URL"
        cp "$folder/PACKAGES.sha256" "$work/"
    fi
    tar=$(sed -n "s/^[0-9a-f]*  \(corelane-[^ ]*-linux-$machine\.tar\.gz\)$/\1/p" "$work/PACKAGES.sha256")
    [ -n "$tar" ] || fail "the release has no program for $machine"
    say "getting $tar"
    if [ -n "$1" ]; then fetch "$1/$tar" "$work/$tar"; else cp "$folder/$tar" "$work/"; fi
    (cd "$work" && grep "  $tar\$" PACKAGES.sha256 | sha256sum -c - > /dev/null) \
        || fail "$tar is damaged: its checksum is not that of PACKAGES.sha256; nothing was installed"

    tar -xzf "$work/$tar" -C "$work"
    unpacked=$work/${tar%.tar.gz}
    "$unpacked/bin/corelane" --version > /dev/null 2> "$work/error" \
        || fail "the program does not run here: $(head -n 1 "$work/error"); nothing was installed"
    (cd "$unpacked" && find . -type f | sed 's|^\./||') > "$work/files"
    # Until all is done, the list has the files of both versions, so that --uninstall finds all that is there.
    mkdir -p "$(dirname "$list")"
    [ ! -e "$list" ] || cp "$list" "$work/before"
    cat "$work/files" >> "$list"
    while read -r file; do
        mkdir -p "$prefix/$(dirname "$file")"
        # A running program's file is replaced, not written to.
        cp "$unpacked/$file" "$prefix/$file.new"
        mv -f "$prefix/$file.new" "$prefix/$file"
    done < "$work/files"
    if [ -e "$work/before" ]; then
        grep -vxFf "$work/files" "$work/before" | while read -r file; do rm -f "$prefix/$file"; done
    fi
    cp "$work/files" "$list"

    say "installed $("$prefix/bin/corelane" --version) into $prefix ($(du -sh "$unpacked" | cut -f1)); sh install.sh --uninstall removes it"
    case :$PATH: in
        *":$prefix/bin:"*) begin=corelane ;;
        *) begin=$prefix/bin/corelane
            say "$prefix/bin is not in your PATH; add it in your shell's profile: export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
    say "try it: $begin run \"Once upon a time\""
}

fetch() {
    if command -v curl > /dev/null; then
        curl --fail --silent --show-error --location --output "$2" "$1" || fail "$1 could not be downloaded"
    elif command -v wget > /dev/null; then
        wget --quiet --output-document="$2" "$1" || fail "$1 could not be downloaded"
    else
        fail "neither curl nor wget is here to download with"
    fi
}

main "$@"
