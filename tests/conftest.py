"""Settings for every test, and fixtures that a test may request by name."""

import hypothesis
import keras
import pytest

from tests.browser import chromium

hypothesis.settings.register_profile("repeatable", derandomize=True)
hypothesis.settings.load_profile("repeatable")


_PREDICTS = (
    "tests/openvino/",
    "tests/checkpoints/test_parity.py",
    "tests/checkpoints/test_family_parity.py::test_every_stage",
    "tests/exporting/test_pixels.py",
)
"""The tests that run on OpenVINO, which has no gradients."""


def pytest_ignore_collect(collection_path, config):
    """Under OpenVINO, files of other tests are not imported: they would import a second backend."""
    if keras.backend.backend() != "openvino" or collection_path.is_dir():
        return None
    path = collection_path.relative_to(config.rootpath).as_posix()
    return None if any(path.startswith(kept.split("::")[0]) for kept in _PREDICTS) else True


def pytest_collection_modifyitems(items):
    """Tests that run no backend run once, under torch, which starts first."""
    if keras.backend.backend() == "openvino":
        items[:] = [item for item in items if item.nodeid.startswith(_PREDICTS)]
    if keras.backend.backend() != "torch":
        once = pytest.mark.skip(reason="The test runs no backend; it runs under torch.")
        for item in items:
            if item.get_closest_marker("without_backend"):
                item.add_marker(once)


@pytest.fixture(autouse=True)
def same_random_numbers():
    """Seeds every test, so that it draws the same numbers alone and after other tests."""
    keras.utils.set_random_seed(0)


@pytest.fixture(scope="module")
def quick_compilation():
    """Switches off XLA's slower optimisations under JAX, for tests that compile much."""
    if keras.backend.backend() != "jax":
        yield
        return
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium from the distribution's packages."""
    driver = chromium()
    yield driver
    driver.quit()
