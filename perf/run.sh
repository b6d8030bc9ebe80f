#!/bin/sh
# Takes every study on this machine, into perf/runs/<date>-<machine>-<commit>/.
#
#   perf/run.sh [NAME]     NAME of the machine; its CPU's model by default
set -eu
cd "$(dirname "$0")/.."
. perf/common.sh

name=${1:-$(sed -n 's/^model name.*: *//p' /proc/cpuinfo | head -n 1 | tr -cs 'A-Za-z0-9' '-' | tr 'A-Z' 'a-z' | cut -c1-32 | sed 's/-*$//')}
out=perf/runs/$(date +%F)-$name-$(git rev-parse --short HEAD)
mkdir -p "$out"
trap stop_server EXIT
large_model

{
	lscpu | grep -E '^(Model name|CPU\(s\)|Thread|L2|L3|NUMA node\(s\))'
	grep MemTotal /proc/meminfo
	uname -sr
	rustc --version
	git log -1 --format='commit %H'
	sha256sum "$model" src/model/builtin/builtin.gguf | sed 's, [^ ]*/, ,'
} >"$out/machine.txt"

# study NAME COMMAND...: runs it, keeps what it printed behind the command.
study() {
	study=$1
	shift
	echo "== $study: $*"
	{
		echo "\$ $*" | sed "s,$model,MODEL,g"
		"$@" 2>&1
	} | tee "$out/$study.txt"
}

study ladder "$corelane" bench ladder -m "$model" --json "$out/ladder.json" --svg "$out/ladder.svg"
study ladder-one-at-a-time "$corelane" bench ladder -m "$model" --concurrency 1 --requests 8 --json "$out/ladder-one-at-a-time.json"
study ladder-builtin "$corelane" bench ladder --concurrency 32 --requests 320 --rounds 5 --json "$out/ladder-builtin.json"
study ladder-builtin-64 "$corelane" bench ladder --concurrency 64 --requests 640 --rung 0,4,9 --json "$out/ladder-builtin-64.json"
study spine-builtin perf/spine.py
study spine perf/spine.py --model "$model"
study memory perf/memory.py --model "$model"
study scrape perf/scrape.py --model "$model"

start_server -m "$model"
study stall "$corelane" bench serve --base-url "$url" --scenario stall --save-result --result-filename "$out/stall.json"
study burst "$corelane" bench serve --base-url "$url" --scenario burst --save-result --result-filename "$out/burst.json"
stop_server

study criterion cargo bench --quiet
study settings perf/settings.py --model "$model"
echo "$out"
