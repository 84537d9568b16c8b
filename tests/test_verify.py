"""`weights/verify.py` compares presets with what is known of them, and records how far it came."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "weights"))
import verify

from keras_vit.presets.catalog import CATALOG
from keras_vit.presets.verified import FILE, NOT_YET, Verified, records, verdict

pytestmark = pytest.mark.without_backend


def test_the_shipped_preset_is_verified_by_its_checksum_and_test_images(tmp_path, capsys):
    """A second run leaves out what has a record."""
    places = ["--records", tmp_path / "verified.json", "--expectations", tmp_path]
    arguments = ["vit_digits", *map(str, places)]
    assert verify.main(arguments) == 0
    (found,) = json.loads((tmp_path / "verified.json").read_text()).values()
    assert found["images"] == 360
    assert found["top1"] == pytest.approx(99.17)
    config = json.loads((CATALOG["vit_digits"].folder / "config.json").read_text())
    assert found["digest"] == config["weights_sha256"]
    capsys.readouterr()
    assert verify.main(arguments) == 0
    assert found["date"] in capsys.readouterr().out


def test_a_preset_that_cannot_be_had_fails_and_gets_no_record(tmp_path, monkeypatch, capsys):
    """The status is 1."""
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path))
    places = ["--records", str(tmp_path / "verified.json"), "--expectations", str(tmp_path)]
    assert verify.main(["vit_b16.orig_i21k_224", *places]) == 1
    assert "failed" in capsys.readouterr().out
    assert not (tmp_path / "verified.json").exists()


@pytest.mark.parametrize(
    ("images", "top1", "warned"),
    [(50_000, 85.3, False), (50_000, 84.9, True), (1_000, 82.5, False), (1_000, 70.0, True)],
)
def test_a_score_is_compared_within_chance(images, top1, warned):
    """1,000 images of a model of 85.49 % vary by three standard deviations of 1.1 points."""
    found = Verified("x", images=images, top1=top1, expected=85.49)
    assert bool(verify.difference(found)) == warned


def test_the_shipped_records_belong_to_presets():
    """Where nothing was compared, the words are "not yet"."""
    assert set(records()) <= set(CATALOG)
    assert json.loads(FILE.read_text()).keys() == records().keys()
    assert verdict("vit_b16.orig_i21k_224") == NOT_YET
    assert verdict("vit_digits") == "checksum, 99.17 % of 360"
