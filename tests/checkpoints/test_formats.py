"""Files of transformers' TensorFlow and Flax classes and of ONNX exporters, with their outputs."""

import functools
import shutil
from pathlib import Path

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.containers import open_arrays
from keras_vit.errors import CheckpointError
from tests.family_goldens import relative_error

FOLDER = Path(__file__).parents[1] / "data" / "formats"
CASES = sorted(path.stem for path in FOLDER.glob("*.npz"))
DINOV2 = FOLDER / "onnx_dinov2" / "onnx" / "model.onnx"
PLACES = {
    "tf_vit": "tf_model.h5",
    "flax_vit": "flax_model.msgpack",
    "onnx_dinov2": "onnx/model.onnx",
}


@pytest.mark.parametrize("name", CASES)
def test_a_folder_gives_the_outputs_of_the_library(name):
    """Within 1e-5 of the largest value; the JSON beside the weights is read."""
    with np.load(FOLDER / f"{name}.npz") as file:
        want = dict(file)
    image = want.pop("image")
    model = keras_vit.VisionTransformer.from_preset(FOLDER / name)
    ((_, value),) = want.items()
    assert relative_error(model.predict(image, verbose=0), value) <= 1e-5


@pytest.mark.without_backend
@pytest.mark.parametrize("name", PLACES)
def test_a_file_named_alone_is_the_same_model(name):
    """The JSON of its folder is read, also from above `onnx/`."""
    alone, whole = keras_vit.info(FOLDER / name / PLACES[name]), keras_vit.info(FOLDER / name)
    assert (alone.family, alone.config) == (whole.family, whole.config)


@pytest.mark.without_backend
@pytest.mark.parametrize("name", PLACES)
def test_a_cut_file_is_refused(name, tmp_path):
    """At every twentieth of its length, by an exception of keras_vit."""
    content = (FOLDER / name / PLACES[name]).read_bytes()
    path = tmp_path / "x"
    for part in range(1, 20):
        path.write_bytes(content[: len(content) * part // 20])
        with pytest.raises(CheckpointError), open_arrays(path) as reader:
            for array in reader.shapes:
                reader.read(array)


def _rewritten(tmp_path, change):
    """Writes the network of a case anew, after a change of its protobuf."""
    onnx = pytest.importorskip("onnx")
    model = onnx.load(DINOV2)
    change(onnx, model.graph.initializer)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.without_backend
def test_numbers_in_another_file_are_read_from_beside_alone(tmp_path):
    """A path that leaves the folder is refused, and so is a file that is missing."""

    def outside(location, onnx, arrays):
        for array in arrays:
            onnx.external_data_helper.set_external_data(array, location, 0, len(array.raw_data))
            array.ClearField("raw_data")

    def beside(onnx, arrays):
        onnx.external_data_helper.set_external_data(arrays[0], "x.data", 4, len(arrays[0].raw_data))
        (tmp_path / "x.data").write_bytes(b"head" + arrays[0].raw_data)
        arrays[0].ClearField("raw_data")

    for location in ("../x.data", "/etc/passwd", "a/x.data", "..", "missing.data"):
        with pytest.raises(CheckpointError, match="its numbers are in"):
            open_arrays(_rewritten(tmp_path, functools.partial(outside, location)))
    with open_arrays(_rewritten(tmp_path, beside)) as moved, open_arrays(DINOV2) as first:
        assert list(moved.shapes) == list(first.shapes)
        for name in first.shapes:
            assert np.array_equal(moved.read(name), first.read(name))


@pytest.mark.without_backend
def test_numbers_of_a_repository_are_opened_with_it(tmp_path):
    """`onnx/model.onnx_data` lies in the subfolder, beside the network."""
    folder = tmp_path / "repository"
    shutil.copytree(FOLDER / "onnx_dinov2", folder)

    def split(onnx, arrays):
        onnx.external_data_helper.set_external_data(arrays[0], "model.onnx_data", 0)
        (folder / "onnx" / "model.onnx_data").write_bytes(arrays[0].raw_data)
        arrays[0].ClearField("raw_data")

    shutil.copy(_rewritten(tmp_path, split), folder / "onnx" / "model.onnx")
    assert keras_vit.info(folder).shapes == keras_vit.info(FOLDER / "onnx_dinov2").shapes


@pytest.mark.without_backend
def test_quantised_weights_are_refused_and_float16_is_announced(tmp_path, caplog):
    """Either says what the file has."""

    def halve(onnx, arrays):
        for array in arrays:
            numbers = onnx.numpy_helper.to_array(array)
            if numbers.dtype == "float32":
                array.CopyFrom(onnx.numpy_helper.from_array(numbers.astype("float16"), array.name))

    def quantise(onnx, arrays):
        array = next(array for array in arrays if list(array.dims) == [24, 24])
        array.CopyFrom(onnx.numpy_helper.from_array(np.ones((24, 24), "int8"), array.name))

    with open_arrays(_rewritten(tmp_path, halve)) as reader:
        assert {dtype.name for dtype in reader.dtypes.values()} == {"float16"}
    assert "rounded to float16" in caplog.text
    with pytest.raises(CheckpointError, match="quantised"):
        open_arrays(_rewritten(tmp_path, quantise))


@pytest.mark.without_backend
def test_hostile_files_of_flax_are_refused(tmp_path):
    """False lengths, types that hold objects, and maps without end."""
    good = (FOLDER / "flax_vit" / "flax_model.msgpack").read_bytes()
    cases = {
        "object": good.replace(b"\xa7float32", b"\xa7object0", 1),
        "length": good.replace(b"\xa7float32", b"\xa7float64", 1),
        "map": b"\xdf\xff\xff\xff\xff" + good[1:],
        "deep": b"\x81\xa1a" * 5000 + b"\xc0",
        "more": good + b"\xc0",
    }
    for name, content in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(CheckpointError):
            open_arrays(path)
