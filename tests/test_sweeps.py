"""A sample of the sweep over timm; those over classes are rows of tests/checkpoints/cases.py."""

import pytest

pytest.importorskip("tests.live")
from weights.sweeps import timm

NIGHT = (
    *("vit_small_patch14_reg4_dinov2", "vit_base_patch16_siglip_224", "vit_small_patch16_dinov3"),
    *("vit_so400m_patch14_siglip_384", "vit_tiny_r_s16_p8_224"),
)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("beit_base_patch16_224", "equal"),
        ("vit_base_patch16_rpn_224", "refused"),
        *(pytest.param(name, "equal", marks=pytest.mark.nightly) for name in NIGHT),
    ],
)
def test_a_sample_of_timm_is_equal_or_refused(name, verdict):
    [outcome] = timm.outcomes("timm", (name,))
    assert {answer.partition(":")[0] for answer in (outcome.folder, outcome.file)} == {verdict}
