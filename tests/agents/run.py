#!/usr/bin/env python3
"""Coding agents as they are installed, against the built server: do their requests work?

    tests/agents/run.py MODEL.gguf [--agents claude,codex,opencode,qwen,continue,aider]

It installs the agents from npm, or with pip, into target/agents, and runs each through five turns with two tools (a shell, and reading
a file) in a network namespace that has loopback alone. Then it prints each request that the agent sent: its status, the
tokens of the prompt, and how many of them were found in the cache. It ends with status 1 if one was refused.

It needs root (for the namespace), node and npm, and a model that calls tools; a model of 1.5B parameters on two cores
takes about a quarter of an hour for each agent. Run `make build` first. Continuous integration does not run it.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "target" / "agents"
PACKAGES = {
    "claude": "@anthropic-ai/claude-code@2.1.197",
    "codex": "@openai/codex@0.171.0",
    "opencode": "opencode-ai@1.18.33",
    "qwen": "@qwen-code/qwen-code@0.24.4",
    "continue": "@continuedev/cli@1.5.47",
}
AIDER = "aider-chat==0.86.2"
PORT = 18480
TURNS = [
    "List the files of this folder with the shell.",
    "Read notes.txt and tell me its second line.",
    "How many lines has notes.txt? Use wc.",
    "Write the first line of notes.txt into the file first.txt with the shell.",
    "Read first.txt and say whether it is right.",
]
CODEX_CONFIG = f"""
model = "any"
model_provider = "corelane"
[model_providers.corelane]
name = "corelane"
base_url = "http://127.0.0.1:{PORT}/v1"
wire_api = "responses"
"""
OPENCODE_CONFIG = {
    "model": "corelane/any",
    "autoupdate": False,
    "provider": {
        "corelane": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "corelane",
            "options": {"baseURL": f"http://127.0.0.1:{PORT}/v1"},
            "models": {"any": {"name": "any"}},
        }
    },
}
CONTINUE_CONFIG = f"""
name: corelane
version: 1.0.0
schema: v1
models:
  - name: any
    provider: openai
    model: any
    apiBase: http://127.0.0.1:{PORT}/v1
    apiKey: none
    roles: [chat, edit, apply]
    capabilities: [tool_use]
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--agents", default=",".join([*PACKAGES, "aider"]), metavar="NAME,NAME", help="[default: %(default)s]")
    parser.add_argument("--ctx-size", type=int, default=40_960, metavar="N", help="[default: %(default)s]")
    parser.add_argument("--seconds", type=int, default=900, metavar="N", help="for each turn [default: %(default)s]")
    parser.add_argument("--turns", type=int, default=len(TURNS), metavar="N", help="[default: %(default)s]")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    agents = args.agents.split(",")
    if not args.inside:
        FOLDER.mkdir(parents=True, exist_ok=True)
        install(agents)
        sys.exit(subprocess.run(["unshare", "--net", sys.executable, *sys.argv, "--inside"]).returncode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    refused = [agent for agent in agents if not run(agent, args)]
    sys.exit(f"requests of {', '.join(refused)} were refused" if refused else 0)


def install(agents: list[str]) -> None:
    packages = [PACKAGES[agent] for agent in agents if agent != "aider"]
    if packages:
        subprocess.run(["npm", "install", "--silent", "--no-fund", "--no-audit", *packages], cwd=FOLDER, check=True)
    if "aider" in agents:
        venv = FOLDER / "venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin" / "pip", "install", "--quiet", AIDER], check=True)


def run(agent: str, args: argparse.Namespace) -> bool:
    """Runs an agent's turns. Returns whether all of its requests were served."""
    log = FOLDER / f"{agent}.log"
    flags = [f"--model={args.model}", f"--ctx-size={args.ctx_size}", f"--port={PORT}", "--ops-addr=none", "--parallel=2"]
    command = [ROOT / "target" / "release" / "corelane", "serve", *flags]
    with log.open("w") as file:
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)
    try:
        wait_until_ready()
        work = fresh_folder(agent)
        for number, prompt in enumerate(TURNS[: args.turns]):
            began = time.monotonic()
            done = subprocess.run(
                turn(agent, prompt, number),
                cwd=work,
                env=environment(work.parent),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=args.seconds,
            )
            said = (done.stdout.strip() or done.stderr.strip()).splitlines() or [""]
            print(f"{agent}, turn {number + 1}, {time.monotonic() - began:.0f} s: {said[-1][:150]}", flush=True)
    except subprocess.TimeoutExpired:
        print(f"{agent}: a turn took more than {args.seconds} s")
    finally:
        server.terminate()
        server.wait()
    return report(agent, log.read_text())


def turn(agent: str, prompt: str, number: int) -> list:
    program = FOLDER / "node_modules" / ".bin" / agent
    follows = ["--continue"] if number else []
    match agent:
        case "claude":
            return [program, "-p", prompt, *follows, "--model", "any", "--allowedTools", "Bash Read"]
        case "codex":
            resumed = ["resume", "--last"] if number else []
            skipped = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
            return [program, "exec", *resumed, *skipped, prompt]
        case "opencode":
            return [program, "run", *follows, prompt]
        case "qwen":
            return [program, *follows, "--yolo", "-p", prompt]
        case "continue":
            resumed = ["--resume"] if number else []
            program = program.with_name("cn")
            return [program, "--config", "../continue.yaml", *resumed, "--auto", "-p", prompt]
        case "aider":
            program = FOLDER / "venv" / "bin" / "aider"
            quiet = ["--yes-always", "--no-git", "--no-check-update", "--analytics-disable", "--no-pretty"]
            model = ["--model", "openai/any", "--no-show-model-warnings"]
            return [program, *quiet, *model, "--restore-chat-history", "--message", prompt, "notes.txt"]
    sys.exit(f"there is no agent {agent}")


def environment(home: pathlib.Path) -> dict[str, str]:
    own = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{PORT}", "ANTHROPIC_AUTH_TOKEN": "none"}
    own |= {"OPENAI_BASE_URL": f"http://127.0.0.1:{PORT}/v1", "OPENAI_MODEL": "any", "OPENAI_API_KEY": "none"}
    own |= {"OPENAI_API_BASE": own["OPENAI_BASE_URL"]}  # aider's name
    quiet = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "CONTINUE_TELEMETRY_ENABLED": "0", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1"}
    return {"PATH": os.environ["PATH"], "HOME": str(home), **own, **quiet}


def fresh_folder(agent: str) -> pathlib.Path:
    """A home for the agent, and in it the folder that it works in."""
    home = FOLDER / f"home-{agent}"
    shutil.rmtree(home, ignore_errors=True)
    work = home / "work"
    work.mkdir(parents=True)
    (work / "notes.txt").write_text("The first line.\nThe second line is about rivers.\nThe third line.\n")
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(CODEX_CONFIG)
    (home / ".config" / "opencode").mkdir(parents=True)
    (home / ".config" / "opencode" / "opencode.json").write_text(json.dumps(OPENCODE_CONFIG))
    (home / "continue.yaml").write_text(CONTINUE_CONFIG)
    return work


def wait_until_ready() -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health").close()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit("the server is not ready after two minutes")


def report(agent: str, log: str) -> bool:
    served = re.findall(r"served .*path=(\S+) prompt_tokens=(\d+) cached_tokens=(\d+) completion_tokens=(\d+)", log)
    refused = re.findall(r'refused .*path="(/(?!health)\S+)" status=(\d+) reason="(.*)"', log)
    for path, prompt, cached, completion in served:
        print(f"  200 {path}: {prompt} tokens, {cached} of them cached, {completion} generated")
    for path, status, reason in refused:
        print(f"  {status} {path}: {reason}")
    for note in sorted(set(re.findall(r"WARN .*(a request has .*), which this server ignores", log))):
        print(f"  {note}: ignored")
    return bool(served) and not refused


if __name__ == "__main__":
    main()
