#!/bin/sh
# Compares this server with another one that serves the same file, in turns.
#
#   perf/versus.sh URL [OUT [FLAG...]]
#
# URL of the other server, which must be running. Start it anew for each run, for it keeps the
# prompts of earlier ones. llama.cpp's server with the threads, slots and context of ours:
#
#   llama-server -m target/qwen3-0.6b-q4_k_m.gguf -t $(nproc) -np 8 -c 16384 --port 8081
#
# OUT is a folder for the results as JSON. FLAGs are for our server. Both servers stay loaded; while
# one is measured, the other idles. MODEL names another GGUF file.
set -eu
cd "$(dirname "$0")/.."
. perf/common.sh

other=${1:?"the URL of the other server"}
out=${2:-$(mktemp -d)}
shift $(($# < 2 ? $# : 2))
large_model
trap stop_server EXIT
start_server -m "$model" -np 8 -c 16384 "$@"

# against NAME FLAGS...: both servers get the same prompts. Each load has its own seed and no round
# repeats a prompt: a server's prompt cache would flatter it.
against() {
	name=$1
	shift
	echo "== $name: corelane bench serve $*"
	"$corelane" bench serve --base-url "$url" --vs "$other" --rounds 3 --ignore-eos --no-progress \
		--save-result --result-filename "$out/versus-$name.json" "$@"
}

against eight --seed 1 --max-concurrency 8 --num-prompts 40 --num-warmups 8
against one --seed 2 --max-concurrency 1 --num-prompts 4 --num-warmups 1
against long --seed 3 --max-concurrency 8 --num-prompts 16 --num-warmups 1 --random-input-len 500 --random-output-len 100
against crowd --seed 4 --max-concurrency 32 --num-prompts 64
against stall --seed 5 --scenario stall --long-input-len 2000
against burst --seed 6 --scenario burst --prefix-len 500
echo "results: $out"
