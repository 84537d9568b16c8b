"""A sample of the sweeps."""

import pytest

from weights.sweeps import classes

pytest.importorskip("torch")
from tests import torchvision_shim  # noqa: F401

CLASSES = {
    "transformers": ("Dinov2WithRegistersModel", "IJepaModel", "FlavaImageModel"),
    "keras_hub": ("DINOV3Backbone", "SigLIPVisionEncoder"),
}


@pytest.mark.parametrize("library", CLASSES)
def test_random_models_of_a_library_are_equal(library):
    """Every array is random, and the outputs are within 1e-5 of the library's."""
    pytest.importorskip(library, exc_type=ImportError)
    outcomes = list(classes.outcomes(library, CLASSES[library]))
    assert [outcome.folder for outcome in outcomes] == ["equal"] * len(CLASSES[library])


SAMPLE = {
    "vit_small_patch14_reg4_dinov2": "equal",
    "vit_base_patch16_siglip_224": "equal",
    "vit_so400m_patch14_siglip_384": "equal",
    "vit_small_patch16_dinov3": "equal",
    "vit_tiny_r_s16_p8_224": "equal",
    "beit_base_patch16_224": "equal",
    "vit_base_patch16_rpn_224": "refused",
}
"""Architectures of timm, and what becomes of them by folder, and by file with its name."""


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_timm(name):
    """Equal to timm, or refused; never wrong."""
    pytest.importorskip("timm")
    from weights.sweeps import timm  # imports torchvision

    [outcome] = timm.outcomes("timm", (name,))
    verdicts = {answer.partition(":")[0] for answer in (outcome.folder, outcome.file)}
    assert verdicts == {SAMPLE[name]}
