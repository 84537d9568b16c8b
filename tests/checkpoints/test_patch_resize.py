"""FlexiViT's resize of patches against its definition, and old layouts of big_vision."""

import numpy as np
import pytest

from keras_vit import CheckpointError, checkpoints
from keras_vit.checkpoints.adapt import resize_patches
from tests.formulas import torch_resize
from tests.golden import FOLDER, expected, load_case, outputs, relative_error
from tests.helpers import normal, numpy_of


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


def test_an_enlarged_patch_and_kernel_give_the_same_token():
    """Equation 3 of the paper: the inner product is unchanged."""
    patch, kernel = normal(4, 4, 3, 1), normal(4, 4, 3, 5, seed=1)
    resize = torch_resize("bilinear")
    grown = resize(patch, (4, 4), (9, 7)).reshape(9, 7, 3)
    tokens = np.einsum("ijc,ijcm->m", patch[..., 0], kernel)
    got = np.einsum("ijc,ijcm->m", grown, resize_patches(kernel, (9, 7)))
    assert relative_error(got, tokens) <= 1e-5


def test_load_with_another_patch_size_resizes_kernel_and_positions():
    """The image size of the file is kept."""
    path = FOLDER / "bv_gap.npz"
    model, small = checkpoints.load(path), checkpoints.load(path, patch_size=2)
    assert model.config.image_size == small.config.image_size == (16, 16)
    assert (small.config.patch_size, small.config.grid) == ((2, 2), (8, 8))
    kernel = numpy_of(model.get_layer("patch_embedding").kernel)
    np.testing.assert_array_equal(
        numpy_of(small.get_layer("patch_embedding").kernel), resize_patches(kernel, (2, 2))
    )
    again = checkpoints.load(path, patch_size=model.config.patch_size)
    assert again.config == model.config
    assert checkpoints.load(path, patch_size=2, load_weights=False).config == small.config


def test_another_patch_size_of_a_hybrid_is_refused(tmp_path):
    """A hybrid's patches are cells of a feature map, not pixels."""
    with pytest.raises(CheckpointError, match="those of a hybrid, cells of a feature map, cannot"):
        checkpoints.load(FOLDER / "hybrid_r26.npz", patch_size=2)


OLD_HEAD = ("probe", "MlpBlock_0", "MultiHeadDotProductAttention_0", "LayerNorm_0")


def test_a_file_with_attention_pooling_at_the_top_level_loads(tmp_path):
    """As by `fix_old_checkpoints`, for files of the time of ViT-G."""
    with np.load(FOLDER / "bv_map.npz") as file:
        arrays = {name.replace("MAPHead_0/", ""): file[name] for name in file.files}
    assert {name.removeprefix("params/img/").split("/")[0] for name in arrays} > set(OLD_HEAD)
    np.savez(tmp_path / "old.npz", **arrays)
    want = expected("bv_map")
    got = outputs(checkpoints.load(tmp_path / "old.npz"), want["image"], ["logits"])
    assert relative_error(got["logits"], want["logits"]) <= 1e-5


def test_a_file_with_positions_under_transformer_loads(tmp_path):
    """As by `fix_old_checkpoints`: before 2022 the name was `Transformer/pos_embedding`."""
    with np.load(FOLDER / "bv_gap.npz") as file:
        arrays = {
            name.replace("pos_embedding", "Transformer/pos_embedding"): file[name]
            for name in file.files
        }
    np.savez(tmp_path / "old.npz", **arrays)
    want = expected("bv_gap")
    got = outputs(checkpoints.load(tmp_path / "old.npz"), want["image"], ["logits"])
    assert relative_error(got["logits"], want["logits"]) <= 1e-5
    checkpoints.save(load_case("bv_gap"), tmp_path / "new.npz", "big_vision")
    with np.load(tmp_path / "new.npz") as file:
        assert not any("Transformer/pos_embedding" in name for name in file.files)
