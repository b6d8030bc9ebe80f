"""A hub on the loopback address that serves one repository, as far as huggingface_hub and corelane ask for it."""

import contextlib
import hashlib
import http.server
import json
import threading

COMMIT = "1234567890abcdef1234567890abcdef12345678"


class LoopbackHub:
    """`requests` has the method and the path of each request so far, `ranges` the `Range` of each one for a file's
    bytes."""

    def __init__(self, repo, files):
        self.repo, self.files, self.requests, self.ranges = repo, files, [], []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def listing(self):
        siblings = []
        for path, content in self.files.items():
            file = {"rfilename": path, "size": len(content), "blobId": "0" * 40}
            if path.endswith(".gguf"):
                sha256 = hashlib.sha256(content).hexdigest()
                file["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 134}
            siblings.append(file)
        return {"id": self.repo, "modelId": self.repo, "sha": COMMIT, "siblings": siblings}

    def handler(hub):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.answer()

            def do_GET(self):
                self.answer()

            def answer(self):
                hub.requests.append((self.command, self.path))
                path = self.path.split("?")[0]
                for revision in (COMMIT, "main"):
                    if path.startswith(prefix := f"/{hub.repo}/resolve/{revision}/"):
                        return self.send_file(path.removeprefix(prefix))
                if path.startswith(f"/api/models/{hub.repo}"):
                    body = json.dumps(hub.listing()).encode()
                    return self.send(200, {"Content-Type": "application/json"}, body)
                self.send(404, {"X-Error-Code": "RepoNotFound"}, b"")

            def send_file(self, name):
                content = hub.files.get(name)
                if content is None:
                    return self.send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, b"")
                headers = {
                    "X-Repo-Commit": COMMIT,
                    "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
                    "Accept-Ranges": "bytes",
                }
                if self.command == "GET":
                    hub.ranges.append(self.headers.get("Range"))
                first = 0
                if wanted := self.headers.get("Range"):
                    first = int(wanted.removeprefix("bytes=").split("-")[0])
                    headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
                self.send(206 if wanted else 200, headers, content[first:])

            def send(self, status, headers, body):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", len(body))
                self.end_headers()
                if self.command != "HEAD":
                    with contextlib.suppress(OSError):
                        self.wfile.write(body)

        return Handler


if __name__ == "__main__":
    # By hand: python tests/python/loopback_hub.py REPO FILE...
    import pathlib
    import sys

    repo, *paths = sys.argv[1:]
    hub = LoopbackHub(repo, {pathlib.Path(path).name: pathlib.Path(path).read_bytes() for path in paths})
    print(f"export HF_ENDPOINT={hub.endpoint}", flush=True)
    threading.Event().wait()
