"""`Rows` writes an array row by row; the file is whole or absent after any interruption."""

import json
import shutil

import numpy as np
import pytest

from keras_vit import ConfigError
from keras_vit.evaluation import rows as rows_module
from keras_vit.evaluation.rows import Rows

pytestmark = pytest.mark.without_backend

CHUNKS = [np.random.default_rng(k).random((n, 3), "float32") for k, n in enumerate((4, 4, 1, 4, 2))]


@pytest.fixture(autouse=True)
def every_step_is_recorded(monkeypatch):
    monkeypatch.setattr(rows_module, "_SECONDS", 0.0)


def write(path, chunks=CHUNKS, task=None, after=lambda rows: None):
    """Writes the missing chunks; returns the number of chunks that a run before has written."""
    with Rows(path, task or {"of": "test"}) as rows:
        begun = rows.done
        for k, chunk in list(enumerate(chunks))[begun:]:
            rows.append(chunk, 1, [[k, "seen"]])
            after(rows)
        rows.finish().replace(path)
        notes = list(rows.notes)
        rows.clear()
    assert notes == [[k, "seen"] for k in range(len(chunks))]
    return begun


def test_the_result_is_a_plain_npy_file(tmp_path):
    """`numpy.load` reads it, also with a structured dtype; no temporary file is left."""
    write(tmp_path / "x.npy")
    assert np.array_equal(np.load(tmp_path / "x.npy"), np.concatenate(CHUNKS))
    records = np.zeros(5, [("values", "<f4", (2,)), ("labels", "<i4")])
    write(tmp_path / "y.npy", [records, records])
    assert np.load(tmp_path / "y.npy").dtype == records.dtype
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.npy", "y.npy"]


def test_a_run_resumed_after_any_chunk_writes_the_same_bytes(tmp_path):
    """Copies of the files after each chunk are resumed; every other one ends in a torn row."""
    write(tmp_path / "whole.npy")
    expected = (tmp_path / "whole.npy").read_bytes()
    states = []

    def keep(rows):
        states.append(tmp_path / f"state{len(states)}")
        states[-1].mkdir()
        for name in ("x.npy.part", "x.npy.part.json"):
            shutil.copy(tmp_path / name, states[-1])

    write(tmp_path / "x.npy", after=keep)
    assert len(states) == len(CHUNKS)
    for done, state in enumerate(states, start=1):
        if done % 2:
            with (state / "x.npy.part").open("ab") as part:
                part.write(b"torn row")
        assert write(state / "x.npy") == done
        assert (state / "x.npy").read_bytes() == expected
        assert [p.name for p in state.iterdir()] == ["x.npy"]


def test_an_exception_keeps_the_chunks_that_were_written(tmp_path):
    """The next run resumes after them; the final name exists only once the file is whole."""

    def stop(rows):
        if rows.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "x.npy", after=stop)
    assert not (tmp_path / "x.npy").exists()
    assert write(tmp_path / "x.npy") == 3
    assert np.array_equal(np.load(tmp_path / "x.npy"), np.concatenate(CHUNKS))


def test_rows_that_were_lost_are_written_again(tmp_path):
    """A record of two chunks beside an empty file is ignored."""
    (tmp_path / "x.npy.part").write_bytes(b"")
    record = {"bytes": 999, "done": 2, "count": 8, "notes": [], "task": {"of": "test"}}
    (tmp_path / "x.npy.part.json").write_text(json.dumps(record))
    assert write(tmp_path / "x.npy") == 0


def test_a_run_that_cannot_be_resumed_is_refused(tmp_path):
    """Another task, a damaged record, a second writer of the file, and a run without rows."""
    path = tmp_path / "x.npy"
    with Rows(path, {"of": "test", "layer": 1}) as rows:
        rows.append(CHUNKS[0], 1)
        with pytest.raises(ConfigError, match="another process is writing"), Rows(path, {}):
            pass
    with pytest.raises(ConfigError, match="beginning of another run: other layer"):
        write(path, task={"of": "test", "layer": 2})
    (tmp_path / "x.npy.part.json").write_text("{")
    with pytest.raises(ConfigError, match="damaged"):
        write(path)
    with pytest.raises(ConfigError, match="nothing to write"), Rows(tmp_path / "y", {}) as rows:
        rows.finish()
