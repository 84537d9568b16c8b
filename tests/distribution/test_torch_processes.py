"""Two processes of torchrun train as one; `ddp` refuses what it cannot train."""

import keras
import pytest

from keras_vit import training
from keras_vit.distribution import ddp, process
from keras_vit.errors import ConfigError
from tests.distribution.programs import TORCHRUN, findings
from tests.helpers import tiny

pytestmark = pytest.mark.every_backend

# ddp is for torch.
on_torch = pytest.mark.on_backend("torch")


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What each of two processes has found."""
    module = "tests.distribution.in_torch_processes"
    return findings(*TORCHRUN, "-m", module, tmp_path_factory.mktemp("run"))


@on_torch
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(
    ("finding", "most"), [("loss", 1e-5), ("state", 1e-5), ("resumed", 0), ("whole passes", 1e-5)]
)
def test_two_processes_train_and_resume_as_one(reports, index, finding, most):
    """With clipping, accumulation and averages, mixed batches, and a last batch that is filled up.

    A training that was interrupted ends bit by bit like the unbroken one.
    """
    assert reports[index][finding] <= most


@on_torch
@pytest.mark.parametrize("index", [0, 1])
def test_each_process_has_its_share_and_knows_what_failed(reports, index):
    """Process 0 has written the state for both, and the second names a place too."""
    report = reports[index]
    assert report["shard"] == [index, 2]
    assert report["means"] == 1  # either Keras or the optimizer takes the mean of gradients
    assert report["files"] == ["state.safetensors"]
    assert "2 devices or processes do not divide a batch" in report["batch"]
    assert ("process 0 could not write", "cannot be written")[index == 0] in report["unwritable"]


@on_torch
def test_after_a_killed_process_a_second_start_ends_like_an_unbroken_run(tmp_path):
    """Two kills: of one process, and of both; `python -m tests.distribution.kills` makes 20."""
    counts = findings("tests.distribution.kills", tmp_path, "--kills", 2)
    assert counts["one killed"] == counts["all killed"] == 1
    assert counts["equal"] >= 1
    assert counts["different"] == 0


@on_torch
def test_fsdp_is_refused():
    """It shards parameters of torch, whose gradients the optimizer of Keras would not reduce."""
    import torch
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import init_device_mesh

    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    try:
        model = tiny()
        model.compile(training.LayerwiseSGD(0.1), "mse")
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        with pytest.raises(ConfigError, match="FSDP"):
            ddp(model)
    finally:
        torch.distributed.destroy_process_group()


@on_torch
def test_ddp_refuses_what_it_cannot_train():
    """Another optimizer, and a process that torchrun did not start."""
    model = tiny()
    model.compile("sgd", "mse")
    with pytest.raises(ConfigError, match="compile_args"):
        ddp(model)
    model.compile(training.LayerwiseSGD(0.1), "mse")
    with pytest.raises(ConfigError, match="torchrun"):
        ddp(model)


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="torch has ddp.")
def test_other_backends_are_told_their_own_way():
    """The message names the function for JAX and the strategy for TensorFlow."""
    with pytest.raises(ConfigError, match="data_parallel .*MirroredStrategy"):
        ddp(None)


def test_a_process_alone_is_the_first_of_one():
    """No library of processes is started for it."""
    assert process() == (0, 1)
