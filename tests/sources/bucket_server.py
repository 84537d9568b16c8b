"""A bucket on 127.0.0.1 with the HTTP of Google Cloud Storage and faults that tests choose."""

import base64
import contextlib
import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from urllib.parse import unquote

Fault = Callable[["_Handler", bytes], bool]
"""Answers a request in place of the server; returns whether it has answered."""


class Bucket(ThreadingHTTPServer):
    """Serves `files` by path; `faults` answer first, one per GET, and `head_faults` per HEAD."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, list[Fault]] = {}
        self.head_faults: dict[str, list[Fault]] = {}
        self.gets: Counter[str] = Counter()
        self.ranges: list[str | None] = []
        self.pause = 0.0  # seconds before each 64 KiB
        self.validators = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address) -> None:
        """Ignores errors of connections, such as those of killed clients."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bucket

    @property
    def is_head(self) -> bool:
        return self.command == "HEAD"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(self.path).removeprefix("/")
        faults = (self.server.head_faults if self.is_head else self.server.faults).get(path, [])
        if not self.is_head:
            self.server.gets[path] += 1
            self.server.ranges.append(self.headers.get("Range"))
        body = self.server.files.get(path)
        if faults and faults.pop(0)(self, body or b""):
            return
        if body is None:
            return self.answer(404, b"error page")
        etag = f'"{hashlib.md5(body).hexdigest()}"'
        start = 0
        wanted = self.headers.get("Range", "")
        if wanted:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if start > len(body):
            return self.answer(416)
        headers = {"x-goog-hash": f"crc32c=AAAAAA==,md5={md5_of(body)}"}
        if self.server.validators:
            headers["ETag"] = etag
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        self.answer(206 if start else 200, body[start:], headers)

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.is_head:
            return
        for first in range(0, len(body), 65536):
            if self.server.pause:
                time.sleep(self.server.pause)
            self.wfile.write(body[first : first + 65536])

    def log_message(self, *arguments: object) -> None:
        """Prints no log."""


def md5_of(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body).digest()).decode()


def status(code: int, **headers: str) -> Fault:
    """The server answers with the given status."""

    def fault(handler: _Handler, body: bytes) -> bool:
        handler.answer(code, b"error page", headers)
        return True

    return fault


def cut(after: int) -> Fault:
    """The connection breaks after `after` bytes of the announced body."""

    def fault(handler: _Handler, body: bytes) -> bool:
        etag = f'"{hashlib.md5(body).hexdigest()}"'
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("ETag", etag)
        handler.end_headers()
        handler.wfile.write(body[:after])
        handler.close_connection = True
        return True

    return fault


def changed(headers: dict[str, str], body: bytes | None = None) -> Fault:
    """The server answers 200 with other headers, and another body if one is given."""

    def fault(handler: _Handler, original: bytes) -> bool:
        handler.answer(200, original if body is None else body, headers)
        return True

    return fault


def silence(seconds: float) -> Fault:
    """The server accepts the request and does not answer for some seconds."""

    def fault(handler: _Handler, body: bytes) -> bool:
        time.sleep(seconds)
        handler.close_connection = True
        return True

    return fault


def drawn(
    status: int | None = None,
    headers: Mapping[str, str | None] = MappingProxyType({}),
    cut: int | None = None,
    truncated: int = 0,
    change: Callable[[bytes], bytes] | None = None,
    **ignored: object,
) -> Fault:
    """A fault as the campaigns draw it, with the fields of `tests.sources.hub_server.Fault`."""

    def fault(handler: _Handler, body: bytes) -> bool:
        sent = change(body) if change else body
        sent = sent[: max(0, len(sent) - truncated)]
        stated: dict[str, str | None] = {
            "Content-Length": str(len(sent)),
            "ETag": f'"{hashlib.md5(body).hexdigest()}"',
            "x-goog-hash": f"md5={md5_of(body)}",
            **headers,
        }
        handler.send_response(status or 200)
        for name, value in stated.items():
            if value is not None:
                handler.send_header(name, value)
        handler.end_headers()
        handler.close_connection = True
        if not handler.is_head:
            handler.wfile.write(b"error page" if status else sent[:cut])
        return True

    return fault


@contextlib.contextmanager
def serving() -> Iterator[Bucket]:
    """A running bucket, which is stopped on exit."""
    bucket = Bucket()
    thread = threading.Thread(target=bucket.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield bucket
    finally:
        bucket.shutdown()
        bucket.server_close()
        thread.join()
