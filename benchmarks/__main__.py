"""Measures keras_vit beside its peers, in one interleaved run per model and batch size.

    python -m benchmarks --task forward --model S/16 --batch 1 8 --peers timm keras_vit-torch
    python -m benchmarks --task train --peers keras_vit-torch-fit --units --beside /tmp/before

Tasks: `forward` and `train` (speed, as a share of that of the model's own matrix products),
`memory-forward`, `memory-train` and `memory-finetune` (peaks; the last of the paper's fine-tuning
with and without remat), `start` (commands, in processor seconds), `load` (safetensors to an answer)
and `input` (JPEG files to batches). What is known is kept after every turn.

Without units the first peer is the anchor: with `--beside` its share is 1, and that of the other
checkout is its speed beside this one's.
"""

import argparse
import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import report
from benchmarks.fresh import MEASURES
from benchmarks.harness import run, run_fresh
from benchmarks.peers import BACKENDS, LIBRARIES, PEERS, UNITS
from benchmarks.sizes import size_named
from keras_vit.support.files import write_json

Keep = Callable[..., None]
"""Gets the rows that are known so far, and whether they are all."""


def main() -> None:
    """Parses, runs, prints tables, writes JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--task", choices=("forward", "train", *MEASURES), default="forward")
    parser.add_argument(
        "--model", nargs="+", default=["S/16"], help="B/16, DINOv2-S/14, vit_s16 ..."
    )
    parser.add_argument("--batch", nargs="+", type=int, default=[8])
    parser.add_argument("--image-size", type=int, help="the model's own without it")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, help="of a turn")
    parser.add_argument("--start-seconds", type=float, help="who is not ready by then is left out")
    parser.add_argument("--peers", nargs="+", default=[""], help="names, or parts of names")
    parser.add_argument("--units", nargs="*", choices=UNITS, default=UNITS, help="the products of")
    parser.add_argument("--beside", type=Path, help="another checkout, in the same turns")
    parser.add_argument("--backend", choices=LIBRARIES, help="only peers of this one")
    parser.add_argument("--json", type=Path, help="append the figures to this file as they come")
    asked = parser.parse_args()
    for model, batch in itertools.product(asked.model, asked.batch):
        request = {
            "task": asked.task,
            "model": model,
            "image_size": size_named(model, asked.image_size).image_size,
            "batch": batch,
            "dtype": asked.dtype,
        }
        keep = _appending_to(asked.json, request) if asked.json else lambda rows, done=False: None
        with Console(stderr=True).status("") as status, tempfile.TemporaryDirectory() as folder:
            rows = _measure(asked, request, status.update, Path(folder), keep)
        keep(rows, done=True)
        print(report.markdown(", ".join(map(str, request.values())), rows))


def _measure(
    asked: argparse.Namespace, request: dict[str, Any], say: Any, folder: Path, keep: Keep
) -> list[report.Row]:
    if asked.task in MEASURES:
        say("writing files")
        requests = {
            name: (backend, {**request, "folder": str(folder), **own})
            for name, (backend, own) in _requests(asked, request["model"], folder).items()
        }
        known = lambda *found: keep(report.fresh_rows(*found))  # noqa: E731
        return report.fresh_rows(*run_fresh(requests, asked.rounds, say, known))
    result = run(
        [*asked.units, *_chosen(asked, request["model"], asked.task)],
        request,
        asked.rounds,
        say,
        asked.seconds,
        asked.beside and asked.beside.resolve(),
        asked.start_seconds,
        lambda result: keep(report.speed_rows(result)),
    )
    return report.speed_rows(result)


def _requests(
    asked: argparse.Namespace, model: str, folder: Path
) -> dict[str, tuple[str, dict[str, Any]]]:
    """By name of a row, the backend and what its measure of `benchmarks.fresh` needs besides."""
    backends = [b for b in BACKENDS if asked.backend in (None, b)]
    match asked.task:
        case "start":
            words = ("--help", "list", "info vit_digits")
            commands = {w: ["-m", "keras_vit.cli", *w.split()] for w in words}
            commands |= {w: ["-c", w] for w in ("import keras", "import keras_vit")}
            return {name: ("", {"words": own}) for name, own in commands.items()}
        case "load":
            at = {"folder": _write_checkpoint(model, folder / "timm")}
            ours = {f"keras_vit-{b}": (b, {"library": "keras_vit", **at}) for b in backends}
            return {"timm": ("", {"library": "timm", **at}), **ours}
        case "memory-finetune":
            pairs = itertools.product(backends, (False, True))
            return {f"keras_vit-{b}{', remat' * less}": (b, {"remat": less}) for b, less in pairs}
        case "input":
            _write_photographs(folder)
            pairs = itertools.product(("evaluation", "training"), ("timm", "keras_vit"))
            return {
                f"{library}, {kind}": ("torch", {"library": library, "training": kind[0] == "t"})
                for kind, library in pairs
            }
    names = _chosen(asked, model, asked.task.removeprefix("memory-"))
    return {name: (PEERS[name].backend, {"peer": name}) for name in names}


def _chosen(asked: argparse.Namespace, model: str, task: str) -> list[str]:
    """The peers of a task and backend that `--peers` names, or whose names contain one of them."""
    plain = not size_named(model).family
    names = [
        name
        for name, peer in PEERS.items()
        if task in peer.tasks and name not in UNITS and asked.backend in (None, peer.library)
        if plain or peer.families
    ]
    words = asked.peers
    chosen = [n for n in names if any(w == n or (w not in PEERS and w in n) for w in words)]
    if not chosen:
        raise SystemExit(f"No peer of {task} is called {' or '.join(words)}: {', '.join(names)}.")
    return chosen


def _write_checkpoint(model: str, folder: Path) -> str:
    """Writes random weights in timm's layout; returns the folder."""
    import keras_vit

    made = keras_vit.VisionTransformer(**size_named(model).fields(), block={"activation": "gelu"})
    keras_vit.checkpoints.save(made, folder, "timm")
    return str(folder)


def _write_photographs(folder: Path) -> None:
    """JPEG files of 500 by 375 pixels, as in ImageNet, from scikit-learn's photographs."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    pictures = [Image.fromarray(picture) for picture in load_sample_images().images]
    for number in range(256):
        left, top = number % 100, number % 40
        part = pictures[number % 2].crop((left, top, left + 500, top + 375))
        part.save(folder / f"{number:03}.jpg", quality=90)


def _appending_to(path: Path, request: dict[str, Any]) -> Keep:
    """Returns a function that writes the rows of this run behind the runs of the file.

    A run of the same request that did not end makes room.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    runs = json.loads(path.read_text()) if path.exists() else []
    runs = [run for run in runs if run["request"] != request or run.get("done", True)]
    machine = report.machine()

    def keep(rows: list[report.Row], done: bool = False) -> None:
        run = {"request": request, "machine": machine, "done": done, "rows": rows}
        write_json(path, [*runs, run])

    return keep


if __name__ == "__main__":
    main()
