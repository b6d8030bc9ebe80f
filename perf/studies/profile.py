"""Do `corelane profile` and perf agree on the hottest functions of the decode lane?

Both sample the same threads during the same seconds, beside eight streams. Needs perf (Debian: linux-perf).
"""

import collections
import pathlib
import re
import subprocess
import tempfile

from shared.report import add, add_server
from shared.server import CORELANE, Server, measure
from shared.turns import Beside

LOAD = ["--num-prompts=40", "--max-concurrency=8", "--random-input-len=64", "--random-output-len=200", "--num-warmups=0"]
HZ = 499


def arguments(parser) -> None:
    add_server(parser)
    add(parser, seconds=20)


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
    threads = ",".join(map(str, server.threads("decode")))
    record = ["perf", "record", "--quiet", f"--freq={HZ}", "--call-graph=fp", f"--output={data}", f"--tid={threads}"]
    subprocess.run([*record, "--", "sleep", str(seconds)], check=True)
    script = ["perf", "script", f"--input={data}", "--no-inline", "--fields=ip,sym"]
    text = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    stacks = [stack.strip().splitlines() for stack in text.split("\n\n") if stack.strip()]
    return collections.Counter(plain(stack[0].strip().partition(" ")[2]) for stack in stacks)


def run(args) -> dict:
    server = Server("--profiling", model=args.model, binary=args.binary, ops=True)
    with server, tempfile.TemporaryDirectory() as folder, Beside(lambda _: measure(server.url, *LOAD)):
        profile = [str(CORELANE), "profile", f"--seconds={args.seconds}", "--format=folded", f"--hz={HZ}"]
        profile += [f"--ops-addr={server.ops_url.removeprefix('http://')}"]
        asked = subprocess.Popen(profile, stdout=subprocess.PIPE, text=True)
        perf = by_perf(server, args.seconds, pathlib.Path(folder) / "perf.data")
        request = innermost(asked.communicate()[0])
    print(f"{sum(request.values())} samples by request, {sum(perf.values())} by perf, {args.seconds} s")
    shares = [{function: samples / sum(found.values()) for function, samples in found.items()} for found in (request, perf)]
    hottest = [[function for function, _ in found.most_common(10)] for found in (request, perf)]
    print(f"{len(set(hottest[0]) & set(hottest[1]))} of the ten hottest functions are the same")
    print("request  perf     function")
    for function in hottest[0]:
        print(f"{shares[0][function]:6.2%}  {shares[1].get(function, 0):6.2%}  {function}")
    return {"by_request": request, "by_perf": perf}
