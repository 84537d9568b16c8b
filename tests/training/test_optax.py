"""The recipes against optax, step by step.

optax, the reference, runs on JAX; the recipes run on the Keras backend.
"""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
import pytest

from keras_vit.training import AugregRecipe, LayerwiseAdamW, LayerwiseSGD, TransferRecipe
from tests import formulas
from tests.helpers import assert_close, random_tiny, to_numpy
from tests.models import test_model
from tests.plain import normal
from tests.runs import sample, times
from tests.training.updates import EXACT, after_each

pytestmark = pytest.mark.every_backend

STEPS, WARMUP_STEPS, BATCH = times(100, 200), 20, 8
LAYER_DECAY = 0.7
RECIPES = {
    "transfer": (TransferRecipe, {}),
    "transfer_linear": (TransferRecipe, {"decay": "linear", "weight_decay": 0.1}),
    "transfer_by_layer": (TransferRecipe, {"layer_decay": LAYER_DECAY, "weight_decay": 0.1}),
    "augreg": (AugregRecipe, {"one_hot": False}),
    "augreg_by_layer": (AugregRecipe, {"one_hot": False, "layer_decay": LAYER_DECAY}),
}


def cosine(peak):
    """Warm-up and cosine decay by optax."""
    return optax.warmup_cosine_decay_schedule(0.0, peak, WARMUP_STEPS, STEPS)


def linear(peak):
    """`decay_type="linear"` of vit_jax: a linear decay to 1e-5, multiplied by the warm-up."""
    decay = optax.linear_schedule(peak, 1e-5, STEPS - WARMUP_STEPS, WARMUP_STEPS)
    return lambda step: decay(step) * jnp.minimum(1.0, step / WARMUP_STEPS)


def kernels(weights):
    """The weights to which big_vision applies weight decay: the kernels."""
    return {path: path.endswith("kernel") for path in weights}


def scale_by_layer(updates):
    """The layer-wise rates of two blocks: 1 for the head, times 0.7 for each layer below it."""
    layers = ("patch_embedding", "class_token", "position_embedding")
    depth = {"block_1": 1, "block_0": 2, **dict.fromkeys(layers, 3)}
    return {
        path: update * LAYER_DECAY ** depth.get(path.split("/")[0], 0)
        for path, update in updates.items()
    }


def make_optax(name):
    """The recipe as a chain of the optax transforms that vit_jax and big_vision use."""
    transfer, last = name.startswith("transfer"), []
    schedule = linear(0.03) if "linear" in name else cosine(0.03 if transfer else 0.001)
    core = optax.trace(0.9) if transfer else optax.scale_by_adam(0.9, 0.999, 1e-8)
    weight_decay = 0.0 if name == "transfer" else 0.1
    if "by_layer" in name:
        last = [optax.stateless(lambda updates, _: scale_by_layer(updates))]
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        core,
        optax.add_decayed_weights(weight_decay, kernels),
        optax.scale_by_learning_rate(schedule),
        *last,
    )


def make_recipe(name):
    """keras_vit's recipe, with the number of steps of the reference."""
    make, options = RECIPES[name]
    return make(STEPS, BATCH, warmup_steps=WARMUP_STEPS, **options)


def model_and_start(num_layers):
    """A model and its weights by path; without a key bias, whose gradient is rounding alone."""
    model = random_tiny(num_layers=num_layers, hidden_size=8, mlp_dim=16, block={"qkv_bias": False})
    return model, {weight.path: to_numpy(weight) for weight in model.weights}


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "augreg"])
def test_recorded_gradients_move_the_weights_as_in_optax(name):
    """Each of the steps is compared; gradient norms lie above and below the clipping norm."""
    model, start = model_and_start(num_layers=2)
    paths = [path for path in start if "mlp" not in path and "norm" not in path]
    weights = [weight for weight in model.weights if weight.path in paths]
    rng = np.random.default_rng(1)
    gradients = {
        path: rng.standard_normal((STEPS, *start[path].shape)).astype("float32") for path in paths
    }
    size = np.sqrt(sum(np.prod(start[path].shape) for path in paths))
    norms = (10 ** rng.uniform(-1, 1, STEPS) / size).astype("float32")
    for path in paths:
        gradients[path] *= norms.reshape(-1, *[1] * start[path].ndim)
    expected = optax_path(
        make_optax(name), {path: start[path] for path in paths}, gradients, compiler_options=EXACT
    )

    optimizer = make_recipe(name).compile_args(model)["optimizer"]
    recorded = [gradients[weight.path] for weight in weights]
    for weight, actual in zip(weights, after_each(optimizer, weights, recorded), strict=True):
        assert np.abs(actual[-1] - start[weight.path]).max() > 0.003
        for value, reference in zip(actual, np.asarray(expected[weight.path]), strict=True):
            assert_close(value, reference, 1e-5)


def optax_path(transform, weights, batches, gradient=lambda weights, batch: batch, **options):
    """The weights after each step of optax, `{path: (steps, ...)}`; batches may be gradients."""

    def step(carry, batch):
        weights, state = carry
        updates, state = transform.update(gradient(weights, batch), state, weights)
        weights = optax.apply_updates(weights, updates)
        return (weights, state), weights

    first = (weights, transform.init(weights))
    return jax.jit(lambda c, b: jax.lax.scan(step, c, b)[1], **options)(first, batches)


OPTIMIZERS = {
    "momentum": (LayerwiseSGD(0.1, momentum=0.9), optax.sgd(0.1, 0.9)),
    "nesterov": (
        LayerwiseSGD(0.1, momentum=0.9, nesterov=True),
        optax.sgd(0.1, 0.9, nesterov=True),
    ),
    "adamw": (
        LayerwiseAdamW(0.1, beta_1=0.8, beta_2=0.95, epsilon=1e-8, weight_decay=0.1),
        optax.adamw(0.1, b1=0.8, b2=0.95, eps=1e-8, weight_decay=0.1),
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_without_a_recipe_moves_a_weight_as_in_optax(name):
    """Twenty steps with options that no recipe has."""
    ours, theirs = OPTIMIZERS[name]
    ours = type(ours).from_config(ours.get_config())
    start, gradients = normal(3, 4), normal(20, 3, 4, seed=1)
    expected = optax_path(theirs, {"kernel": start}, {"kernel": gradients}, compiler_options=EXACT)
    weight = keras.Variable(start, name="kernel")
    (actual,) = after_each(ours, [weight], [gradients])
    for value, reference in zip(actual, np.asarray(expected["kernel"]), strict=True):
        assert_close(value, reference, 1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["momentum", "nesterov"])
def test_weights_of_16_bits_move_as_those_of_32(name, dtype):
    actual = []
    for kind in ("float32", dtype):
        optimizer = OPTIMIZERS[name][0]
        optimizer = type(optimizer).from_config(optimizer.get_config())
        weight = keras.Variable(np.ones((3, 4)), dtype=kind, name="kernel")
        optimizer.build([weight])
        for step in range(3):
            gradient = keras.ops.convert_to_tensor(normal(3, 4, seed=step), dtype=kind)
            optimizer.apply([gradient], [weight])
        actual.append(to_numpy(keras.ops.cast(weight, "float32")))
    assert_close(actual[1], actual[0], 2e-2)


@pytest.mark.parametrize("name", sample(("transfer", "augreg"), "augreg"))
def test_fit_moves_the_weights_as_optax_moves_those_of_the_papers_formulas(name, monkeypatch):
    """Keras and JAX each differentiate their own model; the weights are compared four times."""
    model, start = model_and_start(num_layers=1)
    images, classes = normal(STEPS * BATCH, 16, 16, 3), np.arange(STEPS * BATCH) % 5
    for module in (formulas, test_model):
        monkeypatch.setattr(module, "np", jnp)
    batches = images.reshape(STEPS, BATCH, 16, 16, 3), classes.reshape(STEPS, BATCH)

    def loss(weights, batch):
        logits = test_model.figure_1(model, batch[0], weights)
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()

    expected = optax_path(make_optax(name), start, batches, jax.grad(loss))

    model.compile(**make_recipe(name).compile_args(model))
    quarter = STEPS * BATCH // 4
    for k in range(4):
        now = slice(k * quarter, (k + 1) * quarter)
        model.fit(images[now], classes[now], batch_size=BATCH, shuffle=False, verbose=0)
        for weight in model.weights:
            actual = np.asarray(expected[weight.path][(k + 1) * STEPS // 4 - 1])
            assert_close(weight, actual)


@pytest.mark.on_backend("jax")
@pytest.mark.filterwarnings("ignore")
def test_canary_keras_shares_the_averages_of_the_weights():
    """Fails when the fault is gone: remove `finalize_variable_values` of optimizers.py then.

    Expected: a model whose optimizer has `use_ema=True` is trained by two calls of `fit`.
    Found: the second call fails, because an array of the averages is also that of a weight, and
    JAX cannot take it over twice ("Attempt to donate the same buffer twice").
    Remedy: assign copies in `Optimizer.finalize_variable_values`.
    """
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1, use_ema=True), "mse")
    arrays = np.ones((8, 4), "float32"), np.ones((8, 3), "float32")
    model.fit(*arrays, verbose=0)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        model.fit(*arrays, verbose=0)
