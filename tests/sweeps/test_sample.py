"""A sample of every sweep, in the suite."""

import keras
import pytest

pytest.importorskip("torch")
from tests import torchvision_shim  # noqa: F401

pytest.importorskip("timm")

SAMPLE = {
    "vit_small_patch14_reg4_dinov2": ("equal", "equal"),
    "vit_base_patch16_siglip_224": ("equal", "refused"),
    "vit_so400m_patch14_siglip_384": ("equal", "refused"),
    "vit_small_patch16_dinov3": ("equal", "equal"),
    "vit_tiny_r_s16_p8_224": ("equal", "equal"),
    "beit_base_patch16_224": ("refused", "refused"),
}
"""Architectures of timm, and what becomes of them by folder and by file."""


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="timm is torch's")
@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_timm(name):
    """Equal to timm, or refused; never wrong."""
    from tests.sweeps import timm  # imports torchvision

    [outcome] = timm.outcomes((name,))
    verdicts = (outcome.folder.partition(":")[0], outcome.file.partition(":")[0])
    assert verdicts == SAMPLE[name]
