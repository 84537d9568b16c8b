"""Which weights learn, and how far they move."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.training import (
    TransferRecipe,
    enable_lora,
    merge_lora,
    train_head,
    train_last_blocks,
    train_only,
    zero_head,
)
from keras_vit.training.lora import PROJECTIONS
from tests.helpers import assert_close, random_tiny, tiny, to_numpy
from tests.models.test_dense_heads import dense, targets
from tests.plain import HYBRID, normal
from tests.runs import sample
from tests.training.updates import after_each

pytestmark = pytest.mark.every_backend

SMALL = {"hidden_size": 8, "mlp_dim": 8, "num_layers": 2, "block": {"qkv_bias": False}}
IMAGES, CLASSES = normal(4, 16, 16, 3), np.arange(4) % 3


def read_values(model):
    """The weights of a model by path."""
    return {weight.path: to_numpy(weight) for weight in model.weights}


def moved(before, model):
    """The paths of the weights that differ from `before`."""
    after = read_values(model)
    return {path for path in before if not np.array_equal(before[path], after[path])}


def steps(model, count, images=IMAGES, labels=CLASSES, **options):
    """The model after `count` updates of the transfer recipe without warm-up."""
    recipe = TransferRecipe(1000, len(images), warmup_steps=0, **options)
    model.compile(**recipe.compile_args(model))
    for _ in range(count):
        model.train_on_batch(images, labels)
    return model


def test_another_resolution_and_head_replace_positions_and_head_alone(tmp_path):
    """A zero head gives zero logits and passes no gradient on; after one step all weights move."""
    source = random_tiny(**SMALL)
    source.save_to_preset(tmp_path / "preset")
    model = keras_vit.VisionTransformer.from_preset(
        tmp_path / "preset", num_classes=3, image_size=24
    )
    stored, before, images = read_values(source), read_values(model), normal(4, 24, 24, 3)
    differing = {path for path, value in stored.items() if value.size != before[path].size}
    assert differing == {"position_embedding/embedding", "head/kernel", "head/bias"}
    assert moved({path: stored[path] for path in stored.keys() - differing}, model) == set()
    assert before["position_embedding/embedding"].shape == (1, 10, 8)
    np.testing.assert_array_equal(to_numpy(model(images)), np.zeros((4, 3)))

    assert moved(before, steps(model, 1, images)) == {"head/kernel", "head/bias"}
    model.train_on_batch(images, CLASSES)
    assert moved(before, model) == set(before)
    zero_head(model)
    assert not to_numpy(model(images)).any()


LAST = ("encoder_norm", "head/", "block_1", "position_bias_1")
LEARNING = {
    "head": (train_head, ("head/",)),
    "last block": (lambda model: train_last_blocks(model, 1), LAST),
}


@pytest.mark.parametrize("name", sample(LEARNING, "last block"))
def test_frozen_weights_stay_and_trainable_weights_move(name):
    """Frozen weights are equal bit by bit after two updates with momentum."""
    model = random_tiny(num_classes=3, relative_position_bias="block", **SMALL)
    before, (choose, learns) = read_values(model), LEARNING[name]
    choose(model)
    assert moved(before, steps(model, 2)) == {path for path in before if path.startswith(learns)}


def test_lora_moves_its_matrices_and_the_head():
    """B moves in the first step, A from the second on; the merged model gives equal logits."""
    keras.utils.set_random_seed(0)
    model = random_tiny(num_classes=3, **SMALL)
    logits = to_numpy(model(IMAGES))
    enable_lora(model, 2)
    steps(model, 0)
    np.testing.assert_array_equal(to_numpy(model(IMAGES)), logits)
    before = read_values(model)
    lora = {path for path in before if "lora_kernel" in path}
    assert len(lora) == 2 * 2 * 2  # blocks, query and value, A and B

    model.train_on_batch(IMAGES, CLASSES)
    b_matrices = {path for path in lora if path.endswith("lora_kernel_b")}
    assert moved(before, model) == b_matrices | {"head/kernel", "head/bias"}
    model.train_on_batch(IMAGES, CLASSES)
    assert moved(before, model) == lora | {"head/kernel", "head/bias"}

    merged = merge_lora(model)
    assert not any("lora" in path for path in read_values(merged))
    assert_close(merged(IMAGES), to_numpy(model(IMAGES)))


def test_the_last_block_and_a_dense_head_learn_and_batch_norms_count():
    """No moving statistic is trainable; a zero head keeps the layers before the last one."""
    # The bias of the keys has no gradient, nor has one before a batch norm.
    model, images = dense("dpt", image_size=32, block={"qkv_bias": False}), normal(4, 32, 32, 3)
    before, learns = read_values(model), ("block_3/", "encoder_norm", "head/")
    train_last_blocks(model, 1)
    assert not any("moving" in weight.path for weight in model.trainable_weights)
    steps(model, 2, images, targets("segmentation", 4, 32, 32))
    assert moved(before, model) == {path for path in before if path.startswith(learns)}
    before = read_values(model)
    zero_head(model)
    assert moved(before, model) == {"head/output/kernel", "head/output/bias"}


def test_a_dense_head_learns_on_an_encoder_that_is_frozen():
    source = tiny(num_layers=2, trainable=False)
    for learns in ({"head"}, {"block_1", "encoder_norm", "head"}):
        model = source.with_dense_head(3)
        assert {weight.path.split("/")[0] for weight in model.trainable_weights} == learns
        train_last_blocks(source, 1)


def test_a_dense_head_learns_beside_lora_and_is_merged():
    model = dense("dpt depth")
    before = read_values(model)
    enable_lora(model, 2)
    steps(model, 2, labels=targets("depth", 4, 16, 16))
    assert {path.split("/")[0] for path in moved(before, model)} == {"head"}
    merged = merge_lora(model)
    assert not any("lora" in path for path in read_values(merged))
    assert_close(merged(IMAGES), to_numpy(model(IMAGES)))


@pytest.mark.parametrize("alpha", [None, 6])
def test_lora_adapts_every_projection_and_scales_by_alpha_over_rank(alpha):
    """A block without a gated MLP has six projections; alpha is the rank by default."""
    model = random_tiny(**SMALL)
    count = enable_lora(model, 2, None, alpha=alpha)
    learns = {p: v for p, v in read_values(model).items() if "lora" in p or p.startswith("head/")}
    assert count == sum(value.size for value in learns.values())
    parts = [part for part in PROJECTIONS if part not in ("mlp/gate", "mlp/value")]
    assert len(learns) == 2 * len(parts) * 2 + 2
    for weight in model.trainable_weights:
        weight.assign(normal(*weight.shape))
    now, at, scale = read_values(model), "block_1/mlp/dense_0/", (alpha or 2) / 2
    expected = now[f"{at}kernel"] + scale * now[f"{at}lora_kernel_a"] @ now[f"{at}lora_kernel_b"]
    merged = merge_lora(model)
    assert_close(read_values(merged)[f"{at}kernel"], expected, 1e-6)
    assert_close(merged(IMAGES), to_numpy(model(IMAGES)))


@pytest.mark.parametrize("is_quantised", sample((False, True), False))
def test_merging_includes_heads_and_quantised_kernels(is_quantised):
    """Keras's own `enable_lora` and `quantize` may have been called; int8 rounds the sum again."""
    model = random_tiny(num_classes=3, **SMALL)
    for part in (model.get_layer("head"), model.get_layer("block_0").mlp.dense_0):
        if is_quantised:
            part.quantize("int8")
        part.enable_lora(2)
    for weight in model.weights:
        if "lora_kernel" in weight.path:
            weight.assign(normal(*weight.shape) / 4)
    assert_close(merge_lora(model)(IMAGES), to_numpy(model(IMAGES)), 0.05 if is_quantised else 1e-5)


@pytest.mark.on_backend("torch")
def test_layer_decay_gives_every_weight_of_a_hybrid_its_multiplier():
    """The ResNet stem has the smallest, all layers of DPT have 1, a position bias its block's."""
    sizes = {"image_size": 32, "num_layers": 11, "relative_position_bias": "block"}
    model = tiny(**{**HYBRID, **sizes}, dense={"kind": "dpt", "stages": (1, 4, 7, 10)})
    recipe = TransferRecipe(10, layer_decay=0.9)
    optimizer = recipe.compile_args(model)["optimizer"]
    optimizer.build(model.trainable_weights)
    depth = {"head": 12, "encoder_norm": 12}
    for k in range(11):
        depth |= {f"block_{k}": k + 1, f"position_bias_{k}": k + 1}
    found = {weight.path: optimizer.multiplier_of(weight) for weight in model.trainable_weights}
    assert found == {path: 0.9 ** (12 - depth.get(path.split("/")[0], 0)) for path in found}
    assert {"root", "stage1_unit1", "block_10"} <= {path.split("/")[0] for path in found}


@pytest.mark.on_backend("torch", "tensorflow")
def test_a_layerwise_optimizer_survives_saving(tmp_path):
    """Multipliers, decayed weights, schedule and momentum; the next step is bitwise equal."""
    model = random_tiny(**SMALL)
    recipe = TransferRecipe(100, 4, layer_decay=0.5, weight_decay=0.1, decay="linear")
    model.compile(**recipe.compile_args(model))
    gradients = [normal(3, *weight.shape) for weight in model.trainable_weights]
    after_each(model.optimizer, model.trainable_weights, gradients)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.optimizer.get_config() == model.optimizer.get_config()
    for each in (model, again):
        after_each(each.optimizer, each.trainable_weights, [g[:1] for g in gradients])
    assert moved(read_values(model), again) == set()
    assert int(again.optimizer.iterations) == 4


@pytest.mark.on_backend("torch")
def test_train_only_takes_whole_layer_names_and_parts_of_layers():
    """The name block_1 does not include block_10; block_2/attention/ is attention alone."""
    model = tiny(num_layers=11)
    train_only(model, ["block_1", "block_2/attention/"])
    learns = {weight.path for weight in model.trainable_weights}
    assert {path.split("/")[0] for path in learns} == {"block_1", "block_2"}
    assert {path.split("/")[1] for path in learns if path.startswith("block_2")} == {"attention"}
    counts = [train_last_blocks(model, blocks) for blocks in (0, 1, 11)]
    norm_and_head = 2 * 16 + 16 * 5 + 5
    block = model.get_layer("block_0").count_params()
    assert counts == [norm_and_head, norm_and_head + block, norm_and_head + 11 * block]
