#!/bin/sh
# Installs the package for npm in a Debian that has nothing but Node.js, without a network, and asks for a text.
#
#   sudo packaging/test-npm.sh target/dist
set -eu
. "$(dirname "$0")/clean-root.sh"
dist=$(realpath "$1")
package=$(echo "$dist"/corelane-*-npm-"$(uname -m)".tgz)
make_root npm
cp "$package" "$root/"
ask_with=corelane
in_root() { chroot "$root" env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"; }
timed npm install --global --offline --no-audit --no-fund --no-update-notifier "/$(basename "$package")"
in_root npm uninstall --global corelane > "$work/log" 2>&1 || { cat "$work/log"; fail uninstall; }
! in_root sh -c "command -v corelane" > /dev/null || fail "the program is left"
