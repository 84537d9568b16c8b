"""A header that states more than the file holds is refused before memory or time is spent."""

import io
import json
import os
import resource
import struct
import zipfile
import zlib

import h5py
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.containers import open_arrays, write_npz
from keras_vit.errors import CheckpointError
from tests.processes import python
from tests.words import raises

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


def refused(path) -> str:
    """The message by which a file is refused when it is opened."""
    with pytest.raises(CheckpointError) as caught:
        open_arrays(path)
    message = str(caught.value)
    assert str(path) in message
    assert len(message) < 1500
    return message


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """A .npy member with the given header."""
    length = struct.pack("<H" if version[0] == 1 else "<I", len(header))
    return b"\x93NUMPY" + version + length + header.encode("latin-1") + data


def floats(shape: str, data: bytes = b"", descr: str = "'<f4'") -> bytes:
    return npy(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n", data)


def write_zip(path, members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members.items():
            file.writestr(name, content)


@pytest.mark.parametrize(
    "member",
    [
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
    ],
    ids=range(17),
)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_bad_npy_header_is_refused_by_the_name_of_its_array(tmp_path, member, method):
    """Impossible shapes, dtypes and lengths, and text that does not parse."""
    write_zip(tmp_path / "x.npz", {"a.npy": member}, method)
    assert "array 'a'" in refused(tmp_path / "x.npz")


def test_an_npz_whose_directory_swallows_members_is_refused(tmp_path):
    write_npz(tmp_path / "x.npz", [(name, np.zeros(2, "float32")) for name in "abcd"])
    content = bytearray((tmp_path / "x.npz").read_bytes())
    with zipfile.ZipFile(tmp_path / "x.npz") as file:
        directory = file.start_dir
    entry = len(b"a.npy") + 46
    struct.pack_into("<H", content, directory + entry + 32, 2 * entry)  # the comment of b
    (tmp_path / "x.npz").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "x.npz") as file:
        assert file.namelist() == ["a.npy", "b.npy"]
    assert "lists 2 arrays, and the end of the file states 4" in refused(tmp_path / "x.npz")


def test_an_npz_that_expands_a_thousand_times_is_refused(tmp_path):
    """128 MiB of zeros are refused; 16 MiB, such as a new head, are read."""
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as file,
        file.open("a.npy", "w") as member,
    ):
        member.write(floats("(33554432,)"))
        for _ in range(128):
            member.write(b"\0" * MIB)
    assert "promises 134,217,803 bytes" in refused(tmp_path / "bomb.npz")
    head = floats("(4194304,)", b"\0" * 16 * MIB)
    write_zip(tmp_path / "head.npz", {"a.npy": head}, zipfile.ZIP_DEFLATED)
    with open_arrays(tmp_path / "head.npz") as reader:
        assert not reader.read("a").any()


def test_many_members_that_expand_too_much_together_are_refused(tmp_path, monkeypatch):
    """An environment variable raises the limit."""
    members = dict.fromkeys("abcdef", floats("(4194304,)", b"\0" * 16 * MIB))
    write_zip(tmp_path / "x.npz", members, zipfile.ZIP_DEFLATED)
    assert "set KERAS_VIT_MAX_EXPANSION" in refused(tmp_path / "x.npz")
    monkeypatch.setenv("KERAS_VIT_MAX_EXPANSION", "2000")
    with open_arrays(tmp_path / "x.npz") as reader:
        assert len(reader.shapes) == 6


def test_zip_members_that_share_their_bytes_are_refused(tmp_path):
    """200 entries of the directory point to one member."""
    member = floats("(524288,)", b"\1" * 2 * MIB)
    write_zip(tmp_path / "x.npz", {f"{k:03}.npy": member for k in range(2)})
    content = (tmp_path / "x.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "x.npz") as file:
        start = file.start_dir
    entry = content[start : start + 46 + 7]
    directory = b"".join(entry[:46] + b"%03d.npy" % k for k in range(200))
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 200, 200, len(directory), start, 0)
    (tmp_path / "x.npz").write_bytes(content[:start] + directory + end)
    refused(tmp_path / "x.npz")


@pytest.mark.parametrize("count", [10_001, 60_000])
def test_too_many_members_are_refused_by_their_number(tmp_path, count):
    """They are counted, not read."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("a.npy", floats("(1,)", b"\0" * 4))
        start = file.start_dir
    content = (tmp_path / "x.npz").read_bytes()
    entry = content[start : start + 46 + 5]
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, len(entry) * count, start, 0)
    (tmp_path / "x.npz").write_bytes(content[:start] + entry * count + end)
    assert f"{count:,} arrays, expected at most 10,000" in refused(tmp_path / "x.npz")


def test_a_zip_directory_of_a_gigabyte_is_refused_unread(tmp_path):
    """The limit is eight million bytes."""
    path = tmp_path / "x.npz"
    size = 2**30
    with path.open("wb") as file:
        file.write(b"PK\3\4")
        file.truncate(size)
        file.seek(0, io.SEEK_END)
        file.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, size, 0, 0))
    assert "1,073,741,824 bytes that list the arrays" in refused(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_npz_compressed_by_bzip2_or_lzma_is_refused(tmp_path, method):
    """bzip2 expands 45 bytes to 45 megabytes; NumPy never writes it."""
    write_zip(tmp_path / "x.npz", {"a.npy": floats("(1,)", b"\0" * 4)}, method)
    assert "is compressed by method" in refused(tmp_path / "x.npz")


def write_safetensors(path, header, data: bytes = b"", length: int | None = None) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + text + data)


def tensor(start: int, end: int, shape=None, dtype: str = "U8") -> dict:
    return {"dtype": dtype, "shape": shape or [end - start], "data_offsets": [start, end]}


BAD_HEADERS = {
    "longer than the file": (b'{"a":1}', 2**60),
    "no JSON": (b"{not json", None),
    "no UTF-8": b'{"\xff": 1}',
    "a list for an array": {"a": [1]},
    "no entries": {"a": {}},
    "a long number": b'{"a": ' + b"9" * 5000 + b"}",
    "deep": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "out of the file": {"a": tensor(0, 5)},
    "far out of the file": {"a": tensor(0, 10**15)},
    "backwards": {"a": tensor(4, 0, [4])},
    "negative": {"a": {**tensor(0, 4), "data_offsets": [-4, 0]}},
    "a fraction": {"a": {**tensor(0, 4), "shape": [4.0]}},
    "truth": {"a": {**tensor(0, 4), "shape": [True, 4]}},
    "negative axes": {"a": tensor(0, 4, [-2, -2])},
    "an overlap": {"a": tensor(0, 3), "b": tensor(1, 4)},
    "the same place": {"a": tensor(0, 4), "b": tensor(0, 4)},
    "a gap": {"a": tensor(0, 1), "b": tensor(2, 4)},
    "bytes to spare": {"a": tensor(0, 3)},
    "a shape of other size": {"a": tensor(0, 4, [5])},
    "an unknown type": {"a": tensor(0, 4, [4], "F4")},
    "a list for a type": {"a": {**tensor(0, 4), "dtype": ["U8"]}},
    "axes without numbers": {"a": tensor(0, 4), "b": tensor(4, 4, [10**12, 0])},
    "many axes": {"a": tensor(0, 4, [4] + [1] * 100)},
    "twins": b'{"a":%b,"a":%b}' % ((json.dumps(tensor(0, 4)).encode(),) * 2),
    "a long name": {"a" * 5000: tensor(0, 4)},
}


@pytest.mark.parametrize("fault", BAD_HEADERS)
def test_a_bad_safetensors_header_is_refused(tmp_path, fault):
    """All faults that the library safetensors refuses, and repeated names."""
    header = BAD_HEADERS[fault]
    header, length = header if isinstance(header, tuple) else (header, None)
    write_safetensors(tmp_path / "x.safetensors", header, b"\1\2\3\4", length)
    refused(tmp_path / "x.safetensors")


def test_a_good_safetensors_header_is_read(tmp_path):
    """With metadata, unknown keys and trailing spaces."""
    header = {"__metadata__": {"format": "pt"}, "b": tensor(3, 4), "a": {**tensor(0, 3), "x": 1}}
    text = json.dumps(header).encode() + b"   "
    write_safetensors(tmp_path / "x.safetensors", text, b"\1\2\3\4")
    with open_arrays(tmp_path / "x.safetensors") as reader:
        assert reader.read("a").tolist() == [1, 2, 3]
        assert reader.read("b").tolist() == [4]


def test_too_many_safetensors_names_are_refused_by_their_number(tmp_path):
    """A header of nine megabytes is refused unread."""
    header = {f"n{k}": tensor(0, 0, [0]) for k in range(20_000)}
    write_safetensors(tmp_path / "x.safetensors", header)
    assert "10,001 arrays, expected at most 10,000" in refused(tmp_path / "x.safetensors")
    write_safetensors(tmp_path / "x.safetensors", b"{" + b" " * 9 * MIB)
    assert "9,437,185 bytes that list the arrays" in refused(tmp_path / "x.safetensors")


def write_h5(path, fill) -> None:
    with h5py.File(path, "w") as file:
        fill(file)


def foreign_filter(file):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((4,))
    plist.set_filter(6, h5py.h5z.FLAG_OPTIONAL, (2, 4))  # scale-offset
    space = h5py.h5s.create_simple((4,))
    h5py.h5d.create(file.id, b"a", h5py.h5t.NATIVE_INT32, space, plist)
    file["a"][:] = 1


PACKED = {"chunks": (MIB,), "compression": "gzip", "shuffle": True}
BAD_FILES = {
    "external storage": (
        lambda f: f.create_dataset("a", (10,), "u1", external=[("/etc/passwd", 0, 10)]),
        "lies in another file",
    ),
    "a virtual dataset": (
        lambda f: f.create_virtual_dataset("a", h5py.VirtualLayout((10,), "u1")),
        "lies in another file",
    ),
    "never written": (
        lambda f: f.create_dataset("a", (600_000_000,), "f4"),
        "promises 2,400,000,000 bytes, 0 are",
    ),
    "chunks never written": (
        lambda f: f.create_dataset("a", (1000, 1000), "f4", chunks=(10, 1000)).write_direct(
            np.ones((990, 1000), "f4"), dest_sel=np.s_[:990]
        ),
        "chunks that were never written",
    ),
    "large chunks": (
        lambda f: f.create_dataset("a", (10,), "f4", chunks=(10**9,), maxshape=(None,)),
        "chunks that were never written",
    ),
    "zeros 1000:1": (
        lambda f: f.create_dataset("a", data=np.zeros(30 * MIB, "f4"), **PACKED),
        "KERAS_VIT_MAX_EXPANSION",
    ),
    "a foreign filter": (foreign_filter, "is encoded by HDF5 filters"),
    "no dataspace": (lambda f: f.create_dataset("a", data=h5py.Empty("f4")), "'a' is empty"),
    "an external link": (
        lambda f: f.__setitem__("g/a", h5py.ExternalLink("/etc/passwd.h5", "x")),
        "'g/a' is a link, expected an array",
    ),
    "a soft link": (lambda f: f.__setitem__("a", h5py.SoftLink("/b")), "'a' is a link"),
    "a group in itself": (lambda f: f.__setitem__("g/g", f.require_group("g")), "deeply nested"),
}


@pytest.mark.parametrize("fault", BAD_FILES)
def test_a_bad_h5_file_is_refused(tmp_path, fault):
    """Data of other files, data that was never written, links, foreign filters, endless groups."""
    fill, reason = BAD_FILES[fault]
    write_h5(tmp_path / "x.h5", fill)
    assert reason in refused(tmp_path / "x.h5")


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_short_h5_chunk_is_refused_when_it_is_read(tmp_path, compression):
    """libhdf5 would return uninitialised memory as weights, others at each reading."""

    def fill(file):
        array = file.create_dataset("a", (64, 64), "f4", chunks=(64, 64), compression=compression)
        values = np.ones(512, "f4").tobytes()
        array.id.write_direct_chunk((0, 0), zlib.compress(values) if compression else values)

    write_h5(tmp_path / "x.h5", fill)
    with open_arrays(tmp_path / "x.h5") as reader, raises(CheckpointError, "expected 16,384"):
        reader.read("a")


def test_compressed_scalar_and_empty_h5_arrays_are_read(tmp_path):
    """gzip chunks, a scalar, and an array without values."""
    array = np.random.default_rng(0).standard_normal((50, 30)).astype("float32")

    def fill(file):
        file.create_dataset("chunked", data=array, chunks=(7, 9), compression="gzip")
        packed = {"compression": "gzip", "shuffle": True, "fletcher32": True}
        file.create_dataset("checked", data=array, **packed)
        file.create_dataset("plain", data=array, chunks=(7, 9))
        file.create_dataset("none", (0, 3), "f4")
        file["scalar"] = np.float32(3)

    write_h5(tmp_path / "x.h5", fill)
    with open_arrays(tmp_path / "x.h5") as reader:
        np.testing.assert_array_equal(reader.read("chunked"), array)
        np.testing.assert_array_equal(reader.read("checked"), array)
        np.testing.assert_array_equal(reader.read("plain"), array)
        assert reader.read("none").shape == (0, 3)
        assert reader.read("scalar") == 3


@pytest.mark.parametrize("attribute", [np.zeros(3), 1.5, h5py.Empty("f4"), "float8"])
def test_an_unknown_dtype_attribute_leaves_two_byte_void_as_it_is(tmp_path, attribute):
    """Only the attribute "bfloat16" makes it bfloat16."""

    def fill(file):
        file["a"] = np.zeros(3, "V2")
        file["a"].attrs["dtype"] = attribute

    write_h5(tmp_path / "x.h5", fill)
    with open_arrays(tmp_path / "x.h5") as reader:
        assert reader.dtypes["a"] == np.dtype("V2")


@pytest.mark.skipif(os.name == "nt", reason="has no pipes with names")
def test_pipes_devices_folders_and_absent_files_are_refused(tmp_path):
    """Opening a pipe does not wait, and a device does not fill the memory."""
    os.mkfifo(tmp_path / "pipe.npz")
    assert "expected a plain file" in refused(tmp_path / "pipe.npz")
    (tmp_path / "zero.npz").symlink_to("/dev/zero")
    assert "expected a plain file" in refused(tmp_path / "zero.npz")
    (tmp_path / "nowhere.npz").symlink_to(tmp_path / "absent")
    assert "cannot be opened (No such file" in refused(tmp_path / "nowhere.npz")
    assert "is a folder" in refused(tmp_path)
    assert "does not exist" in refused(tmp_path / "absent.npz")


@pytest.mark.parametrize("kind", ["npz", "safetensors", "h5"])
def test_an_open_file_that_is_replaced_is_read_as_it_was(tmp_path, kind):
    """Replacing the file is not reported as damage."""
    path = tmp_path / f"x.{kind}"
    array = np.arange(5, dtype="float32")
    if kind == "npz":
        write_npz(path, [("a", array)])
    elif kind == "h5":
        write_h5(path, lambda file: file.__setitem__("a", array))
    else:
        data = array.tobytes()
        write_safetensors(path, {"a": tensor(0, len(data), [5], "F32")}, data)
    file = path.open("rb")
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "other").replace(path)
    with open_arrays(path, file) as reader:
        np.testing.assert_array_equal(reader.read("a"), array)
    assert file.closed


def test_an_array_that_does_not_fit_in_memory_is_refused_by_name(tmp_path):
    """The process continues."""
    write_zip(
        tmp_path / "x.npz",
        {"a.npy": floats("(10485760,)", np.random.default_rng(0).bytes(4 * MIB) * 10)},
        zipfile.ZIP_DEFLATED,
    )
    code = """
import resource, sys
from keras_vit.checkpoints.containers import open_arrays
from keras_vit.errors import CheckpointError
with open_arrays(sys.argv[1]) as reader:
    now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 30 * 2**20,) * 2)
    try:
        reader.read("a")
    except CheckpointError as error:
        print(error)
"""
    process = python(code, tmp_path / "x.npz")
    assert "array 'a' is damaged, or needs more memory than there is" in process.stdout


@pytest.mark.skipif(os.name == "nt", reason="has no pipes with names")
@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.write_bytes(b'{"a": ' + b"9" * 5000 + b"}"),
        lambda path: path.write_bytes(b'{"a": ' + b"[" * 10**6),
        lambda path: path.write_bytes(b"\xff{}"),
        lambda path: path.write_bytes(b"[1]"),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b" " * (2**24 + 1)),
    ],
    ids=["pipe", "device", "digits", "deep", "no UTF-8", "list", "empty", "large"],
)
def test_a_bad_config_json_beside_the_weights_is_refused_at_once(tmp_path, make):
    """A pipe, a device, endless digits, deep nesting, no UTF-8, a list, and a large file."""
    write_npz(tmp_path / "model.npz", [("a", np.zeros(2, "float32"))])
    make(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match="config.json") as caught:
        keras_vit.info(tmp_path)
    assert len(str(caught.value)) < 500
