#!/bin/sh
# Holds this server against another one that serves the same file, in turns.
#
#   perf/versus.sh URL [OUT [FLAG...]]
#
# URL of the other server, which runs already; for llama.cpp's, with as many
# threads, slots and tokens of context as ours takes here, and started anew, since it
# keeps the prompts of earlier runs:
#
#   llama-server -m target/qwen3-0.6b-q4_k_m.gguf -t $(nproc) -np 8 -c 16384 --port 8081
#
# OUT is a folder for the results as JSON. Both servers stay loaded, and the one
# that is not asked idles. FLAGs are for ours.
# MODEL names another GGUF file.
set -eu
cd "$(dirname "$0")/.."
. perf/common.sh

other=${1:?"the URL of the other server"}
out=${2:-$(mktemp -d)}
shift $(($# < 2 ? $# : 2))
large_model
trap stop_server EXIT
start_server -m "$model" -np 8 -c 16384 "$@"

# against NAME FLAGS...: both get the same prompts. No round repeats those of another, nor
# does a load with a seed of its own: what a server kept of them would flatter it.
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
