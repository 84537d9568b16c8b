"""Runs every command, and every export, once at the size that people use, and times it.

    python -m benchmarks.full_size benchmarks/results/full_size.json          # half an hour
    python -m benchmarks.full_size FIGURES --only openvino finetune           # some rows again

A preset of ViT-S/16 with random weights and 32 generated photographs take the place of downloads.
Seconds are of processor time on one thread, with the start of Python, which another program on the
machine hardly changes. The table of all rows in FIGURES is printed as Markdown. The status is 1 if
a command failed or took more processor time than `LIMIT`.
"""

import argparse
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
from PIL import Image

LIMIT = 540
"""Seconds of processor time after which the system ends a command."""

_PRESET = """
import keras, keras_vit
keras.utils.set_random_seed(0)
model = keras_vit.vit_s16(num_classes=2, class_names=("dark", "bright"), protocol="timm")
model.get_layer("head").kernel.assign(keras.random.normal((384, 2), stddev=0.05))
model.save_to_preset("s16")
"""
_TRAINING = "finetune photos --source s16 --batch-size 8 --validation 0.25"
_EVERYWHERE = {
    "predict": "predict photos --source s16",
    "embed": "embed photos --source s16 --path {out}.npy",
    "evaluate": "evaluate photos --source s16",
    "explain, one image": "explain photo.jpg --source s16 --path {out}",
    "finetune, 9 steps": _TRAINING + " --steps 9 --path {out}",
}
_ON_TORCH = {
    "list": "list",
    "doctor": "doctor",
    "info": "info s16",
    "probe": "probe photos --source s16 --path {out}",
    "explain with curves, one image": "explain photo.jpg --source s16 --path {out} --curves",
    "finetune of the head, 9 steps": _TRAINING + " --steps 9 --head-only --path {out}",
    "finetune with LoRA, 9 steps": _TRAINING + " --steps 9 --lora-rank 8 --path {out}",
    "finetune at 384 pixels, 3 steps": _TRAINING + " --steps 3 --image-size 384 --path {out}",
    "pretrain, 3 steps": "pretrain photos --source s16 --steps 3 --batch-size 8 --path {out}",
    "serve, one request": "serve s16 --port {port}",
    "convert to timm": "convert s16 {out} --family timm --lossy",
    "convert to transformers": "convert s16 {out} --family transformers --lossy",
    "convert to the official npz": "convert s16 {out}.npz --family google",
    "verify, two presets": "verify s16 s16",
}
_EXPORTS = {
    "torch": {"onnx": "float32 float16 int8", "openvino": "float32 float16 int8", "torch": ""},
    "jax": {"onnx": ""},
    "tensorflow": {"saved_model": "", "litert": "float32 float16 int8"},
}
_CALIBRATED = ("onnx", "openvino")


def rows() -> dict[str, tuple[str, str]]:
    """Returns the backend and the command line of each row."""
    found = {f"{name} ({on})": (on, line) for on in _BACKENDS for name, line in _EVERYWHERE.items()}
    found |= {f"{name} (torch)": ("torch", line) for name, line in _ON_TORCH.items()}
    for backend, formats in _EXPORTS.items():
        for form, precisions in formats.items():
            for precision in precisions.split() or ["float32"]:
                line = f"export s16 --path {{out}} --format {form} --precision {precision}"
                unprepared = " --no-preprocessing" if (form, precision) == _UNPREPARED else ""
                found[f"export {form}, {precision} ({backend})"] = (backend, line + unprepared)
                if precision == "int8" and form in _CALIBRATED:
                    line += " --calibration photos"
                    found[f"export {form}, int8 with calibration ({backend})"] = (backend, line)
    return found


_BACKENDS = ("torch", "jax", "tensorflow")
_UNPREPARED = ("onnx", "float16")


def prepare(folder: Path) -> None:
    """Writes the preset `s16` and 32 photographs of two classes."""
    random = np.random.default_rng(0)
    for label, most in (("dark", 120), ("bright", 256)):
        (folder / "photos" / label).mkdir(parents=True)
        for k in range(16):
            coarse = Image.fromarray(random.integers(0, most, (12, 16, 3), dtype=np.uint8))
            coarse.resize((500, 375)).save(folder / "photos" / label / f"{k}.jpg")
    shutil.copy(folder / "photos" / "dark" / "0.jpg", folder / "photo.jpg")
    subprocess.run(
        [sys.executable, "-c", _PRESET],
        cwd=folder,
        check=True,
        env=_on("torch"),
        stderr=subprocess.DEVNULL,
    )


def _on(backend: str) -> dict[str, str]:
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    threads = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return {**os.environ, **threads, "PYTHONPATH": paths, "KERAS_BACKEND": backend}


def measure(folder: Path, backend: str, line: str) -> tuple[float, str]:
    """Returns the processor time of a command in seconds, and why it failed, or ""."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["-m", "keras_vit.cli", *line.format(port=port, out=f"out_{time.time_ns()}").split()]
    before = _processor_seconds()
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env=_on(backend),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    resource.prlimit(process.pid, resource.RLIMIT_CPU, (LIMIT, LIMIT))
    if line.startswith("serve"):
        _ask(f"http://127.0.0.1:{port}/classify", folder / "photo.jpg", process)
    _, errors = process.communicate()
    failure = (errors.strip().splitlines() or ["no message"])[-1] if process.returncode else ""
    return _processor_seconds() - before, failure


def _ask(address: str, photo: Path, server: subprocess.Popen[str]) -> None:
    """Posts a photograph as soon as a server answers, and ends the server."""
    request = urllib.request.Request(address, photo.read_bytes(), {"Content-Type": "image/jpeg"})
    while server.poll() is None:
        try:
            urllib.request.urlopen(request).read()
            server.send_signal(signal.SIGTERM)
            return
        except (ConnectionError, urllib.error.URLError):
            time.sleep(0.2)


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(figures: dict[str, float]) -> str:
    """Returns the rows as Markdown, with a column for each backend."""
    lines = ["| " + " | ".join(["", *_BACKENDS]) + " |", "|---|" + "---:|" * len(_BACKENDS)]
    names = dict.fromkeys(name.rpartition(" (")[0] for name in rows())
    for name in names:
        cells = [figures.get(f"{name} ({backend})") for backend in _BACKENDS]
        shown = ["" if seconds is None else f"{seconds:.1f}" for seconds in cells]
        lines.append("| " + " | ".join([name, *shown]) + " |")
    return "\n".join(lines)


def main() -> int:
    """Measures rows, one after the other, and keeps each at once."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("figures", type=Path, help="JSON of seconds, which is kept up to date")
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the names of rows")
    arguments = parser.parse_args()
    path = arguments.figures
    figures = json.loads(path.read_text()) if path.exists() else {}
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        for name, (backend, line) in rows().items():
            if not any(part in name for part in arguments.only):
                continue
            seconds, failure = measure(Path(folder), backend, line)
            print(f"{name}: {seconds:.0f} s {failure}", file=sys.stderr, flush=True)
            failed += bool(failure)
            if not failure:
                figures[name] = round(seconds, 1)
                path.write_text(json.dumps(figures, indent=1) + "\n")
    print(table(figures))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
