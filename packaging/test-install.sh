#!/bin/sh
# Installs the tar file by install.sh in a Debian that has nothing else, as a user without rights, and asks for a text.
#
#   sudo packaging/test-install.sh target/dist
set -eu
. "$(dirname "$0")/clean-root.sh"
dist=$(realpath "$1")
package=$(echo "$dist"/corelane-*-linux-"$(uname -m)".tar.gz)
make_root
mkdir "$root/release"
cp "$dist/install.sh" "$dist/PACKAGES.sha256" "$package" "$root/release/"
in_root useradd --create-home user
as_user() { in_root setpriv --reuid=user --regid=user --init-groups env HOME=/home/user "$@"; }
ask_with=/home/user/.local/bin/corelane
timed setpriv --reuid=user --regid=user --init-groups env HOME=/home/user sh /release/install.sh
in_root test ! -e /usr/bin/corelane || fail "it wrote outside the user's folder"
# Again, as an upgrade: a file that only the old version had is removed.
echo bin/corelane-old >> "$root/home/user/.local/share/doc/corelane/files"
touch "$root/home/user/.local/bin/corelane-old"
as_user sh /release/install.sh > "$work/log"
[ ! -e "$root/home/user/.local/bin/corelane-old" ] || fail "an upgrade leaves old files"
as_user sh /release/install.sh --uninstall > "$work/log"
[ -z "$(find "$root/home/user" -name '*corelane*' -type f)" ] || fail "files are left"

# A damaged file is refused, and nothing is installed.
echo damaged >> "$root/release/$(basename "$package")"
! as_user sh /release/install.sh > "$work/log" 2>&1 || fail "a damaged file was installed"
grep -q "is damaged" "$work/log" || { cat "$work/log"; fail "it does not say what is wrong"; }
[ ! -e "$root$ask_with" ] || fail "a damaged file left a program"
echo "uninstalled; a damaged file is refused"
