"""The layout `transformers_js`: against transformers' own outputs, and in Node by its own package.

    npm install --no-save --ignore-scripts @huggingface/transformers

in the root of the repository brings the package; without Node or the package its tests are skipped.
"""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.exporting.formats import onnx
from keras_vit.exporting.graph import join_outputs
from tests.exporting.photo import make_photo
from tests.family_goldens import expected, load_case, relative_error
from tests.helpers import random_tiny
from tests.thorough import THOROUGH

PACKAGES = Path(__file__).parents[2] / "node_modules"
SCRIPT = Path(__file__).with_name("browser.mjs")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of converters
    pytest.mark.on_one_backend("torch"),  # torch writes the format
]
in_node = pytest.mark.skipif(
    not (shutil.which("node") and (PACKAGES / "@huggingface" / "transformers").exists()),
    reason="needs Node, and npm install --no-save --ignore-scripts @huggingface/transformers",
)
FAMILIES = {
    "hf_deit_teacher": ("model", ["logits"]),
    "hf_deit_model": ("model", ["encoded", "pooler_output"]),
    "hf_dinov2_classifier": ("model", ["logits"]),
    "hf_dinov2_model": ("model", ["encoded", "pre_logits"]),
    "hf_dinov2_reg_model": ("model", ["encoded", "pre_logits"]),
    "hf_dinov3_model": ("model", ["encoded", "pre_logits"]),
    "hf_clip_vision": ("vision_model", ["last_hidden_state", "pre_logits"]),
    "hf_clip_projection": ("vision_model", ["image_embeds"]),
    "hf_siglip_vision": ("vision_model", ["encoded", "pre_logits"]),
}
"""Cases of transformers: the ONNX file of each, and the library's outputs that it gives."""
if not THOROUGH:  # an export takes seconds
    _CHOSEN = ("hf_deit_teacher", "hf_dinov2_model", "hf_clip_projection", "hf_siglip_vision")
    FAMILIES = {name: FAMILIES[name] for name in _CHOSEN}
STAGES = {"encoded": "encoder_norm", "last_hidden_state": "block_1", "logits": "logits"}
"""The stages of keras_vit under these names, where they are not `pre_logits`."""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """`{name: (model, folder)}`, a plain ViT among them, and a picture of each model's size."""
    root = tmp_path_factory.mktemp("browser")
    (root / "node_modules").symlink_to(PACKAGES)
    labels = ("cat", "dog", "owl", "fox", "emu")
    plain = {"image_size": 16, "protocol": "transformers", "numerics": {"gelu": "exact"}}
    models = {"vit": random_tiny(class_names=labels, **plain)}
    models |= {name: load_case(name, protocol="transformers") for name in FAMILIES}
    folders = {}
    for name, model in models.items():
        outputs = "logits" if model.config.num_classes else "features"
        keras_vit.export(model, root / name, "transformers_js", outputs=outputs)
        folders[name] = (model, root / name)
    Image.fromarray(make_photo((16, 16), 3)).save(root / "photo.png")
    return folders


@pytest.mark.parametrize("name", FAMILIES)
def test_the_file_of_a_family_gives_the_outputs_of_transformers(written, name):
    """Of the class that config.json names, for the images of the goldens."""
    file, names = FAMILIES[name]
    reference = expected(name)
    images = np.moveaxis(reference["image"], -1, 1).astype("float32")
    answer = onnx.session(written[name][1] / "onnx" / f"{file}.onnx")(images)
    assert relative_error(answer, join_outputs([reference[key] for key in names])) <= 1e-5


def test_a_class_that_transformers_js_lacks_is_refused(tmp_path):
    """CLIP's classifier is one; features are those of a model without a head."""
    with pytest.raises(keras_vit.errors.ExportError, match="has no CLIPForImageClassification"):
        keras_vit.export(load_case("hf_clip_classifier"), tmp_path / "x", "transformers_js")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fields", [{"rescale": True}, {"image_size": (24, 16)}], ids=str)
def test_the_processor_of_the_folder_prepares_images_for_the_graph(fields, tmp_path):
    """Of a model that takes pixels in [0, 255], and of an export at another size."""
    from tests import torchvision_shim  # noqa: F401

    transformers = pytest.importorskip("transformers")
    size = fields.get("image_size")
    model = random_tiny(
        image_size=16,
        protocol="transformers",
        numerics={"gelu": "exact"},
        rescale=fields.get("rescale", False),
    )
    keras_vit.export(model, tmp_path / "x", "transformers_js", outputs="logits", image_size=size)
    photo = Image.fromarray(make_photo((31, 20), 3))
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "x", backend="pil")
    given = processor(photo, return_tensors="np")["pixel_values"]
    answer = onnx.session(tmp_path / "x" / "onnx" / "model.onnx")(given)
    if size:
        model.save_to_preset(tmp_path / "preset")
        model = keras_vit.VisionTransformer.from_preset(tmp_path / "preset", image_size=size)
    want = model.predict(model.preprocessor(photo), verbose=0)
    assert relative_error(answer, want) <= 1e-5


def node(script, folder, *arguments):
    """The lines that a script prints."""
    command = ["node", str(script), *map(str, arguments)]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


@in_node
@pytest.mark.parametrize(("dtype", "tolerance"), [("fp32", 1e-5), ("q8", 0.05)])
def test_a_classifier_in_node_answers_as_the_model(written, dtype, tolerance):
    """Every label has the probability of `model.classify`, in float32 and in 8 bits."""
    model, folder = written["vit"]
    (answers,) = map(json.loads, node(SCRIPT, folder, "../photo.png", dtype, folder))
    (labels,) = model.classify(folder.parent / "photo.png")
    scores = {answer["label"]: answer["score"] for answer in answers}
    assert scores == pytest.approx(dict(labels), abs=tolerance)


@in_node
def test_every_family_in_node_answers_as_the_model(written):
    """Scores of a classifier; tokens, then one vector, of an encoder."""
    root = written["vit"][1].parent
    lines = node(SCRIPT, root, "photo.png", "fp32", *FAMILIES)
    for line, (name, (_, names)) in zip(lines, FAMILIES.items(), strict=True):
        model, answer = written[name][0], json.loads(line)
        if names == ["logits"]:
            scores = sorted(answer["score"] for answer in answer)
            (labels,) = model.classify(root / "photo.png")
            assert scores == pytest.approx(sorted(share for _, share in labels), abs=1e-5)
            continue
        batch = model.preprocessor(root / "photo.png")
        stages = [STAGES.get(key, "pre_logits") for key in names]
        values = model.inference.run(model, batch, stages)
        for output, stage in zip(answer, stages, strict=False):
            assert relative_error(np.asarray(output), values[stage]) <= 1e-5


@in_node
@pytest.mark.parametrize("name", ["vit", "hf_dinov2_model"])
def test_the_program_in_the_readme_runs_in_node(written, name):
    """It prints the label that the model gives first, or a tensor of its tokens."""
    model, folder = written[name]
    program = folder.joinpath("README.md").read_text().split("```js\n")[1].split("```")[0]
    script = folder / "program.mjs"
    script.write_text(program.replace("photo.jpg", "../photo.png"))
    text = "\n".join(node(script, folder))
    if name == "vit":
        first = text.split("label:")[1]
        assert model.classify(folder.parent / "photo.png")[0][0][0] in first.split(",")[0]
    else:
        assert "dims: [ 1, 17, 24 ]" in text
