"""The first inputs of each campaign; `make fuzz` tries ten thousand."""

import os

import pytest

from keras_vit.checkpoints.families import NAMES
from tests.fuzz import answers
from tests.fuzz.campaign import run
from tests.fuzz.mutations import STRUCTURE
from tests.fuzz.seeds import FORMATS, READERS
from tests.runs import times

pytestmark = pytest.mark.skipif(
    os.environ.get("KERAS_BACKEND") != "torch", reason="readers have no backend: one run is enough"
)


OF_FAMILIES = ("timm/eva", "transformers/dinov3_vit", "torchvision", "open_clip")
"""One for each way in which a family's files differ from those of a ViT."""
COUNT = times(8, 40)


def test_every_format_has_a_campaign():
    """Also the formats that are only read."""
    missing = set(NAMES) - set(READERS)
    assert not missing, "no input in tests/fuzz/seeds.py, such as by a name in its FORMATS"


@pytest.mark.parametrize("reader", [*FORMATS, *OF_FAMILIES, "images", *answers.READERS])
def test_the_first_inputs_of_a_campaign(reader, tmp_path):
    """Each is refused by an error that names the file, or read as far as its bytes allow."""
    counts, faults = run(reader, COUNT, keep=tmp_path)
    assert not faults, faults
    assert counts["tried"] == COUNT
    assert counts["clean"] >= COUNT // 4


def test_a_campaign_finds_faults(tmp_path, monkeypatch):
    """A change that cannot be right, and is read all the same, is counted, and its input kept."""

    def harmless(path, rng):
        return "the file was damaged"

    monkeypatch.setitem(STRUCTURE, ".npz", harmless)
    counts, faults = run("google", 12, keep=tmp_path)
    assert counts["wrong"] == len(faults) > 0
    assert (tmp_path / f"google-0-{faults[0].number}" / "fault.json").is_file()
    assert (tmp_path / f"google-0-{faults[0].number}" / "input" / "x.npz").is_file()
