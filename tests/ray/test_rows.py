"""`Embed` and `Classify`: rows of images in, one row per image out; Ray itself runs nightly."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_vit import VisionTransformer
from keras_vit.evaluation import features
from keras_vit.ray import Classify, Embed, models
from tests.digits import digits, encoded, write_folders
from tests.processes import eventually

pa = pytest.importorskip("pyarrow", reason="keras_vit.ray writes tables of pyarrow")
pytest.importorskip("pyarrow.fs")
pq = pytest.importorskip("pyarrow.parquet")

IMAGES, LABELS = digits()[1][:9], digits()[3][:9]
FILES = [encoded(image[..., 0]) for image in IMAGES]
PROGRAM = Path(__file__).parents[2] / "examples" / "ray" / "write_features.py"


@pytest.fixture(scope="module")
def expected():
    """The features of the images by another way: one batch of prepared arrays."""
    return features(VisionTransformer.from_preset("vit_digits"), IMAGES).values


@pytest.fixture(scope="module")
def embed():
    """The class with steps of four images."""
    return Embed("vit_digits", batch_size=4, threads=2)


def assert_rows(table, expected, errors=()):
    """Fails unless some rows have an error, and the others their features."""
    assert [k for k, error in enumerate(table["error"].to_pylist()) if error] == list(errors)
    for k, row in enumerate(table["features"].to_pylist()):
        if k in errors:
            assert row is None
        else:
            np.testing.assert_allclose(row, expected[k], atol=1e-5)


def test_arrays_encoded_bytes_and_files_have_the_same_features(embed, expected, tmp_path):
    """Other columns stay; that of the images goes, unless it is the path; errors are replaced."""
    paths = [str(tmp_path / f"{k}.png") for k in range(9)]
    for path, content in zip(paths, FILES, strict=True):
        Path(path).write_bytes(content)
    for columns, kept in (
        ({"image": IMAGES, "labels": LABELS, "error": LABELS}, "labels"),
        ({"bytes": np.array(FILES, object), "path": np.array(paths)}, "path"),
        ({"path": np.array(paths, object)}, "path"),
    ):
        table = embed(columns)
        assert {*table.column_names} == {kept, "features", "error"}
        assert_rows(table, expected)


def test_a_frame_of_pandas_may_lack_images_and_paths(embed, expected):
    """pandas has NaN for an absent text, and None in a column of bytes."""
    pandas = pytest.importorskip("pandas")
    table = embed(pandas.DataFrame({"bytes": [FILES[0], None], "path": ["a.png", float("nan")]}))
    assert table["path"].to_pylist() == ["a.png", None]
    assert_rows(table, expected, [1])


def test_an_unreadable_image_has_an_error_in_its_row(embed, expected):
    """A damaged file, an empty cell and text that spells the name of a file; the others stand."""
    cells = np.array(FILES, object)
    for place, damaged in ((1, cells[1][:60]), (2, b""), (7, b"/etc/hostname"), (8, None)):
        cells[place] = damaged
    table = embed({"bytes": cells, "path": np.array([f"{k}.png" for k in range(9)])})
    assert_rows(table, expected, [1, 2, 7, 8])
    for k in (1, 7):
        assert table["error"][k].as_py().startswith(f"{k}.png: not a readable image")
    assert_rows(embed({"bytes": cells[1:3]}), expected, [0, 1])
    empty = embed({"bytes": np.array([], object)})
    assert empty.num_rows == 0 and empty["features"].type == table["features"].type


def test_a_model_of_any_size_takes_images_of_several_sizes():
    """Each has the features of its own size, a patch at least; a smaller one has an error."""
    embed = Embed("vit_digits", image_size=(None, None), batch_size=4)
    large = np.repeat(np.repeat(IMAGES[4], 2, 0), 2, 1)
    height, width = embed.model.config.stride
    images = np.empty(4, object)
    images[:] = [IMAGES[0], large, IMAGES[0][:2], IMAGES[0][:height, :width]]
    table = embed({"image": images})
    assert table["error"][2].as_py().startswith("2x8 pixels, expected at least")
    alone = [embed({"image": image[None]})["features"][0].as_py() for image in images]
    assert_rows(table, alone, [2])


def test_pooling_and_types_of_features_are_those_of_the_function():
    """Class token and mean as float16, from a model in 16 bits, for images of another size."""
    options = {"stage": "block_1", "pooling": "token_and_mean", "output_dtype": "float16"}
    how = {"dtype": "mixed_bfloat16", "image_size": 12}
    embed = Embed("vit_digits", **options, **how)
    table = embed({"image": IMAGES})
    exact = features(VisionTransformer.from_preset("vit_digits", **how), IMAGES, **options).values
    assert embed.model.config.image_size == (12, 12)
    assert table.schema.field("features").type == pa.list_(pa.float16(), 128)
    np.testing.assert_allclose(table["features"].to_pylist(), exact, rtol=0.02, atol=0.02)


def test_an_answer_that_is_not_finite_is_an_error_in_its_row(monkeypatch):
    """As the server refuses it, for this image alone; also a number beyond float16."""
    embed, classify = Embed("vit_digits", output_dtype="float16"), Classify("vit_digits")
    values, shares = np.ones((3, embed._width)), np.full((3, 10), 0.1)
    values[1, 0], shares[1, 0] = 1e6, np.nan
    monkeypatch.setattr(models, "run", lambda *_: {embed._stage: values})
    monkeypatch.setattr(classify.model, "probabilities", lambda *_, **options: shares)
    for table in (embed({"image": IMAGES[:3]}), classify({"image": IMAGES[:3]})):
        before, error, after = table["error"].to_pylist()
        assert error.startswith("The model's output is NaN or infinity")
        assert [row is None for row in table.column(0).to_pylist()] == [False, True, False]
        assert before is after is None


def test_labels_are_those_of_classify():
    """With their probabilities, the most probable first."""
    table = Classify("vit_digits", top=2)({"image": IMAGES})
    model = VisionTransformer.from_preset("vit_digits")
    for row, answer in zip(table.to_pylist(), model.classify(IMAGES, top=2), strict=True):
        assert row["labels"] == [label for label, _ in answer]
        np.testing.assert_allclose(row["probabilities"], [share for _, share in answer], atol=1e-5)


def test_images_at_addresses_are_read_by_pyarrow(embed, expected, tmp_path):
    """An address that leads nowhere, or that no package reads, has a reason."""
    folder = f"fsspec+memory://{tmp_path.name}/photos"
    system, path = pa.fs.FileSystem.from_uri(folder)
    system.create_dir(path, recursive=True)
    with system.open_output_stream(f"{path}/a.png") as file:
        file.write(FILES[0])
    places = [f"{folder}/a.png", f"{folder}/absent.png", "nosuch://x/y.png"]
    table = embed({"path": np.array(places, object)})
    assert_rows(table, expected, [1, 2])
    for place, error in zip(places[1:], table["error"].to_pylist()[1:], strict=True):
        assert error.startswith(f"{place}: cannot be read")


@pytest.mark.nightly
def test_a_killed_program_completes_its_files_when_it_is_called_again(tmp_path):
    """Whole files stay; each row is right; an image that cannot be read has a reason."""
    count, damaged = 60, (3, 17, 44)
    pytest.importorskip("ray.data", reason="Ray is not installed: pip install keras-vit-zoo[ray]")
    _, folder = write_folders(tmp_path / "digits", train=0, test=count, size=8)
    photos = sorted(folder.rglob("*.png"), key=lambda path: path.name)
    for k in damaged:
        photos[k].write_bytes(photos[k].read_bytes()[:40])
    out = tmp_path / "features"

    def written():
        return {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}

    command = [sys.executable, str(PROGRAM), str(folder), str(out), "--workers", "2"]
    program = subprocess.Popen(command)
    eventually(lambda: program.poll() is not None or len(written()) > 4, 300)
    program.send_signal(signal.SIGKILL)
    program.wait()
    before = written()
    subprocess.run(command, check=True, timeout=300)
    kept = before.items() & written().items()
    assert before and len(kept) >= len(before) - 2
    table = pq.read_table(out)
    order = np.argsort(table["path"].to_pylist())[np.argsort(np.argsort(list(map(str, photos))))]
    assert table["path"].take(order).to_pylist() == list(map(str, photos))
    model = VisionTransformer.from_preset("vit_digits")
    expected = features(model, digits()[1][:count]).values
    assert_rows(table.take(order), expected, damaged)


def test_a_folder_with_features_of_another_preset_is_refused(tmp_path):
    """Its files stay as they are, even one without an end."""
    pytest.importorskip("ray.data", reason="Ray is not installed: pip install keras-vit-zoo[ray]")
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    command = [sys.executable, str(PROGRAM), "photos", str(tmp_path)]
    program = subprocess.run(command, capture_output=True, text=True, check=False)
    assert program.returncode == 1
    assert "expected a new folder, or one with features of vit_digits" in program.stderr
    assert (tmp_path / "a.parquet").read_bytes() == b"PAR1"
