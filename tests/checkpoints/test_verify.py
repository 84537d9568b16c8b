"""`verify` compares the outputs of two checkpoints, or of a checkpoint and its library."""

import re

import numpy as np
import pytest

from keras_vit import VisionTransformer, checkpoints, cli
from keras_vit.checkpoints.libraries import LibraryUnavailableError, library_logits
from tests.golden import FOLDER
from tests.helpers import random_tiny

# Outputs are subtracted from each other; what each backend computes is compared elsewhere.
pytestmark = pytest.mark.on_one_backend("torch")


def test_a_lossless_conversion_has_no_differences(tmp_path):
    """Tokens, pre_logits and logits are equal."""
    source = FOLDER / "vit_rep.npz"
    checkpoints.convert(source, tmp_path / "x.npz", "google_linen")
    found = checkpoints.verify(source, tmp_path / "x.npz")
    assert [d.output for d in found.differences] == ["tokens", "pre_logits", "logits"]
    assert all(d.absolute == 0 for d in found.differences)
    assert found.not_run == ("the google dialect has no library to install",
                             "the google_linen dialect has no library to install")  # fmt: skip


def test_a_lossy_conversion_has_differences(tmp_path):
    """`verify` returns the absolute and relative difference due to the other GELU."""
    source = random_tiny(num_classes=3)
    checkpoints.save(source, tmp_path / "tanh.npz")
    checkpoints.convert(
        tmp_path / "tanh.npz", tmp_path / "exact", "keras_hub", lossy=True, image_size=16
    )
    found = checkpoints.verify(tmp_path / "tanh.npz", tmp_path / "exact")
    logits = next(d for d in found.differences if d.against.endswith("exact"))
    assert 1e-6 < logits.relative < 0.1
    assert logits.absolute > 0


def test_keras_hub_gives_the_logits_of_keras_vit():
    """Within 1e-5."""
    pytest.importorskip("keras_hub")
    (found,) = checkpoints.verify(FOLDER / "kh_classifier").differences
    assert (found.output, found.against) == ("logits", "keras_hub")
    assert found.relative <= 1e-5


@pytest.mark.parametrize("name", ["timm_token", "hf_classifier"])
def test_timm_and_transformers_give_the_logits_of_keras_vit(name):
    """Within 1e-5."""
    pytest.importorskip("torch")
    from tests import torchvision_shim  # noqa: F401  so that timm imports beside any torch

    pytest.importorskip("timm" if name.startswith("timm") else "transformers")
    (found,) = checkpoints.verify(FOLDER / name).differences
    assert found.output == "logits"
    assert found.relative <= 1e-5


def test_a_bare_file_cannot_be_run_by_its_library():
    """timm reads a folder with a config.json."""
    path = FOLDER / "timm_token" / "model.safetensors"
    with pytest.raises(LibraryUnavailableError, match="timm reads a folder with its config.json"):
        library_logits("timm", path, np.zeros((1, 16, 16, 3), "float32"))


def test_keras_vit_verify_prints_a_table_and_exits_with_status_1_on_a_difference(capsys, tmp_path):
    """Status 1 means a difference above the tolerance."""
    checkpoints.convert(FOLDER / "vit_rep.npz", tmp_path / "x.npz", "google_linen")
    assert cli.main(["verify", str(FOLDER / "vit_rep.npz"), str(tmp_path / "x.npz")]) == 0
    assert "tokens" in capsys.readouterr().out
    other = str(FOLDER / "vit_headless.npz")
    assert cli.main(["verify", str(FOLDER / "vit_rep.npz"), other]) == 1
    assert cli.main(["verify", other]) == 0
    printed = capsys.readouterr()
    assert "no library to install" in printed.out + printed.err


def test_weights_that_look_untrained_are_named_with_their_numbers(tmp_path, capsys):
    """A warning, not a difference: the status stays 0. vit_digits looks trained."""
    for name, load_weights in (("new", False), ("trained", True)):
        model = VisionTransformer.from_preset("vit_digits", load_weights=load_weights)
        model.save_to_preset(tmp_path / name)
    assert cli.main(["verify", str(tmp_path / "new"), str(tmp_path / "new")]) == 0
    told = capsys.readouterr().err.replace("\n", " ")
    assert re.search(r"Looks untrained: \S*new: Neighbouring positions .* by -?0\.0\d", told)
    assert cli.main(["verify", str(tmp_path / "trained")]) == 0
    assert "Looks untrained" not in capsys.readouterr().err
