"""Settings for every test, and fixtures that a test may request by name."""

import gc
import os
import re
import sys

import hypothesis
import pytest

# JAX reads this at its import, in this process and in those that tests start: most of the time of
# a compilation is LLVM's, for code that runs a few times. `full_compilation` is for the others.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import keras

from tests import light_compilation
from tests.browser import chromium
from tests.forks import Nursery

hypothesis.settings.register_profile("repeatable", derandomize=True)
hypothesis.settings.load_profile("repeatable")

# OpenVINO reports each conversion to its makers, from a process forked beside running threads,
# which crashes. Without the package it reports nothing.
sys.modules.setdefault("openvino_telemetry", None)


if keras.backend.backend() == "jax":
    light_compilation.switch_on()

# TensorFlow compiles training steps by XLA, which spends its time likewise.
if keras.backend.backend() == "tensorflow":
    os.environ["XLA_FLAGS"] = " ".join(
        [
            os.environ.get("XLA_FLAGS", ""),
            "--xla_backend_optimization_level=0",
            "--xla_llvm_disable_expensive_passes=true",
            light_compilation.FLAG,
        ]
    )

_PREDICTS = (
    "tests/openvino/",
    "tests/models/inference/",
    "tests/support/test_interpolation.py::test_the_matrix_computed_in_the_graph",
    "tests/checkpoints/test_parity.py",
    "tests/exporting/test_pixels.py",
    "tests/trained/test_tokens.py::test_tokens_equal",
    "tests/trained/test_tokens.py::test_attention",
    "tests/trained/test_tokens.py::test_positions",
)
"""The tests that run on OpenVINO, which has no gradients."""

_OWN_ON_EACH = (
    "tests/test_cross_backend.py",
    "tests/test_derivatives.py",
    "tests/test_docs.py",
    "tests/test_families.py",
    "tests/test_gpu.py",
    "tests/test_lowered.py",
    "tests/checkpoints/test_parity.py",
    "tests/checkpoints/test_live_keras_hub.py",
    "tests/distribution/",
    "tests/exporting/",
    "tests/kernels/",
    "tests/layers/",
)
"""The tests of code that backends have of their own: every case runs on each of them."""


_OF_TORCH = re.compile(
    r"^pytestmark = pytest\.mark\.(without_backend|on_one_backend\(\"torch\"\))$", re.MULTILINE
)
"""A file whose every test runs on torch alone."""


def pytest_addoption(parser):
    parser.addoption(
        "--share-cases",
        action="store_true",
        help="divide the cases of a test among torch, JAX and TensorFlow, which run in turn",
    )


def pytest_ignore_collect(collection_path, config):
    """Files of other backends' tests are not imported, which takes minutes for all of them.

    Under OpenVINO they would import a second backend.
    """
    mine = keras.backend.backend()
    if collection_path.is_dir() or collection_path.suffix != ".py":
        return None
    if mine != "openvino":
        of_torch = mine != "torch" and _OF_TORCH.search(collection_path.read_text("utf-8"))
        return True if of_torch else None
    path = collection_path.relative_to(config.rootpath).as_posix()
    return None if any(path.startswith(chosen.split("::")[0]) for chosen in _PREDICTS) else True


def pytest_collection_modifyitems(config, items):
    """Tests that run no backend, or depend on none, run once: on torch, or on the first named."""
    mine = keras.backend.backend()
    chosen = [item for item in items if _runs_on(mine, item)]
    if config.getoption("share_cases") and mine in _SHARERS:
        chosen = _share_of(mine, chosen)
    others = set(items) - set(chosen)
    config.hook.pytest_deselected(items=list(others))
    items[:] = chosen


def _runs_on(backend, item):
    if backend == "openvino":
        return item.nodeid.startswith(_PREDICTS)
    chosen = next((place.args for place in item.iter_markers("on_one_backend")), ())
    if item.get_closest_marker("without_backend") and backend != "torch":
        return False
    return not chosen or backend in chosen


_SHARERS = ("torch", "jax", "tensorflow")
_FIXED = ("without_backend", "on_one_backend", "skipif")
"""Markers of tests that choose their backends themselves."""


def _share_of(backend, items):
    """Every test of three cases or more leaves two thirds of them to the other backends."""
    tests = {}
    for item in items:
        if not item.nodeid.startswith(_OWN_ON_EACH) and not any(
            map(item.get_closest_marker, _FIXED)
        ):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    others = set()
    for cases in tests.values():
        if len(cases) >= len(_SHARERS):
            mine = cases[_SHARERS.index(backend) :: len(_SHARERS)]
            others |= set(cases) - set(mine)
    return [item for item in items if item not in others]


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
    keras.utils.set_random_seed(0)


@pytest.fixture(scope="module")
def full_compilation():
    """Switches on XLA's slower optimisations under JAX, for tests of what users run."""
    if keras.backend.backend() != "jax":
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
