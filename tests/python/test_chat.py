"""`corelane chat` in a terminal, and `corelane run` in pipes."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import time

import pytest

from conftest import BINARY, KEY, MODEL

# How the prompt ends when the line editor waits for input.
PROMPT = b"\x1b[2C"


class Terminal:
    """A program in a terminal, which a person types into."""

    def __init__(self, pid, fd):
        self.pid, self.fd = pid, fd
        self.unread = b""

    def read(self, until=PROMPT, timeout_s=60):
        """The text that comes up to `until`."""
        end = time.monotonic() + timeout_s
        while until not in self.unread:
            assert time.monotonic() < end, self.unread
            if select.select([self.fd], [], [], 0.1)[0]:
                self.unread += os.read(self.fd, 4096)
        before, found, self.unread = self.unread.partition(until)
        text = before + found
        return re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", text.decode(errors="replace"))

    def some(self, timeout_s=60):
        """Waits for any text."""
        assert self.unread or select.select([self.fd], [], [], timeout_s)[0]

    def say(self, text, until=PROMPT):
        os.write(self.fd, text)
        return self.read(until)

    def end(self):
        """Its exit status, after Ctrl-D."""
        os.write(self.fd, b"\x04")
        with contextlib.suppress(OSError):
            while os.read(self.fd, 4096):
                pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def chat(tmp_path):
    """Starts chats."""
    pids = []

    def start(*flags):
        pid, fd = pty.fork()
        if pid == 0:
            os.environ |= {"XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "xterm", "NO_COLOR": "1"}
            os.chdir(tmp_path)
            os.execv(BINARY, [str(BINARY), "chat", *flags])
        pids.append(pid)
        return Terminal(pid, fd)

    yield start
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_a_conversation(chat, tmp_path):
    terminal = chat("--temp=0", "--system-prompt=Be kind.")
    assert f"{MODEL}. /help lists the commands" in terminal.read()
    assert "/save FILE" in terminal.say(b"/help\r")
    answer = terminal.say(b"Once upon a time\r", b"[first token after ")
    assert len(answer) > 60, answer
    terminal.read()
    # Several lines are one text.
    terminal.say(b'"""two\r', b"two")
    terminal.say(b'lines"""\r', b"[first token after ")
    terminal.read()
    assert f"* {MODEL}" in terminal.say(b"/model\r")
    assert "it has corelane" in terminal.say(b"/model other\r")
    assert "no command /sav" in terminal.say(b"/sav\r")
    assert "needs the name of a file" in terminal.say(b"/save\r")
    assert "Saved to a.json." in terminal.say(b"/save a.json\r")
    saved = json.loads((tmp_path / "a.json").read_text())
    assert [message["role"] for message in saved["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    assert saved["messages"][0]["content"] == "Be kind."
    assert saved["messages"][3]["content"] == "two\nlines"
    # Its own file may be written again; another one not.
    assert "Saved to a.json." in terminal.say(b"/save a.json\r")
    (tmp_path / "b.json").write_text("{}")
    assert "b.json exists; name a new file" in terminal.say(b"/save b.json\r")
    assert "is no conversation" in terminal.say(b"/load b.json\r")
    assert "is empty" in terminal.say(b"/clear\r")
    assert "a.json exists; name a new file" in terminal.say(b"/save a.json\r")
    assert "there is no answer yet" in terminal.say(b"/regen\r")
    assert "4 messages." in terminal.say(b"/load a.json\r")
    terminal.say(b"/regen\r", b"[first token after ")
    terminal.read()
    assert terminal.end() == 0
    history = tmp_path / "state" / "corelane" / "history"
    assert "Once upon a time" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_a_saved_conversation_is_a_request(chat, client, tmp_path):
    terminal = chat()
    terminal.read()
    terminal.say(b"Once upon a time\r", b"[first token after ")
    terminal.read()
    terminal.say(b"/save a.json\r")
    assert terminal.end() == 0
    saved = json.loads((tmp_path / "a.json").read_text())
    saved["messages"].append({"role": "user", "content": "And then?"})
    assert client.chat.completions.create(**saved).choices[0].message.content


def test_ctrl_c_stops_an_answer_and_keeps_its_beginning(chat, slow_model, tmp_path):
    terminal = chat("-m", str(slow_model), "--chat-template=chatml")
    terminal.read()
    terminal.say(b"Go on\r", b"Go on")
    terminal.read(b"\n")
    terminal.some()  # of about a second
    assert "; stopped]" in terminal.say(b"\x03", b"stopped]")
    terminal.read()
    terminal.say(b"/save a.json\r")
    messages = json.loads((tmp_path / "a.json").read_text())["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert messages[1]["content"]
    # Ctrl-C at the prompt drops the line, and ends nothing.
    os.write(terminal.fd, b"dropped\x03")
    terminal.read()
    assert terminal.end() == 0


def test_ctrl_c_stops_while_a_server_says_nothing(chat):
    command = [BINARY, "serve", "--port=0", "--ops-addr=none", "--log=error"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = next(line for line in server.stdout if "address" in line)
        for line_left in server.stdout:
            if "max_tokens" in line_left:
                break
        terminal = chat("--url", line.split()[-1])
        terminal.read()
        server.send_signal(signal.SIGSTOP)
        os.write(terminal.fd, b"Hello\r")
        time.sleep(0.3)
        assert "[no text; stopped]" in terminal.say(b"\x03", b"stopped]")
        server.send_signal(signal.SIGCONT)
        terminal.read()
        assert "[first token after" in terminal.say(b"Hello\r", b"[first token after ")
        terminal.read()
        # A server that has gone is an error, and no end.
        server.terminate()
        server.wait(60)
        assert "no answer came from" in terminal.say(b"Hello\r")
        # Nothing of the conversation is lost.
        assert "no answer came from" in terminal.say(b"/regen\r")
        assert "no answer came from" in terminal.say(b"/regen\r")
        assert terminal.end() == 0
    finally:
        server.kill()
        server.wait()


def run(*arguments, **options):
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": 60} | options
    return subprocess.run([BINARY, "run", *arguments], **options)


def test_a_pipe_gets_the_answer_alone(server):
    flags = ["--url", server, "--api-key", KEY, "--temp=0", "--seed=1", "-n", "20"]
    words = run(*flags, "Once", "upon a time")
    assert words.returncode == 0
    assert words.stdout.decode().strip()
    piped = run(*flags, stdin=None, input=b"Once upon a time\n")
    assert piped.stdout == words.stdout


def test_a_pipe_stands_before_the_question(server):
    flags = ["--url", server, "--api-key", KEY, "--temp=0"]
    both = run(*flags, "a time", stdin=None, input=b"Once upon\n")
    alone = run(*flags, "Once upon\n\na time")
    assert both.returncode == 0
    assert both.stdout == alone.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "there is no question"),
        (["--url", "127.0.0.1:1", "Hello"], "no answer came from http://127.0.0.1:1"),
        (["--url", "ftp://a", "Hello"], "is no URL"),
        (["--url", "a.example", "Hello"], "has no scheme"),
        (["-n", "0", "Hello"], "must be at least 1"),
        (["--temp", "nan", "Hello"], "must be a number"),
        (["--url", "127.0.0.1:1", "-m", "a.gguf", "Hello"], "--url and --model were given"),
        (["-m", "no-such-file.gguf", "Hello"], "no-such-file.gguf"),
        (["--temp=warm", "Hello"], "--temp"),
    ],
)
def test_a_wrong_run_says_what_is_wrong(arguments, said):
    wrong = run(*arguments)
    assert wrong.returncode != 0
    assert wrong.stdout == b""
    assert said in wrong.stderr.decode()


def test_a_refusal_of_the_server_is_shown(server):
    wrong = run("--url", server, "--api-key", "wrong", "Hello")
    assert wrong.returncode == 1
    assert "answers 401" in wrong.stderr.decode()


def test_too_much_or_no_text_is_refused(server):
    for data, said in [(b"x" * (1024 * 1024 + 1), "more than 1048576 bytes"), (b"ab\xff", "byte 2 is wrong")]:
        wrong = run("--url", server, "--api-key", KEY, stdin=None, input=data)
        assert wrong.returncode == 1
        assert said in wrong.stderr.decode()


def test_a_reader_that_leaves_ends_the_answer():
    command = f"{BINARY} run 'Once upon a time' | head -c 1"
    ended = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_ctrl_c_ends_a_run_with_its_status(slow_model):
    command = [BINARY, "run", "-m", slow_model, "--chat-template=chatml", "Go on"]
    running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert running.stdout.read(1)
    running.send_signal(signal.SIGINT)
    running.stdout.read()
    assert running.wait(60) == 130


def test_ctrl_c_ends_a_run_that_waits_for_its_input():
    def as_in_a_terminal():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell ignores it for what runs in the background

    command = [BINARY, "run", "--url", "127.0.0.1:1", "Hello"]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, preexec_fn=as_in_a_terminal)
    time.sleep(0.3)  # it waits for its standard input
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == -signal.SIGINT


def test_each_answer_has_a_seed_of_its_own(slow_model):
    command = ["-m", slow_model, "--chat-template=chatml", "-n", "20", "Hello"]
    assert len({run(*command).stdout for _ in range(3)}) == 3
    seeded = {run(*command, "--seed=1").stdout for _ in range(2)}
    assert len(seeded) == 1


def test_a_key_on_the_command_line_is_warned_of(server):
    assert b"can be read by every user" in run("--url", server, "--api-key", KEY, "Hello").stderr


def test_a_model_is_chosen_by_its_name(server):
    environment = os.environ | {"CORELANE_API_KEY": KEY}
    assert run("--url", server, "--url-model", MODEL, "Hello", env=environment).returncode == 0
    wrong = run("--url", server, "--url-model", "other", "Hello", env=environment)
    assert "has no model other; it has corelane" in wrong.stderr.decode()


def test_the_environment_says_whom_to_ask(server):
    environment = os.environ | {"CORELANE_URL": server, "CORELANE_API_KEY": f"{KEY},second"}
    assert run("Once upon a time", env=environment).returncode == 0
    # A model on the command line wins.
    wrong = run("-m", "no-such-file.gguf", "Hello", env=environment)
    assert "no-such-file.gguf" in wrong.stderr.decode()
