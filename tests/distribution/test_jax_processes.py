"""Two processes of JAX: equal to one process, in training, prediction, resuming and saving."""

import pytest

from tests.distribution.programs import findings
from tests.distribution.training import COUNTS

# keras.distribution is for JAX alone.
pytestmark = pytest.mark.on_backend("jax")


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What each of two processes has found."""
    return findings("tests.distribution.in_jax_processes", tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize("way", ["data", "fully sharded", "tensor"])
def test_two_processes_train_as_one(reports, way):
    """Each reads its share of the batches; with one copy of the model, both read all images."""
    count = 1 if way == "tensor" else 2
    assert [report["shards"][way] for report in reports] == [[k % count, count] for k in (0, 1)]
    for report in reports:
        assert max(report["ways"][way]) < 1e-5


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(
    ("finding", "most"),
    [*((f"{count} images", 1e-5) for count in COUNTS), ("resumed", 0), ("preset", 1e-6)],
)
def test_each_process_gets_what_one_process_gets(reports, index, finding, most):
    """From all functions that run a model, a resumed training, and a preset of a sharded model."""
    assert reports[index][finding] <= most


def test_the_first_process_writes_for_both(reports):
    """One process goes on with its state; where it cannot write, all learn it."""
    assert [report["files"] for report in reports] == [["state.safetensors"]] * 2
    assert reports[0]["resumed by one"] < 1e-5
    assert all("cannot be written" in sentence for sentence in reports[0]["unwritable"])
    assert all("process 0 could not write" in sentence for sentence in reports[1]["unwritable"])
