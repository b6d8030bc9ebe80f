# Functions of the studies. Source this from the repository's root.

corelane=target/release/corelane
server=
client=

# A signal ends the script by `exit`, so that its EXIT trap ends what it started.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
	echo "$0: $1" >&2
	exit 1
}

# Sets $model to a GGUF file with the shape of Qwen3-0.6B, made once.
large_model() {
	model=${MODEL:-target/qwen3-0.6b-q4_k_m.gguf}
	[ -f "$model" ] || "$corelane" model synth --shape qwen3-0.6b --quant q4_k_m "$model"
}

# Sets $quarter to a model with a quarter of its layers and vocabulary: a quarter of the work, in
# the same proportions.
quarter_model() {
	quarter=target/qwen3-quarter.gguf
	[ -f "$quarter" ] || "$corelane" model synth --shape qwen3-0.6b --layers 7 --vocab 37984 "$quarter"
}

# Starts a server on a free port. Sets $server to its process id, and $url.
start_server() {
	banner=$(mktemp)
	"$corelane" serve --port 0 --ops-addr none --log warn "$@" >"$banner" &
	server=$!
	waited=0
	until grep -q 'Try it' "$banner"; do
		kill -0 "$server" 2>/dev/null || fail "the server ended"
		[ "$waited" -lt 600 ] || fail "the server did not start within a minute"
		waited=$((waited + 1))
		sleep 0.1
	done
	url=$(sed -n 's/^ *address *//p' "$banner")
	rm -f "$banner"
}

# Loads the server in the background, and waits until the load runs.
load() {
	"$corelane" bench serve --base-url "$url" --ignore-eos --temperature 0 "$@" >/dev/null 2>&1 &
	client=$!
	sleep 3
}

# Ends the processes started here, and no others.
stop_server() {
	[ -z "$client" ] || kill "$client" 2>/dev/null || true
	[ -z "$server" ] || kill -TERM "$server" 2>/dev/null || true
	[ -z "$server" ] || wait "$server" 2>/dev/null || true
	client= server=
}
