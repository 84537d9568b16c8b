"""An exported folder runs without keras_vit, and describes the model; parts of single formats."""

import json

import keras
import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps

import keras_vit
from keras_vit.cli import main
from keras_vit.exporting import documents, verification
from keras_vit.exporting.formats import load_format
from keras_vit.exporting.graph import ExportGraph
from keras_vit.exporting.plan import ExportPlan
from tests.exporting.photo import make_photo
from tests.helpers import assert_close, random_tiny, to_numpy
from tests.plain import normal
from tests.runs import times

# torch writes these formats, whatever the backend.
torch_alone = pytest.mark.on_backend("torch")
LABELS = ("cat", "dog", "owl", "fox", "emu")
pytestmark = [pytest.mark.every_backend, pytest.mark.filterwarnings("ignore")]  # of converters


def tiny(**fields):
    sizes = {"num_layers": 1, "hidden_size": 32, "class_names": LABELS, "protocol": "timm"}
    return random_tiny(**{**sizes, **fields})


def make_plan(model=None, format="onnx", precision="float32", prepares="resize"):
    model = model or tiny()
    fixed = {"outputs": "probabilities", "rescale": False, "batch": None}
    facts = {"config": model.config, "protocol": model.preprocessor.protocol}
    return ExportPlan(format, prepares=prepares, precision=precision, **fixed, **facts)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """An ONNX export, and the model that it was made of."""
    keras.utils.set_random_seed(0)
    model = tiny(num_layers=2)
    folder = tmp_path_factory.mktemp("exports") / "model"
    return model, keras_vit.export(model, folder), folder


def run_onnx(folder):
    import onnxruntime

    opened = onnxruntime.InferenceSession(folder / "model.onnx")
    return lambda images: opened.run(None, {"images": images})[0]


def run_openvino(folder, sides=None):
    """Computes in float32; with images of some sides alone, the weights of a resize are folded."""
    from openvino import Core

    core = Core()
    graph = core.read_model(folder / "model.xml")
    if sides:
        graph.reshape([1, *sides, 3])
    run = core.compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda images: run(images)[0]


def assert_probabilities(model, run, tolerance, all_sides=((16, 16), (50, 37), (21, 64))):
    """Fails unless photos of several sizes get the probabilities of the model."""
    for sides in all_sides:
        photo = make_photo(sides, 3)
        found = dict(zip(LABELS, run(photo[None])[0], strict=True))
        (answer,) = model.classify(Image.fromarray(photo), top=5)
        assert found == pytest.approx(dict(answer), abs=tolerance)


@pytest.mark.on_backend("torch", "jax")
def test_images_of_any_size_become_probabilities(written):
    """The file takes uint8 pixels and prepares them; backends without ONNX leave it to torch."""
    model, exported, folder = written
    # A pixel on the edge of two levels may fall to either; most images have none.
    assert exported.verification.difference <= verification.ROUNDED
    assert exported.verification.tolerance == verification.ROUNDED
    assert min(difference for _, difference in exported.verification.runs) <= 5e-6
    assert_probabilities(model, run_onnx(folder), 0.02)  # a pixel may differ by a level


@pytest.mark.on_backend("torch", "jax")
def test_the_folder_describes_the_model(written):
    """Labels, input, protocol and comparison stand beside the model, and inside the ONNX file."""
    import onnxruntime

    _, _, folder = written
    names = {path.name for path in folder.iterdir()}
    assert names == {"model.onnx", "labels.txt", "README.md", "export.json"}
    assert folder.joinpath("labels.txt").read_text().splitlines() == list(LABELS)
    facts = json.loads(folder.joinpath("export.json").read_text())
    assert facts["input"]["shape"] == [None, None, None, 3]
    assert facts["protocol"] == "timm"
    assert facts["verification"]["runs"]
    metadata = onnxruntime.InferenceSession(folder / "model.onnx").get_modelmeta()
    stored = metadata.custom_metadata_map
    assert json.loads(stored["keras_vit.class_names"]) == list(LABELS)
    assert json.loads(stored["keras_vit.protocol"]) == "timm"


EXIF = Image.Exif()
EXIF[ExifTags.Base.Orientation] = 6
ON_ITS_SIDE = (make_photo((20, 30), 4), {"exif": EXIF})
"""A photograph of a phone, with an alpha."""
OF_16_BITS = (make_photo((20, 30), 1)[..., 0].astype("uint16") << 8, {})
"""A grey image, which Pillow alone would clip at 255, so that it would be white."""
PHOTOS = [(ON_ITS_SIDE, 1), (ON_ITS_SIDE, 3), (ON_ITS_SIDE, 4), (OF_16_BITS, 1), (OF_16_BITS, 3)]


@torch_alone
@pytest.mark.parametrize(("photo", "channels"), [*PHOTOS, (None, 2)])
def test_the_program_in_the_readme_reads_a_photo_as_the_model_does(
    tmp_path, photo, channels, monkeypatch
):
    """No file of an image has two channels, so a model of two takes an array."""
    model = tiny(channels=channels, protocol="paper")
    monkeypatch.chdir(tmp_path)
    if photo is None:
        image = make_photo((20, 30), channels)
        np.save("photo.npy", image)
    else:
        pixels, options = photo
        image = "photo.png"
        Image.fromarray(pixels).save(image, **options)
    plan = make_plan(model, "torch")
    names = {"np": np, "Image": Image, "ImageOps": ImageOps}
    exec(documents._images(plan).replace("photo.jpg", "photo.png"), names)
    (expected,) = ExportGraph(model, plan).inputs([image])
    np.testing.assert_array_equal(names["images"], expected)


@torch_alone
def test_names_and_labels_are_text_in_the_readme(tmp_path):
    """A name with quotes, markup and a terminal escape; labels are printed with escapes.

    Python keeps bytes of file names that are no UTF-8 in characters that UTF-8 cannot hold.
    """
    model = tiny(class_names=("\udc80", *LABELS[1:]))
    model.title = 'x", y); evil("[a](http://b) \x1b[2J'
    documents.write(tmp_path, load_format("onnx"), ExportGraph(model, make_plan()), None, [])
    assert tmp_path.joinpath("labels.txt").read_text().splitlines()[0] == "\\udc80"
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "\x1b" not in readme
    assert "\\[a\\](http://b) \\\\x1b\\[2J" in readme
    assert "print(repr(labels[best])" in readme


@torch_alone
def test_a_mask_is_exported_as_probabilities_and_a_depth_as_it_is(tmp_path):
    """Depths have no labels."""
    mask, images = tiny(dense={"stages": (0,)}), normal(2, 16, 16, 3)
    depth = tiny(dense={"stages": (0,), "output": "exp"}, num_classes=1, class_names=("depth",))
    maps = np.exp(mask.predict(images, verbose=0))
    maps /= maps.sum(axis=-1, keepdims=True)
    for model, expected in ((depth, depth.predict(images, verbose=0)), (mask, maps)):
        folder = tmp_path / model.task
        keras_vit.export(model, folder, preprocessing=False)
        assert_close(run_onnx(folder)(images), expected)
        assert folder.joinpath("labels.txt").exists() == (model is mask)


@torch_alone
def test_a_fixed_batch_is_calibrated(tmp_path):
    """Each image fills the batch that the graph takes; random images may have other ranges."""
    photos = [make_photo((40 + k, 30), 3) for k in range(2)]
    options = {"batch": 3, "precision": "int8", "calibration": photos}
    exported = keras_vit.export(tiny(), tmp_path / "model", **options)
    shapes = [shape for shape, _ in exported.verification.runs]
    assert shapes == [(3, 40, 30, 3), (3, 41, 30, 3)]
    assert "on calibration images, " in (tmp_path / "model/README.md").read_text()


ONNX_LIMITS = {"weights": (0.1, 0.1), "calibrated": (0.1, 0.1)}
OPENVINO_LIMITS = {"weights": (0.4, 0.03), "calibrated": (0.4, 0.1)}
FINISHED = {
    "onnx": ("model.onnx", run_onnx, ONNX_LIMITS, [(40, 30), (41, 30), (42, 30)]),
    "openvino": ("model.bin", run_openvino, OPENVINO_LIMITS, [(16, 16), (50, 37)]),
}
"""A file, how it is run, per kind of int8 the saved share and a tolerance, and sides of photos."""


@pytest.fixture(scope="module")
def finish(written, tmp_path_factory):
    """Finishes the ONNX export in a format, in float32 or with 8 bits; returns the folder."""
    photos = [make_photo((40 + k, 30), 3)[None] for k in range(8)]
    folders = {}

    def folder(format, kind):
        if (format, kind) not in folders:
            place = folders[format, kind] = tmp_path_factory.mktemp(kind)
            (place / "model.onnx").write_bytes((written[2] / "model.onnx").read_bytes())
            plan = make_plan(written[0], format, "float32" if kind == "float32" else "int8")
            load_format(format).finish(place, plan, photos if kind == "calibrated" else None)
        return folders[format, kind]

    return folder


@torch_alone
@pytest.mark.parametrize("format", FINISHED)
@pytest.mark.parametrize("kind", ["weights", "calibrated"])
def test_a_file_of_8_bits_still_prepares_images(written, finish, format, kind):
    """Weights shrink, and photographs of any size nearly keep their probabilities."""
    file, run, limits, all_sides = FINISHED[format]
    share, tolerance = limits[kind]  # the patches of OpenVINO stay float32
    exact, rounded = finish(format, "float32"), finish(format, kind)
    saved = (exact / file).stat().st_size - (rounded / file).stat().st_size
    assert saved > share * 4 * written[0].count_params()
    runs = run(exact), run(rounded)
    for sides in all_sides:
        one, other = (run(make_photo(sides, 3)[None]) for run in runs)
        assert 0 < np.abs(one - other).max() < tolerance


@torch_alone
def test_openvino_prepares_images_of_a_size_that_was_fixed(written, finish):
    """OpenVINO then folds the weights of the resize into constants when it compiles."""
    sides = (50, 37)
    run = run_openvino(finish("openvino", "float32"), sides)
    assert_probabilities(written[0], run, 0.02, [sides])


@pytest.mark.nightly
@torch_alone
def test_openvino_computes_the_size_before_a_crop_as_the_host_does(tmp_path):
    """It multiplies by reciprocals, so the floor of 41 * 31 / 41 rows was 30."""
    model, folder = tiny(image_size=28), tmp_path / "model"
    keras_vit.export(model, folder, "openvino", verify=False)
    graph = ExportGraph(model, make_plan(model, "openvino"))
    sides, rng = (41, 47, 55, 61), np.random.default_rng(0)
    batches = [rng.integers(0, 256, (1, side, 70, 3), dtype=np.uint8) for side in sides]
    found = verification.run(load_format("openvino"), folder, batches)
    for images, outputs in zip(batches, found, strict=True):
        assert_close(outputs, graph.answers(images), verification.ROUNDED)


@torch_alone
def test_int8_of_openvino_takes_as_many_blocks_as_models_have(tmp_path):
    """The activations of every block are rounded; paths through 12 residual blocks are 2^24."""
    blocks = times(2, 12)
    model = tiny(num_layers=blocks, hidden_size=8, mlp_dim=16)
    options = {"precision": "int8", "calibration": [make_photo((20, 30), 3)], "verify": False}
    keras_vit.export(model, tmp_path / "model", "openvino", **options)
    graph = (tmp_path / "model" / "model.xml").read_text()
    assert graph.count('type="FakeQuantize"') >= 4 * blocks


@torch_alone
def test_the_command_export_writes_a_preset(tmp_path, capsys):
    """`keras-vit export` says where, and how near; positions are resized."""
    preset, out = tmp_path / "preset", tmp_path / "model"
    tiny(dtype="mixed_bfloat16").save_to_preset(preset)
    arguments = ["--no-preprocessing", "--image-size", "24", "--batch", "2"]
    assert main(["export", str(preset), "--path", str(out), *arguments]) == 0
    assert ", outputs within " in capsys.readouterr().out
    described = json.loads((out / "export.json").read_text())
    assert described["input"]["shape"] == [2, 24, 24, 3]
    assert described["verification"]["runs"][0][0] == [2, 24, 24, 3]


def test_probabilities_of_a_multi_label_model_are_sigmoids():
    """The graph that is written down answers as `probabilities`; its facts have the thresholds."""
    model = tiny(task="multi_label", thresholds=0.25)
    graph, images = ExportGraph(model, make_plan(model, prepares="nothing")), normal(2, 16, 16, 3)
    expected = model.probabilities(images, prepared=True)
    np.testing.assert_allclose(graph.answers(images), expected, rtol=1e-5)
    assert graph.facts()["thresholds"] == (0.25,) * 5


@torch_alone
def test_torch_jit_trace_records_only_operations_of_torch():
    """Keras's exports to OpenVINO and ONNX use `torch.jit.trace`.

    A converter would read a Python function in the graph as uninitialised memory.
    """
    import torch

    model = random_tiny().eval()
    images = torch.from_numpy(normal(2, 16, 16, 3))
    traced = torch.jit.trace(model, (torch.zeros(2, 16, 16, 3),))  # traces twice and compares
    assert "PythonOp" not in str(traced.inlined_graph)
    assert "^" not in str(traced.inlined_graph)
    assert_close(traced(images), to_numpy(model(images)), 2e-6)
