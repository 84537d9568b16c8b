"""`weights/verify.py` writes records, and finds differences from them."""

import json
import shutil

import numpy as np
import pytest

import keras_vit
from keras_vit import checkpoints
from keras_vit.presets import evidence
from keras_vit.presets.catalog import CATALOG
from tests.golden import FOLDER
from weights import verify

RECORDED = json.loads((FOLDER.parent / "evidence.json").read_text())

NAMES = ("timm_token", "hf_classifier", "kh_classifier", "vit_rep.npz", "bv_map.npz")
"""Goldens of five libraries, whose records `tests/data/evidence.json` holds."""

on_torch = pytest.mark.on_one_backend("torch")


def recorded(name: str) -> verify.Record:
    """Returns the record of a golden checkpoint."""
    return next(facts for facts in RECORDED if facts["name"] == name)


def failed(checks: list[checkpoints.Check]) -> list[str]:
    """Returns the names of the comparisons that failed."""
    return [check.name for check in checks if not check.passed]


@on_torch
@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_equals_its_record(name):
    """timm, transformers or keras-hub made it; keras_vit did for the official formats."""
    checks = verify.compare(FOLDER / name, recorded(name))
    assert failed(checks) == []
    assert {"sha256", "protocol", "logits", "norm of block_0"} <= {check.name for check in checks}


def test_the_embedded_preset_equals_its_record():
    """On every backend, without a network."""
    checks = verify.compare("vit_digits", evidence.shipped()["vit_digits"])
    assert failed(checks) == []
    assert len(checks) == 7


@on_torch
def test_the_librarys_own_code_writes_the_record():
    """Within 1e-6; it is the recorded record."""
    from tests import torchvision_shim  # noqa: F401  so that timm imports beside any torch

    pytest.importorskip("timm")
    record = verify.attest(FOLDER / "timm_token")
    assert record["origin"].startswith("timm")
    assert evidence.level(record) == 3
    np.testing.assert_allclose(
        record["logits"], recorded("timm_token")["logits"], rtol=1e-4, atol=1e-6
    )


@on_torch
def test_differences_from_a_record_are_named(tmp_path):
    """Digest, protocol, arithmetic and image size; another dialect has another digest."""
    record, folder = recorded("timm_token"), FOLDER / "timm_token"
    assert failed(verify.compare(folder, {**record, "sha256": {"x": "0"}})) == ["sha256"]
    assert failed(verify.compare(folder, record, protocol="paper")) == ["protocol"]
    assert "logits" in failed(verify.compare(folder, record, numerics={"gelu": "tanh"}))
    assert failed(verify.compare(folder, record, image_size=32)) == ["image size"]
    keras_vit.convert(folder, tmp_path / "other", "keras_hub")
    checks = verify.compare(tmp_path / "other", record)
    assert "sha256" not in {check.name for check in checks}
    assert not {"logits", "norm of block_0"} & set(failed(checks))


@on_torch
def test_the_command_writes_an_absent_record_and_compares_a_present_one(tmp_path, capsys):
    """The exit status is 1 on a difference."""
    source, path = tmp_path / "x.npz", tmp_path / "record.json"
    shutil.copy(FOLDER / "vit_rep.npz", source)
    assert verify.main([str(source), str(path), "--by", "keras_vit"]) == 0
    assert path.stat().st_size < 8_000
    assert verify.main([str(source), str(path)]) == 0
    assert "logits, keras_vit 0.1.0: equal" in capsys.readouterr().out
    assert verify.main([str(FOLDER / "vit_headless.npz"), str(path)]) == 1
    assert "differs by" in capsys.readouterr().out


@pytest.mark.without_backend
def test_the_rung_is_the_highest_that_the_evidence_reaches():
    """From a row alone to 50,000 images."""
    bare = {"name": "x", "date": "2026-11-24"}
    assert evidence.level({}) == evidence.level(bare) == 0
    assert evidence.level({**bare, "read": "written from descriptions"}) == 0
    assert evidence.level({**bare, "read": evidence.AS_PUBLISHED}) == 1
    pinned = {**bare, "sha256": {"x.npz": "0"}, "dialect": "google"}
    assert evidence.level(pinned) == 2
    assert evidence.level({**pinned, "origin": "keras_vit 0.1.0"}) == 2
    assert evidence.level({**pinned, "origin": "big_vision"}) == 3
    assert evidence.level({**pinned, "images": 1_000}) == 4
    assert evidence.level({**pinned, "images": 50_000}) == 5


@pytest.mark.without_backend
def test_the_shipped_records_belong_to_presets():
    """The embedded preset has its outputs; thirteen repositories have published JSON."""
    assert set(evidence.shipped()) <= set(CATALOG)
    assert evidence.evidence_level("vit_digits") == 3
    assert evidence.evidence_level("vit_b16.orig_i21k_224") == 0
    assert sum(evidence.evidence_level(name) == 1 for name in CATALOG) == 13
