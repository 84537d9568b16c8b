"""The time per image against the number of tokens and against the batch size.

    python -m benchmarks.growth benchmarks/results/growth.json benchmarks/growth.png

ViT-Ti/16, forward, float32, the model called in the backend's own compiled function. Each point
is a run of the harness: all backends and the anchor, turns interleaved. The picture shows what the
operations let one expect, from the anchor's speed at 197 tokens and one image: a part that grows
as the tokens do, and attention's, that grows as their square.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import report
from benchmarks.harness import ANCHOR, run
from benchmarks.sizes import Size, size_named

_MODEL = "Ti/16"
_IMAGE_SIZES = (224, 384, 512, 768, 1024)
_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_PEERS = tuple(f"keras_vit-{backend}-call" for backend in ("torch", "jax", "tensorflow"))


def measure(rounds: int, say: Any) -> list[dict[str, Any]]:
    """Returns a point per image size at batch 1, and per batch at 224 pixels."""
    points = []
    asked = [(size, 1) for size in _IMAGE_SIZES] + [(224, batch) for batch in _BATCHES[1:]]
    for image_size, batch in asked:
        job = {
            "task": "forward",
            "model": _MODEL,
            "image_size": image_size,
            "batch": batch,
            "dtype": "float32",
        }
        at = f"{image_size} pixels, batch {batch}"
        result = run(list(_PEERS), job, rounds, lambda what, at=at: say(f"{at}: {what}"), 1.5)
        milliseconds = {
            name: round(statistics.median(turn.seconds for turn in turns) * 1e3 / batch, 3)
            for name, turns in result.turns.items()
        }
        tokens = size_named(_MODEL, image_size).tokens
        points.append({
            "tokens": tokens,
            "batch": batch,
            "milliseconds_per_image": milliseconds,
            "failed": result.failed,
        })  # fmt: skip
    return points


def expected(points: list[dict[str, Any]], tokens: int) -> tuple[float, float]:
    """Milliseconds of the linear and the quadratic part, at the anchor's first speed."""
    first = points[0]
    speed = first["milliseconds_per_image"][ANCHOR] / sum(_operations(first["tokens"]))
    linear, quadratic = _operations(tokens)
    return speed * linear, speed * quadratic


def _operations(tokens: int) -> tuple[float, float]:
    size: Size = size_named(_MODEL, round((tokens - 1) ** 0.5) * 16)
    quadratic = sum(2.0 * c * s * m * k * n for c, s, m, k, n in size.products(1) if s > 1)
    return size.flops(1) - quadratic, quadratic


def picture(points: list[dict[str, Any]], title: str, path: Path) -> None:
    """Draws milliseconds per image against tokens and batch, beside the expected values."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    by_tokens = [point for point in points if point["batch"] == 1]
    by_batch = [point for point in points if point["tokens"] == points[0]["tokens"]]
    for axes, chosen, field in ((left, by_tokens, "tokens"), (right, by_batch, "batch")):
        for name in (*_PEERS, ANCHOR):
            drawn = [p for p in chosen if name in p["milliseconds_per_image"]]
            axes.plot(
                [p[field] for p in drawn],
                [p["milliseconds_per_image"][name] for p in drawn],
                ".--" if name == ANCHOR else "o-",
                label="matrix products alone" if name == ANCHOR else name.split("-")[1],
            )
        parts = [expected(points, point["tokens"]) for point in chosen]
        xs = [point[field] for point in chosen]
        axes.plot(xs, [sum(part) for part in parts], "k:", label="expected")
        if field == "tokens":
            axes.plot(xs, [part[0] for part in parts], "k:", alpha=0.4, label="linear part")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_ylabel("milliseconds per image")
        axes.grid(alpha=0.3)
    left.set_xlabel("tokens, batch 1")
    right.set_xlabel("batch, 197 tokens")
    left.legend()
    figure.suptitle(title)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measures, writes JSON, draws."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("json", type=Path)
    parser.add_argument("png", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with Console(stderr=True).status("") as status:
        points = measure(arguments.rounds, status.update)
    machine = report.machine()
    arguments.json.write_text(json.dumps({"machine": machine, "points": points}, indent=1) + "\n")
    picture(points, f"ViT-{_MODEL}, forward, float32, {machine['processor']}", arguments.png)


if __name__ == "__main__":
    main()
