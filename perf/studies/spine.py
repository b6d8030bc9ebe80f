"""How long is the start-up, and how much memory and idle CPU does the server take?"""

import time

from shared.report import add_server
from shared.server import Server, measure

LOAD = ["--num-prompts=40", "--max-concurrency=8", "--random-input-len=32", "--random-output-len=50"]


def arguments(parser) -> None:
    add_server(parser)


def run(args) -> dict:
    with Server(model=args.model, binary=args.binary, ops=True) as server:
        found = {"start_s": server.start_s, "resident_mib": server.resident_mib()}
        print(f"start-up: {1e3 * found['start_s']:.0f} ms")
        print(f"resident at start: {found['resident_mib']:.0f} MiB")
        measure(server.url, *LOAD, show=True)
        found["resident_after_40_requests_mib"] = server.resident_mib()
        print(f"resident after 40 requests: {found['resident_after_40_requests_mib']:.0f} MiB")
        time.sleep(3)  # ggml's threads poll for a while after the last step
        before = server.cpu_seconds()
        time.sleep(20)
        found["idle_core_percent"] = 5 * (server.cpu_seconds() - before)
        print(f"idle: {found['idle_core_percent']:.2f} % of a core over 20 s")
    return found
