"""Measures two checkouts of keras_vit beside each other, in one interleaved run.

    git worktree add /tmp/before v0.1.0
    python -m benchmarks.before_after /tmp/before --json FILE

Every row is one peer of `benchmarks.peers` in two processes, one per checkout, which take turns.
The ratio is the time of the other checkout over the time of this one, round by round: above 1,
this checkout is faster.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import report
from benchmarks.harness import PeerError, Resident
from benchmarks.sizes import size_named

_JOBS = {
    "predict-1": ("forward", "predict", 1),
    "predict-8": ("forward", "predict", 8),
    "fit-1": ("train", "fit", 1),
    "fit-8": ("train", "fit", 8),
}
_TURN_SECONDS = {"forward": 3.0, "train": 6.0}


def main() -> None:
    """Parses, measures each job on each backend, prints a table, writes JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.before_after",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("other", type=Path, help="the root of the other checkout")
    backends = ("torch", "jax", "tensorflow")
    parser.add_argument("--backend", nargs="+", choices=backends, default=backends)
    parser.add_argument("--model", default="S/16")
    parser.add_argument("--dtype", default="float32", help="a dtype policy of Keras")
    parser.add_argument("--job", nargs="+", choices=_JOBS, default=tuple(_JOBS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    with Console(stderr=True).status("") as status:
        rows = [
            row
            for backend in arguments.backend
            for task, mode, batch in map(_JOBS.__getitem__, arguments.job)
            for row in _compared(arguments, backend, task, mode, batch, status.update)
        ]
    title = f"{arguments.model}, {arguments.dtype}, time before over time after"
    print(report.markdown(title, rows))
    if arguments.json:
        kind = {"model": arguments.model, "dtype": arguments.dtype}
        found = {**kind, "machine": report.machine(), "rows": rows}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def _compared(
    arguments: argparse.Namespace, backend: str, task: str, mode: str, batch: int, say: Any
) -> list[dict[str, Any]]:
    """Returns one row, with the ratio of each round's pair of turns."""
    name = f"keras_vit-{backend}-{mode}"
    request = {
        "task": task,
        "model": arguments.model,
        "image_size": size_named(arguments.model).image_size,
        "batch": batch,
        "dtype": arguments.dtype,
    }
    say(f"starting {name}, batch {batch}")
    roots = (arguments.other.resolve(), Path(__file__).parents[1])
    pair: list[Resident] = []
    ratios = []
    try:
        pair.extend(Resident(name, request, root) for root in roots)
        for resident in pair:
            resident.wait_until_ready()
        steps = max(1, round(_TURN_SECONDS[task] / max(pair[0].run(1).seconds, 1e-4)))
        for number in range(arguments.rounds):
            say(f"{name}, batch {batch}: round {number + 1} of {arguments.rounds}")
            order = (0, 1) if number % 2 else (1, 0)
            seconds = {which: pair[which].run(steps).seconds for which in order}
            ratios.append(seconds[0] / seconds[1])
    except PeerError as failure:
        return [{"peer": f"{name}, batch {batch}", "failed": str(failure)}]
    finally:
        for resident in pair:
            resident.close()
    return [
        {
            "peer": name,
            "batch": batch,
            "before over after": round(statistics.median(ratios), 3),
            "range": [round(min(ratios), 3), round(max(ratios), 3)],
        }
    ]


if __name__ == "__main__":
    main()
