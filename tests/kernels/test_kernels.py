"""The fast kernels of a block equal their reference in value and gradient."""

import contextlib
import platform

import keras
import numpy as np
import pytest

from keras_vit import kernels
from keras_vit.kernels import reference
from tests.helpers import output_and_gradients, read_dtype, to_numpy
from tests.plain import normal

pytestmark = [pytest.mark.every_backend, pytest.mark.usefixtures("full_compilation")]

TOLERANCE = {"float32": 1e-6, "bfloat16": 2e-2, "float16": 2e-3}
"""Largest error per type, relative to the largest value of an output or gradient."""


def value_and_gradients(function, arrays, dtype):
    """The output, and the gradients of a fixed weighted sum of it, as float32 arrays."""
    inputs = [keras.ops.convert_to_tensor(array, dtype=dtype) for array in arrays]

    def weighted(*tensors):
        output = function(*tensors)
        weights = keras.ops.convert_to_tensor(normal(*output.shape, seed=9), dtype="float32")
        return keras.ops.sum(keras.ops.cast(output, "float32") * weights), output

    output, gradients = output_and_gradients(weighted, inputs)
    assert read_dtype(output) == dtype
    return [to_numpy(tensor) for tensor in (output, *gradients)]


def assert_equal(found, expected, tolerance):
    """Fails if an array differs by more than the tolerance times its largest value."""
    for got, want in zip(found, expected, strict=True):
        assert np.abs(got - want).max() <= tolerance * np.abs(want).max()


def check(form, arrays, dtype):
    """Compares `form(kernels)` with `form(reference)` on the rounded arrays; returns the latter.

    Args:
        form: a function from a module of operations to a function of the arrays.
    """
    rounded = [to_numpy(keras.ops.convert_to_tensor(array, dtype=dtype)) for array in arrays]
    found = value_and_gradients(form(kernels), arrays, dtype)
    expected = value_and_gradients(form(reference), rounded, "float32")
    assert_equal(found, expected, TOLERANCE[dtype])
    return expected


def read_norm(module):
    return lambda x, gamma, beta: module.layer_norm(x, gamma, beta, 1e-6)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(2, 7, 24), (3, 16)])
def test_layer_norm_equals_its_reference(shape, dtype):
    """Tokens and single vectors with a mean other than zero, against float32."""
    arrays = [2 + 3 * normal(*shape), 1 + normal(shape[-1], seed=1), normal(shape[-1], seed=2)]
    check(read_norm, arrays, dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("tokens", "others"), [(7, 7), (1, 9)])
def test_attention_equals_its_reference(tokens, others, dtype):
    """Self-attention, and one query over other tokens, as in a MAP head."""
    query = normal(2, tokens, 3, 8)
    arrays = [query, normal(2, others, 3, 8, seed=1), normal(2, others, 3, 8, seed=2)]
    check(lambda forms: forms.attention, arrays, dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("bias", [(1, 3, 7, 9), (2, 1, 1, 9), (2, 3, 7, 9)], ids=str)
def test_attention_with_a_bias_equals_its_reference(bias, dtype):
    """A table for all images, a row for all queries, and one number for each score."""
    arrays = [normal(2, 7, 3, 8), normal(2, 9, 3, 8, seed=1), normal(2, 9, 3, 8, seed=2)]
    arrays.append(normal(*bias, seed=3))
    expected = check(lambda forms: forms.attention, arrays, dtype)
    tensors = [keras.ops.convert_to_tensor(array, dtype=dtype) for array in arrays]
    with no_gradient():
        alone = kernels.attention(*tensors[:3], bias=keras.ops.cast(tensors[3], "float32"))
    assert_equal([to_numpy(alone)], expected[:1], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("neighbours", [True, False])
@pytest.mark.parametrize("heads_of_table", [1, 3])
def test_rotation_equals_its_reference(heads_of_table, neighbours, dtype):
    """With gradients, and in inference, where torch's form writes into one array."""
    arrays = [normal(2, 5, 3, 8), normal(2, 5, heads_of_table, 8, seed=1)]

    def of(module):
        return lambda x, table: module.rotate(x, table, neighbours)

    expected = check(of, arrays, dtype)
    x, table = (keras.ops.convert_to_tensor(array, dtype=dtype) for array in arrays)
    with no_gradient():
        alone = of(kernels)(x, table)
    assert_equal([to_numpy(alone)], expected[:1], TOLERANCE[dtype])
    unchanged = keras.ops.convert_to_tensor(arrays[0], dtype=dtype)
    np.testing.assert_array_equal(to_numpy(x), to_numpy(unchanged))


linear_shapes = pytest.mark.parametrize(
    ("x", "kernel", "axes"), [((2, 5, 6), (6, 3, 4), 1), ((2, 5, 3, 4), (3, 4, 6), 2)]
)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("with_bias", [True, False])
@linear_shapes
def test_linear_equals_its_reference(x, kernel, axes, with_bias, dtype):
    """From the width to heads and from heads to the width, with and without a bias."""
    check_linear(x, kernel, axes, with_bias, dtype)


def check_linear(x, kernel, axes, with_bias, dtype):
    """Compares the products of kernels with those of the reference."""
    arrays = [normal(*x), normal(*kernel, seed=1)]
    arrays += [normal(*kernel[axes:], seed=2)] if with_bias else []

    def of(module):
        return lambda x, kernel, bias=None: module.linear(x, kernel, bias, axes)

    check(of, arrays, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("images", [(2, 8, 9, 3), (3, 7, 4, 1)])
def test_patches_equal_their_reference(images, dtype):
    """Whole numbers of patches and pixels left over, several channels and one."""
    arrays = [normal(*images), normal(4, 3, images[-1], 5, seed=1)]
    check(lambda forms: forms.patches, arrays, dtype)


# The other forms are Keras's.
@pytest.mark.on_backend("torch")
def test_images_smaller_than_a_patch_are_refused():
    """With the message of torch's convolution, as before an image is cut."""
    images, kernel = (keras.ops.convert_to_tensor(normal(*s)) for s in ((2, 3, 8, 3), (4, 4, 3, 5)))
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        kernels.patches(images, kernel)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("approximate", [True, False])
@pytest.mark.parametrize("shape", [(205,), (1, 1205, 2)], ids=["few", "many tokens"])
def test_gelu_equals_its_reference(shape, approximate, dtype, monkeypatch):
    """Near zero and at large inputs of both signs, with and without gradients."""
    monkeypatch.setattr(
        kernels._forms, "_PIECE", 64, raising=False
    )  # the torch kernel works in pieces; the last piece is smaller
    numbers = np.concatenate([5 * normal(200), np.array([-100, -9, 0, 9, 100], "float32")])
    arrays = [np.resize(numbers, shape)]
    check(lambda forms: lambda x: forms.gelu(x, approximate), arrays, dtype)
    alone = to_numpy(kernels.gelu(keras.ops.convert_to_tensor(arrays[0]), approximate))
    want = to_numpy(reference.gelu(keras.ops.convert_to_tensor(arrays[0]), approximate))
    np.testing.assert_allclose(alone, want, atol=1e-6, rtol=1e-6)
    spent = keras.ops.convert_to_tensor(arrays[0].copy())
    np.testing.assert_array_equal(to_numpy(kernels.gelu(spent, approximate)), alone)


def no_gradient():
    """The context in which `predict` runs a model."""
    if keras.backend.backend() != "torch":
        return contextlib.nullcontext()
    import torch

    return torch.no_grad()


@pytest.mark.parametrize("tokens", [12, 13])
@pytest.mark.parametrize("bias", [None, (1, 3, -1), (2, 1, 1)], ids=str)
def test_attention_of_many_tokens_equals_its_reference(bias, tokens, monkeypatch):
    """Queries are processed in blocks, the last of which may be smaller."""
    monkeypatch.setattr(reference, "MOST_SCORES", 4 * tokens)
    if keras.backend.backend() == "jax":
        import jax

        jax.clear_caches()  # an attention of this shape may have been traced before
    arrays = [normal(2, tokens, 3, 8, seed=seed) for seed in range(3)]
    if bias is not None:
        shape = [tokens if size < 0 else size for size in bias]
        arrays.append(normal(*shape, tokens, seed=3))
    check(lambda forms: forms.attention, arrays, "float32")


@pytest.mark.on_backend("jax")
@pytest.mark.parametrize("most", [10**6, 48], ids=["few tokens", "many tokens"])
@pytest.mark.parametrize("bias", [None, (1, 3, 12), (2, 1, 1)], ids=str)
def test_attention_image_by_image_equals_its_reference(bias, most, monkeypatch):
    """Large batches are computed so; one bias for all images, and one for each."""
    import jax

    jax.clear_caches()  # an attention of this shape may have been traced before
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    monkeypatch.setattr(kernels._forms, "_KEPT_SCORES", 0)
    monkeypatch.setattr(reference, "MOST_SCORES", most)
    arrays = [normal(2, 12, 3, 8, seed=seed) for seed in range(3)]
    arrays += [] if bias is None else [normal(*bias, 12, seed=3)]
    check(lambda forms: forms.attention, arrays, "float32")
    program = jax.make_jaxpr(kernels.attention)(*arrays)
    assert "length=2" in str(program)  # a loop over the images


# JAX calls cuDNN.
@pytest.mark.on_backend("jax")
@pytest.mark.parametrize(("tokens", "others"), [(7, 7), (8, 6), (1, 4)])
def test_the_token_that_cudnn_gets_in_addition_changes_nothing(tokens, others, monkeypatch):
    """XLA computes the same call here: values and gradients for odd and even numbers of tokens."""
    import jax

    from keras_vit.kernels.jax import _by_cudnn

    attend, called = jax.nn.dot_product_attention, []

    def by_xla(query, *arguments, implementation, **lengths):
        called.append((query.shape[1], implementation))
        return attend(query, *arguments, **lengths)

    monkeypatch.setattr(jax.nn, "dot_product_attention", by_xla)
    arrays = [normal(2, n, 3, 8, seed=n) for n in (tokens, others, others)]
    found = value_and_gradients(_by_cudnn, arrays, "float32")
    assert_equal(found, value_and_gradients(reference.attention, arrays, "float32"), 1e-6)
    assert set(called) == {(tokens + tokens % 2, "cudnn")}


# torch's form has a gradient of ours.
@pytest.mark.on_backend("torch")
@pytest.mark.parametrize("bias", [(1, 2, 3, 3), (2, 1, 1, 3)])
def test_attention_with_a_bias_has_second_derivatives(bias):
    """By queries, keys, values and bias."""
    import torch

    def second(function):
        shapes = [(2, 3, 2, 4)] * 3 + [bias]
        tensors = [torch.from_numpy(normal(*s, seed=i)) for i, s in enumerate(shapes)]
        tensors = [tensor.requires_grad_() for tensor in tensors]
        total = function(*tensors).square().sum()
        first = torch.autograd.grad(total, tensors, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), tensors)

    assert_equal(second(kernels.attention), second(reference.attention), 1e-5)


def test_the_gradient_of_a_constant_token_is_finite():
    """The variance is zero, so only epsilon is under the root."""
    arrays = [np.ones((1, 2, 8), "float32"), normal(8), normal(8, seed=1)]
    for array in value_and_gradients(read_norm(kernels), arrays, "float32"):
        assert np.isfinite(array).all()


@pytest.mark.parametrize("seed", [7, 2**32 - 5, None])
def test_uniform_draws_the_numbers_of_its_reference(seed):
    """Bit by bit; two draws from a seed generator agree too."""
    one, other = (keras.random.SeedGenerator(3) if seed is None else seed for _ in range(2))
    for _ in range(2):
        found = to_numpy(kernels.uniform((5, 3), 0.3, one))
        np.testing.assert_array_equal(found, to_numpy(reference.uniform((5, 3), 0.3, other)))
        assert 0.1 < np.abs(found).max() <= 0.3


@pytest.mark.on_backend("torch")
def test_a_weight_on_torch_has_the_value_that_a_scope_gives_it():
    """Casting, stateless calls, devices and subclasses; also after Keras forgot its state."""

    class Doubled(keras.Variable):
        @property
        def value(self):
            return 2 * super().value

    weight, doubled = keras.Variable([1.0]), Doubled([1.0])
    keras.utils.clear_session()
    assert kernels.tensor(weight) is weight.value
    assert float(kernels.tensor(doubled)) == 2
    with keras.src.backend.AutocastScope("float16"):
        assert read_dtype(kernels.tensor(weight)) == "float16"
    with keras.StatelessScope([(weight, keras.ops.convert_to_tensor([3.0]))]):
        assert float(kernels.tensor(weight)) == 3
    with keras.device("meta"):
        assert kernels.tensor(weight).device.type == "meta"
    weight.assign([4.0])
    assert float(kernels.tensor(weight)) == 4


MEMORY = """
import resource, statistics
import keras_vit, numpy as np

model = keras_vit.vit_s16(num_layers=2)
images = np.zeros((8, 224, 224, 3), "float32")

def mapped():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    model.inference.run(model, images)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(statistics.median(mapped() for _ in range(9)))
"""


@pytest.mark.skipif(
    keras.backend.backend() != "torch" or platform.libc_ver()[0] != "glibc",
    reason="glibc returns the memory of torch's arrays",
)
def test_freed_arrays_serve_the_next_forward_pass(nursery):
    """Counts the pages of 4 kB that the system maps: 8,000 to 12,000 without the kept memory."""
    process = nursery.run("-c", MEMORY)
    assert process.returncode == 0, process.stderr
    assert float(process.stdout) < 3_000
