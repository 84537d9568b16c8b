"""Where the time goes, on the backend of this process.

    KERAS_BACKEND=jax python -m benchmarks.profiles FILE
    python -m benchmarks.profiles --table FILE

The backend's own profiler watches a few forward passes, and a few training steps, of the harness.
Each operation is put down to what it is part of. XLA fuses: a fusion counts where its last
operation stands. Overhead is the time in which no operation runs.
"""

import argparse
import json
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers import PEERS, Job, Step
from benchmarks.sizes import size_named

PARTS = (
    "products",
    "attention",
    "norms",
    "GELU",
    "optimizer",
    "copies",
    "other",
    "overhead",
)
_STEPS = 4
_PEERS = {
    "torch": ("keras_vit-torch-call", "keras_vit-torch-fit"),
    "jax": ("keras_vit-jax-call", "keras_vit-jax-loop"),
    "tensorflow": ("keras_vit-tensorflow-call", "keras_vit-tensorflow-loop"),
}


class Event(NamedTuple):
    """An operation that ran: its part of the model, and its start and end in nanoseconds."""

    part: str
    start: float
    end: float


def profile(backend: str, model: str, batch: int) -> list[dict[str, Any]]:
    """Returns the shares of a forward pass and of a training step."""
    watched = {"torch": _torch, "jax": _jax, "tensorflow": _tensorflow}[backend]
    rows = []
    for name in _PEERS[backend]:
        (task,) = PEERS[name].tasks
        step = PEERS[name].make(Job(task, size_named(model), batch))
        begun = time.perf_counter()
        step(_STEPS)
        milliseconds = (time.perf_counter() - begun) / _STEPS * 1e3
        shares = watched(step)
        rows.append({
            "backend": backend,
            "task": task,
            "model": model,
            "batch": batch,
            "milliseconds": round(milliseconds, 1),
            "shares": {part: round(shares.get(part, 0.0), 3) for part in PARTS},
        })  # fmt: skip
    return rows


def compute_shares(events: Iterable[Event], wall: float) -> dict[str, float]:
    """Returns each part's share of a stretch of time; operations may overlap."""
    by_part: Counter[str] = Counter()
    busy, reached = 0.0, float("-inf")
    for event in sorted(events, key=lambda event: event.start):
        by_part[event.part] += event.end - event.start  # type: ignore[assignment]
        busy += max(0.0, event.end - max(event.start, reached))
        reached = max(reached, event.end)
    whole = sum(by_part.values())
    shares = {part: spent / whole * busy / wall for part, spent in by_part.items()}
    return {**shares, "overhead": 1 - busy / wall}


# --- torch ---------------------------------------------------------------------------------

_TORCH = (
    ("optimizer", r"_foreach|fused_adam|Optimizer"),
    ("attention", r"attention|softmax|baddbmm|bmm"),
    ("products", r"addmm|::mm$|linear|matmul|convolution"),
    ("norms", r"layer_norm"),
    ("GELU", r"gelu|sigmoid|tanh|addcmul"),
    ("copies", r"copy|clone|cat|contiguous|to$|stack|fill|zero"),
)


def _torch(step: Step) -> dict[str, float]:
    import torch

    with torch.profiler.profile() as watched:
        begun = time.perf_counter()
        step(_STEPS)
        wall = (time.perf_counter() - begun) * 1e6
    spent: Counter[str] = Counter()
    for row in watched.key_averages():
        if row.key.startswith(("aten::", "Optimizer")):
            spent[_first(_TORCH, row.key)] += row.self_cpu_time_total  # type: ignore[assignment]
    shares = {part: time / wall for part, time in spent.items()}
    return {**shares, "overhead": 1 - sum(shares.values())}


# --- JAX -----------------------------------------------------------------------------------

_XLA_FUNCTIONS = (
    ("optimizer", r"stateless_apply"),
    ("attention", r"_attention|_in_blocks|_product$"),
    ("norms", r"layer_norm"),
)
_XLA_OPERATIONS = (
    ("attention", r"bhq|softmax"),
    ("products", r"dot_general$|conv_general_dilated$"),
    ("GELU", r"tanh$|erf$|gelu"),
    ("copies", r"transpose$|copy$|concatenate$|reshape$|broadcast_in_dim$|slice$|pad$"),
)


def _jax(step: Step) -> dict[str, float]:
    import jax

    dump = os.environ["XLA_FLAGS"].split("--xla_dump_to=")[1].split()[0]
    find_part = _list_parts(Path(dump))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            begun = time.perf_counter()
            step(_STEPS)
            wall = (time.perf_counter() - begun) * 1e9
        events = [
            Event(find_part.get(name, "other"), start, end)
            for name, operation, start, end in _traced(folder)
            if operation and not name.startswith("end: ")
        ]
    return compute_shares(events, wall)


def _list_parts(folder: Path) -> dict[str, str]:
    """Instruction -> part, for the largest program that XLA has dumped."""
    path = max(
        folder.glob("*jit_*.cpu_after_optimizations.txt"), key=lambda path: path.stat().st_size
    )
    text = path.read_text()
    functions = dict(re.findall(r'^(\d+) "([^"/]+)"$', _table(text, "FunctionNames"), re.M))
    places = dict(
        re.findall(r"^(\d+) \{.*function_name_id=(\d+)", _table(text, "FileLocations"), re.M)
    )
    frames = {
        number: (place, parent)
        for number, place, parent in re.findall(
            r"^(\d+) \{file_location_id=(\d+)(?: parent_frame_id=(\d+))?",
            _table(text, "StackFrames"),
            re.M,
        )
    }

    def callers(frame: str) -> Iterator[str]:
        seen = set()
        while frame in frames and frame not in seen:
            seen.add(frame)
            place, parent = frames[frame]
            yield functions.get(places.get(place, ""), "")
            frame = parent

    parts = {}
    for line in text.splitlines():
        found = re.match(r"\s+(?:ROOT )?%?([\w.\-]+) = ", line)
        if not found:
            continue
        operation = re.search(r'op_name="([^"]*)"', line)
        frame = re.search(r"stack_frame_id=(\d+)", line)
        within = " ".join(callers(frame[1])) if frame else ""
        name = operation[1] if operation else found[1]
        part = _first(_XLA_FUNCTIONS, within, None) or _first(_XLA_OPERATIONS, name)
        if part == "other" and found[1].startswith(("copy", "transpose")):
            part = "copies"
        parts[found[1]] = part
    return parts


def _table(text: str, title: str) -> str:
    found = re.search(rf"^{title}\n(.*?)\n\n", text, re.M | re.S)
    return found[1] if found else ""


# --- TensorFlow ----------------------------------------------------------------------------

_TF_TYPES = (
    ("attention", r"Einsum|BatchMatMul|Softmax"),
    ("products", r"MatMul|Conv2D"),
    ("norms", r"Mean|Rsqrt|SquaredDifference|Norm|Moments"),
    ("GELU", r"Tanh|Erf|Gelu"),
    ("copies", r"Transpose|Concat|Copy|Cast|Split|Pack|Slice|Pad|Fill|ZerosLike"),
)


def _tensorflow(step: Step) -> dict[str, float]:
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        begun = time.perf_counter()
        step(_STEPS)
        wall = (time.perf_counter() - begun) * 1e9
        tf.profiler.experimental.stop()
        events = []
        for name, _, start, end in _traced(folder):
            scope, _, kind = name.rpartition(":")
            if not scope or " " in name or "::" in name or "Call" in kind:
                continue
            part = "optimizer" if "adamw" in scope.lower() else _first(_TF_TYPES, kind)
            events.append(Event(part, start, end))
    return compute_shares(events, wall)


# --- all backends --------------------------------------------------------------------------


def _traced(folder: str) -> Iterator[tuple[str, Any, float, float]]:
    """Name, HLO instruction if any, start and end of each event that a profiler has recorded."""
    from jax.profiler import ProfileData

    (path,) = Path(folder).rglob("*.xplane.pb")
    for plane in ProfileData.from_file(str(path)).planes:
        for line in plane.lines:
            for event in line.events:
                operation = dict(event.stats).get("hlo_op")
                yield event.name, operation, event.start_ns, event.start_ns + event.duration_ns


def _first(patterns: Any, text: str, otherwise: Any = "other") -> Any:
    return next((part for part, pattern in patterns if re.search(pattern, text)), otherwise)


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the rows as Markdown, in percent of the time."""
    lines = [
        f"| backend | task | ms | {' | '.join(PARTS)} |",
        f"|---|---|---|{'---|' * len(PARTS)}",
    ]
    for row in rows:
        shares = " | ".join(f"{row['shares'][part]:.0%}" for part in PARTS)
        lines.append(f"| {row['backend']} | {row['task']} | {row['milliseconds']:.0f} | {shares} |")
    return "\n".join(lines)


def main() -> None:
    """Profiles; adds the rows to a file or prints them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("json", type=Path)
    parser.add_argument("--model", default="S/16")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--table", action="store_true", help="print what the file holds")
    arguments = parser.parse_args()
    rows = json.loads(arguments.json.read_text()) if arguments.json.exists() else []
    if not arguments.table:
        backend = os.environ["KERAS_BACKEND"]
        with tempfile.TemporaryDirectory() as dump:
            only = "--xla_dump_hlo_module_re=jit_(jitted|train_step)"
            os.environ["XLA_FLAGS"] = f"--xla_dump_hlo_as_text {only} --xla_dump_to={dump}"
            found = profile(backend, arguments.model, arguments.batch)
        rows = [row for row in rows if row["backend"] != backend] + found
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
