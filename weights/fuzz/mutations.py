"""What can happen to a file: to its bytes, and to what its format means.

A mutation changes one file of a folder in place. It returns None if the format cannot show the
change, else what makes it impossible for a reader to accept the file.
"""

import functools
import io
import json
import random
import re
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Mutation = Callable[[Path, random.Random], str | None]

HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 10**6, 10**8, 2**31, 2**63, -(2**63), 0.5, 1e300, -0.0,
    float("inf"), float("nan"), "", "x", "224", "\x1b[2J\u202e", "[/red]", "$\\frac{$", "../x",
    "/etc/passwd", "x" * 5000,
    [], {}, [[]], [0], [-1, -1], [10**9, 10**9], [1] * 100, {"": {}}, {"name": "timm"},
)  # fmt: skip


def _of_bytes(change: Callable[[bytearray, random.Random], None]) -> Mutation:
    """The mutation of a file by a change of its bytes, of which there are some."""

    @functools.wraps(change)
    def mutation(path: Path, rng: random.Random) -> None:
        content = bytearray(path.read_bytes())
        if content:
            change(content, rng)
        path.write_bytes(content)

    return mutation


@_of_bytes
def flip(content: bytearray, rng: random.Random) -> None:
    """One to eight bits change."""
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


@_of_bytes
def flip_early(content: bytearray, rng: random.Random) -> None:
    """A byte of the first two thousand changes, where most formats keep their header."""
    for _ in range(rng.choice((1, 2))):
        content[rng.randrange(min(len(content), 2000))] = rng.randrange(256)


@_of_bytes
def flip_late(content: bytearray, rng: random.Random) -> None:
    """A byte of the last two thousand changes, where a zip keeps its directory."""
    content[-1 - rng.randrange(min(len(content), 2000))] = rng.randrange(256)


@_of_bytes
def cut(content: bytearray, rng: random.Random) -> None:
    """The end is missing."""
    del content[rng.randrange(len(content) + 1) :]


@_of_bytes
def insert(content: bytearray, rng: random.Random) -> None:
    """Bytes are repeated, or come from elsewhere."""
    place, start = rng.randrange(len(content) + 1), rng.randrange(len(content) + 1)
    piece = rng.choice((b"\0" * 100, rng.randbytes(10), content[start : start + 1000]))
    content[place:place] = piece


@_of_bytes
def blank(content: bytearray, rng: random.Random) -> None:
    """A run of bytes is zero, or all ones."""
    start = rng.randrange(len(content))
    end = min(start + rng.choice((4, 8, 64, 4096)), len(content))
    content[start:end] = rng.choice((b"\0", b"\xff")) * (end - start)


@_of_bytes
def number(content: bytearray, rng: random.Random) -> None:
    """Two to eight bytes become a number at the edge of what they can say."""
    width = rng.choice((2, 4, 8))
    value = rng.choice((0, 1, 2 ** (8 * width) - 1, 2 ** (8 * width - 1), 2 ** (8 * width - 8)))
    if len(content) > width:
        start = rng.randrange(min(len(content) - width, rng.choice((500, 10**9))))
        content[start : start + width] = value.to_bytes(width, rng.choice(("little", "big")))


BYTES: tuple[Mutation, ...] = (flip, flip_early, flip_late, cut, insert, blank, number)


def _shape(shape: tuple[int, ...], rng: random.Random) -> tuple[int, ...]:
    """A shape of as many numbers or of others."""
    sides = list(shape) or [1]
    k = rng.randrange(len(sides))
    choice = rng.randrange(6)
    if choice == 0:
        return tuple(reversed(sides))
    if choice == 1:
        return (int(np.prod(sides)),)
    if choice == 2:
        return (*sides, 1)
    if choice == 3:
        return tuple(sides[:k] + sides[k + 1 :])
    sides[k] = rng.choice((0, 1, sides[k] + 1, sides[k] * 2, 10**6, 10**12, 2**62))
    return tuple(sides)


def _name(name: str, rng: random.Random) -> str:
    """Another name like it."""
    digits = [k for k, letter in enumerate(name) if letter.isdigit()]
    choice = rng.randrange(5)
    if choice == 0 and digits:
        k = rng.choice(digits)
        return name[:k] + rng.choice(("9", "100000", "999999999", "-1", "x")) + name[k + 1 :]
    if choice == 1:
        return name * rng.choice((2, 100))
    if choice == 2:
        k = rng.randrange(len(name) + 1)
        return name[:k] + rng.choice(("/", ".", "\x1b[2J", "\u202e", "é", "\0")) + name[k:]
    if choice == 3:
        return rng.choice(("", "/", "..", "x", "__metadata__", "head/kernel", "cls"))
    return name[: rng.randrange(len(name) + 1)]


def _npy(array: np.ndarray) -> bytes:
    stored = io.BytesIO()
    np.save(stored, array)
    return stored.getvalue()


def npz(path: Path, rng: random.Random) -> str | None:
    """Members of the zip are left out, renamed, repeated, emptied, reshaped or packed."""
    with zipfile.ZipFile(path) as file:
        members = [(info.filename, file.read(info)) for info in file.infolist()]
    k = rng.randrange(len(members))
    name, content = members[k]
    method, kind = zipfile.ZIP_STORED, rng.randrange(9)
    verdict = None
    if kind == 0:
        del members[k]
        verdict = f"{name} is missing"
    elif kind == 1:
        members[k] = (_name(name.removesuffix(".npy"), rng) + ".npy", content)
    elif kind == 2:
        members.insert(rng.randrange(len(members)), (name, content))
        verdict = f"{name} stands twice"
    elif kind == 3:
        members.append((_name(name, rng) + ".npy", members[rng.randrange(len(members))][1]))
    elif kind == 4:
        method = rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    elif kind == 5:
        types = ("float64", "float16", "int32", "complex64", "U3", "bool", ">f4")
        members[k] = (name, _npy(np.load(io.BytesIO(content)).astype(rng.choice(types))))
    elif kind == 6:
        array, stored = np.load(io.BytesIO(content)), io.BytesIO()
        header = {
            "descr": rng.choice(("<f4", "<f8", "|O", "|V2", "<M8[s]", [("a", "<f4")])),
            "fortran_order": rng.choice((False, True)),
            "shape": _shape(array.shape, rng),
        }
        with warnings.catch_warnings(action="ignore"):
            np.lib.format.write_array_header_1_0(stored, header)
        members[k] = (name, stored.getvalue() + array.tobytes())
    elif kind == 7:
        members += [(f"{name}{j}", b"") for j in range(rng.choice((10, 1000)))]
    else:
        zeros = np.zeros(rng.choice((0, 1, 10**6)), np.load(io.BytesIO(content)).dtype)
        members[k] = (name, _npy(zeros))
        method = zipfile.ZIP_DEFLATED
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(path, "w", method) as file:
        for name, content in members:
            file.writestr(zipfile.ZipInfo(name.replace("\0", "") or "x"), content, method)
    return verdict


def safetensors(path: Path, rng: random.Random) -> str | None:
    """Entries of the header say something else."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    name = rng.choice([name for name in header if name != "__metadata__"])
    entry = header[name]
    kind = rng.randrange(8)
    verdict = None
    if kind == 0:
        del header[name]
        verdict = f"{name} is missing"
    elif kind == 1:
        header[_name(name, rng)] = header.pop(name)
    elif kind == 2:
        entry["shape"] = list(_shape(tuple(entry["shape"]), rng))
    elif kind == 3:
        end = rng.randrange(2)
        entry["data_offsets"][end] = rng.choice((0, 1, -1, len(data), len(data) + 1, 2**62, 1.5))
    elif kind == 4:
        entry["dtype"] = rng.choice(("F16", "BF16", "F64", "I32", "U8", "F8_E4M3", "", None, []))
    elif kind == 5:
        entry[rng.choice(("shape", "dtype", "data_offsets"))] = rng.choice(HOSTILE)
    elif kind == 6:
        header |= {
            f"{name}{j}": {**entry, "shape": [0], "data_offsets": [0, 0]}
            for j in range(rng.choice((1, 1000)))
        }
    else:
        header["__metadata__"] = rng.choice(HOSTILE)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return verdict


_NOT_READ = re.compile("^optimizer/|^layers/dinov2_embedding/vars/3$|_text_encoder/")
"""Arrays of good h5 files that no model needs: resized positions of DINOv2, text encoders."""


def h5(path: Path, rng: random.Random) -> str | None:
    """Datasets are left out, moved, reshaped, linked, or lie in other files."""
    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visititems(lambda n, item: names.append(n) if isinstance(item, h5py.Dataset) else None)
        name = rng.choice(names)
        shape, kind = file[name].shape, rng.randrange(9)
        if kind == 8:
            file[name].attrs["dtype"] = rng.choice(("bfloat16", "x", 1.5, [1, 2], b"bfloat16"))
            return None
        array = file[name][()]
        del file[name]
        if kind == 0:
            return None if _NOT_READ.search(name) else f"{name} is missing"
        if kind == 1:
            file[_name(name, rng).replace("\0", "").strip("./") or "x"] = array
        elif kind == 2:
            file[name] = np.zeros([min(side, 1000) for side in _shape(shape, rng)][:8], "f4")
        elif kind == 3:
            file.create_dataset(name, [min(side, 10**6) for side in shape], "f4")
            return f"{name} was never written" if array.size else None
        elif kind == 4:
            file[name] = rng.choice((h5py.SoftLink("/x"), h5py.ExternalLink("/etc/passwd", "x")))
            return f"{name} is a link"
        elif kind == 5:
            file.create_dataset(
                name, shape, "f4", external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)]
            )
            return f"{name} lies elsewhere"
        elif kind == 6:
            file[name] = rng.choice((h5py.Empty("f4"), "text", array.astype("i4"), b"x"))
        else:
            chunks = True if array.ndim else None
            file.create_dataset(name, data=array, chunks=chunks)
    return None


def json_tree(path: Path, rng: random.Random) -> None:
    """A value of a JSON file is another, is missing, or goes by another name."""
    tree = json.loads(path.read_text())
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        keys = node if isinstance(node, dict) else range(len(node))
        for key in list(keys)[:200]:
            places.append((node, key))
            if isinstance(node[key], (dict, list)):
                walk(node[key])

    walk(tree)
    for _ in range(rng.choice((1, 1, 2))):
        node, key = rng.choice(places)
        kind = rng.randrange(8)
        try:
            if kind == 0:
                del node[key]
            elif kind == 1 and isinstance(node, dict):
                node[_name(str(key), rng)] = node.pop(key)
            elif kind == 2 and isinstance(node[key], (int, float)):
                node[key] = node[key] * rng.choice((-1, 0, 2, 10**6)) + rng.choice((0, 1, 0.5))
            else:
                node[key] = rng.choice(HOSTILE)
        except (KeyError, IndexError):
            pass
    text = json.dumps(tree)
    if rng.randrange(20) == 0:
        text = text.replace("1", "1" * 5000, 1)
    path.write_text(text)


def whole_file(path: Path, rng: random.Random) -> str | None:
    """The file is missing, empty, a link, or something else altogether."""
    path.unlink()
    kind = rng.randrange(5)
    if kind == 1:
        path.write_bytes(b"")
    elif kind == 2:
        path.symlink_to("/dev/zero")
    elif kind == 3:
        path.mkdir()
    elif kind == 4:
        path.write_bytes(rng.choice((b"<html>", b"\x80\x04.", b"{}", b"[]", b"PK\3\4")))
    return None


STRUCTURE: dict[str, Mutation] = {
    ".npz": npz,
    ".safetensors": safetensors,
    ".h5": h5,
    ".json": json_tree,
}


def chosen(path: Path, rng: random.Random) -> Mutation:
    """A mutation for a file: of its structure, three times of five, where it has one."""
    kind = rng.randrange(100)
    if kind < 3:
        return whole_file
    if kind < 60 and path.suffix in STRUCTURE:
        return STRUCTURE[path.suffix]
    return rng.choice(BYTES)
