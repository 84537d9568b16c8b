"""The day of a GPU, forty minutes of one H100: python -m benchmarks.gpu FILE.json (make bench-gpu).

The plan runs from what matters most to what matters least: tests that need a GPU, then B/16 beside
timm, then further models, memory, `fit`, and long sequences. Each part has a process of its own and
a limit of time, FILE is written after each, and a part that no longer fits into `--minutes` is left
out and named. Parts that FILE has already are not run again. `--tiny` runs the plan on small sizes,
without the peers that torch compiles, which any machine can.
"""

import argparse
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PYTHON = (sys.executable, "-m")
SPEED = ("timm", "timm-compiled", "keras_vit-torch-call", "keras_vit-jax-call")
TRAIN = ("timm", "timm-compiled", "keras_vit-torch-loop", "keras_vit-jax-loop")
OURS = ("keras_vit-torch", "keras_vit-jax")
PUBLISHED = {
    "forward B/16": {"timm compiled, RTX Pro 6000": 5059, "AITemplate, A100": 5273},
    "forward S/16": {"timm compiled, RTX Pro 6000": 14622},
    "forward L/16": {"timm compiled, RTX Pro 6000": 1604},
    "train B/16": {"JAX-Toolbox, H100": 1459, "nvSubquadratic, H100": 2119},
    "train S/16": {"nvSubquadratic, H100": 7716},
}
"""Images per second in bfloat16 at 224 pixels, as published for one device."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of the plan: a command, its environment, and the minutes that it may take."""

    name: str
    command: tuple[str, ...]
    minutes: float
    backend: str = ""


def plan(tiny: bool, work: Path) -> list[Part]:
    """Returns the parts in their order; a speed part appends to a file in `work`."""
    parts = [
        Part(
            f"tests, {backend}",
            (*PYTHON, "pytest", "-q", "-n", "0", "-m", "gpu", "-rs", "tests/test_gpu.py"),
            3,
            backend,
        )
        for backend in ("torch", "jax")
    ]

    def speed(task: str, model: str, batch: int, peers: tuple[str, ...], minutes: float) -> None:
        size = (model, batch, 3) if not tiny else ("Ti/16", min(batch, 2), 1)
        if tiny:  # a compiler takes minutes for any size
            peers = tuple(peer for peer in peers if "comp" not in peer and "tune" not in peer)
            if not peers:
                return
        options: tuple[Any, ...] = ("--model", size[0], "--batch", size[1], "--rounds", size[2])
        options += ("--dtype", "bfloat16", "--json", work / "speed.json")
        # Products by the libraries of CPUs would take most of the time.
        options += ("--units", "products", "products-xla", "--peers", *peers)
        options = ("--image-size", 32, *options) if tiny else options
        command = (*PYTHON, "benchmarks", "--task", task, *map(str, options))
        parts.append(Part(f"{task} {model}, batch {batch}", command, minutes))

    ours = ("keras_vit-torch-call", "keras_vit-torch-call-compiled", "keras_vit-jax-call")
    speed("forward", "B/16", 256, ("timm", "timm-compiled", "timm-max-autotune", *ours), 5)
    # All peers of a part are in the GPU's memory together: four of B/16 with 128 images are.
    speed("train", "B/16", 128, TRAIN, 4)
    for model, batch in (("S/16", 128), ("L/16", 32)):
        speed("forward", model, 256, SPEED, 2)
        speed("train", model, batch, TRAIN, 2.5)
    for batch in (1, 64, 1024):
        speed("forward", "B/16", batch, SPEED, 2)
    for batch in (512, 1024):  # the largest that fits: a peer without the memory fails alone
        speed("train", "B/16", batch, TRAIN[2:], 1.5)
    speed("train", "B/16", 64, ("keras_vit-torch-fit-compiled",), 1.5)
    speed("train", "B/16", 32, tuple(f"{peer}-fit" for peer in OURS), 1.5)  # arrays in memory
    photographs = ("--task", "input", "--rounds", "1", "--batch", "64")
    parts.append(Part("JPEG files to batches", (*PYTHON, "benchmarks", *photographs), 1.5))
    for model, batch in (("DINOv2-B/14", 32), ("DINOv3-S/16", 64), ("H/14", 64), ("Ti/16", 256)):
        speed("forward", model, batch, SPEED, 2)
    for side, batch in ((384, 64), (1024, 8)):  # 577 and 4,097 tokens; DINOv2-B/14 has 1,370
        if not tiny:
            speed("forward", "B/16", batch, SPEED, 2)
            part = parts.pop()
            command = (*part.command, "--image-size", str(side))
            parts.append(dataclasses.replace(part, name=f"{part.name}, {side}", command=command))
    return parts


def run(parts: list[Part], file: Path, minutes: float, work: Path) -> dict[str, Any]:
    """Runs the parts that FILE lacks while there is time, and writes it after each."""
    end = time.monotonic() + 60 * minutes
    report = json.loads(file.read_text()) if file.exists() else {"parts": {}}
    report |= {"published": PUBLISHED}
    for part in parts:
        if report["parts"].get(part.name, {}).get("code") == 0:
            continue
        seconds = min(60 * part.minutes, end - time.monotonic())
        if seconds < 20:
            report["parts"][part.name] = {"code": None, "text": "no time was left"}
        else:
            print(f"{part.name}, at most {seconds:.0f} s", flush=True)
            report["parts"][part.name] = _run(part, seconds, work)
        file.write_text(json.dumps(report, indent=1) + "\n")
    return report


def _run(part: Part, seconds: float, work: Path) -> dict[str, Any]:
    """Runs a part; its processes end with it, at the latest after `seconds`."""
    begun, output = time.monotonic(), work / "output.txt"
    environment = {**os.environ, **({"KERAS_BACKEND": part.backend} if part.backend else {})}
    with output.open("w") as file:
        process = subprocess.Popen(
            part.command,
            cwd=ROOT,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    figures = work / "speed.json"
    rows = json.loads(figures.read_text()) if figures.exists() else []
    figures.unlink(missing_ok=True)
    answer = {"code": code, "seconds": round(time.monotonic() - begun, 1), "rows": rows}
    return {**answer, "text": output.read_text(errors="replace")[-4000:]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--plan", action="store_true", help="print the plan and stop")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        parts = plan(chosen.tiny, Path(folder))
        if chosen.plan:
            for part in parts:
                print(f"{part.minutes:4} min  {part.name}: {' '.join(part.command[2:])}")
            return
        report = run(parts, chosen.file, chosen.minutes, Path(folder))
    for name, part in report["parts"].items():
        print(f"{name}: {'done' if part['code'] == 0 else part['text'][-200:]}")


if __name__ == "__main__":
    main()
