#!/bin/sh
# Unpacks the .rpm with rpm itself, and asks for a text. The root is a Debian, as only Debian's mirrors are at hand: its
# rpm knows no packages that the .rpm depends on, so they are not checked, and systemd does not run.
#
#   sudo packaging/test-rpm.sh target/dist
set -eu
. "$(dirname "$0")/clean-root.sh"
dist=$(realpath "$1")
package=$(echo "$dist"/corelane-*."$(uname -m)".rpm)
make_root rpm
cp "$package" "$root/"
ask_with=corelane
timed rpm --install --nodeps "/$(basename "$package")"
in_root getent passwd corelane > /dev/null || fail "there is no user corelane"
[ "$(in_root stat -c '%U:%G %a' /etc/corelane)" = "root:corelane 750" ] || fail "anybody may read /etc/corelane"
for file in usr/lib/systemd/system/corelane.service usr/share/man/man1/corelane.1 etc/corelane/corelane.toml; do
    [ -e "$root/$file" ] || fail "there is no /$file"
done
in_root rpm --query --requires corelane | grep -q GLIBC || fail "it does not say which glibc it needs"
in_root rpm --erase corelane > "$work/log" 2>&1 || { cat "$work/log"; fail erase; }
[ ! -e "$root/usr/bin/corelane" ] || fail "the program is left"
