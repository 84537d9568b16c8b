"""`Parts` keeps the rows of an array in steps; an interrupted run continues."""

import shutil

import numpy as np
import pytest

from keras_vit.errors import ConfigError
from keras_vit.evaluation import parts as parts_module
from keras_vit.evaluation.parts import Parts

CHUNKS = [np.random.default_rng(k).random((n, 3), "float32") for k, n in enumerate((4, 0, 1, 4, 2))]


@pytest.fixture(autouse=True)
def every_step_has_a_file(monkeypatch):
    monkeypatch.setattr(parts_module, "_SECONDS", 0.0)


def write(path, chunks=CHUNKS, task=None, after=lambda parts: None):
    """Writes the missing chunks; returns the number of chunks that a run before has written."""
    with Parts(path, task or {"of": "test"}) as parts:
        begun = parts.inputs
        for k, chunk in list(enumerate(chunks))[begun:]:
            parts.append(chunk, 1, [[k, "seen"]])
            after(parts)
        parts.finish()
    assert parts.notes == [[k, "seen"] for k in range(len(chunks))]
    return begun


def test_a_run_resumed_after_any_chunk_writes_the_same_bytes(tmp_path):
    """Also if a write holds several chunks, and if it was interrupted before its record."""
    write(tmp_path / "whole.npy")
    assert np.array_equal(np.load(tmp_path / "whole.npy"), np.concatenate(CHUNKS))
    states = []

    def keep(parts):
        states.append(tmp_path / f"state{len(states)}")
        shutil.copytree(tmp_path / "x.npy.part", states[-1] / "x.npy.part")
        with (states[-1] / "x.npy.part" / "rows.npy").open("ab") as file:
            file.write(b"torn")
        parts_module._SECONDS = 1e9 if len(states) % 2 else 0.0

    write(tmp_path / "x.npy", after=keep)
    for state, begun in zip(states, (1, 1, 3, 3, 5), strict=True):
        assert write(state / "x.npy") == begun
        assert (state / "x.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
        assert [p.name for p in state.iterdir()] == ["x.npy"]


def test_a_run_that_cannot_be_resumed_is_refused(tmp_path):
    """A damaged file, or a second writer; test_embedding has another task."""
    path = tmp_path / "x.npy"
    with Parts(path, {"layer": 1}) as parts:
        parts.append(CHUNKS[0], 1)
        with pytest.raises(ConfigError, match="another process is writing"), Parts(path, {}):
            pass
    for name in ("rows.npy", "record.json"):
        (tmp_path / "x.npy.part" / name).write_bytes(b"{}")
        with pytest.raises(ConfigError, match=r"x.npy.part is damaged .* Remove it"):
            write(path, task={"layer": 1})
