"""Folders and images at paths of this machine and at addresses."""

import uuid

import pytest

from keras_vit import ConfigError
from keras_vit.ray.storage import file_system, files, images_at, read_bytes

pytestmark = pytest.mark.without_backend
pytest.importorskip("pyarrow", reason="keras_vit.ray stores by the file systems of pyarrow")


@pytest.fixture(params=["path", "file", "memory"])
def place(request, tmp_path):
    """A folder as a path, as an address that pyarrow knows, and as one that fsspec knows."""
    if request.param == "path":
        return str(tmp_path / "out")
    if request.param == "file":
        return f"file://{tmp_path}/out"
    return f"fsspec+memory://{uuid.uuid4().hex}/out"


def test_images_below_a_folder_are_found(place):
    """Hidden files are left out; an image of another machine is read when it is decoded."""
    assert files(place) == []
    system, path = file_system(place)
    for name in ("a.png", "more/b.JPG", "notes.txt", ".hidden.png", ".trash/c.png"):
        folder = f"{path}/{name}".rpartition("/")[0]
        system.create_dir(folder, recursive=True)
        with system.open_output_stream(f"{path}/{name}") as file:
            file.write(name.encode())
    assert {info.base_name for info in files(place)} == {"a.png", "notes.txt", ".hidden.png"}
    images = images_at(place)
    assert images == [f"{place}/a.png", f"{place}/more/b.JPG"]
    assert images_at(images[0]) == [images[0]]
    if "://" in place:
        assert read_bytes(images[1]) == b"more/b.JPG"


def test_a_place_that_cannot_be_read_is_named(tmp_path):
    """A folder that is absent, and a kind of address that no package reads."""
    for place in (f"{tmp_path}/absent", f"file://{tmp_path}/absent"):
        with pytest.raises(ConfigError, match="absent: no such file"):
            images_at(place)
    with pytest.raises(ConfigError, match=r"nosuch://x/y: cannot be read"):
        images_at("nosuch://x/y")
    with pytest.raises(ConfigError, match=r"absent\.png: cannot be read"):
        read_bytes(f"file://{tmp_path}/absent.png")
