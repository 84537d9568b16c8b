"""Models with the switches of other families keep every promise of a keras_vit model."""

import re

import keras
import numpy as np
import pytest

from keras_vit.checkpoints.transfer import weights_by_path
from keras_vit.explanation import attention_maps, read_tokens
from keras_vit.models.inference import run
from keras_vit.support.processor import processor
from keras_vit.training import enable_lora, merge_lora
from keras_vit.training.trainable import layer_decay_multipliers, train_last_blocks
from tests import helpers
from tests.families import FAMILIES, PLAIN, images_for
from tests.helpers import assert_close, copy_weights, random_tiny, tiny, to_numpy
from tests.plain import MIXED_POLICIES, ROUNDING, normal
from tests.runs import sample

pytestmark = pytest.mark.every_backend

families = pytest.mark.parametrize("fields", FAMILIES.values(), ids=FAMILIES)
FEW = sample(FAMILIES, "dinov3", "data2vec")
"""On JAX and TensorFlow: rotary and relative positions; the goldens have the other switches."""
ANY_SIZE = [name for name in FEW if "relative_position_bias" not in FAMILIES[name]]
OF_FEW = {name: FAMILIES[name] for name in FEW} | PLAIN
few_families = pytest.mark.parametrize("fields", OF_FEW.values(), ids=OF_FEW)
IMAGES = normal(2, 16, 16, 3)
on_torch = pytest.mark.on_backend("torch")


def one_block(fields):
    """The fields of a family with a single block, which all of its heads read."""
    return {**fields, "num_layers": 1, "pool": {**fields.get("pool", {}), "blocks": 1}}


def random_family(fields, **others):
    """A model of 16 patches with `randomise`d weights, rotary frequencies included."""
    return random_tiny(**{"patch_size": 4, "num_classes": 3, **fields, **others})


@on_torch
@families
def test_every_weight_changes_the_output(fields):
    """Except the mask token, and the key bias of blocks without rotary positions."""
    model = random_family(fields)
    before = to_numpy(model(IMAGES))
    for path, weight in weights_by_path(model).items():
        kept = to_numpy(weight)
        weight.assign(kept + 0.5 * normal(*kept.shape, seed=1))
        moved = np.abs(to_numpy(model(IMAGES)) - before).max()
        weight.assign(kept)
        turned = model.config.rope is not None and path.startswith("block_")
        without_effect = path.endswith("key/bias") and not turned
        assert (moved > 1e-4) != (without_effect or path == "mask_token/token"), path


@pytest.mark.parametrize("fields", [FAMILIES[name] for name in ANY_SIZE], ids=ANY_SIZE)
def test_an_any_size_model_equals_a_model_of_that_size(fields):
    """Rotary positions are computed for the grid; learned positions are resized to it."""
    images = normal(2, 12, 20, 3)
    grid = {} if fields.get("position") == "none" else {"position_grid": (4, 4)}
    sized = random_family(fields, image_size=(12, 20), **grid)
    free = copy_weights(sized, tiny(**{**sized.config.to_dict(), "image_size": None, **grid}))
    assert_close(free(images), to_numpy(sized(images)), 1e-6)


@few_families
@pytest.mark.parametrize("policy", sample(MIXED_POLICIES, "mixed_bfloat16"))
def test_mixed_precision_only_rounds(policy, fields):
    """The body rounds to 16 bits; weights and outputs are float32."""
    model = random_family(fields)
    mixed = copy_weights(model, tiny(**model.config.to_dict(), dtype=policy))
    found, expected = mixed.predict(images_for(model), verbose=0), run(model, images_for(model))
    assert {helpers.read_dtype(tensor) for tensor in (mixed.output, *mixed.weights)} == {"float32"}
    by_amx = keras.backend.backend() == "tensorflow" and "amx_bf16" in processor().flags
    if by_amx and policy == "mixed_bfloat16" and fields.get("stem", {}).get("kind") == "packed":
        pytest.xfail("oneDNN in TensorFlow 2.21 is off by 0.09 here, by 0.01 without it.")
    assert_close(found, expected, 3 * ROUNDING[policy])
    assert np.abs(found - expected).max() > 1e-5 * np.abs(expected).max()  # 16 bits were used


@few_families
def test_channels_first_is_channels_last_transposed(fields):
    """The same weights on transposed images give the same output."""
    model = random_family(fields)
    first = copy_weights(model, tiny(**model.config.to_dict(), data_format="channels_first"))
    assert_close(run(first, images_for(first)), run(model, images_for(model)))


@few_families
def test_a_training_step_with_remat_gives_the_same_weights(fields):
    """One step of SGD."""
    model = random_family(fields, num_classes=3)
    helpers.assert_remat_trains_alike(model, images_for(model), np.array([0, 2]), 1e-4)


@on_torch
@families
def test_lora_adapts_every_projection(fields):
    """Gates included; the merged model gives the same output."""
    model = random_family(one_block(fields))
    before = to_numpy(model(IMAGES))
    enable_lora(model, rank=1, targets=None)
    lora = [w for w in model.trainable_weights if w.name.startswith("lora_kernel")]
    products = [w for w in weights_by_path(model) if w.startswith("block_0") and "kernel" in w]
    assert len(lora) == 2 * len([path for path in products if path.endswith("/kernel")])
    assert_close(model(IMAGES), before)
    for weight in lora:
        weight.assign(normal(*weight.shape))
    assert_close(merge_lora(model)(IMAGES), to_numpy(model(IMAGES)))


@on_torch
@families
def test_tokens_splits_the_output_of_a_block(fields):
    """Class token, distillation token, registers and patch grid together are the output."""
    model = random_family(one_block(fields), image_size=(8, 16))
    images = normal(2, 8, 16, 3)
    found = model.tokens(images, "block_0", prepared=True)
    parts = [found.class_token, found.distillation_token]
    parts = [part.reshape(2, -1, 16) for part in parts if part is not None]
    parts += [] if found.registers is None else [found.registers]
    assert found.patches.shape == (2, 2, 4, 16)
    joined = np.concatenate([*parts, found.patches.reshape(2, 8, 16)], axis=1)
    np.testing.assert_array_equal(joined, run(model, images, ["block_0"])["block_0"])
    wanted = joined
    if model.config.pool.norm == "before":
        wanted = to_numpy(model.get_layer("encoder_norm")(joined))
    last = model.tokens(images, ["block_0/norm"], prepared=True)
    for tokens in (last.pop("block_0/norm"), model.tokens(images, prepared=True)):
        assert_close(tokens.patches.reshape(2, 8, 16), wanted[:, -8:])
    assert not last


@on_torch
@families
def test_maps_and_shares_of_tokens_are_weights_and_the_shares_are_those_of_the_pooling(fields):
    """One map per block, image and head; the shares give the pooled vector of the tokens."""
    model = random_family(fields)
    maps = attention_maps(model, IMAGES, prepared=True)
    assert {each.shape[:2] for each in maps.values()} == {(2, 2)}
    for each in maps.values():
        np.testing.assert_allclose(each.sum(-1), np.ones((2, 2, model.config.num_tokens)), 1e-5)
    shares = read_tokens(model, IMAGES, prepared=True)
    assert shares.shape == (2, model.config.num_tokens)
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-5)
    pool = model.get_layer("pool")
    ends = keras.Model(model.input, [pool.input, pool.output])
    tokens, pooled = ends.predict(IMAGES, verbose=0)
    mixed = np.einsum("bt,btm->bm", shares, tokens)
    if model.config.pool.kind in ("token", "tokens", "gap"):
        assert_close(pooled.reshape(2, -1, mixed.shape[1]).mean(1), mixed)
    elif model.config.pool.kind == "token_and_mean":
        last, mean = pooled.reshape(2, 2, -1).swapaxes(0, 1)
        count = model.config.pool.blocks
        assert_close((count * last + mean) / (count + 1), mixed)
    elif model.config.pool.kind == "map_of_patches":
        assert (shares[:, : model.config.num_prefix_tokens] == 0).all()
    else:
        assert_close(pooled.mean(1), mixed)


@on_torch
@families
def test_layer_decay_names_every_weight_before_the_encoder_norm(fields):
    """`train_last_blocks(model, 0)` trains only the layers after the last block."""
    model = random_family(fields)
    patterns = layer_decay_multipliers(model, 0.5)
    after = ("encoder_norm", "pool", "projection", "pre_logits", "head")
    for weight in model.weights:
        named = sum(re.search(pattern, weight.path) is not None for pattern in patterns)
        assert named == (not weight.path.startswith(after)), weight.path
    train_last_blocks(model, 0)
    assert {w.path.split("/")[0] for w in model.trainable_weights} <= set(after)
