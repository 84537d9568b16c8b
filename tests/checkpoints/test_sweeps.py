"""A sample of the sweeps over classes; `python -m tests.sweeps transformers` runs all of one."""

import importlib

import pytest

from tests.sweeps.classes import outcome
from tests.thorough import sample

SAMPLE = {
    "transformers": ("Dinov2WithRegistersModel", "IJepaModel", "FlavaImageModel"),
    "keras_hub": ("DINOV3Backbone", "SigLIPVisionEncoder"),
}


@pytest.mark.parametrize("library", sample(SAMPLE))
def test_random_models_of_a_library_are_equal(library):
    """Every array is random, and the outputs are within 1e-5 of the library's."""
    pytest.importorskip(library, exc_type=ImportError)
    if library == "transformers":
        pytest.importorskip("torch")
    cases = importlib.import_module(f"tests.sweeps.{library}").CASES
    found = {name: outcome(name, cases[name]).folder for name in SAMPLE[library]}
    assert set(found.values()) == {"equal"}, found
