"""Numbers of a GPU beside the references: `make bench-gpu`, or pytest -m gpu tests/test_gpu.py."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import kernels
from keras_vit.kernels import reference
from tests import golden
from tests.helpers import tiny, to_numpy
from tests.kernels.test_kernels import value_and_gradients
from tests.plain import normal

BACKEND = keras.backend.backend()


def _has_gpu() -> bool:
    if BACKEND == "torch":
        import torch

        return torch.cuda.is_available()
    if BACKEND == "jax":
        import jax

        return jax.default_backend() == "gpu"
    return False


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not _has_gpu(), reason=f"{BACKEND} has found no GPU"),
]


@pytest.fixture(autouse=True)
def exact_products():
    """Products of float32 in float32; GPUs have a quicker form with 10 bits of mantissa."""
    if BACKEND == "jax":
        import jax

        with jax.default_matmul_precision("highest"):
            yield
        return
    import torch

    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "mixed_bfloat16"])
@pytest.mark.parametrize("name", sorted(golden.OFFICIAL)[::2])
def test_logits_equal_those_of_the_official_code(name, dtype):
    want = golden.expected(name)
    output = "logits" if "logits" in want else "encoded"
    got = golden.outputs(golden.load_case(name, dtype=dtype), want["image"], [output])[output]
    tolerance = 2 * golden.CASES[name]["tolerance"] if dtype == "float32" else 5e-2
    assert golden.relative_error(got, want[output]) <= tolerance


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("tokens", "others"), [(197, 197), (196, 196), (1, 197), (1370, 1370)])
def test_attention_has_the_values_and_gradients_of_its_reference(tokens, others, dtype):
    """Odd numbers of tokens too, which cuDNN gets with one more."""
    arrays = [normal(2, n, 3, 64, seed=n) for n in (tokens, others, others + 1)]
    arrays[2] = arrays[2][:, :others]
    found = value_and_gradients(kernels.attention, arrays, dtype)
    expected = value_and_gradients(reference.attention, arrays, "float32")
    limit = {"float32": 1e-5, "bfloat16": 3e-2, "float16": 5e-3}[dtype]
    for got, want in zip(found, expected, strict=True):
        assert np.abs(got - want).max() <= limit * np.abs(want).max()


@pytest.mark.parametrize("remat", [False, True])
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_training_learns_with_and_without_remat(policy, remat):
    """Remat changes no weight by more than rounding."""
    images, labels = normal(16, 32, 32, 3), np.arange(16) % 10
    trained = []
    for again in {remat, False}:
        keras.utils.set_random_seed(1)
        model = tiny(remat=again, dtype=policy, image_size=32, num_classes=10)
        model.compile(keras.optimizers.Adam(3e-3), keras.losses.SparseCategoricalCrossentropy(True))
        losses = model.fit(images, labels, epochs=8, shuffle=False, verbose=0).history["loss"]
        assert losses[-1] < losses[0]
        trained.append([to_numpy(variable) for variable in model.trainable_variables])
    for one, other in zip(*trained * (3 - len(trained)), strict=False):
        assert np.abs(one - other).max() <= (1e-4 if policy == "float32" else 2e-2)


@pytest.mark.on_backend("torch")
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_torch_compile_changes_no_logits(policy):
    import torch

    model = keras_vit.VisionTransformer.from_preset("vit_digits", dtype=policy)
    images = keras.ops.convert_to_tensor(normal(4, *model.input_shape[1:]))
    with torch.no_grad():
        plain, compiled = (to_numpy(f(images)) for f in (model, torch.compile(model)))
    assert golden.relative_error(compiled, plain) <= (1e-5 if policy == "float32" else 3e-2)
