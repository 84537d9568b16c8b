"""An exported folder runs without keras_vit, answers as the model, and is whole or absent."""

import dataclasses
import json
import logging
import sys
from typing import get_args

import keras
import numpy as np
import onnx as onnx_library
import pytest
from PIL import ExifTags, Image, ImageOps

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.cli import main
from keras_vit.errors import ConfigError, ExportError
from keras_vit.exporting import documents, verification, writing
from keras_vit.exporting.formats import FORMATS, load_format, onnx
from keras_vit.exporting.graph import ExportGraph
from keras_vit.exporting.plan import ExportPlan
from tests.exporting.photo import make_photo
from tests.helpers import assert_close, random_tiny, to_numpy
from tests.plain import normal
from tests.processes import python

BACKEND = keras.backend.backend()
OWN = "saved_model" if BACKEND == "tensorflow" else "torch"
"""The format that the backend writes and reads by itself; JAX has none."""

# torch writes these formats, whatever the backend.
torch_alone = pytest.mark.on_backend("torch")
not_on_jax = pytest.mark.on_backend("torch", "tensorflow")
LABELS = ("cat", "dog", "owl", "fox", "emu")
pytestmark = [pytest.mark.every_backend, pytest.mark.filterwarnings("ignore")]  # of converters


def tiny(**fields):
    sizes = {"num_layers": 2, "hidden_size": 32, "class_names": LABELS, "protocol": "timm"}
    return random_tiny(**{**sizes, **fields})


ANY_SIZE = {"image_size": None, "position_grid": (3, 3)}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """An ONNX export, and the model that it was made of."""
    keras.utils.set_random_seed(0)
    model = tiny()
    folder = tmp_path_factory.mktemp("exports") / "model"
    return model, keras_vit.export(model, folder), folder


def session(path):
    import onnxruntime

    opened = onnxruntime.InferenceSession(path)
    return lambda images: opened.run(None, {"images": images})[0]


@pytest.mark.on_backend("torch", "jax")
def test_images_of_any_size_become_probabilities(written):
    """The file takes uint8 pixels and prepares them; backends without ONNX leave it to torch."""
    model, exported, folder = written
    # A pixel on the edge of two levels may fall to either; most images have none.
    assert exported.verification.difference <= verification.ROUNDED
    assert min(difference for _, difference in exported.verification.runs) <= 5e-6
    run = session(folder / "model.onnx")
    for sides in ((16, 16), (50, 37), (21, 64)):
        photo = make_photo(sides, 3)
        (answer,) = model.classify(Image.fromarray(photo), top=5)
        probabilities = run(photo[None])[0]
        result = {label: probabilities[LABELS.index(label)] for label, _ in answer}
        assert result == pytest.approx(dict(answer), abs=0.02)  # a pixel may differ by a level


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
    assert json.loads(metadata.custom_metadata_map["keras_vit.class_names"]) == list(LABELS)
    assert json.loads(metadata.custom_metadata_map["keras_vit.protocol"]) == "timm"


def read_program(folder, photo):
    """Returns the program of a README with the path of a photo, which it writes."""
    Image.fromarray(photo).save(folder / "photo.png")
    text = folder.joinpath("README.md").read_text().split("```python\n")[1].split("```")[0]
    return text.replace("photo.jpg", "photo.png")


def printed(folder, photo, monkeypatch, capsys):
    """Runs the program of a README in this process without keras_vit; returns its output."""
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        patch.setitem(sys.modules, "keras_vit", None)
        exec(read_program(folder, photo), {})
    return capsys.readouterr().out


PROGRAMS = {
    "torch": [
        ("onnx", {}),
        ("onnx", {"precision": "int8"}),
        ("onnx", {"precision": "float16", "preprocessing": False}),
        ("openvino", {}),
        ("openvino", {"precision": "int8"}),
        ("openvino", {"precision": "float16"}),
        ("torch", {}),
    ],
    "tensorflow": [
        ("saved_model", {}),
        ("litert", {}),
        ("litert", {"precision": "int8"}),
        ("litert", {"precision": "float16"}),
    ],
    "jax": [],
}


def test_the_program_of_each_format_is_run():
    assert {form for programs in PROGRAMS.values() for form, _ in programs} == set(FORMATS)


@not_on_jax
@pytest.mark.parametrize(("format", "options"), PROGRAMS[BACKEND])
def test_the_program_in_the_readme_is_as_near_as_the_readme_states(tmp_path, format, options):
    """It runs as printed in a new process without keras_vit, on an image of the comparison."""
    model, folder = tiny(class_names=None, protocol="paper"), tmp_path / "model"
    exported = keras_vit.export(model, folder, format, outputs="logits", **options)
    shape, difference = exported.verification.runs[0]
    assert f"{exported.verification.difference:.1e}" in (folder / "README.md").read_text()
    photo = np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)[0]
    blocked = "import sys; sys.modules['keras_vit'] = sys.modules['keras'] = None\n"
    program = read_program(folder, photo) + "np.save('outputs.npy', outputs)\n"
    process = python(blocked + program, cwd=folder)
    assert process.returncode == 0, process.stderr
    expected = to_numpy(model(model.preprocessor(photo[None])))
    assert_close(np.load(folder / "outputs.npy"), expected, max(2 * difference, 1e-6))


def on_its_side():
    """A photograph of a phone, with an alpha."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    return {"pixels": make_photo((20, 30), 4), "exif": exif}


def of_16_bits():
    """A grey image, which Pillow alone would clip at 255, so that it would be white."""
    return {"pixels": make_photo((20, 30), 1)[..., 0].astype("uint16") << 8}


@torch_alone
@pytest.mark.parametrize(
    ("make", "channels"),
    [*((on_its_side, count) for count in (1, 3, 4)), *((of_16_bits, count) for count in (1, 3))],
)
def test_the_program_in_the_readme_reads_a_photo_as_the_model_does(
    tmp_path, make, channels, monkeypatch
):
    model = tiny(num_layers=1, channels=channels, protocol="paper")
    photo = make()
    Image.fromarray(photo.pop("pixels")).save(tmp_path / "photo.png", **photo)
    plan = ExportPlan("torch", "logits", "resize", model.config, False, None, "float32", "paper")
    monkeypatch.chdir(tmp_path)
    names = {"np": np, "Image": Image, "ImageOps": ImageOps}
    exec(documents._images(plan).replace("photo.jpg", "photo.png"), names)
    (expected,) = ExportGraph(model, plan).inputs("photo.png")
    np.testing.assert_array_equal(names["images"], expected)


@torch_alone
def test_the_program_in_the_readme_of_other_channels_reads_an_array(tmp_path, monkeypatch, capsys):
    """No file of an image has two channels, so a model of two takes an array."""
    folder = tmp_path / "model"
    keras_vit.export(tiny(num_layers=1, channels=2, protocol="paper"), folder, "torch")
    np.save(folder / "photo.npy", make_photo((20, 30), 2))
    assert printed(folder, make_photo((20, 30), 3), monkeypatch, capsys)


def test_a_squeezed_image_is_called_so_in_the_program():
    """The protocol may crop; the program of prepared images does not."""
    plan = dataclasses.replace(make_plan("float32"), prepares="scale")
    assert "# The whole image is squeezed" in documents._images(plan)
    assert "squeezed" not in documents._images(make_plan("float32"))


@torch_alone
def test_a_fixed_batch_is_calibrated(tmp_path):
    """Each image fills the batch that the graph takes; random images may have other ranges."""
    photos = [make_photo((40 + k, 30), 3) for k in range(2)]
    exported = keras_vit.export(
        tiny(num_layers=1), tmp_path / "model", batch=3, precision="int8", calibration=photos
    )
    shapes = [shape for shape, _ in exported.verification.runs]
    assert shapes == [(3, 40, 30, 3), (3, 41, 30, 3)]
    assert "For images of the calibration, " in (tmp_path / "model/README.md").read_text()


@torch_alone
@pytest.mark.parametrize("format", ["onnx", "openvino"])
def test_int8_leaves_the_logs_of_the_process_alone(written, tmp_path, format):
    """Advice of a library is hidden, and nothing that its logger shares with others is changed."""
    import nncf

    _, _, folder = written
    (tmp_path / "model.onnx").write_bytes((folder / "model.onnx").read_bytes())
    loggers = [logging.getLogger(), logging.getLogger(nncf.__name__)]
    handler = logging.NullHandler()
    for logger in loggers:
        logger.addHandler(handler)
    before = [(logger.level, list(logger.filters)) for logger in loggers]
    load_format(format).finish(tmp_path, make_plan("int8", format), None)
    assert [(logger.level, list(logger.filters)) for logger in loggers] == before
    assert handler.level == logging.NOTSET
    for logger in loggers:
        logger.removeHandler(handler)


@not_on_jax
@pytest.mark.parametrize("format", [OWN, *(["onnx"] if BACKEND == "torch" else [])])
def test_a_model_in_8_bits_may_round_an_activation_otherwise(tmp_path, format):
    """Two runtimes round a number between two levels to either."""
    model = tiny(num_layers=1)
    model.quantize("int8")
    exported = keras_vit.export(model, tmp_path / "model", format, preprocessing=False)
    assert exported.verification.difference <= verification.ROUNDED
    assert exported.verification.tolerance == verification.ROUNDED


def test_a_label_that_utf_8_cannot_hold_is_escaped(tmp_path):
    """Python keeps bytes of file names that are no UTF-8 in such characters."""
    graph = ExportGraph(
        tiny(num_layers=1, class_names=("\udc80", *LABELS[1:])), make_plan("float32")
    )
    documents.write(tmp_path, load_format("onnx"), graph, None, [])
    assert tmp_path.joinpath("labels.txt").read_text().splitlines()[0] == "\\udc80"


@torch_alone
def test_a_block_takes_no_more_nodes_than_timms(tmp_path):
    """29 with any number of images; torch's exporter writes 31 for timm 1.0.31 with a fixed number.

    The kernels are as large as those whose reshapes the exporter would leave in the graph.
    """
    model = random_tiny(num_layers=2, hidden_size=128, mlp_dim=512)
    keras_vit.export(model, tmp_path / "model", verify=False)
    nodes = onnx_library.load(tmp_path / "model" / "model.onnx").graph.node
    norms = [k for k, node in enumerate(nodes) if node.op_type == "LayerNormalization"]
    assert 0 < norms[2] - norms[0] <= 31


@torch_alone
@pytest.mark.parametrize("calibrated", [False, True])
def test_int8_of_onnx_still_prepares_images(written, tmp_path, calibrated):
    """Weights shrink, and photographs of any size nearly keep their probabilities."""
    model, _, folder = written
    target = tmp_path / "model.onnx"
    target.write_bytes((folder / "model.onnx").read_bytes())
    photos = [make_photo((40 + k, 30), 3) for k in range(3)]
    batches = [photo[None] for photo in photos]
    onnx.FORMAT.finish(tmp_path, make_plan("int8"), batches if calibrated else None)
    before = (folder / "model.onnx").stat().st_size
    assert before - target.stat().st_size > 0.1 * 4 * model.count_params()
    exact, rounded = session(folder / "model.onnx"), session(target)
    for photo in photos:
        assert 0 < np.abs(rounded(photo[None]) - exact(photo[None])).max() < 0.1


@torch_alone
def test_float16_of_onnx_takes_prepared_images(tmp_path):
    """Its file is half as large."""
    exported = keras_vit.export(
        tiny(num_layers=1), tmp_path / "model", precision="float16", preprocessing=False
    )
    assert 0 < exported.verification.difference < 0.01


def make_plan(precision, format="onnx"):
    fixed = {"outputs": "probabilities", "prepares": "resize", "protocol": "timm", "batch": None}
    config = tiny().config
    return ExportPlan(format, config=config, rescale=False, precision=precision, **fixed)


@torch_alone
def test_openvino_reads_a_model_of_any_size(tmp_path, monkeypatch, capsys):
    """Three sizes of prepared images, and the logits; the program in the README runs it."""
    model = tiny(num_layers=1, **ANY_SIZE)
    folder = tmp_path / "model"
    exported = keras_vit.export(model, folder, "openvino", preprocessing=False, outputs="logits")
    assert {path.name for path in folder.iterdir()} >= {"model.xml", "model.bin"}
    assert len(exported.verification.runs) == 3
    assert exported.verification.difference <= 5e-6
    photo = make_photo((24, 24), 3)
    out = printed(folder, photo, monkeypatch, capsys)
    assert out.split()[0].strip("'") == model.classify(Image.fromarray(photo))[0][0][0]


@pytest.fixture(scope="module")
def graphs(written, tmp_path_factory):
    """OpenVINO's files of the ONNX export: in float32, with int8 weights, and int8 throughout."""
    _, _, folder = written
    photos = [make_photo((40 + k, 30), 3)[None] for k in range(8)]
    folders = {}
    for kind, images in (("float32", None), ("int8", None), ("calibrated", photos)):
        folders[kind] = tmp_path_factory.mktemp(kind)
        (folders[kind] / "model.onnx").write_bytes((folder / "model.onnx").read_bytes())
        plan = make_plan("float32" if kind == "float32" else "int8", "openvino")
        load_format("openvino").finish(folders[kind], plan, images)
    return folders


@torch_alone
@pytest.mark.parametrize(("kind", "tolerance"), [("int8", 0.03), ("calibrated", 0.1)])
def test_openvino_in_8_bits_still_prepares_images(written, graphs, kind, tolerance):
    """Weights shrink, and photographs of any size nearly keep their probabilities."""
    from openvino import Core

    model, _, _ = written
    before, after = ((graphs[name] / "model.bin").stat().st_size for name in ("float32", kind))
    assert before - after > 0.4 * 4 * model.count_params()  # the patches stay float32
    run = Core().compile_model(graphs[kind] / "model.xml", "CPU")
    for sides in ((16, 16), (50, 37)):
        photo = make_photo(sides, 3)
        assert_probabilities(model, photo, run(photo[None])[0][0], tolerance)


def assert_probabilities(model, photo, found, tolerance):
    for label, probability in model.classify(Image.fromarray(photo))[0]:
        assert found[LABELS.index(label)] == pytest.approx(probability, abs=tolerance)


PRECISION = "INFERENCE_PRECISION_HINT"


@torch_alone
def test_openvino_prepares_images_of_a_size_that_was_fixed(written, graphs):
    """OpenVINO then folds the weights of the resize into constants when it compiles."""
    from openvino import Core

    core, photo = Core(), make_photo((50, 37), 3)
    graph = core.read_model(graphs["float32"] / "model.xml")
    graph.reshape([1, *photo.shape])
    run = core.compile_model(graph, "CPU", {PRECISION: "f32"})
    assert_probabilities(written[0], photo, run(photo[None])[0][0], 0.02)


@torch_alone
def test_openvino_computes_the_size_before_a_crop_as_the_host_does(tmp_path):
    """It multiplies by reciprocals, so the floor of 41 * 31 / 41 rows was 30."""
    model, folder = tiny(num_layers=1, image_size=28, protocol="timm"), tmp_path / "model"
    keras_vit.export(model, folder, "openvino", verify=False)
    plan = dataclasses.replace(make_plan("float32", "openvino"), config=model.config)
    batches = [
        np.random.default_rng(side).integers(0, 256, (1, side, 70, 3), dtype=np.uint8)
        for side in (41, 47, 55, 61)
    ]
    found = verification.run(load_format("openvino"), folder, batches)
    for images, outputs in zip(batches, found, strict=True):
        assert_close(outputs, ExportGraph(model, plan).answers(images), verification.ROUNDED)


@torch_alone
def test_int8_of_openvino_takes_as_many_blocks_as_models_have(tmp_path):
    """The activations of every block are rounded; paths through 12 residual blocks are 2^24."""
    model = tiny(num_layers=12, hidden_size=8, mlp_dim=16)
    keras_vit.export(
        model,
        tmp_path / "model",
        "openvino",
        precision="int8",
        calibration=[make_photo((20, 30), 3)],
        verify=False,
    )
    graph = (tmp_path / "model" / "model.xml").read_text()
    assert graph.count('type="FakeQuantize"') >= 4 * 12


@not_on_jax
def test_the_own_format_of_each_backend_at_three_sizes(tmp_path, monkeypatch, capsys):
    """A model of any size takes pixels and gives features; the program in the README runs it."""
    exported = keras_vit.export(
        tiny(num_layers=1, **ANY_SIZE), tmp_path / "model", OWN, outputs="features", batch=2
    )
    assert [shape[0] for shape, _ in exported.verification.runs] == [2, 2, 2]
    assert exported.verification.difference <= 5e-6
    assert not (tmp_path / "model" / "labels.txt").exists()
    assert printed(tmp_path / "model", make_photo((24, 24), 3), monkeypatch, capsys).startswith(
        "(2, 32)"
    )


@not_on_jax
def test_another_size_and_policy(tmp_path):
    """Positions are resized, and 16 bits become 32."""
    model = tiny(num_layers=1, dtype="mixed_bfloat16")
    exported = keras_vit.export(model, tmp_path / "model", OWN, image_size=24, preprocessing=False)
    assert exported.verification.runs[0][0][1:3] == (24, 24)
    assert "mixed_bfloat16 became float32" in exported.notes[0]


# TensorFlow writes it.
@pytest.mark.on_backend("tensorflow")
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_litert_takes_pixels_of_one_size(tmp_path, precision, monkeypatch, capsys):
    """A flatbuffer of one size takes its uint8 pixels; the program in the README runs it."""
    model = tiny(num_layers=1)
    exported = keras_vit.export(model, tmp_path / "model", "litert", precision=precision)
    assert exported.verification.difference <= {"float32": 5e-6, "int8": 0.1}[precision]
    assert "the format takes one size" in exported.notes[0]
    photo = make_photo((16, 16), 3)
    out = printed(tmp_path / "model", photo, monkeypatch, capsys)
    assert out.split()[0].strip("'") == model.classify(Image.fromarray(photo))[0][0][0]


def quantised(bits):
    model = tiny(num_layers=1)
    model.quantize(bits)
    return model


def of_nan():
    model = tiny(num_layers=1)
    model.get_layer("head").kernel.assign(np.full((32, 5), np.nan))
    return model


class Doubled(VisionTransformer):
    def call(self, inputs, training=None):
        return 2 * super().call(inputs, training=training)


def doubled():
    return Doubled(tiny(num_layers=1).config)


def plain(**fields):
    """A function that makes a model of one block."""
    return lambda: tiny(num_layers=1, **fields)


INT8, FEATURES = {"precision": "int8"}, {"outputs": "features"}
BY_LITERT = "quantised to int8 .*LiteRT.* precision='int8'"
REFUSED_ON_TORCH = [
    (plain(), {"format": "onxx"}, ConfigError, "Did you mean 'onnx'"),
    (plain(), {"outputs": "labels"}, ConfigError, "outputs='labels'"),
    (plain(), {"batch": 0}, ConfigError, "batch=0"),
    (plain(), {"batch": True}, ConfigError, "batch=True"),
    (plain(), {"preprocessing": "no"}, ConfigError, "preprocessing must be a bool, found 'no'"),
    (plain(), {"verify": 0}, ConfigError, "verify must be a bool, found 0"),
    (plain(), {"calibration": [], **INT8}, ConfigError, "at least one image"),
    (plain(), {"calibration": []}, ConfigError, "precision='int8' of"),
    (
        plain(),
        {"format": "litert", "calibration": [], **INT8},
        ConfigError,
        "'openvino' takes images",
    ),
    (plain(), {"format": "torch", "precision": "float16"}, ExportError, "not written in float16"),
    (plain(), {"precision": "float16"}, ExportError, "choose preprocessing=False"),
    (plain(num_classes=0, class_names=None), {}, ConfigError, "outputs='features'"),
    (plain(**ANY_SIZE), {"format": "litert"}, ExportError, "Choose a size"),
    # Without a comparison too: the file would be broken.
    *(
        (
            lambda: quantised("int4"),
            {"format": form, "verify": False},
            ExportError,
            f"'{form}': .*int4",
        )
        for form in ("onnx", "openvino")
    ),
    # Another process knows the weights alone, and would leave the user's `call` out.
    (doubled, {"format": "saved_model", "verify": False}, ExportError, "A Doubled cannot be built"),
    (doubled, FEATURES, ConfigError, "Doubled.call takes no `stages`"),
]
REFUSED = [
    (of_nan, {"format": OWN}, ExportError, "model: its outputs .* are NaN or infinite"),
    *(
        (plain(), {"path": path, "format": OWN}, ConfigError, "path: expected the path of a folder")
        for path in (None, 3, b"model", "a\0b")
    ),
    *{
        "torch": REFUSED_ON_TORCH,
        "tensorflow": [
            (lambda: quantised("int8"), {"format": "litert"}, ExportError, BY_LITERT),
        ],
    }.get(BACKEND, []),
]


@not_on_jax
@pytest.mark.parametrize(("make", "arguments", "error", "message"), REFUSED)
def test_what_cannot_be_exported_is_refused(tmp_path, make, arguments, error, message):
    """One sentence, and no folder."""
    with pytest.raises(error, match=message):
        keras_vit.export(make(), **{"path": tmp_path / "model", **arguments})
    assert list(tmp_path.iterdir()) == []


ABSENT = [
    (("onnx", "onnxscript"), {}, r"onnx, onnxscript, which are not.*keras-vit\[export\]"),
    (("onnxruntime",), {}, r"onnxruntime, which is not installed.*verify=False"),
    (("nncf",), {"format": "openvino", **INT8}, r"nncf, which is not.*keras-vit\[nncf\]"),
]


@torch_alone
@pytest.mark.parametrize(("absent", "arguments", "message"), ABSENT)
def test_a_missing_converter_is_named_with_the_line_that_installs_it(
    tmp_path, monkeypatch, absent, arguments, message
):
    """So is a missing runtime, without which one can still write."""
    monkeypatch.setattr(writing, "is_installed", lambda name: name not in absent)
    with pytest.raises(ExportError, match=message):
        keras_vit.export(tiny(num_layers=1), tmp_path / "model", **arguments)
    assert list(tmp_path.iterdir()) == []


def fail(*arguments):
    """Fails as a converter or a runtime, which may name the path of the unfinished file."""
    (folder,) = (each for each in arguments if hasattr(each, "joinpath"))
    reason = ValueError(f"cannot load {folder / 'model.pt2'} today")
    raise RuntimeError("step 1 of 3") from reason  # as torch's exporter


FAILING = "import os\nraise OSError('cannot load ' + os.path.abspath('model.pt2') + ' today.')"


@torch_alone
@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"write": fail}, r"converter failed: ValueError: cannot load model\.pt2 today"),
        ({"program": FAILING}, r"runs model\.pt2 failed: OSError: cannot load model\.pt2 today\. "),
    ],
)
def test_a_failing_library_is_named_with_its_cause(tmp_path, monkeypatch, part, message):
    """The message shows no unfinished folder."""
    form = dataclasses.replace(load_format("torch"), **part)
    monkeypatch.setattr(writing, "load_format", lambda name: form)
    with pytest.raises(ExportError, match=message):
        keras_vit.export(tiny(num_layers=1), tmp_path / "m", "torch")
    assert list(tmp_path.iterdir()) == []


@not_on_jax
def test_a_difference_leaves_nothing_behind(tmp_path, monkeypatch):
    """The message states the tolerance that applies: 0.25 is no 2e-01."""
    monkeypatch.setattr(verification, "TOLERANCES", {"float32": -0.25})
    with pytest.raises(ExportError, match=r"differs from the model by .*which is above -0\.25\."):
        keras_vit.export(tiny(num_layers=1), tmp_path / "model", OWN, preprocessing=False)
    assert list(tmp_path.iterdir()) == []


@not_on_jax
def test_a_folder_with_other_files_stays(tmp_path):
    """An export replaces an export of its format alone."""
    (tmp_path / "thesis.tex").write_text("chapter 1")
    with pytest.raises(ExportError, match=r"thesis\.tex"):
        keras_vit.export(tiny(num_layers=1), tmp_path, OWN)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@torch_alone
def test_the_command_export_writes_a_preset(tmp_path, capsys):
    """`keras-vit export` writes a preset and says where, and how near."""
    preset = tmp_path / "preset"
    tiny(num_layers=1).save_to_preset(preset)
    out = tmp_path / "model"
    arguments = ["--format", "torch", "--no-preprocessing", "--image-size", "24", "--batch", "2"]
    assert main(["export", str(preset), "--path", str(out), *arguments]) == 0
    assert "of the model in its own runtime" in capsys.readouterr().out
    described = json.loads((out / "export.json").read_text())
    assert described["input"]["shape"] == [2, 24, 24, 3]


def test_the_command_knows_every_format():
    """The names of the command line are those of `keras_vit.export`."""
    from keras_vit.cli.products import Format

    assert get_args(Format) == FORMATS


@torch_alone
def test_the_title_of_the_model_is_text_in_the_readme(tmp_path):
    """A name with quotes, markup and a terminal escape; labels are printed with escapes."""
    name = 'x", y); evil("[a](http://b) \x1b[2J'
    model = tiny(num_layers=1)
    model.title = name
    graph = ExportGraph(model, make_plan("float32"))
    documents.write(tmp_path, load_format("onnx"), graph, None, [])
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "\x1b" not in readme and "\\[a\\](http://b) \\\\x1b\\[2J" in readme
    assert "print(repr(labels[best])" in readme


def test_probabilities_of_a_multi_label_model_are_sigmoids():
    """The graph that is written down answers as `probabilities`; its facts have the thresholds."""
    model = tiny(task="multi_label", thresholds=0.25)
    plan = dataclasses.replace(make_plan("float32"), prepares="nothing")
    graph = ExportGraph(model, plan)
    images = np.random.default_rng(0).standard_normal((2, 16, 16, 3)).astype("float32")
    np.testing.assert_allclose(
        graph.answers(images), model.probabilities(images, prepared=True), rtol=1e-5
    )
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
