"""Two processes of torchrun train as one; `ddp` refuses what it cannot train."""

import keras
import pytest

from keras_vit import ConfigError, finetune
from keras_vit.distribution import ddp, process
from tests.distribution.programs import TORCHRUN, findings
from tests.helpers import tiny

on_torch = pytest.mark.skipif(keras.backend.backend() != "torch", reason="ddp is for torch.")


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What each of two processes has found."""
    module = "tests.distribution.in_torch_processes"
    return findings(*TORCHRUN, "-m", module, tmp_path_factory.mktemp("run"))


@on_torch
def test_two_processes_train_as_one(reports):
    """Each takes its rows of the mixed batches; clipping, accumulation and average are of all."""
    assert [report["shard"] for report in reports] == [[0, 2], [1, 2]]
    for report in reports:
        assert report["means"] == 1  # either Keras or the optimizer takes the mean of gradients
        assert report["loss"] < 1e-5
        assert report["state"] < 1e-5


@on_torch
def test_an_interrupted_training_of_two_processes_is_resumed_bit_by_bit(reports):
    """Process 0 has written the state for both."""
    for report in reports:
        assert report["files"] == ["state.safetensors"]
        assert report["resumed"] == 0


@on_torch
def test_a_batch_that_the_processes_do_not_divide_is_refused(reports):
    for report in reports:
        assert "2 devices or processes do not divide a batch" in report["batch"]


@on_torch
def test_a_last_batch_that_the_processes_do_not_divide_is_filled_up(reports):
    """The weights are those of one process."""
    for report in reports:
        assert report["whole passes"] < 1e-5


@on_torch
def test_all_processes_learn_that_the_first_cannot_write(reports):
    """The second process names the place, too."""
    assert "cannot be written" in reports[0]["unwritable"]
    assert "process 0 could not write" in reports[1]["unwritable"]


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
        model.compile(finetune.LayerwiseSGD(0.1), "mse")
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
    model.compile(finetune.LayerwiseSGD(0.1), "mse")
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
