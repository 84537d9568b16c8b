"""Settings for every test, and fixtures that a test may request by name."""

import gc
import itertools
import operator
import os
import random
import re
import sys

import hypothesis
import numpy as np
import pytest

from tests.browser import chromium
from tests.forks import Nursery
from tests.refusals import Messages, World
from tests.runs import BACKEND, THOROUGH

hypothesis.settings.register_profile("repeatable", derandomize=True)
hypothesis.settings.load_profile("repeatable")

# OpenVINO reports each conversion to its makers, from a process forked beside running threads,
# which crashes. Without the package it reports nothing.
sys.modules.setdefault("openvino_telemetry", None)

# JAX reads this at its import, in this process and in those that tests start: most of the time of
# a compilation is LLVM's, for code that runs a few times. `full_compilation` is for the others.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

if BACKEND != "none":
    import keras  # after the variable

    from tests import light_compilation

if BACKEND == "jax":
    light_compilation.switch_on()

# TensorFlow compiles training steps by XLA, which spends its time likewise.
if BACKEND == "tensorflow":
    os.environ["XLA_FLAGS"] = " ".join(
        [
            os.environ.get("XLA_FLAGS", ""),
            "--xla_backend_optimization_level=0",
            "--xla_llvm_disable_expensive_passes=true",
            light_compilation.FLAG,
        ]
    )

_MARKERS = {"jax": "every_backend", "tensorflow": "every_backend", "openvino": "openvino"}
"""The marker of a test that runs on this backend too."""


def pytest_addoption(parser):
    parser.addoption(
        "--write-messages", action="store_true", help="write the messages of refusals anew"
    )


def pytest_ignore_collect(collection_path):
    """Files of other runs' tests are not imported, which takes minutes for all of them.

    Without a backend, and under OpenVINO, they would import a backend that must not be there.
    """
    if collection_path.is_file() and collection_path.suffix != ".py":
        return None
    files = collection_path.rglob("test_*.py") if collection_path.is_dir() else [collection_path]
    return None if any(_has_tests(file.read_text("utf-8")) for file in files) else True


def _has_tests(text):
    """Whether the markers in a file's text allow a test of this run."""
    module = re.search(r"^pytestmark = (\[[^\]]*\]|[^\n]*)", text, re.MULTILINE)
    of_file = module[0] if module else ""
    if BACKEND == "none" or "without_backend" in of_file:
        return BACKEND == "none" and "without_backend" in of_file
    if "on_backend" in of_file:
        return f'"{BACKEND}"' in of_file
    if BACKEND == "torch" or f"mark.{_MARKERS[BACKEND]}" in text:
        return True
    return re.search(rf'\bon_backend\([^)]*"{BACKEND}"', text) is not None


def pytest_collection_modifyitems(config, items):
    """Leaves out the tests of other runs."""
    runs = [_runs_here(item) for item in items]
    config.hook.pytest_deselected(items=[*itertools.compress(items, map(operator.not_, runs))])
    items[:] = itertools.compress(items, runs)


def _runs_here(item):
    """A test runs on torch, unless a marker says otherwise."""
    has = item.get_closest_marker
    if has("nightly") and not THOROUGH:
        return False
    if BACKEND == "none" or has("without_backend"):
        return BACKEND == "none" and has("without_backend") is not None
    if chosen := has("on_backend"):
        return BACKEND in chosen.args
    return BACKEND == "torch" or has(_MARKERS[BACKEND]) is not None


def pytest_collection_finish():
    """Leaves what lives to the end of the run out of the garbage collector's rounds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def nothing_frozen():
    """Garbage is collected as in a user's program, for tests in which Keras collects it often.

    keras_vit makes these collections quick unless the program has frozen objects itself.
    """
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.fixture(autouse=True)
def same_random_numbers():
    """Seeds every test, so that it draws the same numbers alone and after other tests."""
    if BACKEND != "none":
        keras.utils.set_random_seed(0)
        yield
        return
    random.seed(0)
    np.random.seed(0)
    yield
    assert not {"keras", "jax", "tensorflow", "torch", "openvino"} & sys.modules.keys()


@pytest.fixture
def world(tmp_path):
    """What the calls of the table of refusals take; a room with more overrides it."""
    return World(tmp_path)


@pytest.fixture
def messages(request):
    """The whole messages of a table of refusals: those of `test_x.py` stand in `x.txt`."""
    path = request.path.with_name(f"{request.path.stem.removeprefix('test_')}.txt")
    return Messages(path, request.config.getoption("write_messages"))


@pytest.fixture(scope="module")
def full_compilation():
    """Switches on XLA's slower optimisations under JAX, for tests of what users run."""
    if BACKEND != "jax":
        yield
        return
    import jax

    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="session")
def nursery():
    """Runs Python programs in forks of a process that has imported the backend."""
    process = Nursery()
    yield process
    process.close()


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium from the distribution's packages."""
    driver = chromium()
    yield driver
    driver.quit()
