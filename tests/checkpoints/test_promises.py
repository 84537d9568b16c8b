"""A header that states more than the file holds is refused before memory or time is spent."""

import functools
import io
import json
import os
import resource
import struct
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.containers import open_arrays, write_npz
from keras_vit.errors import CheckpointError
from tests.checkpoints import files
from tests.checkpoints.files import find
from tests.plain import assert_same_arrays, raises, stored

pytestmark = pytest.mark.without_backend

MIB = 2**20
refused = functools.partial(files.refused, ask=open_arrays, most=1500)


@pytest.fixture(autouse=True)
def memory():
    """Limits every test to 256 MiB of additional memory."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        now = int(file.read().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + 256 * MIB, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """A .npy member with the given header."""
    length = struct.pack("<H" if version[0] == 1 else "<I", len(header))
    return b"\x93NUMPY" + version + length + header.encode("latin-1") + data


def floats(shape: str, data: bytes = b"", descr: str = "'<f4'") -> bytes:
    return npy(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n", data)


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


def tensor(start: int, end: int, shape=None, dtype: str = "U8") -> dict:
    return {"dtype": dtype, "shape": shape or [end - start], "data_offsets": [start, end]}


ONES = floats("(10000,)", b"\1" * 40_000)
BAD_NPY = (
    floats("(805306368,)", b"\0" * 100),  # 3 GiB
    floats("(" + "9" * 5000 + ",)"),
    floats("(-1,)", b"\0" * 4),
    floats("(True,)", b"\0" * 4),
    floats("(1.5,)", b"\0" * 4),
    floats("(1000000000000, 0)"),
    floats("(" + "1, " * 40 + ")", b"\0" * 4),
    floats("()", b"\0" * 8, "[('a', '<f4'), ('b', '<f4')]"),
    floats("()", b"\0" * 8, "('<f4', (2,))"),
    floats("(1000000000000,)", b"", "'|V0'"),
    npy("(" * 5000),
    npy("-" * 5000 + "1"),
    npy("{}"),
    npy("[" * 3000 + "]" * 3000, version=b"\x02\x00"),
    b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
    b"\x93NUMPY\x09\x00",
    b"",
    floats("(1,)", b"\x80\x04N.", "'|O'"),
)
"""Impossible shapes, dtypes and lengths, text that does not parse, and Python objects."""
BAD_NPZ = {
    "swallowed members": (forged(4, swallow, 4), "2 arrays", "4"),
    "shared bytes": (forged(2, share, 200), "complete npz"),
    "too many members": (forged(1, lambda old: old * 10_001, 0), "10,001 arrays", "10,000"),
    "far too many members": (forged(1, lambda old: old * 60_000, 0), "60,000 arrays"),
    "twins": (forged(2, lambda old: old[:51] * 2, 2), "array 'a'", "twice"),
    "bzip2": (zipped(("a.npy", ONES), method=zipfile.ZIP_BZIP2), "compressed"),
    "lzma": (zipped(("a.npy", ONES), method=zipfile.ZIP_LZMA), "compressed"),
    "a torch pickle": (zipped(("a/data.pkl", b"\x80\x02}.")), "torch pickle", "save_file"),
    "a Python pickle": (b"\x80\x04\x95" + bytes(20), "Python pickle"),
    "another zip": (zipped(("model/readme.txt", b"hello")), "zip", "model/readme.txt"),
    "a page": (b"<!DOCTYPE html><html></html>", "b'<!DOCTYP'"),
    **{
        f"npy {k} {method}": (zipped(("a.npy", npy), method=method), "array 'a'")
        for k, npy in enumerate(BAD_NPY)
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    },
}
"""Members that disappear, share their bytes, or are counted before they are read; other files."""
BAD_HEADERS = {
    "no JSON": b"{not json",
    "no UTF-8": b'{"\xff": 1}',
    "a list for an array": {"a": [1]},
    "no entries": {"a": {}},
    "a list for a type": {"a": {**tensor(0, 4), "dtype": ["U8"]}},
    "truth": {"a": {**tensor(0, 4), "shape": [True, 4]}},
    "a long number": b'{"a": ' + b"9" * 5000 + b"}",
    "deep": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "out of the file": {"a": tensor(0, 5)},
    "backwards": {"a": tensor(4, 0, [4])},
    "negative": {"a": {**tensor(0, 4), "data_offsets": [-4, 0]}},
    "a fraction": {"a": {**tensor(0, 4), "shape": [4.0]}},
    "negative axes": {"a": tensor(0, 4, [-2, -2])},
    "an overlap": {"a": tensor(0, 3), "b": tensor(1, 4)},
    "a gap": {"a": tensor(0, 1), "b": tensor(2, 4)},
    "bytes to spare": {"a": tensor(0, 3)},
    "a shape of other size": {"a": tensor(0, 4, [5])},
    "an unknown type": {"a": tensor(0, 4, [4], "F4")},
    "axes without numbers": {"a": tensor(0, 4), "b": tensor(4, 4, [10**12, 0])},
    "many axes": {"a": tensor(0, 4, [4] + [1] * 100)},
    "twins": b'{"a":%b,"a":%b}' % ((json.dumps(tensor(0, 4)).encode(),) * 2),
    "a long name": {"a" * 5000: tensor(0, 4)},
}
"""All faults that the library safetensors refuses, and repeated names."""
NAMES = {f"n{k}": tensor(0, 0, [0]) for k in range(20_000)}
BAD_SAFETENSORS = {
    **{fault: (safetensors(header),) for fault, header in BAD_HEADERS.items()},
    "longer than the file": (safetensors(b'{"a":1}', 9), "complete"),
    "many names": (safetensors(NAMES), "10,001 arrays"),
    "nine megabytes": (safetensors(b"{" + b" " * 9 * MIB), "9,437,185 bytes"),
}


BAD = {"npz": BAD_NPZ, "safetensors": BAD_SAFETENSORS}


@pytest.mark.parametrize(("kind", "fault"), [(kind, fault) for kind in BAD for fault in BAD[kind]])
def test_a_bad_file_is_refused_when_it_is_opened(tmp_path, kind, fault):
    content, *words = BAD[kind][fault]
    (tmp_path / f"x.{kind}").write_bytes(content)
    refused(tmp_path / f"x.{kind}", *words)


def test_damaged_bytes_are_refused_by_the_name_of_their_array(tmp_path):
    """The checksum of the zip finds the damage."""
    content = zipped(("a.npy", ONES))
    (tmp_path / "x.npz").write_bytes(content[:2000] + b"?" + content[2001:])
    with open_arrays(tmp_path / "x.npz") as reader, raises(CheckpointError, "array 'a'", "damaged"):
        reader.read("a")


def test_a_zip_directory_of_a_gigabyte_is_refused_unread(tmp_path):
    """The limit is eight million bytes."""
    with (tmp_path / "x.npz").open("wb") as file:
        file.write(b"PK\3\4")
        file.truncate(2**30)
        file.seek(0, io.SEEK_END)
        file.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, 2**30, 0, 0))
    refused(tmp_path / "x.npz", "1,073,741,824 bytes")


def test_an_npz_that_expands_a_thousand_times_is_refused(tmp_path, monkeypatch):
    """In one array or in six; 16 MiB, such as a new head, are read. A variable sets the limit."""
    path, zeros, deflated = tmp_path / "x.npz", b"\0" * 16 * MIB, zipfile.ZIP_DEFLATED
    path.write_bytes(zipped(("a.npy", floats("(4194304,)", zeros)), method=deflated))
    assert not stored(path)["a"].any()
    with zipfile.ZipFile(path, "w", deflated) as file, file.open("a.npy", "w") as member:
        member.writelines((floats("(83886080,)"), *[zeros] * 20))
    refused(path, "promises 335,544,395 bytes")
    monkeypatch.setenv("KERAS_VIT_MAX_EXPANSION", "2000")
    with open_arrays(path) as reader, raises(CheckpointError, "array 'a'", "memory"):
        reader.read("a")
    members = [(name, floats("(4194304,)", zeros)) for name in "abcdef"]
    path.write_bytes(zipped(*members, method=deflated))
    with open_arrays(path) as reader:
        assert len(reader.shapes) == 6
    monkeypatch.undo()
    refused(path, "KERAS_VIT_MAX_EXPANSION")


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


def skips_chunks(file):
    array = file.create_dataset("a", (1000, 1000), "f4", chunks=(10, 1000))
    array[:990] = 1


VIRTUAL = h5py.VirtualLayout((10,), "u1")
ZEROS = {"chunks": (MIB,), "compression": "gzip", "shuffle": True, "fillvalue": 0}
BAD_FILES = {
    "external storage": (holds((10,), external=[("/etc/passwd", 0, 40)]), "another file"),
    "a virtual dataset": (lambda f: f.create_virtual_dataset("a", VIRTUAL), "another file"),
    "never written": (holds((600_000_000,)), "promises 2,400,000,000 bytes, 0"),
    "chunks never written": (skips_chunks, "never written"),
    "large chunks": (holds((10,), chunks=(10**9,), maxshape=(None,)), "never written"),
    "zeros 1000:1": (holds(data=np.zeros(30 * MIB, "f4"), **ZEROS), "KERAS_VIT_MAX_EXPANSION"),
    "a foreign filter": (foreign_filter, "HDF5 filters"),
    "no dataspace": (holds(data=h5py.Empty("f4")), "'a' is empty"),
    "an external link": (lambda f: f.update({"g/a": h5py.ExternalLink("/etc/x", "x")}), "'g/a' is"),
    "a soft link": (lambda f: f.update({"a": h5py.SoftLink("/b")}), "'a' is a link"),
    "a group in itself": (lambda f: f.update({"g/g": f.require_group("g")}), "deeply nested"),
}


@pytest.mark.parametrize("fault", BAD_FILES)
def test_a_bad_h5_file_is_refused(tmp_path, fault):
    """Data of other files, data that was never written, links, foreign filters, endless groups."""
    fill, reason = BAD_FILES[fault]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        fill(file)
    refused(tmp_path / "x.h5", reason)


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_short_h5_chunk_is_refused_when_it_is_read(tmp_path, compression):
    """libhdf5 would return uninitialised memory as weights, others at each reading."""
    values, path = np.ones(512, "f4").tobytes(), tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        array = file.create_dataset("a", (64, 64), "f4", chunks=(64, 64), compression=compression)
        array.id.write_direct_chunk((0, 0), zlib.compress(values) if compression else values)
    with raises(CheckpointError, "expected 16,384"):
        stored(path)


def test_h5_arrays_of_every_form_are_read(tmp_path):
    """A scalar, an array without values, and pairs of bytes that are not called bfloat16."""
    array = np.random.default_rng(0).standard_normal((50, 30)).astype("float32")
    forms = {"plain": {"chunks": (7, 9)}, "gzip": {"chunks": (7, 9), "compression": "gzip"}}
    forms["checked"] = {"compression": "gzip", "shuffle": True, "fletcher32": True}
    marks = {"three": np.zeros(3), "number": 1.5, "empty": h5py.Empty("f4"), "word": "float8"}
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, form in forms.items():
            file.create_dataset(name, data=array, **form)
        file.update({"none": np.zeros((0, 3), "f4"), "scalar": np.float32(3)})
        for name, mark in marks.items():
            file[name] = np.zeros(3, "V2")
            file[name].attrs["dtype"] = mark
    found = stored(tmp_path / "x.h5")
    assert all(np.array_equal(found[name], array) for name in forms)
    assert (found["none"].shape, found["scalar"]) == ((0, 3), 3)
    assert {found[name].dtype for name in marks} == {np.dtype("V2")}


@pytest.mark.skipif(os.name == "nt", reason="has no pipes with names")
def test_pipes_devices_folders_and_absent_files_are_refused(tmp_path):
    """Opening a pipe does not wait, and a device does not fill the memory."""
    path = tmp_path / "config.json"
    write_npz(tmp_path / "model.npz", [("a", np.zeros(2, "float32"))])
    for make in (os.mkfifo, functools.partial(os.symlink, "/dev/zero")):
        make(path)
        refused(path, "plain file")
        files.refused(tmp_path, "config.json", most=500)
        path.unlink()
    path.symlink_to(tmp_path / "absent")
    refused(path, "No such file")
    refused(tmp_path, "folder")
    refused(tmp_path / "absent.npz", "not exist")


BAD_JSON = {
    "digits": b'{"a": ' + b"9" * 5000 + b"}",
    "depth": b'{"a": ' + b"[" * 10**6,
    "no UTF-8": b"\xff{}",
    "a list": b"[1]",
    "no value": b'{"a": NaN,}',
    "empty": b"",
    "large": b" " * (2**24 + 1),
}


@pytest.mark.parametrize("fault", BAD_JSON)
def test_a_bad_config_json_beside_the_weights_is_refused_at_once(tmp_path, fault):
    """For the folder, and for the file of weights."""
    write_npz(tmp_path / "model.npz", [("a", np.zeros(2, "float32"))])
    (tmp_path / "config.json").write_bytes(BAD_JSON[fault])
    for source in (tmp_path, tmp_path / "model.npz"):
        with raises(CheckpointError, "config.json") as caught:
            keras_vit.info(source)
        assert len(str(caught.value)) < 500


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
    path = files.copy(name, tmp_path)
    file = path.open("rb")
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "other").replace(path)
    with open_arrays(path, file) as reader:
        assert_same_arrays({n: reader.read(n) for n in reader.shapes}, stored(find(name)))
    assert file.closed
