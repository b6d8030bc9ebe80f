#!/bin/sh
# Records a workload with perf and draws a flamegraph for each lane.
#
#   perf/flamegraph.sh WORKLOAD [SECONDS]
#
# WORKLOAD  what runs                                            model
#   rung0     the bare model: the ladder's rung 0, 8 at a time     Qwen3-0.6B's shape
#   streams8  the server, 8 streams                                Qwen3-0.6B's shape
#   streams64 the server, 64 streams                               the built-in one
#   prefill   the server, prompts of 1,024 tokens, 8 generated     Qwen3-0.6B's shape
#
# MODEL names the GGUF file of the large shape; it is made under target/ where
# the variable is not set. Graphs go to flamegraphs/NN-WORKLOAD-LANE.svg.
# Needs perf (Debian: linux-perf) and kernel.perf_event_paranoid of 2 or less.
set -eu
cd "$(dirname "$0")/.."
. perf/common.sh

workload=${1:?"a workload: rung0, streams8, streams64 or prefill"}
seconds=${2:-20}
command -v perf >/dev/null || fail "perf is missing; on Debian: apt-get install linux-perf"
[ -x target/tools/bin/inferno-flamegraph ] ||
	cargo install --quiet --locked inferno --root target/tools

# The software clock ticks everywhere; hardware cycles are finer where they exist.
event=cycles:u
perf stat -e cycles:u true 2>&1 | grep -q 'not supported' && event=cpu-clock

record() { # PID
	perf record --quiet --freq 997 --event "$event" --call-graph fp \
		--output "$data" --pid "$1" -- sleep "$seconds"
}

data=$(mktemp)
trap 'stop_server; rm -f "$data"' EXIT
case $workload in
rung0)
	number=01 lanes="decode"
	large_model
	"$corelane" bench ladder -m "$model" --rung 0 --rounds 3 >/dev/null &
	server=$!
	sleep 8 # the model loads
	record "$server"
	;;
streams8)
	number=02 lanes="front decode"
	large_model
	start_server -m "$model"
	load --num-prompts 400 --max-concurrency 8 --random-input-len 32 --random-output-len 50
	record "$server"
	;;
streams64)
	number=03 lanes="front decode"
	start_server -np 64
	load --num-prompts 20000 --max-concurrency 64 --random-input-len 32 --random-output-len 200
	record "$server"
	;;
prefill)
	number=04 lanes="front decode"
	large_model
	start_server -m "$model"
	load --num-prompts 200 --max-concurrency 8 --random-input-len 1024 --random-output-len 8
	record "$server"
	;;
*) fail "no workload is called $workload; there are rung0, streams8, streams64, prefill" ;;
esac

for lane in $lanes; do
	graph=flamegraphs/$number-$workload-$lane.svg
	perf script --input "$data" --comms "$lane" 2>/dev/null |
		target/tools/bin/inferno-collapse-perf --all |
		target/tools/bin/inferno-flamegraph --hash --width 1400 \
			--title "$workload: $lane lane" \
			--subtitle "$(git rev-parse --short HEAD), $event, ${seconds} s, perf/flamegraph.sh $workload" >"$graph"
	echo "$graph"
done
