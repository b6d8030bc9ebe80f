#!/bin/sh
# Records a workload with perf and draws a flamegraph for each lane.
#
#   perf/flamegraph.sh WORKLOAD [SECONDS]
#
# WORKLOAD  load                                                 lanes          model
#   rung0     the bare model: the ladder's rung 0, 8 at a time     decode         Qwen3-0.6B's shape
#   streams8  the server, 8 streams                                front, decode  Qwen3-0.6B's shape
#   streams64 the server, 64 streams                               front, decode  the built-in one
#   prefill   the server, prompts of 1,024 tokens, 8 generated     decode         Qwen3-0.6B's shape
#
# SECONDS of each recording [default: 60 for a front lane, which is mostly idle, and 20 for a decode
# lane]. MODEL names the GGUF file of the large shape; without it, the file is made under target/.
# Graphs go to flamegraphs/NN-WORKLOAD-LANE.svg. Fails if the workload ends too early or there are too
# few samples. Needs perf (Debian: linux-perf) and a kernel.perf_event_paranoid of 2 or less.
set -eu
cd "$(dirname "$0")/.."
. perf/common.sh

workload=${1:?"a workload: rung0, streams8, streams64 or prefill"}
front_seconds=${2:-60}
decode_seconds=${2:-20}
command -v perf >/dev/null || fail "perf is missing; on Debian: apt-get install linux-perf"
[ -x target/tools/bin/inferno-flamegraph ] ||
	cargo install --quiet --locked inferno --root target/tools

# The software clock always works; hardware cycles are finer, but not every machine has them.
event=cycles unit=cycles
perf stat --event cycles true 2>&1 | grep -q '<not' && event=cpu-clock unit=ns

# The threads of a lane, separated by commas. Threads that a lane starts inherit its name.
threads() { # LANE
	for task in /proc/"$server"/task/*; do
		[ "$(cat "$task/comm")" != "$1" ] || echo "${task##*/}"
	done | paste -s -d , -
}

# The workload must run during the whole recording.
check_alive() {
	kill -0 "$server" 2>/dev/null || fail "the recorded process ended"
	[ -z "$client" ] || kill -0 "$client" 2>/dev/null || fail "the load generator ended"
}

record() { # LANE SECONDS FLAGS...: into $data
	tids=$(threads "$1")
	[ -n "$tids" ] || fail "no thread is called $1"
	seconds=$2
	shift 2
	check_alive
	perf record --quiet --event "$event" --output "$data" --tid "$tids" "$@" -- sleep "$seconds"
	check_alive
}

draw() { # LANE FREQUENCY: from $data
	samples=$(perf script --input "$data" --fields comm 2>/dev/null | wc -l)
	[ "$samples" -ge 300 ] || fail "$samples samples of the $1 lane are too few; record more seconds"
	# Without --no-inline, perf runs addr2line for every frame of a copied stack.
	perf script --input "$data" --no-inline 2>/dev/null |
		target/tools/bin/inferno-collapse-perf --all >"$folded"
	[ -s "$folded" ] || fail "perf script found no stacks"
	graph=flamegraphs/$number-$workload-$1.svg
	target/tools/bin/inferno-flamegraph --hash --width 1400 --countname "$unit" --title "$workload: $1 lane" \
		--subtitle "$(git rev-parse --short HEAD), $samples samples of $(perf evlist --input "$data" | head -n 1) at $2 Hz in $seconds s, perf/flamegraph.sh $workload" \
		<"$folded" >"$graph"
	echo "$graph"
}

front() {
	# The lane is busy for a small part of the time, so samples must be close together. libc's send()
	# keeps no frame pointer, so stacks are copied and unwound later.
	record front "$front_seconds" --freq 9973 --call-graph dwarf,16384
	draw front 9973
}

decode() {
	record decode "$decode_seconds" --freq 997 --call-graph fp
	draw decode 997
}

data=$(mktemp target/perf.XXXXXX) # copied stacks are large, and /tmp may be in memory
folded=$(mktemp target/folded.XXXXXX)
trap 'stop_server; rm -f "$data" "$data.old" "$folded"' EXIT
case $workload in
rung0)
	number=01
	large_model
	"$corelane" bench ladder -m "$model" --rung 0 --rounds 1 --requests 2000 >/dev/null 2>&1 &
	server=$!
	sleep 8 # the model loads
	decode
	;;
streams8)
	number=02
	large_model
	start_server -m "$model"
	load --num-prompts 4000 --max-concurrency 8 --random-input-len 32 --random-output-len 50
	front
	decode
	;;
streams64)
	number=03
	# A busy lane: a few seconds give many samples, each with a stack of 16 KiB.
	front_seconds=${2:-20}
	start_server -np 64
	load --num-prompts 20000 --max-concurrency 64 --random-input-len 32 --random-output-len 200
	front
	decode
	;;
prefill)
	number=04 # without the front lane, which is almost idle
	large_model
	start_server -m "$model"
	load --num-prompts 2000 --max-concurrency 8 --random-input-len 1024 --random-output-len 8
	decode
	;;
*) fail "no workload is called $workload; there are rung0, streams8, streams64, prefill" ;;
esac
