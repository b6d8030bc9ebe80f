#!/bin/sh
# Installs, upgrades and purges the package in a Debian that has nothing else, and asks the server for a text.
#
#   sudo packaging/test-deb.sh target/dist/corelane_*_amd64.deb
#
# It needs debootstrap, curl and a mirror of Debian. systemd does not run in a chroot, so the server is started by
# hand there, as the user of the service and with its configuration.
set -eu
. "$(dirname "$0")/clean-root.sh"
package=$(realpath "$1")
ask() {
    curl --silent --fail --retry 20 --retry-connrefused --retry-delay 1 http://127.0.0.1:18480/v1/completions \
        --data '{"prompt": "Once upon a time", "max_tokens": 20}'
}
serve() {
    (exec chroot "$root" setpriv --reuid=corelane --regid=corelane --init-groups \
        corelane serve --config /etc/corelane/corelane.toml --port 18480 --ops-addr none --log warn > /dev/null) &
    server=$!
    ask | grep -q '"text"' || fail "no text"
    kill "$server"
    wait "$server" || fail "the server did not end in order"
    server=
}

make_root
# apt needs the list of packages for what the package depends on.
in_root apt-get update -qq > "$work/log" 2>&1 || { tail "$work/log"; fail "apt-get update"; }
cp "$package" "$root/corelane.deb"

began=$(date +%s.%N)
in_root apt-get install --yes --no-install-recommends -qq /corelane.deb > "$work/log" 2>&1 \
    || { cat "$work/log"; fail install; }
in_root getent passwd corelane > /dev/null || fail "there is no user corelane"
[ "$(in_root stat -c '%U:%G %a' /etc/corelane)" = "root:corelane 750" ] || fail "anybody may read /etc/corelane"
for file in usr/share/man/man1/corelane.1.gz usr/share/bash-completion/completions/corelane \
    usr/lib/systemd/system/corelane.service usr/lib/systemd/system/corelane.socket \
    usr/lib/systemd/system/corelane@.service usr/share/doc/corelane/corelane.spdx.json \
    usr/bin/corelane-bench usr/share/man/man1/corelane-bench-ladder.1.gz \
    usr/share/bash-completion/completions/corelane-bench usr/share/zsh/vendor-completions/_corelane-bench; do
    [ -e "$root/$file" ] || fail "there is no /$file"
done
in_root corelane bench --help > /dev/null || fail "corelane bench does not start"
[ -L "$root/etc/systemd/system/sockets.target.wants/corelane.socket" ] || fail "the socket is not enabled"
[ "$(in_root stat -c '%U:%G %a' /var/cache/corelane)" = "corelane:corelane 750" ] || fail "no folder for models"
serve
echo "$suite: $(since "$began") s to the first answer, $(du -sh --apparent-size "$package" | cut -f1) (apt-get install)"
in_root corelane doctor --config /etc/corelane/corelane.toml > "$work/doctor" || { cat "$work/doctor"; fail doctor; }

# An upgrade keeps the administrator's configuration.
echo 'parallel = 3' > "$root/etc/corelane/corelane.toml"
mkdir "$work/next"
dpkg-deb -R "$package" "$work/next/package"
sed -i 's/^Version: .*/&+next/' "$work/next/package/DEBIAN/control"
dpkg-deb --build "$work/next/package" "$root/next.deb" > /dev/null
in_root dpkg --force-confold -i /next.deb > "$work/log" 2>&1 || { cat "$work/log"; fail upgrade; }
[ "$(cat "$root/etc/corelane/corelane.toml")" = 'parallel = 3' ] || fail "the upgrade replaced the configuration"
serve

in_root apt-get purge --yes -qq corelane > "$work/log" 2>&1 || { cat "$work/log"; fail purge; }
! in_root getent passwd corelane > /dev/null || fail "the user is left"
left=$(find "$root" -xdev -path "$root/proc" -prune -o -path "$root/sys" -prune -o -name '*corelane*' -print | grep -vE '\.deb$|/var/(log|cache)/' || true)
[ -z "$left" ] || fail "left behind: $left"
echo "upgraded and purged"
