"""The server under a service manager: it says when it is ready, and a restart loses no request.

The manager here is this test. It speaks sd_notify(3), and hands over a socket as sd_listen_fds(3) describes.
"""

import collections
import contextlib
import http.client
import json
import os
import pty
import re
import signal
import socket
import subprocess
import threading
import time

from conftest import BINARY

CLIENTS = 32
UPGRADES = 3
BODY = {"prompt": "Once", "max_tokens": 100, "stream": True, "ignore_eos": True, "temperature": 0}


class Manager:
    """Opens a port, and starts servers on it."""

    def __init__(self, folder):
        self.said = []
        self.changed = threading.Condition()
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify_path = str(folder / "notify")
        self.notify.bind(self.notify_path)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while message := self.notify.recv(4096).decode():
            with self.changed:
                self.said += message.splitlines()
                self.changed.notify_all()

    def wait_for(self, word):
        with self.changed:
            assert self.changed.wait_for(lambda: word in self.said, timeout=30), (word, self.said)
            del self.said[: self.said.index(word) + 1]

    def start(self, *flags):
        # The third descriptor is the first one that a manager hands over. The shell has the server's process id.
        script = f"exec 3<&{self.listener.fileno()}; export LISTEN_PID=$$; exec {BINARY} serve --log=warn "
        environment = os.environ | {"NOTIFY_SOCKET": self.notify_path, "LISTEN_FDS": "1", "WATCHDOG_USEC": "900000"}
        return subprocess.Popen(
            ["bash", "-c", script + " ".join(flags)],
            env=environment,
            pass_fds=[self.listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )


@contextlib.contextmanager
def streams(port, results):
    """Clients that ask for one stream after another: half of them on a new connection each time, the others on one for
    as long as the server keeps it open."""
    over = threading.Event()

    def ask(connection):
        connection.request("POST", "/v1/completions", json.dumps(BODY), {"content-type": "application/json"})
        response = connection.getresponse()
        body = response.read()
        return "whole" if body.endswith(b"data: [DONE]\n\n") else f"{response.status}: {body[-200:]!r}"

    def run(reuses):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while not over.is_set():
            try:
                results[ask(connection)] += 1
            except (OSError, http.client.HTTPException) as error:
                results[repr(error)] += 1
                connection.close()
            if not reuses:
                connection.close()

    threads = [threading.Thread(target=run, args=[n % 2 == 0]) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_restart_on_the_managers_socket_loses_no_request(tmp_path):
    manager, results = Manager(tmp_path), collections.Counter()
    server = manager.start("--ops-addr=none")
    manager.wait_for("READY=1")
    with streams(manager.port, results):
        for _ in range(UPGRADES):
            manager.wait_for("WATCHDOG=1")
            server.terminate()
            manager.wait_for("STOPPING=1")
            assert server.wait(timeout=60) == 0
            server = manager.start("--ops-addr=none")
            manager.wait_for("READY=1")
        time.sleep(0.5)
    server.send_signal(signal.SIGHUP)
    manager.wait_for("RELOADING=1")
    manager.wait_for("READY=1")
    server.terminate()
    assert server.wait(timeout=60) == 0
    print(results)
    assert set(results) == {"whole"} and results["whole"] > UPGRADES * CLIENTS, results


def test_what_is_no_listening_socket_is_refused(tmp_path):
    manager = Manager(tmp_path)
    manager.listener.close()
    manager.listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    assert manager.start("--ops-addr=none").wait(timeout=30) == 1


def test_a_server_ends_with_its_terminal():
    controller, terminal = pty.openpty()
    command = [BINARY, "serve", "--port=0", "--ops-addr=none", "--log=warn"]
    with subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, text=True) as server:
        while not re.search("lanes", server.stdout.readline()):
            pass
        server.send_signal(signal.SIGHUP)
        assert server.wait(timeout=60) == 0
    os.close(controller)
    os.close(terminal)
