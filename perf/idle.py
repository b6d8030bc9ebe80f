#!/usr/bin/env python3
"""Measures what idle connections cost: memory for each, CPU time, and the time of a health check beside them.

    perf/idle.py [--connections 10000] [--seconds 5] [--json FILE]
"""

import argparse
import json
import pathlib
import resource
import socket
import time

from attacks import address
from server import Server, machine

CHECK = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (options.connections + 100, most))
    with Server() as server:
        time.sleep(0.5)
        before = server.resident_mib("RssAnon")

        def kib_each() -> float:
            time.sleep(1)
            return 1024 * (server.resident_mib("RssAnon") - before) / options.connections

        held = [socket.create_connection(address(server.url), timeout=5) for _ in range(options.connections)]
        found = {"kib_never_used": kib_each()}
        for connection in held:
            connection.sendall(CHECK)
        for connection in held:
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        found["kib_after_a_request"] = kib_each()
        cpu = server.cpu_seconds()
        time.sleep(options.seconds)
        found["cpu_share"] = (server.cpu_seconds() - cpu) / options.seconds
        began = time.monotonic()
        with socket.create_connection(address(server.url), timeout=5) as check:
            check.sendall(CHECK)
            assert check.recv(4096).startswith(b"HTTP/1.1 200")
        found["health_check_ms"] = 1e3 * (time.monotonic() - began)
    if options.json:
        saved = {"machine": machine(), "connections": options.connections} | found
        options.json.write_text(json.dumps(saved, indent=1) + "\n")
    for name, value in found.items():
        print(f"{name}: {value:.3f}")
    print(f"machine: {machine()}")


if __name__ == "__main__":
    main()
