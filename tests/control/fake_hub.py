"""A Hugging Face hub on this machine, as far as pushing and fetching a model needs one: repositories in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeHub:
    """`repos`: name -> revision -> file name -> bytes. Every commit is a revision, and `main` is the newest."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, dict[str, bytes]]] = {}
        self.unknown: list[str] = []  # requests that nothing here answers
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *arguments) -> None:
                pass

            def answer(self, value=None, status: int = 200, body: bytes = b"", headers: dict | None = None) -> None:
                content = json.dumps(value).encode() if value is not None else body
                self.send_response(status)
                for name, text in {"Content-Length": str(len(content)), **(headers or {})}.items():
                    self.send_header(name, text)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.path == "/api/repos/create":
                    told = json.loads(body)
                    name = "/".join(filter(None, (told.get("organization"), told["name"])))
                    hub.repos.setdefault(name, {"main": {}})
                    self.answer({"url": f"{hub.url}/{name}", "id": name})
                elif match := re.fullmatch(r"/api/models/(.+)/preupload/(.+)", self.path):
                    files = [{"path": f["path"], "uploadMode": "regular"} for f in json.loads(body)["files"]]
                    self.answer({"files": [{**file, "shouldIgnore": False} for file in files]})
                elif match := re.fullmatch(r"/api/models/(.+)/commit/(.+)", self.path):
                    self.answer(hub.commit(match[1], match[2], body))
                elif self.path == "/api/validate-yaml":
                    self.answer({"errors": [], "warnings": []})
                else:
                    self.not_found()

            def do_GET(self) -> None:
                path = self.path.split("?")[0]
                if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
                    files = hub.repos.get(match[1], {}).get(match[2] or "main")
                    if files is None:
                        self.answer({"error": "not found"}, 404, headers={"X-Error-Code": "RepoNotFound"})
                        return
                    names = [{"rfilename": name} for name in files]
                    self.answer({"id": match[1], "sha": hub.sha(files), "siblings": names, "tags": []})
                elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/(.+)", path):
                    files = hub.repos[match[1]][match[2]]
                    entries = [
                        {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                        for name, data in files.items()
                    ]
                    self.answer(entries)
                elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                    files = hub.repos.get(match[1], {}).get(match[2], {})
                    if match[3] not in files:
                        self.answer({"error": "not found"}, 404, headers={"X-Error-Code": "EntryNotFound"})
                        return
                    content = files[match[3]]
                    tags = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": hub.sha(files)}
                    self.answer(body=content, headers=tags)
                elif path == "/api/whoami-v2":
                    self.answer({"name": "me", "type": "user", "orgs": []})
                else:
                    self.not_found()

            def do_HEAD(self) -> None:
                self.do_GET()

            def not_found(self) -> None:
                hub.unknown.append(f"{self.command} {self.path}")
                self.answer({"error": "not found"}, 404)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def sha(files: dict[str, bytes]) -> str:
        told = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        return hashlib.sha1(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def commit(self, name: str, revision: str, body: bytes) -> dict[str, str]:
        files = dict(self.repos[name].get(revision, {}))
        for line in body.decode().splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
        sha = self.sha(files)
        self.repos[name][revision] = self.repos[name][sha] = files
        return {"commitUrl": f"{self.url}/{name}/commit/{sha}", "commitOid": sha, "pullRequestUrl": ""}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
