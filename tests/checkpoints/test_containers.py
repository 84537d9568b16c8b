"""Files of arrays: hostile headers are refused before memory or time is spent."""

import io
import json
import os
import resource
import struct
import zipfile
import zlib
from functools import partial
from pathlib import Path
from traceback import extract_tb

import h5py
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.containers import open_arrays
from keras_vit.errors import CheckpointError, shown
from tests.checkpoints.files import arrays_of, copy, find, write_shapes
from tests.plain import assert_same_arrays, raises, stored

pytestmark = pytest.mark.without_backend

MIB = 2**20


@pytest.fixture(autouse=True)
def memory():
    """Limits every test to 256 MiB of additional memory."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        now = int(file.read().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + 256 * MIB, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


def npy(shape: str, data: bytes = b"", descr: str = "'<f4'") -> bytes:
    """A .npy member of a shape and a type."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in members:
            file.writestr(name, content)
    return buffer.getvalue()


def forged(count: int, directory, stated: int) -> bytes:
    """A zip with `directory` of its list of members in place of the list."""
    content = zipped(*((f"{name}.npy", ONES) for name in "abcd"[:count]))
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        start = file.start_dir
    entries = directory(content[start:-22])
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, stated, stated, len(entries), start, 0)
    return content[:start] + entries + end


def swallow(entries: bytes) -> bytes:
    """The comment of the second of four members reaches to the end."""
    at = 46 + len("a.npy") + 32
    return entries[:at] + struct.pack("<H", 2 * (at - 32)) + entries[at + 2 :]


def share(entries: bytes) -> bytes:
    """The first entry under 200 names."""
    return b"".join(entries[:46] + b"%05d" % k for k in range(200))


def safetensors(header, length: int | None = None, data: bytes = b"\1\2\3\4") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def tensor(start: int, end: int, shape=None, **changes) -> dict:
    shape = shape or [end - start]
    return {"dtype": "U8", "shape": shape, "data_offsets": [start, end], **changes}


def huge_directory(path: Path) -> None:
    """A zip whose list of members has a gigabyte."""
    path.write_bytes(b"PK\3\4")
    os.truncate(path, 2**30)
    with path.open("ab") as file:
        file.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, 2**30, 0, 0))


def holds(*shape, dtype="f4", **form):
    """Creates a dataset."""
    return lambda file: file.create_dataset("a", *shape, dtype=dtype, **form)


def short_chunk(file):
    """libhdf5 would return uninitialised memory as weights."""
    array = file.create_dataset("a", (64, 64), "f4", chunks=(64, 64), compression="gzip")
    array.id.write_direct_chunk((0, 0), zlib.compress(bytes(2048)))


ONES = npy("(10000,)", b"\1" * 40_000)
BAD_NPY = {
    "3 GiB promised": (npy("(805306368,)", b"\0" * 100), "3221225472 bytes, but 100"),
    "a negative axis": (npy("(-1,)", b"\0" * 4), "shape (-1,)"),
    "an axis without numbers": (npy("(1000000000000, 0)"), "(1000000000000, 0)"),
    "a structure": (npy("()", b"\0" * 8, "[('a', '<f4'), ('b', '<f4')]"), "expected numbers"),
    "deep text": (npy("-" * 5000 + "1"), "array 'a'"),
    "Python objects": (npy("(1,)", b"\x80\x04N.", "'|O'"), "never unpickled"),
}
"""Impossible shapes, dtypes and lengths, text that does not parse, and Python objects."""
BAD_FILES = {
    "swallowed members": (forged(4, swallow, 4), "2 arrays, and the end of the file states 4"),
    "shared bytes": (forged(2, share, 200), "complete npz"),
    "too many members": (forged(1, lambda old: old * 10_001, 0), "10,001 arrays"),
    "twins": (forged(2, lambda old: old[:51] * 2, 2), "array 'a' is in the file twice"),
    "a huge directory": (huge_directory, "1,073,741,824 bytes"),
    "damaged bytes": (
        zipped(("a.npy", ONES)).replace(b"\1" * 9, b"?" * 9, 1),
        "array 'a' is damaged",
    ),
    "lzma": (zipped(("a.npy", ONES), method=zipfile.ZIP_LZMA), "compressed"),
    "a torch pickle": (zipped(("a/data.pkl", b"\x80\x02}.")), "PyTorch pickle"),
    "a Python pickle": (b"\x80\x04\x95" + bytes(20), "Python pickle"),
    "a page": (b"<!DOCTYPE html><html></html>", "b'<!DOCTYP'"),
    "a pipe": (os.mkfifo, "regular file"),
    "a device": (partial(os.symlink, "/dev/zero"), "regular file"),
    "an incomplete header": (safetensors(b'{"a":1}', 99), "its header should have 99 "),
}
"""Members that disappear, share their bytes, or are counted before they are read; other files.

Opening a pipe does not wait, and a device does not fill the memory.
"""
TENSOR = json.dumps(tensor(0, 4)).encode()
BAD_HEADERS = {
    "a negative offset": ({"a": tensor(0, 4, data_offsets=[-4, 0])}, "whole numbers"),
    "deep lists": (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not a complete"),
    "beyond the file": ({"a": tensor(0, 5)}, "describes 5 bytes, but 4 follow"),
    "an overlap": ({"a": tensor(0, 3), "b": tensor(1, 4)}, "overlaps"),
    "a gap": ({"a": tensor(0, 1), "b": tensor(2, 4)}, "gap"),
    "an unknown type": ({"a": tensor(0, 4, dtype="F4")}, "'F4'"),
    "twins": (b'{"a":%b,"a":%b}' % (TENSOR, TENSOR), "'a' is in the header twice"),
    "a long name": ({"a" * 5000: tensor(0, 4)}, "5,000 characters"),
    "many names": ({f"n{k}": tensor(0, 0, [0]) for k in range(20_000)}, "10,001 arrays"),
    "nine megabytes": (b"{" + b" " * 9 * MIB, "9,437,185 bytes"),
}
BAD_H5 = {
    "external storage": (holds((10,), external=[("/etc/passwd", 0, 40)]), "another file"),
    "never written": (holds((600_000_000,)), "needs 2,400,000,000 bytes, 0"),
    "chunks never written": (holds((1000, 1000), chunks=(10, 1000)), "never written"),
    "a short chunk": (short_chunk, "expected 16,384"),
    "large chunks": (holds((10,), chunks=(10**9,), maxshape=(None,)), "never written"),
    "a foreign filter": (holds((4,), compression="lzf"), "HDF5 filters"),
    "an external link": (lambda f: f.update({"g/a": h5py.ExternalLink("/etc", "x")}), "is a link"),
    "a group in itself": (lambda f: f.update({"g/g": f.require_group("g")}), "deeply nested"),
}
"""Data of other files, data that was never written, foreign filters, endless groups."""
VIT = {name: array.shape for name, array in arrays_of("vit_token_linen.npz").items()}
BLOCKS = {f"Transformer/encoderblock_{10**8}/LayerNorm_0/scale": (16,)}
UNITS = {"conv_root/kernel": (7, 7, 3, 8), "block9/unit1/gn1/scale": (8,)}
BAD_NAMES = {
    "100,000,000 blocks": (VIT | BLOCKS, "expected arrays for"),
    "nine stages": (VIT | UNITS, "more than 8 stages"),
}
"""Blocks and units before a huge number are not listed."""


def refuses(content, ask=open_arrays):
    """Writes a file, by bytes or a function, and asks for it."""

    def call(world):
        path = world.path / "x"
        path.write_bytes(content) if type(content) is bytes else content(path)
        try:
            ask(path)
        except CheckpointError as error:
            message, cause = str(error), error.__cause__
            if cause and "keras_vit" not in extract_tb(cause.__traceback__)[-1].filename:
                for text in (str(cause), shown(str(cause), quoted=False)):
                    message = message.replace(f" ({text})", "")
            raise CheckpointError(message) from error  # without the words of another library

    return call


def in_h5(fill):
    def write(path):
        with h5py.File(path, "w") as file:
            fill(file)

    return refuses(write, stored)


MAKERS = {
    "npy": (BAD_NPY, lambda member: refuses(zipped(("a.npy", member)))),
    "file": (BAD_FILES, lambda content: refuses(content, stored)),
    "safetensors": (BAD_HEADERS, lambda header: refuses(safetensors(header))),
    "h5": (BAD_H5, in_h5),
    "names": (BAD_NAMES, lambda n: refuses(partial(write_shapes, shapes=n), keras_vit.info)),
}
REFUSALS = {
    f"{kind}: {fault}": (make(content), CheckpointError, word)
    for kind, (faults, make) in MAKERS.items()
    for fault, (content, word) in faults.items()
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    messages.check(name, REFUSALS, world)


def test_an_npz_that_expands_a_thousand_times_is_refused(tmp_path, monkeypatch):
    """16 MiB, such as a new head, are read. A variable sets the limit."""
    path, zeros = tmp_path / "x.npz", npy("(4194304,)", b"\0" * 16 * MIB)

    def write(*names):
        path.write_bytes(zipped(*((n, zeros) for n in names), method=zipfile.ZIP_DEFLATED))

    write("a.npy")
    assert not stored(path)["a"].any()
    write(*"abcdef")
    with raises(CheckpointError, "KERAS_VIT_MAX_EXPANSION"):
        open_arrays(path)
    monkeypatch.setenv("KERAS_VIT_MAX_EXPANSION", "2000")
    assert open_arrays(path).shapes.keys() == {*"abcdef"}


def test_h5_arrays_of_every_form_are_read(tmp_path):
    """A scalar, an array without values, and pairs of bytes that are not called bfloat16."""
    array, path = np.random.default_rng(0).standard_normal((50, 30)), tmp_path / "x.h5"
    forms = {"chunks": (7, 9)}, {"compression": "gzip", "shuffle": True, "fletcher32": True}
    arrays = {"none": np.zeros((0, 3), "f4"), "scalar": np.float32(3), "pairs": np.zeros(3, "V2")}
    for form, mark in zip(forms, (np.zeros(3), "float8"), strict=True):
        with h5py.File(path, "w") as file:
            file.create_dataset("a", data=array, **form)
            file.update(arrays)
            file["pairs"].attrs["dtype"] = mark
        assert_same_arrays(stored(path), {"a": array, **arrays})


KINDS = ("vit_token_published.npz", "tf_vit/tf_model.h5", "hf_model/model.safetensors")


@pytest.mark.parametrize("name", KINDS)
def test_a_cut_file_is_refused(tmp_path, name):
    """At every twentieth of its length, when it is opened or read."""
    content, path = find(name).read_bytes(), tmp_path / Path(name).name
    for part in range(20):
        path.write_bytes(content[: len(content) * part // 20])
        with raises(CheckpointError, str(path)):
            stored(path)


@pytest.mark.parametrize("name", KINDS)
def test_an_open_file_that_is_replaced_is_read_as_it_was(tmp_path, name):
    """Replacing the file is not reported as damage."""
    path = copy(name, tmp_path)
    file = path.open("rb")
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "other").replace(path)
    with open_arrays(path, file) as reader:
        assert_same_arrays({n: reader.read(n) for n in reader.shapes}, stored(find(name)))
    assert file.closed
