"""Several devices or processes give what one gives, in training, prediction, resuming, saving."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from keras_vit import distribution, training
from keras_vit.distribution.layouts import divided_axes
from keras_vit.errors import ConfigError
from tests.distribution.training import COUNTS, WAYS
from tests.helpers import tiny
from tests.light_compilation import FLAG
from tests.processes import python

pytestmark = [pytest.mark.every_backend]
ROOT = Path(__file__).parents[2]
on_jax = pytest.mark.on_backend("jax")
on_tensorflow = pytest.mark.on_backend("tensorflow")
on_torch = pytest.mark.on_backend("torch")


def run(*arguments, cwd=ROOT, **variables):
    """Runs Python on this backend, and returns what it prints."""
    chosen = {"KERAS_BACKEND": keras.backend.backend(), "OMP_NUM_THREADS": "1"}
    program = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **chosen, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert program.returncode == 0, program.stderr[-3000:]
    return program.stdout


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What each process of a program has found, by the name of the program."""
    found = {}

    def of(program):
        if program not in found:
            count = 8 if program == "jax_devices" else 2
            flags = f"--xla_force_host_platform_device_count={count} {FLAG}"
            folder = tmp_path_factory.mktemp(program)
            printed = run("-m", "tests.distribution.programs", program, folder, XLA_FLAGS=flags)
            found[program] = json.loads(printed.splitlines()[-1])  # libraries print lines before
        return found[program]

    return of


IMAGES = {f"{count} images": 1e-5 for count in COUNTS}
BOUNDS = {
    # Clipping, accumulation and the average act on the whole batch; a device keeps its share.
    "jax_devices": {
        **IMAGES,
        "whole passes": 1e-5,
        "LeJEPA": 1e-5,
        "data": 1e-5,
        "tensor": 1e-5,
        "fully sharded": 1e-5,
        "tensor and fully sharded": 1e-5,
        "share of tensor": 0.55,
        "share of fully sharded": 0.16,
        "share of tensor and fully sharded": 0.2,
        "orbax": 0,
        "after orbax": 1e-5,
    },
    "jax_processes": {
        **IMAGES,
        **dict.fromkeys(WAYS, 1e-5),
        "LeJEPA": 1e-5,
        "resumed": 0,
        "resumed by one": 1e-5,
        "preset": 1e-6,
    },
    # The summed gradient is clipped. Adam divides gradients by their size, and so amplifies the
    # rounding of small ones.
    "tensorflow_replicas": {
        **IMAGES,
        "whole passes": 1e-5,
        "losses of SGD": 1e-5,
        "variables of SGD": 1e-5,
        "replicas of SGD": 0,
        "losses of AdamW": 1e-4,
        "variables of AdamW": 2e-3,
        "replicas of AdamW": 0,
        "losses of LeJEPA": 1e-5,
        "variables of LeJEPA": 1e-5,
        "replicas of LeJEPA": 0,
    },
    "torch_processes": {"training": 1e-5, "LeJEPA": 1e-5, "resumed": 0, "whole passes": 1e-5},
    "torch_kills": {"killed": 0},
}
FACTS = {
    "jax_devices": lambda index: {"devices": 8},
    # With one copy of the model, both processes read all images.
    "jax_processes": lambda index: {
        "shards": {way: [0, 1] if way == "tensor" else [index, 2] for way in WAYS},
        "files": ["state.safetensors"],
    },
    "tensorflow_replicas": lambda index: {},
    # Either Keras or the optimizer takes the mean of gradients.
    "torch_processes": lambda index: {
        "shard": [index, 2],
        "files": ["state.safetensors"],
        "means": 1,
    },
    "torch_kills": lambda index: {},
}
UNWRITTEN = ("cannot be written", "process 0 could not write")
SAID = {
    "jax_devices": [["block_0/attention/query/kernel: .*num_heads=4", "divides the 8 devices"]],
    "jax_processes": [[words, words] for words in UNWRITTEN],
    "tensorflow_replicas": [["Keras accumulates no gradients on 2 replicas"]],
    "torch_processes": [
        ["2 devices or processes do not divide a batch", words] for words in UNWRITTEN
    ],
    "torch_kills": [[]],
}
# The short form of the kills is "resumed" of "torch_processes".
MARKS = {"torch_kills": [pytest.mark.on_backend("torch"), pytest.mark.nightly]}
every_program = pytest.mark.parametrize(
    "program",
    [
        pytest.param(name, marks=MARKS.get(name, pytest.mark.on_backend(name.partition("_")[0])))
        for name in BOUNDS
    ],
)


@every_program
def test_several_devices_get_what_one_gets(program, reports):
    """All functions that run a model, a training, its resumption by several or by one, a preset."""
    for report in reports(program):
        found = {name: report[name] for name in BOUNDS[program]}
        missed = {
            name: most
            for name, most in BOUNDS[program].items()
            if found[name] is not None and not found[name] <= most  # None: orbax is not installed
        }
        assert not missed, found


@every_program
def test_each_process_has_its_share_and_knows_what_failed(program, reports):
    """The first process writes for both; where it cannot write, all learn it."""
    for index, report in enumerate(reports(program)):
        assert report["facts"] == FACTS[program](index)
        for sentence, words in zip(report["said"], SAID[program][index], strict=True):
            assert re.search(words, sentence, re.DOTALL)


@pytest.mark.nightly
@on_torch
def test_the_program_of_the_page_runs_in_two_processes(tmp_path):
    """As it stands on the page, under torchrun."""
    section = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8").split("## PyTorch\n")[1]
    (tmp_path / "train.py").write_text(re.findall(r"```py\n(.*?)```", section, re.DOTALL)[0])
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    run(*torchrun, "train.py", cwd=tmp_path)
    assert (tmp_path / "preset" / "config.json").exists()


@on_jax
@pytest.mark.parametrize(
    ("path", "shape", "axes"),
    [
        ("block_0/mlp/dense_0/kernel", (8, 32), (None, "batch")),
        ("block_0/mlp/dense_0/bias", (32,), ("batch",)),
        ("block_0/attention/query/kernel", (8, 16, 4), (None, "batch", None)),
    ],
)
def test_without_tensor_parallelism_all_devices_divide_the_longest_axis(path, shape, axes):
    """The heads and the width of an MLP are free for them, as every other axis."""
    assert divided_axes(path, shape, {"batch": 8, "model": 1}, fully_sharded=True) == axes


@on_torch
def test_ddp_refuses_what_it_cannot_train():
    """FSDP, whose gradients Keras would not reduce; a plain optimizer; no torchrun."""
    import torch
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import init_device_mesh

    model = tiny()
    model.compile("sgd", "mse")
    with pytest.raises(ConfigError, match="compile_args"):
        distribution.ddp(model)
    model.compile(training.LayerwiseSGD(0.1), "mse")
    with pytest.raises(ConfigError, match="torchrun"):
        distribution.ddp(model)
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        with pytest.raises(ConfigError, match="FSDP"):
            distribution.ddp(model)
    finally:
        torch.distributed.destroy_process_group()


def test_other_backends_are_told_their_own_way():
    """`keras.distribution` would be ignored there; a process alone is the first of one."""
    assert distribution.process() == (0, 1)
    backend = keras.backend.backend()
    if backend != "jax":
        for make in (distribution.data_parallel, distribution.tensor_parallel):
            with pytest.raises(ConfigError, match="only for JAX"):
                make()
    if backend != "torch":
        with pytest.raises(ConfigError, match="data_parallel .*MirroredStrategy"):
            distribution.ddp(None)


NOT_DIVIDED = """
import keras
import numpy as np

keras.distribution.set_distribution(keras.distribution.DataParallel())
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.predict(np.ones((9, 4), "float32"), batch_size=8, verbose=0)
"""


@on_jax
def test_canary_keras_refuses_a_batch_that_the_devices_do_not_divide():
    """If this fails, the inference function need not fill batches up.

    Expected: `predict` of nine rows in batches of eight on eight devices gives nine rows.
    Found: `ValueError`, and the model has lost its weights.
    Remedy: fill the batch up with empty rows, and cut them from the outputs.
    """
    flags = "--xla_force_host_platform_device_count=8"
    process = python(NOT_DIVIDED, KERAS_BACKEND="jax", XLA_FLAGS=flags)
    assert "the dimension size is 1" in process.stderr


@on_tensorflow
def test_canary_keras_clips_before_it_sums():
    """When Keras sums the gradients of replicas first, the sum in optimizers.py can go.

    `BaseOptimizer` clips the gradients of each replica, and `TFOptimizer` sums them in
    `_backend_update_step` afterwards. With `gradient_accumulation_steps` its `merge_call` raises.

    Expected: under a `MirroredStrategy` of two devices an update with `global_clipnorm=1` has the
    norm 1, as on one device.
    Found: it has the norm 2, without a word.
    Remedy: sum at the start of `_backend_apply_gradients`; then clip, accumulate and update.
    """
    import inspect

    from keras.src.backend.tensorflow.optimizer import TFOptimizer

    assert "_all_reduce_sum_gradients" in inspect.getsource(TFOptimizer._backend_update_step)
