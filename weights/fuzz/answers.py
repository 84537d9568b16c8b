"""Wrong answers of the Hub: a server on 127.0.0.1, and the real client.

An input is a file `x.answers`, a JSON list of faults. The child starts a server once, lets it
answer with the faults of each input, and loads from it into an empty cache. After a refusal the
faults end, and the same call must succeed: a refusal leaves nothing behind that stands in its way.
"""

import contextlib
import hashlib
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.presets import hub_server
from weights.fuzz import mutations
from weights.fuzz.mutations import Mutation

READERS = ("hub",)
FILE = "x.answers"
_ADDRESS = "hf://us/digits"
_LIST = "GET /api/models"
"""The request whose answer states the checksums."""
_REQUESTS = (_LIST, "HEAD /us", "GET /us", "HEAD /cdn", "GET /cdn", ".")
_STATUSES = (
    200, 204, 206, 301, 302, 304, 400, 401, 403, 404, 408, 410, 416, 418, 429, 451, 500, 502, 503,
    504, 599,
)  # fmt: skip
_LIES: dict[str, tuple[str | None, ...]] = {
    "Content-Length": ("0", "-1", "x", str(10**15), None),
    "Content-Range": ("bytes 0-0/1", "x", None),
    "Content-Encoding": ("gzip", "x"),
    "Content-Type": ("text/html", "", None),
    "ETag": ("", '"x"', 'W/"x"', '"../../x"', "x" * 5000, None),
    "X-Repo-Commit": ("", "x", "../../x", "0" * 40, None),
    "X-Linked-Etag": ("", '"x"', '"../../x"', None),
    "X-Linked-Size": ("0", "-1", "x", str(10**15), None),
}
_WORDS = ("[/red]", "\x9b2J", "RepoNotFound", "EntryNotFound", "RevisionNotFound", "GatedRepo")
_PLACES = ("/", "", "file:///etc/passwd", "ftp://x/", "http://127.0.0.1:9/x", "x" * 5000, "//")
_PAUSES = ("0", "1", "7", "3600", "-1", "x", "9" * 30, "Wed, 21 Oct 2099 07:28:00 GMT")


def of_files(path: Path, rng: random.Random) -> None:
    """Bytes of files are other or incomplete; what the server states of them is true."""
    _write(path, rng, ("status", "cut", "change", "truncated"), but_lists=True)


def of_everything(path: Path, rng: random.Random) -> None:
    """Also headers and lists of files are other, so that other bytes may be what was stated."""
    _write(path, rng, ("status", "cut", "change", "change", "truncated", "headers", "headers"))


def chosen(rng: random.Random) -> Mutation:
    """One of the two mutations."""
    return rng.choice((of_files, of_everything))


def _write(path: Path, rng: random.Random, kinds: tuple[str, ...], but_lists: bool = False) -> None:
    faults = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind, where = rng.choice(kinds), rng.choice(_REQUESTS)
        if but_lists and kind != "status" and where in (".", _LIST):
            where = "GET /us"
        fault: dict[str, Any] = {"where": where, "times": rng.choice((1, 1, 2, 7, None))}
        if kind == "status":
            header = rng.choice(("Retry-After", "X-Error-Code", "X-Error-Message", "Location", ""))
            choices = {"Retry-After": _PAUSES, "Location": _PLACES}.get(header, _WORDS)
            fault["status"] = rng.choice(_STATUSES)
            fault["headers"] = {header: rng.choice(choices)} if header else {}
        elif kind == "cut":
            fault |= {"cut": rng.choice((0, 1, 100, 10_000)), "reset": rng.random() < 0.3}
        elif kind == "change":
            mutators = [*mutations.BYTES, *([mutations.json_tree] * 7)]
            fault["change"] = [rng.choice(mutators).__name__, rng.randrange(2**32)]
        elif kind == "truncated":
            fault["truncated"] = rng.choice((1, 8, 1000))
        else:
            names = rng.sample(sorted(_LIES), rng.choice((1, 1, 2)))
            fault["headers"] = {name: rng.choice(_LIES[name]) for name in names}
        faults.append(fault)
    path.write_text(json.dumps(faults))


def make(reader: str, folder: Path) -> None:
    """Writes the name of the server in place of its faults: it answers right."""
    (folder / FILE).write_text(f"{reader}\n")


def get_answer(reader: str, folder: Path, good: Any) -> Any:
    """What is loaded from a server with these faults.

    Raises:
        KerasViTError: the refusal, after which the server's right answers are loaded.
        RuntimeError: after the refusal, the server's right answers are not loaded.
    """
    from keras_vit.errors import KerasViTError
    from keras_vit.presets.catalog import preset_named

    text = (folder / FILE).read_text()
    faults = json.loads(text) if text.startswith("[") else []
    with (
        tempfile.TemporaryDirectory() as cache,
        hub_server.served() as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        server.add("us/digits", preset_named("vit_digits").folder)
        hub_server.connect(server, Path(cache), patch)
        for fault in faults:
            server.fail(**{**fault, "change": _changed(fault.get("change"))})
        try:
            return _load()
        except KerasViTError as error:
            refusal = error
        server.faults.clear()
        try:
            later = _load()
        except KerasViTError as error:
            raise RuntimeError(f"refused also without faults: {error}") from refusal
        if later != good:
            raise RuntimeError(f"other contents without faults, after {refusal}") from refusal
    raise _at(folder, refusal) from refusal.__cause__


def _at(folder: Path, error: Exception) -> Exception:
    """The refusal, which must name the address, with the name of the folder of its faults."""
    if not any(name in str(error) for name in (_ADDRESS, "us--digits")):
        return error
    return type(error)(f"{folder.name}: {error}")


def _changed(spec: list[Any] | None) -> Callable[[bytes], bytes] | None:
    """A function that changes the body of an answer by a mutation of a file."""
    if spec is None:
        return None
    mutation, seed = getattr(mutations, spec[0]), spec[1]

    def change(body: bytes) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "body")
            path.write_bytes(body)
            with contextlib.suppress(ValueError, IndexError):  # no JSON, or nothing in it
                mutation(path, random.Random(seed))
            return path.read_bytes()

    return change


def _load() -> Any:
    from keras_vit.checkpoints.opening import open_source
    from keras_vit.checkpoints.reading import open_checkpoint
    from keras_vit.presets.source import Source

    with open_source(Source.parse(_ADDRESS)) as opened:
        about = open_checkpoint(opened, {}).info
        numbers = {
            name: hashlib.sha1(opened.reader.read(name).tobytes()).hexdigest()
            for name in opened.reader.shapes
        }
        assert opened.preset is not None
        return {"numbers": numbers, "told": repr(opened.preset.to_dict()), "of": about.family}
