"""Requests of the studies' own clients."""

import http.client
import json
import socket
import threading
import urllib.parse
import urllib.request

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
JSON = {"content-type": "application/json"}


def address(url: str) -> tuple[str, int]:
    parts = urllib.parse.urlsplit(url)
    return parts.hostname, parts.port


def connect(url: str, timeout: float = 60) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(*address(url), timeout=timeout)


def begin(url: str, path: str, body, key: str | None = None, timeout: float = 60):
    """A connection, and the response on it of which only the head is read."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = connect(url, timeout)
    connection.request("POST", path, data, JSON | ({"authorization": f"Bearer {key}"} if key else {}))
    return connection, connection.getresponse()


def post(url: str, path: str, body, key: str | None = None, timeout: float = 60) -> tuple[int, bytes]:
    connection, response = begin(url, path, body, key, timeout)
    text = response.read()
    connection.close()
    return response.status, text


def fetch(url: str, key: str | None = None, timeout: float = 60) -> str:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout) as response:
        return response.read().decode()


def head(path: str, method: str, length: int, key: str | None) -> bytes:
    bearer = f"Authorization: Bearer {key}\r\n" if key else ""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{bearer}Content-Length: {length}\r\n\r\n".encode()


def send_raw(url: str, path: str, body: bytes, key: str | None, timeout: float = 60) -> socket.socket:
    """Sends a request on a socket with a small buffer, and reads nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(timeout)
    sock.connect(address(url))
    sock.sendall(head(path, "POST", len(body), key) + body)
    return sock


class Poster:
    """Posts to a server. Each thread keeps its connection."""

    def __init__(self, url: str):
        self.url, self.own = url, threading.local()

    def post(self, path: str, body: dict) -> dict:
        if not hasattr(self.own, "connection"):
            self.own.connection = connect(self.url, timeout=None)
        self.own.connection.request("POST", path, json.dumps(body), JSON)
        response = self.own.connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(answer)
        return answer
