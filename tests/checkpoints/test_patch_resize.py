"""FlexiViT's resize of patches against its definition, and old layouts of big_vision."""

import numpy as np
import pytest

from keras_vit import VisionTransformer
from keras_vit.checkpoints.adapt import resize_patches
from keras_vit.errors import CheckpointError
from tests.formulas import torch_resize
from tests.golden import FOLDER, expected, outputs, relative_error
from tests.helpers import normal, to_numpy


def definition(kernel, target):
    """`pinv(B^T) w` of the paper, with B made of the resized basis vectors (torch's bilinear)."""
    source = kernel.shape[:2]
    basis = np.eye(source[0] * source[1])
    resize = torch_resize("bilinear")
    matrix = np.concatenate([resize(v[:, None], source, target) for v in basis], axis=1)
    flat = kernel.reshape(len(basis), -1)
    return (np.linalg.pinv(matrix.T) @ flat).reshape(*target, *kernel.shape[2:])


@pytest.mark.parametrize("target", [(8, 8), (4, 6), (9, 5), (3, 12), (2, 2)])
def test_resized_patches_equal_the_pseudo_inverse_of_the_paper(target):
    """In float64, up, down and with unequal sides."""
    kernel = normal(4, 6, 3, 5)
    assert relative_error(resize_patches(kernel, target), definition(kernel, target)) <= 1e-6


def test_load_with_another_patch_size_resizes_kernel_and_positions():
    """The image size of the file is kept."""
    path = FOLDER / "bv_gap.npz"
    model, small = (
        VisionTransformer.from_preset(path),
        VisionTransformer.from_preset(path, patch_size=2),
    )
    assert model.config.image_size == small.config.image_size == (16, 16)
    assert (small.config.patch_size, small.config.grid) == ((2, 2), (8, 8))
    kernel = to_numpy(model.get_layer("patch_embedding").kernel)
    np.testing.assert_array_equal(
        to_numpy(small.get_layer("patch_embedding").kernel), resize_patches(kernel, (2, 2))
    )
    again = VisionTransformer.from_preset(path, patch_size=model.config.patch_size)
    assert again.config == model.config
    assert (
        VisionTransformer.from_preset(path, patch_size=2, load_weights=False).config == small.config
    )


def test_another_patch_size_of_a_hybrid_is_refused(tmp_path):
    """A hybrid's patches are cells of a feature map, not pixels."""
    with pytest.raises(CheckpointError, match="those of a hybrid, cells of a feature map, cannot"):
        VisionTransformer.from_preset(FOLDER / "hybrid_r26.npz", patch_size=2)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("bv_map", lambda name: name.replace("MAPHead_0/", "")),
        ("bv_gap", lambda name: name.replace("pos_embedding", "Transformer/pos_embedding")),
    ],
    ids=["attention pooling at the top level", "positions under Transformer"],
)
def test_a_file_of_an_old_layout_loads(name, place, tmp_path):
    """As by `fix_old_checkpoints`: files of the time of ViT-G, and those before 2022."""
    with np.load(FOLDER / f"{name}.npz") as file:
        arrays = {place(n): file[n] for n in file.files}
        assert arrays.keys() != set(file.files)
    np.savez(tmp_path / "old.npz", **arrays)
    want = expected(name)
    got = outputs(VisionTransformer.from_preset(tmp_path / "old.npz"), want["image"], ["logits"])
    assert relative_error(got["logits"], want["logits"]) <= 1e-5
