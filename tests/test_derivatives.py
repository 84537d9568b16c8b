"""Second derivatives, forward mode and function transforms agree with the formulas."""

import os
from pathlib import Path

import keras
import numpy as np
import pytest

from tests import formulas
from tests.helpers import random_tiny, read_weights, to_numpy
from tests.models.test_model import below, figure_1
from tests.plain import HYBRID, normal
from tests.runs import sample

pytestmark = pytest.mark.every_backend

BACKEND = keras.backend.backend()
ROOT = Path(__file__).parents[1]
IMAGES = normal(2, 16, 16, 3)
SECOND = "tests/test_derivatives.py::test_second_derivatives_are_those_of_the_formulas"
STEP = 1e-6
"""The step of finite differences in float64, so short that hardly a ReLU changes its sign."""


def logits(model, w):
    """The logits for `IMAGES` with the weights `w` by the formulas, in NumPy and float64."""
    x = IMAGES.astype("float64")
    if model.config.stem.is_resnet:
        x = np.maximum(formulas.conv_norm(x, below(w, "root/"), 2), 0)
        x = formulas.bottleneck(formulas.max_pool(x, 3, 2), below(w, "stage1_unit1/"), 1)
    return figure_1(model, x, w)


def curvature(model, left, right):
    """The second derivative of the sum of squared logits along two directions of the weights."""
    w = read_weights(model)

    def scalar(a, b):
        moved = {path: value + a * left[path] + b * right[path] for path, value in w.items()}
        return np.square(logits(model, moved)).sum()

    h = STEP
    return (scalar(h, h) - scalar(h, -h) - scalar(-h, h) + scalar(-h, -h)) / (4 * h * h)


def hessian_vector_product(model, direction, training):
    """The Hessian of the sum of squared logits times a direction, one array per weight."""
    variables = model.trainable_weights
    vector = [keras.ops.convert_to_tensor(d, dtype="float32") for d in direction]
    if BACKEND == "torch":
        import torch

        weights = [variable.value for variable in variables]
        loss = model(IMAGES, training=training).square().sum()
        first = torch.autograd.grad(loss, weights, create_graph=True)
        along = sum((g * v).sum() for g, v in zip(first, vector, strict=True))
        return torch.autograd.grad(along, weights)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = tf.reduce_sum(tf.square(model(IMAGES, training=training)))
            first = inner.gradient(loss, [v.value for v in variables])
            along = sum(tf.reduce_sum(g * v) for g, v in zip(first, vector, strict=True))
        return outer.gradient(along, [v.value for v in variables])
    import jax

    def loss(values):
        state = [variable.value for variable in model.non_trainable_variables]
        y = model.stateless_call(values, state, IMAGES, training=training)[0]
        return (y * y).sum()

    values = [variable.value for variable in variables]
    return jax.jit(lambda v, d: jax.jvp(jax.grad(loss), (v,), (d,))[1])(values, vector)


MODELS = {
    "token": {"pool": {"kind": "token"}},
    "gap": {"pool": {"kind": "gap"}, "tokens": {"class_tokens": 0}},
    "map": {"pool": {"kind": "map"}, "tokens": {"class_tokens": 0}},
    "hybrid": HYBRID,
}
KINDS = [f"{model}-{kind}" for model in MODELS for kind in ("kept", "remat")]


@pytest.mark.parametrize("kind", sample(KINDS, "map-kept", "token-remat"))
def test_second_derivatives_are_those_of_the_formulas(kind):
    """Within 1e-4 of float64, along three pairs of directions in the space of all weights."""
    name, _, memory = kind.partition("-")
    remat = memory == "remat"
    model = random_tiny(**MODELS[name], remat=remat)
    shapes = {weight.path: weight.shape for weight in model.trainable_weights}

    def direction(seed):
        return {path: normal(*s, seed=seed + i) for i, (path, s) in enumerate(shapes.items())}

    right = direction(1000)
    if remat and BACKEND == "tensorflow":
        # tf.recompute_grad of a function of variables refuses a gradient of its gradient.
        with pytest.raises(NotImplementedError, match="recompute_grad"):
            hessian_vector_product(model, list(right.values()), training=True)
        return
    product = hessian_vector_product(model, list(right.values()), training=remat)
    product = [to_numpy(part).astype("float64") for part in product]
    lefts = [direction(seed) for seed in (2000, 3000, 4000)]
    results = [sum(map(np.vdot, product, left.values())) for left in lefts]
    expected = np.array([curvature(model, left, right) for left in lefts])
    np.testing.assert_allclose(results, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.on_backend("jax")
@pytest.mark.parametrize("remat", [False, True])
def test_forward_mode_of_jax_agrees_with_the_gradient(remat):
    """`jvp` and `jacfwd`, and `linearize` without remat."""
    import jax

    model = random_tiny(remat=remat)
    values = [[v.value for v in model.trainable_variables], []]
    direction = normal(*IMAGES.shape, seed=5)

    def scalar(images):
        return (model.stateless_call(*values, images, training=remat)[0] ** 2).sum()

    @jax.jit
    def every_way():
        results = [
            jax.numpy.vdot(jax.grad(scalar)(IMAGES), direction),
            jax.jvp(scalar, (IMAGES,), (direction,))[1],
            jax.jacfwd(lambda t: scalar(IMAGES + t * direction))(0.0),
        ]
        if not remat:
            results.append(jax.linearize(scalar, IMAGES)[1](direction))
        return results

    backward, *forward = map(float, every_way())
    np.testing.assert_allclose(forward, backward, rtol=1e-4)


# torch.func refuses keras.remat and a step of Keras's convolution.
@pytest.mark.skipif("KERAS_VIT_KERNELS" in os.environ, reason="the reference is Keras's")
@pytest.mark.on_backend("torch")
@pytest.mark.parametrize("remat", [False, True])
def test_function_transforms_of_torch_agree_with_autograd(remat):
    """`torch.func.grad`, `jvp`, `vmap`, their compositions, and dual tensors."""
    import torch
    from torch.autograd import forward_ad

    model = random_tiny(remat=remat)
    images, direction = torch.from_numpy(IMAGES), torch.from_numpy(normal(2, 16, 16, 3, seed=5))

    def scalar(images):
        return model(images, training=remat).square().sum()

    at = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(scalar(at), at, create_graph=True)
    (second,) = torch.autograd.grad((gradient * direction).sum(), at)
    expected = float((gradient.detach() * direction).sum())

    def close(found, wanted):
        torch.testing.assert_close(found.detach(), wanted.detach(), rtol=1e-3, atol=1e-3)

    close(torch.func.grad(scalar)(images), gradient)
    gradients = torch.func.vmap(torch.func.grad(scalar), randomness="different")
    close(gradients(images[:, None])[:, 0], gradient)
    close(torch.func.jvp(scalar, (images,), (direction,))[1], torch.tensor(expected))
    close(torch.func.jvp(torch.func.grad(scalar), (images,), (direction,))[1], second)
    with forward_ad.dual_level():
        y = scalar(forward_ad.make_dual(images, direction))
        close(forward_ad.unpack_dual(y).tangent, torch.tensor(expected))


@pytest.mark.on_backend("torch")
def test_an_unknown_choice_of_kernels_is_refused(nursery):
    """The import of keras_vit fails with a message that names the choices."""
    chosen = {"KERAS_VIT_KERNELS": "slow"}
    process = nursery.run("-c", "import keras, keras_vit.layers", variables=chosen)
    assert process.returncode
    assert "KERAS_VIT_KERNELS is 'slow'; expected fast or reference" in process.stderr


# TensorFlow has few fast forms, and test_kernels.py compares JAX's with the reference.
@pytest.mark.on_backend(*sample(("torch", "jax"), "torch"))
@pytest.mark.skipif("KERAS_VIT_KERNELS" in os.environ, reason="runs these tests itself")
def test_the_reference_kernels_pass_tests_of_layers_and_derivatives(nursery):
    """The tests run again in a process with KERAS_VIT_KERNELS=reference."""
    skipped = [f"{name}-{kind}" for name in ("gap", "hybrid") for kind in ("kept", "remat")]
    skipped.append("map-remat")
    if BACKEND != "torch":  # the reference is one program of keras.ops; torch runs the rest of it
        skipped += ["map-kept", "token-remat"]
    chosen = [
        "tests/layers/test_attention.py",
        "tests/layers/test_transformer_block.py",
        *(["tests/layers/test_users_parts.py"] if BACKEND == "torch" else []),
        "tests/models/test_model.py::test_logits_equal_the_formulas",
        "tests/test_derivatives.py",
        # "token" and "map" have all layers but a hybrid's, which have no kernels. The other cells
        # compile for a minute on JAX.
        *(f"--deselect={SECOND}[{name}]" for name in skipped),
    ]
    options = ("-q", "-x", "-p", "no:cacheprovider")
    variables = {"KERAS_VIT_KERNELS": "reference"}
    process = nursery.run("-m", "pytest", *options, *chosen, cwd=ROOT, variables=variables)
    assert process.returncode == 0, process.stdout[-2000:]
