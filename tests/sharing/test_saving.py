"""A save that is killed leaves the old preset, the new preset or no preset, never a part."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

from keras_vit import checkpoints
from keras_vit.checkpoints import inspect
from keras_vit.checkpoints.opening import open_source
from keras_vit.files import OpenFolder
from keras_vit.sources.source import Source
from tests.helpers import tiny
from tests.thorough import KILLS

SAVE = """
import os, signal, sys
import keras_vit
fields = {"image_size": 32, "patch_size": 8, "hidden_size": 128, "mlp_dim": 256, "num_heads": 2,
          "num_layers": 4, "num_classes": 5}
models = {}
for k in range(2):
    models[k] = keras_vit.VisionTransformer(**fields, provenance={"k": k})
    for weight in models[k].weights:
        weight.assign(0 * weight + k)
models[0].save_to_preset(sys.argv[1])  # what is imported late is imported
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        k, kind = line.split()
        models[int(k)].save_to_preset(sys.argv[1])
        if kind == "wait":  # to be killed, if that has not happened yet
            signal.pause()
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("gone", flush=True)
"""


def whole(folder) -> int | None:
    """The number of the model that a folder holds whole; None if there is no folder."""
    if not folder.exists():
        return None
    k = inspect(folder).provenance["k"]
    values = {
        float(v) for a in load_file(folder / "model.safetensors").values() for v in np.unique(a)
    }
    assert values == {float(k)}
    assert f"- k: {k}" in (folder / "README.md").read_text()
    return k


@pytest.fixture
def saver(tmp_path):
    """A process that saves model 0 or 1 on command, each time in a forked child.

    It runs Keras's NumPy backend, which has no threads that a fork would lose.
    """
    variables = {**os.environ, "KERAS_BACKEND": "numpy"}
    with subprocess.Popen(
        [sys.executable, "-c", SAVE, tmp_path / "mine"],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="runs once, from torch")
def test_a_save_killed_at_any_moment_leaves_a_whole_preset_or_none(saver, tmp_path):
    """By `kill -9`; the next save succeeds."""
    rng = random.Random(0)
    in_time = 0
    for moment in range(KILLS):
        old, new = whole(tmp_path / "mine"), moment % 2
        for kills in (True, False):
            saver.stdin.write(f"{new} {'wait' if kills else 'go'}\n")
            saver.stdin.flush()
            child = int(saver.stdout.readline())
            if kills:
                time.sleep(rng.uniform(0, 0.02))
                os.kill(child, signal.SIGKILL)
            assert saver.stdout.readline() == "gone\n"
            actual = whole(tmp_path / "mine")
            if kills:
                assert actual in (old, new, None)
                in_time += actual != new
        assert actual == new
    print(f"{in_time} of {KILLS} were killed before the new one was in place")
    assert in_time


@pytest.mark.parametrize("lost", ["config.json", "model.safetensors"])
def test_a_preset_that_is_replaced_while_it_is_opened_gives_the_new_preset(
    tmp_path, monkeypatch, lost
):
    """The writer has removed a file of the old folder already."""
    place = tmp_path / "preset"
    for word in ("old", "new"):
        tiny(provenance={"word": word}).save_to_preset(tmp_path / word)
    (tmp_path / "old").rename(place)
    sizes = OpenFolder.sizes

    def replaced_meanwhile(folder):
        if (tmp_path / "new").exists():
            place.rename(tmp_path / "old")
            (tmp_path / "new").rename(place)
            (tmp_path / "old" / lost).unlink()
        return sizes(folder)

    monkeypatch.setattr(OpenFolder, "sizes", replaced_meanwhile)
    with open_source(Source.of(place)) as opened:
        assert opened.preset.provenance["word"] == "new"


def test_two_savers_at_one_folder_all_succeed(tmp_path):
    """The folder is the preset of one of the two threads, and nothing stands beside it."""
    models = [tiny(num_classes=2), tiny(num_classes=3)]
    failures = []

    def save(model):
        try:
            for _ in range(10):
                model.save_to_preset(tmp_path / "preset")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=save, args=[model]) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with open_source(checkpoints.Source.of(tmp_path / "preset")) as opened:
        assert opened.preset.config in [model.config for model in models]
        assert opened.reader.read("head/bias").shape == (opened.preset.config.num_classes,)
    assert [path.name for path in tmp_path.iterdir()] == ["preset"]
