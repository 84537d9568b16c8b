"""Layers, hooks, activations and regularisers that a user puts into a model take effect."""

import keras
import numpy as np
import pytest

from keras_vit import layers
from keras_vit.errors import ConfigError
from keras_vit.layers.dense import Dense, EinsumDense
from keras_vit.layers.norms import GroupNorm
from tests.helpers import assert_close, one_graph, random_tiny, read_dtype, to_numpy
from tests.plain import MIXED_POLICIES, normal
from tests.runs import sample

pytestmark = pytest.mark.every_backend

IMAGES = normal(2, 16, 16, 3)
ON_TORCH = keras.backend.backend() == "torch"


@pytest.fixture(autouse=True)
def in_inference():
    """As in `predict`: torch computes a block at once where no gradient is recorded."""
    if not ON_TORCH:
        yield
        return
    import torch

    with torch.no_grad():
        yield


@pytest.fixture
def model():
    """A model of one block with random weights."""
    return random_tiny()


def doubled(cls):
    """A subclass of a layer class whose output is twice as large."""

    class Doubled(cls):
        def call(self, *inputs, **arguments):
            return 2 * super().call(*inputs, **arguments)

    return Doubled


def find_part(model, path):
    """The layer that holds a part of the first block, such as "mlp/dense_0", and its attribute."""
    *holders, name = path.split("/")
    holder = model.get_layer("block_0")
    for attribute in holders:
        holder = getattr(holder, attribute)
    return holder, name


def replace(model, path, other):
    """Replaces a part of the first block by another layer."""
    holder, name = find_part(model, path)
    holder._tracker.unlock()  # Keras locks a layer once it is built
    setattr(holder, name, other)


PARTS = {
    "attention_norm": layers.LayerNorm,
    "attention": layers.Attention,
    "attention/query": EinsumDense,
    "attention/out": EinsumDense,
    "mlp": layers.MLP,
    "mlp/dense_0": Dense,
    "mlp/dense_1": keras.layers.Dense,
}


@pytest.mark.parametrize(("path", "cls"), PARTS.items(), ids=PARTS)
def test_a_replaced_part_and_its_hooks_are_called(model, path, cls):
    """A patched `call`, a hook of torch and a subclass that double the output give equal logits.

    Keras's calibration for GPTQ replaces the `call` of an instance to record its inputs.
    """
    part = getattr(*find_part(model, path))
    before, call = to_numpy(model(IMAGES)), part.call
    part.call = lambda *inputs, **arguments: 2 * call(*inputs, **arguments)
    patched = to_numpy(model(IMAGES))
    assert np.abs(patched - before).max() > 1e-3
    del part.call
    if ON_TORCH:
        with part.register_forward_hook(lambda module, inputs, output: 2 * output):
            assert_close(model(IMAGES), patched)
        np.testing.assert_array_equal(to_numpy(model(IMAGES)), before)
        with part.register_forward_pre_hook(lambda module, inputs: (inputs[0] ** 2,)):
            assert np.abs(to_numpy(model(IMAGES)) - before).max() > 1e-4
    other = doubled(cls).from_config(part.get_config())
    shapes = part.get_build_config()
    other.build(*shapes.get("shapes_dict", {"inputs": shapes.get("input_shape")}).values())
    other.set_weights(part.get_weights())
    replace(model, path, other)
    assert_close(model(IMAGES), patched)


def test_a_replaced_dropout_is_called_in_training():
    """In the block and in the MLP."""
    model, calls = random_tiny(dropout_rate=0.1), []

    class Counted(keras.layers.Dropout):
        def call(self, inputs, training=False):
            calls.append(training)
            return inputs

    for path in ("dropout", "mlp/dropout"):
        replace(model, path, Counted(0.1))
    model(IMAGES, training=True)
    assert calls == [True, True, True]


@pytest.mark.parametrize("change", ["activation", "call of the class"])
def test_a_changed_activation_or_class_is_applied(change, model, monkeypatch):
    """Zeros from the last projection make the MLP branch zero, in layers that exist already."""
    block, original = model.get_layer("block_0"), Dense.call
    if change == "activation":
        block.mlp.dense_1.activation = lambda x: 0 * x
    else:
        monkeypatch.setattr(Dense, "call", lambda self, x, training=None: 0 * original(self, x))
    tokens = normal(2, 5, 16)
    branch = block.attention(block.attention_norm(tokens))
    assert_close(block(tokens), to_numpy(branch) + tokens)


def test_an_activity_regularizer_of_a_part_adds_a_loss(model):
    """As in Keras, the loss is divided by the batch size."""
    block, seen = model.get_layer("block_0"), []
    dense, call = block.mlp.dense_0, block.mlp.dense_0.call
    dense.activity_regularizer = keras.regularizers.L2(0.5)
    dense.call = lambda *inputs, **arguments: seen.append(call(*inputs, **arguments)) or seen[-1]
    model(IMAGES)
    (loss,) = model.losses
    assert_close(loss, np.array(0.5 * np.square(to_numpy(seen[0])).sum() / len(IMAGES)))
    assert block.losses


@one_graph
@pytest.mark.on_backend("torch")
def test_a_part_that_torch_compiled_is_called(model):
    """A model without gradients computes whole blocks, but for one with such a part."""
    import torch

    graphs = []
    expected = to_numpy(model(IMAGES))
    dense = model.get_layer("block_0").mlp.dense_1
    dense.compile(backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    with torch.no_grad():
        assert_close(model(IMAGES), expected)
    assert len(graphs) == 1


REGISTERS = {"tokens": {"registers": 2}, "block": {"input_norm": "tokens"}}
ASSEMBLIES = {
    "token": {**REGISTERS, "dropout_rate": 0.1, "representation_size": 8},
    "map": {"pool": {"kind": "map"}, "tokens": {"class_tokens": 0, "mask": True}},
    "gap": {"pool": {"kind": "gap"}, "relative_position_bias": "block"},
}


@pytest.mark.parametrize("fields", ASSEMBLIES.values(), ids=ASSEMBLIES)
def test_a_replaced_call_or_a_hook_of_every_layer_of_a_model_is_called(fields):
    """From the patch embedding to the head, also of Keras's layers among them."""
    model, called = random_tiny(**fields), []
    inner = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    for layer in inner:

        def call(*inputs, original=layer.call, name=layer.name, **arguments):
            called.append(name)
            return original(*inputs, **arguments)

        layer.call = call
    model(IMAGES)
    names = [layer.name for layer in inner]
    assert len(names) > 6
    assert called == names
    if not ON_TORCH:
        return
    for layer in inner:
        del layer.call
        layer.register_forward_hook(lambda layer, inputs, output: called.append(layer.name))
    called.clear()
    model(IMAGES)
    assert called == names


@pytest.mark.on_backend("torch")
def test_torch_global_and_backward_hooks_are_called(model):
    """A global forward hook sees the part; a backward hook of the part runs in `backward`."""
    import torch

    dense, seen = model.get_layer("block_0").mlp.dense_0, []
    register = torch.nn.modules.module.register_module_forward_hook
    with register(lambda module, inputs, output: seen.append(module)):
        model(IMAGES)
    assert dense in seen
    dense.register_full_backward_hook(lambda module, inputs, outputs: seen.append("backward"))
    with torch.enable_grad():
        model(IMAGES).sum().backward()
    assert seen[-1] == "backward"


@pytest.mark.parametrize("make", [lambda x: x, lambda x: [x], lambda x: {"images": x}])
def test_inputs_are_taken_as_by_every_functional_model(model, make):
    """An array of any type, or a list or dict with one; another shape is refused."""
    expected = to_numpy(model(np.round(IMAGES)))
    assert_close(model(make(np.round(IMAGES).astype("int32"))), expected)
    for wrong in (IMAGES[:, :8], IMAGES[..., :2]):
        with pytest.raises(ConfigError, match="takes images .batch, 16, 16, 3"):
            model(make(wrong))


EINSUM = ("equation", "output_shape", "bias_axes")
PARTS_OF_KERAS = [
    (Dense, keras.layers.Dense, {"units": 6}),
    (layers.LayerNorm, keras.layers.LayerNormalization, {}),
    *(
        (EinsumDense, keras.layers.EinsumDense, dict(zip(EINSUM, values, strict=True)))
        for values in (
            ("btm,mhd->bthd", (None, 2, 3), "hd"),
            ("btm,mhd->bthd", (None, 2, 3), "d"),
            ("btm,hm->bth", (None, 4), "h"),
            ("btm,mh->bht", (4, None), "h"),
        )
    ),
    *(
        (GroupNorm, keras.layers.GroupNormalization, {"groups": 2, "axis": axis, **affine})
        for axis in (-1, 1)
        for affine in ({}, {"center": False, "scale": False})
    ),
]
ALL_POLICIES = ("float32", "bfloat16", *MIXED_POLICIES)


@pytest.mark.parametrize(("ours", "theirs", "arguments"), PARTS_OF_KERAS)
@pytest.mark.parametrize("policy", sample(ALL_POLICIES, "float32", "mixed_bfloat16"))
def test_parts_compute_what_keras_computes(policy, ours, theirs, arguments):
    """Values and dtype of Keras's class, also for equations and biases that are left to it."""
    part, keras_layer = (cls(**arguments, dtype=policy) for cls in (ours, theirs))
    x = normal(2, 4, 3, 4) if ours is GroupNorm else normal(2, 5, 8)
    x = keras.ops.convert_to_tensor(2 + x)
    for layer in (part, keras_layer):
        layer.build(x.shape)
    part.set_weights([normal(*weight.shape, seed=1) for weight in part.weights])
    keras_layer.set_weights(part.get_weights())
    actual, expected = part(x), keras_layer(x)
    assert read_dtype(actual) == read_dtype(expected)
    tolerance = 1e-6 if policy == "float32" else 2e-2
    np.testing.assert_allclose(
        to_numpy(actual), to_numpy(expected), rtol=tolerance, atol=10 * tolerance
    )


LAYER_NORMS = [
    *({"axis": axis} for axis in (1, [1, 2])),
    *({"center": False}, {"scale": False}, {"center": False, "scale": False}),
    {"axis": [2, 1], "center": False},
]


@pytest.mark.parametrize("arguments", LAYER_NORMS, ids=str)
def test_layer_norm_takes_the_arguments_of_keras(arguments):
    """Any axes, with and without scale and shift; Keras's layer fails on torch for some."""
    x, layer = 2 + normal(2, 3, 4), layers.LayerNorm(**arguments)
    layer.build(x.shape)
    layer.set_weights([normal(*w.shape, seed=i) for i, w in enumerate(layer.weights)])
    axes = tuple(np.atleast_1d(arguments.get("axis", -1)) % 3)
    shape = [side if axis in axes else 1 for axis, side in enumerate(x.shape)]
    variance = x.var(axes, keepdims=True) + layer.epsilon
    expected = (x - x.mean(axes, keepdims=True)) / np.sqrt(variance)
    if layer.scale:
        expected *= to_numpy(layer.gamma).reshape(shape)
    if layer.center:
        expected += to_numpy(layer.beta).reshape(shape)
    np.testing.assert_allclose(to_numpy(layer(x)), expected, atol=2e-6)


def test_a_norm_built_for_vectors_normalises_the_last_axis_of_tokens():
    """As in models that pool before the norm, whose tokens pass the same norm when asked for."""
    norm, tokens = layers.LayerNorm(), normal(2, 8, 8)
    norm.build((2, 8))
    expected = keras.layers.LayerNormalization()(tokens)
    assert_close(norm(tokens), to_numpy(expected))


def test_lora_is_part_of_the_kernel(model):
    """The product of the LoRA matrices changes the logits; the kernel is no longer trainable."""
    for part in (model.get_layer("block_0").mlp.dense_0, model.get_layer("block_0").attention.out):
        before = to_numpy(model(IMAGES))
        part.enable_lora(2)
        np.testing.assert_allclose(to_numpy(model(IMAGES)), before, atol=1e-6)
        part.lora_kernel_b.assign(normal(*part.lora_kernel_b.shape, seed=3))
        assert np.abs(to_numpy(model(IMAGES)) - before).max() > 1e-3
    assert all("lora" in w.path or "bias" in w.path for w in part.trainable_weights)


def test_a_subclass_with_rest_arguments_has_a_config():
    class Gated(layers.TransformerBlock):
        def __init__(self, *args, extra=1, **kwargs):
            super().__init__(*args, **kwargs)
            self.extra = extra

    block = Gated.from_config(Gated(3, 24, {"gated": True}, extra=2).get_config())
    assert (block.num_heads, block.block.gated, block.extra) == (3, True, 2)
