#!/bin/sh
# Runs the server as a container with Docker's defaults would, as far as that goes without Docker: user 10001, no
# capabilities, no new privileges, Docker's seccomp filter, 64 KiB of lockable memory, a root that cannot be written to, and
# a quota of processor time. Asks for a text.
#
#   sudo packaging/test-container.sh target/dist
set -eu
quota=
. "$(dirname "$0")/clean-root.sh"
dist=$(realpath "$1")
end() {
    finish
    [ -z "$quota" ] || { sleep 1; rmdir "$quota" || true; }
}
trap end EXIT
make_root libstdc++6
cp "$dist/corelane" "$root/usr/bin/"
mount -o remount,ro,bind "$root"

# Half of two cores, where this process may make a control group (version 2, or else 1).
for group in /sys/fs/cgroup /sys/fs/cgroup/cpu; do
    [ -e "$group/cgroup.procs" ] || continue
    if mkdir -p "$group/corelane-test" 2> /dev/null; then
        quota=$group/corelane-test
        if [ -e "$quota/cpu.max" ]; then echo "100000 100000" > "$quota/cpu.max"; else echo 100000 > "$quota/cpu.cfs_quota_us"; fi
        break
    fi
done

began=$(date +%s.%N)
sh -c '[ -z "$1" ] || echo $$ > "$1/cgroup.procs"; shift; exec "$@"' sh "$quota" \
    "$tree/packaging/docker_seccomp.py" prlimit --memlock=65536 chroot "$root" \
    setpriv --reuid=10001 --regid=10001 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs \
    env -i PATH=/usr/bin corelane serve --host 127.0.0.1 --port 18480 --ops-addr 127.0.0.1:18490 > "$work/banner" 2> "$work/log" &
server=$!
answer=$(curl --silent --fail --retry 20 --retry-connrefused --retry-all-errors --retry-delay 1 http://127.0.0.1:18480/v1/completions \
    --data '{"prompt": "Once upon a time", "max_tokens": 20}') || { cat "$work/banner" "$work/log"; fail "no text"; }
echo "$answer" | grep -q '"text"' || fail "$answer"
took=$(since "$began")
grep "lanes " "$work/banner"
grep -E "WARN|epoll" "$work/log" | sed 's/.*\(INFO\|WARN\)/\1/' || true
curl --silent --fail http://127.0.0.1:18490/ready > /dev/null || fail "it is not ready"
# A schema is tried in a process of the server's own.
schema='{"prompt": "{", "max_tokens": 20, "json_schema": {"type": "object"}}'
curl --silent --fail http://127.0.0.1:18480/completion --data "$schema" | grep -q '"content"' || fail "no constrained text"
kill "$server"
wait "$server" || fail "the server did not end in order"
server=
[ -z "$quota" ] && echo "without a quota: this machine lets nobody make a control group"
echo "$suite: $took s to the first answer (Docker's defaults)"
