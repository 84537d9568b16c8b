"""A Hub and a bucket on 127.0.0.1 with the HTTP that huggingface_hub uses, and chosen failures.

Repositories live in memory, with commits, branches, gates and tokens. Weights are stored with
LFS: requests for them are redirected to another host, as to the Hub's CDN.
"""

import base64
import contextlib
import hashlib
import json
import re
import sys
import threading
import time
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_" + "a" * 34
_LFS = (".safetensors", ".npz", ".h5", ".bin")


def _hash(path: str, content: bytes) -> str:
    """The name of a file's content: sha256 with LFS, otherwise that of a blob in git."""
    if path.endswith(_LFS):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Repo:
    """A repository: its branches, and the files of every commit."""

    branches: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    private: bool = False
    gated: bool = False

    def files(self, branch: str = "main") -> dict[str, bytes]:
        """The files of a branch."""
        return self.commits.get(self.branches.get(branch, ""), {})

    def commit(self, files: dict[str, bytes], branch: str = "main", message: str = "") -> str:
        """Adds files on top of a branch; returns the commit's sha."""
        tree = {**self.files(branch), **files}
        sha = hashlib.sha1(f"{len(self.commits)}{branch}{sorted(tree)}".encode()).hexdigest()
        self.commits[sha], self.branches[branch] = tree, sha
        self.messages.append(message)
        return sha


def inverted(content: bytes) -> bytes:
    """A change of a body: every bit is another."""
    return bytes(byte ^ 0xFF for byte in content)


class Hub:
    """The state of the server: repositories, files of the bucket, uploads, faults and requests."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.files: dict[str, bytes] = {}
        self.objects: dict[str, bytes] = {}
        self.faults: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.authorizations: list[str | None] = []
        self.endpoint = ""

    def add(self, name: str, files: dict[str, bytes] | Path, **fields) -> Repo:
        """Adds a repository with one commit of the given files or of the files in a folder."""
        if isinstance(files, Path):
            paths = [path for path in files.rglob("*") if path.is_file()]
            files = {path.relative_to(files).as_posix(): path.read_bytes() for path in paths}
        repo = self.repos[name] = Repo(**fields)
        repo.commit(files)
        return repo

    def fail(self, where: str, **fault) -> None:
        """Makes matching requests fail from now on.

        Args:
            where: regular expression on `"METHOD /path"`.
            fault: `times`, so many requests, fail; all by default.
                `status` and `body` of the answer, and its `headers`; without a status they replace
                those of the right answer, and None removes one.
                `cut`: the connection breaks after so many bytes of the body.
                `whole`: a request for the rest of a file gets it from its start.
                `change`: what becomes of the bytes of the body.
                `silence`: seconds before the connection ends without an answer.
                `drip`: the header has no end, and comes byte by byte.
                `endless`: the body has no end.
        """
        self.faults.append({"where": where, "times": None, **fault})

    def fetched(self) -> set[str]:
        """The names of the files whose bytes were requested."""
        found = (
            re.match(r"GET /(?:[^/]+/[^/]+/resolve/[^/]+|cdn/\w+)/(.*)", r) for r in self.requests
        )
        return {match[1] for match in found if match}

    def fault_at(self, request: str) -> dict[str, Any]:
        """The fault of a request; an empty one if the request succeeds."""
        for fault in self.faults:
            if fault["times"] != 0 and re.search(fault["where"], request):
                fault["times"] = fault["times"] and fault["times"] - 1
                return {name: value for name, value in fault.items() if value is not None}
        return {}


@contextlib.contextmanager
def served() -> Iterator[Hub]:
    """Runs a Hub on a free port of 127.0.0.1; `hub.endpoint` is its address."""
    hub = Hub()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def connect(hub: Hub, cache: Path, monkeypatch) -> None:
    """Points this process at a server, with an empty cache and no waiting between attempts."""
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session

    places = {"KERAS_VIT_BUCKET": hub.endpoint, "KERAS_VIT_CACHE": str(cache)}
    places |= {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(cache)}
    for name, value in places.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "KERAS_VIT_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    settings = {
        "ENDPOINT": hub.endpoint,
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(cache / "hub"),
        "HF_TOKEN_PATH": str(cache / "token"),
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_DISABLE_PROGRESS_BARS": True,
        "HF_HUB_DISABLE_TELEMETRY": True,
        "HF_HUB_OFFLINE": False,
    }
    for name, setting in settings.items():
        monkeypatch.setattr(constants, name, setting)
    clock = types.SimpleNamespace(sleep=lambda seconds: None, time=time.time)
    for module in ("huggingface_hub.utils._http", "huggingface_hub.file_download"):
        monkeypatch.setattr(f"{module}.time", clock)
    close_session()  # the session may have another proxy


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), OSError):  # the client has gone, perhaps killed
            super().handle_error(request, client_address)


class _RefusedError(Exception):
    """Status and headers of an answer without a body."""


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = f"{self.command} {path}"
        self.hub.requests.append(request)
        self.hub.authorizations.append(self.headers.get("Authorization"))
        self.fault = self.hub.fault_at(request)
        if seconds := self.fault.get("silence"):
            time.sleep(seconds)
            self.close_connection = True
        elif self.fault.get("drip"):
            self._repeat(b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.01)
        elif status := self.fault.get("status"):
            self._send(status, self.fault.get("body", b'{"error": "on purpose"}'))
        elif path[1:] in self.hub.files:
            self._bytes(self.hub.files[path[1:]], {})
        else:
            try:
                self._route(request)
            except _RefusedError as refused:
                self._send(refused.args[0], b"", refused.args[1])

    do_HEAD = do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _route(self, request: str) -> None:
        for pattern, method in self._ROUTES:
            if match := re.fullmatch(pattern, request):
                return method(self, *match.groups())
        raise _RefusedError(404, {})

    # Repositories

    def _find(self, name: str, revision: str | None) -> tuple[Repo, str]:
        """A repository, and the commit of a branch or commit."""
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and not self._authorised()):
            raise _RefusedError(404, {"X-Error-Code": "RepoNotFound"})
        sha = repo.branches.get(revision or "main", revision)
        if sha not in repo.commits:
            raise _RefusedError(404, {"X-Error-Code": "RevisionNotFound"})
        return repo, sha

    def _authorised(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _info(self, name: str, revision: str | None) -> None:
        repo, sha = self._find(name, revision)
        siblings = []
        for path, content in repo.commits[sha].items():
            oid, size = _hash(path, content), len(content)
            entry = {"rfilename": path, "size": size, "blobId": oid}
            if path.endswith(_LFS):
                entry["lfs"] = {"sha256": oid, "size": size, "pointerSize": 134}
            siblings.append(entry)
        answer = {"_id": "1", "id": name, "modelId": name, "sha": sha, "private": repo.private}
        self._json(200, {**answer, "gated": repo.gated, "tags": [], "siblings": siblings})

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repo, sha = self._find(name, revision)
        if repo.gated and not self._authorised():
            raise _RefusedError(401, {"X-Error-Code": "GatedRepo"})
        headers = {"X-Repo-Commit": sha}
        if path not in repo.commits[sha]:
            raise _RefusedError(404, {**headers, "X-Error-Code": "EntryNotFound"})
        content = repo.commits[sha][path]
        oid = _hash(path, content)
        if not path.endswith(_LFS):
            return self._bytes(content, {**headers, "ETag": f'"{oid}"'})
        self.hub.objects[oid] = content
        headers |= {"X-Linked-Etag": f'"{oid}"', "X-Linked-Size": str(len(content))}
        elsewhere = self.hub.endpoint.replace("127.0.0.1", "localhost")
        return self._send(302, b"", {**headers, "Location": f"{elsewhere}/cdn/{oid}/{path}"})

    def _cdn(self, oid: str) -> None:
        if self.headers.get("Authorization"):
            return self._send(400, b"the token has left the Hub")
        return self._bytes(self.hub.objects[oid], {"ETag": f'"{oid}"'})

    # Uploads

    def _create(self) -> None:
        if not self._authorised():
            return self._json(401, {"error": "Invalid username or password."})
        asked = json.loads(self.sent)
        name = f"{asked['organization']}/{asked['name']}"
        private = asked.get("visibility") == "private"
        self.hub.add(name, {".gitattributes": b"*.safetensors filter=lfs"}, private=private)
        return self._json(200, {"url": f"{self.hub.endpoint}/{name}", "name": name})

    def _validate_yaml(self) -> None:
        self._json(200, {"errors": [], "warnings": []})

    def _preupload(self, name: str, revision: str) -> None:
        paths = [file["path"] for file in json.loads(self.sent)["files"]]
        told = {"uploadMode": "regular", "shouldIgnore": False, "oid": None}
        self._json(200, {"files": [{"path": path, **told} for path in paths]})

    def _commit(self, name: str, revision: str) -> None:
        repo, sha = self._find(name, revision)
        header, *items = (json.loads(line)["value"] for line in self.sent.splitlines())
        if header.get("parentCommit") != sha:
            return self._json(412, {"error": "A commit has happened since. Please refresh."})
        files = {item["path"]: base64.b64decode(item["content"]) for item in items}
        new = repo.commit(files, revision, header["summary"])
        url = f"{self.hub.endpoint}/{name}/commit/{new}"
        return self._json(200, {"success": True, "commitUrl": url, "commitOid": new})

    _ROUTES = (
        (r"GET /api/models/([^/]+/[^/]+)(?:/revision/(.+))?", _info),
        (r"(?:GET|HEAD) /([^/]+/[^/]+)/resolve/(refs/pr/\d+|[^/]+)/(.+)", _resolve),
        (r"(?:GET|HEAD) /cdn/(\w+)/.*", _cdn),
        (r"POST /api/repos/create", _create),
        (r"POST /api/validate-yaml", _validate_yaml),
        (r"POST /api/models/([^/]+/[^/]+)/preupload/(.+)", _preupload),
        (r"POST /api/models/([^/]+/[^/]+)/commit/(.+)", _commit),
    )

    # Answers

    def _json(self, status: int, value: object) -> None:
        body = self.fault.get("change", bytes)(json.dumps(value).encode())
        self._send(status, body, {"Content-Type": "application/json"})

    def _bytes(self, content: bytes, headers: dict[str, str]) -> None:
        content = self.fault.get("change", bytes)(content)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked is None or self.fault.get("whole"):
            return self._send(200, content, headers)
        start, end = int(asked[1]), min(int(asked[2] or len(content)) + 1, len(content))
        span = f"bytes {start}-{end - 1}/{len(content)}"
        return self._send(206, content[start:end], {**headers, "Content-Range": span})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] = MappingProxyType({})):
        self.send_response(status)
        stated = {**headers, "Content-Length": str(len(body)), **self.fault.get("headers", {})}
        is_endless = self.fault.get("endless") and self.command == "GET"
        if is_endless:
            stated |= {"Content-Length": None, "Transfer-Encoding": "chunked"}
        if self.fault.get("headers") or self.fault.get("status"):
            # A wrong length, and a body where the status has none, end with the connection.
            stated["Connection"] = "close"
        for name, value in stated.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        if is_endless:
            self._repeat(b"", b"ffff\r\n" + bytes(0xFFFF) + b"\r\n", 0.0)
        elif self.command != "HEAD":
            with contextlib.suppress(OSError):  # the client has gone, perhaps killed
                self.wfile.write(body[: self.fault.get("cut")])
        if "cut" in self.fault:
            self.close_connection = True

    def _repeat(self, start: bytes, more: bytes, pause: float) -> None:
        """Sends bytes until the client goes; at last they end, so that a test fails."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.write(start)
            for _ in range(2000):
                self.wfile.write(more)
                time.sleep(pause)
