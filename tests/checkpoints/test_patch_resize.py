"""FlexiViT's resize of patches against its definition, and old layouts of big_vision."""

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from tests.formulas import torch_resize
from tests.golden import FOLDER, expected, relative_error
from tests.helpers import random_tiny, to_numpy


def definition(kernel, target):
    """`pinv(B^T) w` of the paper, with B made of the resized basis vectors (torch's bilinear)."""
    source = kernel.shape[:2]
    basis = np.eye(source[0] * source[1])
    resize = torch_resize("bilinear")
    matrix = np.concatenate([resize(v[:, None], source, target) for v in basis], axis=1)
    flat = kernel.reshape(len(basis), -1)
    return (np.linalg.pinv(matrix.T) @ flat).reshape(*target, *kernel.shape[2:])


@pytest.mark.parametrize("target", [(8, 8), (4, 12), (6, 8), (3, 12), (2, 2)])
def test_resized_patches_equal_the_pseudo_inverse_of_the_paper(target, tmp_path):
    """Up, down and with unequal sides; the image size of the file is kept."""
    model = random_tiny(patch_size=(4, 6), image_size=24)
    checkpoints.save(model, tmp_path / "x.npz")
    kernel = to_numpy(model.get_layer("patch_embedding").kernel)
    resized = VisionTransformer.from_preset(tmp_path / "x.npz", patch_size=target, image_size=24)
    assert (resized.config.patch_size, resized.config.image_size) == (target, (24, 24))
    found = to_numpy(resized.get_layer("patch_embedding").kernel)
    assert relative_error(found, definition(kernel, target)) <= 1e-6


@pytest.mark.parametrize(("patch", "grid"), [(2, (8, 8)), (4, (4, 4))])
def test_another_patch_size_keeps_the_image_size(patch, grid):
    path = FOLDER / "bv_gap.npz"
    config = VisionTransformer.from_preset(path, patch_size=patch, load_weights=False).config
    assert (config.patch_size, config.grid) == ((patch, patch), grid)
    assert config.image_size == keras_vit.info(path).config.image_size == (16, 16)


@pytest.mark.parametrize(
    ("name", "new", "old"),
    [("bv_map", "MAPHead_0/", ""), ("bv_gap", "pos_embedding", "Transformer/pos_embedding")],
)
def test_a_file_of_an_old_layout_loads(name, new, old, tmp_path):
    """As by `fix_old_checkpoints`: files of the time of ViT-G, and those before 2022."""
    with np.load(FOLDER / f"{name}.npz") as file:
        arrays = {n.replace(new, old): file[n] for n in file.files}
        assert arrays.keys() != set(file.files)
    np.savez(tmp_path / "old.npz", **arrays)
    want = expected(name)
    got = VisionTransformer.from_preset(tmp_path / "old.npz").predict(want["image"], verbose=0)
    assert relative_error(got, want["logits"]) <= 1e-5
