"""Kills in the middle of writing, and readers beside writers: python -m weights.fuzz.kills.

Processes are forked, so that a kill costs no start of Python.
"""

import argparse
import datetime
import functools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants
from huggingface_hub.utils import close_session
from PIL import Image
from safetensors import safe_open

from keras_vit import KerasViTError, VisionTransformer, embed
from keras_vit.checkpoints.opening import open_source
from keras_vit.checkpoints.transfer import convert
from keras_vit.presets import bucket
from keras_vit.presets.catalog import preset_named
from keras_vit.presets.source import Source
from tests.presets.hub_server import connect, served
from weights.fuzz.seeds import CHECKPOINTS

SIZES = {"image_size": 16, "patch_size": 8, "hidden_size": 128, "mlp_dim": 256, "num_heads": 2}


def make_model(word: str) -> VisionTransformer:
    """A model whose labels, provenance and head all say which one it is."""
    model = VisionTransformer(
        **SIZES, num_layers=4, num_classes=2, class_names=(word, "x"), provenance={"word": word}
    )
    for weight in model.weights:
        weight.assign(np.full(weight.shape, float(ord(word)), "float32"))
    return model


def read_word(folder: Path) -> str:
    """Which model a preset folder holds; `"mixed"` if its files are of several."""
    with open_source(Source.parse(folder)) as opened:
        assert opened.preset is not None
        labels, provenance = opened.preset.class_names, opened.preset.provenance
        words = {labels[0], provenance["word"]}
        words |= {chr(int(opened.reader.read(name).flat[0])) for name in opened.reader.shapes}
    return words.pop() if len(words) == 1 else "mixed"


def killed(action: Callable[[], object], rng: random.Random, longest: float) -> None:
    """Runs an action over and over in a process of its own, which is killed at some moment."""
    process = os.fork()
    if process == 0:
        try:
            while True:
                action()
        finally:
            os._exit(1)
    time.sleep(rng.uniform(0.001, longest))
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def kill_saves(work: Path, count: int, rng: random.Random) -> Counter[str]:
    """Kills `save_to_preset` over a preset; what stands there is the old one or a new one."""
    place, models = work / "preset", [make_model("a"), make_model("b")]
    models[0].save_to_preset(place)
    outcomes: Counter[str] = Counter()

    def save_both() -> None:
        for model in models:
            model.save_to_preset(place)

    for _ in range(count):
        killed(save_both, rng, 0.1)
        if not place.exists():
            outcomes["absent until the next save"] += 1
            models[0].save_to_preset(place)
        word = read_word(place)
        is_whole = word in "ab" and f"- word: {word}" in (place / "README.md").read_text()
        outcomes["whole" if is_whole else "mixed"] += 1
    models[0].save_to_preset(place)
    outcomes["left behind"] += len(list(work.iterdir())) - 1
    return outcomes


def kill_conversions(work: Path, count: int, rng: random.Random) -> Counter[str]:
    """Kills `convert` over a file; its bytes are those of one conversion or of the other."""
    sources = [CHECKPOINTS / "vit_token_published.npz", CHECKPOINTS / "vit_rep.npz"]
    place, whole = work / "x.npz", set()
    for source in sources:
        convert(source, place, "big_vision", lossy=True)
        whole.add(place.read_bytes())
    outcomes: Counter[str] = Counter()

    def convert_both() -> None:
        for source in sources:
            convert(source, place, "big_vision", lossy=True)

    for _ in range(count):
        killed(convert_both, rng, 0.1)
        outcomes["whole" if place.read_bytes() in whole else "damaged"] += 1
    convert_both()
    outcomes["left behind"] += len(list(work.iterdir())) - 1
    return outcomes


def kill_downloads(work: Path, count: int, rng: random.Random) -> Counter[str]:
    """Kills downloads from a Hub and a bucket; a file is whole or absent, and the next call ends.

    A download takes a fifth of a second.
    """
    outcomes, preset = Counter[str](), preset_named("vit_digits").folder
    contents = {
        "model.safetensors": (preset / "model.safetensors").read_bytes(),
        "x.npz": (CHECKPOINTS / "vit_token_published.npz").read_bytes(),
    }

    def from_hub() -> None:
        close_session()  # a fork must not share the connection
        with Source.parse("hf://us/digits").open():
            pass

    def from_bucket() -> None:
        bucket.fetch(f"{bucket.OFFICIAL}x.npz")

    with served() as server, pytest.MonkeyPatch.context() as patch:
        connect(server, work, patch)
        patch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 65536)
        server.add("us/digits", preset)
        server.files["x.npz"] = contents["x.npz"]
        for name, fetch in (("model.safetensors", from_hub), ("x.npz", from_bucket)):
            content = contents[name]
            for _ in range(count):
                server.bytes_per_second = 5 * len(content)
                killed(fetch, rng, 0.4)
                left = [path.read_bytes() for path in work.rglob(name)]
                outcomes["absent" if not left else "whole" if left == [content] else "damaged"] += 1
                server.bytes_per_second = None
                fetch()
                outcomes["damaged"] += [p.read_bytes() for p in work.rglob(name)] != [content]
                for folder in work.iterdir():
                    shutil.rmtree(folder)
    return outcomes


def kill_embeddings(work: Path, count: int, rng: random.Random) -> Counter[str]:
    """Kills `embed`, which goes on each time; its end is that of an unbroken run."""
    pixels = np.random.default_rng(0).integers(0, 256, (60, 16, 16, 3), dtype="uint8")
    paths = []
    for k, image in enumerate(pixels):
        paths.append(work / f"{k:02}.png")
        Image.fromarray(image).save(paths[-1])
    model, outcomes = make_model("a"), Counter[str]()
    embed(model, paths, work / "unbroken.npy", batch_size=2)
    for _ in range(count):
        killed(lambda: embed(model, paths, work / "x.npy", batch_size=2), rng, 0.3)
        if (work / "x.npy").exists():
            same = np.array_equal(np.load(work / "x.npy"), np.load(work / "unbroken.npy"))
            outcomes["whole" if same else "wrong"] += 1
            (work / "x.npy").unlink()
        else:
            outcomes["to be continued"] += 1
    embed(model, paths, work / "x.npy", batch_size=2)
    same = np.array_equal(np.load(work / "x.npy"), np.load(work / "unbroken.npy"))
    outcomes["whole" if same else "wrong"] += 1
    return outcomes


def kill_trainings(
    work: Path, count: int, rng: random.Random, with_labels: bool = True
) -> Counter[str]:
    """Kills a training with `Resume`, which goes on each time; its end is that of an unbroken run.

    The training has dropout, momentum, averages, accumulation and EarlyStopping.
    """
    from tests.training import long_training  # imports a backend's tools of training

    place, outcomes = work / "x", Counter[str]()

    def trained(place: Path) -> long_training.Result:
        long_training.save(place, long_training.train(place, with_labels))
        return long_training.load(place)

    unbroken = trained(work / "unbroken")
    start = time.monotonic()
    trained(work / "timed")  # the first training also imports and compiles
    longest = 0.8 * (time.monotonic() - start)

    def compare() -> None:
        try:
            long_training.compare(long_training.load(place), unbroken)
            outcomes["whole"] += 1
        except AssertionError:
            outcomes["wrong"] += 1
        shutil.rmtree(place)

    def train() -> None:
        trained(place)
        (place / "done").touch()
        signal.pause()

    for _ in range(count):
        killed(train, rng, longest)
        epoch = _read_epoch(place)
        if (place / "done").exists():
            compare()  # the next kill meets a new training
        elif epoch == long_training.EPOCHS:
            outcomes["after the last epoch"] += 1
            shutil.rmtree(place)
        else:
            outcomes[f"went on at epoch {epoch}" if epoch else "before the first epoch's end"] += 1
    trained(place)
    compare()
    return outcomes


def _read_epoch(place: Path) -> int:
    """How many epochs the state of a training has; 0 if there is none."""
    if not (place / "state.safetensors").exists():
        return 0
    with safe_open(place / "state.safetensors", framework="np") as file:
        return int(json.loads(file.metadata()["keras_vit"])["epoch"])


def read_beside_writers(work: Path, seconds: float) -> Counter[str]:
    """Two processes save over one preset, eight read it."""
    place, models = work / "preset", [make_model("a"), make_model("b")]
    models[0].save_to_preset(place)
    end = time.monotonic() + seconds
    outcomes: Counter[str] = Counter()
    pipes = []
    for k in range(10):
        read, write = os.pipe()
        if os.fork() == 0:
            found: Counter[str] = Counter()
            try:
                while time.monotonic() < end:
                    try:
                        if k < 2:
                            models[k].save_to_preset(place)
                            found["saved"] += 1
                        else:
                            found["read" if read_word(place) in "ab" else "mixed"] += 1
                    except (KerasViTError, OSError) as error:
                        found[f"failed: {str(error)[:100]}"] += 1
                os.write(write, repr(dict(found)).encode())
            finally:
                os._exit(0)
        os.close(write)
        pipes.append(read)
    for pipe in pipes:
        with os.fdopen(pipe) as stream:
            outcomes.update(eval(stream.read() or "{'died': 1}"))
        os.wait()
    outcomes["left behind"] += len(list(work.iterdir())) - 1
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m weights.fuzz.kills", description=__doc__)
    parser.add_argument("--count", type=int, default=50, help="kills of each writer")
    parser.add_argument("--seconds", type=float, default=60, help="of readers beside writers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[""], help="those whose line has such a word")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    print(f"{datetime.datetime.now(datetime.UTC).date()}, seed {arguments.seed}\n")
    print("| what | outcomes |\n|---|---|")
    bad = 0
    for name, run in (
        (f"{arguments.count} kills of save over a preset", kill_saves),
        (f"{arguments.count} kills of convert over a file", kill_conversions),
        (f"{arguments.count} kills of each download", kill_downloads),
        (f"{arguments.count} kills of embed, and its end", kill_embeddings),
        (f"{arguments.count} kills of a training, and its end", kill_trainings),
        (
            f"{arguments.count} kills of a training without labels, and its end",
            functools.partial(kill_trainings, with_labels=False),
        ),
        (f"2 writers, 8 readers, {arguments.seconds:.0f} s", None),
    ):
        if not any(word in name for word in arguments.only):
            continue
        with tempfile.TemporaryDirectory() as work:
            if run is None:
                counts = read_beside_writers(Path(work), arguments.seconds)
            else:
                counts = run(Path(work), arguments.count, rng)
        bad += sum(counts[word] for word in ("mixed", "damaged", "wrong", "died"))
        bad += sum(number for word, number in counts.items() if word.startswith("failed"))
        print(
            f"| {name} | {', '.join(f'{n:,} {word}' for word, n in counts.items())} |", flush=True
        )
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
