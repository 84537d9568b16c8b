"""`verify` compares a checkpoint with its library's code, or with another checkpoint."""

import pytest

import keras_vit
from keras_vit import checkpoints
from tests.checkpoints.files import arrays_of, copy, write_arrays
from tests.golden import FOLDER
from tests.helpers import random_tiny


@pytest.mark.parametrize("name", ["timm_token", "hf_classifier", "kh_backbone"])
def test_a_checkpoint_is_compared_with_its_librarys_code(name):
    """The right arithmetic passes, another GELU does not."""
    from tests import torchvision_shim  # noqa: F401  so that timm imports beside any torch

    library = {"t": "timm", "h": "transformers", "k": "keras-hub"}[name[0]]
    pytest.importorskip(library.replace("-", "_"))
    (check,) = keras_vit.verify(FOLDER / name).checks
    assert (check.passed, check.name, check.expected.split()[0]) == (True, "logits", library)
    if name == "timm_token":
        assert not keras_vit.verify(FOLDER / name, block={"activation": "gelu_tanh"}).passed


def test_two_checkpoints_are_compared(tmp_path):
    """A lossless conversion has no difference; a lossy one has the other GELU's."""
    tanh, same, exact = tmp_path / "tanh.npz", tmp_path / "same.npz", tmp_path / "exact"
    checkpoints.save(random_tiny(num_classes=3), tanh)
    keras_vit.convert(tanh, same, "google_linen")
    assert max(check.difference for check in keras_vit.verify(tanh, same).checks) == 0
    keras_vit.convert(tanh, exact, "timm", block={"activation": "gelu"}, image_size=16)
    differences = {check.name: check.difference for check in keras_vit.verify(tanh, exact).checks}
    assert 1e-6 < differences["logits"] < 0.1


def test_a_changed_weight_is_located_by_the_first_block_that_differs(tmp_path):
    """The block before it is equal."""
    folder, arrays = copy("timm_token", tmp_path), arrays_of("timm_token")
    arrays["blocks.1.mlp.fc1.weight"] = arrays["blocks.1.mlp.fc1.weight"] + 0.5
    write_arrays(folder / "model.safetensors", ("", arrays))
    result = keras_vit.verify(folder, FOLDER / "timm_token")
    passed = {check.name: check.passed for check in result.checks}
    assert passed == {"block_0": True, "block_1": False, "logits": False}
