"""Checkpoints run side by side, and beside their own library."""

import numpy as np
import pytest

from keras_vit import checkpoints, cli
from keras_vit.checkpoints.libraries import LibraryUnavailableError, library_logits
from tests.golden import FOLDER
from tests.helpers import random_tiny


def test_a_lossless_conversion_differs_in_nothing(tmp_path):
    """Two spellings of one network give the same tokens, pre_logits and logits."""
    source = FOLDER / "vit_rep.npz"
    checkpoints.convert(source, tmp_path / "x.npz", "google_linen")
    found = checkpoints.verify(source, tmp_path / "x.npz")
    assert [d.output for d in found.differences] == ["tokens", "pre_logits", "logits"]
    assert all(d.absolute == 0 for d in found.differences)
    assert found.not_run == ("the google dialect has no library to install",
                             "the google_linen dialect has no library to install")  # fmt: skip


def test_a_lossy_conversion_shows(tmp_path):
    """Weights under the other GELU come out different, and by how much is said."""
    source = random_tiny(num_classes=3)
    checkpoints.save(source, tmp_path / "tanh.npz")
    checkpoints.convert(
        tmp_path / "tanh.npz", tmp_path / "exact", "keras_hub", lossy=True, image_size=16
    )
    found = checkpoints.verify(tmp_path / "tanh.npz", tmp_path / "exact")
    logits = next(d for d in found.differences if d.against.endswith("exact"))
    assert 1e-6 < logits.relative < 0.1
    assert logits.absolute > 0


def test_keras_hub_agrees():
    """The library's own forward pass is within 1e-5 of ours."""
    pytest.importorskip("keras_hub")
    (found,) = checkpoints.verify(FOLDER / "kh_classifier").differences
    assert (found.output, found.against) == ("logits", "keras_hub")
    assert found.relative <= 1e-5


@pytest.mark.parametrize("name", ["timm_token", "hf_classifier"])
def test_torch_libraries_agree(name):
    """So are timm's and transformers'."""
    pytest.importorskip("torch")
    from tests import torchvision_shim  # noqa: F401  so that timm imports beside any torch

    pytest.importorskip("timm" if name.startswith("timm") else "transformers")
    (found,) = checkpoints.verify(FOLDER / name).differences
    assert found.output == "logits"
    assert found.relative <= 1e-5


def test_a_file_alone_is_too_little_for_a_library():
    """A library reads a folder with its config.json."""
    path = FOLDER / "timm_token" / "model.safetensors"
    with pytest.raises(LibraryUnavailableError, match="timm reads a folder with its config.json"):
        library_logits("timm", path, np.zeros((1, 16, 16, 3), "float32"))


def test_command_line(capsys, tmp_path):
    """The table names what was compared; a difference above the tolerance is status 1."""
    checkpoints.convert(FOLDER / "vit_rep.npz", tmp_path / "x.npz", "google_linen")
    assert cli.main(["verify", str(FOLDER / "vit_rep.npz"), str(tmp_path / "x.npz")]) == 0
    assert "tokens" in capsys.readouterr().out
    other = str(FOLDER / "vit_headless.npz")
    assert cli.main(["verify", str(FOLDER / "vit_rep.npz"), other]) == 1
    assert cli.main(["verify", other]) == 0
    printed = capsys.readouterr()
    assert "no library to install" in printed.out + printed.err
