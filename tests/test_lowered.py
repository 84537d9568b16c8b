"""A program for an accelerator that was written on a CPU has the accelerator's forms."""

import keras
import pytest

from benchmarks import lowered

BACKEND = keras.backend.backend()
BLOCKS = 2
FIELDS = {
    "image_size": 56,
    "patch_size": 8,
    "hidden_size": 64,
    "mlp_dim": 128,
    "num_heads": 1,
    "num_layers": BLOCKS,
    "num_classes": 10,
}
MANY = {**FIELDS, "image_size": 280, "position": "learned"}
"""1,226 tokens, which CPUs compute block by block."""

pytestmark = pytest.mark.every_backend


@pytest.fixture(scope="module")
def programs():
    return lowered.programs(BACKEND, FIELDS, batch=3)


def test_only_the_head_multiplies_in_float32(programs):
    """The head and its two gradients; every product of the blocks is in bfloat16."""
    for (task, _), program in programs.items():
        assert program.float32_products == (1 if task == "forward" else 3)
        assert program.products > 6 * BLOCKS


def test_casts_and_transposes_are_few_and_nothing_calls_python(programs):
    """At most as many per block as in November 2026; weights are cast once each way."""
    most = {"jax": (30, 6, 80, 22), "torch": (30, 2, 60, 4), "tensorflow": (30, 5, 100, 9)}
    for (task, _), program in programs.items():
        casts, transposes = most[BACKEND][:2] if task == "forward" else most[BACKEND][2:]
        assert program.casts <= casts
        assert program.transposes <= transposes
        assert program.host_calls == 0 and program.constants < 4096


def test_no_form_for_cpus_is_in_a_program_for_accelerators(programs):
    many = lowered.programs(BACKEND, MANY, batch=1)
    for program in (*programs.values(), *many.values()):
        # torch's kernel has a second derivative by hand, which a step does not run.
        assert set(program.cpu_forms) <= {"_TwiceDifferentiableBackward"}


@pytest.mark.skipif(BACKEND == "tensorflow", reason="TensorFlow has no fused attention")
def test_attention_is_one_kernel_per_block(programs):
    """For the odd number of tokens too, 50, which JAX pads; with its gradient in training."""
    kernel = {"jax": "__cudnn$fmha", "torch": "_scaled_dot_product_flash"}[BACKEND]
    for (task, platform), program in programs.items():
        if platform in ("cuda+cudnn", "meta"):
            assert program.attention.count(kernel) == (1 if task == "forward" else 2)
            assert program.attention.count(" x 1") == (1 if task == "forward" else 2)


# JAX donates.
@pytest.mark.on_backend("jax")
def test_a_training_step_takes_the_memory_of_its_state(programs):
    """Each weight, its two moments, and few further numbers."""
    for (task, _), program in programs.items():
        weights = 16 * BLOCKS + 8
        assert program.donated >= 3 * weights if task == "train" else program.donated == 0


@pytest.mark.skipif(BACKEND == "tensorflow", reason="a graph keeps what its gradient reads")
def test_the_forward_pass_leaves_no_scores_for_the_gradient():
    """With the kernels of cuDNN and torch: the bytes grow with the tokens, not their square."""
    few, many = lowered.programs(BACKEND, FIELDS, 2), lowered.programs(BACKEND, MANY, 2)
    key = ("train", {"jax": "cuda+cudnn", "torch": "meta"}[BACKEND])
    assert many[key].saved / few[key].saved == pytest.approx(1226 / 50, rel=0.05)
