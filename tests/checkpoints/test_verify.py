"""A passport of a checkpoint, checked against any library's folder, finds what was changed."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from keras_vit import checkpoints, cli
from keras_vit.checkpoints import passports
from keras_vit.checkpoints.libraries import LibraryUnavailableError, run_library
from keras_vit.checkpoints.passports import Passport
from keras_vit.errors import SourceError
from keras_vit.sources.catalog import CATALOG
from tests.golden import FOLDER
from tests.helpers import random_tiny
from tests.words import raises

RECORDED = Path(__file__).parents[1] / "data" / "passports.json"
NAMES = ("timm_token", "hf_classifier", "kh_classifier", "vit_rep.npz", "bv_map.npz")
"""Goldens of five libraries, whose passports are in the file above."""

on_torch = pytest.mark.on_one_backend("torch")


def recorded(name: str) -> Passport:
    """The passport of a golden checkpoint."""
    facts = {facts["name"]: facts for facts in json.loads(RECORDED.read_text())}[name]
    return Passport.from_dict(facts)


def failed(found: checkpoints.Verification) -> list[str]:
    """The names of the comparisons that failed."""
    return [check.name for check in found.checks if not check.passed]


@pytest.mark.parametrize("name", NAMES)
def test_a_passport_is_fulfilled_on_every_backend(name):
    """It was made by timm, transformers, keras-hub, or keras_vit for the official formats."""
    found = checkpoints.verify(FOLDER / name, recorded(name))
    assert failed(found) == []
    assert {"sha256", "protocol", "logits", "norm of block_0"} <= {c.name for c in found.checks}


@on_torch
@pytest.mark.parametrize("name", ["timm_token", "hf_classifier", "kh_classifier", "kh_backbone"])
def test_the_librarys_own_code_writes_the_passport(name):
    """Within 1e-6; it is the one that is recorded."""
    from tests import torchvision_shim  # noqa: F401  so that timm imports beside any torch

    pytest.importorskip({"t": "timm", "h": "transformers", "k": "keras_hub"}[name[0]])
    passport = checkpoints.attest(FOLDER / name)
    assert passport.origin.partition(" ")[0] in ("timm", "transformers", "keras-hub")
    assert passport.rung == 3
    assert failed(checkpoints.verify(FOLDER / name, passport)) == []
    if name in NAMES:
        np.testing.assert_allclose(passport.logits, recorded(name).logits, rtol=1e-4, atol=1e-6)


@on_torch
def test_a_changed_weight_is_found(tmp_path):
    """By the digest, and by the logits in a file of another library."""
    from safetensors.numpy import load_file, save_file

    folder = tmp_path / "changed"
    shutil.copytree(FOLDER / "timm_token", folder)
    arrays = load_file(folder / "model.safetensors")
    arrays["blocks.1.mlp.fc1.weight"] = arrays["blocks.1.mlp.fc1.weight"].copy()
    arrays["blocks.1.mlp.fc1.weight"][0, 0] += 0.5
    save_file(arrays, folder / "model.safetensors")
    found = failed(checkpoints.verify(folder, recorded("timm_token")))
    assert {"sha256", "logits", "norm of block_1"} <= set(found)
    assert "norm of block_0" not in found
    checkpoints.convert(folder, tmp_path / "other", "keras_hub")
    assert "logits" in failed(checkpoints.verify(tmp_path / "other", recorded("timm_token")))


@on_torch
def test_another_gelu_is_found():
    """The digest is right, and the logits are not."""
    found = checkpoints.verify(
        FOLDER / "timm_token", recorded("timm_token"), numerics={"gelu": "tanh"}
    )
    assert "logits" in failed(found)
    assert not {"sha256", "protocol"} & set(failed(found))


@on_torch
def test_another_protocol_is_found():
    """And nothing else differs."""
    found = checkpoints.verify(FOLDER / "timm_token", recorded("timm_token"), protocol="paper")
    assert failed(found) == ["protocol"]


@on_torch
def test_a_converted_checkpoint_fulfils_the_passport_of_its_source(tmp_path):
    """Another dialect is another file, so its digest is not compared."""
    checkpoints.convert(FOLDER / "timm_token", tmp_path / "x", "keras_hub")
    found = checkpoints.verify(tmp_path / "x", recorded("timm_token"))
    assert "sha256" not in {check.name for check in found.checks}
    assert not {"logits", "norm of block_0"} & set(failed(found))


@on_torch
def test_two_checkpoints_are_compared_without_a_passport(tmp_path):
    """A lossless conversion has no difference; a lossy one has the other GELU's."""
    source = random_tiny(num_classes=3)
    checkpoints.save(source, tmp_path / "tanh.npz")
    checkpoints.convert(tmp_path / "tanh.npz", tmp_path / "same.npz", "google_linen")
    found = checkpoints.verify(tmp_path / "tanh.npz", tmp_path / "same.npz")
    assert max(check.difference for check in found.checks) == 0
    checkpoints.convert(
        tmp_path / "tanh.npz", tmp_path / "exact", "keras_hub", lossy=True, image_size=16
    )
    found = checkpoints.verify(tmp_path / "tanh.npz", tmp_path / "exact")
    logits = next(check for check in found.checks if check.name == "logits")
    assert 1e-6 < logits.difference < 0.1


@on_torch
def test_a_passport_beside_the_weights_is_taken(tmp_path):
    """Before the library runs."""
    folder = tmp_path / "x"
    shutil.copytree(FOLDER / "timm_token", folder)
    passport = dataclasses.replace(recorded("timm_token"), origin="a passport")
    passport.write_to(folder / passports.FILE)
    assert Passport.read_from(folder / passports.FILE) == Passport.from_dict(
        json.loads(json.dumps(passport.to_dict()))
    )
    assert (folder / passports.FILE).stat().st_size < 8_000
    assert "a passport" in {check.expected for check in checkpoints.verify(folder).checks}


@pytest.mark.without_backend
def test_a_damaged_passport_is_refused(tmp_path):
    """No JSON, another format, unknown names, and a protocol that its digest does not fit."""
    facts = recorded("timm_token").to_dict()
    for text, words in (
        ("{", "expected a passport in JSON"),
        ("[]", "expected a JSON object, found list"),
        (json.dumps({**facts, "format": 2}), "found format 2"),
        (json.dumps({**facts, "extra": 2}), "keras-vit attest"),
        (json.dumps({**facts, "protocol": {"name": "paper"}}), "changed by hand"),
    ):
        (tmp_path / "x.json").write_text(text)
        with raises(SourceError, "x.json", words):
            Passport.read_from(tmp_path / "x.json")


@pytest.mark.without_backend
def test_the_rung_is_what_the_evidence_reaches():
    """From a row alone to 50,000 images."""
    bare = Passport("x", "2026-11-24")
    assert bare.rung == 0
    assert dataclasses.replace(bare, read="written from descriptions").rung == 0
    assert dataclasses.replace(bare, read=passports.AS_PUBLISHED).rung == 1
    pinned = dataclasses.replace(bare, sha256={"x.npz": "0"}, dialect="google")
    assert pinned.rung == 2
    assert dataclasses.replace(pinned, origin="keras_vit 0.1.0").rung == 2
    assert dataclasses.replace(pinned, origin="big_vision").rung == 3
    assert dataclasses.replace(pinned, images=1_000).rung == 4
    assert dataclasses.replace(pinned, images=50_000).rung == 5


@pytest.mark.without_backend
def test_the_shipped_passports_belong_to_presets():
    """The embedded preset has its outputs; thirteen repositories have published JSON."""
    assert set(passports.shipped()) <= set(CATALOG)
    assert passports.rung_of("vit_digits") == 3
    assert passports.rung_of("vit_b16.orig_i21k_224") == 0
    assert sum(passports.rung_of(name) == 1 for name in CATALOG) == 13


def test_the_embedded_preset_fulfils_its_passport():
    """On every backend, without a network."""
    found = checkpoints.verify("vit_digits")
    assert failed(found) == []
    assert len(found.checks) == 7


@pytest.mark.without_backend
def test_the_images_of_a_passport_are_a_formula():
    """An integer hash gives the pixels, so that every library computes the same images."""
    images = passports.formula_images(16, 24, 3)
    assert (images.shape, images.dtype) == ((2, 16, 24, 3), "float32")
    assert (images >= -1).all()
    assert (images < 1).all()
    assert abs(images.mean()) < 0.02
    assert images.reshape(-1)[1] == np.float32((2654435761 >> 8) / 2**23 - 1)
    assert images[1, 0].mean() < -0.3 < 0.3 < images[1, -1].mean()


@pytest.mark.without_backend
def test_a_bare_file_cannot_be_run_by_its_library():
    """timm reads a folder with a config.json; the official code is on no package index."""
    path, images = FOLDER / "timm_token" / "model.safetensors", np.zeros((1, 16, 16, 3), "float32")
    with raises(LibraryUnavailableError, "timm reads a folder with its config.json"):
        run_library("timm", path, images)
    with raises(LibraryUnavailableError, "vit_rep.npz", "google dialect has no library", "--by"):
        checkpoints.attest(FOLDER / "vit_rep.npz")


@on_torch
def test_keras_vit_attest_and_verify_exit_with_status_1_on_a_difference(capsys, tmp_path):
    """The passport is written to a file or printed."""
    source, out = str(FOLDER / "vit_rep.npz"), str(tmp_path / "passport.json")
    assert cli.main(["attest", source, "--by", "keras_vit", "--out", out]) == 0
    assert cli.main(["verify", source, "--passport", out]) == 0
    assert "equal" in capsys.readouterr().out
    assert cli.main(["verify", str(FOLDER / "vit_headless.npz"), "--passport", out]) == 1
    assert "differs" in capsys.readouterr().out
    assert cli.main(["verify", source, source, "--passport", out]) == 2
    capsys.readouterr()
    assert cli.main(["attest", source, "--by", "keras_vit"]) == 0
    assert json.loads(capsys.readouterr().out)["dialect"] == "google"
