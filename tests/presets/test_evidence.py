"""`weights/verify.py` writes records, and finds differences from them."""

import json
from pathlib import Path

from keras_vit.presets import evidence
from keras_vit.presets.catalog import CATALOG
from tests.golden import FOLDER
from weights import verify


def test_the_rung_is_the_highest_that_the_evidence_reaches():
    """From a row alone to 50,000 images."""
    bare = {"name": "x", "date": "2026-11-24"}
    assert evidence.level({}) == evidence.level(bare) == 0
    assert evidence.level({**bare, "read": evidence.AS_PUBLISHED}) == 1
    pinned = {**bare, "sha256": {"x.npz": "0"}, "family": "google"}
    assert evidence.level(pinned) == evidence.level({**pinned, "origin": "keras_vit 0.1.0"}) == 2
    for rung, more in ((3, {}), (4, {"images": 1_000}), (5, {"images": 50_000})):
        assert evidence.level({**pinned, "origin": "big_vision", **more}) == rung
    assert set(evidence.shipped()) <= set(CATALOG)
    assert evidence.evidence_level("vit_digits") == 3


def test_a_record_is_written_and_what_differs_from_it_is_named(tmp_path, capsys):
    """The embedded preset equals its own record."""
    checks = verify.compare("vit_digits", evidence.shipped()["vit_digits"])
    assert [check.passed for check in checks] == [True] * 7
    source, path = str(FOLDER / "vit_rep.npz"), str(tmp_path / "record.json")
    assert verify.main([source, path, "--by", "keras_vit"]) == verify.main([source, path]) == 0
    assert "logits, keras_vit 0.1.0: equal" in capsys.readouterr().out
    record = json.loads(Path(path).read_text())
    for changes, fields, name in (
        ({"sha256": {"x": "0"}}, {}, "sha256"),
        ({}, {"block": {"activation": "quick_gelu"}}, "logits"),
    ):
        checks = verify.compare(source, {**record, **changes}, **fields)
        assert name in {check.name for check in checks if not check.passed}
