#!/bin/sh
# Installs the wheel by pip in a Debian that has nothing but Python, without a network, and asks for a text.
#
#   sudo packaging/test-wheel.sh target/dist
set -eu
. "$(dirname "$0")/clean-root.sh"
dist=$(realpath "$1")
package=$(echo "$dist"/corelane-*manylinux*_"$(uname -m)".whl)
make_root python3 python3-venv
cp "$package" "$root/"
in_root python3 -m venv /venv
ask_with=/venv/bin/corelane
timed /venv/bin/pip install --quiet --no-index --disable-pip-version-check "/$(basename "$package")"
in_root /venv/bin/pip uninstall --quiet --yes corelane > "$work/log" 2>&1 || { cat "$work/log"; fail uninstall; }
[ ! -e "$root$ask_with" ] || fail "the program is left"
