"""The code of README, docstrings and examples runs."""

import doctest
import importlib
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from tests.digits import LOOPS, write_folders
from tests.golden import FOLDER
from tests.presets.hub_server import TOKEN, connect, served

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
EXAMPLES = sorted((ROOT / "examples").rglob("[0-9d]*_*.py"))
ON_EVERY_BACKEND = ("02_fine_tune_a_folder", "05_own_training_loop", "08_several_devices")
"""Examples whose code or whose training depends on the backend; torch runs the others."""
MODULES = [
    info.name
    for info in pkgutil.walk_packages(keras_vit.__path__, "keras_vit.")
    if not info.name.endswith("__main__")
]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with the files that the documents name, and a Hub with the repository they name."""
    monkeypatch.chdir(tmp_path)
    digit = np.zeros((8, 8), "uint8")
    digit[1:7, 4] = 255
    Image.fromarray(digit).save("digit.png")
    write_folders(tmp_path / ".digits", LOOPS.get, train=120, test=0)
    (tmp_path / ".digits" / "train").rename("digits")
    shutil.copy(FOLDER / "vit_resize.npz", "ViT-B_16.npz")
    Image.fromarray(np.full((40, 60, 3), 90, "uint8")).save("photo.jpg")
    shutil.copytree(FOLDER / "hf_classifier_tanh", "vit-for-transformers")
    with served() as hub:
        hub.add("google/vit-base-patch16-224", FOLDER / "hf_classifier")
        connect(hub, tmp_path / ".cache", monkeypatch, lambda seconds: None)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield tmp_path


@pytest.mark.parametrize("block", BLOCKS, ids=[b.strip().splitlines()[-1][:40] for b in BLOCKS])
def test_readme_code_runs(block, desk):
    """Every Python block of the README runs by itself, on small data."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (4, 8, 8, 1), dtype="uint8")
    exec(block, {"images": images, "classes": np.array([0, 1, 0, 1])})


def test_the_search_finds_the_code_blocks_of_the_readme():
    """At least five."""
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    """Examples in docstrings give the output that they show."""
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("path", EXAMPLES, ids=[p.stem for p in EXAMPLES])
def test_example_runs(path, desk):
    """Each example starts with its command, is short, and the command succeeds."""
    if path.stem not in ON_EVERY_BACKEND and keras.backend.backend() != "torch":
        pytest.skip("The functions that it calls are tested on every backend.")
    text = path.read_text()
    assert len(text.splitlines()) <= 75
    command = re.match(r'"""[^\n]*\n\n *(?:KERAS_BACKEND=\w+ )?python examples/(\S+)(.*)\n', text)
    assert command, "no command at the top"
    assert ROOT / "examples" / command[1] == path
    arguments = [sys.executable, str(path), *command[2].split()]
    subprocess.run(arguments, cwd=desk, check=True, capture_output=True)
