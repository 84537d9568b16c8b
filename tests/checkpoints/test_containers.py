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
from keras_vit.checkpoints.containers import open_arrays, write_npz
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
    with path.open("wb") as file:
        file.write(b"PK\3\4")
        file.truncate(2**30)
        file.seek(0, io.SEEK_END)
        file.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, 2**30, 0, 0))


def foreign_filter(file):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((4,))
    plist.set_filter(6, h5py.h5z.FLAG_OPTIONAL, (2, 4))  # scale-offset
    space = h5py.h5s.create_simple((4,))
    h5py.h5d.create(file.id, b"a", h5py.h5t.NATIVE_INT32, space, plist)
    file["a"][:] = 1


def holds(*shape, dtype="f4", **form):
    """Creates a dataset."""
    return lambda file: file.create_dataset("a", *shape, dtype=dtype, **form)


def short_chunk(file):
    """libhdf5 would return uninitialised memory as weights."""
    array = file.create_dataset("a", (64, 64), "f4", chunks=(64, 64), compression="gzip")
    array.id.write_direct_chunk((0, 0), zlib.compress(bytes(2048)))


def skips_chunks(file):
    array = file.create_dataset("a", (1000, 1000), "f4", chunks=(10, 1000))
    array[:990] = 1


ONES = npy("(10000,)", b"\1" * 40_000)
BAD_NPY = {
    "3 GiB promised": (npy("(805306368,)", b"\0" * 100), "3221225472 bytes, but 100"),
    "a negative axis": (npy("(-1,)", b"\0" * 4), "shape (-1,)"),
    "an axis without numbers": (npy("(1000000000000, 0)"), "(1000000000000, 0)"),
    "40 axes": (npy("(" + "1, " * 40 + ")", b"\0" * 4), "(1, 1, 1"),
    "a structure": (npy("()", b"\0" * 8, "[('a', '<f4'), ('b', '<f4')]"), "expected numbers"),
    "deep text": (npy("-" * 5000 + "1"), "array 'a'"),
    "no end of the header": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "array 'a' is damaged"),
    "another version": (b"\x93NUMPY\x09\x00", "npy format version (9, 0)"),
    "Python objects": (npy("(1,)", b"\x80\x04N.", "'|O'"), "never unpickled"),
}
"""Impossible shapes, dtypes and lengths, text that does not parse, and Python objects."""
BAD_FILES = {
    "swallowed members": (forged(4, swallow, 4), "2 arrays, and the end of the file states 4"),
    "shared bytes": (forged(2, share, 200), "complete npz"),
    "too many members": (forged(1, lambda old: old * 10_001, 0), "10,001 arrays"),
    "twins": (forged(2, lambda old: old[:51] * 2, 2), "array 'a' stands twice"),
    "a huge directory": (huge_directory, "1,073,741,824 bytes"),
    "damaged bytes": (
        zipped(("a.npy", ONES)).replace(b"\1" * 9, b"?" * 9, 1),
        "array 'a' is damaged",
    ),
    "lzma": (zipped(("a.npy", ONES), method=zipfile.ZIP_LZMA), "compressed"),
    "a torch pickle": (zipped(("a/data.pkl", b"\x80\x02}.")), "torch pickle"),
    "a Python pickle": (b"\x80\x04\x95" + bytes(20), "Python pickle"),
    "another zip": (zipped(("model/readme.txt", b"hello")), "model/readme.txt"),
    "a page": (b"<!DOCTYPE html><html></html>", "b'<!DOCTYP'"),
    "a pipe": (os.mkfifo, "plain file"),
    "a device": (partial(os.symlink, "/dev/zero"), "plain file"),
    "a folder": (Path.mkdir, "is a folder"),
    "nothing": (lambda path: None, "does not exist"),
    "an incomplete header": (safetensors(b'{"a":1}', 99), "its header says it has 99 bytes"),
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
    "a shape of another size": ({"a": tensor(0, 4, [5])}, "needs 5 bytes"),
    "an unknown type": ({"a": tensor(0, 4, dtype="F4")}, "'F4'"),
    "an axis without numbers": ({"a": tensor(0, 4), "b": tensor(4, 4, [10**12, 0])}, "'b'"),
    "twins": (b'{"a":%b,"a":%b}' % (TENSOR, TENSOR), "'a' stands twice"),
    "a long name": ({"a" * 5000: tensor(0, 4)}, "5,000 characters"),
    "many names": ({f"n{k}": tensor(0, 0, [0]) for k in range(20_000)}, "10,001 arrays"),
    "nine megabytes": (b"{" + b" " * 9 * MIB, "9,437,185 bytes"),
}
BAD_H5 = {
    "external storage": (holds((10,), external=[("/etc/passwd", 0, 40)]), "another file"),
    "never written": (holds((600_000_000,)), "promises 2,400,000,000 bytes, 0"),
    "chunks never written": (skips_chunks, "never written"),
    "a short chunk": (short_chunk, "expected 16,384"),
    "large chunks": (holds((10,), chunks=(10**9,), maxshape=(None,)), "never written"),
    "a foreign filter": (foreign_filter, "HDF5 filters"),
    "no dataspace": (holds(data=h5py.Empty("f4")), "'a' is empty"),
    "an external link": (lambda f: f.update({"g/a": h5py.ExternalLink("/etc", "x")}), "is a link"),
    "a group in itself": (lambda f: f.update({"g/g": f.require_group("g")}), "deeply nested"),
}
"""Data of other files, data that was never written, foreign filters, endless groups."""
BAD_JSON = {
    "a long number": (b'{"a": ' + b"9" * 5000 + b"}", "config.json"),
    "a list": (b"[1]", "config.json"),
    "16 MiB": (b" " * (2**24 + 1), "config.json"),
}


VIT = {name: array.shape for name, array in arrays_of("vit_token_linen.npz").items()}
BLOCKS = {f"Transformer/encoderblock_{10**8}/LayerNorm_0/scale": (16,)}
UNITS = {"conv_root/kernel": (7, 7, 3, 8), "block9/unit1/gn1/scale": (8,)}
PARTS = ("encoder.layer.0.attention.self.query.weight", "blocks.0.mlp.fc1.weight", "cls_token")
BAD_NAMES = {
    "100,000,000 blocks": (VIT | BLOCKS, "are announced"),
    "nine stages": (VIT | UNITS, "more than 8 stages"),
    "9,900 names": ({f"{k % 10}n{k}/kernel_{k}": (2, 2) for k in range(9900)}, "more"),
    "long names": ({f"{a * 90}.{part}": (8, 8) for a in "abc" for part in PARTS}, "and 5 more"),
}
"""Blocks and units before a huge number are not listed, nor many or long names."""


def refuses(content, ask=open_arrays, file="x"):
    """Writes a file, by bytes or a function, and asks for it."""

    def call(world):
        path = world.path / file
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


def about_folder(path):
    """Asks for the weights beside a config.json, and for their folder."""
    write_npz(path.with_name("model.npz"), [("a", np.zeros(2, "float32"))])
    for source in (path.with_name("model.npz"), path.parent):
        with raises(CheckpointError, "config.json") as caught:
            keras_vit.info(source)
    raise caught.value


MAKERS = {
    "npy": (BAD_NPY, lambda member: refuses(zipped(("a.npy", member)))),
    "file": (BAD_FILES, lambda content: refuses(content, stored)),
    "safetensors": (BAD_HEADERS, lambda header: refuses(safetensors(header))),
    "h5": (BAD_H5, in_h5),
    "config.json": (BAD_JSON, lambda content: refuses(content, about_folder, "config.json")),
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
    forms = ({"chunks": (7, 9)}, {"chunks": (7, 9), "compression": "gzip"})
    forms += ({"compression": "gzip", "shuffle": True, "fletcher32": True},)
    arrays = {"none": np.zeros((0, 3), "f4"), "scalar": np.float32(3), "pairs": np.zeros(3, "V2")}
    for form, mark in zip(forms, (np.zeros(3), 1.5, "float8"), strict=True):
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
