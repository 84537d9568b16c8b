"""A short form of `make fuzz` and of `python -m weights.fuzz.kills`; nightly, a longer one."""

import os
import subprocess
import sys

import pytest

from keras_vit.checkpoints.families import NAMES
from tests.runs import times
from weights.fuzz import answers
from weights.fuzz.campaign import run
from weights.fuzz.mutations import STRUCTURE
from weights.fuzz.seeds import FORMATS, READERS

OF_FAMILIES = ("timm/eva", "transformers/dinov3_vit", "torchvision", "open_clip")
"""One for each way in which a family's files differ from those of a ViT."""
COUNT = times(6, 40)
SHORT = ("google", "timm", "sharded", "keras_vit", "keras_hub", "images", *answers.READERS)
"""npz, safetensors, several files, a preset, h5, images, and a server."""
LONG = [reader for reader in (*FORMATS, *OF_FAMILIES) if reader not in SHORT]


def test_every_format_has_a_campaign():
    assert set(NAMES) <= set(READERS), "a name for FORMATS in weights/fuzz/seeds.py is missing"


@pytest.mark.parametrize(
    "reader", [*SHORT, *(pytest.param(name, marks=pytest.mark.nightly) for name in LONG)]
)
def test_the_first_inputs_of_a_campaign(reader, tmp_path):
    """Each is refused by an error that names the file, or read as far as its bytes allow."""
    counts, faults = run(reader, COUNT, keep=tmp_path)
    assert not faults, faults
    assert counts["tried"] == COUNT
    assert counts["clean"] >= COUNT // 4


def test_a_campaign_finds_faults(tmp_path, monkeypatch):
    """A change that cannot be right, and is read all the same, is counted, and its input kept."""
    monkeypatch.setitem(STRUCTURE, ".npz", lambda path, rng: "the file was damaged")
    counts, faults = run("google", 12, keep=tmp_path)
    assert counts["wrong"] == len(faults) > 0
    kept = tmp_path / f"google-0-{faults[0].number}"
    assert (kept / "fault.json").is_file() and (kept / "input" / "x.npz").is_file()


def test_kills_leave_whole_files_or_none():
    """Of presets, conversions and downloads, and readers beside writers; NumPy has no threads."""
    options = ["--count", str(times(1, 50)), "--seconds", str(times(1, 10))]
    options += ["--only", *["save", "writers", "convert", "download"][: times(2, 4)]]
    process = subprocess.run(
        [sys.executable, "-m", "weights.fuzz.kills", *options],
        env={**os.environ, "KERAS_BACKEND": "numpy"},
        capture_output=True,
        check=False,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr
