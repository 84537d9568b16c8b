"""Measures keras_vit beside its peers, in one interleaved run.

    python -m benchmarks --task forward --model S/16 --batch 8 --peers timm keras_vit-torch

Tasks: `forward` and `train` (speed, as a share of the model's own matrix products, by torch and by
the fastest library), `memory` (peak of either with `--of`, or of the paper's fine-tuning with and
without remat), `fit` (on arrays in memory and on JPEG files), `first` (the first forward pass of a
new model), `load` (safetensors to an answer), `start` (importing) and `input` (JPEG files to
batches). What is known is kept after every turn.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import report
from benchmarks.harness import run, run_fresh
from benchmarks.peers import LIBRARIES, PEERS, UNITS
from benchmarks.sizes import size_named
from keras_vit.support.files import write_json

_BACKENDS = ("torch", "jax", "tensorflow")
console = Console(stderr=True)


def main() -> None:
    """Parses, runs, prints a table, writes JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tasks = ("forward", "train", "memory", "fit", "first", "load", "start", "input")
    parser.add_argument("--task", choices=tasks, default="forward")
    parser.add_argument("--of", choices=("forward", "train", "finetune"), default="forward")
    parser.add_argument("--model", default="S/16", help="Ti/16, S/16, B/16, L/16, DINOv2-S/14 ...")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--image-size", type=int, help="the model's own without it")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, help="of a turn")
    parser.add_argument("--start-seconds", type=float, help="who is not ready by then is left out")
    parser.add_argument("--workers", type=int, default=2, help="of the tasks input and fit")
    parser.add_argument("--photographs", type=int, default=256, help="of the tasks input and fit")
    parser.add_argument("--peers", nargs="+", default=["all"], help="names, or parts of names")
    parser.add_argument("--units", nargs="+", choices=UNITS, default=UNITS, help="the products of")
    parser.add_argument("--backend", choices=LIBRARIES, help="only peers of this one")
    parser.add_argument("--json", type=Path, help="append the figures to this file as they come")
    arguments = parser.parse_args()
    keep = _appending_to(arguments.json) if arguments.json else lambda request, rows: None
    with console.status("") as status, tempfile.TemporaryDirectory() as work:
        request, rows = _measure(arguments, status.update, Path(work), keep)
    title = ", ".join(f"{name} {value}" for name, value in request.items())
    print(report.markdown(title, rows))
    keep(request, rows)


Keep = Callable[[dict[str, Any], list[report.Row]], None]
"""Gets the request and the rows that are known so far."""


def _measure(
    arguments: argparse.Namespace, say: Any, work: Path, keep: Keep
) -> tuple[dict[str, Any], list[report.Row]]:
    """Runs the task; returns the request and the rows of the result."""
    job = {
        "task": arguments.task,
        "model": arguments.model,
        "image_size": arguments.image_size or size_named(arguments.model).image_size,
        "batch": arguments.batch,
        "dtype": arguments.dtype,
    }
    rounds = arguments.rounds
    if arguments.task in ("forward", "train"):
        result = run(
            _chosen(arguments, arguments.task),
            job,
            rounds,
            say,
            arguments.seconds,
            arguments.units,
            arguments.start_seconds,
            lambda result: keep(job, report.speed_rows(result)),
        )
        return job, report.speed_rows(result)
    if arguments.task == "memory" and arguments.of == "finetune":
        asked = {key: job[key] for key in ("model", "image_size", "batch")}
        requests = {
            f"keras_vit-{backend}{', remat' if remat else ''}": (
                backend,
                {"measure": "finetuning", "remat": remat, **asked},
            )
            for backend in _BACKENDS
            if arguments.backend in (None, backend)
            for remat in (False, True)
        }
        return _fresh({**job, "task": "memory of finetune"}, requests, rounds, say, keep)
    if arguments.task == "memory":
        job["task"] = arguments.of
        requests = {
            name: (PEERS[name].backend, {"measure": "memory", "peer": name, "job": job})
            for name in _chosen(arguments, arguments.of)
        }
        return _fresh({**job, "task": f"memory of {arguments.of}"}, requests, rounds, say, keep)
    parts = {"start": _starts, "first": _firsts, "load": _loads, "input": _inputs, "fit": _fits}
    return _fresh(*parts[arguments.task](arguments, say, work), rounds, say, keep)


Requests = dict[str, tuple[str, dict[str, Any]]]
"""By name of a row, the backend and the measure of `benchmarks.fresh` with its arguments."""


def _starts(arguments: argparse.Namespace, say: Any, work: Path) -> tuple[Any, Requests]:
    return {"task": "start"}, {
        f"{library}-{backend}": (backend, {"measure": "start", "library": library})
        for backend in _BACKENDS
        for library in ("keras", "keras_vit")
    }


def _firsts(arguments: argparse.Namespace, say: Any, work: Path) -> tuple[Any, Requests]:
    asked = {"measure": "first", "model": arguments.model}
    return {"task": "first", "model": arguments.model}, _beside_timm(asked)


def _loads(arguments: argparse.Namespace, say: Any, work: Path) -> tuple[Any, Requests]:
    say("writing the file")
    _write_checkpoint(arguments.model, work / "timm")
    file_mb = round((work / "timm" / "model.safetensors").stat().st_size / 2**20)
    asked_for = {"task": "load", "model": arguments.model, "file_mb": file_mb}
    return asked_for, _beside_timm({"measure": "load", "folder": str(work / "timm")})


def _beside_timm(asked: dict[str, Any]) -> Requests:
    """A measure of timm, and of keras_vit on each backend."""
    ours = {
        f"keras_vit-{backend}": (backend, {**asked, "library": "keras_vit"})
        for backend in _BACKENDS
    }
    return {"timm": ("", {**asked, "library": "timm"}), **ours}


def _inputs(arguments: argparse.Namespace, say: Any, work: Path) -> tuple[Any, Requests]:
    say("writing images")
    _write_photographs(work, arguments.photographs)
    common = {"folder": str(work), "batch": arguments.batch, "workers": arguments.workers}
    requests = {
        f"{library}, {'training' if training else 'evaluation'}": (
            "torch",
            {"measure": "input", "library": library, "training": training, **common},
        )
        for training in (False, True)
        for library in ("timm", "keras_vit")
    }
    return {"task": "input", "batch": arguments.batch, "workers": arguments.workers}, requests


def _fits(arguments: argparse.Namespace, say: Any, work: Path) -> tuple[Any, Requests]:
    say("writing images")
    _write_photographs(work, arguments.photographs)
    asked = {name: getattr(arguments, name) for name in ("model", "batch", "dtype", "workers")}
    asked["image_size"] = size_named(arguments.model, arguments.image_size).image_size
    requests = {
        f"keras_vit-{backend}, {source}": (
            backend,
            {"measure": "fit", "folder": str(work), "in_memory": source == "arrays", **asked},
        )
        for backend in _BACKENDS
        if arguments.backend in (None, backend) and _matches(f"keras_vit-{backend}", arguments)
        for source in ("arrays", "JPEG files")
    }
    return {"task": "fit", "photographs": arguments.photographs, **asked}, requests


def _matches(name: str, arguments: argparse.Namespace) -> bool:
    return arguments.peers == ["all"] or any(word in name for word in arguments.peers)


def _fresh(
    asked: dict[str, Any], requests: Requests, rounds: int, say: Any, keep: Keep
) -> tuple[dict[str, Any], list[report.Row]]:
    """Runs measurements in new processes; returns what was asked and the rows."""
    found = run_fresh(requests, rounds, say, lambda *known: keep(asked, report.fresh_rows(*known)))
    return asked, report.fresh_rows(*found)


def _chosen(arguments: argparse.Namespace, task: str) -> list[str]:
    """The peers of a task and backend whose names contain one of the names in `--peers`."""
    words, plain = arguments.peers, not size_named(arguments.model).family
    names = [
        name
        for name, peer in PEERS.items()
        if task in peer.tasks and name not in UNITS and arguments.backend in (None, peer.library)
        if plain or peer.families
    ]
    if words == ["all"]:
        return names
    chosen = [n for n in names if any(w == n or (w not in PEERS and w in n) for w in words)]
    if not chosen:
        raise SystemExit(f"No peer of {task} is called {' or '.join(words)}: {', '.join(names)}.")
    return chosen


def _write_checkpoint(model: str, folder: Path) -> None:
    """Random weights in timm's layout, without any of the libraries that are measured."""
    import numpy as np

    from keras_vit import ViTConfig
    from keras_vit.checkpoints.dialects import DIALECTS
    from keras_vit.checkpoints.export import export
    from keras_vit.models.weights.lexicon import weights

    timm = DIALECTS["timm"]
    config = ViTConfig(**size_named(model).fields(), numerics=timm.numerics)
    shapes = {weight.path: weight.shape for weight in weights(config)}
    rng = np.random.default_rng(0)

    class Random:
        def dtype(self, path: str) -> np.dtype:
            return np.dtype("float32")

        def read(self, path: str) -> np.ndarray:
            return rng.standard_normal(shapes[path], dtype="float32") * np.float32(0.02)

    export(config, Random(), (timm,), folder, None, iter, lossy=False, protocol="timm")


def _write_photographs(folder: Path, count: int) -> None:
    """JPEG files of 500 by 375 pixels, as in ImageNet, from scikit-learn's photographs."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    pictures = [Image.fromarray(picture) for picture in load_sample_images().images]
    for number in range(count):
        picture = pictures[number % 2]
        left, top = number % 100, number % 40
        part = picture.crop((left, top, left + 500, top + 375))
        part.save(folder / f"{number:03}.jpg", quality=90)


def _appending_to(path: Path) -> Keep:
    """Returns a function that writes the rows of this run behind the runs of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    runs = json.loads(path.read_text()) if path.exists() else []
    machine = report.machine()

    def keep(request: dict[str, Any], rows: list[report.Row]) -> None:
        write_json(path, [*runs, {"request": request, "machine": machine, "rows": rows}])

    return keep


if __name__ == "__main__":
    main()
