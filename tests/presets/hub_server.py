"""A Hub and a bucket on 127.0.0.1 with the HTTP that huggingface_hub uses, and chosen failures.

Repositories live in memory, with commits, branches, gates and tokens. Weights are stored with
LFS: requests for them are redirected to another host, as to the Hub's CDN.
"""

import base64
import contextlib
import dataclasses
import hashlib
import json
import re
import socket
import struct
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

TOKEN = "hf_" + "a" * 34
_LFS = (".safetensors", ".npz", ".h5", ".bin")


def git_sha(content: bytes) -> str:
    """The name of a blob in git."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclasses.dataclass
class Repo:
    """A repository: its branches, and the files of every commit."""

    branches: dict[str, str] = dataclasses.field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = dataclasses.field(default_factory=dict)
    messages: list[str] = dataclasses.field(default_factory=list)
    private: bool = False
    gated: bool = False

    def commit(self, files: dict[str, bytes], branch: str = "main", message: str = "") -> str:
        """Adds files on top of a branch; returns the commit's sha."""
        tree = {**self.commits.get(self.branches.get(branch, ""), {}), **files}
        sha = hashlib.sha1(f"{len(self.commits)}{branch}{sorted(tree)}".encode()).hexdigest()
        self.commits[sha] = tree
        self.branches[branch] = sha
        self.messages.append(message)
        return sha

    def resolve(self, revision: str) -> str | None:
        """The commit of a branch or commit."""
        return self.branches.get(revision, revision if revision in self.commits else None)


@dataclasses.dataclass
class Fault:
    """A failure of matching requests.

    Args:
        where: regular expression on `"METHOD /path"`.
        status: of the answer.
        headers: of the answer; without a status they replace those of the right answer, and
            None removes one.
        cut: the connection breaks after so many bytes of the body.
        whole: a request for the rest of a file gets it from its start.
        reset: the connection breaks by a reset instead of its regular end.
        truncated: so many bytes fewer are announced and sent.
        change: what becomes of the bytes of the body.
        silence: seconds before the connection ends without an answer.
        drip: the header has no end, and comes byte by byte.
        endless: the body has no end.
        times: so many requests fail; None for all.
    """

    where: str
    status: int | None = None
    headers: dict[str, str | None] = dataclasses.field(default_factory=dict)
    cut: int | None = None
    whole: bool = False
    reset: bool = False
    truncated: int = 0
    change: Callable[[bytes], bytes] | None = None
    silence: float = 0.0
    drip: bool = False
    endless: bool = False
    times: int | None = None


def inverted(content: bytes) -> bytes:
    """A change of a body: every bit is another."""
    return bytes(byte ^ 0xFF for byte in content)


class Hub:
    """The state of the server: repositories, files of the bucket, uploads, faults and requests."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.files: dict[str, bytes] = {}
        self.objects: dict[str, bytes] = {}
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.authorizations: list[str | None] = []
        self.bytes_per_second: float | None = None
        self.endpoint = ""

    def add(self, name: str, files: dict[str, bytes] | Path, **fields) -> Repo:
        """Adds a repository with one commit of the given files or of the files in a folder."""
        if isinstance(files, Path):
            files = {
                path.relative_to(files).as_posix(): path.read_bytes()
                for path in files.rglob("*")
                if path.is_file()
            }
        repo = self.repos[name] = Repo(**fields)
        repo.commit(files)
        return repo

    def fail(self, where: str, **fields) -> None:
        """Makes matching requests fail from now on; see `Fault`."""
        self.faults.append(Fault(where, **fields))

    def seen(self, pattern: str) -> list[str]:
        """The requests so far that match the pattern."""
        return [request for request in self.requests if re.search(pattern, request)]

    def fetched(self) -> set[str]:
        """The names of the files whose bytes were requested."""
        found = (re.match(r"GET /[^/]+/[^/]+/resolve/[^/]+/(.*)", r) for r in self.requests)
        by_name = {match[1] for match in found if match}
        shas = {request.split("/cdn/")[1] for request in self.seen("^GET /cdn/")}
        for repo in self.repos.values():
            for tree in repo.commits.values():
                by_name |= {name for name, content in tree.items() if sha256(content) in shas}
        return by_name

    def fault_at(self, request: str) -> Fault:
        """The fault of a request; one without effect if the request succeeds."""
        for fault in self.faults:
            if fault.times != 0 and re.search(fault.where, request):
                fault.times = fault.times and fault.times - 1
                return fault
        return Fault("")


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


def environment(hub: Hub, cache: Path) -> dict[str, str]:
    """Environment variables that point huggingface_hub and keras_vit at a server; a cache."""
    return {
        "KERAS_VIT_BUCKET": hub.endpoint,
        "KERAS_VIT_CACHE": str(cache),
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(cache),
        "HF_HUB_CACHE": str(cache / "hub"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }


def connect(hub: Hub, cache: Path, monkeypatch) -> None:
    """Points this process at a server, with an empty cache and no waiting between attempts."""
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session

    for name, value in environment(hub, cache).items():
        monkeypatch.setenv(name, value)
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "KERAS_VIT_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    template = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(cache / "token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    clock = types.SimpleNamespace(sleep=lambda seconds: None, time=time.time)
    for module in ("huggingface_hub.utils._http", "huggingface_hub.file_download"):
        monkeypatch.setattr(f"{module}.time", clock)
    close_session()  # the session may have another proxy


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), OSError):  # the client has gone, perhaps killed
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = f"{self.command} {path}"
        self.hub.requests.append(request)
        self.hub.authorizations.append(self.headers.get("Authorization"))
        self.fault = self.hub.fault_at(request)
        if self.fault.silence:
            time.sleep(self.fault.silence)
            self.close_connection = True
            return None
        if self.fault.drip:
            return self._repeat(b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.01)
        if self.fault.status is not None:
            return self._send(self.fault.status, b'{"error": "on purpose"}')
        if path[1:] in self.hub.files:
            return self._bytes(self.hub.files[path[1:]], {})
        for pattern, method in self._ROUTES:
            if match := re.fullmatch(pattern, request):
                return method(self, *match.groups())
        return self._send(404, b"no such route")

    # Repositories

    def _info(self, name: str, revision: str | None) -> None:
        if (found := self._repo(name, revision)) is None:
            return
        repo, sha = found
        siblings = []
        for path, content in repo.commits[sha].items():
            entry = {"rfilename": path, "size": len(content), "blobId": git_sha(content)}
            if path.endswith(_LFS):
                entry["lfs"] = {"sha256": sha256(content), "size": len(content), "pointerSize": 134}
            siblings.append(entry)
        answer = {"_id": "1", "id": name, "modelId": name, "sha": sha, "private": repo.private}
        self._json(200, {**answer, "gated": repo.gated, "tags": [], "siblings": siblings})

    def _resolve(self, name: str, revision: str, path: str) -> None:
        if (found := self._repo(name, revision)) is None:
            return
        repo, sha = found
        if repo.gated and not self._authorised():
            headers = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted."}
            return self._send(401, b"", headers)
        headers = {"X-Repo-Commit": sha}
        if path not in repo.commits[sha]:
            return self._send(404, b"", {**headers, "X-Error-Code": "EntryNotFound"})
        content = repo.commits[sha][path]
        if not path.endswith(_LFS):
            return self._bytes(content, {**headers, "ETag": f'"{git_sha(content)}"'})
        oid = sha256(content)
        self.hub.objects[oid] = content
        headers |= {"X-Linked-Etag": f'"{oid}"', "X-Linked-Size": str(len(content))}
        elsewhere = self.hub.endpoint.replace("127.0.0.1", "localhost")
        self._send(302, b"", {**headers, "Location": f"{elsewhere}/cdn/{oid}"})

    def _cdn(self, oid: str) -> None:
        if self.headers.get("Authorization"):
            return self._send(400, b"the token has left the Hub")
        self._bytes(self.hub.objects[oid], {"ETag": f'"{oid}"'})

    def _repo(self, name: str, revision: str | None) -> tuple[Repo, str] | None:
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and not self._authorised()):
            code, message = "RepoNotFound", "Repository not found"
            self._send(404, b"", {"X-Error-Code": code, "X-Error-Message": message})
            return None
        sha = repo.resolve(revision or "main")
        if sha is None:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
            return None
        return repo, sha

    def _authorised(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    # Uploads

    def _create(self) -> None:
        if not self._authorised():
            return self._json(401, {"error": "Invalid username or password."})
        asked = json.loads(self.sent)
        name = f"{asked['organization']}/{asked['name']}"
        url = {"url": f"{self.hub.endpoint}/{name}", "name": name}
        if name in self.hub.repos:
            return self._json(409, {**url, "error": "You already created this model repo"})
        private = asked.get("visibility") == "private"
        self.hub.add(name, {".gitattributes": b"*.safetensors filter=lfs"}, private=private)
        self._json(200, url)

    def _branch(self, name: str, branch: str) -> None:
        repo = self.hub.repos[name]
        repo.branches[branch] = repo.branches["main"]
        self._json(200, {})

    def _validate_yaml(self) -> None:
        """Checks the types of the fields as the Hub does."""
        match = re.match(r"---\n(.*?)\n---\n", json.loads(self.sent)["content"], re.DOTALL)
        data = yaml.safe_load(match[1]) if match else {}
        errors = [
            {"message": f'"{field}" must be of type {kind.__name__}'}
            for field, kind in {"license": str, "tags": list, "metrics": list}.items()
            if not isinstance(data.get(field, kind()), kind)
        ]
        self._json(400 if errors else 200, {"errors": errors, "warnings": []})

    def _preupload(self, name: str, revision: str) -> None:
        if (found := self._repo(name, revision)) is None:
            return
        tree = found[0].commits[found[1]]
        files = []
        for file in json.loads(self.sent)["files"]:
            old = tree.get(file["path"])
            is_lfs = file["path"].endswith(_LFS)
            oid = None if old is None else sha256(old) if is_lfs else git_sha(old)
            mode = "lfs" if is_lfs else "regular"
            files.append(
                {"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid}
            )
        self._json(200, {"files": files})

    def _batch(self, name: str) -> None:
        objects = []
        for wanted in json.loads(self.sent)["objects"]:
            entry = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self.hub.objects:
                place = f"{self.hub.endpoint}/storage/{wanted['oid']}"
                entry["actions"] = {"upload": {"href": place}}
            objects.append(entry)
        self._json(200, {"transfer": "basic", "objects": objects})

    def _store(self, oid: str) -> None:
        if sha256(self.sent) != oid:
            return self._send(400, b"wrong checksum")
        self.hub.objects[oid] = self.sent
        self._send(200, b"")

    def _commit(self, name: str, revision: str) -> None:
        if not self._authorised():
            return self._json(403, {"error": "no write access"})
        if (found := self._repo(name, revision)) is None:
            return
        repo, sha = found
        files, header = {}, {}
        for line in self.sent.splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "header":
                header = value
            elif item["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif item["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
        if header.get("parentCommit", sha) != sha:
            return self._json(412, {"error": "A commit has happened since. Please refresh."})
        new = repo.commit(files, revision, header["summary"])
        url = f"{self.hub.endpoint}/{name}/commit/{new}"
        self._json(200, {"success": True, "commitUrl": url, "commitOid": new})

    _ROUTES = (
        (r"GET /api/models/([^/]+/[^/]+)(?:/revision/(.+))?", _info),
        (r"(?:GET|HEAD) /([^/]+/[^/]+)/resolve/(refs/pr/\d+|[^/]+)/(.+)", _resolve),
        (r"(?:GET|HEAD) /cdn/(\w+)", _cdn),
        (r"POST /api/repos/create", _create),
        (r"POST /api/validate-yaml", _validate_yaml),
        (r"POST /api/models/([^/]+/[^/]+)/branch/(.+)", _branch),
        (r"POST /api/models/([^/]+/[^/]+)/preupload/(.+)", _preupload),
        (r"POST /api/models/([^/]+/[^/]+)/commit/(.+)", _commit),
        (r"POST /([^/]+/[^/]+).git/info/lfs/objects/batch", _batch),
        (r"PUT /storage/(\w+)", _store),
    )

    # Answers

    def _json(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        if self.fault.change is not None:
            body = self.fault.change(body)
        self._send(status, body, {"Content-Type": "application/json"})

    def _bytes(self, content: bytes, headers: dict[str, str]) -> None:
        if self.fault.change is not None:
            content = self.fault.change(content)
        content = content[: max(0, len(content) - self.fault.truncated)]
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked is None or self.fault.whole:
            return self._send(200, content, headers)
        start, end = int(asked[1]), min(int(asked[2] or len(content)) + 1, len(content))
        if start > len(content):
            return self._send(416, b"")
        span = f"bytes {start}-{end - 1}/{len(content)}"
        return self._send(206, content[start:end], {**headers, "Content-Range": span})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        stated = {**(headers or {}), "Content-Length": str(len(body)), **self.fault.headers}
        if self.fault.endless and self.command == "GET":
            stated |= {"Content-Length": None, "Transfer-Encoding": "chunked"}
        if self.fault.headers or self.fault.status:
            # A wrong length, and a body where the status has none, end with the connection.
            stated["Connection"] = "close"
        for name, value in stated.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.fault.endless:
            return self._repeat(b"", b"ffff\r\n" + bytes(0xFFFF) + b"\r\n", 0.0)
        if self.fault.cut is not None:
            body = body[: self.fault.cut]
            self.close_connection = True
        try:
            self._write(body)
        except OSError:  # the client has gone, perhaps killed
            self.close_connection = True
        if self.fault.reset:  # closing without lingering sends RST
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.rfile.close()
            self.connection.close()

    def _repeat(self, start: bytes, more: bytes, pause: float) -> None:
        """Sends bytes until the client goes; at last they end, so that a test fails."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.write(start)
            for _ in range(2000):
                self.wfile.write(more)
                time.sleep(pause)

    def _write(self, body: bytes) -> None:
        speed = self.hub.bytes_per_second
        if speed is None:
            self.wfile.write(body)
            return
        step = max(1, int(speed / 200))
        for start in range(0, len(body), step):
            self.wfile.write(body[start : start + step])
            self.wfile.flush()
            time.sleep(step / speed)
