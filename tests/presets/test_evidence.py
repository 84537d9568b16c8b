"""`weights/verify.py` writes records, and finds differences from them."""

import json
import shutil

import pytest

import keras_vit
from keras_vit.presets import evidence
from keras_vit.presets.catalog import CATALOG
from tests.golden import FOLDER
from weights import verify

on_torch = pytest.mark.on_backend("torch")


def test_the_embedded_preset_equals_its_record():
    """On every backend, without a network."""
    checks = verify.compare("vit_digits", evidence.shipped()["vit_digits"])
    assert [check.name for check in checks if not check.passed] == []
    assert len(checks) == 7


def test_the_rung_is_the_highest_that_the_evidence_reaches():
    """From a row alone to 50,000 images."""
    bare = {"name": "x", "date": "2026-11-24"}
    assert evidence.level({}) == evidence.level(bare) == 0
    assert evidence.level({**bare, "read": "written from descriptions"}) == 0
    assert evidence.level({**bare, "read": evidence.AS_PUBLISHED}) == 1
    pinned = {**bare, "sha256": {"x.npz": "0"}, "family": "google"}
    assert evidence.level(pinned) == 2
    assert evidence.level({**pinned, "origin": "keras_vit 0.1.0"}) == 2
    assert evidence.level({**pinned, "origin": "big_vision"}) == 3
    assert evidence.level({**pinned, "images": 1_000}) == 4
    assert evidence.level({**pinned, "images": 50_000}) == 5


def test_the_shipped_records_belong_to_presets():
    """The embedded preset has its outputs; thirteen repositories have published JSON."""
    assert set(evidence.shipped()) <= set(CATALOG)
    assert evidence.evidence_level("vit_digits") == 3
    assert evidence.evidence_level("vit_b16.orig_i21k_224") == 0
    assert sum(evidence.evidence_level(name) == 1 for name in CATALOG) == 13


@on_torch
def test_the_command_writes_a_record_and_names_what_differs_from_it(tmp_path, capsys):
    """Digest, protocol, arithmetic, image size; a file of another format has another digest."""
    source, path = tmp_path / "x.npz", tmp_path / "record.json"
    shutil.copy(FOLDER / "vit_rep.npz", source)
    assert verify.main([str(source), str(path), "--by", "keras_vit"]) == 0
    assert verify.main([str(source), str(path)]) == 0
    assert "logits, keras_vit 0.1.0: equal" in capsys.readouterr().out
    assert verify.main([str(FOLDER / "vit_headless.npz"), str(path)]) == 1
    assert "differs by" in capsys.readouterr().out
    record = json.loads(path.read_text())
    keras_vit.convert(source, tmp_path / "other.npz", "google_linen")
    for other, changes, fields, names in (
        (source, {"sha256": {"x": "0"}}, {}, {"sha256"}),
        (source, {}, {"protocol": "timm"}, {"protocol"}),
        (source, {}, {"block": {"activation": "quick_gelu"}}, {"logits"}),
        (source, {}, {"image_size": 32}, {"image size"}),
        (tmp_path / "other.npz", {}, {"block": {"activation": "gelu_tanh"}}, set()),
    ):
        checks = verify.compare(other, {**record, **changes}, **fields)
        differ = {check.name for check in checks if not check.passed}
        assert names <= differ if names else not differ & {"sha256", "logits"}, differ
