"""`from_webdataset`: tar files that the library webdataset writes, read by number."""

import gzip
import io
import json
import tarfile

import numpy as np
import pytest
from PIL import Image

from keras_vit import ConfigError, Preprocessor
from keras_vit.data import from_arrays, from_webdataset

pytestmark = pytest.mark.without_backend

IMAGES = np.random.default_rng(0).integers(0, 256, (23, 6, 6, 3), "uint8")
LABELS = np.arange(23) % 3


def png(image):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Three tar files by WebDataset's own writer, whose samples have several files each."""
    wds = pytest.importorskip("webdataset", reason="webdataset writes the tar files of this test")
    folder = tmp_path_factory.mktemp("shards")
    with wds.ShardWriter(f"file:{folder}/train-%03d.tar", maxcount=8, verbose=0) as writer:
        for k, (image, label) in enumerate(zip(IMAGES, LABELS, strict=True)):
            about = {"class": ["zebra", "ant", "bee"][label]}
            sample = {"__key__": f"more/{k:04d}", "png": png(image), "cls": int(label)}
            writer.write({**sample, "json": about, "txt": "words"})
    return folder


def test_batches_are_those_of_the_same_arrays(shards):
    """Shuffled over all tar files, augmented, and as shards of a process."""
    options = {"augmentation": "light2", "steps_per_epoch": 3, "seed": 2, "shard": (1, 2)}
    expected = from_arrays(IMAGES, LABELS, Preprocessor(4), 8, **options)
    for name in ("train-{000..002}.tar", "train-*.tar"):
        data = from_webdataset(f"{shards}/{name}", Preprocessor(4), 8, cache=False, **options)
        for source in (data, expected):
            source.epoch = 1
        for i in (2, 0):
            for have, want in zip(data[i], expected[i], strict=True):
                np.testing.assert_array_equal(have, want)


def test_a_label_is_a_word_in_the_json_of_a_sample(shards):
    """The classes are the sorted words; a list of files has its order."""
    files = [shards / "train-001.tar", shards / "train-000.tar"]
    data = from_webdataset(files, Preprocessor(4), 4, label="json:class")
    assert data.class_names == ("ant", "bee", "zebra")
    np.testing.assert_array_equal(data[0][0], Preprocessor(4)(IMAGES[8:12]))
    assert [data.class_names[k] for k in data[0][1]] == ["bee", "zebra", "ant", "bee"]


def written(path, members, compress=False):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    path.write_bytes(gzip.compress(content.getvalue()) if compress else content.getvalue())
    return path


def test_a_tar_file_that_is_no_data_set_is_named(tmp_path):
    """Absent, compressed, cut off, without a label, with a damaged image or label."""
    whole = [("a.png", png(IMAGES[0])), ("a.cls", b"0"), ("b.png", png(IMAGES[1])), ("b.cls", b"0")]
    cases = {
        "no file matches": lambda: f"{tmp_path}/*.tar.absent",
        "No such file": lambda: tmp_path / "absent.tar",
        "only tar files of this machine": lambda: "https://host/train.tar",
        "without compression": lambda: written(tmp_path / "z.tar", whole, compress=True),
        "sample b has no label": lambda: written(tmp_path / "l.tar", whole[:3]),
        "sample a has no image": lambda: written(tmp_path / "i.tar", whole[1:]),
        "sample a has two images": lambda: written(tmp_path / "t.tar", [whole[0], ("a.jpg", b"")]),
        "no sample": lambda: written(tmp_path / "e.tar", []),
        "e.tar, a.png: not a readable image": lambda: written(
            tmp_path / "e.tar", [("a.png", b"\0"), *whole[1:]]
        ),
    }
    for message, case in cases.items():
        with pytest.raises(ConfigError, match=message):
            from_webdataset(case(), Preprocessor(4))
    with pytest.raises(ConfigError, match="a label cannot be read"):
        broken = written(tmp_path / "j.tar", [whole[0], ("a.json", json.dumps({}).encode())])
        from_webdataset(broken, Preprocessor(4), label="json:class")
