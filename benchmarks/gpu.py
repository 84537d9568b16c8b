"""The day of a GPU, forty minutes of one H100: python -m benchmarks.gpu FILE.json (make bench-gpu).

The plan runs from what matters most to what matters least: tests that need a GPU, then B/16 beside
timm, training of every model, then further models, batches, sequences and `fit`. Each part has a
process of its own and a limit of time. FILE gets every row as soon as it is known, so that a part
that is killed, or the whole run, keeps what it has; a second run goes on with the parts that did
not end. A part that no longer fits into `--minutes` is named.

`--tiny` is the same plan with a model of one block and few images, which any machine runs in
minutes; parts that would be the same then run once, and the compilers of torch once per task.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_vit.support.files import write_json

ROOT = Path(__file__).parents[1]
PYTHON = (sys.executable, "-m")
TIMM = ("timm", "timm-compiled")
SPEED = (*TIMM, "keras_vit-torch-call", "keras_vit-torch-call-compiled", "keras_vit-jax-call")
TRAIN = (*TIMM, "keras_vit-torch-loop", "keras_vit-torch-fit-compiled", "keras_vit-jax-loop")
PLAIN = ("timm", "keras_vit-torch-{}", "keras_vit-jax-{}")
"""Peers that need no compiler of torch, so that a part takes a minute."""
TINY = {"DINOv2-B/14": "tiny DINOv2", "DINOv3-S/16": "tiny DINOv3"}
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


@dataclasses.dataclass
class Plan:
    """The parts in their order; those that measure write their rows into `file`."""

    file: Path
    tiny: bool
    parts: dict[str, Part] = dataclasses.field(default_factory=dict)

    def tests(self, backend: str) -> None:
        command = (*PYTHON, "pytest", "-q", "-n", "0", "-m", "gpu", "-rs", "tests/test_gpu.py")
        self._add(Part(f"tests, {backend}", command, 3, backend))

    def speed(
        self,
        task: str,
        model: str,
        batch: int,
        peers: tuple[str, ...],
        minutes: float,
        side: int | None = None,
    ) -> None:
        """Adds products and peers that take turns in the forward pass or in a training step."""
        units = ("products", "products-xla")
        if self.tiny:
            model, batch = TINY.get(model, "tiny"), min(batch, 2)
            side = side and 128
            if any(name.startswith(task) for name in self.parts):  # compilers were tried
                units, peers = units[:1], PLAIN
        verb = "call" if task == "forward" else "loop"
        # Products by the libraries of CPUs would take most of the time.
        options: tuple[Any, ...] = ("--units", *units)
        options += ("--peers", *(peer.format(verb) for peer in peers))
        options += ("--rounds", 1, "--seconds", 0.1) if self.tiny else ("--rounds", 3)
        options += ("--image-size", side) if side else ()
        name = f"{task} {model}, batch {batch}" + (f", {side} pixels" if side else "")
        self._measure(name, task, model, batch, options, minutes)

    def photographs(self, task: str, model: str, batch: int, minutes: float) -> None:
        """Adds JPEG files to batches, or `fit` on them and on arrays in memory."""
        model, batch = ("tiny", 4) if self.tiny else (model, batch)
        options: tuple[Any, ...] = ("--photographs", 16 if self.tiny else 1024, "--rounds", 1)
        options += ("--workers", 2 if self.tiny else 16, "--peers", "torch", "jax")
        self._measure(f"{task} {model}, batch {batch}", task, model, batch, options, minutes)

    def _measure(
        self, name: str, task: str, model: str, batch: int, options: tuple[Any, ...], minutes: float
    ) -> None:
        minutes *= 4 if self.tiny else 1  # a machine that is busy with other work
        options += ("--start-seconds", 40 * minutes)
        command: tuple[Any, ...] = (*PYTHON, "benchmarks", "--task", task, "--model", model)
        command += ("--batch", batch, "--dtype", "bfloat16", "--json", self.file, *options)
        self._add(Part(name, tuple(map(str, command)), minutes))

    def _add(self, part: Part) -> None:
        self.parts.setdefault(part.name, part)


def plan(tiny: bool, work: Path) -> list[Part]:
    """Returns the parts in their order; the figures of a part go to `work`."""
    of = Plan(work / "rows.json", tiny)
    of.tests("torch")
    of.tests("jax")
    # All peers of a part are in the GPU's memory together: five of B/16 with 128 images are.
    of.speed("forward", "B/16", 256, ("timm-max-autotune", *SPEED), 4)
    of.speed("train", "B/16", 128, TRAIN, 3)
    of.speed("forward", "S/16", 256, SPEED, 2)
    of.speed("train", "S/16", 128, TRAIN, 2)
    of.photographs("fit", "B/16", 128, 2)
    of.speed("forward", "L/16", 256, SPEED, 2)
    for model, batch in (
        ("L/16", 32), ("DINOv2-B/14", 32), ("DINOv3-S/16", 64), ("Ti/16", 256), ("H/14", 16),
    ):  # fmt: skip
        of.speed("train", model, batch, PLAIN, 1.5)
    for batch in (1, 64, 1024):
        of.speed("forward", "B/16", batch, SPEED, 1.5)
    for batch in (512, 1024):  # the largest that fits: a peer without the memory fails alone
        of.speed("train", "B/16", batch, PLAIN[1:], 1)
    for model, batch in (("DINOv2-B/14", 32), ("DINOv3-S/16", 64), ("H/14", 64), ("Ti/16", 256)):
        of.speed("forward", model, batch, PLAIN, 1)
    for side, batch in ((384, 64), (1024, 8)):  # 577 and 4,097 tokens; DINOv2-B/14 has 1,370
        of.speed("forward", "B/16", batch, SPEED, 1.5, side)
        of.speed("train", "B/16", batch // 4, PLAIN, 1, side)
    of.photographs("input", "B/16", 128, 1)
    return list(of.parts.values())


def run(parts: list[Part], file: Path, minutes: float, work: Path) -> dict[str, Any]:
    """Runs the parts that FILE lacks while there is time, and keeps FILE up to date."""
    end = time.monotonic() + 60 * minutes
    report = json.loads(file.read_text()) if file.exists() else {"parts": {}}
    report |= {"published": PUBLISHED}
    for part in parts:
        before = report["parts"].get(part.name, {"code": None, "rows": []})
        if before["code"] == 0:
            continue
        left = end - time.monotonic()
        if left < 20:
            report["parts"][part.name] = {**before, "text": "no time was left"}
            write_json(file, report)
            continue
        seconds = min(60 * part.minutes, left)
        print(f"{part.name}, at most {seconds:.0f} s", flush=True)
        for answer in _run(part, seconds, work):
            if answer["code"] == 0 or len(answer["rows"]) >= len(before["rows"]):
                report["parts"][part.name] = answer
                write_json(file, report)
    return report


def _run(part: Part, seconds: float, work: Path) -> Iterator[dict[str, Any]]:
    """Runs a part and yields what it has so far; its processes end by `seconds`."""
    begun, output, rows = time.monotonic(), work / "output.txt", work / "rows.json"
    rows.unlink(missing_ok=True)
    environment = {**os.environ, **({"KERAS_BACKEND": part.backend} if part.backend else {})}

    def answer(code: int | None) -> dict[str, Any]:
        return {
            "code": code,
            "seconds": round(time.monotonic() - begun, 1),
            "rows": json.loads(rows.read_text()) if rows.exists() else [],
            "text": output.read_text(errors="replace")[-4000:],
        }

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
            while process.poll() is None and time.monotonic() - begun < seconds:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(2)
                if process.poll() is None:
                    yield answer(None)
            code = process.poll()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    yield answer(code)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--plan", action="store_true", help="print the plan and stop")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # the part ends with this process
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
