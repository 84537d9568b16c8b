"""`Embed` and `Classify`: rows of images in, one row per image out; no cluster runs here."""

import os

import numpy as np
import pytest

from keras_vit import VisionTransformer
from keras_vit.errors import ConfigError
from keras_vit.evaluation import features
from keras_vit.ray import Classify, Embed
from tests.digits import digits, encoded

pa = pytest.importorskip("pyarrow", reason="keras_vit.ray writes tables of pyarrow")
pytest.importorskip("pyarrow.fs")

IMAGES, LABELS = digits()[1][:9], digits()[3][:9]


@pytest.fixture(scope="module")
def expected():
    """The features of the images by another way: one batch of prepared arrays."""
    model = VisionTransformer.from_preset("vit_digits")
    return features(model, IMAGES).values


@pytest.fixture(scope="module")
def embed():
    """The class with steps of four images."""
    return Embed("vit_digits", batch_size=4, threads=2)


def test_arrays_encoded_bytes_and_files_have_the_same_features(embed, expected, tmp_path):
    """Other columns stay; the column of the images goes, unless it is the path."""
    contents = [encoded(image[..., 0]) for image in IMAGES]
    files = [tmp_path / f"{k}.png" for k in range(9)]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    number = np.arange(9)
    rows = {
        "number": embed({"image": IMAGES, "number": number}),
        "path": embed(
            {"bytes": np.array(contents, object), "path": np.array(list(map(str, files)))}
        ),
        "features": embed({"path": np.array(list(map(str, files)), object)}),
    }
    assert rows["number"].column_names == ["number", "features", "error"]
    assert (
        rows["features"].column_names == rows["path"].column_names == ["path", "features", "error"]
    )
    for table in rows.values():
        result = np.array(table["features"].to_pylist(), np.float32)
        np.testing.assert_allclose(result, expected, atol=1e-5)
        assert table["error"].null_count == 9


def test_a_frame_of_pandas_may_lack_images_and_paths(embed, expected):
    """pandas has NaN for an absent text, and None in a column of bytes."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"bytes": [encoded(IMAGES[0][..., 0]), None], "path": ["a.png", float("nan")]}
    )
    table = embed(frame)
    assert table["path"].to_pylist() == ["a.png", None]
    np.testing.assert_allclose(table["features"].to_pylist()[0], expected[0], atol=1e-5)
    assert [error is None for error in table["error"].to_pylist()] == [True, False]


def test_an_unreadable_image_has_an_error_in_its_row(embed, expected):
    """A damaged file, an empty cell and text that spells the name of a file; the others stand."""
    cells = np.array([encoded(image[..., 0]) for image in IMAGES], object)
    for place, damaged in ((1, cells[1][:60]), (2, b""), (7, b"/etc/hostname"), (8, None)):
        cells[place] = damaged
    table = embed({"bytes": cells, "path": np.array([f"{k}.png" for k in range(9)])})
    errors = table["error"].to_pylist()
    assert [k for k, error in enumerate(errors) if error] == [1, 2, 7, 8]
    assert errors[1].startswith("1.png: not a readable image")
    assert errors[7].startswith("7.png: not a readable image")
    result = table["features"].to_pylist()
    for k in range(9):
        if errors[k] is None:
            np.testing.assert_allclose(result[k], expected[k], atol=1e-5)
        else:
            assert result[k] is None


def test_a_model_of_any_size_takes_images_of_several_sizes():
    """Each has the features of its own size, a patch at least; a smaller one has an error."""
    embed = Embed("vit_digits", image_size=(None, None), batch_size=4)
    large = np.repeat(np.repeat(IMAGES[4], 2, 0), 2, 1)
    height, width = embed.model.config.stride
    images = np.empty(5, object)
    images[:] = [IMAGES[0], large, IMAGES[0][:2], IMAGES[1], IMAGES[0][:height, :width]]
    table = embed({"image": images})
    assert table["error"].to_pylist()[2].startswith("2x8 pixels, expected at least")
    assert table["error"].to_pylist()[4] is None
    alone = embed({"image": large[None]})
    np.testing.assert_allclose(
        table["features"][1].as_py(), alone["features"][0].as_py(), atol=1e-5
    )


def test_pooling_and_types_of_features_are_those_of_the_function(tmp_path):
    """Class token and mean as float16, from a model in 16 bits, for images of another size."""
    options = {"stage": "block_1", "pooling": "token_and_mean", "output_dtype": "float16"}
    how = {"dtype": "mixed_bfloat16", "image_size": 12}
    table = Embed("vit_digits", **options, **how)({"image": IMAGES})
    model = VisionTransformer.from_preset("vit_digits", **how)
    exact = features(model, IMAGES, **options).values
    assert table.schema.field("features").type == pa.list_(pa.float16(), 128)
    np.testing.assert_allclose(table["features"].to_pylist(), exact, rtol=0.02, atol=0.02)
    assert (Embed("vit_digits", image_size=12).model.config.image_size) == (12, 12)
    VisionTransformer.from_preset(
        "vit_digits", num_classes=0, pool={"kind": "unpooled"}
    ).save_to_preset(tmp_path / "tokens")
    with pytest.raises(ConfigError, match="pooling='gap', and with a class token"):
        Embed(tmp_path / "tokens")
    assert Embed(tmp_path / "tokens", pooling="gap")({"image": IMAGES}).num_rows == 9


def test_an_answer_that_is_not_finite_is_an_error_in_its_row(monkeypatch):
    """As the server refuses it, for this image alone; also a number beyond float16."""
    embed, classify = Embed("vit_digits", output_dtype="float16"), Classify("vit_digits")
    clean = classify({"image": IMAGES[:3]})

    def spoiled(value):
        def change(function):
            def changed(*arguments, **named):
                output = function(*arguments, **named)
                rows = output[embed._stage] if isinstance(output, dict) else output
                rows[1, 0] = value
                return output

            return changed

        return change

    from keras_vit.ray import models

    monkeypatch.setattr(models, "run", spoiled(1e6)(models.run))
    monkeypatch.setattr(
        classify.model, "probabilities", spoiled(np.nan)(classify.model.probabilities)
    )
    for table, column in (
        (embed({"image": IMAGES[:3]}), "features"),
        (classify({"image": IMAGES[:3]}), "labels"),
    ):
        first, second, third = table["error"].to_pylist()
        assert first is None
        assert third is None
        assert second.startswith("The model's answer is NaN or infinity")
        assert [row is None for row in table[column].to_pylist()] == [False, True, False]
    assert table["labels"][2] == clean["labels"][2]


@pytest.mark.parametrize(("resources", "threads"), [({"CPU": 3.0}, 3), ({"CPU": 0.5}, 1)])
def test_as_many_threads_decode_as_ray_gave_processors(monkeypatch, resources, threads):
    """A part of a processor counts as one; an actor without processors takes the machine's."""
    ray = pytest.importorskip("ray")

    class Context:
        def get_actor_id(self):
            return "1"

        def get_assigned_resources(self):
            return resources

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_runtime_context", Context)
    assert Embed("vit_digits")._pool._max_workers == threads
    assert Embed("vit_digits", threads=5)._pool._max_workers == 5
    monkeypatch.setattr(Context, "get_assigned_resources", lambda self: {"GPU": 1.0})
    assert Embed("vit_digits")._pool._max_workers == os.cpu_count()
    monkeypatch.setattr(Context, "get_actor_id", lambda self: None)  # Ray's main program
    monkeypatch.setattr(Context, "get_assigned_resources", None)
    assert Embed("vit_digits")._pool._max_workers == os.cpu_count()


def test_a_batch_without_a_readable_image_has_errors_alone(embed):
    """And an empty batch has no rows, with the same columns."""
    table = embed({"bytes": np.array([b"\0", b"\1"], object)})
    assert table["features"].null_count == 2
    empty = embed({"bytes": np.array([], object)})
    assert empty.num_rows == 0
    assert empty.schema.field("features").type == table.schema.field("features").type


def test_labels_are_those_of_classify():
    """With their probabilities, the most probable first."""
    table = Classify("vit_digits", top=2)({"image": IMAGES})
    model = VisionTransformer.from_preset("vit_digits")
    for row, answer in zip(table.to_pylist(), model.classify(IMAGES, top=2), strict=True):
        assert row["labels"] == [label for label, _ in answer]
        np.testing.assert_allclose(row["probabilities"], [share for _, share in answer], atol=1e-5)


def test_layers_columns_and_tops_that_fit_no_row_are_refused(embed):
    """Several tokens per image, unknown columns, no labels to give."""
    with pytest.raises(ConfigError, match="one row of features per image"):
        Embed("vit_digits", "block_0")
    with pytest.raises(ConfigError, match="No column image or bytes or path; found picture"):
        embed({"picture": IMAGES})
    with pytest.raises(ConfigError, match="top must be a positive int, found 0"):
        Classify("vit_digits", 0)


@pytest.mark.parametrize("scheme", ["file", "fsspec+memory"])
def test_images_at_addresses_are_read_by_pyarrow(embed, expected, tmp_path, scheme):
    """An address that leads nowhere, or that no package reads, has a reason."""
    folder = f"file://{tmp_path}" if scheme == "file" else f"{scheme}://{tmp_path.name}/photos"
    system, path = pa.fs.FileSystem.from_uri(folder)
    system.create_dir(path, recursive=True)
    with system.open_output_stream(f"{path}/a.png") as file:
        file.write(encoded(IMAGES[0, ..., 0]))
    places = [f"{folder}/a.png", f"{folder}/absent.png", "nosuch://x/y.png"]
    table = embed({"path": np.array(places, object)})
    np.testing.assert_allclose(table["features"][0].as_py(), expected[0], atol=1e-5)
    for place, error in zip(places[1:], table["error"].to_pylist()[1:], strict=True):
        assert error.startswith(f"{place}: cannot be read")


def test_columns_named_like_an_answer_are_not_lost(embed):
    """True labels in a column `labels` were replaced by the predictions; `error` is renewed."""
    with pytest.raises(ConfigError, match="replace column labels: use rename_columns"):
        Classify("vit_digits")({"image": IMAGES, "labels": LABELS})
    table = embed({"image": IMAGES, "labels": LABELS, "error": LABELS})
    assert table["labels"].to_pylist() == LABELS.tolist()
    assert table["error"].null_count == 9


@pytest.mark.parametrize(
    "options",
    [
        {"threads": -1},
        {"threads": "2"},
        {"stage": 3},
        {"pooling": "mean"},
        {"output_dtype": "int8"},
        {"image_size": (None, 8)},
    ],
)
def test_options_of_a_wrong_kind_are_named(options):
    """They ended in an error of the pool of threads, or of the search for a similar name."""
    with pytest.raises(ConfigError, match=next(iter(options))):
        Embed("vit_digits", **options)
