"""One KV cache for all requests, or a cache for each?

Both run at the server, in turns. Lengths vary around --input-len and 50 generated tokens by --range-ratio, by default up
to a factor of nine. Sequences therefore start and end at different times. Then a cache for each sequence makes llama.cpp
split steps, and in one cache the cells of a sequence lie between those of others.
"""

from shared.report import add, add_server
from shared.server import Server, measure, pinned


def arguments(parser) -> None:
    add_server(parser)
    add(parser, streams=8, prompts=24, input_len=100, range_ratio=0.8, ctx_size=0, rounds=4, flash_attn="auto")


def run(args) -> dict:
    flags = [*pinned(), f"--parallel={args.streams}", f"--flash-attn={args.flash_attn}", f"--ctx-size={args.ctx_size}"]
    server = {"model": args.model, "binary": args.binary}
    load = [f"--max-concurrency={args.streams}", f"--num-prompts={args.prompts}", f"--rounds={args.rounds}"]
    load += [f"--random-input-len={args.input_len}", f"--random-range-ratio={args.range_ratio}", "--random-output-len=50"]
    with Server(*flags, **server) as one, Server(*flags, "--no-kv-unified", **server) as each:
        return measure(one.url, f"--vs={each.url}", *load, show=True)
