"""Masked patch prediction teaches what fine-tuning needs."""

import runpy
import sys
from pathlib import Path

import keras
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "06_masked_patch_pretraining.py"


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="920 steps, on one backend")
def test_pretraining_beats_none_at_equal_fine_tuning_steps(monkeypatch):
    """On 500 labelled digits and 360 others; the gain was several times the margin (docs)."""
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "800", "60"])
    found = runpy.run_path(str(EXAMPLE))
    assert found["pretrained"] > found["scratch"] + 0.05
