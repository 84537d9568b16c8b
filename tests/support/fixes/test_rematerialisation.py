"""Canaries of the faults around rematerialisation and norms; each fails once its fault is gone.

The workarounds themselves are tested in tests/models/test_remat.py, test_kernels.py and
test_derivatives.py.
"""

import functools

import keras
import pytest

from tests.plain import normal

pytestmark = [pytest.mark.every_backend, pytest.mark.usefixtures("full_compilation")]
BACKEND = keras.backend.backend()
of_jax = pytest.mark.on_backend("jax")
of_tensorflow = pytest.mark.on_backend("tensorflow")
of_torch = pytest.mark.on_backend("torch")


def reserved(function, *shapes) -> int:
    """Bytes that XLA reserves for temporary arrays."""
    import jax

    arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    return jax.jit(function).lower(*arguments).compile().memory_analysis().temp_size_in_bytes


def share_of_memory(remat) -> float:
    """What `remat` leaves of the memory of a gradient through 8 functions of 4 arrays each."""
    import jax

    kernel = normal(64, 64) / 8

    def function(x):
        for _ in range(4):
            x = jax.numpy.sin(x @ kernel)
        return x

    def gradient(step):
        return jax.grad(lambda x: functools.reduce(lambda x, _: step(x), range(8), x).sum())

    kept, computed_again = (gradient(step) for step in (function, remat(function)))
    return reserved(computed_again, (512, 64)) / reserved(kept, (512, 64))


@of_jax
@pytest.mark.xfail(strict=True, raises=AssertionError, reason="A fault of jaxlib 0.10.2.")
def test_canary_xla_joins_the_second_run_of_checkpoint_with_the_first():
    """Passes when the fault is gone: call `jax.checkpoint` in kernels/jax.py then.

    The compiler for CPUs removes the barriers of `jax.checkpoint`, and joins the second run of a
    function with the first, whose arrays are all kept.

    Expected: a gradient reserves less than half of the memory with `jax.checkpoint`.
    Found: about the same.
    """
    import jax

    assert share_of_memory(jax.checkpoint) < 0.5


@of_jax
@pytest.mark.xfail(strict=True, raises=AssertionError, reason="A fault of jaxlib 0.10.2.")
def test_canary_xla_reserves_an_array_for_each_constant_of_a_gelu(monkeypatch):
    """Passes when the fault is gone: remove `kept_out_of_fusions` from kernels/jax.py then.

    Where the scores of attention are computed block by block, the compiler fuses the GELU of the
    last block with the products around it.

    Expected: a clamp to the finite numbers, which changes nothing, changes no memory.
    Found: 403 MB without it and 214 MB with it, for a hidden layer of 50 MB: an array is reserved
    for each constant of the GELU.
    """
    from keras_vit import VisionTransformer
    from keras_vit.support.fixes import xla_on_cpus

    model = VisionTransformer(
        image_size=(1024, 1024), patch_size=16, channels=1, hidden_size=384, mlp_dim=1536,
        num_heads=6, num_layers=2, num_classes=0,
    )  # fmt: skip
    shapes = [(1, 1024, 1024, 1), *(weight.shape for weight in model.weights)]

    def forward(images, *weights):
        return model.stateless_call(weights, [], images, training=False)[0]

    apart = reserved(forward, *shapes)
    monkeypatch.setattr(xla_on_cpus, "kept_out_of_fusions", lambda x: x)
    traced_anew = lambda *arrays: forward(*arrays)  # noqa: E731, PLW0108
    assert reserved(traced_anew, *shapes) < 1.1 * apart


@of_tensorflow
@pytest.mark.xfail(strict=True, raises=AssertionError, reason="A fault of Keras 3.15.1.")
def test_canary_moments_of_keras_hold_the_mean_for_a_constant():
    """Passes when the fault is gone: let `reference.normalise` call `ops.moments` then.

    `ops.moments` calls `tf.nn.moments`, which computes the variance around
    `tf.stop_gradient(mean)`: the second derivative lacks a term. The normalisation layers of Keras
    stand on it.

    Expected: the second derivatives of a variance of three numbers, 4/9 and -2/9.
    Found: 2/3, and 0 beside the diagonal.
    Remedy: compute the variance around the mean itself, as the backends of NumPy and JAX do.
    """
    import tensorflow as tf

    x = tf.constant([1.0, 2.0, 4.0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            variance = keras.ops.moments(x, axes=[0])[1]
        first = inner.gradient(variance, x)
    assert float(outer.jacobian(first, x)[0, 1]) == pytest.approx(-2 / 9)


@of_torch
def test_canary_keras_remat_calls_the_checkpoint_of_torch(monkeypatch):
    """Fails when Keras rematerialises otherwise: measure `fixes/torch_checkpoint.py` then.

    `torch.utils.checkpoint.checkpoint(use_reentrant=False)` records the first run and throws the
    record away. Its small objects lie between the arrays, so that the C library cannot use their
    room for the larger arrays of the next block.

    Expected: twelve blocks of width 768 take as much memory as with an autograd function whose
    forward pass runs without a record, 291 MB.
    Found: 532 MB; the twelve inputs take 85 MB.
    Remedy: run the first pass without hooks of saved tensors.
    """
    import torch

    calls = []
    checkpoint = torch.utils.checkpoint.checkpoint

    def spy(*args, **kwargs):
        calls.append(kwargs)
        return checkpoint(*args, **kwargs)

    monkeypatch.setattr(torch.utils.checkpoint, "checkpoint", spy)
    keras.remat(torch.sin)(torch.zeros(1, requires_grad=True)).backward()
    assert calls == [{"use_reentrant": False}]
