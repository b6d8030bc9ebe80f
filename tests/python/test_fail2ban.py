"""The filter for fail2ban: it finds the address of a client with a wrong key, and no other."""

import configparser
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from conftest import BINARY, address

FILE = Path(__file__).parents[2] / "packaging" / "fail2ban" / "corelane.conf"


def failregex():
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(FILE)
    return re.compile(parser["Definition"]["failregex"].replace("<HOST>", r"(?P<host>[0-9a-f:.]+)"))


def status(url, path, headers, body=None):
    try:
        request = urllib.request.Request(url + path, body, headers)
        return urllib.request.urlopen(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_address_of_a_wrong_key_is_found(tmp_path):
    log = tmp_path / "log"
    command = [BINARY, "serve", "--port", "0", "--ops-addr", "none", "--key", "alice:secret"]
    forged = {"x-request-id": 'a" peer=203.0.113.9 path="b" status=401 reason="'}
    wrong = {"authorization": "Bearer wrong"}
    right = {"authorization": "Bearer secret"}
    with log.open("w") as stderr:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        banner = ""
        while "max_tokens" not in banner:
            line = server.stdout.readline()
            assert line, f"the server ended: {log.read_text()}"
            banner += line
        url = address(banner)
        assert status(url, "/slots", wrong | forged) == 401
        assert status(url, "/slots", {}) == 401
        assert status(url, "/slots", right) == 200
        assert status(url, "/nothing", right) == 404
        assert status(url, "/x%20status=401%20peer=203.0.113.9", right | forged) == 404
        body = b'{"prompt": "a", "max_tokens": 1}'
        assert status(url, "/v1/completions", right | forged, body) == 200
    finally:
        server.terminate()
        ended = server.wait(timeout=60)
    assert ended == 0
    lines = log.read_text().splitlines()
    found = [match["host"] for line in lines if (match := failregex().match(line))]
    assert found == ["127.0.0.1"], lines  # not the request without a key
