"""`from_folder`: classes from the names of folders, and images that cannot be used."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.data import from_folder
from keras_vit.errors import ConfigError
from tests.data.runs import PLAIN
from tests.helpers import tiny


def test_classes_are_the_sorted_folder_names(folder):
    """Nested images count, hidden files and folders do not, and `.JPG` counts like `.jpg`."""
    data = from_folder(folder, PLAIN)
    assert data.class_names == ("cat", "dog", "eel")
    assert data.class_counts == {"cat": 6, "dog": 4, "eel": 2}
    assert (data.num_images, data.num_classes, data.batch_size) == (12, 3, 32)
    files = ("0.png", "2.png", "3.png", "4.JPG", "5.png", "more/1.JPG")
    assert data.paths[:6] == tuple(str(folder / "cat" / file) for file in files)
    for part in data.hold_out(0.5):
        found = [Path(path).relative_to(folder).parts[0] for path in part.paths]
        assert [data.class_names.index(name) for name in found] == part.labels.tolist()


def test_class_names_choose_the_folders_and_order_the_labels(folder):
    """A warning names the folders that are skipped."""
    data = from_folder(folder, PLAIN, class_names=["eel", "cat", "dog"])
    assert data.labels.tolist() == [1] * 6 + [2] * 4 + [0] * 2
    with pytest.warns(UserWarning, match="skipped cat, not in class_names"):
        data = from_folder(folder, PLAIN, class_names=["Eel", "dog"])
    assert data.class_counts == {"Eel": 2, "dog": 4}


PARTS = [["train", "valid", "test"], ["Train", "val", "more"], ["training_set", "test1"], ["test"]]


@pytest.mark.parametrize("parts", PARTS)
def test_the_parts_of_a_data_set_are_not_classes(folder, parts):
    """The message gives the path of the part; `class_names` says that they are classes."""
    for part in parts:
        shutil.copytree(folder / "cat", folder / "all" / part / "cat")
    with pytest.raises(ConfigError, match=f"parts of a data set: .*one of them: .*all.{parts[0]}"):
        from_folder(folder / "all", PLAIN)
    assert from_folder(folder / "all", PLAIN, class_names=parts).class_names == tuple(parts)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("in_memory", [True, False])
def test_unreadable_images_are_refused_or_skipped_by_path(folder, in_memory):
    """With `on_error="skip"`, one warning names them, and the batches are as without them.

    A function receives each image and the error in place of the warning.
    """
    whole = (folder / "cat" / "0.png").read_bytes()
    (folder / "cat" / "0.png").write_bytes(whole[: len(whole) // 2])
    (folder / "dog" / "3.png").write_bytes(b"not an image")
    with pytest.raises(ConfigError, match=r"2 of 12 images cannot be used.*cat.0\.png.*dog.3\.png"):
        from_folder(folder, PLAIN, cache=True)
    with pytest.warns(UserWarning, match="2 of 12 images cannot be used") as caught:
        data = from_folder(folder, PLAIN, on_error="skip", cache=in_memory)
    assert [warning.filename for warning in caught] == [__file__]
    assert sorted(path[-9:] for path in data.unreadable) == ["cat/0.png", "dog/3.png"]
    seen = []
    from_folder(folder, PLAIN, on_error=lambda *each: seen.append(each), cache=in_memory)
    assert [name for name, _ in seen] == list(data.unreadable)
    assert all("not a readable" in str(error) for _, error in seen)
    for path in data.unreadable:
        (folder / path).unlink()
    for part, expected in zip(data[0], from_folder(folder, PLAIN)[0], strict=True):
        np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize("size", [(1, 65_535), (65_535, 1), (7, 40), (70_000, 8)])
@pytest.mark.parametrize("cache", [True, False])
def test_images_of_unfit_sizes_are_skipped_as_unreadable_ones(folder, size, cache):
    """Too small for a patch, too thin for the protocol's crop, or too long to decode."""
    Image.new("L", size).save(folder / "cat" / "0.png")
    for prepares in (tiny(num_classes=3), Preprocessor(16, protocol="timm")):
        with pytest.raises(ConfigError, match="1 of 12 images cannot be used"):
            from_folder(folder, prepares, cache=cache, min_size=8)
        with pytest.warns(UserWarning, match="cat.0.png.*They are skipped"):
            data = from_folder(folder, prepares, on_error="skip", cache=cache, min_size=8)
        assert len(data[0][0]) == 11


def test_a_damaged_image_with_a_good_header_is_named_when_it_is_read(tmp_path):
    """The error names the file and the option that leaves it out."""
    (tmp_path / "all").mkdir()
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 16), "uint8"))
    for k in range(70):
        noise.save(tmp_path / "all" / f"{k:02d}.png")
    damaged = tmp_path / "all" / "34.png"
    damaged.write_bytes(damaged.read_bytes()[:150])
    data = from_folder(tmp_path, PLAIN, 30, cache=False)
    assert len(data[0][0]) == 30
    with pytest.raises(ConfigError, match=r"34\.png: not a readable.*give on_error='skip'"):
        data[1]
