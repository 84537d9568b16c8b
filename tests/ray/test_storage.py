"""Folders of this machine and of file systems with addresses."""

import uuid

import pytest

from keras_vit import ConfigError
from keras_vit.errors import WriteError
from keras_vit.ray.storage import Folder, RemoteImage

pytestmark = pytest.mark.without_backend
pytest.importorskip("pyarrow", reason="keras_vit.ray stores by the file systems of pyarrow")


@pytest.fixture(params=["path", "file", "memory"])
def place(request, tmp_path):
    """A folder as a path, as an address that pyarrow knows, and as one that fsspec knows."""
    if request.param == "path":
        return str(tmp_path / "out")
    if request.param == "file":
        return f"file://{tmp_path}/out"
    return f"memory://{uuid.uuid4().hex}/out"


def test_a_file_is_listed_and_read_back_under_its_name(place):
    """Writing it again replaces it, and nothing else is left in the folder."""
    folder = Folder(place)
    assert folder.names() == set()
    for content in (b"old", b"new"):
        folder.write("part.parquet", content)
        folder.write(".keras_vit/task.json", content)
    assert folder.names() == {"part.parquet"}
    assert folder.names(".keras_vit") == {"task.json"}
    with folder.open("part.parquet") as file:
        assert file.read() == b"new"


def test_images_below_a_folder_are_found(place):
    """Hidden files are left out; an image of another machine is read when it is decoded."""
    folder = Folder(place)
    for name in ("a.png", "more/b.JPG", "notes.txt", ".hidden.png", ".trash/c.png"):
        folder.write(name, name.encode())
    found = folder.images()
    assert found == [f"{place}/a.png", f"{place}/more/b.JPG"]
    assert Folder(found[0]).images() == [found[0]]
    if "://" in place:
        assert RemoteImage(found[1]).read(6) == b"more/b"


def test_a_place_that_cannot_be_read_or_written_is_named(tmp_path):
    """A file in place of the folder, and a kind of address that no package knows."""
    (tmp_path / "file").write_text("")
    for place in (f"{tmp_path}/file/out", f"file://{tmp_path}/file/out"):
        with pytest.raises(WriteError, match="file/out.* cannot be written"):
            Folder(place).write("part.parquet", b"")
    with pytest.raises(ConfigError, match="nosuch://x/: no installed package"):
        Folder("nosuch://x/y")
    with pytest.raises(ConfigError, match="absent: no such file"):
        Folder(f"{tmp_path}/absent").images()
