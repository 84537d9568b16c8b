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
from tests.runs import sample

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


def norms(module):
    return lambda x, gamma, beta: module.layer_norm(x, gamma, beta, 1e-6)


def attends(module):
    def attend(query, key, value, bias=None):
        bias = None if bias is None else keras.ops.cast(bias, "float32")
        return module.attention(query, key, value, bias)

    return attend


def rotates(neighbours):
    return lambda module: lambda x, table: module.rotate(x, table, neighbours)


def multiplies(axes):
    return lambda module: lambda x, kernel, bias=None: module.linear(x, kernel, bias, axes)


def activates(approximate):
    return lambda module: lambda x: module.gelu(x, approximate)


def draw(*shapes):
    """An array for each shape."""
    return [normal(*shape, seed=k) for k, shape in enumerate(shapes)]


def norm_inputs(*shape):
    """Values with a mean other than zero, a scale and a shift."""
    x, gamma, beta = draw(shape, shape[-1:], shape[-1:])
    return 2 + 3 * x, 1 + gamma, beta


FIVE, SEVEN, NINE = ((2, tokens, 3, 8) for tokens in (5, 7, 9))
FEW = np.concatenate([5 * normal(200), np.array([-100, -9, 0, 9, 100], "float32")])
"""Inputs of a GELU near zero, and large ones of both signs."""
MANY = np.resize(FEW, (1, 1205, 2))
CASES = {
    "norm of tokens": (norms, norm_inputs(2, 7, 24)),
    "norm of vectors": (norms, norm_inputs(3, 16)),
    "attention": (attends, draw(SEVEN, SEVEN, SEVEN)),
    "attention of one query": (attends, draw((2, 1, 3, 8), NINE, NINE)),
    "attention, bias for all images": (attends, draw(SEVEN, NINE, NINE, (1, 3, 7, 9))),
    "attention, bias for all queries": (attends, draw(SEVEN, NINE, NINE, (2, 1, 1, 9))),
    "attention, bias for each score": (attends, draw(SEVEN, NINE, NINE, (2, 3, 7, 9))),
    "rotation of neighbours": (rotates(True), draw(FIVE, (2, 5, 1, 8))),
    "rotation of neighbours by head": (rotates(True), draw(FIVE, FIVE)),
    "rotation of halves": (rotates(False), draw(FIVE, (2, 5, 1, 8))),
    "rotation of halves by head": (rotates(False), draw(FIVE, FIVE)),
    "linear to heads": (multiplies(1), draw((2, 5, 6), (6, 3, 4))),
    "linear to heads, bias": (multiplies(1), draw((2, 5, 6), (6, 3, 4), (3, 4))),
    "linear from heads": (multiplies(2), draw((2, 5, 3, 4), (3, 4, 6))),
    "linear from heads, bias": (multiplies(2), draw((2, 5, 3, 4), (3, 4, 6), (6,))),
    "patches, pixels left over": (lambda forms: forms.patches, draw((2, 8, 9, 3), (4, 3, 3, 5))),
    "patches of one channel": (lambda forms: forms.patches, draw((3, 7, 4, 1), (4, 3, 1, 5))),
    **{f"tanh gelu of {len(x)}": (activates(True), [x]) for x in (FEW, MANY)},
    **{f"exact gelu of {len(x)}": (activates(False), [x]) for x in (FEW, MANY)},
}
LINEAR = [name for name in CASES if name.startswith("linear")]
BY_DTYPE = [
    (name, dtype)
    for name in CASES
    for dtype in TOLERANCE
    if dtype != "float16" or not name.startswith(("attention", "rotation"))
]


@pytest.mark.parametrize(("name", "dtype"), sample(BY_DTYPE, *BY_DTYPE[::4]))
def test_a_kernel_equals_its_reference(name, dtype, monkeypatch):
    """Value and gradients; and in inference, where a form may write into arrays of its own."""
    monkeypatch.setattr(
        kernels._forms, "_PIECE", 64, raising=False
    )  # the torch kernel works in pieces; the last piece is smaller
    form, arrays = CASES[name]
    expected = check(form, arrays, dtype)
    tensors = [keras.ops.convert_to_tensor(array, dtype=dtype) for array in arrays]
    before = [to_numpy(tensor).copy() for tensor in tensors]
    with no_gradient():
        alone = form(kernels)(*tensors)
    assert_equal([to_numpy(alone)], expected[:1], TOLERANCE[dtype])
    for tensor, array in zip(tensors, before, strict=True):
        np.testing.assert_array_equal(to_numpy(tensor), array)


def no_gradient():
    """The context in which `predict` runs a model."""
    if keras.backend.backend() != "torch":
        return contextlib.nullcontext()
    import torch

    return torch.no_grad()


def few_scores(monkeypatch, most):
    """Lets attention form so many scores at once."""
    monkeypatch.setattr(reference, "MOST_SCORES", most)
    if keras.backend.backend() == "jax":
        import jax

        jax.clear_caches()  # an attention of these shapes may have been traced before


def biased(tokens, bias):
    """Queries, keys, values and perhaps a bias, whose sizes of -1 are the number of tokens."""
    shape = () if bias is None else [tuple(tokens if n < 0 else n for n in (*bias, -1))]
    return draw(*[(2, tokens, 3, 8)] * 3, *shape)


BIASES = [None, (1, 3, -1), (2, 1, 1)]
BLOCKS = [(bias, tokens) for bias in BIASES for tokens in (12, 13)]


@pytest.mark.parametrize(("bias", "tokens"), sample(BLOCKS, BLOCKS[3]), ids=str)
def test_attention_of_many_tokens_equals_its_reference(bias, tokens, monkeypatch):
    """Queries are processed in blocks, the last of which may be smaller."""
    few_scores(monkeypatch, 4 * tokens)
    check(attends, biased(tokens, bias), "float32")


IMAGES_IN_TURN = [(10**6, None), (10**6, (2, 1, 1)), (48, (1, 3, -1))]


@pytest.mark.on_backend("jax")
@pytest.mark.parametrize(("most", "bias"), IMAGES_IN_TURN, ids=str)
def test_attention_image_by_image_equals_its_reference(bias, most, monkeypatch):
    """Large batches are computed so; one bias for all images, and one for each."""
    import jax

    few_scores(monkeypatch, most)
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    monkeypatch.setattr(kernels._forms, "_KEPT_SCORES", 0)
    arrays = biased(12, bias)
    check(attends, arrays, "float32")
    program = jax.make_jaxpr(kernels.attention)(*arrays)
    assert "length=2" in str(program)  # a loop over the images


# JAX calls cuDNN.
@pytest.mark.on_backend("jax")
@pytest.mark.parametrize(("tokens", "others"), [(7, 7), (8, 6)])
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
    for array in value_and_gradients(norms(kernels), arrays, "float32"):
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
    """Casting and stateless calls; also after Keras forgot its state."""
    weight = keras.Variable([1.0])
    keras.utils.clear_session()
    assert kernels.tensor(weight) is weight.value
    with keras.src.backend.AutocastScope("float16"):
        assert read_dtype(kernels.tensor(weight)) == "float16"
    with keras.StatelessScope([(weight, keras.ops.convert_to_tensor([3.0]))]):
        assert float(kernels.tensor(weight)) == 3
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

print(statistics.median(mapped() for _ in range(3)))
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
