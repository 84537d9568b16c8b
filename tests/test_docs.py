"""The code of README, docstrings and examples runs."""

import ast
import dataclasses
import doctest
import importlib
import itertools
import pkgutil
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from cyclopts import CycloptsError
from PIL import Image
from safetensors.numpy import save_file

import keras_vit
from keras_vit import cli
from keras_vit.checkpoints.families import formats_named
from keras_vit.checkpoints.moves import plan
from keras_vit.config import ViTConfig
from keras_vit.config.fields import flatten, nest
from keras_vit.presets.bucket import OFFICIAL
from keras_vit.presets.catalog import CATALOG
from tests.digits import write_folders
from tests.golden import FOLDER
from tests.presets.hub_server import TOKEN, connect, served
from tests.runs import times

ROOT = Path(__file__).parents[1]
PYTHON, SHOWN = (re.compile(rf"```{word}\n(.*?)```", re.DOTALL) for word in ("python", "py"))
COMMANDS = re.compile(r"^(?:    |\$ )keras-vit ((?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
LONG = ("export", "preprocessing")  # other tests run these
TEXTS = {page.stem: page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))}
TEXTS["README"] = (ROOT / "README.md").read_text()
PAGES = [name for name, text in TEXTS.items() if PYTHON.search(text) and name not in LONG]
EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").rglob("[0-9d]*_*.py"))}
ON_EVERY_BACKEND = ("05_own_training_loop", "08_several_devices")
"""Examples whose code depends on the backend; torch alone runs the others."""
SLOW = ("02_", "03_", "10_", "13_", "19_")
"""Examples that take seconds, each a chapter of the gallery, which `make docs` runs."""
NOTEBOOKS = ("01_classify_and_explain", "02_fine_tune_a_folder", "07_find_similar_images")
RUN_AS_NOTEBOOKS = NOTEBOOKS[: times(1, 3)]
"""Of the examples that are offered as notebooks too; the others run as programs."""
RUN_BY_TESTS = [name for name in EXAMPLES if name[:3] in ("14_", "15_", "16_", "17_", "18_")]
"""Examples that tests/examples runs, to look at their results."""
WALK = pkgutil.walk_packages(keras_vit.__path__, "keras_vit.")
MODULES = [info.name for info in WALK if not info.name.endswith("__main__")]
PUBLISHED = (
    "vit_b16.orig_i21k_ft_i1k_384",
    "vit_b16.augreg_i21k_ft_i1k_384",
    "vit_b16.augreg_i21k_224",
)
"""Names of the catalog that the pages load; the tests put a small file behind each."""


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with the files that the documents name, and a Hub with the repository they name."""
    monkeypatch.chdir(tmp_path)
    write_folders(tmp_path / "digits", lambda digit: ("even", "odd")[digit % 2], train=120, test=20)
    shutil.copy(min((tmp_path / "digits").rglob("*.png")), "digit.png")
    shutil.copy(FOLDER / "vit_resize.npz", "ViT-B_16.npz")
    Image.fromarray(np.full((40, 60, 3), 90, "uint8")).save("photo.jpg")
    shutil.copytree(FOLDER / "hf_classifier_tanh", "vit-for-transformers")
    with served() as hub:
        hub.add("google/vit-base-patch16-224", FOLDER / "hf_classifier")
        connect(hub, tmp_path / ".cache", monkeypatch)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield tmp_path


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A small classifier of 1,000 classes, in the official names and in torchvision's."""
    folder = tmp_path_factory.mktemp("published")
    sizes = {"image_size": 32, "patch_size": 16, "hidden_size": 96, "mlp_dim": 96}
    model = keras_vit.VisionTransformer(num_heads=12, num_layers=1, num_classes=1000, **sizes)
    keras_vit.checkpoints.save(model, folder / "ViT-B_16.npz", "google")
    moves = plan(model.config, formats_named("torchvision")[0])
    zeros = {move.name: np.zeros(move.file_shape, "float32") for move in moves}
    save_file(zeros, folder / "vit_b_16.safetensors")
    return folder


@pytest.fixture
def given(desk, published, monkeypatch):
    """What the pages name and do not make: published files, arrays, a model."""
    shutil.copytree(published, desk, dirs_exist_ok=True)
    with served() as bucket:
        monkeypatch.setenv("KERAS_VIT_BUCKET", bucket.endpoint)
        monkeypatch.setenv("KERAS_VIT_CACHE", str(desk / ".bucket"))
        for name in PUBLISHED:
            address = f"{OFFICIAL}{name}.npz"
            row = dataclasses.replace(CATALOG[name], variant=None, source=address, fields={})
            monkeypatch.setitem(CATALOG, name, row)
            bucket.files[f"{name}.npz"] = (published / "ViT-B_16.npz").read_bytes()
        images = np.random.default_rng(0).integers(0, 255, (4, 8, 8, 1), dtype="uint8")
        yield {"images": images, "classes": np.array([0, 1, 0, 1])}


@pytest.mark.parametrize("page", PAGES)
def test_python_code_of_a_page_runs(page, given):
    """Every block marked `python` runs by itself; the files it names are small ones."""
    for block in PYTHON.findall(TEXTS[page]):
        exec(compile(block, page, "exec"), dict(given))


def test_code_of_other_libraries_is_python():
    """Blocks marked `py` are shown beside keras_vit's and are not run: they parse, at least."""
    blocks = [block for text in TEXTS.values() for block in SHOWN.findall(text)]
    assert len([*map(ast.parse, blocks)]) >= 12


def test_commands_of_the_pages_have_the_options_that_they_show():
    """Every line of README and docs that begins with `keras-vit` is parsed, and not run."""
    lines = [line for text in TEXTS.values() for line in COMMANDS.findall(text)]
    assert len(lines) > 15
    refused = []
    for line in lines:
        words = shlex.split(line.replace("\\\n", " "), comments=True)
        words = itertools.takewhile(lambda word: word not in "|>", words)
        try:
            cli.app.parse_args([*words], exit_on_error=False, print_error=False)
        except CycloptsError as error:
            refused.append(f"{line}: {error}")
    assert refused == []


def test_the_fields_of_families_are_fields_of_the_configuration():
    """Every path of the tables exists, and every value is one that the field takes."""
    tables = TEXTS["families"].partition("(fields-of-a-family)=")[2]
    rows = re.findall(r"^\| .+", tables, re.MULTILINE)
    sizes = {"patch_size": 2, "hidden_size": 64, "mlp_dim": 64, "num_heads": 4, "num_layers": 4}
    known = ViTConfig(**sizes).to_dict()
    known |= flatten(known)
    named = [word for row in rows for word in re.findall(r"`([a-z_.]+(?:=[^`]+)?)`", row)]
    assert len(named) > 40
    for field, _, value in (word.partition("=") for word in named if word != "qk_norm=True"):
        if not value:
            assert field in known, field
            continue
        several = {"class_tokens": 2} if value == '"tokens"' else {}
        tokens = {"distillation": True} if "distillation" in value else several
        plain = {**sizes, "tokens": tokens}
        given = nest({**flatten(plain), field: ast.literal_eval(value)})
        assert ViTConfig.from_dict(given) != ViTConfig.from_dict(plain), field


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    """Examples in docstrings give the output that they show."""
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def choose_marks(name):
    of_backends = [pytest.mark.every_backend] if name in ON_EVERY_BACKEND else []
    return [*of_backends, pytest.mark.nightly] if name[:3] in SLOW else of_backends


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=choose_marks(name)) for name in EXAMPLES]
)
def test_example_runs(name, desk, nursery):
    """Each example starts with its command, and the command succeeds; tests/test_site.py runs some
    as notebooks."""
    begin = r'"""[^\n]*\n[^"]*?\n *(?:KERAS_BACKEND=\w+ )?python examples/(\S+)(.*)\n'
    command = re.match(begin, EXAMPLES[name].read_text())
    assert command and ROOT / "examples" / command[1] == EXAMPLES[name]
    if name in (*RUN_AS_NOTEBOOKS, *RUN_BY_TESTS):
        pytest.skip("Another test runs it.")
    process = nursery.run(EXAMPLES[name], *command[2].split(), cwd=desk)
    assert process.returncode == 0, process.stderr
