"""The aims of the benchmarks, and the figures of a run beside them.

python -m benchmarks.aims benchmarks/results/cpu.json
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.sizes import size_named

Runs = list[dict[str, Any]]

_NAMES = {"torch": "torch", "jax": "JAX", "tensorflow": "TensorFlow"}
_COLUMNS = ("S/16 b1", "S/16 b8", "B/16 b1", "B/16 b8")
_MB_OF_WEIGHTS = {"B/16 at 1024": 345, "L/16": 1161}
"""Megabytes (2^20 bytes) of float32 weights."""


def _rows(runs: Runs, *peers: str, **request: Any) -> dict[str, dict[str, Any]]:
    """The rows of the newest run with this request and these peers; `{}` without such a run."""
    for run in reversed(runs):
        rows = {row["peer"]: row for row in run["rows"] if "failed" not in row}
        asked = request.items() <= run["request"].items()
        if asked and all(peer in rows for peer in peers):
            return rows
    return {}


def speed(
    runs: Runs, peer: str, unit: str, task: str, column: str, dtype: str = "float32"
) -> float | None:
    """Returns the speed of a peer in units of another peer; None if no run has both."""
    model, _, batch = column.partition(" b")
    asked = {"task": task, "model": model, "batch": int(batch), "dtype": dtype}
    rows = _rows(runs, peer, unit, image_size=size_named(model).image_size, **asked)
    return rows[peer]["share"] / rows[unit]["share"] if rows else None


def _speeds(peer: str, unit: str, columns: Sequence[str] = _COLUMNS, **job: Any) -> Any:
    def found(runs: Runs) -> Iterator[tuple[str, str]]:
        for column in columns:
            ratio = speed(runs, peer, unit, column=column, **({"task": "forward"} | job))
            if ratio is not None:
                yield column.replace(" b", " batch "), f"{ratio:.2f}"

    return found


def _fit_and_loop(runs: Runs) -> Iterator[tuple[str, str]]:
    for backend, name in _NAMES.items():
        peers = f"keras_vit-{backend}-fit", f"keras_vit-{backend}-loop"
        if (ratio := speed(runs, *peers, "train", "S/16 b8")) is not None:
            yield name, f"{ratio:.2f}"


def _load_time(runs: Runs) -> Iterator[tuple[str, str]]:
    if rows := _rows(runs, "timm", "keras_vit-torch", task="load"):
        yield "torch", f"{rows['keras_vit-torch']['seconds'] / rows['timm']['seconds']:.2f}"


def _first_predict(runs: Runs) -> Iterator[tuple[str, str]]:
    if rows := _rows(runs, "timm", "keras_vit-torch", task="first", model="S/16"):
        yield "torch", f"{rows['keras_vit-torch']['seconds'] / rows['timm']['seconds']:.2f}"


def _load_peak(runs: Runs) -> Iterator[tuple[str, str]]:
    rows = _rows(runs, task="load", model="L/16")
    for backend, name in _NAMES.items():
        if row := rows.get(f"keras_vit-{backend}"):
            yield name, f"{row['above_idle_mb'] / _MB_OF_WEIGHTS['L/16']:.2f}"


def _import(runs: Runs) -> Iterator[tuple[str, str]]:
    rows = _rows(runs, task="start")
    for backend, name in _NAMES.items():
        ours, keras = rows.get(f"keras_vit-{backend}"), rows.get(f"keras-{backend}")
        if ours and keras:
            more = {key: ours[key] - keras[key] for key in ("seconds", "mb")}
            yield name, f"{more['seconds']:+.1f} s {more['mb']:+.0f} MB"


def _input(runs: Runs) -> Iterator[tuple[str, str]]:
    rows = _rows(runs, task="input")
    for kind, name in (("evaluation", "evaluation"), ("training", "crop and flip")):
        if rows:
            ours, timm = rows[f"keras_vit, {kind}"], rows[f"timm, {kind}"]
            yield name, f"{ours['images_per_second'] / timm['images_per_second']:.2f}"


def _memory(runs: Runs) -> Iterator[tuple[str, str]]:
    natives = (("torch", "timm"), ("jax", "flax"))
    for size in (224, 384):
        for of, mode in (("forward", "predict"), ("train", "fit")):
            rows = _rows(runs, task=f"memory of {of}", image_size=size, model="B/16")
            for backend, native in natives:
                ours = rows.get(f"keras_vit-{backend}-{mode}")
                if ours and native in rows:
                    ratio = ours["above_idle_mb"] / rows[native]["above_idle_mb"]
                    yield f"{of} at {size} {_NAMES[backend]}", f"{ratio:.2f}"


def _remat(runs: Runs) -> Iterator[tuple[str, str]]:
    rows = _rows(runs, task="memory of finetune", image_size=384)
    for backend, name in _NAMES.items():
        whole, less = (rows.get(f"keras_vit-{backend}{end}") for end in ("", ", remat"))
        if whole and less:
            yield name, f"{100 * (1 - less['above_idle_mb'] / whole['above_idle_mb']):.0f} %"


def _many_tokens(runs: Runs) -> Iterator[tuple[str, str]]:
    rows = _rows(runs, task="memory of forward", image_size=1024, batch=1)
    for backend, name in _NAMES.items():
        if row := rows.get(f"keras_vit-{backend}-predict"):
            yield name, f"{row['above_idle_mb'] - _MB_OF_WEIGHTS['B/16 at 1024']:.0f}"


_BATCH_8, _TRAIN = ("S/16 b8", "B/16 b8"), {"task": "train", "columns": ("S/16 b8",)}
_BATCH_1 = ("S/16 b1", "B/16 b1")
_FAMILIES = ("DINOv2-S/14 b1", "DINOv3-S/16 b1", "SigLIP-B/16 b1", "CLIP-B/32 b1")


def _of_families(backend: str, mode: str, unit: str) -> Any:
    """The speeds of keras_vit on the models of the families, in units of another peer."""
    task = "train" if mode == "fit" else "forward"
    return _speeds(f"keras_vit-{backend}-{mode}", unit, _FAMILIES, task=task)


Aims = tuple[tuple[str, str, Callable[[Runs], Iterator[tuple[str, str]]]], ...]

AIMS: Aims = (
    (
        "torch `predict` / timm eager, batch 8",
        "0.97",
        _speeds("keras_vit-torch-predict", "timm", _BATCH_8),
    ),
    (
        "torch compiled / timm compiled, batch 8",
        "1.0",
        _speeds("keras_vit-torch-predict-compiled", "timm-compiled", _BATCH_8),
    ),
    (
        "torch `predict` / timm eager, batch 1",
        "0.92 (S/16)",
        _speeds("keras_vit-torch-predict", "timm", ("S/16 b1", "B/16 b1")),
    ),
    ("JAX `predict` / Flax", "1.0", _speeds("keras_vit-jax-predict", "flax")),
    (
        "TensorFlow `predict` / own function",
        "0.95",
        _speeds("keras_vit-tensorflow-predict", "keras_vit-tensorflow-call"),
    ),
    (
        "TensorFlow `predict` / keras-hub's",
        "1.5",
        _speeds("keras_vit-tensorflow-predict", "keras_hub-tensorflow-predict"),
    ),
    ("torch `fit` / timm's loop", "0.97", _speeds("keras_vit-torch-fit", "timm", **_TRAIN)),
    ("JAX `fit` / Flax, donated", "1.0", _speeds("keras_vit-jax-fit", "flax", **_TRAIN)),
    (
        "JAX `fit` / keras-hub's",
        "1.3",
        _speeds("keras_vit-jax-fit", "keras_hub-jax-fit", **_TRAIN),
    ),
    (
        "TensorFlow `fit` / keras-hub's",
        "1.2",
        _speeds("keras_vit-tensorflow-fit", "keras_hub-tensorflow-fit", **_TRAIN),
    ),
    ("`fit` / own hand-written loop", "0.95", _fit_and_loop),
    (
        "torch, bfloat16 / timm's, as shares of bfloat16 products",
        "1.0",
        _speeds("keras_vit-torch-predict", "timm", ("S/16 b8",), dtype="bfloat16"),
    ),
    ("families: torch `predict` / timm eager", "0.97", _of_families("torch", "predict", "timm")),
    (
        "families: torch `predict` / transformers",
        "0.97",
        _of_families("torch", "predict", "transformers"),
    ),
    ("families: torch `fit` / timm's loop", "0.97", _of_families("torch", "fit", "timm")),
    (
        "families: torch `fit` / transformers' loop",
        "0.97",
        _of_families("torch", "fit", "transformers"),
    ),
    *(
        (
            f"families: {_NAMES[backend]} `{mode}` / keras-hub's",
            aim,
            _of_families(backend, mode, f"keras_hub-{backend}-{mode}"),
        )
        for backend in _NAMES
        for mode, aim in (("predict", "1.0"), ("fit", "1.2"))
    ),
    ("L/16 file to an answer, seconds / timm's", "at most 1.3", _load_time),
    ("its peak above the idle process / weights", "at most 1.25", _load_peak),
    ("`import keras_vit` above `import keras`", "at most 0.2 s, 30 MB", _import),
    ("JPEG folder to batches / timm's DataLoader", "1.0", _input),
    ("peak memory above idle, B/16, batch 4 / native", "at most 1.0", _memory),
    ("`remat=True`, fine-tuning B/16 at 384, batch 4: less peak", "35 %", _remat),
    ("4,097 tokens, B/16, forward: MB above the weights", "at most 768", _many_tokens),
)
"""Name, aim, and a function that reads the result from the runs. Most ratios compare speeds."""

_IN_OPENVINO = "timm-in-openvino"

AIMS_ON_AMD: Aims = (
    (
        "torch `predict` / timm eager, batch 8",
        "1.8",
        _speeds("keras_vit-torch-predict", "timm", _BATCH_8),
    ),
    (
        "torch `predict` / timm's model in OpenVINO, batch 8",
        "0.9",
        _speeds("keras_vit-torch-predict", _IN_OPENVINO, _BATCH_8),
    ),
    (
        "torch `predict` / timm eager, batch 1",
        "1.6",
        _speeds("keras_vit-torch-predict", "timm", _BATCH_1),
    ),
    *(
        (
            f"OpenVINO `predict` / timm's model in OpenVINO, {dtype}",
            "0.95",
            _speeds("keras_vit-openvino-predict", _IN_OPENVINO, dtype=dtype),
        )
        for dtype in ("float32", "bfloat16")
    ),
    ("torch `fit` / timm's eager loop", "1.5", _speeds("keras_vit-torch-fit", "timm", **_TRAIN)),
    *(
        (
            f"JAX `predict` / timm's model in OpenVINO, batch {batch}",
            aim,
            _speeds("keras_vit-jax-predict", _IN_OPENVINO, columns),
        )
        for batch, aim, columns in ((8, "0.9", _BATCH_8), (1, "0.85", _BATCH_1))
    ),
    (
        "TensorFlow `predict` / JAX `predict`",
        "0.85",
        _speeds("keras_vit-tensorflow-predict", "keras_vit-jax-predict"),
    ),
    ("JAX `fit` / Flax", "1.1", _speeds("keras_vit-jax-fit", "flax", **_TRAIN)),
    (
        "TensorFlow `fit` / JAX `fit`",
        "0.85",
        _speeds("keras_vit-tensorflow-fit", "keras_vit-jax-fit", **_TRAIN),
    ),
    ("first forward pass of S/16, seconds / timm's", "at most 1.2", _first_predict),
)
"""Aims for AMD processors with AVX-512 in float32; on other processors `AIMS` hold alone."""


def table(runs: Runs, aims: Aims = AIMS) -> str:
    """Returns aims as a Markdown table, with the results of the newest runs."""
    lines = ["| | aim | came |", "|---|---|---|"]
    for what, aim, found in aims:
        came = ", ".join(f"{name} {value}" for name, value in found(runs)) or "not measured"
        lines.append(f"| {what} | {aim} | {came} |")
    return "\n".join(lines)


if __name__ == "__main__":
    measured = json.loads(Path(sys.argv[1]).read_text())
    print(table(measured))
    print("\nOn AMD processors with AVX-512:\n")
    print(table(measured, AIMS_ON_AMD))
