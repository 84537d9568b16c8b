"""A sample of the sweep over timm; those over classes are rows of tests/checkpoints/cases.py."""

import pytest

pytest.importorskip("tests.live")
from weights.sweeps import timm

NAMES = ("beit_base_patch16_224", "vit_small_patch16_dinov3", "vit_tiny_r_s16_p8_224")
VERDICTS = [("vit_base_patch16_rpn_224", "refused"), *((name, "equal") for name in NAMES)]


@pytest.mark.parametrize(("name", "verdict"), VERDICTS)
def test_a_sample_of_timm_is_equal_or_refused(name, verdict):
    [outcome] = timm.outcomes("timm", (name,))
    assert {answer.partition(":")[0] for answer in (outcome.folder, outcome.file)} == {verdict}
