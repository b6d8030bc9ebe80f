#!/bin/sh
# Runs the studies on this machine and saves them in perf/runs/<date>-<machine>-<commit>/.
#
#   perf/run.sh [--only STUDY,STUDY...] [NAME]
#
# NAME of the machine [default: the model of its CPU]. Ends at the first study that fails. --only runs
# some of the studies. It continues in the folder that this machine and commit already have, and so
# continues an interrupted run. VS is the URL of another server to compare with (see perf/versus.sh).
# AGAINST is a corelane of another commit (see perf/against.py). A tree with uncommitted changes is
# refused, for the folder is named after the commit; FORCE=1 accepts it.
set -eu
cd "$(dirname "$0")/.."
. perf/common.sh

studies="ladder ladder-ends ladder-one ladder-separate ladder-separate-builtin ladder-builtin-32 ladder-builtin-64
	spine spine-builtin cache cache-builtin ragged memory scrape stall burst turns client overload hostile criterion products attentions kernels attention settings versus against"
only=
case "${1:-}" in
--only)
	only=${2:?"studies, with commas: $studies"}
	shift 2
	;;
-*)
	sed -n '/^#   /,/^set/s/^#  *//p' "$0"
	echo "Studies:" $studies
	exit 0
	;;
esac
for study in $(echo "$only" | tr , ' '); do
	case " $(echo $studies) " in *" $study "*) ;; *) fail "no study is called $study; there are $(echo $studies)" ;; esac
done
if ! git diff --quiet HEAD && [ "${FORCE:-}" != 1 ]; then
	fail "the tree has uncommitted changes; FORCE=1 accepts them"
fi

name=${1:-$(sed -n 's/^model name.*: *//p' /proc/cpuinfo | head -n 1 | tr -cs 'A-Za-z0-9' '-' | tr 'A-Z' 'a-z' | cut -c1-32 | sed 's/-*$//')}
commit=$(git rev-parse --short HEAD)
out=
[ -z "$only" ] || out=$(find perf/runs -maxdepth 1 -name "*-$name-$commit" 2>/dev/null | sort | tail -n 1)
out=${out:-perf/runs/$(date +%F)-$name-$commit}
mkdir -p "$out"

wanted() { # STUDY
	case ",$only," in
	,, | *",$1,"*) return 0 ;;
	*) return 1 ;;
	esac
}

# study NAME COMMAND...: runs the command and saves its output. It runs in the background, so that a
# signal ends it at once, and in its own session, so that the processes that it started end, too.
running=
study() {
	study=$1
	shift
	if ! wanted "$study"; then
		echo "== $study: left out, --only does not name it"
		return 0
	fi
	echo "== $study: $*"
	part=$out/$study.part
	echo "\$ $*" >"$part"
	setsid "$@" >>"$part" 2>&1 &
	running=$!
	status=0
	wait "$running" || status=$?
	running=
	sed -e "s,$model,MODEL,g" -e "s,$out,OUT,g" -e "s,$PWD/,,g" "$part" >"$out/$study.txt"
	rm -f "$part" "$out/$study.failed"
	cat "$out/$study.txt"
	[ "$status" != 0 ] || return 0
	mv "$out/$study.txt" "$out/$study.failed"
	left=$(echo $studies | tr ' ' '\n' | sed -n "/^$study\$/,\$p" | paste -s -d , -)
	fail "$study ended with status $status: see $out/$study.failed. To go on: perf/run.sh --only $left $name"
}
trap '[ -z "$running" ] || kill -s TERM -- "-$running" 2>/dev/null || true; stop_server; rm -f "$out"/*.part' EXIT

# Build everything first: a compiler beside a measurement would take its cores.
cargo build --release
! wanted criterion || cargo bench --quiet --no-run
! wanted products || cargo bench --quiet --no-run --bench kernels
! wanted attentions || cargo bench --quiet --no-run --bench attention
large_model
quarter_model

{
	lscpu | grep -E '^(Model name|CPU\(s\)|Thread|L2|L3|NUMA node\(s\))'
	grep MemTotal /proc/meminfo
	uname -sr
	rustc --version
	git log -1 --format='commit %H'
	git diff --quiet HEAD || echo "with uncommitted changes (FORCE=1)"
	sha256sum "$model" "$quarter" src/model/builtin/builtin.gguf | sed 's, [^ ]*/, ,'
} >"$out/machine.txt"

ladder() { # STUDY FLAGS...
	ladder=$1
	shift
	study "$ladder" "$corelane" bench ladder "$@" --json "$out/$ladder.json"
}

ladder ladder -m "$model" --svg "$out/ladder.svg"
# Short rounds of the first and the last rung, which drift less within a round.
ladder ladder-ends -m "$model" --requests 16 --rounds 12 --rung 0,10
ladder ladder-one -m "$model" --concurrency 1 --requests 8 --rung 0,4,9,10
ladder ladder-separate -m "$model" --front-core 0 --decode-cores 1 --rung 0,4,9 --requests 16
ladder ladder-separate-builtin --front-core 0 --decode-cores 1 --rung 0,4,9 --concurrency 32 --requests 320
ladder ladder-builtin-32 --concurrency 32 --requests 320 --rounds 12 --rung 0,4,10
ladder ladder-builtin-64 --concurrency 64 --requests 640 --rung 0,4,9,10
study spine perf/spine.py --model "$model" --json "$out/spine.json"
study spine-builtin perf/spine.py --json "$out/spine-builtin.json"
study cache perf/cache.py --model "$model" --json "$out/cache.json"
study cache-builtin perf/cache.py --streams 32 --prompts 400 --json "$out/cache-builtin.json"
# 32 sequences of 30 to 1,500 tokens.
study ragged perf/cache.py --model "$model" --streams 32 --prompts 32 --input-len 765 --range-ratio 0.96 --ctx-size 51200 \
	--rounds 3 --json "$out/ragged.json"
study memory perf/memory.py --model "$model" --json "$out/memory.json"
study scrape perf/scrape.py --model "$model" --rounds 4 --json "$out/scrape.json"

scenario() { # STUDY FLAGS...
	scenario=$1
	shift
	! wanted "$scenario" || start_server -m "$model"
	study "$scenario" "$corelane" bench serve --base-url "${url:-}" --scenario "$scenario" "$@" --rounds 3 --ignore-eos --no-progress \
		--save-result --result-filename "$out/$scenario.json"
	stop_server
}

scenario stall --long-input-len 2000
scenario burst --prefix-len 500
scenario turns
# The load generator itself, at 500 tokens per second.
! wanted client || start_server
study client "$corelane" bench serve --base-url "${url:-}" --request-rate 10 --num-prompts 300 --random-output-len 50 \
	--ignore-eos --no-progress --save-result --result-filename "$out/client.json"
stop_server
study overload perf/overload.py --model "$model" --seconds 150 --json "$out/overload.json"
study hostile perf/hostile.py --model "$model" --rounds 3 --json "$out/hostile.json"
study criterion perf/criterion.py --json "$out/criterion.json"
study products cargo bench --quiet --bench kernels
study attentions cargo bench --quiet --bench attention
study kernels perf/kernels.py --model "$model" --json "$out/kernels.json"
study attention perf/attention.py --model "$model" --long-model "$quarter" --json "$out/attention.json"
study settings perf/settings.py --model "$quarter" --large "$model" \
	--json "$out/settings.json"
if [ -n "${VS:-}" ]; then
	study versus perf/versus.sh "$VS" "$out"
else
	echo "== versus: not taken, VS is not set"
fi
if [ -n "${AGAINST:-}" ]; then
	study against perf/against.py "$AGAINST" --model "$model" --json "$out/against.json"
else
	echo "== against: not taken, AGAINST is not set"
fi

perf/summary.py "$out"
echo "$out/summary.md"
