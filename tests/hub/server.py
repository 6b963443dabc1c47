"""A hub on this machine: the part of the real one's API that downloading uses, with its faults on order.

Two servers as there: the hub itself, and one for the large files, on another port. Every request is logged.
The first is a package index, too.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from tests.waiting import DEADLINE_S

LARGE = (".gguf", ".safetensors")
"""suffixes of files that real repositories keep in LFS"""


class Asked(NamedTuple):
    """One request as it came."""

    server: str
    path: str
    range: str | None
    token: str | None


class Refusal(NamedTuple):
    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b"{}"
    is_endless: bool = False


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Repository:
    """Files by name."""

    files: dict[str, bytes]

    @property
    def commit(self) -> str:
        lines = "".join(f"{name}{sha256(content)}" for name, content in sorted(self.files.items()))
        return hashlib.sha1(lines.encode()).hexdigest()

    def listing(self) -> dict[str, Any]:
        return {"id": "x", "sha": self.commit, "siblings": [self.entry(name) for name in self.files]}

    def entry(self, name: str) -> dict[str, Any]:
        content = self.files[name]
        entry: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": git_id(content)}
        if name.endswith(LARGE):
            entry["lfs"] = {"sha256": sha256(content), "size": len(content), "pointerSize": 130}
        return entry


@dataclass
class Hub:
    """The two servers' state; tests set the faults, and read the log."""

    url: str = ""
    cdn: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    log: list[Asked] = field(default_factory=list)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    """by a part of the path: what is answered instead"""
    answers: list[Refusal] = field(default_factory=list)
    """to the next requests, until the connection is closed, the last one to all further ones"""
    etag: str | None = None
    """what answers with files have as their ETags"""
    altered: dict[str, bytes] = field(default_factory=dict)
    """by a file's name: what is sent in place of its content"""
    pauses: dict[str, int] = field(default_factory=dict)
    """by a file's name: after how many bytes its answer waits for `go_on`"""
    go_on: threading.Event = field(default_factory=threading.Event)
    packages: dict[str, bytes] = field(default_factory=dict)
    """files of a package index"""

    def add(self, repo: str, files: dict[str, bytes]) -> Repository:
        self.repositories[repo] = Repository(files)
        return self.repositories[repo]

    def ranges_of(self, content: bytes) -> list[str | None]:
        """Return the Range headers of the requests for a large file."""
        return [asked.range for asked in self.log if asked.path == f"/blobs/{sha256(content)}"]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub
    name: str

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        sent = (self.headers.get(name) for name in ("Range", "Authorization"))
        self.hub.log.append(Asked(self.name, path, *sent))
        if self.hub.answers:
            return self.play(self.hub.answers.pop(0) if self.hub.answers[1:] else self.hub.answers[0])
        for part, refusal in self.hub.refusals.items():
            if part in path:
                return self.answer(refusal.status, refusal.body, refusal.headers)
        if path.startswith(("/simple/", "/files/")):
            return self.package(path.strip("/").rpartition("/")[2])
        if self.name == "cdn":
            return self.blob(path.removeprefix("/blobs/"))
        if path.startswith("/api/models/"):
            return self.listing(path.removeprefix("/api/models/"))
        repo, found, rest = path.strip("/").partition("/resolve/")
        if found:
            return self.resolve(repo, *rest.split("/", 1))
        return self.answer(404, b"")

    do_HEAD = do_GET

    def play(self, answer: Refusal) -> None:
        self.send_response(answer.status)
        for key, value in answer.headers.items():
            self.send_header(key, value)
        self.end_headers()
        for _ in repeat(None) if answer.is_endless else (None,):
            self.wfile.write(answer.body)
        self.close_connection = True

    def listing(self, repo: str) -> None:
        if repo not in self.hub.repositories:
            return self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        return self.answer(200, json.dumps(self.hub.repositories[repo].listing()).encode())

    def package(self, name: str) -> None:
        """A page of the package index's simple API, or a package; without a token it denies all."""
        if self.headers["Authorization"] is None:
            return self.answer(401, b"")
        if name in self.hub.packages:
            return self.answer(200, self.hub.packages[name])
        links = ""
        for file, content in self.hub.packages.items():
            if file.startswith(name.replace("-", "_")):
                digest = f"sha256={sha256(content)}"
                links += f'<a href="../../files/{file}#{digest}">{file}</a><br>'
        return self.answer(200 if links else 404, links.encode())

    def resolve(self, repo: str, commit: str, name: str) -> None:
        repository = self.hub.repositories[repo]
        content = repository.files.get(name)
        if content is None or commit not in (repository.commit, "main"):
            return self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        headers = {"X-Repo-Commit": repository.commit}
        if not name.endswith(LARGE):
            return self.send(name, content, {**headers, "ETag": f'"{self.hub.etag or git_id(content)}"'})
        digest = sha256(content)
        linked = {"X-Linked-Etag": f'"{self.hub.etag or digest}"', "X-Linked-Size": str(len(content))}
        return self.answer(302, b"", {**headers, **linked, "Location": f"{self.hub.cdn}/blobs/{digest}"})

    def blob(self, digest: str) -> None:
        for repository in self.hub.repositories.values():
            for name, content in repository.files.items():
                if sha256(content) == digest:
                    return self.send(name, content, {"ETag": f'"{digest}"'})
        return self.answer(404, b"")

    def send(self, name: str, content: bytes, headers: Mapping[str, str]) -> None:
        """Send a file from the requested byte on, as far as its faults permit."""
        content = self.hub.altered.get(name, content)
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        partly = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        self.begin(206 if start else 200, len(content) - start, {**headers, **partly})
        if self.command == "HEAD":
            return
        pause = self.hub.pauses.get(name)
        body = content[start:]
        if pause is not None:
            self.wfile.write(body[:pause])
            assert self.hub.go_on.wait(4 * DEADLINE_S)
            body = body[pause:]
        self.wfile.write(body)

    def begin(self, status: int, length: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(key, value)
        self.end_headers()

    def answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.begin(status, len(body), headers or {})
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr: the log is the tests'."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are killed hang up; that is what they are killed for."""


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub on two free ports."""
    hub = Hub()
    servers = []
    for name in ("hub", "cdn"):
        handler = type(name, (Handler,), {"hub": hub, "name": name})
        servers.append(Server(("127.0.0.1", 0), handler))
    hub.url, hub.cdn = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
    threads = [threading.Thread(target=server.serve_forever, args=(0.02,)) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        hub.go_on.set()
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()
