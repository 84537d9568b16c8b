"""Products of bfloat16 on JAX: derivatives of every kind, and the form in a program for CPUs."""

import keras
import numpy as np
import pytest

from keras_vit.support.processor import processor
from tests.helpers import assert_close
from tests.plain import normal

pytestmark = pytest.mark.on_backend("jax")
if keras.backend.backend() == "jax":
    import jax
    import jax.numpy as jnp

    from keras_vit.kernels.jax import _product, linear

FORMS = ("nn", "tn", "nt")
TOLERANCE = 2e-2


def arrays(stack, form):
    """A left and a right matrix, and one of their product's shape."""
    left, right = {"nn": ((5, 7), (7, 3)), "tn": ((7, 5), (7, 3)), "nt": ((5, 7), (3, 7))}[form]
    shapes = (*stack, *left), (*stack, *right), (*stack, 5, 3)
    return [jnp.asarray(normal(*shape, seed=k), jnp.bfloat16) for k, shape in enumerate(shapes)]


def formula(left, right, form):
    """The product in float32."""
    left, right = left.astype("float32"), right.astype("float32")
    if form == "tn":
        left = jnp.swapaxes(left, -1, -2)
    return jnp.matmul(left, jnp.swapaxes(right, -1, -2) if form == "nt" else right)


def check(found, expected):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert_close(np.asarray(one, "float32"), np.asarray(other, "float32"), TOLERANCE)


@pytest.mark.parametrize("stack", [(), (2, 3)])
@pytest.mark.parametrize("form", FORMS)
def test_values_and_derivatives_are_those_of_the_formula(stack, form):
    """Backward, forward, in a program, and second derivatives."""
    left, right, dy = arrays(stack, form)

    def results(product):
        def call(left, right):
            return product(left, right, form).astype("bfloat16")

        def slope(left, right):
            energy = jax.grad(lambda *pair: (call(*pair).astype("float32") ** 2).sum())
            return (energy(left, right).astype("float32") ** 2).sum()

        y, pull = jax.vjp(call, left, right)
        forward = jax.jvp(call, (left, right), (left + 1, right - 1))[1]
        second = jax.jit(jax.grad(slope, (0, 1)))(left, right)
        return y, pull(dy), forward, jax.jit(call)(left, right), second

    check(results(_product), results(formula))


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 1)])
@pytest.mark.parametrize("form", FORMS)
def test_vmap_gives_the_products_of_the_parts(axes, form):
    pair = [
        x if axis is None else jnp.stack([x, -x, 2 * x], axis)
        for x, axis in zip(arrays((), form)[:2], axes, strict=True)
    ]

    def results(product):
        def total(left, right):
            call = jax.vmap(lambda *parts: product(*parts, form), axes)
            return (call(left, right).astype("float32") ** 2).sum()

        return jax.jit(jax.value_and_grad(total, (0, 1)))(*pair)

    check(results(_product), results(formula))


@pytest.mark.parametrize(
    ("platform", "results"), [("cpu", "f32"), ("cuda", "bf16"), ("tpu", "bf16")]
)
def test_every_product_has_float32_results_in_programs_for_cpus_alone(platform, results):
    left, right, dy = arrays((), "nn")

    def gradients(left, right, dy):
        return jax.vjp(_product, left, right)[1](dy)

    lowered = jax.jit(gradients).trace(left, right, dy).lower(lowering_platforms=(platform,))
    products = [line for line in lowered.as_text().splitlines() if "dot_general" in line]
    assert len(products) == 2
    assert all(line.endswith(f"x{results}>") and line.count("bf16") >= 2 for line in products)


@pytest.mark.parametrize("shape", [(7, 3), (7, 3, 1)])
def test_a_kernel_of_another_type_is_multiplied_in_the_wider_type(shape):
    x, kernel = jnp.asarray(normal(2, 7), jnp.bfloat16), jnp.asarray(normal(*shape))
    y = jax.jit(linear)(x, kernel, None)
    assert y.dtype == "float32"
    assert_close(np.asarray(y), np.tensordot(np.asarray(x, "float32"), np.asarray(kernel), 1))


@pytest.mark.skipif(
    "avx512_bf16" not in processor().flags or "amx_bf16" in processor().flags,
    reason="the fault was seen with AVX512-BF16 and without AMX",
)
def test_canary_xla_cannot_transpose_a_float32_result_of_bfloat16():
    """If this fails, see whether products of bfloat16 need their float32 result.

    With AVX512-BF16 a product of bfloat16 matrices uses these instructions only if its result is
    float32; otherwise both matrices are converted to float32, in twice the time.

    Expected: the product is computed, with any type of its result.
    Found: `UNIMPLEMENTED: Unsupported element type for DotThunk::Execute: BF16 x BF16 = F32`.
    """
    if jax.__version__ != "0.10.2":
        pytest.skip("the fault was seen in JAX 0.10.2")
    x, y = (jnp.ones(shape, "bfloat16") for shape in ((394, 384), (384, 384)))
    program = jax.jit(lambda x, y: jnp.matmul(x, y, preferred_element_type="float32").T)
    with pytest.raises(jax.errors.JaxRuntimeError, match="UNIMPLEMENTED"):
        jax.block_until_ready(program(x, y))
