"""The layout `transformers_js`, loaded in Node by the library's own package.

    npm install --no-save --ignore-scripts @huggingface/transformers

in the root of the repository brings the package; without Node or the package the tests are skipped.
"""

import json
import shutil
import subprocess
from pathlib import Path

import keras
import pytest
from PIL import Image

import keras_vit
from keras_vit import VisionTransformer
from tests.exporting.photo import photo_of
from tests.helpers import random_tiny

PACKAGES = Path(__file__).parents[2] / "node_modules"
SCRIPT = Path(__file__).with_name("classify.mjs")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of converters
    pytest.mark.skipif(keras.backend.backend() != "torch", reason="torch writes the format"),
    pytest.mark.skipif(
        not (shutil.which("node") and (PACKAGES / "@huggingface" / "transformers").exists()),
        reason="needs Node, and npm install --no-save --ignore-scripts @huggingface/transformers",
    ),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A model, its folder and a picture of its size, where resizing plays no part."""
    keras.utils.set_random_seed(0)
    labels = ("cat", "dog", "owl", "fox", "emu")
    model: VisionTransformer = random_tiny(
        image_size=32, labels=labels, protocol="transformers", numerics={"gelu": "exact"}
    )
    folder = tmp_path_factory.mktemp("browser") / "model"
    keras_vit.export(model, folder, "transformers_js")
    Image.fromarray(photo_of((32, 32), 3)).save(folder / "photo.png")
    (folder.parent / "node_modules").symlink_to(PACKAGES)
    return model, folder


def printed(script, folder, *arguments):
    command = ["node", str(script), *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("dtype", "tolerance"), [("fp32", 1e-5), ("q8", 0.05)])
def test_transformers_js_answers_as_the_model(written, dtype, tolerance):
    """Every label has the probability of `model.classify`, in float32 and in 8 bits."""
    model, folder = written
    answers = json.loads(printed(SCRIPT, folder, folder, "photo.png", dtype))
    found = {answer["label"]: answer["score"] for answer in answers}
    (expected,) = model.classify(folder / "photo.png")
    assert found == pytest.approx(dict(expected), abs=tolerance)


def test_the_program_in_the_readme_runs_in_node(written):
    """It prints the label that the model gives first."""
    model, folder = written
    program = folder.joinpath("README.md").read_text().split("```js\n")[1].split("```")[0]
    script = folder / "program.mjs"
    script.write_text(program.replace("photo.jpg", "photo.png"))
    first = printed(script, folder).split("label:")[1]
    assert model.classify(folder / "photo.png")[0][0][0] in first.split(",")[0]
