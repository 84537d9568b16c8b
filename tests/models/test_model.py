"""The model against Figure 1 in every arrangement; its shapes, names and initial values."""

import keras
import numpy as np
import pytest

from keras_vit import VisionTransformer
from keras_vit.config import Block, Prediction
from tests import formulas
from tests.helpers import (
    assert_close,
    copy_weights,
    random_tiny,
    read_dtype,
    read_weights,
    run,
    tiny,
    to_numpy,
)
from tests.plain import normal
from tests.runs import sample

IMAGES = normal(2, 16, 16, 3)


def figure_1(model, images, w=None):
    """The output of a plain model by the formulas, with the model's weights or the weights `w`."""
    config, w = model.config, w or read_weights(model)
    batch, (rows, columns), (height, width) = len(images), config.grid, config.patch_size
    images = images[:, : rows * height, : columns * width]
    patches = images.reshape(batch, rows, height, columns, width, -1).swapaxes(2, 3)
    kernel = w["patch_embedding/kernel"]
    z = np.einsum("brcpqi,pqim->brcm", patches, kernel) + w["patch_embedding/bias"]
    z = z.reshape(batch, rows * columns, -1)
    positions = (
        w["position_embedding/embedding"][0]
        if config.has_learned_positions
        else formulas.sincos2d(rows, columns, config.hidden_size)
    )
    if config.tokens.class_tokens:
        z = np.concatenate([np.repeat(w["class_token/token"], batch, axis=0), z], axis=1)
    first, rest = z[:, : -len(positions)], z[:, -len(positions) :]
    z = np.concatenate([first, rest + positions], axis=1)  # JAX's arrays do not change in place
    for i in range(config.num_layers):
        z = formulas.block(z, with_biases(below(w, f"block_{i}/")), config.block)
    pool = config.pool
    skip = 0 if pool.kind == "mean" else config.tokens.class_tokens
    if pool.norm == "after":
        z = z[:, skip:].mean(1)
    y = z
    if pool.norm != "none":
        y = formulas.layer_norm(z, w, "encoder_norm", config.block.epsilon)
    if pool.kind == "token":
        y = y[:, 0]
    elif pool.is_mean and pool.norm == "before":
        y = y[:, skip:].mean(1)
    elif pool.is_map:
        y = y if pool.kind == "map" else y[:, skip:]
        y = formulas.map_head(y, below(w, "pool/"), config.block)
    if config.representation_size:
        y = np.tanh(y @ w["pre_logits/kernel"] + w["pre_logits/bias"])
    if config.head == "cosine":
        y = y / np.linalg.norm(y, axis=-1, keepdims=True)
    return y @ w["head/kernel"] + w["head/bias"] if config.num_classes else y


def with_biases(w):
    """The weights of a block, with zeros for missing biases of query, key and value."""
    zeros = np.zeros(w["attention/query/kernel"].shape[1:])
    return {**{f"attention/{name}/bias": zeros for name in ("query", "key", "value")}, **w}


def below(w, prefix):
    """The weights whose path starts with `prefix`, by their path without the prefix."""
    return {path.removeprefix(prefix): v for path, v in w.items() if path.startswith(prefix)}


KINDS = ("token", "gap", "mean", "map", "map_of_patches", "unpooled")
NO_CLASS_TOKEN = {"tokens": {"class_tokens": 0}}
ARRANGEMENTS = [
    *({"pool": {"kind": kind}} for kind in KINDS),
    *({"pool": {"kind": kind}, **NO_CLASS_TOKEN} for kind in ("gap", "map", "unpooled")),
    {"pool": {"kind": "gap", "norm": "after"}, **NO_CLASS_TOKEN},
    {"pool": {"kind": "gap", "norm": "after"}},
    {"pool": {"norm": "none"}},
    {"block": {"qkv_bias": False}},
    {"representation_size": 7},
    {"head": "cosine"},
    {"num_classes": 0},
    {"num_classes": 0, "representation_size": 7},
    {"position": "sincos2d"},
    {"pool": {"kind": "gap"}, **NO_CLASS_TOKEN, "position": "sincos2d"},
    {"position": "learned_patches"},
    {"pool": {"kind": "unpooled"}, "position": "learned_patches"},
    {"image_size": (24, 16), "patch_size": (8, 4), "channels": 1, "num_layers": 3},
    {"image_size": (19, 23)},
    {"block": {"epsilon": 0.1, "activation": "gelu"}},
    {"pool": {"kind": "map"}, **NO_CLASS_TOKEN, "block": {"epsilon": 0.1, "activation": "gelu"}},
]


NAMED = {str(fields): fields for fields in ARRANGEMENTS}


@pytest.mark.every_backend
@pytest.mark.parametrize("name", sample(NAMED, *list(NAMED)[::3]))
def test_logits_equal_the_formulas(name):
    """Every arrangement without a ResNet stem computes Figure 1; logits are float32."""
    model = random_tiny(**NAMED[name])
    images = normal(2, *model.config.image_size, model.config.channels)
    actual, expected = run(model, images), figure_1(model, images)
    assert read_dtype(model.output) == "float32"
    assert model.output_shape == (None, *expected.shape[1:])
    assert_close(actual, expected)


@pytest.mark.every_backend
def test_an_any_size_model_equals_models_of_fixed_size():
    """At the stored grid, and at another grid with resized positions, in one graph."""
    model = random_tiny(image_size=None, position_grid=(2, 3))
    # Without jit_compile, the graph on TensorFlow has unknown sizes; on JAX it never has.
    model.compile(jit_compile=keras.backend.backend() == "jax")
    for size in ((16, 24), (24, 40), (16, 24)):
        fixed = copy_weights(model, tiny(image_size=size, position_grid=(2, 3)))
        images = normal(2, *size, 3)
        assert_close(model.predict_on_batch(images), run(fixed, images))


def test_pixels_that_fill_no_patch_are_logged(caplog):
    """Those at the right and the bottom are cropped."""
    tiny(image_size=(19, 23))
    assert "image_size=(19, 23)" in caplog.text


def test_policy_and_data_format_default_to_the_settings_of_keras():
    """The model keeps them when the settings change; a policy may be of a user's own class."""

    class Own(keras.dtype_policies.DTypePolicy):
        """A policy of a user."""

    policy, data_format = keras.config.dtype_policy(), keras.config.image_data_format()
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        keras.config.set_image_data_format("channels_first")
        model = tiny()
    finally:
        keras.config.set_dtype_policy(policy)
        keras.config.set_image_data_format(data_format)
    assert (model.data_format, model.input_shape) == ("channels_first", (None, 3, 16, 16))
    for each in (model, own := tiny(dtype=Own("mixed_bfloat16"))):
        assert each.dtype_policy.name == "mixed_bfloat16"
        assert each.get_layer("block_0").compute_dtype == "bfloat16"
    assert type(own.get_layer("block_0").dtype_policy) is Own


def test_initial_weights_are_those_of_the_reference():
    """Zero head and class token, N(0.02) positions, Xavier and LeCun kernels."""
    model = tiny(representation_size=100)
    w = read_weights(model)
    zero = ("head/kernel", "head/bias", "class_token/token", "patch_embedding/bias")
    for path in (*zero, "block_0/attention/query/bias"):
        assert not w[path].any(), path
    fans = {f"attention/{name}": 16 + 16 for name in ("query", "key", "value", "out")}
    for name, fan in {**fans, "mlp/dense_0": 16 + 32, "mlp/dense_1": 32 + 16}.items():
        limit = np.sqrt(6 / fan)
        assert 0.95 * limit < np.abs(w[f"block_0/{name}/kernel"]).max() <= limit
    # flax's Dense and Conv have a variance of one over the fan-in.
    assert abs(w["pre_logits/kernel"].std() * np.sqrt(16) - 1) < 0.1
    assert abs(w["patch_embedding/kernel"].std() * np.sqrt(8 * 8 * 3) - 1) < 0.1
    assert abs(w["position_embedding/embedding"].std() - 0.02) < 0.005
    assert (w["block_0/mlp_norm/gamma"] == 1).all()
    assert not to_numpy(model(IMAGES)).any()


@pytest.mark.every_backend
def test_the_same_seed_gives_the_same_weights():
    """`set_random_seed` repeats all weights; different kernels have different values."""

    def weights(seed):
        keras.utils.set_random_seed(seed)
        return read_weights(tiny(num_layers=2))

    first, again, other = weights(1), weights(1), weights(2)
    for path, value in first.items():
        np.testing.assert_array_equal(value, again[path])
    kernel = "block_0/attention/query/kernel"
    others = (first["block_0/attention/key/kernel"], first["block_1/attention/query/kernel"])
    assert not any(np.array_equal(first[kernel], each) for each in (other[kernel], *others))


def test_a_model_is_sliced_at_its_stages_by_name():
    """The stages have documented names."""
    model = random_tiny(num_layers=2, representation_size=7)
    of_tokens = ("class_token", "position_embedding", "embedding_dropout", "block_0", "block_1")
    shapes = {
        **{"patch_embedding": (2, 2, 16), "patch_tokens": (4, 16)},
        **dict.fromkeys((*of_tokens, "encoder_norm"), (5, 16)),
        **{"pool": (16,), "pre_logits": (7,), "head": (5,)},
    }
    assert [layer.name for layer in model.layers] == ["images", *shapes]
    stages = {name: model.get_layer(name).output for name in shapes}
    actual = keras.Model(model.input, stages).predict(IMAGES, verbose=0)
    assert list(model(IMAGES, stages="block_0")) == ["block_0"]
    assert {name: value.shape[1:] for name, value in actual.items()} == shapes
    assert_close(actual["head"], to_numpy(model(IMAGES)))


def test_stochastic_depth_grows_linearly_with_depth():
    """From 0 in the first block to the rate in the last; a single block has rate 0."""
    for depth in (1, 5):
        model = tiny(num_layers=depth, stochastic_depth_rate=0.4)
        rates = [model.get_layer(f"block_{i}").stochastic_depth_rate for i in range(depth)]
        np.testing.assert_allclose(rates, [0, 0.1, 0.2, 0.3, 0.4][:depth])


def test_fields_given_with_a_config_replace_its_fields():
    """A dict changes the fields of a part that it names; the config has no task."""
    config = tiny(block={"layer_scale": 0.5}).config
    model = VisionTransformer(config, num_classes=3, block={"gated": True}, task="multi_label")
    assert model.config == config.replace(num_classes=3, block={"gated": True})
    assert model.config.block == Block(gated=True, layer_scale=0.5)
    assert model.prediction == Prediction(3, "multi_label")
    assert model.output_shape == (None, 3)


def test_default_names_are_counted_so_that_two_models_fit_into_one():
    """Each is the name of the variant, or "vit", and a number from the second on, as in Keras."""
    keras.utils.clear_session()
    first, second = tiny(num_classes=0), tiny(num_classes=0)
    assert [first.name, second.name, tiny(name="mine").name] == ["vit", "vit_1", "mine"]
    inputs = [keras.Input((16, 16, 3)), keras.Input((16, 16, 3))]
    features = [model(images) for model, images in zip((first, second), inputs, strict=True)]
    outer = keras.Model(inputs, keras.layers.Concatenate()(features))
    assert outer.output_shape == (None, 32)


def test_a_subclass_loads_a_preset_as_itself():
    class Own(VisionTransformer):
        """A class of a user."""

    assert type(Own.from_preset("vit_digits")) is Own
