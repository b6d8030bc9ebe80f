#!/usr/bin/env python3
"""Do a flamegraph by one request and perf agree on the hottest functions of the decode lane?

    perf/profile.py [--model FILE] [--seconds N]

Both sample the same threads during the same seconds, beside eight streams. Needs perf (Debian: linux-perf).
"""

import argparse
import collections
import pathlib
import re
import subprocess
import tempfile
import threading

from server import CORELANE, Server, machine, measure

LOAD = ["--num-prompts=40", "--max-concurrency=8", "--random-input-len=64", "--random-output-len=200", "--num-warmups=0"]
HZ = 499


def innermost(folded: str) -> collections.Counter:
    """The samples of each innermost function, in folded stacks."""
    found = collections.Counter()
    for line in folded.splitlines():
        stack, samples = line.rsplit(" ", 1)
        found[plain(stack.rpartition(";")[2])] += int(samples)
    return found


def plain(function: str) -> str:
    """The name without its type and its parameters, of which the two tools show different parts."""
    name, before = function.removeprefix("void "), None
    while name != before:  # the innermost pairs first
        name, before = re.sub(r"<[^<>]*>|\([^()]*\)", "", name), name
    return name


def by_perf(server: Server, seconds: int, data: pathlib.Path) -> collections.Counter:
    tasks = pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()
    threads = [task.name for task in tasks if (task / "comm").read_text().strip() == "decode"]
    record = ["perf", "record", "--quiet", f"--freq={HZ}", "--call-graph=fp", f"--output={data}", f"--tid={','.join(threads)}"]
    subprocess.run([*record, "--", "sleep", str(seconds)], check=True)
    script = ["perf", "script", f"--input={data}", "--no-inline", "--fields=ip,sym"]
    text = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    stacks = [stack.strip().splitlines() for stack in text.split("\n\n") if stack.strip()]
    return collections.Counter(plain(stack[0].strip().partition(" ")[2]) for stack in stacks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--seconds", type=int, default=20)
    options = parser.parse_args()
    with Server("--profiling", model=options.model, ops=True) as server, tempfile.TemporaryDirectory() as folder:
        load = threading.Thread(target=measure, args=[server.url, *LOAD])
        load.start()
        profile = [str(CORELANE), "profile", f"--seconds={options.seconds}", "--format=folded", f"--hz={HZ}"]
        profile += [f"--ops-addr={server.ops_url.removeprefix('http://')}"]
        asked = subprocess.Popen(profile, stdout=subprocess.PIPE, text=True)
        perf = by_perf(server, options.seconds, pathlib.Path(folder) / "perf.data")
        request = innermost(asked.communicate()[0])
        load.join()
    print(f"{sum(request.values())} samples by request, {sum(perf.values())} by perf, {options.seconds} s")
    shares = [{function: samples / sum(found.values()) for function, samples in found.items()} for found in (request, perf)]
    hottest = [[function for function, _ in found.most_common(10)] for found in (request, perf)]
    print(f"{len(set(hottest[0]) & set(hottest[1]))} of the ten hottest functions are the same")
    print("request  perf     function")
    for function in hottest[0]:
        print(f"{shares[0][function]:6.2%}  {shares[1].get(function, 0):6.2%}  {function}")
    print(f"machine: {machine()}")


if __name__ == "__main__":
    main()
