"""What do 10,000 idle connections cost?

Measures the memory for each, the CPU time of all, and the time of a health check beside them.
"""

import resource
import socket
import time

from shared.report import add, add_server
from shared.requests import HEALTH, address
from shared.server import Server


def arguments(parser) -> None:
    add_server(parser)
    add(parser, connections=10_000, seconds=5.0)


def run(args) -> dict:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (args.connections + 100, most))
    with Server(model=args.model, binary=args.binary) as server:
        time.sleep(0.5)
        before = server.resident_mib("RssAnon")

        def kib_each() -> float:
            time.sleep(1)
            return 1024 * (server.resident_mib("RssAnon") - before) / args.connections

        held = [socket.create_connection(address(server.url), timeout=5) for _ in range(args.connections)]
        found = {"kib_never_used": kib_each()}
        for connection in held:
            connection.sendall(HEALTH)
        for connection in held:
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        found["kib_after_a_request"] = kib_each()
        cpu = server.cpu_seconds()
        time.sleep(args.seconds)
        found["cpu_share"] = (server.cpu_seconds() - cpu) / args.seconds
        began = time.monotonic()
        with socket.create_connection(address(server.url), timeout=5) as check:
            check.sendall(HEALTH)
            assert check.recv(4096).startswith(b"HTTP/1.1 200")
        found["health_check_ms"] = 1e3 * (time.monotonic() - began)
    for name, value in found.items():
        print(f"{name}: {value:.3f}")
    return {"connections": args.connections} | found
