"""The promises of every layer of keras_vit.layers, checked on the cases of `cases.py`."""

import inspect

import keras
import numpy as np
import pytest

from keras_vit import layers
from keras_vit.layers.norms import GroupNorm
from tests import formulas
from tests.helpers import assert_close, read_dtype, run, run_layer_test, to_numpy
from tests.layers.cases import CASES, IMAGE_CASES, RANDOM_CASES
from tests.plain import POLICIES, ROUNDING, normal, through_json
from tests.runs import sample

pytestmark = pytest.mark.every_backend

CHOSEN = sample(
    [case.name for case in CASES],
    *("LayerNorm", "MLP", "Attention-cross", "StochasticDepth", "TransformerBlock"),
    *("TransformerBlock-layer-scale", "AddPositionEmbs-learned-resized", "PatchEmbedding"),
    "StdConv2D",
)
MOST = [case for case in CASES if case.name in CHOSEN]
"""On JAX and TensorFlow: the layers with kernels, random numbers, or operations of images."""

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
most_cases = pytest.mark.parametrize("case", MOST, ids=lambda case: case.name)
every_random_case = pytest.mark.parametrize("case", RANDOM_CASES, ids=lambda case: case.name)
every_image_case = pytest.mark.parametrize("case", IMAGE_CASES, ids=lambda case: case.name)
every_policy = pytest.mark.parametrize("policy", sample(POLICIES, *POLICIES[:2]))


def test_every_layer_has_a_case():
    """A layer class without a case fails this test; `DenseMap` reads a list, in a model's tests."""
    public = (getattr(layers, name) for name in layers.__all__)
    expected = {c for c in public if inspect.isclass(c) and issubclass(c, keras.layers.Layer)}
    assert {case.layer for case in CASES} == expected - {layers.DenseMap}


@most_cases
def test_keras_own_layer_test_passes(case):
    """`run_layer_test` checks config, weights, seeds, shapes, training and float16."""
    alone = len(case.inputs) == 1
    run_layer_test(
        case.layer,
        case.arguments,
        input_shape=next(iter(case.inputs.values()))
        if alone
        else {f"{name}_shape": shape for name, shape in case.inputs.items()},
        expected_output_shape=case.output,
        expected_num_losses=0,
        # Keras's check can only train a layer with one input and a batched output.
        run_training_check=alone and case.batched,
    )


@every_case
def test_config_survives_a_policy_object(case):
    """A layer made with a `DTypePolicy` object, as the model makes it, still has a JSON config."""
    layer = case.make(dtype=keras.dtype_policies.get("mixed_bfloat16"))
    rebuilt = case.layer.from_config(through_json(layer.get_config()))
    assert rebuilt.dtype_policy == layer.dtype_policy


@most_cases
def test_a_saved_model_that_holds_the_layer_gives_the_same_output(case, tmp_path):
    """`.keras` keeps arguments and weights; the registered name finds the class."""
    layer = case.made()
    serialised = keras.saving.serialize_keras_object(layer)
    assert serialised["registered_name"] == f"keras_vit>{case.layer.__name__}"
    inputs = case.symbols(case.inputs)
    model = keras.Model(inputs, layer(**inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(to_numpy(loaded(case.data())), to_numpy(model(case.data())))


@most_cases
def test_one_graph_serves_every_size(case):
    """Axes for batch, tokens, height and width that are None in the graph may differ per call."""
    layer = case.make()
    inputs = case.symbols(case.free)
    model = keras.Model(inputs, layer(**inputs))
    assert not case.batched or model.output_shape[0] is None
    # Without jit_compile, the graph on TensorFlow has unknown sizes; on JAX it never has.
    model.compile(jit_compile=keras.backend.backend() == "jax")
    assert model.predict_on_batch(case.data()).shape == case.output
    expected = layer.compute_output_shape(next(iter(case.other.values())))
    assert model.predict_on_batch(case.data(case.other)).shape == tuple(expected)


NORMS = {
    layers.LayerNorm: (formulas.layer_norm, 300, 1e-4),
    layers.RMSNorm: (formulas.rms_norm, 300, 1e-5),
    GroupNorm: (formulas.group_norm, 20, 5e-4),
}
"""Formula of each norm, a mean of its inputs, and a tolerance.

16 bits resolve 300 in steps of 0.25 or 2, and 20 in 1/64 or 1/8; the square of 300 overflows them.
"""


@most_cases
@every_policy
def test_mixed_precision_only_rounds(case, policy):
    """Weights and norms are float32; the output is that of float32, rounded to the policy."""
    layer = case.made(dtype=policy)
    assert read_dtype(layer(**case.symbols(case.inputs))) == layer.compute_dtype
    output = layer(**case.data())
    assert read_dtype(output) == layer.compute_dtype
    assert {read_dtype(weight) for weight in layer.weights} <= {"float32"}
    assert_close(to_numpy(output), to_numpy(case.made()(**case.data())), ROUNDING[policy])
    for norm in layer._flatten_layers(include_self=False):
        if type(norm) in NORMS:
            formula, mean, tolerance = NORMS[type(norm)]
            weights = {f"norm/{w.name}": to_numpy(w).astype("float64") for w in norm.weights}
            x = mean + normal(2, 5, 3, norm.gamma.shape[0])
            assert read_dtype(norm(x)) == "float32"
            assert_close(norm(x), formula(x.astype("float64"), weights, "norm"), tolerance)


@every_image_case
@pytest.mark.parametrize("policy", sample(POLICIES, "float32"))
def test_channels_first_is_channels_last_transposed(case, policy):
    """The same weights on transposed images give the transposed output."""
    last = case.made(dtype=policy)
    first = case.make(dtype=policy, data_format="channels_first")
    images = case.data()["inputs"]
    first.build(np.moveaxis(images, -1, 1).shape)
    first.set_weights(last.get_weights())
    actual = run(first, np.moveaxis(images, -1, 1))
    if case.layer is not layers.PatchEmbedding:  # its output is tokens, not an image
        actual = np.moveaxis(actual, 1, -1)
    assert_close(actual, to_numpy(last(images)), ROUNDING[policy] / 4)


@every_random_case
def test_randomness_is_off_at_inference(case):
    """The output is that of the layer with all rates 0, in training too; that layer has no seed."""
    rates = {name: 0.0 for name in case.arguments if name.endswith("rate")}
    still = case.made(**rates)
    assert not still.non_trainable_variables
    expected = to_numpy(still(**case.data()))
    assert_close(still(**case.data(), training=True), expected)
    layer = case.made()
    for call in ({}, {"training": False}):
        assert_close(layer(**case.data(), **call), expected)


@every_random_case
def test_the_global_seed_decides_every_draw(case):
    """`set_random_seed` repeats the draws of a layer; two calls draw differently."""

    def draws(seed):
        keras.utils.set_random_seed(seed)
        layer = case.made()
        return [to_numpy(layer(**case.data(), training=True)) for _ in range(2)]

    first, again, other = draws(1), draws(1), draws(2)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, other)
